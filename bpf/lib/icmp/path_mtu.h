/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is known of paths that packets of this node do not fit (RFC 2473 section 7.1). Whoever sent such a packet is
 * told, but need not understand: a function that translates has made another packet of it, which the sender has never
 * seen. So the agent is told too, which has the next one refused where its sender knows it: before a header is put on,
 * and before it goes into a function.
 */
#ifndef SEGUE_ICMP_PATH_MTU_H
#define SEGUE_ICMP_PATH_MTU_H

#include "lib/base/types.h"
#include "lib/base/protocol.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/packet/buffer.h"
#include "lib/packet/headers.h"

ARRAY(path_mtus, struct segue_path_mtu, SEGUE_PATH_MTUS);

/* Of packets without a header of this node's, which come from a function by the port `ifindex`. */
INLINE void path_mtu_behind_function(u32 ifindex, u32 mtu)
{
	u32 row = ifindex % SEGUE_PATH_MTUS;
	struct segue_path_mtu *noted = bpf_map_lookup_elem(&path_mtus, &row);

	if (!noted)
		return;
	noted->ifindex = ifindex;
	noted->mtu = mtu;
	*(volatile u32 *)&noted->count += 1;
}

/* Of packets to `last`, the last segment. `srh`: the offset of the SRH in the frame, where it is quoted; 0: none. */
RARE int path_mtu_of_list(buffer *ctx, const struct address *last, u32 srh, u32 mtu)
{
	void *data = buffer_start(ctx);
	void *end = buffer_end(ctx);
	struct segue_path_mtu *noted;
	const u8 *octet;
	u32 row, length = 0;

	if (!last)
		return -1;
	row = (last->high ^ last->low ^ (last->high >> 32) ^ (last->low >> 32)) % SEGUE_PATH_MTUS;
	if (srh) {
		octet = data + (srh & OFFSET_MASK);
		if ((void *)(octet + SRH_FIXED_LENGTH) > end)
			return -1;
		length = (octet[1] + 1) * 8;
		/* Lists of one destination are told apart by what else is in them. */
		row = (row ^ octet[4] ^ octet[1]) % SEGUE_PATH_MTUS;
	}
	noted = bpf_map_lookup_elem(&path_mtus, &row);
	/* Nothing of it is noted, or what is there would be of a list that nobody has. */
	if (!noted || length > SEGUE_PATH_SRH_MAX)
		return -1;
	noted->ifindex = 0;
	noted->srh_length = 0;
	noted->mtu = mtu;
	__builtin_memcpy(noted->last, last, sizeof(noted->last));
	if (length) {
		/* One less, compared, one more: the form from which the verifier of 6.1 learns both bounds. */
		length--;
		opaque(length);
		if (length > SEGUE_PATH_SRH_MAX - 1)
			return -1;
		length++;
		if (buffer_load(ctx, srh & OFFSET_MASK, noted->srh, length))
			return -1;
		noted->srh_length = length;
	}
	*(volatile u32 *)&noted->count += 1;
	return 0;
}

#endif
