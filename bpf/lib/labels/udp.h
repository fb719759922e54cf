/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Labels in UDP (RFC 7510), for a next hop behind a network that knows no labels (RFC 8663): the headers in front of
 * them, and what fits the way to the other end. The kernel puts together no such packets, and has no part in it.
 */
#ifndef SEGUE_LABELS_UDP_H
#define SEGUE_LABELS_UDP_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"
#include "lib/packet/inner.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/obstacle.h"
#include "lib/labels/entry.h"
#include "lib/labels/room.h"
#include "lib/labels/udp_checksum.h"

#define IPV4_LENGTH 20

/* The way of one packet in UDP. */
struct tunnel {
	struct address source, destination; /* IPv4: in the low word */
	const struct adjacency *adjacency;
	u32 ipv4;   /* ADJACENCY_IPV4: the outer header is IPv4's; else 0 */
	u32 octets; /* of the headers in front of the labels */
	u32 fits;   /* octets of an outer packet that get there */
	u32 flow;
	u8 hop_limit;
	u8 flags; /* enum segue_udp_flags */
	u8 traffic_class;
};

/* Finds the way, once addresses, flow and `ipv4` are there. `mtu`: of the path, or 0. 0: done. */
INLINE int tunnel_find(const struct packet *packet, struct tunnel *tunnel, u32 mtu)
{
	tunnel->octets = (tunnel->ipv4 ? IPV4_LENGTH : IPV6_LENGTH) + UDP_LENGTH;
	tunnel->adjacency = adjacency_find(packet, tunnel->destination, tunnel->ipv4, ADJACENCY_INSIDE, tunnel->flow);
	if (unlikely(!tunnel->adjacency))
		return -1;
	tunnel->fits = tunnel->adjacency->fits;
	if (mtu && mtu < tunnel->fits)
		tunnel->fits = mtu;
	return 0;
}

INLINE int tunnel_by_label(const struct packet *packet, struct tunnel *tunnel, const struct segue_sid *sid)
{
	tunnel->ipv4 = sid->next_hop_ipv4 ? ADJACENCY_IPV4 : 0;
	tunnel->destination = tunnel->ipv4 ? (struct address){.low = sid->next_hop_ipv4} : address_load(sid->next_hop);
	tunnel->source = address_load(sid->backup);
	tunnel->hop_limit = sid->hop_limit_margin;
	tunnel->flags = sid->flavours;
	return tunnel_find(packet, tunnel, sid->function_mtu);
}

INLINE int tunnel_by_list(const struct packet *packet, struct tunnel *tunnel, const struct segue_segment_list *list)
{
	const struct segue_udp *udp = (const void *)&list->header[SEGUE_LIST_UDP_AT];

	tunnel->ipv4 = list->way & ADJACENCY_IPV4;
	tunnel->destination = address_load(list->first);
	tunnel->source = address_load(udp->source);
	tunnel->hop_limit = udp->hop_limit;
	tunnel->flags = udp->flags;
	return tunnel_find(packet, tunnel, udp->mtu);
}

/* The flow's source port (RFC 7510 section 3): one of those for ephemeral use. */
INLINE u32 udp_source_port(u32 flow)
{
	return 0xc000 | (flow * FLOW_MIX >> 48 & 0x3fff);
}

/* Outer IPv6 header and UDP header, but for a checksum. Labels carry no ECN, so that these do not either. 0: done. */
INLINE int tunnel_write_ipv6(void *data, const void *end, const struct tunnel *tunnel, u32 length)
{
	u32 *word = data + ETHERNET_LENGTH;
	u32 label = tunnel->flow & 0xfffff;

	if (data + ETHERNET_LENGTH + IPV6_LENGTH + UDP_LENGTH > end)
		return -1;
	word[0] = bpf_htonl(6U << 28 | (u32)(tunnel->traffic_class & 0xfc) << 20 | (label ?: 1));
	word[1] = bpf_htonl((length - IPV6_LENGTH) << 16 | PROTOCOL_UDP << 8 | tunnel->hop_limit);
	address_store(&word[2], tunnel->source);
	address_store(&word[6], tunnel->destination);
	word[10] = bpf_htonl(udp_source_port(tunnel->flow) << 16 | UDP_PORT_LABELS);
	word[11] = bpf_htonl((length - IPV6_LENGTH) << 16);
	return 0;
}

/* The same for IPv4, which needs no checksum of UDP's. It is not fragmented on its way (RFC 7510 section 4). */
INLINE int tunnel_write_ipv4(void *data, const void *end, const struct tunnel *tunnel, u32 length)
{
	u32 *word = data + ETHERNET_LENGTH;

	if (data + ETHERNET_LENGTH + IPV4_LENGTH + UDP_LENGTH > end)
		return -1;
	word[0] = bpf_htonl(0x45000000U | (u32)(tunnel->traffic_class & 0xfc) << 16 | length);
	word[1] = bpf_htonl(0x4000); /* DF; such a packet needs no identification (RFC 6864) */
	word[2] = bpf_htonl((u32)tunnel->hop_limit << 24 | PROTOCOL_UDP << 16);
	word[3] = tunnel->source.low;
	word[4] = tunnel->destination.low;
	word[5] = bpf_htonl(udp_source_port(tunnel->flow) << 16 | UDP_PORT_LABELS);
	word[6] = bpf_htonl((length - IPV4_LENGTH) << 16);
	((struct iphdr *)word)->check = ~fold16(words_sum(word, IPV4_LENGTH / 4));
	return 0;
}

/* Writes the checksum of UDP over IPv6. 0: done. */
INLINE int tunnel_checksum(buffer *ctx, u32 length)
{
	u32 octets = length - IPV6_LENGTH, sum;
	void *data = buffer_start(ctx);
	u16 *check;

	if (data + ETHERNET_LENGTH + IPV6_LENGTH + UDP_LENGTH > buffer_end(ctx))
		return -1;
	sum = udp_pseudo_sum(data + ETHERNET_LENGTH + 8, 8, octets);
	sum = octets_sum(ctx, ETHERNET_LENGTH + IPV6_LENGTH, octets, sum);
	if (sum & SUM_FAILED)
		return -1;
	data = buffer_start(ctx);
	check = data + ETHERNET_LENGTH + IPV6_LENGTH + 6;
	if ((void *)(check + 1) > buffer_end(ctx))
		return -1;
	*check = (u16)~sum ?: 0xffff;
	return 0;
}

/* Sends a packet with its labels, in front of which there is room for the headers. */
INLINE int tunnel_leave(const struct packet *packet, const struct tunnel *tunnel)
{
	u32 length = buffer_length(packet->ctx) - ETHERNET_LENGTH;
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);

	if (tunnel->ipv4 ? tunnel_write_ipv4(data, end, tunnel, length) : tunnel_write_ipv6(data, end, tunnel, length))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (!tunnel->ipv4 && !(tunnel->flags & SEGUE_UDP_ZERO_CHECKSUM) && tunnel_checksum(packet->ctx, length))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = buffer_start(packet->ctx);
	if (data + ETHERNET_LENGTH > buffer_end(packet->ctx))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	ethernet_write(data, tunnel->adjacency);
	return transmit(packet, tunnel->adjacency->ifindex, SEGUE_OUTCOME_forwarded);
}

#endif
