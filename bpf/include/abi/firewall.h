/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the firewall's programs (bpf/lib/firewall, bpf/lib/conntrack) share with the agent, beside the rules themselves,
 * which are an image of the classifier (classifier.h). docs/using/firewall.md says what it is for.
 *
 * An index (firewall, row) is never used by two live generations with different content, as all objects of segue.h.
 */
#ifndef SEGUE_ABI_FIREWALL_H
#define SEGUE_ABI_FIREWALL_H

#ifdef SEGUE_BINDGEN
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
#else
#include <linux/types.h>
#endif

enum segue_firewall_flags {
	SEGUE_FIREWALL_OFF = 1 << 0,	  /* every packet passes unfiltered */
	SEGUE_FIREWALL_STATE = 1 << 1,	  /* some rule looks at the connection state */
	SEGUE_FIREWALL_ADVANCED = 1 << 2, /* encapsulated packets meet the rules of the outermost header's family */
	SEGUE_FIREWALL_LIBERAL =
		1 << 3, /* TCP segments outside of the window belong to their connection as others do */
	SEGUE_FIREWALL_ANY_LABEL = 1 << 4, /* some rule looks at each entry of a stack of labels */
};

enum segue_firewall_family {
	SEGUE_FIREWALL_IPV4 = 0,
	SEGUE_FIREWALL_IPV6 = 1,
	SEGUE_FIREWALL_FAMILIES = 2,
};

/* A firewall. Map `firewalls`, from 1 on; 0 in a SID or port: none. 128 octets. */
struct segue_firewall {
	__u32 chain[SEGUE_FIREWALL_FAMILIES];  /* line of the base chain in map `classifier`; 0: no rules, all pass */
	__u32 policy[SEGUE_FIREWALL_FAMILIES]; /* row in `firewall_counters` of packets that the chain's policy met */
	__u32 first_line;		       /* line of the image's first rule */
	__u32 first_rule;		       /* its row in `firewall_rules`: the others follow */
	__u32 flags;			       /* enum segue_firewall_flags */
	__u32 scope;			       /* its number, kept from generation to generation */
	__u64 words;	      /* which 32-bit words of the key any rule looks at (struct segue_classifier_header) */
	__u8 argument_length; /* eval-args: bits of the argument, 1 to 32, right behind the SID's prefix */
	__u8 reserved[7];
	/* With SEGUE_FIREWALL_STATE. */
	__u32 table;	  /* slot in `connections`: its own table */
	__u32 buckets;	  /* of that table, from 0 on; 1 or more */
	__u32 beginnings; /* buckets behind those, each with SEGUE_BEGINNING_LINES lines of beginnings; may be 0 */
	__u32 previous;	  /* slot of a table whose connections move to `table`; 0: none */
	__u32 previous_buckets; /* of that one */
	__u32 hash[12];		/* secret, for connection_hash() of lib/conntrack/table.h; the same for both tables */
	__u32 reserved1;
	__u64 reserved2;
};

/* What belongs to a rule beside its line in the image. Map `firewall_rules`. */
struct segue_firewall_rule {
	__u32 counter;	  /* row in `firewall_counters` */
	__u32 extension;  /* first row in `firewall_extensions` */
	__u16 extensions; /* how many: all must hold, in this order */
	__u16 log;	  /* LOG, NFLOG: octets of the frame that go to the agent */
	__u32 name;	  /* the rule's number for the agent: in log records */
};

/* Row of `firewall_counters` (PERCPU_ARRAY). */
struct segue_firewall_counter {
	__u64 packets;
	__u64 bytes; /* layer 3 length of the packet that the rules looked at */
};

enum segue_firewall_extension_kind {
	SEGUE_EXTENSION_LIMIT = 1,
	SEGUE_EXTENSION_HASHLIMIT = 2,
	SEGUE_EXTENSION_SET = 3, /* a chain of the image with a rule for each member: ACCEPT is in the set */
	SEGUE_EXTENSION_RECENT = 4,
};

enum segue_firewall_extension_flags {
	SEGUE_EXTENSION_NEGATED = 1 << 0, /* set: not in it; hashlimit: above the limit; recent: not seen */
	SEGUE_EXTENSION_SOURCE = 1 << 1,  /* hashlimit: parts of the key; recent: the address, else the destination */
	SEGUE_EXTENSION_DESTINATION = 1 << 2,
	SEGUE_EXTENSION_SOURCE_PORT = 1 << 3,
	SEGUE_EXTENSION_DESTINATION_PORT = 1 << 4,
	SEGUE_EXTENSION_RECENT_SET = 1 << 5, /* of these none: it is only looked for */
	SEGUE_EXTENSION_RECENT_UPDATE = 1 << 6,
	SEGUE_EXTENSION_RECENT_REMOVE = 1 << 7,
};

/* A condition with a state of its own or a table behind it. Map `firewall_extensions`. 72 octets. */
struct segue_firewall_extension {
	__u32 kind;	/* enum segue_firewall_extension_kind */
	__u32 flags;	/* enum segue_firewall_extension_flags */
	__u32 chain;	/* set: line of its chain; recent: half of the list's name, see below */
	__u32 bucket;	/* limit: row in `firewall_limits`; hashlimit: slot in `firewall_hashlimits`, and its row for
			   sweeps; recent: the other half of the name */
	__u64 interval; /* nanoseconds in which one token comes; recent: that a packet counts, 0: for ever */
	__u64 burst;	/* nanoseconds: (tokens of a full bucket - 1) * interval; recent: packets that must count */
	__u64 source_mask[2]; /* hashlimit, recent: as the addresses in struct segue_classifier_key */
	__u64 destination_mask[2];
	__u64 expire; /* hashlimit: nanoseconds after which an idle bucket may be forgotten */
};

/* Key of a hashlimit's table, a HASH in a slot of `firewall_hashlimits` (ARRAY_OF_MAPS). 40 octets. */
struct segue_firewall_bucket {
	__u64 source[2];
	__u64 destination[2];
	__u32 ports;
	__u32 reserved;
};

/* Its value. 16 octets. */
struct segue_hashlimit {
	__u64 full;    /* when the bucket will be full, nanoseconds, CLOCK_MONOTONIC */
	__u64 expires; /* when it may be forgotten, if no packet comes until then */
};

#define SEGUE_RECENT_STAMPS 32 /* a power of two: packets of an address that a list remembers */

/*
 * An address in a list of `-m recent`. Map `firewall_recents` (LRU_HASH) by struct segue_firewall_bucket: the address
 * in `source`, its family in `destination[0]`; `ports` and `reserved` are a hash of the names of firewall and list, so
 * that no list is ever found under the number of another that is gone. 272 octets.
 */
struct segue_firewall_recent {
	__u64 stamps[SEGUE_RECENT_STAMPS]; /* nanoseconds, CLOCK_MONOTONIC, each when a packet was noted; a ring */
	__u64 next;			   /* packets that were noted: the next place, and how many places are filled */
	__u64 place;			   /* of this address in its firewall's ring, counted on without end */
};

#define SEGUE_RECENT_EACH 1024 /* a power of two: addresses in all lists of one firewall */
#define SEGUE_RECENT_CURSOR 0xffffffffU

/*
 * Key of `firewall_recent_places` (HASH): the ring of a firewall's addresses. Its values are keys of
 * `firewall_recents`; at the place SEGUE_RECENT_CURSOR `source[0]` says how many have been noted.
 */
struct segue_recent_place_key {
	__u32 scope; /* of the firewall */
	__u32 place;
};

/* One bit each, as in struct segue_classifier_key. */
enum segue_connection_state {
	SEGUE_STATE_INVALID = 1,
	SEGUE_STATE_ESTABLISHED = 2,
	SEGUE_STATE_RELATED = 4,
	SEGUE_STATE_NEW = 8,
	SEGUE_STATE_UNTRACKED = 64,
};

/* Names of RFC 9293 section 3.3.2, as seen from between the two sides; SYN_SENT2: both have begun. */
enum segue_tcp_state {
	SEGUE_TCP_NONE = 0,
	SEGUE_TCP_SYN_SENT = 1,
	SEGUE_TCP_SYN_RECV = 2,
	SEGUE_TCP_ESTABLISHED = 3,
	SEGUE_TCP_FIN_WAIT = 4,
	SEGUE_TCP_CLOSE_WAIT = 5,
	SEGUE_TCP_LAST_ACK = 6,
	SEGUE_TCP_TIME_WAIT = 7,
	SEGUE_TCP_CLOSE = 8,
	SEGUE_TCP_SYN_SENT2 = 9,
	SEGUE_TCP_INVALID = 10, /* of a packet, never of a connection */
	SEGUE_TCP_IGNORED = 11, /* likewise: the packet changes nothing, and what answers it may */
};

enum segue_connection_flags {
	SEGUE_CONNECTION_REPLIED = 1 << 0,
	SEGUE_CONNECTION_ASSURED = 1 << 1, /* both sides have agreed: it does not give way to others */
};

/* Of one side of a TCP connection; the last two only of a connection's `last_flags`. */
enum segue_tcp_side_flags {
	SEGUE_SIDE_SCALING = 1 << 0,	    /* its SYN had a Window Scale option (RFC 7323) */
	SEGUE_SIDE_SACK = 1 << 1,	    /* and one that permits SACK (RFC 2018) */
	SEGUE_SIDE_LIBERAL = 1 << 2,	    /* picked up in the middle: its window's scale is not known */
	SEGUE_SIDE_UNACKNOWLEDGED = 1 << 3, /* what it sent last has not been acknowledged */
	SEGUE_SIDE_ACKNOWLEDGES = 1 << 4,   /* `acknowledged` holds */
	SEGUE_SIDE_CLOSES = 1 << 5,	    /* it was the first to send a FIN */
	SEGUE_LAST_CHALLENGED = 1 << 6,	    /* a SYN was let through that may be answered by an ACK (RFC 5961) */
	SEGUE_LAST_SIMULTANEOUS = 1 << 7,   /* both sides began at once */
};

/* Key of a connection in its firewall's table: the side with the smaller address and port comes first. 40 octets. */
struct segue_connection_key {
	__u64 first[2]; /* addresses as in struct segue_classifier_key */
	__u64 second[2];
	__u32 ports; /* of `first` << 16 | of `second`; ICMP: the identifier << 16 | 1 if the first side asks */
	__u8 protocol;
	__u8 family; /* 4, 6 */
	__u16 icmp;  /* type of the request << 8 | code: netfilter keys on both */
};

/* What one side of a TCP connection has sent, and how far it may go. Numbers are those of its segments, mod 2^32. */
struct segue_tcp_side {
	__u32 end;	    /* one past the last octet that it sent */
	__u32 limit;	    /* one past the last octet that the other side's window has allowed */
	__u32 window;	    /* the largest that it announced, in octets; 0: nothing has come from it */
	__u32 acknowledged; /* the highest Acknowledgment Number that it sent */
};

/* Side 0 began. `last_...` are of the last segment that counted: those of ACKs show repetitions. 80 octets. */
struct segue_connection {
	__u64 expires; /* nanoseconds, CLOCK_MONOTONIC_COARSE */
	__u64 created; /* likewise: its first packet */
	__u8 state;    /* enum segue_tcp_state */
	__u8 flags;    /* enum segue_connection_flags */
	__u8 forward;  /* 1: the key's first side began */
	__u8 repeats;  /* how often the last ACK has come again */
	struct segue_tcp_side side[2];
	__u32 last_sequence;
	__u32 last_acknowledgment;
	__u32 last_end;
	__u16 last_window;  /* as in the segment */
	__u8 last_event;    /* enum tcp_event of lib/conntrack/tcp.h */
	__u8 last_side;	    /* 0, 1 */
	__u8 side_flags[2]; /* enum segue_tcp_side_flags */
	__u8 scale[2];	    /* of `window` in segments from that side: 0 to 14 */
	__u8 last_flags;    /* enum segue_tcp_side_flags, of a SYN that was ignored */
	__u8 last_scale;    /* likewise */
	__u8 reserved[6];
};

/* A connection in a bucket. 128 octets. */
struct segue_connection_entry {
	struct segue_connection_key key;
	struct segue_connection connection;
	__u64 hash; /* of the key: connection_hash() of lib/conntrack/table.h */
};

#define SEGUE_CONNECTION_WAYS 8

/*
 * Value of a firewall's table, an ARRAY in a slot of `connections` (ARRAY_OF_MAPS). Whoever changes more of an entry
 * than its lifetime holds the lock.
 */
struct segue_connection_bucket {
	__u32 lock; /* 0, or who holds it: lib/conntrack/table.h */
	__u32 reserved;
	__u64 evicted;			    /* when a beginning last had to give way here, CLOCK_MONOTONIC_COARSE */
	__u32 tags[SEGUE_CONNECTION_WAYS];  /* bits of the hash of the entry's key; 0: empty */
	__u64 ranks[SEGUE_CONNECTION_WAYS]; /* expires / 4 | how hard it is to evict << 62; 0: empty */
	__u64 reserved1[2];
	struct segue_connection_entry entries[SEGUE_CONNECTION_WAYS];
};

/* A bucket of beginnings is lines of words: see lib/conntrack/beginning.h. */
#define SEGUE_BEGINNING_LINES 16
#define SEGUE_BEGINNING_WORDS 8

/* Octets of a datagram that have gone through, in 8 octets; `to` is one past the last of them, 0: unused. */
struct segue_fragment_range {
	__u16 from;
	__u16 to;
};

enum segue_fragments_state {
	SEGUE_FRAGMENTS_NONE = 0,
	SEGUE_FRAGMENTS_FOLLOW = 1,  /* its first fragment was accepted */
	SEGUE_FRAGMENTS_REFUSED = 2, /* fragments have overlapped: nothing of it goes through any more */
};

#define SEGUE_FRAGMENT_RANGES 8	       /* ranges in one datagram */
#define SEGUE_FRAGMENT_WAYS 8	       /* datagrams in a set, of one source half of them */
#define SEGUE_FRAGMENT_SETS 64	       /* sets of one firewall */
#define SEGUE_FRAGMENT_SETS_SOURCE 4   /* of which one source has so many */
#define SEGUE_FRAGMENT_SETS_MAX 65536U /* sets of all firewalls, made when they are needed */

/* A datagram in fragments on its way. 88 octets. */
struct segue_fragments {
	__u64 source[2]; /* addresses as in struct segue_classifier_key */
	__u64 destination[2];
	__u32 identification;
	__u32 total;   /* octets behind the IP header, or the first Fragment header; 0: not known yet */
	__u64 begun;   /* when its first fragment came: nanoseconds, CLOCK_MONOTONIC_COARSE */
	__u8 family;   /* 4, 6 */
	__u8 protocol; /* IPv4; else 0 */
	__u8 state;    /* enum segue_fragments_state */
	__u8 action;   /* what the rules said of its first fragment */
	__u8 detail;
	__u8 reserved[3];
	struct segue_fragment_range ranges[SEGUE_FRAGMENT_RANGES];
};

/* Key of `firewall_fragments` (HASH); the value is a lock of 8 octets and SEGUE_FRAGMENT_WAYS struct segue_fragments.
 */
struct segue_fragment_set_key {
	__u32 scope; /* of the firewall */
	__u32 set;   /* less than SEGUE_FRAGMENT_SETS */
};

/* In front of each packet in the perf buffer `firewall_logs`. */
struct segue_firewall_log {
	__u64 time; /* nanoseconds, CLOCK_MONOTONIC */
	__u32 name; /* of the rule */
	__u32 firewall;
	__u32 ingress;	/* ifindex */
	__u32 length;	/* octets of the frame */
	__u32 captured; /* octets that follow */
	__u16 offset;	/* of the packet that the rules looked at, in the frame */
	__u16 family;	/* of that packet: 4, 6, 0 */
	__u32 mark;
	__u32 reserved;
};

#endif
