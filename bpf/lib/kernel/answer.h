/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Messages that XDP has made (lib/icmp/answer.h), and what it forwards by an interface that takes no frames from it
 * (transmit_by_kernel()), on their way out. Here the kernel asks for a neighbour that it does
 * not know, and any interface will do: a veth takes no frame that XDP redirects if there is neither XDP nor GRO at its
 * far end.
 */
#ifndef SEGUE_KERNEL_ANSWER_H
#define SEGUE_KERNEL_ANSWER_H

#include "lib/base/types.h"
#include "lib/packet/buffer.h"

INLINE int answer_leaves(buffer *skb, struct segue_answer_metadata *answer)
{
	struct bpf_redir_neigh neighbour = {.nh_family = answer->family};
	u32 oif = answer->oif;

	__builtin_memcpy(neighbour.ipv6_nh, answer->next_hop, sizeof(neighbour.ipv6_nh));
	/* They stay on the buffer: nobody shall read them or take them for his own. */
	__builtin_memset(answer, 0, sizeof(*answer));
	if (skb->tc_index)
		skb->tc_index = 0;
	/* The frame was not for the port's own address, so that it goes nowhere if this program is not there. */
	bpf_skb_change_type(skb, 0 /* PACKET_HOST */);
	if (!neighbour.nh_family)
		return bpf_redirect(oif, 0);
	return bpf_redirect_neigh(oif, &neighbour, sizeof(neighbour), 0);
}

#endif
