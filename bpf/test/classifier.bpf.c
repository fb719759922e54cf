// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * For tests only: asks the classifier many questions in one run, so that its answers can be compared with the
 * interpreter's and its time be measured (crates/testkit/tests/links/classifier.rs).
 */
#include "lib/base/types.h"
#include "lib/base/maps.h"
#include "lib/classifier/rules.h"

#define QUERIES 4096

struct query {
	struct segue_classifier_key key;
	u32 chain, after;
	u32 line;   /* the answer */
	u32 number; /* the rule's, if there is one */
};

struct order {
	u32 queries; /* a power of two, at most QUERIES */
	u32 rounds;  /* lookups, over and over the queries */
	u32 sum;     /* of the answers: the compiler must not do without them */
	u32 chain;
	u64 nanoseconds;
};

ARRAY(queries, struct query, QUERIES);
ARRAY(orders, struct order, 1);
PERCPU(keys, struct segue_classifier_key, 1);

/*
 * For measurements: the first 64 octets of keys, the rest of which is that of `keys`. A packet costs the data plane
 * about as much of its caches.
 */
struct hot {
	u64 word[8];
};

ARRAY(hots, struct hot, QUERIES);

struct run {
	struct segue_classifier_key *key;
	u32 mask;
	u32 sum;
	u32 chain;
	u32 reserved;
};

/* As the data plane has it: the key lies in a value of this CPU, in the first-level cache. */
INLINE int take(u32 index, struct run *run)
{
	u32 at = index & run->mask;
	const struct hot *hot = bpf_map_lookup_elem(&hots, &at);
	u64 *to = (u64 *)run->key;

	if (!hot)
		return 0;
#pragma unroll
	for (int i = 0; i < 8; i++)
		to[i] = hot->word[i];
	return 1;
}

static long answer(u32 index, struct run *run)
{
	struct query *query = bpf_map_lookup_elem(&queries, &index);

	if (!query)
		return 1;
	query->line = classifier_find(query->chain, &query->key, query->after);
	query->number = classifier_number(query->chain, query->line);
	return 0;
}

static long measured(u32 index, struct run *run)
{
	if (!take(index, run))
		return 1;
	run->sum += classifier_find(run->chain, run->key, 0);
	return 0;
}

RARE u32 no_find(u32 chain, const struct segue_classifier_key *key, u32 after)
{
	if (!key)
		return 0;
	return chain + after + key->source_port;
}

static long baseline(u32 index, struct run *run)
{
	if (!take(index, run))
		return 1;
	run->sum += no_find(run->chain, run->key, 0);
	return 0;
}

SEC("xdp")
int ask(struct xdp_md *ctx)
{
	struct run run = {};
	u32 zero = 0;
	struct order *order = bpf_map_lookup_elem(&orders, &zero);

	(void)ctx;
	if (!order)
		return XDP_ABORTED;
	bpf_loop(order->queries, answer, &run, 0);
	return XDP_PASS;
}

#define MEASURE(name_, step_)                                                                                          \
	SEC("xdp")                                                                                                     \
	int name_(struct xdp_md *ctx)                                                                                  \
	{                                                                                                              \
		struct run run = {};                                                                                   \
		u32 zero = 0;                                                                                          \
		struct order *order = bpf_map_lookup_elem(&orders, &zero);                                             \
		u64 begin;                                                                                             \
                                                                                                                       \
		(void)ctx;                                                                                             \
		run.key = bpf_map_lookup_elem(&keys, &zero);                                                           \
		if (!order || !run.key)                                                                                \
			return XDP_ABORTED;                                                                            \
		run.mask = order->queries - 1;                                                                         \
		run.chain = order->chain;                                                                              \
		begin = bpf_ktime_get_ns();                                                                            \
		bpf_loop(order->rounds, step_, &run, 0);                                                               \
		order->nanoseconds = bpf_ktime_get_ns() - begin;                                                       \
		order->sum = run.sum;                                                                                  \
		return XDP_PASS;                                                                                       \
	}

MEASURE(measure, measured)
MEASURE(measure_nothing, baseline)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
