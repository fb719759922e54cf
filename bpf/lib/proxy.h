/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Proxies that take the steering header off and put it back: End.AS, End.AD (draft-ietf-spring-sr-service-programming
 * sections 6.1 and 6.2), the way into a function through the kernel (End.AD with a memory by packet, End.AN.NF; the way
 * out of it is in lib/skb.h). They differ in what the header is remembered by: lib/memory.h.
 */
#ifndef SEGUE_PROXY_H
#define SEGUE_PROXY_H

#include "base.h"
#include "decapsulation.h"
#include "encapsulation.h"
#include "flow.h"
#include "function.h"
#include "memory.h"
#include "sid.h"

/*
 * Puts what the TC program must know in front of the frame, whose packet is complete. 0: done. The frame's Ethernet
 * header is there to be written.
 */
INLINE int kernel_metadata(const struct packet *packet, const struct segue_sid *sid, u64 id, u32 mark)
{
	struct segue_function_metadata *metadata;
	void *data;

	if (bpf_xdp_adjust_meta(packet->ctx, -(int)sizeof(*metadata)))
		return -1;
	data = (void *)(long)packet->ctx->data;
	metadata = (void *)(long)packet->ctx->data_meta;
	if ((void *)(metadata + 1) > data)
		return -1;
	metadata->magic = control.metadata_magic;
	metadata->stash = id;
	metadata->mark = mark;
	metadata->oif = sid->oif;
	metadata->flags = stash_tc_index(id) | (sid->proxy_flags & SEGUE_PROXY_PEER ? SEGUE_METADATA_PEER : 0);
	return 0;
}

/* The inner packet goes to the function through the kernel; its header's reference goes with it. */
INLINE int proxy_through_kernel(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer,
				const struct inner *inner, const struct function_link *link, u64 id, u32 ecn, u32 mark)
{
	u32 offset = outer->offset & OFFSET_MASK, ipv4 = outer->protocol == PROTOCOL_IPV4;
	void *data, *end;

	if (expose(packet->ctx, offset, offset + inner->length, outer->frame) || kernel_metadata(packet, sid, id, mark))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = (void *)(long)packet->ctx->data;
	end = (void *)(long)packet->ctx->data_end;
	if (data + ETHERNET_LENGTH + sizeof(struct iphdr) > end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (unlikely(ecn != inner->ecn)) {
		if (ipv4)
			ipv4_set_ecn(data + ETHERNET_LENGTH, ecn);
		else
			ipv6_set_ecn(data + ETHERNET_LENGTH, ecn);
	}
	/* Netfilter is no hop: the kernel's is undone on the way out. What it would not forward at all goes in as 2. */
	if (unlikely(inner->hop_limit < 2) && sid->proxy_flags & SEGUE_PROXY_KEEP_HOP_LIMIT) {
		if (ipv4)
			ipv4_set_ttl(data + ETHERNET_LENGTH, 2);
		else
			((struct ipv6hdr *)(data + ETHERNET_LENGTH))->hop_limit = 2;
	}
	function_ethernet(data, link, ipv4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6));
	count(sid->counter, packet->length);
	return pass(packet, SEGUE_OUTCOME_to_function);
}

/*
 * End.AN.NF and an SRH that was inserted into a packet's own header: the function gets the packet as its source made
 * it, but for the hop limit, which this node lowers as any endpoint does. The SRH is remembered without the packet's
 * own destination; function_insert() puts it back.
 */
INLINE int proxy_inserted(struct packet *packet)
{
	void *data = (void *)(long)packet->ctx->data;
	void *end = (void *)(long)packet->ctx->data_end;
	u32 frame = frame_length(packet->ctx), total, length, hop_limit, mark;
	u64 id, shape;
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	struct srh *srh = data + SIMPLE_SRH;
	const struct adjacency *adjacency;
	struct function_link link = {};
	const struct segue_sid *sid;
	const void *segment;
	struct address last;

	if ((void *)(srh + 1) + 16 > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	packet->length = IPV6_LENGTH + bpf_ntohs(ip->payload_len);
	total = packet->length;
	length = (srh->length + 1) * 8;
	/* Headers in front of the SRH belong to the packet that it was inserted into: it would not be known where. */
	if (ip->nexthdr != PROTOCOL_ROUTING || srh->type != ROUTING_TYPE_SRH || IPV6_LENGTH + length > total ||
	    ETHERNET_LENGTH + total > frame)
		return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	/* Anew: a tail call carries no pointer. */
	sid = sid_find(packet->epoch, address_load(&ip->daddr));
	if (!sid || sid->behaviour != SEGUE_END_AN_NF)
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	segment = data + SIMPLE_SRH + SRH_FIXED_LENGTH + ((srh->segments_left - 1) & 0xff) * 16;
	if (segment + 16 > end)
		return drop(packet, SEGUE_OUTCOME_drop_multi_buffer_header);
	last = address_load(srh + 1);
	if (!address_forwardable(last))
		return drop(packet, SEGUE_OUTCOME_drop_bad_next_segment);
	if (rarely_in_sid_block(packet, last))
		return drop(packet, SEGUE_OUTCOME_drop_inner_to_sid);
	if (address_link_local(address_load(&ip->saddr)))
		return drop(packet, SEGUE_OUTCOME_drop_bad_inner);
	function_link_find(packet, sid, &link);
	if (link.outcome)
		return drop(packet, link.outcome);
	if (total - length > link.mtu)
		return too_big(packet, 6, ETHERNET_LENGTH, link.mtu);
	if (total > IPV6_LEAST_MTU) {
		adjacency = adjacency_find(packet, address_load(segment), 0, ADJACENCY_INSIDE, 0);
		if (adjacency && adjacency->kind == ADJACENCY_LINK && total > adjacency->fits)
			return too_big(packet, 6, ETHERNET_LENGTH, adjacency->fits);
	}
	hop_limit = ip->hop_limit - 1;
	shape = STASH_SHAPE(IPV6_LENGTH + length, 0, IPV6_LENGTH, SEGUE_STASH_SRH);
	id = stash_put(packet->ctx, shape | STASH_SHAPE_HOP_LIMIT(hop_limit & 0xff), sid->scope);
	if (!id)
		return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	mark = sid_argument(sid, sid->argument_length, address_load(&ip->daddr));
	ip->hop_limit = hop_limit < 2 ? 2 : hop_limit;
	address_store(&ip->daddr, last);
	if (frame > ETHERNET_LENGTH + total &&
	    bpf_xdp_adjust_tail(packet->ctx, -(int)(frame - ETHERNET_LENGTH - total)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (srh_remove(packet->ctx, SIMPLE_SRH, ETHERNET_LENGTH + 6) || kernel_metadata(packet, sid, id, mark))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = (void *)(long)packet->ctx->data;
	if (data + ETHERNET_LENGTH > (void *)(long)packet->ctx->data_end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	function_ethernet(data, &link, bpf_htons(ETH_P_IPV6));
	count(sid->counter, packet->length);
	return pass(packet, SEGUE_OUTCOME_to_function);
}

/* It is done in a stage of its own: the others have no stack left for it. Nothing of the packet has been changed. */
INLINE int proxy_inserted_elsewhere(const struct packet *packet)
{
	stage(packet, SEGUE_STAGE_INSERTED);
	return drop(packet, SEGUE_OUTCOME_drop_recirculation);
}

/*
 * SR to function: the inner packet leaves by IFACE-OUT, its hop limit untouched. With a memory, `outer->srh` is set and
 * the next segment is `next`.
 */
INLINE int proxy_to_function(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer,
			     struct address next)
{
	u32 offset = outer->offset & OFFSET_MASK, ipv4 = outer->protocol == PROTOCOL_IPV4, ecn = 0, outcome;
	void *data = (void *)(long)packet->ctx->data;
	void *end = (void *)(long)packet->ctx->data_end;
	const struct adjacency *adjacency;
	struct function_link link = {};
	struct inner inner = {};
	struct address destination;
	u64 id = 0;

	if (unlikely(outer->fragment))
		return drop(packet, SEGUE_OUTCOME_drop_fragment_at_decapsulation);
	if (unlikely(outer->protocol == PROTOCOL_ETHERNET)) {
		if (sid->memory && !remember(packet, sid, outer, 0, 0, &outcome))
			return drop(packet, outcome);
		return decapsulate_ethernet(packet, sid, outer, SEGUE_OUTCOME_to_function);
	}
	outcome = inner_admit(packet, sid, outer, &inner, &ecn);
	if (unlikely(outcome))
		return drop(packet, outcome);
	function_link_find(packet, sid, &link);
	if (unlikely(link.outcome))
		return drop(packet, link.outcome);
	/* Its sender is somebody whom only the node knows that wrapped it: lib/relay.h. */
	if (unlikely(inner.length > link.mtu))
		return too_big(packet, 6, ETHERNET_LENGTH, link.mtu + offset - ETHERNET_LENGTH);
	if (sid->memory) {
		id = remember(packet, sid, outer, outer->dscp == inner.dscp, inner.hop_limit, &outcome);
		if (unlikely(!id))
			return drop(packet, outcome);
	}
	if (packet->in_proxy && sid->memory == SEGUE_MEMORY_PACKET) {
		/* The function's kernel does not forward it, and would say nothing. */
		if (!ipv4 && unlikely(address_link_local(inner.source)))
			return drop(packet, SEGUE_OUTCOME_drop_bad_inner);
		if (data + ETHERNET_LENGTH + IPV6_LENGTH > end)
			return drop(packet, SEGUE_OUTCOME_drop_truncated);
		destination = address_load(data + ETHERNET_LENGTH + 24);
		/* Where it goes afterwards is known: what would not fit there is refused while its sender can be told.
		 */
		if (outer->limit - ETHERNET_LENGTH > IPV6_LEAST_MTU) {
			adjacency = adjacency_find(packet, next, 0, ADJACENCY_INSIDE, 0);
			if (adjacency && adjacency->kind == ADJACENCY_LINK &&
			    unlikely(outer->limit - ETHERNET_LENGTH > adjacency->fits))
				return too_big(packet, 6, ETHERNET_LENGTH, adjacency->fits);
		}
		return proxy_through_kernel(packet, sid, outer, &inner, &link, id, ecn,
					    sid_argument(sid, sid->argument_length, destination));
	}
	if (expose(packet->ctx, offset, offset + inner.length, outer->frame))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = (void *)(long)packet->ctx->data;
	end = (void *)(long)packet->ctx->data_end;
	if (data + ETHERNET_LENGTH + sizeof(struct iphdr) > end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (unlikely(ecn != inner.ecn)) {
		if (ipv4)
			ipv4_set_ecn(data + ETHERNET_LENGTH, ecn);
		else
			ipv6_set_ecn(data + ETHERNET_LENGTH, ecn);
	}
	function_ethernet(data, &link, ipv4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6));
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

/* Copies a remembered header in front. 0: done. */
INLINE int stash_copy(void *to, void *end, const struct segue_stash *entry)
{
	const u64 *from = (const u64 *)entry->header;
	u64 *word = to;

	if (likely(entry->length == IPV6_LENGTH + SRH_FIXED_LENGTH + 32)) {
		if (to + IPV6_LENGTH + SRH_FIXED_LENGTH + 32 > end)
			return -1;
#pragma unroll
		for (int i = 0; i < 10; i++)
			word[i] = from[i];
		return 0;
	}
	for (int i = 0; i < STASH_WORDS; i++) {
		if (8 * i >= entry->length)
			break;
		u64 *at = word + i;

		opaque(at);
		if ((void *)(at + 1) > end)
			return -1;
		*at = from[i];
	}
	return 0;
}

/* Traffic class and flow label of a header that goes back on, as the first word of an IPv6 header. */
INLINE u32 restored_word(const struct segue_stash *entry, const struct payload *payload)
{
	u32 traffic_class = payload->traffic_class, label = payload->flow & 0xfffff ?: 1;

	if (!(entry->flags & SEGUE_STASH_TRAFFIC_CLASS_COPY))
		traffic_class = (entry->header[0] & 15) << 4 | entry->header[1] >> 4 | (traffic_class & 3);
	return bpf_htonl(6U << 28 | traffic_class << 20 | label);
}

/* Puts a remembered header on a packet that fits `adjacency` if `by_link`. Ends it. */
INLINE int restore_on(const struct packet *packet, const struct segue_stash *entry, u64 id,
		      const struct payload *payload, u32 scope, const struct adjacency *adjacency, int by_link)
{
	u32 family = payload->protocol == PROTOCOL_IPV4 ? 4 : 6, push = entry->length, naming = entry->next_header;
	u32 word = restored_word(entry, payload);
	void *data = (void *)(long)packet->ctx->data;
	void *end = (void *)(long)packet->ctx->data_end;
	u8 *octet;

	if (payload->decrement) {
		if (data + ETHERNET_LENGTH + IPV6_LENGTH <= end && family == 6)
			((struct ipv6hdr *)(data + ETHERNET_LENGTH))->hop_limit--;
		else if (data + ETHERNET_LENGTH + sizeof(struct iphdr) <= end && family == 4)
			ipv4_decrement(data + ETHERNET_LENGTH);
	}
	if (payload->protocol == PROTOCOL_ETHERNET)
		push += ETHERNET_LENGTH;
	if (bpf_xdp_adjust_head(packet->ctx, -(int)push))
		return drop(packet, SEGUE_OUTCOME_drop_no_headroom);
	data = (void *)(long)packet->ctx->data;
	end = (void *)(long)packet->ctx->data_end;
	octet = data + ETHERNET_LENGTH;
	if (stash_copy(octet, end, entry) || (void *)octet + IPV6_LENGTH + SRH_FIXED_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	*(u16 *)(octet + 4) = bpf_htons(entry->length - IPV6_LENGTH + payload->length);
	if (unlikely(!stash_still(entry, id))) {
		memory_count(scope, MEMORY_OVERWRITTEN);
		return drop(packet, SEGUE_OUTCOME_drop_header_forgotten);
	}
	*(u32 *)octet = word;
	if (likely(naming == IPV6_LENGTH)) {
		octet[IPV6_LENGTH] = payload->protocol;
	} else {
		u8 *next_header = octet + (naming & 0xff);

		if ((void *)(next_header + 1) > end)
			return drop(packet, SEGUE_OUTCOME_drop_adjust);
		*next_header = payload->protocol;
	}
	count(payload->counter, packet->length);
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
	u32 family = payload->protocol == PROTOCOL_IPV4 ? 4 : 6;
	const struct adjacency *adjacency =
		adjacency_find(packet, address_load(&entry->header[24]), 0, ADJACENCY_INSIDE, payload->flow);
	int by_link, action;

	if (unlikely(!adjacency))
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	by_link = adjacency_fits(adjacency, payload->length + entry->length);
	if (unlikely(!by_link) && encapsulation_obstacle(packet, payload, adjacency, family, entry->length, &action))
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
		payload.protocol = PROTOCOL_ETHERNET;
		payload.length = frame_length(packet->ctx);
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
