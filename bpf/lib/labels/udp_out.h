/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Labels are swapped, popped or pushed, and what comes of it goes on in UDP: stages of their own. */
#ifndef SEGUE_LABELS_UDP_OUT_H
#define SEGUE_LABELS_UDP_OUT_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/access/encapsulation.h"
#include "lib/forward/obstacle.h"
#include "lib/labels/leave.h"
#include "lib/labels/walk.h"
#include "lib/labels/paths.h"
#include "lib/labels/push.h"
#include "lib/labels/binding.h"
#include "lib/labels/udp.h"
#include "lib/labels/carry.h"

/*
 * The entry in place of the label that was found; 0: none, other labels are behind it. Where no label would be left, it
 * is explicit null, so that there is one to go by.
 */
INLINE u32 udp_entry(const struct packet *packet, const struct segue_sid *sid, const struct label_found *found)
{
	u32 label = sid->out_label;

	if (label == LABEL_IMPLICIT_NULL && !(found->word & ENTRY_BOTTOM))
		return 0;
	if (label == LABEL_IMPLICIT_NULL || sid->flags & SEGUE_SID_EXPLICIT_NULL) {
		label = LABEL_IPV4_EXPLICIT_NULL;
		if (found->word & ENTRY_BOTTOM && labels_inside(packet->ctx, ETHERNET_LENGTH + found->off) >> 16 == 6)
			label = LABEL_IPV6_EXPLICIT_NULL;
	}
	return label << 12 | (found->word & ENTRY_CLASS_AND_BOTTOM) | (found->ttl - 1);
}

/* The list's labels at `to`, in place of the one that was found. 0: done. */
INLINE int udp_list_write(const struct packet *packet, void *to, const void *end, const struct segue_segment_list *list,
			  const struct label_found *found, u32 flow)
{
	u32 *last;

	if (labels_write(to, end, list, binding_fill(packet, list, found), flow))
		return -1;
	if (found->word & ENTRY_BOTTOM)
		return 0;
	last = labels_last(to, end, list->header_length);
	if (!last)
		return -1;
	*last &= ~bpf_htonl(ENTRY_BOTTOM);
	return 0;
}

/* What is left of the stack is at `to`; `entry` is the first, or 0. 0: done. */
INLINE int udp_entry_write(const struct packet *packet, u8 *to, const void *end, const struct label_found *found,
			   u32 entry)
{
	if ((void *)(to + ENTRY_LENGTH) > end)
		return -1;
	if (entry)
		entry_store(to, entry);
	else if (packet->port->config_flags & SEGUE_CONFIG_TTL_UNIFORM)
		to[3] = found->ttl - 1;
	return 0;
}

/* A packet with labels, of which the first that leads on says so, or the list of its policy; nothing has been changed.
 */
INLINE int labels_udp(struct packet *packet)
{
	struct label_found found = {.frame = frame_length(packet->ctx)};
	const struct segue_segment_list *list = NULL;
	u32 outcome, off, on, entry = 0, length;
	int action;
	const struct segue_sid *sid;
	struct tunnel tunnel = {};
	void *data, *end, *to;

	sid = labels_resume(packet, &found, &action);
	if (unlikely(!sid))
		return action;
	if (unlikely(found.ttl <= 1))
		return labels_refuse(packet, SEGUE_OUTCOME_drop_label_ttl, 0);
	tunnel.flow = labels_flow(packet->ctx);
	tunnel.traffic_class = (found.word & ENTRY_CLASS) >> 9 << 5;
	if (sid->behaviour == SEGUE_LABEL_BINDING) {
		list = policy_list(sid->policy, tunnel.flow);
		if (unlikely(!list || !(list->flags & SEGUE_LIST_UDP)))
			return drop(packet, SEGUE_OUTCOME_drop_policy_invalid);
		if (binding_unmarkable(packet, list, &found))
			return drop(packet, SEGUE_OUTCOME_drop_ecn_not_capable);
		if (!(list->flags & SEGUE_LIST_TRAFFIC_CLASS_COPY))
			tunnel.traffic_class = list->traffic_class;
		on = list->header_length & 0xff;
		outcome = tunnel_by_list(packet, &tunnel, list);
	} else if (sid->behaviour == SEGUE_LABEL_UDP) {
		entry = udp_entry(packet, sid, &found);
		on = entry ? ENTRY_LENGTH : 0;
		outcome = tunnel_by_label(packet, &tunnel, sid);
	} else {
		return drop(packet, SEGUE_OUTCOME_drop_label_unknown);
	}
	if (unlikely(outcome))
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	off = found.off + ENTRY_LENGTH;
	on += tunnel.octets;
	length = packet->length - off + on;
	if (unlikely(length > tunnel.fits)) {
		outcome = adjacency_refusal(tunnel.adjacency, &(struct sending){.table = 1});
		return labels_refuse(packet, outcome & (SEGUE_OUTCOMES_MAX - 1), tunnel.fits + off - on);
	}
	if (labels_into(packet->ctx, off, on, tunnel.ipv4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6)))
		return drop(packet, SEGUE_OUTCOME_drop_no_headroom);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	to = data + ETHERNET_LENGTH + (tunnel.octets & 0x3f);
	if (list ? udp_list_write(packet, to, end, list, &found, tunnel.flow)
		 : udp_entry_write(packet, to, end, &found, entry))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	count(packet, sid->counter);
	if (list)
		count(packet, list->counter);
	return tunnel_leave(packet, &tunnel);
}

/* A packet without labels into a list of them; nothing of it has been changed. */
INLINE int labels_udp_push(struct packet *packet, const struct push_order *order)
{
	struct payload payload = push_payload(order);
	const struct segue_segment_list *list;
	struct tunnel tunnel = {.flow = order->flow, .traffic_class = order->traffic_class};
	struct sending sending;
	u32 index = order->list, on, ttl;
	void *data, *end;
	int action;

	packet->length = order->length;
	list = bpf_map_lookup_elem(&segment_lists, &index);
	if (unlikely(!list || !(list->flags & SEGUE_LIST_UDP)))
		return drop(packet, SEGUE_OUTCOME_drop_policy_invalid);
	if (!(list->flags & SEGUE_LIST_TRAFFIC_CLASS_COPY))
		tunnel.traffic_class = list->traffic_class;
	if (unlikely(tunnel_by_list(packet, &tunnel, list)))
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	on = (list->header_length & 0xff) + tunnel.octets;
	if (unlikely(payload.length + on > tunnel.fits)) {
		sending = wrapped(&payload, on + tunnel.adjacency->fits - tunnel.fits);
		sending.table = 1; /* the kernel knows nothing of labels */
		if (obstacle(packet, tunnel.adjacency, &sending, &action))
			return action;
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	}
	ttl = push_count(packet, &payload);
	if (unlikely(!ttl))
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	if (labels_into(packet->ctx, 0, on, tunnel.ipv4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6)))
		return drop(packet, SEGUE_OUTCOME_drop_no_headroom);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (labels_write(data + ETHERNET_LENGTH + (tunnel.octets & 0x3f), end, list,
			 labels_fill(packet, list, payload.traffic_class, ttl), payload.flow))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	count(packet, payload.counter);
	count(packet, list->counter);
	return tunnel_leave(packet, &tunnel);
}

#endif
