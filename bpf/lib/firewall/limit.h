/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Conditions of a rule with a state of their own or a table behind them: token buckets and sets.
 *
 * A bucket is one word, the time at which it will be full. A packet takes a token if the bucket would be full within
 * the time that `burst` tokens take; then that time is later by one token's interval. One word can be compared and
 * exchanged, so CPUs share buckets without a lock.
 */
#ifndef SEGUE_FIREWALL_LIMIT_H
#define SEGUE_FIREWALL_LIMIT_H

#include "lib/base/types.h"
#include "lib/base/maps.h"
#include "lib/firewall/work.h"
#include "abi/firewall.h"

ARRAY(firewall_extensions, struct segue_firewall_extension, 64);
ARRAY(firewall_limits, u64, 64);

struct hashlimit_table {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(struct segue_firewall_bucket));
	__uint(value_size, sizeof(struct segue_hashlimit));
};

/* One table for each name, of --hashlimit-htable-max buckets: sources that were made up fill it, and take no other. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 64);
	__type(key, u32);
	__array(values, struct hashlimit_table);
} firewall_hashlimits SEC(".maps");

/* Takes a token. 0: there is none. */
INLINE int limit_take(u64 *bucket, u64 interval, u64 burst)
{
	u64 now = bpf_ktime_get_ns();

	/* Another CPU may take one meanwhile; whoever loses so often finds no token. */
	for (int i = 0; i < 8; i++) {
		u64 full = *(volatile u64 *)bucket, from = full > now ? full : now;

		if (from > now + burst)
			return 0;
		if (__sync_val_compare_and_swap(bucket, full, from + interval) == full)
			return 1;
	}
	return 0;
}

#define HASHLIMIT_SWEEP 1000000000ULL /* between two sweeps: netfilter's --hashlimit-htable-gcinterval */

static long hashlimit_forget(void *table, const struct segue_firewall_bucket *key, struct segue_hashlimit *value,
			     u64 *now)
{
	if (value->expires < *now)
		bpf_map_delete_elem(table, key);
	return 0;
}

/*
 * A bucket's condition: 0, 1, or LIMIT_FULL where there is no bucket for the packet and no room for one. Then the
 * packet is dropped whatever the rule says, as by netfilter (hotdrop): buckets that live are not thrown away for it.
 */
#define LIMIT_FULL 2

/* What has no ports has port 0, which nothing else has: later fragments take no tokens from another port. */
INLINE u32 hashlimit_port(u32 port)
{
	return port == SEGUE_CLASSIFIER_ABSENT ? 0 : port;
}

INLINE int hashlimit_holds(const struct segue_classifier_key *key, struct segue_firewall_bucket *bucket,
			   const struct segue_firewall_extension *extension)
{
	u32 flags = extension->flags, slot = extension->bucket;
	u64 now = bpf_ktime_get_ns(), *sweep;
	struct segue_hashlimit *value, fresh = {};
	void *table = bpf_map_lookup_elem(&firewall_hashlimits, &slot);

	if (!table)
		return LIMIT_FULL;
	__builtin_memset(bucket, 0, sizeof(*bucket));
	if (flags & SEGUE_EXTENSION_SOURCE) {
		bucket->source[0] = key->source[0] & extension->source_mask[0];
		bucket->source[1] = key->source[1] & extension->source_mask[1];
	}
	if (flags & SEGUE_EXTENSION_DESTINATION) {
		bucket->destination[0] = key->destination[0] & extension->destination_mask[0];
		bucket->destination[1] = key->destination[1] & extension->destination_mask[1];
	}
	if (flags & SEGUE_EXTENSION_SOURCE_PORT)
		bucket->ports = hashlimit_port(key->source_port) << 16;
	if (flags & SEGUE_EXTENSION_DESTINATION_PORT)
		bucket->ports |= hashlimit_port(key->destination_port);
	value = bpf_map_lookup_elem(table, bucket);
	if (!value) {
		fresh.expires = now + extension->expire;
		if (bpf_map_update_elem(table, bucket, &fresh, BPF_NOEXIST)) {
			sweep = bpf_map_lookup_elem(&firewall_limits, &slot);
			/* Not for each packet of a flood; the next ones find room. */
			if (sweep && *sweep + HASHLIMIT_SWEEP < now) {
				*sweep = now;
				bpf_for_each_map_elem(table, hashlimit_forget, &now, 0);
				bpf_map_update_elem(table, bucket, &fresh, BPF_NOEXIST);
			}
		}
		value = bpf_map_lookup_elem(table, bucket);
		if (!value)
			return LIMIT_FULL;
	}
	value->expires = now + extension->expire;
	return limit_take(&value->full, extension->interval, extension->burst) != !!(flags & SEGUE_EXTENSION_NEGATED);
}

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct segue_firewall_bucket);
	__type(value, struct segue_firewall_recent);
} firewall_recents SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct segue_recent_place_key);
	__type(value, struct segue_firewall_bucket);
} firewall_recent_places SEC(".maps");

/* Too large for the stack: what an address begins with. */
PERCPU(firewall_recent_fresh, struct segue_firewall_recent, 1);

/* Whether enough of the noted packets count: the last but so many does, and they are in the order of time. */
INLINE int recent_counts(const struct segue_firewall_recent *recent, u64 interval, u64 wanted, u64 now)
{
	u64 next = recent->next, stamp;

	if (!wanted)
		wanted = 1;
	if (next < wanted)
		return 0;
	stamp = recent->stamps[(next - wanted) & (SEGUE_RECENT_STAMPS - 1)];
	return !interval || stamp + interval >= now;
}

/*
 * A place for the address in `work->bucket` among those of its firewall, which has so many and no more: the oldest of
 * its own gives way, never another firewall's. 0: there is none. The packet is looked up here: 6.1 takes no key of a
 * map from an argument.
 */
RARE int firewall_recent_note(u32 scope)
{
	struct firewall_work *work = firewall_work_get();
	struct segue_recent_place_key key = {.place = SEGUE_RECENT_CURSOR};
	struct segue_firewall_bucket *cursor, *place;
	struct segue_firewall_recent *fresh, *old;
	u32 zero = 0;
	u64 number;

	if (!work)
		return 0;
	key.scope = scope;
	fresh = bpf_map_lookup_elem(&firewall_recent_fresh, &zero);
	cursor = bpf_map_lookup_elem(&firewall_recent_places, &key);
	if (!cursor) {
		struct segue_firewall_bucket begin = {};

		bpf_map_update_elem(&firewall_recent_places, &key, &begin, BPF_NOEXIST);
		cursor = bpf_map_lookup_elem(&firewall_recent_places, &key);
	}
	if (!cursor || !fresh)
		return 0;
	number = __sync_fetch_and_add(&cursor->source[0], 1);
	key.place = number & (SEGUE_RECENT_EACH - 1);
	place = bpf_map_lookup_elem(&firewall_recent_places, &key);
	if (place) {
		/* An address that was taken out and has come anew has a later place. */
		old = bpf_map_lookup_elem(&firewall_recents, place);
		if (old && (old->place & (SEGUE_RECENT_EACH - 1)) == key.place)
			bpf_map_delete_elem(&firewall_recents, place);
		*place = work->bucket;
	} else if (bpf_map_update_elem(&firewall_recent_places, &key, &work->bucket, BPF_ANY)) {
		return 0;
	}
	fresh->place = number;
	bpf_map_update_elem(&firewall_recents, &work->bucket, fresh, BPF_NOEXIST);
	return 1;
}

/* `-m recent`, as net/netfilter/xt_recent.c does it but for the sizes: an address is noted without a lock. */
RARE int firewall_recent_holds(u32 row)
{
	struct firewall_work *work = firewall_work_get();
	const struct segue_firewall_extension *extension = bpf_map_lookup_elem(&firewall_extensions, &row);
	const struct segue_classifier_key *key;
	struct segue_firewall_bucket *bucket;
	struct segue_firewall_recent *recent;
	u32 flags, holds;
	u64 now, place;

	if (!work || !extension)
		return 0;
	key = &work->key;
	bucket = &work->bucket;
	flags = extension->flags;
	now = bpf_ktime_get_ns();
	__builtin_memset(bucket, 0, sizeof(*bucket));
	bucket->reserved = extension->bucket;
	bucket->ports = extension->chain;
	bucket->destination[0] = key->family;
	if (flags & SEGUE_EXTENSION_SOURCE) {
		bucket->source[0] = key->source[0] & extension->source_mask[0];
		bucket->source[1] = key->source[1] & extension->source_mask[1];
	} else {
		bucket->source[0] = key->destination[0] & extension->source_mask[0];
		bucket->source[1] = key->destination[1] & extension->source_mask[1];
	}
	recent = bpf_map_lookup_elem(&firewall_recents, bucket);
	if (!recent) {
		if (!(flags & SEGUE_EXTENSION_RECENT_SET))
			return !!(flags & SEGUE_EXTENSION_NEGATED);
		if (!firewall_recent_note(work->scope))
			return 0;
		recent = bpf_map_lookup_elem(&firewall_recents, bucket);
		if (!recent)
			return 0;
	}
	if (flags & SEGUE_EXTENSION_RECENT_SET) {
		holds = 1;
	} else if (flags & SEGUE_EXTENSION_RECENT_REMOVE) {
		bpf_map_delete_elem(&firewall_recents, bucket);
		holds = 1;
	} else {
		holds = recent_counts(recent, extension->interval, extension->burst, now);
	}
	holds ^= flags & SEGUE_EXTENSION_NEGATED;
	if (flags & SEGUE_EXTENSION_RECENT_SET || (flags & SEGUE_EXTENSION_RECENT_UPDATE && holds)) {
		place = __sync_fetch_and_add(&recent->next, 1);
		recent->stamps[place & (SEGUE_RECENT_STAMPS - 1)] = now;
	}
	return holds;
}

/* As hashlimit_holds(). The packet is looked up here: 6.1 takes no key of a map from an argument. */
RARE int firewall_bucket_holds(u32 row)
{
	struct firewall_work *work = firewall_work_get();
	const struct segue_firewall_extension *extension = bpf_map_lookup_elem(&firewall_extensions, &row);
	u32 slot;
	u64 *full;

	if (!work || !extension)
		return 0;
	if (extension->kind == SEGUE_EXTENSION_HASHLIMIT)
		return hashlimit_holds(&work->key, &work->bucket, extension);
	slot = extension->bucket;
	full = bpf_map_lookup_elem(&firewall_limits, &slot);
	return full ? limit_take(full, extension->interval, extension->burst) : 0;
}

#endif
