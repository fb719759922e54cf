/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet in by an access port, from outside the SR domain: the boundary, then steering. */
#ifndef SEGUE_ACCESS_PORT_H
#define SEGUE_ACCESS_PORT_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/base/config.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/frame.h"
#include "lib/packet/outcome.h"
#include "lib/packet/tags.h"
#include "lib/packet/cut.h"
#include "lib/packet/flow.h"
#include "lib/forward/sid.h"
#include "lib/core/boundary.h"
#include "lib/access/encapsulation.h"
#include "lib/access/steering.h"
#include "lib/access/clamp.h"
#include "lib/labels/push.h"

/* Into a pseudowire, in a stage of its own. */
INLINE int access_wire(const struct packet *packet, u32 hash)
{
	struct scratch *scratch = scratch_get();

	if (!scratch)
		return drop(packet, SEGUE_OUTCOME_drop_policy_invalid);
	scratch->push.list = policy_list_index(packet->port->policy, hash);
	scratch->push.flow = hash;
	stage(packet, SEGUE_STAGE_LABELS_FRAME);
	return drop(packet, SEGUE_OUTCOME_drop_recirculation);
}

/* Every frame of the port into one policy. */
INLINE int access_l2(struct packet *packet, u32 hash, struct payload *payload)
{
	const struct segue_segment_list *list;
	int action;

	payload->protocol = PROTOCOL_ETHERNET;
	payload->length = buffer_frame_length(packet->ctx);
	payload->flow = hash;
	payload->counter = SEGUE_NONE;
	packet->length = payload->length;
	list = policy_list(packet->port->policy, hash);
	if (!list)
		return drop(packet, SEGUE_OUTCOME_drop_policy_invalid);
	if (list->mode == SEGUE_PUSH)
		return access_wire(packet, hash);
	if (unlikely(packet_cut(packet, SEGUE_STAGE_ACCESS, &action)))
		return action;
	return encapsulate(packet, list, payload, list_adjacency(packet, list, hash));
}

#define SRH_FLAG_HMAC 0x08 /* Linux expects it; RFC 8754 knows no such flag */
#define HMAC_TLV_LENGTH 40
#define HMAC_TLV_TYPE 5

/* An SRH with an HMAC where Linux looks for it: in its last 40 octets. */
INLINE int srh_has_hmac(const struct packet *packet, u32 offset)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	const struct srh *srh;
	const u8 *tlv;
	u32 length;

	offset &= OFFSET_MASK;
	srh = data + offset;
	if (!offset || (void *)(srh + 1) > end)
		return 0;
	length = (srh->length + 1) * 8;
	if (!(srh->flags & SRH_FLAG_HMAC) || length < SRH_FIXED_LENGTH + 16 + HMAC_TLV_LENGTH)
		return 0;
	length += offset - HMAC_TLV_LENGTH;
	opaque(length);
	tlv = data + (length & OFFSET_MASK);
	if ((void *)tlv + 2 > end)
		return 0;
	return tlv[0] == HMAC_TLV_TYPE && tlv[1] == HMAC_TLV_LENGTH - 2;
}

INLINE int to_infrastructure(u32 generation, struct address destination)
{
	const struct segue_config *config = config_get(generation);

	return config && in_infrastructure(config, destination);
}

/*
 * A fragment, ICMPv6, or a Routing header of another type that somebody else has to visit, at which the walk over its
 * headers ends: there may be more in it than that has told.
 */
INLINE int flow_suspect(const struct flow *flow)
{
	u32 protocol = (flow->key[4] >> 32) & 0xff;

	return flow->family == 6 &&
	       ((flow->key[4] >> 48) & FLOW_FRAGMENT || protocol == PROTOCOL_ICMPV6 || protocol == PROTOCOL_ROUTING);
}

/* No IP packet: a priority tag comes off, labels do not come in (RFC 8402 section 8.1), all else is the kernel's. */
INLINE int access_odd(const struct packet *packet)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);

	if (packet->port->config_flags & SEGUE_CONFIG_LABELS && data + ETHERNET_LENGTH <= end &&
	    *(const u16 *)(data + 12) == bpf_htons(ETH_P_MPLS_UC))
		return drop(packet, SEGUE_OUTCOME_drop_labels_from_outside);
	if (priority_tag_remove(packet->ctx)) {
		stage(packet, SEGUE_STAGE_ACCESS);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	}
	return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
}

/*
 * Into a policy of labels. A packet that fits the link to its next hop gets them here, on XDP; all else is for a stage
 * of its own.
 */
INLINE int access_push(const struct packet *packet, const struct flow *flow, const struct flow_verdict *verdict,
		       const struct segue_segment_list *list, const struct payload *payload)
{
	struct scratch *scratch;

#ifndef SEGUE_SKB
	if (likely(!(list->flags & (SEGUE_LIST_LOCAL | SEGUE_LIST_UDP)) &&
		   adjacency_fits(packet, &verdict->adjacency, payload->length + list->header_length)))
		return push_on(packet, list, payload, &verdict->adjacency);
#endif
	scratch = scratch_get();
	if (!scratch)
		return drop(packet, SEGUE_OUTCOME_drop_policy_invalid);
	scratch->push.list = verdict->list;
	scratch->push.counter = verdict->counter;
	scratch->push.flow = flow->hash;
	scratch->push.length = flow->length;
	scratch->push.family = flow->family;
	scratch->push.traffic_class = flow->traffic_class;
	scratch->push.advance.kind = ADVANCE_NOT;
	stage(packet, SEGUE_STAGE_LABELS_PUSH);
	return drop(packet, SEGUE_OUTCOME_drop_recirculation);
}

/* A packet from outside the SR domain: the boundary (RFC 8754 section 5.1), then steering. */
INLINE int access_port(struct packet *packet)
{
	const struct segue_segment_list *list;
	const struct flow_verdict *verdict;
	struct payload payload = {};
	struct flow flow = {};
	u32 index, refused;
	u16 *half;

	flow_read(packet, &flow);
	if (packet->port->flags & SEGUE_PORT_L2)
		return access_l2(packet, flow.hash, &payload);
	if (unlikely(flow.foreign)) {
		packet->length = frame_length(packet->ctx) - ETHERNET_LENGTH;
		return pass(packet, flow.family || flow.outcome ? SEGUE_OUTCOME_passed_other_host
								: SEGUE_OUTCOME_passed_not_for_segue);
	}
	if (flow.length)
		packet->length = flow.length;
	if (unlikely(flow.outcome))
		return drop(packet, flow.outcome);
	if (!flow.family)
		return access_odd(packet);
	if (unlikely(flow.sr_seen)) {
		/* The kernel verifies it at a SID of its own; to another node's it would forward the packet unseen. */
		if (packet->port->flags & SEGUE_PORT_HMAC && srh_has_hmac(packet, flow.srh) &&
		    sid_find(packet->epoch, (struct address){flow.key[2], flow.key[3]})) {
			half = buffer_start(packet->ctx);
			if ((void *)half + ETHERNET_LENGTH > buffer_end(packet->ctx))
				return drop(packet, SEGUE_OUTCOME_drop_adjust);
			sign(half);
			return pass(packet, SEGUE_OUTCOME_passed_hmac);
		}
		return drop(packet, SEGUE_OUTCOME_drop_sr_from_outside);
	}
	if (unlikely(flow_suspect(&flow))) {
		refused = boundary_look(packet->ctx, flow.length, packet->generation);
		if (refused & BOUNDARY_SR)
			return drop(packet, SEGUE_OUTCOME_drop_sr_from_outside);
		if (refused)
			return drop(packet, SEGUE_OUTCOME_drop_error_from_outside);
	}
	if (unlikely(flow.group)) {
		/* The kernel takes such frames in, whatever their IP destination is. */
		if (flow.family == 6 && in_sid_block(packet->generation, (struct address){flow.key[2], flow.key[3]}))
			return drop(packet, SEGUE_OUTCOME_drop_sid_from_outside);
		if (flow.family == 6 &&
		    to_infrastructure(packet->generation, (struct address){flow.key[2], flow.key[3]}))
			return drop(packet, SEGUE_OUTCOME_drop_infrastructure_from_outside);
		return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
	}
	verdict = steering_verdict(packet, &flow);
	if (unlikely(!verdict))
		return drop(packet, SEGUE_OUTCOME_drop_policy_invalid);
	if (unlikely(verdict->outcome)) {
		if (verdict->counter != SEGUE_NONE)
			count(packet, verdict->counter);
		if (verdict->outcome < SEGUE_OUTCOME_DROPPED)
			return pass(packet, verdict->outcome);
		if (verdict->outcome == SEGUE_OUTCOME_drop_bad_source && flow.family == 6)
			return refuse_source(packet, (struct address){flow.key[0], flow.key[1]},
					     (struct address){flow.key[2], flow.key[3]});
		return drop(packet, verdict->outcome);
	}
	if (unlikely(flow.hop_limit <= 1))
		return time_exceeded(packet, flow.family, ETHERNET_LENGTH);
	if (unlikely(flow.odd)) {
		refused = flow_make_even(packet, &flow, ETHERNET_LENGTH);
		if (refused)
			return drop(packet, refused);
	}
	index = verdict->list;
	list = bpf_map_lookup_elem(&segment_lists, &index);
	if (unlikely(!list))
		return drop(packet, SEGUE_OUTCOME_drop_policy_invalid);
	if (unlikely(list->clamp) && (flow.key[4] >> 32 & 0xff00ff) == PROTOCOL_TCP)
		mss_clamp(packet->ctx, list->clamp | (u32)flow.family << 16);
	payload.offset = ETHERNET_LENGTH;
	payload.length = flow.length;
	payload.flow = flow.hash;
	payload.protocol = flow.family == 4 ? PROTOCOL_IPV4 : PROTOCOL_IPV6;
	payload.traffic_class = flow.traffic_class;
	payload.flow_label = flow.flow_label;
	payload.decrement = 1;
	payload.counter = verdict->counter;
	/* One comparison for the two that put no IPv6 header in front, the last ones of enum segue_mode. */
	if (unlikely(list->mode >= SEGUE_H_INSERT))
		return list->mode == SEGUE_PUSH ? access_push(packet, &flow, verdict, list, &payload)
						: insert(packet, list, &payload, &verdict->adjacency);
	return encapsulate(packet, list, &payload, &verdict->adjacency);
}

#endif
