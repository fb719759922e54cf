/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Labels off and on in front of a packet. On XDP a move of the frame's head. The kernel shrinks no socket buffer that
 * is no IP packet by its protocol, so that one with labels is made one for the moment.
 */
#ifndef SEGUE_LABELS_ROOM_H
#define SEGUE_LABELS_ROOM_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"

#ifdef SEGUE_SKB

/* Takes off `octets` behind the Ethernet header; what follows is of the type `ethertype`. 0: done. */
RARE int labels_off(buffer *skb, u32 octets, u32 ethertype)
{
	u16 meanwhile = ethertype == bpf_htons(ETH_P_MPLS_UC) ? bpf_htons(ETH_P_IP) : ethertype;

	if (skb_becomes(skb, meanwhile) ||
	    bpf_skb_adjust_room(skb, -(int)octets, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO))
		return -1;
	return meanwhile != ethertype && skb_becomes(skb, ethertype);
}

/* Makes room for `octets` of labels in front of an IP packet, behind the Ethernet header. 0: done. */
RARE int labels_on(buffer *skb, u32 octets)
{
	/* So that the kernel knows where the Ethernet header ends: labels may come off again. */
	if (bpf_skb_adjust_room(skb, octets, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO))
		return -1;
	return skb_becomes(skb, bpf_htons(ETH_P_MPLS_UC));
}

/* The same for a packet that gets another Ethernet header. */
INLINE int labels_room(buffer *skb, u32 octets)
{
	return labels_on(skb, octets);
}

/* Takes off `octets` of labels, and makes room for `room` octets of others in their place. 0: done. */
RARE int labels_exchange(buffer *skb, u32 octets, u32 room)
{
	if (octets == room)
		return 0;
	if (skb_becomes(skb, bpf_htons(ETH_P_IP)) ||
	    bpf_skb_adjust_room(skb, (int)(room - octets), BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO))
		return -1;
	return skb_becomes(skb, bpf_htons(ETH_P_MPLS_UC));
}

/* The same for what begins with a header of the type `ethertype`, of IPv4 or IPv6, in place of labels or of none. */
RARE int labels_into(buffer *skb, u32 octets, u32 room, u32 ethertype)
{
	if (skb_becomes(skb, ethertype))
		return -1;
	return octets != room &&
	       bpf_skb_adjust_room(skb, (int)(room - octets), BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO);
}

/* A packet with labels becomes for the kernel one that an IPv6 header can be put in front of. 0: done. */
INLINE int labels_wrappable(buffer *skb)
{
	return skb_becomes(skb, bpf_htons(ETH_P_IPV6));
}

/* Makes room in front of the whole frame, for an Ethernet header and `octets` behind it. 0: done. */
INLINE int labels_wrap(buffer *skb, u32 octets)
{
	return skb_wrap_frame(skb, ETHERNET_LENGTH + octets, bpf_htons(ETH_P_MPLS_UC));
}

/* The frame at `offset`, behind labels, becomes the frame. 0: done. */
RARE int labels_unwrap(buffer *skb, u32 offset)
{
	return skb_becomes(skb, bpf_htons(ETH_P_IP)) || skb_expose_frame(skb, offset);
}

/* The kernel cuts up no segments behind labels unless it has NET_MPLS_GSO, which nobody can tell from here. */
INLINE int labels_of_segments(const buffer *skb)
{
	return segment_size(skb) != 0;
}

#else

INLINE int labels_move(buffer *ctx, int octets, u16 ethertype)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 mac[3];

	if (data + ETHERNET_LENGTH > end)
		return -1;
	mac[0] = ((const u32 *)data)[0];
	mac[1] = ((const u32 *)data)[1];
	mac[2] = ((const u32 *)data)[2];
	if (buffer_adjust_head(ctx, octets))
		return -1;
	data = buffer_start(ctx);
	end = buffer_end(ctx);
	if (data + ETHERNET_LENGTH > end)
		return -1;
	((u32 *)data)[0] = mac[0];
	((u32 *)data)[1] = mac[1];
	((u32 *)data)[2] = mac[2];
	((u16 *)data)[6] = ethertype;
	return 0;
}

RARE int labels_off(buffer *ctx, u32 octets, u32 ethertype)
{
	return labels_move(ctx, octets & OFFSET_MASK, ethertype);
}

INLINE int labels_on(buffer *ctx, u32 octets)
{
	return labels_move(ctx, -(int)octets, bpf_htons(ETH_P_MPLS_UC));
}

INLINE int labels_room(buffer *ctx, u32 octets)
{
	return buffer_adjust_head(ctx, -(int)octets);
}

RARE int labels_exchange(buffer *ctx, u32 octets, u32 room)
{
	return labels_move(ctx, (int)(octets & OFFSET_MASK) - (int)(room & OFFSET_MASK), bpf_htons(ETH_P_MPLS_UC));
}

/* What is in the headroom is not for others to see. */
INLINE int labels_wrap(buffer *ctx, u32 octets)
{
	void *data;

	if (buffer_adjust_head(ctx, -(int)(ETHERNET_LENGTH + (octets & OFFSET_MASK))))
		return -1;
	data = buffer_start(ctx);
	if (data + ETHERNET_LENGTH > buffer_end(ctx))
		return -1;
	((u32 *)data)[0] = 0;
	((u32 *)data)[1] = 0;
	((u32 *)data)[2] = 0;
	((u16 *)data)[6] = bpf_htons(ETH_P_MPLS_UC);
	return 0;
}

INLINE int labels_unwrap(buffer *ctx, u32 offset)
{
	return buffer_adjust_head(ctx, offset);
}

RARE int labels_into(buffer *ctx, u32 octets, u32 room, u32 ethertype)
{
	return labels_move(ctx, (int)(octets & OFFSET_MASK) - (int)(room & OFFSET_MASK), ethertype);
}

INLINE int labels_wrappable(const buffer *ctx)
{
	(void)ctx;
	return 0;
}

INLINE int labels_of_segments(const buffer *ctx)
{
	(void)ctx;
	return 0;
}

#endif

#endif
