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
#include "lib/forget.h"
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

/*
 * A jumbogram (RFC 2675) for this domain, whatever its option says: no link of Segue's carries one. To a SID its option
 * is one that is not known; on its way through, it is the kernel's. As core_trim() says it.
 */
INLINE u32 jumbogram(struct xdp_md *ctx, int to_sid)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	u32 offset = ETHERNET_LENGTH + IPV6_LENGTH;
	const u8 *octet = data + offset;

	if (!to_sid)
		return SEGUE_OUTCOME_passed_route;
	if ((void *)(octet + 2) > end)
		return SEGUE_OUTCOME_drop_bad_length;
	return option_refused(ctx, offset, (octet[1] + 1) * 8) ?: SEGUE_OUTCOME_drop_bad_length;
}

/*
 * The packet in an IPv6 frame that it does not fill: an outcome that ends it, or what option_refused() says; or 0, and
 * what lies behind a packet for this domain is off. What goes to the kernel goes as it came. `config_flags`: of the
 * port.
 */
RARE u32 core_trim(struct xdp_md *ctx, u64 epoch, u32 config_flags)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	u32 frame = end - data, limit;
	struct address destination;
	int to_sid;

	if ((void *)(ip + 1) > end)
		return SEGUE_OUTCOME_drop_truncated;
	if (*(const u8 *)ip >> 4 != 6)
		return SEGUE_OUTCOME_drop_bad_version;
	limit = ETHERNET_LENGTH + IPV6_LENGTH + bpf_ntohs(ip->payload_len);
	if (limit > frame) {
		frame = frame_length(ctx);
		if (limit > frame)
			return SEGUE_OUTCOME_drop_bad_length;
		if (!(config_flags & SEGUE_CONFIG_REDIRECT_MULTI_BUFFER))
			return SEGUE_OUTCOME_passed_multi_buffer;
	}
	if (limit == frame)
		return 0;
	destination = address_load(&ip->daddr);
	to_sid = sid_find_at(epoch, &destination) != NULL;
	if (!to_sid && !in_sid_block(epoch, destination))
		return 0;
	if (maybe_jumbogram(ip))
		return jumbogram(ctx, to_sid);
	return frame_trim(ctx, frame, limit) ? SEGUE_OUTCOME_drop_adjust : 0;
}

/* Ends a packet that core_trim() does not let go on. */
INLINE int core_trimmed(struct packet *packet, u32 outcome)
{
	void *data = (void *)(long)packet->ctx->data;
	void *end = (void *)(long)packet->ctx->data_end;
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;

	if ((void *)(ip + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	packet->length = IPV6_LENGTH + bpf_ntohs(ip->payload_len);
	if (outcome >> 16)
		return refuse_option(packet, outcome);
	return outcome < SEGUE_OUTCOME_DROPPED ? pass(packet, outcome) : drop(packet, outcome);
}

/*
 * IPv6 on a core port: to a SID of this node, on through the domain, or for the kernel. The frame ends where the packet
 * does, unless it is for the kernel.
 */
INLINE int core_ipv6(struct packet *packet, void *data, void *end, int again)
{
	struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	struct address source, destination;
	const struct segue_sid *sid = NULL;
	u32 limit;
	int action;

	if (unlikely((void *)(ip + 1) > end))
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	destination = address_load(&ip->daddr);
	if (!again) {
		sid = sid_find(packet->epoch, destination);
		if (sid && sid->behaviour > SEGUE_END_T && likely(endpoint_usual(packet, sid, data, end, &action)))
			return action;
	}
	if (unlikely(*(const u8 *)ip >> 4 != 6))
		return drop(packet, SEGUE_OUTCOME_drop_bad_version);
	packet->length = IPV6_LENGTH + bpf_ntohs(ip->payload_len);
	limit = ETHERNET_LENGTH + packet->length;
	if (again) /* here, where the verifier of 6.1 keeps in mind what it is */
		sid = sid_find(packet->epoch, destination);
	if (packet->in_proxy)
		return sid ? endpoint(packet, sid, data, end, ip, limit, limit)
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
	return endpoint(packet, sid, data, end, ip, limit, limit);
}

#define PRIORITY_TAGS_MAX 8

/*
 * Takes off the tags of an IPv6 packet that is behind nothing but priority tags, which the kernel takes for untagged.
 * 1: done; 0: it is no such frame, and is as it was; -1: more of them than Segue looks at.
 */
RARE int priority_tags_remove(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	const u16 *half = data + 12;
	int count = 0;

	for (int i = 0; i <= PRIORITY_TAGS_MAX; i++) {
		if ((void *)(half + 1) > end)
			return 0;
		if (!is_tag(*half))
			break;
		if ((void *)(half + 2) > end || half[1] & bpf_htons(0x0fff))
			return 0;
		half += 2;
		count++;
	}
	if (count > PRIORITY_TAGS_MAX)
		return -1;
	if (!count || *half != bpf_htons(ETH_P_IPV6))
		return 0;
	for (int i = 0; i < PRIORITY_TAGS_MAX; i++) {
		if (i < count && !priority_tag_remove(ctx))
			return -1;
	}
	return 1;
}

/*
 * A frame that is no IPv6 packet for this port: an outcome that ends it; or 0, it is one behind priority tags, which
 * are off now. The kernel knows what to do with what is for somebody else, unless it has a segment in it. `mac`: the
 * port's own address, as frame_foreign() compares it.
 */
RARE u32 core_odd(struct xdp_md *ctx, u64 epoch, u64 mac)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	const struct ipv6hdr *ip;
	int tags = 0, foreign;
	u16 ethertype;

	if (data + ETHERNET_LENGTH > end)
		return SEGUE_OUTCOME_drop_truncated;
	foreign = (*(const u64 *)data ^ mac) << 16 != 0;
	ethertype = *(const u16 *)(data + 12);
	if (foreign && !frame_to_group(data))
		return ethertype == bpf_htons(ETH_P_IPV6) ? SEGUE_OUTCOME_passed_other_host
							  : SEGUE_OUTCOME_passed_not_for_segue;
	if (ethertype != bpf_htons(ETH_P_IPV6)) {
		tags = priority_tags_remove(ctx);
		if (tags <= 0)
			return tags ? SEGUE_OUTCOME_drop_recirculation : SEGUE_OUTCOME_passed_not_for_segue;
		data = (void *)(long)ctx->data;
		end = (void *)(long)ctx->data_end;
	}
	if (!foreign)
		return 0;
	ip = data + ETHERNET_LENGTH;
	if ((void *)(ip + 1) > end)
		return SEGUE_OUTCOME_drop_truncated;
	/* The kernel would take it in, as each node of the segment does. */
	if (in_sid_block(epoch, address_load(&ip->daddr)) || sid_find(epoch, address_load(&ip->daddr)))
		return SEGUE_OUTCOME_drop_group_frame;
	return SEGUE_OUTCOME_passed_not_for_segue;
}

/* Ends a packet whose length is not known yet. */
INLINE int pass_odd(struct packet *packet, u32 outcome)
{
	packet->length = frame_length(packet->ctx) - ETHERNET_LENGTH;
	return outcome < SEGUE_OUTCOME_DROPPED ? pass(packet, outcome) : drop(packet, outcome);
}

/* A frame for this port with an IPv6 packet that fills it, all in the first buffer. */
INLINE int core_usual(const struct packet *packet, const void *data, const void *end, int again)
{
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;

	return (const void *)(ip + 1) <= end &&
	       ip->payload_len == bpf_htons(end - data - ETHERNET_LENGTH - IPV6_LENGTH) &&
	       *(const u16 *)(data + 12) == bpf_htons(ETH_P_IPV6) && (again || !frame_foreign(packet, data));
}

INLINE int core_port(struct packet *packet, int again)
{
	void *data = (void *)(long)packet->ctx->data;
	void *end = (void *)(long)packet->ctx->data_end;
	u32 outcome;

	if (unlikely(!core_usual(packet, data, end, again))) {
		if (data + ETHERNET_LENGTH > end)
			return drop(packet, SEGUE_OUTCOME_drop_truncated);
		if (!again)
			outcome = core_odd(packet->ctx, packet->epoch, *(const u64 *)packet->port->mac);
		else if (*(const u16 *)(data + 12) != bpf_htons(ETH_P_IPV6))
			outcome = SEGUE_OUTCOME_passed_not_for_segue;
		else
			outcome = 0;
		if (outcome)
			return pass_odd(packet, outcome);
		outcome = core_trim(packet->ctx, packet->epoch, packet->port->config_flags);
		if (outcome)
			return core_trimmed(packet, outcome);
		data = (void *)(long)packet->ctx->data;
		end = (void *)(long)packet->ctx->data_end;
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
	epoch_in_domain(&packet);
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

/* The same. */
SEC("xdp.frags")
int segue_forget(struct xdp_md *ctx)
{
	return sids_forget(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
