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

#include "base.h"
#include "classifier.h"
#include "abi/firewall.h"

ARRAY(firewall_extensions, struct segue_firewall_extension, 64);
ARRAY(firewall_limits, u64, 64);

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 64);
	__type(key, struct segue_firewall_bucket);
	__type(value, u64);
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

INLINE int hashlimit_holds(const struct segue_classifier_key *key, struct segue_firewall_bucket *bucket,
			   const struct segue_firewall_extension *extension)
{
	u32 flags = extension->flags;
	u64 *full, fresh = 0;

	__builtin_memset(bucket, 0, sizeof(*bucket));
	bucket->table = extension->bucket;
	if (flags & SEGUE_EXTENSION_SOURCE) {
		bucket->source[0] = key->source[0] & extension->source_mask[0];
		bucket->source[1] = key->source[1] & extension->source_mask[1];
	}
	if (flags & SEGUE_EXTENSION_DESTINATION) {
		bucket->destination[0] = key->destination[0] & extension->destination_mask[0];
		bucket->destination[1] = key->destination[1] & extension->destination_mask[1];
	}
	if (flags & SEGUE_EXTENSION_SOURCE_PORT)
		bucket->ports = (key->source_port & 0xffff) << 16;
	if (flags & SEGUE_EXTENSION_DESTINATION_PORT)
		bucket->ports |= key->destination_port & 0xffff;
	full = bpf_map_lookup_elem(&firewall_hashlimits, bucket);
	if (!full) {
		bpf_map_update_elem(&firewall_hashlimits, bucket, &fresh, BPF_NOEXIST);
		full = bpf_map_lookup_elem(&firewall_hashlimits, bucket);
		if (!full)
			return 0;
	}
	return limit_take(full, extension->interval, extension->burst) != !!(flags & SEGUE_EXTENSION_NEGATED);
}

/* A bucket's condition. The packet is looked up here: 6.1 takes no key of a map from an argument. */
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
