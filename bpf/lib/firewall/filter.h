/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The firewall: rules as iptables has them, asked (lib/firewall/run.h) for the packet that lib/firewall/key.h reads;
 * and what their verdicts do to it.
 */
#ifndef SEGUE_FIREWALL_FILTER_H
#define SEGUE_FIREWALL_FILTER_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/frame.h"
#include "lib/packet/outcome.h"
#include "lib/packet/tags.h"
#include "lib/header/advance.h"
#include "lib/forward/sid.h"
#include "lib/core/advance.h"
#include "lib/firewall/fragment.h"
#include "lib/firewall/key.h"
#include "lib/firewall/labels.h"
#include "lib/firewall/run.h"
#include "lib/firewall/tags.h"
#include "lib/firewall/verdict.h"
#include "lib/firewall/work.h"
#include "lib/conntrack/error.h"
#include "lib/conntrack/track.h"
#include "lib/conntrack/valid.h"

/*
 * For `-o`: the interface that the packet is about to leave by, which is that of the kernel's route to the next
 * segment, or to the outermost destination. It stays 0 where there is no such route.
 */
RARE int firewall_egress(buffer *ctx, struct firewall_work *work)
{
	struct bpf_fib_lookup fib = {};
	struct segue_classifier_key *key;
	u64 source[2], destination[2];
	long verdict;

	if (!work)
		return 0;
	key = &work->key;
	fib.ifindex = buffer_interface(ctx);
	if (FIB_LENGTH)
		fib.tot_len = FIB_LENGTH;
	if (key->outer_family == 6) {
		source[0] = bpf_cpu_to_be64(key->outer_source[0]);
		source[1] = bpf_cpu_to_be64(key->outer_source[1]);
		destination[0] = bpf_cpu_to_be64(work->sid ? key->next_sid[0] : key->outer_destination[0]);
		destination[1] = bpf_cpu_to_be64(work->sid ? key->next_sid[1] : key->outer_destination[1]);
		fib.family = 10; /* AF_INET6 */
		__builtin_memcpy(fib.ipv6_src, source, sizeof(source));
		__builtin_memcpy(fib.ipv6_dst, destination, sizeof(destination));
	} else {
		fib.family = 2; /* AF_INET */
		fib.ipv4_src = bpf_htonl(key->source[0]);
		fib.ipv4_dst = bpf_htonl(key->destination[0]);
	}
	verdict = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	if (verdict == BPF_FIB_LKUP_RET_SUCCESS || verdict == BPF_FIB_LKUP_RET_NO_NEIGH)
		key->egress = fib.ifindex;
	return 0;
}

/*
 * Reads the packet; `labels` as firewall_key_read() has it. 0, or an outcome as of that. Where nothing lies between
 * that and the rules (`work->direct`), the first find is made here, because the way back from a function is as long as
 * a find; `work->direct` is 2 if that was not all. Else `work->known` says whether a verdict was kept for such packets.
 */
INLINE u32 firewall_read_at(buffer *ctx, struct firewall_work *work, u32 labels)
{
	u32 error;

	if (!work)
		return SEGUE_OUTCOME_drop_truncated;
	error = firewall_key_read(ctx, work, labels);
	if (unlikely(error))
		return error;
	if (work->direct) {
		if (unlikely(firewall_first(ctx, work)))
			work->direct = 2;
	} else if (work->verdicts && work->key.protocol == PROTOCOL_UDP && likely(!work->fragment) &&
		   likely(datagram_valid(ctx, work))) {
		work->known = verdict_find(work, 1);
	}
	return 0;
}

RARE u32 firewall_read(buffer *ctx, struct firewall_work *work)
{
	return firewall_read_at(ctx, work, 0);
}

/* The same behind labels: a function of its own, so that others have their packet at a constant offset. */
RARE u32 firewall_read_behind(buffer *ctx, struct firewall_work *work)
{
	return firewall_read_at(ctx, work, 1);
}

/* By what a packet comes to a firewall. */
enum firewall_way {
	FIREWALL_BY_PORT = 0,
	FIREWALL_BY_SID = 1,
	FIREWALL_BY_LABEL = 2,
};

/*
 * Reads and judges the packet, which came by `way`, a constant; by a label `work->stack` and `work->limit` say where it
 * lies. 0, or an outcome for which it is dropped without asking rules.
 */
INLINE u32 firewall_filter(buffer *ctx, struct firewall_work *work, const struct segue_firewall *firewall, u32 index,
			   u32 way, u64 epoch)
{
	u32 error, follows = 0, labels = way == FIREWALL_BY_LABEL && firewall->words & KEY_WORDS_STEERING;

	work->firewall = index;
	work->scope = firewall->scope;
	work->sid = way == FIREWALL_BY_SID;
	if (way != FIREWALL_BY_LABEL)
		work->stack = 0;
	work->words = firewall->words;
	work->epoch = epoch;
	work->verdicts = verdict_suits(firewall);
	work->known = 0;
	work->direct = !(firewall->flags & SEGUE_FIREWALL_STATE || firewall->words & KEY_WORDS(egress) || labels);
	error = way == FIREWALL_BY_LABEL ? firewall_read_behind(ctx, work) : firewall_read(ctx, work);
	if (unlikely(error))
		return error;
	if (work->direct) {
		if (likely(work->direct == 1))
			return 0;
		work->error = 0;
		firewall_run_on(ctx, work);
		return work->error;
	}
	if (work->known)
		return 0;
	if (labels) {
		error = firewall_key_labels(ctx, work, firewall->flags);
		if (unlikely(error))
			return error;
	}
	work->fresh = 0;
	if (firewall->flags & SEGUE_FIREWALL_STATE) {
		u32 state;

		work->track.until = 0;
		follows = unlikely(work->fragment) && firewall_base(firewall, work);
		if (follows) {
			error = firewall_fragment(work, firewall->scope, 0);
			if (error != FRAGMENT_JUDGE)
				return error == FRAGMENT_FOLLOW ? 0 : error;
		}
		state = likely(conntrack_valid(ctx, work)) ? conntrack_state(ctx, work, firewall) : SEGUE_STATE_INVALID;
		if (unlikely(state == CONNTRACK_ERROR))
			state = conntrack_error(ctx, work, firewall);
		if (unlikely(state & CONNTRACK_DROP))
			return state & ~CONNTRACK_DROP;
		if (work->known)
			return 0;
		work->key.connection_state = state;
	}
	if (unlikely(firewall->words & KEY_WORDS(egress)))
		firewall_egress(ctx, work);
	work->error = 0;
	firewall_run(ctx, work);
	if (unlikely(work->error))
		return work->error;
	if (work->verdicts && work->track.until && !work->fragment && !work->fresh)
		verdict_keep(work);
	if (work->action != SEGUE_ACTION_ACCEPT && work->action != SEGUE_ACTION_SEG6)
		return 0;
	if (unlikely(follows) && work->fragment & FIREWALL_FIRST_FRAGMENT) {
		error = firewall_fragment(work, firewall->scope, 1);
		if (error != FRAGMENT_FOLLOW)
			return error;
	}
	if (work->fresh)
		return conntrack_insert(work, firewall);
	return 0;
}

/*
 * What a code of ICMPv6's Destination Unreachable means to a source that speaks IPv4, as nftables' `icmpx`: in advanced
 * mode IPv4 packets meet the rules for IPv6, too.
 */
INLINE u32 reject_ipv4_code(u32 code)
{
	switch (code) {
	case 0: /* no route: network unreachable */
		return 0;
	case 3: /* address unreachable: host unreachable */
		return 1;
	case 4: /* port unreachable */
		return 3;
	}
	return 13; /* forbidden */
}

/* REJECT: the packet is dropped and its source told. */
INLINE int firewall_reject(const struct packet *packet, const struct firewall_work *work)
{
	u32 family = work->key.family, code = work->argument & 0xff, l3 = work->l3;

	/*
	 * The first fragment is answered, and once is enough (RFC 1122 section 3.2.2). What has nothing behind its
	 * headers has nobody who would understand the answer; ip6tables is silent too.
	 */
	if (unlikely(work->fragment & FIREWALL_LATER_FRAGMENT || (family == 6 && work->walk.upper >= work->limit))) {
		count_icmp(SEGUE_ICMP_NOT_SENT);
		return drop(packet, SEGUE_OUTCOME_drop_firewall_rejected);
	}
	if (work->detail == SEGUE_REJECT_TCP_RESET) {
		drop(packet, SEGUE_OUTCOME_drop_firewall_rejected);
		stage(packet, SEGUE_STAGE_RESET);
		return VERDICT_DROP;
	}
	if (unlikely(family == 4 && work->detail == SEGUE_REJECT_ICMP6))
		code = reject_ipv4_code(code);
	return drop_with_icmp(packet, SEGUE_OUTCOME_drop_firewall_rejected, SEGUE_ICMP_UNREACHABLE, family, l3,
			      family == 6 ? ICMPV6_DESTINATION_UNREACHABLE : ICMPV4_DESTINATION_UNREACHABLE, code, 0);
}

/* SEG6 at a SID, where MPLS is as go-next. `next`: what go-next does. Ends the packet. */
INLINE int firewall_seg6(const struct packet *packet, const struct segue_sid *sid,
			 const struct segue_firewall *firewall, struct firewall_work *work, u32 limit,
			 const struct advance *next)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	struct advance advance = {.header = next->header & OFFSET_MASK, .previous = next->previous};
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	struct srh *srh = data + advance.header;
	u32 left = next->left, refused;
	u64 action = work->detail;
	struct address active;

	if (action == SEGUE_SEG6_EVAL_ARGS) {
		active.high = bpf_cpu_to_be64(work->key.active_sid[0]);
		active.low = bpf_cpu_to_be64(work->key.active_sid[1]);
		action = sid_argument(sid, firewall->argument_length, active);
		if (action > SEGUE_SEG6_GO_LAST)
			/* SERA section V.B: points at the active SID, the destination address. */
			return parameter_problem(packet, SEGUE_OUTCOME_drop_firewall, ETHERNET_LENGTH, 0,
						 ETHERNET_LENGTH + 24);
	}
	if (action == SEGUE_SEG6_GO_LAST) {
		left = 0;
	} else if (action == SEGUE_SEG6_SKIP_NEXT) {
		if (!left) /* nothing would be left to go to */
			return parameter_problem(packet, SEGUE_OUTCOME_drop_segments_left, ETHERNET_LENGTH, 0,
						 next->header + 3);
		left--;
	}
	opaque(left);
	if ((void *)(ip + 1) > end || (void *)(srh + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_multi_buffer_header);
	refused = advance_to(&advance, data, end, left & 0xff);
	if (unlikely(refused))
		return drop(packet, refused);
	return end_forward(packet, sid, ip, srh, limit, &advance);
}

/* At a SID with a firewall and segments left: filtered, then End. */
INLINE int firewall_segment(const struct packet *packet, const struct segue_sid *sid, const struct outer *outer,
			    const struct advance *advance)
{
	struct firewall_work *work = firewall_work_get();
	u32 index = sid->firewall, error;
	const struct segue_firewall *firewall = bpf_map_lookup_elem(&firewalls, &index);

	if (unlikely(!work || !firewall))
		return drop(packet, SEGUE_OUTCOME_drop_behaviour);
	work->detail = SEGUE_SEG6_GO_NEXT;
	if (likely(!(firewall->flags & SEGUE_FIREWALL_OFF))) {
		error = firewall_filter(packet->ctx, work, firewall, index, FIREWALL_BY_SID, packet->epoch);
		if (unlikely(error))
			return drop(packet, error);
		if (work->action == SEGUE_ACTION_ACCEPT)
			work->detail = SEGUE_SEG6_GO_NEXT;
		else if (work->action == SEGUE_ACTION_REJECT)
			return firewall_reject(packet, work);
		else if (work->action != SEGUE_ACTION_SEG6)
			return drop(packet, SEGUE_OUTCOME_drop_firewall);
	}
	return firewall_seg6(packet, sid, firewall, work, outer->limit, advance);
}

/* In by a port with a firewall: the plain firewall. */
INLINE int firewall_port(struct packet *packet)
{
	struct firewall_work *work = firewall_work_get();
	u32 index = packet->port->firewall, error, tags = FIREWALL_TAGS_NONE;
	const struct segue_firewall *firewall = bpf_map_lookup_elem(&firewalls, &index);
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	int foreign;
	u16 ethertype;

	if (unlikely(!work || !firewall))
		return drop(packet, SEGUE_OUTCOME_drop_behaviour);
	if (data + ETHERNET_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	foreign = !(packet->port->flags & SEGUE_PORT_L2) && frame_foreign(packet, data) && !frame_to_group(data);
	ethertype = *(const u16 *)(data + 12);
	if (unlikely(ethertype != bpf_htons(ETH_P_IPV6) && ethertype != bpf_htons(ETH_P_IP))) {
		if (packet->port->flags & SEGUE_PORT_L2) {
			if (!(firewall->flags & SEGUE_FIREWALL_OFF))
				tags = firewall_tags_remove(packet->ctx, work);
			if (tags == FIREWALL_TAGS_TOO_MANY)
				return drop(packet, SEGUE_OUTCOME_drop_firewall_tags);
		} else if (priority_tag_remove(packet->ctx)) {
			stage(packet, SEGUE_STAGE_FILTER);
			return drop(packet, SEGUE_OUTCOME_drop_recirculation);
		}
		if (tags == FIREWALL_TAGS_NONE)
			goto passed;
		/* How many packets a buffer is could not be seen through them. */
		packet_measure(packet);
	}
	if (likely(!(firewall->flags & SEGUE_FIREWALL_OFF))) {
		/* What is between others is theirs: neither answered, nor a connection here, nor past the rules to a
		 * bridge. */
		if (unlikely(foreign))
			return drop(packet, SEGUE_OUTCOME_drop_other_host);
		error = firewall_filter(packet->ctx, work, firewall, index, FIREWALL_BY_PORT, packet->epoch);
		packet->length = work->limit - ETHERNET_LENGTH;
		if (unlikely(error))
			return drop(packet, error);
		/* An answer would leave without the tags, to somebody else: the packet is dropped in silence. */
		if (work->action == SEGUE_ACTION_REJECT)
			return tags || firewall_tag_beside(packet->ctx) ? drop(packet, SEGUE_OUTCOME_drop_firewall)
									: firewall_reject(packet, work);
		if (work->action != SEGUE_ACTION_ACCEPT && work->action != SEGUE_ACTION_SEG6)
			return drop(packet, SEGUE_OUTCOME_drop_firewall);
	}
	if (unlikely(tags) && firewall_tags_restore(packet->ctx, work))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
passed:
	stage(packet, SEGUE_STAGE_FILTERED);
	return drop(packet, SEGUE_OUTCOME_drop_recirculation);
}

#endif
