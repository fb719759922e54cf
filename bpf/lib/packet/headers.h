/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * IPv6 extension headers (RFC 8200 section 4): which there are, how long one is, and the bounded walk over them.
 *
 * There are five walks over these steps. They differ in what they must stop at: headers_walk(), for endpoints and
 * flows, at an SRH in use and at any fragment, with the outcome that a malformed packet gets; options_refused() goes
 * over what that has found right, for the options; boundary_walk() (lib/core/boundary.h) takes whatever it cannot walk
 * for an SRH, and looks into first fragments; behind_end() (lib/proxy/behind.h) goes on into inner packets;
 * firewall_walk_on() (lib/firewall/headers.h) goes on behind an SRH in use, and reads what rules ask for.
 */
#ifndef SEGUE_PACKET_HEADERS_H
#define SEGUE_PACKET_HEADERS_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"

#define HEADERS_MAX 8

struct headers {
	u16 srh;      /* offset of the first SRH with Segments Left not 0, or 0: the walk stops there */
	u16 previous; /* offset of the Next Header octet that names `protocol`, or the SRH */
	u16 upper;    /* offset of what follows the headers walked */
	u8 protocol;  /* Next Header value of what lies at `upper`, or PROTOCOL_ROUTING with `srh` */
	u8 fragment;  /* 1: a fragment that is not atomic; the walk stops behind the Fragment header */
	u8 sr_seen;   /* 1: some routing header of type 4 was there */
	u8 error;     /* outcome, or 0 */
	u16 error_at; /* SEGUE_OUTCOME_drop_routing_type: offset of the Routing Type octet;
			 SEGUE_OUTCOME_drop_too_many_headers: of the Next Header octet that is 0, or 0 */
	u8 options;   /* 1: there was a header with options */
	u8 reserved;
};

/* All of them are less than 64. */
#define EXTENSION_HEADERS                                                                                              \
	(1ULL << PROTOCOL_HOP_BY_HOP | 1ULL << PROTOCOL_ROUTING | 1ULL << PROTOCOL_FRAGMENT |                          \
	 1ULL << PROTOCOL_DESTINATION_OPTIONS | 1ULL << PROTOCOL_AUTHENTICATION)

/* Is it one of the protocols whose bits are in `these`? */
INLINE int protocol_among(u64 these, u32 protocol)
{
	return protocol < 64 && (these >> protocol) & 1;
}

INLINE int is_extension_header(u32 protocol)
{
	return protocol_among(EXTENSION_HEADERS, protocol);
}

/* Octets of the extension header of this type, whose first 8 octets lie in the frame. */
INLINE u32 extension_length(u32 type, const u8 *octet)
{
	if (type == PROTOCOL_FRAGMENT)
		return 8;
	if (type == PROTOCOL_AUTHENTICATION)
		return (octet[1] + 2) * 4;
	return (octet[1] + 1) * 8;
}

/* Offset or M flag of a Fragment header (RFC 8200 section 4.5). 0: an atomic fragment (RFC 6946). */
INLINE int fragment_in_part(const u8 *octet)
{
	return (octet[2] | (octet[3] & 0xf9)) != 0;
}

/* Not the first fragment: no headers in it. */
INLINE int fragment_later(const u8 *octet)
{
	return (octet[2] | (octet[3] & 0xf8)) != 0;
}

#define OPTION_PAD1 0
#define OPTION_ACTION(type) ((type) >> 6) /* RFC 8200 section 4.2; 0: skip it */
#define OPTIONS_MAX 32

/*
 * The first option of the header at `offset`, `length` octets, that must not be skipped by who does not know it: its
 * offset in the low half; in the high half the outcome. 0: there is none. Segue knows no such option.
 */
RARE u32 option_refused(buffer *ctx, u32 offset, u32 length)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 at = offset + 2, last = offset + length;

	for (int i = 0; i < OPTIONS_MAX; i++) {
		const u8 *octet;

		if (at >= last)
			return 0;
		if (at > OFFSET_MASK)
			return (u32)SEGUE_OUTCOME_drop_multi_buffer_header << 16;
		at &= OFFSET_MASK;
		octet = data + at;
		if ((void *)(octet + 1) > end)
			return (u32)SEGUE_OUTCOME_drop_truncated << 16;
		if (OPTION_ACTION(*octet))
			return (u32)SEGUE_OUTCOME_drop_option << 16 | at;
		if (*octet == OPTION_PAD1) {
			at++;
			continue;
		}
		if ((void *)(octet + 2) > end || at + 2 + octet[1] > last)
			return (u32)SEGUE_OUTCOME_drop_bad_length << 16;
		at += 2 + octet[1];
	}
	return at >= last ? 0 : (u32)SEGUE_OUTCOME_drop_too_many_headers << 16;
}

/*
 * Walks from the header of type `next` at `offset` up to `limit` (offset of the packet's end, by its Payload Length).
 * `previous` is the offset of the octet that holds `next`.
 */
RARE int headers_walk(buffer *ctx, u32 previous, u32 offset, u32 limit, struct headers *out)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	const u8 *octet;
	u32 next, length;

	if (!out)
		return 0;
	previous &= OFFSET_MASK;
	offset &= OFFSET_MASK;
	octet = data + previous;
	if ((void *)(octet + 1) > end) {
		out->error = SEGUE_OUTCOME_drop_truncated;
		return 0;
	}
	next = *octet;
	out->srh = 0;
	out->fragment = 0;
	out->sr_seen = 0;
	out->options = 0;
	out->error = 0;
	for (int i = 0; i <= HEADERS_MAX; i++) {
		out->previous = previous;
		out->upper = offset;
		out->protocol = next;
		if (!is_extension_header(next))
			return 0;
		if (i == HEADERS_MAX || (next == PROTOCOL_HOP_BY_HOP && i)) {
			out->error = SEGUE_OUTCOME_drop_too_many_headers;
			out->error_at = i == HEADERS_MAX ? 0 : previous;
			return 0;
		}
		if (offset + 8 > limit) {
			out->error = SEGUE_OUTCOME_drop_bad_length;
			return 0;
		}
		octet = data + offset;
		if ((void *)(octet + 8) > end) {
			out->error = SEGUE_OUTCOME_drop_truncated;
			return 0;
		}
		length = extension_length(next, octet);
		if (next == PROTOCOL_FRAGMENT && fragment_in_part(octet))
			out->fragment = 1;
		/* RFC 4302 section 2: 12 octets are its fixed fields. */
		if (offset + length > limit || (next == PROTOCOL_AUTHENTICATION && length < 12)) {
			out->error = SEGUE_OUTCOME_drop_bad_length;
			return 0;
		}
		if (next == PROTOCOL_ROUTING) {
			if (octet[2] == ROUTING_TYPE_SRH)
				out->sr_seen = 1;
			if (octet[3] != 0) {
				if (octet[2] != ROUTING_TYPE_SRH) {
					out->error = SEGUE_OUTCOME_drop_routing_type;
					out->error_at = offset + 2;
				} else {
					out->srh = offset;
				}
				return 0;
			}
		}
		if (next == PROTOCOL_HOP_BY_HOP || next == PROTOCOL_DESTINATION_OPTIONS)
			out->options = 1;
		previous = offset;
		next = octet[0];
		offset += length;
		if (out->fragment) {
			out->previous = previous;
			out->upper = offset;
			out->protocol = next;
			return 0;
		}
		if (offset > OFFSET_MASK) {
			out->error = SEGUE_OUTCOME_drop_multi_buffer_header;
			return 0;
		}
	}
	return 0;
}

/*
 * The options of a packet for this node, whose headers headers_walk() has walked without an error: what
 * option_refused() says of the first header that has one. Not a part of the walk, which is called where there is little
 * stack left.
 */
RARE u32 options_refused(buffer *ctx, u32 limit)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 offset = ETHERNET_LENGTH + IPV6_LENGTH, next, length, refused;
	const u8 *octet = data + ETHERNET_LENGTH;

	if ((void *)(octet + IPV6_LENGTH) > end)
		return 0;
	next = octet[6];
	for (int i = 0; i < HEADERS_MAX; i++) {
		offset &= OFFSET_MASK;
		octet = data + offset;
		if ((void *)(octet + 8) > end || offset + 8 > limit)
			return 0;
		/* The upper layer, an SRH with segments left, or a fragment. */
		if (!is_extension_header(next) || (next == PROTOCOL_ROUTING && octet[3]) ||
		    (next == PROTOCOL_FRAGMENT && fragment_in_part(octet)))
			return 0;
		length = extension_length(next, octet);
		if (next == PROTOCOL_HOP_BY_HOP || next == PROTOCOL_DESTINATION_OPTIONS) {
			refused = option_refused(ctx, offset, length);
			if (refused)
				return refused;
		}
		next = octet[0];
		offset += length;
	}
	return 0;
}

/*
 * Goes on behind an SRH at which headers_walk() stopped, or a header of that form: for reading what a packet carries,
 * not for processing it.
 */
INLINE void headers_walk_past_srh(buffer *ctx, u32 srh_offset, u32 limit, struct headers *headers)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	const struct srh *srh;

	srh_offset &= OFFSET_MASK;
	srh = data + srh_offset;
	if ((void *)(srh + 1) > end)
		headers->error = SEGUE_OUTCOME_drop_truncated;
	else
		headers_walk(ctx, srh_offset, srh_offset + (srh->length + 1) * 8, limit, headers);
}

#endif
