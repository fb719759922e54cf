/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table of connections of one firewall: what a tenant does fills his own. An ARRAY of buckets with eight entries
 * each; a connection lies in one of two buckets, which its key and a secret of the firewall name. `entries` of the
 * configuration is the number of entries that there are, so it bounds what is remembered, whatever comes.
 *
 * Where both buckets are full, the entry that is worth least gives way to a new one: closed connections and answered
 * questions, then beginnings, then half-agreed TCP, and of these the one that would expire first. Those on which both
 * sides have agreed (netfilter's ASSURED) never do; a beginning that gives way leaves a trace: conntrack_beginning.h.
 */
#ifndef SEGUE_CONNTRACK_TABLE_H
#define SEGUE_CONNTRACK_TABLE_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/maps.h"
#include "lib/conntrack/packet.h"

#define SECONDS(n_) ((n_)*1000000000ULL)

struct connection_table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct segue_connection_bucket));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 17);
	__type(key, u32);
	__array(values, struct connection_table);
} connections SEC(".maps");

/* The time of this packet, as coarse as the clock that it is from, and this CPU's name in locks. */
INLINE u64 conntrack_now(struct conntrack *track)
{
	u64 jiffies = bpf_jiffies64();

	if (unlikely(track->jiffies != jiffies)) {
		track->jiffies = jiffies;
		track->now = bpf_ktime_get_coarse_ns();
		track->token = (u32)(jiffies >> 5) << 12 | ((bpf_get_smp_processor_id() + 1) & 0xfff);
	}
	return track->now;
}

/*
 * A bucket's lock says who holds it: CPU + 1, and in the 20 bits above since when, in 32 jiffies. Only who holds it
 * frees it, by exchanging his own word for 0. Programs of XDP do not interrupt each other on one CPU, and what is done
 * under the lock is short; a holder whose virtual CPU sleeps may keep it for milliseconds, though. Who waits in vain
 * changes nothing, and his packet is dropped and counted. Who has held it for two of these units or more cannot be at
 * work: whoever comes then takes it from him, and he finds it gone.
 */
#define CONNECTION_LOCK_TRIES (1 << 14)

struct connection_wait {
	struct segue_connection_bucket *bucket;
	u32 token;
	u32 taken;
};

static long connection_try(u32 index, struct connection_wait *wait)
{
	u32 seen = *(volatile u32 *)&wait->bucket->lock, age;

	(void)index;
	age = ((wait->token >> 12) - (seen >> 12)) & 0xfffff;
	if (seen && (age < 2 || age >= 0x80000))
		return 0;
	wait->taken = __sync_val_compare_and_swap(&wait->bucket->lock, seen, wait->token) == seen;
	return wait->taken;
}

/* Static, because what BTF says of maps in maps does not have the structure that a global function would need. */
static __attribute__((noinline)) u32 connection_wait(struct segue_connection_bucket *bucket, u32 token)
{
	struct connection_wait wait = {.bucket = bucket, .token = token};

	bpf_loop(CONNECTION_LOCK_TRIES, connection_try, &wait, 0);
	return wait.taken;
}

/* 0: somebody else holds it. */
INLINE u32 connection_lock(struct segue_connection_bucket *bucket, u32 token)
{
	if (likely(__sync_val_compare_and_swap(&bucket->lock, 0, token) == 0))
		return 1;
	return connection_wait(bucket, token);
}

INLINE void connection_unlock(struct segue_connection_bucket *bucket, u32 token)
{
	__sync_val_compare_and_swap(&bucket->lock, token, 0);
}

/*
 * The hash of a key. Who does not know the secret cannot choose keys that meet: the sum of products is NH of UMAC
 * (RFC 4418 section 5.2), for which two keys meet with a probability of 2^-32. What follows spreads it over 64 bits.
 */
INLINE u64 connection_hash(const struct segue_firewall *firewall, const struct segue_connection_key *key)
{
	const u32 *secret = firewall->hash, *word = (const u32 *)key;
	u64 hash = 0;

#pragma unroll
	for (int i = 0; i < 10; i += 2)
		hash += (u64)(u32)(word[i] + secret[i]) * (u32)(word[i + 1] + secret[i + 1]);
	hash ^= hash >> 32;
	hash *= 0xd6e8feb86659fd93ULL;
	hash ^= hash >> 29;
	hash *= 0xd6e8feb86659fd93ULL;
	return hash ^ hash >> 32;
}

INLINE u32 connection_tag(u64 hash)
{
	return (u32)(hash >> 16) | 1;
}

/* The two buckets, of `buckets`. */
INLINE u32 connection_first(u64 hash, u32 buckets)
{
	return (hash & 0xffffffff) * buckets >> 32;
}

INLINE u32 connection_second(u64 hash, u32 buckets)
{
	u32 first = connection_first(hash, buckets), second = (hash >> 32) * buckets >> 32;

	if (unlikely(second == first))
		second = first + 1 < buckets ? first + 1 : 0;
	return second;
}

/*
 * How often connections have changed otherwise than by a longer life: by their first answer, or because they gave way.
 * Of those whose hashes end alike, and of UDP only: what is kept of others does not depend on it.
 */
#define CONNECTION_CHANGES 4096U

struct connection_changes {
	u32 versions[CONNECTION_CHANGES];
};

ARRAY(connection_changes, struct connection_changes, 1);

/* To be read before the connection is. */
INLINE u32 connection_version(u32 change)
{
	u32 zero = 0;
	struct connection_changes *changes = bpf_map_lookup_elem(&connection_changes, &zero);

	return changes ? *(volatile u32 *)&changes->versions[change & (CONNECTION_CHANGES - 1)] : 0;
}

/* To be called when it is done, before anybody can have learnt of it. */
INLINE void connection_changed(u64 hash, u32 protocol)
{
	u32 zero = 0;
	struct connection_changes *changes = bpf_map_lookup_elem(&connection_changes, &zero);

	if (protocol == PROTOCOL_UDP && changes)
		__sync_fetch_and_add(&changes->versions[hash & (CONNECTION_CHANGES - 1)], 1);
}

/* How hard it is to evict: 0 first, 3 never. */
INLINE u64 connection_class(const struct segue_connection *connection, u32 protocol)
{
	if (protocol == PROTOCOL_TCP) {
		/* netfilter, too, evicts closed ones (tcp_can_early_drop). */
		if (connection->state >= SEGUE_TCP_FIN_WAIT && connection->state <= SEGUE_TCP_CLOSE)
			return 0;
		if (connection->flags & SEGUE_CONNECTION_ASSURED)
			return 3;
		return connection->flags & SEGUE_CONNECTION_REPLIED ? 2 : 1;
	}
	if (connection->flags & SEGUE_CONNECTION_ASSURED)
		return 3;
	return connection->flags & SEGUE_CONNECTION_REPLIED ? 0 : 1;
}

INLINE u64 connection_rank(const struct segue_connection *connection, u32 protocol)
{
	return connection->expires >> 2 | connection_class(connection, protocol) << 62;
}

#define RANK_CLASS(rank_) ((rank_) >> 62)
#define RANK_EXPIRES(rank_) ((rank_) << 2)

INLINE int connection_key_equal(const struct segue_connection_key *a, const struct segue_connection_key *b)
{
	const u64 *one = (const u64 *)a, *other = (const u64 *)b;

	return ((one[0] ^ other[0]) | (one[1] ^ other[1]) | (one[2] ^ other[2]) | (one[3] ^ other[3]) |
		(one[4] ^ other[4])) == 0;
}

/* The entry with this key in a bucket, or -1. */
INLINE s32 connection_way(const struct segue_connection_bucket *bucket, const struct segue_connection_key *key, u32 tag)
{
	for (u32 i = 0; i < SEGUE_CONNECTION_WAYS; i++) {
		if (likely(bucket->tags[i] != tag))
			continue;
		if (likely(connection_key_equal(&bucket->entries[i].key, key)))
			return i;
	}
	return -1;
}

/* The connection of the key in `track` in a table, and its way. Whether it has expired is the caller's to look at. */
INLINE struct segue_connection_bucket *connection_find(struct conntrack *track, u32 slot, u32 buckets, u32 *way)
{
	void *table = bpf_map_lookup_elem(&connections, &slot);
	u32 tag = connection_tag(track->hash), index = connection_first(track->hash, buckets);
	u32 unknown = unknown_zero(tag);
	struct segue_connection_bucket *bucket;
	u64 evicted;
	s32 found;

	track->evicted = 0;
	if (unlikely(!table))
		return NULL;
	bucket = bpf_map_lookup_elem(table, &index);
	if (unlikely(!bucket))
		return NULL;
	found = connection_way(bucket, &track->key, tag);
	if (likely(found >= 0)) {
		*way = (found ^ unknown) & (SEGUE_CONNECTION_WAYS - 1);
		return bucket;
	}
	evicted = bucket->evicted;
	index = connection_second(track->hash, buckets);
	bucket = bpf_map_lookup_elem(table, &index);
	if (unlikely(!bucket))
		return NULL;
	found = connection_way(bucket, &track->key, tag);
	if (likely(found >= 0)) {
		*way = (found ^ unknown) & (SEGUE_CONNECTION_WAYS - 1);
		return bucket;
	}
	track->evicted = evicted > bucket->evicted ? evicted : bucket->evicted;
	return NULL;
}

INLINE void connection_clear(struct segue_connection_bucket *bucket, u32 way)
{
	way &= SEGUE_CONNECTION_WAYS - 1;
	bucket->tags[way] = 0;
	bucket->ranks[way] = 0;
	bucket->entries[way].connection.expires = 0;
}

/* Of a bucket: how many entries are alive, and the one to replace, with its rank; 0 if nothing lives there. */
INLINE void connection_victim(const struct segue_connection_bucket *bucket, struct conntrack *track,
			      struct connection_victim *victim)
{
	u64 least = ~0ULL, now = track->now, alive = 0;

	victim->way = 0;
#pragma clang loop unroll(disable)
	for (u32 i = 0; i < SEGUE_CONNECTION_WAYS; i++) {
		u64 rank = bucket->ranks[i], dead = (RANK_EXPIRES(rank) - now) >> 63;

		/* Without a branch, and the way in memory: the verifier need not follow each combination. */
		alive += dead ^ 1;
		rank &= dead - 1;
		if (rank < least) {
			least = rank;
			victim->way = i;
		}
	}
	victim->alive = alive;
	victim->rank = least;
}

#endif
