/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the rule that a packet matches: the walk over the structure of include/abi/classifier.h. Its twin in Rust is
 * crates/classifier/src/execute.rs.
 *
 * How to use it:
 *
 * u32 line = classifier_find(chain, key, 0): the first rule of the chain that matches; 0: none.
 *
 * u32 line = classifier_find(chain, key, line): the first one behind that. Only for a rule that does not end the chain
 * (it logs, marks, jumps, or an extension of it failed): what nobody can get to behind a rule may be left out of the
 * structure.
 *
 * const struct segue_classifier_rule *rule = classifier_rule(line); u32 row = classifier_number(chain, line).
 *
 * `chain` is the line of a chain in map `classifier`: the agent writes it where the packet's port or SID says which
 * rules apply, and switches to another image by that one word. `key` lies in a map (256 octets are too much for the
 * stack), is aligned to 8 and filled as the ABI says.
 *
 * Whoever executes a program (iptables' semantics, crates/classifier/src/interpreter.rs): find; no line: the chain's
 * end (policy, or back to the caller). A rule with SEGUE_RULE_EXTENSIONS: ask its limits and sets; if one fails, find
 * again behind it. Else count the rule (by its number) and do what `action` says; after LOG, NFLOG, MARK and CONTINUE
 * find again behind it. At most SEGUE_CLASSIFIER_STEPS_MAX rules, SEGUE_CLASSIFIER_CALLS_MAX chains.
 *
 * The map is one value of `classifier_size` octets, a power of two: the verifier sees that a masked offset lies within,
 * and no lookup is needed for each line. The loader sets map value size and constant before it loads (both to the
 * same).
 */
#ifndef SEGUE_CLASSIFIER_H
#define SEGUE_CLASSIFIER_H

#include "base.h"
#include "abi/classifier.h"

#ifndef CLASSIFIER_SIZE
#define CLASSIFIER_SIZE (1U << 16)
#endif

/* Octets of map `classifier`. A power of two; the loader's to change, together with the map's value size. */
const volatile u32 classifier_size = CLASSIFIER_SIZE;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, CLASSIFIER_SIZE);
} classifier SEC(".maps");

#define CLASSIFIER_NOTHING 0xffffffffU
#define CLASSIFIER_TARGET ((1ULL << SEGUE_SLOT_TARGET_BITS) - 1)

/* Octets at `offset`, which must be a multiple of `size`, and `size` a power of two of at most 64. */
#define classifier_load(image_, offset_, size_)                                                                        \
	((const void *)((image_) + ((u64)(offset_) & ((u64)(classifier_size - 1) & ~((size_)-1ULL)))))

INLINE const u8 *classifier_image(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&classifier, &zero);
}

/* A rule by its line. NULL only for the verifier. */
INLINE const struct segue_classifier_rule *classifier_rule(u32 line)
{
	const u8 *image = classifier_image();

	return image ? classifier_load(image, (u64)line * SEGUE_CLASSIFIER_LINE, 64) : NULL;
}

/* Any other line: root, header, mark. */
#define classifier_line(type_, line_) ((const type_ *)(const void *)classifier_rule(line_))

/* A rule's number among those of its image: its row in tables beside the image. `chain`: any chain of the image. */
INLINE u32 classifier_number(u32 chain, u32 line)
{
	const struct segue_classifier_root *root = classifier_line(struct segue_classifier_root, chain);

	return root ? line - root->image_rules : 0;
}

struct classifier_check_state {
	const struct segue_classifier_key *key;
	const u8 *image;
	u32 line;
	u32 number; /* of the next check, or how it ended */
};

/* One check; returns 1 when the end is reached. */
static long classifier_check(u32 index, struct classifier_check_state *state)
{
	const struct segue_classifier_check *check;
	u64 word, inside;
	u32 next;

	(void)index;
	check = classifier_load(state->image, (u64)state->line * SEGUE_CLASSIFIER_LINE + state->number * 32, 32);
	word = *(const u64 *)((const u8 *)state->key + (check->word & 31) * 8);
	inside = ((word & check->mask) - check->low) <= check->span;
	next = inside != check->negate ? check->on_true : check->on_false;
	state->number = next;
	return next >= SEGUE_CHECK_FAIL;
}

/* What a rule asks beyond addresses, ports and protocol. Not 0: it holds. */
RARE int classifier_checks(u32 line, const struct segue_classifier_key *key)
{
	struct classifier_check_state state = {.key = key, .line = line};

	if (!key)
		return 0;
	state.image = classifier_image();
	if (!state.image)
		return 0;
	/* Most rules have one or two; the helper's call is dearer than they are. */
	for (int i = 0; i < 4; i++)
		if (classifier_check(0, &state))
			return state.number == SEGUE_CHECK_MATCH;
	bpf_loop(SEGUE_CLASSIFIER_CHECKS_MAX, classifier_check, &state, 0);
	return state.number == SEGUE_CHECK_MATCH;
}

/* Not 0: `value` is outside of first..last. Without a branch, which varying packets would mispredict. */
INLINE u64 classifier_outside(u64 value, u64 first, u64 last)
{
	u64 sign = (value - first) | (last - value);

	opaque(sign); /* else the compiler makes comparisons of it */
	return sign >> 63;
}

/* Whether the rule at `line` matches. */
INLINE int classifier_matches(const u8 *image, u32 line, const struct segue_classifier_key *key)
{
	const struct segue_classifier_rule *rule = classifier_load(image, (u64)line * SEGUE_CLASSIFIER_LINE, 64);
	u64 wrong, flags;

	wrong = (rule->half[0] ^ key->source[0]) >> rule->shift[0] >> rule->shift_more[0];
	wrong |= (rule->half[1] ^ key->source[1]) >> rule->shift[1] >> rule->shift_more[1];
	wrong |= (rule->half[2] ^ key->destination[0]) >> rule->shift[2] >> rule->shift_more[2];
	wrong |= (rule->half[3] ^ key->destination[1]) >> rule->shift[3] >> rule->shift_more[3];
	flags = rule->flags;
	wrong |= classifier_outside(key->source_port, rule->source_port_first, rule->source_port_last) & flags;
	wrong |= classifier_outside(key->destination_port, rule->destination_port_first, rule->destination_port_last) &
		 flags >> 1;
	wrong |= (u64)(key->protocol ^ rule->protocol) * (flags >> 2 & 1);
	wrong |= (u64)(key->family ^ rule->family) * (flags >> 3 & 1);
	if (wrong)
		return 0;
	return !rule->checks || classifier_checks(rule->checks, key);
}

/* As little as can be: the calls of a firewall that lead here take nearly all the stack that 6.1 allows. */
struct classifier_long_state {
	const struct segue_classifier_key *key;
	u64 list; /* offset of the first line number */
	u32 after, best;
};

static long classifier_long_step(u32 index, struct classifier_long_state *state)
{
	const u8 *image = classifier_image();
	u32 line;

	if (!image)
		return 1;
	line = *(const u32 *)classifier_load(image, state->list + 4ULL * index, 4);
	if (line >= state->best)
		return 1;
	if (line > state->after && classifier_matches(image, line, state->key)) {
		state->best = line;
		return 1;
	}
	return 0;
}

/* A leaf with more rules than are walked in place: many rules that overlap in all that a tree can divide. */
RARE u32 classifier_long(u32 slot, const struct segue_classifier_key *key, u32 after, u32 best)
{
	struct classifier_long_state state = {.key = key, .after = after, .best = best, .list = slot * 8ULL + 4};

	const u8 *image = classifier_image();

	if (!key || !image)
		return best;
	bpf_loop(*(const u32 *)classifier_load(image, slot * 8ULL, 4), classifier_long_step, &state, 0);
	return state.best;
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

/* Line of the first rule of `chain` that matches and lies behind line `after`; 0: none. */
RARE u32 classifier_find(u32 chain, const struct segue_classifier_key *key, u32 after)
{
	const u8 *image = classifier_image();
	const struct segue_classifier_root *root;
	u32 best = CLASSIFIER_NOTHING, shift;
	/* What `first` of a slot may be: one less than what stands for nothing, then the best match's. */
	u64 bound = (1U << SEGUE_SLOT_FIRST_BITS) - 2;

	if (!image || !key)
		return 0;
	chain += key->family == 4 ? 0 : key->family == 6 ? 1 : 2;
	root = classifier_load(image, (u64)chain * SEGUE_CLASSIFIER_LINE, 64);
	shift = root->first_shift & 31;
	for (u32 tree = 0; tree < SEGUE_CLASSIFIER_TREES; tree++) {
		u64 slot, target, value;
		u32 kind, count, line;

		if (tree >= root->trees)
			break;
		slot = root->tree[tree];
		for (int depth = 0; depth < SEGUE_CLASSIFIER_DEPTH_MAX; depth++) {
			kind = slot >> SEGUE_SLOT_TARGET_BITS & 3;
			if (kind < SEGUE_SLOT_CUT || slot >> SEGUE_SLOT_FIRST_SHIFT > bound)
				break;
			target = slot & CLASSIFIER_TARGET;
			value = *(const u32 *)((const u8 *)key + (slot >> 28 & 0xfc));
			if (kind == SEGUE_SLOT_CUT)
				target += value >> (slot >> 36 & 31) & ((1U << (slot >> 41 & 31)) - 1);
			else
				target += 8 + classifier_above(classifier_load(image, target * 8, 64), value);
			slot = *(const u64 *)classifier_load(image, target * 8, 8);
		}
		if (slot >> SEGUE_SLOT_FIRST_SHIFT > bound)
			continue; /* nothing there, or nothing before the match that another tree had */
		target = slot & CLASSIFIER_TARGET;
		count = slot >> 41 & 31;
		line = 0;
		if (unlikely((slot >> SEGUE_SLOT_TARGET_BITS & 3) == SEGUE_SLOT_LONG)) {
			line = classifier_long(target, key, after, best);
			count = 0;
		}
		for (u32 i = 0; i < SEGUE_CLASSIFIER_LEAF_MAX; i++) {
			if (i >= count)
				break;
			line = target;
			if (count > 1)
				line = *(const u32 *)classifier_load(image, target * 8 + i * 4, 4);
			if (line >= best)
				break;
			if (line > after && classifier_matches(image, line, key))
				break;
			line = 0;
		}
		if (line && line < best) {
			best = line;
			bound = (line - root->rules) >> shift;
		}
	}
	return best == CLASSIFIER_NOTHING ? 0 : best;
}

#endif
