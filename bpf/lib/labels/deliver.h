/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The last label comes off: the packet behind it goes where the label says. */
#ifndef SEGUE_LABELS_DELIVER_H
#define SEGUE_LABELS_DELIVER_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/packet/inner.h"
#include "lib/packet/frame.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/leave.h"
#include "lib/core/boundary.h"
#include "lib/core/decapsulation.h"
#include "lib/labels/leave.h"
#include "lib/labels/walk.h"

INLINE void inner_set_hops(void *data, const void *end, u32 family, u32 hops)
{
	if (family == 6 && data + ETHERNET_LENGTH + IPV6_LENGTH <= end)
		((struct ipv6hdr *)(data + ETHERNET_LENGTH))->hop_limit = hops;
	else if (family == 4 && data + ETHERNET_LENGTH + sizeof(struct iphdr) <= end)
		ipv4_set_ttl(data + ETHERNET_LENGTH, hops);
}

/* What of the inner packet stands against letting it out: the outcome, or 0. `*stays`: ADJACENCY_INSIDE if it must not
 * leave the domain. */
INLINE u32 label_admits(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer,
			struct inner *inner, u32 *stays)
{
	u32 refused, ecn = 0, found;

	refused = inner_admit(packet, sid, outer, inner, &ecn);
	if (refused)
		return refused;
	if (outer->protocol == PROTOCOL_IPV6 && unlikely(boundary_suspects(inner->next_header))) {
		found = boundary_walk(packet->ctx, (outer->offset + IPV6_LENGTH) | (u32)inner->next_header << 16,
				      outer->offset + inner->length, packet->generation);
		if (found & BOUNDARY_ERROR && !(sid->flags & SEGUE_SID_ALLOW_INNER_SID))
			return SEGUE_OUTCOME_drop_error_from_outside;
		if (found & BOUNDARY_SR)
			*stays = ADJACENCY_INSIDE;
	}
	return 0;
}

/* The way of the inner packet. */
INLINE const struct adjacency *label_way(const struct packet *packet, const struct segue_sid *sid,
					 const struct inner *inner, u32 family, u32 stays)
{
	if (sid->behaviour == SEGUE_LABEL_POP || sid->behaviour == SEGUE_LABEL_NEXT_HOP)
		return label_adjacency(packet, sid, stays);
	return adjacency_find(packet, inner->destination, sid->table | (family == 4 ? ADJACENCY_IPV4 : 0), stays,
			      inner->source.low >> 56 ^ inner->source.low >> 24);
}

/*
 * The hop limit that the packet leaves with (RFC 3443 section 3), before this node counts. SEGUE_LABEL_POP, one hop
 * before the end of a node label: this hop is the label's, so that in pipe mode the packet's own is left alone.
 */
INLINE u32 label_hops(const struct packet *packet, const struct label_found *found, const struct inner *inner)
{
	return packet->port->config_flags & SEGUE_CONFIG_TTL_UNIFORM ? found->ttl : inner->hop_limit;
}

/* `found`: the label, which is at the bottom of the stack. Ends the packet. */
INLINE int label_deliver(struct packet *packet, const struct segue_sid *sid, const struct label_found *found)
{
	u32 off = found->off + ENTRY_LENGTH, family, refused, stays = 0, hops, lowered;
	struct outer outer = {
		.offset = (ETHERNET_LENGTH + off) & OFFSET_MASK, .frame = found->frame, .limit = found->frame};
	int given = sid->behaviour == SEGUE_LABEL_POP || sid->behaviour == SEGUE_LABEL_NEXT_HOP;
	struct sending sending = {.table = given ? 1 : sid->table};
	const struct adjacency *adjacency;
	struct inner inner = {};
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	const u8 *octet = data + outer.offset;

	if ((void *)(octet + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	family = *octet >> 4;
	if (family != 4 && family != 6)
		return drop(packet, SEGUE_OUTCOME_drop_label_not_ip);
	/* What a function takes says nothing about what passes it by. */
	if (!(sid->inner & (family == 4 ? SEGUE_INNER_IPV4 : SEGUE_INNER_IPV6)) && sid->behaviour < SEGUE_LABEL_STATIC)
		return drop(packet, found->special ? SEGUE_OUTCOME_drop_label_reserved : SEGUE_OUTCOME_drop_inner_type);
	outer.protocol = family == 4 ? PROTOCOL_IPV4 : PROTOCOL_IPV6;
	refused = label_admits(packet, sid, &outer, &inner, &stays);
	if (unlikely(refused))
		return drop(packet, refused);
	packet->icmp_way = given ? 0 : ICMP_WAY(sid->table, 0);
	adjacency = label_way(packet, sid, &inner, family, stays);
	if (unlikely(!adjacency))
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	hops = label_hops(packet, found, &inner);
	lowered = sid->behaviour == SEGUE_LABEL_POP && !(packet->port->config_flags & SEGUE_CONFIG_TTL_UNIFORM)
			  ? 0
			  : hops_used(adjacency);
	/* What goes up to the kernel may be for this node itself, which takes it whatever its hop limit is. */
	if (unlikely(hops <= lowered && adjacency->kind != ADJACENCY_KERNEL))
		return labels_refuse(packet, SEGUE_OUTCOME_drop_hop_limit_exceeded, 0);
	if (unlikely(!adjacency_fits(packet, adjacency, inner.length))) {
		refused = adjacency_refusal(adjacency, &sending);
		if (refused)
			return labels_refuse(packet, refused, adjacency->fits + off);
	}
	if (found->frame > outer.offset + inner.length &&
	    buffer_adjust_tail(packet->ctx, -(int)(found->frame - outer.offset - inner.length)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (labels_off(packet->ctx, off, family == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	inner_set_hops(buffer_start(packet->ctx), buffer_end(packet->ctx), family, hops - lowered);
	count(packet, sid->counter);
	if (given) { /* the next hop's family need not be the packet's */
		data = buffer_start(packet->ctx);
		end = buffer_end(packet->ctx);
		if (data + ETHERNET_LENGTH > end)
			return drop(packet, SEGUE_OUTCOME_drop_adjust);
		ethernet_write(data, adjacency);
		((u16 *)data)[6] = family == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
		return transmit(packet, adjacency->ifindex, SEGUE_OUTCOME_forwarded);
	}
	return leave(packet, adjacency, family == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6));
}

#endif
