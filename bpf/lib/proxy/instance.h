/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which one of several instances of a function: the one that the flow was at before, while that is up, also if new
 * flows do not go there any more; else one by the flow's hash, from a table in which few entries change when the
 * instances do. A flow is the same in both directions, and so are the tables of what leads there in both.
 */
#ifndef SEGUE_PROXY_INSTANCE_H
#define SEGUE_PROXY_INSTANCE_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/packet/buffer.h"
#include "lib/packet/flow.h"
#include "lib/conntrack/segment.h"
#include "lib/forward/sid.h"
#include "lib/labels/entry.h"
#include "lib/proxy/memory.h"

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct segue_instance_key);
	__type(value, struct segue_instance_flow);
} instance_flows SEC(".maps");

/* Entries of the table that are asked before all instances are, one after the other. */
#define INSTANCE_TRIES 8
#define INSTANCES_MAX 16

/* instance_choose(): in front of an instance's number, it is up. */
#define INSTANCE_UP (1ULL << 32)

/* One end of a flow. */
INLINE u64 instance_end(u64 high, u64 low, u64 port)
{
	u64 mixed = (high ^ (low << 29 | low >> 35) ^ port << 7) * 0x9e3779b97f4a7c15ULL;

	return (mixed ^ mixed >> 32 ^ low) * 0xc2b2ae3d27d4eb4fULL;
}

/*
 * The key of a flow, the same for both directions: of its ends only the sum and what is left without order. Two flows
 * with one key have one instance, which harms neither. The direction: 1 or 2.
 */
INLINE u32 instance_key(const struct flow *flow, const struct segue_sid *sid, struct segue_instance_key *key)
{
	u64 last = flow->key[4], from, to;

	if (sid->proxy_flags & SEGUE_PROXY_BY_ADDRESSES)
		last &= 0xffULL << 40;
	if (flow->family == 4) {
		from = instance_end(0, flow->key[0] & 0xffffffff, last & 0xffff);
		to = instance_end(0, flow->key[0] >> 32, last >> 16 & 0xffff);
	} else {
		from = instance_end(flow->key[0], flow->key[1], last & 0xffff);
		to = instance_end(flow->key[2], flow->key[3], last >> 16 & 0xffff);
	}
	key->function = address_load(sid->next_hop).high;
	key->sum = from + to;
	key->rest = (from ^ to) + (last >> 32 & 0xffff);
	return from > to ? 1 : 2;
}

/* All its bits depend on all of the key: of the sum and the exclusive or of two numbers, low bits are alike. */
INLINE u64 instance_hash(const struct segue_instance_key *key)
{
	u64 mixed = key->sum * 0xff51afd7ed558ccdULL ^ (key->rest << 31 | key->rest >> 33);

	mixed = (mixed ^ mixed >> 33) * 0xc4ceb9fe1a85ec53ULL;
	return mixed ^ mixed >> 29;
}

INLINE int instance_is_error(u32 family, u32 type)
{
	/* RFC 792: unreachable, source quench, redirect, time exceeded, parameter problem. RFC 4443 section 2.1. */
	return family == 4 ? protocol_among(1ULL << 3 | 1ULL << 4 | 1ULL << 5 | 1ULL << 11 | 1ULL << 12, type)
			   : type < 128;
}

/* The packet at `l3` of which an ICMP error tells: the error belongs to its flow. Without ports if it has more headers.
 */
INLINE void instance_read_cause(const void *data, const void *end, u32 l3, struct flow *flow)
{
	const struct ipv6hdr *six = data + (l3 & OFFSET_MASK);
	const struct iphdr *four = data + (l3 & OFFSET_MASK);
	u32 protocol;

	if (flow->family == 4) {
		if ((const void *)(four + 1) + 4 > end || ((const u8 *)four)[0] != 0x45)
			return;
		protocol = four->protocol;
		flow->key[0] = four->saddr | (u64)four->daddr << 32;
		flow->key[4] = (u64)protocol << 32 | 4ULL << 40;
		if (four->frag_off & bpf_htons(0x3fff))
			return;
		if (protocol_has_ports(protocol))
			flow->key[4] |= *(const u32 *)(four + 1);
		return;
	}
	if ((const void *)(six + 1) + 4 > end || ((const u8 *)six)[0] >> 4 != 6)
		return;
	protocol = six->nexthdr;
	flow->key[0] = address_load(&six->saddr).high;
	flow->key[1] = address_load(&six->saddr).low;
	flow->key[2] = address_load(&six->daddr).high;
	flow->key[3] = address_load(&six->daddr).low;
	flow->key[4] = (u64)protocol << 32 | 6ULL << 40;
	if (protocol_has_ports(protocol))
		flow->key[4] |= *(const u32 *)(six + 1);
}

/* What lies behind the addresses of the packet at `l3`: TCP's flags, or 0. An ICMP error becomes its cause. */
INLINE u32 instance_read_upper(buffer *ctx, u32 l3, struct flow *flow)
{
	const void *data = buffer_start(ctx), *end = buffer_end(ctx);
	u32 protocol = flow->key[4] >> 32 & 0xff, offset = l3 & OFFSET_MASK;
	const u8 *octet = data + offset;

	if (flow->key[4] >> 48 || (const void *)(octet + IPV6_LENGTH) > end)
		return 0;
	if (flow->family == 4)
		offset += (octet[0] & 15) * 4;
	else if (octet[6] == protocol)
		offset += IPV6_LENGTH;
	else
		return 0;
	opaque(offset);
	offset &= OFFSET_MASK;
	octet = data + offset;
	if ((const void *)(octet + 14) > end)
		return 0;
	if (protocol == PROTOCOL_TCP)
		return octet[13];
	if (protocol == (flow->family == 4 ? PROTOCOL_ICMP : PROTOCOL_ICMPV6) &&
	    instance_is_error(flow->family, octet[0]))
		instance_read_cause(data, end, offset + 8, flow);
	return 0;
}

/* May packets go to the instance with this SID, or this key in place of one? */
INLINE int instance_is_up(u64 epoch, const struct address *address)
{
	const struct segue_sid *sid;

	if (address->high == bpf_htons(SEGUE_LABELS_AS_SIDS))
		sid = label_instance_find(epoch, bpf_ntohl(address->low), address->low >> 32);
	else
		sid = sid_find_at(epoch, address);
	return sid && !(sid->flags & SEGUE_SID_DOWN) && sid->function_mtu;
}

/*
 * The number of an instance that takes new flows, for a flow with this hash, with INSTANCE_UP. Without: none is up, and
 * it is the first one's; 0: there is none.
 */
RARE u64 instance_choose(u64 epoch, u32 index, u64 hash)
{
	const struct segue_policy *policy = bpf_map_lookup_elem(&policies, &index);
	u32 lists, position, list;
	u64 first = 0;

	if (!policy)
		return 0;
	lists = policy->lists;
	if (!lists || lists > INSTANCES_MAX)
		return 0;
	for (u32 i = 0; i < INSTANCE_TRIES + INSTANCES_MAX; i++) {
		const struct segue_segment_list *entry;
		u64 number;

		if (i < INSTANCE_TRIES) {
			position = policy->bucket[hash >> (i * 8 & 63) & (SEGUE_POLICY_BUCKETS - 1)];
		} else {
			/* Not all those behind a dead one to the next. */
			position = (hash >> 32) % lists + i - INSTANCE_TRIES;
			if (i - INSTANCE_TRIES >= lists)
				break;
			if (position >= lists)
				position -= lists;
		}
		list = policy->list[position & (INSTANCES_MAX - 1)];
		entry = bpf_map_lookup_elem(&segment_lists, &list);
		if (!entry)
			continue;
		number = address_load(entry->first).low >> 32;
		if (instance_is_up(epoch, (const struct address *)entry->first))
			return number | INSTANCE_UP;
		if (!first)
			first = number;
	}
	return first;
}

/* A flow of TCP that has ended in both directions is forgotten after so many jiffies. */
#define INSTANCE_ENDED 1000

/* What TCP's flags say of a flow that is known. */
INLINE void instance_follow(struct segue_instance_flow *known, u32 flags, u32 direction, u32 now)
{
	u32 ended = known->ended;

	if (flags & TCP_RST)
		ended = 3;
	else if (flags & TCP_SYN)
		ended = 0;
	else if (flags & TCP_FIN)
		ended |= direction;
	if (ended != known->ended)
		known->ended = ended;
	if (known->used != now)
		known->used = now;
}

/*
 * The instance that the flow in the scratch memory goes to, as instance_choose() says it: the one that it was at
 * before, or one that is remembered from now on. `address`: of all of them. `flags`: TCP's.
 */
INLINE u64 instance_take(u64 epoch, const struct segue_sid *sid, struct address address, u32 flags)
{
	u32 now = bpf_jiffies64(), timeout = sid->flow_timeout, policy = sid->policy, direction;
	/* Not to be emptied, as flow_scratch_get() does. */
	struct flow_scratch *of = bpf_map_lookup_elem(&flow_scratches, &(u32){0});
	struct segue_instance_flow *known, fresh = {.used = now};
	struct segue_instance_key key;
	u64 found;

	if (!of)
		return 0;
	direction = instance_key(&of->flow, sid, &key);
	known = bpf_map_lookup_elem(&instance_flows, &key);
	if (known && now - known->used <= (known->ended == 3 ? INSTANCE_ENDED : timeout)) {
		found = known->instance;
		address.low = (address.low & 0xffffffff) | found << 32;
		if (instance_is_up(epoch, &address)) {
			instance_follow(known, flags, direction, now);
			return found | INSTANCE_UP;
		}
	}
	found = instance_choose(epoch, policy, instance_hash(&key));
	if (found & INSTANCE_UP) {
		fresh.instance = found;
		bpf_map_update_elem(&instance_flows, &key, &fresh, BPF_ANY);
	}
	return found;
}

#endif
