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
#ifndef SEGUE_CLASSIFIER_RULES_H
#define SEGUE_CLASSIFIER_RULES_H

#include "lib/base/types.h"
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

#define CLASSIFIER(name_) classifier_##name_
#define CLASSIFIER_MAP classifier
#define CLASSIFIER_OCTETS classifier_size
#include "lib/classifier/walk.h"

/* Any other line: root, header, mark. */
#define classifier_line(type_, line_) ((const type_ *)(const void *)classifier_rule(line_))

/* A rule's number among those of its image: its row in tables beside the image. `chain`: any chain of the image. */
INLINE u32 classifier_number(u32 chain, u32 line)
{
	const struct segue_classifier_root *root = classifier_line(struct segue_classifier_root, chain);

	return root ? line - root->image_rules : 0;
}

#endif
