/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where congestion marks go when labels come off (RFC 5129 sections 4.5 and 4.6): to the entry that is first then, or
 * into the packet. Done before the labels come off, so that none of what takes them off has to know.
 */
#ifndef SEGUE_LABELS_CARRY_H
#define SEGUE_LABELS_CARRY_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"
#include "lib/labels/entry.h"
#include "lib/labels/walk.h"
#include "lib/labels/ecn.h"

enum mark_goes {
	MARK_NOWHERE,  /* the label itself refuses the packet */
	MARK_STAYS,    /* in the label's own entry, or those in its place */
	MARK_BEHIND,   /* to the next entry, or where there is none into the packet */
	MARK_FUNCTION, /* into the packet, wherever the stack ends; its rest has no marks */
	MARK_REFUSED,  /* what is behind cannot be told */
};

INLINE u32 mark_goes(const struct segue_sid *sid, u32 bottom)
{
	switch (sid->behaviour) {
	case SEGUE_LABEL_SWAP:
	case SEGUE_LABEL_BINDING:
		return MARK_STAYS;
	case SEGUE_LABEL_UDP:
		return sid->out_label == LABEL_IMPLICIT_NULL && !bottom ? MARK_BEHIND : MARK_STAYS;
	case SEGUE_LABEL_POP:
	case SEGUE_LABEL_FIREWALL:
		return MARK_BEHIND;
	case SEGUE_LABEL_NODE:
	case SEGUE_LABEL_TABLE:
	case SEGUE_LABEL_NEXT_HOP:
		return bottom ? MARK_BEHIND : MARK_NOWHERE;
	case SEGUE_LABEL_STATIC:
	case SEGUE_LABEL_DYNAMIC:
	case SEGUE_LABEL_INSTANCES:
	case SEGUE_LABEL_AWARE:
		return MARK_FUNCTION;
	case SEGUE_LABEL_PSEUDOWIRE:
		return MARK_REFUSED;
	}
	return MARK_NOWHERE;
}

/*
 * A function gets the mark in the packet, and gives it back there. The rest of its stack, which is remembered for
 * packets that are not marked too, or compared with what was sent before, has none meanwhile.
 */
INLINE u32 mark_to_function(const struct packet *packet, u32 at)
{
	u32 inside = labels_inside(packet->ctx, at), outcome;

	if (!inside)
		return 0;
	outcome = inside_mark(packet->ctx, inside & OFFSET_MASK);
	if (!outcome)
		labels_settle(packet->ctx, packet->generation, at, 0, LABELS_ALL);
	return outcome;
}

/* Carries a mark of the labels that are about to come off, or be swapped, on. The outcome of a refusal, or 0. */
INLINE u32 mark_carry(const struct packet *packet, const struct segue_sid *sid, struct label_found *found)
{
	u32 at = ETHERNET_LENGTH + found->off, bottom = found->word & ENTRY_BOTTOM, upto, outcome, goes, pair = 0;

	goes = mark_goes(sid, bottom);
	/* Whatever its first four bits are, a frame is no packet. */
	if (goes == MARK_FUNCTION && unlikely(packet->port->config_flags & SEGUE_CONFIG_PSEUDOWIRES) &&
	    labels_frame_behind(packet->ctx, packet->epoch, at))
		goes = MARK_BEHIND;
	upto = at + ENTRY_LENGTH;
	/* Behind a firewall's label it comes off once the packet has passed. */
	if (sid->behaviour == SEGUE_LABEL_FIREWALL && !bottom)
		pair = entropy_at(buffer_start(packet->ctx) + (upto & OFFSET_MASK), buffer_end(packet->ctx));
	upto += pair & ~ENTRY_BOTTOM;
	bottom |= pair & ENTRY_BOTTOM;
	if (goes == MARK_FUNCTION || goes == MARK_REFUSED)
		upto = LABELS_ALL;
	if (goes == MARK_NOWHERE || !labels_marked(packet->ctx, packet->generation, upto))
		return 0;
	switch (goes) {
	case MARK_STAYS:
		outcome = labels_settle(packet->ctx, packet->generation, at, 1, ENTRY_LENGTH);
		found->word = (found->word & ~ENTRY_CLASS) | class_settled(packet->generation, found->word, 1);
		return outcome;
	case MARK_BEHIND:
		return label_mark_behind(packet, upto, bottom);
	case MARK_FUNCTION:
		found->word = (found->word & ~ENTRY_CLASS) | class_settled(packet->generation, found->word, 0);
		return mark_to_function(packet, at);
	}
	return SEGUE_OUTCOME_drop_ecn_not_capable;
}

#endif
