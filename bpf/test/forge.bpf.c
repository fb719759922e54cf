// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A malicious function: every packet that it sends claims to be on its way through the function, with one reference
 * after the other to a steering header. It knows all that there are: the test writes them into references.h beside this
 * file's copy.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "abi/segue.h"

#if __has_include("references.h")
#include "references.h"
#else
#define REFERENCES {1 << 16, SEGUE_TC_INDEX},
#endif

static const struct {
	__u32 hash, tc_index;
} references[] = {REFERENCES};

#define NUMBER (sizeof(references) / sizeof(references[0]))

__u32 tried;

SEC("tc")
int forge(struct __sk_buff *skb)
{
	__u32 number = __sync_fetch_and_add(&tried, 1) % NUMBER;

	skb->tc_index = references[number].tc_index;
	bpf_set_hash(skb, references[number].hash);
	return TC_ACT_UNSPEC; /* with TC_ACT_OK the kernel would write its own tc_index */
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
