/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From the top of a stack to the first label that leads on: those that are this node's own come off (RFC 8660, NEXT).
 */
#ifndef SEGUE_LABELS_WALK_H
#define SEGUE_LABELS_WALK_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/packet/stage.h"
#include "lib/labels/entry.h"

#define LABELS_OWN_MAX 8 /* labels of this node itself in a row */

struct label_found {
	u32 off;     /* octets of the labels in front of it, which come off */
	u32 word;    /* its entry, in host byte order */
	u32 ttl;     /* that it came with, or in uniform mode those in front of it (RFC 3443 section 3.4) */
	u32 index;   /* in `sid_entries` */
	u32 frame;   /* octets of the frame */
	u32 special; /* 1: an explicit null */
};

/* The outcome of what cannot go on, or 0 and `found` is filled but for `frame`. */
RARE int labels_walk(buffer *ctx, u64 epoch, u32 config_flags, struct label_found *found)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 ttl = 0;

	if (!found)
		return SEGUE_OUTCOME_drop_label_bottom;
	for (u32 i = 0; i < LABELS_OWN_MAX; i++) {
		const u8 *entry = data + ETHERNET_LENGTH + i * ENTRY_LENGTH;
		const struct segue_sid *sid;
		u32 word, index = 0;

		if ((void *)(entry + ENTRY_LENGTH) > end)
			return SEGUE_OUTCOME_drop_label_bottom;
		word = entry_load(entry);
		sid = label_find(epoch, ENTRY_LABEL(word), &index);
		if (!sid)
			return ENTRY_LABEL(word) < LABELS_SPECIAL ? SEGUE_OUTCOME_drop_label_reserved
								  : SEGUE_OUTCOME_drop_label_unknown;
		if (!i || !(config_flags & SEGUE_CONFIG_TTL_UNIFORM))
			ttl = ENTRY_TTL(word);
		if (!ttl)
			return SEGUE_OUTCOME_drop_label_ttl;
		if (sid->behaviour == SEGUE_LABEL_NODE && !(word & ENTRY_BOTTOM))
			continue;
		found->off = i * ENTRY_LENGTH;
		found->word = word;
		found->ttl = ttl;
		found->index = index;
		found->special = ENTRY_LABEL(word) < LABELS_SPECIAL;
		return 0;
	}
	return SEGUE_OUTCOME_drop_label_depth;
}

#endif
