/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The store of steering headers that proxies took off and will put back.
 *
 * Equal headers are kept once: a reference names a content, not a packet. What a slot holds under one reference never
 * changes; when the slot is needed for another header it gets another reference, which was never one before (struct
 * segue_stash says why). All CPUs take slots from one row, the oldest first, however many they are. Who writes a slot
 * marks it so by an atomic exchange, so no lock is needed; a reader on another CPU compares the reference before and
 * after it copies, and so never puts back a header that is half one and half another.
 */
#ifndef SEGUE_PROXY_STASH_H
#define SEGUE_PROXY_STASH_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/packet/buffer.h"
#include "lib/packet/stage.h"

#define STASH_WORDS (SEGUE_HEADROOM_MAX / 8)

/* Keeps loads and stores of a slot in their order. x86-64 keeps loads among loads and stores among stores. */
#define stash_order() asm volatile("" ::: "memory")

/* The content of a reference, or NULL if there is none any more. */
INLINE const struct segue_stash *stash_get(u64 id)
{
	u32 slot = id & (SEGUE_STASH_SLOTS - 1);
	const struct segue_stash *entry = bpf_map_lookup_elem(&stash, &slot);

	if (!entry || !id || *(const volatile u64 *)&entry->id != id)
		return NULL;
	stash_order();
	return entry;
}

/* Is the content still that of the reference? Asked after it was read. */
INLINE int stash_still(const struct segue_stash *entry, u64 id)
{
	stash_order();
	return *(const volatile u64 *)&entry->id == id;
}

/* What of a reference does not fit in skb->hash, as it lies in skb->tc_index. */
INLINE u32 stash_tc_index(u64 id)
{
	return (id >> 29 & SEGUE_METADATA_TIME) | (id >> 53 & SEGUE_METADATA_SERIES);
}

/* The content of the reference that a packet carries, which is then `id`; or NULL. */
INLINE const struct segue_stash *stash_get_carried(u32 hash, u32 tc_index, u64 *id)
{
	u32 slot = hash & (SEGUE_STASH_SLOTS - 1);
	const struct segue_stash *entry = bpf_map_lookup_elem(&stash, &slot);

	if (!entry)
		return NULL;
	*id = *(const volatile u64 *)&entry->id;
	stash_order();
	if ((u32)*id != hash || *id & SEGUE_STASH_WRITING ||
	    (tc_index & (SEGUE_METADATA_TIME | SEGUE_METADATA_SERIES)) != stash_tc_index(*id))
		return NULL;
	return entry;
}

/* Steering header in the frame: its length, where it names the inner packet, and its SRH, as offsets in the header. */
#define STASH_SHAPE(length, next_header, srh, flags)                                                                   \
	((u64)(length) | (u64)(next_header) << 16 | (u64)(srh) << 32 | (u64)(flags) << 48)

#define STASH_SHAPE_HOP_LIMIT(hop_limit) ((u64)(hop_limit) << 56) /* to be remembered with it */

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
 * 4.1, S12 to S14), Payload Length 0. The hash, or 0: it cannot be remembered. SEGUE_STASH_SRH: the SRH alone,
 * advanced only if its place is given.
 */
INLINE u64 stash_prepare(buffer *ctx, struct segue_stash *draft, u64 shape, u64 scope)
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

INLINE int stash_equal(const struct segue_stash *a, const struct segue_stash *b)
{
	const u64 *one = (const u64 *)a->header, *other = (const u64 *)b->header;
	u64 difference = (a->scope ^ b->scope) | (a->length ^ b->length) | (a->flags ^ b->flags) |
			 (a->next_header ^ b->next_header) | (a->hop_limit ^ b->hop_limit);

	for (int i = 0; i < STASH_WORDS; i++)
		difference |= one[i] ^ other[i];
	return !difference;
}

#define STASH_TIME(id) ((id) & (SEGUE_STASH_WRITING - 1) & ~(u64)(SEGUE_STASH_SLOTS - 1))

/* The reference that this slot would get now. */
INLINE u64 stash_reference(u32 slot)
{
	u64 now = bpf_ktime_get_ns() >> SEGUE_STASH_UNIT_SHIFT;

	now += !(now & 0xffff);
	return slot | STASH_TIME(now << SEGUE_STASH_TIME_SHIFT) | (u64)control.stash_series << SEGUE_STASH_SERIES_SHIFT;
}

/*
 * Writes scratch->stash into the next slot. The reference, or 0: all slots were written a millisecond ago, or another
 * CPU is at that one. The new header gives way then, for the packets of the old ones are in their functions still.
 */
INLINE u64 stash_write(struct scratch *scratch)
{
	const u64 *from = (const u64 *)scratch->stash.header;
	struct segue_stash *entry;
	u64 *cursor, *to, id, old;
	u32 slot = 0;

	cursor = bpf_map_lookup_elem(&stash_cursor, &slot);
	if (!cursor)
		return 0;
	slot = __sync_fetch_and_add(cursor, 1) & ((1U << (control.stash_bits & 31)) - 1) & (SEGUE_STASH_SLOTS - 1);
	entry = bpf_map_lookup_elem(&stash, &slot);
	if (!entry)
		return 0;
	old = *(volatile u64 *)&entry->id;
	id = stash_reference(slot);
	if (old & SEGUE_STASH_WRITING || STASH_TIME(id) <= STASH_TIME(old))
		return 0;
	/* Nobody else writes it from here on, and nobody reads it: whoever does finds another reference afterwards. */
	if (__sync_val_compare_and_swap(&entry->id, old, id | SEGUE_STASH_WRITING) != old)
		return 0;
	entry->scope = scratch->stash.scope;
	entry->length = scratch->stash.length;
	entry->next_header = scratch->stash.next_header;
	entry->flags = scratch->stash.flags;
	entry->hop_limit = scratch->stash.hop_limit;
	to = (u64 *)entry->header;
	for (int i = 0; i < STASH_WORDS; i++)
		to[i] = from[i];
	stash_order();
	*(volatile u64 *)&entry->id = id;
	return id;
}

/*
 * Remembers the steering header of the frame, which begins behind its Ethernet header and is not changed. The
 * reference, or 0 if it cannot be remembered.
 */
RARE u64 stash_put(buffer *ctx, u64 shape, u64 scope)
{
	struct scratch *scratch = scratch_get();
	const struct segue_stash *entry;
	u64 *known, id, hash;

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
