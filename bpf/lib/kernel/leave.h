/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How socket buffers of the programs of the TC hook grow, and where they go. */
#ifndef SEGUE_KERNEL_LEAVE_H
#define SEGUE_KERNEL_LEAVE_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/maps.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"
#include "lib/forward/adjacency.h"
#include "lib/forward/obstacle.h"

/* Link-layer address of the far end of the link by which packets come to this node's own segments again. */
#define LOOP_MAC_HIGH 0x67655e02 /* 02:5e:65:67:00:01, in packet order */
#define LOOP_MAC_LOW 0x0100

/* Copies a steering header of `length` octets, a multiple of 8 and at least an IPv6 header. 0: done. */
INLINE int skb_copy_header(void *to, void *end, const void *from, u32 length)
{
	const u64 *word = from;
	u64 *out = to;

	if (to + IPV6_LENGTH > end)
		return -1;
	out[0] = word[0];
	out[1] = word[1];
	out[2] = word[2];
	out[3] = word[3];
	out[4] = word[4];
	/* An SRH with two segments: the commonest, and without a loop. */
	if (likely(length == IPV6_LENGTH + SRH_FIXED_LENGTH + 32)) {
		if (to + IPV6_LENGTH + SRH_FIXED_LENGTH + 32 > end)
			return -1;
		out[5] = word[5];
		out[6] = word[6];
		out[7] = word[7];
		out[8] = word[8];
		out[9] = word[9];
		return 0;
	}
	for (int i = IPV6_LENGTH / 8; i < SEGUE_TEMPLATE_MAX / 8 + 1; i++) {
		if (8 * i >= length)
			break;
		if ((void *)(out + i + 1) > end)
			return -1;
		out[i] = word[i];
	}
	return 0;
}

/* Gives a complete packet to the data plane again, by the link that leads back to this node. */
INLINE int skb_again_as(const struct packet *packet, void *data, u16 ethertype)
{
	u32 loop = control.loop;
	u32 *word = data;

	if (!loop)
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	word[0] = LOOP_MAC_HIGH;
	word[1] = LOOP_MAC_LOW;
	word[2] = 0;
	((u16 *)data)[6] = ethertype;
	count_outcome(packet, SEGUE_OUTCOME_forwarded);
	return bpf_redirect(loop, 0);
}

INLINE int skb_again(const struct packet *packet, void *data)
{
	return skb_again_as(packet, data, bpf_htons(ETH_P_IPV6));
}

/*
 * Sends on a complete packet whose Ethernet header is yet to come. What stays on the buffer means nothing to its next
 * receiver, which may be another node of Segue on this machine. `egress`: the program is on a link's way out, from
 * where no verdict leads up to the kernel; the loop does.
 */
INLINE int skb_leave(const struct packet *packet, const struct adjacency *adjacency, int egress)
{
	buffer *skb = packet->ctx;
	void *data = buffer_start(skb);
	void *end = buffer_end(skb);
	u32 *word = data;
	u16 *half = data;
	u8 *hop_limit;

	skb->tc_index = 0;
	if (data + ETHERNET_LENGTH + IPV6_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (likely(adjacency->kind == ADJACENCY_LINK)) {
		ethernet_write(data, adjacency);
		return transmit(packet, adjacency->ifindex, SEGUE_OUTCOME_forwarded);
	}
	if (adjacency->kind == ADJACENCY_SID)
		return skb_again(packet, data);
	/* The kernel lowers the hop limit itself. */
	hop_limit = data + ETHERNET_LENGTH + 7;
	if (*hop_limit != 255)
		++*hop_limit;
	if (egress)
		return skb_again(packet, data);
	word[0] = *(const u32 *)&packet->port->mac[0];
	half[2] = *(const u16 *)&packet->port->mac[4];
	sign(half);
	half[6] = bpf_htons(ETH_P_IPV6);
	return pass(packet, adjacency->kind == ADJACENCY_NO_NEIGHBOUR ? SEGUE_OUTCOME_passed_no_neighbour
								      : SEGUE_OUTCOME_passed_route);
}

/*
 * What stands against sending a packet of `length` octets with `push` more in front, as obstacle() on XDP: the outcome,
 * or 0 to go on. The source is not told.
 */
INLINE u32 skb_obstacle(const struct packet *packet, const struct adjacency *adjacency, u32 length, u32 push)
{
	if (likely(adjacency_fits(packet, adjacency, length + push)))
		return 0;
	return adjacency_refusal(adjacency, &SENDING_AS_IT_IS);
}

#endif
