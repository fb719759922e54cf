/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room for a message in place of the packet that it is about: a quote of the packet behind headers that are yet to
 * be written, and nothing else. Of a frame the rest is cut. A socket buffer keeps more than octets, which would spoil
 * the message: segments to be cut, and a checksum that somebody further on is to fill in (CHECKSUM_PARTIAL).
 */
#ifndef SEGUE_ICMP_ROOM_H
#define SEGUE_ICMP_ROOM_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/maps.h"
#include "lib/packet/buffer.h"
#include "lib/packet/frame.h"
#include "lib/packet/inner.h"
#include "lib/icmp/extension.h"

#define ICMP_LENGTH 8
#define ICMPV6_QUOTE_MAX (IPV6_LEAST_MTU - IPV6_LENGTH - ICMP_LENGTH) /* RFC 4443 section 2.4(c) */

#define SUM_MAX (ICMPV6_QUOTE_MAX + ICMP_LENGTH)

/* The octets to sum up, then zeros: bpf_csum_diff() takes 512 at a time. */
struct sum_scratch {
	u64 words[160];
};

PERCPU(sum_scratches, struct sum_scratch, 1);

#ifdef SEGUE_SKB

/* Octets that the kernel leaves in a buffer whose front is taken away: Ethernet and IPv6 headers. */
#define SKB_LEAST (ETHERNET_LENGTH + IPV6_LENGTH)
#define SKB_STEP 2048
#define SKB_STEPS 34

struct skb_emptied {
	buffer *skb;
	u32 length;
	u32 refused;
};

/* Takes off one step, or what is left of it. */
static long skb_empty_step(u32 index, struct skb_emptied *emptied)
{
	u32 step = emptied->length - SKB_LEAST;

	(void)index;
	if (emptied->length <= SKB_LEAST)
		return 1;
	if (step > SKB_STEP)
		step = SKB_STEP;
	emptied->refused = !!bpf_skb_adjust_room(emptied->skb, -(int)step, BPF_ADJ_ROOM_MAC, 0);
	emptied->length -= step;
	return emptied->refused;
}

/*
 * Makes it a buffer of `octets`, of which all but the last SKB_LEAST are to be written. The kernel drops the order for
 * a checksum when what it is to begin at is taken away, which is so unless less than SKB_LEAST follow. 0: done. The
 * steps are a call of the kernel's because the verifier would follow each of them by itself.
 */
RARE int skb_empty(buffer *skb, u32 octets)
{
	struct skb_emptied emptied = {.skb = skb, .length = skb->len};

	bpf_loop(SKB_STEPS, skb_empty_step, &emptied, 0);
	if (emptied.refused || emptied.length > octets)
		return -1;
	return emptied.length == octets ? 0 : bpf_skb_adjust_room(skb, octets - emptied.length, BPF_ADJ_ROOM_MAC, 0);
}

/* The innermost layer-4 header of a short packet, which may have an order for its checksum. */
struct skb_order {
	u32 field; /* offset of the checksum in the packet; 0: there is no order */
	u32 sum;   /* of all from the layer-4 header on, the field as 0 */
};

/*
 * An order for a checksum is told by the field: it has the sum of the pseudo header (RFC 8200 section 8.1), as it is. A
 * checksum that was made is its complement and more. 0: done, `order` is filled.
 */
RARE int skb_order_find(buffer *skb, struct skb_order *order)
{
	u32 zero = 0, length, field = 0, pseudo;
	struct sum_scratch *scratch = bpf_map_lookup_elem(&sum_scratches, &zero);
	struct skb_inside inside = {};
	u8 *octets, *addresses;

	if (!order || !scratch)
		return -1;
	octets = (u8 *)scratch->words;
	addresses = (u8 *)&scratch->words[8];
	for (int i = 0; i < 12; i++)
		*(volatile u64 *)&scratch->words[i] = 0;
	order->field = 0;
	/* The checksum of SCTP is another one: it cannot be told from others. */
	if (skb_look_inside(skb, &inside))
		return inside.protocol == PROTOCOL_SCTP && !bpf_skb_load_bytes(skb, inside.upper + 8, &field, 4) &&
		       !field;
	length = skb->len - inside.upper;
	/* One less, compared, one more: the form from which the verifier of 6.1 learns both bounds. */
	length--;
	opaque(length);
	if (length > SKB_LEAST - 1) /* goes with what is taken away */
		return 0;
	length++;
	if (bpf_skb_load_bytes(skb, inside.upper, octets, length))
		return -1;
	if (inside.family == 6 ? bpf_skb_load_bytes(skb, inside.ip + 8, addresses, 32)
			       : bpf_skb_load_bytes(skb, inside.ip + 12, addresses, 8))
		return -1;
	pseudo = bpf_csum_diff(NULL, 0, (void *)addresses, 32, bpf_htons(length) + bpf_htons(inside.protocol));
	if (inside.protocol == PROTOCOL_TCP) {
		field = *(u16 *)&octets[16];
		*(u16 *)&octets[16] = 0;
		order->field = inside.upper + 16;
	} else {
		field = *(u16 *)&octets[6];
		*(u16 *)&octets[6] = 0;
		order->field = inside.upper + 6;
	}
	if (fold16((pseudo & 0xffff) + (pseudo >> 16)) != field)
		order->field = 0;
	order->sum = bpf_csum_diff(NULL, 0, (void *)octets, 64, 0);
	return 0;
}

/*
 * The order of a packet that is quoted whole goes with the message, to be carried out there or never. So the field is
 * made the checksum that it itself leads to: whoever fills it in changes nothing. With 2 f = -sum (mod 65535), since
 * 2 * 32768 = 1 there. 0: done.
 */
RARE int skb_order_settle(buffer *skb)
{
	struct skb_order order = {};
	u16 field;

	if (skb_order_find(skb, &order))
		return -1;
	if (!order.field)
		return 0;
	field = (u64)(65535 - fold16((order.sum & 0xffff) + (order.sum >> 16)) % 65535) * 32768 % 65535;
	if (!field)
		field = 0xffff;
	return bpf_skb_store_bytes(skb, order.field, &field, sizeof(field), 0);
}

/* The length in the IP header of a quote at `ip` as that of its longest segment, `cut` less than the buffer's. */
INLINE void skb_quote_segment(void *ip, const void *end, u32 octets, u32 cut)
{
	u16 *half = ip, before;

	if (!cut)
		return;
	if (*(const u8 *)ip >> 4 == 6) {
		half[2] = bpf_htons(octets - IPV6_LENGTH - cut);
		return;
	}
	before = half[1];
	half[1] = bpf_htons(bpf_ntohs(before) - cut);
	half[5] = checksum_update(half[5], before, half[1]);
}

/*
 * `quote` octets of the packet from the offset in the low half of `place` on, behind as many as its high half says. In
 * the high half of `quote`: octets behind them, to be written. Segments are let go by the kernel with the rest of the
 * packet, unless the buffer is a tunnel's: then there is no message. 0: done.
 */
RARE int skb_quote(buffer *skb, u32 place, u32 quote)
{
	u32 zero = 0, l3 = place & OFFSET_MASK, head = place >> 16, octets = skb->len - l3, cut = 0;
	u32 behind = quote >> 16;
	struct sum_scratch *scratch = bpf_map_lookup_elem(&sum_scratches, &zero);

	if (!scratch)
		return -1;
	quote &= 0xffff;
	if (segment_size(skb)) {
		cut = skb_cut(skb);
		if (bpf_skb_change_tail(skb, l3 + quote, 0))
			return -1;
	} else if (skb_order_settle(skb)) {
		return -1;
	}
	quote--;
	opaque(quote);
	if (quote > ICMPV6_QUOTE_MAX - 1)
		return -1;
	quote++;
	if (buffer_load(skb, l3, scratch->words, quote))
		return -1;
	skb_quote_segment(scratch->words, scratch + 1, octets, cut);
	if (skb_empty(skb, head + quote + behind))
		return -1;
	return buffer_store(skb, head, scratch->words, quote);
}

INLINE int room_for_message(buffer *skb, u32 l3, u32 head, u32 quote, u32 behind, u32 frame)
{
	(void)frame;
	return skb_quote(skb, (l3 & OFFSET_MASK) | head << 16, quote | behind << 16);
}

/* The kernel is told of which family the message is. 0: done. */
INLINE int message_family(buffer *skb, u16 ethertype)
{
	if (likely(skb->protocol == ethertype))
		return 0;
	return skb_write_ethertype(skb, ethertype) || skb_renew_protocol(skb);
}

/* Octets of the options that the longest segment with an order has. */
#define RESET_OPTIONS_MAX 40
#define TCP_NO_OPERATIONS 0x0101010101010101ULL

/*
 * Room for `wanted` octets without a quote, in a packet whose layer-4 header is at `upper`. More than 0: an order for a
 * checksum stays, which begins where the packet's own layer-4 header is; it is to be given its seed, and the TCP
 * segment has so many octets. They are more than a header where the kernel lets nobody cut the buffer, which is a
 * tunnel's: then the rest is options that say nothing.
 */
RARE int skb_room_for_reset(buffer *skb, u32 wanted, u32 upper)
{
	u32 zero = 0, more, octets;
	struct sum_scratch *scratch = bpf_map_lookup_elem(&sum_scratches, &zero);
	struct skb_order order = {};

	if (!scratch)
		return -1;
	if (segment_size(skb) && bpf_skb_change_tail(skb, upper + SKB_LEAST + 16, 0))
		return -1;
	if (skb->len < wanted || skb_order_find(skb, &order))
		return -1;
	if (!order.field)
		return skb_empty(skb, wanted);
	if (upper + 20 < wanted || order.field != upper + 16)
		return -1;
	more = skb->len - upper - 20;
	if (more && bpf_skb_change_tail(skb, upper + 20, 0)) {
		for (int i = 0; i < RESET_OPTIONS_MAX / 8; i++)
			*(volatile u64 *)&scratch->words[i] = TCP_NO_OPERATIONS;
		more--;
		opaque(more);
		if (more > RESET_OPTIONS_MAX - 1)
			return -1;
		more++;
		if (bpf_skb_store_bytes(skb, upper + 20, scratch->words, more, 0))
			return -1;
	}
	octets = skb->len - upper;
	/* What is in front of the packet's own headers, as a steering header, or is more than those of the answer. */
	if (upper + 20 > wanted && buffer_adjust_head(skb, upper + 20 - wanted))
		return -1;
	return octets;
}

INLINE int room_for_reset(buffer *skb, u32 wanted, u32 upper)
{
	return skb_room_for_reset(skb, wanted, upper);
}

#else

/* A quote of at most EXTENDED_QUOTE octets that is at `head`, with `more` of room behind it that is in front. 0: done.
 */
RARE int quote_forward(buffer *ctx, u32 head, u32 quote, u32 more)
{
	u32 zero = 0;
	struct sum_scratch *scratch = bpf_map_lookup_elem(&sum_scratches, &zero);

	if (!scratch || more > OFFSET_MASK || buffer_adjust_head(ctx, -(int)more))
		return -1;
	/* One less, compared, one more: the form from which the verifier of 6.1 learns both bounds. */
	quote--;
	opaque(quote);
	if (quote > EXTENDED_QUOTE - 1)
		return -1;
	quote++;
	if (buffer_load(ctx, (head + more) & OFFSET_MASK, scratch->words, quote))
		return -1;
	return buffer_store(ctx, head & OFFSET_MASK, scratch->words, quote);
}

/*
 * `quote` octets of the packet at `l3`, behind `head` others and in front of `behind` that are to be written. The frame
 * has `frame` octets. 0: done.
 */
INLINE int room_for_message(buffer *ctx, u32 l3, u32 head, u32 quote, u32 behind, u32 frame)
{
	int delta = (int)(l3 & OFFSET_MASK) - (int)head;
	u32 total = head + quote + behind;

	frame -= delta;
	if (buffer_adjust_head(ctx, delta))
		return -1;
	if (frame < total && !behind) /* the packet ends before its header says */
		return 0;
	if (frame == total || !buffer_adjust_tail(ctx, (int)total - (int)frame))
		return 0;
	/* Where a host sent a short packet by a veth, there is hardly any room behind it, but some in front. */
	return frame < total ? quote_forward(ctx, head, quote, total - frame) : -1;
}

INLINE int message_family(buffer *ctx, u16 ethertype)
{
	(void)ctx;
	(void)ethertype;
	return 0;
}

/* Room for `wanted` octets without a quote. A frame has no orders. */
INLINE int room_for_reset(buffer *ctx, u32 wanted, u32 upper)
{
	u32 frame = frame_length(ctx);

	(void)upper;
	return frame < wanted || (frame > wanted && buffer_adjust_tail(ctx, -(int)(frame - wanted))) ? -1 : 0;
}

#endif

#endif
