/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What must not cross the domain's edge, and is not seen in a packet's addresses: an SRH (RFC 8754 section 5.1), and an
 * ICMPv6 error that tells a node of the domain about its own packets, as nobody outside can. Neither on the way in, by
 * an access port, nor on the way out of a steering header.
 */
#ifndef SEGUE_CORE_BOUNDARY_H
#define SEGUE_CORE_BOUNDARY_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/config.h"
#include "lib/packet/buffer.h"
#include "lib/packet/headers.h"

#define BOUNDARY_MAX 8 /* headers that are walked; what is behind them is still looked at */

enum boundary_found {
	BOUNDARY_SR = 1 << 0,	 /* an SRH, or headers that cannot be walked */
	BOUNDARY_ERROR = 1 << 1, /* an error about a packet to a SID, or to infrastructure */
};

INLINE int in_infrastructure(const struct segue_config *config, struct address a)
{
	return in_prefixes(config->infrastructure_prefixes, config->infrastructure_prefixes_count, a);
}

/* Next Header values behind which boundary_walk() may find something. */
INLINE int boundary_suspects(u32 protocol)
{
	return protocol_among(EXTENSION_HEADERS | 1ULL << PROTOCOL_ICMPV6, protocol);
}

/* The ICMPv6 message at `at`: an error (RFC 4443 section 2.1) that quotes a packet to an address that is closed? */
INLINE u32 boundary_error(const void *data, const void *end, u32 at, u32 generation)
{
	const u8 *type = data + (at & OFFSET_MASK);
	const struct ipv6hdr *quote = (const void *)(type + 8);
	const struct segue_config *config = config_get(generation);
	struct address destination;

	if ((const void *)(quote + 1) > end || *type >= 128 || !config)
		return 0;
	destination = address_load(&quote->daddr);
	return in_prefixes(config->sid_blocks, config->sid_blocks_count, destination) ||
			       in_infrastructure(config, destination)
		       ? BOUNDARY_ERROR
		       : 0;
}

/*
 * Walks from the header of type `place` >> 16 at the offset `place` & 0xffff on, up to `limit`, the packet's end: enum
 * boundary_found. A first fragment is walked like a whole packet, for whoever puts it together does so; it has all
 * headers (RFC 7112). A later one has none.
 */
RARE u32 boundary_walk(buffer *ctx, u32 place, u32 limit, u32 generation)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 at = place & OFFSET_MASK, next = (place >> 16) & 0xff, length;
	const u8 *octet;

	for (int i = 0; i <= BOUNDARY_MAX; i++) {
		if (!boundary_suspects(next))
			return 0;
		octet = data + (at & OFFSET_MASK);
		if (at > OFFSET_MASK || at + 8 > limit || (void *)(octet + 8) > end)
			return next == PROTOCOL_ICMPV6 ? 0 : BOUNDARY_SR;
		if (next == PROTOCOL_ICMPV6)
			return boundary_error(data, end, at, generation);
		if (next == PROTOCOL_ROUTING && octet[2] == ROUTING_TYPE_SRH)
			return BOUNDARY_SR;
		if (next == PROTOCOL_FRAGMENT && fragment_later(octet))
			return 0;
		length = extension_length(next, octet);
		next = octet[0];
		at += length;
	}
	return BOUNDARY_SR;
}

/* The same for the IPv6 packet of `length` octets right behind the Ethernet header. */
RARE u32 boundary_look(buffer *ctx, u32 length, u32 generation)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;

	if ((void *)(ip + 1) > end)
		return BOUNDARY_SR;
	return boundary_walk(ctx, (ETHERNET_LENGTH + IPV6_LENGTH) | (u32)ip->nexthdr << 16, ETHERNET_LENGTH + length,
			     generation);
}

#endif
