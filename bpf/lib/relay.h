/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMPv6 errors from inside the domain about packets that this node encapsulated: told to the inner source in its own
 * terms (RFC 2473 section 8), so that path MTU discovery and traceroute work through a chain.
 */
#ifndef SEGUE_RELAY_H
#define SEGUE_RELAY_H

#include "base.h"
#include "headers.h"
#include "inner.h"
#include "outcome.h"

/* Is it an ICMPv6 error to this node's own address? The caller has checked the IPv6 header. */
INLINE int relay_wanted(const struct packet *packet, const struct ipv6hdr *ip, const void *end)
{
	const u8 *type = (const void *)(ip + 1);

	const struct segue_config *config;

	if (ip->nexthdr != PROTOCOL_ICMPV6)
		return 0;
	config = config_get(packet->generation);
	if (!config || !address_equal(address_load(&ip->daddr), address_load(config->address)))
		return 0;
	return (const void *)(type + 8 + IPV6_LENGTH) <= end && *type >= 1 && *type <= 3;
}

/* Sums up RFC 2473 sections 8.2 and 8.3. 0: not relayed. */
INLINE int relay_translate(struct scratch *scratch, u32 type, u32 param, u32 overhead, const struct inner *inner,
			   u32 family)
{
	scratch->family = family;
	scratch->icmp_kind = SEGUE_ICMP_RELAYED;
	scratch->param = 0;
	if (type == ICMPV6_PACKET_TOO_BIG) {
		if (param <= overhead)
			return 0;
		param -= overhead;
		if (family == 6) {
			if (inner->length <= 1280)
				return 0;
			scratch->type = ICMPV6_PACKET_TOO_BIG;
			scratch->code = 0;
			scratch->param = param < 1280 ? 1280 : param;
		} else {
			if (inner->fragment_allowed || param < 68)
				return 0;
			scratch->type = ICMPV4_DESTINATION_UNREACHABLE;
			scratch->code = ICMPV4_FRAGMENTATION_NEEDED;
			scratch->param = param;
		}
		return 1;
	}
	/* Hop limit exceeded and unreachable inside the tunnel: address, respectively host, unreachable. */
	scratch->type = family == 6 ? ICMPV6_DESTINATION_UNREACHABLE : ICMPV4_DESTINATION_UNREACHABLE;
	scratch->code = family == 6 ? 3 : 1;
	return 1;
}

/* Finds the inner packet in the quote. The quote may end inside it: only its header must be there. */
INLINE int relay(struct packet *packet)
{
	void *data = (void *)(long)packet->ctx->data;
	void *end = (void *)(long)packet->ctx->data_end;
	u32 quote = ETHERNET_LENGTH + IPV6_LENGTH + 8, linear = end - data;
	const struct ipv6hdr *ip = data + quote;
	const struct segue_config *config = config_get(packet->generation);
	struct scratch *scratch = scratch_get();
	struct headers headers = {};
	struct inner inner = {};
	u32 type, param, offset, family;
	const u8 *octet;

	if (!scratch || !config || (void *)(ip + 1) > end)
		return pass(packet, SEGUE_OUTCOME_passed_route);
	packet->length = IPV6_LENGTH + bpf_ntohs(((struct ipv6hdr *)(data + ETHERNET_LENGTH))->payload_len);
	octet = data + ETHERNET_LENGTH + IPV6_LENGTH;
	type = octet[0];
	param = bpf_ntohl(*(u32 *)(octet + 4));
	/* Only what this node put on: its own source address, to a SID. */
	if (*(const u8 *)ip >> 4 != 6 || !address_equal(address_load(&ip->saddr), address_load(config->address)) ||
	    !in_sid_block(packet->generation, address_load(&ip->daddr)))
		return pass(packet, SEGUE_OUTCOME_passed_route);
	headers_walk(packet->ctx, quote + 6, quote + IPV6_LENGTH, 0xffff, &headers);
	if (headers.srh)
		headers_walk_past_srh(packet->ctx, headers.srh, 0xffff, &headers);
	data = (void *)(long)packet->ctx->data;
	end = (void *)(long)packet->ctx->data_end;
	offset = headers.upper & OFFSET_MASK;
	if (headers.error || headers.fragment || offset >= linear)
		return pass(packet, SEGUE_OUTCOME_passed_route);
	if (headers.protocol == PROTOCOL_IPV6) {
		family = 6;
		inner_ipv6(data, end, offset, 0xffffff, &inner);
	} else if (headers.protocol == PROTOCOL_IPV4) {
		family = 4;
		inner_ipv4(data, end, offset, 0xffffff, &inner);
	} else {
		return pass(packet, SEGUE_OUTCOME_passed_route);
	}
	if (inner.outcome || !relay_translate(scratch, type, param, offset - quote, &inner, family))
		return pass(packet, SEGUE_OUTCOME_passed_route);
	scratch->l3 = offset;
	scratch->way = 0;
	scratch->length = packet->length;
	stage(packet, SEGUE_STAGE_ICMP);
	return drop(packet, SEGUE_OUTCOME_drop_not_answered);
}

#endif
