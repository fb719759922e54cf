/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The steering header of SRv6: an IPv6 header, perhaps other extension headers, and an SRH with segments left, in front
 * of an inner packet. One of the kinds of lib/header/header.h.
 */
#ifndef SEGUE_HEADER_SRV6_H
#define SEGUE_HEADER_SRV6_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/packet/buffer.h"
#include "lib/packet/stage.h"
#include "lib/header/advance.h"
#include "lib/proxy/stash.h"
#include "lib/access/encapsulation.h"

#define SIMPLE_SRH (ETHERNET_LENGTH + IPV6_LENGTH) /* where the SRH is when it follows the IPv6 header */

/* `srh`, at `offset`, has segments left, and lies in the frame as `ip` does: the header ends with it. */
INLINE void srv6_recognise(struct outer *outer, const struct ipv6hdr *ip, const struct srh *srh, u32 offset)
{
	outer->srh = offset;
	outer->naming = offset;
	outer->protocol = srh->next_header;
	outer->offset = offset + (srh->length + 1) * 8;
	outer->fragment = 0;
	outer->dscp = (*(const u8 *)ip & 15) << 2 | ((const u8 *)ip)[1] >> 6;
}

/*
 * Would the frame's steering header, once advanced, go back on as this one does? Payload Length, ECN, DSCP and flow
 * label make no difference, unless the memory is exact; hop limits that differ by less than the margin do not either.
 * The active segment follows from Segments Left and the list.
 */
INLINE int srv6_same(const struct segue_stash *entry, void *data, void *end, const struct outer *outer, u32 margin)
{
	const u64 *word = data + ETHERNET_LENGTH, *known = (const u64 *)entry->header;
	u32 length = outer->offset - ETHERNET_LENGTH, hop_limit;
	u64 difference;

	if ((void *)(word + 6) > end || entry->length != length || outer->srh != SIMPLE_SRH ||
	    entry->next_header != IPV6_LENGTH)
		return 0;
	difference = (word[1] ^ known[1]) | (word[2] ^ known[2]);
	/* The SRH's first word: Segments Left is its octet 3; octet 0 names the inner packet. */
	difference |= ((word[5] - (1ULL << 24)) ^ known[5]) & ~0xffULL;
	hop_limit = (u32)(word[0] >> 56) - 1 - (u32)(known[0] >> 56);
	if (entry->flags & SEGUE_STASH_EXACT) {
		difference |= (u32)word[0] ^ (u32)known[0];
		margin = 1;
	}
	if (difference || hop_limit + margin - 1 > 2 * (margin - 1))
		return 0;
	/* Two segments: the commonest, and without a loop. */
	if (likely(length == IPV6_LENGTH + SRH_FIXED_LENGTH + 32)) {
		if ((void *)(word + 10) > end)
			return 0;
		return !((word[6] ^ known[6]) | (word[7] ^ known[7]) | (word[8] ^ known[8]) | (word[9] ^ known[9]));
	}
	for (int i = 6; i < STASH_WORDS; i++) {
		if (8 * i >= length)
			break;
		const u64 *at = word + i;

		opaque(at);
		if ((void *)(at + 1) > end)
			return 0;
		difference |= *at ^ known[i];
	}
	return !difference;
}

/* Steering header in the frame: its length, where it names the inner packet, and its SRH, as offsets in the header. */
#define STASH_SHAPE(length, next_header, srh, flags)                                                                   \
	((u64)(length) | (u64)(next_header) << 16 | (u64)(srh) << 32 | (u64)(flags) << 48)

#define STASH_SHAPE_HOP_LIMIT(hop_limit) ((u64)(hop_limit) << 56) /* to be remembered with it */

/*
 * Is the last segment the chain's? In front of an inner packet it is; an SRH that was inserted into a packet has that
 * packet's own destination there. `word` is the SRH's first.
 */
INLINE int srh_last_is_chains(u64 word)
{
	u32 protocol = word & 0xff;

	return protocol == PROTOCOL_IPV6 || protocol == PROTOCOL_IPV4 || protocol == PROTOCOL_ETHERNET;
}

/*
 * Makes the content of scratch->stash from the frame: the header as the next endpoint shall see it (RFC 8986 section
 * 4.1, S12 to S14), Payload Length 0. The hash, or 0: it cannot be remembered. SEGUE_STASH_SRH: the SRH alone,
 * advanced only if its place is given.
 */
INLINE u64 srv6_prepare(buffer *ctx, struct segue_stash *draft, u64 shape, u64 scope)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 length = shape & 0xffff, srh = (shape >> 32) & 0xffff, at, left;
	const u64 *from = data + ETHERNET_LENGTH;
	u64 *to = (u64 *)draft->header, hash;

	if (length > SEGUE_HEADROOM_MAX || length & 7 || length < IPV6_LENGTH + SRH_FIXED_LENGTH + 16)
		return 0;
	for (int i = 0; i < STASH_WORDS; i++) {
		to[i] = 0;
		if (8 * i < length) {
			const u64 *word = from + i;

			opaque(word);
			if ((void *)(word + 1) > end)
				return 0;
			to[i] = *word;
		}
	}
	draft->scope = scope;
	draft->kind = SEGUE_HEADER_SRV6;
	draft->length = length;
	draft->next_header = shape >> 16;
	draft->flags = shape >> 48;
	draft->hop_limit = shape >> 56;
	if (draft->flags & SEGUE_STASH_SRH) {
		for (int i = 0; i < 5; i++)
			to[i] = 0;
		if (!(draft->flags & SEGUE_STASH_LAST)) {
			to[6] = 0;
			to[7] = 0;
		}
		if (srh)
			draft->header[IPV6_LENGTH + 3]--;
		goto hashed;
	}
	draft->header[4] = 0;
	draft->header[5] = 0;
	draft->header[7]--;
	if (!(draft->flags & SEGUE_STASH_EXACT)) {
		/* ECN and flow label are made anew; DSCP too, where it is the inner packet's. */
		draft->header[0] &= draft->flags & SEGUE_STASH_TRAFFIC_CLASS_COPY ? 0xf0 : 0xff;
		draft->header[1] &= draft->flags & SEGUE_STASH_TRAFFIC_CLASS_COPY ? 0x00 : 0xc0;
		draft->header[2] = 0;
		draft->header[3] = 0;
	}
	/* In one register: the verifier does not follow two copies from the stack. */
	opaque(srh);
	if (srh > SEGUE_HEADROOM_MAX - SRH_FIXED_LENGTH - 16)
		return 0;
	left = draft->header[srh + 3] - 1;
	draft->header[srh + 3] = left;
	at = srh + SRH_FIXED_LENGTH + 16 * (left & 0xf);
	opaque(at);
	if (left > 15 || at > SEGUE_HEADROOM_MAX - 16)
		return 0;
	address_store(&draft->header[24], address_load(&draft->header[at]));
	/* The octet that names the inner packet is written anew when the header goes back on. */
	at = draft->next_header;
	if (at < SEGUE_HEADROOM_MAX)
		draft->header[at] = 0;
hashed:
	hash = stash_mix(scope, length | (u64)draft->flags << 32 | (u64)draft->hop_limit << 40);
	for (int i = 0; i < STASH_WORDS; i++)
		hash = stash_mix(hash, to[i]);
	return hash ?: 1;
}

/* Copies a remembered header in front. 0: done. */
INLINE int srv6_copy(void *to, void *end, const struct segue_stash *entry)
{
	const u64 *from = (const u64 *)entry->header;
	u64 *word = to;

	if (likely(entry->length == IPV6_LENGTH + SRH_FIXED_LENGTH + 32)) {
		if (to + IPV6_LENGTH + SRH_FIXED_LENGTH + 32 > end)
			return -1;
#pragma unroll
		for (int i = 0; i < 10; i++)
			word[i] = from[i];
		return 0;
	}
	for (int i = 0; i < STASH_WORDS; i++) {
		if (8 * i >= entry->length)
			break;
		u64 *at = word + i;

		opaque(at);
		if ((void *)(at + 1) > end)
			return -1;
		*at = from[i];
	}
	return 0;
}

/* Traffic class and flow label of a header that goes back on, as the first word of an IPv6 header. */
INLINE u32 srv6_word(const struct segue_stash *entry, const struct payload *payload)
{
	u32 traffic_class = payload->traffic_class, label = payload->flow & 0xfffff ?: 1;

	if (!(entry->flags & SEGUE_STASH_TRAFFIC_CLASS_COPY))
		traffic_class = (entry->header[0] & 15) << 4 | entry->header[1] >> 4 | (traffic_class & 3);
	return bpf_htonl(6U << 28 | traffic_class << 20 | label);
}

/*
 * What is the packet's own in a header that lies in front of it, copied: `word`, its length, the octet that names the
 * inner packet. 0: done.
 */
INLINE int srv6_finish(const struct segue_stash *entry, u8 *octet, const void *end, u32 word,
		       const struct payload *payload)
{
	u32 naming = entry->next_header;

	*(u32 *)octet = word;
	*(u16 *)(octet + 4) = payload_length(entry->length - IPV6_LENGTH + payload->length);
	if (likely(naming == IPV6_LENGTH)) {
		octet[IPV6_LENGTH] = payload->protocol;
	} else {
		u8 *next_header = octet + (naming & 0xff);

		if ((const void *)(next_header + 1) > end)
			return -1;
		*next_header = payload->protocol;
	}
	return 0;
}

/* Where a packet goes that has it on: the destination address. */
INLINE struct address srv6_towards(const struct segue_stash *entry)
{
	return address_load(&entry->header[24]);
}

#endif
