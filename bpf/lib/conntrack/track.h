/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections of the packets that a firewall's rules look at: their states and timeouts are those that netfilter
 * documents (nf_conntrack-sysctl), so that rules with `-m state` and `-m conntrack` mean the same here. Where they lie:
 * conntrack_table.h. Nothing is remembered of a first packet that the rules do not accept.
 */
#ifndef SEGUE_CONNTRACK_TRACK_H
#define SEGUE_CONNTRACK_TRACK_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/firewall/key.h"
#include "lib/firewall/reset.h"
#include "lib/firewall/verdict.h"
#include "lib/conntrack/beginning.h"
#include "lib/conntrack/packet.h"
#include "lib/conntrack/segment.h"
#include "lib/conntrack/table.h"
#include "lib/conntrack/tcp.h"

/* In place of a connection state: the packet has to be dropped, for the outcome in the other bits. */
#define CONNTRACK_DROP 0x80000000U

/* Likewise: conntrack_error() has to say. Not called from here, because the stacks of calls in each other add up. */
#define CONNTRACK_ERROR 0x40000000U

/* A lifetime that moves by less is not written: nobody reads it so exactly, and other CPUs read what lies beside it. */
#define CONNECTION_SLACK (SECONDS(1) / 4)

/* UDP is a stream, and assured, once it lasts longer (nf_conntrack_proto_udp.c, since Linux 5.0). */
#define UDP_STREAM SECONDS(2)

INLINE u64 conntrack_timeout(u32 protocol, u32 assured)
{
	if (protocol == PROTOCOL_UDP || protocol == PROTOCOL_UDPLITE)
		return assured ? SECONDS(120) : SECONDS(30);
	if (protocol == PROTOCOL_ICMP || protocol == PROTOCOL_ICMPV6)
		return SECONDS(30);
	if (protocol == PROTOCOL_GRE)
		return assured ? SECONDS(180) : SECONDS(30);
	return SECONDS(600);
}

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

/* An ICMP error about a packet of a known connection: RELATED, as nf_conntrack_inet_error() has it. */
RARE u32 conntrack_error(buffer *ctx, struct firewall_work *work, const struct segue_firewall *firewall)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
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
			data = (void *)(long)ctx->data;
			end = (void *)(long)ctx->data_end;
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

/* A segment of a connection that is in the table. 0: the entry is over, and this is the first of another connection. */
INLINE u32 conntrack_known_tcp(struct conntrack *track, struct segue_connection_bucket *bucket, u32 way,
			       struct firewall_work *work, u32 liberal)
{
	struct segue_connection *entry = &bucket->entries[way].connection;
	u32 from, was, verdict;

	if (unlikely(!connection_lock(bucket, track->token)))
		return CONNTRACK_DROP | SEGUE_OUTCOME_drop_connection_busy;
	/* It may have given way before the lock was there. */
	if (unlikely(bucket->tags[way] != connection_tag(track->hash))) {
		connection_unlock(bucket, track->token);
		return 0;
	}
	from = track->forward != entry->forward;
	was = entry->flags;
	verdict = conntrack_tcp(track, entry, track->now, from, liberal);
	if (likely(verdict == TCP_VERDICT_KNOWN)) {
		if (from)
			entry->flags |= SEGUE_CONNECTION_REPLIED;
		bucket->ranks[way] = connection_rank(entry, PROTOCOL_TCP);
	} else if (verdict == TCP_VERDICT_AGAIN || verdict == TCP_VERDICT_FORGET) {
		connection_clear(bucket, way);
	}
	connection_unlock(bucket, track->token);
	if (unlikely(verdict == TCP_VERDICT_INVALID))
		return SEGUE_STATE_INVALID;
	if (unlikely(verdict == TCP_VERDICT_AGAIN))
		return 0;
	work->key.connection_direction = from;
	return from || was & SEGUE_CONNECTION_REPLIED ? SEGUE_STATE_ESTABLISHED : SEGUE_STATE_NEW;
}

/* Writes what a packet has changed of a connection that is not TCP, if it is still there. */
static __attribute__((noinline)) u32 conntrack_refresh(struct segue_connection_bucket *bucket,
						       const struct conntrack *track, u32 way, u32 flags, u64 expires)
{
	struct segue_connection *entry;
	u32 answered;

	if (!connection_lock(bucket, track->token))
		return 0;
	way &= SEGUE_CONNECTION_WAYS - 1;
	if (bucket->tags[way] == connection_tag(track->hash)) {
		entry = &bucket->entries[way].connection;
		answered = flags & ~entry->flags & SEGUE_CONNECTION_REPLIED;
		entry->flags |= flags;
		if (answered)
			connection_changed(track->hash, track->key.protocol);
		entry->expires = expires;
		bucket->ranks[way] = connection_rank(entry, track->key.protocol);
	}
	connection_unlock(bucket, track->token);
	return 0;
}

/* A packet of another connection that is in the table: its state, and what becomes of the entry. */
INLINE u32 conntrack_known(struct conntrack *track, struct segue_connection_bucket *bucket, u32 way,
			   struct firewall_work *work)
{
	const struct segue_connection *entry = &bucket->entries[way].connection;
	u32 original = track->forward == entry->forward, protocol = work->key.protocol, was = entry->flags, flags = was;
	u64 expires;

	work->key.connection_direction = !original;
	/* As in netfilter, where the packet that is the first answer does not count as one yet. */
	if (was & SEGUE_CONNECTION_REPLIED &&
	    (protocol == PROTOCOL_UDP ? track->now > entry->created + UDP_STREAM
				      : protocol == PROTOCOL_UDPLITE || protocol == PROTOCOL_SCTP ||
						protocol == PROTOCOL_DCCP || protocol == PROTOCOL_GRE))
		flags |= SEGUE_CONNECTION_ASSURED;
	expires = track->now + conntrack_timeout(protocol, flags & SEGUE_CONNECTION_ASSURED);
	if (!original)
		flags |= SEGUE_CONNECTION_REPLIED;
	if (unlikely(flags != was || expires - entry->expires > CONNECTION_SLACK))
		conntrack_refresh(bucket, track, way, flags, expires);
	if (protocol == PROTOCOL_UDP) {
		/* Until a packet has something to write here. */
		track->until = entry->expires - conntrack_timeout(protocol, flags & SEGUE_CONNECTION_ASSURED) +
			       CONNECTION_SLACK;
		if (!(flags & SEGUE_CONNECTION_ASSURED) && flags & SEGUE_CONNECTION_REPLIED &&
		    track->until > entry->created + UDP_STREAM)
			track->until = entry->created + UDP_STREAM;
	}
	return !original || was & SEGUE_CONNECTION_REPLIED ? SEGUE_STATE_ESTABLISHED : SEGUE_STATE_NEW;
}

/*
 * The connection state of the packet in `work`. NEW: `work->fresh` says that an entry is to be made of it if the rules
 * accept it (conntrack_confirm).
 */
RARE u32 conntrack_state(buffer *ctx, struct firewall_work *work, const struct segue_firewall *firewall)
{
	u32 protocol, ports = 0, icmp = 0, state, way = 0, liberal;
	struct segue_connection_bucket *bucket;
	struct segue_classifier_key *key;
	struct conntrack *track;
	u64 now;

	if (!work || !firewall)
		return SEGUE_STATE_INVALID;
	track = &work->track;
	now = conntrack_now(track);
	liberal = firewall->flags & SEGUE_FIREWALL_LIBERAL;
	key = &work->key;
	work->fresh = 0;
	protocol = key->protocol;
	if (key->family == 0 || work->fragment & FIREWALL_LATER_FRAGMENT)
		return SEGUE_STATE_UNTRACKED; /* a later fragment has no ports; netfilter would reassemble */
	if (protocol == (key->family == 6 ? PROTOCOL_ICMPV6 : PROTOCOL_ICMP)) {
		void *data = (void *)(long)ctx->data;
		void *end = (void *)(long)ctx->data_end;
		const u8 *octet = data + (work->upper & OFFSET_MASK);
		u32 kind;

		if (key->icmp == SEGUE_CLASSIFIER_ABSENT || (void *)(octet + 8) > end)
			return SEGUE_STATE_INVALID;
		kind = icmp_kind(key->family, key->icmp >> 8, &icmp);
		if (kind == ICMP_KIND_UNTRACKED)
			return SEGUE_STATE_UNTRACKED;
		if (kind == ICMP_KIND_ERROR)
			return CONNTRACK_ERROR;
		icmp = icmp_query(key->family, octet);
		if (!icmp)
			return SEGUE_STATE_INVALID;
		ports = bpf_ntohs(*(const u16 *)(octet + 4));
	} else if (key->source_port != SEGUE_CLASSIFIER_ABSENT) {
		ports = key->source_port << 16 | (key->destination_port & 0xffff);
	}
	if (protocol == PROTOCOL_TCP && !tcp_read(ctx, work, track))
		return SEGUE_STATE_INVALID;
	conntrack_key(track, firewall, key->source, key->destination, ports, protocol, key->family, icmp);
	track->change = track->hash;
	track->version = connection_version(track->change);
	bucket = connection_find(track, firewall->table, firewall->buckets, &way);
	if (unlikely(!bucket)) {
		u32 recovered = 0;

		if (firewall->previous)
			recovered = conntrack_take(work, firewall);
		if (!recovered && track->evicted + SECONDS(120) > now)
			recovered = conntrack_recall(work, firewall);
		if (recovered && !conntrack_insert(work, firewall))
			bucket = connection_find(track, firewall->table, firewall->buckets, &way);
	}
	way &= SEGUE_CONNECTION_WAYS - 1;
	if (likely(bucket && bucket->entries[way].connection.expires >= now)) {
		state = protocol == PROTOCOL_TCP ? conntrack_known_tcp(track, bucket, way, work, liberal)
						 : conntrack_known(track, bucket, way, work);
		/* What follows a first fragment has to find it: that one goes the long way. */
		if (protocol == PROTOCOL_TCP && track->tcp.event == TCP_EVENT_ACK && work->verdicts &&
		    !work->fragment && likely(state && !(state & CONNTRACK_DROP))) {
			track->until = ~0ULL;
			key->connection_state = state;
			work->known = verdict_find(work, 0);
		}
		if (likely(state))
			return state;
	}
	if (icmp && !(icmp >> 16 & 1))
		return SEGUE_STATE_INVALID; /* a reply to nothing */
	__builtin_memset(&track->fresh, 0, sizeof(track->fresh));
	track->fresh.forward = track->forward;
	track->fresh.created = now;
	track->fresh.last_event = TCP_EVENT_NONE;
	if (protocol != PROTOCOL_TCP)
		track->fresh.expires = now + conntrack_timeout(protocol, 0);
	else if (conntrack_tcp(track, &track->fresh, now, 0, liberal) != TCP_VERDICT_KNOWN)
		return SEGUE_STATE_INVALID;
	work->fresh = 1;
	key->connection_direction = 0;
	return SEGUE_STATE_NEW;
}

#endif
