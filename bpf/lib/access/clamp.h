/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* TCP connections that go into a policy are opened with segments that fit it: the MSS option of SYN segments is
 * lowered. */
#ifndef SEGUE_ACCESS_CLAMP_H
#define SEGUE_ACCESS_CLAMP_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/packet/tcp_options.h"
#include "lib/conntrack/segment.h"

#define TCP_OPTION_MSS 2
#define TCP_OPTION_MSS_LENGTH 4
#define TCP_LENGTH 20

/* Writes another MSS `at` so many octets behind the TCP header at `offset`; all lies in the frame. */
INLINE void mss_write(buffer *ctx, u32 offset, u8 *tcp, u8 *option, u32 at, u32 most)
{
	u16 before = *(u16 *)(option + 2), after = bpf_htons(most);

	*(u16 *)(option + 2) = after;
	/* Behind an odd number of octets each lies in the other half of its word. */
	if (at & 1) {
		before = before << 8 | before >> 8;
		after = after << 8 | after >> 8;
	}
#ifdef SEGUE_SKB
	/* Knows whether the checksum is left to a device. */
	bpf_l4_csum_replace(ctx, offset + 16, before, after, 2);
#else
	(void)ctx;
	(void)offset;
	*(u16 *)(tcp + 16) = checksum_update(*(u16 *)(tcp + 16), before, after);
#endif
	(void)tcp;
}

/*
 * Lowers the MSS of the TCP segment in hand, if it is one that opens a connection, so that packets of its connection
 * have at most `order` & 0xffff octets; `order` >> 16: the family. No IPv6 extension header lies in front of it, and it
 * is no fragment.
 */
RARE int mss_clamp(buffer *ctx, u32 order)
{
	void *data = buffer_start(ctx), *end = buffer_end(ctx);
	u32 offset = ETHERNET_LENGTH, most = order & 0xffff, at = TCP_LENGTH, length;
	const u8 *ip = data + ETHERNET_LENGTH;
	u8 *tcp, *option;

	if ((const void *)(ip + IPV6_LENGTH) > end)
		return 0;
	if (order >> 16 == 4) {
		offset += (ip[0] & 15) * 4;
		most -= 20 + TCP_LENGTH;
	} else {
		if (ip[6] != PROTOCOL_TCP)
			return 0;
		offset += IPV6_LENGTH;
		most -= IPV6_LENGTH + TCP_LENGTH;
	}
	opaque(offset);
	offset &= OFFSET_MASK;
	tcp = data + offset;
	if ((void *)(tcp + TCP_LENGTH) > end || !(tcp[13] & TCP_SYN))
		return 0;
	length = (tcp[12] >> 4) * 4;
	for (int i = 0; i < 40; i++) {
		/* Said anew in each round, as in tcp_options_walk(). */
		at &= 63;
		option = data + ((offset + at) & OFFSET_MASK);
		if (at + TCP_OPTION_MSS_LENGTH > length || (void *)(option + TCP_OPTION_MSS_LENGTH) > end ||
		    option[0] == TCP_OPTION_END)
			break;
		if (option[0] == TCP_OPTION_NOTHING) {
			at++;
			continue;
		}
		if (option[0] == TCP_OPTION_MSS && option[1] == TCP_OPTION_MSS_LENGTH) {
			if (bpf_ntohs(*(u16 *)(option + 2)) > most)
				mss_write(ctx, offset, tcp, option, at, most);
			break;
		}
		if (option[1] < 2)
			break;
		at += option[1];
	}
	return 0;
}

#endif
