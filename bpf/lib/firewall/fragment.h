/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Fragments in a firewall that tracks connections: they follow what became of their datagram's first one, as if they
 * had been put together before the rules, as netfilter does. Nothing is put together and nothing is held back: what is
 * kept of a datagram is whose it is, the verdict, and which octets have gone through (docs/using/firewall.md,
 * "Fragments").
 *
 * Datagrams lie in sets of SEGUE_FRAGMENT_WAYS. The source chooses SEGUE_FRAGMENT_SETS_SOURCE of its firewall's sets,
 * and has half of the places there, so that neither another firewall nor one source can push out what is not its own.
 */
#ifndef SEGUE_FIREWALL_FRAGMENT_H
#define SEGUE_FIREWALL_FRAGMENT_H

#include "lib/base/types.h"
#include "lib/base/maps.h"
#include "lib/firewall/work.h"
#include "lib/conntrack/table.h"

struct fragment_set {
	struct bpf_spin_lock lock;
	u32 reserved;
	struct segue_fragments entries[SEGUE_FRAGMENT_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, SEGUE_FRAGMENT_SETS_MAX);
	__type(key, struct segue_fragment_set_key);
	__type(value, struct fragment_set);
} firewall_fragments SEC(".maps");

/* A set as it begins: all zeros. */
struct fragment_zeros {
	u64 words[sizeof(struct fragment_set) / 8];
};

PERCPU(fragment_fresh, struct fragment_zeros, 1);

#define FRAGMENT_JUDGE 0  /* a first fragment that is not known: rules are asked */
#define FRAGMENT_FOLLOW 1 /* `action` and `detail` of the work are its datagram's; other numbers are outcomes */

/* The fragment at hand, where it lies in its datagram. */
struct fragment {
	u64 now;  /* nanoseconds */
	u32 from; /* in 8 octets */
	u32 to;	  /* likewise, rounded up */
	u32 end;  /* octets */
	u32 more; /* it is not the last one */
};

INLINE u64 fragment_mix(u64 value)
{
	value *= 0x9e3779b97f4a7c15ULL;
	return value ^ value >> 32;
}

/* One of its firewall's sets. Which, nobody outside of the node can tell. */
INLINE u32 fragment_set_of(const struct firewall_work *work)
{
	const struct segue_classifier_key *key = &work->key;
	u64 source = fragment_mix(fragment_mix(key->source[0] ^ control.metadata_magic) ^ key->source[1]);
	u64 datagram = fragment_mix(source ^ key->destination[1] ^ (u64)work->identification << 32);
	u32 group = source >> 16 & (SEGUE_FRAGMENT_SETS / SEGUE_FRAGMENT_SETS_SOURCE - 1);

	return group * SEGUE_FRAGMENT_SETS_SOURCE + (datagram >> 16 & (SEGUE_FRAGMENT_SETS_SOURCE - 1));
}

/* RFC 8200 section 4.5 counts from the first fragment that arrives; IPv4 hosts wait for half of that time. */
INLINE int fragment_alive(const struct segue_fragments *entry, u64 now)
{
	return entry->state != SEGUE_FRAGMENTS_NONE && now - entry->begun < SECONDS(entry->family == 6 ? 60 : 30);
}

INLINE int fragment_same_source(const struct segue_fragments *entry, const struct firewall_work *work)
{
	return ((entry->source[0] ^ work->key.source[0]) | (entry->source[1] ^ work->key.source[1]) |
		(entry->family ^ work->key.family)) == 0;
}

/* IPv4's identifications are those of one protocol each (RFC 791 section 3.2). */
INLINE u32 fragment_protocol(const struct firewall_work *work)
{
	return work->key.family == 4 ? work->key.protocol : 0;
}

INLINE int fragment_is_of(const struct segue_fragments *entry, const struct firewall_work *work)
{
	return ((entry->destination[0] ^ work->key.destination[0]) |
		(entry->destination[1] ^ work->key.destination[1]) | (entry->identification ^ work->identification) |
		(entry->protocol ^ fragment_protocol(work))) == 0 &&
	       fragment_same_source(entry, work);
}

/*
 * Adds the fragment to what has gone through. Any overlap ends the datagram (RFC 5722 section 4), and so does what can
 * not belong together: two ends, or octets behind the end. What has gone through already does not go through again, so
 * that the receiver, too, sees the first copy.
 */
INLINE u32 fragment_place(struct segue_fragments *entry, volatile struct fragment_search *found,
			  const struct fragment *fragment)
{
	u32 from = fragment->from, to = fragment->to, left, right;

	found->left = SEGUE_FRAGMENT_RANGES;
	found->right = SEGUE_FRAGMENT_RANGES;
	found->empty = SEGUE_FRAGMENT_RANGES;
	found->last = 0;
	for (u32 i = 0; i < SEGUE_FRAGMENT_RANGES; i++) {
		u32 first = entry->ranges[i].from, end = entry->ranges[i].to;

		if (!end) {
			found->empty = i;
			continue;
		}
		if (from < end && to > first)
			return from >= first && to <= end && (fragment->more || fragment->end == entry->total)
				       ? SEGUE_OUTCOME_drop_fragment_duplicate
				       : SEGUE_OUTCOME_drop_fragment_overlap;
		if (end > found->last)
			found->last = end;
		if (end == from)
			found->left = i;
		if (first == to)
			found->right = i;
	}
	if (entry->total ? fragment->end > entry->total || !fragment->more : !fragment->more && found->last > from)
		return SEGUE_OUTCOME_drop_fragment_overlap;
	if (!fragment->more)
		entry->total = fragment->end;
	left = found->left;
	right = found->right;
	if (left < SEGUE_FRAGMENT_RANGES) {
		if (right < SEGUE_FRAGMENT_RANGES) {
			to = entry->ranges[right].to;
			entry->ranges[right].to = 0;
		}
		entry->ranges[left].to = to;
		return FRAGMENT_FOLLOW;
	}
	if (right < SEGUE_FRAGMENT_RANGES) {
		entry->ranges[right].from = from;
		return FRAGMENT_FOLLOW;
	}
	left = found->empty;
	if (left >= SEGUE_FRAGMENT_RANGES)
		return SEGUE_OUTCOME_drop_fragment_no_room;
	entry->ranges[left].from = from;
	entry->ranges[left].to = to;
	return FRAGMENT_FOLLOW;
}

/* All octets have gone through. */
INLINE int fragment_complete(const struct segue_fragments *entry)
{
	u32 sum = 0;

	for (u32 i = 0; i < SEGUE_FRAGMENT_RANGES; i++)
		sum += entry->ranges[i].to ? entry->ranges[i].to - entry->ranges[i].from : 0;
	return entry->total && sum == (entry->total + 7) / 8;
}

/*
 * A place for another datagram: of a source that has as many as it may have, its oldest; else one that is free; else
 * the oldest, if it is so old that what is missing of it will hardly come. SEGUE_FRAGMENT_WAYS: none.
 */
INLINE u32 fragment_room(const struct fragment_set *set, struct firewall_work *work, u64 now)
{
	volatile struct fragment_search *found = &work->search;

	found->empty = SEGUE_FRAGMENT_WAYS;
	found->oldest = SEGUE_FRAGMENT_WAYS;
	found->own = SEGUE_FRAGMENT_WAYS;
	found->count = 0;
	found->oldest_begun = now - SECONDS(1);
	found->own_begun = ~0ULL;
	for (u32 i = 0; i < SEGUE_FRAGMENT_WAYS; i++) {
		const struct segue_fragments *entry = &set->entries[i];
		u64 begun = entry->begun;

		if (!fragment_alive(entry, now)) {
			found->empty = i;
			continue;
		}
		if (begun < found->oldest_begun) {
			found->oldest_begun = begun;
			found->oldest = i;
		}
		if (!fragment_same_source(entry, work))
			continue;
		found->count++;
		if (begun < found->own_begun) {
			found->own_begun = begun;
			found->own = i;
		}
	}
	if (found->count >= SEGUE_FRAGMENT_WAYS / 2)
		return found->own;
	return found->empty < SEGUE_FRAGMENT_WAYS ? found->empty : found->oldest;
}

INLINE void fragment_begin(struct segue_fragments *entry, const struct firewall_work *work,
			   const struct fragment *fragment)
{
	entry->source[0] = work->key.source[0];
	entry->source[1] = work->key.source[1];
	entry->destination[0] = work->key.destination[0];
	entry->destination[1] = work->key.destination[1];
	entry->identification = work->identification;
	entry->total = 0;
	entry->begun = fragment->now;
	entry->family = work->key.family;
	entry->protocol = fragment_protocol(work);
	entry->state = SEGUE_FRAGMENTS_FOLLOW;
	entry->action = work->action;
	entry->detail = work->detail;
	for (u32 i = 0; i < SEGUE_FRAGMENT_RANGES; i++) {
		entry->ranges[i].from = 0;
		entry->ranges[i].to = 0;
	}
	entry->ranges[0].to = fragment->to;
}

/* Under the lock of its set. */
INLINE u32 fragment_in_set(struct fragment_set *set, struct firewall_work *work, const struct fragment *fragment,
			   u32 keep)
{
	volatile struct fragment_search *found = &work->search;
	struct segue_fragments *entry;
	u32 at, verdict;

	found->at = SEGUE_FRAGMENT_WAYS;
	for (u32 i = 0; i < SEGUE_FRAGMENT_WAYS; i++) {
		if (fragment_is_of(&set->entries[i], work) && fragment_alive(&set->entries[i], fragment->now))
			found->at = i;
	}
	at = found->at;
	if (at >= SEGUE_FRAGMENT_WAYS) {
		if (!keep)
			return fragment->from ? SEGUE_OUTCOME_drop_fragment_early : FRAGMENT_JUDGE;
		at = fragment_room(set, work, fragment->now);
		if (at >= SEGUE_FRAGMENT_WAYS)
			return SEGUE_OUTCOME_drop_fragment_no_room;
		fragment_begin(&set->entries[at], work, fragment);
		return FRAGMENT_FOLLOW;
	}
	entry = &set->entries[at];
	if (entry->state == SEGUE_FRAGMENTS_REFUSED)
		return SEGUE_OUTCOME_drop_fragment_overlap;
	verdict = fragment_place(entry, found, fragment);
	if (verdict == SEGUE_OUTCOME_drop_fragment_overlap || verdict == SEGUE_OUTCOME_drop_fragment_no_room)
		entry->state = SEGUE_FRAGMENTS_REFUSED;
	if (verdict != FRAGMENT_FOLLOW)
		return verdict;
	if (fragment_complete(entry))
		entry->state = SEGUE_FRAGMENTS_NONE;
	work->action = entry->action;
	work->detail = entry->detail;
	return FRAGMENT_FOLLOW;
}

/*
 * What becomes of the fragment in `work`: FRAGMENT_..., or the outcome. `keep`: a first one that the rules have
 * accepted, with `action` and `detail`.
 */
RARE u32 firewall_fragment(struct firewall_work *work, u32 scope, u32 keep)
{
	struct segue_fragment_set_key key = {.scope = scope};
	struct fragment fragment;
	struct fragment_set *set;
	u32 zero = 0, octets, verdict;
	void *fresh;

	if (!work)
		return SEGUE_OUTCOME_drop_bad_length;
	if (work->fragment & FIREWALL_FRAGMENT_TWICE)
		return SEGUE_OUTCOME_drop_too_many_headers;
	/* Rules see the datagram, which is no fragment. */
	work->key.fragment_offset = work->key.family == 6 ? SEGUE_CLASSIFIER_ABSENT : 0;
	work->key.fragment_flags &= SEGUE_FRAGMENT_DONT;
	if (work->fragment & FIREWALL_ATOMIC_FRAGMENT)
		return FRAGMENT_JUDGE;
	octets = work->limit - work->payload;
	fragment.more = work->fragment & FIREWALL_MORE_FRAGMENTS;
	fragment.from = work->fragment_offset;
	fragment.end = fragment.from * 8 + octets;
	fragment.to = (fragment.end + 7) / 8;
	if (!octets || (fragment.more && octets & 7) || fragment.end > 65535)
		return SEGUE_OUTCOME_drop_bad_length;
	fragment.now = bpf_ktime_get_coarse_ns();
	key.set = fragment_set_of(work);
	set = bpf_map_lookup_elem(&firewall_fragments, &key);
	if (!set) {
		if (!keep)
			return fragment.from ? SEGUE_OUTCOME_drop_fragment_early : FRAGMENT_JUDGE;
		fresh = bpf_map_lookup_elem(&fragment_fresh, &zero);
		if (fresh)
			bpf_map_update_elem(&firewall_fragments, &key, fresh, BPF_NOEXIST);
		set = bpf_map_lookup_elem(&firewall_fragments, &key);
		if (!set)
			return SEGUE_OUTCOME_drop_fragment_no_room;
	}
	bpf_spin_lock(&set->lock);
	verdict = fragment_in_set(set, work, &fragment, keep);
	bpf_spin_unlock(&set->lock);
	return verdict;
}

#endif
