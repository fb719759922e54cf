/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What errors tell besides a quote (RFC 4884): the label stack that the packet came with (RFC 4950), so that traceroute
 * shows it. Made where the stack is still there, and put behind the quote by the ICMP stage.
 */
#ifndef SEGUE_ICMP_EXTENSION_H
#define SEGUE_ICMP_EXTENSION_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/packet/buffer.h"
#include "lib/packet/stage.h"

#define ICMP_EXTENSION_VERSION 0x20 /* RFC 4884 section 7: 2, in the highest four bits */
#define ICMP_EXTENSION_STACK 0x0101 /* RFC 4950 section 3: class 1, type 1 */

/*
 * What is in front of an extension is so long, filled up with zeros: RFC 4884 section 5.5 asks for no less, and those
 * who do not read its length expect no more.
 */
#define EXTENDED_QUOTE 128

/* An error that is about to be ordered tells of the stack, of so many octets, behind the Ethernet header. 0: done. */
RARE int extension_of_stack(buffer *ctx, u32 octets)
{
	struct scratch *scratch = scratch_get();
	u16 *half;
	u32 sum;

	if (!scratch)
		return -1;
	for (int i = 0; i < (ICMP_EXTENSION_MAX + 7) / 8; i++)
		*(volatile u64 *)&scratch->extension[i] = 0;
	/* One less, compared, one more: the form from which the verifier of 6.1 learns both bounds. */
	octets--;
	opaque(octets);
	if (octets > ICMP_EXTENSION_MAX - ICMP_EXTENSION_HEADERS - 1)
		return -1;
	octets++;
	if (buffer_load(ctx, ETHERNET_LENGTH, &scratch->extension[1], octets))
		return -1;
	half = (u16 *)scratch->extension;
	half[0] = bpf_htons(ICMP_EXTENSION_VERSION << 8);
	half[2] = bpf_htons(4 + octets); /* the object with its header */
	half[3] = bpf_htons(ICMP_EXTENSION_STACK);
	sum = bpf_csum_diff(NULL, 0, (void *)scratch->extension, sizeof(scratch->extension), 0);
	half[1] = ~fold16((sum & 0xffff) + (sum >> 16));
	scratch->extension_length = ICMP_EXTENSION_HEADERS + octets;
	return 0;
}

/* Writes the ordered extension behind a quote that ends at `at`, filled up with `zeros` octets. 0: done. */
RARE int extension_write(buffer *ctx, u32 at, u32 zeros)
{
	struct scratch *scratch = scratch_get();
	u64 nothing[EXTENDED_QUOTE / 8] = {};
	u32 length;

	if (!scratch || zeros > EXTENDED_QUOTE)
		return -1;
	at &= OFFSET_MASK;
	length = zeros - 1;
	opaque(length);
	if (length < EXTENDED_QUOTE && buffer_store(ctx, at, nothing, length + 1))
		return -1;
	length = scratch->extension_length - 1;
	opaque(length);
	if (length > ICMP_EXTENSION_MAX - 1)
		return -1;
	return buffer_store(ctx, at + zeros, scratch->extension, length + 1);
}

/* The length of the quote, where an error's second word has it (RFC 4884 section 4): in words of 32 bits, or of 64. */
INLINE u32 extended_param(u32 family)
{
	return family == 6 ? EXTENDED_QUOTE / 8 << 24 : EXTENDED_QUOTE / 4 << 16;
}

#endif
