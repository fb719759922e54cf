/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The fast path of access ports: a packet with ports right behind its IP header, of a flow whose policy and link are
 * remembered. All else is left to lib/access/port.h, with the packet unchanged. For XDP: on socket buffers the kernel's
 * part costs far more.
 */
#ifndef SEGUE_ACCESS_FAST_H
#define SEGUE_ACCESS_FAST_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/frame.h"
#include "lib/packet/flow.h"
#include "lib/packet/fast.h"
#include "lib/access/clamp.h"
#include "lib/access/encapsulation.h"
#include "lib/access/steering.h"
#include "lib/labels/push.h"

#ifdef SEGUE_SKB

INLINE int access_fast(const struct packet *packet, const int *action)
{
	(void)packet, (void)action;
	return 0;
}

#else

/*
 * What access_port() looks at in such a packet, and finds nothing: extension headers or options, fragments, ICMPv6, a
 * frame longer than its packet. What it asks of addresses is in the verdict that is remembered for them. Octets of the
 * header and `key`, as flow_read() would say; or 0.
 */
INLINE int access_ipv6_usual(const void *data, const void *end, u32 length, u64 *key)
{
	const u64 *word = data + ETHERNET_LENGTH;
	u64 head;

	if ((const void *)(word + 5) + 4 > end)
		return 0;
	head = word[0];
	key[0] = word[1];
	key[1] = word[2];
	key[2] = word[3];
	key[3] = word[4];
	key[4] = *(const u32 *)(word + 5) | (head & WORD_NEXT_HEADER) >> 16 | 6ULL << 40;
	return (head & WORD_VERSION) == 0x60 && WORD_PAYLOAD_LENGTH(head) + IPV6_LENGTH == length &&
	       WORD_HOP_LIMIT(head) > 1 && protocol_has_ports((head & WORD_NEXT_HEADER) >> 48);
}

/* The same for IPv4. */
INLINE int access_ipv4_usual(const void *data, const void *end, u32 length, u64 *key)
{
	const struct iphdr *ip = data + ETHERNET_LENGTH;

	if ((const void *)(ip + 1) + 4 > end || ip->frag_off & bpf_htons(0x3fff))
		return 0;
	key[0] = ip->saddr | (u64)ip->daddr << 32;
	key[1] = 0;
	key[2] = 0;
	key[3] = 0;
	key[4] = *(const u32 *)(ip + 1) | (u64)ip->protocol << 32 | 4ULL << 40;
	return *(const u8 *)ip == 0x45 && bpf_ntohs(ip->tot_len) == length && ip->ttl > 1 &&
	       protocol_has_ports(ip->protocol) && ipv4_header_sum(ip, end, 5) == 0xffff;
}

/* Is what is remembered about this flow? All words are compared, and one branch is taken. */
INLINE int access_known(const struct flow_verdict *verdict, const struct packet *packet, const u64 *key)
{
	u64 difference = (verdict->key[0] ^ key[0]) | (verdict->key[1] ^ key[1]) | (verdict->key[2] ^ key[2]) |
			 (verdict->key[3] ^ key[3]) | (verdict->key[4] ^ key[4]);

	difference |= (verdict->ingress ^ packet->port->ifindex) | verdict->marks;
	return !difference;
}

/* A packet of the family `six` says, a constant, in a frame for the port. 1: done with `action`. */
INLINE int access_fast_of(struct packet *packet, const void *data, const void *end, u32 six, int *action)
{
	u32 now = bpf_jiffies64(), length = buffer_octets(packet->ctx, data, end) - ETHERNET_LENGTH, index, head;
	const struct segue_segment_list *list;
	const struct flow_verdict *verdict;
	struct payload payload = {};
	u64 key[5];

	if (unlikely(!(six ? access_ipv6_usual(data, end, length, key) : access_ipv4_usual(data, end, length, key))))
		return 0;
	head = bpf_ntohl(*(const u32 *)(data + ETHERNET_LENGTH));
	payload.flow = flow_hash(key);
	verdict = steering_slot(&payload.flow, &index);
	if (unlikely(!verdict))
		return 0;
	if (unlikely(!access_known(verdict, packet, key)) ||
	    unlikely(!adjacency_current(&verdict->adjacency, packet->epoch, now)) || unlikely(verdict->outcome))
		return 0;
	index = verdict->list;
	list = bpf_map_lookup_elem(&segment_lists, &index);
	if (unlikely(!list || list->mode == SEGUE_H_INSERT || list->flags & (SEGUE_LIST_LOCAL | SEGUE_LIST_UDP) ||
		     !list_fits(packet, &verdict->adjacency, list, length + list->header_length)))
		return 0;
	if (unlikely(list->clamp) && (key[4] >> 32 & 0xff) == PROTOCOL_TCP)
		mss_clamp(packet->ctx, list->clamp | (six ? 6 : 4) << 16);
	packet->length = length;
	payload.offset = ETHERNET_LENGTH;
	payload.length = length;
	payload.protocol = six ? PROTOCOL_IPV6 : PROTOCOL_IPV4;
	payload.traffic_class = six ? head >> 20 : head >> 16;
	payload.flow_label = six ? head & 0xfffff : 0;
	payload.decrement = 1;
	payload.counter = verdict->counter;
	*action = list->mode == SEGUE_PUSH ? push_on(packet, list, &payload, &verdict->adjacency)
					   : encapsulate(packet, list, &payload, &verdict->adjacency);
	return 1;
}

/* A frame in by an access port. 1: done with `action`. */
INLINE int access_fast(struct packet *packet, int *action)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);

	if (unlikely(data + ETHERNET_LENGTH + sizeof(struct iphdr) > end) || unlikely(frame_foreign(packet, data)) ||
	    unlikely(packet->port->flags & SEGUE_PORT_L2) ||
	    unlikely(packet->port->config_flags & SEGUE_CONFIG_STEER_MARKS))
		return 0;
	switch (*(const u16 *)(data + 12)) {
	case bpf_htons(ETH_P_IPV6):
		return access_fast_of(packet, data, end, 1, action);
	case bpf_htons(ETH_P_IP):
		return access_fast_of(packet, data, end, 0, action);
	}
	return 0;
}

#endif

#endif
