/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The store of steering headers that proxies took off and will put back.
 *
 * Equal headers are kept once: a reference names a content, not a packet. What a slot holds under one reference never
 * changes; when the slot is needed for another header it gets another reference. Each CPU writes its own slots only, so
 * no lock is needed; a reader on another CPU compares the reference before and after it copies, and so never puts back
 * a header that is half one and half another.
 */
#ifndef SEGUE_STASH_H
#define SEGUE_STASH_H

#include "base.h"

#define STASH_WORDS (SEGUE_HEADROOM_MAX / 8)

/* Keeps loads and stores of a slot in their order. x86-64 keeps loads among loads and stores among stores. */
#define stash_order() asm volatile("" ::: "memory")

/* The content of a reference, or NULL if there is none any more. */
INLINE const struct segue_stash *stash_get(u32 id)
{
	u32 slot = id & (SEGUE_STASH_SLOTS - 1);
	const struct segue_stash *entry = bpf_map_lookup_elem(&stash, &slot);

	if (!entry || !id || *(const volatile u32 *)&entry->id != id)
		return NULL;
	stash_order();
	return entry;
}

/* Is the content still that of the reference? Asked after it was read. */
INLINE int stash_still(const struct segue_stash *entry, u32 id)
{
	stash_order();
	return *(const volatile u32 *)&entry->id == id;
}

/* Steering header in the frame: its length, where it names the inner packet, and its SRH, as offsets in the header. */
#define STASH_SHAPE(length, next_header, srh, flags)                                                                   \
	((u64)(length) | (u64)(next_header) << 16 | (u64)(srh) << 32 | (u64)(flags) << 48)

INLINE u64 stash_mix(u64 hash, u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 29;
}

/*
 * Is the last segment the chain's? In front of an inner packet it is; an SRH that was inserted into a packet has that
 * packet's own destination there. `word` is the SRH's first.
 */
INLINE int stash_last_is_chains(u64 word)
{
	u32 protocol = word & 0xff;

	return protocol == PROTOCOL_IPV6 || protocol == PROTOCOL_IPV4 || protocol == PROTOCOL_ETHERNET;
}

/*
 * Makes the content of scratch->stash from the frame: the header as the next endpoint shall see it (RFC 8986 section
 * 4.1, S12 to S14), Payload Length 0. The hash, or 0: it can not be remembered. SEGUE_STASH_SRH: the SRH alone,
 * advanced only if its place is given.
 */
INLINE u64 stash_prepare(struct xdp_md *ctx, struct segue_stash *draft, u64 shape, u32 scope)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
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
	draft->length = length;
	draft->next_header = shape >> 16;
	draft->flags = shape >> 48;
	if (draft->flags & SEGUE_STASH_SRH) {
		for (int i = 0; i < 5; i++)
			to[i] = 0;
		if (!stash_last_is_chains(to[5])) {
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
	hash = stash_mix(scope, length | (u64)draft->flags << 32);
	for (int i = 0; i < STASH_WORDS; i++)
		hash = stash_mix(hash, to[i]);
	return hash ?: 1;
}

INLINE int stash_equal(const struct segue_stash *a, const struct segue_stash *b)
{
	const u64 *one = (const u64 *)a->header, *other = (const u64 *)b->header;
	u64 difference = (a->scope ^ b->scope) | (a->length ^ b->length) | (a->flags ^ b->flags) |
			 (a->next_header ^ b->next_header);

	for (int i = 0; i < STASH_WORDS; i++)
		difference |= one[i] ^ other[i];
	return !difference;
}

/* Writes scratch->stash into a slot of this CPU. */
INLINE u32 stash_write(struct scratch *scratch)
{
	u32 bits = control.stash_bits & 15, written = scratch->stash_next++;
	u32 slot = bpf_get_smp_processor_id() << bits | (written & ((1U << bits) - 1));
	struct segue_stash *entry = bpf_map_lookup_elem(&stash, &slot);
	const u64 *from = (const u64 *)scratch->stash.header;
	u32 id = ((written >> bits) % 65535 + 1) << 16 | slot;
	u64 *to;

	if (!entry || slot >= SEGUE_STASH_SLOTS)
		return 0;
	*(volatile u32 *)&entry->id = 0;
	stash_order();
	entry->scope = scratch->stash.scope;
	entry->length = scratch->stash.length;
	entry->next_header = scratch->stash.next_header;
	entry->flags = scratch->stash.flags;
	to = (u64 *)entry->header;
	for (int i = 0; i < STASH_WORDS; i++)
		to[i] = from[i];
	stash_order();
	*(volatile u32 *)&entry->id = id;
	return id;
}

/*
 * Remembers the steering header of the frame, which begins behind its Ethernet header and is not changed. The
 * reference, or 0 if it can not be remembered.
 */
RARE int stash_put(struct xdp_md *ctx, u64 shape, u32 scope)
{
	struct scratch *scratch = scratch_get();
	const struct segue_stash *entry;
	u32 *known, id;
	u64 hash;

	if (!scratch)
		return 0;
	hash = stash_prepare(ctx, &scratch->stash, shape, scope);
	if (!hash)
		return 0;
	known = bpf_map_lookup_elem(&stash_index, &hash);
	if (known) {
		id = *known;
		entry = stash_get(id);
		if (entry && stash_equal(entry, &scratch->stash) && stash_still(entry, id))
			return id;
	}
	id = stash_write(scratch);
	if (id)
		bpf_map_update_elem(&stash_index, &hash, &id, BPF_ANY);
	return id;
}

#endif
