/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What rules on connections said of a packet, for those that are like it: a cache on each CPU in front of the rules,
 * and for UDP in front of the table of connections too. Packets are alike if they meet the same firewall in the same
 * epoch (generation of the rules, and of what the agent has changed beside them) and all words of the key are equal
 * that any of its rules looks at. What depends on more than the key (limits, sets, lists of addresses) and what is
 * written somewhere (LOG) is never kept.
 *
 * A packet of TCP moves its connection's windows, so its state is found first, and is part of the key. A packet of UDP
 * only prolongs its connection, once in CONNECTION_SLACK, and so long what is kept holds: the packet that has to write
 * goes the long way. If the connection is answered or gives way meanwhile, a word says so that all CPUs see
 * (connection_changed). So a packet never meets anything here that it would not have met without.
 */
#ifndef SEGUE_FIREWALL_VERDICT_H
#define SEGUE_FIREWALL_VERDICT_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/maps.h"
#include "lib/firewall/work.h"
#include "lib/conntrack/table.h"

PERCPU(firewall_counters, struct segue_firewall_counter, 1024);

INLINE void firewall_count(u32 row, u32 length)
{
	struct segue_firewall_counter *counter = bpf_map_lookup_elem(&firewall_counters, &row);

	if (likely(counter)) {
		counter->packets++;
		counter->bytes += length;
	}
}

#define VERDICT_BITS 10
#define VERDICT_WORDS 8 /* of 64 bits: the key's first line */

/* The words that a verdict is found by: those of the first line, and the direction. */
#define KEY_WORDS_VERDICT (((1ULL << 2 * VERDICT_WORDS) - 1) | KEY_WORDS(connection_direction))

/* Two cache lines. */
struct firewall_verdict {
	u64 key[VERDICT_WORDS]; /* with the connection's state for TCP, ABSENT for UDP */
	u64 epoch;
	u64 until; /* UDP: nanoseconds, as of conntrack_now() */
	u32 firewall;
	u32 direction; /* as the state */
	u32 change;    /* UDP: row in connection_changes, and what was there before the table was looked at */
	u32 version;
	u8 action;
	u8 hits; /* rules and policies that counted the packet: so many of `rows` */
	u16 reserved;
	u32 detail;
	u32 argument;
	u32 line;
	u32 rows[VERDICT_ROWS];
};

PERCPU(firewall_verdicts, struct firewall_verdict, 1 << VERDICT_BITS);

/* Whether packets of this firewall are told apart by what verdicts are found by. */
INLINE u32 verdict_suits(const struct segue_firewall *firewall)
{
	return (firewall->flags & (SEGUE_FIREWALL_STATE | SEGUE_FIREWALL_ADVANCED)) == SEGUE_FIREWALL_STATE &&
	       !(firewall->words & ~KEY_WORDS_VERDICT);
}

INLINE struct firewall_verdict *verdict_place(const struct segue_classifier_key *key)
{
	const u64 *word = (const u64 *)key;
	u64 hash;
	u32 row;

	hash = ((word[0] ^ word[1]) * 0x9e3779b97f4a7c15ULL ^ (word[2] ^ word[3] << 1)) * 0xd6e8feb86659fd93ULL;
	hash = (hash ^ hash >> 32 ^ word[4] ^ word[7] << 16) * 0x9e3779b97f4a7c15ULL;
	row = hash >> (64 - VERDICT_BITS);
	return bpf_map_lookup_elem(&firewall_verdicts, &row);
}

/* Whether the packet's verdict is known: then it is in `work`, and all that counts the packet has counted it. */
INLINE u32 verdict_find(struct firewall_work *work, u32 udp)
{
	const struct firewall_verdict *entry = verdict_place(&work->key);
	const u64 *key = (const u64 *)&work->key;
	u64 differs;

	if (unlikely(!entry))
		return 0;
	differs = (key[0] ^ entry->key[0]) | (key[1] ^ entry->key[1]) | (key[2] ^ entry->key[2]) |
		  (key[3] ^ entry->key[3]) | (key[4] ^ entry->key[4]) | (key[5] ^ entry->key[5]) |
		  (key[6] ^ entry->key[6]) | (key[7] ^ entry->key[7]) | (work->epoch ^ entry->epoch) |
		  (work->firewall ^ entry->firewall) | (work->key.connection_direction ^ entry->direction);
	if (differs)
		return 0;
	if (udp && (conntrack_now(&work->track) > entry->until || connection_version(entry->change) != entry->version))
		return 0;
#pragma unroll
	for (u32 i = 0; i < VERDICT_ROWS; i++) {
		if (i >= entry->hits)
			break;
		firewall_count(entry->rows[i], work->key.length);
	}
	work->line = entry->line;
	work->action = entry->action;
	work->detail = entry->detail;
	work->argument = entry->argument;
	return 1;
}

/* Keeps what became of the packet in `work`. */
RARE int verdict_keep(struct firewall_work *work)
{
	struct firewall_verdict *entry;
	const u64 *key;
	u32 udp;

	if (!work || work->varies || work->hits > VERDICT_ROWS)
		return 0;
	key = (const u64 *)&work->key;
	udp = work->key.protocol == PROTOCOL_UDP;
	entry = verdict_place(&work->key);
	if (!entry)
		return 0;
#pragma unroll
	for (u32 i = 0; i < VERDICT_WORDS; i++)
		entry->key[i] = key[i];
	entry->direction = work->key.connection_direction;
	if (udp) {
		/* The packet that looks for it does not know them yet. */
		entry->key[offsetof(struct segue_classifier_key, connection_state) / 8] =
			(u64)work->key.ingress << 32 | SEGUE_CLASSIFIER_ABSENT;
		entry->direction = SEGUE_CLASSIFIER_ABSENT;
	}
	entry->epoch = work->epoch;
	entry->until = work->track.until;
	entry->firewall = work->firewall;
	entry->change = work->track.change;
	entry->version = work->track.version;
	entry->action = work->action;
	entry->hits = work->hits;
	entry->detail = work->detail;
	entry->argument = work->argument;
	entry->line = work->line;
#pragma unroll
	for (u32 i = 0; i < VERDICT_ROWS; i++)
		entry->rows[i] = work->rows[i];
	return 0;
}

#endif
