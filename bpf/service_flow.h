/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs of a service's interface share: which packets are for the service, and for which of its workers. */
#ifndef SEGUE_SERVICE_FLOW_H
#define SEGUE_SERVICE_FLOW_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PROTOCOL_ROUTING 43
#define ROUTING_TYPE_SRH 4

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

/* What `ctx` is: a constant wherever it is asked. */
enum buffer {
	BUFFER_XDP,
	BUFFER_SOCKET,
};

/* 0: done. */
static __always_inline long buffer_load(void *ctx, enum buffer buffer, __u32 at, void *to, __u32 length)
{
	return buffer == BUFFER_XDP ? bpf_xdp_load_bytes(ctx, at, to, length) : bpf_skb_load_bytes(ctx, at, to, length);
}

/* Is it steered, and can it go one segment further? */
static __always_inline int is_steered(const struct headers *headers)
{
	return headers->ethernet.h_proto == bpf_htons(ETH_P_IPV6) && headers->ip.nexthdr == PROTOCOL_ROUTING &&
	       headers->srh.type == ROUTING_TYPE_SRH && headers->srh.segments_left && headers->ip.hop_limit > 1;
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
static __always_inline int inner_flow(void *ctx, enum buffer buffer, __u32 at, __u8 protocol, struct flow *flow)
{
	__u32 header[10];
	__u8 *octets = (__u8 *)header;

	if (protocol == PROTOCOL_IPV6) {
		if (buffer_load(ctx, buffer, at, header, 40))
			return 0;
		__builtin_memcpy(flow->source, &header[2], 32);
		flow->protocol = octets[6];
		at += 40;
	} else if (protocol == PROTOCOL_IPV4) {
		if (buffer_load(ctx, buffer, at, header, 20))
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
	if (has_ports(flow->protocol) && buffer_load(ctx, buffer, at, &flow->ports, sizeof(flow->ports)))
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

/* Which of so many workers has the packet, whose IPv6 header is at `at`. */
static __always_inline __u32 worker(void *ctx, enum buffer buffer, __u32 at, const struct headers *headers,
				    const struct settings *set)
{
	struct flow flow = {};
	__u32 label;
	__u8 protocol = headers->srh.next_header;
	struct in6_addr source;
	__u16 type;

	at += sizeof(struct ipv6hdr) + 8 * (headers->srh.length + 1);
	__builtin_memcpy(&source, &headers->ip.saddr, sizeof(source));
	__builtin_memcpy(&label, &headers->ip, sizeof(label));
	label &= bpf_htonl(0xfffff);
	if (set->spread == SPREAD_FLOW) {
		if (protocol == PROTOCOL_ETHERNET &&
		    !buffer_load(ctx, buffer, at + sizeof(struct ethhdr) - sizeof(type), &type, sizeof(type))) {
			at += sizeof(struct ethhdr);
			protocol = type == bpf_htons(ETH_P_IPV6) ? PROTOCOL_IPV6
				   : type == bpf_htons(ETH_P_IP) ? PROTOCOL_IPV4
								 : protocol;
		}
		if (inner_flow(ctx, buffer, at, protocol, &flow))
			return ((__u64)mixed(&flow) * set->workers) >> 32;
	}
	__builtin_memcpy(flow.source, &source, sizeof(source));
	flow.ports = label;
	return ((__u64)mixed(&flow) * set->workers) >> 32;
}

#endif
