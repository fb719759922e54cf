// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Measures a program alone. BPF_PROG_TEST_RUN repeats a program on one frame, which stays as the program left it; so
 * `wrap` first makes the frame what it was (data start, then every header octet) and then tail-calls the program under
 * test. The same wrapper around `nothing` is the baseline that is subtracted: both runs move the head exactly once in
 * the wrapper (by nothing, in the baseline), write the same octets and make one tail call.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "cost.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct cost_config config = {};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} target SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cost_clock);
} clock SEC(".maps");

SEC("xdp.frags")
int wrap(struct xdp_md *ctx)
{
	__u32 zero = 0, words = config.words;
	struct cost_clock *c = bpf_map_lookup_elem(&clock, &zero);
	long now = (void *)(long)ctx->data_end - (void *)(long)ctx->data;
	__u8 *frame;

	if (!c)
		return XDP_ABORTED;
	if (++c->runs % COST_STAMP == 0) {
		__u64 time = bpf_ktime_get_ns();

		if (c->last && (!c->least || time - c->last < c->least))
			c->least = time - c->last;
		c->last = time;
	}
	/* In both runs, as the head move: metadata grows from where it begins. */
	if (config.metadata && bpf_xdp_adjust_meta(ctx, (void *)(long)ctx->data - (void *)(long)ctx->data_meta)) {
		c->failed++;
		return XDP_ABORTED;
	}
	asm volatile("" : "+r"(now)); /* else the compiler takes the length from one of the pointers */
	if (bpf_xdp_adjust_head(ctx, (int)(now - config.length))) {
		c->failed++;
		return XDP_ABORTED;
	}
	frame = (void *)(long)ctx->data;
	if (frame + 14 + 8 * words > (__u8 *)(long)ctx->data_end) {
		c->failed++;
		return XDP_ABORTED;
	}
	*(__u64 *)frame = *(const volatile __u64 *)&config.ethernet[0];
	*(__u32 *)(frame + 8) = *(const volatile __u32 *)&config.ethernet[8];
	*(__u16 *)(frame + 12) = *(const volatile __u16 *)&config.ethernet[12];
	/*
	 * Words that begin where the IPv6 header does: a program reads addresses and SRHs as words at these very
	 * places, and a processor forwards a store to a load only if the load lies within one store.
	 */
#pragma unroll
	for (__u32 i = 0; i < COST_WORDS; i++) {
		if (i < words)
			*(__u64 *)(frame + 14 + 8 * i) = config.header[i];
	}
	/* The whole word, as above. The port's octets may be in any order. */
#pragma unroll
	for (__u32 i = 0; i < COST_WORDS; i++) {
		if (i < words && config.connections && i == config.port)
			*(__u64 *)(frame + 14 + 8 * i) =
				(config.header[i] & ~0xffffULL) | (c->runs & (config.connections - 1));
	}
	bpf_tail_call(ctx, &target, 0);
	c->failed++;
	return XDP_ABORTED;
}

#define FLOOD_DOMAIN 0xb80d0120U /* 2001:db8::/32, as it lies in the packet */
#define FLOOD_CLIENT 0xffffU	 /* the next 32 bits: none of the honest clients' networks */
#define FLOOD_SERVER 0x0c00U

/*
 * The scenario conntrack-flood: the frame is IPv6 with TCP behind it, and comes from another source, port and number
 * each time, or goes back there from the server. The program under test lets it pass as it is.
 */
static __attribute__((always_inline)) int flood_segment(struct xdp_md *ctx, int answered)
{
	__u8 *frame = (void *)(long)ctx->data, *client, *server;
	__u64 run, number;
	struct cost_clock *c;
	__u32 zero = 0;
	int back;

	c = bpf_map_lookup_elem(&clock, &zero);
	if (!c || frame + 14 + 60 > (__u8 *)(long)ctx->data_end)
		return XDP_ABORTED;
	run = c->runs++;
	back = answered && run & 1;
	number = (answered ? run / 2 + 1 : run + 1) * 0x9e3779b97f4a7c15ULL;
	client = frame + 14 + (back ? 24 : 8);
	server = frame + 14 + (back ? 8 : 24);
	*(__u32 *)client = FLOOD_DOMAIN;
	*(__u32 *)(client + 4) = FLOOD_CLIENT | (__u32)(number >> 48) << 16;
	*(__u64 *)(client + 8) = number;
	*(__u32 *)server = FLOOD_DOMAIN;
	*(__u32 *)(server + 4) = FLOOD_SERVER;
	*(__u64 *)(server + 8) = 1ULL << 56;
	*(__u16 *)(frame + 14 + (back ? 42 : 40)) = number >> 32;
	*(__u16 *)(frame + 14 + (back ? 40 : 42)) = 443U >> 8 | (443U & 0xff) << 8;
	/* The SYN's number ends in 0, so what acknowledges it ends in 1. */
	number = number >> 24 & 0x00ffffff;
	*(__u32 *)(frame + 14 + 44) = back ? number << 8 : number;
	*(__u32 *)(frame + 14 + 48) = back ? number | 1U << 24 : 0;
	frame[14 + 53] = back ? 0x12 : 0x02;
	bpf_tail_call(ctx, &target, 0);
	return XDP_ABORTED;
}

SEC("xdp.frags")
int flood(struct xdp_md *ctx)
{
	return flood_segment(ctx, 0);
}

/* Each SYN is followed by its SYN/ACK. */
SEC("xdp.frags")
int flood_answered(struct xdp_md *ctx)
{
	return flood_segment(ctx, 1);
}

SEC("xdp.frags")
int nothing(struct xdp_md *ctx)
{
	(void)ctx;
	return config.verdict;
}

/* References: what every forwarding program pays to the kernel. */
SEC("xdp.frags")
int redirect(struct xdp_md *ctx)
{
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

SEC("xdp.frags")
int move_and_redirect(struct xdp_md *ctx)
{
	if (bpf_xdp_adjust_head(ctx, -80))
		return XDP_ABORTED;
	return bpf_redirect(ctx->ingress_ifindex, 0);
}
