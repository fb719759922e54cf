/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What End does to a packet: the next segment becomes its destination, and it goes there. Proxies that let a packet
 * pass do the same. */
#ifndef SEGUE_CORE_ADVANCE_H
#define SEGUE_CORE_ADVANCE_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"
#include "lib/header/advance.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/leave.h"
#include "lib/forward/obstacle.h"
#include "lib/core/boundary.h"

/*
 * Removes the SRH at `offset`: what lies in front of it moves up (RFC 8986 section 4.16.1). `previous` is the offset of
 * the Next Header octet that names the SRH.
 */
RARE int srh_remove(buffer *ctx, u32 offset, u32 previous)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	const struct srh *srh;
	u8 *next_header;
	u32 length, at;

	offset &= OFFSET_MASK;
	previous &= OFFSET_MASK;
	srh = data + offset;
	next_header = data + previous;
	if ((void *)(ip + 1) > end || (void *)(srh + 1) > end || (void *)(next_header + 1) > end)
		return -1;
	length = (srh->length + 1) * 8;
	*next_header = srh->next_header;
	ip->payload_len = bpf_htons(bpf_ntohs(ip->payload_len) - length);
	/* From the top down, so that nothing is overwritten before it has moved. */
	at = offset;
	for (int i = 0; i < 128; i++) {
		u32 from, to;

		if (at < ETHERNET_LENGTH + 8)
			break;
		at -= 8;
		from = at & OFFSET_MASK;
		to = (at + length) & OFFSET_MASK;
		if (data + from + 8 > end || data + to + 8 > end)
			return -1;
		*(u64 *)(data + to) = *(u64 *)(data + from);
	}
	/* Headers are multiples of 4 octets, an Authentication Header of an odd one. */
	if (at >= ETHERNET_LENGTH + 4) {
		u32 to = (ETHERNET_LENGTH + length) & OFFSET_MASK;

		if (at != ETHERNET_LENGTH + 4 || data + to + 4 > end)
			return -1;
		*(u32 *)(data + to) = *(u32 *)(data + ETHERNET_LENGTH);
	}
	return buffer_adjust_head(ctx, length);
}

/* The SRH at `offset` is about to be removed: is there another one behind it, perhaps in a first fragment? */
RARE u32 srh_leaves(buffer *ctx, u32 offset, u32 limit)
{
	void *data = buffer_start(ctx);
	const struct srh *srh = data + (offset & OFFSET_MASK);

	if ((void *)(srh + 1) > buffer_end(ctx))
		return 1;
	return boundary_walk(ctx, (offset + (srh->length + 1) * 8) | (u32)srh->next_header << 16, limit, 0) &
	       BOUNDARY_SR;
}

/* What End, End.X and End.T do with the advanced packet. `ip` and `srh` lie within the frame. */
INLINE int end_forward(const struct packet *packet, const struct segue_sid *sid, struct ipv6hdr *ip, struct srh *srh,
		       u32 limit, const struct advance *advance)
{
	u32 length = limit - ETHERNET_LENGTH, remove = advance->left == 0 && sid->flavours & SEGUE_PSP;
	const struct adjacency *adjacency;
	struct address towards = advance->next;
	u32 inside = ADJACENCY_INSIDE;
	int action;

	if (remove && likely(!boundary_suspects(srh->next_header) || !srh_leaves(packet->ctx, advance->header, limit)))
		inside = 0;
	if (unlikely(sid->behaviour == SEGUE_END_X))
		towards = address_load(sid->next_hop);
	adjacency = adjacency_find(packet, towards, sid->table, sid->oif | inside, outer_flow(ip));
	if (unlikely(!adjacency))
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	if (remove)
		length -= (srh->length + 1) * 8;
	if (unlikely(!adjacency_fits(packet, adjacency, length))) {
		struct sending sending = SENDING_AS_IT_IS;

		sending.next_hop = sid->behaviour == SEGUE_END_X;
		sending.table = sid->table;
		sending.to_sid = 1;
		if (obstacle(packet, adjacency, &sending, &action))
			return action;
	}
	ip->hop_limit -= hops_used(adjacency);
	advance_write(advance, ip, srh);
	if (remove && srh_remove(packet->ctx, advance->header, advance->previous))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	count(packet, sid->counter);
	return leave(packet, adjacency, bpf_htons(ETH_P_IPV6));
}

#endif
