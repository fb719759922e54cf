/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flow of a packet from an access or service port, read once: what steering and spreading need. */
#ifndef SEGUE_PACKET_FLOW_H
#define SEGUE_PACKET_FLOW_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/frame.h"
#include "lib/packet/headers.h"
#include "lib/packet/inner.h"

#define FLOW_FRAGMENT 1

/* What is seldom: the frame is not as long as the packet. */
enum flow_odd {
	FLOW_MULTI_BUFFER = 1 << 0,
	FLOW_TRAILING = 1 << 1, /* octets lie behind the packet */
};

struct flow {
	/* Addresses (IPv4: both in key[0]); then ports | protocol << 32 | family << 40 | FLOW_FRAGMENT << 48 */
	u64 key[5];
	u32 hash;
	u32 length; /* layer 3 octets, by the packet's own header */
	u32 frame;  /* octets of the frame, all buffers */
	u32 flow_label;
	u32 outcome;	 /* not 0: malformed, dropped for this reason */
	u32 fragment_id; /* identification of a fragment; else 0 */
	u16 srh;	 /* offset of an SRH with Segments Left not 0, or 0 */
	u8 family;	 /* 4, 6, or 0: no IP */
	u8 hop_limit;
	u8 traffic_class;
	u8 odd; /* enum flow_odd: nearly always 0 */
	u8 sr_seen;
	u8 group;    /* Ethernet: broadcast or multicast */
	u32 foreign; /* Ethernet: to neither a group nor the port */
};

INLINE u32 flow_hash(const u64 *key)
{
	u64 mixed = (key[0] ^ (key[2] << 17 | key[2] >> 47)) * 0x9e3779b97f4a7c15ULL;

	mixed ^= (key[1] ^ (key[3] << 23 | key[3] >> 41)) * 0xc2b2ae3d27d4eb4fULL;
	mixed ^= mixed >> 29;
	mixed = (mixed ^ key[4]) * 0x9e3779b97f4a7c15ULL;
	return mixed >> 32;
}

/* Kernels before 6.3 do not redirect frames of several buffers, and steered ones must not go on unsteered. */
INLINE int flow_unredirectable(const struct packet *packet, const struct flow *flow)
{
	return flow->odd & FLOW_MULTI_BUFFER && !buffer_redirects(packet->port->config_flags);
}

/*
 * Makes the frame of an odd packet one that may be redirected: nothing lies behind the packet any more. 0: done, and
 * pointers into the frame are to be read anew; else the outcome.
 */
INLINE u32 flow_make_even(const struct packet *packet, const struct flow *flow, u32 l3)
{
	if (flow_unredirectable(packet, flow))
		return SEGUE_OUTCOME_drop_multi_buffer;
	if (flow->odd & FLOW_TRAILING && frame_trim(packet->ctx, flow->frame, l3 + flow->length))
		return SEGUE_OUTCOME_drop_adjust;
	return 0;
}

INLINE int protocol_has_ports(u32 protocol)
{
	return protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP || protocol == PROTOCOL_SCTP;
}

/*
 * What the addresses alone say, whatever is configured: 0, or the outcome. Neighbour discovery uses :: as a source; it
 * goes to multicast, which is the node's own business like all that is addressed to it.
 */
INLINE u32 flow_addresses(const struct segue_port *port, const struct flow *flow)
{
	if (flow->family == 6) {
		struct address source = {flow->key[0], flow->key[1]}, destination = {flow->key[2], flow->key[3]};

		if (address_multicast(destination) || address_link_local(destination) ||
		    address_equal(destination, address_load(port->ipv6)))
			return SEGUE_OUTCOME_passed_not_for_segue;
		if (!address_valid_source(source) || address_link_local(source) ||
		    address_unspecified_or_loopback(destination))
			return SEGUE_OUTCOME_drop_bad_source;
	} else {
		u32 source = flow->key[0], destination = flow->key[0] >> 32;

		if ((destination & 0xf0) == 0xe0 || destination == 0xffffffff ||
		    (port->ipv4 && destination == port->ipv4))
			return SEGUE_OUTCOME_passed_not_for_segue;
		if (!ipv4_valid_source(source) || !ipv4_valid_source(destination))
			return SEGUE_OUTCOME_drop_bad_source;
	}
	return 0;
}

/* Reads the IPv6 packet at `l3`. */
INLINE void flow_read_ipv6(buffer *ctx, u32 l3, struct flow *flow)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	struct ipv6hdr *ip = data + l3;
	u32 limit, offset = l3 + IPV6_LENGTH, protocol, fragment = 0;
	struct address source, destination;
	u32 word;

	if ((void *)(ip + 1) > end) {
		flow->outcome = SEGUE_OUTCOME_drop_truncated;
		return;
	}
	word = bpf_ntohl(*(u32 *)ip);
	if (word >> 28 != 6) {
		flow->outcome = SEGUE_OUTCOME_drop_bad_version;
		return;
	}
	flow->length = IPV6_LENGTH + bpf_ntohs(ip->payload_len);
	limit = l3 + flow->length;
	flow->frame = buffer_octets(ctx, data, end);
	if (unlikely(limit != flow->frame)) {
		if (limit > flow->frame) {
			flow->odd = FLOW_MULTI_BUFFER;
			flow->frame = frame_length(ctx);
			if (limit > flow->frame) {
				flow->outcome = SEGUE_OUTCOME_drop_bad_length;
				return;
			}
		}
		if (limit < flow->frame)
			flow->odd |= FLOW_TRAILING;
	}
	flow->family = 6;
	flow->traffic_class = word >> 20;
	flow->flow_label = word & 0xfffff;
	flow->hop_limit = ip->hop_limit;
	source = address_load(&ip->saddr);
	destination = address_load(&ip->daddr);
	protocol = ip->nexthdr;
	if (unlikely(protocol == PROTOCOL_HOP_BY_HOP || protocol == PROTOCOL_ROUTING || protocol == PROTOCOL_FRAGMENT ||
		     protocol == PROTOCOL_DESTINATION_OPTIONS || protocol == PROTOCOL_AUTHENTICATION)) {
		struct headers headers = {};

		headers_walk(ctx, l3 + 6, offset, limit, &headers);
		if (headers.error && headers.error != SEGUE_OUTCOME_drop_routing_type) {
			flow->outcome = headers.error;
			return;
		}
		flow->sr_seen = headers.sr_seen;
		flow->srh = headers.srh;
		fragment = headers.fragment;
		protocol = headers.protocol;
		offset = headers.upper & OFFSET_MASK;
		data = buffer_start(ctx);
		end = buffer_end(ctx);
	}
	flow->key[0] = source.high;
	flow->key[1] = source.low;
	flow->key[2] = destination.high;
	flow->key[3] = destination.low;
	flow->key[4] = (u64)protocol << 32 | 6ULL << 40;
	if (fragment) {
		flow->key[4] |= (u64)FLOW_FRAGMENT << 48;
		/* The walk stopped behind the Fragment header, whose last four octets are the identification. */
		offset -= 4;
		opaque(offset);
		offset &= OFFSET_MASK;
		if (data + offset + 4 <= end)
			flow->fragment_id = *(u32 *)(data + offset);
	} else if (protocol_has_ports(protocol)) {
		if (data + offset + 4 > end || offset + 4 > limit) {
			flow->outcome = SEGUE_OUTCOME_drop_truncated;
			return;
		}
		flow->key[4] |= *(u32 *)(data + offset);
	}
	flow->hash = flow_hash(flow->key);
}

/* Reads the IPv4 packet at `l3`. */
INLINE void flow_read_ipv4(buffer *ctx, u32 l3, struct flow *flow)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	struct iphdr *ip = data + l3;
	const u8 *octet = (const void *)ip;
	u32 words, limit, offset, protocol;

	if ((void *)(ip + 1) > end) {
		flow->outcome = SEGUE_OUTCOME_drop_truncated;
		return;
	}
	words = octet[0] & 15;
	if (octet[0] >> 4 != 4) {
		flow->outcome = SEGUE_OUTCOME_drop_bad_version;
		return;
	}
	flow->length = bpf_ntohs(ip->tot_len);
	limit = l3 + flow->length;
	flow->frame = buffer_octets(ctx, data, end);
	if (unlikely(limit != flow->frame)) {
		if (limit > flow->frame) {
			flow->odd = FLOW_MULTI_BUFFER;
			flow->frame = frame_length(ctx);
		}
		if (limit < flow->frame)
			flow->odd |= FLOW_TRAILING;
	}
	if (words < 5 || flow->length < words * 4 || limit > flow->frame) {
		flow->outcome = SEGUE_OUTCOME_drop_bad_length;
		return;
	}
	if ((void *)ip + words * 4 > end) {
		flow->outcome = SEGUE_OUTCOME_drop_truncated;
		return;
	}
	if (ipv4_header_sum(ip, end, words) != 0xffff) {
		flow->outcome = SEGUE_OUTCOME_drop_bad_checksum;
		return;
	}
	flow->family = 4;
	flow->hop_limit = ip->ttl;
	flow->traffic_class = octet[1];
	protocol = ip->protocol;
	flow->key[0] = ip->saddr | (u64)ip->daddr << 32;
	flow->key[1] = 0;
	flow->key[2] = 0;
	flow->key[3] = 0;
	flow->key[4] = (u64)protocol << 32 | 4ULL << 40;
	if (ip->frag_off & bpf_htons(0x3fff)) {
		flow->key[4] |= (u64)FLOW_FRAGMENT << 48;
		flow->fragment_id = ip->id;
	} else if (protocol_has_ports(protocol)) {
		offset = l3 + words * 4;
		if (data + offset + 4 > end || offset + 4 > limit) {
			flow->outcome = SEGUE_OUTCOME_drop_truncated;
			return;
		}
		flow->key[4] |= *(u32 *)(data + offset);
	}
	flow->hash = flow_hash(flow->key);
}

/* Reads any frame of an access or service port. */
INLINE void flow_read(const struct packet *packet, struct flow *flow)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	const u32 *mac = data;
	u16 ethertype;

	if (data + ETHERNET_LENGTH > end) {
		flow->outcome = SEGUE_OUTCOME_drop_truncated;
		return;
	}
	flow->group = frame_to_group(data);
	flow->foreign = !flow->group && frame_foreign(packet, data);
	ethertype = *(const u16 *)(data + 12);
	if (ethertype == bpf_htons(ETH_P_IPV6)) {
		flow_read_ipv6(packet->ctx, ETHERNET_LENGTH, flow);
	} else if (ethertype == bpf_htons(ETH_P_IP)) {
		flow_read_ipv4(packet->ctx, ETHERNET_LENGTH, flow);
	} else {
		flow->frame = frame_length(packet->ctx);
		flow->length = flow->frame - ETHERNET_LENGTH;
		flow->hash = flow_hash((const u64[5]){mac[0], mac[1], mac[2], 0, 0});
	}
}

#endif
