/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The usual packet to and from a function, without the detour by the stage that can do everything (lib/proxy.h,
 * lib/masquerade.h): no extension headers, options or fragments, nothing behind the packet, a link that it fits. All
 * that is not usual is left to the stage, with the packet unchanged.
 */
#ifndef SEGUE_USUAL_H
#define SEGUE_USUAL_H

#include "base.h"
#include "encapsulation.h"
#include "flow.h"
#include "masquerade.h"
#include "proxy.h"

#define NOT_USUAL (-1)
/* An IPv6 header and an SRH with two segments, and where the inner packet is behind them. */
#define USUAL_STEERING (IPV6_LENGTH + SRH_FIXED_LENGTH + 32)
#define USUAL_INNER (ETHERNET_LENGTH + USUAL_STEERING)
/* The same for a reduced list: one segment in the SRH. */
#define USUAL_REDUCED (IPV6_LENGTH + SRH_FIXED_LENGTH + 16)

/* A unicast address beyond the link, as nearly all are. The rest is judged by flow_addresses(). */
INLINE int address_usual(struct address a)
{
	return address_first_octet(a) < 0xfe && a.high;
}

/* An IPv6 packet that fills its frame, from somewhere to somewhere beyond this node. */
INLINE int ipv6_usual(const struct packet *packet, const struct ipv6hdr *ip, u32 length)
{
	struct address source = address_load(&ip->saddr), destination = address_load(&ip->daddr);

	return *(const u8 *)ip >> 4 == 6 && bpf_ntohs(ip->payload_len) + IPV6_LENGTH == length && ip->hop_limit > 1 &&
	       address_usual(source) && address_usual(destination) &&
	       !address_equal(destination, address_load(packet->port->ipv6));
}

INLINE int ipv4_usual(const struct packet *packet, const struct iphdr *ip, const void *end, u32 length)
{
	return *(const u8 *)ip == 0x45 && bpf_ntohs(ip->tot_len) == length && ip->ttl > 1 &&
	       !(ip->frag_off & bpf_htons(0x3fff)) && ipv4_header_sum(ip, end, 5) == 0xffff &&
	       ipv4_valid_source(ip->saddr) && ipv4_valid_source(ip->daddr) && ip->daddr != packet->port->ipv4;
}

/* The first word of an IPv6 header, as it lies in memory. */
#define WORD_VERSION 0xf0ULL
#define WORD_ECN 0x3000ULL
#define WORD_NEXT_HEADER (0xffULL << 48)
#define WORD_HOP_LIMIT(word) ((u32)((word) >> 56))
#define WORD_PAYLOAD_LENGTH(word) bpf_ntohs((u16)((word) >> 32))
#define WORD_OF_SRH (0x60ULL | (u64)PROTOCOL_ROUTING << 48)
/* The first word of an SRH of two segments with none left: length, type and Segments Left. */
#define WORD_LAST_OF_TWO (4U << 8 | ROUTING_TYPE_SRH << 16)

/* The shape of a remembered header that follows the packet's DSCP or not: its fields from `length` on, in one word. */
#define STASH_USUAL_SHAPE (USUAL_STEERING | IPV6_LENGTH << 16)
#define STASH_USUAL_MASK (~((u32)SEGUE_STASH_TRAFFIC_CLASS_COPY << 24))
#define STASH_EXACT_SHAPE (STASH_USUAL_SHAPE | SEGUE_STASH_EXACT << 24)

/* The packet's steering header is the one remembered, but for what makes no difference: see header_same(). */
INLINE int header_usual(const struct segue_stash *entry, const u64 *word, u32 margin, u32 exact)
{
	const u64 *known = (const u64 *)entry->header;
	u64 difference = (word[1] ^ known[1]) | (word[2] ^ known[2]);

	if (exact) {
		if (*(const u32 *)&entry->length != STASH_EXACT_SHAPE)
			return 0;
		difference |= (u32)word[0] ^ (u32)known[0];
		margin = 1;
	} else if ((*(const u32 *)&entry->length & STASH_USUAL_MASK) != STASH_USUAL_SHAPE) {
		return 0;
	}
	difference |= ((word[5] - (1ULL << 24)) ^ known[5]) & ~0xffULL;
	difference |= (word[6] ^ known[6]) | (word[7] ^ known[7]) | (word[8] ^ known[8]) | (word[9] ^ known[9]);
	return !difference && WORD_HOP_LIMIT(word[0]) - 1 - WORD_HOP_LIMIT(known[0]) + margin - 1 <= 2 * (margin - 1);
}

/* An inner IPv4 packet that fills the frame and whose ECN the tunnel leaves alone. */
INLINE int inner_ipv4_usual(const struct iphdr *ip, const void *end, u32 length, u64 outer)
{
	return *(const u8 *)ip == 0x45 && bpf_ntohs(ip->tot_len) == length && ipv4_header_sum(ip, end, 5) == 0xffff &&
	       ipv4_valid_source(ip->saddr) && ipv4_valid_source(ip->daddr) && (ip->tos & 3) == ((outer >> 12) & 3);
}

/* The same for IPv6; and to nowhere in the domain. */
INLINE int inner_ipv6_usual(const struct packet *packet, const u64 *word, u32 length, u64 outer)
{
	struct address source = {word[1], word[2]}, destination = {word[3], word[4]};

	return (word[0] & WORD_VERSION) == 0x60 && WORD_PAYLOAD_LENGTH(word[0]) + IPV6_LENGTH == length &&
	       !((word[0] ^ outer) & WORD_ECN) && address_usual(source) && address_usual(destination) &&
	       !rarely_in_sid_block(packet, destination);
}

/* The flow of a packet, as flow_read() would say, without a fragment or extension headers. 0: done. */
INLINE int ipv6_usual_key(const u64 *word, const void *end, u64 *key)
{
	u32 protocol = (word[0] & WORD_NEXT_HEADER) >> 48;

	if ((const void *)(word + 5) + 4 > end)
		return -1;
	key[0] = word[1];
	key[1] = word[2];
	key[2] = word[3];
	key[3] = word[4];
	key[4] = (u64)protocol << 32 | 6ULL << 40;
	if (likely(protocol_has_ports(protocol)))
		key[4] |= *(const u32 *)(word + 5);
	else if (protocol != PROTOCOL_ICMPV6) /* perhaps an extension header */
		return -1;
	return 0;
}

/* The same for IPv4 without options, nor a fragment. */
INLINE int ipv4_usual_key(const struct iphdr *ip, const void *end, u64 *key)
{
	if ((const void *)(ip + 1) + 4 > end || ip->frag_off & bpf_htons(0x3fff))
		return -1;
	key[0] = ip->saddr | (u64)ip->daddr << 32;
	key[4] = (u64)ip->protocol << 32 | 4ULL << 40;
	if (protocol_has_ports(ip->protocol))
		key[4] |= *(const u32 *)(ip + 1);
	return 0;
}

/*
 * A packet through the kernel, without an argument that would become its mark: is what is remembered its own, and does
 * it fit the link behind the function? The kernel cannot tell its sender.
 */
INLINE int exact_usual(const struct packet *packet, const struct segue_sid *sid, const struct segue_stash *entry,
		       u32 hop_limit, u32 length)
{
	const struct adjacency *adjacency;

	if (sid->argument_length)
		return 0;
	if (sid->proxy_flags & SEGUE_PROXY_KEEP_HOP_LIMIT) {
		if (hop_limit < 2 || entry->hop_limit != hop_limit)
			return 0;
	} else if (entry->hop_limit) {
		return 0;
	}
	if (length <= IPV6_LEAST_MTU)
		return 1;
	adjacency = adjacency_find(packet, address_load(&entry->header[24]), 0, ADJACENCY_INSIDE, 0);
	return adjacency && adjacency_fits(adjacency, length);
}

/*
 * End.AD and End.AN.NF, on the way to the function: is the packet one with the header that is remembered already, and
 * an inner packet as nearly all are? What its outer addresses and its SRH must be was seen when the header was
 * remembered, under `id`. The inner packet's Ethertype, or 0; nothing is changed.
 */
INLINE u16 dynamic_usual_inner(struct packet *packet, const struct segue_sid *sid, const void *data, const void *end,
			       u64 *id)
{
	const u64 *word = data + ETHERNET_LENGTH;
	const struct segue_stash *entry;
	u64 head, key[5] = {};
	u32 length, six, exact = sid->memory == SEGUE_MEMORY_PACKET;

	if (data + USUAL_INNER + IPV6_LENGTH > end ||
	    (sid->flags & (SEGUE_SID_DOWN | SEGUE_SID_NEXT_HOP_MAC)) != SEGUE_SID_NEXT_HOP_MAC ||
	    packet->port->config_flags & (SEGUE_CONFIG_CHECK_SOURCE | SEGUE_CONFIG_MANY_BLOCKS))
		return 0;
	head = word[0];
	length = end - data - USUAL_INNER;
	if ((head & (WORD_VERSION | WORD_NEXT_HEADER)) != WORD_OF_SRH || WORD_HOP_LIMIT(head) <= 1 ||
	    WORD_PAYLOAD_LENGTH(head) != length + USUAL_STEERING - IPV6_LENGTH || length > sid->function_mtu)
		return 0;
	six = (word[5] & 0xff) == PROTOCOL_IPV6;
	if (sid->memory == SEGUE_MEMORY_FLOW) {
		if (six ? ipv6_usual_key(word + 10, end, key) : ipv4_usual_key(data + USUAL_INNER, end, key))
			return 0;
		entry = flow_cached(sid->scope, key, flow_hash(key), id);
	} else {
		entry = memory_current(sid->scope, id);
	}
	if (unlikely(!entry || !header_usual(entry, word, sid->hop_limit_margin ?: 1, exact)))
		return 0;
	packet->length = length + USUAL_STEERING;
	if (exact && !exact_usual(packet, sid, entry, six ? word[10] >> 56 : word[11] & 0xff, packet->length))
		return 0;
	if (unlikely(!stash_still(entry, *id)))
		return 0;
	if (likely(six))
		return sid->inner & SEGUE_INNER_IPV6 && inner_ipv6_usual(packet, word + 10, length, head)
			       ? bpf_htons(ETH_P_IPV6)
			       : 0;
	return (word[5] & 0xff) == PROTOCOL_IPV4 && sid->inner & SEGUE_INNER_IPV4 &&
			       inner_ipv4_usual(data + USUAL_INNER, end, length, head)
		       ? bpf_htons(ETH_P_IP)
		       : 0;
}

/* Such a packet goes to the function. */
INLINE int dynamic_usual_to(const struct packet *packet, const struct segue_sid *sid, u16 ethertype, u64 id)
{
	const struct function_link link = {.destination_mac = sid->mac, .source_mac = sid->source_mac};
	u32 exact = sid->memory == SEGUE_MEMORY_PACKET;
	void *data;

	if (bpf_xdp_adjust_head(packet->ctx, USUAL_INNER - ETHERNET_LENGTH))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (exact && kernel_metadata(packet, sid, id, 0))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = (void *)(long)packet->ctx->data;
	if (data + ETHERNET_LENGTH > (void *)(long)packet->ctx->data_end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	function_ethernet(data, &link, ethertype);
	count(sid->counter, packet->length);
	return exact ? pass(packet, SEGUE_OUTCOME_to_function) : transmit(packet, sid->oif, SEGUE_OUTCOME_to_function);
}

/*
 * What an IPv6 packet that fills its frame says of its flow: 0, or the packet is not usual. `key` is that of
 * flow_read_ipv6().
 */
INLINE int returned_ipv6_usual(const struct packet *packet, const u64 *word, const void *end, u32 length, u64 *key)
{
	struct address source, destination;

	if ((const void *)(word + 5) + 4 > end)
		return -1;
	source = (struct address){word[1], word[2]};
	destination = (struct address){word[3], word[4]};
	if ((word[0] & WORD_VERSION) != 0x60 || WORD_PAYLOAD_LENGTH(word[0]) + IPV6_LENGTH != length ||
	    WORD_HOP_LIMIT(word[0]) <= 1 || !address_usual(source) || !address_usual(destination) ||
	    address_equal(destination, address_load(packet->port->ipv6)))
		return -1;
	return ipv6_usual_key(word, end, key);
}

/*
 * Puts a header of `push` octets, a constant, with an SRH and `word` as version, traffic class and flow label on a
 * packet that fits the link. The frame; or NULL, and the outcome.
 */
INLINE void *usual_wrap(const struct packet *packet, const void *header, u32 push, u32 word,
			const struct payload *payload, u32 *outcome)
{
	const u64 *known = header;
	u64 first = (known[0] & ~0xffffffffULL) | word | (u64)bpf_htons(push - IPV6_LENGTH + payload->length) << 32;
	void *data;
	u64 *to;

	*outcome = SEGUE_OUTCOME_drop_no_headroom;
	if (bpf_xdp_adjust_head(packet->ctx, -(int)push))
		return NULL;
	*outcome = SEGUE_OUTCOME_drop_adjust;
	data = (void *)(long)packet->ctx->data;
	if (data + ETHERNET_LENGTH + push > (void *)(long)packet->ctx->data_end)
		return NULL;
	to = data + ETHERNET_LENGTH;
	to[0] = first;
#pragma unroll
	for (u32 i = 1; i < push / 8; i++)
		to[i] = known[i];
	*(u8 *)(to + IPV6_LENGTH / 8) = payload->protocol;
	return data;
}

/* Puts the usual header on a packet that fits the link. Ends it. */
INLINE int restore_usual(const struct packet *packet, const struct segue_stash *entry, u64 id,
			 const struct payload *payload, u32 scope, const struct adjacency *adjacency)
{
	u32 outcome;
	void *data =
		usual_wrap(packet, entry->header, USUAL_STEERING, restored_word(entry, payload), payload, &outcome);

	if (!data)
		return drop(packet, outcome);
	if (unlikely(!stash_still(entry, id))) {
		memory_count(scope, MEMORY_OVERWRITTEN);
		return drop(packet, SEGUE_OUTCOME_drop_header_forgotten);
	}
	ethernet_write(data, adjacency);
	count(payload->counter, packet->length);
	return transmit(packet, adjacency->ifindex, SEGUE_OUTCOME_forwarded);
}

/* A packet back from a function, as nearly all are: `payload`, and the key of its flow. 0: it is one. */
INLINE int returned_usual(struct packet *packet, const struct segue_sid *sid, struct payload *payload, u64 *key)
{
	void *data = (void *)(long)packet->ctx->data;
	void *end = (void *)(long)packet->ctx->data_end;
	u32 length = end - data - ETHERNET_LENGTH, word;

	if (data + ETHERNET_LENGTH + sizeof(struct iphdr) + 4 > end || *(const u8 *)data & 1)
		return -1;
	if (likely(*(const u16 *)(data + 12) == bpf_htons(ETH_P_IPV6))) {
		if (!(sid->inner & SEGUE_INNER_IPV6) ||
		    returned_ipv6_usual(packet, data + ETHERNET_LENGTH, end, length, key))
			return -1;
		word = bpf_ntohl(*(const u32 *)(data + ETHERNET_LENGTH));
		payload->protocol = PROTOCOL_IPV6;
		payload->traffic_class = word >> 20;
		payload->flow_label = word & 0xfffff;
	} else {
		const struct iphdr *ip = data + ETHERNET_LENGTH;

		if (!(sid->inner & SEGUE_INNER_IPV4) || *(const u16 *)(data + 12) != bpf_htons(ETH_P_IP) ||
		    !ipv4_usual(packet, ip, end, length))
			return -1;
		payload->protocol = PROTOCOL_IPV4;
		payload->traffic_class = ip->tos;
		if (ipv4_usual_key(ip, end, key))
			return -1;
	}
	payload->flow = flow_hash(key);
	payload->length = length;
	payload->counter = sid->counter_return;
	payload->decrement = 1;
	return 0;
}

/* Lowers the hop limit of such a packet. */
INLINE void returned_decrement(const struct packet *packet, const struct payload *payload)
{
	void *data = (void *)(long)packet->ctx->data;

	if (data + ETHERNET_LENGTH + sizeof(struct iphdr) > (void *)(long)packet->ctx->data_end)
		return;
	if (payload->protocol == PROTOCOL_IPV6)
		((struct ipv6hdr *)(data + ETHERNET_LENGTH))->hop_limit--;
	else
		ipv4_decrement(data + ETHERNET_LENGTH);
}

/* End.AD with a memory by interface or by flow: back from the function. */
INLINE int dynamic_usual(struct packet *packet, const struct segue_sid *sid)
{
	const struct adjacency *adjacency;
	const struct segue_stash *entry;
	struct payload payload = {};
	u64 key[5] = {}, id = 0;

	if (returned_usual(packet, sid, &payload, key))
		return NOT_USUAL;
	if (sid->memory == SEGUE_MEMORY_FLOW)
		entry = flow_cached(sid->scope, key, payload.flow, &id);
	else
		entry = memory_current(sid->scope, &id);
	if (unlikely(!entry))
		return NOT_USUAL;
	adjacency = adjacency_find(packet, address_load(&entry->header[24]), 0, ADJACENCY_INSIDE, payload.flow);
	if (unlikely(!adjacency || !adjacency_fits(adjacency, payload.length + entry->length)))
		return NOT_USUAL;
	packet->length = payload.length;
	if (unlikely((*(const u32 *)&entry->length & STASH_USUAL_MASK) != STASH_USUAL_SHAPE))
		return restore_on(packet, entry, id, &payload, sid->scope, adjacency, 1);
	returned_decrement(packet, &payload);
	return restore_usual(packet, entry, id, &payload, sid->scope, adjacency);
}

/* End.AS whose list has an SRH with one or two segments: back from the function. */
INLINE int static_usual(struct packet *packet, const struct segue_sid *sid)
{
	const struct segue_segment_list *list;
	const struct adjacency *adjacency;
	struct payload payload = {};
	u64 key[5] = {};
	u32 outcome, push;
	void *data;

	if (returned_usual(packet, sid, &payload, key))
		return NOT_USUAL;
	list = policy_list(sid->policy, payload.flow);
	if (unlikely(!list))
		return NOT_USUAL;
	push = list->header_length;
	if (unlikely((push != USUAL_STEERING && push != USUAL_REDUCED) || !(list->flags & SEGUE_LIST_HAS_SRH)))
		return NOT_USUAL;
	adjacency = list_adjacency(packet, list, payload.flow);
	if (unlikely(!adjacency || !adjacency_fits(adjacency, payload.length + push)))
		return NOT_USUAL;
	packet->length = payload.length;
	returned_decrement(packet, &payload);
	if (push == USUAL_REDUCED)
		data = usual_wrap(packet, list->header, USUAL_REDUCED, outer_word(list, &payload), &payload, &outcome);
	else
		data = usual_wrap(packet, list->header, USUAL_STEERING, outer_word(list, &payload), &payload, &outcome);
	if (!data)
		return drop(packet, outcome);
	ethernet_write(data, adjacency);
	count(payload.counter, packet->length);
	count(list->counter, packet->length);
	return transmit(packet, adjacency->ifindex, SEGUE_OUTCOME_forwarded);
}

/*
 * End.AM, on the way to the function: an SRH with two or three segments, the one remembered, and an inner packet. What
 * the SRH must be was seen when it was remembered. Nothing is changed.
 */
INLINE int masquerade_usual_inner(struct packet *packet, const struct segue_sid *sid, const void *data, const void *end)
{
	const u64 *word = data + ETHERNET_LENGTH;
	struct address source, destination;
	const struct segue_stash *entry;
	u32 length = end - data - ETHERNET_LENGTH, srh_length;
	u64 id = 0;

	if (data + USUAL_INNER > end ||
	    (sid->flags & (SEGUE_SID_DOWN | SEGUE_SID_NEXT_HOP_MAC)) != SEGUE_SID_NEXT_HOP_MAC ||
	    packet->port->config_flags & (SEGUE_CONFIG_CHECK_SOURCE | SEGUE_CONFIG_MANY_BLOCKS))
		return 0;
	source = (struct address){word[1], word[2]};
	destination = (struct address){word[3], word[4]};
	if ((word[0] & (WORD_VERSION | WORD_NEXT_HEADER)) != WORD_OF_SRH || WORD_HOP_LIMIT(word[0]) <= 1 ||
	    WORD_PAYLOAD_LENGTH(word[0]) + IPV6_LENGTH != length || length > sid->function_mtu ||
	    !address_usual(source) || address_equal(source, destination))
		return 0;
	srh_length = ((word[5] >> 8 & 0xff) + 1) * 8;
	if (srh_length != SRH_FIXED_LENGTH + 32 && srh_length != SRH_FIXED_LENGTH + 48)
		return 0;
	entry = memory_current(sid->scope, &id);
	packet->length = length;
	return entry && masquerade_same(packet, entry, data, end, srh_length, SRH_SEGMENTS_LEFT_ONE);
}

/* Such a packet goes to the function. */
INLINE int masquerade_usual_to(const struct packet *packet, const struct segue_sid *sid, void *data, void *end)
{
	const struct function_link link = {.destination_mac = sid->mac, .source_mac = sid->source_mac};
	u64 *word = data + ETHERNET_LENGTH;

	if (data + USUAL_INNER > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	((struct ipv6hdr *)word)->hop_limit--;
	word[5] -= SRH_SEGMENTS_LEFT_ONE;
	address_store(word + 3, address_load(word + 6));
	function_ethernet(data, &link, bpf_htons(ETH_P_IPV6));
	count(sid->counter, packet->length);
	return transmit(packet, sid->oif, SEGUE_OUTCOME_to_function);
}

/* End.AM: back from the function, with the SRH that is remembered in front of an inner packet. */
INLINE int masquerade_usual(struct packet *packet, const struct segue_sid *sid)
{
	void *data = (void *)(long)packet->ctx->data;
	void *end = (void *)(long)packet->ctx->data_end;
	u32 length = end - data - ETHERNET_LENGTH, left;
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	const u64 *word = (const u64 *)ip;
	const struct adjacency *adjacency;
	const struct segue_stash *entry;
	struct address destination;
	const void *segment;
	u64 id = 0;

	if ((void *)(word + 8) > end || *(const u8 *)data & 1 || *(const u16 *)(data + 12) != bpf_htons(ETH_P_IPV6) ||
	    ip->nexthdr != PROTOCOL_ROUTING || !ipv6_usual(packet, ip, length))
		return NOT_USUAL;
	entry = memory_current(sid->scope, &id);
	if (unlikely(!entry || !masquerade_same(packet, entry, data, end, ((word[5] >> 8 & 0xff) + 1) * 8, 0) ||
		     !stash_still(entry, id)))
		return NOT_USUAL;
	destination = address_load(&ip->daddr);
	if (unlikely(!address_equal(destination, address_load(word + 6))))
		return NOT_USUAL;
	left = word[5] >> 24 & 0xff;
	segment = data + SIMPLE_SRH + SRH_FIXED_LENGTH + left * 16;
	if (segment + 16 > end)
		return NOT_USUAL;
	destination = address_load(segment);
	adjacency = adjacency_find(packet, destination, 0, ADJACENCY_INSIDE, outer_flow(ip));
	if (unlikely(!adjacency || !adjacency_fits(adjacency, length)))
		return NOT_USUAL;
	packet->length = length;
	address_store(&ip->daddr, destination);
	ip->hop_limit--;
	count(sid->counter_return, length);
	ethernet_write(data, adjacency);
	return transmit(packet, adjacency->ifindex, SEGUE_OUTCOME_forwarded);
}

/*
 * End.DX4, End.DX6, End.DT4, End.DT6, End.DT46: the way of an inner packet as nearly all are, at the end of a list with
 * two segments, by a link that it fits; or NULL. Nothing is changed.
 */
INLINE const struct adjacency *decapsulate_usual(struct packet *packet, const struct segue_sid *sid, const void *data,
						 const void *end)
{
	const u64 *word = data + ETHERNET_LENGTH;
	struct address source, destination, towards;
	const struct adjacency *adjacency;
	u32 length, tag = 0;
	u64 flow; /* the end of the inner source */

	if (data + USUAL_INNER + IPV6_LENGTH > end ||
	    packet->port->config_flags & (SEGUE_CONFIG_CHECK_SOURCE | SEGUE_CONFIG_MANY_BLOCKS))
		return NULL;
	length = end - data - USUAL_INNER;
	source = (struct address){word[1], word[2]};
	if ((word[0] & (WORD_VERSION | WORD_NEXT_HEADER)) != WORD_OF_SRH ||
	    WORD_PAYLOAD_LENGTH(word[0]) != length + USUAL_STEERING - IPV6_LENGTH ||
	    (word[5] & 0xffffff00) != WORD_LAST_OF_TWO || !address_usual(source) ||
	    address_equal(source, (struct address){word[3], word[4]}))
		return NULL;
	if (likely((word[5] & 0xff) == PROTOCOL_IPV6)) {
		if (sid->behaviour == SEGUE_END_DX4 || sid->behaviour == SEGUE_END_DT4 ||
		    boundary_suspects((word[10] & WORD_NEXT_HEADER) >> 48) || WORD_HOP_LIMIT(word[10]) <= 1 ||
		    !inner_ipv6_usual(packet, word + 10, length, word[0]))
			return NULL;
		flow = word[12];
		destination = (struct address){word[13], word[14]};
		towards = address_load(sid->next_hop);
	} else {
		const struct iphdr *ip = data + USUAL_INNER;

		if ((word[5] & 0xff) != PROTOCOL_IPV4 || sid->behaviour == SEGUE_END_DX6 ||
		    sid->behaviour == SEGUE_END_DT6 || ip->ttl <= 1 || !inner_ipv4_usual(ip, end, length, word[0]))
			return NULL;
		flow = ip->saddr;
		destination = (struct address){0, ip->daddr};
		towards = (struct address){0, sid->next_hop_ipv4};
		tag = ADJACENCY_IPV4;
	}
	if (!(towards.high | towards.low))
		towards = destination;
	packet->length = length + USUAL_STEERING;
	adjacency = adjacency_find(packet, towards, sid->table | tag, sid->oif, flow >> 56 ^ flow >> 24);
	return adjacency && adjacency_fits(adjacency, length) ? adjacency : NULL;
}

/* Such a packet leaves. */
INLINE int decapsulate_usual_to(const struct packet *packet, const struct segue_sid *sid,
				const struct adjacency *adjacency)
{
	void *data;

	if (bpf_xdp_adjust_head(packet->ctx, USUAL_STEERING))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = (void *)(long)packet->ctx->data;
	if (data + ETHERNET_LENGTH + sizeof(struct iphdr) > (void *)(long)packet->ctx->data_end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	ethernet_write(data, adjacency);
	if (likely(*(const u16 *)(data + 12) == bpf_htons(ETH_P_IPV6)))
		((struct ipv6hdr *)(data + ETHERNET_LENGTH))->hop_limit--;
	else
		ipv4_decrement(data + ETHERNET_LENGTH);
	count(sid->counter, packet->length);
	return transmit(packet, adjacency->ifindex, SEGUE_OUTCOME_forwarded);
}

/* A packet to a SID that is not End, End.X or End.T. 1: it was usual, and is done with `action`. */
INLINE int endpoint_usual(struct packet *packet, const struct segue_sid *sid, void *data, void *end, int *action)
{
	const struct adjacency *adjacency;
	u16 ethertype;
	u64 id = 0;

	switch (sid->behaviour) {
	case SEGUE_END_DX4:
	case SEGUE_END_DX6:
	case SEGUE_END_DT4:
	case SEGUE_END_DT6:
	case SEGUE_END_DT46:
		adjacency = decapsulate_usual(packet, sid, data, end);
		if (unlikely(!adjacency))
			return 0;
		*action = decapsulate_usual_to(packet, sid, adjacency);
		return 1;
	case SEGUE_END_AD:
	case SEGUE_END_AN_NF:
		ethertype = dynamic_usual_inner(packet, sid, data, end, &id);
		if (unlikely(!ethertype))
			return 0;
		*action = dynamic_usual_to(packet, sid, ethertype, id);
		return 1;
	case SEGUE_END_AM:
		if (unlikely(!masquerade_usual_inner(packet, sid, data, end)))
			return 0;
		*action = masquerade_usual_to(packet, sid, data, end);
		return 1;
	}
	return 0;
}

/* Back from a function in its usual form, or NOT_USUAL. */
INLINE int service_usual(struct packet *packet)
{
	u32 index = packet->port->proxy;
	const struct segue_sid *sid = bpf_map_lookup_elem(&sid_entries, &index);

	if (unlikely(!sid))
		return NOT_USUAL;
	if (sid->behaviour == SEGUE_END_AD && sid->memory <= SEGUE_MEMORY_FLOW)
		return dynamic_usual(packet, sid);
	if (sid->behaviour == SEGUE_END_AM)
		return masquerade_usual(packet, sid);
	if (sid->behaviour == SEGUE_END_AS)
		return static_usual(packet, sid);
	return NOT_USUAL;
}

#endif
