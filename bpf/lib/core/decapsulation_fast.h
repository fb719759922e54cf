/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fast path of decapsulation: the usual inner packet, at the end of a list with two segments. */
#ifndef SEGUE_CORE_DECAPSULATION_FAST_H
#define SEGUE_CORE_DECAPSULATION_FAST_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"
#include "lib/packet/inner.h"
#include "lib/packet/fast.h"
#include "lib/forward/adjacency.h"
#include "lib/core/boundary.h"

/*
 * End.DX4, End.DX6, End.DT4, End.DT6, End.DT46: the way of an inner packet as nearly all are, at the end of a list with
 * two segments, by a link that it fits; or NULL. Nothing is changed.
 */
INLINE const struct adjacency *decapsulate_fast(struct packet *packet, const struct segue_sid *sid, const void *data,
						const void *end)
{
	const u64 *word = data + ETHERNET_LENGTH;
	struct address source, destination, towards;
	const struct adjacency *adjacency;
	u32 length, tag = 0;
	u64 flow; /* the end of the inner source */

	if (data + FAST_INNER + IPV6_LENGTH > end ||
	    packet->port->config_flags & (SEGUE_CONFIG_CHECK_SOURCE | SEGUE_CONFIG_MANY_BLOCKS))
		return NULL;
	length = buffer_octets(packet->ctx, data, end) - FAST_INNER;
	source = (struct address){word[1], word[2]};
	if ((word[0] & (WORD_VERSION | WORD_NEXT_HEADER)) != WORD_OF_SRH ||
	    WORD_PAYLOAD_LENGTH(word[0]) != length + FAST_STEERING - IPV6_LENGTH ||
	    (word[5] & 0xffffff00) != WORD_LAST_OF_TWO || !address_fast(source) ||
	    address_equal(source, (struct address){word[3], word[4]}))
		return NULL;
	if (likely((word[5] & 0xff) == PROTOCOL_IPV6)) {
		if (sid->behaviour == SEGUE_END_DX4 || sid->behaviour == SEGUE_END_DT4 ||
		    boundary_suspects((word[10] & WORD_NEXT_HEADER) >> 48) || WORD_HOP_LIMIT(word[10]) <= 1 ||
		    !inner_ipv6_fast(packet, word + 10, length, word[0]))
			return NULL;
		flow = word[12];
		destination = (struct address){word[13], word[14]};
		towards = address_load(sid->next_hop);
	} else {
		const struct iphdr *ip = data + FAST_INNER;

		if ((word[5] & 0xff) != PROTOCOL_IPV4 || sid->behaviour == SEGUE_END_DX6 ||
		    sid->behaviour == SEGUE_END_DT6 || ip->ttl <= 1 || !inner_ipv4_fast(ip, end, length, word[0]))
			return NULL;
		flow = ip->saddr;
		destination = (struct address){0, ip->daddr};
		towards = (struct address){0, sid->next_hop_ipv4};
		tag = ADJACENCY_IPV4;
	}
	if (!(towards.high | towards.low))
		towards = destination;
	packet->length = length + FAST_STEERING;
	adjacency = adjacency_find(packet, towards, sid->table | tag, sid->oif, flow >> 56 ^ flow >> 24);
	return adjacency && adjacency_fits(packet, adjacency, length) ? adjacency : NULL;
}

/* Such a packet leaves. */
INLINE int decapsulate_fast_to(const struct packet *packet, const struct segue_sid *sid,
			       const struct adjacency *adjacency)
{
	void *data;

	if (buffer_decapsulate(packet->ctx, FAST_STEERING,
			       *(const u16 *)&adjacency->ethernet[12] == bpf_htons(ETH_P_IP)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = buffer_start(packet->ctx);
	if (data + ETHERNET_LENGTH + sizeof(struct iphdr) > buffer_end(packet->ctx))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	ethernet_write(data, adjacency);
	if (likely(*(const u16 *)(data + 12) == bpf_htons(ETH_P_IPV6)))
		((struct ipv6hdr *)(data + ETHERNET_LENGTH))->hop_limit--;
	else
		ipv4_decrement(data + ETHERNET_LENGTH);
	count(packet, sid->counter);
	return transmit(packet, adjacency->ifindex, SEGUE_OUTCOME_forwarded);
}

#endif
