/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMPv6 errors from inside the domain about packets that this node encapsulated: told to the inner source in its own
 * terms (RFC 2473 section 8), so that path MTU discovery and traceroute work through a chain.
 */
#ifndef SEGUE_ICMP_RELAY_H
#define SEGUE_ICMP_RELAY_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/config.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/packet/headers.h"
#include "lib/packet/inner.h"
#include "lib/core/boundary.h"
#include "lib/icmp/path_mtu.h"

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

/*
 * Sums up RFC 2473 sections 8.2 and 8.3. 0: not relayed. `hop_limit`: of the outer packet where the error was made. If
 * that was not at its end, and the inner packet was, it is the inner one that expired (see icmp_about_outer()).
 */
INLINE int relay_translate(struct scratch *scratch, u32 type, u32 param, u32 overhead, const struct inner *inner,
			   u32 family, u32 hop_limit)
{
	scratch->family = family;
	scratch->icmp_kind = SEGUE_ICMP_RELAYED;
	scratch->extension_length = 0;
	scratch->param = 0;
	if (type == ICMPV6_PACKET_TOO_BIG) {
		if (param <= overhead)
			return 0;
		param -= overhead;
		if (family == 6) {
			if (inner->length <= IPV6_LEAST_MTU)
				return 0;
			scratch->type = ICMPV6_PACKET_TOO_BIG;
			scratch->code = 0;
			scratch->param = param < IPV6_LEAST_MTU ? IPV6_LEAST_MTU : param;
		} else {
			if (inner->fragment_allowed || param < 68)
				return 0;
			scratch->type = ICMPV4_DESTINATION_UNREACHABLE;
			scratch->code = ICMPV4_FRAGMENTATION_NEEDED;
			scratch->param = param;
		}
		return 1;
	}
	if (type == ICMPV6_TIME_EXCEEDED && hop_limit > 1 && inner->hop_limit <= 1) {
		scratch->type = family == 6 ? ICMPV6_TIME_EXCEEDED : ICMPV4_TIME_EXCEEDED;
		scratch->code = 0;
		return 1;
	}
	/* Hop limit exceeded and unreachable inside the tunnel: address, respectively host, unreachable. */
	scratch->type = family == 6 ? ICMPV6_DESTINATION_UNREACHABLE : ICMPV4_DESTINATION_UNREACHABLE;
	scratch->code = family == 6 ? 3 : 1;
	return 1;
}

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct segue_sid_key);
	__type(value, struct segue_return);
} returns SEC(".maps");

#define RELAY_NOWHERE (~0ULL)

/*
 * The way to the source of a packet that this node has sent to `last`, the last segment: ICMP_WAY() of the port that it
 * came in by, so that it is found in the table of that port, and nobody else with the same address is told. Where
 * several ports may have been it, the one that leads to the source. RELAY_NOWHERE: it is not known.
 */
RARE u64 relay_way(buffer *ctx, u32 generation, const struct address *last, const struct address *source, u32 family)
{
	struct segue_sid_key key = {.prefixlen = 32 + 128, .generation = generation};
	struct bpf_fib_lookup fib = {};
	const struct segue_return *known;
	u64 way = RELAY_NOWHERE;
	u32 port;

	if (!last || !source)
		return RELAY_NOWHERE;
	__builtin_memcpy(key.address, last, sizeof(key.address));
	known = bpf_map_lookup_elem(&returns, &key);
	if (!known)
		return 0;
	if (!known->ports[1])
		return ICMP_WAY(0, known->ports[0]);
	for (int i = 0; i < SEGUE_RETURN_PORTS; i++) {
		port = known->ports[i];
		if (!port)
			break;
		__builtin_memset(&fib, 0, sizeof(fib));
		if (family == 6) {
			fib.family = 10;
			__builtin_memcpy(fib.ipv6_dst, source, sizeof(fib.ipv6_dst));
		} else {
			fib.family = 2;
			fib.ipv4_dst = source->low;
		}
		fib.ifindex = port;
		if (FIB_LENGTH)
			fib.tot_len = FIB_LENGTH;
		if (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) != BPF_FIB_LKUP_RET_SUCCESS || fib.ifindex != port)
			continue;
		if (way != RELAY_NOWHERE)
			return RELAY_NOWHERE;
		way = ICMP_WAY(0, port);
	}
	return way;
}

/* Does the error come from a node of the domain, or from a SID? */
INLINE int relay_from_inside(buffer *ctx, const struct segue_config *config)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	struct address source;

	if ((void *)(ip + 1) > end)
		return 0;
	source = address_load(&ip->saddr);
	return in_infrastructure(config, source) ||
	       in_prefixes(config->source_prefixes, config->source_prefixes_count, source) ||
	       in_prefixes(config->sid_blocks, config->sid_blocks_count, source);
}

/* The inner packet behind headers that have been walked, of which only its own header must be there: its family, or 0.
 */
INLINE u32 relay_inner(buffer *ctx, const struct headers *headers, struct inner *inner)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 offset = headers->upper & OFFSET_MASK, linear = end - data;

	if (headers->error || headers->fragment || offset >= linear)
		return 0;
	if (headers->protocol == PROTOCOL_IPV6) {
		inner_ipv6(data, end, offset, 0xffffff, inner);
		return 6;
	}
	if (headers->protocol == PROTOCOL_IPV4) {
		inner_ipv4(data, end, offset, 0xffffff, inner);
		return 4;
	}
	return 0;
}

/*
 * An error that this node would send to itself (icmp_about_own()): about the inner packet instead, to its source, by
 * the port that it came in by. The packet has its outcome already.
 */
INLINE int relay_own(const struct packet *packet, struct scratch *scratch)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	u32 kind = scratch->icmp_kind, offset, family, hop_limit;
	struct headers headers = {};
	struct inner inner = {};

	scratch->own = 0;
	if ((const void *)(ip + 1) > end)
		goto not_sent;
	hop_limit = ip->hop_limit;
	headers_walk(packet->ctx, ETHERNET_LENGTH + 6, ETHERNET_LENGTH + IPV6_LENGTH, 0xffff, &headers);
	if (headers.srh)
		headers_walk_past_srh(packet->ctx, headers.srh, 0xffff, &headers);
	family = relay_inner(packet->ctx, &headers, &inner);
	offset = headers.upper & OFFSET_MASK;
	if (!family || inner.outcome ||
	    !relay_translate(scratch, scratch->type, scratch->param, offset - ETHERNET_LENGTH, &inner, family,
			     hop_limit))
		goto not_sent;
	scratch->icmp_kind = kind;
	scratch->l3 = offset;
	scratch->way = ICMP_WAY(0, buffer_interface(packet->ctx));
	stage(packet, SEGUE_STAGE_ICMP);
not_sent:
	count_icmp(SEGUE_ICMP_NOT_SENT);
	return VERDICT_DROP;
}

/* Finds the inner packet in the quote. The quote may end inside it: only its header must be there. */
INLINE int relay(struct packet *packet)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	u32 quote = ETHERNET_LENGTH + IPV6_LENGTH + 8;
	const struct ipv6hdr *ip = data + quote;
	const struct segue_config *config = config_get(packet->generation);
	struct scratch *scratch = scratch_get();
	struct headers headers = {};
	struct inner inner = {};
	u32 type, param, offset, family, hop_limit, srh;
	struct address last;
	const void *segment;
	const u8 *octet;

	if (scratch && scratch->own)
		return relay_own(packet, scratch);
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
	/* The operator has said where the domain's nodes and links are: nobody else can know. */
	if (config->infrastructure_prefixes_count && !relay_from_inside(packet->ctx, config))
		return drop(packet, SEGUE_OUTCOME_drop_error_from_outside);
	last = address_load(&ip->daddr);
	hop_limit = ip->hop_limit;
	/* That with Segments Left 0 too: it tells which list it is of. */
	srh = ip->nexthdr == PROTOCOL_ROUTING ? quote + IPV6_LENGTH : 0;
	headers_walk(packet->ctx, quote + 6, quote + IPV6_LENGTH, 0xffff, &headers);
	if (headers.srh) {
		segment = data + (headers.srh & OFFSET_MASK) + SRH_FIXED_LENGTH;
		if (segment + 16 > end)
			return pass(packet, SEGUE_OUTCOME_passed_route);
		last = address_load(segment);
		headers_walk_past_srh(packet->ctx, headers.srh, 0xffff, &headers);
	}
	offset = headers.upper & OFFSET_MASK;
	family = relay_inner(packet->ctx, &headers, &inner);
	if (!family || inner.outcome ||
	    !relay_translate(scratch, type, param, offset - quote, &inner, family, hop_limit))
		return pass(packet, SEGUE_OUTCOME_passed_route);
	/* Without infrastructure it may come from whoever knows the segments, and makes the path no narrower than 1280.
	 */
	if (type == ICMPV6_PACKET_TOO_BIG)
		path_mtu_of_list(packet->ctx, &last, srh, param);
	scratch->l3 = offset;
	scratch->way = relay_way(packet->ctx, packet->generation, &last, &inner.source, family);
	if (scratch->way == RELAY_NOWHERE)
		return drop(packet, SEGUE_OUTCOME_drop_not_answered);
	scratch->length = packet->length;
	stage(packet, SEGUE_STAGE_ICMP);
	return drop(packet, SEGUE_OUTCOME_drop_not_answered);
}

#endif
