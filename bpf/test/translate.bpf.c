// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A function that makes IPv6 packets of IPv4 ones, as simply as it can be done (64:ff9b::/96 in front of the addresses;
 * no fragments, and the transport checksum stays): for what becomes of a packet's steering header. The helper clears
 * skb->hash.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

static __always_inline int translate(struct __sk_buff *skb, int keep)
{
	__u16 ethertype = bpf_htons(ETH_P_IPV6);
	__u32 hash = skb->hash;
	struct ipv6hdr ip6 = {.version = 6};
	struct iphdr ip;

	if (skb->protocol != bpf_htons(ETH_P_IP))
		return TC_ACT_UNSPEC;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
		return TC_ACT_SHOT;
	ip6.payload_len = bpf_htons(bpf_ntohs(ip.tot_len) - sizeof(ip));
	ip6.nexthdr = ip.protocol;
	ip6.hop_limit = ip.ttl;
	ip6.saddr.s6_addr32[0] = bpf_htonl(0x64ff9b);
	ip6.saddr.s6_addr32[3] = ip.saddr;
	ip6.daddr.s6_addr32[0] = bpf_htonl(0x64ff9b);
	ip6.daddr.s6_addr32[3] = ip.daddr;
	if (bpf_skb_change_proto(skb, ethertype, 0))
		return TC_ACT_SHOT;
	if (bpf_skb_store_bytes(skb, 12, &ethertype, sizeof(ethertype), 0) ||
	    bpf_skb_store_bytes(skb, ETH_HLEN, &ip6, sizeof(ip6), 0))
		return TC_ACT_SHOT;
	if (keep)
		bpf_set_hash(skb, hash);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int forget_hash(struct __sk_buff *skb)
{
	return translate(skb, 0);
}

SEC("classifier") /* another name of the same kind, for `sec` of tc */
int keep_hash(struct __sk_buff *skb)
{
	return translate(skb, 1);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
