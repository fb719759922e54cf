//! Labels in UDP: where they go, and where they come in.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::Ipv6Net;

use crate::check;
use crate::error::KeyPath;
use crate::udp::{PATH_MTU_MIN, PATH_MTU_MIN_IPV6, UdpTunnel};

use super::Check;

impl Check<'_> {
    /// `beside`: the keys beside it, and whether they are given: each would be another way.
    pub(super) fn udp_tunnel(&mut self, udp: Option<&UdpTunnel>, beside: &[(&str, bool)], key: &KeyPath) {
        let Some(udp) = udp else { return };
        let key = key.at("udp");
        if let Some((other, _)) = beside.iter().find(|(_, is_given)| *is_given) {
            let message = format!("there is `udp` beside `{other}`: packets cannot go both ways");
            self.error(&key, message, "remove one of the two");
        }
        let destination = key.at("destination");
        let least = match udp.destination {
            IpAddr::V6(address) => {
                if self.ipv6_address(address, &destination) && self.in_sid_block(address.into()) {
                    let message = format!("{address} lies in a SID block");
                    self.error(&destination, message, "write an address of the node, not a SID");
                }
                PATH_MTU_MIN_IPV6
            }
            IpAddr::V4(address) => {
                if let Some(problem) = check::ipv4_problem(address) {
                    self.error(&destination, format!("{address} {problem}"), "write the node's unicast address");
                }
                if self.state.source_address_ipv4.is_none() {
                    let message = "the outer header has no source address";
                    self.error(&destination, message, "add `source_address_ipv4:`, or write an IPv6 address");
                }
                if udp.zero_checksum {
                    let message = "UDP over IPv4 has no checksum here in any case";
                    self.error(&key.at("zero_checksum"), message, "remove the key");
                }
                PATH_MTU_MIN
            }
        };
        let own = self.state.mpls.iter().flat_map(|mpls| &mpls.udp_endpoints);
        if own.into_iter().any(|endpoint| endpoint.address == udp.destination) {
            let message = format!("{} is this node's own address", udp.destination);
            self.error(&destination, message, "write another node's");
        }
        if let Some(mtu) = udp.mtu.filter(|mtu| *mtu < least) {
            let message = format!("{mtu} octets are less than what every path takes");
            self.error(&key.at("mtu"), message, format!("choose {least} or more"));
        }
    }

    pub(super) fn udp_endpoints(&mut self) {
        let Some(mpls) = &self.state.mpls else { return };
        let endpoints = KeyPath::root().at("mpls").at("udp_endpoints");
        if !mpls.udp_endpoints.is_empty() && !self.state.knows_labels() {
            let message = "what comes in there are packets with labels, of which this node has none";
            self.error(&endpoints, message, "add the labels to `labels:`, or remove the key");
        }
        let mut seen = HashMap::new();
        for (position, endpoint) in mpls.udp_endpoints.iter().enumerate() {
            let key = endpoints.at(position);
            let address = key.at("address");
            if let Some(other) = seen.insert(endpoint.address, position) {
                let message = format!("the address {} is there twice", endpoint.address);
                self.error(&address, message, format!("remove it here, or from udp_endpoints[{other}]"));
            }
            match endpoint.address {
                IpAddr::V6(own) => {
                    let prefix = Ipv6Net::from(own);
                    let is_sid = self.in_sid_block(prefix)
                        || self.state.locator.is_some_and(|locator| locator.contains(&prefix))
                        || self.state.sids.iter().any(|sid| sid.sid.contains(&prefix));
                    if self.ipv6_address(own, &address) && is_sid {
                        let message = format!("{own} lies among SIDs");
                        self.error(&address, message, "write an address of the node that is outside of SID blocks");
                    }
                }
                IpAddr::V4(own) => {
                    if let Some(problem) = check::ipv4_problem(own) {
                        self.error(&address, format!("{own} {problem}"), "write a unicast address of the node");
                    }
                }
            }
            let Some(prefix) = endpoint.zero_checksum_from else { continue };
            let key = key.at("zero_checksum_from");
            self.truncated(prefix, &key);
            if endpoint.address.is_ipv4() {
                let message = "UDP over IPv4 may come without a checksum in any case";
                self.error(&key, message, "remove the key");
            } else if prefix.prefix_len() == 0 {
                let message = "::/0 lets anybody send what nobody can check";
                self.error(&key, message, "choose the prefix of the nodes that send so (RFC 7510 section 3.1)");
            }
        }
    }
}
