/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where a message of this node goes, and how it leaves. */
#ifndef SEGUE_ICMP_WAY_H
#define SEGUE_ICMP_WAY_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/base/config.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"
#include "lib/forward/adjacency.h"
#include "lib/icmp/limit.h"

struct macs {
	u8 octets[12];
};

/*
 * Asks the kernel for the way to `fib`'s destination, whose family and addresses are filled: BPF_FIB_LKUP_RET_*. `way`:
 * ICMP_WAY().
 */
RARE int icmp_lookup(buffer *ctx, u64 way, struct bpf_fib_lookup *fib)
{
	u32 table = way, flags = 0;

	if (!fib)
		return BPF_FIB_LKUP_RET_NOT_FWDED;
	fib->ifindex = way >> 32 ?: buffer_interface(ctx);
	if (FIB_LENGTH)
		fib->tot_len = FIB_LENGTH;
	if (table) {
		flags = FIB_LOOKUP_DIRECT | FIB_LOOKUP_TBID;
		*(u32 *)((void *)fib + offsetof(struct bpf_fib_lookup, h_vlan_proto)) = table;
	}
	return bpf_fib_lookup(ctx, fib, sizeof(*fib), flags);
}

/* New neighbours that a port's packets may make the kernel look for, per second and CPU: each has an entry for a while.
 */
#define ICMP_NEIGHBOURS_PER_SECOND 50

/* Is there somebody to send it back to, by the MAC addresses that the packet arrived with? */
INLINE int icmp_came_from(const struct macs *came)
{
	/* A group, or this node, which put the packet together itself (see leave()). */
	return !((came->octets[0] | came->octets[6]) & 1) && !(*(const u16 *)&came->octets[6] == control.signature[0] &&
							       *(const u16 *)&came->octets[8] == control.signature[1] &&
							       *(const u16 *)&came->octets[10] == control.signature[2]);
}

/* Has icmp_lookup() found that the destination itself is a neighbour on the link that the packet came by? */
INLINE int icmp_on_link(const buffer *ctx, const void *data, const void *end, u32 family,
			const struct bpf_fib_lookup *fib)
{
	struct address hop;

	if (fib->ifindex != buffer_interface(ctx) || data + ETHERNET_LENGTH + IPV6_LENGTH > end)
		return 0;
	if (family == 4)
		return fib->family == 2 && fib->ipv4_dst == *(const u32 *)(data + ETHERNET_LENGTH + 16);
	hop = address_load(fib->ipv6_dst);
	return address_equal(hop, address_load(data + ETHERNET_LENGTH + 24));
}

#ifdef SEGUE_SKB
INLINE long message_begin(buffer *ctx)
{
	(void)ctx;
	return 0;
}

/* Sends the message by `oif`, to the next hop of `fib` if `hop`, its family, is not 0; asks for that if need be. */
INLINE int message_leaves(buffer *ctx, void *data, u32 oif, u32 hop, const struct bpf_fib_lookup *fib)
{
	struct bpf_redir_neigh neighbour = {.nh_family = hop};

	(void)data;
	__builtin_memcpy(neighbour.ipv6_nh, fib->ipv6_dst, sizeof(neighbour.ipv6_nh));
	buffer_for_this_host(ctx);
	return hop ? bpf_redirect_neigh(oif, &neighbour, sizeof(neighbour), 0) : bpf_redirect(oif, 0);
}

#else

/* Room for what the TC program is to know. Not all drivers have it. 0: done. */
INLINE long message_begin(buffer *ctx)
{
	return bpf_xdp_adjust_meta(ctx, -(int)sizeof(struct segue_answer_metadata));
}

/* Hands the message to the TC program on the port. */
INLINE int message_leaves(buffer *ctx, void *data, u32 oif, u32 hop, const struct bpf_fib_lookup *fib)
{
	struct segue_answer_metadata *answer = (void *)(long)ctx->data_meta;

	if ((void *)(answer + 1) > data)
		return VERDICT_DROP;
	answer->magic = ~control.metadata_magic;
	answer->oif = oif;
	answer->family = hop;
	__builtin_memcpy(answer->next_hop, fib->ipv6_dst, sizeof(answer->next_hop));
	return VERDICT_PASS;
}

#endif

/*
 * Sends the message, complete but for its Ethernet header, by the way that icmp_lookup() has found, else back to where
 * the packet came from: `came` are the MAC addresses that it arrived with. What has a way of its own goes by no other:
 * behind the port that the packet came in by are others.
 *
 * The TC program on the port does it, since the kernel's network stack can ask for a neighbour, and reaches interfaces
 * that take no frames from XDP. Who is on the link that the packet came by, and sent it, need not be asked for: so a
 * flood with made-up sources of that link fills no neighbour table. The MAC addresses are those of nobody, or not this
 * port's own: what no TC program takes, the kernel drops.
 */
INLINE int icmp_leave(const struct packet *packet, u32 family, u64 way, int verdict, const struct bpf_fib_lookup *fib,
		      const struct macs *came)
{
	buffer *ctx = packet->ctx;
	u32 oif = buffer_interface(ctx), hop = 0;
	int handed = !message_begin(ctx);
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	struct ethhdr *ethernet = data;

	opaque(oif);
	if ((void *)(ethernet + 1) > end)
		return VERDICT_DROP;
	ethernet->h_proto = family == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	if (verdict == BPF_FIB_LKUP_RET_SUCCESS) {
		__builtin_memcpy(ethernet->h_dest, fib->dmac, 6);
		__builtin_memcpy(ethernet->h_source, fib->smac, 6);
		oif = fib->ifindex;
		hop = fib->family;
	} else if (handed && verdict == BPF_FIB_LKUP_RET_NO_NEIGH &&
		   (way || !icmp_on_link(ctx, data, end, family, fib) || !icmp_came_from(came))) {
		if (!icmp_allowed(packet->port->index, SEGUE_ICMP_NOT_SENT, ICMP_NEIGHBOURS_PER_SECOND,
				  ICMP_NEIGHBOURS_PER_SECOND))
			return VERDICT_DROP;
		__builtin_memset(ethernet, 0, 12);
		oif = fib->ifindex;
		hop = fib->family;
	} else {
		if (way || !icmp_came_from(came))
			return VERDICT_DROP;
		__builtin_memcpy(ethernet->h_dest, &came->octets[6], 6);
		__builtin_memcpy(ethernet->h_source, &came->octets[0], 6);
	}
	if (!handed)
		return bpf_redirect(oif, 0);
	return message_leaves(ctx, data, oif, hop, fib);
}

/* The same for a message whose IP header is written: the way is that to its destination. */
INLINE int icmp_route(const struct packet *packet, u32 family, u64 way, const struct macs *came)
{
	buffer *ctx = packet->ctx;
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	struct bpf_fib_lookup fib = {};
	int verdict;

	if (data + ETHERNET_LENGTH + 20 > end)
		return VERDICT_DROP;
	if (family == 6) {
		if (data + ETHERNET_LENGTH + IPV6_LENGTH > end)
			return VERDICT_DROP;
		fib.family = 10;
		__builtin_memcpy(fib.ipv6_src, data + ETHERNET_LENGTH + 8, 16);
		__builtin_memcpy(fib.ipv6_dst, data + ETHERNET_LENGTH + 24, 16);
	} else {
		fib.family = 2;
		fib.ipv4_src = *(u32 *)(data + ETHERNET_LENGTH + 12);
		fib.ipv4_dst = *(u32 *)(data + ETHERNET_LENGTH + 16);
	}
	verdict = icmp_lookup(ctx, way, &fib);
	return icmp_leave(packet, family, way, verdict, &fib, came);
}

#endif
