/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Single packets of a buffer that has been cut come back: see lib/packet/cut.h. */
#ifndef SEGUE_KERNEL_CUT_H
#define SEGUE_KERNEL_CUT_H

#include "lib/base/types.h"
#include "lib/base/maps.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"
#include "lib/packet/stage.h"
#include "lib/packet/tags.h"
#include "lib/kernel/function.h"
#include "lib/packet/cut.h"

/* The mark or the hash that carried `word` is nobody's. */
INLINE void cut_word_off(buffer *skb, int reference)
{
	if (reference)
		skb->mark = 0;
	else
		bpf_set_hash_invalid(skb);
}

INLINE int cut_back(buffer *skb)
{
	int reference = cut_has_reference(skb);
	u32 mark = skb->mark, word = skb->hash, number;
	struct packet packet;

	/* Else clang makes one load of both, by a pointer that the verifier does not take. */
	opaque(mark);
	opaque(word);
	word = cut_word(reference ? mark : word);
	number = word >> CUT_STAGE;
	skb->cb[1] = word & ((1 << CUT_STAGE) - 1);
	if (packet_begin(skb, &packet, SEGUE_STAGE_ACCESS, epoch_now()))
		return drop_unknown_port(skb);
	epoch_in_domain(&packet);
	cut_word_off(skb, reference);
	if (reference)
		return number == SEGUE_STAGE_LABELS_OUT ? function_labels(&packet)
							: drop(&packet, SEGUE_OUTCOME_drop_recirculation);
	switch (number) {
	case SEGUE_STAGE_ACCESS:
		stage(&packet, SEGUE_STAGE_ACCESS);
		break;
	case SEGUE_STAGE_SERVICE:
		stage(&packet, SEGUE_STAGE_SERVICE);
		break;
	case SEGUE_STAGE_AGAIN:
		stage(&packet, SEGUE_STAGE_AGAIN);
		break;
	case SEGUE_STAGE_LABELS_BACK:
		stage(&packet, SEGUE_STAGE_LABELS_BACK);
		break;
	}
	return drop(&packet, SEGUE_OUTCOME_drop_recirculation);
}

#endif
