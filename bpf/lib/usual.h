/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The usual packet from a function, without the detour by the stage that can do everything (lib/proxy.h,
 * lib/masquerade.h): no extension headers, options or fragments, nothing behind the packet, a link that it fits. All
 * that is not usual is left to the stage, with the packet unchanged.
 */
#ifndef SEGUE_USUAL_H
#define SEGUE_USUAL_H

#include "base.h"
#include "flow.h"
#include "masquerade.h"
#include "proxy.h"

#define NOT_USUAL (-1)

/* A unicast address beyond the link, as nearly all are. The rest is judged by flow_addresses(). */
INLINE int address_usual(struct address a)
{
	return address_first_octet(a) < 0xfe && a.high;
}

/* Upper layers that are no extension header. */
INLINE int protocol_usual(u32 protocol)
{
	return protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP || protocol == PROTOCOL_ICMPV6 ||
	       protocol == PROTOCOL_SCTP;
}

/* An IPv6 packet that fills its frame, from somewhere to somewhere beyond this node. */
INLINE int ipv6_usual(const struct packet *packet, const struct ipv6hdr *ip, u32 length)
{
	struct address source = address_load(&ip->saddr), destination = address_load(&ip->daddr);

	return *(const u8 *)ip >> 4 == 6 && bpf_ntohs(ip->payload_len) + IPV6_LENGTH == length && ip->hop_limit > 1 &&
	       address_usual(source) && address_usual(destination) &&
	       !address_equal(destination, address_load(packet->port->ipv6));
}

INLINE int ipv4_usual(const struct packet *packet, const struct iphdr *ip, const void *end, u32 length)
{
	return *(const u8 *)ip == 0x45 && bpf_ntohs(ip->tot_len) == length && ip->ttl > 1 &&
	       !(ip->frag_off & bpf_htons(0x3fff)) && ipv4_header_sum(ip, end, 5) == 0xffff &&
	       ipv4_valid_source(ip->saddr) && ipv4_valid_source(ip->daddr) && ip->daddr != packet->port->ipv4;
}

/* End.AD with the interface's memory: back from the function. */
INLINE int dynamic_usual(struct packet *packet, const struct segue_sid *sid)
{
	void *data = (void *)(long)packet->ctx->data;
	void *end = (void *)(long)packet->ctx->data_end;
	u32 length = end - data - ETHERNET_LENGTH, id = 0, word, ports;
	const struct adjacency *adjacency;
	const struct segue_stash *entry;
	struct payload payload = {};
	u64 key[5] = {};

	if (data + ETHERNET_LENGTH + IPV6_LENGTH > end || *(const u8 *)data & 1)
		return NOT_USUAL;
	if (likely(*(const u16 *)(data + 12) == bpf_htons(ETH_P_IPV6))) {
		const struct ipv6hdr *ip = data + ETHERNET_LENGTH;
		const u64 *words = (const void *)&ip->saddr;

		if (!(sid->inner & SEGUE_INNER_IPV6) || !protocol_usual(ip->nexthdr) || !ipv6_usual(packet, ip, length))
			return NOT_USUAL;
		word = bpf_ntohl(*(const u32 *)ip);
		payload.protocol = PROTOCOL_IPV6;
		payload.traffic_class = word >> 20;
		key[0] = words[0];
		key[1] = words[1];
		key[2] = words[2];
		key[3] = words[3];
		key[4] = (u64)ip->nexthdr << 32 | 6ULL << 40;
		if (protocol_has_ports(ip->nexthdr)) {
			if (data + ETHERNET_LENGTH + IPV6_LENGTH + 4 > end)
				return NOT_USUAL;
			ports = *(const u32 *)(data + ETHERNET_LENGTH + IPV6_LENGTH);
			key[4] |= ports;
		}
	} else {
		const struct iphdr *ip = data + ETHERNET_LENGTH;

		if (!(sid->inner & SEGUE_INNER_IPV4) || *(const u16 *)(data + 12) != bpf_htons(ETH_P_IP) ||
		    !ipv4_usual(packet, ip, end, length))
			return NOT_USUAL;
		payload.protocol = PROTOCOL_IPV4;
		payload.traffic_class = ip->tos;
		key[0] = ip->saddr | (u64)ip->daddr << 32;
		key[4] = (u64)ip->protocol << 32 | 4ULL << 40;
		if (protocol_has_ports(ip->protocol))
			key[4] |= *(const u32 *)(ip + 1);
	}
	entry = memory_current(sid->scope, &id);
	if (unlikely(!entry))
		return NOT_USUAL;
	payload.flow = flow_hash(key);
	adjacency = adjacency_find(packet, address_load(&entry->header[24]), 0, 0, payload.flow);
	if (unlikely(!adjacency || !adjacency_fits(adjacency, length + entry->length)))
		return NOT_USUAL;
	packet->length = length;
	payload.length = length;
	payload.decrement = 1;
	payload.counter = sid->counter_return;
	return restore_on(packet, entry, id, &payload, sid->scope, adjacency, 1);
}

/* End.AM: back from the function. */
INLINE int masquerade_usual(struct packet *packet, const struct segue_sid *sid)
{
	void *data = (void *)(long)packet->ctx->data;
	void *end = (void *)(long)packet->ctx->data_end;
	u32 length = end - data - ETHERNET_LENGTH;
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	struct srh *srh = data + SIMPLE_SRH;

	if ((void *)(srh + 1) + 16 > end || *(const u8 *)data & 1 || *(const u16 *)(data + 12) != bpf_htons(ETH_P_IPV6))
		return NOT_USUAL;
	if (ip->nexthdr != PROTOCOL_ROUTING || srh->type != ROUTING_TYPE_SRH ||
	    IPV6_LENGTH + (srh->length + 1) * 8 > length || !ipv6_usual(packet, ip, length))
		return NOT_USUAL;
	packet->length = length;
	return masquerade_end(packet, sid, ip, srh, ETHERNET_LENGTH + length);
}

/* Back from a function in its usual form, or NOT_USUAL. */
INLINE int service_usual(struct packet *packet)
{
	u32 index = packet->port->proxy;
	const struct segue_sid *sid = bpf_map_lookup_elem(&sid_entries, &index);

	if (unlikely(!sid))
		return NOT_USUAL;
	if (sid->behaviour == SEGUE_END_AD && sid->memory == SEGUE_MEMORY_INTERFACE)
		return dynamic_usual(packet, sid);
	if (sid->behaviour == SEGUE_END_AM)
		return masquerade_usual(packet, sid);
	return NOT_USUAL;
}

#endif
