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

/* The octets that can be read and written: anew after each call that moves them. */
INLINE void *buffer_start(const buffer *ctx)
{
	return (void *)(long)ctx->data;
}

INLINE void *buffer_end(const buffer *ctx)
{
	return (void *)(long)ctx->data_end;
}

/* Whether what lies in several buffers leaves as others do. `config_flags`: enum segue_config_flags. */
INLINE u32 buffer_redirects(u32 config_flags)
{
	return config_flags & SEGUE_CONFIG_REDIRECT_MULTI_BUFFER;
}

/* How many packets the buffer is. */
INLINE u32 buffer_segments(buffer *ctx)
{
	(void)ctx;
	return 1;
}

/* Octets of the frame, whose first buffer lies from `data` to `end`; more if it has several. */
INLINE u32 buffer_octets(const buffer *ctx, const void *data, const void *end)
{
	(void)ctx;
	return end - data;
}

/* Octets of the whole frame. A call. */
INLINE u32 buffer_length(buffer *ctx)
{
	return bpf_xdp_get_buff_len(ctx);
}

INLINE void buffer_begin(buffer *ctx)
{
	(void)ctx;
}

INLINE void buffer_go_on(buffer *ctx)
{
	(void)ctx;
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

/* The other way round. */
INLINE long buffer_store(buffer *ctx, u32 offset, void *from, u32 length)
{
	return bpf_xdp_store_bytes(ctx, offset, from, length);
}

/* Moves the beginning: less than 0 makes room in front. 0: done; pointers into the frame are to be read anew. */
INLINE long buffer_adjust_head(buffer *ctx, int delta)
{
	return bpf_xdp_adjust_head(ctx, delta);
}

/* Makes room for an IPv6 header, and what follows it, in front of the IP packet. The same. */
INLINE long buffer_encapsulate(buffer *ctx, u32 push)
{
	return buffer_adjust_head(ctx, -(int)push);
}

/* Takes off `length` octets in front of an inner IP packet: the new beginning has room for an Ethernet header. */
INLINE long buffer_decapsulate(buffer *ctx, u32 length, int ipv4)
{
	(void)ipv4;
	return buffer_adjust_head(ctx, length);
}

/* The inner frame at `offset` becomes the frame. */
INLINE long buffer_expose_frame(buffer *ctx, u32 offset)
{
	return buffer_adjust_head(ctx, offset);
}

/* Octets of the frame. */
INLINE u32 buffer_frame_length(buffer *ctx)
{
	return buffer_length(ctx);
}

/* Makes room in front of the whole frame, with its Ethernet header. */
INLINE long buffer_wrap_frame(buffer *ctx, u32 push)
{
	return buffer_adjust_head(ctx, -(int)push);
}

/* Why room could not be made: `outcome`, unless the buffer has a reason of its own. */
INLINE u32 buffer_refusal(const buffer *ctx, u32 outcome)
{
	(void)ctx;
	return outcome;
}

/* A frame that goes to the kernel is for this node if its Ethernet header says so. */
INLINE void buffer_for_this_host(buffer *ctx)
{
	(void)ctx;
}

/* Moves the end: less than 0 cuts. The same. */
INLINE long buffer_adjust_tail(buffer *ctx, int delta)
{
	return bpf_xdp_adjust_tail(ctx, delta);
}

#endif
