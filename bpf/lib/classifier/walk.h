/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The walk of lib/classifier/rules.h over one map of images. Included once for each such map, because a BPF function
 * knows only one size of map values; before it:
 *
 * CLASSIFIER(name): the names of the functions. CLASSIFIER_MAP: the map. CLASSIFIER_OCTETS: the constant that says how
 * large its value is. CLASSIFIER_FIRST, if defined: nobody asks for more than the first match, which saves stack.
 */
#ifndef SEGUE_CLASSIFIER_WALK_H
#define SEGUE_CLASSIFIER_WALK_H

#include "lib/base/maps.h"
#include "abi/classifier.h"

#define CLASSIFIER_NOTHING 0xffffffffU
#define CLASSIFIER_TOPS 0x8080808080808080ULL
/* Times 1 << 8 * n, the two highest bits are n. */
#define CLASSIFIER_PLACES (1ULL << 54 | 2ULL << 46 | 3ULL << 38)
#define CLASSIFIER_TARGET ((1ULL << SEGUE_SLOT_TARGET_BITS) - 1)

struct classifier_check_state {
	const struct segue_classifier_key *key;
	const u8 *image;
	u32 line;
	u32 number; /* of the next check, or how it ended */
};

/* As little as can be: the calls of a firewall that lead here take nearly all the stack that 6.1 allows. */
struct classifier_long_state {
	const struct segue_classifier_key *key;
	u64 slot;
	u32 after, best;
	u32 tried; /* of the group: bits as of classifier_passing */
};

/* Not 0: `value` is outside of first..last. Without a branch, which varying packets would mispredict. */
INLINE u64 classifier_outside(u64 value, u64 first, u64 last)
{
	u64 sign = (value - first) | (last - value);

	opaque(sign); /* else the compiler makes comparisons of it */
	return sign >> 63;
}

/* How many of a line's thresholds are less than the value. The last word of the line is unused: all ones. */
INLINE u64 classifier_above(const u32 *thresholds, u64 value)
{
	u64 count = 0;

#pragma unroll
	for (int i = 0; i < SEGUE_CLASSIFIER_THRESHOLDS; i++) {
		u64 sign = thresholds[i] - value;

		opaque(sign);
		count += sign >> 63;
	}
	return count;
}

/*
 * Which rules of a group may match a packet: the highest bits of the lower four octets. Each octet has 7 bits of a
 * number, so the highest bit stops what is borrowed.
 */
INLINE u64 classifier_passing(const struct segue_classifier_group *group, const struct segue_classifier_key *key,
			      u64 slot)
{
	u64 one = *(const u32 *)((const u8 *)key + (slot >> 28 & 0xfc));
	u64 other = *(const u32 *)((const u8 *)key + (slot >> 39 & 0x7c));
	u64 all, passing;

	one = one >> (slot >> 36 & 31) & 127;
	other = other >> (slot & 3) * SEGUE_CLASSIFIER_WINDOW_STEP & 127;
	all = (one | other << 32) * 0x01010101;
	passing = ((all | CLASSIFIER_TOPS) - group->low) & (group->high - all) & CLASSIFIER_TOPS;
	return passing & passing >> 32;
}

/* Line of the first rule of a group of those that pass; any if none does. */
INLINE u32 classifier_first(const struct segue_classifier_group *group, u64 passing)
{
	return group->line[((passing & -passing) >> 7) * CLASSIFIER_PLACES >> 62];
}

#endif

/* Octets at `offset`, which must be a multiple of `size`, and `size` a power of two of at most 64. */
#define CLASSIFIER_LOAD(image_, offset_, size_)                                                                        \
	((const void *)((image_) + ((u64)(offset_) & ((u64)(CLASSIFIER_OCTETS - 1) & ~((size_)-1ULL)))))

INLINE const u8 *CLASSIFIER(image)(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&CLASSIFIER_MAP, &zero);
}

/* A rule by its line. NULL only for the verifier. */
INLINE const struct segue_classifier_rule *CLASSIFIER(rule)(u32 line)
{
	const u8 *image = CLASSIFIER(image)();

	return image ? CLASSIFIER_LOAD(image, (u64)line * SEGUE_CLASSIFIER_LINE, 64) : NULL;
}

/* One check; returns 1 when the end is reached. */
static long CLASSIFIER(check)(u32 index, struct classifier_check_state *state)
{
	const struct segue_classifier_check *check;
	u64 word, inside;
	u32 next;

	(void)index;
	check = CLASSIFIER_LOAD(state->image, (u64)state->line * SEGUE_CLASSIFIER_LINE + state->number * 32, 32);
	word = *(const u64 *)((const u8 *)state->key + (check->word & 31) * 8);
	inside = ((word & check->mask) - check->low) <= check->span;
	next = inside != check->negate ? check->on_true : check->on_false;
	state->number = next;
	return next >= SEGUE_CHECK_FAIL;
}

/* What a rule asks beyond addresses, ports and protocol. Not 0: it holds. */
RARE int CLASSIFIER(checks)(u32 line, const struct segue_classifier_key *key)
{
	struct classifier_check_state state = {.key = key, .line = line};

	if (!key)
		return 0;
	state.image = CLASSIFIER(image)();
	if (!state.image)
		return 0;
	/* Most rules have one or two; the helper's call is dearer than they are. */
	for (int i = 0; i < 4; i++)
		if (CLASSIFIER(check)(0, &state))
			return state.number == SEGUE_CHECK_MATCH;
	bpf_loop(SEGUE_CLASSIFIER_CHECKS_MAX, CLASSIFIER(check), &state, 0);
	return state.number == SEGUE_CHECK_MATCH;
}

/* 0: a packet fits what the line of a rule says. */
INLINE u64 CLASSIFIER(wrong)(const struct segue_classifier_rule *rule, const struct segue_classifier_key *key)
{
	u64 wrong, flags = rule->flags;

	wrong = (rule->half[0] ^ key->source[0]) >> rule->shift[0] >> rule->shift_more[0];
	wrong |= (rule->half[1] ^ key->source[1]) >> rule->shift[1] >> rule->shift_more[1];
	wrong |= (rule->half[2] ^ key->destination[0]) >> rule->shift[2] >> rule->shift_more[2];
	wrong |= (rule->half[3] ^ key->destination[1]) >> rule->shift[3] >> rule->shift_more[3];
	wrong |= classifier_outside(key->source_port, rule->source_port_first, rule->source_port_last) & flags;
	wrong |= classifier_outside(key->destination_port, rule->destination_port_first, rule->destination_port_last) &
		 flags >> 1;
	wrong |= (u64)(key->protocol ^ rule->protocol) * (flags >> 2 & 1);
	return wrong | (u64)(key->family ^ rule->family) * (flags >> 3 & 1);
}

/* One rule of a leaf, or on to its next group; returns 1 when a rule is found or there is no more. */
static long CLASSIFIER(step)(u32 index, struct classifier_long_state *state)
{
	const u8 *image = CLASSIFIER(image)();
	const struct segue_classifier_group *group;
	const struct segue_classifier_rule *rule;
	u64 passing;
	u32 line;

	(void)index;
	if (!image)
		return 1;
	group = CLASSIFIER_LOAD(image, (state->slot & CLASSIFIER_TARGET) * 8, 32);
	passing = classifier_passing(group, state->key, state->slot) & ~(u64)state->tried;
	if (!passing) {
		state->slot += sizeof(*group) / 8;
		state->tried = 0;
		return !group->line[SEGUE_CLASSIFIER_ENTRIES - 1];
	}
	state->tried |= passing & -passing;
	line = classifier_first(group, passing);
	if (line >= state->best)
		return 1;
	rule = CLASSIFIER_LOAD(image, (u64)line * SEGUE_CLASSIFIER_LINE, 64);
	if (line <= state->after || CLASSIFIER(wrong)(rule, state->key))
		return 0;
	if (rule->checks && !CLASSIFIER(checks)(rule->checks, state->key))
		return 0;
	state->best = line;
	return 1;
}

/* The first match behind `after` and before `best` in a leaf of more than one group; else `best`. */
RARE u32 CLASSIFIER(leaf)(u64 slot, const struct segue_classifier_key *key, u32 after, u32 best)
{
	struct classifier_long_state state = {.key = key, .slot = slot, .after = after, .best = best};

	if (!key)
		return best;
	bpf_loop(1 << 23, CLASSIFIER(step), &state, 0);
	return state.best;
}

#ifdef CLASSIFIER_FIRST
#define CLASSIFIER_AFTER
#else
#define CLASSIFIER_AFTER , u32 after
#endif

/*
 * Line of the first rule of `chain` that matches and lies behind line `after`; 0: none. Inlined where a packet's first
 * find is: to return from a function costs as much as a node of a tree where the kernel guards returns.
 */
INLINE u32 CLASSIFIER(find_here)(u32 chain, const struct segue_classifier_key *key CLASSIFIER_AFTER)
{
	const u8 *image = CLASSIFIER(image)();
	const struct segue_classifier_root *root;
#ifdef CLASSIFIER_FIRST
	const u32 after = 0;
#endif
	/*
	 * The line of the best match, and in the upper half what `first` of a slot may be: one less than what stands
	 * for nothing, then the best match's. One word, because stack is short.
	 */
	u64 best = CLASSIFIER_NOTHING | (u64)((1U << SEGUE_SLOT_FIRST_BITS) - 2) << 32;

	if (!image || !key)
		return 0;
	chain += key->family == 4 ? 0 : key->family == 6 ? 1 : 2;
	root = CLASSIFIER_LOAD(image, (u64)chain * SEGUE_CLASSIFIER_LINE, 64);
	for (u32 tree = 0; tree < SEGUE_CLASSIFIER_TREES; tree++) {
		const struct segue_classifier_group *group;
		const struct segue_classifier_rule *rule;
		u64 slot, passing, target, value;
		u32 kind, line;

		if (tree >= root->trees)
			break;
		slot = root->tree[tree];
		for (int depth = 0; depth < SEGUE_CLASSIFIER_DEPTH_MAX; depth++) {
			kind = slot >> SEGUE_SLOT_TARGET_BITS & 3;
			if (kind < SEGUE_SLOT_CUT || slot >> SEGUE_SLOT_FIRST_SHIFT > best >> 32)
				break;
			target = slot & CLASSIFIER_TARGET;
			value = *(const u32 *)((const u8 *)key + (slot >> 28 & 0xfc));
			if (kind == SEGUE_SLOT_CUT)
				target += value >> (slot >> 36 & 31) & ((1U << (slot >> 41 & 31)) - 1);
			else
				target += 8 + classifier_above(CLASSIFIER_LOAD(image, target * 8, 64), value);
			slot = *(const u64 *)CLASSIFIER_LOAD(image, target * 8, 8);
		}
		if (slot >> SEGUE_SLOT_FIRST_SHIFT > best >> 32)
			continue; /* nothing there, or nothing before the match that another tree had */
		line = 0;
		if (unlikely(slot & 1ULL << SEGUE_SLOT_TARGET_BITS)) {
			line = CLASSIFIER(leaf)(slot, key, after, (u32)best);
		} else {
			group = CLASSIFIER_LOAD(image, (slot & CLASSIFIER_TARGET) * 8, 32);
			passing = classifier_passing(group, key, slot);
			for (int i = 0; i < SEGUE_CLASSIFIER_ENTRIES; i++) {
				if (!passing)
					break;
				line = classifier_first(group, passing);
				rule = CLASSIFIER_LOAD(image, (u64)line * SEGUE_CLASSIFIER_LINE, 64);
				if (line > after && !CLASSIFIER(wrong)(rule, key) &&
				    (!rule->checks || CLASSIFIER(checks)(rule->checks, key)))
					break;
				passing &= passing - 1;
				line = 0;
			}
		}
		if (line && line < (u32)best)
			best = line | (u64)((line - root->rules) >> (root->first_shift & 31)) << 32;
	}
	return (u32)best == CLASSIFIER_NOTHING ? 0 : best;
}

RARE u32 CLASSIFIER(find)(u32 chain, const struct segue_classifier_key *key CLASSIFIER_AFTER)
{
#ifdef CLASSIFIER_FIRST
	return CLASSIFIER(find_here)(chain, key);
#else
	return CLASSIFIER(find_here)(chain, key, after);
#endif
}

#undef CLASSIFIER_LOAD
#undef CLASSIFIER_FIRST
#undef CLASSIFIER_AFTER
#undef CLASSIFIER_OCTETS
#undef CLASSIFIER_MAP
#undef CLASSIFIER
