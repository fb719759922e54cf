//! Labels in UDP (RFC 7510): tunnels of labels and lists, and the addresses that take such packets.

use std::net::IpAddr;

use ipnet::Ipv6Net;
use segue_abi as abi;
use segue_model::node::{UdpEndpoint, UdpTunnel};
use zerocopy::FromZeros;

use super::{CompileError, Compiler, counter_name};

/// In the word for the way of a list: the next hop is an IPv4 address (`ADJACENCY_IPV4` in `bpf/lib/forward/adjacency.h`).
pub(super) const WAY_IPV4: u32 = 1 << 31;

/// Makes a label's entry one that leads into a tunnel.
pub(super) fn of_label(
    compiler: &Compiler<'_>,
    entry: &mut abi::Sid,
    udp: &UdpTunnel,
    hop_limit: u8,
    place: &str,
) -> Result<(), CompileError> {
    let tunnel = tunnel(compiler, udp, hop_limit, place)?;
    match udp.destination {
        IpAddr::V6(address) => entry.next_hop = address.octets(),
        IpAddr::V4(address) => entry.next_hop_ipv4 = u32::from_ne_bytes(address.octets()),
    }
    entry.behaviour = abi::SEGUE_LABEL_UDP as u8;
    entry.set_udp(&tunnel);
    Ok(())
}

/// The same for a list.
pub(super) fn of_list(
    compiler: &Compiler<'_>,
    entry: &mut abi::SegmentList,
    udp: &UdpTunnel,
    hop_limit: u8,
    place: &str,
) -> Result<(), CompileError> {
    let tunnel = tunnel(compiler, udp, hop_limit, place)?;
    entry.first = octets(udp.destination);
    if udp.destination.is_ipv4() {
        entry.way = WAY_IPV4;
    }
    entry.flags |= abi::SEGUE_LIST_UDP as u8;
    entry.set_udp(&tunnel);
    Ok(())
}

fn tunnel(compiler: &Compiler<'_>, udp: &UdpTunnel, hop_limit: u8, place: &str) -> Result<abi::Udp, CompileError> {
    let state = compiler.input.state;
    let source = match udp.destination {
        IpAddr::V6(_) => IpAddr::V6(state.source_address),
        IpAddr::V4(_) => {
            let missing = || CompileError::invalid(place, "UDP over IPv4 needs `source_address_ipv4`");
            IpAddr::V4(state.source_address_ipv4.ok_or_else(missing)?)
        }
    };
    let mut tunnel = abi::Udp::new_zeroed();
    tunnel.source = octets(source);
    tunnel.mtu = udp.mtu.unwrap_or(0);
    tunnel.hop_limit = hop_limit;
    tunnel.flags = if udp.zero_checksum { abi::SEGUE_UDP_ZERO_CHECKSUM as u8 } else { 0 };
    Ok(tunnel)
}

/// An address as the data plane has it: IPv4 in the low word.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[8..12].copy_from_slice(&address.octets());
            octets
        }
    }
}

/// The key of an address that takes labels in UDP, and its entry, which is none of a SID.
pub(super) fn endpoint(
    compiler: &mut Compiler<'_>,
    endpoint: &UdpEndpoint,
) -> Result<(Ipv6Net, abi::Sid), CompileError> {
    let key = endpoint.key();
    let mut entry = abi::Sid::new_zeroed();
    entry.behaviour = abi::SEGUE_UDP_ENDPOINT as u8;
    entry.kind = abi::SEGUE_HEADER_SRV6 as u8;
    entry.policy = abi::SEGUE_NONE;
    if let Some(prefix) = endpoint.zero_checksum_from {
        entry.flavours = abi::SEGUE_UDP_ZERO_CHECKSUM as u16;
        entry.next_hop = prefix.network().octets();
        entry.backup = prefix.netmask().octets();
    }
    entry.counter = compiler.counters.take(counter_name::sid(&key), &endpoint.name())?;
    Ok((key, entry))
}

/// Of the node: which families its endpoints have.
pub(super) fn config_flags(endpoints: &[UdpEndpoint]) -> abi::ConfigFlags {
    let flag = |endpoint: &UdpEndpoint| match endpoint.address {
        IpAddr::V6(_) => abi::SEGUE_CONFIG_UDP_IPV6,
        IpAddr::V4(_) => abi::SEGUE_CONFIG_UDP_IPV4,
    };
    endpoints.iter().fold(0, |flags, endpoint| flags | flag(endpoint))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn addresses_lie_where_the_data_plane_looks() {
        assert_eq!(octets(IpAddr::V6(Ipv6Addr::LOCALHOST)), Ipv6Addr::LOCALHOST.octets());
        let ipv4 = octets(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(ipv4, [0, 0, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1, 0, 0, 0, 0]);
    }
}
