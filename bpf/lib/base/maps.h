/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps that all programs share with the agent. Those of one subject alone are with their subject. */
#ifndef SEGUE_BASE_MAPS_H
#define SEGUE_BASE_MAPS_H

#include "lib/base/types.h"

#define ARRAY(name_, value_, entries_)                                                                                 \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                      \
		__uint(max_entries, entries_);                                                                         \
		__type(key, u32);                                                                                      \
		__type(value, value_);                                                                                 \
	} name_ SEC(".maps")

#define PERCPU(name_, value_, entries_)                                                                                \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);                                                               \
		__uint(max_entries, entries_);                                                                         \
		__type(key, u32);                                                                                      \
		__type(value, value_);                                                                                 \
	} name_ SEC(".maps")

#define TRIE(name_, key_, value_, entries_)                                                                            \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_LPM_TRIE);                                                                   \
		__uint(max_entries, entries_);                                                                         \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                                                  \
		__type(key, key_);                                                                                     \
		__type(value, value_);                                                                                 \
	} name_ SEC(".maps")

/* The loader sets the sizes of the object maps from the node's capacity. */
/* Global data, map `.data.control`: read without a lookup. */
struct segue_control control SEC(".data.control") = {.abi_version = SEGUE_ABI_VERSION};
ARRAY(config, struct segue_config, 2);
ARRAY(ports, struct segue_port, 2 * SEGUE_PORT_SLOTS);
TRIE(sids, struct segue_sid_key, u32, 131072);
ARRAY(sid_entries, struct segue_sid, 4096);
ARRAY(policies, struct segue_policy, 1024);
ARRAY(segment_lists, struct segue_segment_list, 4096);
PERCPU(counters, struct segue_counter, 16384);
PERCPU(outcomes, struct segue_outcomes, 256);
PERCPU(icmp_sent, u64, SEGUE_ICMP_MAX);

/* What proxies remember: lib/proxy/stash.h, lib/proxy/memory.h. */
ARRAY(stash, struct segue_stash, 64);
ARRAY(stash_cursor, u64, 1); /* slots that were taken so far */
ARRAY(memories, struct segue_memory, 8192);
PERCPU(memory_counters, struct segue_memory_counters, 8192);

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 64);
	__type(key, u64); /* hash of a header's content and scope */
	__type(value, u64);
} stash_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct segue_proxy_flow_key);
	__type(value, struct segue_proxy_flow);
} proxy_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct segue_last_drop_key);
	__type(value, struct segue_last_drop);
} last_drops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} captures SEC(".maps");

/*
 * The interfaces that take frames which XDP redirects, by their numbers; by others the TC program sends. What is not
 * known yet, or finds no room here, goes the way that is always open.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SEGUE_TAKES_FRAMES_MAX);
	__type(key, u32);
	__type(value, u8);
} takes_frames SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, SEGUE_STAGE_MAX);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
#ifdef SEGUE_SKB
} skb_stages SEC(".maps");
#define stages skb_stages
#else
} stages SEC(".maps");
#endif

#endif
