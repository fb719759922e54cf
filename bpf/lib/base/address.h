/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* IPv6 addresses. */
#ifndef SEGUE_BASE_ADDRESS_H
#define SEGUE_BASE_ADDRESS_H

#include "lib/base/types.h"

/* An IPv6 address as two words, in packet byte order. */
struct address {
	u64 high, low;
};

/* Words of an address in a packet. Unaligned loads are allowed to XDP programs on the architectures that Segue runs on.
 */
/* An IPv4 address, in packet order, among those of IPv6 (RFC 4291 section 2.5.5.2). */
INLINE struct address address_mapped(u32 ipv4)
{
	return (struct address){.low = 0xffff0000ULL | (u64)ipv4 << 32};
}

INLINE struct address address_load(const void *from)
{
	const u64 *words = from;
	struct address address = {words[0], words[1]};

	return address;
}

INLINE void address_store(void *to, struct address address)
{
	u64 *words = to;

	words[0] = address.high;
	words[1] = address.low;
}

INLINE int address_equal(struct address a, struct address b)
{
	return ((a.high ^ b.high) | (a.low ^ b.low)) == 0;
}

INLINE u8 address_first_octet(struct address address)
{
	return address.high & 0xff; /* little endian; big endian is refused below */
}

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the data plane is written for little-endian machines"
#endif

/* :: or ::1 */
INLINE int address_unspecified_or_loopback(struct address a)
{
	return a.high == 0 && (a.low & ~(1ULL << 56)) == 0;
}

INLINE int address_link_local(struct address a)
{
	return (a.high & 0xc0ff) == 0x80fe; /* fe80::/10 */
}

INLINE int address_multicast(struct address a)
{
	return address_first_octet(a) == 0xff;
}

/*
 * What may stand in the Segment List as the next destination, or be forwarded to. The first test lets nearly all
 * addresses through: neither in fe00::/7 nor in ::/64.
 */
INLINE int address_forwardable(struct address a)
{
	if (likely(address_first_octet(a) < 0xfe && a.high))
		return 1;
	return !address_multicast(a) && !address_link_local(a) && !address_unspecified_or_loopback(a);
}

INLINE int address_valid_source(struct address a)
{
	if (likely(address_first_octet(a) < 0xfe && a.high))
		return 1;
	return !address_multicast(a) && !address_unspecified_or_loopback(a);
}

#endif
