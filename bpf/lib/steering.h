/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which traffic goes into which SR policy. A destination prefix leads to its rules, the first that holds wins; the
 * result is remembered per flow, so that the number of rules is paid for once per flow. The classifier of a later
 * release takes the place of steering_decide() behind the same cache.
 */
#ifndef SEGUE_STEERING_H
#define SEGUE_STEERING_H

#include "base.h"
#include "adjacency.h"
#include "encapsulation.h"
#include "flow.h"
#include "outcome.h"

struct flow_verdict {
	u64 key[5];
	u32 ingress;		    /* ifindex */
	u32 list;		    /* index of the segment list, or SEGUE_NONE: the policy has none that is valid */
	u32 counter;		    /* of the rule */
	u32 outcome;		    /* not 0: it ends here, for this reason */
	struct adjacency adjacency; /* a copy of the list's */
};

PERCPU(flows, struct flow_verdict, SEGUE_FLOW_CACHE);

/* What a rule says. */
INLINE void steering_obey(const struct segue_steering_rule *rule, u32 hash, struct flow_verdict *verdict)
{
	const struct segue_policy *policy;
	u32 index = rule->policy;

	verdict->counter = rule->counter;
	if (rule->action == SEGUE_STEER_DROP) {
		verdict->outcome = SEGUE_OUTCOME_drop_steering_rule;
	} else if (rule->action == SEGUE_STEER_POLICY) {
		policy = bpf_map_lookup_elem(&policies, &index);
		verdict->outcome = SEGUE_OUTCOME_drop_policy_invalid;
		if (policy && policy->lists) {
			verdict->outcome = 0;
			verdict->list = policy->list[policy->bucket[hash & (SEGUE_POLICY_BUCKETS - 1)] & 15];
		}
	}
}

RARE int steering_decide(const struct segue_port *port, u32 generation, const struct flow *flow,
			 struct flow_verdict *verdict)
{
	struct segue_steering_key key = {.prefixlen = 64 + 128, .generation = generation};
	const struct segue_steering_value *value;
	const struct segue_steering_rule *rule;
	u32 index, ports;
	u64 source[2];
	u16 low, high;

	if (!port || !flow || !verdict)
		return 0;
	key.family = flow->family;
	source[0] = flow->key[0];
	source[1] = flow->key[1];
	ports = flow->key[4];

	verdict->counter = SEGUE_NONE;
	verdict->list = SEGUE_NONE;
	verdict->outcome = flow_addresses(port, flow);
	if (verdict->outcome)
		return 0;
	if (flow->family == 6 && in_sid_block(generation, (struct address){flow->key[2], flow->key[3]})) {
		verdict->outcome = SEGUE_OUTCOME_drop_sid_from_outside;
		return 0;
	}
	verdict->outcome = SEGUE_OUTCOME_passed_not_for_segue;
	if (flow->family == 4) {
		*(u32 *)key.address = flow->key[0] >> 32;
		source[0] = (u32)flow->key[0];
	} else {
		__builtin_memcpy(key.address, &flow->key[2], 16);
	}
	value = bpf_map_lookup_elem(&steering, &key);
	if (!value)
		return 0;
	/* In a packet the source port comes first: the low half of the word. */
	low = bpf_ntohs(ports);
	high = bpf_ntohs(ports >> 16);
	for (u32 i = 0; i < SEGUE_RULES_PER_PREFIX; i++) {
		if (i >= value->count)
			return 0;
		index = value->first + i;
		rule = bpf_map_lookup_elem(&steering_rules, &index);
		if (!rule)
			return 0;
		if ((source[0] & *(const u64 *)&rule->source_mask[0]) != *(const u64 *)&rule->source[0] ||
		    (source[1] & *(const u64 *)&rule->source_mask[8]) != *(const u64 *)&rule->source[8])
			continue;
		if (rule->ingress && rule->ingress != port->ifindex)
			continue;
		if (rule->flags & SEGUE_STEER_PROTOCOL && rule->protocol != (u8)(flow->key[4] >> 32))
			continue;
		if (rule->flags & SEGUE_STEER_PORTS) {
			if ((flow->key[4] >> 48) & FLOW_FRAGMENT)
				continue;
			if (low < rule->source_port_low || low > rule->source_port_high ||
			    high < rule->destination_port_low || high > rule->destination_port_high)
				continue;
		}
		steering_obey(rule, flow->hash, verdict);
		return 0;
	}
	return 0;
}

INLINE const struct flow_verdict *steering_find(const struct packet *packet, const struct flow *flow)
{
	u32 index = (flow->hash >> 8) & (SEGUE_FLOW_CACHE - 1);
	struct flow_verdict *verdict = bpf_map_lookup_elem(&flows, &index);
	const struct segue_segment_list *list;
	const struct adjacency *adjacency;

	if (!verdict)
		return NULL;
	if (likely(verdict->key[0] == flow->key[0] && verdict->key[1] == flow->key[1] &&
		   verdict->key[2] == flow->key[2] && verdict->key[3] == flow->key[3] &&
		   verdict->key[4] == flow->key[4] && verdict->ingress == packet->port->ifindex &&
		   verdict->adjacency.epoch == packet->epoch &&
		   (s32)(verdict->adjacency.expires - (u32)bpf_jiffies64()) > 0))
		return verdict;
	steering_decide(packet->port, packet->generation, flow, verdict);
	for (int i = 0; i < 5; i++)
		verdict->key[i] = flow->key[i];
	verdict->ingress = packet->port->ifindex;
	index = verdict->list;
	list = bpf_map_lookup_elem(&segment_lists, &index);
	adjacency = !verdict->outcome && list ? list_adjacency(packet, list, flow->hash) : NULL;
	if (adjacency) {
		verdict->adjacency = *adjacency;
	} else {
		verdict->adjacency.epoch = packet->epoch;
		verdict->adjacency.expires = (u32)bpf_jiffies64() + (1U << 30);
	}
	return verdict;
}

/* Every frame of the port into one policy. */
INLINE int access_l2(struct packet *packet)
{
	const struct segue_segment_list *list;
	struct payload payload = {};
	struct flow flow = {};

	flow_read(packet, &flow);
	payload.protocol = PROTOCOL_ETHERNET;
	payload.length = frame_length(packet->ctx);
	payload.flow = flow.hash;
	payload.counter = SEGUE_NONE;
	packet->length = payload.length;
	list = policy_list(packet->port->policy, flow.hash);
	if (!list)
		return drop(packet, SEGUE_OUTCOME_drop_policy_invalid);
	return encapsulate(packet, list, &payload, list_adjacency(packet, list, payload.flow));
}

#define SRH_FLAG_HMAC 0x08 /* Linux expects it; RFC 8754 knows no such flag */
#define HMAC_TLV_LENGTH 40
#define HMAC_TLV_TYPE 5

/* An SRH with an HMAC where Linux looks for it: in its last 40 octets. */
INLINE int srh_has_hmac(const struct packet *packet, u32 offset)
{
	void *data = (void *)(long)packet->ctx->data;
	void *end = (void *)(long)packet->ctx->data_end;
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

/* A packet from outside the SR domain: the boundary (RFC 8754 section 5.1), then steering. */
INLINE int access_port(struct packet *packet)
{
	const struct segue_segment_list *list;
	const struct flow_verdict *verdict;
	struct payload payload = {};
	struct flow flow = {};
	u32 index;

	if (packet->port->flags & SEGUE_PORT_L2)
		return access_l2(packet);
	flow_read(packet, &flow);
	if (flow.length)
		packet->length = flow.length;
	if (unlikely(flow.outcome))
		return drop(packet, flow.outcome);
	if (!flow.family) {
		if (priority_tag_remove(packet->ctx)) {
			bpf_tail_call(packet->ctx, &stages, SEGUE_STAGE_ACCESS);
			return drop(packet, SEGUE_OUTCOME_drop_recirculation);
		}
		return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
	}
	if (unlikely(flow.sr_seen)) {
		/* The kernel verifies it at a SID of its own; to another node's it would forward the packet unseen. */
		if (packet->port->flags & SEGUE_PORT_HMAC && srh_has_hmac(packet, flow.srh) &&
		    sid_find(packet->epoch, (struct address){flow.key[2], flow.key[3]}))
			return pass(packet, SEGUE_OUTCOME_passed_hmac);
		return drop(packet, SEGUE_OUTCOME_drop_sr_from_outside);
	}
	if (unlikely(flow.group)) {
		/* The kernel takes such frames in, whatever their IP destination is. */
		if (flow.family == 6 && in_sid_block(packet->generation, (struct address){flow.key[2], flow.key[3]}))
			return drop(packet, SEGUE_OUTCOME_drop_sid_from_outside);
		return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
	}
	verdict = steering_find(packet, &flow);
	if (unlikely(!verdict))
		return drop(packet, SEGUE_OUTCOME_drop_policy_invalid);
	if (unlikely(verdict->outcome)) {
		if (verdict->counter != SEGUE_NONE)
			count(verdict->counter, packet->length);
		if (verdict->outcome < SEGUE_OUTCOME_DROPPED)
			return pass(packet, verdict->outcome);
		return drop(packet, verdict->outcome);
	}
	if (unlikely(flow.hop_limit <= 1))
		return time_exceeded(packet, flow.family, ETHERNET_LENGTH);
	if (unlikely(flow_unredirectable(packet, &flow)))
		return drop(packet, SEGUE_OUTCOME_drop_multi_buffer);
	index = verdict->list;
	list = bpf_map_lookup_elem(&segment_lists, &index);
	if (unlikely(!list))
		return drop(packet, SEGUE_OUTCOME_drop_policy_invalid);
	payload.offset = ETHERNET_LENGTH;
	payload.length = flow.length;
	payload.flow = flow.hash;
	payload.protocol = flow.family == 4 ? PROTOCOL_IPV4 : PROTOCOL_IPV6;
	payload.traffic_class = flow.traffic_class;
	payload.flow_label = flow.flow_label;
	payload.decrement = 1;
	payload.counter = verdict->counter;
	if (unlikely(list->mode == SEGUE_H_INSERT))
		return insert(packet, list, &payload, &verdict->adjacency);
	return encapsulate(packet, list, &payload, &verdict->adjacency);
}

#endif
