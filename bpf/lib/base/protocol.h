/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers and layouts of the protocols that Segue handles, and the Internet checksum. */
#ifndef SEGUE_BASE_PROTOCOL_H
#define SEGUE_BASE_PROTOCOL_H

#include "lib/base/types.h"

#define ETHERNET_LENGTH 14
#define IPV6_LENGTH 40
#define SRH_FIXED_LENGTH 8
#define IPV6_LEAST_MTU 1280 /* of every link that carries IPv6 (RFC 8200 section 5) */
#define OFFSET_MASK 0x0fff  /* every header that Segue looks at starts in the first 4 KiB of the frame */

/* IANA protocol numbers that older headers lack. */
#define PROTOCOL_HOP_BY_HOP 0
#define PROTOCOL_ICMP 1
#define PROTOCOL_IPV4 4
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define PROTOCOL_DCCP 33
#define PROTOCOL_IPV6 41
#define PROTOCOL_ROUTING 43
#define PROTOCOL_FRAGMENT 44
#define PROTOCOL_GRE 47
#define PROTOCOL_AUTHENTICATION 51
#define PROTOCOL_ICMPV6 58
#define PROTOCOL_NO_NEXT_HEADER 59
#define PROTOCOL_DESTINATION_OPTIONS 60
#define PROTOCOL_IPCOMP 108 /* RFC 3173 */
#define PROTOCOL_SCTP 132
#define PROTOCOL_UDPLITE 136
#define PROTOCOL_MPLS 137 /* RFC 4023 */
#define PROTOCOL_ETHERNET 143
#define PROTOCOL_AGGFRAG 144 /* RFC 9347 */

#define ROUTING_TYPE_SRH 4

#define UDP_LENGTH 8
#define UDP_PORT_LABELS 6635 /* RFC 7510 section 3 */

/* RFC 8754 section 2. */
struct srh {
	u8 next_header;
	u8 length; /* in 8 octets, not counting the first 8 */
	u8 type;
	u8 segments_left;
	u8 last_entry;
	u8 flags;
	u16 tag;
};

INLINE u16 fold16(u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* RFC 1624 equation 3: the checksum after one 16-bit word changed. All in packet byte order. */
INLINE u16 checksum_update(u16 checksum, u16 before, u16 after)
{
	return ~fold16((u32)(u16)~checksum + (u16)~before + after);
}

/* Payload Length 0 and a Hop-by-Hop Options header: perhaps a jumbogram (RFC 2675), which ends nobody knows where. */
INLINE int maybe_jumbogram(const struct ipv6hdr *ip)
{
	return !ip->payload_len && ip->nexthdr == PROTOCOL_HOP_BY_HOP;
}

#endif
