/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The layer-4 header of a packet that a firewall reads. */
#ifndef SEGUE_FIREWALL_UPPER_H
#define SEGUE_FIREWALL_UPPER_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/packet/tcp_options.h"
#include "lib/firewall/work.h"

INLINE int tcp_option_kind(const u8 *octet, const void *end, u32 left, void *kinds)
{
	(void)end;
	(void)left;
	*(u64 *)kinds |= (u64)(octet[0] < 64) << (octet[0] & 63);
	return 0;
}

/* The kinds of the options of the TCP header at `offset`, `length` octets with options, as bits. */
RARE u64 firewall_tcp_options(buffer *ctx, u32 offset, u32 length)
{
	u64 kinds = 0;

	tcp_options_walk(ctx, offset, length, tcp_option_kind, &kinds);
	return kinds;
}

/* Octets of the layer-4 header without its options; 0: of a protocol whose header no rule looks at. */
INLINE u32 upper_length(u32 family, u32 protocol)
{
	if (protocol == PROTOCOL_TCP)
		return 20;
	if (protocol == PROTOCOL_UDP || protocol == PROTOCOL_UDPLITE ||
	    protocol == (family == 6 ? PROTOCOL_ICMPV6 : PROTOCOL_ICMP))
		return 8;
	return protocol == PROTOCOL_SCTP || protocol == PROTOCOL_DCCP ? 12 : 0;
}

/*
 * Layer 4, of a whole packet or a first fragment. 0, or the outcome: a header that is not all there is dropped, as
 * netfilter's matches do, and conditions on what is missing cannot be slipped past (RFC 3128, RFC 7112 section 5).
 */
INLINE u32 firewall_key_upper(buffer *ctx, struct firewall_work *work, u32 offset, u32 limit)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	struct segue_classifier_key *key = &work->key;
	const u8 *octet = data + (offset & OFFSET_MASK);
	u32 protocol = key->protocol, length = upper_length(key->family, protocol), word;

	if (unlikely(offset + length > limit))
		return SEGUE_OUTCOME_drop_layer4_header;
	if (unlikely(offset > OFFSET_MASK))
		return SEGUE_OUTCOME_drop_multi_buffer_header;
	work->upper = offset;
	if (protocol == PROTOCOL_TCP) {
		if ((void *)(octet + 20) > end)
			return SEGUE_OUTCOME_drop_multi_buffer_header;
		length = (octet[12] >> 4) * 4;
		/* Options in a later fragment would be seen by the receiver alone; with other lengths, by nobody. */
		if (unlikely(length < 20 || offset + length > limit))
			return SEGUE_OUTCOME_drop_layer4_header;
		key->tcp_flags = octet[13];
		if (work->words & KEY_WORDS(tcp_options) && length > 20)
			key->tcp_options = firewall_tcp_options(ctx, offset, length);
	} else if (!length) {
		return 0;
	} else if ((void *)(octet + 4) > end) {
		return SEGUE_OUTCOME_drop_multi_buffer_header;
	}
	word = bpf_ntohl(*(const u32 *)octet);
	if (protocol == (key->family == 6 ? PROTOCOL_ICMPV6 : PROTOCOL_ICMP)) {
		key->icmp = word >> 16;
	} else {
		key->source_port = word >> 16;
		key->destination_port = word & 0xffff;
	}
	return 0;
}

#endif
