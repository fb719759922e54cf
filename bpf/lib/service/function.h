/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The function behind a proxy: the link to it, and what its SID does while it is down. */
#ifndef SEGUE_SERVICE_FUNCTION_H
#define SEGUE_SERVICE_FUNCTION_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/config.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/packet/tags.h"
#include "lib/packet/flow.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/leave.h"
#include "lib/forward/obstacle.h"
#include "lib/core/advance.h"
#include "lib/proxy/behind.h"

INLINE u32 inner_type_of(u32 protocol)
{
	switch (protocol) {
	case PROTOCOL_IPV4:
		return SEGUE_INNER_IPV4;
	case PROTOCOL_IPV6:
		return SEGUE_INNER_IPV6;
	case PROTOCOL_ETHERNET:
		return SEGUE_INNER_ETHERNET;
	}
	return 0;
}

/* The link towards the function. */
struct function_link {
	const u8 *destination_mac;
	const u8 *source_mac;
	u32 outcome; /* 0, or why there is none */
};

INLINE void function_link_find(const struct packet *packet, const struct segue_sid *sid, struct function_link *link)
{
	const struct adjacency *adjacency;
	struct address next_hop;

	link->outcome = SEGUE_OUTCOME_drop_link_down;
	if (unlikely(!sid->function_mtu))
		return;
	link->source_mac = sid->source_mac;
	link->destination_mac = sid->mac;
	link->outcome = 0;
	if (sid->flags & SEGUE_SID_NEXT_HOP_MAC)
		return;
	if (sid->next_hop_ipv4) {
		next_hop.high = 0;
		next_hop.low = sid->next_hop_ipv4;
		adjacency = adjacency_find(packet, next_hop, ADJACENCY_IPV4, sid->oif, 0);
	} else {
		adjacency = adjacency_find(packet, address_load(sid->next_hop), 0, sid->oif, 0);
	}
	if (!adjacency || adjacency->kind != ADJACENCY_LINK)
		link->outcome = SEGUE_OUTCOME_drop_no_neighbour;
	else
		link->destination_mac = adjacency->ethernet;
}

/* Writes the Ethernet header of a frame to the function. The caller has checked that it lies in the frame. */
INLINE void function_ethernet(void *frame, const struct function_link *link, u16 ethertype)
{
	u32 *word = frame;
	u16 *half = frame;

	/* In words: a copy of octets would be one of single octets. */
	word[0] = *(const u32 *)link->destination_mac;
	half[2] = *(const u16 *)(link->destination_mac + 4);
	half[3] = *(const u16 *)link->source_mac;
	word[2] = *(const u32 *)(link->source_mac + 2);
	half[6] = ethertype;
}

/*
 * The link to the function, for a packet of `length` octets. Its sender knows it with `around` octets more than the
 * function gets. 1: it cannot be sent there, and has ended with `action`. The packet is unchanged.
 */
INLINE int function_obstacle(const struct packet *packet, const struct segue_sid *sid, u32 length, u32 around,
			     struct function_link *link, int *action)
{
	function_link_find(packet, sid, link);
	if (unlikely(link->outcome)) {
		*action = drop(packet, link->outcome);
		return 1;
	}
	if (unlikely(packet_longest(packet, length) > sid->function_mtu)) {
		*action = too_big(packet, 6, ETHERNET_LENGTH, sid->function_mtu + around);
		return 1;
	}
	return 0;
}

/*
 * A packet that goes to its function through the kernel. On XDP its metadata are in front of it, and the TC program on
 * the port sends it on (lib/kernel/function.h).
 */
INLINE int function_through_kernel(const struct packet *packet, const struct segue_sid *sid)
{
#ifdef SEGUE_SKB
	count_outcome(packet, SEGUE_OUTCOME_to_function);
	if (!(sid->proxy_flags & SEGUE_PROXY_PEER))
		return bpf_redirect(sid->oif, 0);
	buffer_for_this_host(packet->ctx);
	return bpf_redirect_peer(sid->oif, 0);
#else
	(void)sid;
	return pass(packet, SEGUE_OUTCOME_to_function);
#endif
}

/*
 * Gives a frame to the function, complete but for its Ethernet header, which lies at `frame`. `through_kernel`: by
 * function_through_kernel().
 */
INLINE int function_deliver_at(const struct packet *packet, const struct segue_sid *sid,
			       const struct function_link *link, void *frame, u16 ethertype, int through_kernel)
{
	function_ethernet(frame, link, ethertype);
	count(packet, sid->counter);
	return through_kernel ? function_through_kernel(packet, sid)
			      : transmit(packet, sid_leaves(sid), SEGUE_OUTCOME_to_function);
}

/* The same for a frame of which it has not been seen that an Ethernet header lies in it. */
INLINE int function_deliver(const struct packet *packet, const struct segue_sid *sid, const struct function_link *link,
			    u16 ethertype, int through_kernel)
{
	void *data = buffer_start(packet->ctx);

	if (data + ETHERNET_LENGTH > buffer_end(packet->ctx))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	return function_deliver_at(packet, sid, link, data, ethertype, through_kernel);
}

/*
 * Whether a packet has come to a SID as a backup: the active segment of its list, at `segment`, is another. To reroute
 * it once more could lead it in a circle.
 */
INLINE int function_rerouted(const struct ipv6hdr *ip, const void *segment, const void *end)
{
	return segment + 16 <= end && !address_equal(address_load(segment), address_load(&ip->daddr));
}

/* To the backup SID, as a segment in place of this one: the SRH stays as it is. */
INLINE int function_reroute(const struct packet *packet, const struct segue_sid *sid, struct ipv6hdr *ip, u32 length)
{
	struct address backup = address_load(sid->backup);
	const struct adjacency *adjacency;
	int action;

	if (ip->hop_limit <= 1)
		return time_exceeded(packet, 6, ETHERNET_LENGTH);
	adjacency = way_on(packet, backup, ip, length, &action);
	if (!adjacency)
		return action;
	address_store(&ip->daddr, backup);
	return leave_on(packet, adjacency, ip, sid->counter);
}

/* A first fragment may have an SRH behind its Fragment header: whoever puts the datagram together would find it. */
INLINE int function_hides(const struct packet *packet, const struct flow *flow)
{
	return flow->family == 6 && (flow->key[4] >> 48) & FLOW_FRAGMENT &&
	       leads_on(packet->ctx, ETHERNET_LENGTH + flow->length, packet->generation);
}

/*
 * An IP packet from a function, which flow_read() has read: malformed, or the node's own business. -1: neither, go on.
 * What goes to the kernel must be nothing that it would process as a segment.
 */
INLINE int function_admit(const struct packet *packet, const struct flow *flow)
{
	u32 outcome;

	if (unlikely(flow->outcome))
		return drop(packet, flow->outcome);
	if (unlikely(flow->odd)) {
		outcome = flow_make_even(packet, flow, ETHERNET_LENGTH);
		if (outcome)
			return drop(packet, outcome);
	}
	if (!flow->family && priority_tag_remove(packet->ctx)) {
		stage(packet, SEGUE_STAGE_SERVICE);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	}
	if (!flow->family)
		return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
	if (unlikely(flow->group)) {
		if (flow->sr_seen || function_hides(packet, flow) ||
		    (flow->family == 6 &&
		     in_sid_block(packet->generation, (struct address){flow->key[2], flow->key[3]})))
			return drop(packet, SEGUE_OUTCOME_drop_from_function);
		return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
	}
	outcome = flow_addresses(packet->port, flow);
	if (outcome == SEGUE_OUTCOME_passed_not_for_segue)
		return unlikely(flow->sr_seen || function_hides(packet, flow))
			       ? drop(packet, SEGUE_OUTCOME_drop_from_function)
			       : pass(packet, outcome);
	return outcome ? drop(packet, outcome) : -1;
}

#endif
