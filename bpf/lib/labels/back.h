/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Out of a function behind a label: the rest of the stack goes on again, that of its label (static) or the one that is
 * remembered (dynamic), and the packet on by that, as if it had come in by a core port with it. Where nothing is left
 * of the stack it goes by its destination.
 */
#ifndef SEGUE_LABELS_BACK_H
#define SEGUE_LABELS_BACK_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/packet/flow.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/leave.h"
#include "lib/forward/obstacle.h"
#include "lib/access/encapsulation.h"
#include "lib/service/function.h"
#include "lib/header/labels.h"
#include "lib/proxy/put_on.h"
#include "lib/labels/leave.h"
#include "lib/labels/push.h"
#include "lib/packet/cut.h"
#include "lib/labels/ecn.h"

/* What goes on again: of a list or of a reference, or nothing. */
struct rest {
	const struct segue_segment_list *list;
	const struct segue_stash *entry;
	u64 id;
	u32 length; /* octets */
};

/* 0: found; else the outcome. */
INLINE u32 rest_find(const struct segue_sid *sid, const struct flow *flow, struct rest *rest)
{
	u32 outcome = 0;

	if (sid->behaviour == SEGUE_LABEL_DYNAMIC) {
		rest->entry = recall(sid, flow, &rest->id, &outcome);
		if (!rest->entry)
			return outcome;
		rest->length = rest->entry->length;
		return 0;
	}
	if (sid->policy == SEGUE_NONE)
		return 0;
	rest->list = policy_list(sid->policy, flow->hash);
	if (!rest->list || rest->list->mode != SEGUE_PUSH)
		return SEGUE_OUTCOME_drop_proxy_empty;
	rest->length = rest->list->header_length;
	return 0;
}

/* Nothing is left of the stack: the packet goes by its destination. It may not choose a path by segments. */
INLINE int back_deliver(struct packet *packet, const struct segue_sid *sid, const struct flow *flow)
{
	struct sending sending = {.family = flow->family, .l3 = ETHERNET_LENGTH, .table = sid->table};
	struct address to = {.low = flow->key[0] >> 32};
	const struct adjacency *adjacency;
	u16 ethertype = bpf_htons(ETH_P_IP);
	u32 table = sid->table | ADJACENCY_IPV4;
	int action;

	if (flow->family == 6) {
		to = (struct address){flow->key[2], flow->key[3]};
		table = sid->table;
		ethertype = bpf_htons(ETH_P_IPV6);
		if (unlikely(flow->sr_seen) || function_hides(packet, flow) || rarely_in_sid_block(packet, to))
			return drop(packet, SEGUE_OUTCOME_drop_from_function);
	}
	packet->icmp_way = ICMP_WAY(sid->table, 0);
	adjacency = adjacency_find(packet, to, table, 0, flow->hash);
	if (unlikely(!adjacency))
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	if (unlikely(!adjacency_fits(packet, adjacency, flow->length)) &&
	    obstacle(packet, adjacency, &sending, &action))
		return action;
	if (hops_used(adjacency) && !packet_decrement(packet, flow->family))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	count(packet, sid->counter_return);
	return leave(packet, adjacency, ethertype);
}

INLINE int back_wrap(struct packet *packet, const struct segue_sid *sid, const struct flow *flow,
		     const struct rest *rest)
{
	u32 ttl, fill = 0, failed;
	void *data, *end;
	int action;

	if (unlikely(packet_cut(packet, SEGUE_STAGE_LABELS_BACK, &action)))
		return action;
	ttl = packet_decrement(packet, flow->family);
	if (!ttl)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (labels_on(packet->ctx, rest->length & 0xff))
		return drop(packet, SEGUE_OUTCOME_drop_no_headroom);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (rest->list) {
		failed = labels_write(data + ETHERNET_LENGTH, end, rest->list,
				      labels_fill(packet, rest->list, flow->traffic_class, ttl), flow->hash);
		count(packet, rest->list->counter);
	} else {
		if (rest->entry->flags & SEGUE_STASH_TRAFFIC_CLASS_COPY)
			fill = class_fill(packet, flow->traffic_class);
		failed = labels_copy(data + ETHERNET_LENGTH, end, rest->entry, fill, flow->hash);
		if (unlikely(!stash_still(rest->entry, rest->id))) {
			memory_count(sid->scope, MEMORY_OVERWRITTEN);
			return drop(packet, SEGUE_OUTCOME_drop_header_forgotten);
		}
	}
	if (failed)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	labels_mark(packet, flow->traffic_class & 3);
	count(packet, sid->counter_return);
	return labels_here(packet);
}

/* Back from a function behind a label. */
INLINE int labels_back(struct packet *packet)
{
	u32 index = packet->port->proxy, outcome;
	const struct segue_sid *sid = bpf_map_lookup_elem(&sid_entries, &index);
	const u16 *half = buffer_start(packet->ctx);
	struct flow flow = {};
	struct rest rest = {};
	int action;

	if (!sid || sid->kind != SEGUE_HEADER_MPLS)
		return drop(packet, SEGUE_OUTCOME_drop_proxy_empty);
	if (sid->behaviour == SEGUE_LABEL_AWARE) {
		stage(packet, SEGUE_STAGE_LABELS_AWARE_BACK);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	}
	/* Labels are not the function's to choose, and the kernel gets none. */
	if ((void *)half + ETHERNET_LENGTH <= buffer_end(packet->ctx) && half[6] == bpf_htons(ETH_P_MPLS_UC)) {
		packet->length = frame_length(packet->ctx) - ETHERNET_LENGTH;
		return drop(packet, SEGUE_OUTCOME_drop_from_function);
	}
	flow_read(packet, &flow);
	packet->length = flow.length;
	action = function_admit(packet, &flow);
	if (action >= 0)
		return action;
	if (!(sid->inner & (flow.family == 4 ? SEGUE_INNER_IPV4 : SEGUE_INNER_IPV6)))
		return drop(packet, SEGUE_OUTCOME_drop_inner_type);
	if (flow.hop_limit <= 1)
		return time_exceeded(packet, flow.family, ETHERNET_LENGTH);
	outcome = rest_find(sid, &flow, &rest);
	if (outcome)
		return drop(packet, outcome);
	if (unlikely(!rest.length))
		return back_deliver(packet, sid, &flow);
	return back_wrap(packet, sid, &flow, &rest);
}

#endif
