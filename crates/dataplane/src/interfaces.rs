//! Lists the interfaces of a network namespace by rtnetlink.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use segue_host::netlink::{Netlink, NetlinkError};

use crate::Error;
use crate::facts::{Hook, Interface, Interfaces};

impl Interfaces {
    /// The interfaces of the calling thread's network namespace. Blocks for as long as the kernel takes to answer.
    ///
    /// # Errors
    /// [`Error::Netlink`] if the kernel does not answer as it should.
    pub fn query() -> Result<Self, Error> {
        let mut interfaces = Self::default();
        let mut vrfs = BTreeSet::new();
        dump(RouteNetlinkMessage::GetLink(LinkMessage::default()), |answer| {
            if let RouteNetlinkMessage::NewLink(link) = answer {
                vrfs.extend(is_vrf(&link).then_some(link.header.index));
                interfaces.add_link(&link);
            }
        })?;
        for interface in interfaces.0.values_mut() {
            // Until here any device above it, such as a bridge.
            interface.vrf = interface.vrf.filter(|above| vrfs.contains(above));
        }
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut all = RuleMessage::default();
            all.header.family = family;
            dump(RouteNetlinkMessage::GetRule(all), |answer| {
                if let RouteNetlinkMessage::NewRule(rule) = answer {
                    interfaces.add_rule(&rule);
                }
            })?;
        }
        let names: BTreeMap<u32, String> =
            interfaces.0.iter().map(|(name, interface)| (interface.ifindex, name.clone())).collect();
        dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()), |answer| {
            if let RouteNetlinkMessage::NewAddress(address) = answer
                && let Some(interface) = names.get(&address.header.index).and_then(|name| interfaces.0.get_mut(name))
            {
                interface.addresses.extend(own_address(&address));
            }
        })?;
        Ok(interfaces)
    }

    fn add_link(&mut self, link: &LinkMessage) {
        // IFF_LOWER_UP is the carrier.
        let up = link.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp);
        let mut interface = Interface {
            ifindex: link.header.index,
            mtu: 0,
            mac: [0; 6],
            addresses: Vec::new(),
            up,
            peer_elsewhere: false,
            vrf: None,
            ruled: false,
            hook: Hook::default(),
            takes_frames: true,
        };
        let (mut name, mut veth, mut elsewhere) = (None, false, false);
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::IfName(text) => name = Some(text.clone()),
                LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
                LinkAttribute::Address(octets) => interface.mac = octets.as_slice().try_into().unwrap_or_default(),
                // Of other kinds it is the namespace of the lower device.
                LinkAttribute::LinkInfo(info) => veth = info.contains(&LinkInfo::Kind(InfoKind::Veth)),
                LinkAttribute::LinkNetNsId(_) => elsewhere = true,
                LinkAttribute::Controller(above) => interface.vrf = Some(*above),
                _ => {}
            }
        }
        interface.peer_elsewhere = veth && elsewhere;
        if let Some(name) = name {
            self.0.insert(name, interface);
        }
    }

    fn add_rule(&mut self, rule: &RuleMessage) {
        for attribute in &rule.attributes {
            if let RuleAttribute::Iifname(name) = attribute
                && let Some(interface) = self.0.get_mut(name)
            {
                interface.ruled = true;
            }
        }
    }
}

fn is_vrf(link: &LinkMessage) -> bool {
    let kind = LinkInfo::Kind(InfoKind::Vrf);
    link.attributes.iter().any(|attribute| matches!(attribute, LinkAttribute::LinkInfo(info) if info.contains(&kind)))
}

fn own_address(message: &AddressMessage) -> Option<IpNet> {
    // On point-to-point links `Address` is the peer's, `Local` the own; elsewhere IPv6 has only `Address`.
    let find = |own: bool| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(address) if own => Some(*address),
            AddressAttribute::Address(address) if !own => Some(*address),
            _ => None,
        })
    };
    let address: IpAddr = find(true).or_else(|| find(false))?;
    IpNet::new(address, message.header.prefix_len).ok()
}

pub(crate) fn dump(request: RouteNetlinkMessage, answer: impl FnMut(RouteNetlinkMessage)) -> Result<(), Error> {
    let failed = |error: NetlinkError| Error::Netlink(error.to_string());
    let answers = Netlink::open(NETLINK_ROUTE).and_then(|mut netlink| netlink.dump(request)).map_err(failed)?;
    answers.into_iter().for_each(answer);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_listed() {
        let interfaces = Interfaces::query().expect("an answer of the kernel");
        let loopback = interfaces.get("lo").expect("every namespace has lo");
        assert_eq!(interfaces.name(loopback.ifindex), Some("lo"));
        assert!(loopback.mtu > 0);
        if loopback.up {
            assert!(loopback.addresses.contains(&"127.0.0.1/8".parse().expect("a prefix")));
        }
    }
}
