//! What a service needs to know of its interface, and how it sends where it has no AF_XDP socket.

#![allow(unsafe_code)] // system calls that nix lacks

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::{Error, Result};

/// An interface of the calling thread's network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Octets of the largest IP packet.
    pub mtu: usize,
    /// Its link-layer address.
    pub mac: [u8; 6],
    /// Queues that packets come in by, at least one.
    pub queues: u32,
}

/// Looks at an interface.
///
/// # Errors
/// If there is none of this name.
pub fn find(name: &str) -> Result<Interface> {
    let index = nix::net::if_::if_nametoindex(name).map_err(|_| Error::NoInterface(name.to_owned()))?;
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET6, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(Error::last(format!("ask for {name}"), "use a kernel with IPv6"));
    }
    // SAFETY: it was just opened, and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all zeros is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (octet, letter) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *octet = letter as libc::c_char;
    }
    let mut ask = |what| {
        // SAFETY: the kernel reads and writes one `ifreq`, which lives through the call.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), what, &raw mut request) };
        if done < 0 { Err(Error::last(format!("ask for {name}"), "see with `ip link`")) } else { Ok(request.ifr_ifru) }
    };
    // SAFETY: this call fills in this field.
    let mtu = unsafe { ask(libc::SIOCGIFMTU)?.ifru_mtu };
    // SAFETY: as above.
    let hardware = unsafe { ask(libc::SIOCGIFHWADDR)?.ifru_hwaddr };
    let mut mac = [0; 6];
    for (octet, found) in mac.iter_mut().zip(hardware.sa_data) {
        *octet = found as u8;
    }
    let queues = queues(&fd, &mut request).unwrap_or(1).max(1);
    Ok(Interface { index, mtu: usize::try_from(mtu).unwrap_or(0), mac, queues })
}

/// `struct ethtool_channels` (linux/ethtool.h), which libc lacks.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

/// `ETHTOOL_GCHANNELS`.
const GET_CHANNELS: u32 = 0x3c;

/// None: the driver does not say, as those with one queue do.
fn queues(fd: &OwnedFd, request: &mut libc::ifreq) -> Option<u32> {
    let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // SAFETY: the kernel reads and writes one `ifreq` and the structure that it names; both live through the call.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, std::ptr::from_mut(request)) };
    (done == 0).then_some(channels.receive + channels.combined)
}

/// Binds a packet socket. `protocol`: the ethertype that it receives, in host byte order; 0 for none.
pub(crate) fn bind(fd: &OwnedFd, interface: &Interface, protocol: u16) -> std::result::Result<(), ()> {
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = i32::try_from(interface.index).unwrap_or(i32::MAX);
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address lives through the call, and is as long as said.
    let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) };
    if bound < 0 { Err(()) } else { Ok(()) }
}

/// Sends frames by an interface through the kernel's queues (`AF_PACKET`): for what is sent seldom.
#[derive(Debug)]
pub struct RawSocket(OwnedFd);

impl RawSocket {
    /// For this interface.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn open(interface: &Interface) -> Result<Self> {
        let failed = || Error::last("open a packet socket", "be root (CAP_NET_RAW)");
        // Protocol 0: it receives nothing.
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(failed());
        }
        // SAFETY: it was just opened, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        bind(&fd, interface, 0).map_err(|()| failed())?;
        Ok(Self(fd))
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// If it does not fit, or the interface is gone or down.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the frame lives through the call, and is as long as said.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
