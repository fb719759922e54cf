/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What may not be answered with an error. */
#ifndef SEGUE_ICMP_FORBIDDEN_H
#define SEGUE_ICMP_FORBIDDEN_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/packet/buffer.h"
#include "lib/packet/headers.h"
#include "lib/packet/inner.h"
#include "lib/packet/outcome.h"

#define ICMP_WALKS 4

/* Has the walk ended in front of a header that has another one behind it? */
INLINE int headers_stopped(const struct headers *headers)
{
	return headers->srh || headers->error == SEGUE_OUTCOME_drop_routing_type ||
	       headers->error == SEGUE_OUTCOME_drop_too_many_headers;
}

/* Does this IPv6 packet forbid an answer? RFC 4443 section 2.4(e). */
INLINE int icmpv6_forbidden(buffer *ctx, u32 l3, u32 type, u32 code, struct address source, struct address destination,
			    u32 limit)
{
	struct headers headers = {};
	void *data, *end;
	const u8 *octet;

	if (!address_valid_source(source))
		return 1;
	if (address_multicast(destination) && type != ICMPV6_PACKET_TOO_BIG &&
	    !(type == ICMPV6_PARAMETER_PROBLEM && code == 2))
		return 1;
	headers_walk(ctx, l3 + 6, l3 + IPV6_LENGTH, limit, &headers);
	/* It stops at a routing header that is in use, and after so many headers: an error may be behind them. */
	for (int i = 0; i < ICMP_WALKS && headers_stopped(&headers); i++) {
		if (headers.error == SEGUE_OUTCOME_drop_too_many_headers && headers.protocol != PROTOCOL_HOP_BY_HOP)
			headers_walk(ctx, headers.previous, headers.upper, limit, &headers);
		else
			headers_walk_past_srh(ctx, headers.upper, limit, &headers);
	}
	if (headers_stopped(&headers))
		return 1;
	if (headers.protocol != PROTOCOL_ICMPV6)
		return 0;
	data = buffer_start(ctx);
	end = buffer_end(ctx);
	if (headers.fragment) {
		/* The header in front of it is a Fragment header: a first fragment has the type, a later one has none.
		 */
		octet = data + (headers.previous & OFFSET_MASK);
		if ((void *)(octet + 4) > end || fragment_later(octet))
			return 0;
	}
	octet = data + (headers.upper & OFFSET_MASK);
	if ((void *)(octet + 1) > end)
		return 1;
	return *octet < 128 || *octet == 137;
}

/*
 * Echo, timestamp, information and address mask, both ways. Of the others some are errors, and of those that nobody
 * knows some may be: none is answered (RFC 1122 section 3.2.2; the kernel's icmp_send() has the same list).
 */
#define ICMPV4_ANSWERED 0x7e101U

INLINE int icmpv4_forbidden(const struct iphdr *ip, const void *end)
{
	const u8 *octet = (const void *)ip;
	u32 offset = (octet[0] & 15) * 4;

	if (!ipv4_valid_source(ip->saddr) || !ipv4_valid_source(ip->daddr) || ip->frag_off & bpf_htons(0x1fff))
		return 1;
	if (ip->protocol != IPPROTO_ICMP)
		return 0;
	octet += offset;
	if ((const void *)(octet + 1) > end)
		return 1;
	return *octet > 18 || !(ICMPV4_ANSWERED >> *octet & 1);
}

#endif
