/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The checksum of UDP over a whole packet, which lies anywhere in its buffer: part by part through the CPU's scratch
 * memory. The octets are summed as they are; what a link is still to put into an inner header is not among them.
 */
#ifndef SEGUE_LABELS_UDP_CHECKSUM_H
#define SEGUE_LABELS_UDP_CHECKSUM_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/packet/stage.h"

#define SUM_FAILED 0x10000U
#define SUM_PARTS 128 /* of the longest packet */

/* The folded sum of `sum` and `length` octets from `offset` on, in packet order; or SUM_FAILED. */
RARE u32 octets_sum(buffer *ctx, u32 offset, u32 length, u32 sum)
{
	struct scratch *scratch = scratch_get();
	u32 words;

	if (!scratch)
		return SUM_FAILED;
#pragma clang loop unroll(disable)
	for (int i = 0; i < SUM_PARTS; i++) {
		if (length < SUM_PART)
			break;
		if (buffer_load(ctx, offset, scratch->part, SUM_PART))
			return SUM_FAILED;
		sum = bpf_csum_diff(NULL, 0, (void *)scratch->part, SUM_PART, sum);
		offset += SUM_PART;
		length -= SUM_PART;
	}
	if (!length)
		return fold16(sum);
	/* As in record_drop(). */
	length--;
	opaque(length);
	if (length > SUM_PART - 2)
		return SUM_FAILED;
	length++;
	words = (length + 3) / 4;
	((u32 *)scratch->part)[(words - 1) & (SUM_PART / 4 - 1)] = 0;
	if (buffer_load(ctx, offset, scratch->part, length))
		return SUM_FAILED;
	return fold16(bpf_csum_diff(NULL, 0, (void *)scratch->part, (words & 0xff) * 4, sum));
}

INLINE u32 words_sum(const void *from, u32 words)
{
	const u32 *word = from;
	u64 sum = 0;

	for (u32 i = 0; i < words; i++)
		sum += word[i];
	sum = (sum & 0xffffffff) + (sum >> 32);
	return (sum & 0xffffffff) + (sum >> 32);
}

/* The pseudo header's sum (RFC 8200 section 8.1, RFC 768): `from`: the two addresses, of so many words in all. */
INLINE u32 udp_pseudo_sum(const void *from, u32 words, u32 length)
{
	return (u32)fold16(words_sum(from, words)) + bpf_htons(length) + bpf_htons(PROTOCOL_UDP);
}

#endif
