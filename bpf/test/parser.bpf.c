// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * For tests only: shows what the data plane's walk over extension headers makes of a frame, so that it can be compared
 * with the Rust parser (crates/testkit/tests/links/differential.rs).
 */
#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/maps.h"
#include "lib/packet/frame.h"
#include "lib/packet/headers.h"

struct parsed {
	u32 walked; /* 1: the fields below are the walk's; 0: the fixed header already was wrong */
	u16 srh, previous, upper, error_at;
	u8 protocol, fragment, sr_seen, error;
};

ARRAY(parsed, struct parsed, 1);

SEC("xdp.frags")
int parse(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	const struct ethhdr *ethernet = data;
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	u32 zero = 0, limit;
	struct parsed *out = bpf_map_lookup_elem(&parsed, &zero);
	struct headers headers = {};

	if (!out)
		return XDP_ABORTED;
	__builtin_memset(out, 0, sizeof(*out));
	if ((void *)(ip + 1) > end || ethernet->h_proto != bpf_htons(ETH_P_IPV6) || *(const u8 *)ip >> 4 != 6)
		return XDP_PASS;
	limit = ETHERNET_LENGTH + IPV6_LENGTH + bpf_ntohs(ip->payload_len);
	if (limit > frame_length(ctx))
		return XDP_PASS;
	headers_walk(ctx, ETHERNET_LENGTH + 6, ETHERNET_LENGTH + IPV6_LENGTH, limit, &headers);
	out->walked = 1;
	out->srh = headers.srh;
	out->previous = headers.previous;
	out->upper = headers.upper;
	out->error_at = headers.error_at;
	out->protocol = headers.protocol;
	out->fragment = headers.fragment;
	out->sr_seen = headers.sr_seen;
	out->error = headers.error;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
