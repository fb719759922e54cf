// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Traffic for the bench harness: a generator (run by BPF_PROG_TEST_RUN with live frames), a sink, and the cheapest
 * possible forwarder as the limit of the machine. One object serves one run; `config` is set before it is loaded.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "traffic.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct bench_config config = {};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bench_sent);
} sent SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bench_received);
} received SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bench_expected);
} expected SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

/* When the latest packet of each flow was sent, in paced runs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BENCH_FLOWS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} stamps SEC(".maps");

/* Packets by the time that they were under way. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BENCH_BUCKETS);
	__type(key, __u32);
	__type(value, __u64);
} latencies SEC(".maps");

#define data_of(ctx) ((void *)(long)(ctx)->data)
#define end_of(ctx) ((void *)(long)(ctx)->data_end)

static __always_inline void write_macs(__u8 *frame, const volatile __u8 *macs)
{
	*(__u64 *)frame = *(const volatile __u64 *)macs;
	*(__u32 *)(frame + 8) = *(const volatile __u32 *)(macs + 8);
}

/*
 * The kernel recycles the pages of live frames as they come back: with whatever the system under test wrote. It resets
 * data start and length only if it finds that they, or the `struct xdp_frame` in the page, differ from the first ones.
 * A change of the length alone, or of the metadata alone, escapes that test. So every frame is handed in with
 * `config.slack` octets too many in front, and they are cut here on each pass: the kernel then always sees a change,
 * and both resets the frame before this program and describes it anew after it.
 */
SEC("xdp")
int generate(struct xdp_md *ctx)
{
	__u32 zero = 0, words, flow;
	struct bench_sent *s;
	__u64 *stamp;
	__u8 *frame;

	s = bpf_map_lookup_elem(&sent, &zero);
	if (!s)
		return XDP_ABORTED;
	if (s->interval) {
		__u64 now = bpf_ktime_get_ns();

		if (!s->begun)
			s->begun = now;
		s->latest = now;
		if (now < s->next) {
			s->idle++;
			return XDP_DROP;
		}
		/*
		 * What was missed for long while the processor did something else is not made up for: that would be a
		 * burst.
		 */
		s->next = (now - s->next < s->burst ? s->next : now) + s->interval;
		flow = s->flow;
		stamp = bpf_map_lookup_elem(&stamps, &flow);
		if (stamp)
			*stamp = now;
	}
	if (bpf_xdp_adjust_head(ctx, config.slack)) {
		s->refused++;
		return XDP_ABORTED;
	}
	frame = data_of(ctx);
	/* All of `config` is known to the verifier, so these are offsets without a variable part and the loop has no
	 * tests. */
	words = config.words;
	if (frame + 14 + 8 * words > (__u8 *)end_of(ctx)) {
		s->refused++;
		return XDP_ABORTED;
	}
#pragma unroll
	for (__u32 i = 0; i < BENCH_HEADER_WORDS; i++)
		if (i < words)
			*(__u64 *)(frame + 14 + 8 * i) = config.header[i];
	write_macs(frame, config.macs);
	*(__be16 *)(frame + 12) = config.ethertype;

	/* One flow per source port; the word behind it in the payload keeps the checksum right. */
	if (config.flows > 1) {
		__u32 port = config.port_offset, balance = config.balance_offset, chain = config.chain_offset;

		flow = s->flow;
		s->flow = flow + 1 < config.flows ? flow + 1 : 0;
		if (frame + balance + 2 > (__u8 *)end_of(ctx) || port > balance || chain > port) {
			s->refused++;
			return XDP_ABORTED;
		}
		*(__be16 *)(frame + port) = bpf_htons(BENCH_PORT + flow);
		*(__be16 *)(frame + balance) = bpf_htons(BENCH_PORT - flow);
		if (chain)
			*(__be32 *)(frame + chain) = bpf_htonl(flow);
	}
	if (!s->packets++)
		s->first = bpf_ktime_get_ns();
	return bpf_redirect(config.generator_out, 0);
}

static __always_inline void count(struct bench_received *r)
{
	if (++r->packets % BENCH_STAMP == 0) {
		r->stamp = bpf_ktime_get_ns();
		r->stamp_packets = r->packets;
	}
}

/* Counts frames of the expected length; everything else (neighbour discovery and the like) counts as other. */
SEC("xdp")
int sink(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct bench_received *r = bpf_map_lookup_elem(&received, &zero);

	if (!r)
		return XDP_ABORTED;
	if (end_of(ctx) - data_of(ctx) == config.sink_length)
		count(r);
	else
		r->other++;
	return XDP_DROP;
}

static __always_inline void note_difference(struct bench_received *r, __u32 offset, __u64 found, __u64 wanted)
{
	if (!r->wrong++) {
		r->wrong_offset = offset;
		r->wrong_found = found;
		r->wrong_wanted = wanted;
	}
}

/* Counts like `sink` and compares every octet with `expected`. */
SEC("xdp")
int sink_verify(struct xdp_md *ctx)
{
	__u8 *frame = data_of(ctx), *end = end_of(ctx), *at = frame;
	__u32 zero = 0, length = config.sink_length;
	struct bench_received *r = bpf_map_lookup_elem(&received, &zero);
	struct bench_expected *e = bpf_map_lookup_elem(&expected, &zero);

	if (!r || !e)
		return XDP_ABORTED;
	if (end - frame != length) {
		r->other++;
		return XDP_DROP;
	}
	count(r);
	for (__u32 i = 0; i < BENCH_FRAME_WORDS; i++) {
		__u64 found;

		if (at + 8 > end)
			break;
		found = *(__u64 *)at & e->mask[i];
		if (found != e->want[i]) {
			note_difference(r, 8 * i, found, e->want[i]);
			return XDP_DROP;
		}
		at += 8;
	}
	/* What is left of less than eight octets, as the frame's last word. */
	at = frame + length - 8;
	if (length < 14 || at + 8 > end)
		return XDP_DROP;
	if ((*(__u64 *)at & e->last_mask) != e->last_want) {
		note_difference(r, length - 8, *(__u64 *)at & e->last_mask, e->last_want);
		return XDP_DROP;
	}
	if (config.sink_port_offset) {
		__u32 port = config.sink_port_offset, balance = config.sink_balance_offset, flow;

		if (port > balance || frame + balance + 2 > end)
			return XDP_DROP;
		if (bpf_ntohs(*(__be16 *)(frame + port)) + bpf_ntohs(*(__be16 *)(frame + balance)) != 2 * BENCH_PORT)
			note_difference(r, port, *(__be16 *)(frame + port), *(__be16 *)(frame + balance));
		/* The steering header must be that of the inner packet's chain. */
		flow = bpf_ntohs(*(__be16 *)(frame + port)) - BENCH_PORT;
#pragma unroll
		for (int i = 0; i < 2; i++) {
			__u32 chain = config.sink_chain_offsets[i];

			if (chain && chain < port && bpf_ntohl(*(__be32 *)(frame + chain)) != flow) {
				note_difference(r, chain, *(__be32 *)(frame + chain), bpf_htonl(flow));
				break;
			}
		}
	}
	return XDP_DROP;
}

/* Counts like `sink` and notes how long each packet was under way; in paced runs. */
SEC("xdp")
int sink_latency(struct xdp_md *ctx)
{
	__u32 zero = 0, port = config.sink_port_offset, flow = 0, bucket;
	struct bench_received *r = bpf_map_lookup_elem(&received, &zero);
	__u8 *frame = data_of(ctx);
	__u64 *stamp, *count_of;

	if (!r)
		return XDP_ABORTED;
	if (end_of(ctx) - data_of(ctx) != config.sink_length || frame + port + 2 > (__u8 *)end_of(ctx)) {
		r->other++;
		return XDP_DROP;
	}
	count(r);
	if (config.flows > 1)
		flow = bpf_ntohs(*(__be16 *)(frame + port)) - BENCH_PORT;
	stamp = bpf_map_lookup_elem(&stamps, &flow);
	if (!stamp)
		return XDP_DROP;
	bucket = (bpf_ktime_get_ns() - *stamp) / BENCH_BUCKET;
	if (bucket >= BENCH_BUCKETS)
		bucket = BENCH_BUCKETS - 1;
	count_of = bpf_map_lookup_elem(&latencies, &bucket);
	if (count_of)
		__sync_fetch_and_add(count_of, 1);
	return XDP_DROP;
}

/* A function that does nothing: what comes in by one interface leaves by the other, to the node. */
SEC("xdp")
int reflector(struct xdp_md *ctx)
{
	__u8 *frame = data_of(ctx);

	if (frame + 14 > (__u8 *)end_of(ctx))
		return XDP_DROP;
	write_macs(frame, config.reflector_macs);
	return bpf_redirect(config.reflector_out, 0);
}

/* The limit of the machine: new MAC addresses and a redirect, nothing else. */
SEC("xdp")
int bare(struct xdp_md *ctx)
{
	__u8 *frame = data_of(ctx);

	if (frame + 14 > (__u8 *)end_of(ctx))
		return XDP_DROP;
	write_macs(frame, config.bare_macs);
	return bpf_redirect(config.bare_out, 0);
}

/* The same through a DEVMAP. */
SEC("xdp")
int bare_map(struct xdp_md *ctx)
{
	__u8 *frame = data_of(ctx);

	if (frame + 14 > (__u8 *)end_of(ctx))
		return XDP_DROP;
	write_macs(frame, config.bare_macs);
	return bpf_redirect_map(&ports, 0, 0);
}

/* Turns NAPI on for a veth whose packets the kernel shall forward. */
SEC("xdp")
int pass(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_PASS;
}
