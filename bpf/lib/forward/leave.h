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

/* A route that says no, before anything of the packet was changed. 0: go on. */
INLINE u32 adjacency_refusal(const struct adjacency *adjacency)
{
	if (adjacency->kind == ADJACENCY_BLACKHOLE)
		return SEGUE_OUTCOME_drop_route_blackhole;
	if (adjacency->kind == ADJACENCY_UNREACHABLE)
		return SEGUE_OUTCOME_drop_no_route;
	if (adjacency->kind == ADJACENCY_OUTSIDE)
		return SEGUE_OUTCOME_drop_sr_leaves;
	return 0;
}

/* Ends an unchanged packet whose route refuses it. RFC 4443 section 3.1: code 0, no route. */
INLINE int refuse(const struct packet *packet, u32 outcome, u32 family, u32 l3)
{
	if (outcome == SEGUE_OUTCOME_drop_no_route)
		return drop_with_icmp(packet, outcome, SEGUE_ICMP_UNREACHABLE, family, l3,
				      family == 6 ? ICMPV6_DESTINATION_UNREACHABLE : ICMPV4_DESTINATION_UNREACHABLE, 0,
				      0);
	return drop(packet, outcome);
}

/* A table that is not the one which the kernel would ask, and no link in it. The packet is unchanged. */
INLINE int refuse_table(const struct packet *packet, const struct adjacency *adjacency, u32 family, u32 l3)
{
	if (adjacency->kind == ADJACENCY_NO_NEIGHBOUR)
		return drop(packet, SEGUE_OUTCOME_drop_no_neighbour);
	return refuse(packet, SEGUE_OUTCOME_drop_no_route, family, l3);
}

/* The next hop is given, not routed: nothing else may stand in for it. The packet is unchanged. */
INLINE int refuse_next_hop(const struct packet *packet, const struct adjacency *adjacency)
{
	if (adjacency->kind == ADJACENCY_NO_NEIGHBOUR)
		return pass(packet, SEGUE_OUTCOME_passed_no_neighbour);
	return drop(packet, SEGUE_OUTCOME_drop_link_down);
}

/* Sends on a frame that is complete but for its Ethernet header, by an adjacency that is a link. */
INLINE int leave_by_link(const struct packet *packet, const struct adjacency *adjacency)
{
	void *data = (void *)(long)packet->ctx->data;
	void *end = (void *)(long)packet->ctx->data_end;

	if (data + ETHERNET_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	ethernet_write(data, adjacency);
	return transmit(packet, adjacency->ifindex, SEGUE_OUTCOME_forwarded);
}

/* The same for any adjacency that does not refuse. */
INLINE int leave(const struct packet *packet, const struct adjacency *adjacency, u16 ethertype)
{
	void *data = (void *)(long)packet->ctx->data;
	void *end = (void *)(long)packet->ctx->data_end;
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
	if (adjacency->kind == ADJACENCY_SID) {
		stage(packet, SEGUE_STAGE_AGAIN);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	}
	return pass(packet, adjacency->kind == ADJACENCY_NO_NEIGHBOUR ? SEGUE_OUTCOME_passed_no_neighbour
								      : SEGUE_OUTCOME_passed_route);
}

#endif
