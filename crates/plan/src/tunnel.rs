//! Labels in UDP (RFC 7510) where the network between two nodes knows none: from loopback address to loopback address, along the shortest path.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use segue_model::topology::LabelTunnel;
use segue_model::udp::{UdpEndpoint, UdpTunnel};

use crate::planner::Planner;

impl Planner<'_> {
    /// The tunnel that the way from one node to another begins with.
    pub(crate) fn in_udp(&self, from: usize, to: usize) -> Option<UdpTunnel> {
        let tunnel = self.inventory.tunnels.get(self.label_reach.first_tunnel(from, to)?)?;
        let end = self.far_end(tunnel, from)?;
        Some(UdpTunnel {
            destination: self.inventory.nodes[end].loopback.into(),
            // No router on the way tells this node what it takes.
            mtu: self.reach.mtu(from, end).and_then(|mtu| u16::try_from(mtu).ok()),
            zero_checksum: tunnel.zero_checksum,
        })
    }

    fn far_end(&self, tunnel: &LabelTunnel, node: usize) -> Option<usize> {
        let [a, b] = [0, 1].map(|end: usize| self.inventory.nodes.get_index_of(&tunnel.between[end]));
        match (a?, b?) {
            (a, b) if a == node => Some(b),
            (a, b) if b == node => Some(a),
            _ => None,
        }
    }

    /// A node at the end of tunnels takes labels in UDP at its loopback address.
    pub(crate) fn udp_endpoint(&mut self, node: usize) {
        let inventory = self.inventory;
        let ends = inventory.tunnels.iter().filter_map(|tunnel| Some((tunnel, self.far_end(tunnel, node)?)));
        let ends: Vec<(bool, Ipv6Addr)> =
            ends.map(|(tunnel, end)| (tunnel.zero_checksum, inventory.nodes[end].loopback)).collect();
        if ends.is_empty() {
            return;
        }
        let zero_checksum_from = covering(ends.into_iter().filter(|(zero, _)| *zero).map(|(_, address)| address));
        let address = inventory.nodes[node].loopback.into();
        self.nodes[node].udp_endpoints.push(UdpEndpoint { address, zero_checksum_from });
    }
}

/// The longest prefix that has all of some addresses.
fn covering(addresses: impl Iterator<Item = Ipv6Addr>) -> Option<Ipv6Net> {
    addresses.map(Ipv6Net::from).reduce(|all, one| {
        let common = (all.addr().to_bits() ^ one.addr().to_bits()).leading_zeros();
        let length = u8::try_from(common).unwrap_or(128).min(all.prefix_len());
        Ipv6Net::new_assert(all.addr(), length).trunc()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_covers_no_more_than_it_has_to() {
        let of = |addresses: &[&str]| {
            let prefix = covering(addresses.iter().map(|address| address.parse().unwrap()));
            prefix.map(|prefix| prefix.to_string()).unwrap_or_default()
        };
        assert_eq!(of(&[]), "");
        assert_eq!(of(&["fc00:5ea:2::1"]), "fc00:5ea:2::1/128");
        assert_eq!(of(&["fc00:5ea:2::1", "fc00:5ea:3::1"]), "fc00:5ea:2::/47");
        assert_eq!(of(&["fc00:5ea:2::1", "fc00:5ea:2::1", "fc00:5ea:7::1", "fc00:5ea:2::2"]), "fc00:5ea::/45");
        assert_eq!(of(&["8000::1", "::1"]), "::/0");
    }
}
