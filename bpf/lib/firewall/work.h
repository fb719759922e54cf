/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packet on its way through a firewall: what is read of it, where it is in the rules, what became of it. */
#ifndef SEGUE_FIREWALL_WORK_H
#define SEGUE_FIREWALL_WORK_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/maps.h"
#include "lib/conntrack/packet.h"
#include "abi/classifier.h"
#include "abi/firewall.h"

/* The bits of a field's 32-bit words in `words` of a firewall. */
#define KEY_WORDS(field_)                                                                                              \
	(((1ULL << sizeof(((struct segue_classifier_key *)0)->field_) / 4) - 1)                                        \
	 << offsetof(struct segue_classifier_key, field_) / 4)
/* What firewall_key_srh() reads; `egress` is looked up by the next SID. */
#define KEY_WORDS_SRH                                                                                                  \
	(KEY_WORDS(egress) | KEY_WORDS(present) | KEY_WORDS(srh_next_header) | KEY_WORDS(srh_length) |                 \
	 KEY_WORDS(srh_segments_left) | KEY_WORDS(srh_last_entry) | KEY_WORDS(srh_tag) | KEY_WORDS(previous_sid) |     \
	 KEY_WORDS(next_sid) | KEY_WORDS(last_sid))

/* What is of the steering header: an SRH, or a stack of labels in its place. */
#define KEY_WORDS_STEERING                                                                                             \
	((KEY_WORDS_SRH & ~KEY_WORDS(egress)) | KEY_WORDS(active_sid) | KEY_WORDS(label_own) | KEY_WORDS(label_last))

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
	u64 words; /* of the key that have to be filled */
	u32 stack; /* octets of labels in front of what the rules look at, the firewall's own first; else 0 */
	u32 reserved;
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

#endif
