/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where a rewritten packet goes: out of a link, again through the data plane, or, complete, up to the kernel. */
#ifndef SEGUE_FORWARD_LEAVE_H
#define SEGUE_FORWARD_LEAVE_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/forward/adjacency.h"

/* The hop limit counts this node once: the kernel lowers it itself when the packet goes up to it. */
INLINE u32 hops_used(const struct adjacency *adjacency)
{
	return adjacency->kind == ADJACENCY_LINK || adjacency->kind == ADJACENCY_SID;
}

/* Sends on a frame that is complete but for its Ethernet header, by an adjacency that is a link. */
INLINE int leave_by_link(const struct packet *packet, const struct adjacency *adjacency)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);

	if (data + ETHERNET_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	ethernet_write(data, adjacency);
	return transmit(packet, adjacency->ifindex, SEGUE_OUTCOME_forwarded);
}

/* The same for any adjacency that is no obstacle. */
INLINE int leave(const struct packet *packet, const struct adjacency *adjacency, u16 ethertype)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	u32 *word = data;
	u16 *half = data;

	if (likely(adjacency->kind == ADJACENCY_LINK))
		return leave_by_link(packet, adjacency);
	if (data + ETHERNET_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	/* To this node: from nobody else, to the port's own address, so that the kernel takes it in. */
	word[0] = *(const u32 *)&packet->port->mac[0];
	half[2] = *(const u16 *)&packet->port->mac[4];
	sign(half);
	half[6] = ethertype;
	buffer_for_this_host(packet->ctx);
	if (adjacency->kind == ADJACENCY_SID) {
		stage(packet, SEGUE_STAGE_AGAIN);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	}
	return pass(packet, adjacency->kind == ADJACENCY_NO_NEIGHBOUR ? SEGUE_OUTCOME_passed_no_neighbour
								      : SEGUE_OUTCOME_passed_route);
}

/* An IPv6 packet, complete but for its hop limit, goes where way_on() has found; `counter`: the row that it counts in.
 */
INLINE int leave_on(const struct packet *packet, const struct adjacency *adjacency, struct ipv6hdr *ip, u32 counter)
{
	ip->hop_limit -= hops_used(adjacency);
	count(packet, counter);
	return leave(packet, adjacency, bpf_htons(ETH_P_IPV6));
}

#endif
