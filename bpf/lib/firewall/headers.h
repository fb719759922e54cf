/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The extension headers of a packet that a firewall reads: past an SRH that is in use, and with what the rules may ask
 * of them.
 */
#ifndef SEGUE_FIREWALL_HEADERS_H
#define SEGUE_FIREWALL_HEADERS_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/packet/headers.h"
#include "lib/firewall/work.h"

/* Walks on from the header of type `walk->protocol` at `walk->upper` up to `limit`. */
RARE int firewall_walk_on(buffer *ctx, u32 limit, struct firewall_walk *walk)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 offset, next, length;
	const u8 *octet;

	if (!walk)
		return 0;
	offset = walk->upper & OFFSET_MASK;
	next = walk->protocol;
	for (int i = 0; i <= HEADERS_MAX; i++) {
		walk->upper = offset;
		walk->protocol = next;
		if (!is_extension_header(next))
			return 0;
		if (i == HEADERS_MAX) {
			walk->error = SEGUE_OUTCOME_drop_too_many_headers;
			return 0;
		}
		octet = data + offset;
		if (offset + 8 > limit || (void *)(octet + 8) > end) {
			walk->error = SEGUE_OUTCOME_drop_truncated;
			return 0;
		}
		length = extension_length(next, octet);
		if (next == PROTOCOL_FRAGMENT) {
			u32 word = bpf_ntohl(*(const u32 *)octet);

			walk->later |= fragment_later(octet);
			if (!walk->fragment) {
				walk->fragment_offset = (word & 0xffff) >> 3;
				walk->fragment_flags = word & 1 ? SEGUE_FRAGMENT_MORE : 0;
				if (word & 0x00ff0006)
					walk->fragment_flags |= SEGUE_FRAGMENT_RESERVED;
				walk->identification = bpf_ntohl(*(const u32 *)(octet + 4));
				walk->payload = offset + 8;
			}
			walk->fragment++;
		} else if (next == PROTOCOL_ROUTING) {
			if (octet[2] == ROUTING_TYPE_SRH && !walk->srh)
				walk->srh = offset;
			if (walk->routing == SEGUE_CLASSIFIER_ABSENT)
				walk->routing = octet[2] << 16 | octet[3] << 8 | octet[1];
		}
		if (offset + length > limit) {
			walk->error = SEGUE_OUTCOME_drop_bad_length;
			return 0;
		}
		next = octet[0];
		offset += length;
		if (walk->later) {
			walk->upper = offset;
			walk->protocol = next;
			return 0;
		}
		if (offset > OFFSET_MASK - 64) {
			walk->error = SEGUE_OUTCOME_drop_multi_buffer_header;
			return 0;
		}
	}
	return 0;
}

/* The usual extension header: one SRH alone. 1: it is walked. `offset` is that of what follows the IPv6 header. */
INLINE int firewall_walk_srh(buffer *ctx, u32 limit, u32 offset, struct firewall_walk *walk)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	const struct srh *srh = data + (offset & OFFSET_MASK);
	u32 upper;

	if (offset > OFFSET_MASK || (void *)(srh + 1) > end)
		return 0;
	upper = offset + (srh->length + 1) * 8;
	if (srh->type != ROUTING_TYPE_SRH || is_extension_header(srh->next_header) || upper > limit ||
	    upper > OFFSET_MASK - 64)
		return 0;
	walk->protocol = srh->next_header;
	walk->upper = upper;
	walk->srh = offset;
	walk->routing = ROUTING_TYPE_SRH << 16 | srh->segments_left << 8 | srh->length;
	return 1;
}

#endif
