/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What lies behind the header that a packet is led by, and could lead it on: another routing header, or an inner IPv6
 * packet to a SID. A function that gets its packets with their headers on must not put such a thing there. Where a
 * packet has it already when it goes to the function, its octets are remembered, and the same must come back.
 */
#ifndef SEGUE_PROXY_BEHIND_H
#define SEGUE_PROXY_BEHIND_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/base/config.h"
#include "lib/packet/buffer.h"
#include "lib/packet/headers.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/proxy/stash.h"

#define BEHIND_MAX 8 /* headers that are walked */

/* Extension headers that are walked, and IPv6: only behind these can something lead on. */
INLINE int leads_behind(u32 protocol)
{
	return protocol_among(EXTENSION_HEADERS | 1ULL << PROTOCOL_IPV6, protocol);
}

/* An inner packet to somewhere else than a SID, or an upper layer: nothing leads on, as nearly always. */
INLINE int behind_plain(const struct packet *packet, const void *behind, const void *end, u32 protocol)
{
	const struct ipv6hdr *inner = behind;

	if (likely(protocol == PROTOCOL_IPV6))
		return (const void *)(inner + 1) <= end && !leads_behind(inner->nexthdr) &&
		       !rarely_in_sid_block(packet, address_load(&inner->daddr));
	return !leads_behind(protocol);
}

/* Is one of `count` addresses from the offset `at` on a SID? More than 16, or not in the frame: it may be. */
RARE int addresses_name_sid(buffer *ctx, u32 at, u32 count, u32 generation)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	const u8 *octet = data + (at & OFFSET_MASK);

	for (u32 i = 0; i < 16; i++) {
		if (i >= count)
			return 0;
		if ((void *)(octet + 16) > end || in_sid_block(generation, address_load(octet)))
			return 1;
		octet += 16;
	}
	return 1;
}

#define BEHIND_REMEMBER (1U << 24) /* in `place`: on the way to the function */
#define BEHIND_INSIDE (1U << 25)   /* in `place`: within an inner packet, whose routing headers may be its user's */

struct behind_walk {
	buffer *ctx;
	u32 limit;
	u32 generation;
	u32 at;
	u32 next;
	u32 inside;
	u32 unsure;
	u32 leads; /* the offset behind the last thing that leads on */
	int found; /* what behind_end() is to return */
};

/* Looks at one header, and names the next. A call of the kernel's, of whose turns the verifier follows a few. */
static long behind_step(u32 index, struct behind_walk *walk)
{
	void *data = buffer_start(walk->ctx);
	void *end = buffer_end(walk->ctx);
	u32 at = walk->at, next = walk->next, length;
	const u8 *octet;

	if (!leads_behind(next)) {
		walk->found = walk->leads;
		return 1;
	}
	octet = data + (at & OFFSET_MASK);
	if (at > OFFSET_MASK || (void *)(octet + 8) > end)
		return 1;
	length = next == PROTOCOL_IPV6 ? IPV6_LENGTH : extension_length(next, octet);
	if (at + length > walk->limit)
		return 1;
	walk->next = next == PROTOCOL_IPV6 ? octet[6] : octet[0];
	walk->at = at + length;
	if (next == PROTOCOL_IPV6) {
		/* Of one inner packet, right behind the outer headers, enough can be remembered. */
		walk->unsure |= index;
		walk->inside = 1;
		if (addresses_name_sid(walk->ctx, at + 24, 1, walk->generation))
			walk->leads = at + length;
	} else if (next == PROTOCOL_ROUTING) {
		/* The addresses of a routing header begin behind its first 8 octets, whatever its type. */
		if (!walk->inside || addresses_name_sid(walk->ctx, at + 8, octet[1] / 2, walk->generation))
			walk->leads = at + length;
	} else if (next == PROTOCOL_FRAGMENT) {
		if (fragment_later(octet)) {
			walk->found = walk->leads;
			return 1;
		}
		walk->unsure |= octet[3] & 1;
	}
	return walk->leads && walk->unsure;
}

/*
 * Walks from the header of type `place` >> 16 & 0xff at the offset `place` & 0xffff on, up to `limit`, the packet's
 * end. 0: nothing leads on; otherwise the offset behind the last thing that does; -1: that cannot be said, or not be
 * remembered.
 */
RARE int behind_end(buffer *ctx, u32 place, u32 limit, u32 generation)
{
	struct behind_walk walk = {
		.ctx = ctx,
		.limit = limit,
		.generation = generation,
		.at = place & OFFSET_MASK,
		.next = (place >> 16) & 0xff,
		.inside = place & BEHIND_INSIDE,
		.found = -1,
	};

	bpf_loop(BEHIND_MAX, behind_step, &walk, 0);
	return walk.found;
}

/* Octets of the frame from `at` on as a draft for the stash; `length` is a multiple of 8. 0: done. */
INLINE int draft_copy(buffer *ctx, struct segue_stash *draft, u32 at, u32 length)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	const u64 *from = data + (at & OFFSET_MASK);
	u64 *to = (u64 *)draft->header;

	if (length > SEGUE_HEADROOM_MAX || length & 7)
		return -1;
#pragma clang loop unroll(disable)
	for (int i = 0; i < STASH_WORDS; i++) {
		to[i] = 0;
		if (8 * i < length) {
			const u64 *word = from + i;

			opaque(word);
			if ((void *)(word + 1) > end)
				return -1;
			to[i] = *word;
		}
	}
	draft->length = length;
	draft->kind = SEGUE_HEADER_SRV6;
	draft->hop_limit = 0;
	return 0;
}

INLINE u64 draft_hash(const struct segue_stash *draft)
{
	const u64 *word = (const u64 *)draft->header;
	u64 hash = stash_mix(draft->scope, draft->length | (u64)draft->next_header << 16 | (u64)draft->flags << 32);

#pragma clang loop unroll(disable)
	for (int i = 0; i < STASH_WORDS; i++)
		hash = stash_mix(hash, word[i]);
	return hash ?: 1;
}

/* Is the content of scratch->stash, of this hash, in the stash? */
INLINE int stash_has(struct scratch *scratch, u64 hash)
{
	const u64 *known = bpf_map_lookup_elem(&stash_index, &hash);
	const struct segue_stash *entry;
	u64 id;

	if (!known)
		return 0;
	id = *known;
	entry = stash_get(id);
	return entry && stash_equal(entry, &scratch->stash) && stash_still(entry, id);
}

/* Puts the content of scratch->stash, of this hash, into the stash unless it is there. 1: it is there now. */
INLINE int stash_keep(struct scratch *scratch, u64 hash)
{
	u64 id;

	if (stash_has(scratch, hash))
		return 1;
	id = stash_write(scratch);
	if (id)
		bpf_map_update_elem(&stash_index, &hash, &id, BPF_ANY);
	return !!id;
}

/* What leads on, up to the offset `to`, is remembered or, without BEHIND_REMEMBER, must be known. 1: it is. */
RARE int behind_keep(buffer *ctx, u64 scope, u32 place, u32 to)
{
	struct scratch *scratch = scratch_get();
	u32 at = place & OFFSET_MASK, protocol = (place >> 16) & 0xff;
	u64 hash, *word;

	if (!scratch || draft_copy(ctx, &scratch->stash, at, to - at))
		return 0;
	word = (u64 *)scratch->stash.header;
	if (protocol == PROTOCOL_IPV6) {
		/* Of an inner packet its destination, and which header follows. */
		word[0] &= 0xffULL << 48;
		word[1] = 0;
		word[2] = 0;
	}
	scratch->stash.scope = scope;
	scratch->stash.next_header = protocol;
	scratch->stash.flags = SEGUE_STASH_BEHIND;
	hash = draft_hash(&scratch->stash);
	return place & BEHIND_REMEMBER ? stash_keep(scratch, hash) : stash_has(scratch, hash);
}

/*
 * A packet in which something might lead on: `place` and `limit` as for behind_end(). On the way to the function what
 * leads on is remembered, on the way back it must be known. 1: it is, or there is none.
 */
INLINE int behind_known(buffer *ctx, u64 scope, u32 place, u32 limit, u32 generation)
{
	int to = behind_end(ctx, place, limit, generation);

	return !to || (to > 0 && behind_keep(ctx, scope, place, to));
}

/* A packet that nothing has led to its function: does something in it lead on? */
INLINE int leads_on(buffer *ctx, u32 limit, u32 generation)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;

	if ((void *)(ip + 1) > end)
		return 1;
	if (!leads_behind(ip->nexthdr))
		return 0;
	return behind_end(ctx, (ETHERNET_LENGTH + IPV6_LENGTH) | (u32)ip->nexthdr << 16, limit, generation) != 0;
}

#endif
