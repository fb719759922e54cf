//! A TAP device: what a virtual machine or a user-space function sees of a node's interface.

#![allow(unsafe_code)] // the device is made by an ioctl() that has no safe wrapper

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::netns::Netns;

/// The user's side of a TAP device. The device goes with it.
#[derive(Debug)]
pub struct Tap {
    file: File,
}

impl Tap {
    /// Makes a device of this name in `netns`, with this link-layer address of the node's side, up.
    ///
    /// # Panics
    ///
    /// Without root, or when the name is taken or longer than 15 octets.
    pub fn new(netns: &Netns, name: &str, mac: &str, mtu: u32) -> Self {
        let tap = netns.enter(|| Self::open(name).unwrap_or_else(|error| panic!("TAP device {name}: {error}")));
        netns.sh(&format!("ip link set dev {name} address {mac} mtu {mtu} up"));
        tap
    }

    fn open(name: &str) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open("/dev/net/tun")?;
        // SAFETY: all zeros is a valid `ifreq`: an empty name and a union of plain data.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // One octet of zero stays behind the name.
        let (_, place) = request.ifr_name.split_last_mut().expect("16 octets");
        assert!(name.len() <= place.len(), "{name:?} is too long for an interface");
        for (octet, letter) in place.iter_mut().zip(name.bytes()) {
            *octet = letter as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the kernel reads and writes one `ifreq`, which lives through the call.
        let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: no pointer is passed.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { file })
    }

    /// Gives a frame to the node.
    ///
    /// # Panics
    ///
    /// When the node does not take it: the device is down, or the frame is shorter than an Ethernet header.
    pub fn send(&self, frame: &[u8]) {
        use std::io::Write;
        let sent = (&self.file).write(frame);
        assert_eq!(sent.ok(), Some(frame.len()), "sending {} octets", frame.len());
    }

    /// The next frame from the node, if one comes within `limit`.
    pub fn receive(&self, limit: Duration) -> Option<Vec<u8>> {
        use std::io::Read;
        let end = Instant::now() + limit;
        let mut frame = vec![0_u8; 65_536];
        loop {
            match (&self.file).read(&mut frame) {
                Ok(length) => {
                    frame.truncate(length);
                    return Some(frame);
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => panic!("reading from the TAP device: {error}"),
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)], timeout);
        }
    }
}
