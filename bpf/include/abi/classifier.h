/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The classifier's lookup structure and the key that it is asked with: shared by bpf/lib/classifier/rules.h, which
 * walks it, and crates/classifier, which writes it (src/key.rs and src/image.rs;
 * crates/testkit/tests/links/classifier.rs compares the two walks). docs/design/classifier.md says why it is built like
 * this.
 */
#ifndef SEGUE_ABI_CLASSIFIER_H
#define SEGUE_ABI_CLASSIFIER_H

#ifdef SEGUE_BINDGEN
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
#else
#include <linux/types.h>
#endif

#define SEGUE_CLASSIFIER_ABSENT 0xffffffffU /* a 32-bit word whose field the packet lacks */

enum segue_classifier_present {
	SEGUE_PRESENT_SRH = 1 << 0,
	SEGUE_PRESENT_PREVIOUS_SID = 1 << 1, /* Segments Left < Last Entry */
	SEGUE_PRESENT_NEXT_SID = 1 << 2,     /* Segments Left > 0 */
	SEGUE_PRESENT_ACTIVE_SID = 1 << 3,   /* the packet came by a local SID */
	SEGUE_PRESENT_LABELS = 1 << 4,	     /* it came by a label of this node, and of none of the others any is set */
	SEGUE_PRESENT_LABEL = 1 << 8, /* and with this shifted left by n: there is an entry n + 1 behind that one */
};

#define SEGUE_CLASSIFIER_LABELS 16    /* entries of a stack that rules see by their place */
#define SEGUE_PRESENT_LABELS_SHIFT 24 /* the highest octet of `present`: how many entries are behind the label */

enum segue_classifier_fragment {
	SEGUE_FRAGMENT_MORE = 1 << 0,
	SEGUE_FRAGMENT_DONT = 1 << 1,	  /* IPv4 */
	SEGUE_FRAGMENT_RESERVED = 1 << 2, /* any reserved bit of the Fragment header is set; IPv4: the reserved flag */
};

/*
 * What is known of one packet: the inner one of an encapsulated packet, else the packet itself. 256 octets, aligned
 * to 8.
 *
 * All numbers are in host byte order. An IPv6 address is two words: the first eight octets as a number (octet 0 is the
 * most significant), then the last eight; so `bpf_be64_to_cpu` of each half as it lies in the packet. An IPv4 address
 * is a number in the first word (bpf_ntohl), the second word is 0. "else ABSENT": SEGUE_CLASSIFIER_ABSENT where the
 * packet has no such field; no rule on that field matches then, negated or not. A later fragment has no layer-4 fields.
 * Addresses that are not there are 0 (their flag says so). An image says which words its rules look at (`words` of its
 * header): others need not be filled.
 */
struct segue_classifier_key {
	__u64 source[2];
	__u64 destination[2]; /* of the IP header: with an SRH the active segment */
	__u32 source_port;    /* TCP, UDP, UDP-Lite, SCTP, DCCP; else ABSENT */
	__u32 destination_port;
	__u32 protocol;		/* the first Next Header that is no extension header; of a later fragment what its
				   Fragment header names; else ABSENT */
	__u32 family;		/* 4, 6; 0: no IP */
	__u32 connection_state; /* exactly one of 1 INVALID, 2 ESTABLISHED, 4 RELATED, 8 NEW, 64 UNTRACKED; else ABSENT
				 */
	__u32 ingress;		/* ifindex, 0: none */
	__u32 tcp_flags;	/* octet 13 of the TCP header; else ABSENT */
	__u32 icmp;		/* type << 8 | code of ICMP or ICMPv6; else ABSENT */
	__u32 egress;		/* ifindex, 0: none */
	__u32 mark;
	__u32 traffic_class;   /* all 8 bits of TOS or Traffic Class; else ABSENT */
	__u32 hop_limit;       /* or TTL; else ABSENT */
	__u32 flow_label;      /* IPv6, 20 bits; else ABSENT */
	__u32 length;	       /* octets of the layer 3 packet with its header; else ABSENT */
	__u32 fragment_offset; /* in 8 octets. IPv4: always (0 in a whole packet); IPv6: with a Fragment header; else
				  ABSENT */
	__u32 fragment_flags;  /* enum segue_classifier_fragment; 0 where the offset is ABSENT */
	__u32 fragment_identification;
	__u32 present;	       /* enum segue_classifier_present */
	__u64 source_mac;      /* 48 bits, the first octet is the most significant; all ones if the packet came in no
				  Ethernet frame */
	__u64 tcp_options;     /* bit k: an option of kind k, 0 to 63, is there. 0 where tcp_flags is ABSENT */
	__u32 srh_next_header; /* this and the next four: ABSENT without SRH */
	__u32 srh_length;      /* Hdr Ext Len */
	__u32 srh_segments_left;
	__u32 srh_last_entry;
	__u32 srh_tag;
	__u32 outer_family; /* 6: the packet is encapsulated, and the outer addresses are below; else 0 */
	/* With SEGUE_PRESENT_LABELS these eight words are SEGUE_CLASSIFIER_LABELS entries of the stack behind the label
	 * that the packet came by, each a 32-bit word as it lies there: the first in the lower half of the first word.
	 */
	__u64 active_sid[2];
	__u64 previous_sid[2]; /* Segment List[Segments Left + 1] */
	__u64 next_sid[2];     /* Segment List[Segments Left - 1] */
	__u64 last_sid[2];     /* Segment List[0] */
	__u64 outer_source[2];
	__u64 outer_destination[2];
	__u32 connection_direction; /* 0: from the side that began, 1: back to it; ABSENT without a connection */
	__u32 routing;	  /* of the first Routing header: type << 16 | Segments Left << 8 | Hdr Ext Len; else ABSENT */
	__u32 label_own;  /* with SEGUE_PRESENT_LABELS: the entry of the label that the packet came by */
	__u32 label_last; /* likewise: the last entry of the stack, if there are some behind that one */
};

/*
 * The structure is one array of 64-octet lines. Lines and slots (8 octets, 8 to a line) are named by their number in
 * the whole array, so several images lie beside each other. 0 names nothing.
 */
#define SEGUE_CLASSIFIER_LINE 64
#define SEGUE_CLASSIFIER_TREES 4
#define SEGUE_CLASSIFIER_ENTRIES 4 /* rules of a leaf that are looked at together */
#define SEGUE_CLASSIFIER_WINDOW_STEP 9
#define SEGUE_CLASSIFIER_DEPTH_MAX 16 /* inner nodes on a way from a root to a leaf */
#define SEGUE_CLASSIFIER_THRESHOLDS 15
#define SEGUE_CLASSIFIER_STEPS_MAX 256 /* rules that one packet may hit */
#define SEGUE_CLASSIFIER_CALLS_MAX 8   /* chains that a packet may be in at once */

/* The first line of an image. */
struct segue_classifier_header {
	__u32 version; /* SEGUE_CLASSIFIER_VERSION */
	__u32 lines;   /* of the image */
	__u32 rules;   /* line of the first rule. All rules of all chains follow in order: `line - rules` is the rule's
			  number, its row in tables beside the image (counters) */
	__u32 rule_count;
	__u32 chains; /* line of the first chain: its roots. Each chain has three lines */
	__u32 chain_count;
	__u64 words; /* bit w: some rule looks at 32-bit word w of the key */
	__u8 reserved[32];
};

#define SEGUE_CLASSIFIER_VERSION 2

/*
 * A chain: three such lines, for packets of family 4, 6 and any other. The first of them is what a chain is named by.
 */
struct segue_classifier_root {
	__u64 tree[SEGUE_CLASSIFIER_TREES]; /* slots */
	__u32 image_rules;		    /* line of the image's first rule */
	__u32 rules;			    /* line of the chain's first rule */
	__u32 rule_count;
	__u8 policy; /* enum segue_classifier_action: ACCEPT, DROP; NONE: a user chain */
	__u8 first_shift;
	__u8 trees;
	__u8 reserved[17];
};

/*
 * A slot, 64 bits from the lowest: target (28), kind (2), a (6), b (5), c (5), first (18).
 *
 * LEAF: at slot `target`, without its lowest two bits, lies a group of rules, struct segue_classifier_group. Its
 * windows: word `a` of the key, shifted right by `b`; word `c`, shifted right by SEGUE_CLASSIFIER_WINDOW_STEP times
 * these two bits.
 *
 * LONG: several such groups, up to one whose last place is free.
 *
 * CUT: word `a` of the key, shifted right by `b`, its lowest `c` bits: number of the next slot from `target` on.
 *
 * SPLIT: at slot `target` is a line of SEGUE_CLASSIFIER_THRESHOLDS ordered words and an unused one; the next slot is as
 * many slots behind that line as there are thresholds less than word `a` of the key.
 *
 * `first`: no rule below has a lower number in the chain, shifted right by `first_shift` of the root. All ones: there
 * is no rule below.
 */
#define SEGUE_SLOT_TARGET_BITS 28
#define SEGUE_SLOT_FIRST_BITS 18
#define SEGUE_SLOT_FIRST_SHIFT 46

enum segue_classifier_slot {
	SEGUE_SLOT_LEAF = 0,
	SEGUE_SLOT_LONG = 1,
	SEGUE_SLOT_CUT = 2,
	SEGUE_SLOT_SPLIT = 3,
};

/*
 * Rules of a leaf, in order, and what excludes most of them before their lines are read. Packets that match rule n have
 * in each window of the leaf, 7 bits of the key, a number from the one in octet n of `low` to that of `high` (the
 * second window: octet 4 + n). The highest bit of each octet is set in `high` and not in `low`. Where there is no rule,
 * these numbers are 1 and 0, and the line is 0. 32 octets, at a multiple of that.
 */
struct segue_classifier_group {
	__u64 low, high;
	__u32 line[SEGUE_CLASSIFIER_ENTRIES];
};

enum segue_classifier_flags {
	SEGUE_RULE_SOURCE_PORT = 1 << 0, /* the ranges are compared */
	SEGUE_RULE_DESTINATION_PORT = 1 << 1,
	SEGUE_RULE_PROTOCOL = 1 << 2,
	SEGUE_RULE_FAMILY = 1 << 3,
	SEGUE_RULE_EXTENSIONS = 1 << 4, /* limits or sets are still to be asked, by the rule's number */
};

enum segue_classifier_action {
	SEGUE_ACTION_NONE = 0,
	SEGUE_ACTION_ACCEPT = 1,
	SEGUE_ACTION_DROP = 2,
	SEGUE_ACTION_REJECT = 3, /* detail: enum segue_classifier_reject */
	SEGUE_ACTION_LOG = 4,	 /* what to write: by the rule's number */
	SEGUE_ACTION_NFLOG = 5,
	SEGUE_ACTION_MARK = 6, /* argument: line with struct segue_classifier_mark */
	SEGUE_ACTION_JUMP = 7, /* argument: the chain */
	SEGUE_ACTION_GOTO = 8, /* argument: the chain */
	SEGUE_ACTION_RETURN = 9,
	SEGUE_ACTION_SEG6 = 10,	  /* detail: enum segue_classifier_seg6, or _mpls: of which steering header it speaks */
	SEGUE_ACTION_POLICY = 11, /* argument: index of the SR policy */
	SEGUE_ACTION_CONTINUE = 12, /* only counted */
};

/* `--reject-with`: RFC 792, RFC 4443 */
enum segue_classifier_reject {
	SEGUE_REJECT_TCP_RESET = 0,
	SEGUE_REJECT_ICMP = 1,	/* ICMP type 3, code in the low octet of `argument` */
	SEGUE_REJECT_ICMP6 = 2, /* ICMPv6 type 1, code in the low octet of `argument` */
};

enum segue_classifier_seg6 {
	SEGUE_SEG6_GO_NEXT = 0,
	SEGUE_SEG6_SKIP_NEXT = 1,
	SEGUE_SEG6_GO_LAST = 2,
	SEGUE_SEG6_EVAL_ARGS = 3,
};

/*
 * The same of the stack behind a firewall's label: these bits, and of how many labels, shifted left by
 * SEGUE_MPLS_COUNT_SHIFT. No number is one of SEG6's, for which each is as GO_NEXT.
 */
enum segue_classifier_mpls {
	SEGUE_MPLS_GO_NEXT = 4,
	SEGUE_MPLS_SKIP_NEXT = 5,
	SEGUE_MPLS_GO_LAST = 6,
};

#define SEGUE_MPLS_OPERATION 7
#define SEGUE_MPLS_COUNT_SHIFT 3

/*
 * A rule. It matches if every half of an address, xored with `half` and shifted right by `shift` and by `shift_more`,
 * is 0 (64 is more than a machine shifts at once), the ports and so on that `flags` name fit, and so do the checks.
 */
struct segue_classifier_rule {
	__u64 half[4]; /* source, destination */
	__u8 shift[4];
	__u8 shift_more[4];
	__u16 source_port_first, source_port_last;
	__u16 destination_port_first, destination_port_last;
	__u8 protocol;
	__u8 family;
	__u8 flags;   /* enum segue_classifier_flags */
	__u8 action;  /* enum segue_classifier_action */
	__u32 checks; /* line of the first check, 0: none */
	__u32 argument;
	__u32 detail; /* steering rules: row in `counters` */
};

#define SEGUE_CLASSIFIER_CHECKS_MAX 65000 /* of one rule */
#define SEGUE_CHECK_MATCH 0xffff
#define SEGUE_CHECK_FAIL 0xfffe

/*
 * A check, 32 octets: ((key word `word` of 64 bits & mask) - low) <= span, unsigned; `negate`: the contrary. What
 * follows is the check of that number, MATCH or FAIL. Numbers only grow.
 */
struct segue_classifier_check {
	__u8 word;
	__u8 negate; /* 0, 1 */
	__u16 on_true;
	__u16 on_false;
	__u16 reserved;
	__u64 mask;
	__u64 low;
	__u64 span;
};

/* Line of a MARK: mark = (mark & ~mask) ^ value */
struct segue_classifier_mark {
	__u32 value;
	__u32 mask;
	__u8 reserved[56];
};

#endif
