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
#include "lib/base/maps.h"
#include "lib/base/config.h"
#include "lib/packet/buffer.h"
#include "lib/packet/frame.h"
#include "lib/packet/headers.h"
#include "lib/forward/sid.h"
#include "lib/conntrack/packet.h"
#include "abi/classifier.h"
#include "abi/firewall.h"

#define PROTOCOL_ICMP 1
#define PROTOCOL_DCCP 33
#define PROTOCOL_NO_NEXT_HEADER 59
#define PROTOCOL_UDPLITE 136

/* The bits of a field's 32-bit words in `words` of a firewall. */
#define KEY_WORDS(field_)                                                                                              \
	(((1ULL << sizeof(((struct segue_classifier_key *)0)->field_) / 4) - 1)                                        \
	 << offsetof(struct segue_classifier_key, field_) / 4)
/* What firewall_key_srh() reads; `egress` is looked up by the next SID. */
#define KEY_WORDS_SRH                                                                                                  \
	(KEY_WORDS(egress) | KEY_WORDS(present) | KEY_WORDS(srh_next_header) | KEY_WORDS(srh_length) |                 \
	 KEY_WORDS(srh_segments_left) | KEY_WORDS(srh_last_entry) | KEY_WORDS(srh_tag) | KEY_WORDS(previous_sid) |     \
	 KEY_WORDS(next_sid) | KEY_WORDS(last_sid))

/* IPv6 extension headers walked: RFC 8200 section 4. */
struct firewall_walk {
	u32 protocol;	     /* of what lies at `upper` */
	u32 upper;	     /* offset */
	u32 srh;	     /* offset of the first SRH, 0: none */
	u32 fragment;	     /* how many Fragment headers; what follows is of the first */
	u32 fragment_offset; /* in 8 octets */
	u32 fragment_flags;
	u32 identification;
	u32 payload; /* offset of what is behind the first Fragment header */
	u32 later;   /* 1: some Fragment header has an offset: `upper` is no header */
	u32 routing; /* as in the key */
	u32 error;   /* outcome */
};

/* Of the packet that the rules look at, in `fragment` of struct firewall_work. An atomic fragment (RFC 6946) is none.
 */
enum firewall_fragment {
	FIREWALL_WHOLE = 0,
	FIREWALL_FIRST_FRAGMENT = 1 << 0,
	FIREWALL_LATER_FRAGMENT = 1 << 1,
	FIREWALL_ATOMIC_FRAGMENT = 1 << 2,
	FIREWALL_MORE_FRAGMENTS = 1 << 3,
	FIREWALL_FRAGMENT_TWICE = 1 << 4, /* there is a second Fragment header */
};

/*
 * What a search for a datagram or for a hole in it has found so far (firewall_fragment.h). It is in memory, where the
 * verifier does not tell one number from another: in registers each would be another way to follow.
 */
struct fragment_search {
	u32 at;
	u32 empty;
	u32 oldest;
	u32 own;
	u32 count;
	u32 left;
	u32 right;
	u32 last;
	u64 oldest_begun;
	u64 own_begun;
};

/* Where a packet is in a firewall's chains. */
struct firewall_place {
	u32 base;  /* the chain that the packet entered by */
	u32 chain; /* where it is */
	u32 after;
	u32 depth;
	u32 condition;	/* row of the next further condition of the rule at `after` */
	u32 conditions; /* how many are still to be asked */
};

#define VERDICT_ROWS 4 /* a power of two */

/* The packet on its way through a firewall. */
struct firewall_work {
	struct segue_classifier_key key;
	struct firewall_walk walk;
	u64 words;	     /* of the key that have to be filled */
	u32 l3;		     /* offset of the packet that the rules look at */
	u32 upper;	     /* offset of its layer-4 header; 0: none, or a later fragment */
	u32 limit;	     /* end of that packet */
	u32 fragment;	     /* enum firewall_fragment; WHOLE: what follows is not set */
	u32 fragment_offset; /* in 8 octets */
	u32 identification;
	u32 payload;  /* offset of what is in the fragment */
	u64 tags;     /* two VLAN tags that were taken off, as in the frame; 0: there was none */
	u32 sid;      /* the packet came to a SID of this node: what is in its destination address */
	u32 srh;      /* offset of the outermost SRH, 0: none */
	u32 firewall; /* index */
	/* What became of it. */
	u32 line; /* of the last rule that was hit; 0: the policy decided */
	u32 action;
	u32 detail;
	u32 argument;
	u32 hits;
	u32 fresh; /* the connection is to be remembered if the rules accept the packet */
	u32 error; /* an outcome for which it is dropped, whatever the rules say */
	u32 scope; /* of the firewall */
	/* See firewall_verdict.h. */
	u32 verdicts;		/* the firewall's verdicts may be kept */
	u32 known;		/* this one was */
	u32 direct;		/* see firewall_read() */
	u32 varies;		/* it follows from more than the key, or is written somewhere */
	u32 rows[VERDICT_ROWS]; /* of the first counters that counted it */
	u64 epoch;		/* of the packet */
	struct segue_firewall_bucket bucket;
	struct fragment_search search;
	u64 callers[SEGUE_CLASSIFIER_CALLS_MAX]; /* chain | line << 32 */
	struct firewall_place next;
	struct conntrack track;
};

PERCPU(firewall_works, struct firewall_work, 1);

INLINE struct firewall_work *firewall_work_get(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&firewall_works, &zero);
}

/* All of them are less than 64. */
#define EXTENSION_HEADERS                                                                                              \
	(1ULL << PROTOCOL_HOP_BY_HOP | 1ULL << PROTOCOL_ROUTING | 1ULL << PROTOCOL_FRAGMENT |                          \
	 1ULL << PROTOCOL_DESTINATION_OPTIONS | 1ULL << PROTOCOL_AUTHENTICATION)

INLINE int is_extension_header(u32 protocol)
{
	return protocol < 64 && EXTENSION_HEADERS >> protocol & 1;
}

/* Walks on from the header of type `walk->protocol` at `walk->upper` up to `limit`. */
RARE int firewall_walk_on(buffer *ctx, u32 limit, struct firewall_walk *walk)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	u32 offset, next, length;
	const u8 *octet;

	if (!walk)
		return 0;
	offset = walk->upper & OFFSET_MASK;
	next = walk->protocol;
	for (int i = 0; i <= HEADERS_MAX; i++) {
		walk->upper = offset;
		walk->protocol = next;
		if (!is_extension_header(next))
			return 0;
		if (i == HEADERS_MAX) {
			walk->error = SEGUE_OUTCOME_drop_too_many_headers;
			return 0;
		}
		octet = data + offset;
		if (offset + 8 > limit || (void *)(octet + 8) > end) {
			walk->error = SEGUE_OUTCOME_drop_truncated;
			return 0;
		}
		length = (octet[1] + 1) * 8;
		if (next == PROTOCOL_FRAGMENT) {
			u32 word = bpf_ntohl(*(const u32 *)octet);

			length = 8;
			walk->later |= (word & 0xffff) >> 3 != 0;
			if (!walk->fragment) {
				walk->fragment_offset = (word & 0xffff) >> 3;
				walk->fragment_flags = word & 1 ? SEGUE_FRAGMENT_MORE : 0;
				if (word & 0x00ff0006)
					walk->fragment_flags |= SEGUE_FRAGMENT_RESERVED;
				walk->identification = bpf_ntohl(*(const u32 *)(octet + 4));
				walk->payload = offset + 8;
			}
			walk->fragment++;
		} else if (next == PROTOCOL_AUTHENTICATION) {
			length = (octet[1] + 2) * 4;
		} else if (next == PROTOCOL_ROUTING) {
			if (octet[2] == ROUTING_TYPE_SRH && !walk->srh)
				walk->srh = offset;
			if (walk->routing == SEGUE_CLASSIFIER_ABSENT)
				walk->routing = octet[2] << 16 | octet[3] << 8 | octet[1];
		}
		if (offset + length > limit) {
			walk->error = SEGUE_OUTCOME_drop_bad_length;
			return 0;
		}
		next = octet[0];
		offset += length;
		if (walk->later) {
			walk->upper = offset;
			walk->protocol = next;
			return 0;
		}
		if (offset > OFFSET_MASK - 64) {
			walk->error = SEGUE_OUTCOME_drop_multi_buffer_header;
			return 0;
		}
	}
	return 0;
}

/* The kinds of the options of the TCP header at `offset`, `length` octets with options, as bits. */
RARE u64 firewall_tcp_options(buffer *ctx, u32 offset, u32 length)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	u64 kinds = 0;
	u32 at = 20;

	for (int i = 0; i < 40; i++) {
		const u8 *octet;

		if (at >= length)
			break;
		/* Less than 60 by its nature; said anew in each round, so that the verifier of 6.1 finds them alike. */
		at &= 63;
		octet = data + ((offset + at) & OFFSET_MASK);
		if ((void *)(octet + 2) > end || octet[0] == 0)
			break;
		kinds |= (u64)(octet[0] < 64) << (octet[0] & 63);
		if (octet[0] == 1) {
			at++;
			continue;
		}
		if (octet[1] < 2)
			break;
		at += octet[1];
	}
	return kinds;
}

/* Octets of the layer-4 header without its options; 0: of a protocol whose header no rule looks at. */
INLINE u32 upper_length(u32 family, u32 protocol)
{
	if (protocol == PROTOCOL_TCP)
		return 20;
	if (protocol == PROTOCOL_UDP || protocol == PROTOCOL_UDPLITE ||
	    protocol == (family == 6 ? PROTOCOL_ICMPV6 : PROTOCOL_ICMP))
		return 8;
	return protocol == PROTOCOL_SCTP || protocol == PROTOCOL_DCCP ? 12 : 0;
}

/*
 * Layer 4, of a whole packet or a first fragment. 0, or the outcome: a header that is not all there is dropped, as
 * netfilter's matches do, and conditions on what is missing cannot be slipped past (RFC 3128, RFC 7112 section 5).
 */
INLINE u32 firewall_key_upper(buffer *ctx, struct firewall_work *work, u32 offset, u32 limit)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct segue_classifier_key *key = &work->key;
	const u8 *octet = data + (offset & OFFSET_MASK);
	u32 protocol = key->protocol, length = upper_length(key->family, protocol), word;

	if (unlikely(offset + length > limit))
		return SEGUE_OUTCOME_drop_layer4_header;
	if (unlikely(offset > OFFSET_MASK))
		return SEGUE_OUTCOME_drop_multi_buffer_header;
	work->upper = offset;
	if (protocol == PROTOCOL_TCP) {
		if ((void *)(octet + 20) > end)
			return SEGUE_OUTCOME_drop_multi_buffer_header;
		length = (octet[12] >> 4) * 4;
		/* Options in a later fragment would be seen by the receiver alone; with other lengths, by nobody. */
		if (unlikely(length < 20 || offset + length > limit))
			return SEGUE_OUTCOME_drop_layer4_header;
		key->tcp_flags = octet[13];
		if (work->words & KEY_WORDS(tcp_options) && length > 20)
			key->tcp_options = firewall_tcp_options(ctx, offset, length);
	} else if (!length) {
		return 0;
	} else if ((void *)(octet + 4) > end) {
		return SEGUE_OUTCOME_drop_multi_buffer_header;
	}
	word = bpf_ntohl(*(const u32 *)octet);
	if (protocol == (key->family == 6 ? PROTOCOL_ICMPV6 : PROTOCOL_ICMP)) {
		key->icmp = word >> 16;
	} else {
		key->source_port = word >> 16;
		key->destination_port = word & 0xffff;
	}
	return 0;
}

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
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
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

/* The usual extension header: one SRH alone. 1: it is walked. `offset` is that of what follows the IPv6 header. */
INLINE int firewall_walk_srh(buffer *ctx, u32 limit, u32 offset, struct firewall_walk *walk)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	const struct srh *srh = data + (offset & OFFSET_MASK);
	u32 upper;

	if (offset > OFFSET_MASK || (void *)(srh + 1) > end)
		return 0;
	upper = offset + (srh->length + 1) * 8;
	if (srh->type != ROUTING_TYPE_SRH || is_extension_header(srh->next_header) || upper > limit ||
	    upper > OFFSET_MASK - 64)
		return 0;
	walk->protocol = srh->next_header;
	walk->upper = upper;
	walk->srh = offset;
	walk->routing = ROUTING_TYPE_SRH << 16 | srh->segments_left << 8 | srh->length;
	return 1;
}

/* The IPv6 header at `l3` alone. 0, or the outcome; `*limit` becomes the packet's end. */
INLINE u32 firewall_key_ipv6(buffer *ctx, struct firewall_work *work, u32 l3, u32 *limit)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
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
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
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
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	u32 frame = end - data, length;

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
 * Fills the key. `work->sid`, `work->words` and `work->epoch` are set. 0, or the outcome for which the packet has to be
 * dropped.
 */
INLINE u32 firewall_key_read(buffer *ctx, struct firewall_work *work)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct segue_classifier_key *key;
	struct firewall_walk *walk;
	u32 limit, error, inner;
	u64 mac;

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
	limit = firewall_frame(ctx);
	if (*(const u16 *)(data + 12) == bpf_htons(ETH_P_IP))
		return firewall_key_ipv4(ctx, work, ETHERNET_LENGTH, limit);
	error = firewall_key_ipv6(ctx, work, ETHERNET_LENGTH, &limit);
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
