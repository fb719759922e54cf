/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* VLAN tags in front of what a firewall on a layer-2 port looks at. */
#ifndef SEGUE_FIREWALL_TAGS_H
#define SEGUE_FIREWALL_TAGS_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/packet/tags.h"
#include "lib/firewall/work.h"

enum firewall_tags {
	FIREWALL_TAGS_NONE = 0, /* or nothing behind them that rules look at */
	FIREWALL_TAGS_REMOVED = 1,
	FIREWALL_TAGS_TOO_MANY = 2,
};

/*
 * A frame of a layer-2 port goes on as it is, tags and all; what they carry is filtered like what comes without them.
 * They are taken off for the rules and put back behind them: at most two (802.1ad), behind which another may not hide.
 */
#ifdef SEGUE_SKB

/* Takes the outermost tag off, as in firewall_work.tags; 0: not. The next one is then beside the frame. */
INLINE u32 firewall_tag_pop(buffer *skb)
{
	u32 proto = skb->vlan_proto, tci = skb->vlan_tci;
	const u16 *half = buffer_start(skb);

	if (!skb->vlan_present) {
		if ((void *)(half + 8) > buffer_end(skb))
			return 0;
		proto = half[6];
		tci = bpf_ntohs(half[7]);
	}
	return bpf_skb_vlan_pop(skb) ? 0 : (proto & 0xffff) | tci << 16;
}

/*
 * The outermost tag is beside the frame, but for test runs. One that is alone there is looked past: rules see the
 * packet behind it.
 */
RARE int firewall_tags_remove(buffer *skb, struct firewall_work *work)
{
	const u16 *half = buffer_start(skb);
	const void *end = buffer_end(skb);
	u32 beside = !!skb->vlan_present, inside = 1, outer, inner = 0;
	u16 ethertype;

	if (!work || (void *)(half + 9) > end || !is_tag(half[6]))
		return FIREWALL_TAGS_NONE;
	ethertype = half[8];
	if (is_tag(ethertype)) {
		if ((void *)(half + 11) > end)
			return FIREWALL_TAGS_NONE;
		inside = 2;
		ethertype = half[10];
	}
	if (is_tag(ethertype) || beside + inside > 2)
		return FIREWALL_TAGS_TOO_MANY;
	if (ethertype != bpf_htons(ETH_P_IPV6) && ethertype != bpf_htons(ETH_P_IP))
		return FIREWALL_TAGS_NONE;
	outer = firewall_tag_pop(skb);
	if (beside + inside == 2)
		inner = firewall_tag_pop(skb);
	if (!outer || (beside + inside == 2 && !inner))
		return FIREWALL_TAGS_TOO_MANY;
	work->tags = (u64)inner << 32 | outer;
	return FIREWALL_TAGS_REMOVED;
}

/* 0: they are there again, the outermost beside the frame. */
RARE int firewall_tags_restore(buffer *skb, const struct firewall_work *work)
{
	u32 outer, inner;

	if (!work)
		return -1;
	outer = work->tags;
	inner = work->tags >> 32;
	if (inner && bpf_skb_vlan_push(skb, inner & 0xffff, inner >> 16))
		return -1;
	return bpf_skb_vlan_push(skb, outer & 0xffff, outer >> 16) ? -1 : 0;
}

INLINE u32 firewall_tag_beside(const buffer *skb)
{
	return skb->vlan_present;
}

#else

RARE int firewall_tags_remove(buffer *ctx, struct firewall_work *work)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u16 *half = data, ethertype;
	u32 *word = data;
	u64 tags;

	if (!work || data + ETHERNET_LENGTH + 4 > end || !is_tag(half[6]))
		return FIREWALL_TAGS_NONE;
	ethertype = half[8];
	tags = word[3];
	if (is_tag(ethertype)) {
		if (data + ETHERNET_LENGTH + 8 > end)
			return FIREWALL_TAGS_NONE;
		ethertype = half[10];
		tags |= (u64)word[4] << 32;
	}
	if (is_tag(ethertype))
		return FIREWALL_TAGS_TOO_MANY;
	if (ethertype != bpf_htons(ETH_P_IPV6) && ethertype != bpf_htons(ETH_P_IP))
		return FIREWALL_TAGS_NONE;
	work->tags = tags;
	if (tags >> 32) {
		if (data + 20 > end)
			return FIREWALL_TAGS_NONE;
		word[4] = word[2];
		word[3] = word[1];
		word[2] = word[0];
	} else {
		word[3] = word[2];
		word[2] = word[1];
		word[1] = word[0];
	}
	return buffer_adjust_head(ctx, tags >> 32 ? 8 : 4) ? FIREWALL_TAGS_TOO_MANY : FIREWALL_TAGS_REMOVED;
}

/* 0: they are where they were. */
RARE int firewall_tags_restore(buffer *ctx, const struct firewall_work *work)
{
	void *data, *end;
	u32 *word;

	if (!work || buffer_adjust_head(ctx, work->tags >> 32 ? -8 : -4))
		return -1;
	data = buffer_start(ctx);
	end = buffer_end(ctx);
	word = data;
	if (data + 20 > end)
		return -1;
	if (work->tags >> 32) {
		word[0] = word[2];
		word[1] = word[3];
		word[2] = word[4];
		word[4] = work->tags >> 32;
	} else {
		word[0] = word[1];
		word[1] = word[2];
		word[2] = word[3];
	}
	word[3] = work->tags;
	return 0;
}

INLINE u32 firewall_tag_beside(const buffer *ctx)
{
	(void)ctx;
	return 0;
}

#endif

#endif
