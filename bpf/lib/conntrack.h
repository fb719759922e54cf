/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections of the packets that a firewall's rules look at: their states and timeouts are those that netfilter
 * documents (nf_conntrack-sysctl), so that rules with `-m state` and `-m conntrack` mean the same here.
 *
 * A connection that both sides have agreed upon lies in `connections`, every other in `connections_new`. Both give way
 * in the order of use when they are full: so a flood of beginnings evicts only beginnings. Nothing is remembered of a
 * first packet that the rules do not accept.
 */
#ifndef SEGUE_CONNTRACK_H
#define SEGUE_CONNTRACK_H

#include "base.h"
#include "conntrack_tcp.h"
#include "firewall_key.h"

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct segue_connection_key);
	__type(value, struct segue_connection);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct segue_connection_key);
	__type(value, struct segue_connection);
} connections_new SEC(".maps");

PERCPU(conntracks, struct conntrack, 1);

/*
 * Packets of one connection may be on several CPUs, and most of what a segment changes goes by what was there before.
 * A lock of the BPF's own is not to be had in an LRU_HASH. Programs of XDP do not interrupt each other on one CPU, and
 * what is done under this lock is short, so nobody waits long; whoever waits longer than is thinkable (the holder's
 * virtual CPU sleeps, or the entry was evicted and is another one) goes on without it: then the worst that can happen
 * is that a bound lacks one segment, until the next one of that side moves it.
 */
#define CONNECTION_LOCK_TRIES 256

RARE int connection_wait(struct segue_connection *entry)
{
	if (!entry)
		return 0;
	for (int i = 0; i < CONNECTION_LOCK_TRIES; i++) {
		if (!__sync_lock_test_and_set(&entry->lock, 1))
			break;
	}
	return 0;
}

INLINE void connection_lock(struct segue_connection *entry)
{
	if (unlikely(__sync_lock_test_and_set(&entry->lock, 1)))
		connection_wait(entry);
}

INLINE void connection_unlock(struct segue_connection *entry)
{
	__sync_lock_test_and_set(&entry->lock, 0);
}

INLINE u64 conntrack_timeout(u32 protocol, u32 assured)
{
	if (protocol == PROTOCOL_UDP || protocol == PROTOCOL_UDPLITE)
		return assured ? SECONDS(120) : SECONDS(30);
	if (protocol == PROTOCOL_ICMP || protocol == PROTOCOL_ICMPV6)
		return SECONDS(30);
	return SECONDS(600);
}

/* The key of a flow, the same for both directions. */
INLINE void conntrack_key(struct conntrack *track, const u64 *source, const u64 *destination, u32 ports, u32 protocol,
			  u32 family, u32 scope)
{
	struct segue_connection_key *key = &track->key;
	u32 forward;

	forward = source[0] != destination[0]	? source[0] < destination[0]
		  : source[1] != destination[1] ? source[1] < destination[1]
						: (ports >> 16) <= (ports & 0xffff);
	track->forward = forward;
	key->first[0] = forward ? source[0] : destination[0];
	key->first[1] = forward ? source[1] : destination[1];
	key->second[0] = forward ? destination[0] : source[0];
	key->second[1] = forward ? destination[1] : source[1];
	key->ports = forward ? ports : ports >> 16 | ports << 16;
	key->protocol = protocol;
	key->family = family;
	key->reserved = 0;
	key->scope = scope;
	key->reserved1 = 0;
}

/* Looks in both tables. Expired entries are none. */
INLINE struct segue_connection *conntrack_find(const struct segue_connection_key *key, u64 now)
{
	struct segue_connection *found = bpf_map_lookup_elem(&connections, key);

	if (!found || found->expires < now)
		found = bpf_map_lookup_elem(&connections_new, key);
	return found && found->expires >= now ? found : NULL;
}

/* Kinds of ICMP messages. */
#define ICMP_KIND_ERROR 1
#define ICMP_KIND_REQUEST 2
#define ICMP_KIND_REPLY 3
#define ICMP_KIND_UNTRACKED 4

INLINE u32 icmp_kind(u32 family, u32 type)
{
	if (family == 6) {
		if (type < 128)
			return ICMP_KIND_ERROR;
		if (type == 128 || type == 139)
			return ICMP_KIND_REQUEST;
		if (type == 129 || type == 140)
			return ICMP_KIND_REPLY;
		/* Neighbour discovery and multicast listeners: no connections. */
		return (type >= 130 && type <= 137) || type == 143 ? ICMP_KIND_UNTRACKED : 0;
	}
	if (type == 3 || type == 4 || type == 5 || type == 11 || type == 12)
		return ICMP_KIND_ERROR;
	if (type == 8 || type == 13 || type == 15 || type == 17)
		return ICMP_KIND_REQUEST;
	return type == 0 || type == 14 || type == 16 || type == 18 ? ICMP_KIND_REPLY : 0;
}

/* An ICMP error about a packet of a known connection: RELATED. 6.1 takes no key of a map from an argument. */
RARE u32 conntrack_error(struct xdp_md *ctx, struct firewall_work *work, u32 scope)
{
	u32 zero = 0;
	struct conntrack *track = bpf_map_lookup_elem(&conntracks, &zero);
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	u32 at, family, protocol, ports = 0, upper;
	u64 source[2] = {}, destination[2] = {};
	const struct segue_connection *entry;
	const u8 *octet;

	if (!work || !track)
		return SEGUE_STATE_INVALID;
	family = work->key.family;
	at = (work->upper + 8) & OFFSET_MASK;
	octet = data + at;
	if (family == 6) {
		const u64 *words = (const u64 *)(octet + 8);

		if ((void *)(octet + IPV6_LENGTH + 8) > end || octet[0] >> 4 != 6)
			return SEGUE_STATE_INVALID;
		source[0] = bpf_be64_to_cpu(words[0]);
		source[1] = bpf_be64_to_cpu(words[1]);
		destination[0] = bpf_be64_to_cpu(words[2]);
		destination[1] = bpf_be64_to_cpu(words[3]);
		protocol = octet[6];
		upper = at + IPV6_LENGTH;
	} else {
		if ((void *)(octet + 20) > end || octet[0] >> 4 != 4)
			return SEGUE_STATE_INVALID;
		source[0] = bpf_ntohl(*(const u32 *)(octet + 12));
		destination[0] = bpf_ntohl(*(const u32 *)(octet + 16));
		protocol = octet[9];
		upper = at + (octet[0] & 15) * 4;
	}
	opaque(upper);
	octet = data + (upper & OFFSET_MASK);
	if ((void *)(octet + 8) > end)
		return SEGUE_STATE_INVALID;
	if (protocol == PROTOCOL_ICMP || protocol == PROTOCOL_ICMPV6)
		ports = bpf_ntohs(*(const u16 *)(octet + 4)) * 0x10001U;
	else if (protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP || protocol == PROTOCOL_SCTP ||
		 protocol == PROTOCOL_UDPLITE || protocol == PROTOCOL_DCCP)
		ports = bpf_ntohl(*(const u32 *)octet);
	conntrack_key(track, source, destination, ports, protocol, family, scope);
	entry = conntrack_find(&track->key, bpf_ktime_get_coarse_ns());
	if (!entry)
		return SEGUE_STATE_INVALID;
	/* It goes against the packet that it is about. */
	work->key.connection_direction = track->forward == entry->forward;
	return SEGUE_STATE_RELATED;
}

/* The connection is agreed upon. */
INLINE void conntrack_assure(struct conntrack *track, struct segue_connection *entry)
{
	track->fresh = *entry;
	track->fresh.lock = 0;
	bpf_map_update_elem(&connections, &track->key, &track->fresh, BPF_ANY);
	entry->flags |= SEGUE_CONNECTION_MOVED;
}

/* A segment of a connection that is in a table. 0: the entry is over, and this is the first of another connection. */
INLINE u32 conntrack_known_tcp(struct conntrack *track, struct segue_connection *entry, struct firewall_work *work,
			       u64 now, u32 liberal)
{
	u32 from = track->forward != entry->forward, was, verdict, moved = 0;

	connection_lock(entry);
	if (unlikely(entry->flags & SEGUE_CONNECTION_MOVED)) {
		connection_unlock(entry);
		entry = bpf_map_lookup_elem(&connections, &track->key);
		if (!entry)
			return 0;
		connection_lock(entry);
	}
	was = entry->flags;
	verdict = conntrack_tcp(track, entry, now, from, liberal);
	if (verdict == TCP_VERDICT_KNOWN) {
		if (from)
			entry->flags |= SEGUE_CONNECTION_REPLIED;
		if (unlikely(entry->flags & ~was & SEGUE_CONNECTION_ASSURED)) {
			conntrack_assure(track, entry);
			moved = 1;
		}
	}
	connection_unlock(entry);
	if (unlikely(verdict == TCP_VERDICT_INVALID))
		return SEGUE_STATE_INVALID;
	if (unlikely(moved || verdict == TCP_VERDICT_AGAIN || verdict == TCP_VERDICT_FORGET)) {
		bpf_map_delete_elem(&connections_new, &track->key);
		if (!moved)
			bpf_map_delete_elem(&connections, &track->key);
		if (verdict == TCP_VERDICT_AGAIN)
			return 0;
	}
	work->key.connection_direction = from;
	return from || was & SEGUE_CONNECTION_REPLIED ? SEGUE_STATE_ESTABLISHED : SEGUE_STATE_NEW;
}

/* A packet of another connection that is in a table: its state, and what becomes of the entry. */
INLINE u32 conntrack_known(struct conntrack *track, struct segue_connection *entry, struct firewall_work *work, u64 now)
{
	u32 original = track->forward == entry->forward, protocol = work->key.protocol, was = entry->flags;

	work->key.connection_direction = !original;
	if (!original)
		entry->flags |= SEGUE_CONNECTION_REPLIED;
	if (entry->flags & SEGUE_CONNECTION_REPLIED && protocol != PROTOCOL_ICMP && protocol != PROTOCOL_ICMPV6)
		entry->flags |= SEGUE_CONNECTION_ASSURED;
	entry->expires = now + conntrack_timeout(protocol, entry->flags & SEGUE_CONNECTION_ASSURED);
	if (entry->flags & SEGUE_CONNECTION_ASSURED && !(was & SEGUE_CONNECTION_ASSURED)) {
		conntrack_assure(track, entry);
		bpf_map_delete_elem(&connections_new, &track->key);
		return SEGUE_STATE_ESTABLISHED; /* it takes a reply to be assured */
	}
	return !original || was & SEGUE_CONNECTION_REPLIED ? SEGUE_STATE_ESTABLISHED : SEGUE_STATE_NEW;
}

/*
 * The connection state of the packet in `work`. NEW: `work->fresh` says that an entry is to be made of it if the rules
 * accept it (conntrack_confirm).
 */
RARE u32 conntrack_state(struct xdp_md *ctx, struct firewall_work *work, u32 scope, u32 liberal)
{
	u32 zero = 0, protocol, ports = 0, kind = ICMP_KIND_REQUEST, state;
	struct conntrack *track = bpf_map_lookup_elem(&conntracks, &zero);
	struct segue_connection *entry;
	u64 now = bpf_ktime_get_coarse_ns();
	struct segue_classifier_key *key;

	if (!work || !track)
		return SEGUE_STATE_INVALID;
	key = &work->key;
	work->fresh = 0;
	protocol = key->protocol;
	if (key->family == 0 || work->fragment & FIREWALL_LATER_FRAGMENT)
		return SEGUE_STATE_UNTRACKED; /* a later fragment has no ports; netfilter would reassemble */
	if (protocol == (key->family == 6 ? PROTOCOL_ICMPV6 : PROTOCOL_ICMP)) {
		void *data = (void *)(long)ctx->data;
		void *end = (void *)(long)ctx->data_end;
		const u8 *octet = data + (work->upper & OFFSET_MASK);

		if (key->icmp == SEGUE_CLASSIFIER_ABSENT || (void *)(octet + 8) > end)
			return SEGUE_STATE_INVALID;
		kind = icmp_kind(key->family, key->icmp >> 8);
		if (kind == ICMP_KIND_UNTRACKED)
			return SEGUE_STATE_UNTRACKED;
		if (kind == ICMP_KIND_ERROR)
			return conntrack_error(ctx, work, scope);
		ports = bpf_ntohs(*(const u16 *)(octet + 4)) * 0x10001U;
	} else if (key->source_port != SEGUE_CLASSIFIER_ABSENT) {
		ports = key->source_port << 16 | (key->destination_port & 0xffff);
	}
	if (protocol == PROTOCOL_TCP && !tcp_read(ctx, work, track))
		return SEGUE_STATE_INVALID;
	conntrack_key(track, key->source, key->destination, ports, protocol, key->family, scope);
	entry = conntrack_find(&track->key, now);
	if (entry) {
		state = protocol == PROTOCOL_TCP ? conntrack_known_tcp(track, entry, work, now, liberal)
						 : conntrack_known(track, entry, work, now);
		if (state)
			return state;
	}
	if (kind != ICMP_KIND_REQUEST)
		return SEGUE_STATE_INVALID;
	__builtin_memset(&track->fresh, 0, sizeof(track->fresh));
	track->fresh.forward = track->forward;
	track->fresh.last_event = TCP_EVENT_NONE;
	if (protocol != PROTOCOL_TCP)
		track->fresh.expires = now + conntrack_timeout(protocol, 0);
	else if (conntrack_tcp(track, &track->fresh, now, 0, liberal) != TCP_VERDICT_KNOWN)
		return SEGUE_STATE_INVALID;
	work->fresh = 1;
	key->connection_direction = 0;
	return SEGUE_STATE_NEW;
}

/* The rules have accepted the packet. */
RARE int conntrack_confirm(void)
{
	u32 zero = 0;
	struct conntrack *track = bpf_map_lookup_elem(&conntracks, &zero);

	if (!track)
		return 0;
	bpf_map_update_elem(&connections_new, &track->key, &track->fresh, BPF_ANY);
	return 0;
}

#endif
