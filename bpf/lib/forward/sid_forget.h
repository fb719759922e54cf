/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SIDs whose entries changed in place are forgotten, and no others: of each cached copy only the word goes by which it
 * is found, so that a packet which is at it goes on with what it has. User space cannot do that, because it writes
 * whole entries of a map, be it another SID's that has come there meanwhile.
 */
#ifndef SEGUE_FORWARD_SID_FORGET_H
#define SEGUE_FORWARD_SID_FORGET_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/forward/sid.h"

/* Entries are named behind an Ethernet header; that one of them has been made anew meanwhile costs a lookup. */
INLINE int sids_forget(buffer *ctx)
{
	struct segue_forgotten *forgotten = buffer_start(ctx) + ETHERNET_LENGTH;
	void *end = buffer_end(ctx);

#pragma clang loop unroll(disable)
	for (u32 i = 0; i < SEGUE_FORGOTTEN_MAX; i++, forgotten++) {
		struct segue_sid_cached *entry;
		u32 index;

		if ((void *)(forgotten + 1) > end)
			break;
		index = forgotten->entry;
		entry = bpf_map_lookup_percpu_elem(&sids_cached, &index, forgotten->cpu);
		if (entry)
			*(volatile u64 *)&entry->epoch = 0;
	}
	return VERDICT_DROP;
}

#endif
