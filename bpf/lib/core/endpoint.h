/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet addressed to a SID of this node (RFC 8986 section 4). */
#ifndef SEGUE_CORE_ENDPOINT_H
#define SEGUE_CORE_ENDPOINT_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/behaviour.h"
#include "lib/base/config.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/packet/headers.h"
#include "lib/header/advance.h"
#include "lib/header/srv6.h"
#include "lib/core/advance.h"
#include "lib/core/decapsulation.h"
#include "lib/access/encapsulation.h"
#include "lib/service/function.h"
#include "lib/proxy/take_off.h"
#include "lib/proxy/masquerade.h"
#include "lib/proxy/aware.h"
#include "lib/firewall/filter.h"
#include "lib/labels/leave.h"
#include "lib/labels/ecn.h"

/* End.B6.Encaps, End.B6.Encaps.Red (RFC 8986 sections 4.13, 4.14): advanced first, then the policy's header in front.
 */
INLINE int end_b6(const struct packet *packet, const struct segue_sid *sid, const struct ipv6hdr *ip, u32 limit,
		  const struct advance *advance)
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
	payload.advance = *advance;
	payload.counter = sid->counter;
	return encapsulate(packet, list, &payload, list_adjacency(packet, list, payload.flow));
}

/*
 * End.BM (RFC 8986 section 4.15): advanced, then the policy's labels in front, which is done in a stage of its own. In
 * segue_again only.
 */
INLINE int end_bm(const struct packet *packet, const struct segue_sid *sid, const struct ipv6hdr *ip, u32 limit,
		  const struct advance *advance)
{
	struct scratch *scratch = scratch_get();
	u32 flow = outer_flow(ip);

	if (!packet_recirculated(packet))
		hand_on(packet, 0);
	if (!packet_recirculated(packet) || !scratch)
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	scratch->push.list = policy_list_index(sid->policy, flow);
	scratch->push.counter = sid->counter;
	scratch->push.flow = flow;
	scratch->push.length = limit - ETHERNET_LENGTH;
	scratch->push.family = 6;
	scratch->push.traffic_class = bpf_ntohl(*(const u32 *)ip) >> 20 & 0xff;
	scratch->push.advance = *advance;
	stage(packet, SEGUE_STAGE_LABELS_PUSH);
	return drop(packet, SEGUE_OUTCOME_drop_recirculation);
}

/* End.DTM: a packet with labels is in it, which goes on by these. In segue_again only. */
INLINE int end_dtm(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer)
{
	if (!packet_recirculated(packet)) {
		hand_on(packet, 0);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	}
	if (unlikely(labels_of_segments(packet->ctx)))
		return drop(packet, SEGUE_OUTCOME_drop_offload);
	if (labels_have_ecn(packet) && unlikely(outer->ecn == ECN_CE) &&
	    labels_settle(packet->ctx, packet->generation, outer->offset, 1, ENTRY_LENGTH))
		return drop(packet, SEGUE_OUTCOME_drop_ecn_not_capable);
	if (outer->frame > outer->limit && buffer_adjust_tail(packet->ctx, -(int)(outer->frame - outer->limit)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (labels_off(packet->ctx, (outer->offset - ETHERNET_LENGTH) & OFFSET_MASK, bpf_htons(ETH_P_MPLS_UC)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	count(packet, sid->counter);
	return labels_here(packet);
}

/* The inner packet leaves the SR domain, or goes on by its own destination. */
INLINE int end_decapsulate(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer)
{
	struct exit exit = {.table = sid->table};

	if (unlikely(outer->fragment))
		return drop(packet, SEGUE_OUTCOME_drop_fragment_at_decapsulation);
	if (outer->protocol == PROTOCOL_ETHERNET)
		return decapsulate_ethernet(packet, sid, outer, SEGUE_OUTCOME_forwarded);
	if (outer->protocol == PROTOCOL_MPLS)
		return end_dtm(packet, sid, outer);
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
	case SEGUE_END_DTM:
		return protocol == PROTOCOL_MPLS;
	case SEGUE_END:
	case SEGUE_END_T:
		return sid->flavours & SEGUE_USD && (protocol == PROTOCOL_IPV4 || protocol == PROTOCOL_IPV6);
	case SEGUE_END_X:
		/* Its adjacency is an IPv6 next hop: inner IPv4 has no next hop there. */
		return sid->flavours & SEGUE_USD && protocol == PROTOCOL_IPV6;
	case SEGUE_END_AS:
	case SEGUE_END_AD:
	case SEGUE_END_AN_NF:
		return !!(sid->inner & inner_type_of(protocol));
	}
	return 0;
}

/* The function of a static proxy is down, and the SID is the last segment: there is none to go on to. */
INLINE int function_dead_last(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;

	if ((void *)(ip + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	if (sid->failure == SEGUE_FAILURE_REROUTE &&
	    !(ip->nexthdr == PROTOCOL_ROUTING && function_rerouted(ip, (void *)(ip + 1) + SRH_FIXED_LENGTH, end)))
		return function_reroute(packet, sid, ip, outer->limit - ETHERNET_LENGTH);
	return drop(packet, SEGUE_OUTCOME_drop_function_down);
}

/* The last segment, with an inner packet that the SID takes. */
INLINE int inner_taken(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer)
{
	if (unlikely(functions_here && sid->flags & SEGUE_SID_DOWN))
		return function_dead_last(packet, sid, outer);
	if (functions_here && sid->behaviour == SEGUE_END_AS)
		return proxy_to_function(packet, sid, outer, &(struct advance){});
	return end_decapsulate(packet, sid, outer);
}

/* Segments Left is 0 or there is no SRH: RFC 8986 section 4.1.1 and the decapsulating behaviours. */
INLINE int upper_layer(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer)
{
	struct scratch *scratch;

	if (likely(takes_inner(sid, outer->protocol) && !behaviour_needs_next(sid->behaviour)))
		return inner_taken(packet, sid, outer);
	if (outer->protocol == PROTOCOL_ICMPV6 && sid->flags & SEGUE_SID_ALLOW_ICMPV6 && !outer->fragment) {
		void *data = buffer_start(packet->ctx);
		void *end = buffer_end(packet->ctx);
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
			stage(packet, SEGUE_STAGE_ICMP);
		}
		return drop(packet, SEGUE_OUTCOME_drop_not_answered);
	}
	return parameter_problem(packet, SEGUE_OUTCOME_drop_upper_layer, ETHERNET_LENGTH,
				 ICMPV6_SR_UPPER_LAYER_HEADER_ERROR, outer->offset);
}

/* What only segue_proxy does: flows and packets as memory, SR-aware functions. */
INLINE int proxy_elsewhere(const struct segue_sid *sid)
{
	return sid->memory >= SEGUE_MEMORY_FLOW || sid->behaviour == SEGUE_END_AN;
}

/* A proxy with segments left. `ip` and `srh` lie within the frame. */
INLINE int end_proxy(const struct packet *packet, const struct segue_sid *sid, struct ipv6hdr *ip, struct srh *srh,
		     struct outer *outer, const struct advance *advance)
{
	struct headers headers = {};

	if (unlikely(sid->flags & SEGUE_SID_DOWN)) {
		if (sid->failure == SEGUE_FAILURE_BYPASS)
			return end_forward(packet, sid, ip, srh, outer->limit, advance);
		/* A reduced list has no first segment to compare with. */
		if (sid->failure == SEGUE_FAILURE_REROUTE &&
		    !(advance->left < srh->last_entry &&
		      function_rerouted(ip, advance_segment(srh, 0, advance->left + 1), buffer_end(packet->ctx))))
			return function_reroute(packet, sid, ip, outer->limit - ETHERNET_LENGTH);
		return drop(packet, SEGUE_OUTCOME_drop_function_down);
	}
	srv6_recognise(outer, ip, srh, advance->header);
	if (packet->stage != SEGUE_STAGE_PROXY && sid->behaviour == SEGUE_END_AM)
		return masquerade(packet, sid, ip, srh, outer, advance);
	if (packet->stage == SEGUE_STAGE_PROXY && sid->behaviour == SEGUE_END_AN)
		return aware_to_function(packet, sid, ip, outer);
	if (unlikely(!takes_inner(sid, outer->protocol))) {
		headers_walk(packet->ctx, advance->header, outer->offset, outer->limit, &headers);
		if (headers.error && headers.error != SEGUE_OUTCOME_drop_routing_type)
			return drop(packet, headers.error);
		outer->protocol = headers.protocol;
		outer->offset = headers.upper;
		outer->naming = headers.previous;
		outer->fragment = headers.fragment;
		if (outer->fragment) /* its inner packet is not known: it must not slip past the function */
			return drop(packet, SEGUE_OUTCOME_drop_fragment_at_decapsulation);
		if (!takes_inner(sid, outer->protocol)) {
			if (packet->stage == SEGUE_STAGE_PROXY && sid->behaviour == SEGUE_END_AN_NF &&
			    !headers.sr_seen && outer->protocol != PROTOCOL_ETHERNET)
				return proxy_inserted_elsewhere(packet);
			if (sid->flags & SEGUE_SID_BYPASS_OTHER_TYPE)
				return end_forward(packet, sid, ip, srh, outer->limit, advance);
			return drop(packet, SEGUE_OUTCOME_drop_inner_type);
		}
	}
	return proxy_to_function(packet, sid, outer, advance);
}

/* An SRH with Segments Left not 0 at `offset`: RFC 8986 section 4.1, S05 to S14, in its order. */
INLINE int segment_advance(const struct packet *packet, const struct segue_sid *sid, void *data, void *end,
			   struct ipv6hdr *ip, u32 offset, u32 previous, struct outer *outer)
{
	struct advance advance = {.header = offset, .previous = previous};
	struct srh *srh = data + offset;
	u32 refused;

	if ((void *)(srh + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	if (unlikely(offset + (srh->length + 1) * 8 > outer->limit))
		return drop(packet, SEGUE_OUTCOME_drop_bad_length);
	/* What is handed on to a stage of functions has the SID of one. */
	if (!packet_handed_on(packet) && unlikely(behaviour_decapsulates(sid->behaviour)))
		return parameter_problem(packet, SEGUE_OUTCOME_drop_segments_left, ETHERNET_LENGTH, 0, offset + 3);
	if (unlikely(ip->hop_limit <= 1))
		return time_exceeded(packet, 6, ETHERNET_LENGTH);
	/* max_LE is -1 for a header without room for a segment: every Last Entry is too large. */
	if (unlikely((s32)srh->last_entry > (s32)(srh->length / 2) - 1 || srh->segments_left > srh->last_entry + 1))
		return parameter_problem(packet, SEGUE_OUTCOME_drop_segments_left, ETHERNET_LENGTH, 0, offset + 3);
	refused = advance_to(&advance, data, end, (srh->segments_left - 1) & 0xff);
	if (unlikely(refused))
		return drop(packet, refused);
	if (packet->stage == SEGUE_STAGE_FIREWALL)
		return firewall_segment(packet, sid, outer, &advance);
	if (packet->stage == SEGUE_STAGE_PROXY)
		return end_proxy(packet, sid, ip, srh, outer, &advance);
	switch (sid->behaviour) {
	case SEGUE_END:
	case SEGUE_END_X:
	case SEGUE_END_T:
		return end_forward(packet, sid, ip, srh, outer->limit, &advance);
	case SEGUE_END_AS:
	case SEGUE_END_AD:
	case SEGUE_END_AM:
	case SEGUE_END_AN:
	case SEGUE_END_AN_NF:
		if (unlikely(!functions_here))
			break;
		if (unlikely(proxy_elsewhere(sid))) {
			/* Never both: without its firewall a packet is dropped, not handed on. */
			if (sid->firewall)
				stage(packet, SEGUE_STAGE_FIREWALL);
			else
				stage(packet, SEGUE_STAGE_PROXY);
			return drop(packet, SEGUE_OUTCOME_drop_recirculation);
		}
		return end_proxy(packet, sid, ip, srh, outer, &advance);
	case SEGUE_END_B6_ENCAPS:
	case SEGUE_END_B6_ENCAPS_RED:
		return end_b6(packet, sid, ip, outer->limit, &advance);
	case SEGUE_END_BM:
		return end_bm(packet, sid, ip, outer->limit, &advance);
	case SEGUE_END_INSTANCES:
		stage(packet, SEGUE_STAGE_INSTANCE);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	}
	return drop(packet, SEGUE_OUTCOME_drop_behaviour);
}

/*
 * What option_refused() has found: dropped, and for an option that this node does not know the source told unless its
 * type says not to (RFC 8200 section 4.2). The packet's destination is a SID, so none that is multicast.
 */
INLINE int refuse_option(const struct packet *packet, u32 refused)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	u32 outcome = refused >> 16, at = refused & OFFSET_MASK;
	const u8 *type = data + at;

	if (outcome != SEGUE_OUTCOME_drop_option || (void *)(type + 1) > end || OPTION_ACTION(*type) == 1)
		return drop(packet, outcome);
	return parameter_problem(packet, SEGUE_OUTCOME_drop_option, ETHERNET_LENGTH, 2, at);
}

/* An SRH in use right behind the IPv6 header, as nearly all steered packets have it. */
INLINE int srh_in_use(const struct ipv6hdr *ip, const struct srh *srh, const void *end, u32 limit)
{
	return ip->nexthdr == PROTOCOL_ROUTING && (const void *)(srh + 1) <= end &&
	       ETHERNET_LENGTH + IPV6_LENGTH + SRH_FIXED_LENGTH <= limit && srh->type == ROUTING_TYPE_SRH &&
	       srh->segments_left;
}

/*
 * A packet whose destination is a local SID, where it comes in: what nearly all have, an SRH in use right behind the
 * IPv6 header, or an inner packet that this SID takes, with a used up SRH in front or without. segue_again takes all
 * others. `ip` lies within the frame; `limit`: end of the packet by its Payload Length, and of the frame.
 */
INLINE int endpoint_usual(const struct packet *packet, const struct segue_sid *sid, void *data, void *end,
			  struct ipv6hdr *ip, u32 limit)
{
	u32 offset = ETHERNET_LENGTH + IPV6_LENGTH, units = 0;
	struct outer outer = {.limit = limit, .frame = limit};
	const struct srh *srh = data + offset;

	outer.ecn = (((const u8 *)ip)[1] >> 4) & 3;
	if (likely(srh_in_use(ip, srh, end, limit))) {
		if (unlikely(sid->firewall)) {
			stage(packet, SEGUE_STAGE_FIREWALL);
			return drop(packet, SEGUE_OUTCOME_drop_recirculation);
		}
		return segment_advance(packet, sid, data, end, ip, offset, ETHERNET_LENGTH + 6, &outer);
	}
	outer.protocol = ip->nexthdr;
	if (outer.protocol == PROTOCOL_ROUTING && (void *)(srh + 1) <= end && srh->type == ROUTING_TYPE_SRH) {
		units = srh->length + 1;
		outer.protocol = srh->next_header;
	}
	/* One way for both, with any length. */
	units = (units ^ unknown_zero(limit)) & 0x1ff;
	outer.offset = offset + units * 8;
	if (likely(outer.offset <= limit && takes_inner(sid, outer.protocol) && !behaviour_needs_next(sid->behaviour)))
		return inner_taken(packet, sid, &outer);
	hand_on(packet, 0);
	return drop(packet, SEGUE_OUTCOME_drop_recirculation);
}

/*
 * Any packet whose destination is a local SID. `ip` lies within the frame; `limit`: end of the packet by its Payload
 * Length, and of the frame.
 */
INLINE int endpoint(const struct packet *packet, const struct segue_sid *sid, void *data, void *end, struct ipv6hdr *ip,
		    u32 limit)
{
	u32 offset = ETHERNET_LENGTH + IPV6_LENGTH, previous = ETHERNET_LENGTH + 6, unknown;
	struct outer outer = {.limit = limit, .frame = limit};
	const struct srh *srh = data + offset;
	struct headers headers = {};

	outer.ecn = (((const u8 *)ip)[1] >> 4) & 3;
	/* The usual case, without a walk. */
	if (likely(srh_in_use(ip, srh, end, limit))) {
		/* All that follows is done there. */
		if (!packet_handed_on(packet) && unlikely(sid->firewall)) {
			stage(packet, SEGUE_STAGE_FIREWALL);
			return drop(packet, SEGUE_OUTCOME_drop_recirculation);
		}
		headers.srh = offset;
		headers.previous = previous;
	} else {
		headers_walk(packet->ctx, previous, offset, limit, &headers);
		if (headers.error == SEGUE_OUTCOME_drop_routing_type)
			return parameter_problem(packet, headers.error, ETHERNET_LENGTH, 0, headers.error_at);
		/* RFC 8200 section 4: a Next Header value of 0 is not recognized there. */
		if (headers.error == SEGUE_OUTCOME_drop_too_many_headers && headers.error_at)
			return parameter_problem(packet, headers.error, ETHERNET_LENGTH, 1, headers.error_at);
		if (headers.error)
			return drop(packet, headers.error);
		/* In the stages that it is handed on to it has been seen that there is none. */
		if (!packet_handed_on(packet) && headers.options) {
			u32 refused = options_refused(packet->ctx, limit);

			if (refused)
				return refuse_option(packet, refused);
		}
		if (packet_handed_on(packet) && !headers.srh)
			return drop(packet, SEGUE_OUTCOME_drop_upper_layer);
		if (!packet_handed_on(packet) && !headers.srh) {
			outer.offset = headers.upper;
			outer.protocol = headers.protocol;
			outer.fragment = headers.fragment;
			return upper_layer(packet, sid, &outer);
		}
	}
	/* With any offsets, so that the verifier follows both cases at once; the firewall's stage has no stack left. */
	asm volatile("" : : : "memory");
	unknown = packet->stage == SEGUE_STAGE_FIREWALL ? 0 : unknown_zero(limit);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	ip = data + ETHERNET_LENGTH;
	if ((void *)(ip + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	return segment_advance(packet, sid, data, end, ip, (headers.srh ^ unknown) & OFFSET_MASK,
			       (headers.previous ^ unknown) & OFFSET_MASK, &outer);
}

#endif
