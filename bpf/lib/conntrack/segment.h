/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What connection tracking reads in the header of a TCP segment: control bits, numbers, window, options. */
#ifndef SEGUE_CONNTRACK_SEGMENT_H
#define SEGUE_CONNTRACK_SEGMENT_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/packet/tcp_options.h"
#include "lib/firewall/work.h"
#include "lib/firewall/reset.h"
#include "lib/conntrack/packet.h"

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define TCP_URG 0x20

#define TCP_SCALE_MAX 14 /* RFC 7323 section 2.3 */

/* Numbers are compared mod 2^32. */
INLINE int tcp_before(u32 one, u32 other)
{
	return (s32)(one - other) < 0;
}

INLINE u32 tcp_event(u32 flags)
{
	if (flags & TCP_RST)
		return TCP_EVENT_RST;
	if (flags & TCP_SYN)
		return flags & TCP_ACK ? TCP_EVENT_SYN_ACK : TCP_EVENT_SYN;
	if (flags & TCP_FIN)
		return TCP_EVENT_FIN;
	return flags & TCP_ACK ? TCP_EVENT_ACK : TCP_EVENT_NONE;
}

/* The control bits that a segment may have together; PSH, ECE and CWR with any. */
INLINE int tcp_flags_valid(u32 flags)
{
	u32 kind = flags & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK);

	if (flags & TCP_URG)
		return kind == TCP_SYN || kind == (TCP_FIN | TCP_ACK) || kind == TCP_ACK;
	return kind == TCP_SYN || kind == (TCP_SYN | TCP_ACK) || kind == TCP_RST || kind == (TCP_RST | TCP_ACK) ||
	       kind == (TCP_FIN | TCP_ACK) || kind == TCP_ACK;
}

/* An octet of a header need not lie where a word may. */
INLINE u32 tcp_word(const u8 *octet)
{
	return (u32)octet[0] << 24 | (u32)octet[1] << 16 | (u32)octet[2] << 8 | octet[3];
}

INLINE int conntrack_option(const u8 *octet, const void *end, u32 left, void *of)
{
	struct tcp_segment *segment = of;
	u32 size = octet[1];

	if (octet[0] == TCP_OPTION_NOTHING)
		return 0;
	if (size < 2 || size > left)
		return 1;
	if (octet[0] == TCP_OPTION_SACK_PERMITTED && size == 2) {
		segment->side_flags |= SEGUE_SIDE_SACK;
	} else if (octet[0] == TCP_OPTION_WINDOW_SCALE && size == 3) {
		if ((const void *)(octet + 3) > end)
			return 1;
		segment->side_flags |= SEGUE_SIDE_SCALING;
		segment->scale = octet[2] < TCP_SCALE_MAX ? octet[2] : TCP_SCALE_MAX;
	} else if (octet[0] == TCP_OPTION_SACK && size >= 10 && (size & 7) == 2) {
		for (int block = 0; block < 4; block++) {
			u32 edge;

			if (2 + 8 * (block + 1) > size || (const void *)(octet + 2 + 8 * (block + 1)) > end)
				break;
			edge = tcp_word(octet + 2 + 8 * block + 4);
			if (tcp_before(segment->selective, edge))
				segment->selective = edge;
		}
	}
	return 0;
}

/* Reads the options of the header at `offset`, `length` octets with them, into the segment of `track`. */
RARE int conntrack_options(buffer *ctx, struct conntrack *track, u32 offset, u32 length)
{
	if (track)
		tcp_options_walk(ctx, offset, length, conntrack_option, &track->tcp);
	return 0;
}

/* Reads the header of the segment in `work`. 0: it is none. */
INLINE u32 tcp_read(buffer *ctx, const struct firewall_work *work, struct conntrack *track)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	const u8 *octet = data + (work->upper & OFFSET_MASK);
	struct tcp_segment *segment = &track->tcp;
	u32 header, length = work->limit - work->upper, flags;
	const u32 *words = (const u32 *)octet;

	if (work->key.tcp_flags == SEGUE_CLASSIFIER_ABSENT || (void *)(octet + 20) > end)
		return 0;
	header = (octet[12] >> 4) * 4;
	flags = octet[13];
	if (header < 20 || header > length || !tcp_flags_valid(flags))
		return 0;
	segment->sequence = bpf_ntohl(words[1]);
	segment->acknowledgment = bpf_ntohl(words[2]);
	segment->selective = segment->acknowledgment;
	segment->end = segment->sequence + length - header + !!(flags & TCP_SYN) + (flags & TCP_FIN);
	segment->window = bpf_ntohs(*(const u16 *)(octet + 14));
	segment->flags = flags;
	segment->event = tcp_event(flags);
	segment->incomplete = work->fragment & FIREWALL_FIRST_FRAGMENT;
	segment->options = header > 20;
	segment->side_flags = 0;
	segment->scale = 0;
	/* Most have a timestamp and nothing else (RFC 7323 appendix A). */
	if (header > 20 && !(header == 32 && (void *)(octet + 24) <= end && words[5] == bpf_htonl(0x0101080a)))
		conntrack_options(ctx, track, work->upper, header);
	return 1;
}

#endif
