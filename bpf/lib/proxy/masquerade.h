/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The masquerading proxy, End.AM (draft-ietf-spring-sr-service-programming section 6.4): the function sees the packet
 * with its SRH, addressed to its last segment. What leads on comes back from the function: the SRH, and what may be
 * behind it (lib/proxy/behind.h). So it is compared with what was sent to it, but for Segment List[0] where that is the
 * packet's own destination and no SID; and there the function cannot put a SID.
 */
#ifndef SEGUE_PROXY_MASQUERADE_H
#define SEGUE_PROXY_MASQUERADE_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/config.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/header/advance.h"
#include "lib/header/srv6.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/leave.h"
#include "lib/forward/obstacle.h"
#include "lib/core/advance.h"
#include "lib/service/function.h"
#include "lib/proxy/stash.h"
#include "lib/proxy/memory.h"
#include "lib/proxy/behind.h"
#include "lib/proxy/kept.h"

#define SRH_SEGMENTS_LEFT_ONE (1ULL << 24) /* Segments Left as part of the SRH's first word */

/* Is the SRH at `word` + 5 the one remembered, of as many octets? `difference`: of its first three words. */
INLINE int srh_same(const struct segue_stash *entry, const u64 *word, const void *end, u32 length, u64 difference)
{
	const u64 *known = (const u64 *)entry->header;

	for (int i = 8; i < STASH_WORDS; i++) {
		if (8 * i >= IPV6_LENGTH + length)
			break;
		const u64 *at = word + i;

		opaque(at);
		if ((const void *)(at + 1) > end)
			return 0;
		difference |= *at ^ known[i];
	}
	return !difference;
}

/*
 * Is the packet as nearly all are: the SRH at SIMPLE_SRH in front of an inner packet, and Segments Left lowered by
 * `step` the one remembered, at which all was looked then; nothing behind it leads on.
 */
INLINE int masquerade_same(const struct packet *packet, const struct segue_stash *entry, const void *data,
			   const void *end, u32 length, u64 step)
{
	const u64 *word = data + ETHERNET_LENGTH, *known = (const u64 *)entry->header;
	u32 protocol;
	u64 difference;

	if ((const void *)(word + 10) > end)
		return 0;
	protocol = word[5] & 0xff;
	difference = ((word[5] - step) ^ known[5]) | (word[6] ^ known[6]) | (word[7] ^ known[7]);
	if (unlikely(protocol != PROTOCOL_IPV6 && protocol != PROTOCOL_IPV4))
		return 0;
	if (unlikely(entry->length != IPV6_LENGTH + length))
		return 0;
	/* Two segments, and three: without a loop. */
	if (likely(length == SRH_FIXED_LENGTH + 32)) {
		difference |= (word[8] ^ known[8]) | (word[9] ^ known[9]);
		return !difference && behind_plain(packet, word + 10, end, protocol);
	}
	if (length == SRH_FIXED_LENGTH + 48 && (const void *)(word + 12) <= end) {
		difference |=
			(word[8] ^ known[8]) | (word[9] ^ known[9]) | (word[10] ^ known[10]) | (word[11] ^ known[11]);
		return !difference && behind_plain(packet, word + 12, end, protocol);
	}
	return srh_same(entry, word, end, length, difference) &&
	       behind_plain(packet, (const void *)(word + 5) + length, end, protocol);
}

/* Was an SRH like this one sent to the function, though it is not the last one? */
RARE int srh_known(buffer *ctx, u64 scope, u64 shape)
{
	struct scratch *scratch = scratch_get();
	u64 hash;

	if (!scratch)
		return 0;
	hash = srv6_prepare(ctx, &scratch->stash, shape, scope);
	return hash && stash_has(scratch, hash);
}

/*
 * How an SRH alone is remembered, Segment List[0] in it where that is the chain's or a SID and not the packet's own
 * destination. It is advanced if `advance` says where it is.
 */
INLINE u64 srh_shape(const struct packet *packet, const struct srh *srh, u32 length, u32 advance)
{
	u32 last = srh_last_is_chains(*(const u64 *)srh) || rarely_in_sid_block(packet, address_load(srh + 1))
			   ? SEGUE_STASH_LAST
			   : 0;

	return STASH_SHAPE(IPV6_LENGTH + length, 0, advance, SEGUE_STASH_SRH | last);
}

/* Where what follows the SRH at SIMPLE_SRH is, for lib/proxy/behind.h. */
INLINE u32 behind_place(const struct srh *srh, u32 length)
{
	return (SIMPLE_SRH + length) | (u32)srh->next_header << 16;
}

/* SR to function: S12 to S15. Nothing of the packet has been changed. */
INLINE int masquerade(const struct packet *packet, const struct segue_sid *sid, struct ipv6hdr *ip, struct srh *srh,
		      const struct outer *outer, const struct advance *advance)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	const struct segue_stash *entry;
	struct function_link link = {};
	struct address last;
	u32 length, usual;
	u64 id = 0;
	int action;

	if (outer->srh != SIMPLE_SRH || (void *)(srh + 1) + 16 > end)
		return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	length = (srh->length + 1) * 8;
	last = address_load(srh + 1);
	entry = memory_current(sid->scope, &id);
	usual = entry && masquerade_same(packet, entry, data, end, length, SRH_SEGMENTS_LEFT_ONE);
	if (unlikely(!usual) && !address_forwardable(last))
		return drop(packet, SEGUE_OUTCOME_drop_bad_next_segment);
	if (function_obstacle(packet, sid, outer->limit - ETHERNET_LENGTH, 0, &link, &action))
		return action;
	if (unlikely(!usual)) {
		if (!memory_renew(SEGUE_HEADER_SRV6, packet->ctx, sid->scope,
				  srh_shape(packet, srh, length, IPV6_LENGTH)))
			return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
		if (!behind_plain(packet, (void *)srh + length, end, srh->next_header) &&
		    !behind_known(packet->ctx, sid->scope, behind_place(srh, length) | BEHIND_REMEMBER, outer->limit,
				  packet->generation))
			return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	}
	ip->hop_limit--;
	srh->segments_left = advance->left;
	address_store(&ip->daddr, last);
	return function_deliver(packet, sid, &link, bpf_htons(ETH_P_IPV6), 0);
}

/* Caching flavour: a packet that came back without SRH gets the last one, its own destination in Segment List[0]. */
INLINE int masquerade_insert(const struct packet *packet, const struct segue_sid *sid)
{
	struct sending sending = SENDING_AS_IT_IS;
	const struct adjacency *adjacency;
	const struct segue_stash *entry;
	struct address destination;
	u32 push, sl, at, refusal;
	void *data, *end;
	u64 moved[5], *word, id = 0;
	const u64 *from;
	int action;
	u8 *octet;

	entry = memory_current(sid->scope, &id);
	if (!entry || entry->length <= IPV6_LENGTH)
		return drop(packet, SEGUE_OUTCOME_drop_proxy_empty);
	push = entry->length - IPV6_LENGTH;
	from = (const u64 *)entry->header;
	sl = entry->header[IPV6_LENGTH + 3] & 15;
	at = IPV6_LENGTH + SRH_FIXED_LENGTH + 16 * sl;
	opaque(at);
	if (at > SEGUE_HEADROOM_MAX - 16)
		return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (data + ETHERNET_LENGTH + IPV6_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	word = data + ETHERNET_LENGTH;
	octet = (u8 *)word;
	if (octet[6] == PROTOCOL_HOP_BY_HOP) /* must stay first (RFC 8200 section 4.3) */
		return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	/* The function made this packet itself, for all that is known. */
	if (in_sid_block(packet->generation, address_load(octet + 24)) ||
	    leads_on(packet->ctx, ETHERNET_LENGTH + packet->length, packet->generation))
		return drop(packet, SEGUE_OUTCOME_drop_from_function);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (data + ETHERNET_LENGTH + IPV6_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	word = data + ETHERNET_LENGTH;
	octet = (u8 *)word;
	destination = sl ? address_load(&entry->header[at]) : address_load(octet + 24);
	adjacency = adjacency_find(packet, destination, 0, ADJACENCY_INSIDE, outer_flow((void *)octet));
	if (unlikely(!adjacency))
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	sending.push = push;
	if (!adjacency_fits(packet, adjacency, packet->length + push)) {
		/* Of a route that says no nobody is told, and none is told from another. */
		refusal = adjacency_refusal(adjacency, &sending);
		if (refusal == SEGUE_OUTCOME_drop_no_route || refusal == SEGUE_OUTCOME_drop_route_blackhole)
			return drop(packet, SEGUE_OUTCOME_drop_no_route);
		if (obstacle(packet, adjacency, &sending, &action))
			return action;
	}
#pragma unroll
	for (int i = 0; i < 5; i++)
		moved[i] = word[i];
	if (buffer_adjust_head(packet->ctx, -(int)push))
		return drop(packet, buffer_refusal(packet->ctx, SEGUE_OUTCOME_drop_no_headroom));
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	word = data + ETHERNET_LENGTH;
	octet = (u8 *)word;
	if ((void *)(word + 8) > end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
#pragma unroll
	for (int i = 0; i < 5; i++)
		word[i] = moved[i];
	word[5] = from[5];
	for (int i = 8; i < STASH_WORDS; i++) {
		if (8 * i >= IPV6_LENGTH + push)
			break;
		u64 *to = word + i;

		opaque(to);
		if ((void *)(to + 1) > end)
			return drop(packet, SEGUE_OUTCOME_drop_adjust);
		*to = from[i];
	}
	if (!stash_still(entry, id))
		return drop(packet, SEGUE_OUTCOME_drop_header_forgotten);
	address_store(word + 6, address_load(octet + 24));
	octet[IPV6_LENGTH] = octet[6];
	octet[6] = PROTOCOL_ROUTING;
	*(u16 *)(octet + 4) = payload_length(packet->length - IPV6_LENGTH + push);
	octet[7] -= hops_used(adjacency);
	address_store(octet + 24, destination);
	count(packet, sid->counter_return);
	return leave(packet, adjacency, bpf_htons(ETH_P_IPV6));
}

/* The SRH is at SIMPLE_SRH, and lies in the frame up to its first segment; `limit` is the packet's end. */
INLINE int masquerade_end(const struct packet *packet, const struct segue_sid *sid, struct ipv6hdr *ip, struct srh *srh,
			  u32 limit)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	u32 length = (srh->length + 1) * 8, sl = srh->segments_left;
	struct address destination = address_load(&ip->daddr), next;
	const struct adjacency *adjacency;
	const struct segue_stash *entry;
	const void *segment;
	u64 id = 0;
	u32 usual;
	int action;

	entry = memory_current(sid->scope, &id);
	usual = entry && masquerade_same(packet, entry, data, end, length, 0) && stash_still(entry, id);
	if (unlikely(!usual)) {
		if ((s32)srh->last_entry > (s32)(srh->length / 2) - 1 || sl > srh->last_entry)
			return parameter_problem(packet, SEGUE_OUTCOME_drop_segments_left, ETHERNET_LENGTH, 0,
						 SIMPLE_SRH + 3);
		if (!srh_known(packet->ctx, sid->scope, srh_shape(packet, srh, length, 0)))
			return drop(packet, SEGUE_OUTCOME_drop_header_changed);
		if (!behind_plain(packet, (void *)srh + length, end, srh->next_header) &&
		    !behind_known(packet->ctx, sid->scope, behind_place(srh, length), limit, packet->generation))
			return drop(packet, SEGUE_OUTCOME_drop_header_changed);
	}
	if (unlikely(!address_equal(destination, address_load(srh + 1)))) {
		if (!(sid->flavours & SEGUE_NAT) || in_sid_block(packet->generation, destination) ||
		    in_sid_block(packet->generation, address_load(srh + 1)))
			return drop(packet, SEGUE_OUTCOME_drop_header_changed);
		usual = 0;
	}
	segment = advance_segment(data, SIMPLE_SRH, sl & 0xff);
	if (segment + 16 > end)
		return drop(packet, SEGUE_OUTCOME_drop_multi_buffer_header);
	next = sl ? address_load(segment) : destination;
	if (unlikely(!usual) && !address_forwardable(next))
		return drop(packet, SEGUE_OUTCOME_drop_bad_next_segment);
	adjacency = way_on(packet, next, ip, limit - ETHERNET_LENGTH, &action);
	if (unlikely(!adjacency))
		return action;
	if (sl && sid->flavours & SEGUE_NAT)
		address_store(srh + 1, destination);
	address_store(&ip->daddr, next);
	return leave_on(packet, adjacency, ip, sid->counter_return);
}

/* Function to SR. */
INLINE int masquerade_from_function(struct packet *packet, const struct segue_sid *sid)
{
	void *data, *end;
	u32 sr_seen = 0, limit;
	struct ipv6hdr *ip;
	struct srh *srh;
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
	if (!sr_seen && ip->nexthdr != PROTOCOL_ROUTING) {
		if (sid->flavours & SEGUE_CACHING)
			return masquerade_insert(packet, sid);
		return kept_own(packet, sid);
	}
	limit = ETHERNET_LENGTH + packet->length;
	if (ip->nexthdr != PROTOCOL_ROUTING || (void *)(srh + 1) + 16 > end || srh->type != ROUTING_TYPE_SRH ||
	    SIMPLE_SRH + (srh->length + 1) * 8 > limit)
		return drop(packet, SEGUE_OUTCOME_drop_header_changed);
	return masquerade_end(packet, sid, ip, srh, limit);
}

#endif
