/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a proxy remembers the steering header by: its return interface, the inner flow, or the packet itself. All three
 * hold a reference into the stash.
 */
#ifndef SEGUE_PROXY_MEMORY_H
#define SEGUE_PROXY_MEMORY_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/maps.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/flow.h"
#include "lib/header/header.h"
#include "lib/header/srv6.h"
#include "lib/proxy/stash.h"

enum memory_counter {
	MEMORY_RENEWED,
	MEMORY_CREATED,
	MEMORY_REMOVED,
	MEMORY_UNKNOWN,
	MEMORY_CONFLICT,
	MEMORY_OVERWRITTEN,
};

RARE int memory_count(u32 scope, u32 what)
{
	struct segue_memory_counters *counters = bpf_map_lookup_elem(&memory_counters, &scope);

	if (!counters)
		return 0;
	switch (what) {
	case MEMORY_RENEWED:
		counters->renewed++;
		break;
	case MEMORY_CREATED:
		counters->created++;
		break;
	case MEMORY_REMOVED:
		counters->removed++;
		break;
	case MEMORY_UNKNOWN:
		counters->unknown++;
		break;
	case MEMORY_CONFLICT:
		counters->conflicts++;
		break;
	case MEMORY_OVERWRITTEN:
		counters->overwritten++;
		break;
	}
	return 0;
}

INLINE u64 header_shape(const struct outer *outer, u32 flags)
{
	return STASH_SHAPE(outer->offset - ETHERNET_LENGTH, outer->naming - ETHERNET_LENGTH,
			   outer->srh - ETHERNET_LENGTH, flags);
}

/*
 * Remembers the steering header of the frame, which is not changed. `kind`, a constant. The reference, or 0 if it
 * cannot be remembered.
 */
INLINE u64 stash_put_of(u32 kind, buffer *ctx, u64 shape, u64 scope)
{
	struct scratch *scratch = scratch_get();
	const struct segue_stash *entry;
	u64 *known, id, hash;

	if (!scratch)
		return 0;
	hash = header_prepare(kind, ctx, &scratch->stash, shape, scope);
	if (!hash)
		return 0;
	known = bpf_map_lookup_elem(&stash_index, &hash);
	if (known) {
		id = *known;
		entry = stash_get(id);
		if (entry && stash_equal(entry, &scratch->stash) && stash_still(entry, id))
			return id;
	}
	id = stash_write(scratch);
	if (id)
		bpf_map_update_elem(&stash_index, &hash, &id, BPF_ANY);
	return id;
}

/* One that begins behind the Ethernet header. */
RARE u64 stash_put(buffer *ctx, u64 shape, u64 scope)
{
	return stash_put_of(SEGUE_HEADER_SRV6, ctx, shape, scope);
}

/* A stack of labels, or the rest of one. */
RARE u64 stash_put_labels(buffer *ctx, u64 shape, u64 scope)
{
	return stash_put_of(SEGUE_HEADER_MPLS, ctx, shape, scope);
}

/* Puts the header into the stash and makes it the scope's current one. The reference, or 0. */
INLINE u64 memory_renew(u32 kind, buffer *ctx, u64 scope, u64 shape)
{
	u32 row = scope;
	struct segue_memory *memory = bpf_map_lookup_elem(&memories, &row);
	u64 id = kind == SEGUE_HEADER_MPLS ? stash_put_labels(ctx, shape, scope) : stash_put(ctx, shape, scope);

	if (!memory || !id)
		return 0;
	if (memory->current != id) {
		*(volatile u64 *)&memory->current = id;
		memory_count(scope, MEMORY_RENEWED);
	}
	return id;
}

/* The scope's current header, or NULL. */
INLINE const struct segue_stash *memory_current(u64 scope, u64 *id)
{
	u32 row = scope;
	const struct segue_memory *memory = bpf_map_lookup_elem(&memories, &row);
	const struct segue_stash *entry;

	if (!memory)
		return NULL;
	*id = *(const volatile u64 *)&memory->current;
	entry = stash_get(*id);
	return likely(entry && entry->scope == scope) ? entry : NULL;
}

/* The flow in hand: here, because stack is short. */
struct flow_scratch {
	struct flow flow;
	struct segue_proxy_flow_key key;
	struct segue_proxy_flow value;
};

PERCPU(flow_scratches, struct flow_scratch, 1);

INLINE struct flow_scratch *flow_scratch_get(void)
{
	u32 zero = 0;
	struct flow_scratch *scratch = bpf_map_lookup_elem(&flow_scratches, &zero);

	if (scratch)
		__builtin_memset(&scratch->flow, 0, sizeof(scratch->flow));
	return scratch;
}

/*
 * A flow that this CPU has met lately: what `proxy_flows` says of it, until a flow of its scope gets another header or
 * FLOW_CACHED jiffies are over. So long an entry of `proxy_flows` may not know that it is used.
 */
struct proxy_flow_cached {
	u64 key[5];
	u64 scope;
	u64 stash;   /* reference */
	u32 until;   /* jiffies */
	u32 changes; /* of the scope, when it was read */
};

#define FLOW_CACHED 16

/* Entries of map `proxy_flows_cached`. A power of two; the loader's to change, together with the map's size. */
const volatile u32 proxy_flow_cache_size SEC(".rodata.proxy_flows") = SEGUE_PROXY_FLOW_CACHE;

PERCPU(proxy_flows_cached, struct proxy_flow_cached, SEGUE_PROXY_FLOW_CACHE);

INLINE struct proxy_flow_cached *flow_cached_slot(u32 hash)
{
	u32 index = hash & (proxy_flow_cache_size - 1);

	return bpf_map_lookup_elem(&proxy_flows_cached, &index);
}

/* The header of a flow of this key, or NULL: `proxy_flows` must be asked. */
INLINE const struct segue_stash *flow_cached(u64 scope, const u64 *key, u32 hash, u64 *id)
{
	const struct proxy_flow_cached *cached = flow_cached_slot(hash);
	const struct segue_memory *memory;
	const struct segue_stash *entry;
	u32 row = scope, changes;

	if (!cached)
		return NULL;
	if (((cached->key[0] ^ key[0]) | (cached->key[1] ^ key[1]) | (cached->key[2] ^ key[2]) |
	     (cached->key[3] ^ key[3]) | (cached->key[4] ^ key[4]) | (cached->scope ^ scope)) ||
	    (s32)(cached->until - (u32)bpf_jiffies64()) <= 0)
		return NULL;
	changes = cached->changes;
	*id = cached->stash;
	memory = bpf_map_lookup_elem(&memories, &row);
	if (!memory || changes != *(const volatile u32 *)&memory->changes)
		return NULL;
	entry = stash_get(*id);
	return likely(entry && entry->scope == scope) ? entry : NULL;
}

/* How often flows of a scope got another header. To be asked before `proxy_flows` is. */
INLINE u32 flow_changes(u64 scope)
{
	u32 row = scope;
	const struct segue_memory *memory = bpf_map_lookup_elem(&memories, &row);

	return memory ? *(const volatile u32 *)&memory->changes : 0;
}

/* A flow of the scope has got another header: to be said after it has. */
INLINE void flow_changed(u64 scope)
{
	u32 row = scope;
	struct segue_memory *memory = bpf_map_lookup_elem(&memories, &row);

	if (memory)
		__sync_fetch_and_add(&memory->changes, 1);
}

/* Remembers for this CPU what `proxy_flows` says. Fragments are no flows that come again. */
INLINE void flow_cache(const struct flow *flow, u64 scope, u64 id, u32 now, u32 changes)
{
	struct proxy_flow_cached *cached = flow_cached_slot(flow->hash);

	if (!cached || flow->key[4] >> 48)
		return;
	for (int i = 0; i < 5; i++)
		cached->key[i] = flow->key[i];
	cached->scope = scope;
	cached->stash = id;
	cached->until = now + FLOW_CACHED;
	cached->changes = changes;
}

/* A flow's key in the memory of a scope. Fragments have no ports: each fragmented packet is a flow of its own. */
INLINE void memory_flow_key(const struct flow *flow, u64 scope, struct segue_proxy_flow_key *key)
{
	for (int i = 0; i < 5; i++)
		key->key[i] = flow->key[i];
	key->key[4] |= flow->fragment_id;
	key->scope = scope;
	key->since = scope >> 32;
}

/* Tells remember_flow() or aware_remember() what to do. In the scratch memory, because stack is short. */
INLINE struct scratch *memory_order(const struct segue_sid *sid, const struct outer *outer, u32 flags)
{
	struct scratch *scratch = scratch_get();

	if (!scratch)
		return NULL;
	scratch->order.outer = *outer;
	scratch->order.shape = header_shape(outer, flags);
	scratch->order.scope = sid->scope;
	scratch->order.margin = sid->hop_limit_margin ?: 1;
	return scratch;
}

/* Remembers the frame's steering header for its inner flow. The reference, or 0 and the outcome in the order. */
INLINE u64 remember_flow_of(u32 kind, buffer *ctx)
{
	struct scratch *scratch = scratch_get();
	struct memory_order *order;
	struct flow_scratch *of = flow_scratch_get();
	struct segue_proxy_flow *known;
	const struct segue_stash *entry;
	u32 now = bpf_jiffies64(), l3, changes;
	u64 id;

	if (!scratch || !of)
		return 0;
	order = &scratch->order;
	l3 = order->outer.offset & OFFSET_MASK;
	if (order->outer.protocol == PROTOCOL_IPV4)
		flow_read_ipv4(ctx, l3, &of->flow);
	else
		flow_read_ipv6(ctx, l3, &of->flow);
	order->outcome = of->flow.outcome;
	if (of->flow.outcome)
		return 0;
	order->outcome = SEGUE_OUTCOME_drop_header_unfit;
	memory_flow_key(&of->flow, order->scope, &of->key);
	changes = flow_changes(order->scope);
	stash_order();
	known = bpf_map_lookup_elem(&proxy_flows, &of->key);
	if (known) {
		id = *(volatile u64 *)&known->stash;
		entry = stash_get(id);
		if (known->used != now)
			known->used = now;
		if (entry && entry->scope == order->scope &&
		    header_same(kind, entry, buffer_start(ctx), buffer_end(ctx), order) && stash_still(entry, id)) {
			flow_cache(&of->flow, order->scope, id, now, changes);
			return id;
		}
	}
	id = memory_renew(kind, ctx, order->scope, order->shape);
	if (!id)
		return 0;
	if (known) {
		if (known->stash != id) {
			memory_count(order->scope, MEMORY_CONFLICT);
			*(volatile u64 *)&known->stash = id;
			flow_changed(order->scope);
		}
		return id;
	}
	__builtin_memset(&of->value, 0, sizeof(of->value));
	of->value.stash = id;
	of->value.used = now;
	if (!bpf_map_update_elem(&proxy_flows, &of->key, &of->value, BPF_ANY))
		memory_count(order->scope, MEMORY_CREATED);
	return id;
}

RARE u64 remember_flow(buffer *ctx)
{
	return remember_flow_of(SEGUE_HEADER_SRV6, ctx);
}

/* The same for the rest of a stack of labels. */
RARE u64 remember_flow_labels(buffer *ctx)
{
	return remember_flow_of(SEGUE_HEADER_MPLS, ctx);
}

/* What is remembered of a flow that comes back, or NULL. */
INLINE struct segue_proxy_flow *flow_recalled(const struct flow *flow, u64 scope, u32 timeout, u32 now)
{
	struct segue_proxy_flow_key key;
	struct segue_proxy_flow *known;

	memory_flow_key(flow, scope, &key);
	known = bpf_map_lookup_elem(&proxy_flows, &key);
	if (!known)
		return NULL;
	/* What CPUs have in their caches may have been used without a word. */
	if (now - known->used > timeout + FLOW_CACHED) {
		if (!bpf_map_delete_elem(&proxy_flows, &key))
			memory_count(scope, MEMORY_REMOVED);
		return NULL;
	}
	if (known->used != now)
		known->used = now;
	return known;
}

/* The reference for a flow that comes back, or 0. */
RARE u64 recall_flow(const struct flow *flow, u64 scope, u32 timeout)
{
	const struct segue_proxy_flow *known;
	u32 now = bpf_jiffies64(), changes;
	u64 id;

	if (!flow)
		return 0;
	changes = flow_changes(scope);
	stash_order();
	known = flow_recalled(flow, scope, timeout, now);
	if (!known)
		return 0;
	id = *(const volatile u64 *)&known->stash;
	flow_cache(flow, scope, id, now, changes);
	return id;
}

/*
 * Remembers the steering header of a packet on its way to a function. The reference, or 0 and the outcome. `same_dscp`:
 * outer and inner DSCP are equal. `inner_hop_limit` is remembered with it where a function's kernel lowers it and it is
 * to come out as it was. The frame is not changed.
 */
INLINE u64 remember(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer, u32 same_dscp,
		    u32 inner_hop_limit, u32 *outcome)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	u32 flags = same_dscp ? SEGUE_STASH_TRAFFIC_CLASS_COPY : 0, margin = sid->hop_limit_margin ?: 1;
	const struct segue_stash *entry;
	u64 id = 0;

	*outcome = SEGUE_OUTCOME_drop_header_unfit;
	if (unlikely(!outer->srh)) /* without segments left there is nothing to go back to */
		return 0;
	if (packet->stage == SEGUE_STAGE_PROXY && sid->memory == SEGUE_MEMORY_FLOW) {
		struct scratch *scratch = memory_order(sid, outer, flags);

		if (!scratch)
			return 0;
		id = remember_flow(packet->ctx);
		*outcome = scratch->order.outcome;
		return id;
	}
	if (packet->stage == SEGUE_STAGE_PROXY && sid->memory == SEGUE_MEMORY_PACKET) {
		flags = SEGUE_STASH_EXACT;
		/* Such a header is exact: there is no margin, and the stack is short. */
		margin = sid->proxy_flags & SEGUE_PROXY_KEEP_HOP_LIMIT ? inner_hop_limit : 0;
	}
	entry = memory_current(sid->scope, &id);
	if (likely(entry && (flags != SEGUE_STASH_EXACT || entry->hop_limit == margin) &&
		   srv6_same(entry, data, end, outer, margin) && stash_still(entry, id)))
		return id;
	return memory_renew(SEGUE_HEADER_SRV6, packet->ctx, sid->scope,
			    header_shape(outer, flags) |
				    STASH_SHAPE_HOP_LIMIT(flags == SEGUE_STASH_EXACT ? margin : 0));
}

#endif
