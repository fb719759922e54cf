/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The fast path of End.AS, End.AD and End.AN.NF: the usual packet to and from a function without the detour by the
 * stage that can do everything (lib/proxy/take_off.h, lib/proxy/put_on.h). All else is left to that stage, with the
 * packet unchanged.
 */
#ifndef SEGUE_PROXY_FAST_H
#define SEGUE_PROXY_FAST_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"
#include "lib/packet/inner.h"
#include "lib/packet/flow.h"
#include "lib/packet/fast.h"
#include "lib/forward/adjacency.h"
#include "lib/access/encapsulation.h"
#include "lib/service/function.h"
#include "lib/header/header.h"
#include "lib/header/srv6.h"
#include "lib/proxy/stash.h"
#include "lib/proxy/memory.h"
#include "lib/proxy/take_off.h"
#include "lib/proxy/put_on.h"

/* The shape of a remembered header that follows the packet's DSCP or not: its fields from `length` on, in one word. */
#define STASH_FAST_SHAPE (FAST_STEERING | IPV6_LENGTH << 16)
#define STASH_FAST_MASK (~((u32)SEGUE_STASH_TRAFFIC_CLASS_COPY << 24))
#define STASH_EXACT_SHAPE (STASH_FAST_SHAPE | SEGUE_STASH_EXACT << 24)

/* The packet's steering header is the one remembered, but for what makes no difference: see srv6_same(). */
INLINE int header_fast(const struct segue_stash *entry, const u64 *word, u32 margin, u32 exact)
{
	const u64 *known = (const u64 *)entry->header;
	u64 difference = (word[1] ^ known[1]) | (word[2] ^ known[2]);

	if (exact) {
		if (*(const u32 *)&entry->length != STASH_EXACT_SHAPE)
			return 0;
		difference |= (u32)word[0] ^ (u32)known[0];
		margin = 1;
	} else if ((*(const u32 *)&entry->length & STASH_FAST_MASK) != STASH_FAST_SHAPE) {
		return 0;
	}
	difference |= ((word[5] - (1ULL << 24)) ^ known[5]) & ~0xffULL;
	difference |= (word[6] ^ known[6]) | (word[7] ^ known[7]) | (word[8] ^ known[8]) | (word[9] ^ known[9]);
	return !difference && WORD_HOP_LIMIT(word[0]) - 1 - WORD_HOP_LIMIT(known[0]) + margin - 1 <= 2 * (margin - 1);
}

/*
 * A packet through the kernel, without an argument that would become its mark: is what is remembered its own, and does
 * it fit the link behind the function? The kernel cannot tell its sender.
 */
INLINE int exact_fast(const struct packet *packet, const struct segue_sid *sid, const struct segue_stash *entry,
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
	adjacency = header_adjacency(packet, entry, 0);
	return adjacency && adjacency_fits(packet, adjacency, length);
}

/*
 * End.AD and End.AN.NF, on the way to the function: is the packet one with the header that is remembered already, and
 * an inner packet as nearly all are? What its outer addresses and its SRH must be was seen when the header was
 * remembered, under `id`. The inner packet's Ethertype, or 0; nothing is changed.
 */
INLINE u16 dynamic_fast_inner(struct packet *packet, const struct segue_sid *sid, const void *data, const void *end,
			      u64 *id)
{
	const u64 *word = data + ETHERNET_LENGTH;
	const struct segue_stash *entry;
	u64 head, key[5] = {};
	u32 length, six, exact = sid->memory == SEGUE_MEMORY_PACKET;

	if (data + FAST_INNER + IPV6_LENGTH > end ||
	    (sid->flags & (SEGUE_SID_DOWN | SEGUE_SID_NEXT_HOP_MAC)) != SEGUE_SID_NEXT_HOP_MAC ||
	    packet->port->config_flags & (SEGUE_CONFIG_CHECK_SOURCE | SEGUE_CONFIG_MANY_BLOCKS))
		return 0;
	head = word[0];
	length = buffer_octets(packet->ctx, data, end) - FAST_INNER;
	if ((head & (WORD_VERSION | WORD_NEXT_HEADER)) != WORD_OF_SRH || WORD_HOP_LIMIT(head) <= 1 ||
	    WORD_PAYLOAD_LENGTH(head) != length + FAST_STEERING - IPV6_LENGTH ||
	    packet_longest(packet, length) > sid->function_mtu)
		return 0;
	six = (word[5] & 0xff) == PROTOCOL_IPV6;
	if (sid->memory == SEGUE_MEMORY_FLOW) {
		if (six ? ipv6_fast_key(word + 10, end, key) : ipv4_fast_key(data + FAST_INNER, end, key))
			return 0;
		entry = flow_cached(sid->scope, key, flow_hash(key), id);
	} else {
		entry = memory_current(sid->scope, id);
	}
	if (unlikely(!entry || !header_fast(entry, word, sid->hop_limit_margin ?: 1, exact)))
		return 0;
	packet->length = length + FAST_STEERING;
	if (exact && !exact_fast(packet, sid, entry, six ? word[10] >> 56 : word[11] & 0xff, packet->length))
		return 0;
	if (unlikely(!stash_still(entry, *id)))
		return 0;
	if (likely(six))
		return sid->inner & SEGUE_INNER_IPV6 && inner_ipv6_fast(packet, word + 10, length, head)
			       ? bpf_htons(ETH_P_IPV6)
			       : 0;
	return (word[5] & 0xff) == PROTOCOL_IPV4 && sid->inner & SEGUE_INNER_IPV4 &&
			       inner_ipv4_fast(data + FAST_INNER, end, length, head)
		       ? bpf_htons(ETH_P_IP)
		       : 0;
}

/* Such a packet goes to the function. */
INLINE int dynamic_fast_to(const struct packet *packet, const struct segue_sid *sid, u16 ethertype, u64 id)
{
	const struct function_link link = {.destination_mac = sid->mac, .source_mac = sid->source_mac};
	u32 exact = sid->memory == SEGUE_MEMORY_PACKET;

	if (buffer_decapsulate(packet->ctx, FAST_STEERING, ethertype == bpf_htons(ETH_P_IP)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (exact && kernel_metadata(packet, sid, id, 0))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	return function_deliver(packet, sid, &link, ethertype, exact);
}

/*
 * What an IPv6 packet that fills its frame says of its flow: 0, or the packet is none for the fast path. `key` is that
 * of flow_read_ipv6().
 */
INLINE int returned_ipv6_fast(const struct packet *packet, const u64 *word, const void *end, u32 length, u64 *key)
{
	struct address source, destination;

	if ((const void *)(word + 5) + 4 > end)
		return -1;
	source = (struct address){word[1], word[2]};
	destination = (struct address){word[3], word[4]};
	if ((word[0] & WORD_VERSION) != 0x60 || WORD_PAYLOAD_LENGTH(word[0]) + IPV6_LENGTH != length ||
	    WORD_HOP_LIMIT(word[0]) <= 1 || !address_fast(source) || !address_fast(destination) ||
	    address_equal(destination, address_load(packet->port->ipv6)))
		return -1;
	return ipv6_fast_key(word, end, key);
}

/*
 * Puts a header of `push` octets, a constant, with an SRH and `word` as version, traffic class and flow label on a
 * packet that fits the link. The frame; or NULL, and the outcome.
 */
INLINE void *wrap_fast(const struct packet *packet, const void *header, u32 push, u32 word,
		       const struct payload *payload, u32 *outcome)
{
	const u64 *known = header;
	u64 first =
		(known[0] & ~0xffffffffULL) | word | (u64)payload_length(push - IPV6_LENGTH + payload->length) << 32;
	void *data;
	u64 *to;

	*outcome = buffer_refusal(packet->ctx, SEGUE_OUTCOME_drop_no_headroom);
	if (buffer_encapsulate(packet->ctx, push))
		return NULL;
	*outcome = SEGUE_OUTCOME_drop_adjust;
	data = buffer_start(packet->ctx);
	if (data + ETHERNET_LENGTH + push > buffer_end(packet->ctx))
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
INLINE int restore_fast(const struct packet *packet, const struct segue_stash *entry, u64 id,
			const struct payload *payload, u32 scope, const struct adjacency *adjacency)
{
	u32 outcome;
	void *data = wrap_fast(packet, entry->header, FAST_STEERING, srv6_word(entry, payload), payload, &outcome);

	if (!data)
		return drop(packet, outcome);
	if (unlikely(!stash_still(entry, id))) {
		memory_count(scope, MEMORY_OVERWRITTEN);
		return drop(packet, SEGUE_OUTCOME_drop_header_forgotten);
	}
	ethernet_write(data, adjacency);
	count(packet, payload->counter);
	return transmit(packet, adjacency->ifindex, SEGUE_OUTCOME_forwarded);
}

/* A packet back from a function, as nearly all are: `payload`, and the key of its flow. 0: it is one. */
INLINE int returned_fast(struct packet *packet, const struct segue_sid *sid, struct payload *payload, u64 *key)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	u32 length = buffer_octets(packet->ctx, data, end) - ETHERNET_LENGTH, word;

	if (data + ETHERNET_LENGTH + sizeof(struct iphdr) + 4 > end || *(const u8 *)data & 1)
		return -1;
	if (likely(*(const u16 *)(data + 12) == bpf_htons(ETH_P_IPV6))) {
		if (!(sid->inner & SEGUE_INNER_IPV6) ||
		    returned_ipv6_fast(packet, data + ETHERNET_LENGTH, end, length, key))
			return -1;
		word = bpf_ntohl(*(const u32 *)(data + ETHERNET_LENGTH));
		payload->protocol = PROTOCOL_IPV6;
		payload->traffic_class = word >> 20;
		payload->flow_label = word & 0xfffff;
	} else {
		const struct iphdr *ip = data + ETHERNET_LENGTH;

		if (!(sid->inner & SEGUE_INNER_IPV4) || *(const u16 *)(data + 12) != bpf_htons(ETH_P_IP) ||
		    !ipv4_fast(packet, ip, end, length))
			return -1;
		payload->protocol = PROTOCOL_IPV4;
		payload->traffic_class = ip->tos;
		if (ipv4_fast_key(ip, end, key))
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
	void *data = buffer_start(packet->ctx);

	if (data + ETHERNET_LENGTH + sizeof(struct iphdr) > buffer_end(packet->ctx))
		return;
	if (payload->protocol == PROTOCOL_IPV6)
		((struct ipv6hdr *)(data + ETHERNET_LENGTH))->hop_limit--;
	else
		ipv4_decrement(data + ETHERNET_LENGTH);
}

/* End.AD with a memory by interface or by flow: back from the function. */
INLINE int dynamic_fast(struct packet *packet, const struct segue_sid *sid)
{
	const struct adjacency *adjacency;
	const struct segue_stash *entry;
	struct payload payload = {};
	u64 key[5] = {}, id = 0;

	if (returned_fast(packet, sid, &payload, key))
		return NOT_FAST;
	if (sid->memory == SEGUE_MEMORY_FLOW)
		entry = flow_cached(sid->scope, key, payload.flow, &id);
	else
		entry = memory_current(sid->scope, &id);
	if (unlikely(!entry))
		return NOT_FAST;
	adjacency = header_adjacency(packet, entry, payload.flow);
	if (unlikely(!adjacency || !adjacency_fits(packet, adjacency, payload.length + entry->length)))
		return NOT_FAST;
	packet->length = payload.length;
	if (unlikely((*(const u32 *)&entry->length & STASH_FAST_MASK) != STASH_FAST_SHAPE))
		return restore_on(packet, entry, id, &payload, sid->scope, adjacency, 1);
	returned_decrement(packet, &payload);
	return restore_fast(packet, entry, id, &payload, sid->scope, adjacency);
}

/* End.AS whose list has an SRH with one or two segments: back from the function. */
INLINE int static_fast(struct packet *packet, const struct segue_sid *sid)
{
	const struct segue_segment_list *list;
	const struct adjacency *adjacency;
	struct payload payload = {};
	u64 key[5] = {};
	u32 outcome, push;
	void *data;

	if (returned_fast(packet, sid, &payload, key))
		return NOT_FAST;
	list = policy_list(sid->policy, payload.flow);
	if (unlikely(!list))
		return NOT_FAST;
	push = list->header_length;
	if (unlikely((push != FAST_STEERING && push != FAST_REDUCED) || !(list->flags & SEGUE_LIST_HAS_SRH)))
		return NOT_FAST;
	adjacency = list_adjacency(packet, list, payload.flow);
	if (unlikely(!adjacency || !adjacency_fits(packet, adjacency, payload.length + push)))
		return NOT_FAST;
	packet->length = payload.length;
	returned_decrement(packet, &payload);
	if (push == FAST_REDUCED)
		data = wrap_fast(packet, list->header, FAST_REDUCED, outer_word(list, &payload), &payload, &outcome);
	else
		data = wrap_fast(packet, list->header, FAST_STEERING, outer_word(list, &payload), &payload, &outcome);
	if (!data)
		return drop(packet, outcome);
	ethernet_write(data, adjacency);
	count(packet, payload.counter);
	count(packet, list->counter);
	return transmit(packet, adjacency->ifindex, SEGUE_OUTCOME_forwarded);
}

#endif
