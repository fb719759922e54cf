/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The frame around a packet. */
#ifndef SEGUE_PACKET_FRAME_H
#define SEGUE_PACKET_FRAME_H

#include "lib/base/types.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"

/* Octets in the frame, all buffers. A call, so only for what does not fit the first buffer. */
INLINE u32 frame_length(buffer *ctx)
{
	return buffer_length(ctx);
}

/*
 * Is the frame, whose Ethernet header is there, for somebody else than this port: another host on a segment that is
 * flooded, or a group? The port's address is that which the agent last saw.
 */
INLINE int frame_foreign(const struct packet *packet, const void *frame)
{
	return ((*(const u64 *)frame ^ *(const u64 *)packet->port->mac) << 16) != 0; /* six octets each */
}

INLINE int frame_to_group(const void *frame)
{
	return *(const u8 *)frame & 1;
}

/*
 * Cuts what lies behind the packet in a frame of `frame` octets: Ethernet's padding, or what somebody hides there, does
 * not leave the node. 0: done; pointers into the frame are to be read anew.
 */
RARE int frame_trim(buffer *ctx, u32 frame, u32 packet_end)
{
	return buffer_adjust_tail(ctx, -(int)(frame - packet_end));
}

#endif
