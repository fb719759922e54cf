/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The fast path of functions behind labels, on XDP: the usual packet with a short stack to a static or dynamic
 * proxy, and back from there to a label that is swapped or popped here, without tail calls. All else is left to
 * lib/labels/function.h and lib/labels/back.h, with the packet unchanged.
 */
#ifndef SEGUE_LABELS_FUNCTION_FAST_H
#define SEGUE_LABELS_FUNCTION_FAST_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"
#include "lib/packet/inner.h"
#include "lib/packet/fast.h"
#include "lib/forward/adjacency.h"
#include "lib/access/encapsulation.h"
#include "lib/service/function.h"
#include "lib/header/labels.h"
#include "lib/proxy/memory.h"
#include "lib/proxy/fast.h"
#include "lib/labels/entry.h"
#include "lib/labels/leave.h"
#include "lib/labels/push.h"
#include "lib/labels/ecn.h"

/* Labels behind that of the function, or of a firewall. */
#define LABELS_FAST 4

/* A packet with the rest of a stack in front. */
struct label_fast {
	u32 at;	    /* offset of the rest */
	u32 length; /* of the rest, octets: at most 4 * LABELS_FAST */
	u32 inside; /* offset of the packet */
	u32 octets; /* of the packet */
};

/*
 * Is the rest of the stack the one that is remembered, but for what makes no difference: see labels_same()? `class`: of
 * the packet behind it, as in an entry in host byte order.
 */
INLINE int rest_fast(const struct segue_stash *entry, const void *data, const void *end, const struct label_fast *found,
		     u32 margin, u32 class)
{
	const u32 *known = (const u32 *)entry->header;
	u32 copy = entry->flags == SEGUE_STASH_TRAFFIC_CLASS_COPY, difference = 0, classes = 0, word, ttl;

	if ((entry->flags && !copy) || entry->hop_limit || entry->kind != SEGUE_HEADER_MPLS)
		return 0;
	for (u32 i = 0; i < LABELS_FAST; i++) {
		const u32 *at = data + found->at + i * ENTRY_LENGTH;

		if (i * ENTRY_LENGTH >= found->length)
			break;
		if ((const void *)(at + 1) > end)
			return 0;
		word = bpf_ntohl(*at) ^ bpf_ntohl(known[i]);
		/* What is remembered with the packet's own class has none in its entries. */
		if (copy)
			word ^= class;
		else
			classes |= (bpf_ntohl(known[i]) & ENTRY_CLASS) ^ class;
		if (!i) {
			ttl = ENTRY_TTL(bpf_ntohl(*at)) - ENTRY_TTL(bpf_ntohl(known[0]));
			difference |= ttl + margin - 1 > 2 * (margin - 1);
			word &= ~0xffU;
		}
		difference |= word;
	}
	/* Nothing behind the label is of the class 0. */
	if (!found->length)
		return copy == !class;
	return !difference && (copy || classes);
}

/*
 * Has the dynamic proxy the rest of the packet's stack in its memory, by interface or by flow? `word`: the packet
 * behind it. Asked before anything is changed: what is remembered is what comes back.
 */
INLINE int rest_known(const struct segue_sid *sid, const void *data, const void *end, const struct label_fast *found,
		      const u64 *word, u32 six)
{
	u32 class = (six ? bpf_ntohl((u32)word[0]) >> 25 & 7 : (u32)word[0] >> 13 & 7) << 9;
	const struct segue_stash *entry;
	u64 key[5] = {}, id = 0;

	if (sid->memory == SEGUE_MEMORY_FLOW) {
		if (six ? ipv6_fast_key(word, end, key) : ipv4_fast_key((const void *)word, end, key))
			return 0;
		entry = flow_cached(sid->scope, key, flow_hash(key), &id);
	} else {
		entry = memory_current(sid->scope, &id);
	}
	return entry && entry->length == found->length &&
	       rest_fast(entry, data, end, found, sid->hop_limit_margin ?: 1, class) && stash_still(entry, id);
}

/* To the node's own firewall, in a stage of its own. `index`: of its label. 1: done with `action`. */
INLINE int label_fast_firewall(const struct packet *packet, u32 index, const struct label_fast *found, int *action)
{
	struct scratch *scratch = scratch_get();

	if (unlikely(!scratch))
		return 0;
	scratch->label.index = index;
	scratch->label.inside = found->inside;
	scratch->label.octets = found->octets;
	stage(packet, SEGUE_STAGE_LABELS_FIREWALL);
	*action = drop(packet, SEGUE_OUTCOME_drop_recirculation);
	return 1;
}

/*
 * A packet to a function by a static or dynamic proxy, or to a firewall. `index`: of its label in `sid_entries`;
 * `bottom`: it is the last one. 1: done with `action`.
 */
INLINE int label_fast_function(struct packet *packet, const struct segue_sid *sid, u32 index, u32 bottom, int *action)
{
	u32 firewall = sid->behaviour == SEGUE_LABEL_FIREWALL;
	const struct function_link link = {.destination_mac = sid->mac, .source_mac = sid->source_mac};
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	struct label_fast found = {.at = ETHERNET_LENGTH + ENTRY_LENGTH};
	const u64 *word;
	u32 six;

	if (sid->flags & SEGUE_SID_DOWN ||
	    (!firewall && (!(sid->flags & SEGUE_SID_NEXT_HOP_MAC) || sid->memory > SEGUE_MEMORY_FLOW)) ||
	    packet->port->config_flags &
		    (SEGUE_CONFIG_TTL_UNIFORM | SEGUE_CONFIG_MANY_BLOCKS | SEGUE_CONFIG_PSEUDOWIRES))
		return 0;
	/* The end of the stack, which what is remembered must then have at the same place. */
	found.inside = found.at;
	for (u32 i = 0; i < LABELS_FAST && !bottom; i++) {
		const u8 *octet = data + found.inside;

		if ((const void *)(octet + ENTRY_LENGTH) > end)
			return 0;
		if (entry_indicates(*(const u32 *)octet) && !firewall) /* nothing is remembered of that one's stack */
			return 0;
		bottom = octet[2] & 1;
		found.inside += ENTRY_LENGTH;
	}
	if (!bottom || data + found.inside + IPV6_LENGTH > end)
		return 0;
	found.length = found.inside - found.at;
	found.octets = packet->length + ETHERNET_LENGTH - found.inside;
	if (!firewall && found.octets > sid->function_mtu)
		return 0;
	word = data + found.inside;
	six = (word[0] & WORD_VERSION) == 0x60;
	if (six ? !(sid->inner & SEGUE_INNER_IPV6) || !inner_ipv6_fast(packet, word, found.octets, word[0])
		: !(sid->inner & SEGUE_INNER_IPV4) ||
			    !inner_ipv4_fast(data + found.inside, end, found.octets, (word[0] >> 8 & 3) << 12))
		return 0;
	if (firewall)
		return label_fast_firewall(packet, index, &found, action);
	if (sid->behaviour == SEGUE_LABEL_DYNAMIC && unlikely(!rest_known(sid, data, end, &found, word, six)))
		return 0;
	if (buffer_adjust_head(packet->ctx, found.inside - ETHERNET_LENGTH))
		*action = drop(packet, SEGUE_OUTCOME_drop_adjust);
	else
		*action = function_deliver(packet, sid, &link, six ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP), 0);
	return 1;
}

/* What goes on again in front of a packet that comes back. */
struct rest_again {
	const u32 *words;
	const struct segue_stash *entry; /* or NULL: of a list */
	u64 id;
	u32 length; /* octets */
	u32 fill;   /* TC and TTL, in packet order, of each entry */
	u32 counter;
};

/* Finds it. 0: it is a short one. */
INLINE int rest_again_find(const struct packet *packet, const struct segue_sid *sid, const struct payload *payload,
			   const u64 *key, struct rest_again *rest)
{
	const struct segue_segment_list *list;

	rest->counter = SEGUE_NONE;
	if (sid->behaviour == SEGUE_LABEL_DYNAMIC) {
		if (sid->memory == SEGUE_MEMORY_FLOW)
			rest->entry = flow_cached(sid->scope, key, payload->flow, &rest->id);
		else
			rest->entry = memory_current(sid->scope, &rest->id);
		if (!rest->entry || rest->entry->flags & ~SEGUE_STASH_TRAFFIC_CLASS_COPY)
			return -1;
		rest->words = (const u32 *)rest->entry->header;
		rest->length = rest->entry->length;
		if (rest->entry->flags)
			rest->fill = class_fill(packet, payload->traffic_class);
		else if (labels_have_ecn(packet) && (payload->traffic_class & 3) == ECN_CE)
			return -1; /* each entry has a mark of its own */
	} else {
		if (sid->policy == SEGUE_NONE)
			return -1;
		list = policy_list(sid->policy, payload->flow);
		if (!list || list->mode != SEGUE_PUSH || list->flags & (SEGUE_LIST_TTL_UNIFORM | SEGUE_LIST_ENTROPY))
			return -1;
		rest->words = (const u32 *)list->header;
		rest->length = list->header_length;
		rest->fill = labels_fill(packet, list, payload->traffic_class, 0);
		rest->counter = list->counter;
	}
	return rest->length && rest->length <= LABELS_FAST * ENTRY_LENGTH ? 0 : -1;
}

/* Writes it from the label numbered `first` on, at `to`. 0: done. */
INLINE int rest_again_write(u32 *to, const void *end, const struct rest_again *rest, u32 first)
{
	for (u32 i = 0; i < LABELS_FAST; i++) {
		if ((i + first) * ENTRY_LENGTH >= rest->length)
			break;
		if ((const void *)(to + i + 1) > end)
			return -1;
		to[i] = rest->words[i + first] | rest->fill;
	}
	return 0;
}

/* Back from a function behind a label, and on by the next label, which is one of this node's: or NOT_FAST. */
INLINE int label_fast_back(struct packet *packet, const struct segue_sid *sid)
{
	const struct adjacency *adjacency;
	const struct segue_sid *next;
	struct payload payload = {};
	struct rest_again rest = {};
	u64 key[5] = {};
	u32 word, index, pop;
	void *data, *end;

	if (packet->port->config_flags & SEGUE_CONFIG_TTL_UNIFORM || returned_fast(packet, sid, &payload, key) ||
	    rest_again_find(packet, sid, &payload, key, &rest))
		return NOT_FAST;
	word = bpf_ntohl(rest.words[0] | rest.fill);
	next = label_find(packet->epoch, ENTRY_LABEL(word), &index);
	if (unlikely(!next || ENTRY_TTL(word) <= 1))
		return NOT_FAST;
	pop = next->behaviour == SEGUE_LABEL_POP;
	if (unlikely(next->table)) /* several paths, or a table: the stage's */
		return NOT_FAST;
	if (pop ? word & ENTRY_BOTTOM : next->behaviour != SEGUE_LABEL_SWAP || next->flags & SEGUE_SID_EXPLICIT_NULL)
		return NOT_FAST;
	adjacency = label_adjacency(packet, next, ADJACENCY_INSIDE);
	if (unlikely(!adjacency ||
		     !adjacency_fits(packet, adjacency, payload.length + rest.length - pop * ENTRY_LENGTH)))
		return NOT_FAST;
	packet->length = payload.length;
	returned_decrement(packet, &payload);
	if (buffer_adjust_head(packet->ctx, -(int)(rest.length - pop * ENTRY_LENGTH)))
		return drop(packet, SEGUE_OUTCOME_drop_no_headroom);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (data + ETHERNET_LENGTH + ENTRY_LENGTH > end || rest_again_write(data + ETHERNET_LENGTH, end, &rest, pop))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (unlikely(rest.entry && !stash_still(rest.entry, rest.id))) {
		memory_count(sid->scope, MEMORY_OVERWRITTEN);
		return drop(packet, SEGUE_OUTCOME_drop_header_forgotten);
	}
	if (!pop)
		entry_store(data + ETHERNET_LENGTH,
			    next->out_label << 12 | (word & ENTRY_CLASS_AND_BOTTOM) | (ENTRY_TTL(word) - 1));
	count(packet, payload.counter);
	count(packet, rest.counter);
	packet->length += rest.length;
	count(packet, next->counter);
	return labels_leave(packet, adjacency);
}

#endif
