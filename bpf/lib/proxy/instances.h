/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Several instances of one function behind one SID. Each instance has a SID of its own on this node, an ordinary
 * proxy's, which differs from the SID of all of them in its last 32 bits: the instance's number. A packet gets the SID
 * of the instance that its flow belongs to as its destination, and goes on as if it had come to that.
 *
 * Which one: the instance that the flow was at before, while that is up, also if new flows do not go there any more;
 * else one by the flow's hash, from a table in which few entries change when the instances do. A flow is the same in
 * both directions, and so are the tables of the SIDs of both.
 */
#ifndef SEGUE_PROXY_INSTANCES_H
#define SEGUE_PROXY_INSTANCES_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/packet/headers.h"
#include "lib/packet/flow.h"
#include "lib/conntrack/segment.h"
#include "lib/forward/sid.h"
#include "lib/service/function.h"
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

/*
 * Reads the flow of the packet in hand, which has an SRH with segments left, into the scratch memory: that of its inner
 * packet, or where the SRH was inserted its own, with the last segment as destination. TCP's flags; or 1 << 16 and the
 * outcome.
 */
RARE u32 instance_flow(buffer *ctx, u32 limit)
{
	struct flow_scratch *of = flow_scratch_get();
	void *data = buffer_start(ctx), *end = buffer_end(ctx);
	struct headers headers = {};
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	const u8 *last;
	u32 srh, l3;

	if (!of || (const void *)(ip + 1) > end)
		return 1 << 16 | SEGUE_OUTCOME_drop_truncated;
	headers_walk(ctx, ETHERNET_LENGTH + 6, ETHERNET_LENGTH + IPV6_LENGTH, limit, &headers);
	srh = headers.srh & OFFSET_MASK;
	if (!srh)
		return 1 << 16 | SEGUE_OUTCOME_drop_upper_layer;
	headers_walk_past_srh(ctx, srh, limit, &headers);
	l3 = headers.upper & OFFSET_MASK;
	/* What cannot be read is the instance's business. */
	if (headers.protocol == PROTOCOL_IPV4) {
		flow_read_ipv4(ctx, l3, &of->flow);
		return instance_read_upper(ctx, l3, &of->flow) & 0xff;
	}
	if (headers.protocol == PROTOCOL_IPV6) {
		flow_read_ipv6(ctx, l3, &of->flow);
		return instance_read_upper(ctx, l3, &of->flow) & 0xff;
	}
	data = buffer_start(ctx);
	end = buffer_end(ctx);
	ip = data + ETHERNET_LENGTH;
	opaque(srh);
	srh &= OFFSET_MASK;
	last = data + srh;
	if ((const void *)(ip + 1) > end || (const void *)(last + SRH_FIXED_LENGTH + 16) > end)
		return 1 << 16 | SEGUE_OUTCOME_drop_truncated;
	of->flow.family = 6;
	of->flow.key[0] = address_load(&ip->saddr).high;
	of->flow.key[1] = address_load(&ip->saddr).low;
	of->flow.key[2] = address_load(last + SRH_FIXED_LENGTH).high;
	of->flow.key[3] = address_load(last + SRH_FIXED_LENGTH).low;
	of->flow.key[4] = (u64)headers.protocol << 32 | 6ULL << 40;
	opaque(l3);
	l3 &= OFFSET_MASK;
	if (!headers.fragment && protocol_has_ports(headers.protocol) && data + l3 + 14 <= end) {
		of->flow.key[4] |= *(const u32 *)(data + l3);
		if (headers.protocol == PROTOCOL_TCP)
			return ((const u8 *)data + l3)[13];
	}
	return 0;
}

/* May packets go to the instance with this SID? */
INLINE int instance_is_up(u64 epoch, const struct address *address)
{
	const struct segue_sid *sid = sid_find_at(epoch, address);

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

/* None of the instances is up: what the SID does then. `number`: of one that would take the flow; 0: there is none. */
INLINE int instances_down(const struct packet *packet, u32 number)
{
	void *data = buffer_start(packet->ctx), *end = buffer_end(packet->ctx);
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	const struct srh *srh = (void *)(ip + 1);
	const struct segue_sid *sid;

	if ((void *)(srh + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	sid = sid_find(packet->epoch, address_load(&ip->daddr));
	if (!sid)
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	if (sid->failure == SEGUE_FAILURE_REROUTE && ip->nexthdr == PROTOCOL_ROUTING) {
		const void *segment = (const void *)(srh + 1) + srh->segments_left * 16;

		/* A reduced list has no first segment to compare with. */
		if (srh->segments_left > srh->last_entry || !function_rerouted(ip, segment, end))
			return function_reroute(packet, sid, ip, packet->length);
	}
	/* That one's own SID lets packets pass. */
	if (sid->failure == SEGUE_FAILURE_BYPASS && number) {
		address_store(&ip->daddr,
			      (struct address){address_load(&ip->daddr).high,
					       (address_load(&ip->daddr).low & 0xffffffff) | (u64)number << 32});
		count(packet, sid->counter);
		stage(packet, SEGUE_STAGE_AGAIN);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	}
	return drop(packet, SEGUE_OUTCOME_drop_function_down);
}

/* A packet to the SID of all instances: endpoint() has found an SRH with segments left. */
INLINE int instances_stage(struct packet *packet)
{
	void *data = buffer_start(packet->ctx), *end = buffer_end(packet->ctx);
	struct flow_scratch *of;
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	u32 now = bpf_jiffies64(), flags, timeout, policy, counter, direction, number = 0;
	struct segue_instance_flow *known;
	struct segue_instance_key key;
	const struct segue_sid *sid;
	struct address address;
	u64 found;

	if ((void *)(ip + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	packet->length = packet_ipv6_octets(packet->ctx, ip);
	address = address_load(&ip->daddr);
	flags = instance_flow(packet->ctx, ETHERNET_LENGTH + packet->length);
	if (flags >> 16)
		return drop(packet, flags & 0xffff);
	/* Not to be emptied, as flow_scratch_get() does. */
	of = bpf_map_lookup_elem(&flow_scratches, &(u32){0});
	sid = sid_find(packet->epoch, address);
	if (!of || !sid || sid->behaviour != SEGUE_END_INSTANCES)
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	direction = instance_key(&of->flow, sid, &key);
	/* What is remembered of a SID may become another's below. */
	timeout = sid->flow_timeout;
	policy = sid->policy;
	counter = sid->counter;
	known = bpf_map_lookup_elem(&instance_flows, &key);
	if (known && now - known->used <= (known->ended == 3 ? INSTANCE_ENDED : timeout)) {
		number = known->instance;
		address.low = (address.low & 0xffffffff) | (u64)number << 32;
		if (instance_is_up(packet->epoch, &address))
			instance_follow(known, flags, direction, now);
		else
			number = 0;
	}
	if (!number) {
		struct segue_instance_flow fresh = {.used = now};

		found = instance_choose(packet->epoch, policy, instance_hash(&key));
		number = found;
		if (!(found & INSTANCE_UP))
			return instances_down(packet, number);
		fresh.instance = number;
		bpf_map_update_elem(&instance_flows, &key, &fresh, BPF_ANY);
		address.low = (address.low & 0xffffffff) | (u64)number << 32;
	}
	data = buffer_start(packet->ctx);
	ip = data + ETHERNET_LENGTH;
	if ((void *)(ip + 1) > buffer_end(packet->ctx))
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	address_store(&ip->daddr, address);
	count(packet, counter);
	stage(packet, SEGUE_STAGE_AGAIN);
	return drop(packet, SEGUE_OUTCOME_drop_recirculation);
}

#endif
