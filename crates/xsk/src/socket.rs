//! An AF_XDP socket: one queue of an interface, with a UMEM of its own.

#![allow(unsafe_code)] // system calls that nix lacks

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::frames::{Frames, Place};
use crate::memory::{Mapping, Umem};
use crate::ring::{Consumer, Offsets, Producer};

/// Octets of a frame: a page, the largest that the kernel takes.
pub const FRAME_LENGTH: usize = 4096;
/// Octets that the kernel leaves free in front of a packet that it puts into a frame (`XDP_PACKET_HEADROOM`).
pub const HEADROOM: usize = 256;
/// Octets of an Ethernet header.
pub const LINK_LENGTH: usize = 14;
/// Packets that one call makes the kernel send, at least.
const SEND_BATCH: u32 = 16;
/// `SO_PREFER_BUSY_POLL` and `SO_BUSY_POLL_BUDGET`, which libc lacks.
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;

/// How a socket is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Packets that each ring holds: a power of two, 64 to 32768. There are three times as many frames.
    pub ring_size: u32,
    /// Microseconds that a receive call polls the device by itself; 0: interrupts do.
    pub busy_poll: u32,
    /// Packets of several frames. Not before Linux 6.6.
    pub several_frames: bool,
    /// Only where the driver gives its frames without a copy.
    pub zero_copy: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { ring_size: 2048, busy_poll: 0, several_frames: true, zero_copy: false }
    }
}

/// What the kernel has counted of a socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that came to a full receive ring.
    pub receive_full: u64,
    /// Packets for which no frame was in the fill ring, as often as the kernel looked.
    pub fill_empty: u64,
    /// Other packets that were dropped on their way in.
    pub receive_dropped: u64,
    /// Descriptors that the kernel did not take.
    pub transmit_invalid: u64,
    /// Frames that were not where they should have been.
    pub faults: u64,
}

/// A packet that came in.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// In one frame, at these octets of it.
    Frame(u32, Range<usize>),
    /// It came in several, and was put together.
    Several(Vec<u8>),
}

/// One queue of an interface.
pub struct Socket {
    umem: Umem,
    rings: Rings,
    interface: String,
    several_frames: bool,
}

struct Rings {
    fd: OwnedFd,
    frames: Frames,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    receive: Consumer<libc::xdp_desc>,
    transmit: Producer<libc::xdp_desc>,
    /// Frames that are left to packets on their way out: the fill ring takes none of these.
    reserve: usize,
    /// The beginning of a packet whose last frame has not come yet.
    partial: Option<Vec<u8>>,
}

impl Socket {
    /// Opens the queue of an interface of the calling thread's network namespace. Packets come once a program redirects them
    /// ([`crate::Program::serve`]).
    ///
    /// # Errors
    /// If the kernel refuses; with what to do.
    pub fn open(interface: &str, queue: u32, options: Options) -> Result<Self> {
        if !options.ring_size.is_power_of_two() || !(64..=32768).contains(&options.ring_size) {
            let what = format!("a ring of {} packets is not possible", options.ring_size);
            return Err(Error::Option { what, remedy: "choose a power of two from 64 to 32768" });
        }
        let index = nix::net::if_::if_nametoindex(interface).map_err(|_| Error::NoInterface(interface.to_owned()))?;
        match Self::try_open(interface, index, queue, options) {
            // An older kernel knows no packets of several frames.
            Err(Error::Call { cause, .. }) if options.several_frames && is_invalid(&cause) => {
                Self::try_open(interface, index, queue, Options { several_frames: false, ..options })
            }
            result => result,
        }
    }

    fn try_open(interface: &str, index: u32, queue: u32, options: Options) -> Result<Self> {
        let size = options.ring_size;
        let count = size * 3;
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(Error::last("open an AF_XDP socket", "be root (CAP_NET_RAW), on a kernel with AF_XDP"));
        }
        // SAFETY: it was just opened, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let umem = Umem::new(count, FRAME_LENGTH).map_err(|cause| Error::Call {
            what: format!("map {count} frames"),
            cause,
            remedy: "free memory, or choose a smaller ring",
        })?;
        let address = umem.mapping().address().as_ptr() as u64;
        // SAFETY: all zeros is a value of this plain structure.
        let mut registration: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
        registration.addr = address;
        registration.len = umem.mapping().length() as u64;
        registration.chunk_size = FRAME_LENGTH as u32;
        let memory = "allow locked memory (`ulimit -l`), or choose a smaller ring";
        set(&fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)
            .map_err(|()| Error::last(format!("register {count} frames"), memory))?;
        for (option, size) in [
            (libc::XDP_UMEM_FILL_RING, size),
            (libc::XDP_UMEM_COMPLETION_RING, size),
            (libc::XDP_RX_RING, size),
            (libc::XDP_TX_RING, size),
        ] {
            set(&fd, libc::SOL_XDP, option, &size).map_err(|()| Error::last("make the rings", memory))?;
        }
        let at: libc::xdp_mmap_offsets = get(&fd, libc::XDP_MMAP_OFFSETS)
            .map_err(|()| Error::last("ask where the rings are", "use Linux 5.4 or newer"))?;
        let frames = Frames::new(count);
        let fill =
            Producer::new(ring(&fd, &at.fr, size, 8, libc::XDP_UMEM_PGOFF_FILL_RING as i64)?, place(&at.fr), size);
        let completion = Consumer::new(
            ring(&fd, &at.cr, size, 8, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64)?,
            place(&at.cr),
            size,
        );
        let descriptor = size_of::<libc::xdp_desc>();
        let receive = Consumer::new(ring(&fd, &at.rx, size, descriptor, libc::XDP_PGOFF_RX_RING)?, place(&at.rx), size);
        let transmit =
            Producer::new(ring(&fd, &at.tx, size, descriptor, libc::XDP_PGOFF_TX_RING)?, place(&at.tx), size);
        let rings =
            Rings { fd, frames, fill, completion, receive, transmit, reserve: size as usize / 2, partial: None };
        let mut socket = Self { umem, rings, interface: interface.to_owned(), several_frames: options.several_frames };
        socket.rings.refill();
        socket.bind(index, queue, options)?;
        socket.poll_busily(options.busy_poll)?;
        Ok(socket)
    }

    fn bind(&self, index: u32, queue: u32, options: Options) -> Result<()> {
        let copy = if options.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
        let several = if options.several_frames { libc::XDP_USE_SG } else { 0 };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: copy | libc::XDP_USE_NEED_WAKEUP | several,
            sxdp_ifindex: index,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: the address lives through the call, and is as long as said.
        let bound = unsafe { libc::bind(self.rings.fd.as_raw_fd(), (&raw const address).cast(), length) };
        if bound == 0 {
            return Ok(());
        }
        let what = format!("bind to queue {queue} of {}", self.interface);
        Err(match Errno::last() {
            Errno::EBUSY => Error::last(what, "end the other program that has this queue"),
            Errno::EINVAL => Error::last(what, "see with `ethtool -l` how many queues the interface has"),
            _ => Error::last(what, "see `ip link`: the interface must be up, and its driver must know XDP"),
        })
    }

    fn poll_busily(&self, microseconds: u32) -> Result<()> {
        if microseconds == 0 {
            return Ok(());
        }
        let microseconds = i32::try_from(microseconds).unwrap_or(i32::MAX);
        for (option, value) in [(SO_PREFER_BUSY_POLL, 1), (libc::SO_BUSY_POLL, microseconds), (SO_BUSY_POLL_BUDGET, 64)]
        {
            set(&self.rings.fd, libc::SOL_SOCKET, option, &value)
                .map_err(|()| Error::last("poll busily", "be root (CAP_NET_ADMIN), or set busy_poll to 0"))?;
        }
        Ok(())
    }

    /// Whether packets may be longer than a frame.
    #[must_use]
    pub fn takes_several_frames(&self) -> bool {
        self.several_frames
    }

    /// Takes packets out, at most `limit`, in order, behind what is in `arrivals`. Each has to be given back by a [`Transmitter`]: sent or
    /// freed. Frames that have left are taken back, and free ones given to the kernel.
    pub fn receive(&mut self, limit: usize, arrivals: &mut Vec<Arrival>) {
        self.rings.reclaim();
        let end = arrivals.len() + limit;
        while arrivals.len() < end {
            let Some(descriptor) = self.rings.receive.pop() else { break };
            let (frame, range) = located(&descriptor);
            let continues = descriptor.options & libc::XDP_PKT_CONTD != 0;
            if self.rings.frames.shift(frame, Place::Fill, Place::Batch).is_err() || range.end > FRAME_LENGTH {
                continue;
            }
            if !continues && self.rings.partial.is_none() {
                arrivals.push(Arrival::Frame(frame, range));
                continue;
            }
            // SAFETY: the frame is in this batch, and no other slice of it is there.
            let octets = unsafe { self.umem.frame(frame) };
            let partial = self.rings.partial.get_or_insert_default();
            partial.extend_from_slice(&octets[range]);
            let _ = self.rings.frames.shift(frame, Place::Batch, Place::Free);
            if !continues {
                arrivals.extend(self.rings.partial.take().map(Arrival::Several));
            }
        }
        self.rings.receive.release();
        self.rings.refill();
    }

    /// The frames of a batch, in its order (nothing for a packet that came in several), and what sends and frees them.
    pub fn split<'a>(&'a mut self, arrivals: &'a [Arrival]) -> (Vec<Option<&'a mut [u8]>>, Transmitter<'a>) {
        let rings = &mut self.rings;
        let mut given = Vec::with_capacity(arrivals.len());
        let mut seen = std::collections::HashSet::new();
        for arrival in arrivals {
            given.push(match arrival {
                // Whoever calls twice with the same arrival would get two slices of one frame.
                Arrival::Frame(frame, _) if rings.frames.place(*frame) == Some(Place::Batch) && seen.insert(*frame) => {
                    // SAFETY: the frame is in this batch, once, and the borrow of `self` keeps everybody else out.
                    Some(unsafe { self.umem.frame(*frame) })
                }
                _ => None,
            });
        }
        (given, Transmitter { rings, umem: &self.umem })
    }

    /// For packets that came from nowhere.
    pub fn transmitter(&mut self) -> Transmitter<'_> {
        Transmitter { rings: &mut self.rings, umem: &self.umem }
    }

    /// Whether all that was sent has left.
    pub fn is_idle(&mut self) -> bool {
        self.rings.reclaim();
        self.rings.frames.count(Place::Transmit) == 0
    }

    /// The frames, to look at.
    #[must_use]
    pub fn frames(&self) -> &Frames {
        &self.rings.frames
    }

    /// What the kernel has counted.
    ///
    /// # Errors
    /// If it does not say.
    pub fn statistics(&self) -> Result<Statistics> {
        let said: libc::xdp_statistics = get(&self.rings.fd, libc::XDP_STATISTICS).map_err(|()| {
            Error::last(format!("read the statistics of {}", self.interface), "use Linux 5.9 or newer")
        })?;
        Ok(Statistics {
            receive_full: said.rx_ring_full,
            fill_empty: said.rx_fill_ring_empty_descs,
            receive_dropped: said.rx_dropped,
            transmit_invalid: said.tx_invalid_descs,
            faults: self.rings.frames.faults(),
        })
    }

    /// Whether the kernel has to be called before packets come.
    #[must_use]
    pub fn fill_needs_wakeup(&self) -> bool {
        self.rings.fill.needs_wakeup()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rings.fd.as_fd()
    }
}

impl Rings {
    /// Takes back frames whose packets have left.
    fn reclaim(&mut self) {
        let mut any = false;
        while let Some(address) = self.completion.pop() {
            let frame = u32::try_from(address / FRAME_LENGTH as u64).unwrap_or(u32::MAX);
            let _ = self.frames.shift(frame, Place::Transmit, Place::Free);
            any = true;
        }
        if any {
            self.completion.release();
        }
    }

    /// Gives free frames to the kernel, but for the reserve.
    fn refill(&mut self) {
        let mut any = false;
        while self.frames.count(Place::Free) > self.reserve && self.fill.room(1) > 0 {
            let Some(frame) = self.frames.take(Place::Fill) else { break };
            any |= self.fill.push(u64::from(frame) * FRAME_LENGTH as u64);
        }
        if any {
            self.fill.submit();
        }
    }
}

/// Sends packets of one batch.
pub struct Transmitter<'a> {
    rings: &'a mut Rings,
    umem: &'a Umem,
}

impl Transmitter<'_> {
    /// Sends these octets of a frame of the batch. False: there is no room; the frame is still the batch's.
    pub fn send_frame(&mut self, frame: u32, range: Range<usize>) -> bool {
        if range.end > FRAME_LENGTH || range.start >= range.end || self.rings.transmit.room(1) == 0 {
            return false;
        }
        if self.rings.frames.shift(frame, Place::Batch, Place::Transmit).is_err() {
            return false;
        }
        self.push(frame, range, false)
    }

    fn push(&mut self, frame: u32, range: Range<usize>, continues: bool) -> bool {
        let addr = u64::from(frame) * FRAME_LENGTH as u64 + range.start as u64;
        let options = if continues { libc::XDP_PKT_CONTD } else { 0 };
        self.rings.transmit.push(libc::xdp_desc { addr, len: range.len() as u32, options })
    }

    /// Sends a copy: `link` and then `octets`, in as many free frames as it takes. False: there is no room, and nothing is sent.
    pub fn send_copy(&mut self, link: &[u8], octets: &[u8]) -> bool {
        let total = link.len() + octets.len();
        let count = total.div_ceil(FRAME_LENGTH);
        // The kernel's skb has that many fragments at most, and this socket as many frames.
        if total == 0
            || link.len() > FRAME_LENGTH
            || count > 17
            || self.rings.transmit.room(count as u32) < count as u32
        {
            return false;
        }
        if self.rings.frames.count(Place::Free) < count {
            self.rings.reclaim();
        }
        if self.rings.frames.count(Place::Free) < count {
            return false;
        }
        let mut rest = octets;
        let mut head = link;
        for left in (0..count).rev() {
            let Some(number) = self.rings.frames.take(Place::Transmit) else { return false };
            // SAFETY: it was free, so no other slice of it is there, and the kernel has it only after `submit`.
            let frame = unsafe { self.umem.frame(number) };
            let part = rest.len().min(FRAME_LENGTH - head.len());
            let end = head.len() + part;
            frame[..head.len()].copy_from_slice(head);
            frame[head.len()..end].copy_from_slice(&rest[..part]);
            (head, rest) = (&[], &rest[part..]);
            self.push(number, 0..end, left > 0);
        }
        true
    }

    /// Gives a frame of the batch back.
    pub fn free(&mut self, frame: u32) {
        let _ = self.rings.frames.shift(frame, Place::Batch, Place::Free);
    }

    /// Makes the kernel send what was put into the ring. What cannot leave now stays there for the next call.
    ///
    /// # Errors
    /// If the interface is gone or down.
    pub fn flush(&mut self) -> io::Result<()> {
        self.rings.transmit.submit();
        let mut before = self.rings.transmit.pending();
        while before > 0 && self.rings.transmit.needs_wakeup() {
            // SAFETY: no data: the call only wakes the kernel.
            let sent = unsafe {
                libc::sendto(self.rings.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
            };
            let error = (sent < 0).then(Errno::last);
            match error {
                None | Some(Errno::EAGAIN | Errno::EBUSY | Errno::ENOBUFS | Errno::EINTR) => {}
                Some(error) => return Err(error.into()),
            }
            self.rings.reclaim();
            let now = self.rings.transmit.pending();
            // The peer's queue is full, or the memory of the socket: later.
            if now + SEND_BATCH > before && now > 0 && error.is_some() {
                break;
            }
            if now == before {
                break;
            }
            before = now;
        }
        Ok(())
    }
}

fn located(descriptor: &libc::xdp_desc) -> (u32, Range<usize>) {
    let length = FRAME_LENGTH as u64;
    let frame = u32::try_from(descriptor.addr / length).unwrap_or(u32::MAX);
    let start = (descriptor.addr % length) as usize;
    (frame, start..start.saturating_add(descriptor.len as usize))
}

fn place(at: &libc::xdp_ring_offset) -> Offsets {
    Offsets {
        producer: at.producer as usize,
        consumer: at.consumer as usize,
        flags: at.flags as usize,
        entries: at.desc as usize,
    }
}

fn ring(fd: &OwnedFd, at: &libc::xdp_ring_offset, size: u32, entry: usize, offset: i64) -> Result<Arc<Mapping>> {
    let length = at.desc as usize + size as usize * entry;
    let mapping = Mapping::of_socket(fd.as_fd(), length, offset).map_err(|cause| Error::Call {
        what: "map a ring".to_owned(),
        cause,
        remedy: "free memory, or choose a smaller ring",
    })?;
    Ok(Arc::new(mapping))
}

fn is_invalid(cause: &io::Error) -> bool {
    cause.raw_os_error() == Some(libc::EINVAL)
}

fn set<T>(fd: &OwnedFd, level: i32, option: i32, value: &T) -> std::result::Result<(), ()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives through the call, and is as long as said.
    let done = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length) };
    if done == 0 { Ok(()) } else { Err(()) }
}

fn get<T: Copy>(fd: &OwnedFd, option: i32) -> std::result::Result<T, ()> {
    // SAFETY: the structures of if_xdp.h are plain numbers: all zeros is a value.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives through the call, which writes at most `length` octets.
    let done = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, std::ptr::from_mut(&mut value).cast(), &raw mut length)
    };
    // An older kernel knows fewer fields, and says so by the length.
    if done == 0 && length as usize == size_of::<T>() { Ok(value) } else { Err(()) }
}
