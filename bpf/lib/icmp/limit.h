/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How many messages a port may cause. */
#ifndef SEGUE_ICMP_LIMIT_H
#define SEGUE_ICMP_LIMIT_H

#include "lib/base/types.h"
#include "lib/base/maps.h"

#define NANOSECONDS 1000000000ULL

/* A token bucket, in nanoseconds of its rate (RFC 4443 section 2.4(f)). */
struct icmp_bucket {
	u64 time; /* when it was last filled; 0: never */
	u64 tokens;
};

/*
 * Of each port one for each kind of message: what one port or kind is flooded with silences no other. That of
 * SEGUE_ICMP_NOT_SENT is for neighbours to be looked for.
 */
struct icmp_budget {
	struct icmp_bucket kinds[SEGUE_ICMP_MAX];
};

/* By the row of the port in `outcomes`; the loader makes it as large. */
PERCPU(icmp_budgets, struct icmp_budget, 256);

/* May one more message of this kind (enum segue_icmp) be sent for a packet of this port? */
RARE int icmp_allowed(u32 port_index, u32 kind, u32 per_second, u32 burst)
{
	struct icmp_budget *budget = bpf_map_lookup_elem(&icmp_budgets, &port_index);
	u64 now = bpf_ktime_get_ns(), price, limit, tokens;
	struct icmp_bucket *bucket;

	opaque(kind);
	if (!budget || kind >= SEGUE_ICMP_MAX || !per_second)
		return 0;
	bucket = &budget->kinds[kind];
	price = NANOSECONDS / per_second;
	limit = price * burst;
	tokens = bucket->tokens + (now - bucket->time);
	if (!bucket->time || tokens > limit)
		tokens = limit;
	bucket->time = now;
	if (tokens < price) {
		bucket->tokens = tokens;
		return 0;
	}
	bucket->tokens = tokens - price;
	return 1;
}

#endif
