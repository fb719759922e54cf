/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The buffer of lib/packet/buffer.h at the TC hook. `data_end` ends its linear part; skb->len counts the whole packet.
 *
 * A buffer with skb->gso_size is many packets, its segments (GSO, GRO). It stays whole: what is done to its headers is
 * done to those of each segment, because the kernel or a network card cuts it up behind us. For that the kernel must
 * know of a header that is put in front (BPF_F_ADJ_ROOM_ENCAP_L3_IPV6: SKB_GSO_IPXIP6 and skb->encapsulation), and
 * nothing may change the size of a segment (BPF_F_ADJ_ROOM_FIXED_GSO). Of what is taken off it is told nothing: the
 * marks of the tunnel stay, and a buffer that has them once has them for good. With these marks it is still cut up
 * right, since the kernel's segmentation goes by the headers that it finds; and another header in front is pushed
 * without marking it anew.
 */
#ifndef SEGUE_PACKET_SKB_H
#define SEGUE_PACKET_SKB_H

#include <linux/pkt_cls.h>

#include "lib/base/types.h"
#include "lib/base/protocol.h"

typedef struct __sk_buff buffer;

/* Not OK, so that programs of others behind this one see the packet too; nor less than 0, as TC_ACT_UNSPEC is. */
#define VERDICT_PASS TC_ACT_PIPE
#define VERDICT_DROP TC_ACT_SHOT

INLINE u32 buffer_redirects(u32 config_flags)
{
	opaque(config_flags); /* clang would leave it out where it is an argument, and the verifier miss it */
	return 1;
}

/*
 * The octets that can be read and written: anew after each call that moves them. Loads of this form, because clang else
 * makes pointers into the context of them, which the verifier does not take.
 */
INLINE void *buffer_start(const buffer *skb)
{
	void *start;

	asm volatile("%0 = *(u32 *)(%1 + %2)" : "=r"(start) : "r"(skb), "i"(offsetof(buffer, data)));
	return start;
}

INLINE void *buffer_end(const buffer *skb)
{
	void *end;

	asm volatile("%0 = *(u32 *)(%1 + %2)" : "=r"(end) : "r"(skb), "i"(offsetof(buffer, data_end)));
	return end;
}

/* Octets that each of a buffer's segments has behind its headers; 0: it has none. A load of the same form. */
INLINE u32 segment_size(const buffer *skb)
{
	u32 size;

	asm volatile("%0 = *(u32 *)(%1 + %2)" : "=r"(size) : "r"(skb), "i"(offsetof(buffer, gso_size)));
	return size;
}

/*
 * For a socket buffer bpf_fib_lookup() compares the device's MTU with the buffer's length, unless it is told a length:
 * then it answers with the route's MTU, as it does for frames.
 */
#define FIB_LENGTH 1

#ifndef BPF_F_ADJ_ROOM_DECAP_L3_IPV4
#define BPF_F_ADJ_ROOM_DECAP_L3_IPV4 (1ULL << 7) /* 6.3 and newer; older headers lack it */
#endif

INLINE u32 buffer_octets(const buffer *skb, const void *data, const void *end)
{
	(void)data;
	(void)end;
	return skb->len;
}

INLINE u32 buffer_length(buffer *skb)
{
	return skb->len;
}

/* What a buffer meets first on an interface finds nothing of those before in the programs' words. */
INLINE void buffer_begin(buffer *skb)
{
	skb->cb[1] = 0;
}

/*
 * Headers that are looked at lie in the linear part of a buffer, as far as they lie in its first so many octets: in
 * every stage, and in segue_port and segue_service unless skb_headers() knows all of them.
 */
#define SKB_LINEAR 512

/* Does the linear part end before these? */
INLINE int skb_parted(const buffer *skb)
{
	return buffer_start(skb) + SKB_LINEAR > buffer_end(skb) &&
	       skb->len > (u32)(buffer_end(skb) - buffer_start(skb));
}

INLINE void buffer_go_on(buffer *skb)
{
	u32 wanted = SKB_LINEAR;

	if (likely(!skb_parted(skb)))
		return;
	if (wanted > skb->len)
		wanted = skb->len;
	bpf_skb_pull_data(skb, wanted); /* what is missing still is found to be truncated */
}

/* The port that a buffer has come in by, where it is another interface than this one: lib/packet/cut.h. Else 0. */
INLINE u32 skb_elsewhere(const buffer *skb)
{
	u32 ifindex;

	asm volatile("%0 = *(u32 *)(%1 + %2)" : "=r"(ifindex) : "r"(skb), "i"(offsetof(buffer, cb[1])));
	return ifindex;
}

/*
 * In whose namespace the program runs. skb->ingress_ifindex may be one of another namespace, which the packet came
 * through before.
 */
INLINE u32 buffer_interface(const buffer *skb)
{
	u32 elsewhere = skb_elsewhere(skb);

	return likely(!elsewhere) ? skb->ifindex : elsewhere;
}

INLINE long buffer_load(buffer *skb, u32 offset, void *to, u32 length)
{
	return bpf_skb_load_bytes(skb, offset, to, length);
}

INLINE long buffer_store(buffer *skb, u32 offset, void *from, u32 length)
{
	return bpf_skb_store_bytes(skb, offset, from, length, BPF_F_INVALIDATE_HASH);
}

/* Where the innermost headers of a packet are. */
struct skb_inside {
	u32 ip;	      /* offset of the innermost IP header */
	u32 upper;    /* of its layer-4 header */
	u32 payload;  /* of what is behind that */
	u32 protocol; /* of layer 4: TCP or UDP, else what the walk ends at */
	u32 family;
	u32 in_ipv4; /* 1: an IP packet lies in an IPv4 packet */
};

#define SKB_WALK_MAX 12

/* Walks to the innermost headers, by loads, since they may lie anywhere in the buffer. 0: `inside` is filled. */
RARE int skb_look_inside(buffer *skb, struct skb_inside *inside)
{
	u32 at = ETHERNET_LENGTH, next;
	u8 octet[16];

	if (!inside)
		return -1;
	inside->in_ipv4 = 0;
	inside->family = 0;
	next = skb->protocol == bpf_htons(ETH_P_IPV6) ? PROTOCOL_IPV6 : PROTOCOL_IPV4;
	for (int i = 0; i < SKB_WALK_MAX; i++) {
		inside->protocol = next;
		inside->upper = at;
		inside->payload = at;
		if (bpf_skb_load_bytes(skb, at, octet, sizeof(octet)))
			return -1;
		switch (next) {
		case PROTOCOL_IPV6:
			inside->in_ipv4 |= inside->family == 4;
			inside->ip = at;
			inside->family = 6;
			next = octet[6];
			at += IPV6_LENGTH;
			break;
		case PROTOCOL_IPV4:
			inside->in_ipv4 |= inside->family == 4;
			inside->ip = at;
			inside->family = 4;
			next = octet[9];
			at += (octet[0] & 15) * 4;
			break;
		case PROTOCOL_HOP_BY_HOP:
		case PROTOCOL_ROUTING:
		case PROTOCOL_DESTINATION_OPTIONS:
			next = octet[0];
			at += (octet[1] + 1) * 8;
			break;
		case PROTOCOL_TCP:
			inside->payload = at + (octet[12] >> 4) * 4;
			return 0;
		case PROTOCOL_UDP:
			inside->payload = at + 8;
			return 0;
		default:
			return -1;
		}
	}
	return -1;
}

/* As far as a steered packet's headers are read before it is known what they are: an inner IPv6 header behind two
 * segments. */
#define SKB_STEERED (ETHERNET_LENGTH + 2 * IPV6_LENGTH + SRH_FIXED_LENGTH + 32)

/*
 * Where the payload of a packet begins whose headers are as nearly all are: IPv6, perhaps with one Routing header, or
 * IPv4, perhaps another of these in it, then TCP or UDP, all of it in the linear part. 0: of any other. What begins
 * there is nobody's to read, so it may stay where it is: a host's buffers have all their payload in pages, and part of
 * it in the linear part costs a larger one with all that is in the old.
 */
RARE u32 skb_headers(buffer *skb)
{
	const void *data = buffer_start(skb), *end = buffer_end(skb);
	const u8 *octet = data + ETHERNET_LENGTH;
	u32 next = PROTOCOL_IPV4;

	if ((const void *)octet > end)
		return 0;
	if (*(const u16 *)(data + 12) == bpf_htons(ETH_P_IPV6))
		next = PROTOCOL_IPV6;
	else if (*(const u16 *)(data + 12) != bpf_htons(ETH_P_IP))
		return 0;
	if (next == PROTOCOL_IPV6) {
		if ((const void *)octet + IPV6_LENGTH > end)
			return 0;
		next = octet[6];
		octet += IPV6_LENGTH;
		if (next == PROTOCOL_ROUTING) {
			if (data + SKB_STEERED > end)
				return 0;
			next = octet[0];
			octet += (octet[1] + 1) * 8;
		}
	}
	if (next == PROTOCOL_IPV6) {
		if ((const void *)octet + IPV6_LENGTH > end)
			return 0;
		next = octet[6];
		octet += IPV6_LENGTH;
	} else if (next == PROTOCOL_IPV4) {
		if ((const void *)octet + sizeof(struct iphdr) > end || *octet != 0x45)
			return 0;
		next = octet[9];
		octet += sizeof(struct iphdr);
	}
	if (next == PROTOCOL_UDP) {
		octet += 8;
	} else {
		if (next != PROTOCOL_TCP || (const void *)octet + 20 > end || octet[12] < 0x50)
			return 0;
		octet += (octet[12] >> 4) * 4;
	}
	return (const void *)octet <= end ? (u32)((const void *)octet - data) : 0;
}

/*
 * How many octets less than the buffer its longest segment is. 0: it is one packet, or its headers cannot be walked and
 * it is judged as a whole. In the high half: what skb_headers() says.
 */
RARE u64 skb_measure(buffer *skb)
{
	u32 size = segment_size(skb), headers = skb_headers(skb), payload = headers, left;
	struct skb_inside inside = {}; /* Linux 6.1 gives no function what is not initialised */

	if (unlikely(!payload)) {
		if (skb_look_inside(skb, &inside))
			return 0;
		payload = inside.payload;
	}
	if (!size || payload >= skb->len)
		return 0;
	left = skb->len - payload;
	return (u64)headers << 32 | (left > size ? left - size : 0);
}

/* How many octets less its longest segment is, once it has been found (lib/packet/packet.h): it stays with the buffer,
 * in the word that is the programs'.
 */
INLINE u32 skb_cut(const buffer *skb)
{
	u32 cut;

	asm volatile("%0 = *(u32 *)(%1 + %2)" : "=r"(cut) : "r"(skb), "i"(offsetof(buffer, cb)));
	return cut;
}

/* How many segments that makes: a whole one, and what is cut off in as many as it takes. */
RARE u32 skb_segments(buffer *skb, u32 cut)
{
	u32 size = segment_size(skb) ?: 1;

	return cut ? 1 + (cut + size - 1) / size : 1;
}

INLINE u32 buffer_segments(buffer *skb)
{
	u32 cut = skb_cut(skb);

	return likely(!cut) ? 1 : skb_segments(skb, cut);
}

/* Tags to push and to pop again; nothing sees them. */
#define SKB_TAG 1

/*
 * Makes skb->protocol what the Ethernet header says. The kernel does that only where it takes a VLAN tag out of the
 * frame; so two are put on, of which the first comes to lie in the frame, and taken off.
 */
RARE int skb_renew_protocol(buffer *skb)
{
	return bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), SKB_TAG) ||
	       bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), SKB_TAG) || bpf_skb_vlan_pop(skb) ||
	       bpf_skb_vlan_pop(skb);
}

INLINE int skb_write_ethertype(buffer *skb, u16 ethertype)
{
	u16 *half = buffer_start(skb);

	if ((void *)half + ETHERNET_LENGTH > buffer_end(skb))
		return -1;
	half[6] = ethertype;
	return 0;
}

INLINE int skb_becomes(buffer *skb, u16 ethertype)
{
	return skb_write_ethertype(skb, ethertype) || skb_renew_protocol(skb);
}

/* A plain move behind the Ethernet header, which stays in front: less than 0 makes room. */
INLINE long buffer_adjust_head(buffer *skb, int delta)
{
	return bpf_skb_adjust_room(skb, -delta, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO);
}

/*
 * A header in front of a buffer that has the marks of a tunnel already. If it is one that this data plane has put on
 * before, they stay right: the innermost packet is where it was. Those of others' tunnels (in UDP, in GRE, in IPv4)
 * do not say how segments are cut behind an IPv6 header; such buffers are refused.
 */
RARE int skb_encapsulate_again(buffer *skb, u32 push)
{
	u32 ipv4 = skb->protocol != bpf_htons(ETH_P_IPV6);
	struct skb_inside inside = {}; /* Linux 6.1 gives no function what is not initialised */

	if (segment_size(skb) && (ipv4 || !skb_headers(skb)) && (skb_look_inside(skb, &inside) || inside.in_ipv4))
		return -1;
	if (bpf_skb_adjust_room(skb, push, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO))
		return -1;
	return ipv4 && (skb_write_ethertype(skb, bpf_htons(ETH_P_IPV6)) || skb_renew_protocol(skb));
}

INLINE long buffer_encapsulate(buffer *skb, u32 push)
{
	u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L3_IPV6;

	if (likely(!bpf_skb_adjust_room(skb, push, BPF_ADJ_ROOM_MAC, flags)))
		return 0;
	return skb_encapsulate_again(skb, push);
}

/*
 * The same for an inner IPv4 packet: the kernel has to be told that it is one. Before 6.3 it is, where it takes 20
 * octets away as the difference of IPv6 and IPv4 headers.
 */
RARE int skb_decapsulate_ipv4(buffer *skb, u32 length)
{
	u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	int shrink = length;

	if (!bpf_skb_adjust_room(skb, -shrink, BPF_ADJ_ROOM_MAC, flags | BPF_F_ADJ_ROOM_DECAP_L3_IPV4))
		return 0;
	if (shrink > 20 && bpf_skb_adjust_room(skb, -(shrink - 20), BPF_ADJ_ROOM_MAC, flags))
		return -1;
	return bpf_skb_change_proto(skb, bpf_htons(ETH_P_IP), 0);
}

INLINE long buffer_decapsulate(buffer *skb, u32 length, int ipv4)
{
	if (ipv4)
		return skb_decapsulate_ipv4(skb, length);
	return buffer_adjust_head(skb, length);
}

/* The inner frame at `offset` becomes the frame. It is one packet: the kernel merges none of this kind. */
RARE int skb_expose_frame(buffer *skb, u32 offset)
{
	u32 octets = skb->len, least = ETHERNET_LENGTH + offset + IPV6_LENGTH;
	u8 ethernet[ETHERNET_LENGTH];
	void *data;

	if (segment_size(skb) || bpf_skb_load_bytes(skb, offset, ethernet, sizeof(ethernet)))
		return -1;
	/* The kernel leaves no less than an IPv6 header behind: what is shorter is made longer meanwhile. */
	if (octets < least && bpf_skb_change_tail(skb, least, 0))
		return -1;
	if (bpf_skb_adjust_room(skb, -(int)offset, BPF_ADJ_ROOM_MAC, 0))
		return -1;
	data = buffer_start(skb);
	if (data + ETHERNET_LENGTH > buffer_end(skb))
		return -1;
	__builtin_memcpy(data, ethernet, sizeof(ethernet));
	if (octets < least && bpf_skb_change_tail(skb, octets - offset, 0))
		return -1;
	return skb_renew_protocol(skb);
}

INLINE long buffer_expose_frame(buffer *skb, u32 offset)
{
	return skb_expose_frame(skb, offset);
}

/* Octets of a frame, with a tag that lies beside it. */
INLINE u32 buffer_frame_length(const buffer *skb)
{
	return skb->len + (skb->vlan_present ? 4 : 0);
}

/*
 * Makes room in front of the whole frame, for an Ethernet header of the type `ethertype` and what is behind it,
 * `octets` in all; a tag that lies beside the frame is put into it. The kernel makes room behind the Ethernet header
 * that it knows, so that this one becomes the outer one, and the frame gets its own again: what is in front may come
 * off again. The frame is a single packet (lib/packet/cut.h): the kernel cuts no segments in it. 0: done.
 */
RARE int skb_wrap_frame(buffer *skb, u32 octets, u32 ethertype)
{
	u32 tag = skb->vlan_present ? 4 : 0;
	u16 half[9] = {};

	if (bpf_skb_load_bytes(skb, 0, half, ETHERNET_LENGTH))
		return -1;
	if (tag) {
		half[8] = half[6];
		half[7] = bpf_htons(skb->vlan_tci);
		half[6] = skb->vlan_proto;
	}
	if (skb_becomes(skb, bpf_htons(ETH_P_IP)) || (tag && bpf_skb_vlan_pop(skb)) ||
	    bpf_skb_adjust_room(skb, octets + tag, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO))
		return -1;
	if (tag ? bpf_skb_store_bytes(skb, octets, half, sizeof(half), 0)
		: bpf_skb_store_bytes(skb, octets, half, ETHERNET_LENGTH, 0))
		return -1;
	return skb_becomes(skb, ethertype);
}

INLINE long buffer_wrap_frame(buffer *skb, u32 push)
{
	return skb_wrap_frame(skb, push, bpf_htons(ETH_P_IPV6));
}

/* Whether a packet is for this node was found when it came in; now it is, whatever its Ethernet header was. */
INLINE void buffer_for_this_host(buffer *skb)
{
	if (unlikely(skb->pkt_type))
		bpf_skb_change_type(skb, 0 /* PACKET_HOST */);
}

INLINE u32 buffer_refusal(const buffer *skb, u32 outcome)
{
	return segment_size(skb) ? SEGUE_OUTCOME_drop_offload : outcome;
}

/* A buffer that is many packets has nothing behind them; the kernel would take its segments apart. */
INLINE long buffer_adjust_tail(buffer *skb, int delta)
{
	return segment_size(skb) ? -1 : bpf_skb_change_tail(skb, skb->len + delta, 0);
}

#endif
