/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Out of the function of a proxy that took the steering header off: End.AS puts that of its policy on, End.AD the one
 * that it remembers.
 */
#ifndef SEGUE_PROXY_PUT_ON_H
#define SEGUE_PROXY_PUT_ON_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/frame.h"
#include "lib/packet/outcome.h"
#include "lib/packet/inner.h"
#include "lib/packet/flow.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/leave.h"
#include "lib/forward/obstacle.h"
#include "lib/access/encapsulation.h"
#include "lib/service/function.h"
#include "lib/header/header.h"
#include "lib/packet/cut.h"
#include "lib/proxy/stash.h"
#include "lib/proxy/memory.h"

/* Ethernet: to the port's own MAC, broadcast or multicast (draft section 6.1.1.1: broadcast is not wrapped). */
INLINE int to_port(const struct packet *packet)
{
	const u32 *mac = buffer_start(packet->ctx);

	if ((void *)mac + ETHERNET_LENGTH > buffer_end(packet->ctx))
		return 1;
	return *(const u8 *)mac & 1 || (mac[0] == *(const u32 *)packet->port->mac &&
					*(const u16 *)(mac + 1) == *(const u16 *)(packet->port->mac + 4));
}

/* Puts a remembered header on a packet that fits `adjacency` if `by_link`. Ends it. */
INLINE int restore_on(const struct packet *packet, const struct segue_stash *entry, u64 id,
		      const struct payload *payload, u32 scope, const struct adjacency *adjacency, int by_link)
{
	u32 family = payload->protocol == PROTOCOL_IPV4 ? 4 : 6, push = entry->length;
	u32 fresh = header_fresh(entry, payload);
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	u8 *octet;

	if (payload->decrement) {
		if (data + ETHERNET_LENGTH + IPV6_LENGTH <= end && family == 6)
			((struct ipv6hdr *)(data + ETHERNET_LENGTH))->hop_limit--;
		else if (data + ETHERNET_LENGTH + sizeof(struct iphdr) <= end && family == 4)
			ipv4_decrement(data + ETHERNET_LENGTH);
	}
	if (payload->protocol == PROTOCOL_ETHERNET ? buffer_wrap_frame(packet->ctx, push + ETHERNET_LENGTH)
						   : buffer_encapsulate(packet->ctx, push))
		return drop(packet, buffer_refusal(packet->ctx, SEGUE_OUTCOME_drop_no_headroom));
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	octet = data + ETHERNET_LENGTH;
	if (header_copy(entry, octet, end))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (unlikely(!stash_still(entry, id))) {
		memory_count(scope, MEMORY_OVERWRITTEN);
		return drop(packet, SEGUE_OUTCOME_drop_header_forgotten);
	}
	if (header_finish(entry, octet, end, fresh, payload))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	count(packet, payload->counter);
	if (likely(by_link))
		return leave_by_link(packet, adjacency);
	/* The kernel will lower the outer hop limit when it forwards. */
	if (!hops_used(adjacency) && octet[7] != 255)
		octet[7]++;
	return leave(packet, adjacency, bpf_htons(ETH_P_IPV6));
}

/* Puts a remembered header back on. The packet is unchanged so far. Ends it. */
INLINE int restore(const struct packet *packet, const struct segue_stash *entry, u64 id, const struct payload *payload,
		   u32 scope)
{
	const struct adjacency *adjacency = header_adjacency(packet, entry, payload->flow);
	struct sending sending = wrapped(payload, entry->length);
	int by_link, action;

	if (unlikely(!adjacency))
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	by_link = adjacency_fits(packet, adjacency, payload->length + entry->length);
	if (unlikely(!by_link) && obstacle(packet, adjacency, &sending, &action))
		return action;
	return restore_on(packet, entry, id, payload, scope, adjacency, by_link);
}

/* The header that a packet back from the function gets, or NULL and the outcome. */
INLINE const struct segue_stash *recall(const struct segue_sid *sid, const struct flow *flow, u64 *id, u32 *outcome)
{
	const struct segue_stash *entry;

	*outcome = SEGUE_OUTCOME_drop_proxy_empty;
	if (sid->memory == SEGUE_MEMORY_FLOW) {
		*id = recall_flow(flow, sid->scope, sid->flow_timeout);
		if (*id) {
			entry = stash_get(*id);
			if (entry && entry->scope == sid->scope)
				return entry;
			memory_count(sid->scope, MEMORY_OVERWRITTEN);
			*outcome = SEGUE_OUTCOME_drop_header_forgotten;
			return NULL;
		}
		memory_count(sid->scope, MEMORY_UNKNOWN);
		*outcome = SEGUE_OUTCOME_drop_unknown_flow;
		if (!(sid->proxy_flags & SEGUE_PROXY_UNKNOWN_TO_INTERFACE))
			return NULL;
		*outcome = SEGUE_OUTCOME_drop_proxy_empty;
	}
	return memory_current(sid->scope, id);
}

/* Back from the function, read and admitted: the steering header goes on. */
INLINE int proxy_wrap(struct packet *packet, const struct segue_sid *sid, const struct flow *flow,
		      struct payload *payload)
{
	const struct segue_segment_list *list;
	const struct segue_stash *entry;
	u64 id = 0;
	u32 outcome;

	payload->flow = flow->hash;
	payload->counter = sid->counter_return;
	if (sid->behaviour == SEGUE_END_AS) {
		list = policy_list(sid->policy, flow->hash);
		if (!list)
			return drop(packet, SEGUE_OUTCOME_drop_proxy_empty);
		return encapsulate(packet, list, payload, list_adjacency(packet, list, payload->flow));
	}
	entry = recall(sid, flow, &id, &outcome);
	if (!entry)
		return drop(packet, outcome);
	return restore(packet, entry, id, payload, sid->scope);
}

/*
 * Function to SR: whatever comes in by IFACE-IN and is not for the node itself gets a steering header, packets that the
 * function made included. Packets addressed to a SID are wrapped too: a function cannot choose its path.
 */
INLINE int proxy_from_function(struct packet *packet, const struct segue_sid *sid)
{
	int action, ethernet = sid && sid->inner & SEGUE_INNER_ETHERNET;
	struct payload payload = {};
	struct flow flow = {};
	u32 type;

	flow_read(packet, &flow);
	packet->length = flow.length;
	if (ethernet && !to_port(packet)) {
		if (unlikely(packet_cut(packet, SEGUE_STAGE_SERVICE, &action)))
			return action;
		payload.protocol = PROTOCOL_ETHERNET;
		payload.length = buffer_frame_length(packet->ctx);
		return proxy_wrap(packet, sid, &flow, &payload);
	}
	action = function_admit(packet, &flow);
	if (action >= 0)
		return action;
	if (!sid)
		return drop(packet, SEGUE_OUTCOME_drop_proxy_empty);
	/* A frame for the node, which would route what is in it: where that goes is not the function's to say. */
	if (unlikely(ethernet))
		return drop(packet, SEGUE_OUTCOME_drop_from_function);
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
	return proxy_wrap(packet, sid, &flow, &payload);
}

#endif
