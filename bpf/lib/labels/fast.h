/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The fast path of labels: the usual packet with a label that is swapped or popped, with the last one, or with that of
 * a function (lib/labels/function_fast.h), without the detour by the stage that can do everything (lib/labels/port.h).
 * All else is left to that stage, with the packet unchanged. For XDP: on socket buffers the kernel's part costs far
 * more than a stage.
 */
#ifndef SEGUE_LABELS_FAST_H
#define SEGUE_LABELS_FAST_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/frame.h"
#include "lib/packet/outcome.h"
#include "lib/packet/inner.h"
#include "lib/packet/fast.h"
#include "lib/forward/adjacency.h"
#include "lib/core/boundary.h"
#include "lib/labels/entry.h"
#include "lib/labels/leave.h"
#include "lib/labels/ecn.h"
#include "lib/labels/function_fast.h"

/* Where the packet behind one label begins. */
#define LABEL_FAST_INNER (ETHERNET_LENGTH + ENTRY_LENGTH)

/* Takes `octets` of labels off, and sends what is behind them. `lower`: an IP packet, whose hop limit or TTL is
 * lowered. */
INLINE int label_fast_off(const struct packet *packet, const struct segue_sid *sid, const struct adjacency *adjacency,
			  u32 octets, u16 ethertype, u32 lower)
{
	void *data;

	if (buffer_adjust_head(packet->ctx, octets))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = buffer_start(packet->ctx);
	if (data + ETHERNET_LENGTH + sizeof(struct iphdr) > buffer_end(packet->ctx))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	ethernet_write(data, adjacency);
	((u16 *)data)[6] = ethertype;
	if (lower && likely(ethertype == bpf_htons(ETH_P_IPV6)))
		((struct ipv6hdr *)(data + ETHERNET_LENGTH))->hop_limit--;
	else if (lower)
		ipv4_decrement(data + ETHERNET_LENGTH);
	count(packet, sid->counter);
	return transmit(packet, adjacency->ifindex, SEGUE_OUTCOME_forwarded);
}

/*
 * CONTINUE: another label in its place, or more labels are behind it. `word`: its entry. `past`: what the label in
 * front of it is, which comes off as one of this node, or a constant NULL: it is the first one. 1: done with `action`.
 */
INLINE int label_fast_on(struct packet *packet, const struct segue_sid *sid, u32 word, const struct segue_sid *past,
			 int *action)
{
	u32 pop = sid->behaviour == SEGUE_LABEL_POP, front = past ? ENTRY_LENGTH : 0;
	const struct adjacency *adjacency;
	u8 *frame = buffer_start(packet->ctx);

	/* Several paths: the stage finds the packet's one. */
	if (unlikely(sid->table) || ENTRY_TTL(word) <= 1 ||
	    (pop ? word & ENTRY_BOTTOM : sid->flags & SEGUE_SID_EXPLICIT_NULL) ||
	    (void *)frame + LABEL_FAST_INNER + front + sizeof(struct iphdr) > buffer_end(packet->ctx))
		return 0;
	adjacency = label_adjacency(packet, sid, ADJACENCY_INSIDE);
	if (unlikely(!adjacency || !adjacency_fits(packet, adjacency, packet->length - front - pop * ENTRY_LENGTH)))
		return 0;
	if (past) {
		count(packet, past->counter);
		packet->length -= front;
	}
	if (!pop) {
		entry_store(frame + ETHERNET_LENGTH + front,
			    sid->out_label << 12 | (word & ENTRY_CLASS_AND_BOTTOM) | (ENTRY_TTL(word) - 1));
		if (past) {
			*action = label_fast_off(packet, sid, adjacency, front, bpf_htons(ETH_P_MPLS_UC), 0);
			return 1;
		}
		ethernet_write(frame, adjacency);
		((u16 *)frame)[6] = bpf_htons(ETH_P_MPLS_UC);
		count(packet, sid->counter);
		*action = transmit(packet, adjacency->ifindex, SEGUE_OUTCOME_forwarded);
		return 1;
	}
	if (!past && packet->port->config_flags & SEGUE_CONFIG_TTL_UNIFORM)
		frame[LABEL_FAST_INNER + 3] = ENTRY_TTL(word) - 1;
	*action = label_fast_off(packet, sid, adjacency, front + ENTRY_LENGTH, bpf_htons(ETH_P_MPLS_UC), 0);
	return 1;
}

/* The end of the stack: a packet as nearly all are, by a table or to a next hop. 1: done with `action`. */
INLINE int label_fast_end(const struct packet *packet, const struct segue_sid *sid, int *action)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	const u64 *word = data + LABEL_FAST_INNER;
	u32 length = packet->length - ENTRY_LENGTH;
	const struct adjacency *adjacency;
	struct address destination;
	u16 ethertype;
	u64 flow; /* the end of the source */

	if (data + LABEL_FAST_INNER + IPV6_LENGTH > end || packet->port->config_flags & SEGUE_CONFIG_TTL_UNIFORM)
		return 0;
	if (likely((word[0] & WORD_VERSION) == 0x60)) {
		if (!(sid->inner & SEGUE_INNER_IPV6) || boundary_suspects((word[0] & WORD_NEXT_HEADER) >> 48) ||
		    WORD_HOP_LIMIT(word[0]) <= 1 || !inner_ipv6_fast(packet, word, length, word[0]))
			return 0;
		destination = (struct address){word[3], word[4]};
		ethertype = bpf_htons(ETH_P_IPV6);
		flow = word[2];
	} else {
		const struct iphdr *ip = data + LABEL_FAST_INNER;

		/* A label says nothing of ECN, so that the packet's own stays: as if the outer one were the same. */
		if (!(sid->inner & SEGUE_INNER_IPV4) || ip->ttl <= 1 ||
		    !inner_ipv4_fast(ip, end, length, (u64)(ip->tos & 3) << 12))
			return 0;
		destination = (struct address){0, ip->daddr};
		ethertype = bpf_htons(ETH_P_IP);
		flow = ip->saddr;
	}
	if (sid->behaviour == SEGUE_LABEL_NEXT_HOP)
		adjacency = label_adjacency(packet, sid, 0);
	else
		adjacency = adjacency_find(packet, destination,
					   sid->table | (ethertype == bpf_htons(ETH_P_IP) ? ADJACENCY_IPV4 : 0), 0,
					   flow >> 56 ^ flow >> 24);
	if (unlikely(!adjacency || !adjacency_fits(packet, adjacency, length)))
		return 0;
	*action = label_fast_off(packet, sid, adjacency, ENTRY_LENGTH, ethertype, 1);
	return 1;
}

#ifdef SEGUE_SKB

INLINE int labels_fast(const struct packet *packet, const void *data, const void *end, const int *action)
{
	(void)packet, (void)data, (void)end, (void)action;
	return 0;
}

INLINE int labels_fast_past(const struct packet *packet, const struct segue_sid *own, const int *action)
{
	(void)packet, (void)own, (void)action;
	return 0;
}

#else

/* A frame with labels, in by a core port. 1: done with `action`. */
INLINE int labels_fast(struct packet *packet, const void *data, const void *end, int *action)
{
	const void *entry = data + ETHERNET_LENGTH;
	const struct segue_sid *sid;
	u32 length, word, index;

	if (entry + ENTRY_LENGTH > end || frame_foreign(packet, data))
		return 0;
	length = frame_length(packet->ctx);
	if (length != buffer_octets(packet->ctx, data, end))
		return 0;
	word = entry_load(entry);
	sid = label_find(packet->epoch, ENTRY_LABEL(word), &index);
	if (unlikely(!sid))
		return 0;
	packet->length = length - ETHERNET_LENGTH;
	/* A mark that does not stay where it is, or one behind the label of a function: the stage's. */
	if (labels_have_ecn(packet) && sid->behaviour != SEGUE_LABEL_SWAP &&
	    labels_marked(packet->ctx, packet->generation, LABELS_ALL))
		return 0;
	switch (sid->behaviour) {
	case SEGUE_LABEL_SWAP:
	case SEGUE_LABEL_POP:
		return label_fast_on(packet, sid, word, NULL, action);
	case SEGUE_LABEL_STATIC:
	case SEGUE_LABEL_DYNAMIC:
	case SEGUE_LABEL_FIREWALL:
		return ENTRY_TTL(word) ? label_fast_function(packet, sid, index, word & ENTRY_BOTTOM, action) : 0;
	case SEGUE_LABEL_TABLE:
	case SEGUE_LABEL_NEXT_HOP:
		return word & ENTRY_BOTTOM && ENTRY_TTL(word) ? label_fast_end(packet, sid, action) : 0;
	}
	return 0;
}

/*
 * A packet that a firewall has let pass, whose label is the first one, `own`: the next one is that of another node, and
 * both come off or are swapped at once. 1: done with `action`.
 */
INLINE int labels_fast_past(struct packet *packet, const struct segue_sid *own, int *action)
{
	const u8 *entry = buffer_start(packet->ctx) + ETHERNET_LENGTH;
	const struct segue_sid *sid;
	u32 word, index;

	if ((const void *)(entry + 2 * ENTRY_LENGTH) > buffer_end(packet->ctx) || entry[2] & 1 ||
	    packet->port->config_flags & SEGUE_CONFIG_TTL_UNIFORM)
		return 0;
	word = entry_load(entry + ENTRY_LENGTH);
	sid = label_find(packet->epoch, ENTRY_LABEL(word), &index);
	if (unlikely(!sid || (sid->behaviour != SEGUE_LABEL_SWAP && sid->behaviour != SEGUE_LABEL_POP)))
		return 0;
	/* As in labels_fast(); a mark of the first label has moved on to this one already. */
	if (labels_have_ecn(packet) && sid->behaviour == SEGUE_LABEL_POP &&
	    labels_marked(packet->ctx, packet->generation, LABELS_ALL))
		return 0;
	return label_fast_on(packet, sid, word, own, action);
}

#endif

#endif
