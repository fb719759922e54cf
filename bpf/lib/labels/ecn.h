/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Congestion marks in TC (RFC 5129). The operator sets values of TC aside in pairs: one for packets that are not
 * marked, and one for those that are. What is here is asked only where SEGUE_CONFIG_LABEL_ECN says that there are some.
 */
#ifndef SEGUE_LABELS_ECN_H
#define SEGUE_LABELS_ECN_H

#include "lib/base/types.h"
#include "lib/base/config.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/inner.h"
#include "lib/labels/entry.h"

/* All entries of a stack, from some offset or up to it. */
#define LABELS_ALL OFFSET_MASK

INLINE int labels_have_ecn(const struct packet *packet)
{
	return unlikely(packet->port->config_flags & SEGUE_CONFIG_LABEL_ECN);
}

/* The value of TC that goes with `class`, marked (1) or not (0), of `classes`. Both as in an entry in host byte order.
 */
INLINE u32 class_of(u32 classes, u32 class, u32 marked)
{
	u32 known = classes >> (class >> 9 & 7) * 4;

	return (known >> 3 & 1) == marked ? class & ENTRY_CLASS : (known & 7) << 9;
}

INLINE u32 label_classes(u32 generation)
{
	const struct segue_config *config_ = config_get(generation);

	return config_ ? config_->label_classes : SEGUE_LABEL_CLASSES_NONE;
}

RARE u32 class_settled(u32 generation, u32 class, u32 marked)
{
	return class_of(label_classes(generation), class, marked & 1);
}

INLINE int class_is_mark(const struct packet *packet, u32 class)
{
	return class_settled(packet->generation, class, 0) != (class & ENTRY_CLASS);
}

/* TC of labels for a packet of this traffic class, in packet order: marked if it has met congestion (section 4.1). */
INLINE u32 class_fill(const struct packet *packet, u32 traffic_class)
{
	if (likely(!labels_have_ecn(packet)))
		return class_in_entry(traffic_class);
	return bpf_htonl(
		class_settled(packet->generation, (traffic_class >> 5 & 7) << 9, (traffic_class & 3) == ECN_CE));
}

/* 1: one of the stack's entries in front of the offset `upto` is marked. */
RARE u32 labels_marked(buffer *ctx, u32 generation, u32 upto)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 at = ETHERNET_LENGTH + unknown_zero(buffer_interface(ctx)), classes = label_classes(generation), marked = 0;

	for (int i = 0; i <= 2 * SEGUE_LABELS_MAX; i++) {
		const u8 *octet;
		u32 word;

		at &= OFFSET_MASK;
		octet = data + at;
		if (at >= upto || (void *)(octet + ENTRY_LENGTH) > end)
			break;
		word = entry_load(octet);
		marked |= classes >> (word >> 9 & 7) * 4;
		if (word & ENTRY_BOTTOM)
			break;
		at += ENTRY_LENGTH;
	}
	return marked >> 3 & 1;
}

/*
 * The stack's entries from the offset `at` on are marked or not, no more of them than are in `octets`. The outcome if
 * the first cannot have a mark, or 0.
 */
RARE u32 labels_settle(buffer *ctx, u32 generation, u32 at, u32 marked, u32 octets)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 classes = label_classes(generation), outcome = 0;

	marked &= 1;
	at += unknown_zero(buffer_interface(ctx));
	for (u32 i = 0; i <= 2 * SEGUE_LABELS_MAX; i++) {
		u8 *octet;
		u32 word, class;

		at &= OFFSET_MASK;
		octet = data + at;
		if (i * ENTRY_LENGTH >= octets || (void *)(octet + ENTRY_LENGTH) > end)
			break;
		word = entry_load(octet);
		class = class_of(classes, word, marked);
		if (!i && marked && class == class_of(classes, class, 0))
			outcome = SEGUE_OUTCOME_drop_ecn_not_capable;
		entry_store(octet, (word & ~ENTRY_CLASS) | class);
		if (word & ENTRY_BOTTOM)
			break;
		at += ENTRY_LENGTH;
	}
	return outcome;
}

/*
 * The packet at the offset `at` is told of congestion (section 4.6): the outcome if it cannot be told, or 0. What is no
 * packet is for the label's end to refuse.
 */
RARE u32 inside_mark(buffer *ctx, u32 at)
{
	void *data = buffer_start(ctx);
	u8 *octet = data + (at & OFFSET_MASK);
	u32 ecn;

	if ((void *)(octet + sizeof(struct iphdr)) > buffer_end(ctx))
		return 0;
	if (octet[0] >> 4 == 6) {
		ecn = octet[1] >> 4 & 3;
		if (ecn)
			ipv6_set_ecn(octet, ECN_CE);
	} else if (octet[0] >> 4 == 4) {
		ecn = octet[1] & 3;
		if (ecn)
			ipv4_set_ecn(octet, ECN_CE);
	} else {
		return 0;
	}
	return ecn ? 0 : SEGUE_OUTCOME_drop_ecn_not_capable;
}

/* A label comes off that is marked: the mark goes to what is behind it, at the offset `at`. The outcome, or 0. */
INLINE u32 label_mark_behind(const struct packet *packet, u32 at, u32 bottom)
{
	return bottom ? inside_mark(packet->ctx, at)
		      : labels_settle(packet->ctx, packet->generation, at, 1, ENTRY_LENGTH);
}

/* A packet that has met congestion has got labels in front of it: all are marked that can be. */
INLINE void labels_mark(const struct packet *packet, u32 ecn)
{
	if (labels_have_ecn(packet) && ecn == ECN_CE)
		labels_settle(packet->ctx, packet->generation, ETHERNET_LENGTH, 1, LABELS_ALL);
}

#endif
