// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A malicious function: every packet that it sends claims to be on its way through the function, with one reference
 * after the other to a steering header.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "abi/segue.h"

#define SLOTS 8 /* tried of each half of the store: the first slots of each of two CPUs */

__u32 tried;

SEC("tc")
int forge(struct __sk_buff *skb)
{
	__u32 number = __sync_fetch_and_add(&tried, 1);
	__u32 slot = number % SLOTS + (number / SLOTS % 2) * (SEGUE_STASH_SLOTS / 2);

	skb->tc_index = SEGUE_TC_INDEX;
	bpf_set_hash(skb, 1 << 16 | slot);
	return TC_ACT_UNSPEC; /* with TC_ACT_OK the kernel would write its own tc_index */
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
