//! Links of devices that are on a bus, such as the virtual functions of network cards: nobody makes or removes them, they are only moved.

use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};

use super::{Link, LinkSocket};
use crate::{Namespace, Result};

impl Link {
    /// Where on its bus the device is, such as `0000:01:10.0`.
    pub fn parent(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    /// Its link-layer address, if it is one of Ethernet.
    pub fn mac(&self) -> Option<[u8; 6]> {
        self.mac.as_slice().try_into().ok()
    }

    /// The longest packet that it takes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }
}

impl LinkSocket {
    /// Takes a link down; nothing happens if there is none.
    pub fn take_down(&mut self, name: &str) -> Result<()> {
        let Some(link) = self.find(name)?.filter(Link::is_up) else { return Ok(()) };
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        message.header.change_mask = LinkFlags::Up;
        self.change("take down", name, RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Gives a link another link-layer address.
    pub fn set_mac(&mut self, name: &str, mac: [u8; 6]) -> Result<()> {
        let Some(link) = self.find(name)? else { return Ok(()) };
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        message.attributes.push(LinkAttribute::Address(mac.to_vec()));
        self.change("set the link-layer address of", name, RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Moves a link that is down into another namespace, where it gets another name.
    pub fn hand_over(&mut self, name: &str, other: &str, namespace: &Namespace) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.find(name)?.unwrap_or_default().index;
        message.attributes = vec![
            LinkAttribute::NetNsFd(namespace.as_fd().as_raw_fd()),
            // In the same breath: there may be one of the old name there.
            LinkAttribute::IfName(other.to_owned()),
        ];
        self.change("move", name, RouteNetlinkMessage::SetLink(message), 0)
    }
}
