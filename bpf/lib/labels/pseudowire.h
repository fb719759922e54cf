/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Pseudowires: Ethernet frames behind labels, in raw mode, with or without a control word (RFC 4448). What is behind
 * the label of one is a frame because the label says so: nothing of it is looked at.
 */
#ifndef SEGUE_LABELS_PSEUDOWIRE_H
#define SEGUE_LABELS_PSEUDOWIRE_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/packet.h"
#include "lib/packet/frame.h"
#include "lib/packet/stage.h"
#include "lib/packet/outcome.h"
#include "lib/core/decapsulation.h"
#include "lib/access/encapsulation.h"
#include "lib/labels/leave.h"
#include "lib/labels/walk.h"
#include "lib/labels/room.h"
#include "lib/labels/push.h"
#include "lib/packet/cut.h"

#define CONTROL_WORD_LENGTH 4

/* The first four bits of what is behind the label (RFC 4385 sections 3 and 5). */
#define CONTROL_WORD_OF_DATA 0
#define CONTROL_WORD_OF_CHANNEL 1

/*
 * The labels of the list go in front of the frame, and with them a control word: all of it is 0, since frames are not
 * numbered, and the bits that other pseudowires have lengths in are reserved (RFC 4448 section 4.6). Ends the frame.
 * `adjacency` NULL: the first label is the node's own.
 */
INLINE int frame_on(const struct packet *packet, const struct segue_segment_list *list,
		    const struct adjacency *adjacency, u32 flow)
{
	u32 stack = list->header_length & 0xfc;
	u32 word = list->pseudowire == SEGUE_PSEUDOWIRE_CONTROL_WORD ? CONTROL_WORD_LENGTH : 0;
	void *data, *end;
	u32 *control;

	if (labels_wrap(packet->ctx, stack + word))
		return drop(packet, buffer_refusal(packet->ctx, SEGUE_OUTCOME_drop_no_headroom));
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (labels_write(data + ETHERNET_LENGTH, end, list, labels_fill(packet, list, 0, list->ttl), flow))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	if (word) {
		control = data + ETHERNET_LENGTH + stack;
		if ((void *)(control + 1) > end)
			return drop(packet, SEGUE_OUTCOME_drop_adjust);
		*control = 0;
	}
	count(packet, list->counter);
	return likely(adjacency) ? labels_leave(packet, adjacency) : labels_here(packet);
}

/* A frame of an access port into a pseudowire. Of the order its list and its flow are filled. */
INLINE int labels_frame(struct packet *packet, const struct push_order *order)
{
	struct payload payload = {.protocol = PROTOCOL_ETHERNET};
	const struct segue_segment_list *list;
	const struct adjacency *adjacency = NULL;
	u32 index = order->list, flow = order->flow;
	int action;

	packet->length = buffer_frame_length(packet->ctx);
	list = bpf_map_lookup_elem(&segment_lists, &index);
	if (unlikely(!list || list->mode != SEGUE_PUSH || !list->pseudowire))
		return drop(packet, SEGUE_OUTCOME_drop_policy_invalid);
	if (unlikely(packet_cut(packet, SEGUE_STAGE_ACCESS, &action)))
		return action;
	if (unlikely(frame_length(packet->ctx) !=
			     buffer_octets(packet->ctx, buffer_start(packet->ctx), buffer_end(packet->ctx)) &&
		     !buffer_redirects(packet->port->config_flags)))
		return drop(packet, SEGUE_OUTCOME_drop_multi_buffer);
	payload.length = packet->length + (list->pseudowire == SEGUE_PSEUDOWIRE_CONTROL_WORD ? CONTROL_WORD_LENGTH : 0);
	if (likely(!(list->flags & SEGUE_LIST_LOCAL))) {
		adjacency = push_way(packet, list, order, &payload, &action);
		if (unlikely(!adjacency))
			return action;
	}
	return frame_on(packet, list, adjacency, flow);
}

/* What is in front of the frame behind a pseudowire's label, at `offset`, with a control word: the outcome, or 0. */
INLINE u32 control_word_refusal(const struct packet *packet, u32 offset, u32 frame)
{
	const u8 *octet = buffer_start(packet->ctx) + (offset & OFFSET_MASK);

	if (offset + CONTROL_WORD_LENGTH > frame || (void *)(octet + CONTROL_WORD_LENGTH) > buffer_end(packet->ctx))
		return SEGUE_OUTCOME_drop_truncated;
	switch (octet[0] >> 4) {
	case CONTROL_WORD_OF_DATA:
		return 0;
	case CONTROL_WORD_OF_CHANNEL:
		return SEGUE_OUTCOME_drop_associated_channel;
	}
	return SEGUE_OUTCOME_drop_control_word;
}

/* A packet to the label of a pseudowire; nothing of it has been changed. */
INLINE int labels_wire(struct packet *packet)
{
	struct label_found found = {.frame = frame_length(packet->ctx)};
	struct outer outer = {};
	const struct segue_sid *sid;
	u32 outcome;
	int action;

	sid = labels_resume(packet, &found, &action);
	if (unlikely(!sid))
		return action;
	if (unlikely(sid->behaviour != SEGUE_LABEL_PSEUDOWIRE))
		return drop(packet, SEGUE_OUTCOME_drop_label_unknown);
	entropy_off(packet->ctx, &found, SEGUE_LABEL_TABLE);
	if (unlikely(!(found.word & ENTRY_BOTTOM)))
		return drop(packet, SEGUE_OUTCOME_drop_label_bottom);
	outer.offset = ETHERNET_LENGTH + found.off + ENTRY_LENGTH;
	outer.limit = found.frame;
	if (sid->flags & SEGUE_SID_CONTROL_WORD) {
		outcome = control_word_refusal(packet, outer.offset, found.frame);
		if (unlikely(outcome))
			return drop(packet, outcome);
		outer.offset += CONTROL_WORD_LENGTH;
	}
	outcome = frame_obstacle(packet, sid, &outer);
	if (unlikely(outcome))
		return drop(packet, outcome);
	if (labels_unwrap(packet->ctx, outer.offset & OFFSET_MASK))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	count(packet, sid->counter);
	return transmit(packet, sid->oif | oif_by_kernel(sid->oif), SEGUE_OUTCOME_forwarded);
}

#endif
