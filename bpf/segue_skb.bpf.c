// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Segue's data plane where packets are socket buffers: programs for the TC hook. `segue_port` and its stages, for ports
 * that have this hook; and those by which functions on the kernel's path are reached. Wiring only: what happens to a
 * packet is in lib/.
 */
#define SEGUE_SKB
#include "lib/base/types.h"

#define PROGRAM(name)                                                                                                  \
	SEC("tc")                                                                                                      \
	int name(struct __sk_buff *ctx)

#include "stages.h"
#include "lib/kernel/function.h"
#include "lib/kernel/answer.h"
#include "lib/kernel/cut.h"

/*
 * Ingress of all ports that have the XDP program: what it hands to functions goes into their namespaces, and what it
 * has made leaves.
 */
SEC("tc")
int segue_function_in(struct __sk_buff *skb)
{
	struct segue_function_metadata *metadata = (void *)(long)skb->data_meta;

	if (likely((void *)(metadata + 1) > buffer_start(skb) || metadata->magic != control.metadata_magic)) {
		struct segue_answer_metadata *answer = (void *)metadata;

		if (unlikely((void *)(answer + 1) <= buffer_start(skb) && answer->magic == ~control.metadata_magic))
			return answer_leaves(skb, answer);
		/* Another node's, when it came by a link of this machine. */
		if (unlikely(skb->tc_index))
			skb->tc_index = 0;
		return TC_ACT_UNSPEC;
	}
	return function_in(skb, metadata);
}

/* What a function sends of its own: a stage behind a tail call, since it is long and rare. */
SEC("tc")
int segue_own(struct __sk_buff *skb)
{
	struct packet packet;

	if (packet_begin(skb, &packet, STAGE_PORT, epoch_carried()))
		return drop_counted(skb, 0, 0, SEGUE_OUTCOME_drop_port_unknown);
	return function_own(&packet);
}

/* What comes out of a function behind a label: a stage, which nodes without labels never meet. */
SEC("tc")
int segue_function_labels(struct __sk_buff *skb)
{
	struct packet packet;

	if (packet_begin(skb, &packet, STAGE_PORT, epoch_carried()))
		return drop_counted(skb, 0, 0, SEGUE_OUTCOME_drop_port_unknown);
	return function_labels(&packet);
}

/* Ingress of the ports to and from functions: what comes out of them. */
SEC("tc")
int segue_function_out(struct __sk_buff *skb)
{
	struct scratch *scratch;
	struct packet packet;

	if (unlikely(counted_before(skb)))
		return VERDICT_PASS;
	if (unlikely(packet_begin(skb, &packet, STAGE_PORT, epoch_now())))
		return drop_counted(skb, 0, 0, SEGUE_OUTCOME_drop_port_unknown);
	epoch_in_domain(&packet);
	if (unlikely(packet.port->flags & SEGUE_PORT_CAPTURE))
		capture(skb, skb->ifindex, 0, 0);
	if (unlikely((skb->tc_index & SEGUE_TC_INDEX_MASK) != SEGUE_TC_INDEX))
		goto own;
	return function_out(&packet, 0);
own:
	scratch = scratch_get();
	if (scratch)
		scratch->epoch = packet.epoch;
	bpf_tail_call(skb, &stages, SEGUE_STAGE_OWN);
	return drop(&packet, SEGUE_OUTCOME_drop_recirculation);
}

/*
 * Egress of the lower device of a function's macvlan: what it sends comes by here without another queue. What is not on
 * its way through the function goes in again by the same device, where segue_function_out meets it.
 */
SEC("tc")
int segue_function_egress(struct __sk_buff *skb)
{
	struct packet packet;

	/* A macvlan keeps the mark that its namespace has set, which may try them all. */
	counted_before(skb);
	if (unlikely(packet_begin(skb, &packet, STAGE_PORT, epoch_now())))
		return drop_counted(skb, 0, 0, SEGUE_OUTCOME_drop_port_unknown);
	epoch_in_domain(&packet);
	if (unlikely((skb->tc_index & SEGUE_TC_INDEX_MASK) != SEGUE_TC_INDEX)) {
		if (from_port(&packet))
			return TC_ACT_UNSPEC;
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	}
	if (unlikely(packet.port->flags & SEGUE_PORT_CAPTURE))
		capture(skb, skb->ifindex, 0, 0);
	return function_out(&packet, 1);
}

/* Ingress of the link from which buffers come back as single packets: lib/packet/cut.h. */
SEC("tc")
int segue_cut(struct __sk_buff *skb)
{
	return cut_back(skb);
}

/* On no port: run on a frame, it has that come in by the interface that the run is for, as if somebody had sent it
 * there. */
SEC("tc")
int segue_inject(struct __sk_buff *skb)
{
	return bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
