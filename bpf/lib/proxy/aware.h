/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SR-aware functions on a port of this node (End.AN): they get the packet with its SRH, do their own End processing,
 * and may change the segment list as far as they are permitted. The header that each flow was sent with is remembered;
 * what comes back is compared with it, field by field (docs/using/connector.md has the table). Since the segments that
 * were visited stay in the list, and a list is at most SEGUE_SEGMENTS_MAX long, functions cannot send a packet in a
 * circle for ever, whatever segments they add.
 */
#ifndef SEGUE_PROXY_AWARE_H
#define SEGUE_PROXY_AWARE_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/packet/flow.h"
#include "lib/header/advance.h"
#include "lib/header/srv6.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/leave.h"
#include "lib/forward/obstacle.h"
#include "lib/core/advance.h"
#include "lib/service/function.h"
#include "lib/proxy/memory.h"
#include "lib/proxy/behind.h"
#include "lib/proxy/aware_judge.h"
#include "lib/proxy/aware_remember.h"
#include "lib/proxy/kept.h"

/* SR to function: the packet as it came, one hop further. */
INLINE int aware_to_function(const struct packet *packet, const struct segue_sid *sid, struct ipv6hdr *ip,
			     const struct outer *outer)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	struct function_link link = {};
	u32 outcome;
	int action;

	if (outer->srh != SIMPLE_SRH)
		return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	if (unlikely(!behind_plain(packet, data + (outer->offset & OFFSET_MASK), end, outer->protocol)) &&
	    !behind_known(packet->ctx, sid->scope,
			  (outer->offset & OFFSET_MASK) | (u32)outer->protocol << 16 | BEHIND_REMEMBER, outer->limit,
			  packet->generation))
		return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	if (function_obstacle(packet, sid, outer->limit - ETHERNET_LENGTH, 0, &link, &action))
		return action;
	if (!memory_order(sid, outer, 0))
		return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	outcome = aware_remember(packet->ctx);
	if (unlikely(outcome))
		return drop(packet, outcome & (SEGUE_OUTCOMES_MAX - 1));
	if (sid->rewrite & SEGUE_REWRITE_ADDRESSES &&
	    !aware_translation_remember(packet->ctx, sid->scope, sid->rewrite, packet->generation))
		return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	ip->hop_limit--;
	return function_deliver(packet, sid, &link, bpf_htons(ETH_P_IPV6), 0);
}

/* The packet that came back goes on to its next segment. */
INLINE int aware_forward(const struct packet *packet, const struct segue_sid *sid)
{
	void *data = buffer_start(packet->ctx);
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	const struct adjacency *adjacency;
	struct address next;
	int action;

	if ((void *)(ip + 1) > buffer_end(packet->ctx))
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	next = address_load(&ip->daddr);
	if (unlikely(!address_forwardable(next)))
		return drop(packet, SEGUE_OUTCOME_drop_bad_next_segment);
	adjacency = way_on(packet, next, ip, packet->length, &action);
	if (unlikely(!adjacency))
		return action;
	return leave_on(packet, adjacency, ip, sid->counter_return);
}

/* Function to SR. */
INLINE int aware_from_function(struct packet *packet, const struct segue_sid *sid)
{
	struct aware_order order = {};
	struct aware_inner inner = {};
	u32 sr_seen = 0, outcome;
	struct flow_scratch *of;
	const u64 *active;
	struct address next;
	struct ipv6hdr *ip;
	struct srh *srh;
	void *data, *end;
	int action;

	action = kept_ipv6(packet, &sr_seen);
	if (action >= 0)
		return action;
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	ip = data + ETHERNET_LENGTH;
	srh = data + SIMPLE_SRH;
	if ((void *)(ip + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	if (!sr_seen && ip->nexthdr != PROTOCOL_ROUTING)
		return kept_own(packet, sid);
	inner.limit = ETHERNET_LENGTH + packet->length;
	if (ip->nexthdr != PROTOCOL_ROUTING || (void *)(srh + 1) + 16 > end || srh->type != ROUTING_TYPE_SRH ||
	    SIMPLE_SRH + (srh->length + 1) * 8 > inner.limit || (s32)srh->last_entry > (s32)(srh->length / 2) - 1 ||
	    srh->segments_left > srh->last_entry || srh->segments_left >= SEGUE_SEGMENTS_MAX)
		return drop(packet, SEGUE_OUTCOME_drop_header_changed);
	inner.srh = SIMPLE_SRH;
	inner.upper = SIMPLE_SRH + (srh->length + 1) * 8;
	inner.protocol = srh->next_header;
	order.segments_left = srh->segments_left;
	/* The destination is the active segment, whatever else may be another. */
	next = address_load(&ip->daddr);
	active = segment_in_frame(packet->ctx, srh->segments_left);
	if (!active || active[0] != next.high || active[1] != next.low)
		return drop(packet, SEGUE_OUTCOME_drop_header_changed);
	if (unlikely(!behind_plain(packet, data + (inner.upper & OFFSET_MASK), end, inner.protocol)) &&
	    !behind_known(packet->ctx, sid->scope, inner.upper | inner.protocol << 16, inner.limit, packet->generation))
		return drop(packet, SEGUE_OUTCOME_drop_header_changed);
	of = flow_scratch_get();
	if (!of)
		return drop(packet, SEGUE_OUTCOME_drop_header_forgotten);
	outcome = aware_flow(packet->ctx, &inner, &of->flow);
	if (outcome)
		return drop(packet, outcome);
	order.stash = aware_recall(&of->flow, sid->scope, sid->flow_timeout, &order);
	order.epoch = packet->epoch;
	order.permission = sid->permission;
	order.rewrite = sid->rewrite;
	order.scope = sid->scope;
	order.generation = packet->generation;
	outcome = aware_judge(packet, sid, &order);
	/* What it has translated, packed or unpacked is of a flow that was never sent, or has a flow label of its own.
	 */
	if (unlikely(outcome) &&
	    !(sid->rewrite & SEGUE_REWRITE_ADDRESSES &&
	      (outcome == SEGUE_OUTCOME_drop_unknown_flow || outcome == SEGUE_OUTCOME_drop_header_changed) &&
	      aware_translation_known(packet->ctx, sid->scope, sid->rewrite, packet->generation)))
		return drop(packet, outcome & (SEGUE_OUTCOMES_MAX - 1));
	return aware_forward(packet, sid);
}

#endif
