//! Whole frames from and to an interface.

#![allow(unsafe_code)] // bind() to an interface has no safe wrapper for packet sockets

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::RcvBufForce;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, send, setsockopt, socket};

use crate::netns::Netns;

/// Octets of frames, with the kernel's own data about each, that may wait in a socket.
const RECEIVE_BUFFER: usize = 16 << 20;

/// `SO_RCVMARK` (asm-generic/socket.h, Linux 5.19), which libc lacks.
const RECEIVE_MARK: libc::c_int = 75;

/// A packet socket bound to one interface. It receives all that arrives there (not what it sends itself), in order.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
}

impl PacketSocket {
    /// Opens one on `interface` in `netns`.
    ///
    /// # Panics
    ///
    /// Without CAP_NET_RAW, or when there is no such interface.
    pub fn open(netns: &Netns, interface: &str) -> Self {
        netns.enter(|| Self::bind(interface).unwrap_or_else(|error| panic!("packet socket on {interface}: {error}")))
    }

    /// Opens one in a network namespace that somebody else has made.
    ///
    /// # Panics
    ///
    /// As [`PacketSocket::open`]; if there is no such namespace.
    pub fn open_in(namespace: &str, interface: &str) -> Self {
        let opened = segue_host::namespace::inside(namespace, || Self::bind(interface));
        let opened = opened.unwrap_or_else(|error| panic!("namespace {namespace}: {error}"));
        opened.unwrap_or_else(|error| panic!("packet socket on {interface}: {error}"))
    }

    /// Opens one if there is such an interface: for interfaces that come and go.
    pub fn try_open(netns: &Netns, interface: &str) -> Option<Self> {
        netns.enter(|| Self::bind(interface).ok())
    }

    /// From now on frames that are sent have a `struct virtio_net_hdr` in front, and may leave segmentation and checksums to the interface, as
    /// it says. Those that come have one too.
    ///
    /// # Panics
    ///
    /// If the kernel refuses.
    pub fn with_offloads(self) -> Self {
        self.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1);
        self
    }

    /// What is sent has this mark, for as long as it stays in the namespace.
    ///
    /// # Panics
    ///
    /// If the kernel refuses.
    pub fn marking(self, mark: u32) -> Self {
        self.set(libc::SOL_SOCKET, libc::SO_MARK, mark as libc::c_int);
        self
    }

    /// Marks of frames that come are told by [`PacketSocket::receive_marked`].
    ///
    /// # Panics
    ///
    /// If the kernel refuses: before 5.19.
    pub fn telling_marks(self) -> Self {
        self.set(libc::SOL_SOCKET, RECEIVE_MARK, 1);
        self
    }

    fn set(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) {
        // SAFETY: the pointer and length describe `value`, which lives through the call.
        let set = unsafe {
            let length = size_of_val(&value) as libc::socklen_t;
            libc::setsockopt(self.socket.as_raw_fd(), level, option, (&raw const value).cast(), length)
        };
        assert_eq!(set, 0, "option {option}: {}", io::Error::last_os_error());
    }

    /// Sends a frame if the interface is still there and takes it.
    pub fn try_send(&self, frame: &[u8]) -> bool {
        matches!(send(self.socket.as_raw_fd(), frame, MsgFlags::empty()), Ok(_) | Err(Errno::ENOBUFS))
    }

    fn bind(interface: &str) -> io::Result<Self> {
        let index = nix::net::if_::if_nametoindex(interface)?;
        // No protocol yet: nothing of other interfaces may come in before it is bound.
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None::<SockProtocol>)?;
        // Frames may come faster for a while than a test on a busy machine reads them.
        setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER)?;
        let enable: libc::c_int = 1;
        for option in [libc::PACKET_IGNORE_OUTGOING, libc::PACKET_AUXDATA] {
            // SAFETY: the pointer and length describe `enable`, which lives through the call.
            let set = unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_PACKET,
                    option,
                    (&raw const enable).cast(),
                    size_of_val(&enable) as libc::socklen_t,
                )
            };
            if set != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the pointer and length describe `address`, which lives through the call.
        let bound = unsafe {
            libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as libc::socklen_t)
        };
        if bound == 0 { Ok(Self { socket }) } else { Err(io::Error::last_os_error()) }
    }

    /// Sends a frame; waits while the interface's queue is full (ENOBUFS), which only drops this frame.
    ///
    /// # Panics
    ///
    /// When the interface refuses it: down, or larger than its MTU; or has no room for a minute.
    pub fn send(&self, frame: &[u8]) {
        let end = Instant::now() + Duration::from_secs(60);
        let mut sent = send(self.socket.as_raw_fd(), frame, MsgFlags::empty());
        while sent == Err(Errno::ENOBUFS) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
            sent = send(self.socket.as_raw_fd(), frame, MsgFlags::empty());
        }
        assert_eq!(sent, Ok(frame.len()), "sending {} octets", frame.len());
    }

    /// The next frame, if one comes within `limit`.
    pub fn receive(&self, limit: Duration) -> Option<Vec<u8>> {
        self.receive_marked(limit).map(|(frame, _)| frame)
    }

    /// The same with its mark, 0 unless the socket is one of [`PacketSocket::telling_marks`].
    pub fn receive_marked(&self, limit: Duration) -> Option<(Vec<u8>, u32)> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(std::os::fd::AsFd::as_fd(&self.socket), PollFlags::POLLIN)], timeout) {
                Ok(0) => return None,
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => panic!("poll: {error}"),
            }
            match self.take() {
                Ok(taken) => return Some(taken),
                Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR | nix::errno::Errno::ENETDOWN) => {}
                Err(error) => panic!("recvmsg: {error}"),
            }
        }
    }

    /// A frame that has arrived, with its outermost 802.1Q tag where it stood: the kernel takes that out and tells it beside, as it does the mark.
    fn take(&self) -> nix::Result<(Vec<u8>, u32)> {
        let mut frame = vec![0_u8; 65_536];
        let mut control = [0_u64; 8];
        let mut data = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
        // SAFETY: all zeros is a valid `msghdr`: null pointers with lengths of 0.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut data;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control);
        // SAFETY: `header` describes `frame` and `control`, which live through the call.
        let length = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
        frame.truncate(nix::errno::Errno::result(length)? as usize);
        let (mut auxiliary, mut mark) = (None, 0);
        // SAFETY: the kernel has filled `header` and `control`; each message is as long as its type says.
        unsafe {
            let mut next = libc::CMSG_FIRSTHDR(&raw const header);
            while let Some(message) = next.as_ref() {
                let data = libc::CMSG_DATA(message);
                match (message.cmsg_level, message.cmsg_type) {
                    (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                        auxiliary = Some(data.cast::<libc::tpacket_auxdata>().read_unaligned());
                    }
                    (libc::SOL_SOCKET, libc::SO_MARK) => mark = data.cast::<u32>().read_unaligned(),
                    _ => {}
                }
                next = libc::CMSG_NXTHDR(&raw const header, message);
            }
        }
        if let Some(tag) = auxiliary.filter(|auxiliary| auxiliary.tp_status & libc::TP_STATUS_VLAN_VALID != 0) {
            let octets = [tag.tp_vlan_tpid.to_be_bytes(), tag.tp_vlan_tci.to_be_bytes()].concat();
            frame.splice(12..12, octets);
        }
        Ok((frame, mark))
    }

    /// The next frame that `wanted` likes, if one comes within `limit`; others are thrown away.
    pub fn receive_where(&self, limit: Duration, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let end = Instant::now() + limit;
        loop {
            let frame = self.receive(end.saturating_duration_since(Instant::now()))?;
            if wanted(&frame) {
                return Some(frame);
            }
        }
    }

    /// Throws away what has arrived.
    pub fn drain(&self) {
        while self.receive(Duration::ZERO).is_some() {}
    }
}
