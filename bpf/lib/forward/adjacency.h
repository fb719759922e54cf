/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a destination to the link that leads there. The kernel's FIB and neighbour table decide; a per-CPU cache
 * remembers.
 *
 * An entry lives for `config.cache_lifetime` jiffies, and ends at once when the agent raises
 * `control.cache_generation`, or the number of the slot of its neighbour in `control.neighbours`: the agent makes
 * changes show earlier, but forwarding follows the kernel's tables without it. It is for ports of one routing domain:
 * those in a VRF, or named by a rule, have routes of their own.
 *
 * Flows of one destination are spread over `flow_buckets_mask + 1` FIB decisions, each asked for with a flow label and
 * a source port (IPv4: source) that depend on the bucket only: whatever `fib_multipath_hash_policy` makes the kernel
 * hash, one of them is in it. So a flow keeps its path when its entry is made anew, and ECMP is not lost.
 */
#ifndef SEGUE_FORWARD_ADJACENCY_H
#define SEGUE_FORWARD_ADJACENCY_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/base/config.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/forward/sid.h"

#define FIB_LOOKUP_DIRECT (1U << 0)
#define FIB_LOOKUP_OUTPUT (1U << 1)
#define FIB_LOOKUP_TBID (1U << 3) /* 6.5 and newer; older headers lack it */

enum adjacency_kind {
	ADJACENCY_KERNEL = 0, /* the kernel must decide: local, no route, a tunnel */
	ADJACENCY_LINK = 1,
	ADJACENCY_SID = 2, /* the destination is a SID of this node */
	ADJACENCY_NO_NEIGHBOUR = 3,
	ADJACENCY_BLACKHOLE = 4,
	ADJACENCY_UNREACHABLE = 5,
	ADJACENCY_OUTSIDE = 6, /* out of an access port, for what must not leave the domain */
};

#define ADJACENCY_IPV4 (1U << 31) /* in `table`: the address is IPv4, in the low word */
/* In `oif`: for packets with an SRH or to a SID, which do not leave the domain: an access port is no way for them. */
#define ADJACENCY_INSIDE (1U << 23)

struct adjacency {
	struct address address;
	u64 way;     /* table | oif << 32 | ADJACENCY_INSIDE << 32 | bucket << 56. Table 0: by the kernel's rules; oif
			0: any */
	u64 epoch;   /* of the packet that it was made for: generation, cache generation and routing domain */
	u32 expires; /* jiffies */
	u32 ifindex; /* ADJACENCY_LINK: as transmit() takes it */
	u16 fits;    /* ADJACENCY_LINK: its MTU, octets (65535 at most); else 0, so that one comparison asks for both */
	u8 ethernet[ETHERNET_LENGTH]; /* the header to write */
	u8 kind;
	u8 slot;       /* of its neighbour in `control.neighbours` */
	u32 neighbour; /* the number of that slot when the entry was made */
};

PERCPU(adjacencies, struct adjacency, 1 << SEGUE_ADJACENCY_CACHE_BITS);

struct adjacency_question {
	struct address address;
	u64 way;
	u64 epoch;
	u32 now;
	u32 reserved; /* no padding: a callee's argument is read whole */
};

/* May what was found in this epoch be used still? */
INLINE int adjacency_current(const struct adjacency *entry, u64 epoch, u32 now)
{
	return entry->epoch == epoch && (s32)(entry->expires - now) > 0 &&
	       entry->neighbour == control.neighbours[entry->slot];
}

/* No link: until the epoch ends. */
INLINE void adjacency_none(struct adjacency *entry, u64 epoch)
{
	entry->epoch = epoch;
	entry->expires = (u32)bpf_jiffies64() + (1U << 30);
	entry->neighbour = control.neighbours[entry->slot];
}

#define WAY_OIF(way) ((u32)((way) >> 32) & (ADJACENCY_INSIDE - 1))
#define WAY_INSIDE(way) ((u32)((way) >> 32) & ADJACENCY_INSIDE)
#define WAY_BUCKET(way) ((u32)((way) >> 56))

/* Does this interface lead out of the domain? */
RARE u32 leads_outside(u32 generation, u32 ifindex)
{
	const struct segue_port *port = port_find(generation, ifindex);

	return port && port->role == SEGUE_ROLE_ACCESS;
}

/* SEGUE_OIF_BY_KERNEL for an interface that takes no frames which XDP redirects. Both hooks use what one has cached. */
INLINE u32 oif_by_kernel(u32 ifindex)
{
	return bpf_map_lookup_elem(&takes_frames, &ifindex) ? 0 : SEGUE_OIF_BY_KERNEL;
}

ARRAY(unresolved, struct segue_unresolved, SEGUE_UNRESOLVED);

/*
 * The kernel asks for a neighbour when it has a packet for it. It never gets one with labels, nor one that goes by a
 * table which it would not ask: there it is the agent who has it ask.
 */
INLINE void unresolved_note(const struct bpf_fib_lookup *fib)
{
	/* The kernel has put the gateway, if there is one, in the destination's place. */
	u32 ipv4 = fib->family == 2, last = ipv4 ? fib->ipv4_dst : fib->ipv6_dst[3];
	u32 row = (last ^ last >> 16 ^ last >> 24 ^ fib->ifindex) % SEGUE_UNRESOLVED;
	struct segue_unresolved *noted = bpf_map_lookup_elem(&unresolved, &row);
	u32 *words;

	if (!noted)
		return;
	words = (u32 *)noted->address;
	words[0] = ipv4 ? 0 : fib->ipv6_dst[0];
	words[1] = ipv4 ? 0 : fib->ipv6_dst[1];
	words[2] = ipv4 ? bpf_htonl(0xffff) : fib->ipv6_dst[2];
	words[3] = last;
	noted->ifindex = fib->ifindex;
	*(volatile u32 *)&noted->count += 1;
}

RARE int adjacency_resolve(buffer *ctx, const struct adjacency_question *question, struct adjacency *entry)
{
	struct bpf_fib_lookup fib = {};
	const struct segue_config *config_;
	u32 flags = 0, oif, table, ipv4, changed = *(const volatile u32 *)&control.narrow_changes;
	long verdict;

	if (!question || !entry)
		return 0;
	config_ = config_get(question->epoch);
	oif = WAY_OIF(question->way);
	table = (u32)question->way & ~ADJACENCY_IPV4;
	ipv4 = (u32)question->way & ADJACENCY_IPV4;
	entry->kind = ADJACENCY_KERNEL;
	entry->fits = 0;
	if (!config_)
		return 0;
	entry->address = question->address;
	entry->way = question->way;
	entry->epoch = question->epoch;
	entry->expires = question->now + config_->cache_lifetime;
	entry->slot = 0;
	entry->neighbour = control.neighbours[0];
	if (!ipv4) {
		if (sid_find_at(question->epoch, &question->address)) {
			entry->kind = ADJACENCY_SID;
			return 0;
		}
		fib.family = 10; /* AF_INET6 */
		__builtin_memcpy(fib.ipv6_src, config_->address, sizeof(fib.ipv6_src));
		__builtin_memcpy(fib.ipv6_dst, &question->address, sizeof(fib.ipv6_dst));
		fib.flowinfo = bpf_htonl(WAY_BUCKET(question->way));
	} else {
		fib.family = 2; /* AF_INET */
		fib.ipv4_src = WAY_BUCKET(question->way);
		fib.ipv4_dst = question->address.low;
	}
	fib.sport = bpf_htons(WAY_BUCKET(question->way));
	fib.tot_len = FIB_LENGTH;
	fib.ifindex = buffer_interface(ctx);
	if (oif) {
		fib.ifindex = oif;
		flags = FIB_LOOKUP_OUTPUT;
	}
	if (table) {
		flags |= FIB_LOOKUP_DIRECT | FIB_LOOKUP_TBID;
		*(u32 *)((void *)&fib + offsetof(struct bpf_fib_lookup, h_vlan_proto)) = table;
	}
	verdict = bpf_fib_lookup(ctx, &fib, sizeof(fib), flags);
	entry->ifindex = fib.ifindex;
	/* Not to the kernel either, where it would ask for the neighbour and forward. */
	if (WAY_INSIDE(question->way) &&
	    (verdict == BPF_FIB_LKUP_RET_SUCCESS || verdict == BPF_FIB_LKUP_RET_NO_NEIGH) &&
	    leads_outside(question->epoch, fib.ifindex)) {
		entry->kind = ADJACENCY_OUTSIDE;
		return 0;
	}
	switch (verdict) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		entry->kind = ADJACENCY_LINK;
		entry->ifindex |= oif_by_kernel(fib.ifindex);
		entry->fits = fib.mtu_result ?: 65535;
		__builtin_memcpy(&entry->ethernet[0], fib.dmac, 6);
		__builtin_memcpy(&entry->ethernet[6], fib.smac, 6);
		*(u16 *)&entry->ethernet[12] = ipv4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
		/* The kernel has put the gateway, if there is one, in the destination's place. */
		entry->slot = fib.ifindex * 4 + ((fib.family == 2 ? fib.ipv4_dst >> 24 : fib.ipv6_dst[3] >> 24) & 3);
		entry->neighbour = *(const volatile u32 *)&control.neighbours[entry->slot];
		/* Raised meanwhile: perhaps for this neighbour, between the answer and the number. */
		if (*(const volatile u32 *)&control.narrow_changes != changed)
			entry->expires = question->now;
		break;
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		entry->kind = ADJACENCY_BLACKHOLE;
		break;
	case BPF_FIB_LKUP_RET_UNREACHABLE:
		entry->kind = ADJACENCY_UNREACHABLE;
		break;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		entry->kind = ADJACENCY_NO_NEIGHBOUR;
		entry->expires = question->now; /* the kernel is about to find out */
		unresolved_note(&fib);
		break;
	default:
		break;
	}
	return 0;
}

/* `flow` picks the ECMP bucket. Never NULL in practice; the caller checks for the verifier. */
INLINE const struct adjacency *adjacency_find(const struct packet *packet, struct address address, u32 table, u32 oif,
					      u32 flow)
{
	u64 way = table | (u64)oif << 32 | (u64)(flow & packet->port->flow_buckets_mask) << 56;
	u64 mixed = (address.high ^ (address.low << 21 | address.low >> 43) ^ way) * 0x9e3779b97f4a7c15ULL;
	u32 index = mixed >> (64 - SEGUE_ADJACENCY_CACHE_BITS);
	struct adjacency *entry = bpf_map_lookup_elem(&adjacencies, &index);
	u32 now = bpf_jiffies64();

	if (unlikely(!entry))
		return NULL;
	if (likely(address_equal(address_load(&entry->address), address) && entry->way == way &&
		   adjacency_current(entry, packet->epoch, now)))
		return entry;

	struct adjacency_question question = {
		.address = address,
		.way = way,
		.epoch = packet->epoch,
		.now = now,
	};
	adjacency_resolve(packet->ctx, &question, entry);
	return entry;
}

/* The flow of a packet by its outer header: all packets of one go one way. */
INLINE u32 outer_flow(const struct ipv6hdr *ip)
{
	const u64 *words = (const void *)ip;
	u64 mixed = (words[0] & 0xffff0f00) ^ words[1] ^ words[2];

	/* Traffic class and Payload Length are no part of a flow (RFC 8986 section 7). */
	return (mixed * 0x9e3779b97f4a7c15ULL) >> 40;
}

/* Is it a link, and does a packet of `length` octets fit? lib/forward/obstacle.h says what if not. */
INLINE int adjacency_fits(const struct packet *packet, const struct adjacency *adjacency, u32 length)
{
	return packet_longest(packet, length) <= adjacency->fits;
}

INLINE void ethernet_write(void *frame, const struct adjacency *adjacency)
{
	*(u64 *)frame = *(const u64 *)&adjacency->ethernet[0];
	*(u32 *)(frame + 8) = *(const u32 *)&adjacency->ethernet[8];
	*(u16 *)(frame + 12) = *(const u16 *)&adjacency->ethernet[12];
}

#endif
