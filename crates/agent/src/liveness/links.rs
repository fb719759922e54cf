//! Whether interfaces are up, from the kernel's own notifications alone: nothing is asked again, so nothing older can
//! overtake something newer.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd, BorrowedFd},
};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    link::{LinkAttribute, LinkFlags, LinkMessage},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

const RTNLGRP_LINK: u32 = 1;
/// Room for a burst of notifications, octets; the kernel caps it at net.core.rmem_max.
const RECEIVE_BUFFER: usize = 1 << 20;

#[derive(Debug)]
struct Link {
    name: String,
    up: bool,
    /// The list in which it was seen last.
    round: u32,
}

/// The interfaces of the network namespace in which it was opened.
#[derive(Debug)]
pub struct Links {
    socket: Socket,
    links: BTreeMap<u32, Link>,
    /// Names of those that are up.
    up: BTreeSet<String>,
    /// Number of the list that was asked for last; also its sequence number.
    round: u32,
    /// Some list has been read to its end.
    complete: bool,
    interrupted: bool,
}

impl Links {
    /// Subscribes, and asks for the interfaces that there are.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        socket.add_membership(RTNLGRP_LINK)?;
        socket.set_rx_buf_sz(RECEIVE_BUFFER)?;
        socket.set_non_blocking(true)?;
        let mut links =
            Self { socket, links: BTreeMap::new(), up: BTreeSet::new(), round: 0, complete: false, interrupted: false };
        links.ask()?;
        Ok(links)
    }

    /// Whether the interface of this name is up with a carrier and operational; one that is not there is not. `None` until
    /// the kernel has told.
    pub fn up(&self, name: &str) -> Option<bool> {
        if !self.complete {
            return None;
        }
        Some(self.up.contains(name))
    }

    /// Reads all that has come; returns the names of interfaces of which something changed.
    pub fn read(&mut self) -> io::Result<BTreeSet<String>> {
        let mut changed = BTreeSet::new();
        loop {
            match self.socket.recv_from_full() {
                Ok((bytes, _)) => self.messages(&bytes, &mut changed)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changed),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // More came than fits.
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => self.ask()?,
                Err(error) => return Err(error),
            }
        }
    }

    fn ask(&mut self) -> io::Result<()> {
        self.round = self.round.wrapping_add(1).max(1);
        self.interrupted = false;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        header.sequence_number = self.round;
        let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        match self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0) {
            // A list is being sent already; whoever notices its end asks again.
            Err(error) if error.raw_os_error() == Some(nix::libc::EBUSY) => {
                self.interrupted = true;
                Ok(())
            }
            result => result.map(drop),
        }
    }

    fn messages(&mut self, bytes: &[u8], changed: &mut BTreeSet<String>) -> io::Result<()> {
        let mut rest = bytes;
        while rest.len() >= 16 {
            let length = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
            if length < 16 || length > rest.len() {
                return Ok(());
            }
            match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&rest[..length]) {
                Ok(message) => self.message(message, changed)?,
                // An interface with an attribute that this version cannot read: the rest is still right.
                Err(error) => tracing::debug!(%error, "a notification about an interface cannot be read"),
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        }
        Ok(())
    }

    fn message(
        &mut self,
        message: NetlinkMessage<RouteNetlinkMessage>,
        changed: &mut BTreeSet<String>,
    ) -> io::Result<()> {
        let of_list = message.header.sequence_number == self.round;
        self.interrupted |= of_list && message.header.flags & NLM_F_DUMP_INTR != 0;
        match message.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => self.note(&link, changed),
            // A port that leaves a bridge is told as the end of a link of another family.
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link))
                if link.header.interface_family == AddressFamily::Unspec =>
            {
                if let Some(link) = self.links.remove(&link.header.index) {
                    self.up.remove(&link.name);
                    changed.insert(link.name);
                }
            }
            NetlinkPayload::Done(_) if of_list && self.interrupted => self.ask()?,
            NetlinkPayload::Done(_) if of_list => self.list_ends(changed),
            NetlinkPayload::Error(error) if of_list && error.code.is_some() => self.ask()?,
            _ => {}
        }
        Ok(())
    }

    fn note(&mut self, link: &LinkMessage, changed: &mut BTreeSet<String>) {
        let name = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        });
        let (Some(name), AddressFamily::Unspec) = (name, link.header.interface_family) else { return };
        // IFF_LOWER_UP is the carrier, IFF_RUNNING the operational state.
        let up = link.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp | LinkFlags::Running);
        let round = self.round;
        let before = self.links.insert(link.header.index, Link { name: name.clone(), up, round });
        if let Some(before) = &before {
            self.up.remove(&before.name);
        }
        if up {
            self.up.insert(name.clone());
        } else {
            self.up.remove(&name);
        }
        match before {
            Some(before) if before.name == name && before.up == up => {}
            before => {
                changed.extend(before.map(|before| before.name));
                changed.insert(name);
            }
        }
    }

    /// What the list did not have is gone.
    fn list_ends(&mut self, changed: &mut BTreeSet<String>) {
        let round = self.round;
        changed.extend(self.links.values().filter(|link| link.round != round).map(|link| link.name.clone()));
        self.links.retain(|_, link| link.round == round);
        self.up = self.links.values().filter(|link| link.up).map(|link| link.name.clone()).collect();
        if !self.complete {
            self.complete = true;
            changed.extend(self.links.values().map(|link| link.name.clone()));
        }
    }

    /// Whether the first list has been read.
    pub fn complete(&self) -> bool {
        self.complete
    }
}

impl AsFd for Links {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
