/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From the top of a stack to the first label that leads on: those that are this node's own come off (RFC 8660, NEXT),
 * and entropy labels with them, or before them, where the node before this one has popped (RFC 6790 section 4.3).
 */
#ifndef SEGUE_LABELS_WALK_H
#define SEGUE_LABELS_WALK_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/labels/entry.h"

#define LABELS_OWN_MAX 8 /* labels of this node itself in a row */

struct label_found {
	u32 off;     /* octets of the labels in front of it, which come off */
	u32 word;    /* its entry, in host byte order; ENTRY_BOTTOM: nothing is left behind it */
	u32 ttl;     /* that it came with, or in uniform mode those in front of it (RFC 3443 section 3.4) */
	u32 index;   /* in `sid_entries` */
	u32 frame;   /* octets of the frame */
	u32 special; /* 1: an explicit null */
};

/*
 * The octets of an entropy label and its indicator, where they lie at `at` (RFC 6790 section 3), with ENTRY_BOTTOM if
 * nothing is behind them. 0: there is none, or half of one.
 */
INLINE u32 entropy_at(const u8 *at, const void *end)
{
	if ((const void *)(at + 2 * ENTRY_LENGTH) > end || !entry_indicates(*(const u32 *)at) || at[2] & 1)
		return 0;
	return 2 * ENTRY_LENGTH | (at[ENTRY_LENGTH + 2] & 1 ? ENTRY_BOTTOM : 0);
}

/*
 * An entropy label right behind a label that ends here comes off with that one. Not behind a firewall's, which stays in
 * front of the packet until the rules have let it pass.
 */
RARE int entropy_off(buffer *ctx, struct label_found *found, u32 behaviour)
{
	u32 pair = unknown_zero(buffer_interface(ctx));

	if (!found)
		return 0;
	switch (behaviour) {
	case SEGUE_LABEL_TABLE:
	case SEGUE_LABEL_NEXT_HOP:
	case SEGUE_LABEL_STATIC:
	case SEGUE_LABEL_DYNAMIC:
		if (found->word & ENTRY_BOTTOM)
			break;
		pair = entropy_at(buffer_start(ctx) + ((ETHERNET_LENGTH + found->off + ENTRY_LENGTH) & OFFSET_MASK),
				  buffer_end(ctx));
	}
	opaque(pair);
	found->off += pair & ~ENTRY_BOTTOM;
	found->word |= pair & ENTRY_BOTTOM;
	return 0;
}

/*
 * The stack ends with an entropy label whose entry is at `at`, and no other label of this node says what becomes of the
 * packet behind it: explicit null of its family does.
 */
INLINE u32 entropy_last(u64 epoch, const u8 *at, const void *end, u32 *index)
{
	u32 label = LABEL_IPV4_EXPLICIT_NULL;

	if ((const void *)(at + ENTRY_LENGTH + 1) > end)
		return SEGUE_OUTCOME_drop_label_bottom;
	if (at[ENTRY_LENGTH] >> 4 == 6)
		label = LABEL_IPV6_EXPLICIT_NULL;
	return label_find(epoch, label, index) ? 0 : SEGUE_OUTCOME_drop_label_unknown;
}

/* The outcome of what cannot go on, or 0 and `found` is filled but for `frame`. */
RARE int labels_walk(buffer *ctx, u64 epoch, u32 config_flags, struct label_found *found)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 ttl = 0, at = unknown_zero(buffer_interface(ctx)), own = SEGUE_NONE;

	if (!found)
		return SEGUE_OUTCOME_drop_label_bottom;
	for (u32 i = 0; i < LABELS_OWN_MAX; i++) {
		const struct segue_sid *sid;
		const u8 *entry;
		u32 word, index = 0, pair;

		at &= OFFSET_MASK;
		entry = data + ETHERNET_LENGTH + at;
		if ((void *)(entry + ENTRY_LENGTH) > end)
			return SEGUE_OUTCOME_drop_label_bottom;
		word = entry_load(entry);
		if (!i || !(config_flags & SEGUE_CONFIG_TTL_UNIFORM))
			ttl = ENTRY_TTL(word);
		pair = entropy_at(entry, end);
		if (unlikely(pair)) {
			at += 2 * ENTRY_LENGTH;
			if (!(pair & ENTRY_BOTTOM))
				continue;
			if (own == SEGUE_NONE && entropy_last(epoch, entry + ENTRY_LENGTH, end, &own))
				return SEGUE_OUTCOME_drop_label_bottom;
			at -= ENTRY_LENGTH;
			word |= ENTRY_BOTTOM;
			index = own;
		} else {
			sid = label_find(epoch, ENTRY_LABEL(word), &index);
			if (!sid)
				return ENTRY_LABEL(word) < LABELS_SPECIAL ? SEGUE_OUTCOME_drop_label_reserved
									  : SEGUE_OUTCOME_drop_label_unknown;
			if (ttl && sid->behaviour == SEGUE_LABEL_NODE && !(word & ENTRY_BOTTOM)) {
				at += ENTRY_LENGTH;
				own = index;
				continue;
			}
		}
		if (!ttl)
			return SEGUE_OUTCOME_drop_label_ttl;
		found->off = at;
		found->word = word;
		found->ttl = ttl;
		found->index = index;
		found->special = ENTRY_LABEL(word) < LABELS_SPECIAL;
		return 0;
	}
	return SEGUE_OUTCOME_drop_label_depth;
}

/*
 * A stage goes on with a packet with labels, of which nothing has been changed: the entry of the first label that leads
 * on, which is `found`. NULL: the packet has ended with `action`.
 */
INLINE const struct segue_sid *labels_resume(struct packet *packet, struct label_found *found, int *action)
{
	const struct segue_sid *sid;
	u32 outcome;

	packet->length = found->frame - ETHERNET_LENGTH;
	outcome = labels_walk(packet->ctx, packet->epoch, packet->port->config_flags, found);
	if (unlikely(outcome)) {
		*action = drop(packet, outcome & (SEGUE_OUTCOMES_MAX - 1));
		return NULL;
	}
	sid = bpf_map_lookup_elem(&sid_entries, &found->index);
	if (unlikely(!sid))
		*action = drop(packet, SEGUE_OUTCOME_drop_label_unknown);
	return sid;
}

/* Does a label leave it to the next one of the stack where the packet goes, here? */
INLINE int behaviour_asks_next(u32 behaviour)
{
	switch (behaviour) {
	case SEGUE_LABEL_NODE:
	case SEGUE_LABEL_STATIC:
	case SEGUE_LABEL_DYNAMIC:
	case SEGUE_LABEL_FIREWALL:
	case SEGUE_LABEL_INSTANCES:
	case SEGUE_LABEL_AWARE:
		return 1;
	}
	return 0;
}

/*
 * Is it known here that a frame is behind the stack of which an entry for this node lies at the offset `at`: does it
 * come to the label of a pseudowire of this node? Behind a label that leads elsewhere they are another node's labels,
 * whatever they mean here. 1: yes.
 */
RARE u32 labels_frame_behind(buffer *ctx, u64 epoch, u32 at)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);

	at += unknown_zero(buffer_interface(ctx));
	for (int i = 0; i <= SEGUE_LABELS_MAX; i++) {
		const struct segue_sid *sid;
		const u8 *entry;
		u32 word, index = 0, pair;

		at &= OFFSET_MASK;
		entry = data + at;
		if ((void *)(entry + ENTRY_LENGTH) > end)
			return 0;
		word = entry_load(entry);
		pair = entropy_at(entry, end);
		at += ENTRY_LENGTH;
		if (pair) {
			if (pair & ENTRY_BOTTOM)
				return 0;
			at += ENTRY_LENGTH;
			continue;
		}
		sid = label_find(epoch, ENTRY_LABEL(word), &index);
		if (!sid)
			return 0;
		if (sid->behaviour == SEGUE_LABEL_PSEUDOWIRE)
			return 1;
		if (word & ENTRY_BOTTOM || !behaviour_asks_next(sid->behaviour))
			return 0;
	}
	return 0;
}

#endif
