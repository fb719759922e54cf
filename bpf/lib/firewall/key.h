/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the firewall's rules look at, read once for each packet: of a steered one the inner packet, else the packet
 * itself, with the destination that it will have (Segment List[0]) while an SRH is in it. SRH and outermost addresses
 * beside it. Fields that a packet lacks are absent: no rule on them matches.
 */
#ifndef SEGUE_FIREWALL_KEY_H
#define SEGUE_FIREWALL_KEY_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/config.h"
#include "lib/packet/buffer.h"
#include "lib/packet/frame.h"
#include "lib/forward/sid.h"
#include "lib/firewall/headers.h"
#include "lib/firewall/upper.h"
#include "lib/firewall/work.h"
#include "abi/classifier.h"

/* A fragment of a datagram that is not read as a whole: 0, or the outcome. RFC 1858: offset 1 lies in a TCP header. */
INLINE u32 firewall_fragment_refused(u32 protocol, u32 offset)
{
	return offset == 1 && protocol == PROTOCOL_TCP ? SEGUE_OUTCOME_drop_layer4_header : 0;
}

INLINE void firewall_key_fragment(struct segue_classifier_key *key, const struct firewall_walk *walk)
{
	key->fragment_offset = walk->fragment_offset;
	key->fragment_flags = walk->fragment_flags;
	key->fragment_identification = walk->identification;
}

/* There is more in the datagram than in this packet: not an atomic fragment (RFC 6946). */
INLINE int is_fragment(const struct firewall_walk *walk)
{
	return walk->fragment && (walk->later || walk->fragment_flags & SEGUE_FRAGMENT_MORE);
}

/* The IPv4 packet at `l3`, which must end before `limit`. 0, or the outcome. */
INLINE u32 firewall_key_ipv4(buffer *ctx, struct firewall_work *work, u32 l3, u32 limit)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	struct segue_classifier_key *key = &work->key;
	const struct iphdr *ip = data + (l3 & OFFSET_MASK);
	const u8 *octet = (const void *)ip;
	u32 header, length, fragment;

	if ((void *)(ip + 1) > end || l3 + sizeof(*ip) > limit)
		return SEGUE_OUTCOME_drop_truncated;
	if (octet[0] >> 4 != 4)
		return SEGUE_OUTCOME_drop_bad_version;
	header = (octet[0] & 15) * 4;
	length = bpf_ntohs(ip->tot_len);
	if (header < 20 || length < header || l3 + length > limit)
		return SEGUE_OUTCOME_drop_bad_length;
	work->l3 = l3;
	work->limit = l3 + length;
	fragment = bpf_ntohs(ip->frag_off);
	key->family = 4;
	key->source[0] = bpf_ntohl(ip->saddr);
	key->source[1] = 0;
	key->destination[0] = bpf_ntohl(ip->daddr);
	key->destination[1] = 0;
	key->protocol = ip->protocol;
	key->traffic_class = ip->tos;
	key->hop_limit = ip->ttl;
	key->length = length;
	key->fragment_offset = fragment & 0x1fff;
	key->fragment_flags = (fragment & 0x2000 ? SEGUE_FRAGMENT_MORE : 0) |
			      (fragment & 0x4000 ? SEGUE_FRAGMENT_DONT : 0) |
			      (fragment & 0x8000 ? SEGUE_FRAGMENT_RESERVED : 0);
	key->fragment_identification = bpf_ntohs(ip->id);
	if (likely(!(fragment & 0x3fff)))
		return firewall_key_upper(ctx, work, l3 + header, l3 + length);
	work->fragment_offset = fragment & 0x1fff;
	work->identification = bpf_ntohs(ip->id);
	work->payload = l3 + header;
	work->fragment = fragment & 0x2000 ? FIREWALL_MORE_FRAGMENTS : 0;
	if (!(fragment & 0x1fff)) {
		work->fragment |= FIREWALL_FIRST_FRAGMENT;
		return firewall_key_upper(ctx, work, l3 + header, l3 + length);
	}
	work->fragment |= FIREWALL_LATER_FRAGMENT;
	return firewall_fragment_refused(ip->protocol, fragment & 0x1fff);
}

/* The IPv6 header at `l3` alone. 0, or the outcome; `*limit` becomes the packet's end. */
INLINE u32 firewall_key_ipv6(buffer *ctx, struct firewall_work *work, u32 l3, u32 *limit)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	struct segue_classifier_key *key = &work->key;
	const struct ipv6hdr *ip = data + (l3 & OFFSET_MASK);
	struct firewall_walk *walk = &work->walk;
	const u64 *words;
	u32 word, length;

	if ((void *)(ip + 1) > end || l3 + IPV6_LENGTH > *limit)
		return SEGUE_OUTCOME_drop_truncated;
	word = bpf_ntohl(*(const u32 *)ip);
	if (word >> 28 != 6)
		return SEGUE_OUTCOME_drop_bad_version;
	length = IPV6_LENGTH + bpf_ntohs(ip->payload_len);
	if (l3 + length > *limit)
		return SEGUE_OUTCOME_drop_bad_length;
	*limit = l3 + length;
	work->l3 = l3;
	work->limit = l3 + length;
	words = (const u64 *)&ip->saddr;
	key->family = 6;
	key->source[0] = bpf_be64_to_cpu(words[0]);
	key->source[1] = bpf_be64_to_cpu(words[1]);
	key->destination[0] = bpf_be64_to_cpu(words[2]);
	key->destination[1] = bpf_be64_to_cpu(words[3]);
	key->traffic_class = word >> 20 & 0xff;
	key->flow_label = word & 0xfffff;
	key->hop_limit = ip->hop_limit;
	key->length = length;
	walk->protocol = ip->nexthdr;
	walk->upper = l3 + IPV6_LENGTH;
	walk->srh = 0;
	walk->routing = SEGUE_CLASSIFIER_ABSENT;
	walk->fragment = 0;
	walk->fragment_offset = 0;
	walk->fragment_flags = 0;
	walk->later = 0;
	walk->error = 0;
	if (!is_extension_header(ip->nexthdr) ||
	    (ip->nexthdr == PROTOCOL_ROUTING && firewall_walk_srh(ctx, *limit, l3 + IPV6_LENGTH, walk)))
		return 0;
	firewall_walk_on(ctx, *limit, walk);
	return walk->error;
}

/* Fields of the SRH at `offset`: those of Segment List that lie in it. 0, or the outcome. */
RARE u32 firewall_key_srh(buffer *ctx, struct firewall_work *work)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	struct segue_classifier_key *key;
	const struct srh *srh;
	const u64 *words;
	u32 left;

	if (!work)
		return 0;
	key = &work->key;
	srh = data + (work->srh & OFFSET_MASK);
	if ((void *)(srh + 1) + 16 > end)
		return SEGUE_OUTCOME_drop_truncated;
	left = srh->segments_left;
	/* As at a SID (RFC 8754 section 4.3.1.1): what does not fit is no SRH that a rule could rely on. */
	if ((s32)srh->last_entry > (s32)(srh->length / 2) - 1 || left > srh->last_entry + 1U)
		return SEGUE_OUTCOME_drop_segments_left;
	key->present |= SEGUE_PRESENT_SRH;
	key->srh_next_header = srh->next_header;
	key->srh_length = srh->length;
	key->srh_segments_left = left;
	key->srh_last_entry = srh->last_entry;
	key->srh_tag = bpf_ntohs(srh->tag);
	words = (const u64 *)(srh + 1);
	key->last_sid[0] = bpf_be64_to_cpu(words[0]);
	key->last_sid[1] = bpf_be64_to_cpu(words[1]);
	if (left) {
		words = (const void *)(srh + 1) + ((left - 1) & 0xff) * 16;
		if ((void *)(words + 2) > end)
			return SEGUE_OUTCOME_drop_multi_buffer_header;
		key->present |= SEGUE_PRESENT_NEXT_SID;
		key->next_sid[0] = bpf_be64_to_cpu(words[0]);
		key->next_sid[1] = bpf_be64_to_cpu(words[1]);
	}
	if (left < srh->last_entry) {
		words = (const void *)(srh + 1) + ((left + 1) & 0xff) * 16;
		if ((void *)(words + 2) > end)
			return SEGUE_OUTCOME_drop_multi_buffer_header;
		key->present |= SEGUE_PRESENT_PREVIOUS_SID;
		key->previous_sid[0] = bpf_be64_to_cpu(words[0]);
		key->previous_sid[1] = bpf_be64_to_cpu(words[1]);
	}
	return 0;
}

/* All words to what says that a field is absent. */
INLINE void firewall_key_clear(struct segue_classifier_key *key)
{
	key->source_port = SEGUE_CLASSIFIER_ABSENT;
	key->destination_port = SEGUE_CLASSIFIER_ABSENT;
	key->protocol = SEGUE_CLASSIFIER_ABSENT;
	key->connection_state = SEGUE_CLASSIFIER_ABSENT;
	key->connection_direction = SEGUE_CLASSIFIER_ABSENT;
	key->tcp_flags = SEGUE_CLASSIFIER_ABSENT;
	key->icmp = SEGUE_CLASSIFIER_ABSENT;
	key->egress = 0;
	key->mark = 0;
	key->flow_label = SEGUE_CLASSIFIER_ABSENT;
	key->fragment_offset = SEGUE_CLASSIFIER_ABSENT;
	key->fragment_flags = 0;
	key->fragment_identification = 0;
	key->present = 0;
	key->tcp_options = 0;
	key->srh_next_header = SEGUE_CLASSIFIER_ABSENT;
	key->srh_length = SEGUE_CLASSIFIER_ABSENT;
	key->srh_segments_left = SEGUE_CLASSIFIER_ABSENT;
	key->srh_last_entry = SEGUE_CLASSIFIER_ABSENT;
	key->srh_tag = SEGUE_CLASSIFIER_ABSENT;
	key->outer_family = 0;
	key->routing = SEGUE_CLASSIFIER_ABSENT;
}

/* The packet behind an outer IPv6 header and its extension headers, if there is one. 0, or the outcome. */
INLINE u32 firewall_key_inner(buffer *ctx, struct firewall_work *work, u32 limit)
{
	struct segue_classifier_key *key = &work->key;
	u32 upper = work->walk.upper;

	key->fragment_offset = SEGUE_CLASSIFIER_ABSENT;
	if (work->walk.protocol == PROTOCOL_IPV4) {
		key->flow_label = SEGUE_CLASSIFIER_ABSENT;
		return firewall_key_ipv4(ctx, work, upper, limit);
	}
	if (work->walk.protocol == PROTOCOL_IPV6)
		return firewall_key_ipv6(ctx, work, upper, &limit);
	return 0;
}

/* End of the frame. Asking for it is a call, so only for what does not fit the first buffer. */
INLINE u32 firewall_frame(buffer *ctx)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 frame = buffer_octets(ctx, data, end), length;

	if (data + ETHERNET_LENGTH + 8 > end)
		return frame;
	if (*(const u16 *)(data + 12) == bpf_htons(ETH_P_IP))
		length = bpf_ntohs(*(const u16 *)(data + ETHERNET_LENGTH + 2));
	else
		length = IPV6_LENGTH + bpf_ntohs(*(const u16 *)(data + ETHERNET_LENGTH + 4));
	return likely(ETHERNET_LENGTH + length <= frame) ? frame : frame_length(ctx);
}

/*
 * Is the packet in `work`, whose outermost header is in its key, one with a steering header but without an SRH: to a
 * SID of this node or another? What is in any other tunnel is its ends' business. It is forwarded by its own header, so
 * rules judge that, as netfilter does.
 */
RARE u32 firewall_steered(const struct firewall_work *work)
{
	struct address destination;

	if (!work)
		return 0;
	destination.high = bpf_cpu_to_be64(work->key.destination[0]);
	destination.low = bpf_cpu_to_be64(work->key.destination[1]);
	return in_sid_block(work->epoch, destination) || sid_find_at(work->epoch, &destination);
}

/*
 * Fills the key. `work->sid`, `work->words` and `work->epoch` are set. `labels`, a constant: the packet lies behind
 * `work->stack` octets of labels, which say nothing of its family, and ends at `work->limit`. 0, or the outcome for
 * which the packet has to be dropped.
 */
INLINE u32 firewall_key_read(buffer *ctx, struct firewall_work *work, u32 labels)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 limit, error, inner, ipv4, l3 = ETHERNET_LENGTH;
	struct segue_classifier_key *key;
	struct firewall_walk *walk;
	const u8 *octet = data;
	u64 mac;

	if (labels) {
		l3 = (ETHERNET_LENGTH + work->stack) & OFFSET_MASK;
		octet += l3;
		if ((void *)(octet + 1) > end)
			return SEGUE_OUTCOME_drop_truncated;
	}
	if (data + ETHERNET_LENGTH > end)
		return SEGUE_OUTCOME_drop_truncated;
	key = &work->key;
	walk = &work->walk;
	firewall_key_clear(key);
	work->upper = 0;
	work->srh = 0;
	work->fragment = FIREWALL_WHOLE;
	key->ingress = buffer_interface(ctx);
	mac = bpf_be64_to_cpu(*(const u64 *)(data + 6)) >> 16;
	key->source_mac = mac;
	limit = labels ? work->limit : firewall_frame(ctx);
	ipv4 = labels ? *octet >> 4 == 4 : *(const u16 *)(data + 12) == bpf_htons(ETH_P_IP);
	if (ipv4)
		return firewall_key_ipv4(ctx, work, l3, limit);
	error = firewall_key_ipv6(ctx, work, l3, &limit);
	if (error)
		return error;
	key->outer_family = 6;
	key->outer_source[0] = key->source[0];
	key->outer_source[1] = key->source[1];
	key->outer_destination[0] = key->destination[0];
	key->outer_destination[1] = key->destination[1];
	if (work->sid) {
		key->present = SEGUE_PRESENT_ACTIVE_SID;
		key->active_sid[0] = key->destination[0];
		key->active_sid[1] = key->destination[1];
	}
	inner = (walk->protocol == PROTOCOL_IPV4 || walk->protocol == PROTOCOL_IPV6) &&
		(work->sid || walk->srh || firewall_steered(work));
	if (unlikely(inner && is_fragment(walk))) {
		if (work->sid) /* the inner packet is not known: it must not slip past the function */
			return SEGUE_OUTCOME_drop_fragment_at_decapsulation;
		inner = 0;
	}
	if (walk->srh) {
		work->srh = walk->srh;
		/* A SID has checked it already: it is read only where a rule or the destination needs it. */
		if (!work->sid || !inner || work->words & KEY_WORDS_SRH) {
			error = firewall_key_srh(ctx, work);
			if (error)
				return error;
		}
	}
	if (inner) {
		error = firewall_key_inner(ctx, work, limit);
		if (error || key->family == 4)
			return error;
		limit = work->limit;
	} else if (work->srh) {
		/* Inserted into the packet's own headers: where it will go in the end. */
		key->destination[0] = key->last_sid[0];
		key->destination[1] = key->last_sid[1];
	}
	key->protocol = walk->protocol;
	key->routing = walk->routing;
	if (likely(!walk->fragment))
		return firewall_key_upper(ctx, work, walk->upper, limit);
	firewall_key_fragment(key, walk);
	work->fragment_offset = walk->fragment_offset;
	work->identification = walk->identification;
	work->payload = walk->payload;
	work->fragment = (walk->fragment_flags & SEGUE_FRAGMENT_MORE ? FIREWALL_MORE_FRAGMENTS : 0) |
			 (walk->fragment > 1 ? FIREWALL_FRAGMENT_TWICE : 0);
	if (walk->later) {
		work->fragment |= FIREWALL_LATER_FRAGMENT;
		return firewall_fragment_refused(walk->protocol, walk->fragment_offset);
	}
	work->fragment |= is_fragment(walk) ? FIREWALL_FIRST_FRAGMENT : FIREWALL_ATOMIC_FRAGMENT;
	return firewall_key_upper(ctx, work, walk->upper, limit);
}

#endif
