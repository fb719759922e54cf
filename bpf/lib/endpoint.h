/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet addressed to a SID of this node (RFC 8986 section 4). */
#ifndef SEGUE_ENDPOINT_H
#define SEGUE_ENDPOINT_H

#include "base.h"
#include "adjacency.h"
#include "decapsulation.h"
#include "encapsulation.h"
#include "headers.h"
#include "leave.h"
#include "outcome.h"
#include "proxy.h"

INLINE int is_decapsulating(u32 behaviour)
{
	return behaviour >= SEGUE_END_DX2 && behaviour <= SEGUE_END_DT46;
}

INLINE u32 outer_flow(const struct ipv6hdr *ip)
{
	const u64 *words = (const void *)ip;
	u64 mixed = (words[0] & 0xffff0f00) ^ words[1] ^ words[2];

	/* Traffic class and Payload Length are no part of a flow (RFC 8986 section 7). */
	return (mixed * 0x9e3779b97f4a7c15ULL) >> 40;
}

/*
 * Removes the SRH at `offset`: what lies in front of it moves up (RFC 8986 section 4.16.1). `previous` is the offset of
 * the Next Header octet that names the SRH.
 */
RARE int srh_remove(struct xdp_md *ctx, u32 offset, u32 previous)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	const struct srh *srh;
	u8 *next_header;
	u32 length, at;

	offset &= OFFSET_MASK;
	previous &= OFFSET_MASK;
	srh = data + offset;
	next_header = data + previous;
	if ((void *)(ip + 1) > end || (void *)(srh + 1) > end || (void *)(next_header + 1) > end)
		return -1;
	length = (srh->length + 1) * 8;
	*next_header = srh->next_header;
	ip->payload_len = bpf_htons(bpf_ntohs(ip->payload_len) - length);
	/* From the top down, so that nothing is overwritten before it has moved. Headers are multiples of 4 octets. */
	at = offset;
	for (int i = 0; i < 256; i++) {
		if (at < ETHERNET_LENGTH + 4)
			break;
		at -= 4;
		u32 from = at & OFFSET_MASK, to = (at + length) & OFFSET_MASK;

		if (data + from + 4 > end || data + to + 4 > end)
			return -1;
		*(u32 *)(data + to) = *(u32 *)(data + from);
	}
	if (at >= ETHERNET_LENGTH + 4)
		return -1;
	return bpf_xdp_adjust_head(ctx, length);
}

/* A packet through End, End.X or End.T that no link takes as it is: refused, too big, or for the kernel. 0: go on. */
INLINE int end_obstacle(const struct packet *packet, const struct segue_sid *sid, const struct adjacency *adjacency,
			int *action)
{
	u32 refusal;

	if (adjacency->kind == ADJACENCY_LINK) {
		*action = too_big(packet, 6, ETHERNET_LENGTH, adjacency->fits);
		return 1;
	}
	if (sid->behaviour == SEGUE_END_X) {
		*action = refuse_next_hop(packet, adjacency);
		return 1;
	}
	refusal = adjacency_refusal(adjacency);
	if (refusal) {
		*action = refuse(packet, refusal, 6, ETHERNET_LENGTH);
		return 1;
	}
	if (sid->table && adjacency->kind != ADJACENCY_SID) { /* the kernel would ask another table */
		*action = refuse_table(packet, adjacency, 6, ETHERNET_LENGTH);
		return 1;
	}
	return 0;
}

/*
 * What End, End.X and End.T do with the advanced packet. `ip` and `srh` lie within the frame; `sl` is Segments Left
 * after the decrement.
 */
INLINE int end_forward(const struct packet *packet, const struct segue_sid *sid, struct ipv6hdr *ip, struct srh *srh,
		       u32 offset, u32 previous, u32 limit, u32 sl, struct address next)
{
	u32 length = limit - ETHERNET_LENGTH, remove = sl == 0 && sid->flavours & SEGUE_PSP;
	const struct adjacency *adjacency;
	struct address towards = next;
	int action;

	if (unlikely(sid->behaviour == SEGUE_END_X))
		towards = address_load(sid->next_hop);
	adjacency = adjacency_find(packet, towards, sid->table, sid->oif, outer_flow(ip));
	if (unlikely(!adjacency))
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	if (remove)
		length -= (srh->length + 1) * 8;
	if (unlikely(!adjacency_fits(adjacency, length)) && end_obstacle(packet, sid, adjacency, &action))
		return action;
	srh->segments_left = sl;
	ip->hop_limit -= hops_used(adjacency);
	address_store(&ip->daddr, next);
	if (remove && srh_remove(packet->ctx, offset, previous))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	count(sid->counter, packet->length);
	return leave(packet, adjacency, bpf_htons(ETH_P_IPV6));
}

/* End.B6.Encaps, End.B6.Encaps.Red (RFC 8986 sections 4.13, 4.14): advanced first, then the policy's header in front.
 */
INLINE int end_b6(const struct packet *packet, const struct segue_sid *sid, const struct ipv6hdr *ip, u32 offset,
		  u32 limit, u32 sl, struct address next)
{
	const struct segue_segment_list *list;
	struct payload payload = {};
	u32 word;

	word = bpf_ntohl(*(const u32 *)ip);
	payload.offset = ETHERNET_LENGTH;
	payload.length = limit - ETHERNET_LENGTH;
	payload.flow = outer_flow(ip);
	payload.protocol = PROTOCOL_IPV6;
	payload.traffic_class = word >> 20;
	payload.flow_label = word & 0xfffff;
	payload.decrement = 1;
	list = policy_list(sid->policy, payload.flow);
	if (!list)
		return drop(packet, SEGUE_OUTCOME_drop_policy_invalid);
	payload.advance_srh = offset;
	payload.advance_sl = sl;
	payload.advance_to = next;
	payload.counter = sid->counter;
	return encapsulate(packet, list, &payload, list_adjacency(packet, list, payload.flow));
}

/* The inner packet leaves the SR domain, or goes on by its own destination. */
INLINE int end_decapsulate(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer)
{
	struct exit exit = {.table = sid->table};

	if (unlikely(outer->fragment))
		return drop(packet, SEGUE_OUTCOME_drop_fragment_at_decapsulation);
	if (outer->protocol == PROTOCOL_ETHERNET)
		return decapsulate_ethernet(packet, sid, outer, SEGUE_OUTCOME_forwarded);
	if (outer->protocol == PROTOCOL_IPV6 && (sid->behaviour == SEGUE_END_DX6 || sid->behaviour == SEGUE_END_X)) {
		exit.next_hop = address_load(sid->next_hop);
		exit.oif = sid->oif;
	} else if (sid->behaviour == SEGUE_END_DX4) {
		exit.next_hop.high = 0;
		exit.next_hop.low = sid->next_hop_ipv4;
		exit.oif = sid->oif;
	}
	return decapsulate_ip(packet, sid, outer, &exit);
}

/* Does this SID take the inner packet out? */
INLINE int takes_inner(const struct segue_sid *sid, u32 protocol)
{
	switch (sid->behaviour) {
	case SEGUE_END_DX2:
		return protocol == PROTOCOL_ETHERNET;
	case SEGUE_END_DX4:
	case SEGUE_END_DT4:
		return protocol == PROTOCOL_IPV4;
	case SEGUE_END_DX6:
	case SEGUE_END_DT6:
		return protocol == PROTOCOL_IPV6;
	case SEGUE_END_DT46:
		return protocol == PROTOCOL_IPV4 || protocol == PROTOCOL_IPV6;
	case SEGUE_END:
	case SEGUE_END_T:
		return sid->flavours & SEGUE_USD && (protocol == PROTOCOL_IPV4 || protocol == PROTOCOL_IPV6);
	case SEGUE_END_X:
		/* Its adjacency is an IPv6 next hop: inner IPv4 has no next hop there. */
		return sid->flavours & SEGUE_USD && protocol == PROTOCOL_IPV6;
	case SEGUE_END_AS:
		return !!(sid->inner & inner_type_of(protocol));
	}
	return 0;
}

/* Segments Left is 0 or there is no SRH: RFC 8986 section 4.1.1 and the decapsulating behaviours. */
INLINE int upper_layer(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer)
{
	struct scratch *scratch;

	if (likely(takes_inner(sid, outer->protocol))) {
		if (sid->behaviour == SEGUE_END_AS)
			return proxy_to_function(packet, sid, outer);
		return end_decapsulate(packet, sid, outer);
	}
	if (outer->protocol == PROTOCOL_ICMPV6 && sid->flags & SEGUE_SID_ALLOW_ICMPV6 && !outer->fragment) {
		void *data = (void *)(long)packet->ctx->data;
		void *end = (void *)(long)packet->ctx->data_end;
		u32 offset = outer->offset & OFFSET_MASK;
		const u8 *type = data + offset;

		if ((void *)(type + 8) > end || outer->offset + 8 > outer->limit)
			return drop(packet, SEGUE_OUTCOME_drop_truncated);
		if (*type != ICMPV6_ECHO_REQUEST)
			return pass(packet, SEGUE_OUTCOME_passed_upper_layer);
		scratch = scratch_get();
		if (scratch) {
			scratch->length = packet->length;
			scratch->counter = sid->counter;
			scratch->icmp_kind = SEGUE_ICMP_ECHO_REPLY;
			scratch->family = 6;
			scratch->l3 = ETHERNET_LENGTH;
			scratch->upper = offset;
			scratch->param = outer->limit;
			bpf_tail_call(packet->ctx, &stages, SEGUE_STAGE_ICMP);
		}
		return drop(packet, SEGUE_OUTCOME_drop_not_answered);
	}
	return parameter_problem(packet, SEGUE_OUTCOME_drop_upper_layer, ETHERNET_LENGTH,
				 ICMPV6_SR_UPPER_LAYER_HEADER_ERROR, outer->offset);
}

/* End.AS with segments left: the SRH is advanced in thought only, since it goes. */
INLINE int end_as(const struct packet *packet, const struct segue_sid *sid, struct ipv6hdr *ip, struct srh *srh,
		  u32 offset, u32 previous, struct outer *outer, u32 sl, struct address next)
{
	struct headers headers = {};

	outer->protocol = srh->next_header;
	outer->offset = offset + (srh->length + 1) * 8;
	outer->fragment = 0;
	if (unlikely(!takes_inner(sid, outer->protocol))) {
		headers_walk(packet->ctx, offset, outer->offset, outer->limit, &headers);
		if (headers.error && headers.error != SEGUE_OUTCOME_drop_routing_type)
			return drop(packet, headers.error);
		outer->protocol = headers.protocol;
		outer->offset = headers.upper;
		outer->fragment = headers.fragment;
		if (outer->fragment) /* its inner packet is not known: it must not slip past the function */
			return drop(packet, SEGUE_OUTCOME_drop_fragment_at_decapsulation);
		if (!takes_inner(sid, outer->protocol)) {
			if (sid->flags & SEGUE_SID_BYPASS_OTHER_TYPE)
				return end_forward(packet, sid, ip, srh, offset, previous, outer->limit, sl, next);
			return drop(packet, SEGUE_OUTCOME_drop_inner_type);
		}
	}
	return proxy_to_function(packet, sid, outer);
}

/* An SRH with Segments Left not 0 at `offset`: RFC 8986 section 4.1, S05 to S14, in its order. */
INLINE int segment_advance(const struct packet *packet, const struct segue_sid *sid, void *data, void *end,
			   struct ipv6hdr *ip, u32 offset, u32 previous, struct outer *outer)
{
	struct srh *srh = data + offset;
	const void *segment;
	struct address next;
	u32 sl;

	if ((void *)(srh + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	if (unlikely(offset + (srh->length + 1) * 8 > outer->limit))
		return drop(packet, SEGUE_OUTCOME_drop_bad_length);
	if (unlikely(is_decapsulating(sid->behaviour)))
		return parameter_problem(packet, SEGUE_OUTCOME_drop_segments_left, ETHERNET_LENGTH, 0, offset + 3);
	if (unlikely(ip->hop_limit <= 1))
		return time_exceeded(packet, 6, ETHERNET_LENGTH);
	/* max_LE is -1 for a header without room for a segment: every Last Entry is too large. */
	if (unlikely((s32)srh->last_entry > (s32)(srh->length / 2) - 1 || srh->segments_left > srh->last_entry + 1))
		return parameter_problem(packet, SEGUE_OUTCOME_drop_segments_left, ETHERNET_LENGTH, 0, offset + 3);
	sl = (srh->segments_left - 1) & 0xff;
	segment = data + offset + SRH_FIXED_LENGTH + sl * 16;
	if (unlikely(segment + 16 > end))
		return drop(packet, SEGUE_OUTCOME_drop_multi_buffer_header);
	next = address_load(segment);
	if (unlikely(!address_forwardable(next)))
		return drop(packet, SEGUE_OUTCOME_drop_bad_next_segment);
	switch (sid->behaviour) {
	case SEGUE_END:
	case SEGUE_END_X:
	case SEGUE_END_T:
		return end_forward(packet, sid, ip, srh, offset, previous, outer->limit, sl, next);
	case SEGUE_END_AS:
		return end_as(packet, sid, ip, srh, offset, previous, outer, sl, next);
	case SEGUE_END_B6_ENCAPS:
	case SEGUE_END_B6_ENCAPS_RED:
		return end_b6(packet, sid, ip, offset, outer->limit, sl, next);
	}
	return drop(packet, SEGUE_OUTCOME_drop_behaviour);
}

/*
 * A packet whose destination is a local SID. `ip` lies within the frame; `limit`: end of the packet by its Payload
 * Length, within `frame`.
 */
INLINE int endpoint(const struct packet *packet, const struct segue_sid *sid, void *data, void *end, struct ipv6hdr *ip,
		    u32 limit, u32 frame)
{
	u32 offset = ETHERNET_LENGTH + IPV6_LENGTH, previous = ETHERNET_LENGTH + 6;
	struct outer outer = {.limit = limit, .frame = frame};
	const struct srh *srh = data + offset;
	struct headers headers = {};

	outer.ecn = (((const u8 *)ip)[1] >> 4) & 3;
	/* The usual case, without a walk. */
	if (likely(ip->nexthdr == PROTOCOL_ROUTING && (void *)(srh + 1) <= end && offset + 8 <= limit &&
		   srh->type == ROUTING_TYPE_SRH && srh->segments_left))
		return segment_advance(packet, sid, data, end, ip, offset, previous, &outer);
	if (ip->nexthdr == PROTOCOL_IPV4 || ip->nexthdr == PROTOCOL_IPV6 || ip->nexthdr == PROTOCOL_ETHERNET) {
		outer.offset = offset;
		outer.protocol = ip->nexthdr;
		return upper_layer(packet, sid, &outer);
	}
	if (ip->nexthdr == PROTOCOL_ROUTING && (void *)(srh + 1) <= end && srh->type == ROUTING_TYPE_SRH &&
	    offset + (srh->length + 1) * 8 <= limit && takes_inner(sid, srh->next_header)) {
		outer.offset = offset + (srh->length + 1) * 8;
		outer.protocol = srh->next_header;
		return upper_layer(packet, sid, &outer);
	}
	headers_walk(packet->ctx, previous, offset, limit, &headers);
	if (headers.error == SEGUE_OUTCOME_drop_routing_type)
		return parameter_problem(packet, headers.error, ETHERNET_LENGTH, 0, headers.error_at);
	if (headers.error)
		return drop(packet, headers.error);
	if (!headers.srh) {
		outer.offset = headers.upper;
		outer.protocol = headers.protocol;
		outer.fragment = headers.fragment;
		return upper_layer(packet, sid, &outer);
	}
	data = (void *)(long)packet->ctx->data;
	end = (void *)(long)packet->ctx->data_end;
	ip = data + ETHERNET_LENGTH;
	if ((void *)(ip + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	return segment_advance(packet, sid, data, end, ip, headers.srh & OFFSET_MASK, headers.previous, &outer);
}

#endif
