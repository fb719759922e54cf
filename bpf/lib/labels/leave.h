/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a packet with labels goes on, or is told about: errors are about the packet behind the labels (RFC 3032
 * section 2.3). */
#ifndef SEGUE_LABELS_LEAVE_H
#define SEGUE_LABELS_LEAVE_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/obstacle.h"
#include "lib/icmp/extension.h"
#include "lib/labels/entry.h"
#include "lib/labels/walk.h"
#include "lib/labels/room.h"

/* The ICMP message that an outcome asks for: kind | type << 8 | code << 16. 0: none. */
INLINE u32 labels_message(u32 outcome, u32 family)
{
	switch (outcome) {
	case SEGUE_OUTCOME_drop_label_ttl:
	case SEGUE_OUTCOME_drop_hop_limit_exceeded:
		return SEGUE_ICMP_TIME_EXCEEDED | (family == 6 ? ICMPV6_TIME_EXCEEDED : ICMPV4_TIME_EXCEEDED) << 8;
	case SEGUE_OUTCOME_drop_too_big:
		return SEGUE_ICMP_TOO_BIG |
		       (family == 6 ? ICMPV6_PACKET_TOO_BIG << 8
				    : ICMPV4_DESTINATION_UNREACHABLE << 8 | ICMPV4_FRAGMENTATION_NEEDED << 16);
	case SEGUE_OUTCOME_drop_no_route:
		return SEGUE_ICMP_UNREACHABLE |
		       (family == 6 ? ICMPV6_DESTINATION_UNREACHABLE : ICMPV4_DESTINATION_UNREACHABLE) << 8;
	}
	return 0;
}

/*
 * Drops a packet with labels, and tells the source of the packet behind them, with the stack that it came with, where
 * the outcome asks for it. `room`, for drop_too_big: what fits the link, and the octets of labels that would have come
 * off (RFC 3032 section 3.4: the MTU is less by those that stay).
 */
INLINE int labels_refuse(const struct packet *packet, u32 outcome, u32 room)
{
	u32 inside, family, message, octets, mtu = 0;

	drop(packet, outcome);
	inside = labels_inside(packet->ctx, ETHERNET_LENGTH);
	family = inside >> 16;
	message = labels_message(outcome, family);
	if (!inside || !message)
		return VERDICT_DROP;
	if (unlikely(packet->port->config_flags & SEGUE_CONFIG_PSEUDOWIRES) &&
	    labels_frame_behind(packet->ctx, packet->epoch, ETHERNET_LENGTH))
		return VERDICT_DROP;
	if (outcome == SEGUE_OUTCOME_drop_too_big) {
		mtu = room + ETHERNET_LENGTH - (inside & OFFSET_MASK);
		if (family == 6 && mtu < IPV6_LEAST_MTU)
			mtu = IPV6_LEAST_MTU;
	}
	octets = (inside & OFFSET_MASK) - ETHERNET_LENGTH;
	if (icmp_order(ICMP_ORDER(message & 0xff, family, (message >> 8) & 0xff, message >> 16, ETHERNET_LENGTH), mtu,
		       packet->icmp_way, packet->epoch))
		return VERDICT_DROP;
	/* Packet Too Big has no room for the length of its quote, and so no extension (RFC 4884 section 4). */
	if ((message & 0xff) != SEGUE_ICMP_TOO_BIG || family == 4)
		extension_of_stack(packet->ctx, octets);
	if (!labels_off(packet->ctx, octets, family == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP)))
		bpf_tail_call(packet->ctx, &stages, SEGUE_STAGE_ICMP);
	return VERDICT_DROP;
}

/*
 * What stands against sending `length` octets by an adjacency: the outcome. 0: nothing. The kernel knows nothing of
 * labels, so that what no link takes goes nowhere.
 */
INLINE u32 labels_obstacle(const struct packet *packet, const struct adjacency *adjacency, u32 length)
{
	struct sending sending = {.table = 1};

	if (likely(adjacency_fits(packet, adjacency, length)))
		return 0;
	return adjacency_refusal(adjacency, &sending);
}

/* The way to a label's next hop. `inside`: ADJACENCY_INSIDE for what must not leave the domain, else 0. */
INLINE const struct adjacency *label_adjacency(const struct packet *packet, const struct segue_sid *sid, u32 inside)
{
	struct address towards = address_load(sid->next_hop);
	u32 tag = 0;

	if (sid->next_hop_ipv4) {
		towards = (struct address){.low = sid->next_hop_ipv4};
		tag = ADJACENCY_IPV4;
	}
	return adjacency_find(packet, towards, tag, sid->oif | inside, 0);
}

/* A packet whose labels are on goes where these lead, as one that comes in by a core port. */
INLINE int labels_here(const struct packet *packet)
{
	void *data = buffer_start(packet->ctx);

	if (data + ETHERNET_LENGTH > buffer_end(packet->ctx))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	((u32 *)data)[0] = *(const u32 *)&packet->port->mac[0];
	((u16 *)data)[2] = *(const u16 *)&packet->port->mac[4];
	stage(packet, SEGUE_STAGE_LABELS);
	return drop(packet, SEGUE_OUTCOME_drop_recirculation);
}

/* Sends a packet with labels, complete but for its Ethernet header. */
INLINE int labels_leave(const struct packet *packet, const struct adjacency *adjacency)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);

	if (data + ETHERNET_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	ethernet_write(data, adjacency);
	((u16 *)data)[6] = bpf_htons(ETH_P_MPLS_UC);
	return transmit(packet, adjacency->ifindex, SEGUE_OUTCOME_forwarded);
}

#endif
