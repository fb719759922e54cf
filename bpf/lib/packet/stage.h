/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What one stage tells the next, and the way there. */
#ifndef SEGUE_PACKET_STAGE_H
#define SEGUE_PACKET_STAGE_H

#include "lib/base/types.h"
#include "lib/base/maps.h"
#include "lib/packet/packet.h"
#include "lib/header/advance.h"

/* The outer packet, once its headers have been walked. */
struct outer {
	u32 offset;  /* of what follows its headers: the inner packet */
	u32 limit;   /* end of the outer payload, by the outer Payload Length */
	u32 frame;   /* octets in the frame, all buffers */
	u16 srh;     /* of an SRH with segments left, or 0 */
	u16 naming;  /* of the Next Header octet that names `protocol` */
	u8 protocol; /* of the inner packet */
	u8 ecn;
	u8 fragment;
	u8 dscp; /* of the outer header */
};

/* What is to be remembered for a flow: lib/proxy/memory.h. */
struct memory_order {
	struct outer outer;
	u64 shape;
	u64 scope;
	u32 margin;
	u32 outcome; /* why it cannot be remembered */
};

/* A packet that is to be pushed into a policy of labels: lib/labels/push.h. */
struct push_order {
	u32 list;    /* index in `segment_lists` */
	u32 counter; /* row of the rule that led there */
	u32 flow;    /* hash of the flow */
	u32 length;  /* octets of the packet */
	u32 family;
	u32 traffic_class;
	struct advance advance; /* End.BM: of the packet itself. ADVANCE_NOT: no */
};

/*
 * A packet with labels to a firewall, whose label is the first one; its frame ends where the packet behind the stack
 * does: lib/labels/firewall.h.
 */
struct label_order {
	u32 index;  /* of the label in `sid_entries` */
	u32 inside; /* offset of the packet behind the stack */
	u32 octets; /* of that packet */
	u32 reserved;
};

/* Octets of an ICMP extension (RFC 4884 section 7): its header, one object's, and the deepest stack that is looked
 * through. */
#define ICMP_EXTENSION_HEADERS 8
#define ICMP_EXTENSION_MAX (ICMP_EXTENSION_HEADERS + 4 * (2 * SEGUE_LABELS_MAX + 1))

/* Octets of a packet that are summed up at once: bpf_csum_diff() takes no more before Linux 6.13. */
#define SUM_PART 512

/* What one stage tells the next across a tail call. Each stage writes all that the next one reads. */
struct scratch {
	u64 epoch;    /* of the packet, for the next stage: see stage() */
	u32 unasked;  /* hand_on(): whoever sets it goes there at once, and there it is cleared */
	u8 icmp_kind; /* enum segue_icmp, the row to count */
	u8 family;
	u8 type;
	u8 code;
	u16 l3;	     /* offset of the offending packet in the frame */
	u16 upper;   /* echo: offset of the ICMPv6 header */
	u32 param;   /* pointer or MTU; echo: end of the packet */
	u32 length;  /* echo and relay: layer 3 octets, for the outcome that the ICMP stage counts */
	u32 counter; /* echo: row of the SID */
	u32 own;     /* relay: not 0: icmp_about_own(); whoever sets it goes there at once, and there it is cleared */
	u64 way;     /* ICMP_WAY() */
	struct memory_order order;
	struct push_order push;
	struct label_order label;
	struct segue_stash stash; /* a header that is about to be remembered */
	struct segue_last_drop drop;
	u64 drop_time[SEGUE_OUTCOMES_MAX];
	u32 extension_length; /* an error's: octets of `extension`; 0: it has none */
	u32 reserved;
	u64 extension[(ICMP_EXTENSION_MAX + 7) / 8];
	u64 part[SUM_PART / 8 + 1]; /* of a packet that is summed up: lib/labels/udp_checksum.h */
};

PERCPU(scratches, struct scratch, 1);

INLINE struct scratch *scratch_get(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&scratches, &zero);
}

/*
 * To another stage, which goes on in the epoch of this one: a packet meets one generation, however many stages it
 * meets. Nothing comes between: a program and what it calls are one run, which no other of Segue's programs on this CPU
 * interrupts, since both hooks run with soft interrupts disabled. Returns if there is no such stage.
 */
INLINE void stage(const struct packet *packet, u32 number)
{
	struct scratch *scratch = scratch_get();

	if (!scratch)
		return;
	scratch->epoch = packet->epoch;
	bpf_tail_call(packet->ctx, &stages, number);
	scratch->epoch = 0;
}

/*
 * A packet at a core port that is not as nearly all are goes on in segue_again, which takes any: so what takes such
 * packets is in one program, for the verifier too. Nothing of it has been changed.
 */
INLINE void hand_on(const struct packet *packet, u32 unasked)
{
	struct scratch *scratch = scratch_get();

	if (!scratch)
		return;
	scratch->unasked = unasked;
	stage(packet, SEGUE_STAGE_AGAIN);
	scratch->unasked = 0;
}

/* Whether hand_on() said so. */
INLINE u32 unasked_carried(void)
{
	struct scratch *scratch = scratch_get();
	u32 unasked;

	if (!scratch)
		return 0;
	unasked = scratch->unasked;
	scratch->unasked = 0;
	return unasked;
}

/* The epoch in which the stage before this one was. */
INLINE u64 epoch_carried(void)
{
	struct scratch *scratch = scratch_get();
	u64 epoch;

	if (!scratch)
		return epoch_now();
	epoch = scratch->epoch;
	scratch->epoch = 0;
	return likely(epoch) ? epoch : epoch_now(); /* 0: run by itself, as tests do */
}

#endif
