/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The data plane's programs, the same for each kind of buffer: `segue_port`, on every port, and the stages behind tail
 * calls. Wiring only: what happens to a packet is in lib/. Who includes it has said with PROGRAM(name) what a program
 * is there: its section, and the type of `ctx`.
 */
#ifndef SEGUE_STAGES_H
#define SEGUE_STAGES_H

#include "lib/base/types.h"
#include "lib/base/config.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/packet/tags.h"
#include "lib/packet/fast.h"
#include "lib/core/port.h"
#include "lib/access/port.h"
#include "lib/access/fast.h"
#include "lib/service/port.h"
#include "lib/proxy/take_off.h"
#include "lib/proxy/instances.h"
#include "lib/firewall/filter.h"
#include "lib/firewall/reset.h"
#include "lib/icmp/answer.h"
#include "lib/icmp/relay.h"
#include "lib/labels/port.h"
#include "lib/labels/push.h"
#include "lib/labels/back.h"
#include "lib/labels/binding.h"
#include "lib/labels/instances.h"
#include "lib/labels/aware.h"
#include "lib/labels/firewall.h"
#include "lib/labels/pseudowire.h"
#include "lib/labels/udp_out.h"
#include "lib/labels/udp_in.h"

PROGRAM(segue_port)
{
	struct packet packet;
	int action = VERDICT_DROP;
	u32 odd;

#ifdef SEGUE_SKB
	if (unlikely(counted_before(ctx)))
		return VERDICT_PASS;
#endif
	if (unlikely(packet_begin(ctx, &packet, STAGE_PORT, epoch_now())))
		return drop_unknown_port(ctx);
	epoch_in_domain(&packet);
	if (unlikely(packet.port->flags & SEGUE_PORT_CAPTURE))
		capture(ctx, buffer_interface(ctx), 0, 0);
	odd = buffer_arrives(&packet);
	if (unlikely(odd))
		return pass_odd(&packet, odd);
	if (unlikely(packet.port->firewall)) {
		stage(&packet, SEGUE_STAGE_FILTER);
		return drop(&packet, SEGUE_OUTCOME_drop_recirculation);
	}
	if (likely(packet.port->role == SEGUE_ROLE_CORE))
		return core_port(&packet);
	if (likely(access_here && packet.port->role == SEGUE_ROLE_ACCESS))
		return likely(access_fast(&packet, &action)) ? action : access_port(&packet);
	if (likely(functions_here)) {
		action = service_fast(&packet);
		if (likely(action != NOT_FAST))
			return action;
	}
	stage(&packet, SEGUE_STAGE_SERVICE);
	return drop(&packet, SEGUE_OUTCOME_drop_recirculation);
}

/*
 * The packet now goes to a segment that is local: as if it had come in by a core port. Or it has, and is none that
 * segue_port takes: hand_on().
 */
PROGRAM(segue_again)
{
	struct packet packet;
	u32 unasked = unasked_carried();

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_AGAIN, epoch_carried())))
		return drop_unknown_port(ctx);
	packet.unasked = unasked;
	return core_port(&packet);
}

/* A packet to a function by a proxy that does more than the simplest do; nothing of it has been changed. */
PROGRAM(segue_proxy)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_PROXY, epoch_carried())))
		return drop_unknown_port(ctx);
	return core_port(&packet);
}

/* A packet whose own header leads to a function through the kernel; nothing of it has been changed. */
PROGRAM(segue_inserted)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_INSERTED, epoch_carried())))
		return drop_unknown_port(ctx);
	return proxy_inserted(&packet);
}

/* A packet to the SID of several instances; nothing of it has been changed. */
PROGRAM(segue_instance)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_INSTANCE, epoch_carried())))
		return drop_unknown_port(ctx);
	return instances_stage(&packet);
}

/* A packet from outside, once its priority tag is off. */
PROGRAM(segue_access)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_ACCESS, epoch_carried())))
		return drop_unknown_port(ctx);
	if (unlikely(!access_here))
		return drop(&packet, SEGUE_OUTCOME_drop_recirculation);
	return access_port(&packet);
}

PROGRAM(segue_service)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_SERVICE, epoch_carried())))
		return drop_unknown_port(ctx);
	return service_port(&packet);
}

PROGRAM(segue_relay)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_RELAY, epoch_carried())))
		return drop_unknown_port(ctx);
	return relay(&packet);
}

PROGRAM(segue_icmp)
{
	struct scratch *scratch = scratch_get();
	const struct segue_config *config_;
	struct packet packet;

	if (unlikely(!scratch || packet_begin(ctx, &packet, SEGUE_STAGE_ICMP, epoch_carried())))
		return VERDICT_DROP;
	config_ = config_get(packet.generation);
	if (unlikely(!config_))
		return VERDICT_DROP;
	return icmp_stage(&packet, scratch, config_);
}

/* A packet to a SID whose function is this node's firewall. */
PROGRAM(segue_firewall)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_FIREWALL, epoch_carried())))
		return drop_unknown_port(ctx);
	return core_port(&packet);
}

/* A packet from a port with a firewall; nothing else has seen it. */
PROGRAM(segue_filter)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_FILTER, epoch_carried())))
		return drop_unknown_port(ctx);
	return firewall_port(&packet);
}

/* The same once its firewall has let it pass. */
PROGRAM(segue_filtered)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_FILTERED, epoch_carried())))
		return drop_unknown_port(ctx);
	if (likely(packet.port->role == SEGUE_ROLE_CORE))
		return core_port(&packet);
	if (likely(packet.port->role == SEGUE_ROLE_ACCESS))
		stage(&packet, SEGUE_STAGE_ACCESS);
	stage(&packet, SEGUE_STAGE_SERVICE);
	return drop(&packet, SEGUE_OUTCOME_drop_recirculation);
}

/* REJECT --reject-with tcp-reset: the packet is counted, and becomes its answer. */
PROGRAM(segue_reset)
{
	const struct segue_config *config_;
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_RESET, epoch_carried())))
		return VERDICT_DROP;
	config_ = config_get(packet.generation);
	if (unlikely(!config_))
		return VERDICT_DROP;
	return reset_stage(&packet, config_);
}

/* A packet with labels that a core port has received. */
PROGRAM(segue_labels)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_LABELS, epoch_carried())))
		return drop_unknown_port(ctx);
	return labels_port(&packet);
}

/* The same, where labels have congestion marks. */
PROGRAM(segue_labels_ecn)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_LABELS_ECN, epoch_carried())))
		return drop_unknown_port(ctx);
	return labels_take(&packet, 1);
}

/* A packet from outside that is to go by labels; its way is found, and nothing of it has been changed. */
PROGRAM(segue_labels_push)
{
	struct scratch *scratch = scratch_get();
	struct packet packet;

	if (unlikely(!scratch || packet_begin(ctx, &packet, SEGUE_STAGE_LABELS_PUSH, epoch_carried())))
		return drop_unknown_port(ctx);
	return labels_push(&packet, &scratch->push);
}

/* A packet with labels whose first other one is a binding label; nothing of it has been changed. */
PROGRAM(segue_labels_binding)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_LABELS_BINDING, epoch_carried())))
		return drop_unknown_port(ctx);
	return labels_binding(&packet);
}

/* A packet with labels whose first other one has several instances of a function; nothing of it has been changed. */
PROGRAM(segue_labels_instance)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_LABELS_INSTANCE, epoch_carried())))
		return drop_unknown_port(ctx);
	return labels_instance(&packet);
}

/* A packet with labels to a function that sees the stack; nothing of it has been changed. */
PROGRAM(segue_labels_aware)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_LABELS_AWARE, epoch_carried())))
		return drop_unknown_port(ctx);
	return labels_aware(&packet);
}

/* A packet back from such a function; nothing of it has been changed. */
PROGRAM(segue_labels_aware_back)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_LABELS_AWARE_BACK, epoch_carried())))
		return drop_unknown_port(ctx);
	return labels_aware_back(&packet);
}

/* A frame of an access port that is to go by labels; nothing of it has been changed. */
PROGRAM(segue_labels_frame)
{
	struct scratch *scratch = scratch_get();
	struct packet packet;

	if (unlikely(!scratch || packet_begin(ctx, &packet, SEGUE_STAGE_LABELS_FRAME, epoch_carried())))
		return drop_unknown_port(ctx);
	return labels_frame(&packet, &scratch->push);
}

/* A packet with labels whose first other one is that of a pseudowire; nothing of it has been changed. */
PROGRAM(segue_labels_wire)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_LABELS_WIRE, epoch_carried())))
		return drop_unknown_port(ctx);
	return labels_wire(&packet);
}

/* A packet back from a function behind a label. */
PROGRAM(segue_labels_back)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_LABELS_BACK, epoch_carried())))
		return drop_unknown_port(ctx);
	return labels_back(&packet);
}

/* A packet with labels, of which the first has a firewall; `scratch->label` says where the packet behind them lies. */
PROGRAM(segue_labels_firewall)
{
	struct scratch *scratch = scratch_get();
	struct packet packet;

	if (unlikely(!scratch || packet_begin(ctx, &packet, SEGUE_STAGE_LABELS_FIREWALL, epoch_carried())))
		return drop_unknown_port(ctx);
	return labels_firewall(&packet, &scratch->label);
}

/* The same once the firewall has let it pass. */
PROGRAM(segue_labels_passed)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_LABELS_PASSED, epoch_carried())))
		return drop_unknown_port(ctx);
	return labels_passed(&packet);
}

/* A packet with labels that goes on in UDP; nothing of it has been changed. */
PROGRAM(segue_labels_udp)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_LABELS_UDP, epoch_carried())))
		return drop_unknown_port(ctx);
	return labels_udp(&packet);
}

/* A packet that is to get labels and go on in UDP; nothing of it has been changed. */
PROGRAM(segue_labels_udp_push)
{
	struct scratch *scratch = scratch_get();
	struct packet packet;

	if (unlikely(!scratch || packet_begin(ctx, &packet, SEGUE_STAGE_LABELS_UDP_PUSH, epoch_carried())))
		return drop_unknown_port(ctx);
	return labels_udp_push(&packet, &scratch->push);
}

/* A frame that a core port has received, with UDP over IPv6 or with any IPv4 packet. */
PROGRAM(segue_labels_udp_in)
{
	struct packet packet;

	if (unlikely(packet_begin(ctx, &packet, SEGUE_STAGE_LABELS_UDP_IN, epoch_carried())))
		return drop_unknown_port(ctx);
	return labels_udp_in(&packet);
}

#endif
