/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Several instances of one function behind one SID. Each instance has a SID of its own on this node, an ordinary
 * proxy's, which differs from the SID of all of them in its last 32 bits: the instance's number. A packet gets the SID
 * of the instance that its flow belongs to (lib/proxy/instance.h) as its destination, and goes on as if it had come to
 * that.
 */
#ifndef SEGUE_PROXY_INSTANCES_H
#define SEGUE_PROXY_INSTANCES_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/packet/headers.h"
#include "lib/packet/flow.h"
#include "lib/forward/sid.h"
#include "lib/service/function.h"
#include "lib/proxy/memory.h"
#include "lib/proxy/instance.h"

/*
 * Reads the flow of the packet in hand, which has an SRH with segments left, into the scratch memory: that of its inner
 * packet, or where the SRH was inserted its own, with the last segment as destination. TCP's flags; or 1 << 16 and the
 * outcome.
 */
RARE u32 instance_flow(buffer *ctx, u32 limit)
{
	struct flow_scratch *of = flow_scratch_get();
	void *data = buffer_start(ctx), *end = buffer_end(ctx);
	struct headers headers = {};
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	const u8 *last;
	u32 srh, l3;

	if (!of || (const void *)(ip + 1) > end)
		return 1 << 16 | SEGUE_OUTCOME_drop_truncated;
	headers_walk(ctx, ETHERNET_LENGTH + 6, ETHERNET_LENGTH + IPV6_LENGTH, limit, &headers);
	srh = headers.srh & OFFSET_MASK;
	if (!srh)
		return 1 << 16 | SEGUE_OUTCOME_drop_upper_layer;
	headers_walk_past_srh(ctx, srh, limit, &headers);
	l3 = headers.upper & OFFSET_MASK;
	/* What cannot be read is the instance's business. */
	if (headers.protocol == PROTOCOL_IPV4) {
		flow_read_ipv4(ctx, l3, &of->flow);
		return instance_read_upper(ctx, l3, &of->flow) & 0xff;
	}
	if (headers.protocol == PROTOCOL_IPV6) {
		flow_read_ipv6(ctx, l3, &of->flow);
		return instance_read_upper(ctx, l3, &of->flow) & 0xff;
	}
	data = buffer_start(ctx);
	end = buffer_end(ctx);
	ip = data + ETHERNET_LENGTH;
	opaque(srh);
	srh &= OFFSET_MASK;
	last = data + srh;
	if ((const void *)(ip + 1) > end || (const void *)(last + SRH_FIXED_LENGTH + 16) > end)
		return 1 << 16 | SEGUE_OUTCOME_drop_truncated;
	of->flow.family = 6;
	of->flow.key[0] = address_load(&ip->saddr).high;
	of->flow.key[1] = address_load(&ip->saddr).low;
	of->flow.key[2] = address_load(last + SRH_FIXED_LENGTH).high;
	of->flow.key[3] = address_load(last + SRH_FIXED_LENGTH).low;
	of->flow.key[4] = (u64)headers.protocol << 32 | 6ULL << 40;
	opaque(l3);
	l3 &= OFFSET_MASK;
	if (!headers.fragment && protocol_has_ports(headers.protocol) && data + l3 + 14 <= end) {
		of->flow.key[4] |= *(const u32 *)(data + l3);
		if (headers.protocol == PROTOCOL_TCP)
			return ((const u8 *)data + l3)[13];
	}
	return 0;
}

/* None of the instances is up: what the SID does then. `number`: of one that would take the flow; 0: there is none. */
INLINE int instances_down(const struct packet *packet, u32 number)
{
	void *data = buffer_start(packet->ctx), *end = buffer_end(packet->ctx);
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	const struct srh *srh = (void *)(ip + 1);
	const struct segue_sid *sid;

	if ((void *)(srh + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	sid = sid_find(packet->epoch, address_load(&ip->daddr));
	if (!sid)
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	if (sid->failure == SEGUE_FAILURE_REROUTE && ip->nexthdr == PROTOCOL_ROUTING) {
		const void *segment = (const void *)(srh + 1) + srh->segments_left * 16;

		/* A reduced list has no first segment to compare with. */
		if (srh->segments_left > srh->last_entry || !function_rerouted(ip, segment, end))
			return function_reroute(packet, sid, ip, packet->length);
	}
	/* That one's own SID lets packets pass. */
	if (sid->failure == SEGUE_FAILURE_BYPASS && number) {
		address_store(&ip->daddr,
			      (struct address){address_load(&ip->daddr).high,
					       (address_load(&ip->daddr).low & 0xffffffff) | (u64)number << 32});
		count(packet, sid->counter);
		stage(packet, SEGUE_STAGE_AGAIN);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	}
	return drop(packet, SEGUE_OUTCOME_drop_function_down);
}

/* A packet to the SID of all instances: endpoint() has found an SRH with segments left. */
INLINE int instances_stage(struct packet *packet)
{
	void *data = buffer_start(packet->ctx), *end = buffer_end(packet->ctx);
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	const struct segue_sid *sid;
	struct address address;
	u32 flags, counter;
	u64 found;

	if ((void *)(ip + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	packet->length = packet_ipv6_octets(packet->ctx, ip);
	address = address_load(&ip->daddr);
	flags = instance_flow(packet->ctx, ETHERNET_LENGTH + packet->length);
	if (flags >> 16)
		return drop(packet, flags & 0xffff);
	sid = sid_find(packet->epoch, address);
	if (!sid || sid->behaviour != SEGUE_END_INSTANCES)
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	/* What is remembered of a SID may become another's. */
	counter = sid->counter;
	found = instance_take(packet->epoch, sid, address, flags);
	if (!(found & INSTANCE_UP))
		return instances_down(packet, found);
	address.low = (address.low & 0xffffffff) | found << 32;
	data = buffer_start(packet->ctx);
	ip = data + ETHERNET_LENGTH;
	if ((void *)(ip + 1) > buffer_end(packet->ctx))
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	address_store(&ip->daddr, address);
	count(packet, counter);
	stage(packet, SEGUE_STAGE_AGAIN);
	return drop(packet, SEGUE_OUTCOME_drop_recirculation);
}

#endif
