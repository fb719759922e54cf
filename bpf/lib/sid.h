/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a destination address to the local SID that covers it: longest prefix, so that an argument is carried through. */
#ifndef SEGUE_SID_H
#define SEGUE_SID_H

#include "base.h"

struct sid_cached {
	struct address address;
	u32 generation;
	u32 sid; /* index, or SEGUE_NONE: also not being a SID is remembered */
	u64 reserved;
};

PERCPU(sids_cached, struct sid_cached, SEGUE_SID_CACHE);

RARE u32 sid_find_in_trie(u32 generation, const struct address *address)
{
	struct segue_sid_key key = {.prefixlen = 32 + 128, .generation = generation};
	u32 *sid;

	__builtin_memcpy(key.address, address, sizeof(key.address));
	sid = bpf_map_lookup_elem(&sids, &key);
	return sid ? *sid : SEGUE_NONE;
}

/* Index of the SID, or SEGUE_NONE. */
INLINE u32 sid_find(u32 generation, struct address address)
{
	u64 mixed = address.high * 0x9e3779b97f4a7c15ULL ^ address.low * 0xc2b2ae3d27d4eb4fULL;
	u32 index = (mixed >> 44) & (SEGUE_SID_CACHE - 1);
	struct sid_cached *entry = bpf_map_lookup_elem(&sids_cached, &index);

	if (unlikely(!entry))
		return SEGUE_NONE;
	if (likely(address_equal(entry->address, address) && entry->generation == generation))
		return entry->sid;
	entry->sid = sid_find_in_trie(generation, &address);
	entry->address = address;
	entry->generation = generation;
	return entry->sid;
}

#endif
