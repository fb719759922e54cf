/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whether an SR-aware function (lib/proxy/aware.h) was permitted to change what it sends back as it did. */
#ifndef SEGUE_PROXY_AWARE_JUDGE_H
#define SEGUE_PROXY_AWARE_JUDGE_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/config.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"
#include "lib/packet/flow.h"
#include "lib/header/advance.h"
#include "lib/forward/sid.h"
#include "lib/proxy/stash.h"
#include "lib/proxy/memory.h"
#include "lib/proxy/aware_remember.h"

/* Segment `index` of the SRH at SIMPLE_SRH, if it lies in the frame. */
INLINE const u64 *segment_in_frame(buffer *ctx, u32 index)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
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
RARE int segment_may_be_new(const struct aware_order *order, u64 high, u64 low)
{
	struct address segment = {high, low};
	const struct segue_sid *sid;

	if (!order || !address_forwardable(segment) || !in_sid_block(order->generation, segment))
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
		if (!segment_may_be_new(order, now[0], now[1]))
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
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
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
	void *data = buffer_start(packet->ctx);
	const struct segue_stash *entry = stash_get(order->stash);
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	const u64 *known;

	if (!entry || entry->scope != sid->scope) {
		memory_count(sid->scope, order->stash ? MEMORY_OVERWRITTEN : MEMORY_UNKNOWN);
		return order->stash ? SEGUE_OUTCOME_drop_header_forgotten : SEGUE_OUTCOME_drop_unknown_flow;
	}
	known = (const u64 *)entry->header;
	if ((void *)(ip + 1) > buffer_end(packet->ctx))
		return SEGUE_OUTCOME_drop_truncated;
	if (!address_equal(address_load(&ip->saddr), (struct address){known[1], known[2]}) ||
	    ip->hop_limit > order->hop_limit || !aware_word_kept(order, *(const u32 *)ip) ||
	    !aware_kept(packet->ctx, order) || !aware_permitted(packet->ctx, order) ||
	    !stash_still(entry, order->stash))
		return SEGUE_OUTCOME_drop_header_changed;
	return 0;
}

#endif
