/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The node's own firewall behind a label: its rules on the packet that was behind the stack, as on one that has come in
 * by the port. The stack lies in the scratch memory meanwhile (lib/labels/function.h).
 */
#ifndef SEGUE_LABELS_FIREWALL_H
#define SEGUE_LABELS_FIREWALL_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/packet.h"
#include "lib/packet/stage.h"
#include "lib/packet/frame.h"
#include "lib/packet/outcome.h"
#include "lib/firewall/filter.h"
#include "lib/header/labels.h"
#include "lib/labels/room.h"

INLINE int labels_firewall(struct packet *packet, struct scratch *scratch)
{
	struct firewall_work *work = firewall_work_get();
	const struct segue_firewall *firewall;
	u32 index = scratch->label.index, error;
	const struct segue_sid *sid = bpf_map_lookup_elem(&sid_entries, &index);
	void *data, *end;

	packet->length = frame_length(packet->ctx) - ETHERNET_LENGTH;
	if (unlikely(!work || !sid))
		return drop(packet, SEGUE_OUTCOME_drop_behaviour);
	index = sid->firewall;
	firewall = bpf_map_lookup_elem(&firewalls, &index);
	if (unlikely(!firewall))
		return drop(packet, SEGUE_OUTCOME_drop_behaviour);
	if (likely(!(firewall->flags & SEGUE_FIREWALL_OFF))) {
		error = firewall_filter(packet->ctx, work, firewall, index, 0, packet->epoch);
		if (unlikely(error))
			return drop(packet, error);
		if (work->action == SEGUE_ACTION_REJECT)
			return firewall_reject(packet, work);
		/* There is no SRH that SEG6 could work on. */
		if (work->action != SEGUE_ACTION_ACCEPT && work->action != SEGUE_ACTION_SEG6)
			return drop(packet, SEGUE_OUTCOME_drop_firewall);
	}
	scratch = scratch_get();
	if (!scratch || labels_on(packet->ctx, scratch->stash.length & 0xff))
		return drop(packet, SEGUE_OUTCOME_drop_no_headroom);
	data = buffer_start(packet->ctx);
	end = buffer_end(packet->ctx);
	if (labels_copy(data + ETHERNET_LENGTH, end, &scratch->stash, 0, 0))
		return drop(packet, SEGUE_OUTCOME_drop_adjust);
	stage(packet, SEGUE_STAGE_LABELS_PASSED);
	return drop(packet, SEGUE_OUTCOME_drop_recirculation);
}

#endif
