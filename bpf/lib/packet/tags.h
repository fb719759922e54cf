/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Priority tags: those of VLAN 0, which the kernel takes for untagged. */
#ifndef SEGUE_PACKET_TAGS_H
#define SEGUE_PACKET_TAGS_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"

INLINE int is_tag(u16 ethertype)
{
	return ethertype == bpf_htons(ETH_P_8021Q) || ethertype == bpf_htons(ETH_P_8021AD);
}

/*
 * Takes off an 802.1Q or 802.1ad tag of VLAN 0, which is only a priority. The kernel takes such frames as untagged
 * ones, so they must not go up to it unread. 1: taken off.
 */
RARE int priority_tag_remove(buffer *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	u16 *half = data;
	u32 *word = data;

	if (data + ETHERNET_LENGTH + 4 > end)
		return 0;
	if (!is_tag(half[6]))
		return 0;
	if (half[7] & bpf_htons(0x0fff))
		return 0;
	word[3] = word[2];
	word[2] = word[1];
	word[1] = word[0];
	return !buffer_adjust_head(ctx, 4);
}

#define PRIORITY_TAGS_MAX 8

/*
 * Takes off the tags of an IPv6 packet that is behind nothing but priority tags, which the kernel takes for untagged.
 * 1: done; 0: it is no such frame, and is as it was; -1: more of them than Segue looks at.
 */
RARE int priority_tags_remove(buffer *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	const u16 *half = data + 12;
	int count = 0;

	for (int i = 0; i <= PRIORITY_TAGS_MAX; i++) {
		if ((void *)(half + 1) > end)
			return 0;
		if (!is_tag(*half))
			break;
		if ((void *)(half + 2) > end || half[1] & bpf_htons(0x0fff))
			return 0;
		half += 2;
		count++;
	}
	if (count > PRIORITY_TAGS_MAX)
		return -1;
	if (!count || *half != bpf_htons(ETH_P_IPV6))
		return 0;
	for (int i = 0; i < PRIORITY_TAGS_MAX; i++) {
		if (i < count && !priority_tag_remove(ctx))
			return -1;
	}
	return 1;
}

#endif
