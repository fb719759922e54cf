/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A packet through the rules of a firewall: chains, conditions, counters, up to its verdict.
 * crates/classifier/src/interpreter.rs defines what a program means.
 */
#ifndef SEGUE_FIREWALL_RUN_H
#define SEGUE_FIREWALL_RUN_H

#include "lib/base/types.h"
#include "lib/base/maps.h"
#include "lib/packet/buffer.h"
#include "lib/packet/frame.h"
#include "lib/firewall/work.h"
#include "lib/firewall/limit.h"
#include "lib/firewall/verdict.h"
#include "lib/classifier/rules.h"

ARRAY(firewalls, struct segue_firewall, 16);
ARRAY(firewall_rules, struct segue_firewall_rule, 1024);

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} firewall_logs SEC(".maps");

/* A rule or a policy counts the packet in `work`. */
INLINE void firewall_hit(struct firewall_work *work, u32 row)
{
	work->rows[work->hits & (VERDICT_ROWS - 1)] = row;
	work->hits++;
	firewall_count(row, work->key.length);
}

/* LOG and NFLOG: the agent writes it. */
RARE int firewall_log(buffer *ctx, const struct firewall_work *work, u32 name, u32 most)
{
	struct segue_firewall_log log = {};

	if (!work)
		return 0;
	log.time = bpf_ktime_get_ns();
	log.name = name;
	log.firewall = work->firewall;
	log.ingress = buffer_interface(ctx);
	log.length = frame_length(ctx);
	most += work->stack; /* beside what the rule asks for */
	log.captured = log.length < most ? log.length : most;
	log.offset = work->l3;
	log.family = work->key.family;
	log.mark = work->key.mark;
	bpf_perf_event_output(ctx, &firewall_logs, BPF_F_CURRENT_CPU | (u64)log.captured << 32, &log, sizeof(log));
	return 0;
}

struct firewall_state {
	buffer *ctx;
	struct firewall_work *work;
	const struct segue_firewall *firewall;
};

/* The end of a chain: back to the caller, or the policy of the base chain. 1: the end. */
INLINE int firewall_return(const struct firewall_state *state, struct firewall_place *place)
{
	const struct segue_classifier_root *root;
	struct firewall_work *work = state->work;
	u64 caller;

	if (place->depth) {
		place->depth--;
		caller = work->callers[place->depth & (SEGUE_CLASSIFIER_CALLS_MAX - 1)];
		place->chain = caller;
		place->after = caller >> 32;
		return 0;
	}
	root = classifier_line(struct segue_classifier_root, place->base);
	work->line = 0;
	work->action = root ? root->policy : SEGUE_ACTION_DROP;
	firewall_hit(work, state->firewall->policy[work->key.family == 6]);
	return 1;
}

/* One of the conditions that the rule at `after` has beside those in the image. 1: all of them hold; LIMIT_FULL: the
 * packet is dropped. */
INLINE int firewall_condition(const struct firewall_state *state, struct firewall_place *place)
{
	const struct segue_firewall_extension *extension;
	const struct segue_classifier_rule *rule;
	struct firewall_work *work = state->work;
	u32 row = place->condition, line, holds;

	extension = bpf_map_lookup_elem(&firewall_extensions, &row);
	if (!extension) {
		place->conditions = 0;
		return 0;
	}
	if (extension->kind == SEGUE_EXTENSION_SET) {
		line = classifier_find(extension->chain, &work->key, 0);
		rule = line ? classifier_rule(line) : NULL;
		holds = rule && rule->action == SEGUE_ACTION_ACCEPT;
		holds ^= extension->flags & SEGUE_EXTENSION_NEGATED;
	} else if (unlikely(extension->kind == SEGUE_EXTENSION_RECENT)) {
		holds = firewall_recent_holds(row);
	} else {
		holds = firewall_bucket_holds(row);
		if (unlikely(holds == LIMIT_FULL)) {
			work->error = SEGUE_OUTCOME_drop_hashlimit_full;
			return LIMIT_FULL;
		}
	}
	place->condition++;
	place->conditions = holds ? place->conditions - 1 : 0;
	return holds && !place->conditions;
}

/*
 * One find: the next rule that is hit, or one of its further conditions, or the end of a chain. 1: the packet's way
 * ends. All in one function, because BPF allows eight calls at once, and a find needs five. `first`, a constant: it is
 * the packet's first, and most packets need no other; so it is inlined, find and all.
 */
INLINE long firewall_find(const struct firewall_state *state, struct firewall_place *place, u32 first)
{
	const struct segue_classifier_rule *rule;
	const struct segue_classifier_mark *mark;
	const struct segue_firewall_rule *more;
	struct firewall_work *work = state->work;
	u32 line, row, held = 0;

	if (!first && unlikely(place->conditions)) {
		held = firewall_condition(state, place);
		if (unlikely(held == LIMIT_FULL))
			return 1;
		if (!held)
			return 0;
		line = place->after;
	} else {
		line = first ? classifier_find_here(place->chain, &work->key, 0)
			     : classifier_find(place->chain, &work->key, place->after);
	}
	if (!line)
		return firewall_return(state, place);
	place->after = line;
	rule = classifier_rule(line);
	row = line - state->firewall->first_line + state->firewall->first_rule;
	more = bpf_map_lookup_elem(&firewall_rules, &row);
	if (unlikely(!rule || !more))
		return 1;
	if (unlikely(rule->flags & SEGUE_RULE_EXTENSIONS && !held)) {
		place->condition = more->extension;
		place->conditions = more->extensions;
		work->varies = 1;
		return 0;
	}
	if (unlikely(work->hits >= SEGUE_CLASSIFIER_STEPS_MAX))
		return 1;
	firewall_hit(work, more->counter);
	work->line = line;
	switch (rule->action) {
	case SEGUE_ACTION_LOG:
	case SEGUE_ACTION_NFLOG:
		work->varies = 1;
		firewall_log(state->ctx, work, more->name, more->log);
		return 0;
	case SEGUE_ACTION_CONTINUE:
		return 0;
	case SEGUE_ACTION_MARK:
		mark = classifier_line(struct segue_classifier_mark, rule->argument);
		if (mark)
			work->key.mark = (work->key.mark & ~mark->mask) ^ mark->value;
		return 0;
	case SEGUE_ACTION_JUMP:
		if (place->depth + 1 >= SEGUE_CLASSIFIER_CALLS_MAX)
			return 1;
		work->callers[place->depth & (SEGUE_CLASSIFIER_CALLS_MAX - 1)] = (u64)line << 32 | place->chain;
		place->depth++;
		place->chain = rule->argument;
		place->after = 0;
		return 0;
	case SEGUE_ACTION_GOTO:
		place->chain = rule->argument;
		place->after = 0;
		return 0;
	case SEGUE_ACTION_RETURN:
		return firewall_return(state, place);
	}
	work->action = rule->action;
	work->detail = rule->detail;
	work->argument = rule->argument;
	return 1;
}

static long firewall_step(u32 index, struct firewall_state *state)
{
	(void)index;
	return firewall_find(state, &state->work->next, 0);
}

#define FIREWALL_FINDS_MAX 65536 /* more than STEPS_MAX, because extensions may fail */

/* Line of the base chain that the packet meets; 0: there are no rules for it. */
INLINE u32 firewall_base(const struct segue_firewall *firewall, const struct firewall_work *work)
{
	return firewall->chain[work->key.outer_family == 6 && firewall->flags & SEGUE_FIREWALL_ADVANCED
				       ? SEGUE_FIREWALL_IPV6
				       : work->key.family == 6];
}

/* The first find, which is the only one for most packets. 1: firewall_run_on() has to find on. */
INLINE int firewall_first(buffer *ctx, struct firewall_work *work)
{
	struct firewall_state state = {.ctx = ctx, .work = work};
	struct firewall_place place = {};
	u32 index;

	index = work->firewall;
	state.firewall = bpf_map_lookup_elem(&firewalls, &index);
	/* What ends without a verdict is dropped. */
	work->action = SEGUE_ACTION_DROP;
	work->hits = 0;
	work->varies = 0;
	work->line = 0;
	if (!state.firewall)
		return 0;
	place.base = firewall_base(state.firewall, work);
	if (!place.base) {
		work->action = SEGUE_ACTION_ACCEPT;
		return 0;
	}
	place.chain = place.base;
	if (firewall_find(&state, &place, 1))
		return 0;
	work->next = place;
	return 1;
}

RARE int firewall_run_first(buffer *ctx, struct firewall_work *work)
{
	return work ? firewall_first(ctx, work) : 0;
}

/* Beside the first find, not called by it: frames of functions that call each other add up. */
RARE int firewall_run_on(buffer *ctx, struct firewall_work *work)
{
	struct firewall_state state = {.ctx = ctx, .work = work};
	u32 index;

	if (!work)
		return 0;
	index = work->firewall;
	state.firewall = bpf_map_lookup_elem(&firewalls, &index);
	if (state.firewall)
		bpf_loop(FIREWALL_FINDS_MAX, firewall_step, &state, 0);
	return 0;
}

/* Runs the packet in `work` through the rules; its verdict is in `work` afterwards. */
INLINE void firewall_run(buffer *ctx, struct firewall_work *work)
{
	if (unlikely(firewall_run_first(ctx, work)))
		firewall_run_on(ctx, work);
}

#endif
