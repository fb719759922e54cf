/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A stack of labels (RFC 3032) as a steering header: what is behind the label of a function, from the next entry to the
 * bottom, perhaps nothing. One of the kinds of lib/header/header.h.
 */
#ifndef SEGUE_HEADER_LABELS_H
#define SEGUE_HEADER_LABELS_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/packet/stage.h"
#include "lib/labels/entry.h"
#include "lib/header/srv6.h"
#include "lib/proxy/stash.h"

/*
 * The rest of a stack in the frame: its length, the offset of its first entry, the TTL that this one goes on with (0:
 * its own), enum segue_stash_flags. With SEGUE_STASH_TRAFFIC_CLASS_COPY all entries have the TC of the packet behind
 * them.
 */
#define LABELS_SHAPE(length, at, ttl, flags) STASH_SHAPE(length, at, ttl, flags)
#define LABELS_SHAPE_LENGTH(shape) ((u32)(shape)&0xffff)
#define LABELS_SHAPE_AT(shape) ((u32)((shape) >> 16) & OFFSET_MASK)
#define LABELS_SHAPE_TTL(shape) ((u32)((shape) >> 32) & 0xff)
#define LABELS_SHAPE_FLAGS(shape) ((u32)((shape) >> 48) & 0xff)

/* What of an entry is remembered, in packet order. */
INLINE u32 labels_mask(u32 flags)
{
	return flags & SEGUE_STASH_TRAFFIC_CLASS_COPY ? ~bpf_htonl(ENTRY_CLASS) : ~0U;
}

/*
 * The same of the entry behind `before`: an entropy label is each flow's own, so that with SEGUE_STASH_ENTROPY it is
 * made anew for the packet that comes back. 0 as a label: nothing is remembered there.
 */
INLINE u32 labels_mask_behind(u32 before, u32 flags, u32 mask)
{
	u32 kept = flags & SEGUE_STASH_ENTROPY ? bpf_htonl(ENTRY_CLASS_AND_BOTTOM) : ~0U;

	return mask & (kept | entry_indicates_not(before));
}

/* Would the rest of the frame's stack go back on as this one does? TTLs of the first label that differ by less than
 * `margin` make no difference. */
INLINE int labels_same(const struct segue_stash *entry, const void *data, const void *end, u64 shape, u32 margin)
{
	const u32 *known = (const u32 *)entry->header;
	u32 length = LABELS_SHAPE_LENGTH(shape), at = LABELS_SHAPE_AT(shape), flags = LABELS_SHAPE_FLAGS(shape);
	u32 mask = labels_mask(flags), difference = 0, before = 0, ttl;

	if (entry->length != length || entry->flags != flags || entry->hop_limit != (u8)(shape >> 56))
		return 0;
	for (u32 i = 0; i < SEGUE_LABELS_MAX; i++) {
		const u32 *word = data + at + i * ENTRY_LENGTH;

		if (i * ENTRY_LENGTH >= length)
			break;
		if ((const void *)(word + 1) > end)
			return 0;
		if (i) {
			difference |= (*word & labels_mask_behind(before, flags, mask)) ^ known[i];
			before = *word;
			continue;
		}
		before = *word;
		difference = ((*word & mask) ^ known[0]) & ~bpf_htonl(0xff);
		ttl = LABELS_SHAPE_TTL(shape) ?: ENTRY_TTL(bpf_ntohl(*word));
		ttl -= ENTRY_TTL(bpf_ntohl(known[0]));
		difference |= ttl + margin - 1 > 2 * (margin - 1);
	}
	return !difference;
}

/* Makes the content of scratch->stash from the frame. The hash, or 0: it cannot be remembered. */
INLINE u64 labels_prepare(buffer *ctx, struct segue_stash *draft, u64 shape, u64 scope)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 length = LABELS_SHAPE_LENGTH(shape), at = LABELS_SHAPE_AT(shape), before = 0, mask;
	u64 *content = (u64 *)draft->header, hash;
	u32 *to = (u32 *)draft->header;

	if (length > SEGUE_LABELS_MAX * ENTRY_LENGTH || length & 3)
		return 0;
	draft->scope = scope;
	draft->kind = SEGUE_HEADER_MPLS;
	draft->length = length;
	draft->next_header = 0;
	draft->flags = LABELS_SHAPE_FLAGS(shape);
	draft->hop_limit = shape >> 56;
	mask = labels_mask(draft->flags);
	for (int i = 0; i < STASH_WORDS; i++)
		content[i] = 0;
	for (u32 i = 0; i < SEGUE_LABELS_MAX; i++) {
		const u32 *word = data + at + i * ENTRY_LENGTH;

		if (i * ENTRY_LENGTH >= length)
			break;
		if ((const void *)(word + 1) > end)
			return 0;
		to[i] = *word & labels_mask_behind(before, draft->flags, mask);
		before = *word;
	}
	if (length && LABELS_SHAPE_TTL(shape))
		draft->header[ENTRY_LENGTH - 1] = LABELS_SHAPE_TTL(shape);
	hash = stash_mix(scope, length | (u64)draft->flags << 32 | (u64)draft->hop_limit << 40);
	for (int i = 0; i < STASH_WORDS; i++)
		hash = stash_mix(hash, content[i]);
	return hash ?: 1;
}

/* Copies a remembered stack, with `fill`, TC in packet order, in each entry, and the flow's entropy labels. 0: done. */
INLINE int labels_copy(void *to, const void *end, const struct segue_stash *entry, u32 fill, u32 flow)
{
	u32 entropy = entry->flags & SEGUE_STASH_ENTROPY ? bpf_htonl(entropy_entry(flow)) : 0, behind = 0;
	const u32 *from = (const u32 *)entry->header;
	u32 *word = to;

	for (u32 i = 0; i < SEGUE_LABELS_MAX; i++) {
		if (i * ENTRY_LENGTH >= entry->length)
			break;
		if ((const void *)(word + i + 1) > end)
			return -1;
		word[i] = from[i] | fill | behind;
		behind = entropy & ~entry_indicates_not(from[i]);
	}
	return 0;
}

#endif
