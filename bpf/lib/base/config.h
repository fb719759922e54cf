/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The node's settings, and which addresses lie in the domain. */
#ifndef SEGUE_BASE_CONFIG_H
#define SEGUE_BASE_CONFIG_H

#include "lib/base/types.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"

/*
 * Whether packets may meet functions behind this node, and come in by access ports. Where it is 0 the verifier follows
 * nothing of what is for them, which is more than half of its work: most nodes have none of either. On XDP there is one
 * load, for all.
 */
#ifdef SEGUE_SKB
const volatile u32 functions_here SEC(".rodata.functions") = 1;
const volatile u32 access_here SEC(".rodata.access") = 1;
#else
#define functions_here 1
#define access_here 1
#endif

/* Node-wide settings: rarely needed, so not kept in hand. */
INLINE const struct segue_config *config_get(u32 generation)
{
	u32 slot = generation & 1;

	return bpf_map_lookup_elem(&config, &slot);
}

INLINE int in_prefixes(const struct segue_prefix *prefixes, u32 count, struct address a)
{
	for (int i = 0; i < SEGUE_PREFIXES_MAX; i++) {
		if (i >= count)
			break;
		if ((a.high & prefixes[i].mask[0]) == prefixes[i].address[0] &&
		    (a.low & prefixes[i].mask[1]) == prefixes[i].address[1])
			return 1;
	}
	return 0;
}

/* Does an address lie in a SID block? Inlined where many packets are asked. */
INLINE int in_sid_block_here(u32 generation, struct address a)
{
	const struct segue_config *config = config_get(generation);

	return config && in_prefixes(config->sid_blocks, config->sid_blocks_count, a);
}

RARE int sid_block_has(u32 generation, u64 high, u64 low)
{
	return in_sid_block_here(generation, (struct address){high, low});
}

INLINE int in_sid_block(u32 generation, struct address a)
{
	return sid_block_has(generation, a.high, a.low);
}

#endif
