// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Segue's data plane on XDP. One program, `segue_port`, on every port that has this hook; the rest are stages behind
 * tail calls, and what the agent runs. Wiring only: what happens to a packet is in lib/.
 */
#include "lib/base/types.h"

#define PROGRAM(name)                                                                                                  \
	SEC("xdp.frags")                                                                                               \
	int name(struct xdp_md *ctx)

#include "stages.h"
#include "lib/forward/ask.h"
#include "lib/forward/sid_forget.h"
#include "lib/conntrack/move.h"

/* Not for packets: the agent runs it. */
SEC("xdp.frags")
int segue_move(struct xdp_md *ctx)
{
	return connections_move(ctx);
}

/* The same. */
SEC("xdp.frags")
int segue_forget(struct xdp_md *ctx)
{
	return sids_forget(ctx);
}

/* The same. */
SEC("xdp.frags")
int segue_ask(struct xdp_md *ctx)
{
	return fib_ask(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
