/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The buffer of lib/packet/buffer.h at the XDP hook. */
#ifndef SEGUE_PACKET_XDP_H
#define SEGUE_PACKET_XDP_H

#include "lib/base/types.h"

typedef struct xdp_md buffer;

#define VERDICT_PASS XDP_PASS
#define VERDICT_DROP XDP_DROP

/* The route's MTU is given without being compared with it. */
#define FIB_LENGTH 0

/* Octets of the whole frame. A call. */
INLINE u32 buffer_length(buffer *ctx)
{
	return bpf_xdp_get_buff_len(ctx);
}

/* The interface that it came in by. */
INLINE u32 buffer_interface(const buffer *ctx)
{
	return ctx->ingress_ifindex;
}

/* Copies octets, which may lie in any of the frame's buffers. 0: done. */
INLINE long buffer_load(buffer *ctx, u32 offset, void *to, u32 length)
{
	return bpf_xdp_load_bytes(ctx, offset, to, length);
}

/* Moves the beginning: less than 0 makes room in front. 0: done; pointers into the frame are to be read anew. */
INLINE long buffer_adjust_head(buffer *ctx, int delta)
{
	return bpf_xdp_adjust_head(ctx, delta);
}

/* Moves the end: less than 0 cuts. The same. */
INLINE long buffer_adjust_tail(buffer *ctx, int delta)
{
	return bpf_xdp_adjust_tail(ctx, delta);
}

#endif
