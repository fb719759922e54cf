/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP errors about packets of connections. */
#ifndef SEGUE_CONNTRACK_ERROR_H
#define SEGUE_CONNTRACK_ERROR_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/firewall/headers.h"
#include "lib/firewall/work.h"
#include "lib/conntrack/key.h"
#include "lib/conntrack/packet.h"
#include "lib/conntrack/remember.h"
#include "lib/conntrack/table.h"

/* An ICMP error about a packet of a known connection: RELATED, as nf_conntrack_inet_error() has it. */
RARE u32 conntrack_error(buffer *ctx, struct firewall_work *work, const struct segue_firewall *firewall)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 at, family, protocol, ports = 0, upper, icmp = 0, way = 0, limit;
	u64 source[2] = {}, destination[2] = {};
	const struct segue_connection *entry;
	struct segue_connection_bucket *bucket;
	struct conntrack *track;
	const u8 *octet;

	if (!work || !firewall)
		return SEGUE_STATE_INVALID;
	track = &work->track;
	family = work->key.family;
	at = (work->upper + 8) & OFFSET_MASK;
	octet = data + at;
	limit = work->limit;
	if (family == 6) {
		const u64 *words = (const u64 *)(octet + 8);

		if ((void *)(octet + IPV6_LENGTH) > end || at + IPV6_LENGTH > limit || octet[0] >> 4 != 6)
			return SEGUE_STATE_INVALID;
		source[0] = bpf_be64_to_cpu(words[0]);
		source[1] = bpf_be64_to_cpu(words[1]);
		destination[0] = bpf_be64_to_cpu(words[2]);
		destination[1] = bpf_be64_to_cpu(words[3]);
		protocol = octet[6];
		upper = at + IPV6_LENGTH;
		if (unlikely(is_extension_header(protocol))) {
			struct firewall_walk *walk = &work->walk;

			walk->protocol = protocol;
			walk->upper = upper;
			/* That of the error itself may have left something here. */
			walk->fragment = 0;
			walk->fragment_offset = 0;
			walk->later = 0;
			walk->error = 0;
			firewall_walk_on(ctx, limit, walk);
			data = buffer_start(ctx);
			end = buffer_end(ctx);
			if (walk->error || walk->later)
				return SEGUE_STATE_INVALID;
			protocol = walk->protocol;
			upper = walk->upper;
		}
	} else {
		if ((void *)(octet + 20) > end || at + 20 > limit || octet[0] >> 4 != 4 ||
		    *(const u16 *)(octet + 6) & bpf_htons(0x1fff))
			return SEGUE_STATE_INVALID;
		source[0] = bpf_ntohl(*(const u32 *)(octet + 12));
		destination[0] = bpf_ntohl(*(const u32 *)(octet + 16));
		protocol = octet[9];
		upper = at + (octet[0] & 15) * 4;
	}
	/* It goes to whoever sent the packet that it is about: else anybody could tell anybody of others' connections.
	 */
	if (source[0] != work->key.destination[0] || source[1] != work->key.destination[1])
		return SEGUE_STATE_INVALID;
	opaque(upper);
	octet = data + (upper & OFFSET_MASK);
	if (upper > limit)
		return SEGUE_STATE_INVALID;
	/* What is behind the packet's end is nobody's word. Of layer 4 as much as the key needs, as in netfilter. */
	if (protocol == (family == 6 ? PROTOCOL_ICMPV6 : PROTOCOL_ICMP)) {
		if ((void *)(octet + 8) > end || upper + 8 > limit)
			return SEGUE_STATE_INVALID;
		icmp = icmp_query(family, octet);
		if (!icmp)
			return SEGUE_STATE_INVALID;
		ports = bpf_ntohs(*(const u16 *)(octet + 4));
	} else if (protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP || protocol == PROTOCOL_SCTP ||
		   protocol == PROTOCOL_UDPLITE || protocol == PROTOCOL_DCCP) {
		if ((void *)(octet + 4) > end || upper + 4 > limit)
			return SEGUE_STATE_INVALID;
		ports = bpf_ntohl(*(const u32 *)octet);
	} else if (protocol == PROTOCOL_NO_NEXT_HEADER && family == 6) {
		return SEGUE_STATE_INVALID;
	}
	conntrack_key(track, firewall, source, destination, ports, protocol, family, icmp);
	bucket = connection_find(track, firewall->table, firewall->buckets, &way);
	if (!bucket && firewall->previous && conntrack_take(work, firewall) && !conntrack_insert(work, firewall))
		bucket = connection_find(track, firewall->table, firewall->buckets, &way);
	if (!bucket)
		return SEGUE_STATE_INVALID;
	entry = &bucket->entries[way & (SEGUE_CONNECTION_WAYS - 1)].connection;
	if (entry->expires < track->now)
		return SEGUE_STATE_INVALID;
	/* It goes against the packet that it is about. */
	work->key.connection_direction = track->forward == entry->forward;
	return SEGUE_STATE_RELATED;
}

#endif
