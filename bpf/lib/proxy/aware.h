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
#include "lib/base/maps.h"
#include "lib/base/config.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/packet/flow.h"
#include "lib/header/advance.h"
#include "lib/header/srv6.h"
#include "lib/forward/sid.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/leave.h"
#include "lib/forward/obstacle.h"
#include "lib/core/advance.h"
#include "lib/service/function.h"
#include "lib/proxy/stash.h"
#include "lib/proxy/memory.h"
#include "lib/proxy/behind.h"
#include "lib/proxy/masquerade.h"
#include "lib/proxy/kept.h"

/* Where the inner flow of a steered packet is read. */
struct aware_inner {
	u32 srh;      /* offset */
	u32 upper;    /* offset of what follows the SRH */
	u32 protocol; /* its type */
	u32 limit;
};

/*
 * The inner flow: that of the inner packet, or, where the SRH was inserted into the packet's own header, source,
 * Segment List[0] and what follows the SRH. 0, or why it cannot be read.
 */
INLINE u32 aware_flow(buffer *ctx, const struct aware_inner *inner, struct flow *flow)
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

#define WORD_ECN_BITS 0x3000U	   /* of an IPv6 header's first word, as it lies in memory */
#define WORD_DSCP_BITS 0xc00fU	   /* the same */
#define HOP_LIMIT_ONE (1ULL << 56) /* of the first 8 octets */

/* What was sent last is noted for its flow. */
INLINE void aware_note(struct segue_proxy_flow *flow, u32 word, u8 hop_limit)
{
	if (likely(flow->word[0] == word && flow->hop_limit[0] == hop_limit))
		return;
	flow->word[1] = flow->word[0];
	flow->hop_limit[1] = flow->hop_limit[0];
	flow->word[0] = word;
	flow->hop_limit[0] = hop_limit;
}

/*
 * What a packet must still have once its function has translated addresses, so that its flow is another: DSCP, hop
 * limit, the tunnel's source, the SRH; as a draft for the stash.
 */
INLINE int aware_draft(buffer *ctx, struct segue_stash *draft, u64 scope, u32 rewrite, u32 generation)
{
	void *data = (void *)(long)ctx->data;
	const struct srh *srh = data + SIMPLE_SRH;
	u64 *word = (u64 *)draft->header;
	u32 length;

	if ((void *)(srh + 1) > (void *)(long)ctx->data_end)
		return -1;
	length = (srh->length + 1) * 8;
	if (rewrite & SEGUE_REWRITE_TLVS)
		length = SRH_FIXED_LENGTH + (srh->last_entry + 1) * 16;
	if (draft_copy(ctx, draft, ETHERNET_LENGTH, IPV6_LENGTH + length))
		return -1;
	word[0] &= rewrite & SEGUE_REWRITE_TRAFFIC_CLASS ? 0xffULL << 56 : 0xffULL << 56 | WORD_DSCP_BITS;
	word[3] = 0;
	word[4] = 0;
	if (rewrite & SEGUE_REWRITE_TLVS)
		word[5] &= ~0xff00ULL; /* Hdr Ext Len */
	if (!srh_last_is_chains(word[5])) {
		word[1] = 0;
		word[2] = 0;
		if (!in_sid_block(generation, address_load(word + 6))) {
			word[6] = 0;
			word[7] = 0;
		}
	}
	draft->scope = scope;
	draft->next_header = 0;
	draft->flags = SEGUE_STASH_AWARE;
	return 0;
}

/* On the way to the function: the packet is as it came. 1: remembered. */
RARE int aware_translation_remember(buffer *ctx, u64 scope, u32 rewrite, u32 generation)
{
	struct scratch *scratch = scratch_get();
	u64 *word;

	if (!scratch || aware_draft(ctx, &scratch->stash, scope, rewrite, generation))
		return 0;
	word = (u64 *)scratch->stash.header;
	word[0] -= HOP_LIMIT_ONE;
	word[5] -= SRH_SEGMENTS_LEFT_ONE;
	return stash_keep(scratch, draft_hash(&scratch->stash));
}

/* On the way back: was one sent like this, with the same hop limit or one more? */
RARE int aware_translation_known(buffer *ctx, u64 scope, u32 rewrite, u32 generation)
{
	struct scratch *scratch = scratch_get();
	u64 *word;

	if (!scratch || aware_draft(ctx, &scratch->stash, scope, rewrite, generation))
		return 0;
	if (stash_has(scratch, draft_hash(&scratch->stash)))
		return 1;
	word = (u64 *)scratch->stash.header;
	word[0] += HOP_LIMIT_ONE;
	return stash_has(scratch, draft_hash(&scratch->stash));
}

/* Remembers the steering header of an SR-aware function's packet for its inner flow. 0, or why not. */
RARE int aware_remember(buffer *ctx)
{
	struct scratch *scratch = scratch_get();
	struct memory_order *order;
	struct flow_scratch *of = flow_scratch_get();
	struct segue_proxy_flow *known;
	const struct segue_stash *entry;
	const struct ipv6hdr *ip = (void *)(long)ctx->data + ETHERNET_LENGTH;
	u32 outcome, now = bpf_jiffies64(), word, hop_limit;
	struct aware_inner inner;
	u64 id;

	if (!scratch || !of || (void *)(ip + 1) > (void *)(long)ctx->data_end)
		return SEGUE_OUTCOME_drop_header_unfit;
	word = *(const u32 *)ip & ~WORD_ECN_BITS;
	hop_limit = ip->hop_limit - 1;
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
		aware_note(known, word, hop_limit);
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
	of->value.stash = id;
	of->value.used = now;
	of->value.word[0] = word;
	of->value.word[1] = word;
	of->value.hop_limit[0] = hop_limit;
	of->value.hop_limit[1] = hop_limit;
	of->value.reserved = 0;
	if (!bpf_map_update_elem(&proxy_flows, &of->key, &of->value, BPF_ANY))
		memory_count(order->scope, MEMORY_CREATED);
	return 0;
}

/* SR to function: the packet as it came, one hop further. */
INLINE int aware_to_function(const struct packet *packet, const struct segue_sid *sid, struct ipv6hdr *ip,
			     const struct outer *outer)
{
	void *data = (void *)(long)packet->ctx->data;
	void *end = (void *)(long)packet->ctx->data_end;
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

/* Segment `index` of the SRH at SIMPLE_SRH, if it lies in the frame. */
INLINE const u64 *segment_in_frame(buffer *ctx, u32 index)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	const void *segment = advance_segment(data, SIMPLE_SRH, index & 0xff);

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
	u64 epoch;
	u64 stash; /* reference to what was sent, advanced */
	u64 scope;
	u32 permission;
	u32 rewrite;
	u32 generation;
	u32 segments_left; /* of the packet that came back; at most SEGUE_SEGMENTS_MAX - 1 */
	u32 word[2];	   /* of the IPv6 headers that were sent */
	u32 hop_limit;	   /* the larger one of these */
	u32 reserved;
};

/* A segment that the function has added: no way out of the domain, and none back to the function. */
INLINE int segment_may_be_new(const struct aware_order *order, struct address segment)
{
	const struct segue_sid *sid;

	if (!address_forwardable(segment) || !in_sid_block(order->generation, segment))
		return 0;
	sid = sid_find(order->epoch, segment);
	return !sid || sid->behaviour != SEGUE_END_AN || sid->scope != order->scope;
}

/*
 * Is the list that came back permitted? The segments still to visit, from the active one to the last, are those of the
 * SRH's indices `segments_left` down to 0; so index 0 is the last segment in both. 1: yes.
 */
RARE int aware_permitted(buffer *ctx, const struct aware_order *order)
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
		if (!segment_may_be_new(order, address_load(now)))
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

/* Is what no permission for the list covers as it was sent: flags, tag, segments visited, TLVs? 1: yes. */
RARE int aware_kept(buffer *ctx, const struct aware_order *order)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	const struct srh *srh = data + SIMPLE_SRH;
	const struct segue_stash *entry;
	u32 visited, left, last, sent_at, at, length;
	const u64 *now, *sent;

	if (!order || (void *)(srh + 1) > end)
		return 0;
	entry = stash_get(order->stash);
	if (!entry || srh->flags != entry->header[IPV6_LENGTH + 5] ||
	    srh->tag != *(const u16 *)&entry->header[IPV6_LENGTH + 6])
		return 0;
	left = entry->header[IPV6_LENGTH + 3];
	last = entry->header[IPV6_LENGTH + 4];
	visited = last - left;
	if (srh->last_entry - order->segments_left != visited)
		return 0;
	at = order->segments_left;
	for (u32 i = 0; i < SEGUE_SEGMENTS_MAX; i++) {
		if (i >= visited)
			break;
		now = segment_in_frame(ctx, ++at);
		sent = segment_in_stash(entry, ++left);
		if (!now || !sent || now[0] != sent[0] || now[1] != sent[1])
			return 0;
	}
	if (order->rewrite & SEGUE_REWRITE_TLVS)
		return 1;
	/* What follows the lists, in words of 8 octets. */
	length = entry->header[IPV6_LENGTH + 1] - 2 * (last + 1);
	if (srh->length - 2 * (srh->last_entry + 1) != length)
		return 0;
	at = SIMPLE_SRH + SRH_FIXED_LENGTH + 16 * (srh->last_entry + 1);
	sent_at = IPV6_LENGTH + SRH_FIXED_LENGTH + 16 * (last + 1);
	for (u32 i = 0; i < STASH_WORDS; i++) {
		u32 here = sent_at + 8 * i;

		if (i >= length)
			return 1;
		opaque(here);
		if (here > SEGUE_HEADROOM_MAX - 8)
			return 0;
		now = data + ((at + 8 * i) & OFFSET_MASK);
		if ((void *)(now + 1) > end || *now != *(const u64 *)&entry->header[here])
			return 0;
	}
	return 0;
}

/* The first word of an IPv6 header that came back against those that were sent. */
INLINE int aware_word_kept(const struct aware_order *order, u32 word)
{
	u32 free = WORD_ECN_BITS | (order->rewrite & SEGUE_REWRITE_TRAFFIC_CLASS ? WORD_DSCP_BITS : 0);

	return !((word ^ order->word[0]) & ~free) || !((word ^ order->word[1]) & ~free);
}

/* What was sent of this flow. The reference to its header, or 0; and the rest of the order. */
RARE u64 aware_recall(const struct flow *flow, u64 scope, u32 timeout, struct aware_order *order)
{
	const struct segue_proxy_flow *known = flow ? flow_recalled(flow, scope, timeout, bpf_jiffies64()) : NULL;

	if (!known || !order)
		return 0;
	order->word[0] = known->word[0];
	order->word[1] = known->word[1];
	order->hop_limit = known->hop_limit[0] > known->hop_limit[1] ? known->hop_limit[0] : known->hop_limit[1];
	return *(const volatile u64 *)&known->stash;
}

/* Is what came back of the flow that was sent with order->stash permitted? 0, or the outcome. */
INLINE u32 aware_judge(const struct packet *packet, const struct segue_sid *sid, const struct aware_order *order)
{
	void *data = (void *)(long)packet->ctx->data;
	const struct segue_stash *entry = stash_get(order->stash);
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	const u64 *known;

	if (!entry || entry->scope != sid->scope) {
		memory_count(sid->scope, order->stash ? MEMORY_OVERWRITTEN : MEMORY_UNKNOWN);
		return order->stash ? SEGUE_OUTCOME_drop_header_forgotten : SEGUE_OUTCOME_drop_unknown_flow;
	}
	known = (const u64 *)entry->header;
	if ((void *)(ip + 1) > (void *)(long)packet->ctx->data_end)
		return SEGUE_OUTCOME_drop_truncated;
	if (!address_equal(address_load(&ip->saddr), (struct address){known[1], known[2]}) ||
	    ip->hop_limit > order->hop_limit || !aware_word_kept(order, *(const u32 *)ip) ||
	    !aware_kept(packet->ctx, order) || !aware_permitted(packet->ctx, order) ||
	    !stash_still(entry, order->stash))
		return SEGUE_OUTCOME_drop_header_changed;
	return 0;
}

/* The packet that came back goes on to its next segment. */
INLINE int aware_forward(const struct packet *packet, const struct segue_sid *sid)
{
	void *data = (void *)(long)packet->ctx->data;
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	const struct adjacency *adjacency;
	struct address next;
	int action;

	if ((void *)(ip + 1) > (void *)(long)packet->ctx->data_end)
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
	data = (void *)(long)packet->ctx->data;
	end = (void *)(long)packet->ctx->data_end;
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
	/* What it has translated is of a flow that was never sent. */
	if (unlikely(outcome) &&
	    !(outcome == SEGUE_OUTCOME_drop_unknown_flow && sid->rewrite & SEGUE_REWRITE_ADDRESSES &&
	      aware_translation_known(packet->ctx, sid->scope, sid->rewrite, packet->generation)))
		return drop(packet, outcome & (SEGUE_OUTCOMES_MAX - 1));
	return aware_forward(packet, sid);
}

#endif
