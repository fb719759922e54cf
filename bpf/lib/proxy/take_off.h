/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Into the function of a proxy that takes the steering header off: End.AS, End.AD
 * (draft-ietf-spring-sr-service-programming sections 6.1 and 6.2), End.AN.NF. They differ in what the header is
 * remembered by: lib/proxy/memory.h. The way out of the function: lib/proxy/put_on.h, or through the kernel
 * lib/kernel/function.h.
 */
#ifndef SEGUE_PROXY_TAKE_OFF_H
#define SEGUE_PROXY_TAKE_OFF_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/frame.h"
#include "lib/packet/outcome.h"
#include "lib/packet/inner.h"
#include "lib/header/advance.h"
#include "lib/header/srv6.h"
#include "lib/forward/sid.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/obstacle.h"
#include "lib/core/advance.h"
#include "lib/core/decapsulation.h"
#include "lib/service/function.h"
#include "lib/proxy/stash.h"
#include "lib/proxy/memory.h"

#ifdef SEGUE_SKB
/* What goes with the packet through the function: it is on the buffer from here on. 0: done. */
INLINE int kernel_metadata(const struct packet *packet, const struct segue_sid *sid, u64 id, u32 mark)
{
	buffer *skb = packet->ctx;

	(void)sid;
	skb->mark = mark;
	skb->tc_index = SEGUE_TC_INDEX | (stash_tc_index(id) & (u16)~SEGUE_TC_INDEX_MASK);
	bpf_set_hash(skb, id);
	return 0;
}

#else

/*
 * Puts what the TC program must know in front of the frame, whose packet is complete. 0: done. The frame's Ethernet
 * header is there to be written.
 */
INLINE int kernel_metadata(const struct packet *packet, const struct segue_sid *sid, u64 id, u32 mark)
{
	struct segue_function_metadata *metadata;
	void *data;

	if (bpf_xdp_adjust_meta(packet->ctx, -(int)sizeof(*metadata)))
		return -1;
	data = buffer_start(packet->ctx);
	metadata = (void *)(long)packet->ctx->data_meta;
	if ((void *)(metadata + 1) > data)
		return -1;
	metadata->magic = control.metadata_magic;
	metadata->stash = id;
	metadata->mark = mark;
	metadata->oif = sid->oif;
	metadata->flags = stash_tc_index(id) | (sid->proxy_flags & SEGUE_PROXY_PEER ? SEGUE_METADATA_PEER : 0);
	return 0;
}

#endif

/* What a packet has with it that goes to its function through the kernel. */
struct kernel_way {
	u64 id; /* the reference to its header */
	u32 mark;
};

/*
 * The steering header comes off a frame of `frame` octets, and the inner packet goes to the function. `ecn`: what its
 * ECN field becomes. `through_kernel`: NULL, it leaves by IFACE-OUT.
 */
INLINE int proxy_deliver(const struct packet *packet, const struct segue_sid *sid, u32 frame, u32 ipv4,
			 const struct inner *inner, const struct function_link *link, u32 ecn,
			 const struct kernel_way *through_kernel)
{
	void *data, *end;

	if (expose(packet->ctx, inner->offset, inner->offset + inner->length, frame, ipv4) ||
	    (through_kernel && kernel_metadata(packet, sid, through_kernel->id, through_kernel->mark)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (data + ETHERNET_LENGTH + sizeof(struct iphdr) > end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (unlikely(ecn != inner->ecn)) {
		if (ipv4)
			ipv4_set_ecn(data + ETHERNET_LENGTH, ecn);
		else
			ipv6_set_ecn(data + ETHERNET_LENGTH, ecn);
	}
	/* Netfilter is no hop: the kernel's is undone on the way out. What it would not forward at all goes in as 2. */
	if (through_kernel && unlikely(inner->hop_limit < 2) && sid->proxy_flags & SEGUE_PROXY_KEEP_HOP_LIMIT) {
		if (ipv4)
			ipv4_set_ttl(data + ETHERNET_LENGTH, 2);
		else
			((struct ipv6hdr *)(data + ETHERNET_LENGTH))->hop_limit = 2;
	}
	return function_deliver_at(packet, sid, link, data, ipv4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6),
				   through_kernel != NULL);
}

/*
 * Where a packet of `length` octets goes from its function is known: what would not fit there is refused while its
 * sender can be told. 1: it has ended, with `action`.
 */
INLINE int onward_obstacle(const struct packet *packet, struct address next, u32 length, int *action)
{
	const struct adjacency *adjacency;

	if (length <= IPV6_LEAST_MTU)
		return 0;
	adjacency = adjacency_find(packet, next, 0, ADJACENCY_INSIDE, 0);
	if (!adjacency || adjacency->kind != ADJACENCY_LINK || likely(adjacency_fits(packet, adjacency, length)))
		return 0;
	return obstacle(packet, adjacency, &SENDING_AS_IT_IS, action);
}

/*
 * End.AN.NF and an SRH that was inserted into a packet's own header: the function gets the packet as its source made
 * it, but for the hop limit, which this node lowers as any endpoint does. The SRH is remembered without the packet's
 * own destination; function_insert() puts it back.
 */
INLINE int proxy_inserted(struct packet *packet)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	u32 frame = frame_length(packet->ctx), total, length, hop_limit, mark;
	u64 id, shape;
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	struct srh *srh = data + SIMPLE_SRH;
	struct function_link link = {};
	const struct segue_sid *sid;
	const void *segment;
	struct address last;
	int action;

	if ((void *)(srh + 1) + 16 > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	packet->length = IPV6_LENGTH + bpf_ntohs(ip->payload_len);
	total = packet->length;
	length = (srh->length + 1) * 8;
	/* Headers in front of the SRH belong to the packet that it was inserted into: it would not be known where. */
	if (ip->nexthdr != PROTOCOL_ROUTING || srh->type != ROUTING_TYPE_SRH || IPV6_LENGTH + length > total ||
	    ETHERNET_LENGTH + total > frame)
		return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	/* Anew: a tail call carries no pointer. */
	sid = sid_find(packet->epoch, address_load(&ip->daddr));
	if (!sid || sid->behaviour != SEGUE_END_AN_NF)
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	segment = advance_segment(data, SIMPLE_SRH, (srh->segments_left - 1) & 0xff);
	if (segment + 16 > end)
		return drop(packet, SEGUE_OUTCOME_drop_multi_buffer_header);
	last = address_load(srh + 1);
	if (!address_forwardable(last))
		return drop(packet, SEGUE_OUTCOME_drop_bad_next_segment);
	if (rarely_in_sid_block(packet, last))
		return drop(packet, SEGUE_OUTCOME_drop_inner_to_sid);
	if (address_link_local(address_load(&ip->saddr)))
		return drop(packet, SEGUE_OUTCOME_drop_bad_inner);
	/* Without its SRH it is as its sender made it. */
	if (function_obstacle(packet, sid, total - length, 0, &link, &action) ||
	    onward_obstacle(packet, address_load(segment), total, &action))
		return action;
	hop_limit = ip->hop_limit - 1;
	shape = STASH_SHAPE(IPV6_LENGTH + length, 0, IPV6_LENGTH, SEGUE_STASH_SRH);
	id = stash_put(packet->ctx, shape | STASH_SHAPE_HOP_LIMIT(hop_limit & 0xff), sid->scope);
	if (!id)
		return drop(packet, SEGUE_OUTCOME_drop_header_unfit);
	mark = sid_argument(sid, sid->argument_length, address_load(&ip->daddr));
	ip->hop_limit = hop_limit < 2 ? 2 : hop_limit;
	address_store(&ip->daddr, last);
	if (frame > ETHERNET_LENGTH + total && buffer_adjust_tail(packet->ctx, -(int)(frame - ETHERNET_LENGTH - total)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (srh_remove(packet->ctx, SIMPLE_SRH, ETHERNET_LENGTH + 6) || kernel_metadata(packet, sid, id, mark))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	return function_deliver(packet, sid, &link, bpf_htons(ETH_P_IPV6), 1);
}

/* It is done in a stage of its own: the others have no stack left for it. Nothing of the packet has been changed. */
INLINE int proxy_inserted_elsewhere(const struct packet *packet)
{
	stage(packet, SEGUE_STAGE_INSERTED);
	return drop(packet, SEGUE_OUTCOME_drop_recirculation);
}

/*
 * SR to function: the inner packet leaves by IFACE-OUT, its hop limit untouched. With a memory, `outer->srh` is set and
 * `advance` is what the header will be.
 */
INLINE int proxy_to_function(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer,
			     const struct advance *advance)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	u32 ipv4 = outer->protocol == PROTOCOL_IPV4, outcome, ecn = 0;
	struct kernel_way through_kernel = {};
	struct function_link link = {};
	struct address destination;
	struct inner inner = {};
	int action;

	if (unlikely(outer->fragment))
		return drop(packet, SEGUE_OUTCOME_drop_fragment_at_decapsulation);
	if (unlikely(outer->protocol == PROTOCOL_ETHERNET)) {
		if (sid->memory && !remember(packet, sid, outer, 0, 0, &outcome))
			return drop(packet, outcome);
		return decapsulate_ethernet(packet, sid, outer, SEGUE_OUTCOME_to_function);
	}
	outcome = inner_admit(packet, sid, outer, &inner, &ecn);
	if (unlikely(outcome))
		return drop(packet, outcome);
	/* Its sender is somebody whom only the node knows that wrapped it: lib/icmp/relay.h. */
	if (function_obstacle(packet, sid, inner.length, outer->offset - ETHERNET_LENGTH, &link, &action))
		return action;
	if (sid->memory) {
		through_kernel.id = remember(packet, sid, outer, outer->dscp == inner.dscp, inner.hop_limit, &outcome);
		if (unlikely(!through_kernel.id))
			return drop(packet, outcome);
	}
	if (packet->stage == SEGUE_STAGE_PROXY && sid->memory == SEGUE_MEMORY_PACKET) {
		/* The function's kernel does not forward it, and would say nothing. */
		if (!ipv4 && unlikely(address_link_local(inner.source)))
			return drop(packet, SEGUE_OUTCOME_drop_bad_inner);
		if (data + ETHERNET_LENGTH + IPV6_LENGTH > end)
			return drop(packet, SEGUE_OUTCOME_drop_truncated);
		destination = address_load(data + ETHERNET_LENGTH + 24);
		if (onward_obstacle(packet, advance->next, outer->limit - ETHERNET_LENGTH, &action))
			return action;
		through_kernel.mark = sid_argument(sid, sid->argument_length, destination);
		return proxy_deliver(packet, sid, outer->frame, ipv4, &inner, &link, ecn, &through_kernel);
	}
	return proxy_deliver(packet, sid, outer->frame, ipv4, &inner, &link, ecn, NULL);
}

#endif
