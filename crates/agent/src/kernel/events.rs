//! The kernel's notifications about links, addresses, routes and neighbours, gathered into bursts.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{RouteNetlinkMessage, link::LinkAttribute};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// RTNLGRP_LINK, RTNLGRP_NEIGH, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE.
const GROUPS: [u32; 6] = [1, 3, 5, 7, 9, 11];
/// Room for a burst of notifications, octets; the kernel caps it at net.core.rmem_max.
const RECEIVE_BUFFER: usize = 1 << 20;

/// What a burst of notifications touched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Links or addresses: ports may have changed.
    pub links: bool,
    /// Routes or neighbours: adjacencies may have changed.
    pub routes: bool,
    /// A route with Segue's protocol number went, and perhaps should not have.
    pub own_route_gone: bool,
}

impl Changes {
    /// When nobody knows what was missed.
    pub const EVERYTHING: Self = Self { links: true, routes: true, own_route_gone: true };

    fn any(self) -> bool {
        self.links || self.routes
    }
}

/// A subscription in the network namespace in which it was opened.
pub struct Events {
    socket: Socket,
}

impl Events {
    /// Subscribes.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        socket.set_rx_buf_sz(RECEIVE_BUFFER)?;
        socket.set_non_blocking(true)?;
        Ok(Self { socket })
    }

    /// Waits at most `timeout` for a notification, then gathers what follows within `quiet`, but no longer than four
    /// times that; `Changes::default()` if nothing came.
    pub fn wait(&mut self, timeout: Duration, quiet: Duration) -> io::Result<Changes> {
        let mut changes = Changes::default();
        if !self.readable(timeout)? {
            return Ok(changes);
        }
        self.drain(&mut changes)?;
        let end = Instant::now() + 4 * quiet;
        while changes.any() && Instant::now() < end && self.readable(quiet)? {
            self.drain(&mut changes)?;
        }
        Ok(changes)
    }

    fn readable(&self, timeout: Duration) -> io::Result<bool> {
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        let mut descriptors = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        match poll(&mut descriptors, timeout) {
            Ok(count) => Ok(count > 0),
            Err(nix::errno::Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn drain(&mut self, changes: &mut Changes) -> io::Result<()> {
        loop {
            match self.socket.recv_from_full() {
                Ok((bytes, _)) => read(&bytes, changes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // More came than fits: what was lost may have been anything.
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => {
                    *changes = Changes::EVERYTHING;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn read(bytes: &[u8], changes: &mut Changes) {
    let mut rest = bytes;
    while rest.len() >= 16 {
        let length = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
        if length < 16 || length > rest.len() {
            return;
        }
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&rest[..length]).map(|message| message.payload) {
            Ok(NetlinkPayload::InnerMessage(message)) => note(&message, changes),
            Ok(_) => {}
            // A notification that this version can not read may matter.
            Err(_) => *changes = Changes::EVERYTHING,
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
}

fn note(message: &RouteNetlinkMessage, changes: &mut Changes) {
    use RouteNetlinkMessage as Message;
    match message {
        // Wireless devices announce statistics in link messages.
        Message::NewLink(link) if link.attributes.iter().any(|a| matches!(a, LinkAttribute::Wireless(_))) => {}
        Message::NewLink(_) | Message::DelLink(_) | Message::NewAddress(_) | Message::DelAddress(_) => {
            changes.links = true;
        }
        Message::DelRoute(route) => {
            changes.routes = true;
            changes.own_route_gone |= u8::from(route.header.protocol) == super::ROUTE_PROTOCOL;
        }
        Message::NewRoute(_) | Message::NewNeighbour(_) | Message::DelNeighbour(_) => {
            changes.routes = true;
        }
        _ => {}
    }
}
