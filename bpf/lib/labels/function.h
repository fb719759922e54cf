/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Into a function behind a label (draft-ietf-spring-sr-service-programming sections 6.1 and 6.2, for SR-MPLS): it gets
 * the inner packet without labels. The rest of the stack is remembered as proxies for SRv6 remember their headers
 * (lib/proxy/memory.h). The way back: lib/labels/back.h.
 */
#ifndef SEGUE_LABELS_FUNCTION_H
#define SEGUE_LABELS_FUNCTION_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/packet/inner.h"
#include "lib/service/function.h"
#include "lib/header/labels.h"
#include "lib/proxy/memory.h"
#include "lib/proxy/take_off.h"
#include "lib/labels/leave.h"
#include "lib/labels/walk.h"
#include "lib/labels/deliver.h"

/* Remembers the rest of a stack for the interface that the packet comes back by. The reference, or 0. */
RARE u64 labels_remember(buffer *ctx, u64 shape, u64 scope, u32 margin)
{
	const struct segue_stash *entry;
	u64 id = 0;

	entry = memory_current(scope, &id);
	if (likely(entry && labels_same(entry, buffer_start(ctx), buffer_end(ctx), shape, margin) &&
		   stash_still(entry, id)))
		return id;
	return memory_renew(SEGUE_HEADER_MPLS, ctx, scope, shape);
}

/* The same by what the SID says: the interface, the flow, the packet. The reference, or 0 and the outcome. */
INLINE u64 label_remember(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer,
			  u64 shape, u32 *outcome)
{
	u32 margin = sid->hop_limit_margin ?: 1;
	struct scratch *scratch;
	u64 id;

	*outcome = SEGUE_OUTCOME_drop_header_unfit;
	if (sid->memory != SEGUE_MEMORY_FLOW)
		return labels_remember(packet->ctx, shape, sid->scope, margin);
	scratch = memory_order(sid, outer, 0);
	if (!scratch)
		return 0;
	scratch->order.shape = shape;
	id = remember_flow_labels(packet->ctx);
	*outcome = scratch->order.outcome;
	return id;
}

/*
 * The function is not to see the packet: its label comes off, and the packet goes on by the next one, or where there is
 * none by its destination.
 */
INLINE int label_onward(struct packet *packet, const struct segue_sid *sid, const struct label_found *found)
{
	u32 off = found->off + ENTRY_LENGTH;
	void *data, *end;

	if (found->word & ENTRY_BOTTOM)
		return label_deliver(packet, sid, found);
	if (labels_off(packet->ctx, off, bpf_htons(ETH_P_MPLS_UC)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (data + ETHERNET_LENGTH + ENTRY_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_label_bottom);
	if (packet->port->config_flags & SEGUE_CONFIG_TTL_UNIFORM)
		((u8 *)data)[ETHERNET_LENGTH + 3] = found->ttl;
	count(packet, sid->counter);
	stage(packet, SEGUE_STAGE_LABELS);
	return drop(packet, SEGUE_OUTCOME_drop_recirculation);
}

/* The function is down: what the operator wants then. */
INLINE int label_failed(struct packet *packet, const struct segue_sid *sid, const struct label_found *found)
{
	void *data = buffer_start(packet->ctx);
	u32 *entry = data + ((ETHERNET_LENGTH + found->off) & OFFSET_MASK);

	if (sid->failure == SEGUE_FAILURE_BYPASS)
		return label_onward(packet, sid, found);
	if (sid->failure != SEGUE_FAILURE_REROUTE)
		return drop(packet, SEGUE_OUTCOME_drop_function_down);
	/* The other label in place of this one, to be looked up here: it lowers the TTL, if it leads on. */
	if ((void *)(entry + 1) > buffer_end(packet->ctx))
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	entry_store(entry, sid->out_label << 12 | (found->word & ENTRY_CLASS_AND_BOTTOM) | found->ttl);
	count(packet, sid->counter);
	stage(packet, SEGUE_STAGE_LABELS);
	return drop(packet, SEGUE_OUTCOME_drop_recirculation);
}

/* The shape of what is behind a function's label. */
INLINE u64 label_shape(const struct packet *packet, const struct segue_sid *sid, const struct label_found *found,
		       const struct labels_end *stack, const struct inner *inner)
{
	u32 at = ETHERNET_LENGTH + found->off + ENTRY_LENGTH, flags = 0, ttl = 0;
	u64 shape;

	if (packet->port->config_flags & SEGUE_CONFIG_TTL_UNIFORM)
		ttl = found->ttl;
	if (sid->memory == SEGUE_MEMORY_PACKET)
		flags = SEGUE_STASH_EXACT | SEGUE_STASH_LABELS;
	else if (stack->class == (u32)inner->dscp >> 3 << 9)
		flags = SEGUE_STASH_TRAFFIC_CLASS_COPY;
	if (stack->entropy && sid->memory != SEGUE_MEMORY_PACKET)
		flags |= SEGUE_STASH_ENTROPY;
	shape = LABELS_SHAPE(stack->inside - at, at, ttl, flags);
	if (sid->memory == SEGUE_MEMORY_PACKET && sid->proxy_flags & SEGUE_PROXY_KEEP_HOP_LIMIT)
		shape |= STASH_SHAPE_HOP_LIMIT(inner->hop_limit);
	return shape;
}

/* The packet behind the stack goes to the function. `id`: of what is remembered, where it goes through the kernel. */
INLINE int label_to_function(const struct packet *packet, const struct segue_sid *sid, const struct label_found *found,
			     const struct labels_end *stack, const struct inner *inner,
			     const struct function_link *link, u64 id)
{
	u32 end_of_packet = stack->inside + inner->length, six = stack->family == 6, through_kernel;
	u32 bottom = found->word & ENTRY_BOTTOM;
	void *data, *end;

	through_kernel = sid->memory == SEGUE_MEMORY_PACKET;
	if (found->frame > end_of_packet && buffer_adjust_tail(packet->ctx, -(int)(found->frame - end_of_packet)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (labels_off(packet->ctx, stack->inside - ETHERNET_LENGTH, six ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	/* It is what the packet would have been sent on with (RFC 3443 section 3.1). */
	if (bottom && packet->port->config_flags & SEGUE_CONFIG_TTL_UNIFORM)
		inner_set_hops(data, end, stack->family, found->ttl);
	/* Netfilter is no hop: the kernel's is undone on the way out. What it would not forward at all goes in as 2. */
	if (through_kernel && sid->proxy_flags & SEGUE_PROXY_KEEP_HOP_LIMIT && unlikely(inner->hop_limit < 2))
		inner_set_hops(data, end, stack->family, 2);
	if (through_kernel && kernel_metadata(packet, sid, id, 0))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	return function_deliver(packet, sid, link, six ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP), through_kernel);
}

/*
 * To the node's own firewall, which looks at the packet where it lies. Its label becomes the first one, with the TTL
 * that is right, and nothing is left behind the packet.
 */
INLINE int label_to_firewall(const struct packet *packet, const struct label_found *found,
			     const struct labels_end *stack, const struct inner *inner)
{
	u32 at = ETHERNET_LENGTH + found->off, end_of_packet = stack->inside + inner->length;
	struct scratch *scratch = scratch_get();
	u8 *data;

	if (!scratch || stack->inside - at > SEGUE_LABELS_MAX * ENTRY_LENGTH)
		return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	if (found->frame > end_of_packet && buffer_adjust_tail(packet->ctx, -(int)(found->frame - end_of_packet)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (unlikely(found->off) && labels_off(packet->ctx, found->off, bpf_htons(ETH_P_MPLS_UC)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = buffer_start(packet->ctx);
	if ((void *)data + ETHERNET_LENGTH + ENTRY_LENGTH > buffer_end(packet->ctx))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (packet->port->config_flags & SEGUE_CONFIG_TTL_UNIFORM)
		data[ETHERNET_LENGTH + 3] = found->ttl;
	scratch->label.index = found->index;
	scratch->label.inside = stack->inside - found->off;
	scratch->label.octets = inner->length;
	stage(packet, SEGUE_STAGE_LABELS_FIREWALL);
	return drop(packet, SEGUE_OUTCOME_drop_recirculation);
}

/* Is it known here that a frame is behind the stack? No function takes frames. */
INLINE u32 label_of_frame(const struct packet *packet, const struct label_found *found)
{
	return unlikely(packet->port->config_flags & SEGUE_CONFIG_PSEUDOWIRES) &&
	       labels_frame_behind(packet->ctx, packet->epoch, ETHERNET_LENGTH + found->off);
}

/* A label that leads to a function, wherever in a stack it is. */
INLINE int label_function(struct packet *packet, const struct segue_sid *sid, const struct label_found *found)
{
	struct outer outer = {.frame = found->frame, .limit = found->frame};
	struct labels_end stack = {};
	struct function_link link = {};
	struct inner inner = {};
	u32 outcome, frames, ecn = 0;
	u64 id = 0;

	if (unlikely(sid->flags & SEGUE_SID_DOWN))
		return label_failed(packet, sid, found);
	frames = label_of_frame(packet, found);
	outcome = unlikely(frames) ? 0 : labels_end(packet->ctx, ETHERNET_LENGTH + found->off, &stack);
	if (unlikely(outcome))
		return drop(packet, outcome & (SEGUE_OUTCOMES_MAX - 1));
	if (unlikely(frames || !(sid->inner & (stack.family == 4 ? SEGUE_INNER_IPV4 : SEGUE_INNER_IPV6)))) {
		if (sid->flags & SEGUE_SID_BYPASS_OTHER_TYPE)
			return label_onward(packet, sid, found);
		return drop(packet, SEGUE_OUTCOME_drop_inner_type);
	}
	outer.offset = stack.inside & OFFSET_MASK;
	outer.protocol = stack.family == 4 ? PROTOCOL_IPV4 : PROTOCOL_IPV6;
	outcome = inner_admit(packet, sid, &outer, &inner, &ecn);
	if (unlikely(outcome))
		return drop(packet, outcome);
	if (sid->behaviour == SEGUE_LABEL_FIREWALL)
		return label_to_firewall(packet, found, &stack, &inner);
	/* The function's kernel does not forward it, and would say nothing. */
	if (unlikely(sid->memory == SEGUE_MEMORY_PACKET && stack.family == 6 && address_link_local(inner.source)))
		return drop(packet, SEGUE_OUTCOME_drop_bad_inner);
	function_link_find(packet, sid, &link);
	if (unlikely(link.outcome))
		return drop(packet, link.outcome);
	if (unlikely(packet_longest(packet, inner.length) > sid->function_mtu))
		return labels_refuse(packet, SEGUE_OUTCOME_drop_too_big,
				     sid->function_mtu + stack.inside - ETHERNET_LENGTH);
	if (sid->behaviour == SEGUE_LABEL_DYNAMIC) {
		id = label_remember(packet, sid, &outer, label_shape(packet, sid, found, &stack, &inner), &outcome);
		if (unlikely(!id))
			return drop(packet, outcome & (SEGUE_OUTCOMES_MAX - 1));
	}
	return label_to_function(packet, sid, found, &stack, &inner, &link, id);
}

#endif
