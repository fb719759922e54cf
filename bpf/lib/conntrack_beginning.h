/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is left of a beginning (a SYN or a question that has had no answer yet) when it gave way to another one: one
 * word, by which its answer is known again. A flood of SYNs pushes a table's beginnings out within milliseconds, and an
 * honest client's handshake takes its round trip; words are small enough to remember those of some seconds.
 *
 * Lines of eight words lie behind the table's buckets, 16 lines in each. A new word pushes the oldest of its line out.
 * CPUs that write one line at once may lose a word or write it twice: no more than that.
 *
 *   63        30 29     22 21          6 5    2   1     0
 *   fingerprint | time    | window      | scale | SACK | scaling
 */
#ifndef SEGUE_CONNTRACK_BEGINNING_H
#define SEGUE_CONNTRACK_BEGINNING_H

#include "base.h"
#include "conntrack_table.h"

#define BEGINNING_TIME_BITS 29 /* nanoseconds: a unit is 0.54 s, and 256 of them 137 s */

/* What the fingerprint and the line follow from: the key, who began, and for a SYN what its answer acknowledges. */
INLINE u64 beginning_hash(u64 hash, u32 forward, u32 acknowledged)
{
	hash ^= (u64)acknowledged << 1 | (forward & 1);
	hash *= 0x9fb21c651e98df25ULL;
	hash ^= hash >> 35;
	hash *= 0x9fb21c651e98df25ULL;
	return hash ^ hash >> 28;
}

/* The line of a fingerprint; NULL: there are none. */
INLINE u64 *beginning_line(const struct segue_firewall *firewall, u64 hash)
{
	u32 slot = firewall->table, index, line;
	u32 lines = firewall->beginnings * SEGUE_BEGINNING_LINES;
	void *table = bpf_map_lookup_elem(&connections, &slot);
	struct segue_connection_bucket *bucket;

	if (!table || !lines)
		return NULL;
	line = (hash & 0xffffffff) * lines >> 32;
	index = firewall->buckets + line / SEGUE_BEGINNING_LINES;
	bucket = bpf_map_lookup_elem(table, &index);
	if (!bucket)
		return NULL;
	return (u64 *)bucket + (line & (SEGUE_BEGINNING_LINES - 1)) * SEGUE_BEGINNING_WORDS;
}

/* `entry` gives way. Not inlined for the sake of its caller's stack. */
static __attribute__((noinline)) u32 beginning_keep(const struct segue_firewall *firewall,
						    const struct segue_connection_entry *entry, u64 now)
{
	const struct segue_connection *connection = &entry->connection;
	u32 acknowledged = 0, window = 0, scale = 0, flags = 0;
	u64 hash, *line;

	if (connection->flags & SEGUE_CONNECTION_REPLIED)
		return 0;
	if (entry->key.protocol == PROTOCOL_TCP) {
		if (connection->state != SEGUE_TCP_SYN_SENT)
			return 0;
		acknowledged = connection->side[0].end;
		window = connection->side[0].window & 0xffff;
		scale = connection->scale[0] & 15;
		flags = connection->side_flags[0] & (SEGUE_SIDE_SCALING | SEGUE_SIDE_SACK);
	}
	hash = beginning_hash(entry->hash, connection->forward, acknowledged);
	line = beginning_line(firewall, hash);
	if (!line)
		return 0;
	for (int i = SEGUE_BEGINNING_WORDS - 1; i > 0; i--)
		line[i] = line[i - 1];
	line[0] = hash >> 30 << 30 | (now >> BEGINNING_TIME_BITS & 0xff) << 22 | window << 6 | scale << 2 | flags;
	return 0;
}

/* The word of the beginning that the packet in `track`, from the other side, answers; 0: there is none. */
INLINE u64 beginning_find(const struct segue_firewall *firewall, const struct conntrack *track, u32 acknowledged,
			  u64 most)
{
	u64 hash = beginning_hash(track->hash, !track->forward, acknowledged);
	const u64 *line = beginning_line(firewall, hash);

	if (!line)
		return 0;
	for (u32 i = 0; i < SEGUE_BEGINNING_WORDS; i++) {
		u64 word = line[i];

		if (likely(word >> 30 != hash >> 30))
			continue;
		if (((track->now >> BEGINNING_TIME_BITS) - (word >> 22) & 0xff) <= most >> BEGINNING_TIME_BITS)
			return word;
	}
	return 0;
}

#endif
