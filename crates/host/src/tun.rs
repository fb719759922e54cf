//! A TUN device from the user's side: IP packets without a link layer, for programs that take them from an interface.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use crate::link::LinkSocket;
use crate::tap::open_device;
use crate::{HostError, Result, sysctl};

/// Octets of the largest packet, and the device's MTU.
pub const LARGEST: usize = 65_535;

/// The user's side of a TUN device, which is up. A device that nobody made before goes with it.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

impl Tun {
    /// Opens the device of this name in the calling thread's network namespace; makes it if there is none. The kernel's own IP
    /// neither forwards nor answers what comes from it: it is for programs that take packets from the interface itself (packet sockets,
    /// libpcap).
    ///
    /// # Errors
    /// No CAP_NET_ADMIN, the name is taken, or it is longer than 15 octets; a sysctl that cannot be set.
    pub fn open(name: &str) -> Result<Self> {
        let remedy = "be root (CAP_NET_ADMIN), and see with `ip tuntap` whether another program has it";
        let file = open_device(name, libc::IFF_TUN).map_err(HostError::io("open the TUN device", name, remedy))?;
        // Before it is up, so that no packet is seen by the kernel's own IP. Where the kernel has no IPv6, there is nothing to switch off.
        let ipv6 = format!("net/ipv6/conf/{name}/disable_ipv6");
        if sysctl::get(&ipv6)?.is_some() {
            sysctl::set(&ipv6, "1")?;
        }
        sysctl::set(&format!("net/ipv4/conf/{name}/forwarding"), "0")?;
        LinkSocket::open()?.settle(name, None, LARGEST as u32)?;
        Ok(Self { file })
    }

    /// Opens a device whose packets the kernel's own IP takes, as from any interface: what is for the namespace is delivered, the rest
    /// forwarded if the namespace forwards. It has no address.
    ///
    /// # Errors
    /// As [`Tun::open`].
    pub fn open_for_kernel(name: &str) -> Result<Self> {
        let remedy = "be root (CAP_NET_ADMIN), and see with `ip tuntap` whether another program has it";
        let file = open_device(name, libc::IFF_TUN).map_err(HostError::io("open the TUN device", name, remedy))?;
        for (key, value) in [
            ("net/ipv4/conf/{}/rp_filter", "0"),
            ("net/ipv6/conf/{}/accept_ra", "0"),
            ("net/ipv6/conf/{}/accept_dad", "0"),
            ("net/ipv6/conf/{}/addr_gen_mode", "1"),
            ("net/ipv6/conf/{}/seg6_enabled", "1"),
        ] {
            let key = key.replace("{}", name);
            if sysctl::get(&key)?.is_some() {
                sysctl::set(&key, value)?;
            }
        }
        LinkSocket::open()?.settle(name, None, LARGEST as u32)?;
        Ok(Self { file })
    }

    /// Gives a packet to those who look at the interface.
    ///
    /// # Errors
    /// If the device is down, or it does not take the packet whole.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        match (&self.file).write(packet)? {
            sent if sent == packet.len() => Ok(()),
            sent => Err(io::Error::other(format!("{sent} of {} octets were taken", packet.len()))),
        }
    }

    /// The next packet that somebody has sent by the interface, into `buffer`: how many octets; none if no packet waits.
    ///
    /// # Errors
    /// If the device is gone.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match (&self.file).read(buffer) {
                Ok(length) => return Ok(Some(length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
