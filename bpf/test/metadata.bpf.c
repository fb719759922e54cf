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

SEC("xdp")
int forge(struct xdp_md *ctx)
{
	static const struct segue_function_metadata forged = METADATA;
	struct segue_function_metadata *metadata;

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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
