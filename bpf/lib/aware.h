/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SR-aware functions on a port of this node (End.AN): they get the packet with its SRH, do their own End processing,
 * and may change the segment list as far as they are permitted. The header that each flow was sent with is remembered;
 * what comes back is compared with it.
 */
#ifndef SEGUE_AWARE_H
#define SEGUE_AWARE_H

#include "base.h"
#include "advance.h"
#include "function.h"
#include "masquerade.h"
#include "memory.h"

/* Where the inner flow of a steered packet is read. */
struct aware_inner {
	u32 srh;      /* offset */
	u32 upper;    /* offset of what follows the SRH */
	u32 protocol; /* its type */
	u32 limit;
};

/*
 * The inner flow: that of the inner packet, or, where the SRH was inserted into the packet's own header, source,
 * Segment List[0] and what follows the SRH. 0, or why it can not be read.
 */
INLINE u32 aware_flow(struct xdp_md *ctx, const struct aware_inner *inner, struct flow *flow)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	u32 upper = inner->upper & OFFSET_MASK;
	const void *last = data + SIMPLE_SRH + SRH_FIXED_LENGTH;
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	struct address source, destination;

	if (inner->protocol == PROTOCOL_IPV4) {
		flow_read_ipv4(ctx, upper, flow);
		return flow->outcome;
	}
	if (inner->protocol == PROTOCOL_IPV6) {
		flow_read_ipv6(ctx, upper, flow);
		return flow->outcome;
	}
	if (last + 16 > end)
		return SEGUE_OUTCOME_drop_truncated;
	source = address_load(&ip->saddr);
	destination = address_load(last);
	flow->key[0] = source.high;
	flow->key[1] = source.low;
	flow->key[2] = destination.high;
	flow->key[3] = destination.low;
	flow->key[4] = (u64)inner->protocol << 32 | 6ULL << 40;
	if (protocol_has_ports(inner->protocol) && inner->upper + 4 <= inner->limit && data + upper + 4 <= end)
		flow->key[4] |= *(u32 *)(data + upper);
	return 0;
}

/* Remembers the steering header of an SR-aware function's packet for its inner flow. 0, or why not. */
RARE int aware_remember(struct xdp_md *ctx)
{
	struct scratch *scratch = scratch_get();
	struct memory_order *order;
	struct flow_scratch *of = flow_scratch_get();
	struct segue_proxy_flow *known, value = {};
	const struct segue_stash *entry;
	struct aware_inner inner;
	u32 outcome, now = bpf_jiffies64();
	u64 id;

	if (!scratch || !of)
		return SEGUE_OUTCOME_drop_header_unfit;
	order = &scratch->order;
	inner.srh = order->outer.srh;
	inner.upper = order->outer.offset;
	inner.protocol = order->outer.protocol;
	inner.limit = order->outer.limit;
	outcome = aware_flow(ctx, &inner, &of->flow);
	if (outcome)
		return outcome;
	memory_flow_key(&of->flow, order->scope, &of->key);
	known = bpf_map_lookup_elem(&proxy_flows, &of->key);
	if (known) {
		if (known->used != now)
			known->used = now;
		id = *(volatile u64 *)&known->stash;
		entry = stash_get(id);
		if (entry && entry->scope == order->scope &&
		    header_same(entry, (void *)(long)ctx->data, (void *)(long)ctx->data_end, &order->outer,
				order->margin) &&
		    stash_still(entry, id))
			return 0;
	}
	id = memory_renew(ctx, order->scope, order->shape);
	if (!id)
		return SEGUE_OUTCOME_drop_header_unfit;
	if (known) {
		*(volatile u64 *)&known->stash = id;
		return 0;
	}
	value.stash = id;
	value.used = now;
	if (!bpf_map_update_elem(&proxy_flows, &of->key, &value, BPF_ANY))
		memory_count(order->scope, MEMORY_CREATED);
	return 0;
}

/* SR to function: the packet as it came, one hop further. */
INLINE int aware_to_function(const struct packet *packet, const struct segue_sid *sid, struct ipv6hdr *ip,
			     const struct outer *outer)
{
	void *data = (void *)(long)packet->ctx->data;
	struct function_link link = {};
	u32 outcome;

	if (outer->srh != SIMPLE_SRH)
		return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	function_link_find(packet, sid, &link);
	if (unlikely(link.outcome))
		return drop(packet, link.outcome);
	if (unlikely(outer->limit - ETHERNET_LENGTH > link.mtu))
		return too_big(packet, 6, ETHERNET_LENGTH, link.mtu);
	if (!memory_order(sid, outer, 0))
		return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	outcome = aware_remember(packet->ctx);
	if (unlikely(outcome))
		return drop(packet, outcome & 63);
	ip->hop_limit--;
	data = (void *)(long)packet->ctx->data;
	if (data + ETHERNET_LENGTH > (void *)(long)packet->ctx->data_end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	function_ethernet(data, &link, bpf_htons(ETH_P_IPV6));
	count(sid->counter, packet->length);
	return transmit(packet, sid->oif, SEGUE_OUTCOME_to_function);
}

/* Segment `index` of the SRH at SIMPLE_SRH, if it lies in the frame. */
INLINE const u64 *segment_in_frame(struct xdp_md *ctx, u32 index)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	const void *segment = data + SIMPLE_SRH + SRH_FIXED_LENGTH + (index & 0xff) * 16;

	return segment + 16 <= end ? segment : NULL;
}

/* Segment `index` of a remembered header whose SRH follows the IPv6 header. */
INLINE const u64 *segment_in_stash(const struct segue_stash *entry, u32 index)
{
	u32 at = (index & 15) * 16;

	opaque(at);
	if (at > SEGUE_HEADROOM_MAX - IPV6_LENGTH - SRH_FIXED_LENGTH - 16)
		return NULL;
	return (const u64 *)&entry->header[IPV6_LENGTH + SRH_FIXED_LENGTH + at];
}

struct aware_order {
	u64 stash; /* reference to what was sent, advanced */
	u32 permission;
	u32 generation;
	u32 segments_left; /* of the packet that came back; at most SEGUE_SEGMENTS_MAX - 1 */
	u32 reserved;
};

/*
 * Is what came back permitted? The segments still to visit, from the active one to the last, are those of the SRH's
 * indices `segments_left` down to 0; so index 0 is the last segment in both. 1: yes.
 */
RARE int aware_permitted(struct xdp_md *ctx, const struct aware_order *order)
{
	const struct segue_stash *entry;
	const u64 *now, *sent;
	u32 at = 0, left, common = 0;

	if (!order)
		return 0;
	entry = stash_get(order->stash);
	if (!entry)
		return 0;
	left = entry->header[IPV6_LENGTH + 3];
	for (u32 i = 0; i < SEGUE_SEGMENTS_MAX; i++) {
		if (i > order->segments_left)
			break;
		now = segment_in_frame(ctx, i);
		if (!now)
			return 0;
		sent = segment_in_stash(entry, at);
		if (at <= left && sent && sent[0] == now[0] && sent[1] == now[1]) {
			/* Part of what was sent, in order; and without a gap since the last segment. */
			if (at == i)
				common = i + 1;
			at++;
			continue;
		}
		/* A segment of the function's own: no way out of the domain, and the last one only where permitted. */
		if (!address_forwardable(address_load(now)) || !in_sid_block(order->generation, address_load(now)))
			return 0;
		if (i == 0 && order->permission < SEGUE_MAY_REPLACE_LAST)
			return 0;
	}
	switch (order->permission) {
	case SEGUE_MAY_ADVANCE:
		return common == left + 1 && order->segments_left == left;
	case SEGUE_MAY_INSERT_NEXT:
		return common == left + 1;
	case SEGUE_MAY_INSERT:
		return at == left + 1;
	}
	return 1;
}

/* Function to SR. */
INLINE int aware_from_function(struct packet *packet, const struct segue_sid *sid)
{
	const struct adjacency *adjacency;
	const struct segue_stash *entry;
	struct aware_order order = {};
	struct aware_inner inner = {};
	u32 sr_seen = 0, refusal, outcome;
	struct flow flow = {};
	const struct segue_sid *again;
	const u64 *active, *known;
	struct address next;
	struct ipv6hdr *ip;
	struct srh *srh;
	void *data, *end;
	int action;

	action = function_ipv6(packet, &sr_seen);
	if (action >= 0)
		return action;
	data = (void *)(long)packet->ctx->data;
	end = (void *)(long)packet->ctx->data_end;
	ip = data + ETHERNET_LENGTH;
	srh = data + SIMPLE_SRH;
	if ((void *)(ip + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	if (!sr_seen && ip->nexthdr != PROTOCOL_ROUTING)
		return function_own(packet, sid);
	inner.limit = ETHERNET_LENGTH + packet->length;
	if (ip->nexthdr != PROTOCOL_ROUTING || (void *)(srh + 1) + 16 > end || srh->type != ROUTING_TYPE_SRH ||
	    SIMPLE_SRH + (srh->length + 1) * 8 > inner.limit || (s32)srh->last_entry > (s32)(srh->length / 2) - 1 ||
	    srh->segments_left > srh->last_entry || srh->segments_left >= SEGUE_SEGMENTS_MAX)
		return drop(packet, SEGUE_OUTCOME_drop_header_changed);
	inner.srh = SIMPLE_SRH;
	inner.upper = SIMPLE_SRH + (srh->length + 1) * 8;
	inner.protocol = srh->next_header;
	order.segments_left = srh->segments_left;
	outcome = aware_flow(packet->ctx, &inner, &flow);
	if (outcome)
		return drop(packet, outcome);
	order.stash = recall_flow(&flow, sid->scope, sid->flow_timeout);
	entry = stash_get(order.stash);
	if (!entry || entry->scope != sid->scope) {
		memory_count(sid->scope, order.stash ? MEMORY_OVERWRITTEN : MEMORY_UNKNOWN);
		return drop(packet,
			    order.stash ? SEGUE_OUTCOME_drop_header_forgotten : SEGUE_OUTCOME_drop_unknown_flow);
	}
	order.permission = sid->permission;
	order.generation = packet->generation;
	data = (void *)(long)packet->ctx->data;
	end = (void *)(long)packet->ctx->data_end;
	ip = data + ETHERNET_LENGTH;
	srh = data + SIMPLE_SRH;
	if ((void *)(srh + 1) + 16 > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	next = address_load(&ip->daddr);
	active = segment_in_frame(packet->ctx, srh->segments_left);
	known = (const u64 *)entry->header;
	/* The source stays, and the destination is the active segment; flags and tag stay too. */
	if (!active || active[0] != next.high || active[1] != next.low ||
	    !address_equal(address_load(&ip->saddr), (struct address){known[1], known[2]}) ||
	    srh->flags != entry->header[IPV6_LENGTH + 5] || srh->tag != *(const u16 *)&entry->header[IPV6_LENGTH + 6] ||
	    !aware_permitted(packet->ctx, &order) || !stash_still(entry, order.stash))
		return drop(packet, SEGUE_OUTCOME_drop_header_changed);
	data = (void *)(long)packet->ctx->data;
	end = (void *)(long)packet->ctx->data_end;
	ip = data + ETHERNET_LENGTH;
	if ((void *)(ip + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	if (unlikely(!address_forwardable(next)))
		return drop(packet, SEGUE_OUTCOME_drop_bad_next_segment);
	again = order.segments_left != entry->header[IPV6_LENGTH + 3] ? sid_find(packet->epoch, next) : NULL;
	if (unlikely(again && again->behaviour == SEGUE_END_AN && again->scope == sid->scope))
		return drop(packet, SEGUE_OUTCOME_drop_header_changed); /* it sent the packet to itself */
	adjacency = adjacency_find(packet, next, 0, 0, outer_flow(ip));
	if (!adjacency)
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	if (unlikely(!adjacency_fits(adjacency, packet->length))) {
		if (adjacency->kind == ADJACENCY_LINK)
			return too_big(packet, 6, ETHERNET_LENGTH, adjacency->fits);
		refusal = adjacency_refusal(adjacency);
		if (refusal)
			return refuse(packet, refusal, 6, ETHERNET_LENGTH);
	}
	ip->hop_limit -= hops_used(adjacency);
	count(sid->counter_return, packet->length);
	return leave(packet, adjacency, bpf_htons(ETH_P_IPV6));
}

#endif
