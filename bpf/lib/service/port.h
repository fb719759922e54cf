/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet in by a service port: back from a function. */
#ifndef SEGUE_SERVICE_PORT_H
#define SEGUE_SERVICE_PORT_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/maps.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/frame.h"
#include "lib/packet/fast.h"
#include "lib/proxy/put_on.h"
#include "lib/proxy/fast.h"
#include "lib/proxy/masquerade.h"
#include "lib/proxy/masquerade_fast.h"
#include "lib/proxy/aware.h"
#include "lib/labels/function_fast.h"

/* Back from a function. */
INLINE int service_port(struct packet *packet)
{
	u32 index = packet->port->proxy;
	const struct segue_sid *sid = index == SEGUE_NONE ? NULL : bpf_map_lookup_elem(&sid_entries, &index);

	if (sid && sid->memory == SEGUE_MEMORY_PACKET) {
		/* The packet's reference is in its skb: segue_function_out takes it. */
		packet->length = frame_length(packet->ctx) - ETHERNET_LENGTH;
		return VERDICT_PASS;
	}
	if (sid && sid->behaviour == SEGUE_END_AM)
		return masquerade_from_function(packet, sid);
	if (sid && sid->behaviour == SEGUE_END_AN)
		return aware_from_function(packet, sid);
	if (sid && sid->kind == SEGUE_HEADER_MPLS) {
		stage(packet, SEGUE_STAGE_LABELS_BACK);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	}
	return proxy_from_function(packet, sid);
}

/* The fast path back from a function, or NOT_FAST. */
INLINE int service_fast(struct packet *packet)
{
	u32 index = packet->port->proxy;
	const struct segue_sid *sid = bpf_map_lookup_elem(&sid_entries, &index);

	if (unlikely(!sid))
		return NOT_FAST;
	if (sid->behaviour == SEGUE_END_AD && sid->memory <= SEGUE_MEMORY_FLOW)
		return dynamic_fast(packet, sid);
	if (sid->behaviour == SEGUE_END_AM)
		return masquerade_fast(packet, sid);
	if (sid->behaviour == SEGUE_END_AS)
		return static_fast(packet, sid);
	/* Else by way of service_port(). */
	if (sid->kind == SEGUE_HEADER_MPLS && sid->memory != SEGUE_MEMORY_PACKET) {
#ifndef SEGUE_SKB
		int action = label_fast_back(packet, sid);

		if (likely(action != NOT_FAST))
			return action;
#endif
		stage(packet, SEGUE_STAGE_LABELS_BACK);
	}
	return NOT_FAST;
}

#endif
