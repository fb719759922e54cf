/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The ICMP stage: errors (RFC 4443, RFC 792), echo replies of SIDs, and what may not be answered. */
#ifndef SEGUE_ICMP_ANSWER_H
#define SEGUE_ICMP_ANSWER_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/frame.h"
#include "lib/packet/outcome.h"
#include "lib/packet/headers.h"
#include "lib/packet/inner.h"
#include "lib/forward/adjacency.h"

#define ICMP_LENGTH 8
#define ICMPV6_QUOTE_MAX (IPV6_LEAST_MTU - IPV6_LENGTH - ICMP_LENGTH) /* RFC 4443 section 2.4(c) */
#define ICMPV4_QUOTE_MAX (576 - 20 - ICMP_LENGTH)		      /* RFC 1812 section 4.3.2.3 */
#define HOP_LIMIT_DEFAULT 64
#define NANOSECONDS 1000000000ULL

struct icmp {
	u8 type;
	u8 code;
	u16 checksum;
	u32 param;
};

struct macs {
	u8 octets[12];
};

/* A token bucket, in nanoseconds of its rate (RFC 4443 section 2.4(f)). */
struct icmp_bucket {
	u64 time; /* when it was last filled; 0: never */
	u64 tokens;
};

/*
 * Of each port one for each kind of message: what one port or kind is flooded with silences no other. That of
 * SEGUE_ICMP_NOT_SENT is for neighbours to be looked for.
 */
struct icmp_budget {
	struct icmp_bucket kinds[SEGUE_ICMP_MAX];
};

/* By the row of the port in `outcomes`; the loader makes it as large. */
PERCPU(icmp_budgets, struct icmp_budget, 256);

/* May one more message of this kind (enum segue_icmp) be sent for a packet of this port? */
RARE int icmp_allowed(u32 port_index, u32 kind, u32 per_second, u32 burst)
{
	struct icmp_budget *budget = bpf_map_lookup_elem(&icmp_budgets, &port_index);
	u64 now = bpf_ktime_get_ns(), price, limit, tokens;
	struct icmp_bucket *bucket;

	opaque(kind);
	if (!budget || kind >= SEGUE_ICMP_MAX || !per_second)
		return 0;
	bucket = &budget->kinds[kind];
	price = NANOSECONDS / per_second;
	limit = price * burst;
	tokens = bucket->tokens + (now - bucket->time);
	if (!bucket->time || tokens > limit)
		tokens = limit;
	bucket->time = now;
	if (tokens < price) {
		bucket->tokens = tokens;
		return 0;
	}
	bucket->tokens = tokens - price;
	return 1;
}

#define SUM_MAX (ICMPV6_QUOTE_MAX + ICMP_LENGTH)

/* The octets to sum up, then zeros: bpf_csum_diff() takes 512 at a time. */
struct sum_scratch {
	u64 words[160];
};

PERCPU(sum_scratches, struct sum_scratch, 1);

/*
 * Sum over `length` octets at `offset`, at most SUM_MAX, folded to 16 bits. By a helper, since a loop over the packet
 * would be most of what the verifier has to do for the whole data plane.
 */
RARE int sum_octets(buffer *ctx, u32 offset, u32 length, u32 sum)
{
	u32 zero = 0, total;
	struct sum_scratch *scratch = bpf_map_lookup_elem(&sum_scratches, &zero);

	if (!scratch)
		return 0;
	for (int i = 0; i < 160; i++)
		*(volatile u64 *)&scratch->words[i] = 0;
	/* One less, compared, one more: the form from which the verifier of 6.1 learns both bounds. */
	length--;
	opaque(length);
	if (length > SUM_MAX - 1)
		return 0;
	length++;
	if (buffer_load(ctx, offset & OFFSET_MASK, scratch->words, length))
		return 0;
	total = bpf_csum_diff(NULL, 0, (void *)&scratch->words[0], 512, sum);
	total = bpf_csum_diff(NULL, 0, (void *)&scratch->words[64], 512, total);
	total = bpf_csum_diff(NULL, 0, (void *)&scratch->words[128], 256, total);
	return fold16((total & 0xffff) + (total >> 16));
}

#define ICMP_WALKS 4

/* Has the walk ended in front of a header that has another one behind it? */
INLINE int headers_stopped(const struct headers *headers)
{
	return headers->srh || headers->error == SEGUE_OUTCOME_drop_routing_type ||
	       headers->error == SEGUE_OUTCOME_drop_too_many_headers;
}

/* Does this IPv6 packet forbid an answer? RFC 4443 section 2.4(e). */
INLINE int icmpv6_forbidden(buffer *ctx, u32 l3, u32 type, u32 code, struct address source, struct address destination,
			    u32 limit)
{
	struct headers headers = {};
	void *data, *end;
	const u8 *octet;

	if (!address_valid_source(source))
		return 1;
	if (address_multicast(destination) && type != ICMPV6_PACKET_TOO_BIG &&
	    !(type == ICMPV6_PARAMETER_PROBLEM && code == 2))
		return 1;
	headers_walk(ctx, l3 + 6, l3 + IPV6_LENGTH, limit, &headers);
	/* It stops at a routing header that is in use, and after so many headers: an error may be behind them. */
	for (int i = 0; i < ICMP_WALKS && headers_stopped(&headers); i++) {
		if (headers.error == SEGUE_OUTCOME_drop_too_many_headers && headers.protocol != PROTOCOL_HOP_BY_HOP)
			headers_walk(ctx, headers.previous, headers.upper, limit, &headers);
		else
			headers_walk_past_srh(ctx, headers.upper, limit, &headers);
	}
	if (headers_stopped(&headers))
		return 1;
	if (headers.protocol != PROTOCOL_ICMPV6)
		return 0;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (headers.fragment) {
		/* The header in front of it is a Fragment header: a first fragment has the type, a later one has none.
		 */
		octet = data + (headers.previous & OFFSET_MASK);
		if ((void *)(octet + 4) > end || octet[2] | (octet[3] & 0xf8))
			return 0;
	}
	octet = data + (headers.upper & OFFSET_MASK);
	if ((void *)(octet + 1) > end)
		return 1;
	return *octet < 128 || *octet == 137;
}

/*
 * Echo, timestamp, information and address mask, both ways. Of the others some are errors, and of those that nobody
 * knows some may be: none is answered (RFC 1122 section 3.2.2; the kernel's icmp_send() has the same list).
 */
#define ICMPV4_ANSWERED 0x7e101U

INLINE int icmpv4_forbidden(const struct iphdr *ip, const void *end)
{
	const u8 *octet = (const void *)ip;
	u32 offset = (octet[0] & 15) * 4;

	if (!ipv4_valid_source(ip->saddr) || !ipv4_valid_source(ip->daddr) || ip->frag_off & bpf_htons(0x1fff))
		return 1;
	if (ip->protocol != IPPROTO_ICMP)
		return 0;
	octet += offset;
	if ((const void *)(octet + 1) > end)
		return 1;
	return *octet > 18 || !(ICMPV4_ANSWERED >> *octet & 1);
}

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
	struct segue_answer_metadata *answer;
	u32 oif = buffer_interface(ctx), hop = 0;
	/* Not all drivers have room for metadata. */
	int handed = !bpf_xdp_adjust_meta(ctx, -(int)sizeof(*answer));
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
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
	answer = (void *)(long)ctx->data_meta;
	if ((void *)(answer + 1) > data)
		return VERDICT_DROP;
	answer->magic = ~control.metadata_magic;
	answer->oif = oif;
	answer->family = hop;
	__builtin_memcpy(answer->next_hop, fib->ipv6_dst, sizeof(answer->next_hop));
	return VERDICT_PASS;
}

/* The same for a message whose IP header is written: the way is that to its destination. */
INLINE int icmp_route(const struct packet *packet, u32 family, u64 way, const struct macs *came)
{
	buffer *ctx = packet->ctx;
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
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

struct icmp_error {
	struct address to;
	struct address from;
	u32 quote;
	u32 frame;
	struct macs came;
};

/*
 * The way of an error. One with a way of its own is sent from the address of the port that it leaves by, which is known
 * where it goes, as the node's own addresses need not be.
 */
INLINE int icmp_way(const struct packet *packet, const struct scratch *scratch, struct icmp_error *error,
		    struct bpf_fib_lookup *fib)
{
	const struct segue_port *egress;
	struct address own;
	int verdict;

	if (scratch->family == 6) {
		fib->family = 10;
		__builtin_memcpy(fib->ipv6_src, &error->from, 16);
		__builtin_memcpy(fib->ipv6_dst, &error->to, 16);
	} else {
		fib->family = 2;
		fib->ipv4_src = error->from.low;
		fib->ipv4_dst = error->to.low;
	}
	/* Of a link-local address only the link is known: that which the packet came by. */
	if (scratch->family == 6 && address_link_local(error->to))
		return BPF_FIB_LKUP_RET_NOT_FWDED;
	verdict = icmp_lookup(packet->ctx, scratch->way, fib);
	if (!scratch->way || (verdict != BPF_FIB_LKUP_RET_SUCCESS && verdict != BPF_FIB_LKUP_RET_NO_NEIGH))
		return verdict;
	egress = port_find(packet->generation, fib->ifindex);
	if (!egress)
		return verdict;
	if (scratch->family == 6) {
		own = address_load(egress->ipv6);
		if ((own.high | own.low) && !address_link_local(own))
			error->from = own;
	} else if (egress->ipv4) {
		error->from.low = egress->ipv4;
	}
	return verdict;
}

/* Who asked, and may they be answered? 0: go on. */
INLINE int icmp_prepare(buffer *ctx, const struct scratch *scratch, const struct segue_config *config,
			const struct segue_port *port, struct icmp_error *error)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	u32 l3 = scratch->l3 & OFFSET_MASK, linear;

	if (data + ETHERNET_LENGTH > end || ((u8 *)data)[0] & 1)
		return -1;
	__builtin_memcpy(&error->came, data, 12);
	if (scratch->family == 6) {
		struct ipv6hdr *ip = data + l3;
		struct address destination, own;

		if ((void *)(ip + 1) > end)
			return -1;
		error->to = address_load(&ip->saddr);
		destination = address_load(&ip->daddr);
		error->quote = IPV6_LENGTH + bpf_ntohs(ip->payload_len);
		if (maybe_jumbogram(ip))
			error->quote = ICMPV6_QUOTE_MAX;
		error->from = address_load(config->address);
		own = address_load(port->ipv6);
		if (port->role == SEGUE_ROLE_ACCESS && (own.high | own.low) && !address_link_local(own))
			error->from = own;
		if (icmpv6_forbidden(ctx, l3, scratch->type, scratch->code, error->to, destination, l3 + error->quote))
			return -1;
		if (error->quote > ICMPV6_QUOTE_MAX)
			error->quote = ICMPV6_QUOTE_MAX;
	} else {
		struct iphdr *ip = data + l3;

		if ((void *)(ip + 1) > end)
			return -1;
		if (icmpv4_forbidden(ip, end))
			return -1;
		error->to.low = ip->saddr;
		error->quote = bpf_ntohs(ip->tot_len);
		error->from.low = port->ipv4 ? port->ipv4 : config->address_ipv4;
		if (!error->from.low)
			return -1;
		if (error->quote > ICMPV4_QUOTE_MAX)
			error->quote = ICMPV4_QUOTE_MAX;
	}
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	linear = end - data;
	if (linear <= l3)
		return -1;
	if (error->quote > linear - l3)
		error->quote = linear - l3;
	error->frame = frame_length(ctx);
	return 0;
}

INLINE void icmp_write_ipv6(void *ip_, const struct icmp_error *error, u32 length)
{
	struct ipv6hdr *ip = ip_;

	*(u32 *)ip = bpf_htonl(6U << 28);
	ip->payload_len = bpf_htons(length);
	ip->nexthdr = PROTOCOL_ICMPV6;
	ip->hop_limit = HOP_LIMIT_DEFAULT;
	address_store(&ip->saddr, error->from);
	address_store(&ip->daddr, error->to);
}

INLINE void icmp_write_ipv4(void *ip_, void *end, const struct icmp_error *error, u32 length)
{
	struct iphdr *ip = ip_;

	*(u16 *)ip = bpf_htons(0x45c0); /* precedence 6: RFC 1812 section 4.3.2.5 */
	ip->tot_len = bpf_htons(20 + length);
	ip->id = 0;
	ip->frag_off = bpf_htons(0x4000);
	ip->ttl = HOP_LIMIT_DEFAULT;
	ip->protocol = IPPROTO_ICMP;
	ip->check = 0;
	ip->saddr = error->from.low;
	ip->daddr = error->to.low;
	ip->check = ~ipv4_header_sum(ip, end, 5);
}

/* The error in place of the packet: headers in front of the quoted octets, the rest cut. */
INLINE int icmp_build(buffer *ctx, const struct scratch *scratch, const struct icmp_error *error)
{
	u32 family = scratch->family, ip_length = family == 6 ? IPV6_LENGTH : 20;
	u32 head = ETHERNET_LENGTH + ip_length + ICMP_LENGTH, total = head + error->quote, sum = 0;
	int delta = (int)(scratch->l3 & OFFSET_MASK) - (int)head;
	u32 frame = error->frame - delta;
	void *data, *end;
	struct icmp *icmp;

	if (buffer_adjust_head(ctx, delta))
		return -1;
	if (frame > total && buffer_adjust_tail(ctx, -(int)(frame - total)))
		return -1;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + ETHERNET_LENGTH + IPV6_LENGTH + ICMP_LENGTH > end)
		return -1;
	if (family == 6)
		icmp_write_ipv6(data + ETHERNET_LENGTH, error, ICMP_LENGTH + error->quote);
	else
		icmp_write_ipv4(data + ETHERNET_LENGTH, end, error, ICMP_LENGTH + error->quote);
	icmp = data + ETHERNET_LENGTH + ip_length;
	if ((void *)(icmp + 1) > end)
		return -1;
	icmp->type = scratch->type;
	icmp->code = scratch->code;
	icmp->checksum = 0;
	icmp->param = bpf_htonl(scratch->param);
	if (family == 6) {
		const u16 *half = data + ETHERNET_LENGTH + 8;

		for (int i = 0; i < 16; i++)
			sum += half[i];
		sum += bpf_htons(ICMP_LENGTH + error->quote) + bpf_htons(PROTOCOL_ICMPV6);
	}
	sum = sum_octets(ctx, ETHERNET_LENGTH + ip_length, ICMP_LENGTH + error->quote, sum);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	icmp = data + ETHERNET_LENGTH + ip_length;
	if ((void *)(icmp + 1) > end)
		return -1;
	icmp->checksum = ~sum;
	return 0;
}

/* An echo reply from the SID (RFC 4443 section 4.2): the SRH, all used up, is left out. */
INLINE int icmp_echo(const struct packet *packet, const struct scratch *scratch)
{
	buffer *ctx = packet->ctx;
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	u32 upper = scratch->upper & OFFSET_MASK, length = scratch->param - upper;
	struct icmp_error error = {};
	struct icmp *icmp;

	if ((void *)(ip + 1) > end || ((u8 *)data)[0] & 1)
		return VERDICT_DROP;
	error.to = address_load(&ip->saddr);
	error.from = address_load(&ip->daddr);
	__builtin_memcpy(&error.came, data, 12);
	if (!address_valid_source(error.to))
		return VERDICT_DROP;
	if (buffer_adjust_head(ctx, (int)upper - ETHERNET_LENGTH - IPV6_LENGTH))
		return VERDICT_DROP;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	icmp = data + ETHERNET_LENGTH + IPV6_LENGTH;
	if ((void *)(icmp + 1) > end)
		return VERDICT_DROP;
	icmp_write_ipv6(data + ETHERNET_LENGTH, &error, length);
	/* Both addresses change places: of the checksum only the type changes. */
	icmp->checksum = checksum_update(icmp->checksum, *(u16 *)&icmp->type, ICMPV6_ECHO_REPLY | (u16)icmp->code << 8);
	icmp->type = ICMPV6_ECHO_REPLY;
	return icmp_route(packet, 6, 0, &error.came);
}

/*
 * Makes an order about an inner packet, whose table knows no way to its source, one about the outer packet, which is
 * unchanged: to the node that wrapped it. That knows where the inner packet came from, and tells its source
 * (lib/icmp/relay.h). 0: done.
 */
INLINE int icmp_about_outer(struct scratch *scratch)
{
	u32 overhead = (scratch->l3 & OFFSET_MASK) - ETHERNET_LENGTH;

	if (!(u32)scratch->way || scratch->l3 <= ETHERNET_LENGTH || scratch->icmp_kind == SEGUE_ICMP_RELAYED)
		return -1;
	scratch->code = 0;
	if (scratch->icmp_kind == SEGUE_ICMP_TOO_BIG) {
		scratch->type = ICMPV6_PACKET_TOO_BIG;
		scratch->param += overhead;
	} else if (scratch->icmp_kind == SEGUE_ICMP_TIME_EXCEEDED) {
		scratch->type = ICMPV6_TIME_EXCEEDED;
	} else if (scratch->icmp_kind == SEGUE_ICMP_UNREACHABLE) {
		scratch->type = ICMPV6_DESTINATION_UNREACHABLE;
	} else {
		return -1;
	}
	scratch->family = 6;
	scratch->l3 = ETHERNET_LENGTH;
	scratch->way = 0;
	return 0;
}

/* Sends it. `*row`: what to count in `icmp_sent`. */
INLINE int icmp_send(const struct packet *packet, struct scratch *scratch, const struct segue_config *config, u32 *row)
{
	buffer *ctx = packet->ctx;
	struct bpf_fib_lookup fib = {};
	struct icmp_error error = {};
	int action, verdict;

	*row = SEGUE_ICMP_NOT_SENT;
	if (scratch->icmp_kind == SEGUE_ICMP_ECHO_REPLY) {
		if (!icmp_allowed(packet->port->index, SEGUE_ICMP_ECHO_REPLY, config->echo_per_second,
				  config->echo_burst)) {
			*row = SEGUE_ICMP_RATE_LIMITED;
			return VERDICT_DROP;
		}
		action = icmp_echo(packet, scratch);
	} else {
		if (icmp_prepare(ctx, scratch, config, packet->port, &error))
			return VERDICT_DROP;
		if (!icmp_allowed(packet->port->index, scratch->icmp_kind, config->icmp_per_second,
				  config->icmp_burst)) {
			*row = SEGUE_ICMP_RATE_LIMITED;
			return VERDICT_DROP;
		}
		verdict = icmp_way(packet, scratch, &error, &fib);
		if (verdict != BPF_FIB_LKUP_RET_SUCCESS && verdict != BPF_FIB_LKUP_RET_NO_NEIGH &&
		    !icmp_about_outer(scratch)) {
			stage(packet, SEGUE_STAGE_ICMP);
			return VERDICT_DROP;
		}
		if (icmp_build(ctx, scratch, &error))
			return VERDICT_DROP;
		action = icmp_leave(packet, scratch->family, scratch->way, verdict, &fib, &error.came);
	}
	if (action != VERDICT_DROP)
		*row = scratch->icmp_kind;
	return action;
}

/* An error's packet has its outcome already; that of an echo request or of a relayed error is known only here. */
INLINE int icmp_stage(struct packet *packet, struct scratch *scratch, const struct segue_config *config)
{
	u32 kind = scratch->icmp_kind, row;
	int action = icmp_send(packet, scratch, config, &row);

	count_icmp(row);
	if (kind != SEGUE_ICMP_ECHO_REPLY && kind != SEGUE_ICMP_RELAYED)
		return action;
	packet->length = scratch->length;
	if (action == VERDICT_DROP)
		return drop(packet, SEGUE_OUTCOME_drop_not_answered);
	if (kind == SEGUE_ICMP_ECHO_REPLY)
		count(scratch->counter, packet->length);
	count_outcome(packet, kind == SEGUE_ICMP_RELAYED ? SEGUE_OUTCOME_icmp_relayed : SEGUE_OUTCOME_echo_answered);
	return action;
}

#endif
