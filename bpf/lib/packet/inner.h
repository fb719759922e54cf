/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Inner packets: what must hold before one is let out of its steering header, and the changes that a tunnel end makes.
 */
#ifndef SEGUE_PACKET_INNER_H
#define SEGUE_PACKET_INNER_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"

struct inner {
	struct address source, destination; /* IPv4: in the low word */
	u32 offset;			    /* of the inner packet in the frame */
	u32 length;			    /* octets, by its own header */
	u32 outcome;			    /* 0, or why it is refused */
	u8 hop_limit;
	u8 ecn;
	u8 fragment_allowed; /* IPv4 without DF: its sender does not look for the path MTU */
	u8 dscp;
	u8 next_header; /* IPv6 */
};

/* Sum of the IPv4 header's words at `ip`, `words` 32-bit words; 0xffff when the checksum is right. */
INLINE u16 ipv4_header_sum(const void *ip, const void *end, u32 words)
{
	const u32 *word = ip;
	u64 sum = (u64)word[0] + word[1] + word[2] + word[3] + word[4];

	for (int i = 5; i < 15; i++) {
		if (i >= words || (const void *)(word + i + 1) > end)
			break;
		sum += word[i];
	}
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	return fold16((u32)(sum & 0xffff) + (u32)(sum >> 16));
}

/* Addresses of an IPv4 header in host order tests. */
INLINE int ipv4_valid_source(u32 address)
{
	u8 first = address & 0xff;

	return first != 0 && first != 127 && first < 224;
}

/* Reads and checks the inner IPv6 packet at `offset` within an outer payload that ends at `limit`. */
INLINE void inner_ipv6(void *data, void *end, u32 offset, u32 limit, struct inner *inner)
{
	const struct ipv6hdr *ip = data + offset;
	const u8 *octet = (const void *)ip;

	inner->offset = offset;
	if ((void *)(ip + 1) > end || offset + IPV6_LENGTH > limit) {
		inner->outcome = SEGUE_OUTCOME_drop_truncated;
		return;
	}
	inner->length = IPV6_LENGTH + bpf_ntohs(ip->payload_len);
	inner->source = address_load(&ip->saddr);
	inner->destination = address_load(&ip->daddr);
	inner->hop_limit = ip->hop_limit;
	inner->ecn = (octet[1] >> 4) & 3;
	inner->dscp = (octet[0] & 15) << 2 | octet[1] >> 6;
	inner->next_header = ip->nexthdr;
	inner->fragment_allowed = 0;
	if (octet[0] >> 4 != 6)
		inner->outcome = SEGUE_OUTCOME_drop_bad_version;
	else if (offset + inner->length > limit || (offset + inner->length < limit && maybe_jumbogram(ip)))
		inner->outcome = SEGUE_OUTCOME_drop_bad_length;
	else if (!address_forwardable(inner->source) || !address_forwardable(inner->destination))
		inner->outcome = SEGUE_OUTCOME_drop_bad_inner;
	else
		inner->outcome = 0;
}

/* The same for IPv4. */
INLINE void inner_ipv4(void *data, void *end, u32 offset, u32 limit, struct inner *inner)
{
	const struct iphdr *ip = data + offset;
	const u8 *octet = (const void *)ip;
	u32 words;

	inner->offset = offset;
	if ((void *)(ip + 1) > end || offset + sizeof(*ip) > limit) {
		inner->outcome = SEGUE_OUTCOME_drop_truncated;
		return;
	}
	words = octet[0] & 15;
	inner->length = bpf_ntohs(ip->tot_len);
	inner->source.high = 0;
	inner->source.low = ip->saddr;
	inner->destination.high = 0;
	inner->destination.low = ip->daddr;
	inner->hop_limit = ip->ttl;
	inner->ecn = octet[1] & 3;
	inner->dscp = octet[1] >> 2;
	inner->fragment_allowed = !(ip->frag_off & bpf_htons(0x4000));
	if (octet[0] >> 4 != 4)
		inner->outcome = SEGUE_OUTCOME_drop_bad_version;
	else if (words < 5 || inner->length < words * 4 || offset + inner->length > limit)
		inner->outcome = SEGUE_OUTCOME_drop_bad_length;
	else if ((void *)ip + words * 4 > end)
		inner->outcome = SEGUE_OUTCOME_drop_truncated;
	else if (ipv4_header_sum(ip, end, words) != 0xffff)
		inner->outcome = SEGUE_OUTCOME_drop_bad_checksum;
	else if (!ipv4_valid_source(ip->saddr) || !ipv4_valid_source(ip->daddr))
		inner->outcome =
			SEGUE_OUTCOME_drop_bad_inner; /* multicast and broadcast are not forwarded by unicast SIDs */
	else
		inner->outcome = 0;
}

#define ECN_CE 3 /* RFC 3168 section 5 */

/*
 * The inner ECN field after a tunnel with this outer one: RFC 6040 section 4.2, figure 4. 4: the packet must be
 * dropped. Not-ECT 0, ECT(1) 1, ECT(0) 2, CE 3.
 */
INLINE u32 ecn_after_tunnel(u32 inner, u32 outer)
{
	if (likely(inner == outer))
		return inner;
	if (outer == ECN_CE)
		return inner == 0 ? 4 : ECN_CE;
	if (outer == 1 && inner == 2)
		return 1;
	return inner;
}

INLINE void ipv6_set_ecn(void *ip, u32 ecn)
{
	u8 *octet = ip;

	octet[1] = (octet[1] & 0xcf) | ecn << 4;
}

INLINE void ipv4_set_ecn(void *ip, u32 ecn)
{
	struct iphdr *header = ip;
	u16 before = *(const u16 *)ip, after;
	u8 *octet = ip;

	octet[1] = (octet[1] & 0xfc) | ecn;
	after = *(const u16 *)ip;
	header->check = checksum_update(header->check, before, after);
}

/* TTL - 1. The word is {TTL, protocol}: in packet order the TTL is the high octet. RFC 1624. */
INLINE void ipv4_decrement(void *ip)
{
	struct iphdr *header = ip;
	u16 *word = (u16 *)&header->ttl;
	u16 before = *word;

	header->ttl--;
	header->check = checksum_update(header->check, before, *word);
}

/* Another TTL. */
INLINE void ipv4_set_ttl(void *ip, u8 ttl)
{
	struct iphdr *header = ip;
	u16 *word = (u16 *)&header->ttl;
	u16 before = *word;

	header->ttl = ttl;
	header->check = checksum_update(header->check, before, *word);
}

#endif
