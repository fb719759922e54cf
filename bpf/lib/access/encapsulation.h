/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Puts a steering header on: H.Encaps, H.Encaps.Red, their L2 forms and H.Insert (RFC 8986 section 5). */
#ifndef SEGUE_ACCESS_ENCAPSULATION_H
#define SEGUE_ACCESS_ENCAPSULATION_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"
#include "lib/packet/inner.h"
#include "lib/header/advance.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/leave.h"
#include "lib/forward/obstacle.h"

/* What is to be wrapped. */
struct payload {
	u32 offset;	  /* first octet of the inner packet (IP: its header, Ethernet: 0) */
	u32 length;	  /* octets */
	u32 flow;	  /* hash of the inner flow */
	u8 protocol;	  /* PROTOCOL_IPV4, PROTOCOL_IPV6, PROTOCOL_ETHERNET, PROTOCOL_MPLS */
	u8 traffic_class; /* of the inner packet; 0 for Ethernet */
	u8 decrement;	  /* lower the inner hop limit or TTL by one (RFC 8986 section 5.1 S05) */
	u32 flow_label;	  /* of the inner IPv6 header; else 0 */
	u32 counter;	  /* row of the SID or rule that led here: counted with the list's once all has gone well */
	/* End.B6.*: the inner packet itself, once nothing can go wrong any more. ADVANCE_NOT: no. */
	struct advance advance;
};

/* The list that this flow takes in the policy: its index, or SEGUE_NONE. */
INLINE u32 policy_list_index(u32 index, u32 flow)
{
	const struct segue_policy *policy = bpf_map_lookup_elem(&policies, &index);

	if (!policy || policy->lists == 0)
		return SEGUE_NONE;
	return policy->list[policy->bucket[flow & (SEGUE_POLICY_BUCKETS - 1)] & 15];
}

/* The same: the list, or NULL. */
INLINE const struct segue_segment_list *policy_list(u32 index, u32 flow)
{
	u32 list = policy_list_index(index, flow);

	return bpf_map_lookup_elem(&segment_lists, &list);
}

/* Copies `header` of a list in front: 40 octets, then the SRH in units of 8 + 16 n. */
INLINE int template_copy(void *to, void *end, const struct segue_segment_list *list)
{
	const u64 *from = (const u64 *)list->header;
	u64 *word = to;
	u32 segments;

	if (to + IPV6_LENGTH > end)
		return -1;
	word[0] = from[0];
	word[1] = from[1];
	word[2] = from[2];
	word[3] = from[3];
	word[4] = from[4];
	if (list->header_length <= IPV6_LENGTH)
		return 0;
	if (to + IPV6_LENGTH + SRH_FIXED_LENGTH > end)
		return -1;
	word[5] = from[5];
	/* One or two segments in the SRH: the commonest, and without a loop. */
	if (to + IPV6_LENGTH + SRH_FIXED_LENGTH + 16 > end)
		return -1;
	word[6] = from[6];
	word[7] = from[7];
	if (list->header_length == IPV6_LENGTH + SRH_FIXED_LENGTH + 16)
		return 0;
	if (likely(list->header_length == IPV6_LENGTH + SRH_FIXED_LENGTH + 32)) {
		if (to + IPV6_LENGTH + SRH_FIXED_LENGTH + 32 > end)
			return -1;
		word[8] = from[8];
		word[9] = from[9];
		return 0;
	}
	segments = (list->header_length - IPV6_LENGTH - SRH_FIXED_LENGTH) / 16;
	for (int i = 0; i < SEGUE_SEGMENTS_MAX; i++) {
		if (i >= segments)
			break;
		if ((void *)(word + 6 + 2 * i + 2) > end)
			return -1;
		word[6 + 2 * i] = from[6 + 2 * i];
		word[7 + 2 * i] = from[7 + 2 * i];
	}
	return 0;
}

INLINE u32 outer_word(const struct segue_segment_list *list, const struct payload *payload)
{
	u32 traffic_class = payload->traffic_class;
	u32 label = payload->flow & 0xfffff;

	if (!(list->flags & SEGUE_LIST_TRAFFIC_CLASS_COPY))
		traffic_class = list->traffic_class | (traffic_class & 3);
	if (list->flags & SEGUE_LIST_FLOW_LABEL_COPY && payload->flow_label)
		label = payload->flow_label;
	if (!label)
		label = 1;
	return bpf_htonl(6U << 28 | traffic_class << 20 | label);
}

/* The way to a list's first segment. */
INLINE const struct adjacency *list_adjacency(const struct packet *packet, const struct segue_segment_list *list,
					      u32 flow)
{
	return adjacency_find(packet, address_load(list->first), list->way, list->oif | ADJACENCY_INSIDE, flow);
}

/* Octets that all nodes of a list's path let pass, as far as is known. */
INLINE u32 list_limit(const struct segue_segment_list *list)
{
	/* Without a branch: 0 is 65,536. */
	return (u16)(list->mtu - 1) + 1;
}

/* Is the way to a list's first segment a link, and does a packet of `length` octets fit it and all of the path? */
INLINE int list_fits(const struct packet *packet, const struct adjacency *adjacency,
		     const struct segue_segment_list *list, u32 length)
{
	u32 longest = packet_longest(packet, length);

	return longest <= adjacency->fits && longest <= list_limit(list);
}

/* How a wrapped packet is to be sent: errors are about what is in it. */
INLINE struct sending wrapped(const struct payload *payload, u32 push)
{
	return (struct sending){
		.family = payload->protocol == PROTOCOL_ETHERNET ? 0
			  : payload->protocol == PROTOCOL_IPV4	 ? 4
								 : 6,
		.l3 = payload->offset,
		.push = push,
	};
}

/*
 * What stands against sending a packet into a list, which does not fit, or whose first segment is behind no link: here
 * it may be that of this node, and the narrow link behind it. As obstacle().
 */
INLINE int list_obstacle(const struct packet *packet, const struct adjacency *adjacency,
			 const struct segue_segment_list *list, const struct sending *sending, u32 length, int *action)
{
	u32 limit = list_limit(list);

	if (sending->family && packet_longest(packet, length) > limit &&
	    !(adjacency->kind == ADJACENCY_LINK && adjacency->fits < limit)) {
		*action = too_big(packet, sending->family, sending->l3, limit - sending->push);
		return 1;
	}
	return obstacle(packet, adjacency, sending, action);
}

/* Writes the list's header into the room in front of the packet. 0: done. */
INLINE int encapsulation_write(void *data, void *end, const struct segue_segment_list *list,
			       const struct payload *payload)
{
	u8 *octet = data + ETHERNET_LENGTH;

	if (template_copy(octet, end, list))
		return -1;
	if ((void *)octet + IPV6_LENGTH + SRH_FIXED_LENGTH > end)
		return -1;
	*(u32 *)octet = outer_word(list, payload);
	*(u16 *)(octet + 4) = payload_length(list->header_length - IPV6_LENGTH + payload->length);
	if (list->flags & SEGUE_LIST_HAS_SRH)
		octet[IPV6_LENGTH] = payload->protocol;
	else
		octet[6] = payload->protocol;
	return 0;
}

/* The packet is unchanged so far. Ends it. */
INLINE int encapsulate(const struct packet *packet, const struct segue_segment_list *list,
		       const struct payload *payload, const struct adjacency *adjacency)
{
	u32 family = payload->protocol == PROTOCOL_IPV4 ? 4 : 6;
	u32 push = list->header_length;
	struct sending sending = wrapped(payload, push);
	int by_link, action;
	void *data, *end;
	u8 *octet;

	if (unlikely(!adjacency))
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	by_link = list_fits(packet, adjacency, list, payload->length + push);
	if (unlikely(!by_link) && list_obstacle(packet, adjacency, list, &sending, payload->length + push, &action))
		return action;
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (payload->decrement) {
		if (data + ETHERNET_LENGTH + IPV6_LENGTH <= end && family == 6)
			((struct ipv6hdr *)(data + ETHERNET_LENGTH))->hop_limit--;
		else if (data + ETHERNET_LENGTH + sizeof(struct iphdr) <= end && family == 4)
			ipv4_decrement(data + ETHERNET_LENGTH);
	}
	if (payload->advance.kind != ADVANCE_NOT) {
		struct srh *srh = data + (payload->advance.header & OFFSET_MASK);

		if ((void *)(srh + 1) <= end && data + ETHERNET_LENGTH + IPV6_LENGTH <= end)
			advance_write(&payload->advance, data + ETHERNET_LENGTH, srh);
	}
	if (payload->protocol == PROTOCOL_ETHERNET ? buffer_wrap_frame(packet->ctx, push + ETHERNET_LENGTH)
						   : buffer_encapsulate(packet->ctx, push))
		return drop(packet, buffer_refusal(packet->ctx, SEGUE_OUTCOME_drop_no_headroom));
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (encapsulation_write(data, end, list, payload))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	count(packet, payload->counter);
	count(packet, list->counter);
	if (likely(by_link))
		return leave_by_link(packet, adjacency);
	octet = data + ETHERNET_LENGTH;
	if ((void *)octet + IPV6_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	/* The kernel will lower the outer hop limit when it forwards. */
	if (!hops_used(adjacency) && octet[7] != 255)
		octet[7]++;
	return leave(packet, adjacency, bpf_htons(ETH_P_IPV6));
}

/* Copies `segments` of a list behind the slot at `word`. 0: done. */
INLINE int insert_segments(u64 *word, const void *end, const u64 *from, u32 segments)
{
	for (int i = 1; i <= SEGUE_SEGMENTS_MAX; i++) {
		if (i > segments)
			break;
		if ((void *)(word + 2 * i + 2) > end)
			return -1;
		word[2 * i] = from[2 * i + 1];
		word[2 * i + 1] = from[2 * i + 2];
	}
	return 0;
}

/*
 * H.Insert: an SRH right behind the packet's own IPv6 header, the original destination in Segment List[0]. Not for
 * packets that begin with a hop-by-hop header, which must stay there (RFC 8200 section 4.3).
 */
INLINE int insert(const struct packet *packet, const struct segue_segment_list *list, const struct payload *payload,
		  const struct adjacency *adjacency)
{
	const u64 *from = (const u64 *)list->header;
	u32 push = list->header_length;
	struct sending sending = wrapped(payload, push);
	struct address destination;
	u64 moved[5], *word;
	void *data, *end;
	u8 *octet;
	int action;

	if (payload->protocol != PROTOCOL_IPV6)
		return drop(packet, SEGUE_OUTCOME_drop_inner_type);
	if (unlikely(!adjacency))
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	if (unlikely(!list_fits(packet, adjacency, list, payload->length + push)) &&
	    list_obstacle(packet, adjacency, list, &sending, payload->length + push, &action))
		return action;
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (data + ETHERNET_LENGTH + IPV6_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	octet = data + ETHERNET_LENGTH;
	if (octet[6] == PROTOCOL_HOP_BY_HOP)
		return drop(packet, SEGUE_OUTCOME_drop_inner_type);
	word = (u64 *)octet;
	for (int i = 0; i < 5; i++)
		moved[i] = word[i];
	if (buffer_adjust_head(packet->ctx, -(int)push))
		return drop(packet, buffer_refusal(packet->ctx, SEGUE_OUTCOME_drop_no_headroom));
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	octet = data + ETHERNET_LENGTH;
	if (data + ETHERNET_LENGTH + IPV6_LENGTH + SRH_FIXED_LENGTH + 16 > end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	word = (u64 *)octet;
	for (int i = 0; i < 5; i++)
		word[i] = moved[i];
	destination = address_load(octet + 24);
	octet += IPV6_LENGTH;
	*(u64 *)octet = from[0];
	word = (u64 *)(octet + SRH_FIXED_LENGTH);
	address_store(word, destination);
	/* Slot 0 is the original destination; the list's own segments follow. Two: the commonest, and without a loop.
	 */
	if (likely(list->segments == 2)) {
		if ((void *)(word + 6) > end)
			return drop(packet, SEGUE_OUTCOME_drop_adjust);
		word[2] = from[3];
		word[3] = from[4];
		word[4] = from[5];
		word[5] = from[6];
	} else if (insert_segments(word, end, from, list->segments)) {
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	}
	octet -= IPV6_LENGTH;
	octet[IPV6_LENGTH] = octet[6];
	octet[6] = PROTOCOL_ROUTING;
	*(u16 *)(octet + 4) = payload_length(bpf_ntohs(*(u16 *)(octet + 4)) + push);
	octet[7] -= hops_used(adjacency);
	address_store(octet + 24, address_load(list->first));
	count(packet, payload->counter);
	count(packet, list->counter);
	return leave(packet, adjacency, bpf_htons(ETH_P_IPV6));
}

#endif
