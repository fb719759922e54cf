/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets merged by segmentation offload, whole: by packet sockets with `virtio_net_hdr` (PACKET_VNET_HDR), and not by
 * XDP, for which the kernel cuts them up. A packet socket gets a copy before the hook of tc at the way in, so that the
 * original ends there. On the way out the kernel knows the packet by its virtio header, as TCP or UDP in segments: that
 * a tunnel is around it (SKB_GSO_IPXIP6), without which nobody could cut it up, it learns by the tunnel being taken off
 * and put on.
 */
#ifndef SEGUE_SERVICE_MERGED_H
#define SEGUE_SERVICE_MERGED_H

#include <linux/pkt_cls.h>
#include "service_flow.h"

/* Outer header and SRH of as many segments as there can be. */
#define TUNNEL_MAX (sizeof(struct ipv6hdr) + 8 + 255 * 8)

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8[TUNNEL_MAX]);
} tunnels SEC(".maps");

/* Of a frame, from its Ethernet header on. */
static __always_inline int frame_is_steered(struct __sk_buff *skb, struct headers *headers)
{
	return !bpf_skb_load_bytes(skb, 0, headers, sizeof(*headers)) && is_steered(headers);
}

/* Which frames a socket takes, whole. */
SEC("socket")
int merged_filter(struct __sk_buff *skb)
{
	struct headers headers;

	return frame_is_steered(skb, &headers) ? (int)0xffffffff : 0;
}

/* Which of the sockets. The packet is there from its IP header on. */
SEC("socket")
int merged_spread(struct __sk_buff *skb)
{
	struct headers headers = {};
	__u32 zero = 0;
	const struct settings *set = bpf_map_lookup_elem(&settings, &zero);

	if (!set || bpf_skb_load_bytes(skb, 0, &headers.ip, sizeof(headers) - sizeof(headers.ethernet)))
		return 0;
	return worker(skb, BUFFER_SOCKET, 0, &headers, set);
}

/* What the sockets have taken ends here, whether there was room for it or not: a function is never bypassed. */
SEC("tc")
int merged_in(struct __sk_buff *skb)
{
	struct headers headers;

	if (!frame_is_steered(skb, &headers)) {
		count(COUNTER_KERNEL);
		return TC_ACT_OK;
	}
	count(COUNTER_SERVICE);
	return TC_ACT_STOLEN;
}

SEC("tc")
int merged_out(struct __sk_buff *skb)
{
	struct headers headers;
	__u32 zero = 0, length;
	__u8 *tunnel;

	if (!skb->gso_size || bpf_skb_load_bytes(skb, 0, &headers, sizeof(headers)) ||
	    headers.ethernet.h_proto != bpf_htons(ETH_P_IPV6) || headers.ip.nexthdr != PROTOCOL_ROUTING)
		return TC_ACT_OK;
	length = sizeof(struct ipv6hdr) + 8 * (headers.srh.length + 1);
	tunnel = bpf_map_lookup_elem(&tunnels, &zero);
	if (!tunnel || length > TUNNEL_MAX)
		return TC_ACT_SHOT;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, tunnel, length) ||
	    bpf_skb_adjust_room(skb, -(int)length, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO) ||
	    bpf_skb_adjust_room(skb, length, BPF_ADJ_ROOM_MAC,
				BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L3_IPV6) ||
	    bpf_skb_store_bytes(skb, ETH_HLEN, tunnel, length, 0)) {
		count(COUNTER_INVALID);
		return TC_ACT_SHOT;
	}
	return TC_ACT_OK;
}

#endif
