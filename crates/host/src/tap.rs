//! A TAP device from the user's side: what a virtual machine or a user-space function sees of a node's interface.

#![allow(unsafe_code)] // the device is made by an ioctl() that has no safe wrapper

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{HostError, Result};

const DEVICE: &str = "/dev/net/tun";
/// The longest frame, of a device with the largest MTU.
const FRAME: usize = 65_536;

/// The user's side of a TAP device. A device that nobody made before goes with it.
#[derive(Debug)]
pub struct Tap {
    file: File,
}

impl Tap {
    /// Opens the device of this name in the calling thread's network namespace; makes it if there is none.
    ///
    /// # Errors
    /// No root, the name is taken, or it is longer than 15 octets.
    pub fn open(name: &str) -> Result<Self> {
        let file = open_device(name, libc::IFF_TAP).map_err(|cause| {
            HostError::io(
                "open the TAP device",
                name,
                "be root, and see with `ip tuntap` whether another program has it",
            )(cause)
        })?;
        Ok(Self { file })
    }

    /// Makes a device of this name that stays until it is removed, whoever opens it and closes it again.
    ///
    /// # Errors
    /// Those of [`Tap::open`].
    pub fn make(name: &str) -> Result<()> {
        let device = Self::open(name)?;
        // SAFETY: the kernel takes a number.
        let kept = unsafe { libc::ioctl(device.file.as_raw_fd(), libc::TUNSETPERSIST, 1) };
        if kept < 0 {
            let remedy = "be root, and see with `ip tuntap` whether another program has it";
            return Err(HostError::io("keep the TAP device", name, remedy)(io::Error::last_os_error()));
        }
        Ok(())
    }

    /// Gives a frame to the node.
    ///
    /// # Errors
    /// If the node does not take it whole: the device is down, or the frame is shorter than an Ethernet header.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        match (&self.file).write(frame)? {
            sent if sent == frame.len() => Ok(()),
            sent => Err(io::Error::other(format!("{sent} of {} octets were taken", frame.len()))),
        }
    }

    /// The next frame from the node, if one comes within `limit`.
    ///
    /// # Errors
    /// If the device is gone.
    pub fn receive(&self, limit: Duration) -> io::Result<Option<Vec<u8>>> {
        let end = Instant::now() + limit;
        let mut frame = vec![0_u8; FRAME];
        loop {
            match (&self.file).read(&mut frame) {
                Ok(length) => {
                    frame.truncate(length);
                    return Ok(Some(frame));
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)], timeout);
        }
    }
}

/// The user's side of the TUN or TAP device of this name, which does not wait; the kernel makes the device if there is none.
pub(crate) fn open_device(name: &str, kind: libc::c_int) -> io::Result<File> {
    let file = File::options().read(true).write(true).open(DEVICE)?;
    // SAFETY: all zeros is a valid `ifreq`: an empty name and a union of plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One octet of zero stays behind the name.
    let longest = request.ifr_name.len() - 1;
    if name.is_empty() || name.len() > longest {
        return Err(io::Error::other(format!("the name of an interface has 1 to {longest} octets")));
    }
    for (octet, letter) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *octet = letter as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the kernel reads and writes one `ifreq`, which lives through the call.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    fcntl(&file, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(file)
}
