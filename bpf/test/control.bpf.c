// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What an agent does to packets under way: `change` between two stages of the data plane, `slow` while it waits. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "abi/segue.h"

#define NULL ((void *)0)

/* The data plane's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct segue_control);
} control SEC(".maps");

/* The stage in whose place `change` is. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} displaced SEC(".maps");

/* The same of the programs for socket buffers. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} displaced_skb SEC(".maps");

/* Runs of `change` and `change_skb`; then whether `slow` has begun and ended. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

static __always_inline void note(__u32 what)
{
	__u64 *count = bpf_map_lookup_elem(&seen, &what);

	if (count)
		__sync_fetch_and_add(count, 1);
}

/* A generation of which nothing is there becomes the active one. */
static __always_inline void next_generation(void)
{
	struct segue_control *word;
	__u32 zero = 0;

	word = bpf_map_lookup_elem(&control, &zero);
	if (word)
		word->generation++;
	note(0);
}

/* It does so while the packet is between two stages. */
SEC("xdp.frags")
int change(struct xdp_md *ctx)
{
	next_generation();
	bpf_tail_call(ctx, &displaced, 0);
	return XDP_ABORTED;
}

SEC("tc")
int change_skb(struct __sk_buff *skb)
{
	next_generation();
	bpf_tail_call(skb, &displaced_skb, 0);
	return TC_ACT_SHOT;
}

static long nothing(__u32 index, void *context)
{
	(void)index;
	(void)context;
	return 0;
}

/* A packet that takes some hundred milliseconds: far beyond what any wait of fixed length would allow for. */
SEC("xdp.frags")
int slow(struct xdp_md *ctx)
{
	(void)ctx;
	note(1);
	for (int i = 0; i < 64; i++)
		bpf_loop(1 << 22, nothing, NULL, 0);
	note(2);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
