/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions behind a label that see the stack: they get the packet without their own label, with the rest of the stack
 * in front, and give it back so. The rest is remembered by the flow of the packet behind it, and what comes back must
 * have it, whole: so a function leads no packet anywhere but where its own stack leads. Only the TTL of the first label
 * may be lower, as a router has it. A stack that comes back is always shorter than the one that came to the label, and
 * its TTL is not higher: whatever the function does, no packet goes in a circle for ever.
 *
 * A function that rewrites flows (SEGUE_REWRITE_ADDRESSES) sends packets of flows that nobody sent to it. These may
 * have any stack that some packet was sent to it with.
 */
#ifndef SEGUE_LABELS_AWARE_H
#define SEGUE_LABELS_AWARE_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/frame.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/packet/flow.h"
#include "lib/packet/inner.h"
#include "lib/service/function.h"
#include "lib/header/labels.h"
#include "lib/proxy/memory.h"
#include "lib/proxy/behind.h"
#include "lib/labels/leave.h"
#include "lib/labels/walk.h"
#include "lib/labels/function.h"
#include "lib/labels/back.h"
#include "lib/labels/ecn.h"

/* The TTL that what is behind the label goes on with, if that is not its own: 0. */
INLINE u32 aware_ttl(const struct packet *packet, const struct label_found *found)
{
	return packet->port->config_flags & SEGUE_CONFIG_TTL_UNIFORM ? found->ttl : 0;
}

/* Gives the function the packet without its label and those in front. `behind`: octets of the rest of the stack. */
INLINE int aware_deliver(const struct packet *packet, const struct segue_sid *sid, const struct label_found *found,
			 const struct function_link *link, u32 family, u32 behind)
{
	u16 ethertype = behind ? bpf_htons(ETH_P_MPLS_UC) : family == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	u32 ttl = aware_ttl(packet, found);
	u8 *data;

	if (labels_off(packet->ctx, found->off + ENTRY_LENGTH, ethertype))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = buffer_start(packet->ctx);
	if ((void *)data + ETHERNET_LENGTH + ENTRY_LENGTH > buffer_end(packet->ctx))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (ttl && behind)
		data[ETHERNET_LENGTH + 3] = ttl;
	else if (ttl)
		inner_set_hops(data, buffer_end(packet->ctx), family, ttl);
	return function_deliver(packet, sid, link, ethertype, 0);
}

/* A packet to the label; nothing of it has been changed. */
INLINE int labels_aware(struct packet *packet)
{
	struct label_found found = {.frame = frame_length(packet->ctx)};
	u32 outcome, ecn = 0, at, end_of_packet;
	int action;
	struct function_link link = {};
	struct labels_end stack = {};
	const struct segue_sid *sid;
	struct scratch *scratch;
	struct inner inner = {};
	struct outer outer;

	sid = labels_resume(packet, &found, &action);
	if (unlikely(!sid))
		return action;
	if (unlikely(sid->behaviour != SEGUE_LABEL_AWARE))
		return drop(packet, SEGUE_OUTCOME_drop_label_unknown);
	entropy_off(packet->ctx, &found, SEGUE_LABEL_STATIC);
	if (unlikely(sid->flags & SEGUE_SID_DOWN))
		return label_failed(packet, sid, &found);
	if (label_of_frame(packet, &found))
		return drop(packet, SEGUE_OUTCOME_drop_inner_type);
	outcome = labels_end(packet->ctx, ETHERNET_LENGTH + found.off, &stack);
	if (unlikely(outcome))
		return drop(packet, outcome & (SEGUE_OUTCOMES_MAX - 1));
	outer = (struct outer){.frame = found.frame, .limit = found.frame};
	outer.offset = stack.inside & OFFSET_MASK;
	outer.protocol = stack.family == 4 ? PROTOCOL_IPV4 : PROTOCOL_IPV6;
	outcome = inner_admit(packet, sid, &outer, &inner, &ecn);
	if (unlikely(outcome))
		return drop(packet, outcome);
	function_link_find(packet, sid, &link);
	if (unlikely(link.outcome))
		return drop(packet, link.outcome);
	at = ETHERNET_LENGTH + found.off + ENTRY_LENGTH;
	end_of_packet = stack.inside + inner.length;
	if (unlikely(packet_longest(packet, end_of_packet - at) > sid->function_mtu))
		return labels_refuse(packet, SEGUE_OUTCOME_drop_too_big, sid->function_mtu + at - ETHERNET_LENGTH);
	scratch = memory_order(sid, &outer, 0);
	if (!scratch)
		return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	scratch->order.shape = LABELS_SHAPE(stack.inside - at, at, aware_ttl(packet, &found), 0);
	scratch->order.margin = 1;
	if (unlikely(!remember_flow_labels(packet->ctx)))
		return drop(packet, scratch->order.outcome & (SEGUE_OUTCOMES_MAX - 1));
	/* Once more for each packet, so that it is there as long as packets come with it. */
	if (sid->rewrite & SEGUE_REWRITE_ADDRESSES &&
	    !stash_put_labels(packet->ctx, scratch->order.shape, scratch->order.scope))
		return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	if (found.frame > end_of_packet && buffer_adjust_tail(packet->ctx, -(int)(found.frame - end_of_packet)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	return aware_deliver(packet, sid, &found, &link, stack.family, stack.inside - at);
}

/* Is the stack of a packet that came back the one that was sent, but for a lower TTL of its first label? 1: yes. */
RARE int stack_kept(buffer *ctx, u64 id)
{
	const struct segue_stash *entry = stash_get(id);
	const void *data = buffer_start(ctx), *end = buffer_end(ctx);
	const u32 *known;
	u32 differs;

	if (!entry)
		return 0;
	known = (const u32 *)entry->header;
	for (u32 i = 0; i < SEGUE_LABELS_MAX; i++) {
		const u32 *word = data + ETHERNET_LENGTH + i * ENTRY_LENGTH;

		if (i * ENTRY_LENGTH >= entry->length)
			break;
		if ((const void *)(word + 1) > end)
			return 0;
		differs = *word ^ known[i];
		if (!i) {
			if (ENTRY_TTL(bpf_ntohl(*word)) > ENTRY_TTL(bpf_ntohl(known[0])))
				return 0;
			differs &= ~bpf_htonl(0xff);
		}
		if (differs)
			return 0;
	}
	return 1;
}

/*
 * Was a packet of any flow sent with this stack of so many octets, at least one label? The TTL of the first label may
 * be one lower. 1: yes.
 */
RARE int stack_sent(buffer *ctx, u64 scope, u32 length)
{
	struct scratch *scratch = scratch_get();
	u32 ttl = 0;
	u64 hash;

	if (!scratch || !length)
		return 0;
	for (int i = 0; i < 2; i++) {
		hash = labels_prepare(ctx, &scratch->stash, LABELS_SHAPE(length, ETHERNET_LENGTH, ttl, 0), scope);
		if (!hash)
			return 0;
		if (stash_has(scratch, hash))
			return 1;
		ttl = scratch->stash.header[ENTRY_LENGTH - 1] + 1;
		if (ttl > 255)
			return 0;
	}
	return 0;
}

/* Was the flow sent with a stack of so many octets that is this one? 0, or the outcome. */
INLINE u32 stack_of_flow(const struct packet *packet, const struct segue_sid *sid, const struct flow *flow, u32 length)
{
	u64 id = recall_flow(flow, sid->scope, sid->flow_timeout);
	const struct segue_stash *entry = stash_get(id);

	if (!entry || entry->scope != sid->scope) {
		memory_count(sid->scope, id ? MEMORY_OVERWRITTEN : MEMORY_UNKNOWN);
		return id ? SEGUE_OUTCOME_drop_header_forgotten : SEGUE_OUTCOME_drop_unknown_flow;
	}
	if (entry->length != length || !stack_kept(packet->ctx, id) || !stash_still(entry, id))
		return SEGUE_OUTCOME_drop_header_changed;
	return 0;
}

/* May the packet go on with this stack? 0, or the outcome. */
INLINE u32 stack_judge(const struct packet *packet, const struct segue_sid *sid, const struct flow *flow, u32 length)
{
	u32 outcome = stack_of_flow(packet, sid, flow, length);

	if (unlikely(outcome) && sid->rewrite & SEGUE_REWRITE_ADDRESSES && stack_sent(packet->ctx, sid->scope, length))
		return 0;
	return outcome;
}

/* What comes back without labels: nothing was left of the stack, and it goes by its destination. */
INLINE int aware_back_plain(struct packet *packet, const struct segue_sid *sid)
{
	struct flow flow = {};
	u32 outcome;
	int action;

	flow_read(packet, &flow);
	packet->length = flow.length;
	action = function_admit(packet, &flow);
	if (action >= 0)
		return action;
	outcome = stack_judge(packet, sid, &flow, 0);
	if (unlikely(outcome))
		return drop(packet, outcome & (SEGUE_OUTCOMES_MAX - 1));
	if (flow.hop_limit <= 1)
		return time_exceeded(packet, flow.family, ETHERNET_LENGTH);
	return back_deliver(packet, sid, &flow);
}

/* A packet back from the function. */
INLINE int labels_aware_back(struct packet *packet)
{
	u32 index = packet->port->proxy, frame = frame_length(packet->ctx), outcome;
	const struct segue_sid *sid = bpf_map_lookup_elem(&sid_entries, &index);
	void *data = buffer_start(packet->ctx), *end = buffer_end(packet->ctx);
	struct labels_end stack = {};
	struct flow_scratch *of;

	packet->length = frame - ETHERNET_LENGTH;
	if (!sid || sid->behaviour != SEGUE_LABEL_AWARE)
		return drop(packet, SEGUE_OUTCOME_drop_proxy_empty);
	if (data + ETHERNET_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	if (((const u16 *)data)[6] != bpf_htons(ETH_P_MPLS_UC))
		return aware_back_plain(packet, sid);
	/* The kernel gets no labels, whoever else they are for. */
	if (unlikely(frame_to_group(data) || frame_foreign(packet, data)))
		return drop(packet, SEGUE_OUTCOME_drop_from_function);
	if (unlikely(labels_of_segments(packet->ctx)))
		return drop(packet, SEGUE_OUTCOME_drop_offload);
	if (unlikely(frame != buffer_octets(packet->ctx, data, end) && !buffer_redirects(packet->port->config_flags)))
		return drop(packet, SEGUE_OUTCOME_drop_multi_buffer);
	outcome = labels_end(packet->ctx, ETHERNET_LENGTH, &stack);
	if (unlikely(outcome))
		return drop(packet, outcome & (SEGUE_OUTCOMES_MAX - 1));
	of = flow_scratch_get();
	if (!of)
		return drop(packet, SEGUE_OUTCOME_drop_header_forgotten);
	if (stack.family == 4)
		flow_read_ipv4(packet->ctx, stack.inside & OFFSET_MASK, &of->flow);
	else
		flow_read_ipv6(packet->ctx, stack.inside & OFFSET_MASK, &of->flow);
	outcome = of->flow.outcome;
	if (likely(!outcome))
		outcome = stack_judge(packet, sid, &of->flow, stack.inside - ETHERNET_LENGTH);
	if (unlikely(outcome))
		return drop(packet, outcome & (SEGUE_OUTCOMES_MAX - 1));
	labels_mark(packet, of->flow.traffic_class & 3);
	count(packet, sid->counter_return);
	return labels_here(packet);
}

#endif
