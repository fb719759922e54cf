//! What the checks of nodes and of topologies have in common. Each function says what is wrong with a value, if anything.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

use crate::range::NumberRange;

/// Smallest MTU that IPv6 works with (RFC 8200 section 5), octets.
pub const MTU_MIN: u32 = 1280;
/// Largest MTU of a veth, octets.
pub const MTU_MAX: u32 = 65535;

/// What keeps an address from being a SID or a node's address.
pub fn ipv6_problem(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_unspecified() {
        Some("is the unspecified address")
    } else if address.is_loopback() {
        Some("is the loopback address")
    } else if address.is_multicast() {
        Some("is a multicast address")
    } else if address.is_unicast_link_local() {
        Some("is a link-local address")
    } else if address.to_ipv4_mapped().is_some() {
        Some("is an IPv4-mapped address")
    } else {
        None
    }
}

/// What keeps an address from being one that packets are sent from or to.
pub fn ipv4_problem(address: Ipv4Addr) -> Option<&'static str> {
    if address.octets()[0] == 0 {
        Some("lies in 0.0.0.0/8, \"this network\"")
    } else if address.is_loopback() {
        Some("is a loopback address")
    } else if address.is_multicast() {
        Some("is a multicast address")
    } else if address.octets()[0] >= 240 {
        Some("is a reserved or broadcast address")
    } else {
        None
    }
}

/// As [`ipv6_problem`] and [`ipv4_problem`].
pub fn ip_problem(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => ipv4_problem(address),
        IpAddr::V6(address) => ipv6_problem(address),
    }
}

/// Whether an address only makes sense together with a link.
pub fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Whether two prefixes have an address in common.
pub fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// As [`overlap`].
pub fn overlap_ipv6(a: &Ipv6Net, b: &Ipv6Net) -> bool {
    a.contains(b) || b.contains(a)
}

/// Keys that name values of a header field, and the greatest one (RFC 2474 section 3, RFC 8200 section 3).
pub fn header_values<'a>(
    dscp: &'a [NumberRange],
    flow_labels: &'a [NumberRange],
) -> [(&'static str, &'a [NumberRange], u32); 2] {
    [("dscp", dscp, 63), ("flow_labels", flow_labels, 0xfffff)]
}

/// What is wrong with values of a field, and what to do.
pub fn value_problem(values: &[NumberRange], max: u32) -> Option<(String, String)> {
    let large = values.iter().find(|range| range.high() > max)?;
    Some((format!("{large} is above {max}, the greatest value of this field"), format!("use values from 0 to {max}")))
}

/// Whether a text may name an interface (the kernel's rule).
pub fn is_interface_name(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && name != "."
        && name != ".."
        && !name
            .bytes()
            .any(|byte| byte == b'/' || byte == b':' || byte.is_ascii_whitespace() || byte.is_ascii_control())
}

/// Whether a text may name a network namespace: a file of `/run/netns`.
pub fn is_namespace_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
}

/// Whether a text may name something that only displays and metrics show.
pub fn is_display_name(name: &str) -> bool {
    (1..=63).contains(&name.len()) && name.chars().all(|character| character.is_ascii_graphic())
}

/// Whether a text may name a namespace and an interface of a lab.
pub fn is_lab_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= 15
        && bytes.next().is_some_and(|byte| byte.is_ascii_lowercase())
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}
