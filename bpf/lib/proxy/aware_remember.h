/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is remembered of a packet that goes to an SR-aware function (lib/proxy/aware.h): of its flow the header, and of
 * one whose addresses the function translates what must stay. */
#ifndef SEGUE_PROXY_AWARE_REMEMBER_H
#define SEGUE_PROXY_AWARE_REMEMBER_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/base/config.h"
#include "lib/packet/buffer.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/packet/flow.h"
#include "lib/header/advance.h"
#include "lib/header/srv6.h"
#include "lib/proxy/stash.h"
#include "lib/proxy/memory.h"
#include "lib/proxy/behind.h"
#include "lib/proxy/masquerade.h"

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
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
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

/* Is behind the SRH what functions have made of inner packets: a compressed one, or an aggregate? `word` is its first.
 */
INLINE int srh_holds_packed(u64 word)
{
	u32 protocol = word & 0xff;

	return protocol == PROTOCOL_IPCOMP || protocol == PROTOCOL_AGGFRAG;
}

/*
 * What a packet must still have once its function has translated addresses, so that its flow is another: DSCP, hop
 * limit, the tunnel's source, the SRH; as a draft for the stash.
 */
INLINE int aware_draft(buffer *ctx, struct segue_stash *draft, u64 scope, u32 rewrite, u32 generation)
{
	void *data = buffer_start(ctx);
	const struct srh *srh = data + SIMPLE_SRH;
	u64 *word = (u64 *)draft->header;
	u32 length;

	if ((void *)(srh + 1) > buffer_end(ctx))
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
	if (srh_last_is_chains(word[5]) || srh_holds_packed(word[5])) {
		/* Next Header: what is packed, or unpacked, is of another kind. */
		word[5] &= ~0xffULL;
	} else {
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
	const struct ipv6hdr *ip = buffer_start(ctx) + ETHERNET_LENGTH;
	u32 outcome, now = bpf_jiffies64(), word, hop_limit;
	struct aware_inner inner;
	u64 id;

	if (!scratch || !of || (void *)(ip + 1) > buffer_end(ctx))
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
		    srv6_same(entry, buffer_start(ctx), buffer_end(ctx), &order->outer, order->margin) &&
		    stash_still(entry, id))
			return 0;
	}
	id = memory_renew(SEGUE_HEADER_SRV6, ctx, order->scope, order->shape);
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

#endif
