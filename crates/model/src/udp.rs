//! Labels in UDP (RFC 7510): how next hops are reached through networks that know no labels (RFC 8663), and where a node takes such packets.

use std::net::IpAddr;

use ipnet::Ipv6Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Hop limit or TTL of the outer header of labels that are swapped or popped; lists have that of their policy.
pub const UDP_HOP_LIMIT: u8 = 64;
/// The least MTU of a path that is not mistaken for something else: what every IPv4 host takes (RFC 791).
pub const PATH_MTU_MIN: u16 = 576;
/// The same for IPv6 (RFC 8200 section 5).
pub const PATH_MTU_MIN_IPV6: u16 = 1280;

/// The way to a node that is no neighbour: labels go there in UDP, to port 6635. The source address is the node's own, and the source
/// port tells the flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UdpTunnel {
    /// That node's address, which it takes labels in UDP at; it is reached by route. IPv4 needs `source_address_ipv4`.
    pub destination: IpAddr,
    /// Octets of the largest IP packet that the path takes; what the first link takes if not given. Nothing tells this node that a router
    /// further on has less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// IPv6: UDP without a checksum, which the other end must be willing to take from this node (RFC 7510 section 3.1). IPv4 never has one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub zero_checksum: bool,
}

/// An address of the node at which it takes labels in UDP, from core ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UdpEndpoint {
    /// One of the node's own, in no SID block.
    pub address: IpAddr,
    /// IPv6: sources in this prefix may send without a checksum (RFC 6936); from others such packets are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub zero_checksum_from: Option<Ipv6Net>,
}

impl UdpEndpoint {
    /// What lists of SIDs and labels have in the place of a behaviour.
    pub const BEHAVIOUR: &str = "udp_endpoint";

    /// What it is called where SIDs and labels are listed.
    pub fn name(&self) -> String {
        format!("udp {}", self.address)
    }

    /// The key that it has among those of SIDs, which it is none of: IPv4 addresses are mapped (RFC 4291 section 2.5.5.2).
    pub fn key(&self) -> Ipv6Net {
        match self.address {
            IpAddr::V6(address) => address.into(),
            IpAddr::V4(address) => address.to_ipv6_mapped().into(),
        }
    }
}
