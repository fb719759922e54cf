/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The buffer that a packet lies in, as the program's hook has it: a frame of XDP (xdp.h), or a socket buffer of the TC
 * hook (skb.h), for objects that are compiled with SEGUE_SKB. All else of lib/ is over both, and asks for what differs
 * by these names:
 *
 * buffer: the type of the context. From buffer_start() to buffer_end() its octets can be read and written directly.
 * VERDICT_PASS, VERDICT_DROP: to the kernel, to nobody.
 * buffer_begin(): what a program does first that a buffer meets on an interface; buffer_go_on(): what a stage does.
 * buffer_octets(), buffer_length(), buffer_frame_length(), buffer_interface(), buffer_load(): what is there.
 * buffer_adjust_head(), buffer_adjust_tail(): plain moves, for what becomes another packet.
 * buffer_encapsulate(), buffer_decapsulate(), buffer_expose_frame(), buffer_wrap_frame(): a header on or off in front
 * of a packet that stays what it is; of a socket buffer the kernel has to know. buffer_refusal(): why not.
 * buffer_redirects(): whether a buffer in several parts leaves as others do.
 * FIB_LENGTH: what bpf_fib_lookup() is told of the packet's length, so that it answers with the route's MTU.
 */
#ifndef SEGUE_PACKET_BUFFER_H
#define SEGUE_PACKET_BUFFER_H

#ifdef SEGUE_SKB
#include "lib/packet/skb.h"
#else
#include "lib/packet/xdp.h"
#endif

#endif
