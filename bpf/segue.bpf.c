// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Segue's data plane. One program, `segue_port`, on every port; the rest are stages behind tail calls. Wiring only:
 * what happens to a packet is in lib/.
 */
#include "lib/base.h"
#include "lib/outcome.h"
#include "lib/headers.h"
#include "lib/sid.h"
#include "lib/adjacency.h"
#include "lib/leave.h"
#include "lib/encapsulation.h"
#include "lib/decapsulation.h"
#include "lib/flow.h"
#include "lib/steering.h"
#include "lib/advance.h"
#include "lib/stash.h"
#include "lib/memory.h"
#include "lib/function.h"
#include "lib/proxy.h"
#include "lib/masquerade.h"
#include "lib/aware.h"
#include "lib/firewall.h"
#include "lib/conntrack_move.h"
#include "lib/usual.h"
#include "lib/endpoint.h"
#include "lib/icmp.h"
#include "lib/firewall_reset.h"
#include "lib/relay.h"
#include "lib/transit.h"

/* Finds the port, in the epoch of the packet. 0: go on; 1: not in this generation. */
INLINE int packet_begin(struct xdp_md *ctx, struct packet *packet, u64 epoch)
{
	packet->in_proxy = 0;
	packet->in_firewall = 0;
	packet->icmp_way = 0;
	packet->ctx = ctx;
	packet->epoch = epoch;
	packet->generation = packet->epoch;
	packet->length = 0;
	packet->port = port_find(packet->generation, ctx->ingress_ifindex);
	return !packet->port;
}

/* IPv6 on a core port: to a SID of this node, on through the domain, or for the kernel. */
INLINE int core_ipv6(struct packet *packet, void *data, void *end, int again)
{
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	u32 limit, frame = end - data;
	struct address source, destination;
	const struct segue_sid *sid = NULL;
	u16 ethertype;

	if (unlikely((void *)(ip + 1) > end))
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	destination = address_load(&ip->daddr);
	if (!again) {
		sid = sid_find(packet->epoch, destination);
		if (sid && sid->behaviour == SEGUE_END_AD && sid->memory <= SEGUE_MEMORY_FLOW) {
			ethertype = dynamic_usual_inner(packet, sid, data, end);
			if (likely(ethertype))
				return dynamic_usual_to(packet, sid, ethertype);
		}
	}
	if (unlikely(*(const u8 *)ip >> 4 != 6))
		return drop(packet, SEGUE_OUTCOME_drop_bad_version);
	packet->length = IPV6_LENGTH + bpf_ntohs(ip->payload_len);
	limit = ETHERNET_LENGTH + packet->length;
	if (again)
		sid = sid_find(packet->epoch, destination);
	if (unlikely(limit != frame)) {
		if (limit > frame) {
			frame = frame_length(packet->ctx);
			if (limit > frame)
				return drop(packet, SEGUE_OUTCOME_drop_bad_length);
			if (!(packet->port->config_flags & SEGUE_CONFIG_REDIRECT_MULTI_BUFFER))
				return pass(packet, SEGUE_OUTCOME_passed_multi_buffer);
		}
		/* What goes to the kernel goes as it came. */
		if (limit < frame && (sid || in_sid_block(packet->generation, destination))) {
			if (unlikely(maybe_jumbogram(ip)))
				return jumbogram(packet, sid);
			if (frame_trim(packet->ctx, frame, limit))
				return drop(packet, SEGUE_OUTCOME_drop_adjust);
			frame = limit;
			data = (void *)(long)packet->ctx->data;
			end = (void *)(long)packet->ctx->data_end;
			ip = data + ETHERNET_LENGTH;
			if ((void *)(ip + 1) > end)
				return drop(packet, SEGUE_OUTCOME_drop_truncated);
		}
	}
	if (packet->in_proxy)
		return sid ? endpoint(packet, sid, data, end, ip, limit, frame)
			   : drop(packet, SEGUE_OUTCOME_drop_recirculation);
	if (unlikely(!sid)) {
		if (relay_wanted(packet, ip, end))
			stage(packet, SEGUE_STAGE_RELAY);
		return transit(packet, limit);
	}
	source = address_load(&ip->saddr);
	if (unlikely(!address_forwardable(source) || address_equal(source, destination)))
		return refuse_source(packet, source, destination);
	if (unlikely(packet->port->config_flags & SEGUE_CONFIG_CHECK_SOURCE) && !again) {
		const struct segue_config *config_ = config_get(packet->generation);

		if (!config_ || !in_prefixes(config_->source_prefixes, config_->source_prefixes_count, source))
			return drop(packet, SEGUE_OUTCOME_drop_source_outside_domain);
	}
	return endpoint(packet, sid, data, end, ip, limit, frame);
}

/* A frame for somebody else with an IPv6 packet: the kernel knows what to do with it, unless it has a segment in it. */
RARE u32 core_foreign(struct xdp_md *ctx, u64 epoch)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	struct address destination;

	if (data + ETHERNET_LENGTH > end || !frame_to_group(data))
		return SEGUE_OUTCOME_passed_other_host;
	if ((void *)(ip + 1) > end)
		return SEGUE_OUTCOME_drop_truncated;
	destination = address_load(&ip->daddr);
	/* The kernel would take it in, as each node of the segment does. */
	if (in_sid_block(epoch, destination) || sid_find(epoch, destination))
		return SEGUE_OUTCOME_drop_group_frame;
	return SEGUE_OUTCOME_passed_not_for_segue;
}

INLINE int core_port(struct packet *packet, int again)
{
	u32 outcome;
	void *data = (void *)(long)packet->ctx->data;
	void *end = (void *)(long)packet->ctx->data_end;

	if (unlikely(data + ETHERNET_LENGTH > end))
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	if (unlikely(*(const u16 *)(data + 12) != bpf_htons(ETH_P_IPV6))) {
		packet->length = frame_length(packet->ctx) - ETHERNET_LENGTH;
		return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
	}
	if (!again && unlikely(frame_foreign(packet, data))) {
		packet->length = frame_length(packet->ctx) - ETHERNET_LENGTH;
		outcome = core_foreign(packet->ctx, packet->epoch);
		return outcome < SEGUE_OUTCOME_DROPPED ? pass(packet, outcome) : drop(packet, outcome);
	}
	return core_ipv6(packet, data, end, again);
}

/* Back from a function. */
INLINE int service_port(struct packet *packet)
{
	u32 index = packet->port->proxy;
	const struct segue_sid *sid = index == SEGUE_NONE ? NULL : bpf_map_lookup_elem(&sid_entries, &index);

	if (sid && sid->memory == SEGUE_MEMORY_PACKET) {
		/* The packet's reference is in its skb: segue_function_out takes it. */
		packet->length = frame_length(packet->ctx) - ETHERNET_LENGTH;
		return XDP_PASS;
	}
	if (sid && sid->behaviour == SEGUE_END_AM)
		return masquerade_from_function(packet, sid);
	if (sid && sid->behaviour == SEGUE_END_AN)
		return aware_from_function(packet, sid);
	return proxy_from_function(packet, sid);
}

SEC("xdp.frags")
int segue_port(struct xdp_md *ctx)
{
	struct packet packet;
	int action;

	if (unlikely(packet_begin(ctx, &packet, epoch_now())))
		return drop_unknown_port(ctx);
	if (unlikely(packet.port->flags & SEGUE_PORT_CAPTURE))
		capture(ctx, ctx->ingress_ifindex, 0, 0);
	if (unlikely(packet.port->firewall)) {
		stage(&packet, SEGUE_STAGE_FILTER);
		return drop(&packet, SEGUE_OUTCOME_drop_recirculation);
	}
	if (likely(packet.port->role == SEGUE_ROLE_CORE))
		return core_port(&packet, 0);
	if (likely(packet.port->role == SEGUE_ROLE_ACCESS))
		return access_port(&packet);
	action = service_usual(&packet);
	if (likely(action != NOT_USUAL))
		return action;
	stage(&packet, SEGUE_STAGE_SERVICE);
	return drop(&packet, SEGUE_OUTCOME_drop_recirculation);
}

/* The packet now goes to a segment that is local: as if it had come in by a core port. */
SEC("xdp.frags")
int segue_again(struct xdp_md *ctx)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, epoch_carried())))
		return drop_unknown_port(ctx);
	return core_port(&packet, 1);
}

/* A packet to a function by a proxy that does more than the simplest do; nothing of it has been changed. */
SEC("xdp.frags")
int segue_proxy(struct xdp_md *ctx)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, epoch_carried())))
		return drop_unknown_port(ctx);
	packet.in_proxy = 1;
	return core_port(&packet, 1);
}

/* A packet whose own header leads to a function through the kernel; nothing of it has been changed. */
SEC("xdp.frags")
int segue_inserted(struct xdp_md *ctx)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, epoch_carried())))
		return drop_unknown_port(ctx);
	return proxy_inserted(&packet);
}

/* A packet from outside, once its priority tag is off. */
SEC("xdp.frags")
int segue_access(struct xdp_md *ctx)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, epoch_carried())))
		return drop_unknown_port(ctx);
	return access_port(&packet);
}

SEC("xdp.frags")
int segue_service(struct xdp_md *ctx)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, epoch_carried())))
		return drop_unknown_port(ctx);
	return service_port(&packet);
}

SEC("xdp.frags")
int segue_relay(struct xdp_md *ctx)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, epoch_carried())))
		return drop_unknown_port(ctx);
	return relay(&packet);
}

SEC("xdp.frags")
int segue_icmp(struct xdp_md *ctx)
{
	struct scratch *scratch = scratch_get();
	const struct segue_config *config_;
	struct packet packet;

	if (unlikely(!scratch || packet_begin(ctx, &packet, epoch_carried())))
		return XDP_DROP;
	config_ = config_get(packet.generation);
	if (unlikely(!config_))
		return XDP_DROP;
	return icmp_stage(&packet, scratch, config_);
}

/* A packet to a SID whose function is this node's firewall. */
SEC("xdp.frags")
int segue_firewall(struct xdp_md *ctx)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, epoch_carried())))
		return drop_unknown_port(ctx);
	packet.in_proxy = 1;
	packet.in_firewall = 1;
	return core_port(&packet, 1);
}

/* A packet from a port with a firewall; nothing else has seen it. */
SEC("xdp.frags")
int segue_filter(struct xdp_md *ctx)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, epoch_carried())))
		return drop_unknown_port(ctx);
	return firewall_port(&packet);
}

/* The same once its firewall has let it pass. */
SEC("xdp.frags")
int segue_filtered(struct xdp_md *ctx)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, epoch_carried())))
		return drop_unknown_port(ctx);
	if (likely(packet.port->role == SEGUE_ROLE_CORE))
		return core_port(&packet, 0);
	if (likely(packet.port->role == SEGUE_ROLE_ACCESS))
		stage(&packet, SEGUE_STAGE_ACCESS);
	stage(&packet, SEGUE_STAGE_SERVICE);
	return drop(&packet, SEGUE_OUTCOME_drop_recirculation);
}

/* REJECT --reject-with tcp-reset: the packet is counted, and becomes its answer. */
SEC("xdp.frags")
int segue_reset(struct xdp_md *ctx)
{
	const struct segue_config *config_;
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, epoch_carried())))
		return XDP_DROP;
	config_ = config_get(packet.generation);
	if (unlikely(!config_))
		return XDP_DROP;
	return reset_stage(&packet, config_);
}

/* Not for packets: the agent runs it. */
SEC("xdp.frags")
int segue_move(struct xdp_md *ctx)
{
	return connections_move(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
