/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Steered packets on their way to another node's SID (RFC 8754 section 4.2): plain IPv6 forwarding, at XDP speed. */
#ifndef SEGUE_CORE_TRANSIT_H
#define SEGUE_CORE_TRANSIT_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/config.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/leave.h"

/*
 * Only packets to a SID block: all else is the host's own business, its firewall rules included. Whatever is not a
 * plain forward (hop limit, MTU, no neighbour, no route) goes to the kernel unchanged, which knows how to answer.
 */
INLINE int transit(const struct packet *packet, u32 limit)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	const struct adjacency *adjacency;
	struct address destination;

	if ((void *)(ip + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	destination = address_load(&ip->daddr);
	if (!in_sid_block_here(packet->generation, destination))
		return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
	if (!address_forwardable(address_load(&ip->saddr)))
		return refuse_source(packet, address_load(&ip->saddr), destination);
	if (ip->hop_limit <= 1)
		return pass(packet, SEGUE_OUTCOME_passed_route);
	adjacency = adjacency_find(packet, destination, 0, ADJACENCY_INSIDE, outer_flow(ip));
	if (!adjacency || !adjacency_fits(packet, adjacency, limit - ETHERNET_LENGTH))
		return adjacency && adjacency->kind == ADJACENCY_OUTSIDE ? drop(packet, SEGUE_OUTCOME_drop_sr_leaves)
									 : pass(packet, SEGUE_OUTCOME_passed_route);
	ip->hop_limit--;
	return leave(packet, adjacency, bpf_htons(ETH_P_IPV6));
}

#endif
