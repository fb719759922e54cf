// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A malicious neighbour in a namespace of this machine: it puts metadata in front of packets, as Segue's XDP program
 * does for its TC program on the same port. What it writes is in metadata.h, which the test puts beside this file's
 * copy.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "abi/segue.h"

#if __has_include("metadata.h")
#include "metadata.h"
#else
#define METADATA                                                                                                       \
	{                                                                                                              \
		.magic = 1                                                                                             \
	}
#define ONWARDS 1
#endif
#ifndef KIND
#define KIND segue_function_metadata
#endif

/* volatile: else it becomes a constant in a section of its own, which old loaders do not know. */
static const volatile struct KIND forged = METADATA;

SEC("xdp")
int forge(struct xdp_md *ctx)
{
	struct KIND *metadata;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*metadata)))
		return XDP_DROP;
	metadata = (void *)(long)ctx->data_meta;
	if ((void *)(metadata + 1) > (void *)(long)ctx->data)
		return XDP_DROP;
	*metadata = forged;
	return XDP_PASS;
}

/* Onwards to the node, by a link of the neighbour's. */
SEC("tc")
int onwards(struct __sk_buff *skb)
{
	return bpf_redirect(ONWARDS, 0);
}

/* As `onwards`, with what stands in front of the frame in place of its first octets; 0xff: there is nothing. */
SEC("classifier")
int tell(struct __sk_buff *skb)
{
	__u64 *metadata = (void *)(long)skb->data_meta, told = ~0ULL;

	if ((void *)(metadata + 1) <= (void *)(long)skb->data)
		told = *metadata;
	if (bpf_skb_store_bytes(skb, 0, &told, sizeof(told), 0))
		return TC_ACT_SHOT;
	return bpf_redirect(ONWARDS, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
