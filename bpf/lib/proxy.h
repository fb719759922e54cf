/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The static proxy, End.AS (draft-ietf-spring-sr-service-programming section 6.1). */
#ifndef SEGUE_PROXY_H
#define SEGUE_PROXY_H

#include "base.h"
#include "decapsulation.h"
#include "encapsulation.h"
#include "flow.h"

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
	u32 mtu;
	u32 outcome; /* 0, or why there is none */
};

INLINE void function_link_find(const struct packet *packet, const struct segue_sid *sid, u32 family,
			       struct function_link *link)
{
	const struct segue_port *egress = port_by_ifindex(packet, sid->oif);
	const struct adjacency *adjacency;
	struct address next_hop;

	link->outcome = SEGUE_OUTCOME_drop_link_down;
	if (!egress || !(egress->flags & SEGUE_PORT_UP))
		return;
	link->mtu = egress->mtu;
	link->source_mac = egress->mac;
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

/* SR to function: the inner packet leaves by IFACE-OUT, its hop limit untouched. */
INLINE int proxy_to_function(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer)
{
	void *data = (void *)(long)packet->ctx->data;
	void *end = (void *)(long)packet->ctx->data_end;
	u32 family = outer->protocol == PROTOCOL_IPV4 ? 4 : 6;
	u32 offset = outer->offset & OFFSET_MASK;
	struct function_link link = {};
	struct inner inner = {};
	u32 ecn, *word;
	u16 *half;

	if (outer->fragment)
		return drop(packet, SEGUE_OUTCOME_drop_fragment_at_decapsulation);
	if (outer->protocol == PROTOCOL_ETHERNET)
		return decapsulate_ethernet(packet, sid, outer, SEGUE_OUTCOME_to_function);
	if (family == 6)
		inner_ipv6(data, end, offset, outer->limit, &inner);
	else
		inner_ipv4(data, end, offset, outer->limit, &inner);
	if (unlikely(inner.outcome))
		return drop(packet, inner.outcome);
	if (family == 6 && unlikely(in_sid_block(packet->generation, inner.destination)) &&
	    !(sid->flags & SEGUE_SID_ALLOW_INNER_SID))
		return drop(packet, SEGUE_OUTCOME_drop_inner_to_sid);
	ecn = ecn_after_tunnel(inner.ecn, outer->ecn);
	if (unlikely(ecn > 3))
		return drop(packet, SEGUE_OUTCOME_drop_ecn_not_capable);
	function_link_find(packet, sid, family, &link);
	if (unlikely(link.outcome))
		return drop(packet, link.outcome);
	if (unlikely(inner.length > link.mtu))
		return too_big(packet, family, offset, link.mtu);
	if (expose(packet->ctx, offset, offset + inner.length, outer->frame))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = (void *)(long)packet->ctx->data;
	end = (void *)(long)packet->ctx->data_end;
	if (data + ETHERNET_LENGTH + sizeof(struct iphdr) > end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (unlikely(ecn != inner.ecn)) {
		if (family == 6)
			ipv6_set_ecn(data + ETHERNET_LENGTH, ecn);
		else
			ipv4_set_ecn(data + ETHERNET_LENGTH, ecn);
	}
	word = data;
	half = data;
	__builtin_memcpy(word, link.destination_mac, 6);
	__builtin_memcpy(half + 3, link.source_mac, 6);
	half[6] = family == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	count(sid->counter, packet->length);
	return transmit(packet, sid->oif, SEGUE_OUTCOME_to_function);
}

/* Ethernet: to the port's own MAC, broadcast or multicast (draft section 6.1.1.1: broadcast is not wrapped). */
INLINE int to_port(const struct packet *packet)
{
	const u32 *mac = (void *)(long)packet->ctx->data;

	if ((void *)mac + ETHERNET_LENGTH > (void *)(long)packet->ctx->data_end)
		return 1;
	return *(const u8 *)mac & 1 || (mac[0] == *(const u32 *)packet->port->mac &&
					*(const u16 *)(mac + 1) == *(const u16 *)(packet->port->mac + 4));
}

/*
 * Function to SR: whatever comes in by IFACE-IN and is not for the node itself gets the configured steering header,
 * packets that the function made included. Packets addressed to a SID are wrapped too: a function can not choose its
 * path.
 */
INLINE int proxy_from_function(struct packet *packet)
{
	u32 index = packet->port->proxy;
	const struct segue_segment_list *list;
	struct payload payload = {};
	const struct segue_sid *sid;
	struct flow flow = {};
	u32 type, outcome;

	flow_read(packet, &flow);
	packet->length = flow.length;
	sid = index == SEGUE_NONE ? NULL : bpf_map_lookup_elem(&sid_entries, &index);
	if (sid && sid->inner & SEGUE_INNER_ETHERNET) {
		if (to_port(packet))
			return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
		payload.protocol = PROTOCOL_ETHERNET;
		payload.length = frame_length(packet->ctx);
	} else {
		if (flow.outcome)
			return drop(packet, flow.outcome);
		if (unlikely(flow_unredirectable(packet, &flow)))
			return drop(packet, SEGUE_OUTCOME_drop_multi_buffer);
		if (!flow.family && priority_tag_remove(packet->ctx)) {
			bpf_tail_call(packet->ctx, &stages, SEGUE_STAGE_SERVICE);
			return drop(packet, SEGUE_OUTCOME_drop_recirculation);
		}
		if (!flow.family)
			return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
		/* What goes to the kernel must be nothing that it would process as a segment. */
		if (unlikely(flow.group)) {
			if (flow.sr_seen ||
			    (flow.family == 6 &&
			     in_sid_block(packet->generation, (struct address){flow.key[2], flow.key[3]})))
				return drop(packet, SEGUE_OUTCOME_drop_from_function);
			return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
		}
		outcome = flow_addresses(packet->port, &flow);
		if (outcome == SEGUE_OUTCOME_passed_not_for_segue) {
			if (unlikely(flow.sr_seen))
				return drop(packet, SEGUE_OUTCOME_drop_from_function);
			return pass(packet, outcome);
		}
		if (outcome)
			return drop(packet, outcome);
		if (!sid)
			return drop(packet, SEGUE_OUTCOME_drop_proxy_empty);
		type = flow.family == 4 ? SEGUE_INNER_IPV4 : SEGUE_INNER_IPV6;
		if (!(sid->inner & type))
			return drop(packet, SEGUE_OUTCOME_drop_inner_type);
		if (flow.hop_limit <= 1)
			return time_exceeded(packet, flow.family, ETHERNET_LENGTH);
		payload.protocol = flow.family == 4 ? PROTOCOL_IPV4 : PROTOCOL_IPV6;
		payload.offset = ETHERNET_LENGTH;
		payload.length = flow.length;
		payload.traffic_class = flow.traffic_class;
		payload.flow_label = flow.flow_label;
		payload.decrement = 1;
	}
	payload.flow = flow.hash;
	list = policy_list(sid->policy, flow.hash);
	if (!list)
		return drop(packet, SEGUE_OUTCOME_drop_proxy_empty);
	payload.counter = sid->counter_return;
	return encapsulate(packet, list, &payload, list_adjacency(packet, list, payload.flow));
}

#endif
