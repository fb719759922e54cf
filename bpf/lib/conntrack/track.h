/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections of the packets that a firewall's rules look at: their states and timeouts are those that netfilter
 * documents (nf_conntrack-sysctl), so that rules with `-m state` and `-m conntrack` mean the same here. Where they lie:
 * lib/conntrack/table.h. Nothing is remembered of a first packet that the rules do not accept.
 */
#ifndef SEGUE_CONNTRACK_TRACK_H
#define SEGUE_CONNTRACK_TRACK_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/firewall/verdict.h"
#include "lib/firewall/work.h"
#include "lib/conntrack/key.h"
#include "lib/conntrack/packet.h"
#include "lib/conntrack/remember.h"
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
	u32 protocol, ports = 0, icmp = 0, state, way = 0, liberal, unknown;
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
		void *data = buffer_start(ctx);
		void *end = buffer_end(ctx);
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
	/* From here on the verifier follows all kinds of packets at once. */
	unknown = unknown_zero(now);
	ports ^= unknown;
	icmp ^= unknown;
	protocol ^= unknown;
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
