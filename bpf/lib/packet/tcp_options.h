/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The bounded walk over the options of a TCP header (RFC 9293 section 3.1). */
#ifndef SEGUE_PACKET_TCP_OPTIONS_H
#define SEGUE_PACKET_TCP_OPTIONS_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"

#define TCP_OPTION_END 0
#define TCP_OPTION_NOTHING 1
#define TCP_OPTION_WINDOW_SCALE 3
#define TCP_OPTION_SACK_PERMITTED 4
#define TCP_OPTION_SACK 5

/*
 * What is asked of each option, the end of the list left out: `octet[0]` is its kind, and `octet[1]` lies in the frame,
 * whatever it is; `left` octets of the header are left from there on. Not 0: the walk ends. It is inlined.
 */
typedef int (*tcp_option_visit)(const u8 *octet, const void *end, u32 left, void *of);

/* Walks over the options of the header at `offset`, `length` octets with them, until one cannot be stepped over. */
INLINE void tcp_options_walk(buffer *ctx, u32 offset, u32 length, tcp_option_visit visit, void *of)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 at = 20;

	for (int i = 0; i < 40; i++) {
		const u8 *octet;

		if (at >= length)
			break;
		/* Less than 60 by its nature; said anew in each round, so that the verifier of 6.1 finds them alike. */
		at &= 63;
		octet = data + ((offset + at) & OFFSET_MASK);
		if ((void *)(octet + 2) > end || octet[0] == TCP_OPTION_END || visit(octet, end, length - at, of))
			break;
		if (octet[0] == TCP_OPTION_NOTHING) {
			at++;
			continue;
		}
		if (octet[1] < 2)
			break;
		at += octet[1];
	}
}

#endif
