/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Takes the steering header off: End.DX2/DX4/DX6, End.DT4/DT6/DT46 (RFC 8986 sections 4.4 to 4.9), USD, and proxies. */
#ifndef SEGUE_CORE_DECAPSULATION_H
#define SEGUE_CORE_DECAPSULATION_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/packet/inner.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/leave.h"
#include "lib/forward/obstacle.h"
#include "lib/core/boundary.h"

/* Where the inner packet goes. */
struct exit {
	struct address next_hop; /* 0: by route on the inner destination. IPv4 in the low word */
	u32 table;
	u32 oif;
};

/* Cuts what lies behind the inner packet, and what lies in front of it but for room for an Ethernet header. */
INLINE int expose(buffer *ctx, u32 offset, u32 inner_end, u32 frame, int ipv4)
{
	if (unlikely(frame > inner_end) && buffer_adjust_tail(ctx, -(int)(frame - inner_end)))
		return -1;
	return buffer_decapsulate(ctx, offset - ETHERNET_LENGTH, ipv4);
}

/*
 * Reads the inner packet, and checks all that must hold before it is let out of its steering header. `ecn` is what its
 * ECN field must become (RFC 6040). The outcome of a refusal, or 0.
 */
INLINE u32 inner_admit(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer,
		       struct inner *inner, u32 *ecn)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	u32 offset = outer->offset & OFFSET_MASK;

	if (outer->protocol == PROTOCOL_IPV4)
		inner_ipv4(data, end, offset, outer->limit, inner);
	else
		inner_ipv6(data, end, offset, outer->limit, inner);
	if (unlikely(inner->outcome))
		return inner->outcome;
	if (outer->protocol != PROTOCOL_IPV4 && unlikely(rarely_in_sid_block(packet, inner->destination)) &&
	    !(sid->flags & SEGUE_SID_ALLOW_INNER_SID))
		return SEGUE_OUTCOME_drop_inner_to_sid;
	*ecn = ecn_after_tunnel(inner->ecn, outer->ecn);
	return unlikely(*ecn > 3) ? SEGUE_OUTCOME_drop_ecn_not_capable : 0;
}

INLINE int decapsulate_ip(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer,
			  const struct exit *exit)
{
	void *data, *end;
	u32 family = outer->protocol == PROTOCOL_IPV4 ? 4 : 6;
	u32 offset = outer->offset & OFFSET_MASK;
	const struct adjacency *adjacency;
	struct packet inside = *packet; /* errors about the inner packet follow the table that it is forwarded by */
	struct inner inner = {};
	struct address towards;
	u32 ecn = 0, tag, refused, stays = 0;
	int action;

	refused = inner_admit(packet, sid, outer, &inner, &ecn);
	if (unlikely(refused))
		return drop(packet, refused);
	if (family == 6 && unlikely(boundary_suspects(inner.next_header))) {
		u32 found = boundary_walk(packet->ctx, (offset + IPV6_LENGTH) | (u32)inner.next_header << 16,
					  offset + inner.length, packet->generation);

		if (found & BOUNDARY_ERROR && !(sid->flags & SEGUE_SID_ALLOW_INNER_SID))
			return drop(packet, SEGUE_OUTCOME_drop_error_from_outside);
		if (found & BOUNDARY_SR)
			stays = ADJACENCY_INSIDE;
	}
	inside.icmp_way = ICMP_WAY(exit->table, 0);
	towards = exit->next_hop;
	tag = family == 4 ? ADJACENCY_IPV4 : 0;
	if (!(towards.high | towards.low))
		towards = inner.destination;
	adjacency = adjacency_find(packet, towards, exit->table | tag, exit->oif | stays,
				   inner.source.low >> 56 ^ inner.source.low >> 24);
	if (unlikely(!adjacency))
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	/* What goes up to the kernel may be for this node itself, which takes it whatever its hop limit is. */
	if (unlikely(inner.hop_limit <= 1) && adjacency->kind != ADJACENCY_KERNEL)
		return time_exceeded(&inside, family, offset);
	if (unlikely(!adjacency_fits(packet, adjacency, inner.length))) {
		struct sending sending = {.family = family, .l3 = offset, .table = exit->table};

		sending.next_hop = !!(exit->next_hop.high | exit->next_hop.low);
		if (obstacle(&inside, adjacency, &sending, &action))
			return action;
	}
	if (expose(packet->ctx, offset, offset + inner.length, outer->frame, family == 4))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (family == 6) {
		struct ipv6hdr *ip = data + ETHERNET_LENGTH;

		if ((void *)(ip + 1) > end)
			return drop(packet, SEGUE_OUTCOME_drop_adjust);
		ip->hop_limit -= hops_used(adjacency);
		if (unlikely(ecn != inner.ecn))
			ipv6_set_ecn(ip, ecn);
	} else {
		struct iphdr *ip = data + ETHERNET_LENGTH;

		if ((void *)(ip + 1) > end)
			return drop(packet, SEGUE_OUTCOME_drop_adjust);
		if (hops_used(adjacency))
			ipv4_decrement(ip);
		if (unlikely(ecn != inner.ecn))
			ipv4_set_ecn(ip, ecn);
	}
	count(packet, sid->counter);
	return leave(packet, adjacency, family == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP));
}

/* What stands against letting the inner frame out of `oif`, as it is: the outcome, or 0. */
INLINE u32 frame_obstacle(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer)
{
	const struct segue_port *egress = port_find(packet->generation, sid->oif);

	if (outer->offset + ETHERNET_LENGTH > outer->limit)
		return SEGUE_OUTCOME_drop_truncated;
	if (!egress || !(egress->flags & SEGUE_PORT_UP))
		return SEGUE_OUTCOME_drop_link_down;
	/* An 802.1Q tag does not count against the MTU. */
	if (outer->limit - outer->offset > egress->mtu + ETHERNET_LENGTH + 4)
		return SEGUE_OUTCOME_drop_too_big;
	return 0;
}

/* End.DX2, and the Ethernet form of proxies: the inner frame goes out as it is. */
INLINE int decapsulate_ethernet(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer,
				u32 outcome)
{
	u32 offset = outer->offset & OFFSET_MASK, refused = frame_obstacle(packet, sid, outer);

	if (refused)
		return drop(packet, refused);
	if (outer->frame > outer->limit && buffer_adjust_tail(packet->ctx, -(int)(outer->frame - outer->limit)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (buffer_expose_frame(packet->ctx, offset))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	count(packet, sid->counter);
	return transmit(packet, sid_leaves(sid), outcome);
}

#endif
