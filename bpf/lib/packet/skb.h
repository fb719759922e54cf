/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The buffer of lib/packet/buffer.h at the TC hook. `data_end` ends its linear part; skb->len counts the whole packet.
 */
#ifndef SEGUE_PACKET_SKB_H
#define SEGUE_PACKET_SKB_H

#include <linux/pkt_cls.h>

#include "lib/base/types.h"

typedef struct __sk_buff buffer;

#define VERDICT_PASS TC_ACT_OK
#define VERDICT_DROP TC_ACT_SHOT

/*
 * For a socket buffer bpf_fib_lookup() compares the device's MTU with the buffer's length, unless it is told a length:
 * then it answers with the route's MTU, as it does for frames.
 */
#define FIB_LENGTH 1

INLINE u32 buffer_length(buffer *skb)
{
	return skb->len;
}

/*
 * In whose namespace the program runs. skb->ingress_ifindex may be one of another namespace, which the packet came
 * through before.
 */
INLINE u32 buffer_interface(const buffer *skb)
{
	return skb->ifindex;
}

INLINE long buffer_load(buffer *skb, u32 offset, void *to, u32 length)
{
	return bpf_skb_load_bytes(skb, offset, to, length);
}

/* Only frames are moved this way: what would do it is never met by a socket buffer. */
INLINE long buffer_adjust_head(buffer *skb, int delta)
{
	return delta ? -1 : -2;
}

INLINE long buffer_adjust_tail(buffer *skb, int delta)
{
	return delta ? -1 : -2;
}

#endif
