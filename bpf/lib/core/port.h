/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet in by a core port: to a SID of this node, on through the domain, or for the kernel. */
#ifndef SEGUE_CORE_PORT_H
#define SEGUE_CORE_PORT_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/config.h"
#include "lib/base/behaviour.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/forward/sid.h"
#include "lib/core/endpoint.h"
#include "lib/core/endpoint_fast.h"
#include "lib/core/transit.h"
#include "lib/core/frame.h"
#include "lib/icmp/relay.h"
#include "lib/labels/fast.h"

/*
 * IPv6 on a core port: to a SID of this node, on through the domain, or for the kernel. The frame ends where the packet
 * does, unless it is for the kernel.
 */
INLINE int core_ipv6(struct packet *packet, void *data, void *end)
{
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	struct address source, destination;
	const struct segue_sid *sid = NULL;
	int again = packet_recirculated(packet);
	u32 limit;
	int action;

	if (unlikely((void *)(ip + 1) > end))
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	destination = address_load(&ip->daddr);
	if (!again) {
		sid = sid_find(packet->epoch, destination);
		if (sid && !behaviour_only_advances(sid->behaviour) &&
		    likely(endpoint_fast(packet, sid, data, end, &action)))
			return action;
	}
	if (unlikely(*(const u8 *)ip >> 4 != 6))
		return drop(packet, SEGUE_OUTCOME_drop_bad_version);
	packet->length = packet_ipv6_octets(packet->ctx, ip);
	limit = ETHERNET_LENGTH + packet->length;
	if (again) /* here, where the verifier of 6.1 keeps in mind what it is */
		sid = sid_find(packet->epoch, destination);
	if (packet_handed_on(packet))
		return sid ? endpoint(packet, sid, data, end, ip, limit)
			   : drop(packet, SEGUE_OUTCOME_drop_recirculation);
	if (unlikely(!sid)) {
		if (unlikely(packet->port->config_flags & SEGUE_CONFIG_UDP_IPV6 && ip->nexthdr == PROTOCOL_UDP) &&
		    (!again || packet->unasked)) {
			stage(packet, SEGUE_STAGE_LABELS_UDP_IN);
			return drop(packet, SEGUE_OUTCOME_drop_recirculation);
		}
		if (relay_wanted(packet, ip, end))
			stage(packet, SEGUE_STAGE_RELAY);
		return transit(packet, limit);
	}
	source = address_load(&ip->saddr);
	if (unlikely(!address_forwardable(source) || address_equal(source, destination)))
		return refuse_source(packet, source, destination);
	if (unlikely(packet->port->config_flags & SEGUE_CONFIG_CHECK_SOURCE) && (!again || packet->unasked)) {
		const struct segue_config *config_ = config_get(packet->generation);

		if (!config_ || !in_prefixes(config_->source_prefixes, config_->source_prefixes_count, source))
			return drop(packet, SEGUE_OUTCOME_drop_source_outside_domain);
	}
	if (again)
		return endpoint(packet, sid, data, end, ip, limit);
	return endpoint_usual(packet, sid, data, end, ip, limit);
}

INLINE int core_port(struct packet *packet)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	u32 outcome;
	int action = VERDICT_DROP;

	if (unlikely(!core_fast(packet, data, end))) {
		if (data + ETHERNET_LENGTH > end)
			return drop(packet, SEGUE_OUTCOME_drop_truncated);
		if (!packet_recirculated(packet) && packet->port->config_flags & SEGUE_CONFIG_LABELS &&
		    *(const u16 *)(data + 12) == bpf_htons(ETH_P_MPLS_UC)) {
			if (likely(labels_fast(packet, data, end, &action)))
				return action;
			stage(packet, SEGUE_STAGE_LABELS);
			return drop(packet, SEGUE_OUTCOME_drop_recirculation);
		}
		if (!packet_recirculated(packet) && packet->port->config_flags & SEGUE_CONFIG_UDP_IPV4 &&
		    *(const u16 *)(data + 12) == bpf_htons(ETH_P_IP)) {
			stage(packet, SEGUE_STAGE_LABELS_UDP_IN);
			return drop(packet, SEGUE_OUTCOME_drop_recirculation);
		}
		if (!packet_recirculated(packet))
			outcome = core_odd(packet->ctx, packet->epoch, *(const u64 *)packet->port->mac);
		else if (*(const u16 *)(data + 12) != bpf_htons(ETH_P_IPV6))
			outcome = SEGUE_OUTCOME_passed_not_for_segue;
		else
			outcome = 0;
		if (outcome)
			return pass_odd(packet, outcome);
		if (!packet_recirculated(packet)) {
			hand_on(packet, 1);
			return drop(packet, SEGUE_OUTCOME_drop_recirculation);
		}
		outcome = core_trim(packet->ctx, packet->epoch, packet->port->config_flags);
		if (outcome)
			return core_trimmed(packet, outcome);
		data = buffer_start(packet->ctx);
		end = buffer_end(packet->ctx);
	}
	return core_ipv6(packet, data, end);
}

#endif
