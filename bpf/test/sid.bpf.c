// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * For tests only: a SID is looked up, and an entry changes at a moment of the test's choice in the middle of that
 * (crates/testkit/tests/links/sid.rs). On a real node that is another CPU's doing and far too rare to wait for.
 */
#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"

struct moment {
	u32 change_before; /* the lookup of which number, from 1; 0: of none */
	u32 lookups;	   /* so far */
};

ARRAY(moment, struct moment, 1);

static __always_inline void *lookup(void *map, const void *key)
{
	u32 zero = 0;
	struct moment *now = bpf_map_lookup_elem(&moment, &zero);

	if (now && ++now->lookups == now->change_before)
		*(volatile u32 *)&control.narrow_changes += 1;
	return bpf_map_lookup_elem(map, key);
}

#define bpf_map_lookup_elem lookup
#include "lib/forward/sid.h"

/* The address is where the destination of an IPv6 packet is. */
SEC("xdp.frags")
int look_up(struct xdp_md *ctx)
{
	struct address *address = (void *)(long)ctx->data + ETHERNET_LENGTH + 24;

	if ((void *)(address + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	return sid_find(1, *address) ? XDP_PASS : XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
