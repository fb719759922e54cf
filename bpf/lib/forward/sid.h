/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a destination address to the local SID that covers it: longest prefix, so that an argument is carried through.
 */
#ifndef SEGUE_FORWARD_SID_H
#define SEGUE_FORWARD_SID_H

#include "lib/base/types.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"

PERCPU(sids_cached, struct segue_sid_cached, 1 << SEGUE_SID_CACHE_BITS);

/*
 * Entries change in place: a function goes down, the link to it goes down. The agent writes the entry, raises
 * `narrow_changes`, and then has copies of it forgotten on all CPUs (lib/forward/sid_forget.h). A copy that is being
 * made meanwhile is either there to be forgotten or not kept: it is complete, by an operation that no load overtakes,
 * before the number is read again.
 */
RARE int sid_resolve(u64 epoch, const struct address *address, struct segue_sid_cached *entry)
{
	struct segue_sid_key key = {.prefixlen = 32 + 128, .generation = epoch};
	u32 changes = *(const volatile u32 *)&control.narrow_changes;
	const struct segue_sid *sid;
	u32 *index;

	if (!address || !entry)
		return 0;
	address_store(entry->address, *address);
	entry->epoch = 0;
	entry->sid.behaviour = 0;
	__builtin_memcpy(key.address, address, sizeof(key.address));
	index = bpf_map_lookup_elem(&sids, &key);
	sid = index ? bpf_map_lookup_elem(&sid_entries, index) : NULL;
	if (sid && sid->behaviour != SEGUE_UDP_ENDPOINT)
		entry->sid = *sid;
	__sync_fetch_and_add(&entry->epoch, epoch);
	if (unlikely(*(const volatile u32 *)&control.narrow_changes != changes))
		entry->epoch = 0;
	return 0;
}

/*
 * The address of this node that takes labels in UDP: its entry, or NULL. It is no SID, and nothing that looks for one
 * finds it. IPv4 addresses: as ::ffff:0:0/96.
 */
INLINE const struct segue_sid *udp_endpoint(u32 generation, struct address address)
{
	struct segue_sid_key key = {.prefixlen = 32 + 128, .generation = generation};
	const struct segue_sid *sid;
	u32 *index;

	__builtin_memcpy(key.address, &address, sizeof(key.address));
	index = bpf_map_lookup_elem(&sids, &key);
	sid = index ? bpf_map_lookup_elem(&sid_entries, index) : NULL;
	return sid && sid->behaviour == SEGUE_UDP_ENDPOINT ? sid : NULL;
}

/* The SID, or NULL. By reference where the address is in memory already, since stack is short. */
INLINE const struct segue_sid *sid_find_at(u64 epoch, const struct address *address)
{
	u64 high = address->high, low = address->low;
	u64 mixed = (high ^ (low << 21 | low >> 43)) * 0x9e3779b97f4a7c15ULL;
	u32 index = mixed >> (64 - SEGUE_SID_CACHE_BITS);
	struct segue_sid_cached *entry = bpf_map_lookup_elem(&sids_cached, &index);

	if (unlikely(!entry))
		return NULL;
	if (unlikely(!address_equal(address_load(entry->address), (struct address){high, low}) ||
		     entry->epoch != epoch))
		sid_resolve(epoch, address, entry);
	return likely(entry->sid.behaviour) ? &entry->sid : NULL;
}

INLINE const struct segue_sid *sid_find(u64 epoch, struct address address)
{
	return sid_find_at(epoch, &address);
}

/* IFACE-OUT, as transmit() takes it. */
INLINE u32 sid_leaves(const struct segue_sid *sid)
{
	return sid->oif | (u32)(sid->flags & SEGUE_SID_OIF_BY_KERNEL) << 24;
}

/*
 * The argument of `length` bits that a SID carries right behind LOC:FUNCT (RFC 8986 section 3.1); 0 if there is no room
 * for one of 1 to 32.
 */
INLINE u32 sid_argument(const struct segue_sid *sid, u32 length, struct address destination)
{
	u32 end = sid->prefix_length + length, shift;
	u64 high = bpf_be64_to_cpu(destination.high), low = bpf_be64_to_cpu(destination.low), bits;

	if (!length || length > 32 || end > 128)
		return 0;
	shift = 128 - end;
	if (shift >= 64)
		bits = high >> ((shift - 64) & 63);
	else
		bits = low >> shift | (shift ? high << ((64 - shift) & 63) : 0);
	return bits & (0xffffffffU >> (32 - length));
}

#endif
