/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet from a function that keeps its steering header on (End.AM, End.AN). */
#ifndef SEGUE_PROXY_KEPT_H
#define SEGUE_PROXY_KEPT_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/config.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"
#include "lib/packet/flow.h"
#include "lib/service/function.h"
#include "lib/proxy/behind.h"

/*
 * A packet from a function that keeps its IPv6 header (End.AM, End.AN): what may not or need not be looked at further.
 * -1: go on; the IPv6 header lies in the frame, and `packet->length` is set.
 */
INLINE int kept_ipv6(struct packet *packet, u32 *sr_seen)
{
	struct flow flow = {};
	int action;

	flow_read(packet, &flow);
	packet->length = flow.length;
	*sr_seen = flow.sr_seen;
	/* The SRH's own limits are checked by those who process it. */
	action = function_admit(packet, &flow);
	if (action >= 0)
		return action;
	if (flow.family != 6)
		return drop(packet, SEGUE_OUTCOME_drop_inner_type);
	if (flow.hop_limit <= 1)
		return time_exceeded(packet, 6, ETHERNET_LENGTH);
	return -1;
}

/* What a function that keeps the SRH made itself, without one: to the kernel, or dropped. */
INLINE int kept_own(const struct packet *packet, const struct segue_sid *sid)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);

	if (data + ETHERNET_LENGTH + IPV6_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	if (in_sid_block(packet->generation, address_load(data + ETHERNET_LENGTH + 24)) ||
	    leads_on(packet->ctx, ETHERNET_LENGTH + packet->length, packet->generation))
		return drop(packet, SEGUE_OUTCOME_drop_from_function);
	if (sid->proxy_flags & SEGUE_PROXY_OWN_DROP)
		return drop(packet, SEGUE_OUTCOME_drop_from_function);
	return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
}

#endif
