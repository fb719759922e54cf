/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a connection is known by: addresses, ports, and of ICMP the query that a message belongs to. */
#ifndef SEGUE_CONNTRACK_KEY_H
#define SEGUE_CONNTRACK_KEY_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/conntrack/packet.h"
#include "lib/conntrack/table.h"
#include "abi/firewall.h"

/* Of an ICMP query, for conntrack_key(): what netfilter keys on, and whether this is the request or its reply. */
#define ICMP_QUERY(type_, code_, request_) (1U << 31 | (u32)(request_) << 16 | (type_) << 8 | (code_))

/* The key of a flow, the same for both directions. `icmp`: ICMP_QUERY() with `ports` the identifier, or 0. */
INLINE void conntrack_key(struct conntrack *track, const struct segue_firewall *firewall, const u64 *source,
			  const u64 *destination, u32 ports, u32 protocol, u32 family, u32 icmp)
{
	struct segue_connection_key *key = &track->key;
	u32 forward, request = icmp >> 16 & 1;

	forward = source[0] != destination[0]	? source[0] < destination[0]
		  : source[1] != destination[1] ? source[1] < destination[1]
		  : icmp			? request
						: (ports >> 16) <= (ports & 0xffff);
	track->forward = forward;
	key->first[0] = forward ? source[0] : destination[0];
	key->first[1] = forward ? source[1] : destination[1];
	key->second[0] = forward ? destination[0] : source[0];
	key->second[1] = forward ? destination[1] : source[1];
	if (icmp)
		key->ports = ports << 16 | (forward == request);
	else
		key->ports = forward ? ports : ports >> 16 | ports << 16;
	key->protocol = protocol;
	key->family = family;
	key->icmp = icmp;
	track->hash = connection_hash(firewall, key);
}

/* Kinds of ICMP messages. */
#define ICMP_KIND_NONE 0
#define ICMP_KIND_ERROR 1
#define ICMP_KIND_QUERY 2
#define ICMP_KIND_UNTRACKED 3

/* `*request`: the type that asks, of a query. Only such types begin a connection, and only its reply answers it. */
INLINE u32 icmp_kind(u32 family, u32 type, u32 *request)
{
	if (family == 6) {
		*request = type & ~1U;
		if (type == 129 || type == 128)
			return ICMP_KIND_QUERY;
		*request = 139;
		if (type == 139 || type == 140)
			return ICMP_KIND_QUERY;
		if (type < 128)
			return ICMP_KIND_ERROR;
		/*
		 * Neighbour discovery, multicast listeners and routers (RFC 4286): no connections. Netfilter tracks
		 * redirects and the routers' termination all the same: INVALID.
		 */
		return (type >= 130 && type <= 136) || type == 143 || type == 151 || type == 152 ? ICMP_KIND_UNTRACKED
												 : ICMP_KIND_NONE;
	}
	if (type == 3 || type == 4 || type == 5 || type == 11 || type == 12)
		return ICMP_KIND_ERROR;
	*request = 8;
	if (type == 8 || type == 0)
		return ICMP_KIND_QUERY;
	/* Timestamp, information and address mask: the request has the odd number, its reply the next one. */
	*request = (type - 1) | 1;
	return type >= 13 && type <= 18 ? ICMP_KIND_QUERY : ICMP_KIND_NONE;
}

/* What conntrack_key() takes for the ICMP message at `octet`; 0: it is no query. */
INLINE u32 icmp_query(u32 family, const u8 *octet)
{
	u32 request = 0;

	if (icmp_kind(family, octet[0], &request) != ICMP_KIND_QUERY)
		return 0;
	return ICMP_QUERY(request & 0xff, octet[1], octet[0] == request);
}

#endif
