/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets as nearly all are, which the fast paths know by a few comparisons: no extension headers, options or
 * fragments, nothing behind the packet, unicast addresses beyond the link. What takes all packets judges the others.
 */
#ifndef SEGUE_PACKET_FAST_H
#define SEGUE_PACKET_FAST_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/packet/packet.h"
#include "lib/packet/inner.h"
#include "lib/packet/flow.h"

#define NOT_FAST (-1)
/* An IPv6 header and an SRH with two segments, and where the inner packet is behind them. */
#define FAST_STEERING (IPV6_LENGTH + SRH_FIXED_LENGTH + 32)
#define FAST_INNER (ETHERNET_LENGTH + FAST_STEERING)
/* The same for a reduced list: one segment in the SRH. */
#define FAST_REDUCED (IPV6_LENGTH + SRH_FIXED_LENGTH + 16)

/* A unicast address beyond the link, as nearly all are. The rest is judged by flow_addresses(). */
INLINE int address_fast(struct address a)
{
	return address_first_octet(a) < 0xfe && a.high;
}

/* An IPv6 packet that fills its frame, from somewhere to somewhere beyond this node. */
INLINE int ipv6_fast(const struct packet *packet, const struct ipv6hdr *ip, u32 length)
{
	struct address source = address_load(&ip->saddr), destination = address_load(&ip->daddr);

	return *(const u8 *)ip >> 4 == 6 && bpf_ntohs(ip->payload_len) + IPV6_LENGTH == length && ip->hop_limit > 1 &&
	       address_fast(source) && address_fast(destination) &&
	       !address_equal(destination, address_load(packet->port->ipv6));
}

INLINE int ipv4_fast(const struct packet *packet, const struct iphdr *ip, const void *end, u32 length)
{
	return *(const u8 *)ip == 0x45 && bpf_ntohs(ip->tot_len) == length && ip->ttl > 1 &&
	       !(ip->frag_off & bpf_htons(0x3fff)) && ipv4_header_sum(ip, end, 5) == 0xffff &&
	       ipv4_valid_source(ip->saddr) && ipv4_valid_source(ip->daddr) && ip->daddr != packet->port->ipv4;
}

/* The first word of an IPv6 header, as it lies in memory. */
#define WORD_VERSION 0xf0ULL
#define WORD_ECN 0x3000ULL
#define WORD_NEXT_HEADER (0xffULL << 48)
#define WORD_HOP_LIMIT(word) ((u32)((word) >> 56))
#define WORD_PAYLOAD_LENGTH(word) bpf_ntohs((u16)((word) >> 32))
#define WORD_OF_SRH (0x60ULL | (u64)PROTOCOL_ROUTING << 48)
/* The first word of an SRH of two segments with none left: length, type and Segments Left. */
#define WORD_LAST_OF_TWO (4U << 8 | ROUTING_TYPE_SRH << 16)

/* An inner IPv4 packet that fills the frame and whose ECN the tunnel leaves alone. */
INLINE int inner_ipv4_fast(const struct iphdr *ip, const void *end, u32 length, u64 outer)
{
	return *(const u8 *)ip == 0x45 && bpf_ntohs(ip->tot_len) == length && ipv4_header_sum(ip, end, 5) == 0xffff &&
	       ipv4_valid_source(ip->saddr) && ipv4_valid_source(ip->daddr) && (ip->tos & 3) == ((outer >> 12) & 3);
}

/* The same for IPv6; and to nowhere in the domain. */
INLINE int inner_ipv6_fast(const struct packet *packet, const u64 *word, u32 length, u64 outer)
{
	struct address source = {word[1], word[2]}, destination = {word[3], word[4]};

	return (word[0] & WORD_VERSION) == 0x60 && WORD_PAYLOAD_LENGTH(word[0]) + IPV6_LENGTH == length &&
	       !((word[0] ^ outer) & WORD_ECN) && address_fast(source) && address_fast(destination) &&
	       !rarely_in_sid_block(packet, destination);
}

/* The flow of a packet, as flow_read() would say, without a fragment or extension headers. 0: done. */
INLINE int ipv6_fast_key(const u64 *word, const void *end, u64 *key)
{
	u32 protocol = (word[0] & WORD_NEXT_HEADER) >> 48;

	if ((const void *)(word + 5) + 4 > end)
		return -1;
	key[0] = word[1];
	key[1] = word[2];
	key[2] = word[3];
	key[3] = word[4];
	key[4] = (u64)protocol << 32 | 6ULL << 40;
	if (likely(protocol_has_ports(protocol)))
		key[4] |= *(const u32 *)(word + 5);
	else if (protocol != PROTOCOL_ICMPV6) /* perhaps an extension header */
		return -1;
	return 0;
}

/* The same for IPv4 without options, nor a fragment. */
INLINE int ipv4_fast_key(const struct iphdr *ip, const void *end, u64 *key)
{
	if ((const void *)(ip + 1) + 4 > end || ip->frag_off & bpf_htons(0x3fff))
		return -1;
	key[0] = ip->saddr | (u64)ip->daddr << 32;
	key[4] = (u64)ip->protocol << 32 | 4ULL << 40;
	if (protocol_has_ports(ip->protocol))
		key[4] |= *(const u32 *)(ip + 1);
	return 0;
}

#endif
