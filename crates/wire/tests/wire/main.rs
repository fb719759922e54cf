//! Tests of the public interface, one subject per module.

mod builder;
mod classify;
mod errors;
mod hmac;
mod packet;
mod properties;
mod srh;
mod truncation;
mod vectors;

use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TcpRepr};
use std::net::Ipv6Addr;

/// An IPv6 address from its text.
fn ip6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// Octets from hexadecimal text; white space is ignored.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16));
    pairs.collect::<Result<_, _>>().unwrap()
}

/// A frame source for tests that do not look at Ethernet.
fn ethernet() -> PacketBuilder {
    PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
}

/// The path of the service chain used throughout.
fn path() -> [Ipv6Addr; 2] {
    [ip6("fcbb:0:2:e000::"), ip6("fcbb:0:3:d::")]
}

/// SRv6 traffic of one chain: IPv6, SRH, IPv4, TCP.
fn steered() -> PacketBuilder {
    ethernet()
        .ipv6(Ipv6Repr::new(ip6("fd00::1"), path()[0]))
        .srh(SrhRepr::new(&path()))
        .inner_ipv4(Ipv4Repr::new([10, 1, 0, 2].into(), [10, 2, 0, 2].into()))
        .tcp(TcpRepr::new(40_000, 80, segue_wire::tcp::control::SYN))
}
