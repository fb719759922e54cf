/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * REJECT --reject-with tcp-reset: a TCP segment with RST in place of the packet, from the inner destination to the
 * inner source (RFC 9293 section 3.5.2). It leaves as ICMP errors about inner packets do.
 */
#ifndef SEGUE_FIREWALL_RESET_H
#define SEGUE_FIREWALL_RESET_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/frame.h"
#include "lib/packet/outcome.h"
#include "lib/packet/inner.h"
#include "lib/firewall/work.h"
#include "lib/icmp/answer.h"
#include "lib/icmp/room.h"

#define TCP_LENGTH 20
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

struct reset {
	struct macs came;
	struct address source, destination; /* of the segment that is answered; IPv4: in the low word */
	u32 ports;			    /* the same order as there */
	u32 sequence, acknowledgement;	    /* of the answer, packet order */
	u32 family;
	u32 flags;
};

/* Reads what the answer needs. -1: there must be none. */
INLINE int reset_read(buffer *ctx, const struct firewall_work *work, struct reset *reset)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 at = work->upper & OFFSET_MASK, octets;
	const u8 *tcp = data + at;
	const u32 *words = (const void *)tcp;

	if (!work->upper || work->key.protocol != PROTOCOL_TCP || work->upper + TCP_LENGTH > work->limit ||
	    (void *)(tcp + TCP_LENGTH) > end || data + ETHERNET_LENGTH > end)
		return -1;
	/* Never an answer to a reset, nor to a group. */
	if (tcp[13] & TCP_RST || ((const u8 *)data)[0] & 1)
		return -1;
	__builtin_memcpy(&reset->came, data, 12);
	reset->family = work->key.family;
	reset->ports = words[0];
	if (reset->family == 6) {
		reset->source.high = bpf_cpu_to_be64(work->key.source[0]);
		reset->source.low = bpf_cpu_to_be64(work->key.source[1]);
		reset->destination.high = bpf_cpu_to_be64(work->key.destination[0]);
		reset->destination.low = bpf_cpu_to_be64(work->key.destination[1]);
		if (!address_valid_source(reset->source) || !address_forwardable(reset->destination))
			return -1;
	} else {
		reset->source.low = bpf_htonl(work->key.source[0]);
		reset->destination.low = bpf_htonl(work->key.destination[0]);
		if (!ipv4_valid_source(reset->source.low) || !ipv4_valid_source(reset->destination.low))
			return -1;
	}
	if (tcp[13] & TCP_ACK) {
		reset->sequence = words[2];
		reset->acknowledgement = 0;
		reset->flags = TCP_RST;
		return 0;
	}
	octets = work->limit - work->upper - (tcp[12] >> 4) * 4;
	octets += !!(tcp[13] & TCP_SYN) + !!(tcp[13] & TCP_FIN);
	reset->sequence = 0;
	reset->acknowledgement = bpf_htonl(bpf_ntohl(words[1]) + octets);
	reset->flags = TCP_RST | TCP_ACK;
	return 0;
}

INLINE int reset_write(buffer *ctx, const struct reset *reset, u32 upper)
{
	u32 head = reset->family == 6 ? IPV6_LENGTH : 20, sum = 0, length;
	int room = room_for_reset(ctx, ETHERNET_LENGTH + head + TCP_LENGTH, upper);
	void *data, *end;
	const u16 *half;
	u32 *words;
	u8 *tcp;

	if (room < 0 || message_family(ctx, reset->family == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP)))
		return -1;
	length = room ?: TCP_LENGTH;
	data = buffer_start(ctx);
	end = buffer_end(ctx);
	if (data + ETHERNET_LENGTH + head + TCP_LENGTH > end)
		return -1;
	if (reset->family == 6) {
		struct ipv6hdr *ip = data + ETHERNET_LENGTH;

		*(u32 *)ip = bpf_htonl(6U << 28);
		ip->payload_len = bpf_htons(length);
		ip->nexthdr = PROTOCOL_TCP;
		ip->hop_limit = HOP_LIMIT_DEFAULT;
		address_store(&ip->saddr, reset->destination);
		address_store(&ip->daddr, reset->source);
		half = (const u16 *)&ip->saddr;
		for (int i = 0; i < 16; i++)
			sum += half[i];
		tcp = (u8 *)(ip + 1);
	} else {
		struct iphdr *ip = data + ETHERNET_LENGTH;

		*(u16 *)ip = bpf_htons(0x4500);
		ip->tot_len = bpf_htons(20 + length);
		ip->id = 0;
		ip->frag_off = bpf_htons(0x4000);
		ip->ttl = HOP_LIMIT_DEFAULT;
		ip->protocol = PROTOCOL_TCP;
		ip->check = 0;
		ip->saddr = reset->destination.low;
		ip->daddr = reset->source.low;
		ip->check = ~ipv4_header_sum(ip, end, 5);
		half = (const u16 *)&ip->saddr;
		for (int i = 0; i < 4; i++)
			sum += half[i];
		tcp = (u8 *)(ip + 1);
	}
	if ((void *)(tcp + TCP_LENGTH) > end)
		return -1;
	words = (u32 *)tcp;
	words[0] = reset->ports << 16 | reset->ports >> 16;
	words[1] = reset->sequence;
	words[2] = reset->acknowledgement;
	words[3] = 0;
	words[4] = 0;
	tcp[12] = (length / 4) << 4;
	tcp[13] = reset->flags;
	sum += bpf_htons(length) + bpf_htons(PROTOCOL_TCP);
	if (room) {
		*(u16 *)(tcp + 16) = fold16(sum);
		return 0;
	}
	half = (const u16 *)tcp;
	for (int i = 0; i < TCP_LENGTH / 2; i++)
		sum += half[i];
	*(u16 *)(tcp + 16) = ~fold16(sum);
	return 0;
}

/* The packet's outcome is counted already. */
INLINE int reset_stage(struct packet *packet, const struct segue_config *config)
{
	const struct firewall_work *work = firewall_work_get();
	struct reset reset = {};
	int action = VERDICT_DROP;
	u32 row = SEGUE_ICMP_NOT_SENT;

	if (work && !reset_read(packet->ctx, work, &reset)) {
		row = SEGUE_ICMP_RATE_LIMITED;
		if (icmp_allowed(packet->port->index, SEGUE_ICMP_TCP_RESET, config->resets_per_second,
				 config->resets_burst) &&
		    !reset_write(packet->ctx, &reset, work->upper)) {
			action = icmp_route(packet, reset.family, 0, &reset.came);
			row = action == VERDICT_DROP ? SEGUE_ICMP_NOT_SENT : SEGUE_ICMP_TCP_RESET;
		}
	}
	count_icmp(row);
	return action;
}

#endif
