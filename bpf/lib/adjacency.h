/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a destination to the link that leads there. The kernel's FIB and neighbour table decide; a per-CPU cache remembers.
 *
 * An entry lives for `config.cache_lifetime` jiffies, and ends at once when the agent raises `control.cache_generation`:
 * the agent makes changes show earlier, but forwarding follows the kernel's tables without it.
 *
 * Flows of one destination are spread over `flow_buckets_mask + 1` FIB decisions, each asked for with a flow label that
 * depends on the bucket only. So a flow keeps its path when its entry is made anew, and ECMP is not lost.
 */
#ifndef SEGUE_ADJACENCY_H
#define SEGUE_ADJACENCY_H

#include "base.h"
#include "sid.h"

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
};

#define ADJACENCY_IPV4 (1U << 31) /* in `table`: the address is IPv4, in the low word */

struct adjacency {
	struct address address;
	u32 table; /* 0: by the kernel's rules */
	u32 oif;   /* 0: any */
	u64 epoch; /* generation and cache generation */
	u32 bucket;
	u32 expires; /* jiffies */
	u32 ifindex;
	u16 mtu_; /* octets; 0 means 65535 or more */
	u8 kind;
	u8 reserved;
	u8 destination_mac[6];
	u8 source_mac[6];
	u32 reserved2;
};

PERCPU(adjacencies, struct adjacency, SEGUE_ADJACENCY_CACHE);

struct adjacency_question {
	struct address address;
	u32 table;
	u32 oif;
	u32 bucket;
	u32 now;
	u64 epoch;
	u32 generation;
	u32 index;
};

INLINE u64 epoch_of(const struct segue_control *control)
{
	return *(const u64 *)&control->generation;
}

RARE void adjacency_resolve(struct xdp_md *ctx, const struct adjacency_question *question, struct adjacency *entry)
{
	struct bpf_fib_lookup fib = {};
	u32 slot = question->generation & 1, flags = 0;
	const struct segue_config *config_ = bpf_map_lookup_elem(&config, &slot);
	u32 table = question->table & ~ADJACENCY_IPV4;
	long verdict;

	entry->kind = ADJACENCY_KERNEL;
	if (!config_)
		return;
	entry->address = question->address;
	entry->table = question->table;
	entry->oif = question->oif;
	entry->bucket = question->bucket;
	entry->epoch = question->epoch;
	entry->expires = question->now + config_->cache_lifetime;
	if (!(question->table & ADJACENCY_IPV4)) {
		if (sid_find(question->generation, question->address) != SEGUE_NONE) {
			entry->kind = ADJACENCY_SID;
			return;
		}
		fib.family = 10; /* AF_INET6 */
		__builtin_memcpy(fib.ipv6_src, config_->address, sizeof(fib.ipv6_src));
		__builtin_memcpy(fib.ipv6_dst, &question->address, sizeof(fib.ipv6_dst));
		fib.flowinfo = bpf_htonl(question->bucket);
	} else {
		fib.family = 2; /* AF_INET */
		fib.ipv4_src = question->bucket;
		fib.ipv4_dst = question->address.low;
	}
	fib.ifindex = ctx->ingress_ifindex;
	if (question->oif) {
		fib.ifindex = question->oif;
		flags = FIB_LOOKUP_OUTPUT;
	}
	if (table) {
		flags |= FIB_LOOKUP_DIRECT | FIB_LOOKUP_TBID;
		*(u32 *)((void *)&fib + offsetof(struct bpf_fib_lookup, h_vlan_proto)) = table;
	}
	verdict = bpf_fib_lookup(ctx, &fib, sizeof(fib), flags);
	entry->ifindex = fib.ifindex;
	switch (verdict) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		entry->kind = ADJACENCY_LINK;
		entry->mtu_ = fib.mtu_result;
		__builtin_memcpy(entry->destination_mac, fib.dmac, 6);
		__builtin_memcpy(entry->source_mac, fib.smac, 6);
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
		break;
	default:
		break;
	}
}

/* `flow` picks the ECMP bucket. Never NULL in practice; the caller checks for the verifier. */
INLINE const struct adjacency *adjacency_find(const struct packet *packet, struct address address, u32 table, u32 oif,
					      u32 flow)
{
	u32 bucket = flow & packet->config->flow_buckets_mask;
	u64 mixed = (address.high ^ (address.low >> 7)) * 0x9e3779b97f4a7c15ULL + address.low * 0xc2b2ae3d27d4eb4fULL +
		    ((u64)oif << 32) + table + bucket * 0x9e3779b1U;
	u32 index = (mixed >> 40) & (SEGUE_ADJACENCY_CACHE - 1);
	struct adjacency *entry = bpf_map_lookup_elem(&adjacencies, &index);
	u32 now = bpf_jiffies64();

	if (unlikely(!entry))
		return NULL;
	if (likely(address_equal(entry->address, address) && entry->table == table && entry->oif == oif &&
		   entry->bucket == bucket && entry->epoch == epoch_of(packet->control) &&
		   (s32)(entry->expires - now) > 0))
		return entry;

	struct adjacency_question question = {
		.address = address,
		.table = table,
		.oif = oif,
		.bucket = bucket,
		.now = now,
		.epoch = epoch_of(packet->control),
		.generation = packet->generation,
	};
	adjacency_resolve(packet->ctx, &question, entry);
	return entry;
}

INLINE u32 adjacency_mtu(const struct adjacency *adjacency)
{
	return adjacency->mtu_ ? adjacency->mtu_ : 65535;
}

INLINE void ethernet_write(void *frame, const struct adjacency *adjacency, u16 ethertype)
{
	u32 *word = frame;
	u16 *half = frame;

	word[0] = *(const u32 *)&adjacency->destination_mac[0];
	half[2] = *(const u16 *)&adjacency->destination_mac[4];
	half[3] = *(const u16 *)&adjacency->source_mac[0];
	word[2] = *(const u32 *)&adjacency->source_mac[2];
	half[6] = ethertype;
}

#endif
