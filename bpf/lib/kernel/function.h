/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A function on the kernel's path, with the steering header remembered for each packet (SEGUE_MEMORY_PACKET): into the
 * function, back from it, and what it sends of its own.
 *
 * The reference to the header travels in skb->hash, and skb->tc_index says that it is one. Both survive routing,
 * netfilter with all its rewriting, fragmentation, reassembly, and links into other namespaces; GRO merges only packets
 * of equal hash. A function that has CAP_BPF can forge them: it gets no header but those of its own scope.
 */
#ifndef SEGUE_KERNEL_FUNCTION_H
#define SEGUE_KERNEL_FUNCTION_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/base/config.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"
#include "lib/packet/tags.h"
#include "lib/packet/inner.h"
#include "lib/packet/flow.h"
#include "lib/forward/adjacency.h"
#include "lib/core/advance.h"
#include "lib/access/encapsulation.h"
#include "lib/access/steering.h"
#include "lib/header/header.h"
#include "lib/proxy/stash.h"
#include "lib/proxy/memory.h"
#include "lib/proxy/behind.h"
#include "lib/kernel/leave.h"
#include "lib/header/labels.h"
#include "lib/labels/room.h"
#include "lib/labels/ecn.h"
#include "lib/packet/cut.h"

/* A packet that XDP has taken the steering header off, on its way to the function. */
INLINE int function_in(buffer *skb, struct segue_function_metadata *metadata)
{
	u32 oif = metadata->oif, flags = metadata->flags;

	skb->mark = metadata->mark;
	skb->tc_index = SEGUE_TC_INDEX | (flags & (u16)~SEGUE_TC_INDEX_MASK);
	bpf_set_hash(skb, metadata->stash);
	/* It stays on the buffer: nobody shall read it or take it for his own. */
	metadata->magic = 0;
	metadata->stash = 0;
	if (!(flags & SEGUE_METADATA_PEER))
		return bpf_redirect(oif, 0);
	/* The frame was not for the port's own address, so that it goes nowhere if this program is not there. */
	bpf_skb_change_type(skb, 0 /* PACKET_HOST */);
	return bpf_redirect_peer(oif, 0);
}

/* Back from the function without its header. */
RARE int function_forgotten(buffer *skb, u32 port_index, u32 scope)
{
	if (scope != SEGUE_NONE)
		memory_count(scope, MEMORY_OVERWRITTEN);
	return drop_counted(skb, port_index, 0, SEGUE_OUTCOME_drop_header_forgotten);
}

/* Reads the packet anew: nothing that a function returns is believed. */
INLINE void function_read(buffer *skb, struct inner *inner)
{
	void *data = buffer_start(skb);
	void *end = buffer_end(skb);
	u16 ethertype;

	inner->outcome = SEGUE_OUTCOME_drop_truncated;
	if (unlikely(data + ETHERNET_LENGTH + IPV6_LENGTH > end)) {
		/* As much as there is: an IPv4 packet may be shorter. */
		u32 wanted = ETHERNET_LENGTH + 60;

		if (wanted > skb->len)
			wanted = skb->len;
		if (bpf_skb_pull_data(skb, wanted))
			return;
		data = buffer_start(skb);
		end = buffer_end(skb);
		if (data + ETHERNET_LENGTH + sizeof(struct iphdr) > end)
			return;
	}
	ethertype = *(const u16 *)(data + 12);
	if (ethertype == bpf_htons(ETH_P_IPV6))
		inner_ipv6(data, end, ETHERNET_LENGTH, skb->len, inner);
	else if (ethertype == bpf_htons(ETH_P_IP))
		inner_ipv4(data, end, ETHERNET_LENGTH, skb->len, inner);
	else
		inner->outcome = SEGUE_OUTCOME_drop_inner_type;
	if (unlikely(skb->vlan_present))
		inner->outcome = SEGUE_OUTCOME_drop_inner_type;
	/* Options of an IPv4 header that lie beyond the linear part: as good as never. */
}

/* Another hop limit or TTL for an inner packet that is known to be whole. */
INLINE int function_hop(buffer *skb, u8 hop_limit)
{
	void *data = buffer_start(skb);
	void *end = buffer_end(skb);
	struct iphdr *ip = data + ETHERNET_LENGTH;

	if ((void *)(ip + 1) > end)
		return -1;
	if (*(const u16 *)(data + 12) == bpf_htons(ETH_P_IPV6))
		*(u8 *)(data + ETHERNET_LENGTH + 7) = hop_limit;
	else
		ipv4_set_ttl(ip, hop_limit);
	return 0;
}

/* Does something in the packet back from the function lead it to a SID? An inner packet that does never went in. */
RARE int function_leads(buffer *skb, u32 limit, u32 generation)
{
	u32 wanted = skb->len < 512 ? skb->len : 512;
	const struct ipv6hdr *ip;
	void *data;

	if (bpf_skb_pull_data(skb, wanted))
		return 1;
	data = buffer_start(skb);
	ip = data + ETHERNET_LENGTH;
	if ((void *)(ip + 1) > buffer_end(skb) || in_sid_block(generation, address_load(&ip->daddr)))
		return 1;
	return behind_end(skb, (ETHERNET_LENGTH + IPV6_LENGTH) | (u32)ip->nexthdr << 16 | BEHIND_INSIDE, limit,
			  generation) != 0;
}

/* What all but as good as never has to be asked for. The packet is known to be whole. */
INLINE int function_may_lead(const struct packet *packet, const struct inner *inner)
{
	void *data = buffer_start(packet->ctx);
	const u8 *next = data + ETHERNET_LENGTH + 6;

	if ((void *)(next + 1) > buffer_end(packet->ctx))
		return 1;
	return packet->ctx->protocol == bpf_htons(ETH_P_IPV6) &&
	       (leads_behind(*next) || rarely_in_sid_block(packet, inner->destination));
}

/* The hop limit that a packet leaves with, if netfilter has left it at `now`. `sent`: what it came with. */
INLINE u32 function_hop_limit(u32 sent, u32 now)
{
	/* The kernel lowers it once; less than 2 went in as 2. */
	return now == (sent < 2 ? 1 : sent - 1) ? sent : now;
}

/* The header that a reference names, in front of the packet. 0: done. */
INLINE int function_wrap(buffer *skb, const struct segue_stash *entry, u64 id, u32 push, const struct inner *inner,
			 u32 protocol)
{
	u32 length = push - IPV6_LENGTH + inner->length, naming = entry->next_header;
	void *data, *end;
	u8 *octet;

	if (buffer_encapsulate(skb, push))
		return -1;
	data = buffer_start(skb);
	end = buffer_end(skb);
	if (skb_copy_header(data + ETHERNET_LENGTH, end, entry->header, push))
		return -1;
	if (!stash_still(entry, id))
		return -1;
	octet = data + ETHERNET_LENGTH;
	if ((void *)octet + IPV6_LENGTH > end)
		return -1;
	ipv6_set_ecn(octet, inner->ecn); /* RFC 6040 section 4.1 */
	*(u16 *)(octet + 4) = payload_length(length);
	opaque(naming);
	octet += naming & 0xff;
	if ((void *)(octet + 1) > end)
		return -1;
	*octet = protocol;
	return 0;
}

/* What lies behind the packet is cut off. 0: done, or an outcome. */
INLINE u32 function_trim(buffer *skb, const struct inner *inner)
{
	if (likely(skb->len <= ETHERNET_LENGTH + inner->length))
		return 0;
	if (segment_size(skb))
		return SEGUE_OUTCOME_drop_bad_length;
	return bpf_skb_change_tail(skb, ETHERNET_LENGTH + inner->length, 0) ? SEGUE_OUTCOME_drop_adjust : 0;
}

/* An SRH, and the IPv6 header's fields that go with it, into a packet that has room for it. 0: done. */
INLINE int function_insert_header(buffer *skb, const struct segue_stash *entry, u64 id, u32 push,
				  const struct inner *inner, struct address next)
{
	void *data = buffer_start(skb);
	void *end = buffer_end(skb);
	const u64 *from = (const u64 *)&entry->header[IPV6_LENGTH];
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	u64 *word = (u64 *)(ip + 1);
	u32 length = inner->length - IPV6_LENGTH + push;

	if ((void *)(word + 3) > end)
		return -1;
	for (int i = 0; i < STASH_WORDS - IPV6_LENGTH / 8; i++) {
		if (8 * i >= push)
			break;
		u64 *to = word + i;

		opaque(to);
		if ((void *)(to + 1) > end)
			return -1;
		*to = from[i];
	}
	if (!stash_still(entry, id))
		return -1;
	address_store(word + 1, inner->destination);
	*(u8 *)word = ip->nexthdr;
	ip->nexthdr = PROTOCOL_ROUTING;
	ip->payload_len = payload_length(length);
	address_store(&ip->daddr, next);
	return 0;
}

/* Back from the function, of a packet whose SRH had been inserted: it goes in again. */
INLINE int function_insert(struct packet *packet, const struct segue_sid *sid, const struct segue_stash *entry, u64 id,
			   const struct inner *inner, u32 hops, int egress)
{
	buffer *skb = packet->ctx;
	u32 push = entry->length - IPV6_LENGTH, left = entry->header[IPV6_LENGTH + 3] & 15, at, refusal;
	const struct adjacency *adjacency;
	struct address next = inner->destination;

	at = IPV6_LENGTH + SRH_FIXED_LENGTH + 16 * left;
	opaque(at);
	if (skb->protocol != bpf_htons(ETH_P_IPV6) || at > SEGUE_HEADROOM_MAX - 16)
		return drop(packet, SEGUE_OUTCOME_drop_inner_type);
	if (left)
		next = address_load(&entry->header[at]);
	adjacency = adjacency_find(packet, next, 0, ADJACENCY_INSIDE, skb->hash);
	if (!adjacency)
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	refusal = skb_obstacle(packet, adjacency, inner->length, push);
	if (refusal)
		return drop(packet, refusal);
	refusal = function_trim(skb, inner);
	if (refusal)
		return drop(packet, refusal & (SEGUE_OUTCOMES_MAX - 1));
	if ((hops != inner->hop_limit && function_hop(skb, hops)) ||
	    bpf_skb_adjust_room(skb, push, BPF_ADJ_ROOM_NET, BPF_F_ADJ_ROOM_FIXED_GSO))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (function_insert_header(skb, entry, id, push, inner, next)) {
		if (!stash_still(entry, id))
			return function_forgotten(skb, packet->port->index, sid->scope);
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	}
	count(packet, sid->counter_return);
	return skb_leave(packet, adjacency, egress);
}

/* Hop limit that a packet back from the function leaves with. 0: with none. */
INLINE u32 function_hops(const struct segue_sid *sid, const struct segue_stash *entry, const struct inner *inner)
{
	if (sid->proxy_flags & SEGUE_PROXY_KEEP_HOP_LIMIT)
		return function_hop_limit(entry->hop_limit, inner->hop_limit);
	return likely(inner->hop_limit > 1) ? inner->hop_limit - 1 : 0;
}

/*
 * Back from a function behind a label: the rest of the stack goes on again, and the packet by the loop to the labels of
 * this node. Where nothing is left of the stack, it goes by its destination.
 */
INLINE int function_labels(struct packet *packet)
{
	buffer *skb = packet->ctx;
	u32 index = packet->port->proxy, refusal, hops;
	const struct segue_stash *entry;
	const struct segue_sid *sid;
	struct inner inner = {};
	void *data, *end;
	u64 id = 0;
	int action;

	sid = bpf_map_lookup_elem(&sid_entries, &index);
	if (unlikely(!sid))
		return drop(packet, SEGUE_OUTCOME_drop_proxy_empty);
	entry = stash_get_carried(skb->hash, skb->tc_index, &id);
	if (unlikely(!entry || entry->scope != sid->scope))
		return function_forgotten(skb, packet->port->index, sid->scope);
	function_read(skb, &inner);
	if (unlikely(inner.outcome))
		return drop(packet, inner.outcome);
	packet->length = inner.length;
	if (unlikely(function_may_lead(packet, &inner)) &&
	    function_leads(skb, ETHERNET_LENGTH + inner.length, packet->generation))
		return drop(packet, SEGUE_OUTCOME_drop_from_function);
	if (unlikely(packet_cut(packet, SEGUE_STAGE_LABELS_OUT, &action)))
		return action;
	hops = function_hops(sid, entry, &inner);
	if (unlikely(!hops))
		return drop(packet, SEGUE_OUTCOME_drop_hop_limit_exceeded);
	refusal = function_trim(skb, &inner);
	if (unlikely(refusal))
		return drop(packet, refusal & (SEGUE_OUTCOMES_MAX - 1));
	/* Where nothing is left of the stack, the label that stands for it lowers the hop limit when it comes off. */
	if (unlikely(!entry->length) && !(sid->proxy_flags & SEGUE_PROXY_KEEP_HOP_LIMIT))
		hops = inner.hop_limit;
	if (hops != inner.hop_limit && function_hop(skb, hops))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (unlikely(!entry->length)) {
		/* An explicit null: the label of all nodes for what is forwarded by its destination (RFC 3032). */
		u32 null = skb->protocol == bpf_htons(ETH_P_IPV6) ? LABEL_IPV6_EXPLICIT_NULL : LABEL_IPV4_EXPLICIT_NULL;

		if (labels_on(skb, ENTRY_LENGTH))
			return drop(packet, SEGUE_OUTCOME_drop_no_headroom);
		data = buffer_start(skb);
		if (data + ETHERNET_LENGTH + ENTRY_LENGTH > buffer_end(skb))
			return drop(packet, SEGUE_OUTCOME_drop_adjust);
		entry_store(data + ETHERNET_LENGTH, null << 12 | ENTRY_BOTTOM | hops);
	} else {
		if (labels_on(skb, entry->length & 0xff))
			return drop(packet, SEGUE_OUTCOME_drop_no_headroom);
		data = buffer_start(skb);
		end = buffer_end(skb);
		if (labels_copy(data + ETHERNET_LENGTH, end, entry, 0, 0))
			return drop(packet, SEGUE_OUTCOME_drop_adjust);
		if (unlikely(!stash_still(entry, id)))
			return function_forgotten(skb, packet->port->index, sid->scope);
		labels_mark(packet, inner.ecn);
	}
	count(packet, sid->counter_return);
	skb->tc_index = 0;
	data = buffer_start(skb);
	if (data + ETHERNET_LENGTH > buffer_end(skb))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	return skb_again_as(packet, data, bpf_htons(ETH_P_MPLS_UC));
}

/* Back from the function: the steering header that it came with goes on again. */
INLINE int function_out(struct packet *packet, int egress)
{
	buffer *skb = packet->ctx;
	u32 index = packet->port->proxy, push, refusal, protocol, hops;
	const struct adjacency *adjacency;
	const struct segue_stash *entry;
	const struct segue_sid *sid;
	struct inner inner = {};
	u64 id = 0;

	sid = bpf_map_lookup_elem(&sid_entries, &index);
	if (unlikely(!sid))
		return drop(packet, SEGUE_OUTCOME_drop_proxy_empty);
	entry = stash_get_carried(skb->hash, skb->tc_index, &id);
	if (unlikely(!entry || entry->scope != sid->scope))
		return function_forgotten(skb, packet->port->index, sid->scope);
	function_read(skb, &inner);
	if (unlikely(inner.outcome))
		return drop(packet, inner.outcome);
	packet->length = inner.length;
	if (unlikely(function_may_lead(packet, &inner)) &&
	    function_leads(skb, ETHERNET_LENGTH + inner.length, packet->generation))
		return drop(packet, SEGUE_OUTCOME_drop_from_function);
	hops = function_hops(sid, entry, &inner);
	if (unlikely(!hops && !(sid->proxy_flags & SEGUE_PROXY_KEEP_HOP_LIMIT)))
		return drop(packet, SEGUE_OUTCOME_drop_hop_limit_exceeded);
	if (unlikely(entry->flags & (SEGUE_STASH_SRH | SEGUE_STASH_LABELS))) {
		if (entry->flags & SEGUE_STASH_SRH)
			return function_insert(packet, sid, entry, id, &inner, hops, egress);
		stage(packet, SEGUE_STAGE_LABELS_OUT);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	}
	push = entry->length;
	adjacency = header_adjacency(packet, entry, outer_flow((const struct ipv6hdr *)entry->header));
	if (unlikely(!adjacency))
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	refusal = skb_obstacle(packet, adjacency, inner.length, push);
	if (unlikely(refusal))
		return drop(packet, refusal);
	refusal = function_trim(skb, &inner);
	if (unlikely(refusal))
		return drop(packet, refusal & (SEGUE_OUTCOMES_MAX - 1));
	if (hops != inner.hop_limit && function_hop(skb, hops))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	protocol = skb->protocol == bpf_htons(ETH_P_IPV6) ? PROTOCOL_IPV6 : PROTOCOL_IPV4;
	if (function_wrap(skb, entry, id, push, &inner, protocol)) {
		if (!stash_still(entry, id))
			return function_forgotten(skb, packet->port->index, sid->scope);
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	}
	count(packet, sid->counter_return);
	return skb_leave(packet, adjacency, egress);
}

/* Sent by this node itself? By its link-layer source. */
INLINE int from_port(const struct packet *packet)
{
	const u16 *mac = buffer_start(packet->ctx), *own = (const u16 *)packet->port->mac;

	if ((void *)mac + ETHERNET_LENGTH > buffer_end(packet->ctx))
		return 1;
	return mac[3] == own[0] && mac[4] == own[1] && mac[5] == own[2];
}

/* What the function sends of its own, steered like a packet from outside. */
INLINE int own_steered(struct packet *packet, const struct flow *flow)
{
	buffer *skb = packet->ctx;
	const struct segue_segment_list *list;
	const struct flow_verdict *verdict;
	struct payload payload = {};
	u32 index, push, refusal;
	void *data, *end;
	u8 *octet;

	verdict = steering_verdict(packet, flow);
	if (!verdict)
		return drop(packet, SEGUE_OUTCOME_drop_policy_invalid);
	if (verdict->outcome) {
		if (verdict->counter != SEGUE_NONE)
			count(packet, verdict->counter);
		if (verdict->outcome < SEGUE_OUTCOME_DROPPED)
			return pass(packet, verdict->outcome);
		return drop(packet, verdict->outcome);
	}
	index = verdict->list;
	list = bpf_map_lookup_elem(&segment_lists, &index);
	if (!list)
		return drop(packet, SEGUE_OUTCOME_drop_policy_invalid);
	if (list->mode != SEGUE_H_ENCAPS && list->mode != SEGUE_H_ENCAPS_RED)
		return drop(packet, SEGUE_OUTCOME_drop_inner_type);
	if (flow->hop_limit <= 1)
		return drop(packet, SEGUE_OUTCOME_drop_hop_limit_exceeded);
	push = list->header_length;
	refusal = skb_obstacle(packet, &verdict->adjacency, flow->length, push);
	if (refusal)
		return drop(packet, refusal);
	if (skb->len > ETHERNET_LENGTH + flow->length &&
	    (segment_size(skb) || bpf_skb_change_tail(skb, ETHERNET_LENGTH + flow->length, 0)))
		return drop(packet, SEGUE_OUTCOME_drop_bad_length);
	if (function_hop(skb, flow->hop_limit - 1))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (buffer_encapsulate(skb, push))
		return drop(packet, buffer_refusal(skb, SEGUE_OUTCOME_drop_adjust));
	payload.flow = flow->hash;
	payload.protocol = flow->family == 4 ? PROTOCOL_IPV4 : PROTOCOL_IPV6;
	payload.traffic_class = flow->traffic_class;
	payload.flow_label = flow->flow_label;
	data = buffer_start(skb);
	end = buffer_end(skb);
	octet = data + ETHERNET_LENGTH;
	if (skb_copy_header(octet, end, list->header, push))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if ((void *)octet + IPV6_LENGTH + 1 > end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	*(u32 *)octet = outer_word(list, &payload);
	*(u16 *)(octet + 4) = payload_length(push - IPV6_LENGTH + flow->length);
	if (list->flags & SEGUE_LIST_HAS_SRH)
		octet[IPV6_LENGTH] = payload.protocol;
	else
		octet[6] = payload.protocol;
	count(packet, verdict->counter);
	count(packet, list->counter);
	return skb_leave(packet, &verdict->adjacency, 0);
}

/* No reference on it: the function's own, made by its kernel or a program. It may not choose a path by segments. */
INLINE int function_own(struct packet *packet)
{
	buffer *skb = packet->ctx;
	u32 index = packet->port->proxy, outcome, wanted = ETHERNET_LENGTH + 128;
	const struct segue_sid *sid;
	struct flow flow = {};
	int tagged;

	tagged = skb_priority_tags_remove(skb);
	if (unlikely(tagged < 0))
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	if (wanted > skb->len)
		wanted = skb->len;
	if (buffer_start(skb) + ETHERNET_LENGTH + 128 > buffer_end(skb))
		bpf_skb_pull_data(skb, wanted); /* what is missing still is found to be truncated */
	flow_read(packet, &flow);
	packet->length = flow.length;
	if (flow.outcome)
		return drop(packet, flow.outcome);
	if (!flow.family)
		return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
	if (flow.sr_seen ||
	    (flow.family == 6 && (in_sid_block(packet->generation, (struct address){flow.key[2], flow.key[3]}) ||
				  leads_on(skb, ETHERNET_LENGTH + flow.length, packet->generation))))
		return drop(packet, SEGUE_OUTCOME_drop_from_function);
	if (flow.group)
		return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
	outcome = flow_addresses(packet->port, &flow);
	if (outcome == SEGUE_OUTCOME_passed_not_for_segue)
		return pass(packet, outcome);
	if (outcome)
		return drop(packet, outcome);
	sid = bpf_map_lookup_elem(&sid_entries, &index);
	if (!sid)
		return drop(packet, SEGUE_OUTCOME_drop_proxy_empty);
	if (sid->proxy_flags & SEGUE_PROXY_OWN_DROP)
		return drop(packet, SEGUE_OUTCOME_drop_from_function);
	/* A VLAN's frame is for the interface of that VLAN, or for nobody. */
	if (sid->proxy_flags & SEGUE_PROXY_OWN_STEER && !tagged)
		return own_steered(packet, &flow);
	return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
}

#endif
