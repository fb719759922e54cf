// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * On the interface of a service in user space (crates/xsk). What is steered and has a segment left is for the service;
 * all other packets are the kernel's. One of several ways is loaded. On XDP `service_wait` gives packets to an AF_XDP
 * socket of their queue, that of the worker which has their flow, and they wait for the service's verdict;
 * `service_copy` gives the service a copy and sends the packet on itself (End). The programs `merged_*` are for packet
 * sockets, which take packets merged by segmentation offload whole (service_merged.h). `labels_wait` and `labels_copy`
 * are for services behind a label (service_labels.h).
 */
#include <stddef.h>
#include "service_flow.h"

/* Octets of packet that a record of each class holds. */
#define CLASS_SMALL 240
#define CLASS_MIDDLE 2032
#define CLASS_LARGE 9712

/* What a packet came to; crates/xsk/src/program.rs has the same list. */
enum counter {
	COUNTER_SERVICE, /* given to the service, or copied and sent on */
	COUNTER_KERNEL,	 /* not steered, or not to go further: the kernel's */
	COUNTER_PASSED,	 /* sent on without a copy: not in the sample */
	COUNTER_LOST,	 /* sent on without a copy: the ring was full */
	COUNTER_INVALID, /* dropped: its segment list contradicts itself, or its stack of labels has no end */
	COUNTERS
};

struct {
	/* Those of a queue one after the other. */
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} copies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* A copy in the ring. */
struct copy {
	__u32 wire_length; /* octets of the packet from the IP header on */
	__u32 length;	   /* of these, how many follow */
	__u8 octets[];
};

static __always_inline void count(__u32 counter)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &counter);

	if (value)
		*value += 1;
}

/* The headers of a packet that is steered and can go one segment further; else NULL. */
static __always_inline struct headers *steered(struct xdp_md *ctx)
{
	struct headers *headers = (void *)(long)ctx->data;

	if ((void *)(headers + 1) > (void *)(long)ctx->data_end)
		return NULL;
	return is_steered(headers) ? headers : NULL;
}

SEC("xdp.frags")
int service_wait(struct xdp_md *ctx)
{
	struct headers *headers = steered(ctx);
	__u32 zero = 0, socket = ctx->rx_queue_index;
	const struct settings *set;

	if (!headers) {
		count(COUNTER_KERNEL);
		return XDP_PASS;
	}
	set = bpf_map_lookup_elem(&settings, &zero);
	if (set && set->workers > 1)
		socket = socket * set->workers + worker(ctx, BUFFER_XDP, sizeof(struct ethhdr), headers, set);
	count(COUNTER_SERVICE);
	/* Without a socket nobody else may have it: a function is never bypassed. */
	return bpf_redirect_map(&sockets, socket, XDP_DROP);
}

/*
 * Copies `length` octets into a record with room for `room`. 0: there is none. One less, compared, one more: the form
 * from which the verifier of 6.1 learns both bounds.
 */
#define COPY_INTO(room)                                                                                                \
	({                                                                                                             \
		struct copy *record = bpf_ringbuf_reserve(&copies, sizeof(*record) + (room), 0);                       \
		int done = 0;                                                                                          \
                                                                                                                       \
		if (record) {                                                                                          \
			record->wire_length = wire_length;                                                             \
			record->length = length;                                                                       \
			length--;                                                                                      \
			asm volatile("" : "+r"(length));                                                               \
			if (length <= (room)-1) {                                                                      \
				length++;                                                                              \
				done = !bpf_xdp_load_bytes(ctx, sizeof(struct ethhdr), record->octets, length);        \
			}                                                                                              \
			if (done)                                                                                      \
				bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);                                          \
			else                                                                                           \
				bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);                                         \
		}                                                                                                      \
		done;                                                                                                  \
	})

/* A counter of the outcome. The service looks into the ring by itself: waking it costs more than the copy. */
static __always_inline __u32 copy(struct xdp_md *ctx)
{
	__u32 zero = 0, wire_length, length;
	const struct settings *set = bpf_map_lookup_elem(&settings, &zero);
	__u64 whole = bpf_xdp_get_buff_len(ctx);

	if (!set || whole <= sizeof(struct ethhdr))
		return COUNTER_LOST;
	if (set->one_in > 1 && bpf_get_prandom_u32() % set->one_in)
		return COUNTER_PASSED;
	wire_length = whole - sizeof(struct ethhdr);
	length = wire_length < set->snap_length ? wire_length : set->snap_length;
	if (length <= CLASS_SMALL)
		return COPY_INTO(CLASS_SMALL) ? COUNTER_SERVICE : COUNTER_LOST;
	if (length <= CLASS_MIDDLE)
		return COPY_INTO(CLASS_MIDDLE) ? COUNTER_SERVICE : COUNTER_LOST;
	if (length > CLASS_LARGE)
		length = CLASS_LARGE;
	return COPY_INTO(CLASS_LARGE) ? COUNTER_SERVICE : COUNTER_LOST;
}

/* The frame is to go back where it came from. */
static __always_inline void turn(struct ethhdr *ethernet)
{
	__u8 address[ETH_ALEN];

	__builtin_memcpy(address, ethernet->h_source, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, ethernet->h_dest, ETH_ALEN);
	__builtin_memcpy(ethernet->h_dest, address, ETH_ALEN);
}

/* End (RFC 8986 section 4.1), and back to where it came from. 0: it contradicts itself, and is as it was. */
static __always_inline int advance(struct xdp_md *ctx, struct headers *headers)
{
	const void *list = headers + 1;
	const struct in6_addr *next;
	__u32 left = headers->srh.segments_left;

	if (left > (__u32)headers->srh.last_entry + 1 || headers->srh.last_entry + 1 > headers->srh.length / 2)
		return 0;
	left = (left - 1) & 0xff;
	next = list + left * sizeof(*next);
	if ((const void *)(next + 1) > (void *)(long)ctx->data_end)
		return 0;
	__builtin_memcpy(&headers->ip.daddr, next, sizeof(*next));
	headers->srh.segments_left = left;
	headers->ip.hop_limit--;
	turn(&headers->ethernet);
	return 1;
}

SEC("xdp.frags")
int service_copy(struct xdp_md *ctx)
{
	struct headers *headers = steered(ctx);
	__u32 outcome;

	if (!headers) {
		count(COUNTER_KERNEL);
		return XDP_PASS;
	}
	outcome = copy(ctx);
	headers = steered(ctx);
	if (!headers || !advance(ctx, headers)) {
		count(COUNTER_INVALID);
		return XDP_DROP;
	}
	count(outcome);
	/* Not XDP_TX: veth does not wake a peer without an XDP program for that (veth_xdp_flush()), and frames would
	 * wait there for ever. */
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

#include "service_labels.h"
#include "service_merged.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
