/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A binding label (RFC 8402 section 5): it comes off, and a list of its policy goes on. One of labels takes its place
 * in the stack. One of SIDs is put in front of the rest of the stack (H.Encaps.M of
 * draft-ietf-spring-srv6-mpls-interworking), or if nothing is left of that, of the packet itself.
 */
#ifndef SEGUE_LABELS_BINDING_H
#define SEGUE_LABELS_BINDING_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/packet/inner.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/leave.h"
#include "lib/forward/obstacle.h"
#include "lib/access/encapsulation.h"
#include "lib/labels/leave.h"
#include "lib/labels/walk.h"
#include "lib/labels/paths.h"
#include "lib/labels/push.h"
#include "lib/labels/deliver.h"
#include "lib/labels/ecn.h"

/* TC that the policy says, in packet order: marked if the label is (RFC 5129 section 4.2). */
INLINE u32 binding_class(const struct packet *packet, const struct segue_segment_list *list,
			 const struct label_found *found)
{
	u32 marked = labels_have_ecn(packet) && class_is_mark(packet, found->word);

	return class_fill(packet, list->traffic_class | (marked ? ECN_CE : 0));
}

/*
 * TC and TTL of the labels that go on. The TTL goes on being lowered, in either model: else two nodes whose policies
 * lead to each other's binding labels would send a packet to and fro for ever.
 */
INLINE u32 binding_fill(const struct packet *packet, const struct segue_segment_list *list,
			const struct label_found *found)
{
	u32 ttl = bpf_htonl(found->ttl - !(list->flags & SEGUE_LIST_LOCAL));

	if (!(list->flags & SEGUE_LIST_TRAFFIC_CLASS_COPY))
		return binding_class(packet, list, found) | ttl;
	return bpf_htonl(found->word & ENTRY_CLASS) | ttl;
}

/* The label is marked, and the policy's TC cannot be. */
INLINE int binding_unmarkable(const struct packet *packet, const struct segue_segment_list *list,
			      const struct label_found *found)
{
	if (likely(!labels_have_ecn(packet)) || list->flags & SEGUE_LIST_TRAFFIC_CLASS_COPY ||
	    !class_is_mark(packet, found->word))
		return 0;
	return !class_is_mark(packet, bpf_ntohl(binding_class(packet, list, found)));
}

/* A list of labels in place of the one that was found. */
INLINE int binding_labels(const struct packet *packet, const struct segue_sid *sid, const struct label_found *found,
			  const struct segue_segment_list *list, u32 flow)
{
	u32 off = found->off + ENTRY_LENGTH, on = list->header_length & 0xff, refused;
	const struct adjacency *adjacency = NULL;
	void *data, *end;
	u32 *last;

	if (binding_unmarkable(packet, list, found))
		return drop(packet, SEGUE_OUTCOME_drop_ecn_not_capable);
	if (likely(!(list->flags & SEGUE_LIST_LOCAL))) {
		adjacency = list_adjacency(packet, list, flow);
		if (unlikely(!adjacency))
			return drop(packet, SEGUE_OUTCOME_drop_no_route);
		refused = labels_obstacle(packet, adjacency, packet->length - off + on);
		if (unlikely(refused))
			return labels_refuse(packet, refused, adjacency->fits + off - on);
	}
	if (labels_exchange(packet->ctx, off, on))
		return drop(packet, SEGUE_OUTCOME_drop_no_headroom);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (labels_write(data + ETHERNET_LENGTH, end, list, binding_fill(packet, list, found), flow))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (!(found->word & ENTRY_BOTTOM)) {
		last = labels_last(data + ETHERNET_LENGTH, end, list->header_length);
		if (!last)
			return drop(packet, SEGUE_OUTCOME_drop_adjust);
		*last &= ~bpf_htonl(ENTRY_BOTTOM);
	}
	count(packet, sid->counter);
	count(packet, list->counter);
	return likely(adjacency) ? labels_leave(packet, adjacency) : labels_here(packet);
}

/*
 * What is to be wrapped: the packet behind the label that was found, which is the last one, or the rest of the stack
 * with it. `hops`: the hop limit or TTL that a packet goes on with. The outcome of a refusal, or 0.
 */
INLINE u32 binding_payload(const struct packet *packet, const struct segue_sid *sid, const struct label_found *found,
			   struct payload *payload, u32 *hops)
{
	u32 offset = (ETHERNET_LENGTH + found->off + ENTRY_LENGTH) & OFFSET_MASK, refused, stays = 0;
	struct outer outer = {.offset = offset, .frame = found->frame, .limit = found->frame};
	const u8 *octet = buffer_start(packet->ctx) + offset;
	struct inner inner = {};
	u32 word;

	payload->offset = offset;
	payload->length = found->frame - offset;
	payload->protocol = PROTOCOL_MPLS;
	payload->traffic_class = (found->word & ENTRY_CLASS) >> 9 << 5;
	if (!(found->word & ENTRY_BOTTOM))
		return 0;
	if ((void *)(octet + ENTRY_LENGTH) > buffer_end(packet->ctx))
		return SEGUE_OUTCOME_drop_truncated;
	word = entry_load(octet);
	if (word >> 28 != 4 && word >> 28 != 6)
		return SEGUE_OUTCOME_drop_label_not_ip;
	outer.protocol = word >> 28 == 4 ? PROTOCOL_IPV4 : PROTOCOL_IPV6;
	refused = label_admits(packet, sid, &outer, &inner, &stays);
	if (unlikely(refused))
		return refused;
	*hops = label_hops(packet, found, &inner);
	payload->protocol = outer.protocol;
	payload->length = inner.length;
	payload->traffic_class = word >> (word >> 28 == 4 ? 16 : 20);
	payload->flow_label = word >> 28 == 6 ? word & 0xfffff : 0;
	return *hops <= 1 ? SEGUE_OUTCOME_drop_hop_limit_exceeded : 0;
}

/* Only what is to be wrapped stays in the frame, and knows that it has come this far. 0: done. */
INLINE int binding_expose(const struct packet *packet, const struct label_found *found, const struct payload *payload,
			  u32 hops)
{
	u32 behind = found->frame - payload->offset - payload->length, off = found->off + ENTRY_LENGTH;
	u16 ethertype = payload->protocol == PROTOCOL_MPLS   ? bpf_htons(ETH_P_MPLS_UC)
			: payload->protocol == PROTOCOL_IPV4 ? bpf_htons(ETH_P_IP)
							     : bpf_htons(ETH_P_IPV6);
	u8 *data;

	if (unlikely(behind) && buffer_adjust_tail(packet->ctx, -(int)behind))
		return -1;
	if (labels_off(packet->ctx, off, ethertype))
		return -1;
	data = buffer_start(packet->ctx);
	if ((void *)data + ETHERNET_LENGTH + ENTRY_LENGTH > buffer_end(packet->ctx))
		return -1;
	if (payload->protocol != PROTOCOL_MPLS)
		inner_set_hops(data, buffer_end(packet->ctx), payload->protocol == PROTOCOL_IPV4 ? 4 : 6, hops - 1);
	else if (packet->port->config_flags & SEGUE_CONFIG_TTL_UNIFORM)
		data[ETHERNET_LENGTH + 3] = found->ttl - 1;
	return payload->protocol == PROTOCOL_MPLS && labels_wrappable(packet->ctx);
}

/* A list of SIDs in front of what is behind the label. */
INLINE int binding_sids(const struct packet *packet, const struct segue_sid *sid, const struct label_found *found,
			const struct segue_segment_list *list, u32 flow)
{
	u32 on = list->header_length, hops = 0, refused;
	struct payload payload = {.flow = flow};
	struct sending sending = {};
	const struct adjacency *adjacency;
	void *data, *end;
	u8 *octet;

	/* No list of SIDs has a mark: it goes on behind the header, or as the packet's own ECN. */
	if (labels_have_ecn(packet) && class_is_mark(packet, found->word)) {
		refused = label_mark_behind(packet, ETHERNET_LENGTH + found->off + ENTRY_LENGTH,
					    found->word & ENTRY_BOTTOM);
		if (refused)
			return drop(packet, refused & (SEGUE_OUTCOMES_MAX - 1));
	}
	refused = binding_payload(packet, sid, found, &payload, &hops);
	if (unlikely(refused))
		return labels_refuse(packet, refused & (SEGUE_OUTCOMES_MAX - 1), 0);
	adjacency = list_adjacency(packet, list, flow);
	if (unlikely(!adjacency))
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	if (unlikely(!adjacency_fits(packet, adjacency, payload.length + on))) {
		refused = adjacency_refusal(adjacency, &sending);
		if (refused)
			return labels_refuse(packet, refused & (SEGUE_OUTCOMES_MAX - 1),
					     adjacency->fits + found->off + ENTRY_LENGTH - on);
	}
	if (binding_expose(packet, found, &payload, hops))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (buffer_encapsulate(packet->ctx, on))
		return drop(packet, buffer_refusal(packet->ctx, SEGUE_OUTCOME_drop_no_headroom));
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (data + ETHERNET_LENGTH > end || encapsulation_write(data, end, list, &payload))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	((u16 *)data)[6] = bpf_htons(ETH_P_IPV6);
	count(packet, sid->counter);
	count(packet, list->counter);
	/* The kernel will lower the outer hop limit when it forwards. */
	octet = data + ETHERNET_LENGTH + 7;
	if (!hops_used(adjacency) && (void *)(octet + 1) <= end && *octet != 255)
		++*octet;
	return leave(packet, adjacency, bpf_htons(ETH_P_IPV6));
}

/* A packet to a binding label; nothing of it has been changed. */
INLINE int labels_binding(struct packet *packet)
{
	struct label_found found = {.frame = frame_length(packet->ctx)};
	const struct segue_segment_list *list;
	const struct segue_sid *sid;
	int action;
	u32 flow;

	sid = labels_resume(packet, &found, &action);
	if (unlikely(!sid))
		return action;
	if (unlikely(sid->behaviour != SEGUE_LABEL_BINDING))
		return drop(packet, SEGUE_OUTCOME_drop_label_unknown);
	if (unlikely(found.ttl <= 1))
		return labels_refuse(packet, SEGUE_OUTCOME_drop_label_ttl, 0);
	flow = labels_flow(packet->ctx);
	list = policy_list(sid->policy, flow);
	if (unlikely(!list))
		return drop(packet, SEGUE_OUTCOME_drop_policy_invalid);
	if (list->flags & SEGUE_LIST_UDP) {
		stage(packet, SEGUE_STAGE_LABELS_UDP);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	}
	if (list->mode == SEGUE_PUSH)
		return binding_labels(packet, sid, &found, list, flow);
	return binding_sids(packet, sid, &found, list, flow);
}

#endif
