/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * PUSH (RFC 8660 section 2.7): a packet from outside into a policy whose list is a stack of labels. Or one in an SRv6
 * header that has come to the SID of such a policy: End.BM (RFC 8986 section 4.15).
 */
#ifndef SEGUE_LABELS_PUSH_H
#define SEGUE_LABELS_PUSH_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/packet/inner.h"
#include "lib/access/encapsulation.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/obstacle.h"
#include "lib/labels/leave.h"
#include "lib/packet/cut.h"
#include "lib/labels/ecn.h"

/* The entry of a list of `length` octets that ends it. NULL: it does not lie in the frame. */
INLINE u32 *labels_last(void *to, const void *end, u32 length)
{
	void *last = to - ENTRY_LENGTH + (length & 0xfc);

	return last + ENTRY_LENGTH <= end ? last : NULL;
}

/*
 * The list's entries in front of a packet of the flow, with `fill`, TC and TTL in packet order, in each: two at a time.
 * 0: done.
 */
INLINE int labels_write(void *to, const void *end, const struct segue_segment_list *list, u32 fill, u32 flow)
{
	void *start = to;
	u32 *last;

	const void *from = list->header;
	u32 odd = list->segments & 1, pairs = list->segments >> 1;
	u64 both = fill | (u64)fill << 32;

	if (odd) {
		if (to + ENTRY_LENGTH > end)
			return -1;
		*(u32 *)to = *(const u32 *)from | fill;
		to += ENTRY_LENGTH;
		from += ENTRY_LENGTH;
	}
	for (u32 i = 0; i < SEGUE_LABELS_MAX / 2; i++) {
		if (i >= pairs)
			break;
		if (to + (i + 1) * 2 * ENTRY_LENGTH > end)
			return -1;
		((u64 *)to)[i] = ((const u64 *)from)[i] | both;
	}
	if (likely(!(list->flags & SEGUE_LIST_ENTROPY)))
		return 0;
	last = labels_last(start, end, list->header_length);
	if (!last)
		return -1;
	*last = bpf_htonl(entropy_entry(flow) | ENTRY_BOTTOM) | (fill & bpf_htonl(ENTRY_CLASS));
	return 0;
}

/* TC and TTL of the entries to push. `traffic_class` with ECN, `ttl`: of the inner packet, after it was lowered. */
INLINE u32 labels_fill(const struct packet *packet, const struct segue_segment_list *list, u32 traffic_class, u32 ttl)
{
	if (!(list->flags & SEGUE_LIST_TRAFFIC_CLASS_COPY))
		traffic_class = list->traffic_class | (traffic_class & 3);
	if (!(list->flags & SEGUE_LIST_TTL_UNIFORM))
		ttl = list->ttl;
	return class_fill(packet, traffic_class) | bpf_htonl(ttl);
}

/*
 * The way of the packet with its labels. NULL: there is none, and it has ended with `action`. Not asked where the first
 * label is this node's own: what that one says finds the way, and what stands against it.
 */
INLINE const struct adjacency *push_way(const struct packet *packet, const struct segue_segment_list *list,
					const struct push_order *order, const struct payload *payload, int *action)
{
	const struct adjacency *adjacency = list_adjacency(packet, list, order->flow);
	struct sending sending = wrapped(payload, list->header_length & 0xff);

	if (unlikely(!adjacency)) {
		*action = drop(packet, SEGUE_OUTCOME_drop_no_route);
		return NULL;
	}
	sending.table = 1; /* the kernel knows nothing of labels */
	if (unlikely(!adjacency_fits(packet, adjacency, payload->length + sending.push)) &&
	    obstacle(packet, adjacency, &sending, action))
		return NULL;
	return adjacency;
}

/* Hop limit or TTL of the packet right behind the Ethernet header less one. What it is then; 0: it is not there. */
INLINE u32 packet_decrement(const struct packet *packet, u32 family)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);

	if (family == 6) {
		struct ipv6hdr *ip = data + ETHERNET_LENGTH;

		return (void *)(ip + 1) <= end ? --ip->hop_limit : 0;
	}
	if (data + ETHERNET_LENGTH + sizeof(struct iphdr) > end)
		return 0;
	ipv4_decrement(data + ETHERNET_LENGTH);
	return ((struct iphdr *)(data + ETHERNET_LENGTH))->ttl;
}

/* What the packet itself says of having come this far: packet_decrement(), and its next segment. */
INLINE u32 push_count(const struct packet *packet, const struct payload *payload)
{
	u32 ttl = packet_decrement(packet, payload->protocol == PROTOCOL_IPV6 ? 6 : 4);
	void *data, *end, *srh;

	if (likely(ttl) && payload->advance.kind != ADVANCE_NOT) {
		data = buffer_start(packet->ctx);
		end = buffer_end(packet->ctx);
		srh = data + (payload->advance.header & OFFSET_MASK);
		if (srh + sizeof(struct srh) <= end && data + ETHERNET_LENGTH + IPV6_LENGTH <= end)
			advance_write(&payload->advance, data + ETHERNET_LENGTH, srh);
	}
	return ttl;
}

/*
 * Lowers the TTL or hop limit of a packet that fits its way, puts the labels on, and sends it. `adjacency` NULL: the
 * first label is the node's own, and the packet goes on by its labels here.
 */
INLINE int push_on(const struct packet *packet, const struct segue_segment_list *list, const struct payload *payload,
		   const struct adjacency *adjacency)
{
	u32 ttl = push_count(packet, payload), fill;
	void *data, *end;

	if (unlikely(!ttl))
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	fill = labels_fill(packet, list, payload->traffic_class, ttl);
	if (likely(adjacency) ? labels_room(packet->ctx, list->header_length & 0xff)
			      : labels_on(packet->ctx, list->header_length & 0xff))
		return drop(packet, SEGUE_OUTCOME_drop_no_headroom);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (labels_write(data + ETHERNET_LENGTH, end, list, fill, payload->flow))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	count(packet, payload->counter);
	count(packet, list->counter);
	return likely(adjacency) ? labels_leave(packet, adjacency) : labels_here(packet);
}

/* What an order says of the packet. */
INLINE struct payload push_payload(const struct push_order *order)
{
	return (struct payload){.offset = ETHERNET_LENGTH,
				.length = order->length,
				.counter = order->counter,
				.flow = order->flow,
				.traffic_class = order->traffic_class,
				.protocol = order->family == 4 ? PROTOCOL_IPV4 : PROTOCOL_IPV6,
				.advance = order->advance};
}

/* The stage: any list, and any packet. */
INLINE int labels_push(struct packet *packet, const struct push_order *order)
{
	struct payload payload = push_payload(order);
	const struct segue_segment_list *list;
	const struct adjacency *adjacency = NULL;
	u32 index = order->list;
	int action;

	packet->length = order->length;
	list = bpf_map_lookup_elem(&segment_lists, &index);
	if (unlikely(!list || list->mode != SEGUE_PUSH))
		return drop(packet, SEGUE_OUTCOME_drop_policy_invalid);
	if (unlikely(packet_cut(packet, order->advance.kind == ADVANCE_NOT ? SEGUE_STAGE_ACCESS : SEGUE_STAGE_AGAIN,
				&action)))
		return action;
	if (unlikely(list->flags & SEGUE_LIST_UDP)) {
		stage(packet, SEGUE_STAGE_LABELS_UDP_PUSH);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	}
	if (likely(!(list->flags & SEGUE_LIST_LOCAL))) {
		adjacency = push_way(packet, list, order, &payload, &action);
		if (unlikely(!adjacency))
			return action;
	}
	return push_on(packet, list, &payload, adjacency);
}

#endif
