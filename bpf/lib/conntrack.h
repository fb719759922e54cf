/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections of the packets that a firewall's rules look at: their states and timeouts are those that netfilter
 * documents (nf_conntrack-sysctl), so that rules with `-m state` and `-m conntrack` mean the same here.
 *
 * A connection that both sides have agreed upon lies in `connections`, every other in `connections_new`. Both give way
 * in the order of use when they are full: so a flood of beginnings evicts only beginnings. Nothing is remembered of a
 * packet that the rules do not accept. TCP sequence numbers are not compared with windows.
 */
#ifndef SEGUE_CONNTRACK_H
#define SEGUE_CONNTRACK_H

#include "base.h"
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

/* One packet before the table. */
struct conntrack {
	struct segue_connection_key key;
	struct segue_connection fresh;
	u32 forward; /* the packet's source is the key's first side */
	u32 reserved;
};

PERCPU(conntracks, struct conntrack, 1);

#define SECONDS(n_) ((n_)*1000000000ULL)

enum tcp_event {
	TCP_EVENT_SYN,
	TCP_EVENT_SYN_ACK,
	TCP_EVENT_FIN,
	TCP_EVENT_ACK,
	TCP_EVENT_RST,
	TCP_EVENT_NONE,
};

INLINE u32 tcp_event(u32 flags)
{
	if (flags & 0x04)
		return TCP_EVENT_RST;
	if (flags & 0x02)
		return flags & 0x10 ? TCP_EVENT_SYN_ACK : TCP_EVENT_SYN;
	if (flags & 0x01)
		return TCP_EVENT_FIN;
	return flags & 0x10 ? TCP_EVENT_ACK : TCP_EVENT_NONE;
}

/* The state after a packet from the side that began (`original`) or from the other. INVALID: it fits nowhere. */
INLINE u32 tcp_next(u32 state, u32 event, u32 original)
{
	switch (event) {
	case TCP_EVENT_RST:
		return state == SEGUE_TCP_NONE ? SEGUE_TCP_INVALID : SEGUE_TCP_CLOSE;
	case TCP_EVENT_SYN:
		if (original) {
			if (state == SEGUE_TCP_NONE || state == SEGUE_TCP_SYN_SENT || state >= SEGUE_TCP_TIME_WAIT)
				return state == SEGUE_TCP_SYN_SENT2 ? state : SEGUE_TCP_SYN_SENT;
			return state; /* repeated, or about nothing: the state stays */
		}
		if (state == SEGUE_TCP_SYN_SENT || state == SEGUE_TCP_SYN_SENT2)
			return SEGUE_TCP_SYN_SENT2; /* both sides begin at once */
		return state == SEGUE_TCP_TIME_WAIT ? SEGUE_TCP_SYN_SENT : SEGUE_TCP_INVALID;
	case TCP_EVENT_SYN_ACK:
		if (state == SEGUE_TCP_SYN_SENT2)
			return SEGUE_TCP_SYN_RECV;
		if (original)
			return state == SEGUE_TCP_SYN_RECV ? state : SEGUE_TCP_INVALID;
		if (state == SEGUE_TCP_NONE)
			return SEGUE_TCP_INVALID;
		return state == SEGUE_TCP_SYN_SENT ? SEGUE_TCP_SYN_RECV : state;
	case TCP_EVENT_FIN:
		if (state == SEGUE_TCP_SYN_RECV || state == SEGUE_TCP_ESTABLISHED)
			return SEGUE_TCP_FIN_WAIT;
		if (state == SEGUE_TCP_FIN_WAIT || state == SEGUE_TCP_CLOSE_WAIT || state == SEGUE_TCP_LAST_ACK)
			return SEGUE_TCP_LAST_ACK;
		return state == SEGUE_TCP_TIME_WAIT || state == SEGUE_TCP_CLOSE ? state : SEGUE_TCP_INVALID;
	case TCP_EVENT_ACK:
		switch (state) {
		case SEGUE_TCP_NONE: /* picked up in the middle */
			return original ? SEGUE_TCP_ESTABLISHED : SEGUE_TCP_INVALID;
		case SEGUE_TCP_SYN_SENT:
		case SEGUE_TCP_SYN_SENT2:
			return original ? SEGUE_TCP_INVALID : state;
		case SEGUE_TCP_SYN_RECV:
			return original ? SEGUE_TCP_ESTABLISHED : state;
		case SEGUE_TCP_FIN_WAIT:
			return SEGUE_TCP_CLOSE_WAIT;
		case SEGUE_TCP_LAST_ACK:
			return SEGUE_TCP_TIME_WAIT;
		}
		return state;
	}
	return SEGUE_TCP_INVALID;
}

INLINE u64 tcp_timeout(u32 state)
{
	switch (state) {
	case SEGUE_TCP_SYN_RECV:
		return SECONDS(60);
	case SEGUE_TCP_ESTABLISHED:
		return SECONDS(5 * 86400);
	case SEGUE_TCP_CLOSE_WAIT:
		return SECONDS(60);
	case SEGUE_TCP_LAST_ACK:
		return SECONDS(30);
	case SEGUE_TCP_CLOSE:
		return SECONDS(10);
	}
	return SECONDS(120); /* SYN_SENT, SYN_SENT2, FIN_WAIT, TIME_WAIT */
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

/* A packet of a connection that is in a table: its state, and what becomes of the entry. */
INLINE u32 conntrack_known(struct conntrack *track, struct segue_connection *entry, struct firewall_work *work, u64 now)
{
	u32 original = track->forward == entry->forward, state = entry->state, protocol = work->key.protocol;
	u32 was = entry->flags;

	if (protocol == PROTOCOL_TCP) {
		if (work->key.tcp_flags == SEGUE_CLASSIFIER_ABSENT)
			return SEGUE_STATE_INVALID;
		state = tcp_next(state, tcp_event(work->key.tcp_flags), original);
		if (state == SEGUE_TCP_INVALID)
			return SEGUE_STATE_INVALID;
		entry->state = state;
		entry->expires = now + tcp_timeout(state);
	}
	work->key.connection_direction = !original;
	if (!original)
		entry->flags |= SEGUE_CONNECTION_REPLIED;
	if (entry->flags & SEGUE_CONNECTION_REPLIED &&
	    (protocol == PROTOCOL_TCP ? state == SEGUE_TCP_ESTABLISHED
				      : protocol != PROTOCOL_ICMP && protocol != PROTOCOL_ICMPV6))
		entry->flags |= SEGUE_CONNECTION_ASSURED;
	if (protocol != PROTOCOL_TCP)
		entry->expires = now + conntrack_timeout(protocol, entry->flags & SEGUE_CONNECTION_ASSURED);
	if (entry->flags & SEGUE_CONNECTION_ASSURED && !(was & SEGUE_CONNECTION_ASSURED)) {
		track->fresh = *entry;
		bpf_map_update_elem(&connections, &track->key, &track->fresh, BPF_ANY);
		bpf_map_delete_elem(&connections_new, &track->key);
		return SEGUE_STATE_ESTABLISHED; /* it takes a reply to be assured */
	}
	return !original || was & SEGUE_CONNECTION_REPLIED ? SEGUE_STATE_ESTABLISHED : SEGUE_STATE_NEW;
}

/*
 * The connection state of the packet in `work`. NEW: `work->fresh` says that an entry is to be made of it if the rules
 * accept it (conntrack_confirm).
 */
RARE u32 conntrack_state(struct xdp_md *ctx, struct firewall_work *work, u32 scope)
{
	u32 zero = 0, protocol, ports = 0, kind = ICMP_KIND_REQUEST;
	struct conntrack *track = bpf_map_lookup_elem(&conntracks, &zero);
	struct segue_connection *entry;
	u64 now = bpf_ktime_get_coarse_ns();
	struct segue_classifier_key *key;

	if (!work || !track)
		return SEGUE_STATE_INVALID;
	key = &work->key;
	work->fresh = 0;
	protocol = key->protocol;
	if (key->family == 0 || (key->fragment_offset != SEGUE_CLASSIFIER_ABSENT && key->fragment_offset))
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
	conntrack_key(track, key->source, key->destination, ports, protocol, key->family, scope);
	entry = conntrack_find(&track->key, now);
	if (entry && protocol == PROTOCOL_TCP && tcp_event(key->tcp_flags) == TCP_EVENT_SYN &&
	    (entry->state == SEGUE_TCP_TIME_WAIT || entry->state == SEGUE_TCP_CLOSE)) {
		/* The ports are used again: a connection of its own. */
		bpf_map_delete_elem(&connections, &track->key);
		bpf_map_delete_elem(&connections_new, &track->key);
		entry = NULL;
	}
	if (entry)
		return conntrack_known(track, entry, work, now);
	if (kind != ICMP_KIND_REQUEST)
		return SEGUE_STATE_INVALID;
	track->fresh.state = SEGUE_TCP_NONE;
	if (protocol == PROTOCOL_TCP) {
		if (key->tcp_flags == SEGUE_CLASSIFIER_ABSENT)
			return SEGUE_STATE_INVALID;
		track->fresh.state = tcp_next(SEGUE_TCP_NONE, tcp_event(key->tcp_flags), 1);
		if (track->fresh.state == SEGUE_TCP_INVALID)
			return SEGUE_STATE_INVALID;
		track->fresh.expires = now + tcp_timeout(track->fresh.state);
	} else {
		track->fresh.expires = now + conntrack_timeout(protocol, 0);
	}
	track->fresh.forward = track->forward;
	track->fresh.flags = 0;
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
