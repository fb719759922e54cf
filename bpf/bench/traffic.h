/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Structures shared by traffic.bpf.c and crates/bench/src/traffic.rs, which checks their sizes against the object's
 * BTF. */
#ifndef SEGUE_BENCH_TRAFFIC_H
#define SEGUE_BENCH_TRAFFIC_H

#include <linux/types.h>

#define BENCH_HEADER_WORDS 24 /* 8-octet words behind the Ethernet header that can be restored */
#define BENCH_FRAME_WORDS 190 /* 8-octet words of the largest frame, 1514 octets */
#define BENCH_PORT 0x4000     /* source port of the first flow */

#define BENCH_FLOWS_MAX 16384 /* their ports are BENCH_PORT and up, their counterparts BENCH_PORT and down */
#define BENCH_BUCKETS 4096    /* of the latency histogram */
#define BENCH_BUCKET 64	      /* nanoseconds; the last one holds all that is longer */

/* Set before the object is loaded; the verifier then removes what is not in use. 296 octets. */
struct bench_config {
	__u64 header[BENCH_HEADER_WORDS]; /* octets of the frame from offset 14, as they go out of the generator */
	__u8 macs[12];			  /* destination and source address in generated frames */
	__be16 ethertype;
	__u16 reserved0;
	__u8 bare_macs[12];	/* addresses that `bare` writes */
	__u32 words;		/* words of `header` in use */
	__u32 generator_out;	/* ifindex, in the generator's namespace */
	__u32 bare_out;		/* ifindex, in the node's namespace */
	__u32 sink_length;	/* octets of a frame at the sink */
	__u32 flows;		/* at most BENCH_FLOWS_MAX; 1: the frame as it is */
	__u32 port_offset;	/* of the inner UDP source port in generated frames */
	__u32 balance_offset;	/* of the two octets of payload that keep the checksum */
	__u32 sink_port_offset; /* of both in frames at the sink; 0: not verified */
	__u32 sink_balance_offset;
	__u32 slack;	    /* octets in front of each frame that the generator cuts; not 0 */
	__u32 chain_offset; /* where the generator writes the number of the flow, 32 bits, in a segment; 0: nowhere */
	__u32 sink_chain_offsets[2]; /* where it must stand at the sink; 0: nowhere */
	__u32 reflector_out;	     /* ifindex, in the function's namespace */
	__u8 reflector_macs[12];     /* addresses that `reflector` writes */
	__u32 reserved1[2];
};

/* Time is read once in BENCH_STAMP packets: a clock for every packet would cost as much as a forwarder. */
#define BENCH_STAMP 64

struct bench_sent {
	__u64 packets;
	__u64 refused;	/* the frame could not be restored */
	__u64 first;	/* nanoseconds, CLOCK_MONOTONIC, of the first packet */
	__u64 next;	/* paced runs: when the next packet is due */
	__u64 interval; /* paced runs: nanoseconds between two packets; 0: as fast as possible */
	__u64 flow;	/* of the next packet */
	__u64 burst;	/* paced runs: packets that are late by less than so many nanoseconds are made up for */
	__u64 idle;	/* paced runs: runs in which no packet was due */
	__u64 begun;	/* paced runs: nanoseconds, CLOCK_MONOTONIC, of the first run, and of the latest */
	__u64 latest;
};

struct bench_received {
	__u64 packets; /* of the expected length */
	__u64 other;
	__u64 stamp;	     /* nanoseconds, CLOCK_MONOTONIC, of the latest multiple of BENCH_STAMP packets */
	__u64 stamp_packets; /* packets then */
	__u64 wrong;	     /* verify: frames that differ */
	__u64 wrong_offset;  /* of the first difference, and what stood there */
	__u64 wrong_found;
	__u64 wrong_wanted;
};

struct bench_expected {
	__u64 want[BENCH_FRAME_WORDS]; /* already masked */
	__u64 mask[BENCH_FRAME_WORDS];
	__u64 last_want; /* the frame's last eight octets, which `want` covers only in whole words */
	__u64 last_mask;
};

#endif
