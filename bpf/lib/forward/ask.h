/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's FIB asked for somebody who is no packet: what a packet's way would be is to be said by the call that
 * decides it (lib/forward/adjacency.h), not by one that resembles it. The agent runs it.
 */
#ifndef SEGUE_FORWARD_ASK_H
#define SEGUE_FORWARD_ASK_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"

/* Behind an Ethernet header. crates/dataplane/src/dataplane/ask.rs knows the layout. */
struct fib_question {
	struct bpf_fib_lookup fib; /* question, then answer */
	u32 flags;
	s32 verdict; /* the answer: enum BPF_FIB_LKUP_RET_*, or an error */
};

INLINE int fib_ask(buffer *ctx)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	struct fib_question *question = data + ETHERNET_LENGTH;
	struct bpf_fib_lookup fib;
	long verdict;

	if ((void *)(question + 1) > end)
		return VERDICT_DROP;
	__builtin_memcpy(&fib, &question->fib, sizeof(fib));
	verdict = bpf_fib_lookup(ctx, &fib, sizeof(fib), question->flags);
	__builtin_memcpy(&question->fib, &fib, sizeof(fib));
	question->verdict = verdict;
	return VERDICT_PASS;
}

#endif
