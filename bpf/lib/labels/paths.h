/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Equal paths of a label: each packet takes one, and all of a flow the same. A flow is told by the entropy label that
 * it came with (RFC 6790 section 4.3); else by the packet behind the stack, as at a headend.
 */
#ifndef SEGUE_LABELS_PATHS_H
#define SEGUE_LABELS_PATHS_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/flow.h"
#include "lib/proxy/memory.h"
#include "lib/labels/entry.h"

/* What is behind a stack is the flow's, if it is an IP packet that can be read: its hash, or `otherwise`. */
INLINE u32 inside_flow(buffer *ctx, u32 at, u32 otherwise)
{
	struct flow_scratch *of = flow_scratch_get();
	const void *data = buffer_start(ctx), *end = buffer_end(ctx);
	const u8 *octet = data + (at & OFFSET_MASK);
	u32 family;

	if (!of || (const void *)(octet + 1) > end)
		return otherwise;
	family = *octet >> 4;
	of->flow.outcome = 0;
	if (family == 6)
		flow_read_ipv6(ctx, at & OFFSET_MASK, &of->flow);
	else if (family == 4)
		flow_read_ipv4(ctx, at & OFFSET_MASK, &of->flow);
	else
		return otherwise;
	return of->flow.outcome ? otherwise : of->flow.hash;
}

/* The hash of a labelled packet's flow; where the stack's end cannot be found, or no IP packet is behind it, of the
 * labels. */
RARE u32 labels_flow(buffer *ctx)
{
	const void *data = buffer_start(ctx), *end = buffer_end(ctx);
	u32 at = ETHERNET_LENGTH + unknown_zero(buffer_interface(ctx)), word = 0, entropy = 0;
	u64 mixed = 0;

	for (int i = 0; i <= 2 * SEGUE_LABELS_MAX && !(word & ENTRY_BOTTOM); i++) {
		const u8 *octet;

		at &= OFFSET_MASK;
		octet = data + at;
		if ((const void *)(octet + ENTRY_LENGTH) > end)
			break;
		at += ENTRY_LENGTH;
		word = entry_load(octet);
		if (entropy)
			return (ENTRY_LABEL(word) * FLOW_MIX) >> 32;
		entropy = ENTRY_LABEL(word) == LABEL_ENTROPY_INDICATOR;
		mixed = (mixed ^ ENTRY_LABEL(word)) * FLOW_MIX;
	}
	mixed >>= 32;
	return word & ENTRY_BOTTOM ? inside_flow(ctx, at, mixed) : mixed;
}

/*
 * The path of a packet with a label that has several. The port by which it came is mixed in: else each node would
 * divide what the one before has divided in the same way, and use one of its own paths only.
 */
INLINE const struct segue_sid *label_path(const struct packet *packet, u32 label, u32 paths)
{
	u32 port = *(const u32 *)&packet->port->mac[2];
	u64 mixed = (labels_flow(packet->ctx) ^ (u64)port << 16) * FLOW_MIX;

	return label_path_find(packet->epoch, label, (mixed >> 32) * paths >> 32);
}

#endif
