/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What connection tracking knows of the packet in hand; part of struct firewall_work. */
#ifndef SEGUE_CONNTRACK_PACKET_H
#define SEGUE_CONNTRACK_PACKET_H

#include "lib/base/types.h"
#include "abi/firewall.h"

enum tcp_event {
	TCP_EVENT_SYN,
	TCP_EVENT_SYN_ACK,
	TCP_EVENT_FIN,
	TCP_EVENT_ACK,
	TCP_EVENT_RST,
	TCP_EVENT_NONE,
};

/* One segment, and what its options say. */
struct tcp_segment {
	u32 sequence;
	u32 acknowledgment;
	u32 end;	/* its SYN and FIN count as an octet each */
	u32 selective;	/* the highest right edge in a SACK option, or `acknowledgment` */
	u32 window;	/* not scaled */
	u32 flags;	/* octet 13 */
	u32 event;	/* enum tcp_event */
	u32 incomplete; /* a first fragment: it ends later than `end` */
	u32 options;	/* it has any */
	u32 side_flags; /* SEGUE_SIDE_SCALING, SEGUE_SIDE_SACK */
	u32 scale;
};

/* What a new connection would replace in a bucket. */
struct connection_victim {
	u64 rank;
	u32 way;
	u32 alive;
};

/* One packet before the table of connections: see lib/conntrack/track.h. */
struct conntrack {
	struct segue_connection_key key;
	struct segue_connection fresh;
	struct tcp_segment tcp;
	u64 hash;    /* of the key */
	u64 now;     /* nanoseconds, CLOCK_MONOTONIC_COARSE, read once in a jiffy */
	u64 jiffies; /* that one */
	u64 evicted; /* when a beginning last gave way where this connection would be */
	u32 token;   /* who this CPU is to locks, in this jiffy */
	u32 forward; /* the packet's source is the key's first side */
	struct connection_victim victims[2];
	u64 until;  /* what the rules say of the packet may be kept so long (firewall_verdict.h); 0: it may not */
	u32 change; /* row in connection_changes, and what was there before the table was looked at */
	u32 version;
};

#endif
