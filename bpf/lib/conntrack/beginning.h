/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is left of a beginning (a SYN or a question that has had no answer yet, or a SYN and its SYN/ACK) when it gave
 * way to another one: one word for each side that has spoken, by which what comes next is known again. A flood of SYNs
 * pushes a table's beginnings out within milliseconds, and an honest client's handshake takes its round trip; words are
 * small enough to remember those of some seconds.
 *
 * The word of who began is found by what its answer acknowledges. That of who answered a SYN is found by the client's
 * ACK, by both of its numbers; it says nothing without the client's word, which is written again beside it.
 *
 * Lines of eight words lie behind the table's buckets, 16 lines in each. A new word pushes the oldest of its line out.
 * CPUs that write one line at once may lose a word or write it twice: no more than that.
 *
 *   63        30 29     22 21          6 5    2   1     0
 *   fingerprint | time    | window      | scale | SACK | scaling
 */
#ifndef SEGUE_CONNTRACK_BEGINNING_H
#define SEGUE_CONNTRACK_BEGINNING_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/conntrack/table.h"

#define BEGINNING_TIME_BITS 29 /* nanoseconds: a unit is 0.54 s, and 256 of them 137 s */

/*
 * What the fingerprint and the line follow from: the key, whose word it is, and for TCP what the other side
 * acknowledges of it. For the word of who answered `hash` is this of who began, instead of the key's.
 */
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

/* Not inlined for the sake of its callers' stack. */
static __attribute__((noinline)) u32 beginning_write(const struct segue_firewall *firewall, u64 hash, u64 word)
{
	u64 *line = beginning_line(firewall, hash);

	if (!line)
		return 0;
	for (int i = SEGUE_BEGINNING_WORDS - 1; i > 0; i--)
		line[i] = line[i - 1];
	line[0] = hash >> 30 << 30 | word;
	return 0;
}

/* What a side has said in its SYN, in a word's lower bits. */
INLINE u64 beginning_side(const struct segue_connection *connection, u32 from)
{
	u32 window = connection->side[from].window;

	/* More than 16 bits it cannot have said, but a server may have sent more than its SYN/ACK already. */
	window = window < 0xffff ? window : 0xffff;
	return window << 6 | (connection->scale[from] & 15) << 2 |
	       (connection->side_flags[from] & (SEGUE_SIDE_SCALING | SEGUE_SIDE_SACK));
}

/* `entry` gives way. */
INLINE void beginning_keep(const struct segue_firewall *firewall, const struct segue_connection_entry *entry, u64 now)
{
	const struct segue_connection *connection = &entry->connection;
	u32 forward = connection->forward, replied = connection->flags & SEGUE_CONNECTION_REPLIED;
	u64 time = (now >> BEGINNING_TIME_BITS & 0xff) << 22, hash;

	if (entry->key.protocol != PROTOCOL_TCP) {
		if (!replied)
			beginning_write(firewall, beginning_hash(entry->hash, forward, 0), time);
		return;
	}
	if (replied ? connection->state != SEGUE_TCP_SYN_RECV || connection->last_flags & SEGUE_LAST_SIMULTANEOUS
		    : connection->state != SEGUE_TCP_SYN_SENT)
		return;
	hash = beginning_hash(entry->hash, forward, connection->side[0].end);
	beginning_write(firewall, hash, time | beginning_side(connection, 0));
	if (!replied)
		return;
	hash = beginning_hash(hash, !forward, connection->side[1].end);
	beginning_write(firewall, hash, time | beginning_side(connection, 1));
}

/* The word of this hash that is no older than `most`; 0: there is none. */
INLINE u64 beginning_find(const struct segue_firewall *firewall, u64 hash, u64 now, u64 most)
{
	const u64 *line = beginning_line(firewall, hash);

	if (!line)
		return 0;
	for (u32 i = 0; i < SEGUE_BEGINNING_WORDS; i++) {
		u64 word = line[i];

		if (likely(word >> 30 != hash >> 30))
			continue;
		if (((now >> BEGINNING_TIME_BITS) - (word >> 22) & 0xff) <= most >> BEGINNING_TIME_BITS)
			return word;
	}
	return 0;
}

/* What the word of side `from` says, back where it was. */
INLINE void beginning_restore(struct segue_connection *connection, u32 from, u64 word, u32 end)
{
	connection->side[from].end = end;
	connection->side[from].limit = end;
	connection->side[from].window = word >> 6 & 0xffff;
	connection->scale[from] = word >> 2 & 15;
	connection->side_flags[from] = word & (SEGUE_SIDE_SCALING | SEGUE_SIDE_SACK);
}

#endif
