/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packet in hand, the port that it came in by, and the generation that it meets. */
#ifndef SEGUE_PACKET_PACKET_H
#define SEGUE_PACKET_PACKET_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/base/config.h"
#include "lib/packet/buffer.h"

/* The packet in hand: passed along by every function, lives in registers once all is inlined. */
struct packet {
	buffer *ctx;
	const struct segue_port *port;
	u64 epoch; /* generation, cache generation and epoch_in_domain(), read once: what is cached belongs to the
		      generation that it came from */
	u32 generation;
	u32 length;   /* layer 3 octets as received, for byte counters */
	u32 stage;    /* enum segue_stage, or STAGE_PORT: the program that it is in. A constant in each, so that each
			 leaves out what others do */
	u32 unasked;  /* 1: handed on by hand_on(): its source has not been looked at */
	u64 icmp_way; /* where ICMP errors about it are routed: ICMP_WAY() */
	u32 headers;  /* socket buffers with segments: what skb_headers() says; else 0 */
};

/* How many packets it is: more than one where the buffer has segments. */
INLINE u32 packet_segments(const struct packet *packet)
{
#ifdef SEGUE_SKB
	return buffer_segments(packet->ctx);
#else
	(void)packet;
	return 1;
#endif
}

/* Octets that leave as one packet, of a packet, or a part of it, of `length` octets. */
INLINE u32 packet_longest(const struct packet *packet, u32 length)
{
#ifdef SEGUE_SKB
	return length - skb_cut(packet->ctx);
#else
	(void)packet;
	return length;
#endif
}

/* Finds out how many packets the buffer is. */
INLINE void packet_measure(struct packet *packet)
{
#ifdef SEGUE_SKB
	u64 measure = likely(!segment_size(packet->ctx)) ? 0 : skb_measure(packet->ctx);

	packet->ctx->cb[0] = measure;
	packet->headers = measure >> 32;
#else
	(void)packet;
#endif
}

/* Has all that segue_port looks at in the linear part of a buffer, which has been measured. */
INLINE void packet_make_linear(const struct packet *packet)
{
#ifdef SEGUE_SKB
	buffer *skb = packet->ctx;

	if (unlikely(!packet->headers && skb_parted(skb)) && (segment_size(skb) || !skb_headers(skb)))
		buffer_go_on(skb);
#else
	(void)packet;
#endif
}

/*
 * Octets of the IPv6 packet right behind the Ethernet header. The kernel leaves its Payload Length 0 where a buffer of
 * many packets is too long for it; the length of each is written when they are taken apart. Not with a Hop-by-Hop
 * Options header, which may be a jumbogram's.
 */
INLINE u32 packet_ipv6_octets(buffer *ctx, const struct ipv6hdr *ip)
{
#ifdef SEGUE_SKB
	if (unlikely(!ip->payload_len && segment_size(ctx) && ip->nexthdr != PROTOCOL_HOP_BY_HOP))
		return ctx->len - ETHERNET_LENGTH;
#else
	(void)ctx;
#endif
	return IPV6_LENGTH + bpf_ntohs(ip->payload_len);
}

/* The Payload Length of a packet with so many octets behind the IPv6 header, in packet order. */
INLINE u16 payload_length(u32 octets)
{
#ifdef SEGUE_SKB
	if (unlikely(octets > 0xffff))
		return 0;
#endif
	return bpf_htons(octets);
}

/*
 * Where the answer to a packet is routed: in this table, or as a packet that came in by this interface. 0: as one that
 * came in where the answered packet did, by the kernel's rules.
 */
#define ICMP_WAY(table_, ifindex_) ((u64)(table_) | (u64)(ifindex_) << 32)

/* No stage: the program that the packet met first, on its port. */
#define STAGE_PORT SEGUE_STAGE_MAX

/* Has the packet been at a core port before? What was asked there of its frame and its source is not asked again. */
INLINE int packet_recirculated(const struct packet *packet)
{
	return packet->stage == SEGUE_STAGE_AGAIN || packet->stage == SEGUE_STAGE_PROXY ||
	       packet->stage == SEGUE_STAGE_FIREWALL;
}

/*
 * Has endpoint() handed it on, to the stage that does what its SID needs? Such a packet has segments left, and no
 * option that is refused.
 */
INLINE int packet_handed_on(const struct packet *packet)
{
	return packet->stage == SEGUE_STAGE_PROXY || packet->stage == SEGUE_STAGE_FIREWALL;
}

/* Generation (low half) and cache generation in one word. */
INLINE u64 epoch_now(void)
{
	return *(const volatile u64 *)&control.generation;
}

/*
 * The first program that a packet meets puts the routing domain of its port into the epoch, which stages carry on: so
 * one comparison asks for all three where something is remembered for packets. The domain is over the high half of the
 * cache generation: two epochs with one word are 65,536 cache generations apart.
 */
INLINE void epoch_in_domain(struct packet *packet)
{
	packet->epoch ^= (u64)packet->port->domain << 48;
	/* Else the compiler keeps the one without domain too, for which the stack is too short. */
	opaque(packet->epoch);
	packet->generation = packet->epoch;
}

/* The slot of a port that another one keeps from the slot of its ifindex. `slot` is that one's; SEGUE_NONE: no port. */
RARE u32 port_chained(u32 slot, u32 ifindex)
{
	u32 first = slot & SEGUE_PORT_SLOTS;
	const struct segue_port *port;

	for (int i = 0; i < SEGUE_PORT_CHAIN; i++) {
		port = bpf_map_lookup_elem(&ports, &slot);
		if (!port)
			break;
		if (port->ifindex == ifindex)
			return slot;
		if (!port->next)
			break;
		slot = first + ((port->next - 1) & (SEGUE_PORT_SLOTS - 1));
	}
	return SEGUE_NONE;
}

/* The port of this interface, or NULL. */
INLINE const struct segue_port *port_find(u32 generation, u32 ifindex)
{
	u32 slot = (ifindex & (SEGUE_PORT_SLOTS - 1)) + (generation & 1) * SEGUE_PORT_SLOTS;
	const struct segue_port *port = bpf_map_lookup_elem(&ports, &slot);

	if (likely(port && port->ifindex == ifindex))
		return port;
	slot = port_chained(slot, ifindex);
	return bpf_map_lookup_elem(&ports, &slot);
}

/* Does an address lie in a SID block? For addresses that hardly ever do. */
INLINE int rarely_in_sid_block(const struct packet *packet, struct address a)
{
	const struct segue_port *port = packet->port;
	u16 first = a.high;

	if (likely(first != port->sid_block_hints[0] && first != port->sid_block_hints[1] &&
		   !(port->config_flags & SEGUE_CONFIG_MANY_BLOCKS)))
		return 0;
	return in_sid_block(packet->generation, a);
}

/* Finds the port, in the epoch of the packet. 0: go on; 1: not in this generation. */
INLINE int packet_begin(buffer *ctx, struct packet *packet, u32 stage, u64 epoch)
{
	packet->stage = stage;
	packet->unasked = 0;
	packet->icmp_way = 0;
	packet->ctx = ctx;
	packet->epoch = epoch;
	packet->generation = packet->epoch;
	packet->length = 0;
	if (stage == STAGE_PORT)
		buffer_begin(ctx);
	else if (stage != SEGUE_STAGE_SERVICE)
		buffer_go_on(ctx);
	packet_measure(packet);
	if (stage == SEGUE_STAGE_SERVICE) /* goes on where segue_port leaves off, with packets as usual */
		packet_make_linear(packet);
	packet->port = port_find(packet->generation, buffer_interface(ctx));
	return !packet->port;
}

#endif
