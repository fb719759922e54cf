/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Labels in UDP that come in by a core port (RFC 7510 section 4), to an address of the node's own that takes them: what
 * is in it goes on by its labels. All else goes to the kernel unchanged, later fragments among it, and so does what
 * has extension headers in front of UDP.
 */
#ifndef SEGUE_LABELS_UDP_IN_H
#define SEGUE_LABELS_UDP_IN_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/config.h"
#include "lib/packet/packet.h"
#include "lib/packet/frame.h"
#include "lib/packet/outcome.h"
#include "lib/packet/inner.h"
#include "lib/forward/sid.h"
#include "lib/labels/leave.h"
#include "lib/labels/room.h"
#include "lib/labels/udp_checksum.h"
#include "lib/labels/udp.h"
#include "lib/labels/ecn.h"

/* The outer packet. */
struct udp_outer {
	const struct segue_sid *endpoint;
	struct address source; /* IPv4: in the low word */
	u32 at;		       /* offset of the UDP header */
	u32 end;	       /* offset of the packet's end, by its IP header */
	u32 ecn;
	u32 sum; /* of the pseudo header */
	u32 ipv4;
};

/* Does UDP at the offset `at` carry labels? Not where the port cannot be seen. */
INLINE int udp_carries_labels(const void *data, const void *end, u32 at)
{
	const u16 *port = data + (at & OFFSET_MASK) + 2;

	return (const void *)port + UDP_LENGTH - 2 <= end && *port == bpf_htons(UDP_PORT_LABELS);
}

/* What is wrong with the UDP header, whose length is `length`. 0: nothing. */
INLINE u32 udp_length_refused(const struct udp_outer *outer, u32 length)
{
	return length != outer->end - outer->at || length < UDP_LENGTH + ENTRY_LENGTH ? SEGUE_OUTCOME_drop_bad_length
										      : 0;
}

/* The outcome; passed_not_for_segue: it is nothing that this node takes. 0: it is, and `outer` is filled. */
INLINE u32 udp_outer_ipv6(const struct packet *packet, const void *data, const void *end, struct udp_outer *outer)
{
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	const struct segue_config *config_;
	u32 length;

	outer->at = ETHERNET_LENGTH + IPV6_LENGTH;
	if ((const void *)(ip + 1) > end || ip->nexthdr != PROTOCOL_UDP || !udp_carries_labels(data, end, outer->at))
		return SEGUE_OUTCOME_passed_not_for_segue;
	outer->endpoint = udp_endpoint(packet->generation, address_load(&ip->daddr));
	if (!outer->endpoint)
		return SEGUE_OUTCOME_passed_not_for_segue;
	outer->source = address_load(&ip->saddr);
	outer->end = ETHERNET_LENGTH + IPV6_LENGTH + bpf_ntohs(ip->payload_len);
	outer->ecn = (((const u8 *)ip)[1] >> 4) & 3;
	if (!address_forwardable(outer->source) || address_equal(outer->source, address_load(&ip->daddr)))
		return SEGUE_OUTCOME_drop_bad_source;
	if (packet->port->config_flags & SEGUE_CONFIG_CHECK_SOURCE) {
		config_ = config_get(packet->generation);
		if (!config_ || !in_prefixes(config_->source_prefixes, config_->source_prefixes_count, outer->source))
			return SEGUE_OUTCOME_drop_source_outside_domain;
	}
	length = bpf_ntohs(*(const u16 *)((const void *)ip + IPV6_LENGTH + 4));
	outer->sum = udp_pseudo_sum(&ip->saddr, 8, length);
	return udp_length_refused(outer, length);
}

/* The same for IPv4. */
INLINE u32 udp_outer_ipv4(const struct packet *packet, const void *data, const void *end, struct udp_outer *outer)
{
	const struct iphdr *ip = data + ETHERNET_LENGTH;
	u32 words, length;

	if ((const void *)(ip + 1) > end || ip->protocol != PROTOCOL_UDP || ip->frag_off & bpf_htons(0x1fff))
		return SEGUE_OUTCOME_passed_not_for_segue;
	words = *(const u8 *)ip & 15;
	outer->at = ETHERNET_LENGTH + words * 4;
	if (words < 5 || !udp_carries_labels(data, end, outer->at))
		return SEGUE_OUTCOME_passed_not_for_segue;
	outer->endpoint = udp_endpoint(packet->generation, address_mapped(ip->daddr));
	if (!outer->endpoint)
		return SEGUE_OUTCOME_passed_not_for_segue;
	outer->ipv4 = 1;
	outer->source = (struct address){.low = ip->saddr};
	outer->end = ETHERNET_LENGTH + bpf_ntohs(ip->tot_len);
	outer->ecn = ((const u8 *)ip)[1] & 3;
	if (*(const u8 *)ip >> 4 != 4)
		return SEGUE_OUTCOME_drop_bad_version;
	if (words != 5)
		return SEGUE_OUTCOME_drop_option;
	if (ip->frag_off & bpf_htons(0x2000))
		return SEGUE_OUTCOME_drop_fragment_at_decapsulation;
	if (ipv4_header_sum(ip, end, words) != 0xffff)
		return SEGUE_OUTCOME_drop_bad_checksum;
	if (!ipv4_valid_source(ip->saddr) || ip->saddr == ip->daddr)
		return SEGUE_OUTCOME_drop_bad_source;
	if ((const void *)(ip + 1) + UDP_LENGTH > end)
		return SEGUE_OUTCOME_drop_truncated;
	length = bpf_ntohs(*(const u16 *)((const void *)(ip + 1) + 4));
	outer->sum = udp_pseudo_sum(&ip->saddr, 2, length);
	return udp_length_refused(outer, length);
}

/* Has somebody who is not asked here, the network card, found the outermost checksum right? */
INLINE int udp_verified(buffer *ctx)
{
#ifdef SEGUE_SKB
	return bpf_csum_level(ctx, BPF_CSUM_LEVEL_QUERY) >= 0;
#else
	(void)ctx;
	return 0;
#endif
}

/* The checksum over a packet that lies in the frame as a whole; 0 is none (RFC 768; RFC 6936 section 5). The outcome.
 */
INLINE u32 udp_checksum_refused(const struct packet *packet, const struct udp_outer *outer)
{
	const struct segue_sid *endpoint = outer->endpoint;
	struct address prefix = address_load(endpoint->next_hop), mask = address_load(endpoint->backup);
	const void *data = buffer_start(packet->ctx);
	const u16 *check = data + (outer->at & OFFSET_MASK) + 6;
	u32 sum;

	if ((const void *)(check + 1) > buffer_end(packet->ctx))
		return SEGUE_OUTCOME_drop_truncated;
	if (!*check) {
		if (outer->ipv4 ||
		    (endpoint->flavours & SEGUE_UDP_ZERO_CHECKSUM && (outer->source.high & mask.high) == prefix.high &&
		     (outer->source.low & mask.low) == prefix.low))
			return 0;
		return SEGUE_OUTCOME_drop_bad_checksum;
	}
	if (udp_verified(packet->ctx))
		return 0;
	sum = octets_sum(packet->ctx, outer->at, outer->end - outer->at, outer->sum);
	return sum == 0xffff ? 0 : SEGUE_OUTCOME_drop_bad_checksum;
}

INLINE int labels_udp_in(struct packet *packet)
{
	const void *data = buffer_start(packet->ctx);
	const void *end = buffer_end(packet->ctx);
	u32 frame = frame_length(packet->ctx), refused;
	struct udp_outer outer = {};

	packet->length = frame - ETHERNET_LENGTH;
	if (data + ETHERNET_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	if (frame_foreign(packet, data))
		return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
	if (*(const u16 *)(data + 12) == bpf_htons(ETH_P_IP))
		refused = udp_outer_ipv4(packet, data, end, &outer);
	else
		refused = udp_outer_ipv6(packet, data, end, &outer);
	if (refused == SEGUE_OUTCOME_passed_not_for_segue)
		return pass(packet, refused);
	if (refused)
		return drop(packet, refused);
	if (outer.end > frame)
		return drop(packet, SEGUE_OUTCOME_drop_bad_length);
	if (unlikely(frame != buffer_octets(packet->ctx, data, end) && !buffer_redirects(packet->port->config_flags)))
		return drop(packet, SEGUE_OUTCOME_drop_multi_buffer);
	if (unlikely(labels_of_segments(packet->ctx)))
		return drop(packet, SEGUE_OUTCOME_drop_offload);
	/* Labels that cannot be marked are not ECN capable (RFC 6040 section 4.2). */
	if (unlikely(outer.ecn == ECN_CE) && !labels_have_ecn(packet))
		return drop(packet, SEGUE_OUTCOME_drop_ecn_not_capable);
	refused = udp_checksum_refused(packet, &outer);
	if (unlikely(refused))
		return drop(packet, refused);
	packet->length = outer.end - ETHERNET_LENGTH;
	if (unlikely(outer.ecn == ECN_CE) &&
	    labels_settle(packet->ctx, packet->generation, outer.at + UDP_LENGTH, 1, ENTRY_LENGTH))
		return drop(packet, SEGUE_OUTCOME_drop_ecn_not_capable);
	if (frame > outer.end && frame_trim(packet->ctx, frame, outer.end))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (labels_off(packet->ctx, (outer.at + UDP_LENGTH - ETHERNET_LENGTH) & OFFSET_MASK, bpf_htons(ETH_P_MPLS_UC)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	count(packet, outer.endpoint->counter);
	return labels_here(packet);
}

#endif
