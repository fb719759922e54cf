/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Socket buffers that are not what a link carries: several segments in one, or a checksum that is still to be made. A
 * device may do that behind an IP header; behind labels hardly one does, behind an Ethernet header in IPv6 none, and
 * where a link ends in XDP nobody does. So before these go on the buffer goes out of a link of this namespace that
 * leaves nothing to its far end: the kernel's own way out (validate_xmit_skb) makes single packets of it, with their
 * checksums. They come in at the link's far end, where segue_cut (lib/kernel/cut.h) gives them to the stage that the
 * buffer was in, as packets of the port that it came in by.
 *
 * Nothing is counted on the way. Nothing of the packet has been changed that would be changed again.
 */
#ifndef SEGUE_PACKET_CUT_H
#define SEGUE_PACKET_CUT_H

#include "lib/base/types.h"
#include "lib/base/maps.h"
#include "lib/base/config.h"
#include "lib/packet/packet.h"
#include "lib/packet/outcome.h"

#ifdef SEGUE_SKB

/* What a buffer carries through the link: the port, less than 1 << CUT_STAGE, and the stage that goes on with it. */
#define CUT_STAGE 24

/* Nobody else can make such a word. */
INLINE u32 cut_word(u32 word)
{
	return word ^ (u32)control.metadata_magic;
}

INLINE int cut_has_reference(const buffer *skb)
{
	return (skb->tc_index & SEGUE_TC_INDEX_MASK) == SEGUE_TC_INDEX;
}

/*
 * Is the checksum of a packet left to a device? The kernel, asked to correct one, leaves those alone that are still to
 * be made: here it is asked about two octets that are no checksum, and get their value back. Whatever the packet is, a
 * tunnel's inner one too.
 */
INLINE int skb_checksum_left(buffer *skb)
{
	u16 *half = buffer_start(skb), before;

	if ((void *)(half + 1) > buffer_end(skb))
		return 0;
	before = *half;
	if (bpf_l4_csum_replace(skb, 0, 0, 1, sizeof(*half)))
		return 0;
	half = buffer_start(skb);
	if ((void *)(half + 1) > buffer_end(skb))
		return 0;
	if (*half == before)
		return 1;
	*half = before;
	return 0;
}

#define CUT_NOT 0
#define CUT_SENT (-1)

/* CUT_NOT: it is a single, complete packet. CUT_SENT: on its way to become such ones. Else the outcome. */
RARE int cut_send(buffer *skb, u32 generation, u32 stage)
{
	const struct segue_config *config;
	u32 word;

	if (!segment_size(skb) && !skb_checksum_left(skb))
		return CUT_NOT;
	/* It has been there, and the link has left something to its far end. */
	if (skb_elsewhere(skb))
		return SEGUE_OUTCOME_drop_offload;
	config = config_get(generation);
	if (!config || !config->cut)
		return segment_size(skb) ? SEGUE_OUTCOME_drop_offload : CUT_NOT;
	word = cut_word(skb->ifindex | stage << CUT_STAGE);
	/* The hash is a reference already where tc_index says so. */
	if (cut_has_reference(skb))
		skb->mark = word;
	else
		bpf_set_hash(skb, word);
	bpf_redirect(config->cut, 0);
	return CUT_SENT;
}

/* 1: the buffer goes on no further here, and ends with `action`. `stage`: which goes on with its packets. */
INLINE int packet_cut(const struct packet *packet, u32 stage, int *action)
{
	int sent = cut_send(packet->ctx, packet->generation, stage);

	if (likely(sent == CUT_NOT))
		return 0;
	*action = sent == CUT_SENT ? TC_ACT_REDIRECT : drop(packet, sent & (SEGUE_OUTCOMES_MAX - 1));
	return 1;
}

#else

/* Frames are what a link carries. */
INLINE int packet_cut(const struct packet *packet, u32 stage, int *action)
{
	(void)packet;
	(void)stage;
	(void)action;
	return 0;
}

#endif

#endif
