/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types and words of the data plane's C. */
#ifndef SEGUE_BASE_TYPES_H
#define SEGUE_BASE_TYPES_H

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "abi/segue.h"
#include "abi/outcome.h"

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;

#define INLINE static __always_inline
/*
 * Not inlined: keeps rare work out of the fast path's instruction stream. Not static either: the verifier checks a
 * global function once, whatever its callers know, and that of 6.1 needs it to stay below its limit. For the same
 * reason its pointers may be NULL in the verifier's eyes, and it returns a number.
 */
#define RARE __attribute__((noinline))

#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif

/* Keeps the compiler from reasoning about a value, so that the bound which the verifier needs stays in the code. */
#define opaque(x) asm volatile("" : "+r"(x))

/*
 * 0, which the verifier does not know: what is added to it is any number, so that what comes behind is followed once,
 * and not again for each number that it knows. `any`: some number that it does not know either.
 */
INLINE u32 unknown_zero(u32 any)
{
	u32 zero = any;

	opaque(zero);
	asm volatile("%0 ^= %1" : "+r"(zero) : "r"(any));
	return zero;
}

#endif
