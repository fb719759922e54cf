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
#include "lib/core/boundary.h"

INLINE u32 outer_flow(const struct ipv6hdr *ip)
{
	const u64 *words = (const void *)ip;
	u64 mixed = (words[0] & 0xffff0f00) ^ words[1] ^ words[2];

	/* Traffic class and Payload Length are no part of a flow (RFC 8986 section 7). */
	return (mixed * 0x9e3779b97f4a7c15ULL) >> 40;
}

/*
 * Removes the SRH at `offset`: what lies in front of it moves up (RFC 8986 section 4.16.1). `previous` is the offset of
 * the Next Header octet that names the SRH.
 */
RARE int srh_remove(buffer *ctx, u32 offset, u32 previous)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
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
	/* From the top down, so that nothing is overwritten before it has moved. Headers are multiples of 4 octets. */
	at = offset;
	for (int i = 0; i < 256; i++) {
		if (at < ETHERNET_LENGTH + 4)
			break;
		at -= 4;
		u32 from = at & OFFSET_MASK, to = (at + length) & OFFSET_MASK;

		if (data + from + 4 > end || data + to + 4 > end)
			return -1;
		*(u32 *)(data + to) = *(u32 *)(data + from);
	}
	if (at >= ETHERNET_LENGTH + 4)
		return -1;
	return buffer_adjust_head(ctx, length);
}

/* A packet through End, End.X or End.T that no link takes as it is: refused, too big, or for the kernel. 0: go on. */
INLINE int end_obstacle(const struct packet *packet, const struct segue_sid *sid, const struct adjacency *adjacency,
			int *action)
{
	u32 refusal;

	if (adjacency->kind == ADJACENCY_LINK) {
		*action = too_big(packet, 6, ETHERNET_LENGTH, adjacency->fits);
		return 1;
	}
	if (sid->behaviour == SEGUE_END_X && adjacency->kind != ADJACENCY_OUTSIDE) {
		*action = refuse_next_hop(packet, adjacency);
		return 1;
	}
	refusal = adjacency_refusal(adjacency);
	if (refusal) {
		*action = refuse(packet, refusal, 6, ETHERNET_LENGTH);
		return 1;
	}
	if (sid->table && adjacency->kind != ADJACENCY_SID) { /* the kernel would ask another table */
		*action = refuse_table(packet, adjacency, 6, ETHERNET_LENGTH);
		return 1;
	}
	return 0;
}

/* The SRH at `offset` is about to be removed: is there another one behind it, perhaps in a first fragment? */
RARE u32 srh_leaves(buffer *ctx, u32 offset, u32 limit)
{
	void *data = (void *)(long)ctx->data;
	const struct srh *srh = data + (offset & OFFSET_MASK);

	if ((void *)(srh + 1) > (void *)(long)ctx->data_end)
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
	if (unlikely(!adjacency_fits(adjacency, length)) && end_obstacle(packet, sid, adjacency, &action))
		return action;
	ip->hop_limit -= hops_used(adjacency);
	advance_write(advance, ip, srh);
	if (remove && srh_remove(packet->ctx, advance->header, advance->previous))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	count(sid->counter, packet->length);
	return leave(packet, adjacency, bpf_htons(ETH_P_IPV6));
}

#endif
