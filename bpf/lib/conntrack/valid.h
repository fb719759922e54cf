/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What belongs to no connection, whatever there is in the table: INVALID, as in netfilter. */
#ifndef SEGUE_CONNTRACK_VALID_H
#define SEGUE_CONNTRACK_VALID_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/firewall/work.h"

/*
 * The Length of a UDP header, or the Checksum Coverage of UDP-Lite (RFC 3828 section 3.1; 0: all of it), fits the
 * packet. Where a datagram ends is not known from its first fragment.
 */
INLINE int datagram_valid(buffer *ctx, const struct firewall_work *work)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	const u16 *half = data + (work->upper & OFFSET_MASK);
	u32 length;

	if ((void *)(half + 3) > end)
		return 0;
	length = bpf_ntohs(half[2]);
	if (unlikely(length < 8))
		return !length && work->key.protocol == PROTOCOL_UDPLITE;
	return length <= work->limit - work->upper || work->fragment & FIREWALL_FIRST_FRAGMENT;
}

/* 0: the packet in `work` is INVALID without looking for its connection. */
INLINE int conntrack_valid(buffer *ctx, const struct firewall_work *work)
{
	u32 protocol = work->key.protocol;

	if (protocol == PROTOCOL_TCP || work->fragment & FIREWALL_LATER_FRAGMENT)
		return 1;
	if (protocol == PROTOCOL_UDP || protocol == PROTOCOL_UDPLITE)
		return datagram_valid(ctx, work);
	/* Nothing follows (RFC 8200 section 4.7), not even something to tell connections apart by. */
	return protocol != PROTOCOL_NO_NEXT_HEADER || work->key.family != 6;
}

#endif
