/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The node's own firewall behind a label: its rules on the packet that was behind the stack, as on one that has come in
 * by the port, and on the stack, which lies in the scratch memory meanwhile (lib/labels/function.h).
 */
#ifndef SEGUE_LABELS_FIREWALL_H
#define SEGUE_LABELS_FIREWALL_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/frame.h"
#include "lib/packet/outcome.h"
#include "lib/firewall/filter.h"
#include "lib/header/labels.h"
#include "lib/labels/ecn.h"
#include "lib/labels/room.h"
#include "lib/labels/walk.h"

#define LABELS_SKIPPED_ALL (~0U)

/* Is the entry a segment of its stack, the firewall's own not among them? An entropy label is none, and goes with what
 * is before it. `entropy`: whether the one before says that it is one; it then says so of the next. */
INLINE u32 label_is_segment(const struct segue_stash *stash, u32 at, u32 *entropy)
{
	u32 is_entropy = *entropy;

	*entropy = !is_entropy && entry_indicates(((const u32 *)stash->header)[at]) &&
		   (at + 1) * ENTRY_LENGTH < stash->length;
	return !is_entropy && !*entropy;
}

/*
 * Octets of the entries behind the firewall's own that the packet does not go on by: what is behind them becomes its
 * next segment. LABELS_SKIPPED_ALL: it would have none.
 */
RARE u32 labels_skipped(u32 detail)
{
	const struct scratch *scratch = scratch_get();
	u32 wanted = detail >> SEGUE_MPLS_COUNT_SHIFT, segments = 0, entropy = 0;

	if (!scratch)
		return LABELS_SKIPPED_ALL;
	if ((detail & SEGUE_MPLS_OPERATION) == SEGUE_MPLS_GO_LAST) {
		for (u32 i = 1; i < SEGUE_LABELS_MAX; i++) {
			if (i * ENTRY_LENGTH >= scratch->stash.length)
				break;
			segments += label_is_segment(&scratch->stash, i, &entropy);
		}
		if (segments <= wanted)
			return 0;
		wanted = segments - wanted;
		entropy = 0;
	}
	for (u32 i = 1; i < SEGUE_LABELS_MAX; i++) {
		if (i * ENTRY_LENGTH >= scratch->stash.length)
			break;
		if (!label_is_segment(&scratch->stash, i, &entropy))
			continue;
		if (!wanted)
			return (i - 1) * ENTRY_LENGTH;
		wanted--;
	}
	return LABELS_SKIPPED_ALL;
}

/*
 * The entries behind the first one, which is the firewall's, come off. Their congestion marks go where that one's does.
 * The outcome, or 0.
 */
INLINE u32 labels_skip(const struct packet *packet, u32 skipped)
{
	u32 behind = ETHERNET_LENGTH + ENTRY_LENGTH + skipped, outcome;
	void *data, *end;

	if (labels_have_ecn(packet) && labels_marked(packet->ctx, packet->generation, behind)) {
		outcome = label_mark_behind(packet, behind, 0);
		if (outcome)
			return outcome;
	}
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	skipped &= OFFSET_MASK;
	if (data + ETHERNET_LENGTH + skipped + ENTRY_LENGTH > end || data + ETHERNET_LENGTH + ENTRY_LENGTH > end)
		return SEGUE_OUTCOME_drop_adjust;
	*(u32 *)(data + ETHERNET_LENGTH + skipped) = *(u32 *)(data + ETHERNET_LENGTH);
	if (labels_off(packet->ctx, skipped, bpf_htons(ETH_P_MPLS_UC)))
		return SEGUE_OUTCOME_drop_adjust;
	/* The rules have judged a packet: it must not become a frame of a pseudowire, which nothing in front of it
	 * said. */
	if (unlikely(packet->port->config_flags & SEGUE_CONFIG_PSEUDOWIRES) &&
	    labels_frame_behind(packet->ctx, packet->epoch, ETHERNET_LENGTH))
		return SEGUE_OUTCOME_drop_inner_type;
	return 0;
}

INLINE int labels_firewall(struct packet *packet, struct scratch *scratch)
{
	struct firewall_work *work = firewall_work_get();
	const struct segue_firewall *firewall;
	u32 index = scratch->label.index, error, skipped = 0;
	const struct segue_sid *sid = bpf_map_lookup_elem(&sid_entries, &index);
	void *data, *end;

	packet->length = frame_length(packet->ctx) - ETHERNET_LENGTH;
	if (unlikely(!work || !sid))
		return drop(packet, SEGUE_OUTCOME_drop_behaviour);
	index = sid->firewall;
	firewall = bpf_map_lookup_elem(&firewalls, &index);
	if (unlikely(!firewall))
		return drop(packet, SEGUE_OUTCOME_drop_behaviour);
	if (likely(!(firewall->flags & SEGUE_FIREWALL_OFF))) {
		error = firewall_filter(packet->ctx, work, firewall, index, FIREWALL_BY_LABEL, packet->epoch);
		if (unlikely(error))
			return drop(packet, error);
		if (work->action == SEGUE_ACTION_REJECT)
			return firewall_reject(packet, work);
		if (work->action != SEGUE_ACTION_ACCEPT && work->action != SEGUE_ACTION_SEG6)
			return drop(packet, SEGUE_OUTCOME_drop_firewall);
		if (unlikely(work->action == SEGUE_ACTION_SEG6 && work->detail > SEGUE_MPLS_GO_NEXT)) {
			skipped = labels_skipped(work->detail);
			if (skipped == LABELS_SKIPPED_ALL)
				return drop(packet, SEGUE_OUTCOME_drop_label_bottom);
		}
	}
	scratch = scratch_get();
	if (!scratch || labels_on(packet->ctx, scratch->stash.length & 0xff))
		return drop(packet, SEGUE_OUTCOME_drop_no_headroom);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (labels_copy(data + ETHERNET_LENGTH, end, &scratch->stash, 0, 0))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (unlikely(skipped)) {
		error = labels_skip(packet, skipped);
		if (error)
			return drop(packet, error & (SEGUE_OUTCOMES_MAX - 1));
	}
	stage(packet, SEGUE_STAGE_LABELS_PASSED);
	return drop(packet, SEGUE_OUTCOME_drop_recirculation);
}

#endif
