/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What makes a packet's next segment its active one. Found once, before anything of the packet is changed, and used by
 * all that go on from there: End and its kin, End.B6, proxies, the firewall's SEG6. Filled from an SRH here; what
 * advances a packet otherwise (a destination that is shifted, a label that is popped) is another way to fill it, and
 * another kind to write.
 */
#ifndef SEGUE_HEADER_ADVANCE_H
#define SEGUE_HEADER_ADVANCE_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"

enum advance_kind {
	ADVANCE_NOT = 0, /* there is nothing to advance */
	ADVANCE_SRH = 1, /* the next segment of an SRH becomes the destination */
};

struct advance {
	struct address next; /* the destination afterwards */
	u32 kind;	     /* enum advance_kind */
	u32 header;	     /* offset of the header with the segments */
	u32 previous;	     /* offset of the Next Header octet that names it */
	u32 left;	     /* segments left afterwards: 0, `next` is the last one */
};

/* Segment `index` of the SRH at the offset `header`, whether or not it lies in the frame. */
INLINE const void *advance_segment(const void *data, u32 header, u32 index)
{
	return data + header + SRH_FIXED_LENGTH + index * 16;
}

/* To the segment of which `left` follow, 0 to 255, in the SRH at `advance->header`. 0, or why not. */
INLINE u32 advance_to(struct advance *advance, const void *data, const void *end, u32 left)
{
	const void *segment = advance_segment(data, advance->header, left);

	if (unlikely(segment + 16 > end))
		return SEGUE_OUTCOME_drop_multi_buffer_header;
	advance->kind = ADVANCE_SRH;
	advance->left = left;
	advance->next = address_load(segment);
	if (unlikely(!address_forwardable(advance->next)))
		return SEGUE_OUTCOME_drop_bad_next_segment;
	return 0;
}

/* Writes it. `header`: what lies at the offset of that name. Both have been found to lie in the frame. */
INLINE void advance_write(const struct advance *advance, struct ipv6hdr *ip, void *header)
{
	if (advance->kind == ADVANCE_SRH)
		((struct srh *)header)->segments_left = advance->left;
	address_store(&ip->daddr, advance->next);
}

#endif
