/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Structures shared by the data plane (C) and the agent (Rust, crates/abi). The only source of their layout.
 *
 * Every structure is free of implicit padding (crates/abi derives byte conversion, which fails on padding). Addresses
 * are in network byte order as in a packet; other integers in host byte order unless the type says __be.
 *
 * Generations. All that an operator configures is written under a generation number; `control.generation` names the
 * active one. The agent writes the next generation completely, then changes that one word: a packet sees the old or the
 * new configuration, never a mix. Array maps that are double-buffered are indexed by `slot + size * (generation & 1)`;
 * tries carry the generation in front of the address; objects (SIDs, policies, lists, rules) have indices that the
 * agent allocates so that no index is used by both generations with different content.
 */
#ifndef SEGUE_ABI_H
#define SEGUE_ABI_H

#ifdef SEGUE_BINDGEN
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef unsigned short __be16;
typedef unsigned int __be32;
#else
#include <linux/types.h>
#endif

/* Changes whenever a layout or the meaning of a field changes; programs and maps of another version are replaced. */
#define SEGUE_ABI_VERSION 14

#define SEGUE_PORT_SLOTS 4096	 /* ports are found at ifindex modulo this, or behind the port that is there */
#define SEGUE_PORT_CHAIN 64	 /* ports whose ifindex is the same modulo SEGUE_PORT_SLOTS */
#define SEGUE_SEGMENTS_MAX 10	 /* segments in one list: what fits in an XDP frame's headroom */
#define SEGUE_LABELS_MAX 32	 /* labels in one list, an entropy label and its indicator among them */
#define SEGUE_LABEL_PATHS_MAX 16 /* equal paths of one label */
#define SEGUE_LABEL_PATH_SHIFT 20

/*
 * The first 16 bits of the /64 (RFC 6666, discard-only) in which instances of functions behind labels have keys where
 * others have SIDs: the label in the third word of 32 bits, the instance's number in the last.
 */
#define SEGUE_LABELS_AS_SIDS 0x0100
#define SEGUE_HEADROOM_MAX 216	 /* 256 octets less the kernel's struct xdp_frame, rounded up */
#define SEGUE_TEMPLATE_MAX 208	 /* 40 + 8 + 16 * SEGUE_SEGMENTS_MAX */
#define SEGUE_POLICY_BUCKETS 256 /* flows are spread over a policy's lists in shares of 1/256 */
#define SEGUE_PREFIXES_MAX 4	 /* SID blocks, source prefixes */
#define SEGUE_OUTCOMES_MAX 128
#define SEGUE_SID_CACHE_BITS 10 /* entries per CPU, as powers of two */
#define SEGUE_ADJACENCY_CACHE_BITS 11
#define SEGUE_FLOW_CACHE 4096	    /* entries per CPU while there are few steering rules */
#define SEGUE_FLOW_ROW 32	    /* of them in one row of the map `flows` */
#define SEGUE_PROXY_FLOW_CACHE 4096 /* entries per CPU as soon as a proxy remembers flows */
#define SEGUE_LAST_DROP_BYTES 192
#define SEGUE_STASH_SLOTS 65536 /* steering headers remembered by proxies; a reference has 16 bits for the slot */
#define SEGUE_NONE 0xffffffffU

enum segue_role {
	SEGUE_ROLE_NONE = 0,
	SEGUE_ROLE_CORE = 1,	/* inside the SR domain */
	SEGUE_ROLE_ACCESS = 2,	/* outside: hosts, customers */
	SEGUE_ROLE_SERVICE = 3, /* a function behind a proxy */
};

enum segue_port_flags {
	SEGUE_PORT_CAPTURE = 1 << 0, /* copy every packet to the capture map */
	SEGUE_PORT_HMAC = 1 << 1,    /* access: packets with SRH and HMAC go to the kernel for verification */
	SEGUE_PORT_L2 = 1 << 2,	     /* access: every frame is steered into `policy`, by H.Encaps.L2(.Red) or as a
				pseudowire; service: a function returns frames */
	SEGUE_PORT_UP = 1 << 3,
};

/*
 * One port. Map `ports`, slot = ifindex % SEGUE_PORT_SLOTS, double-buffered. Where several ports have the same one, the
 * first has it, and each names the slot of the next, which is one that no port has by its ifindex. 64 octets.
 */
struct segue_port {
	__u32 ifindex; /* 0: slot unused */
	__u16 index;   /* row in `outcomes`; 0 is kept for ports without a row */
	__u8 role;
	__u8 flags;
	__u32 mtu;    /* layer 3 MTU, octets */
	__u32 policy; /* SEGUE_PORT_L2: index of the policy; else SEGUE_NONE */
	__u32 proxy; /* service: index of the SID whose proxy this port returns to (IFACE-IN), the first of several that
			share a memory; else SEGUE_NONE */
	__be32 ipv4; /* an address of the port for ICMP; 0 if none */
	__u8 ipv6[16]; /* an address of the port for ICMPv6 and neighbour checks; :: if none */
	__u8 mac[6];
	__u16 next;		 /* slot + 1 of the next port with the same slot by its ifindex; 0: none */
	__u32 config_flags;	 /* enum segue_config_flags: node-wide, here because every packet reads its port */
	__u16 flow_buckets_mask; /* ECMP: flows of one next segment are spread over mask+1 FIB decisions, at most 256;
				    0: no ECMP */
	__u16 domain; /* ports with the same number get the same answers of the FIB: 0, or that of a VRF or of a rule */
	__u32 firewall;		   /* index in `firewalls`: what comes in by this port is filtered first; 0: none */
	__be16 sid_block_hints[2]; /* the first 16 bits of the SID blocks: addresses with others lie in none */
};

/* What kind of steering header it is, and so what its segment identifiers are, of which 16 octets hold one. */
enum segue_header_kind {
	SEGUE_HEADER_SRV6 = 0, /* an IPv6 header with an SRH; IPv6 addresses */
	SEGUE_HEADER_MPLS = 1, /* a stack of labels (RFC 3032, RFC 8660) */
};

enum segue_behaviour {
	SEGUE_END = 1,
	SEGUE_END_X = 2,
	SEGUE_END_T = 3,
	SEGUE_END_DX2 = 4,
	SEGUE_END_DX4 = 5,
	SEGUE_END_DX6 = 6,
	SEGUE_END_DT4 = 7,
	SEGUE_END_DT6 = 8,
	SEGUE_END_DT46 = 9,
	SEGUE_END_B6_ENCAPS = 10,
	SEGUE_END_B6_ENCAPS_RED = 11,
	SEGUE_END_AS = 12,
	SEGUE_END_AD = 13, /* with SEGUE_MEMORY_PACKET: the exact proxy */
	SEGUE_END_AM = 14,
	SEGUE_END_AN = 15,	  /* an SR-aware function on a port of this node */
	SEGUE_END_AN_NF = 16,	  /* netfilter on the inner packet; always SEGUE_MEMORY_PACKET */
	SEGUE_END_INSTANCES = 17, /* one of several instances of a function */
	/* Of labels (SEGUE_HEADER_MPLS). */
	SEGUE_LABEL_NODE = 18,	   /* NEXT (RFC 8660): this node's own; the next label, or the inner packet by route */
	SEGUE_LABEL_SWAP = 19,	   /* CONTINUE: `out_label` in its place, to `next_hop` */
	SEGUE_LABEL_POP = 20,	   /* off, and to `next_hop`: an adjacency, or the last hop but one of a node label */
	SEGUE_LABEL_TABLE = 21,	   /* the end of the stack: the inner packet by `table` */
	SEGUE_LABEL_NEXT_HOP = 22, /* the end of the stack: the inner packet to `next_hop` */
	/* Functions behind a label: the inner packet goes there without labels, and the rest of the stack back on what
	 * comes back, which then goes on by that, or if there is none by its destination in `table`. */
	SEGUE_LABEL_STATIC = 23,   /* the rest is the only list of `policy`, SEGUE_NONE: none */
	SEGUE_LABEL_DYNAMIC = 24,  /* the rest is remembered; with SEGUE_MEMORY_PACKET also netfilter */
	SEGUE_LABEL_FIREWALL = 25, /* the function is the node's own: `firewall` */
	SEGUE_LABEL_BINDING = 26,  /* a list of `policy` in its place (RFC 8402 section 5) */
	SEGUE_END_BM = 27,	   /* a list of labels of `policy` in front of the packet (RFC 8986 section 4.15) */
	SEGUE_END_DTM = 28,	   /* the inner packet is one with labels (draft-ietf-spring-srv6-mpls-interworking) */
	SEGUE_LABEL_PSEUDOWIRE =
		29, /* the end of the stack: the Ethernet frame behind it goes out of `oif` (RFC 4448) */
	SEGUE_LABEL_INSTANCES = 31, /* one of several instances of a function, as SEGUE_END_INSTANCES */
	SEGUE_LABEL_AWARE = 32,	    /* the function sees the rest of the stack, and gives it back */
	/* Labels in UDP (RFC 7510), where networks without labels lie between. */
	SEGUE_LABEL_UDP = 40, /* as SEGUE_LABEL_SWAP, with `out_label` 3 as SEGUE_LABEL_POP, but to the other end of a
				 tunnel in `next_hop`: struct segue_udp of segue_sid */
	SEGUE_UDP_ENDPOINT = 41, /* no SID: an address of this node that takes labels in UDP. IPv4: as ::ffff:0:0/96 */
};

enum segue_flavour {
	SEGUE_PSP = 1 << 0,
	SEGUE_USP = 1 << 1,
	SEGUE_USD = 1 << 2,
	SEGUE_NAT = 1 << 3,	/* End.AM: the function may change the destination address */
	SEGUE_CACHING = 1 << 4, /* End.AM: packets that come back without SRH get the last one seen */
};

enum segue_inner {
	SEGUE_INNER_IPV4 = 1 << 0,
	SEGUE_INNER_IPV6 = 1 << 1,
	SEGUE_INNER_ETHERNET = 1 << 2,
};

enum segue_sid_flags {
	SEGUE_SID_ALLOW_ICMPV6 = 1 << 0, /* upper layer 58 at SL 0 goes to the kernel (ping of a SID) */
	SEGUE_SID_NEXT_HOP_MAC = 1 << 1, /* `mac` is the next hop; no neighbour lookup */
	SEGUE_SID_BYPASS_OTHER_TYPE =
		1 << 2, /* proxy: wrong inner type goes on to the next segment (draft S15); else dropped */
	SEGUE_SID_ALLOW_INNER_SID =
		1 << 3, /* decapsulation: the inner destination may lie in a SID block (nested policy) */
	SEGUE_SID_DOWN =
		1 << 4, /* proxies: the function is down, `failure` says what to do. Set and cleared in place
			   by the agent, which then has copies of this entry forgotten (lib/forward/sid_forget.h) */
	SEGUE_SID_CONTROL_WORD = 1 << 5,  /* SEGUE_LABEL_PSEUDOWIRE: there is one in front of the frame (RFC 4385) */
	SEGUE_SID_EXPLICIT_NULL = 1 << 6, /* SEGUE_LABEL_SWAP: by explicit null, of the inner packet's family */
	SEGUE_SID_OIF_BY_KERNEL = 1 << 7, /* `oif` takes no frames that XDP redirects: the TC program on the port sends
					     them. In the place that SEGUE_OIF_BY_KERNEL has in its word */
};

/* In the number of an interface by which XDP is to send something: it goes through the TC program on the port. */
#define SEGUE_OIF_BY_KERNEL (1U << 31)

/* What a proxy remembers the steering header by. */
enum segue_memory_kind {
	SEGUE_MEMORY_NONE = 0,	    /* End.AS: not at all; End.AM: in the packet itself */
	SEGUE_MEMORY_INTERFACE = 1, /* the last one for each return interface, as the draft says */
	SEGUE_MEMORY_FLOW = 2,	    /* for each inner flow */
	SEGUE_MEMORY_PACKET = 3,    /* for each packet: goes with it through the kernel (skb->hash, skb->tc_index) */
};

/* What a proxy SID does while its function is down. */
enum segue_failure {
	SEGUE_FAILURE_DROP = 0,	   /* also for `withdraw`, where the route goes too */
	SEGUE_FAILURE_BYPASS = 1,  /* on to the next segment */
	SEGUE_FAILURE_REROUTE = 2, /* to the SID in `backup`, as a segment in place of this one */
};

/* What an SR-aware function (End.AN) may do to the segment list. Each includes those above it. */
enum segue_permission {
	SEGUE_MAY_ADVANCE = 0,	    /* nothing but its own End processing */
	SEGUE_MAY_INSERT_NEXT = 1,  /* new segments right behind its own */
	SEGUE_MAY_INSERT = 2,	    /* new segments anywhere behind its own */
	SEGUE_MAY_REPLACE = 3,	    /* the rest of the list, but for the last segment */
	SEGUE_MAY_REPLACE_LAST = 4, /* the last segment too */
};

/* What else an SR-aware function may rewrite. */
enum segue_rewrite {
	SEGUE_REWRITE_ADDRESSES = 1 << 0,     /* addresses and ports of the packet that it serves, not of the tunnel */
	SEGUE_REWRITE_TRAFFIC_CLASS = 1 << 1, /* DSCP of the outer header */
	SEGUE_REWRITE_TLVS = 1 << 2,	      /* all that follows the segment list in the SRH */
};

enum segue_proxy_flags {
	SEGUE_PROXY_UNKNOWN_TO_INTERFACE = 1 << 0, /* MEMORY_FLOW: packets of unknown flows get the header last seen by
						      the interface; else dropped */
	SEGUE_PROXY_PEER = 1 << 1, /* `oif` is a veth whose other end is in another namespace (bpf_redirect_peer) */
	SEGUE_PROXY_KEEP_HOP_LIMIT = 1 << 2, /* the function's kernel lowers the inner hop limit: undone */
	SEGUE_PROXY_OWN_DROP = 1 << 3,	     /* MEMORY_PACKET: what the function made itself is dropped */
	SEGUE_PROXY_OWN_STEER =
		1 << 4, /* MEMORY_PACKET: what the function made itself is steered as from an access port, and goes to
			   the kernel where no rule holds; without either flag it goes to the kernel */
	SEGUE_PROXY_BY_ADDRESSES = 1 << 5, /* END_INSTANCES: flows are told by their addresses alone */
};

/*
 * One local SID, or one label (map `labels`). Map `sid_entries`. 104 octets.
 * SEGUE_END_INSTANCES: each instance has a SID of its own. Those that take new flows are the only segments of the lists
 * of `policy`; `next_hop` begins with a hash of the function's name, and `flow_timeout` says how long the instance of
 * an unused flow is remembered. SEGUE_LABEL_INSTANCES: the same, with keys in place of SIDs (SEGUE_LABELS_AS_SIDS).
 */
struct segue_sid {
	__u8 behaviour; /* enum segue_behaviour */
	__u8 kind;	/* enum segue_header_kind: of the packets that come to it */
	__u8 inner;	/* enum segue_inner: what a proxy takes */
	__u8 flags;	/* enum segue_sid_flags */
	__u32 counter;	/* row in `counters` */
	__u32 table;	/* FIB table for End.T, End.DT*, 0: the main table by the kernel's rules. SEGUE_LABEL_SWAP and
			   SEGUE_LABEL_POP: of how many equal paths this is the first, at most SEGUE_LABEL_PATHS_MAX;
			   0: of no others */
	__u32 oif;    /* outgoing ifindex: End.X (0: by route), End.DX2, SEGUE_LABEL_PSEUDOWIRE, proxies (IFACE-OUT) */
	__u32 policy; /* End.B6.*, End.BM, SEGUE_LABEL_BINDING: policy; End.AS: the policy whose only list is CACHE.LIST
		       */
	__u32 counter_return; /* proxies: row in `counters` for packets that came back */
	__u8 next_hop[16];    /* End.X, End.DX6, proxies: IPv6 next hop; :: = by route on the destination */
	__be32 next_hop_ipv4; /* End.DX4, proxies; 0 = by route on the destination */
	__u8 mac[6];
	__u8 memory;	       /* enum segue_memory_kind */
	__u8 failure;	       /* enum segue_failure */
	__u32 flow_timeout;    /* MEMORY_FLOW: jiffies after which an unused flow is forgotten */
	__u64 scope;	       /* proxies with a memory: row in `memories` | the generation that gave the row to this
				  return interface << 32, so that no two interfaces ever have the same scope. SIDs of one
				  scope share what is remembered */
	__u8 hop_limit_margin; /* hop limits that differ by less are the same header */
	__u8 argument_length;  /* End.AN.NF: bits of the argument, 0 to 32, right behind the SID's prefix; becomes the
				  mark. That of a firewall's SID is in `firewalls` */
	__u8 permission;       /* enum segue_permission */
	__u8 proxy_flags;      /* enum segue_proxy_flags */
	__u8 prefix_length;    /* bits of LOC:FUNCT */
	__u8 rewrite;	       /* enum segue_rewrite */
	__u16 flavours;	       /* enum segue_flavour */
	__u8 backup[16];       /* SEGUE_FAILURE_REROUTE */
	__u32 firewall;	       /* End.AN: index in `firewalls`, the function is the node's own firewall; 0: none */
	__u8 source_mac[6];    /* proxies: the MAC address of `oif` */
	__u16 function_mtu;    /* proxies: layer 3 MTU of `oif`, octets (65535 at most); 0: it is down */
	__u32 out_label;       /* SEGUE_LABEL_SWAP; with SEGUE_FAILURE_REROUTE the label in place of this one */
};

/* What a CPU remembers of the SID that covers an address. Map `sids_cached`, not shared between builds. 128 octets. */
struct segue_sid_cached {
	__u8 address[16];
	__u64 epoch; /* of the packet that it was made for: generation, cache generation and routing domain; 0: nothing
			is remembered here */
	struct segue_sid sid; /* a copy; behaviour 0: no SID, which is remembered too */
};

/* What is to be forgotten: entries of `sids_cached`. The agent gives a list of them to the program segue_forget. */
struct segue_forgotten {
	__u32 entry;
	__u32 cpu;
};

#define SEGUE_FORGOTTEN_MAX 64 /* in one list */

#define SEGUE_TAKES_FRAMES_MAX 4096 /* interfaces that XDP redirects frames into. Map `takes_frames` */

/* Key of the tries: generation first, so that two generations live side by side. */
struct segue_sid_key {
	__u32 prefixlen; /* 32 + prefix length */
	__u32 generation;
	__u8 address[16];
};

/* Key of map `labels` (HASH), whose values are indices in `sid_entries`. */
struct segue_label_key {
	__u32 generation;
	__u32 label;	 /* 20 bits; above them the number of one of its paths */
	__be32 instance; /* the number of one of the instances of its function; 0: the label itself */
};

#define SEGUE_RETURN_PORTS 8

/*
 * By which ports come the packets that this node sends to a last segment: of the steering rules that lead there. Map
 * `returns` (HASH), by struct segue_sid_key with prefixlen 160 and the last segment as address. No entry: by any.
 */
struct segue_return {
	__u32 ports[SEGUE_RETURN_PORTS]; /* ifindex; 0: no more */
};

#define SEGUE_PATH_MTUS 64     /* rows */
#define SEGUE_PATH_SRH_MAX 168 /* octets of an SRH with SEGUE_SEGMENTS_MAX segments and no TLVs */

/*
 * What was last said of a path that packets of this node do not fit. Map `path_mtus` (ARRAY); the
 * row is a hash of what it is about. The agent makes of it limits of segment lists and of functions, for a
 * while. Two CPUs may write one row at the same time: what is read then is told again with the next packet. 208 octets.
 */
struct segue_path_mtu {
	__u32 count; /* goes up with each writing */
	__u32 mtu;   /* octets */
	/* Of packets without a header of this node's, that come in by this port from a function; or 0: */
	__u32 ifindex;
	/* of packets with one: octets of `srh`, 0 if they had no SRH */
	__u32 srh_length;
	__u8 last[16]; /* their last segment */
	__u8 srh[SEGUE_PATH_SRH_MAX];
	__u8 reserved[8];
};

#define SEGUE_UNRESOLVED 64 /* rows */

/*
 * A neighbour that a packet was to go to and that the kernel has no link-layer address of. Map `unresolved` (ARRAY);
 * the row is a hash of it. The agent has the kernel ask for it. Two CPUs may write one row at the same time: what is
 * read then is asked for in vain, and the right one with the next packet. 24 octets.
 */
struct segue_unresolved {
	__u32 count; /* goes up with each writing */
	__u32 ifindex;
	__u8 address[16]; /* IPv4: mapped */
};

enum segue_mode {
	SEGUE_H_ENCAPS = 1,
	SEGUE_H_ENCAPS_RED = 2,
	SEGUE_H_ENCAPS_L2 = 3,
	SEGUE_H_ENCAPS_L2_RED = 4,
	SEGUE_H_INSERT = 5,
	SEGUE_PUSH = 6, /* a stack of labels (RFC 8660 section 2.7) */
};

/* An SR policy (RFC 9256). Map `policies`. */
struct segue_policy {
	__u32 lists;	/* number of valid segment lists; 0: packets are dropped (RFC 9256 section 8.2) */
	__u32 list[16]; /* indices in `segment_lists` */
	__u8 bucket[SEGUE_POLICY_BUCKETS]; /* flow hash modulo 256 -> position in `list`, by weight */
};

enum segue_list_flags {
	SEGUE_LIST_TRAFFIC_CLASS_COPY =
		1 << 0, /* DSCP from the inner packet; else `traffic_class`. ECN is always copied */
	SEGUE_LIST_HAS_SRH = 1 << 1,
	SEGUE_LIST_FLOW_LABEL_COPY = 1 << 2, /* inner IPv6 flow label where it is not 0; else the flow hash */
	SEGUE_LIST_TTL_UNIFORM = 1 << 3,     /* labels: the inner TTL, after it was lowered; else `ttl` (RFC 3443) */
	SEGUE_LIST_LOCAL = 1 << 4,	     /* labels: the first one is this node's own; there is no next hop */
	SEGUE_LIST_ENTROPY =
		1 << 5,		 /* labels: the last entry is an entropy label, which the data plane fills (RFC 6790) */
	SEGUE_LIST_UDP = 1 << 6, /* labels: `first` is the other end of a tunnel in UDP, struct segue_udp at
				    SEGUE_LIST_UDP_AT in `header` */
};

#define SEGUE_LIST_UDP_AT 128 /* behind the most labels */

enum segue_udp_flags {
	SEGUE_UDP_ZERO_CHECKSUM = 1 << 0, /* sending: UDP without a checksum over IPv6. Receiving: taken from sources in
					     `next_hop` with the mask `backup` (RFC 6936) */
};

/*
 * A tunnel that carries labels in UDP, but for its other end. Of a label it is in fields of struct segue_sid that
 * labels do not have: `backup`, `function_mtu`, `hop_limit_margin`, and `flavours` for the flags. 20 octets.
 */
struct segue_udp {
	__u8 source[16]; /* IPv4: in the third four octets */
	__u16 mtu;	 /* octets that fit the path to the other end; 0: what fits the link */
	__u8 hop_limit;	 /* of the outer header */
	__u8 flags;	 /* enum segue_udp_flags */
};

/* What is behind the labels of a list. */
enum segue_pseudowire {
	SEGUE_PSEUDOWIRE_NONE = 0,	   /* an IP packet: the list is no pseudowire's */
	SEGUE_PSEUDOWIRE_FRAME = 1,	   /* an Ethernet frame (RFC 4448) */
	SEGUE_PSEUDOWIRE_CONTROL_WORD = 2, /* the same behind a control word (RFC 4385) */
};

/*
 * A segment list, as the octets to put in front of the inner packet. Map `segment_lists`. 256 octets.
 * encapsulation: `header` = IPv6 header, then the SRH if any. The data plane fills traffic class, flow label, Payload
 *   Length and the Next Header of the last header.
 * insertion: `header` = SRH, whose Next Header and Segment List[0] the data plane fills; `first` is the new
 * destination.
 * labels: `header` = label stack entries, whose TC and TTL the data plane fills; `first` is the next hop (of those that
 *   go back on behind a function: unused).
 */
struct segue_segment_list {
	__u16 header_length; /* octets of `header` in use */
	__u8 mode;	     /* enum segue_mode */
	__u8 flags;	     /* enum segue_list_flags */
	__u8 traffic_class;  /* used without TRAFFIC_CLASS_COPY; low two bits 0 */
	__u8 segments;	     /* segments in the list, 1 to SEGUE_SEGMENTS_MAX; labels: entries, 1 to SEGUE_LABELS_MAX */
	__u8 kind;	     /* enum segue_header_kind: what `first` is, and `header` */
	__u8 ttl;	     /* labels: in pipe mode */
	__u32 counter;
	__u32 oif;	/* outgoing ifindex for the first segment; 0: by route */
	__u8 first[16]; /* the first segment */
	__u8 header[SEGUE_TEMPLATE_MAX];
	__u32 policy;	 /* index of the policy, for displays */
	__u16 clamp;	 /* octets of the largest packet that TCP connections may be opened for; 0: any */
	__u8 pseudowire; /* labels: enum segue_pseudowire */
	__u8 reserved;
	__u16 mtu; /* octets of the largest packet with its outer headers that all nodes of the path let pass, as far as
		      they have told (RFC 2473 section 7.1); 0: none has said anything. Not for labels */
	__u8 reserved2[2];
	__u32 way; /* the way to `first`, as the data plane asks for it: the highest bit for an IPv4 address, in the
		      third four octets */
};

/*
 * A reference to a steering header: where it is kept and when it was put there. A slot is written at most once in each
 * unit of time, later than whatever it held, so that a reference never names two contents, whatever programs, tables or
 * agents come and go meanwhile. Sets of maps that live side by side, while one takes over from another, have different
 * series.
 *   bits  0 to 15  slot
 *   bits 16 to 59  time since boot in units of 2^20 ns; not a multiple of 2^16, so that the low word is never 0
 *   bit  60        the slot is being written: no reference has it
 *   bits 61 to 63  series
 * A packet on its way through the kernel carries the low 37 bits and the series, which lasts for 2^21 units: 36
 * minutes.
 */
#define SEGUE_STASH_TIME_SHIFT 16
#define SEGUE_STASH_UNIT_SHIFT 20
#define SEGUE_STASH_WRITING (1ULL << 60)
#define SEGUE_STASH_SERIES_SHIFT 61

/*
 * A steering header that a proxy remembers. Map `stash`, 1 << control.stash_bits entries, SEGUE_STASH_SLOTS at most.
 * 256 octets. Slots are taken in turn (`stash_cursor`), and no two CPUs write the same one. A reader compares `id` with
 * its reference before and after it copies: an entry that was overwritten meanwhile is never used.
 */
struct segue_stash {
	__u64 id;	  /* the reference that the content answers to */
	__u64 scope;	  /* as in struct segue_sid: only these proxies put it back */
	__u16 length;	  /* octets of `header`, a multiple of 8; of labels one of 4, perhaps 0 */
	__u8 next_header; /* offset in `header` of the octet that names the inner packet's protocol */
	__u8 flags;	  /* enum segue_stash_flags */
	__u8 hop_limit;	  /* End.AN.NF: of the inner packet as it came; else 0 */
	__u8 kind;	  /* enum segue_header_kind */
	__u16 reserved0;
	__u8 header[SEGUE_HEADROOM_MAX]; /* as it goes back on: advanced, Payload Length 0 */
	__u8 reserved[16];
};

enum segue_stash_flags {
	SEGUE_STASH_TRAFFIC_CLASS_COPY = 1 << 0, /* outer and inner DSCP were equal: stays so */
	SEGUE_STASH_SRH = 1 << 2,		 /* End.AM: only the SRH */
	SEGUE_STASH_EXACT =
		1 << 1, /* MEMORY_PACKET: traffic class and flow label are those of the packet; else made anew */
	SEGUE_STASH_LAST = 1 << 3,    /* with SEGUE_STASH_SRH: Segment List[0] too, which is the chain's or a SID */
	SEGUE_STASH_BEHIND = 1 << 4,  /* End.AM, End.AN: what leads on behind the SRH (lib/proxy/behind.h) */
	SEGUE_STASH_LABELS = 1 << 6,  /* with SEGUE_STASH_EXACT: the rest of a stack of labels */
	SEGUE_STASH_ENTROPY = 1 << 7, /* the rest of a stack with entropy labels, which are made anew */
	SEGUE_STASH_AWARE = 1 << 5, /* End.AN that translates: what such a packet must still have (lib/proxy/aware.h) */
};

/* What proxies of one scope remember last. Map `memories`. 64 octets, so that two scopes share no cache line. */
struct segue_memory {
	__u64 current; /* reference into `stash`, 0: nothing yet */
	__u32 changes; /* MEMORY_FLOW: flows whose header became another: what CPUs remember of flows is asked for anew
			*/
	__u8 reserved[52];
};

/* Row of `memory_counters` (PERCPU_ARRAY), by scope. */
struct segue_memory_counters {
	__u64 renewed;	   /* the header changed in what matters and was written */
	__u64 created;	   /* flows that were new */
	__u64 removed;	   /* flows forgotten after their timeout; created - removed - present = evicted */
	__u64 unknown;	   /* packets back from the function whose flow is not known */
	__u64 conflicts;   /* flows whose header became that of another path within their life */
	__u64 overwritten; /* packets back whose header was overwritten meanwhile */
};

/* Key and value of `proxy_flows` (LRU_HASH). */
struct segue_proxy_flow_key {
	__u64 key[5]; /* inner addresses; ports (fragments: identification) | protocol << 32 | family << 40 | fragment
			 << 48 */
	__u32 scope;  /* row in `memories` */
	__u32 since;  /* the scope's generation: the high word of `scope` in struct segue_sid */
};

struct segue_proxy_flow {
	__u64 stash; /* reference */
	__u32 used;  /* jiffies */
	/* End.AN: the two last that differ, since packets of both may be in the function at once */
	__u32 word[2];	   /* an IPv6 header's first word without ECN, as in a packet */
	__u8 hop_limit[2]; /* as sent to the function */
	__u16 reserved;
};

/*
 * Key and value of `instance_flows` (LRU_HASH): the instance that a flow is at, for both directions of the flow and
 * both of the function's SIDs.
 */
struct segue_instance_key {
	__u64 function; /* the first half of the SIDs' `next_hop` */
	__u64 sum;	/* of a hash of each end of the flow */
	__u64 rest;	/* the two hashes in any order, protocol and family */
};

struct segue_instance_flow {
	__be32 instance; /* the last 32 bits of the instance's SID */
	__u32 used;	 /* jiffies */
	__u32 ended;	 /* TCP: bit 0 and 1, that direction has ended */
};

/*
 * XDP metadata in front of an inner packet on its way to a function through the kernel (SEGUE_MEMORY_PACKET). The TC
 * program on the same port turns it into skb->hash = stash, skb->tc_index = SEGUE_TC_INDEX | the low bits of flags,
 * skb->mark = mark.
 */
struct segue_function_metadata {
	__u64 magic; /* metadata_magic of `control` */
	__u32 stash; /* low word of the reference */
	__u32 mark;
	__u32 oif;   /* IFACE-OUT */
	__u32 flags; /* enum segue_metadata_flags */
};

/*
 * XDP metadata in front of a message that the data plane has made: an ICMP error, an echo reply, a TCP reset; and in
 * front of what is forwarded by an interface that takes no frames from XDP. The TC program on the same port sends it,
 * by any interface and whether or not the neighbour is known. 32 octets are all that XDP metadata may be before Linux
 * 6.9.
 */
struct segue_answer_metadata {
	__u64 magic;	   /* ~metadata_magic of `control` */
	__u32 oif;	   /* by which it leaves */
	__u32 family;	   /* of next_hop, as in AF_*; 0: the frame has its Ethernet header */
	__u8 next_hop[16]; /* IPv4: in the first four octets */
};

/* The highest bits of skb->tc_index of a packet on its way through a function, and those that it is told by. */
#define SEGUE_TC_INDEX 0x5800
#define SEGUE_TC_INDEX_MASK 0xf800

/* Bits 0 to 10 go with the packet, in skb->tc_index. */
enum segue_metadata_flags {
	SEGUE_METADATA_TIME = 0x1f << 3, /* bits 32 to 36 of the reference */
	SEGUE_METADATA_SERIES = 7 << 8,	 /* bits 61 to 63 of the reference */
	SEGUE_METADATA_PEER = 1 << 16,	 /* bpf_redirect_peer */
};

struct segue_prefix {
	__u64 address[2]; /* as in a packet, masked */
	__u64 mask[2];
};

enum segue_config_flags {
	SEGUE_CONFIG_FIB_TABLE = 1 << 0,	     /* BPF_FIB_LOOKUP_TBID (6.5 and newer); else no SID has a table */
	SEGUE_CONFIG_REDIRECT_MULTI_BUFFER = 1 << 1, /* the kernel redirects multi-buffer frames (6.3 and newer) */
	SEGUE_CONFIG_MANY_BLOCKS = 1 << 3,  /* more SID blocks than `sid_block_hints` has room for, or shorter ones */
	SEGUE_CONFIG_STEER_MARKS = 1 << 4,  /* some steering rule looks at the flow label or the DSCP */
	SEGUE_CONFIG_CHECK_SOURCE = 1 << 2, /* RFC 8754 section 5.1 level 2: `source_prefixes` */
	SEGUE_CONFIG_LABELS = 1 << 5,	    /* the node has labels: packets with labels are its own */
	SEGUE_CONFIG_TTL_UNIFORM = 1 << 6,  /* labels: their TTL is carried on (RFC 3443), else it ends with them */
	SEGUE_CONFIG_PSEUDOWIRES = 1 << 7,  /* the node has labels of pseudowires: behind them are no IP packets */
	SEGUE_CONFIG_UDP_IPV6 = 1 << 8,	    /* some SEGUE_UDP_ENDPOINT is an IPv6 address */
	SEGUE_CONFIG_UDP_IPV4 = 1 << 9,	    /* or an IPv4 address */
	SEGUE_CONFIG_LABEL_ECN = 1 << 10,   /* labels: some values of TC are congestion marks (RFC 5129) */
};

/* `label_classes` without any pair. */
#define SEGUE_LABEL_CLASSES_NONE 0x76543210

/* Node-wide settings. Map `config`, double-buffered (two entries). */
struct segue_config {
	__u32 cache_lifetime;  /* jiffies that an adjacency is believed without asking the FIB again */
	__u32 icmp_per_second; /* ICMP errors of one kind about packets of one port, per second and CPU */
	__u32 icmp_burst;
	__be32 address_ipv4; /* source of ICMP errors where the port has no address */
	__u8 address[16];    /* the node's address in the domain: source of ICMPv6 errors and of ICMP relay checks */
	__u32 sid_blocks_count;
	__u32 source_prefixes_count;
	__u32 steering; /* line of the steering rules' chain in map `steering`; 0: there are none */
	__u32 infrastructure_prefixes_count;
	__u32 echo_per_second; /* echo replies for requests by one port, per second and CPU */
	__u32 echo_burst;
	__u32 resets_per_second; /* TCP resets of firewalls, the same */
	__u32 resets_burst;
	/*
	 * Of each value of TC of labels four bits, those of 0 in the lowest: its partner with and without a congestion
	 * mark (RFC 5129), itself if it has none; and 8 if it is the mark.
	 */
	__u32 label_classes;
	/*
	 * ifindex of the link by which socket buffers go that the kernel has to make single, complete packets of before
	 * they get labels, or go into IPv6 as whole frames (lib/packet/cut.h); 0: there is none.
	 */
	__u32 cut;
	struct segue_prefix sid_blocks[SEGUE_PREFIXES_MAX];
	struct segue_prefix source_prefixes[SEGUE_PREFIXES_MAX];
	struct segue_prefix infrastructure_prefixes[SEGUE_PREFIXES_MAX]; /* nodes and links: closed to the outside */
};

#define SEGUE_NEIGHBOUR_SLOTS 256

/* What changes without a new generation. Global data of the programs: map `.data.control`, one entry. */
struct segue_control {
	__u32 abi_version; /* set by the object itself */
	__u32 captures; /* number of ports with SEGUE_PORT_CAPTURE: spares the data plane a look at each egress port */
	__u32 generation;	/* not 0 */
	__u32 cache_generation; /* raised by the agent when routes change: all caches are dropped */
	__u32 stash_bits;	/* slots of `stash`, as a power of two */
	__u32 loop; /* ifindex of the link by which TC programs give packets to segments of this node; 0: none */
	__u64 metadata_magic; /* random for each set of maps, not 0: nobody can forge metadata */
	__u32 stash_series;   /* of this set of maps, 0 to 7 */
	__u32 narrow_changes; /* raised with any of `neighbours`, and behind each change of an entry of `sid_entries` in
				 place: what was looked up meanwhile is not remembered */
	/*
	 * Link-layer source of what the data plane has put together or let in, and gives to the kernel: nobody can know
	 * it, so that the kernel's rules know what has passed here. 0: no rule asks. Six octets; the last two are 0.
	 */
	__u16 signature[4];
	__u64 reserved[2]; /* for the bits of an address by which a CPU's copies of SIDs are found: now all of them */
	/*
	 * Raised by the agent when a neighbour goes or gets another link-layer address: adjacencies by neighbours of
	 * the same slot are dropped, and no others. Slot: (ifindex * 4 + the address's last octet % 4) %
	 * SEGUE_NEIGHBOUR_SLOTS, so that what happens on one link does not touch the others.
	 */
	__u32 neighbours[SEGUE_NEIGHBOUR_SLOTS];
};

struct segue_counter {
	__u64 packets;
	__u64 bytes; /* layer 3 octets, as received */
};

struct segue_outcomes {
	struct segue_counter outcome[SEGUE_OUTCOMES_MAX];
};

struct segue_last_drop_key {
	__u16 port; /* index of the port */
	__u16 outcome;
};

struct segue_last_drop {
	__u64 time; /* nanoseconds since boot, CLOCK_MONOTONIC */
	__u32 ifindex;
	__u32 length;	/* octets of the frame */
	__u32 captured; /* octets in `bytes` */
	__u32 reserved;
	__u8 bytes[SEGUE_LAST_DROP_BYTES];
};

/* In front of each captured packet in the perf buffer `captures`. */
struct segue_capture {
	__u64 time; /* nanoseconds, CLOCK_MONOTONIC */
	__u32 ifindex;
	__u32 length;	 /* octets of the frame */
	__u32 captured;	 /* octets that follow */
	__u16 direction; /* 0 received, 1 sent */
	__u16 outcome;	 /* sent only */
};

/* Rows of `icmp_sent` (PERCPU_ARRAY of __u64): ICMP messages that the data plane made, beside the outcome of the
 * packet. */
enum segue_icmp {
	SEGUE_ICMP_UNREACHABLE = 0,
	SEGUE_ICMP_TOO_BIG = 1,
	SEGUE_ICMP_TIME_EXCEEDED = 2,
	SEGUE_ICMP_PARAMETER_PROBLEM = 3,
	SEGUE_ICMP_ECHO_REPLY = 4,
	SEGUE_ICMP_RELAYED = 5, /* errors from inside the domain, sent on to the inner source (RFC 2473 section 8) */
	SEGUE_ICMP_RATE_LIMITED = 6, /* not sent: the token bucket was empty */
	SEGUE_ICMP_NOT_SENT = 7,     /* not sent: RFC 4443 section 2.4(e) forbids, or no way back */
	SEGUE_ICMP_TCP_RESET = 8,    /* TCP segments with RST of a firewall */
	SEGUE_ICMP_MAX = 9,
};

enum segue_stage {
	SEGUE_STAGE_AGAIN = 0,	   /* segue_again: a segment that is local, after the steering header was rewritten */
	SEGUE_STAGE_ICMP = 1,	   /* segue_icmp: makes an ICMP error or echo reply */
	SEGUE_STAGE_SERVICE = 2,   /* segue_service: back from a function */
	SEGUE_STAGE_RELAY = 3,	   /* segue_relay: an ICMP error from inside the domain for an inner source */
	SEGUE_STAGE_ACCESS = 4,	   /* segue_access: from outside, once its priority tag is off */
	SEGUE_STAGE_PROXY = 5,	   /* segue_proxy: to a function by a proxy that does more than the simplest do */
	SEGUE_STAGE_FIREWALL = 6,  /* segue_firewall: to a SID with a firewall */
	SEGUE_STAGE_FILTER = 7,	   /* segue_filter: in by a port with a firewall */
	SEGUE_STAGE_FILTERED = 8,  /* segue_filtered: the same port, once the firewall has let the packet pass */
	SEGUE_STAGE_RESET = 9,	   /* segue_reset: makes the TCP segment with RST of a firewall */
	SEGUE_STAGE_INSERTED = 11, /* segue_inserted: to End.AN.NF with an SRH that was inserted into the packet */
	SEGUE_STAGE_OWN = 12,	   /* segue_own, on socket buffers alone: what a function sends of its own */
	SEGUE_STAGE_INSTANCE = 13, /* segue_instance: to one of several instances of a function */
	SEGUE_STAGE_LABELS = 14,   /* segue_labels: a packet with labels that a core port has received */
	SEGUE_STAGE_LABELS_PUSH = 15,	  /* segue_labels_push: from outside into a policy of labels */
	SEGUE_STAGE_LABELS_BACK = 16,	  /* segue_labels_back: back from a function behind a label */
	SEGUE_STAGE_LABELS_FIREWALL = 17, /* segue_labels_firewall: to a label with a firewall, the first one */
	SEGUE_STAGE_LABELS_PASSED = 18,	  /* segue_labels_passed: the same once the firewall has let the packet pass */
	SEGUE_STAGE_LABELS_OUT = 19,	  /* segue_function_labels, on socket buffers alone: out of a function on the
					     kernel's      path behind a label */
	SEGUE_STAGE_LABELS_BINDING = 20,  /* segue_labels_binding: to a binding label */
	SEGUE_STAGE_LABELS_FRAME = 21,	  /* segue_labels_frame: a frame from outside into a pseudowire */
	SEGUE_STAGE_LABELS_WIRE = 22,	  /* segue_labels_wire: a frame out of a pseudowire */
	SEGUE_STAGE_LABELS_INSTANCE = 24, /* segue_labels_instance: to a label with several instances of a function */
	SEGUE_STAGE_LABELS_AWARE = 25,	  /* segue_labels_aware: to a function that sees the stack */
	SEGUE_STAGE_LABELS_AWARE_BACK = 26, /* segue_labels_aware_back: back from such a function */
	SEGUE_STAGE_LABELS_UDP = 27,	    /* segue_labels_udp: a packet with labels goes on in UDP */
	SEGUE_STAGE_LABELS_UDP_PUSH = 28,   /* segue_labels_udp_push: the same once it has got them */
	SEGUE_STAGE_LABELS_UDP_IN = 29,	    /* segue_labels_udp_in: UDP by a core port, perhaps with labels in it */
	SEGUE_STAGE_LABELS_ECN =
		30, /* segue_labels_ecn: the same as segue_labels, where labels have congestion marks */
	SEGUE_STAGE_MAX = 32,
};

#endif
