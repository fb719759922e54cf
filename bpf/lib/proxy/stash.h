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

INLINE u64 stash_mix(u64 hash, u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 29;
}

INLINE int stash_equal(const struct segue_stash *a, const struct segue_stash *b)
{
	const u64 *one = (const u64 *)a->header, *other = (const u64 *)b->header;
	u64 difference = (a->scope ^ b->scope) | (a->length ^ b->length) | (a->flags ^ b->flags) |
			 (a->next_header ^ b->next_header) | (a->hop_limit ^ b->hop_limit) | (a->kind ^ b->kind);

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
	entry->kind = scratch->stash.kind;
	to = (u64 *)entry->header;
	for (int i = 0; i < STASH_WORDS; i++)
		to[i] = from[i];
	stash_order();
	*(volatile u64 *)&entry->id = id;
	return id;
}

#endif
