//! Packet sockets that take and give packets merged by segmentation offload whole (`AF_PACKET` with `PACKET_VNET_HDR`).

#![allow(unsafe_code)] // options of packet sockets that nix lacks

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Error, Result};
use crate::interface::{self, Interface};
use crate::socket;

/// Octets of [`VirtioHeader`] in front of each frame.
pub const VIRTIO_LENGTH: usize = size_of::<VirtioHeader>();

/// `struct virtio_net_hdr` (virtio 1.2 section 5.1.6; linux/virtio_net.h), numbers in host byte order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VirtioHeader {
    /// [`VirtioHeader::NEEDS_CHECKSUM`] and others.
    pub flags: u8,
    /// What kind of segments these are; 0: it is one packet.
    pub kind: u8,
    /// Octets of the frame that are headers.
    pub header_length: u16,
    /// Octets of payload of each segment.
    pub segment_size: u16,
    /// With [`VirtioHeader::NEEDS_CHECKSUM`]: from where in the frame on the checksum is to be made,
    pub checksum_start: u16,
    /// and where behind that it belongs.
    pub checksum_offset: u16,
}

impl VirtioHeader {
    /// In `flags`: the checksum is of the pseudo header only, yet.
    pub const NEEDS_CHECKSUM: u8 = 1;

    /// Reads what is in front of a frame.
    #[must_use]
    pub fn read(octets: &[u8]) -> Option<Self> {
        Some(Self::read_from_prefix(octets).ok()?.0)
    }
}

/// `PACKET_IGNORE_OUTGOING` (linux/if_packet.h), which libc lacks.
const IGNORE_OUTGOING: i32 = 23;
/// `PACKET_FANOUT_EBPF` (linux/if_packet.h).
const FANOUT_EBPF: u32 = 7;
/// `PACKET_FANOUT_FLAG_UNIQUEID` (linux/if_packet.h), as it lies in the option: the kernel picks the group's number.
const FANOUT_UNIQUE: u32 = 0x2000 << 16;
/// Octets that wait in a socket for who reads, and for the interface, at most; the kernel counts what it needs around them, too.
const ROOM: i32 = 32 << 20;
const REMEDY: &str = "be root (CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF), on Linux 6.1 or newer";

/// One worker's socket. What comes are frames with a [`VirtioHeader`] in front.
#[derive(Debug)]
pub struct MergedSocket(File);

impl MergedSocket {
    /// One for each worker of an interface. `filter` and `spread`: programs of type socket filter, which say what they take, and who.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn open(interface: &Interface, workers: u32, filter: RawFd, spread: RawFd) -> Result<Vec<Self>> {
        let mut group = FANOUT_UNIQUE;
        let mut sockets = Vec::new();
        for worker in 0..workers {
            // Protocol 0: it receives nothing before all is set.
            // SAFETY: no pointers.
            let fd =
                unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
            if fd < 0 {
                return Err(Error::last("open a packet socket", REMEDY));
            }
            // SAFETY: it was just opened, and nobody else has it.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            set(&fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1i32, "have packets with virtio headers")?;
            set(&fd, libc::SOL_PACKET, IGNORE_OUTGOING, &1i32, "leave out what is sent")?;
            set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &ROOM, "make room for packets that come")?;
            set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &ROOM, "make room for packets that leave")?;
            set(&fd, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &filter, "say which packets it takes")?;
            // All: those of one protocol get their packets behind the hook of tc, where these have ended.
            interface::bind(&fd, interface, libc::ETH_P_ALL as u16)
                .map_err(|()| Error::last("bind a packet socket", REMEDY))?;
            if workers > 1 {
                // Type and flags above the group's number; the first one learns it.
                set(&fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &(group | FANOUT_EBPF << 16), "share packets")?;
                if worker == 0 {
                    group = get::<u32>(&fd, libc::PACKET_FANOUT)? & 0xffff;
                    set(&fd, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, &spread, "say who gets which packet")?;
                }
            }
            sockets.push(Self(fd.into()));
        }
        Ok(sockets)
    }

    /// A frame, with its [`VirtioHeader`] in front; `buffer` should have 66,000 octets. Returns their number. None: nothing has come.
    ///
    /// # Errors
    /// If the interface is gone.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.0).read(buffer) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // Told once; when the interface is up again, packets come again.
            Err(error) if error.kind() == io::ErrorKind::NetworkDown => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a frame, of which `link` is the first part.
    ///
    /// # Errors
    /// If the kernel does not take it: it is larger than the interface can send, or its header contradicts itself; there is no room.
    pub fn send(&self, header: &VirtioHeader, link: &[u8], octets: &[u8]) -> io::Result<()> {
        let parts = [header.as_bytes(), link, octets].map(IoSlice::new);
        (&self.0).write_vectored(&parts).map(drop)
    }

    /// Packets that were lost for want of room since this was last asked.
    #[must_use]
    pub fn lost(&self) -> u32 {
        get::<libc::tpacket_stats>(&self.0, libc::PACKET_STATISTICS).map_or(0, |found| found.tp_drops)
    }
}

impl AsFd for MergedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn set<T>(fd: &OwnedFd, level: i32, option: i32, value: &T, what: &str) -> Result<()> {
    socket::set(fd, level, option, value)
        .map_err(|()| Error::last(format!("{what}: a packet socket's option {option}"), REMEDY))
}

/// `T`: plain numbers, for which all zeros is a value.
fn get<T: Copy>(fd: &impl AsRawFd, option: i32) -> Result<T> {
    // SAFETY: numbers.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives through the call, which writes at most `length` octets.
    let done = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            std::ptr::from_mut(&mut value).cast(),
            &raw mut length,
        )
    };
    if done == 0 { Ok(value) } else { Err(Error::last(format!("ask for a packet socket's option {option}"), REMEDY)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtio_header_is_ten_octets() {
        assert_eq!(VIRTIO_LENGTH, 10);
        let header = VirtioHeader {
            flags: 1,
            kind: 4,
            header_length: 134,
            segment_size: 1348,
            checksum_start: 114,
            checksum_offset: 16,
        };
        assert_eq!(VirtioHeader::read(header.as_bytes()), Some(header));
        assert_eq!(VirtioHeader::read(&[0; 9]), None);
    }
}
