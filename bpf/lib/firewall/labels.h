/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What rules see of the stack that a packet came with, by a label of this node: its steering header, in place of any
 * SRH that is behind the stack. That label is the first one.
 */
#ifndef SEGUE_FIREWALL_LABELS_H
#define SEGUE_FIREWALL_LABELS_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/firewall/work.h"
#include "abi/classifier.h"

_Static_assert(__builtin_offsetof(struct segue_classifier_key, outer_source) ==
		       __builtin_offsetof(struct segue_classifier_key, active_sid) + 4 * SEGUE_CLASSIFIER_LABELS,
	       "the entries of a stack lie where SIDs do");

/* `flags` of the firewall. 0, or the outcome: what a rule cannot see must not slip past it. */
RARE u32 firewall_key_labels(buffer *ctx, struct firewall_work *work, u32 flags)
{
	const u32 *from = buffer_start(ctx) + ETHERNET_LENGTH;
	const void *end = buffer_end(ctx);
	struct segue_classifier_key *key;
	u32 *entries, count, present = SEGUE_PRESENT_LABELS, word = 0;

	if (!work || (const void *)(from + 1) > end)
		return SEGUE_OUTCOME_drop_header_unfit;
	key = &work->key;
	entries = (u32 *)key->active_sid;
	count = work->stack / sizeof(u32) - 1;
	if (count > SEGUE_CLASSIFIER_LABELS && flags & SEGUE_FIREWALL_ANY_LABEL)
		return SEGUE_OUTCOME_drop_label_depth;
	key->srh_next_header = SEGUE_CLASSIFIER_ABSENT;
	key->srh_length = SEGUE_CLASSIFIER_ABSENT;
	key->srh_segments_left = SEGUE_CLASSIFIER_ABSENT;
	key->srh_last_entry = SEGUE_CLASSIFIER_ABSENT;
	key->srh_tag = SEGUE_CLASSIFIER_ABSENT;
	key->label_own = bpf_ntohl(from[0]);
	for (u32 i = 0; i < SEGUE_LABELS_MAX - 1; i++) {
		if (i >= count)
			break;
		if ((const void *)(from + i + 2) > end)
			return SEGUE_OUTCOME_drop_header_unfit;
		word = bpf_ntohl(from[i + 1]);
		if (i < SEGUE_CLASSIFIER_LABELS) {
			entries[i] = word;
			present |= SEGUE_PRESENT_LABEL << i;
		}
	}
	key->label_last = word;
	key->present = present | count << SEGUE_PRESENT_LABELS_SHIFT;
	return 0;
}

#endif
