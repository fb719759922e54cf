/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a packet ends: exactly one outcome is counted for it, whatever way it takes. */
#ifndef SEGUE_PACKET_OUTCOME_H
#define SEGUE_PACKET_OUTCOME_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/frame.h"

/* Rows that no object has (SEGUE_NONE) are beyond the map: nothing is counted. */
INLINE void count(const struct packet *packet, u32 row)
{
	struct segue_counter *counter = bpf_map_lookup_elem(&counters, &row);

	if (likely(counter)) {
		counter->packets += packet_segments(packet);
		counter->bytes += packet->length;
	}
}

INLINE void count_icmp(u32 row)
{
	u64 *sent = bpf_map_lookup_elem(&icmp_sent, &row);

	if (sent)
		(*sent)++;
}

INLINE void count_outcome(const struct packet *packet, u32 outcome)
{
	u32 row = packet->port->index;
	struct segue_outcomes *outcomes_ = bpf_map_lookup_elem(&outcomes, &row);

	if (likely(outcomes_)) {
		outcomes_->outcome[outcome].packets += packet_segments(packet);
		outcomes_->outcome[outcome].bytes += packet->length;
	}
}

#define CAPTURE_MAX 9216

RARE int capture(buffer *ctx, u32 ifindex, u32 direction, u32 outcome)
{
	struct segue_capture head = {};
	u32 length = frame_length(ctx);

	head.time = bpf_ktime_get_ns();
	head.ifindex = ifindex;
	head.length = length;
	head.captured = length < CAPTURE_MAX ? length : CAPTURE_MAX;
	head.direction = direction;
	head.outcome = outcome;
	bpf_perf_event_output(ctx, &captures, BPF_F_CURRENT_CPU | ((u64)head.captured << 32), &head, sizeof(head));
	return 0;
}

/* A packet that is about to leave by an interface, which may be a port that is captured. */
RARE int capture_sent(buffer *ctx, u32 generation, u32 ifindex, u32 outcome)
{
	const struct segue_port *egress = port_find(generation, ifindex);

	if (egress && egress->flags & SEGUE_PORT_CAPTURE)
		capture(ctx, ifindex, 1, outcome);
	return 0;
}

/* Keeps the headers of a packet that was dropped. */
RARE int record_drop(buffer *ctx, u32 port_index, u32 outcome)
{
	struct segue_last_drop_key key = {.port = port_index, .outcome = outcome};
	struct scratch *scratch = scratch_get();
	u32 length, captured;

	if (!scratch)
		return 0;
	length = frame_length(ctx);
	captured = length;
	if (captured > SEGUE_LAST_DROP_BYTES)
		captured = SEGUE_LAST_DROP_BYTES;
	/* One less, compared, one more: the form from which the verifier of 6.1 learns both bounds. */
	captured--;
	opaque(captured);
	if (captured > SEGUE_LAST_DROP_BYTES - 1)
		return 0;
	captured++;
	scratch->drop.time = bpf_ktime_get_ns();
	scratch->drop.ifindex = buffer_interface(ctx);
	scratch->drop.length = length;
	scratch->drop.captured = captured;
	__builtin_memset(scratch->drop.bytes, 0, sizeof(scratch->drop.bytes));
	if (buffer_load(ctx, 0, scratch->drop.bytes, captured))
		return 0;
	bpf_map_update_elem(&last_drops, &key, &scratch->drop, BPF_ANY);
	return 0;
}

/* From nobody else: `half` is a frame of which the Ethernet header can be written. */
INLINE void sign(u16 *half)
{
	half[3] = control.signature[0];
	half[4] = control.signature[1];
	half[5] = control.signature[2];
}

#ifdef SEGUE_SKB
/*
 * On what has been counted and is for the kernel, but is not on the interface that it came in by: skb->mark, which
 * nobody outside of this namespace can set.
 */
INLINE u32 counted_mark(void)
{
	return (u32)(control.metadata_magic >> 32) | 1;
}

/* Whether it is. The mark comes off. */
INLINE int counted_before(buffer *skb)
{
	if (likely(skb->mark != counted_mark()))
		return 0;
	skb->mark = 0;
	return 1;
}

/* To the kernel, as what came in by the port. */
RARE int pass_elsewhere(buffer *skb)
{
	skb->mark = counted_mark();
	return bpf_redirect(skb_elsewhere(skb), BPF_F_INGRESS);
}
#endif

INLINE int pass(const struct packet *packet, u32 outcome)
{
	count_outcome(packet, outcome);
#ifdef SEGUE_SKB
	if (unlikely(skb_elsewhere(packet->ctx)))
		return pass_elsewhere(packet->ctx);
#endif
	return VERDICT_PASS;
}

/* Not inlined, and by value: drops are rare, and there are many places that may drop. */
RARE int drop_counted(buffer *ctx, u32 port_index, u32 length, u32 outcome)
{
	struct segue_outcomes *row = bpf_map_lookup_elem(&outcomes, &port_index);
	struct scratch *scratch = scratch_get();
	u32 received = buffer_octets(ctx, buffer_start(ctx), buffer_end(ctx)) - ETHERNET_LENGTH;
	u64 now;

	/* Before the length is read it is 0, and the one in a header may lie. */
	if (unlikely(!length || (s32)length > (s32)received)) {
		received = frame_length(ctx) - ETHERNET_LENGTH;
		if (!length || length > received)
			length = (s32)received > 0 ? received : 0;
	}
	if (unlikely(!row || !scratch))
		return VERDICT_DROP;
	/* Less by its nature; said where the verifier needs it. */
	opaque(outcome);
	outcome &= SEGUE_OUTCOMES_MAX - 1;
	row->outcome[outcome].packets += buffer_segments(ctx);
	row->outcome[outcome].bytes += length;
	/*
	 * At most one record for each reason in a jiffy. Port and time are one word: another port's drop is recorded
	 * even in the same jiffy.
	 */
	now = bpf_jiffies64() << 8 | (port_index & 0xff);
	if (unlikely(scratch->drop_time[outcome] != now)) {
		scratch->drop_time[outcome] = now;
		record_drop(ctx, port_index, outcome);
	}
	return VERDICT_DROP;
}

INLINE int drop(const struct packet *packet, u32 outcome)
{
	return drop_counted(packet->ctx, packet->port->index, packet->length, outcome);
}

/* What the ICMP stage is to say; packed, since a BPF function takes five arguments. */
#define ICMP_ORDER(kind, family, type, code, l3)                                                                       \
	((u64)(kind) | (u64)(family) << 8 | (u64)(type) << 16 | (u64)(code) << 24 | (u64)(l3) << 32)

RARE int icmp_order(u64 order, u32 param, u64 way, u64 epoch)
{
	struct scratch *scratch = scratch_get();

	if (!scratch)
		return -1;
	scratch->epoch = epoch;
	scratch->icmp_kind = order;
	scratch->family = order >> 8;
	scratch->type = order >> 16;
	scratch->code = order >> 24;
	scratch->l3 = order >> 32;
	scratch->param = param;
	scratch->way = way;
	scratch->extension_length = 0;
	return 0;
}

/*
 * Drops the packet and answers it with an ICMP error from the ICMP stage. `l3` is the offset of the offending packet,
 * which must be unchanged from there on: the error quotes it.
 */
INLINE int drop_with_icmp(const struct packet *packet, u32 outcome, u32 kind, u32 family, u32 l3, u32 type, u32 code,
			  u32 param)
{
	drop(packet, outcome);
	if (!icmp_order(ICMP_ORDER(kind, family, type, code, l3), param, packet->icmp_way, packet->epoch))
		bpf_tail_call(packet->ctx, &stages, SEGUE_STAGE_ICMP);
	return VERDICT_DROP;
}

#define ICMPV6_DESTINATION_UNREACHABLE 1
#define ICMPV6_PACKET_TOO_BIG 2
#define ICMPV6_TIME_EXCEEDED 3
#define ICMPV6_PARAMETER_PROBLEM 4
#define ICMPV6_ECHO_REQUEST 128
#define ICMPV6_ECHO_REPLY 129
#define ICMPV6_SR_UPPER_LAYER_HEADER_ERROR 4 /* RFC 8754 section 4.3.1.2, a code of Parameter Problem */
#define ICMPV4_DESTINATION_UNREACHABLE 3
#define ICMPV4_FRAGMENTATION_NEEDED 4
#define ICMPV4_TIME_EXCEEDED 11

/* ICMPv6 Parameter Problem about the packet whose IPv6 header is at `l3`; `at` is the offset of the wrong field in the
 * frame. */
INLINE int parameter_problem(const struct packet *packet, u32 outcome, u32 l3, u32 code, u32 at)
{
	return drop_with_icmp(packet, outcome, SEGUE_ICMP_PARAMETER_PROBLEM, 6, l3, ICMPV6_PARAMETER_PROBLEM, code,
			      at - l3);
}

INLINE int time_exceeded(const struct packet *packet, u32 family, u32 l3)
{
	return drop_with_icmp(packet, SEGUE_OUTCOME_drop_hop_limit_exceeded, SEGUE_ICMP_TIME_EXCEEDED, family, l3,
			      family == 6 ? ICMPV6_TIME_EXCEEDED : ICMPV4_TIME_EXCEEDED, 0, 0);
}

/* `mtu`: what the offending packet may be long, so that it fits with the headers that would be put in front of it. */
INLINE int too_big(const struct packet *packet, u32 family, u32 l3, u32 mtu)
{
	if (family == 6) {
		if (mtu < IPV6_LEAST_MTU)
			mtu = IPV6_LEAST_MTU;
		return drop_with_icmp(packet, SEGUE_OUTCOME_drop_too_big, SEGUE_ICMP_TOO_BIG, 6, l3,
				      ICMPV6_PACKET_TOO_BIG, 0, mtu);
	}
	return drop_with_icmp(packet, SEGUE_OUTCOME_drop_too_big, SEGUE_ICMP_TOO_BIG, 4, l3,
			      ICMPV4_DESTINATION_UNREACHABLE, ICMPV4_FRAGMENTATION_NEEDED, mtu);
}

/*
 * A source address that no packet may have, or none that is forwarded: who is on the link is told so (RFC 4443 section
 * 3.1, code 2, beyond scope of source address; RFC 4291 section 2.5.6).
 */
INLINE int refuse_source(const struct packet *packet, struct address source, struct address destination)
{
	if (!address_link_local(source) || address_equal(source, destination))
		return drop(packet, SEGUE_OUTCOME_drop_bad_source);
	return drop_with_icmp(packet, SEGUE_OUTCOME_drop_bad_source, SEGUE_ICMP_UNREACHABLE, 6, ETHERNET_LENGTH,
			      ICMPV6_DESTINATION_UNREACHABLE, 2, 0);
}

#ifndef SEGUE_SKB
/*
 * Has the TC program on the port send a complete frame by an interface that takes none from XDP (lib/kernel/answer.h).
 * `row`: of the port in `outcomes`, and in the high half the outcome.
 */
RARE int transmit_by_kernel(buffer *ctx, u32 ifindex, u32 row, u32 length, u32 generation)
{
	struct segue_answer_metadata *answer;
	u32 port_index = row & 0xffff, outcome = row >> 16;
	struct segue_outcomes *outcomes_;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*answer)))
		return drop_counted(ctx, port_index, length, SEGUE_OUTCOME_drop_no_metadata);
	answer = (void *)(long)ctx->data_meta;
	if ((void *)(answer + 1) > buffer_start(ctx))
		return drop_counted(ctx, port_index, length, SEGUE_OUTCOME_drop_no_metadata);
	answer->magic = ~control.metadata_magic;
	answer->oif = ifindex;
	answer->family = 0;
	__builtin_memset(answer->next_hop, 0, sizeof(answer->next_hop));
	outcomes_ = bpf_map_lookup_elem(&outcomes, &port_index);
	opaque(outcome);
	outcome &= SEGUE_OUTCOMES_MAX - 1;
	if (outcomes_) {
		outcomes_->outcome[outcome].packets++;
		outcomes_->outcome[outcome].bytes += length;
	}
	if (unlikely(control.captures))
		capture_sent(ctx, generation, ifindex, outcome);
	return VERDICT_PASS;
}
#endif

/*
 * Sends the frame out of an interface: its number, with SEGUE_OIF_BY_KERNEL if it takes none from XDP. The frame is
 * complete.
 */
INLINE int transmit(const struct packet *packet, u32 ifindex, u32 outcome)
{
#ifdef SEGUE_SKB
	ifindex &= ~SEGUE_OIF_BY_KERNEL;
#else
	if (unlikely(ifindex & SEGUE_OIF_BY_KERNEL))
		return transmit_by_kernel(packet->ctx, ifindex & ~SEGUE_OIF_BY_KERNEL,
					  packet->port->index | outcome << 16, packet->length, packet->generation);
#endif
	count_outcome(packet, outcome);
	if (unlikely(control.captures))
		capture_sent(packet->ctx, packet->generation, ifindex, outcome);
	return bpf_redirect(ifindex, 0);
}

/* A port that this generation does not know: its program is about to be detached, or its configuration is yet to come.
 */
RARE int drop_unknown_port(buffer *ctx)
{
	struct segue_outcomes *row;
	u32 zero = 0;

	row = bpf_map_lookup_elem(&outcomes, &zero);
	if (row) {
		row->outcome[SEGUE_OUTCOME_drop_port_unknown].packets += buffer_segments(ctx);
		row->outcome[SEGUE_OUTCOME_drop_port_unknown].bytes += frame_length(ctx) - ETHERNET_LENGTH;
	}
	return VERDICT_DROP;
}

#endif
