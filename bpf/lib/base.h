/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What every part of the data plane needs: types, maps, the packet in hand. */
#ifndef SEGUE_BASE_H
#define SEGUE_BASE_H

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "abi/segue.h"
#include "abi/outcome.h"

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;

#define INLINE static __always_inline
/*
 * Not inlined: keeps rare work out of the fast path's instruction stream. Not static either: the verifier checks a
 * global function once, whatever its callers know, and that of 6.1 needs it to stay below its limit. For the same
 * reason its pointers may be NULL in the verifier's eyes, and it returns a number.
 */
#define RARE __attribute__((noinline))

#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif

/* Keeps the compiler from reasoning about a value, so that the bound which the verifier needs stays in the code. */
#define opaque(x) asm volatile("" : "+r"(x))

#define ETHERNET_LENGTH 14
#define IPV6_LENGTH 40
#define SRH_FIXED_LENGTH 8
#define IPV6_LEAST_MTU 1280 /* of every link that carries IPv6 (RFC 8200 section 5) */
#define OFFSET_MASK 0x0fff  /* every header that Segue looks at starts in the first 4 KiB of the frame */

/* IANA protocol numbers that older headers lack. */
#define PROTOCOL_HOP_BY_HOP 0
#define PROTOCOL_IPV4 4
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define PROTOCOL_IPV6 41
#define PROTOCOL_ROUTING 43
#define PROTOCOL_FRAGMENT 44
#define PROTOCOL_GRE 47
#define PROTOCOL_AUTHENTICATION 51
#define PROTOCOL_ICMPV6 58
#define PROTOCOL_DESTINATION_OPTIONS 60
#define PROTOCOL_SCTP 132
#define PROTOCOL_ETHERNET 143

#define ROUTING_TYPE_SRH 4

/* RFC 8754 section 2. */
struct srh {
	u8 next_header;
	u8 length; /* in 8 octets, not counting the first 8 */
	u8 type;
	u8 segments_left;
	u8 last_entry;
	u8 flags;
	u16 tag;
};

/* An IPv6 address as two words, in packet byte order. */
struct address {
	u64 high, low;
};

/* The packet in hand: passed along by every function, lives in registers once all is inlined. */
struct packet {
	struct xdp_md *ctx;
	const struct segue_port *port;
	u64 epoch; /* generation, cache generation and epoch_in_domain(), read once: what is cached belongs to the
		      generation that it came from */
	u32 generation;
	u32 length;	 /* layer 3 octets as received, for byte counters */
	u32 in_proxy;	 /* 1: in segue_proxy. A constant in each program, so that it leaves out what the other does */
	u32 in_firewall; /* 1: in segue_firewall, where in_proxy is 1 too */
	u64 icmp_way;	 /* where ICMP errors about it are routed: ICMP_WAY() */
};

/*
 * Where the answer to a packet is routed: in this table, or as a packet that came in by this interface. 0: as one that
 * came in where the answered packet did, by the kernel's rules.
 */
#define ICMP_WAY(table_, ifindex_) ((u64)(table_) | (u64)(ifindex_) << 32)

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

/* What proxies remember: lib/stash.h, lib/memory.h. */
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

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, SEGUE_STAGE_MAX);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} stages SEC(".maps");

/* The outer packet, once its headers have been walked. */
struct outer {
	u32 offset;  /* of what follows its headers: the inner packet */
	u32 limit;   /* end of the outer payload, by the outer Payload Length */
	u32 frame;   /* octets in the frame, all buffers */
	u16 srh;     /* of an SRH with segments left, or 0 */
	u16 naming;  /* of the Next Header octet that names `protocol` */
	u8 protocol; /* of the inner packet */
	u8 ecn;
	u8 fragment;
	u8 dscp; /* of the outer header */
};

/* What is to be remembered for a flow: lib/memory.h. */
struct memory_order {
	struct outer outer;
	u64 shape;
	u64 scope;
	u32 margin;
	u32 outcome; /* why it cannot be remembered */
};

/* What one stage tells the next across a tail call. Each stage writes all that the next one reads. */
struct scratch {
	u64 epoch;    /* of the packet, for the next stage: see stage() */
	u8 icmp_kind; /* enum segue_icmp, the row to count */
	u8 family;
	u8 type;
	u8 code;
	u16 l3;	     /* offset of the offending packet in the frame */
	u16 upper;   /* echo: offset of the ICMPv6 header */
	u32 param;   /* pointer or MTU; echo: end of the packet */
	u32 length;  /* echo and relay: layer 3 octets, for the outcome that the ICMP stage counts */
	u32 counter; /* echo: row of the SID */
	u32 reserved;
	u64 way; /* ICMP_WAY() */
	struct memory_order order;
	struct segue_stash stash; /* a header that is about to be remembered */
	struct segue_last_drop drop;
	u64 drop_time[SEGUE_OUTCOMES_MAX];
};

PERCPU(scratches, struct scratch, 1);

INLINE struct scratch *scratch_get(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&scratches, &zero);
}

/*
 * To another stage, which goes on in the epoch of this one: a packet meets one generation, however many stages it
 * meets. Nothing comes between: a program and what it calls are one run, which no other of Segue's programs on this CPU
 * interrupts, since both hooks run with soft interrupts disabled. Returns if there is no such stage.
 */
INLINE void stage(const struct packet *packet, u32 number)
{
	struct scratch *scratch = scratch_get();

	if (!scratch)
		return;
	scratch->epoch = packet->epoch;
	bpf_tail_call(packet->ctx, &stages, number);
	scratch->epoch = 0;
}

/* Generation (low half) and cache generation in one word. */
INLINE u64 epoch_now(void)
{
	return *(const volatile u64 *)&control.generation;
}

/*
 * The first program that a packet meets puts the routing domain of its port into the epoch, which stages carry on: so
 * one comparison asks for all three where something is remembered for packets. The domain is over the high half of the
 * cache generation: two epochs with one word are 65,536 cache generations apart.
 */
INLINE void epoch_in_domain(struct packet *packet)
{
	packet->epoch ^= (u64)packet->port->domain << 48;
	/* Else the compiler keeps the one without domain too, for which the stack is too short. */
	opaque(packet->epoch);
	packet->generation = packet->epoch;
}

/* The epoch in which the stage before this one was. */
INLINE u64 epoch_carried(void)
{
	struct scratch *scratch = scratch_get();
	u64 epoch;

	if (!scratch)
		return epoch_now();
	epoch = scratch->epoch;
	scratch->epoch = 0;
	return likely(epoch) ? epoch : epoch_now(); /* 0: run by itself, as tests do */
}

/* The slot of a port that another one keeps from the slot of its ifindex. `slot` is that one's; SEGUE_NONE: no port. */
RARE u32 port_chained(u32 slot, u32 ifindex)
{
	u32 first = slot & SEGUE_PORT_SLOTS;
	const struct segue_port *port;

	for (int i = 0; i < SEGUE_PORT_CHAIN; i++) {
		port = bpf_map_lookup_elem(&ports, &slot);
		if (!port)
			break;
		if (port->ifindex == ifindex)
			return slot;
		if (!port->next)
			break;
		slot = first + ((port->next - 1) & (SEGUE_PORT_SLOTS - 1));
	}
	return SEGUE_NONE;
}

/* The port of this interface, or NULL. */
INLINE const struct segue_port *port_find(u32 generation, u32 ifindex)
{
	u32 slot = (ifindex & (SEGUE_PORT_SLOTS - 1)) + (generation & 1) * SEGUE_PORT_SLOTS;
	const struct segue_port *port = bpf_map_lookup_elem(&ports, &slot);

	if (likely(port && port->ifindex == ifindex))
		return port;
	slot = port_chained(slot, ifindex);
	return bpf_map_lookup_elem(&ports, &slot);
}

/* Words of an address in a packet. Unaligned loads are allowed to XDP programs on the architectures that Segue runs on.
 */
INLINE struct address address_load(const void *from)
{
	const u64 *words = from;
	struct address address = {words[0], words[1]};

	return address;
}

INLINE void address_store(void *to, struct address address)
{
	u64 *words = to;

	words[0] = address.high;
	words[1] = address.low;
}

INLINE int address_equal(struct address a, struct address b)
{
	return ((a.high ^ b.high) | (a.low ^ b.low)) == 0;
}

INLINE u8 address_first_octet(struct address address)
{
	return address.high & 0xff; /* little endian; big endian is refused below */
}

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the data plane is written for little-endian machines"
#endif

/* :: or ::1 */
INLINE int address_unspecified_or_loopback(struct address a)
{
	return a.high == 0 && (a.low & ~(1ULL << 56)) == 0;
}

INLINE int address_link_local(struct address a)
{
	return (a.high & 0xc0ff) == 0x80fe; /* fe80::/10 */
}

INLINE int address_multicast(struct address a)
{
	return address_first_octet(a) == 0xff;
}

/*
 * What may stand in the Segment List as the next destination, or be forwarded to. The first test lets nearly all
 * addresses through: neither in fe00::/7 nor in ::/64.
 */
INLINE int address_forwardable(struct address a)
{
	if (likely(address_first_octet(a) < 0xfe && a.high))
		return 1;
	return !address_multicast(a) && !address_link_local(a) && !address_unspecified_or_loopback(a);
}

INLINE int address_valid_source(struct address a)
{
	if (likely(address_first_octet(a) < 0xfe && a.high))
		return 1;
	return !address_multicast(a) && !address_unspecified_or_loopback(a);
}

/* Node-wide settings: rarely needed, so not kept in hand. */
INLINE const struct segue_config *config_get(u32 generation)
{
	u32 slot = generation & 1;

	return bpf_map_lookup_elem(&config, &slot);
}

INLINE int in_prefixes(const struct segue_prefix *prefixes, u32 count, struct address a)
{
	for (int i = 0; i < SEGUE_PREFIXES_MAX; i++) {
		if (i >= count)
			break;
		if ((a.high & prefixes[i].mask[0]) == prefixes[i].address[0] &&
		    (a.low & prefixes[i].mask[1]) == prefixes[i].address[1])
			return 1;
	}
	return 0;
}

INLINE int in_sid_block(u32 generation, struct address a)
{
	const struct segue_config *config = config_get(generation);

	return config && in_prefixes(config->sid_blocks, config->sid_blocks_count, a);
}

/* The same, for addresses that hardly ever do. */
INLINE int rarely_in_sid_block(const struct packet *packet, struct address a)
{
	const struct segue_port *port = packet->port;
	u16 first = a.high;

	if (likely(first != port->sid_block_hints[0] && first != port->sid_block_hints[1] &&
		   !(port->config_flags & SEGUE_CONFIG_MANY_BLOCKS)))
		return 0;
	return in_sid_block(packet->generation, a);
}

INLINE u16 fold16(u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* RFC 1624 equation 3: the checksum after one 16-bit word changed. All in packet byte order. */
INLINE u16 checksum_update(u16 checksum, u16 before, u16 after)
{
	return ~fold16((u32)(u16)~checksum + (u16)~before + after);
}

/* Octets in the frame, all buffers. A call, so only for what does not fit the first buffer. */
INLINE u32 frame_length(struct xdp_md *ctx)
{
	return bpf_xdp_get_buff_len(ctx);
}

/* Payload Length 0 and a Hop-by-Hop Options header: perhaps a jumbogram (RFC 2675), which ends nobody knows where. */
INLINE int maybe_jumbogram(const struct ipv6hdr *ip)
{
	return !ip->payload_len && ip->nexthdr == PROTOCOL_HOP_BY_HOP;
}

/*
 * Is the frame, whose Ethernet header is there, for somebody else than this port: another host on a segment that is
 * flooded, or a group? The port's address is that which the agent last saw.
 */
INLINE int frame_foreign(const struct packet *packet, const void *frame)
{
	return ((*(const u64 *)frame ^ *(const u64 *)packet->port->mac) << 16) != 0; /* six octets each */
}

INLINE int frame_to_group(const void *frame)
{
	return *(const u8 *)frame & 1;
}

/*
 * Cuts what lies behind the packet in a frame of `frame` octets: Ethernet's padding, or what somebody hides there, does
 * not leave the node. 0: done; pointers into the frame are to be read anew.
 */
RARE int frame_trim(struct xdp_md *ctx, u32 frame, u32 packet_end)
{
	return bpf_xdp_adjust_tail(ctx, -(int)(frame - packet_end));
}

#endif
