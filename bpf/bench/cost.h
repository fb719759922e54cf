/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Structures shared by cost.bpf.c and crates/bench/src/cost.rs, which checks their sizes when it loads the object. */
#ifndef SEGUE_BENCH_COST_H
#define SEGUE_BENCH_COST_H

#include <linux/types.h>

#define COST_WORDS 24	     /* 8-octet words behind the Ethernet header that can be restored */
#define COST_STAMP (1 << 13) /* the clock is read once in so many runs */

/* Set before the object is loaded. 232 octets. */
struct cost_config {
	__u64 header[COST_WORDS]; /* octets of the frame from offset 14 */
	__u8 ethernet[16];	  /* its first 14 */
	__u32 length;		  /* octets of the frame */
	__u32 words;		  /* words of `header` in use */
	__u32 verdict;		  /* what the baseline returns */
	__u32 metadata;		  /* not 0: the program leaves metadata in front of the frame, to be removed */
	__u32 connections;	  /* not 0: a power of two, so many connections in turn, ... */
	__u32 port;		  /* ... by the port in the first half of this word's first half */
};

struct cost_clock {
	__u64 runs;
	__u64 last;   /* nanoseconds, CLOCK_MONOTONIC, after the latest multiple of COST_STAMP runs */
	__u64 least;  /* the shortest time that COST_STAMP runs took: the one least disturbed */
	__u64 failed; /* runs whose frame could not be restored */
};

#endif
