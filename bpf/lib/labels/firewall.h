/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The node's own firewall behind a label: its rules on the packet behind the stack, as on one that has come in by the
 * port, and on the stack. The packet stays as it is meanwhile, its labels in front of it, the firewall's own first.
 */
#ifndef SEGUE_LABELS_FIREWALL_H
#define SEGUE_LABELS_FIREWALL_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/firewall/filter.h"
#include "lib/labels/ecn.h"
#include "lib/labels/fast.h"
#include "lib/labels/room.h"
#include "lib/labels/walk.h"

#define LABELS_SKIPPED_ALL (~0U)

/*
 * Octets of the entries behind the firewall's own up to the segment behind `wanted` others; `*segments`: how many there
 * are in all. `length`: octets of the stack. An entropy label is no segment, and goes with what is before it. Without
 * branches, of which each doubles what the verifier has to follow; so does a number that is 0 or ~0, since 6.18.
 */
INLINE u32 labels_up_to(buffer *ctx, u32 length, u32 wanted, u32 *segments)
{
	const u32 *entry = buffer_start(ctx) + ETHERNET_LENGTH;
	const void *end = buffer_end(ctx);
	u32 octets = 0, seen = 0, entropy = 0; /* 1: the entry before is an indicator */

	length ^= unknown_zero(buffer_interface(ctx));
	for (u32 i = 1; i < SEGUE_LABELS_MAX; i++) {
		u32 more, other;

		if (i * ENTRY_LENGTH >= length || (const void *)(entry + i + 1) > end)
			break;
		more = ((i + 1) * ENTRY_LENGTH - length) >> 31;
		opaque(more);
		other = entry_indicates_not(entry[i]) & 1;
		opaque(other);
		more &= (entropy ^ 1) & (other ^ 1); /* it is an indicator, and has a label behind it */
		seen += (entropy ^ 1) & (more ^ 1);
		octets += ((wanted - seen) >> 31 ^ 1) * ENTRY_LENGTH;
		entropy = more;
	}
	*segments = seen;
	return octets;
}

/*
 * Octets of the entries behind the firewall's own that the packet does not go on by: what is behind them becomes its
 * next segment. LABELS_SKIPPED_ALL: it would have none.
 */
RARE u32 labels_skipped(buffer *ctx, u32 length, u32 detail)
{
	u32 wanted = detail >> SEGUE_MPLS_COUNT_SHIFT, segments = 0, octets;

	if ((detail & SEGUE_MPLS_OPERATION) == SEGUE_MPLS_GO_LAST) {
		labels_up_to(ctx, length, 0, &segments);
		if (segments <= wanted)
			return 0;
		wanted = segments - wanted;
	}
	octets = labels_up_to(ctx, length, wanted, &segments);
	return segments > wanted ? octets : LABELS_SKIPPED_ALL;
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

/* REJECT: the answer is about the packet without its stack, which comes off for good. */
INLINE int labels_firewall_reject(const struct packet *packet, struct firewall_work *work)
{
	u32 stack = work->stack;

	if (labels_off(packet->ctx, stack, work->key.outer_family == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	work->l3 -= stack;
	work->limit -= stack;
	work->walk.upper -= stack;
	if (work->upper)
		work->upper -= stack;
	return firewall_reject(packet, work);
}

/* What is dropped here is counted with the octets of the packet behind the stack. */
INLINE int labels_firewall(struct packet *packet, const struct label_order *order)
{
	struct firewall_work *work = firewall_work_get();
	const struct segue_firewall *firewall;
	u32 index = order->index, error, skipped = 0;
	const struct segue_sid *sid = bpf_map_lookup_elem(&sid_entries, &index);
	int action = VERDICT_DROP;

	packet->length = order->octets;
	if (unlikely(!work || !sid))
		return drop(packet, SEGUE_OUTCOME_drop_behaviour);
	index = sid->firewall;
	firewall = bpf_map_lookup_elem(&firewalls, &index);
	if (unlikely(!firewall))
		return drop(packet, SEGUE_OUTCOME_drop_behaviour);
	work->stack = order->inside - ETHERNET_LENGTH;
	work->limit = order->inside + order->octets;
	if (likely(!(firewall->flags & SEGUE_FIREWALL_OFF))) {
		error = firewall_filter(packet->ctx, work, firewall, index, FIREWALL_BY_LABEL, packet->epoch);
		if (unlikely(error))
			return drop(packet, error);
		if (work->action == SEGUE_ACTION_REJECT)
			return labels_firewall_reject(packet, work);
		if (work->action != SEGUE_ACTION_ACCEPT && work->action != SEGUE_ACTION_SEG6)
			return drop(packet, SEGUE_OUTCOME_drop_firewall);
		if (unlikely(work->action == SEGUE_ACTION_SEG6 && work->detail > SEGUE_MPLS_GO_NEXT)) {
			skipped = labels_skipped(packet->ctx, work->stack, work->detail);
			if (skipped == LABELS_SKIPPED_ALL)
				return drop(packet, SEGUE_OUTCOME_drop_label_bottom);
		}
	}
	if (unlikely(skipped)) {
		error = labels_skip(packet, skipped);
		if (error)
			return drop(packet, error & (SEGUE_OUTCOMES_MAX - 1));
	} else {
		packet->length += work->stack;
		if (likely(labels_fast_past(packet, sid, &action)))
			return action;
	}
	stage(packet, SEGUE_STAGE_LABELS_PASSED);
	return drop(packet, SEGUE_OUTCOME_drop_recirculation);
}

#endif
