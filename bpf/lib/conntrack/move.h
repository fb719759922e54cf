/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A table of connections of another size takes over: packets fetch their own connections from the one before, and the
 * agent runs this for those that are idle.
 */
#ifndef SEGUE_CONNTRACK_MOVE_H
#define SEGUE_CONNTRACK_MOVE_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/maps.h"
#include "lib/packet/buffer.h"
#include "lib/firewall/filter.h"
#include "lib/firewall/key.h"
#include "lib/conntrack/track.h"
#include "lib/conntrack/packet.h"
#include "lib/conntrack/table.h"

/* Of its own: packets may come between on this CPU. */
PERCPU(connection_moves, struct firewall_work, 1);

struct connection_move {
	struct firewall_work *work;
	const struct segue_firewall *firewall;
	u32 first;
	u32 reserved;
};

static long connection_move_bucket(u32 index, struct connection_move *move)
{
	const struct segue_firewall *firewall = move->firewall;
	struct conntrack *track = &move->work->track;
	u32 slot = firewall->previous, at = move->first + index;
	void *table = bpf_map_lookup_elem(&connections, &slot);
	const struct segue_connection_bucket *bucket;

	if (!table || at >= firewall->previous_buckets)
		return 1;
	bucket = bpf_map_lookup_elem(table, &at);
	if (!bucket)
		return 1;
	conntrack_now(track);
#pragma clang loop unroll(disable)
	for (u32 way = 0; way < SEGUE_CONNECTION_WAYS; way++) {
		if (!bucket->tags[way] || RANK_EXPIRES(bucket->ranks[way]) < track->now)
			continue;
		track->key = bucket->entries[way].key;
		track->hash = bucket->entries[way].hash;
		if (conntrack_take(move->work, firewall))
			conntrack_insert(move->work, firewall);
	}
	return 0;
}

/* What the agent asks for, behind an Ethernet header. */
struct connection_order {
	u32 firewall;
	u32 first; /* bucket of its previous table */
	u32 count;
};

INLINE int connections_move(buffer *ctx)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	struct connection_order *order = data + ETHERNET_LENGTH;
	struct connection_move move = {};
	u32 zero = 0, index;

	if ((void *)(order + 1) > end)
		return XDP_ABORTED;
	index = order->firewall;
	move.first = order->first;
	move.firewall = bpf_map_lookup_elem(&firewalls, &index);
	move.work = bpf_map_lookup_elem(&connection_moves, &zero);
	if (!move.firewall || !move.work || !move.firewall->previous)
		return XDP_ABORTED;
	bpf_loop(order->count, connection_move_bucket, &move, 0);
	return VERDICT_DROP;
}

#endif
