/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet with labels in by a core port (RFC 3031, RFC 8660). */
#ifndef SEGUE_LABELS_PORT_H
#define SEGUE_LABELS_PORT_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/packet.h"
#include "lib/packet/frame.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/forward/adjacency.h"
#include "lib/labels/entry.h"
#include "lib/labels/walk.h"
#include "lib/labels/paths.h"
#include "lib/labels/leave.h"
#include "lib/labels/deliver.h"
#include "lib/labels/function.h"
#include "lib/labels/ecn.h"
#include "lib/labels/carry.h"

/* The label that goes on in place of the one that was found: explicit null is told by what is behind the stack. */
INLINE u32 label_out(const struct packet *packet, const struct segue_sid *sid, const struct label_found *found)
{
	u32 inside;

	if (!(sid->flags & SEGUE_SID_EXPLICIT_NULL))
		return sid->out_label;
	if (!(found->word & ENTRY_BOTTOM)) /* RFC 4182: either will do */
		return LABEL_IPV4_EXPLICIT_NULL;
	inside = labels_inside(packet->ctx, ETHERNET_LENGTH + found->off);
	return inside >> 16 == 6 ? LABEL_IPV6_EXPLICIT_NULL : LABEL_IPV4_EXPLICIT_NULL;
}

/* CONTINUE: another label in its place. */
INLINE int label_swap(const struct packet *packet, const struct segue_sid *sid, const struct label_found *found)
{
	const struct adjacency *adjacency = label_adjacency(packet, sid, ADJACENCY_INSIDE);
	u32 out = label_out(packet, sid, found), refused;
	void *data, *end;

	if (unlikely(!adjacency))
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	refused = labels_obstacle(packet, adjacency, packet->length - found->off);
	if (unlikely(refused))
		return labels_refuse(packet, refused, adjacency->fits + found->off);
	if (unlikely(found->off) && labels_off(packet->ctx, found->off, bpf_htons(ETH_P_MPLS_UC)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (data + ETHERNET_LENGTH + ENTRY_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	entry_store(data + ETHERNET_LENGTH, out << 12 | (found->word & ENTRY_CLASS_AND_BOTTOM) | (found->ttl - 1));
	count(packet, sid->counter);
	return labels_leave(packet, adjacency);
}

/* The label comes off, and more are behind it. */
INLINE int label_pop(const struct packet *packet, const struct segue_sid *sid, const struct label_found *found)
{
	const struct adjacency *adjacency = label_adjacency(packet, sid, ADJACENCY_INSIDE);
	u32 off = found->off + ENTRY_LENGTH, refused;
	void *data, *end;

	if (unlikely(!adjacency))
		return drop(packet, SEGUE_OUTCOME_drop_no_route);
	refused = labels_obstacle(packet, adjacency, packet->length - off);
	if (unlikely(refused))
		return labels_refuse(packet, refused, adjacency->fits + off);
	if (labels_off(packet->ctx, off, bpf_htons(ETH_P_MPLS_UC)))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (data + ETHERNET_LENGTH + ENTRY_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_label_bottom);
	if (packet->port->config_flags & SEGUE_CONFIG_TTL_UNIFORM)
		((u8 *)data)[ETHERNET_LENGTH + 3] = found->ttl - 1;
	count(packet, sid->counter);
	return labels_leave(packet, adjacency);
}

/* What a label says that no other behind it is asked for. `ecn`: labels have congestion marks. */
INLINE int label_obey(struct packet *packet, const struct segue_sid *sid, struct label_found *found, int ecn)
{
	int bottom = (found->word & ENTRY_BOTTOM) != 0;
	u32 outcome;

	entropy_off(packet->ctx, found, sid->behaviour);
	if (unlikely((sid->behaviour == SEGUE_LABEL_SWAP || sid->behaviour == SEGUE_LABEL_POP) && sid->table)) {
		sid = label_path(packet, ENTRY_LABEL(found->word), sid->table);
		if (unlikely(!sid))
			return drop(packet, SEGUE_OUTCOME_drop_label_unknown);
	}
	if (ecn) {
		outcome = mark_carry(packet, sid, found);
		if (unlikely(outcome))
			return drop(packet, outcome & (SEGUE_OUTCOMES_MAX - 1));
	}
	switch (sid->behaviour) {
	case SEGUE_LABEL_SWAP:
	case SEGUE_LABEL_POP:
		/* RFC 3032 section 2.4.2: also where the TTL is not written, as on the last hop but one. */
		if (unlikely(found->ttl <= 1))
			return labels_refuse(packet, SEGUE_OUTCOME_drop_label_ttl, 0);
		if (sid->behaviour == SEGUE_LABEL_SWAP)
			return label_swap(packet, sid, found);
		return bottom ? label_deliver(packet, sid, found) : label_pop(packet, sid, found);
	case SEGUE_LABEL_STATIC:
	case SEGUE_LABEL_DYNAMIC:
	case SEGUE_LABEL_FIREWALL:
		return label_function(packet, sid, found);
	case SEGUE_LABEL_NODE:
	case SEGUE_LABEL_TABLE:
	case SEGUE_LABEL_NEXT_HOP:
		return likely(found->word & ENTRY_BOTTOM) ? label_deliver(packet, sid, found)
							  : drop(packet, SEGUE_OUTCOME_drop_label_bottom);
	case SEGUE_LABEL_INSTANCES:
		stage(packet, SEGUE_STAGE_LABELS_INSTANCE);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	case SEGUE_LABEL_AWARE:
		stage(packet, SEGUE_STAGE_LABELS_AWARE);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	case SEGUE_LABEL_BINDING:
		stage(packet, SEGUE_STAGE_LABELS_BINDING);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	case SEGUE_LABEL_PSEUDOWIRE:
		stage(packet, SEGUE_STAGE_LABELS_WIRE);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	case SEGUE_LABEL_UDP:
		stage(packet, SEGUE_STAGE_LABELS_UDP);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	}
	return drop(packet, SEGUE_OUTCOME_drop_behaviour);
}

/* A frame with labels. Its Ethernet header is as it came. `ecn`: labels have congestion marks. */
INLINE int labels_take(struct packet *packet, int ecn)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	struct label_found found = {};
	const struct segue_sid *sid;
	u32 outcome;

	found.frame = frame_length(packet->ctx);
	packet->length = found.frame - ETHERNET_LENGTH;
	if (data + ETHERNET_LENGTH > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	/* Each node of the segment has it; to another one it is not for us to look at. */
	if (unlikely(frame_to_group(data)))
		return drop(packet, SEGUE_OUTCOME_drop_group_frame);
	if (unlikely(frame_foreign(packet, data)))
		return pass(packet, SEGUE_OUTCOME_passed_not_for_segue);
	if (unlikely(labels_of_segments(packet->ctx)))
		return drop(packet, SEGUE_OUTCOME_drop_offload);
	if (unlikely(found.frame != buffer_octets(packet->ctx, data, end) &&
		     !buffer_redirects(packet->port->config_flags)))
		return drop(packet, SEGUE_OUTCOME_drop_multi_buffer);
	outcome = labels_walk(packet->ctx, packet->epoch, packet->port->config_flags, &found);
	if (unlikely(outcome == SEGUE_OUTCOME_drop_label_ttl))
		return labels_refuse(packet, outcome, 0);
	if (unlikely(outcome))
		return drop(packet, outcome & (SEGUE_OUTCOMES_MAX - 1));
	sid = bpf_map_lookup_elem(&sid_entries, &found.index);
	if (unlikely(!sid))
		return drop(packet, SEGUE_OUTCOME_drop_label_unknown);
	return label_obey(packet, sid, &found, ecn);
}

/* The stage: where labels have congestion marks, another one, which is loaded only then, does the same and more. */
INLINE int labels_port(struct packet *packet)
{
	if (labels_have_ecn(packet)) {
		stage(packet, SEGUE_STAGE_LABELS_ECN);
		return drop(packet, SEGUE_OUTCOME_drop_recirculation);
	}
	return labels_take(packet, 0);
}

/* A firewall has let it pass, whose label is the first again. */
INLINE int labels_passed(struct packet *packet)
{
	struct label_found found = {.frame = frame_length(packet->ctx)};
	const struct segue_sid *sid;
	int action;

	sid = labels_resume(packet, &found, &action);
	if (unlikely(!sid))
		return action;
	entropy_off(packet->ctx, &found, SEGUE_LABEL_TABLE);
	return label_onward(packet, sid, &found);
}

#endif
