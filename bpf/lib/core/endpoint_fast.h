/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which SIDs have a fast path. */
#ifndef SEGUE_CORE_ENDPOINT_FAST_H
#define SEGUE_CORE_ENDPOINT_FAST_H

#include "lib/base/types.h"
#include "lib/base/config.h"
#include "lib/packet/packet.h"
#include "lib/forward/adjacency.h"
#include "lib/core/decapsulation_fast.h"
#include "lib/proxy/fast.h"
#include "lib/proxy/masquerade_fast.h"

/* A packet to a SID that is not End, End.X or End.T. 1: it was one for the fast path, and is done with `action`. */
INLINE int endpoint_fast(struct packet *packet, const struct segue_sid *sid, void *data, void *end, int *action)
{
	const struct adjacency *adjacency;
	u16 ethertype;
	u64 id = 0;

	switch (sid->behaviour) {
	case SEGUE_END_DX4:
	case SEGUE_END_DX6:
	case SEGUE_END_DT4:
	case SEGUE_END_DT6:
	case SEGUE_END_DT46:
		adjacency = decapsulate_fast(packet, sid, data, end);
		if (unlikely(!adjacency))
			return 0;
		*action = decapsulate_fast_to(packet, sid, adjacency);
		return 1;
	case SEGUE_END_AD:
	case SEGUE_END_AN_NF:
		if (unlikely(!functions_here))
			return 0;
		ethertype = dynamic_fast_inner(packet, sid, data, end, &id);
		if (unlikely(!ethertype))
			return 0;
		*action = dynamic_fast_to(packet, sid, ethertype, id);
		return 1;
	case SEGUE_END_AM:
		if (unlikely(!functions_here))
			return 0;
		if (unlikely(!masquerade_fast_inner(packet, sid, data, end)))
			return 0;
		*action = masquerade_fast_to(packet, sid, data, end);
		return 1;
	}
	return 0;
}

#endif
