/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The ICMP stage: errors (RFC 4443, RFC 792) and echo replies of SIDs. */
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
#include "lib/packet/inner.h"
#include "lib/icmp/extension.h"
#include "lib/icmp/forbidden.h"
#include "lib/icmp/limit.h"
#include "lib/icmp/path_mtu.h"
#include "lib/icmp/room.h"
#include "lib/icmp/way.h"

#define ICMPV4_QUOTE_MAX (576 - 20 - ICMP_LENGTH) /* RFC 1812 section 4.3.2.3 */
#define HOP_LIMIT_DEFAULT 64

struct icmp {
	u8 type;
	u8 code;
	u16 checksum;
	u32 param;
};

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

struct icmp_error {
	struct address to;
	struct address from;
	u32 quote;
	u32 behind; /* octets behind the quote */
	u32 frame;
	struct macs came;
};

/*
 * The way of an error. One with a way of its own, and one that is relayed from inside the domain, is sent from the
 * address of the port that it leaves by, which is known where it goes, as the node's own addresses need not be.
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
	if ((!scratch->way && scratch->icmp_kind != SEGUE_ICMP_RELAYED) ||
	    (verdict != BPF_FIB_LKUP_RET_SUCCESS && verdict != BPF_FIB_LKUP_RET_NO_NEIGH))
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
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
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
	data = buffer_start(ctx);
	end = buffer_end(ctx);
	linear = buffer_octets(ctx, data, end);
	if (linear <= l3)
		return -1;
	if (error->quote > linear - l3)
		error->quote = linear - l3;
	if (unlikely(scratch->extension_length)) {
		if (error->quote > EXTENDED_QUOTE)
			error->quote = EXTENDED_QUOTE;
		error->behind = EXTENDED_QUOTE - error->quote + scratch->extension_length;
	}
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

/* The error in place of the packet: headers in front of the quoted octets, the rest cut, and an extension behind them.
 */
INLINE int icmp_build(buffer *ctx, const struct scratch *scratch, const struct icmp_error *error)
{
	u32 family = scratch->family, ip_length = family == 6 ? IPV6_LENGTH : 20;
	u32 head = ETHERNET_LENGTH + ip_length + ICMP_LENGTH, sum = 0;
	u32 length = ICMP_LENGTH + error->quote + error->behind;
	u32 param = scratch->param;
	void *data, *end;
	struct icmp *icmp;

	if (room_for_message(ctx, scratch->l3, head, error->quote, error->behind, error->frame) ||
	    message_family(ctx, family == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP)))
		return -1;
	if (unlikely(error->behind)) {
		if (extension_write(ctx, head + error->quote, EXTENDED_QUOTE - error->quote))
			return -1;
		param |= extended_param(family);
	}
	data = buffer_start(ctx);
	end = buffer_end(ctx);
	if (data + ETHERNET_LENGTH + IPV6_LENGTH + ICMP_LENGTH > end)
		return -1;
	if (family == 6)
		icmp_write_ipv6(data + ETHERNET_LENGTH, error, length);
	else
		icmp_write_ipv4(data + ETHERNET_LENGTH, end, error, length);
	icmp = data + ETHERNET_LENGTH + ip_length;
	if ((void *)(icmp + 1) > end)
		return -1;
	icmp->type = scratch->type;
	icmp->code = scratch->code;
	icmp->checksum = 0;
	icmp->param = bpf_htonl(param);
	if (family == 6) {
		const u16 *half = data + ETHERNET_LENGTH + 8;

		for (int i = 0; i < 16; i++)
			sum += half[i];
		sum += bpf_htons(length) + bpf_htons(PROTOCOL_ICMPV6);
	}
	sum = sum_octets(ctx, ETHERNET_LENGTH + ip_length, length, sum);
	data = buffer_start(ctx);
	end = buffer_end(ctx);
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
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
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
	data = buffer_start(ctx);
	end = buffer_end(ctx);
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

/*
 * Is it about a packet that this node has wrapped, and found again at a SID of its own? Its source is this node, which
 * would be told; who ought to be is the source of the inner packet. The packet's link-layer source says that nobody
 * else has made it (leave()).
 */
INLINE int icmp_about_own(const struct packet *packet, const struct scratch *scratch, const struct segue_config *config)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	struct macs came;

	if (scratch->l3 != ETHERNET_LENGTH || scratch->family != 6 || (void *)(ip + 1) > end)
		return 0;
	if (scratch->icmp_kind != SEGUE_ICMP_TOO_BIG && scratch->icmp_kind != SEGUE_ICMP_TIME_EXCEEDED &&
	    scratch->icmp_kind != SEGUE_ICMP_UNREACHABLE)
		return 0;
	__builtin_memcpy(&came, data, 12);
	return !icmp_came_from(&came) && address_equal(address_load(&ip->saddr), address_load(config->address));
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
		if (icmp_about_own(packet, scratch, config)) {
			scratch->own = 1;
			stage(packet, SEGUE_STAGE_RELAY);
			scratch->own = 0;
			return VERDICT_DROP;
		}
		if (icmp_prepare(ctx, scratch, config, packet->port, &error))
			return VERDICT_DROP;
		if (scratch->icmp_kind == SEGUE_ICMP_TOO_BIG && packet->port->role == SEGUE_ROLE_SERVICE)
			path_mtu_behind_function(packet->port->ifindex, scratch->param);
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
		count(packet, scratch->counter);
	count_outcome(packet, kind == SEGUE_ICMP_RELAYED ? SEGUE_OUTCOME_icmp_relayed : SEGUE_OUTCOME_echo_answered);
	return action;
}

#endif
