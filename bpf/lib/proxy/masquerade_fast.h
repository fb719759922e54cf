/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fast path of End.AM, as lib/proxy/fast.h. */
#ifndef SEGUE_PROXY_MASQUERADE_FAST_H
#define SEGUE_PROXY_MASQUERADE_FAST_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"
#include "lib/packet/fast.h"
#include "lib/header/advance.h"
#include "lib/header/srv6.h"
#include "lib/forward/adjacency.h"
#include "lib/core/advance.h"
#include "lib/service/function.h"
#include "lib/proxy/stash.h"
#include "lib/proxy/memory.h"
#include "lib/proxy/masquerade.h"

/*
 * End.AM, on the way to the function: an SRH with two or three segments, the one remembered, and an inner packet. What
 * the SRH must be was seen when it was remembered. Nothing is changed.
 */
INLINE int masquerade_fast_inner(struct packet *packet, const struct segue_sid *sid, const void *data, const void *end)
{
	const u64 *word = data + ETHERNET_LENGTH;
	struct address source, destination;
	const struct segue_stash *entry;
	u32 length = buffer_octets(packet->ctx, data, end) - ETHERNET_LENGTH, srh_length;
	u64 id = 0;

	if (data + FAST_INNER > end ||
	    (sid->flags & (SEGUE_SID_DOWN | SEGUE_SID_NEXT_HOP_MAC)) != SEGUE_SID_NEXT_HOP_MAC ||
	    packet->port->config_flags & (SEGUE_CONFIG_CHECK_SOURCE | SEGUE_CONFIG_MANY_BLOCKS))
		return 0;
	source = (struct address){word[1], word[2]};
	destination = (struct address){word[3], word[4]};
	if ((word[0] & (WORD_VERSION | WORD_NEXT_HEADER)) != WORD_OF_SRH || WORD_HOP_LIMIT(word[0]) <= 1 ||
	    WORD_PAYLOAD_LENGTH(word[0]) + IPV6_LENGTH != length ||
	    packet_longest(packet, length) > sid->function_mtu || !address_fast(source) ||
	    address_equal(source, destination))
		return 0;
	srh_length = ((word[5] >> 8 & 0xff) + 1) * 8;
	if (srh_length != SRH_FIXED_LENGTH + 32 && srh_length != SRH_FIXED_LENGTH + 48)
		return 0;
	entry = memory_current(sid->scope, &id);
	packet->length = length;
	return entry && masquerade_same(packet, entry, data, end, srh_length, SRH_SEGMENTS_LEFT_ONE);
}

/* Such a packet goes to the function. */
INLINE int masquerade_fast_to(const struct packet *packet, const struct segue_sid *sid, void *data, void *end)
{
	const struct function_link link = {.destination_mac = sid->mac, .source_mac = sid->source_mac};
	u64 *word = data + ETHERNET_LENGTH;

	if (data + FAST_INNER > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	((struct ipv6hdr *)word)->hop_limit--;
	word[5] -= SRH_SEGMENTS_LEFT_ONE;
	address_store(word + 3, address_load(word + 6));
	return function_deliver_at(packet, sid, &link, data, bpf_htons(ETH_P_IPV6), 0);
}

/* End.AM: back from the function, with the SRH that is remembered in front of an inner packet. */
INLINE int masquerade_fast(struct packet *packet, const struct segue_sid *sid)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	u32 length = buffer_octets(packet->ctx, data, end) - ETHERNET_LENGTH, left;
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	const u64 *word = (const u64 *)ip;
	const struct adjacency *adjacency;
	const struct segue_stash *entry;
	struct address destination;
	const void *segment;
	u64 id = 0;

	if ((void *)(word + 8) > end || *(const u8 *)data & 1 || *(const u16 *)(data + 12) != bpf_htons(ETH_P_IPV6) ||
	    ip->nexthdr != PROTOCOL_ROUTING || !ipv6_fast(packet, ip, length))
		return NOT_FAST;
	entry = memory_current(sid->scope, &id);
	if (unlikely(!entry || !masquerade_same(packet, entry, data, end, ((word[5] >> 8 & 0xff) + 1) * 8, 0) ||
		     !stash_still(entry, id)))
		return NOT_FAST;
	destination = address_load(&ip->daddr);
	if (unlikely(!address_equal(destination, address_load(word + 6))))
		return NOT_FAST;
	left = word[5] >> 24 & 0xff;
	segment = advance_segment(data, SIMPLE_SRH, left);
	if (segment + 16 > end)
		return NOT_FAST;
	destination = address_load(segment);
	adjacency = adjacency_find(packet, destination, 0, ADJACENCY_INSIDE, outer_flow(ip));
	if (unlikely(!adjacency || !adjacency_fits(packet, adjacency, length)))
		return NOT_FAST;
	packet->length = length;
	address_store(&ip->daddr, destination);
	ip->hop_limit--;
	count(packet, sid->counter_return);
	ethernet_write(data, adjacency);
	return transmit(packet, adjacency->ifindex, SEGUE_OUTCOME_forwarded);
}

#endif
