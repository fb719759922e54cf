/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Frames of core ports that an IPv6 packet for this port does not fill: padded, tagged, for others, or no IPv6. */
#ifndef SEGUE_CORE_FRAME_H
#define SEGUE_CORE_FRAME_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/config.h"
#include "lib/packet/buffer.h"
#include "lib/packet/packet.h"
#include "lib/packet/frame.h"
#include "lib/packet/outcome.h"
#include "lib/packet/headers.h"
#include "lib/packet/tags.h"
#include "lib/forward/sid.h"
#include "lib/core/endpoint.h"

/*
 * A jumbogram (RFC 2675) for this domain, whatever its option says: no link of Segue's carries one. To a SID its option
 * is one that is not known; on its way through, it is the kernel's. As core_trim() says it.
 */
INLINE u32 jumbogram(buffer *ctx, int to_sid)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	u32 offset = ETHERNET_LENGTH + IPV6_LENGTH;
	const u8 *octet = data + offset;

	if (!to_sid)
		return SEGUE_OUTCOME_passed_route;
	if ((void *)(octet + 2) > end)
		return SEGUE_OUTCOME_drop_bad_length;
	return option_refused(ctx, offset, (octet[1] + 1) * 8) ?: SEGUE_OUTCOME_drop_bad_length;
}

/*
 * The packet in an IPv6 frame that it does not fill: an outcome that ends it, or what option_refused() says; or 0, and
 * what lies behind a packet for this domain is off. What goes to the kernel goes as it came. `config_flags`: of the
 * port.
 */
RARE u32 core_trim(buffer *ctx, u64 epoch, u32 config_flags)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;
	u32 frame = buffer_octets(ctx, data, end), limit;
	struct address destination;
	int to_sid;

	if ((void *)(ip + 1) > end)
		return SEGUE_OUTCOME_drop_truncated;
	if (*(const u8 *)ip >> 4 != 6)
		return SEGUE_OUTCOME_drop_bad_version;
	limit = ETHERNET_LENGTH + packet_ipv6_octets(ctx, ip);
	if (limit > frame) {
		frame = frame_length(ctx);
		if (limit > frame)
			return SEGUE_OUTCOME_drop_bad_length;
		if (!buffer_redirects(config_flags))
			return SEGUE_OUTCOME_passed_multi_buffer;
	}
	if (limit == frame)
		return 0;
	destination = address_load(&ip->daddr);
	to_sid = sid_find_at(epoch, &destination) != NULL;
	if (!to_sid && !in_sid_block(epoch, destination))
		return 0;
	if (maybe_jumbogram(ip))
		return jumbogram(ctx, to_sid);
	return frame_trim(ctx, frame, limit) ? SEGUE_OUTCOME_drop_adjust : 0;
}

/* Ends a packet that core_trim() does not let go on. */
INLINE int core_trimmed(struct packet *packet, u32 outcome)
{
	void *data = buffer_start(packet->ctx);
	void *end = buffer_end(packet->ctx);
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;

	if ((void *)(ip + 1) > end)
		return drop(packet, SEGUE_OUTCOME_drop_truncated);
	packet->length = packet_ipv6_octets(packet->ctx, ip);
	if (outcome >> 16)
		return refuse_option(packet, outcome);
	return outcome < SEGUE_OUTCOME_DROPPED ? pass(packet, outcome) : drop(packet, outcome);
}

/*
 * A frame that is no IPv6 packet for this port: an outcome that ends it; or 0, it is one behind priority tags, which
 * are off now. The kernel knows what to do with what is for somebody else, unless it has a segment in it. `mac`: the
 * port's own address, as frame_foreign() compares it.
 */
RARE u32 core_odd(buffer *ctx, u64 epoch, u64 mac)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	const struct ipv6hdr *ip;
	int tags = 0, foreign;
	u16 ethertype;

	if (data + ETHERNET_LENGTH > end)
		return SEGUE_OUTCOME_drop_truncated;
	foreign = (*(const u64 *)data ^ mac) << 16 != 0;
	ethertype = *(const u16 *)(data + 12);
	if (foreign && !frame_to_group(data))
		return ethertype == bpf_htons(ETH_P_IPV6) ? SEGUE_OUTCOME_passed_other_host
							  : SEGUE_OUTCOME_passed_not_for_segue;
	if (ethertype != bpf_htons(ETH_P_IPV6)) {
		tags = priority_tags_remove(ctx);
		if (tags <= 0)
			return tags ? SEGUE_OUTCOME_drop_recirculation : SEGUE_OUTCOME_passed_not_for_segue;
		data = buffer_start(ctx);
		end = buffer_end(ctx);
	}
	if (!foreign)
		return 0;
	ip = data + ETHERNET_LENGTH;
	if ((void *)(ip + 1) > end)
		return SEGUE_OUTCOME_drop_truncated;
	/* The kernel would take it in, as each node of the segment does. */
	if (in_sid_block(epoch, address_load(&ip->daddr)) || sid_find(epoch, address_load(&ip->daddr)))
		return SEGUE_OUTCOME_drop_group_frame;
	return SEGUE_OUTCOME_passed_not_for_segue;
}

/* Ends a packet whose length is not known yet. */
INLINE int pass_odd(struct packet *packet, u32 outcome)
{
	packet->length = frame_length(packet->ctx) - ETHERNET_LENGTH;
	return outcome < SEGUE_OUTCOME_DROPPED ? pass(packet, outcome) : drop(packet, outcome);
}

/* A frame for this port with an IPv6 packet that fills it, all in the first buffer. */
INLINE int core_fast(const struct packet *packet, const void *data, const void *end)
{
	const struct ipv6hdr *ip = data + ETHERNET_LENGTH;

	return (const void *)(ip + 1) <= end &&
	       ip->payload_len ==
		       payload_length(buffer_octets(packet->ctx, data, end) - ETHERNET_LENGTH - IPV6_LENGTH) &&
	       *(const u16 *)(data + 12) == bpf_htons(ETH_P_IPV6) &&
	       (packet_recirculated(packet) || !frame_foreign(packet, data));
}

#endif
