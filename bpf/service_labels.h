/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Services behind a label: what comes are frames with the rest of a stack, as the node gives them to a function that
 * sees it (lib/labels/aware.h), and they go back with the same one. Programs of their own, so that those of SRv6 need
 * not ask what is steered how.
 */
#ifndef SEGUE_SERVICE_LABELS_H
#define SEGUE_SERVICE_LABELS_H

#include "service_flow.h"

/* Labels that a node gives to a function at most. */
#define LABELS_MAX 32
/* In an entry: it is the last one. */
#define ENTRY_BOTTOM 0x100

/* The offset of what is behind the stack; 0: it has no end that is near enough. */
static __always_inline __u32 stack_end(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	for (int i = 0; i < LABELS_MAX; i++) {
		const __be32 *entry = data + sizeof(struct ethhdr) + i * sizeof(*entry);

		if ((void *)(entry + 1) > end)
			return 0;
		if (*entry & bpf_htonl(ENTRY_BOTTOM))
			return sizeof(struct ethhdr) + (i + 1) * sizeof(*entry);
	}
	return 0;
}

static __always_inline int has_labels(struct xdp_md *ctx)
{
	const struct ethhdr *ethernet = (void *)(long)ctx->data;

	return (void *)(ethernet + 1) <= (void *)(long)ctx->data_end && ethernet->h_proto == bpf_htons(ETH_P_MPLS_UC);
}

/* Which of the workers has the packet at `at`, behind a stack. Who is given labels gets IP packets only. */
static __always_inline __u32 worker_behind(struct xdp_md *ctx, __u32 at, const struct settings *set)
{
	struct flow flow = {};
	__u8 first, protocol;

	if (bpf_xdp_load_bytes(ctx, at, &first, sizeof(first)))
		return 0;
	protocol = first >> 4 == 4 ? PROTOCOL_IPV4 : first >> 4 == 6 ? PROTOCOL_IPV6 : 0;
	if (!inner_flow(ctx, BUFFER_XDP, at, protocol, &flow))
		return 0;
	return ((__u64)mixed(&flow) * set->workers) >> 32;
}

SEC("xdp.frags")
int labels_wait(struct xdp_md *ctx)
{
	__u32 zero = 0, socket = ctx->rx_queue_index, at;
	const struct settings *set;

	if (!has_labels(ctx)) {
		count(COUNTER_KERNEL);
		return XDP_PASS;
	}
	at = stack_end(ctx);
	if (!at) {
		count(COUNTER_INVALID);
		return XDP_DROP;
	}
	set = bpf_map_lookup_elem(&settings, &zero);
	if (set && set->workers > 1)
		socket = socket * set->workers + worker_behind(ctx, at, set);
	count(COUNTER_SERVICE);
	/* Without a socket nobody else may have it: a function is never bypassed. */
	return bpf_redirect_map(&sockets, socket, XDP_DROP);
}

SEC("xdp.frags")
int labels_copy(struct xdp_md *ctx)
{
	struct ethhdr *ethernet;
	__u32 outcome;

	if (!has_labels(ctx)) {
		count(COUNTER_KERNEL);
		return XDP_PASS;
	}
	if (!stack_end(ctx)) {
		count(COUNTER_INVALID);
		return XDP_DROP;
	}
	outcome = copy(ctx);
	ethernet = (void *)(long)ctx->data;
	if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end) {
		count(COUNTER_INVALID);
		return XDP_DROP;
	}
	turn(ethernet);
	count(outcome);
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

#endif
