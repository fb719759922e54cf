/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What stands against sending a packet on: a route that says no, or a link that it does not fit. */
#ifndef SEGUE_FORWARD_OBSTACLE_H
#define SEGUE_FORWARD_OBSTACLE_H

#include "lib/base/types.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"
#include "lib/forward/adjacency.h"

/* How a packet was to be sent, for who is told that it cannot be. */
struct sending {
	u32 family;   /* of the packet that an error is about: 4 or 6. 0: it is a frame, nobody is told */
	u32 l3;	      /* offset of that packet, which is unchanged from there on */
	u32 push;     /* octets that are to be put in front of it */
	u32 next_hop; /* 1: the next hop is given, not routed, and nothing else may stand in for it */
	u32 table;    /* not 0: by this table, which the kernel would not ask */
	u32 to_sid;   /* 1: whatever the table, it may be for a SID of this node */
};

/* An IPv6 packet right behind the Ethernet header that goes as it is. */
#define SENDING_AS_IT_IS ((struct sending){.family = 6, .l3 = ETHERNET_LENGTH})

/* What an adjacency, which is no link that the packet fits, has against sending it: the outcome. 0: nothing. */
INLINE u32 adjacency_refusal(const struct adjacency *adjacency, const struct sending *sending)
{
	u32 kind = adjacency->kind;

	if (kind == ADJACENCY_LINK)
		return SEGUE_OUTCOME_drop_too_big;
	if (kind == ADJACENCY_OUTSIDE)
		return SEGUE_OUTCOME_drop_sr_leaves;
	if (sending->next_hop)
		return kind == ADJACENCY_NO_NEIGHBOUR ? SEGUE_OUTCOME_passed_no_neighbour
						      : SEGUE_OUTCOME_drop_link_down;
	if (kind == ADJACENCY_BLACKHOLE)
		return SEGUE_OUTCOME_drop_route_blackhole;
	if (kind == ADJACENCY_UNREACHABLE)
		return SEGUE_OUTCOME_drop_no_route;
	if (sending->table && !(sending->to_sid && kind == ADJACENCY_SID)) /* no link in it */
		return kind == ADJACENCY_NO_NEIGHBOUR ? SEGUE_OUTCOME_drop_no_neighbour : SEGUE_OUTCOME_drop_no_route;
	return 0;
}

/*
 * A packet that no link takes as it is to be sent: adjacency_fits() says no. 1: it has ended, with `action`. 0: go on,
 * to the kernel or to a SID of this node. The packet is unchanged.
 */
INLINE int obstacle(const struct packet *packet, const struct adjacency *adjacency, const struct sending *sending,
		    int *action)
{
	u32 refusal = adjacency_refusal(adjacency, sending), family = sending->family;

	if (!refusal)
		return 0;
	if (refusal == SEGUE_OUTCOME_passed_no_neighbour)
		*action = pass(packet, refusal);
	else if (family && refusal == SEGUE_OUTCOME_drop_too_big)
		*action = too_big(packet, family, sending->l3, adjacency->fits - sending->push);
	else if (family && refusal == SEGUE_OUTCOME_drop_no_route) /* RFC 4443 section 3.1: code 0, no route */
		*action = drop_with_icmp(packet, refusal, SEGUE_ICMP_UNREACHABLE, family, sending->l3,
					 family == 6 ? ICMPV6_DESTINATION_UNREACHABLE : ICMPV4_DESTINATION_UNREACHABLE,
					 0, 0);
	else
		*action = drop(packet, refusal);
	return 1;
}

/*
 * The way of an IPv6 packet of `length` octets to `next`, the segment that it goes on to, as it is. NULL: it has
 * none, and has ended with `action`. The packet is unchanged.
 */
INLINE const struct adjacency *way_on(const struct packet *packet, struct address next, const struct ipv6hdr *ip,
				      u32 length, int *action)
{
	const struct adjacency *adjacency = adjacency_find(packet, next, 0, ADJACENCY_INSIDE, outer_flow(ip));

	if (unlikely(!adjacency)) {
		*action = drop(packet, SEGUE_OUTCOME_drop_no_route);
		return NULL;
	}
	if (unlikely(!adjacency_fits(packet, adjacency, length)) &&
	    obstacle(packet, adjacency, &SENDING_AS_IT_IS, action))
		return NULL;
	return adjacency;
}

#endif
