// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * XDP on the interface of a service in user space (crates/xsk). What is steered and has a segment left is for the
 * service; all other packets are the kernel's. Two programs, one of which is loaded: `service_wait` gives packets to
 * an AF_XDP socket of their queue, that of the worker which has their flow, and they wait for the service's verdict;
 * `service_copy` gives the service a copy and sends the packet on itself (End).
 */
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PROTOCOL_ROUTING 43
#define ROUTING_TYPE_SRH 4

/* Octets of packet that a record of each class holds. */
#define CLASS_SMALL 240
#define CLASS_MIDDLE 2032
#define CLASS_LARGE 9712

/* RFC 8754 section 2. */
struct srh {
	__u8 next_header;
	__u8 length; /* in 8 octets, not counting the first 8 */
	__u8 type;
	__u8 segments_left;
	__u8 last_entry;
	__u8 flags;
	__u16 tag;
};

struct headers {
	struct ethhdr ethernet;
	struct ipv6hdr ip;
	struct srh srh;
} __attribute__((packed));

/* What a packet came to; crates/xsk/src/program.rs has the same list. */
enum counter {
	COUNTER_SERVICE, /* given to the service, or copied and sent on */
	COUNTER_KERNEL,	 /* not steered, or not to go further: the kernel's */
	COUNTER_PASSED,	 /* sent on without a copy: not in the sample */
	COUNTER_LOST,	 /* sent on without a copy: the ring was full */
	COUNTER_INVALID, /* dropped: its segment list contradicts itself */
	COUNTERS
};

/* Written once, before the program is attached. */
struct settings {
	__u32 one_in;	   /* copies: one packet in so many, at least 1 */
	__u32 snap_length; /* copies: octets from the IP header on at most */
	__u32 workers;	   /* sockets of each queue, at least 1 */
	__u32 spread;	   /* enum spread: what packets that belong to one worker have in common */
};

/* crates/xsk/src/program.rs has the same list. */
enum spread {
	SPREAD_FLOW, /* addresses, protocol and ports of the inner packet */
	SPREAD_WAY,  /* source and flow label of the outer header */
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
	if (headers->ethernet.h_proto != bpf_htons(ETH_P_IPV6) || headers->ip.nexthdr != PROTOCOL_ROUTING ||
	    headers->srh.type != ROUTING_TYPE_SRH || !headers->srh.segments_left || headers->ip.hop_limit <= 1)
		return NULL;
	return headers;
}

#define PROTOCOL_IPV4 4
#define PROTOCOL_IPV6 41
#define PROTOCOL_ETHERNET 143
#define PROTOCOL_SCTP 132

/* What a flow is told by; zeros where it has none. */
struct flow {
	__u32 source[4];
	__u32 destination[4];
	__u32 ports;
	__u32 protocol;
};

static __always_inline int has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == PROTOCOL_SCTP;
}

/*
 * The flow of the packet at `at`, an IPv4 or IPv6 header as `protocol` says. 0: it is no such packet. Ports are looked
 * for right behind the header, and not in fragments, whose rest has none: all fragments of a datagram have one flow.
 */
static __always_inline int inner_flow(struct xdp_md *ctx, __u32 at, __u8 protocol, struct flow *flow)
{
	__u32 header[10];
	__u8 *octets = (__u8 *)header;

	if (protocol == PROTOCOL_IPV6) {
		if (bpf_xdp_load_bytes(ctx, at, header, 40))
			return 0;
		__builtin_memcpy(flow->source, &header[2], 32);
		flow->protocol = octets[6];
		at += 40;
	} else if (protocol == PROTOCOL_IPV4) {
		if (bpf_xdp_load_bytes(ctx, at, header, 20))
			return 0;
		flow->source[0] = header[3];
		flow->destination[0] = header[4];
		flow->protocol = octets[9];
		/* More fragments, or not the first one. */
		if (header[1] & bpf_htonl(0x3fff))
			return 1;
		at += (octets[0] & 0x0f) * 4;
	} else {
		return 0;
	}
	if (has_ports(flow->protocol) && bpf_xdp_load_bytes(ctx, at, &flow->ports, sizeof(flow->ports)))
		flow->ports = 0;
	return 1;
}

static __always_inline __u32 mixed(const struct flow *flow)
{
	const __u32 *words = (const __u32 *)flow;
	__u64 sum = 0x9e3779b97f4a7c15;

#pragma unroll
	for (int i = 0; i < (int)(sizeof(*flow) / sizeof(*words)); i++) {
		sum = (sum ^ words[i]) * 0xff51afd7ed558ccd;
		sum ^= sum >> 32;
	}
	return sum;
}

/* Which of so many workers has the packet. */
static __always_inline __u32 worker(struct xdp_md *ctx, const struct headers *headers, const struct settings *set)
{
	struct flow flow = {};
	__u32 at = sizeof(struct ethhdr) + sizeof(struct ipv6hdr) + 8 * (headers->srh.length + 1);
	__u32 label;
	__u8 protocol = headers->srh.next_header;
	struct in6_addr source;
	__u16 type;

	__builtin_memcpy(&source, &headers->ip.saddr, sizeof(source));
	__builtin_memcpy(&label, &headers->ip, sizeof(label));
	label &= bpf_htonl(0xfffff);
	if (set->spread == SPREAD_FLOW) {
		if (protocol == PROTOCOL_ETHERNET &&
		    !bpf_xdp_load_bytes(ctx, at + sizeof(struct ethhdr) - sizeof(type), &type, sizeof(type))) {
			at += sizeof(struct ethhdr);
			protocol = type == bpf_htons(ETH_P_IPV6) ? PROTOCOL_IPV6
				   : type == bpf_htons(ETH_P_IP) ? PROTOCOL_IPV4
								 : protocol;
		}
		if (inner_flow(ctx, at, protocol, &flow))
			return ((__u64)mixed(&flow) * set->workers) >> 32;
	}
	__builtin_memcpy(flow.source, &source, sizeof(source));
	flow.ports = label;
	return ((__u64)mixed(&flow) * set->workers) >> 32;
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
		socket = socket * set->workers + worker(ctx, headers, set);
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

/* End (RFC 8986 section 4.1), and back to where it came from. 0: it contradicts itself, and is as it was. */
static __always_inline int advance(struct xdp_md *ctx, struct headers *headers)
{
	const void *list = headers + 1;
	const struct in6_addr *next;
	__u32 left = headers->srh.segments_left;
	__u8 address[ETH_ALEN];

	if (left > (__u32)headers->srh.last_entry + 1 || headers->srh.last_entry + 1 > headers->srh.length / 2)
		return 0;
	left = (left - 1) & 0xff;
	next = list + left * sizeof(*next);
	if ((const void *)(next + 1) > (void *)(long)ctx->data_end)
		return 0;
	__builtin_memcpy(&headers->ip.daddr, next, sizeof(*next));
	headers->srh.segments_left = left;
	headers->ip.hop_limit--;
	__builtin_memcpy(address, headers->ethernet.h_source, ETH_ALEN);
	__builtin_memcpy(headers->ethernet.h_source, headers->ethernet.h_dest, ETH_ALEN);
	__builtin_memcpy(headers->ethernet.h_dest, address, ETH_ALEN);
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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
