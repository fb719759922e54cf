/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A steering header: it leads a packet along its segments; proxies take it off, remember it as it goes back on, and put
 * it on again. What they need of it, whatever its kind:
 *
 *  - recognise: where it ends, and what is inside: struct outer. Filled by the kind's endpoint, which also fills struct
 *    advance (lib/header/advance.h).
 *  - header_same(): would that of this packet, advanced, go back on as the remembered one does?
 *  - header_prepare(): its content as it goes back on. To take it off is then to cut as much in front (expose()).
 *  - header_fresh(), header_copy(), header_finish(): put it on. The content is immutable under its reference, so the
 *    reference is compared after all of it was read, which is between the last two.
 *  - header_adjacency(): the way of a packet that has it on.
 *
 * A kind is a file beside this one and a line in each function here; docs/developing/adding-a-steering-header.md. Which
 * one it is is a constant wherever these are called: SIDs and labels have memories of their own, so that a reference of
 * a scope names headers of one kind.
 */
#ifndef SEGUE_HEADER_HEADER_H
#define SEGUE_HEADER_HEADER_H

#include "lib/base/types.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/forward/adjacency.h"
#include "lib/header/labels.h"
#include "lib/header/srv6.h"
#include "lib/proxy/stash.h"
#include "lib/access/encapsulation.h"

/* Of a header that the functions below put on. Labels go back on in a stage of their own (lib/labels/back.h). */
INLINE u32 header_kind(const struct segue_stash *entry)
{
	(void)entry;
	return SEGUE_HEADER_SRV6;
}

INLINE int header_same(u32 kind, const struct segue_stash *entry, void *data, void *end,
		       const struct memory_order *order)
{
	switch (kind) {
	case SEGUE_HEADER_SRV6:
		return srv6_same(entry, data, end, &order->outer, order->margin);
	case SEGUE_HEADER_MPLS:
		return labels_same(entry, data, end, order->shape, order->margin);
	}
	return 0;
}

/* The draft's content and its hash; 0: it cannot be remembered. `shape`: as the kind has it. */
INLINE u64 header_prepare(u32 kind, buffer *ctx, struct segue_stash *draft, u64 shape, u64 scope)
{
	switch (kind) {
	case SEGUE_HEADER_SRV6:
		return srv6_prepare(ctx, draft, shape, scope);
	case SEGUE_HEADER_MPLS:
		return labels_prepare(ctx, draft, shape, scope);
	}
	return 0;
}

/* What the packet itself has to say in the header's first word. To be asked before the packet is changed. */
INLINE u32 header_fresh(const struct segue_stash *entry, const struct payload *payload)
{
	switch (header_kind(entry)) {
	case SEGUE_HEADER_SRV6:
		return srv6_word(entry, payload);
	}
	return 0;
}

/* Copies it to `to`, in front of the packet. 0: done. */
INLINE int header_copy(const struct segue_stash *entry, void *to, void *end)
{
	switch (header_kind(entry)) {
	case SEGUE_HEADER_SRV6:
		return srv6_copy(to, end, entry) || to + IPV6_LENGTH + SRH_FIXED_LENGTH > end;
	}
	return -1;
}

INLINE int header_finish(const struct segue_stash *entry, void *to, const void *end, u32 fresh,
			 const struct payload *payload)
{
	switch (header_kind(entry)) {
	case SEGUE_HEADER_SRV6:
		return srv6_finish(entry, to, end, fresh, payload);
	}
	return -1;
}

/* `flow` picks the ECMP bucket. */
INLINE const struct adjacency *header_adjacency(const struct packet *packet, const struct segue_stash *entry, u32 flow)
{
	switch (header_kind(entry)) {
	case SEGUE_HEADER_SRV6:
		return adjacency_find(packet, srv6_towards(entry), 0, ADJACENCY_INSIDE, flow);
	}
	return NULL;
}

#endif
