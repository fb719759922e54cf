//! Filters in the kernel (classic BPF), so that only answers to probes wake the agent up.

use socket2::SockFilter;

/// The first four octets behind an echo header of ours.
pub const MAGIC: u32 = 0x5e90_eb1e;

// <linux/bpf_common.h>
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_OCTET: u16 = 0x30;
const LOAD_WORD_X: u16 = 0x40;
const LOAD_HALF_X: u16 = 0x48;
const LOAD_OCTET_X: u16 = 0x50;
/// X = 4 * (octet & 15): the length of an IPv4 header.
const LOAD_X_IPV4_LENGTH: u16 = 0xb1;
const EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// `SKF_NET_OFF`: offsets from here count from the network header.
const NETWORK: u32 = 0xfff0_0000;

const SYN: u32 = 2;

fn op(code: u16, value: u32) -> SockFilter {
    SockFilter::new(code, 0, 0, value)
}

/// Goes on if equal, else skips so many.
fn unless(value: u32, skip: u8) -> SockFilter {
    SockFilter::new(EQUAL, 0, skip, value)
}

fn take() -> SockFilter {
    op(RETURN, u32::MAX)
}

fn leave() -> SockFilter {
    op(RETURN, 0)
}

/// Raw ICMP sockets, which see the IPv4 header: echo replies with this identifier.
pub fn icmpv4(identifier: u16) -> [SockFilter; 7] {
    [
        op(LOAD_X_IPV4_LENGTH, 0),
        op(LOAD_OCTET_X, 0),
        unless(0, 3),
        op(LOAD_HALF_X, 4),
        unless(identifier.into(), 1),
        take(),
        leave(),
    ]
}

/// Raw ICMPv6 sockets, which see the message: echo replies with this identifier; neighbour advertisements that no router
/// can have forwarded (RFC 4861 section 7.1.2).
pub fn icmpv6(identifier: u16) -> [SockFilter; 10] {
    [
        op(LOAD_OCTET, 0),
        unless(129, 3),
        op(LOAD_HALF, 4),
        unless(identifier.into(), 5),
        take(),
        unless(136, 3),
        op(LOAD_OCTET, NETWORK + 7),
        unless(255, 1),
        take(),
        leave(),
    ]
}

/// Packets on an interface, from the IPv4 header on: our echo requests, and openings of TCP connections.
pub fn through_ipv4() -> [SockFilter; 11] {
    [
        op(LOAD_X_IPV4_LENGTH, 0),
        op(LOAD_OCTET, 9),
        unless(1, 3),
        op(LOAD_WORD_X, 8),
        unless(MAGIC, 5),
        take(),
        unless(6, 3),
        op(LOAD_OCTET_X, 13),
        unless(SYN, 1),
        take(),
        leave(),
    ]
}

/// The same from the IPv6 header on, without extension headers.
pub fn through_ipv6() -> [SockFilter; 10] {
    [
        op(LOAD_OCTET, 6),
        unless(58, 3),
        op(LOAD_WORD, 48),
        unless(MAGIC, 5),
        take(),
        unless(6, 3),
        op(LOAD_OCTET, 53),
        unless(SYN, 1),
        take(),
        leave(),
    ]
}
