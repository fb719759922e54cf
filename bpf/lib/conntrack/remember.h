/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A connection that is not in its table: put there, taken over from the table before it, or known by its beginning. */
#ifndef SEGUE_CONNTRACK_REMEMBER_H
#define SEGUE_CONNTRACK_REMEMBER_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/maps.h"
#include "lib/firewall/work.h"
#include "lib/conntrack/beginning.h"
#include "lib/conntrack/packet.h"
#include "lib/conntrack/segment.h"
#include "lib/conntrack/table.h"

/*
 * Remembers `track->fresh` under the key there. 0, or the outcome for which its packet is dropped. Two CPUs may put the
 * same connection into its two buckets at once: the first one is found from then on, the other expires.
 */
RARE u32 conntrack_insert(struct firewall_work *work, const struct segue_firewall *firewall)
{
	struct segue_connection_bucket *bucket, *other;
	struct segue_connection_entry *entry;
	struct connection_victim *victim;
	u32 slot, index, way, tag, gone_protocol;
	struct conntrack *track;
	u64 rank, now, gone;
	void *table;
	s32 known;

	if (!work || !firewall)
		return SEGUE_OUTCOME_drop_connections_full;
	track = &work->track;
	now = track->now;
	tag = connection_tag(track->hash);
	slot = firewall->table;
	table = bpf_map_lookup_elem(&connections, &slot);
	if (!table)
		return SEGUE_OUTCOME_drop_connections_full;
	index = connection_first(track->hash, firewall->buckets);
	bucket = bpf_map_lookup_elem(table, &index);
	index = connection_second(track->hash, firewall->buckets);
	other = bpf_map_lookup_elem(table, &index);
	if (!bucket || !other)
		return SEGUE_OUTCOME_drop_connections_full;
	/* The first bucket, because it is looked at first, as long as there is ample room. */
	victim = &track->victims[0];
	connection_victim(bucket, track, victim);
	if (victim->alive > SEGUE_CONNECTION_WAYS / 2) {
		const struct connection_victim *second = &track->victims[1];

		connection_victim(other, track, &track->victims[1]);
		if (second->alive < victim->alive ||
		    (second->alive == SEGUE_CONNECTION_WAYS && second->rank < victim->rank))
			bucket = other;
	}
	if (!connection_lock(bucket, track->token))
		return SEGUE_OUTCOME_drop_connection_busy;
	known = connection_way(bucket, &track->key, tag);
	connection_victim(bucket, track, victim);
	rank = victim->rank;
	way = known >= 0 ? known : victim->way;
	way &= SEGUE_CONNECTION_WAYS - 1;
	entry = &bucket->entries[way];
	if (unlikely(known < 0 && RANK_CLASS(rank) == 3)) {
		connection_unlock(bucket, track->token);
		return SEGUE_OUTCOME_drop_connections_full;
	}
	/* Another CPU was faster, with an earlier packet of the same connection: what it knows stays. */
	if (unlikely(known >= 0 && entry->connection.expires >= now)) {
		connection_unlock(bucket, track->token);
		return 0;
	}
	if (unlikely(rank && known < 0)) {
		bucket->evicted = now;
		if (RANK_CLASS(rank))
			beginning_keep(firewall, entry, now);
	}
	gone = entry->hash;
	gone_protocol = entry->key.protocol;
	bucket->tags[way] = 0;
	connection_changed(gone, gone_protocol);
	entry->key = track->key;
	entry->connection = track->fresh;
	entry->hash = track->hash;
	bucket->ranks[way] = connection_rank(&track->fresh, track->key.protocol);
	bucket->tags[way] = tag;
	connection_unlock(bucket, track->token);
	return 0;
}

/* The connection of `track`, which is not in the table, from the table that this one replaces. 1: it is in `fresh`. */
RARE u32 conntrack_take(struct firewall_work *work, const struct segue_firewall *firewall)
{
	struct segue_connection_bucket *bucket;
	struct conntrack *track;
	u32 way = 0, found;

	if (!work || !firewall)
		return 0;
	track = &work->track;
	bucket = connection_find(track, firewall->previous, firewall->previous_buckets, &way);
	if (!bucket || !connection_lock(bucket, track->token))
		return 0;
	way &= SEGUE_CONNECTION_WAYS - 1;
	found = bucket->tags[way] == connection_tag(track->hash) &&
		bucket->entries[way].connection.expires >= track->now;
	if (found) {
		track->fresh = bucket->entries[way].connection;
		connection_clear(bucket, way);
	}
	connection_unlock(bucket, track->token);
	return found;
}

/*
 * The beginning that the packet in `track` answers, or of which it is the client's next segment, if it had to give way.
 * 1: it is in `fresh` again.
 */
RARE u32 conntrack_recall(struct firewall_work *work, const struct segue_firewall *firewall)
{
	u32 protocol, sequence = 0, acknowledged = 0, event;
	u64 most = SECONDS(120), word = 0, answer = 0, hash;
	struct segue_connection *fresh;
	struct conntrack *track;

	if (!work || !firewall)
		return 0;
	track = &work->track;
	protocol = track->key.protocol;
	event = track->tcp.event;
	if (protocol == PROTOCOL_TCP) {
		if (!(track->tcp.flags & TCP_ACK))
			return 0;
		sequence = track->tcp.sequence;
		acknowledged = track->tcp.acknowledgment;
	} else if (protocol == PROTOCOL_UDP || protocol == PROTOCOL_UDPLITE || track->key.icmp) {
		most = SECONDS(30);
	}
	if (protocol != PROTOCOL_TCP || event == TCP_EVENT_SYN_ACK || event == TCP_EVENT_RST)
		word = beginning_find(firewall, beginning_hash(track->hash, !track->forward, acknowledged), track->now,
				      most);
	if (!word && protocol == PROTOCOL_TCP && event != TCP_EVENT_SYN_ACK) {
		/* From who began, behind the SYN/ACK. */
		most = SECONDS(60);
		hash = beginning_hash(track->hash, track->forward, sequence);
		word = beginning_find(firewall, hash, track->now, most);
		if (word)
			answer = beginning_find(firewall, beginning_hash(hash, !track->forward, acknowledged),
						track->now, most);
		word = answer ? word : 0;
	}
	if (!word)
		return 0;
	fresh = &track->fresh;
	__builtin_memset(fresh, 0, sizeof(*fresh));
	fresh->forward = answer ? track->forward : !track->forward;
	fresh->created = track->now;
	fresh->expires = track->now + most;
	fresh->last_event = TCP_EVENT_NONE;
	if (protocol != PROTOCOL_TCP)
		return 1;
	/* As after the SYN: conntrack_tcp(). */
	fresh->state = SEGUE_TCP_SYN_SENT;
	fresh->last_event = TCP_EVENT_SYN;
	beginning_restore(fresh, 0, word, answer ? sequence : acknowledged);
	if (!answer)
		return 1;
	/* As after the SYN/ACK, whose window is not scaled. */
	fresh->flags = SEGUE_CONNECTION_REPLIED;
	fresh->state = SEGUE_TCP_SYN_RECV;
	fresh->last_event = TCP_EVENT_SYN_ACK;
	fresh->last_side = 1;
	beginning_restore(fresh, 1, answer, acknowledged);
	fresh->side_flags[1] |= SEGUE_SIDE_ACKNOWLEDGES;
	fresh->side[1].acknowledged = sequence;
	fresh->side[0].limit = sequence + fresh->side[1].window;
	return 1;
}

#endif
