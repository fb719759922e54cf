/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Priority tags: those of VLAN 0, which the kernel takes for untagged. */
#ifndef SEGUE_PACKET_TAGS_H
#define SEGUE_PACKET_TAGS_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/frame.h"

INLINE int is_tag(u16 ethertype)
{
	return ethertype == bpf_htons(ETH_P_8021Q) || ethertype == bpf_htons(ETH_P_8021AD);
}

#define PRIORITY_TAGS_MAX 8

#ifdef SEGUE_SKB
/*
 * Takes off all tags of VLAN 0, which are only priorities. The kernel takes such frames as untagged ones, however many
 * tags there are, so they must not go up to it unread. The outermost tag is beside the frame, in skb->vlan_tci, but for
 * test runs; taking it off brings the next one there. 0: no tag is left; 1: that of a VLAN is; -1: too many.
 */
RARE int skb_priority_tags_remove(buffer *skb)
{
	for (int i = 0; i <= PRIORITY_TAGS_MAX; i++) {
		const u16 *half = buffer_start(skb);
		u32 tci = skb->vlan_tci;

		if (!skb->vlan_present) {
			if (!is_tag(skb->protocol))
				return 0;
			if ((void *)(half + 8) > buffer_end(skb))
				return 1;
			tci = bpf_ntohs(half[7]);
		}
		if (tci & 0x0fff)
			return 1;
		if (bpf_skb_vlan_pop(skb))
			return -1;
	}
	return -1;
}

/* Does it go on whole, tags and all? Those of an access port, and of a function what is not for the port itself. */
INLINE int frame_is_carried(const struct packet *packet, int foreign)
{
	return packet->port->flags & SEGUE_PORT_L2 && (packet->port->role != SEGUE_ROLE_SERVICE || foreign);
}

/*
 * Makes a buffer that has come in by a port what lib/ works on. 0, or what the packet ends with: tags of a VLAN are for
 * the kernel, which has interfaces of that VLAN or not; so is what is tagged and for somebody else. Frames that are
 * carried whole keep theirs.
 */
INLINE u32 buffer_arrives(const struct packet *packet)
{
	buffer *skb = packet->ctx;
	int foreign, tagged;
	const void *data;

	/* Another node's, when it came by a link of this machine. */
	if (unlikely(skb->tc_index))
		skb->tc_index = 0;
	if (unlikely(skb->vlan_present || is_tag(skb->protocol))) {
		data = buffer_start(skb);
		if (data + ETHERNET_LENGTH > buffer_end(skb))
			return SEGUE_OUTCOME_drop_truncated;
		foreign = frame_foreign(packet, data) && !frame_to_group(data);
		if (!frame_is_carried(packet, foreign)) {
			if (foreign && packet->port->role != SEGUE_ROLE_SERVICE && !packet->port->firewall)
				return SEGUE_OUTCOME_passed_not_for_segue;
			tagged = skb_priority_tags_remove(skb);
			if (tagged)
				return tagged < 0 ? SEGUE_OUTCOME_drop_recirculation
						  : SEGUE_OUTCOME_passed_not_for_segue;
		}
	}
	packet_make_linear(packet);
	return 0;
}

/* Those that there were have been taken off. */
INLINE int priority_tag_remove(buffer *skb)
{
	(void)skb;
	return 0;
}

INLINE int priority_tags_remove(buffer *skb)
{
	(void)skb;
	return 0;
}

#else

/* Frames are as they came: tags are taken off where they are met. */
INLINE u32 buffer_arrives(const struct packet *packet)
{
	(void)packet;
	return 0;
}

/*
 * Takes off an 802.1Q or 802.1ad tag of VLAN 0, which is only a priority. The kernel takes such frames as untagged
 * ones, so they must not go up to it unread. 1: taken off.
 */
RARE int priority_tag_remove(buffer *ctx)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
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

/*
 * Takes off the tags of an IPv6 packet that is behind nothing but priority tags, which the kernel takes for untagged.
 * 1: done; 0: it is no such frame, and is as it was; -1: more of them than Segue looks at.
 */
RARE int priority_tags_remove(buffer *ctx)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
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

#endif
