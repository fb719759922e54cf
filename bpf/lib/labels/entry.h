/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Label stack entries (RFC 3032 section 2.1), and what this node does with a label. */
#ifndef SEGUE_LABELS_ENTRY_H
#define SEGUE_LABELS_ENTRY_H

#include "lib/base/types.h"
#include "lib/base/maps.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"

#define ENTRY_LENGTH 4

/* Of an entry in host byte order. */
#define ENTRY_BOTTOM 0x100
#define ENTRY_CLASS 0xe00
#define ENTRY_CLASS_AND_BOTTOM 0xf00
#define ENTRY_LABEL(word) ((word) >> 12)
#define ENTRY_TTL(word) ((word)&0xff)

#define LABEL_IPV4_EXPLICIT_NULL 0
#define LABEL_IPV6_EXPLICIT_NULL 2
#define LABEL_IMPLICIT_NULL 3	  /* none */
#define LABEL_ENTROPY_INDICATOR 7 /* RFC 6790 section 3 */
#define LABELS_SPECIAL 16	  /* lower ones are special-purpose labels (RFC 7274) */

/* Labels of this node and of each generation: indices in `sid_entries`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct segue_label_key);
	__type(value, u32);
} labels SEC(".maps");

/*
 * Labels that packets had lately. An entry belongs to its epoch, as those of adjacencies do: in one generation a label
 * leads to one index. What is at that index may change in place, and is looked up there.
 */
struct label_cached {
	u64 epoch;
	u32 label;
	u32 index; /* in `sid_entries` */
};

#define LABEL_CACHE_BITS 10
PERCPU(labels_cached, struct label_cached, 1 << LABEL_CACHE_BITS);

/* Unknown labels leave the cache alone: nobody can empty it by them. The index, or SEGUE_NONE. */
RARE u32 label_resolve(u64 epoch, u32 label, struct label_cached *entry)
{
	struct segue_label_key key = {.generation = epoch, .label = label};
	u32 *found = bpf_map_lookup_elem(&labels, &key);

	if (!found || !entry)
		return SEGUE_NONE;
	entry->epoch = epoch;
	entry->label = label;
	entry->index = *found;
	return *found;
}

INLINE const struct segue_sid *label_find(u64 epoch, u32 label, u32 *index)
{
	u32 slot = (label ^ label >> LABEL_CACHE_BITS) & ((1 << LABEL_CACHE_BITS) - 1);
	struct label_cached *entry = bpf_map_lookup_elem(&labels_cached, &slot);

	if (unlikely(!entry))
		return NULL;
	*index = entry->index;
	if (unlikely(entry->epoch != epoch || entry->label != label))
		*index = label_resolve(epoch, label, entry);
	return bpf_map_lookup_elem(&sid_entries, index);
}

/* The same for one of several paths of a label. */
INLINE const struct segue_sid *label_path_find(u64 epoch, u32 label, u32 path)
{
	u32 slot = (label ^ label >> LABEL_CACHE_BITS ^ path * 0x35) & ((1 << LABEL_CACHE_BITS) - 1), index;
	struct label_cached *entry = bpf_map_lookup_elem(&labels_cached, &slot);

	if (unlikely(!entry))
		return NULL;
	label |= path << SEGUE_LABEL_PATH_SHIFT;
	index = entry->index;
	if (unlikely(entry->epoch != epoch || entry->label != label))
		index = label_resolve(epoch, label, entry);
	return bpf_map_lookup_elem(&sid_entries, &index);
}

/* The same for one of the instances of a label's function, by its number in packet order: not cached. */
INLINE const struct segue_sid *label_instance_find(u64 epoch, u32 label, u32 instance)
{
	struct segue_label_key key = {.generation = epoch, .label = label, .instance = instance};
	u32 *found = bpf_map_lookup_elem(&labels, &key);

	return found ? bpf_map_lookup_elem(&sid_entries, found) : NULL;
}

#define FLOW_MIX 0x9e3779b97f4a7c15ULL

/*
 * The entry of a flow's entropy label, in host byte order, but for TC and the bottom of the stack. Its TTL is 0, so
 * that nobody forwards by it, and it is no special-purpose label (RFC 6790 section 4.2).
 */
INLINE u32 entropy_entry(u32 flow)
{
	u32 label = flow * FLOW_MIX >> 44;

	return (label < LABELS_SPECIAL ? label | LABELS_SPECIAL : label) << 12;
}

/* Is it an entropy label indicator? `entry`: in packet order. */
INLINE int entry_indicates(u32 entry)
{
	return (entry & bpf_htonl(~0U << 12)) == bpf_htonl(LABEL_ENTROPY_INDICATOR << 12);
}

/* The same in all bits, and the other way round: ~0 unless it is one. Without a branch, of which each doubles what the
 * verifier has to follow. */
INLINE u32 entry_indicates_not(u32 entry)
{
	u32 differs = (entry ^ bpf_htonl(LABEL_ENTROPY_INDICATOR << 12)) & bpf_htonl(~0U << 12), low;

	low = differs & -differs;
	opaque(low);
	return 0 - ((differs | (0 - low)) >> 31);
}

/* The entry at `at` in host byte order; it lies in the frame. */
INLINE u32 entry_load(const void *at)
{
	return bpf_ntohl(*(const u32 *)at);
}

/* TC of a packet's traffic class, as it lies in an entry: the highest three bits of the DSCP (RFC 3270 section 2.6: a
 * local mapping; this is that of class selectors). */
INLINE u32 class_in_entry(u32 traffic_class)
{
	return bpf_htonl((traffic_class >> 5 & 7) << 9);
}

INLINE void entry_store(void *at, u32 word)
{
	*(u32 *)at = bpf_htonl(word);
}

/*
 * What is behind a stack of which the rest begins at the offset `at`: the offset of the inner IP packet in the low
 * half, its family by the first nibble in the high one. 0: the stack does not end where it can be seen, or there is no
 * IP packet behind it.
 */
RARE u32 labels_inside(buffer *ctx, u32 at)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);

	for (int i = 0; i <= 2 * SEGUE_LABELS_MAX; i++) {
		const u8 *octet;
		u32 family;

		at &= OFFSET_MASK;
		octet = data + at;
		if ((void *)(octet + ENTRY_LENGTH + 1) > end)
			return 0;
		at += ENTRY_LENGTH;
		if (!(octet[2] & 1))
			continue;
		family = octet[ENTRY_LENGTH] >> 4;
		return family == 4 || family == 6 ? at | family << 16 : 0;
	}
	return 0;
}

/* Where a stack ends, and what is behind it. */
struct labels_end {
	u32 inside;  /* offset of the inner IP packet */
	u32 family;  /* of that, by its first four bits */
	u32 class;   /* TC of the entries, as in an entry in host byte order; LABELS_CLASSES: they have several */
	u32 entropy; /* not 0: there are entropy labels among them */
};

#define LABELS_CLASSES 1

/*
 * The end of a stack of which an entry lies at the offset `at`; `class` is of those behind that one. 0: found; else the
 * outcome.
 */
RARE u32 labels_end(buffer *ctx, u32 at, struct labels_end *found)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 some = unknown_zero(buffer_interface(ctx)), each = ENTRY_CLASS ^ some, entropy = some;

	if (!found)
		return SEGUE_OUTCOME_drop_label_bottom;
	for (int i = 0; i <= SEGUE_LABELS_MAX; i++) {
		const u8 *octet;
		u32 word;

		at &= OFFSET_MASK;
		octet = data + at;
		if ((void *)(octet + ENTRY_LENGTH + 1) > end)
			return SEGUE_OUTCOME_drop_label_bottom;
		at += ENTRY_LENGTH;
		word = entry_load(octet);
		entropy |= ~entry_indicates_not(*(const u32 *)octet);
		if (i) {
			some |= word & ENTRY_CLASS;
			each &= word;
		}
		if (!(word & ENTRY_BOTTOM))
			continue;
		found->inside = at;
		found->family = octet[ENTRY_LENGTH] >> 4;
		found->class = !some || some == each ? some : LABELS_CLASSES;
		found->entropy = entropy;
		return found->family == 4 || found->family == 6 ? 0 : SEGUE_OUTCOME_drop_label_not_ip;
	}
	return SEGUE_OUTCOME_drop_label_depth;
}

#endif
