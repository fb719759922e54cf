/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A label with several instances of a function. Each of them has an entry of its own, an ordinary proxy's, under the
 * label and the instance's number: the packet goes to the one of its flow (lib/proxy/instance.h), which is that of the
 * packet behind the stack.
 */
#ifndef SEGUE_LABELS_INSTANCES_H
#define SEGUE_LABELS_INSTANCES_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/frame.h"
#include "lib/packet/outcome.h"
#include "lib/packet/flow.h"
#include "lib/proxy/instance.h"
#include "lib/labels/entry.h"
#include "lib/labels/walk.h"
#include "lib/labels/function.h"

/*
 * Reads the flow of the packet behind a stack of which an entry lies at `at` into the scratch memory. TCP's flags; or
 * 1 << 16 and the outcome.
 */
RARE u32 label_instance_flow(buffer *ctx, u32 at)
{
	struct flow_scratch *of = flow_scratch_get();
	struct labels_end stack = {};
	u32 outcome, inside;

	if (!of)
		return 1 << 16 | SEGUE_OUTCOME_drop_truncated;
	outcome = labels_end(ctx, at, &stack);
	if (outcome)
		return 1 << 16 | outcome;
	inside = stack.inside & OFFSET_MASK;
	/* What cannot be read is the instance's business. */
	if (stack.family == 4)
		flow_read_ipv4(ctx, inside, &of->flow);
	else
		flow_read_ipv6(ctx, inside, &of->flow);
	return instance_read_upper(ctx, inside, &of->flow) & 0xff;
}

/* A packet to the label of all instances; nothing of it has been changed. */
INLINE int labels_instance(struct packet *packet)
{
	struct label_found found = {.frame = frame_length(packet->ctx)};
	const struct segue_sid *sid;
	struct address all;
	u32 flags;
	int action;
	u64 instance;

	sid = labels_resume(packet, &found, &action);
	if (unlikely(!sid))
		return action;
	if (unlikely(sid->behaviour != SEGUE_LABEL_INSTANCES))
		return drop(packet, SEGUE_OUTCOME_drop_label_unknown);
	entropy_off(packet->ctx, &found, SEGUE_LABEL_STATIC);
	/* Frames have no flow here, and no instance takes them: that is the instance's to say. */
	if (label_of_frame(packet, &found))
		flags = flow_scratch_get() ? 0 : 1 << 16 | SEGUE_OUTCOME_drop_truncated;
	else
		flags = label_instance_flow(packet->ctx, ETHERNET_LENGTH + found.off);
	if (unlikely(flags >> 16))
		return drop(packet, flags & (SEGUE_OUTCOMES_MAX - 1));
	all.high = bpf_htons(SEGUE_LABELS_AS_SIDS);
	all.low = bpf_htonl(ENTRY_LABEL(found.word));
	instance = instance_take(packet->epoch, sid, all, flags);
	if (unlikely(!(instance & INSTANCE_UP)))
		return label_failed(packet, sid, &found);
	count(packet, sid->counter);
	sid = label_instance_find(packet->epoch, ENTRY_LABEL(found.word), instance);
	if (unlikely(!sid))
		return drop(packet, SEGUE_OUTCOME_drop_function_down);
	return label_function(packet, sid, &found);
}

#endif
