//! AF_XDP sockets: those of one queue of an interface, which share its frames.

#![allow(unsafe_code)] // system calls that nix lacks

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::frames::{Frames, Place};
use crate::memory::{FRAME_LENGTH, Mapping, Umem};
use crate::pool::{Batch, Pool, Shared};
use crate::ring::{Consumer, Offsets, Producer};

/// Octets that the kernel leaves free in front of a packet that it puts into a frame (`XDP_PACKET_HEADROOM`).
pub const HEADROOM: usize = 256;
/// Octets of an Ethernet header.
pub const LINK_LENGTH: usize = 14;
/// Packets that one call makes the kernel send, at least.
const SEND_BATCH: u32 = 16;
/// `SO_PREFER_BUSY_POLL` and `SO_BUSY_POLL_BUDGET`, which libc lacks.
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;

/// How long a queue may still be another's: the kernel lets go of one some time after its last socket has been closed, as when a
/// service is ended and started again.
const LET_GO_WITHIN: Duration = Duration::from_secs(3);
/// Pause between two attempts.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// What to do when memory for rings and frames is refused.
const MEMORY: &str = "allow locked memory (`ulimit -l`), or choose a smaller ring";

/// How a socket is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Packets that each ring holds: a power of two, 64 to 32768. There are as many frames for each socket of the queue, and twice as many besides.
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

/// One worker's part of a queue of an interface.
pub struct Socket {
    shared: Arc<Shared>,
    rings: Rings,
    interface: String,
    several_frames: bool,
}

/// What another process needs to take over a socket.
#[derive(Debug)]
pub struct Part {
    /// The socket.
    pub socket: OwnedFd,
    /// What all sockets of its queue share.
    pub queue: Option<OfQueue>,
}

/// What all sockets of a queue share.
#[derive(Debug)]
pub struct OfQueue {
    /// The file with the frames.
    pub memory: OwnedFd,
    /// Where each frame is.
    pub places: Vec<Place>,
}

struct Rings {
    fd: OwnedFd,
    receive: Consumer<libc::xdp_desc>,
    transmit: Producer<libc::xdp_desc>,
    /// Frames that have come and neither left nor were given back.
    batch: Batch,
    /// The beginning of a packet whose last frame has not come yet.
    partial: Option<Vec<u8>>,
}

impl Socket {
    /// Opens sockets on a queue of an interface of the calling thread's network namespace, one for each of `workers`. Packets come once a program
    /// redirects them ([`crate::Program::serve`]).
    ///
    /// # Errors
    /// If the kernel refuses; with what to do.
    pub fn open(interface: &str, queue: u32, workers: u32, options: Options) -> Result<Vec<Self>> {
        if !options.ring_size.is_power_of_two() || !(64..=32768).contains(&options.ring_size) {
            let what = format!("a ring of {} packets is not possible", options.ring_size);
            return Err(Error::Option { what, remedy: "choose a power of two from 64 to 32768" });
        }
        let index = nix::net::if_::if_nametoindex(interface).map_err(|_| Error::NoInterface(interface.to_owned()))?;
        match Self::try_open(interface, index, queue, workers, options) {
            // An older kernel knows no packets of several frames.
            Err(Error::Call { cause, .. }) if options.several_frames && is_invalid(&cause) => {
                let options = Options { several_frames: false, ..options };
                Self::try_open(interface, index, queue, workers, options)
            }
            result => result,
        }
    }

    fn try_open(interface: &str, index: u32, queue: u32, workers: u32, options: Options) -> Result<Vec<Self>> {
        let size = options.ring_size;
        let count = size.saturating_mul(workers.saturating_add(2));
        let fd = socket()?;
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
        set(&fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)
            .map_err(|()| Error::last(format!("register {count} frames"), MEMORY))?;
        for option in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING] {
            set(&fd, libc::SOL_XDP, option, &size).map_err(|()| Error::last("make the rings", MEMORY))?;
        }
        let shared = Arc::new(queue_of(&fd, umem, Frames::new(count), size)?);
        let new = |rings| Self {
            shared: Arc::clone(&shared),
            rings,
            interface: interface.to_owned(),
            several_frames: options.several_frames,
        };
        let first = new(Rings::of(fd, size, count)?);
        shared.pool().refill();
        first.bind(index, queue, options)?;
        let mut sockets = vec![first];
        for _ in 1..workers {
            let other = new(Rings::of(socket()?, size, count)?);
            other.join(index, queue, &sockets[0])?;
            sockets.push(other);
        }
        for socket in &sockets {
            socket.poll_busily(options.busy_poll)?;
        }
        Ok(sockets)
    }

    /// Takes over the sockets of a queue from another process, which has given `parts` of them and does not touch them any more: one for each
    /// worker, the first with the queue's. `options` are those that they were opened with.
    ///
    /// # Errors
    /// If something is missing, or the kernel does not let a second process have the rings (before Linux 6.4).
    pub fn adopt(interface: &str, parts: Vec<Part>, options: Options) -> Result<Vec<Self>> {
        let workers = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let count = options.ring_size.saturating_mul(workers.saturating_add(2));
        let missing = || Error::Option {
            what: format!("{interface}: what runs has not given all of its {count} frames"),
            remedy: "start the service again",
        };
        let mut shared = None;
        let mut sockets = Vec::new();
        for Part { socket, queue: of_queue } in parts {
            if shared.is_none() {
                let OfQueue { memory, places } = of_queue.ok_or_else(missing)?;
                let umem = Umem::of(memory, count, FRAME_LENGTH).map_err(|cause| Error::Call {
                    what: format!("map {count} frames of another process"),
                    cause,
                    remedy: "start the service again",
                })?;
                if places.len() != count as usize {
                    return Err(missing());
                }
                shared = Some(Arc::new(queue_of(&socket, umem, Frames::of(&places), options.ring_size)?));
            }
            let Some(shared) = &shared else { continue };
            let rings = Rings::map(socket, options.ring_size, count)?;
            let (shared, interface) = (Arc::clone(shared), interface.to_owned());
            sockets.push(Self { shared, rings, interface, several_frames: options.several_frames });
        }
        Ok(sockets)
    }

    /// What another process needs to take this socket over; with what belongs to its queue, if that is wanted. The caller sees to it that
    /// nothing happens to the queue from now on.
    ///
    /// # Errors
    /// If there are too many open files.
    pub fn part(&self, with_queue: bool) -> io::Result<Part> {
        let pool = self.shared.pool();
        let of_queue = || -> io::Result<OfQueue> {
            let memory = self.shared.umem().file().try_clone_to_owned()?;
            Ok(OfQueue { memory, places: pool.frames.places().to_vec() })
        };
        let queue = if with_queue { Some(of_queue()?) } else { None };
        Ok(Part { socket: self.rings.fd.try_clone()?, queue })
    }

    /// Has the frames of another socket of this queue.
    fn join(&self, index: u32, queue: u32, first: &Self) -> Result<()> {
        let shared = u32::try_from(first.rings.fd.as_raw_fd()).unwrap_or(u32::MAX);
        // Everything else is as the first one has it.
        self.bind_as(index, queue, libc::XDP_SHARED_UMEM, shared)
    }

    fn bind(&self, index: u32, queue: u32, options: Options) -> Result<()> {
        let copy = if options.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
        let several = if options.several_frames { libc::XDP_USE_SG } else { 0 };
        let end = Instant::now() + LET_GO_WITHIN;
        loop {
            match self.bind_as(index, queue, copy | libc::XDP_USE_NEED_WAKEUP | several, 0) {
                Err(error) if error.is_busy() && Instant::now() < end => std::thread::sleep(LOOK_AGAIN_AFTER),
                bound => return bound,
            }
        }
    }

    fn bind_as(&self, index: u32, queue: u32, flags: u16, shared: u32) -> Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: index,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: shared,
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
        let Self { shared, rings, .. } = self;
        let mut pool = shared.pool();
        pool.reclaim();
        let end = arrivals.len() + limit;
        while arrivals.len() < end {
            let Some(descriptor) = rings.receive.pop() else { break };
            let (frame, range) = located(&descriptor);
            let continues = descriptor.options & libc::XDP_PKT_CONTD != 0;
            if pool.frames.shift(frame, Place::Fill, Place::Batch).is_err() || range.end > FRAME_LENGTH {
                continue;
            }
            if !continues && rings.partial.is_none() {
                rings.batch.received(frame);
                arrivals.push(Arrival::Frame(frame, range));
                continue;
            }
            // SAFETY: it was just received, is not given out, and the pool is ours.
            let octets = unsafe { shared.umem().frame(frame) };
            let partial = rings.partial.get_or_insert_default();
            partial.extend_from_slice(&octets[range]);
            let _ = pool.frames.shift(frame, Place::Batch, Place::Free);
            if !continues {
                arrivals.extend(rings.partial.take().map(Arrival::Several));
            }
        }
        rings.receive.release();
        pool.refill();
    }

    /// The frames of a batch, in its order (nothing for a packet that came in several), and what sends and frees them.
    pub fn split<'a>(&'a mut self, arrivals: &'a [Arrival]) -> (Vec<Option<&'a mut [u8]>>, Transmitter<'a>) {
        let Self { shared, rings, .. } = self;
        rings.batch.begin();
        let given = arrivals
            .iter()
            .map(|arrival| match arrival {
                // Whoever calls twice with the same arrival would get two slices of one frame.
                Arrival::Frame(frame, _) if rings.batch.give(*frame) => {
                    // SAFETY: the frame is this socket's, given out once, and the borrow of `self` keeps everybody else out.
                    Some(unsafe { shared.umem().frame(*frame) })
                }
                _ => None,
            })
            .collect();
        (given, Transmitter { rings, shared, pool: None })
    }

    /// For packets that came from nowhere, or by another socket.
    pub fn transmitter(&mut self) -> Transmitter<'_> {
        Transmitter { rings: &mut self.rings, shared: &self.shared, pool: None }
    }

    /// Whether all that was sent by the sockets of this queue has left.
    pub fn is_idle(&mut self) -> bool {
        let mut pool = self.shared.pool();
        pool.reclaim();
        pool.frames.count(Place::Transmit) == 0
    }

    /// How many frames of the queue are in a place.
    #[must_use]
    pub fn frames(&self, place: Place) -> usize {
        self.shared.pool().frames.count(place)
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
            faults: self.shared.pool().frames.faults(),
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rings.fd.as_fd()
    }
}

impl Rings {
    /// Makes those of a socket that is not bound yet.
    fn of(fd: OwnedFd, size: u32, frames: u32) -> Result<Self> {
        for option in [libc::XDP_RX_RING, libc::XDP_TX_RING] {
            set(&fd, libc::SOL_XDP, option, &size).map_err(|()| Error::last("make the rings", MEMORY))?;
        }
        Self::map(fd, size, frames)
    }

    /// Those of a socket that has them.
    fn map(fd: OwnedFd, size: u32, frames: u32) -> Result<Self> {
        let at = offsets(&fd)?;
        let descriptor = size_of::<libc::xdp_desc>();
        let receive = Consumer::new(ring(&fd, &at.rx, size, descriptor, libc::XDP_PGOFF_RX_RING)?, place(&at.rx), size);
        let transmit =
            Producer::new(ring(&fd, &at.tx, size, descriptor, libc::XDP_PGOFF_TX_RING)?, place(&at.tx), size);
        Ok(Self { fd, receive, transmit, batch: Batch::new(frames), partial: None })
    }
}

/// Sends packets of one batch.
pub struct Transmitter<'a> {
    rings: &'a mut Rings,
    shared: &'a Shared,
    /// Taken when it is needed first, and kept until the kernel is called.
    pool: Option<MutexGuard<'a, Pool>>,
}

impl<'a> Transmitter<'a> {
    fn pool(&mut self) -> &mut Pool {
        let shared: &'a Shared = self.shared;
        self.pool.get_or_insert_with(|| shared.pool())
    }

    /// Sends these octets of a frame of the batch. False: there is no room; the frame is still the batch's.
    pub fn send_frame(&mut self, frame: u32, range: Range<usize>) -> bool {
        if range.end > FRAME_LENGTH
            || range.start >= range.end
            || self.rings.transmit.room(1) == 0
            || !self.rings.batch.has(frame)
            || self.pool().frames.shift(frame, Place::Batch, Place::Transmit).is_err()
        {
            return false;
        }
        self.rings.batch.gone(frame);
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
        let pool = self.pool();
        if pool.frames.count(Place::Free) < count {
            pool.reclaim();
        }
        if pool.frames.count(Place::Free) < count {
            return false;
        }
        let mut rest = octets;
        let mut head = link;
        for left in (0..count).rev() {
            let Some(number) = self.pool().frames.take(Place::Transmit) else { return false };
            // SAFETY: it was free, so no other slice of it is there, and the kernel has it only after `submit`.
            let frame = unsafe { self.shared.umem().frame(number) };
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
        if self.rings.batch.gone(frame) {
            let _ = self.pool().frames.shift(frame, Place::Batch, Place::Free);
        }
    }

    /// Makes the kernel send what was put into the ring. What cannot leave now stays there for the next call.
    ///
    /// # Errors
    /// If the interface is gone or down.
    pub fn flush(&mut self) -> io::Result<()> {
        self.pool = None;
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
            self.shared.pool().reclaim();
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

fn socket() -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(Error::last("open an AF_XDP socket", "be root (CAP_NET_RAW), on a kernel with AF_XDP"));
    }
    // SAFETY: it was just opened, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn offsets(fd: &OwnedFd) -> Result<libc::xdp_mmap_offsets> {
    get(fd, libc::XDP_MMAP_OFFSETS).map_err(|()| Error::last("ask where the rings are", "use Linux 5.4 or newer"))
}

/// The rings of a queue, with its frames.
fn queue_of(fd: &OwnedFd, umem: Umem, frames: Frames, size: u32) -> Result<Shared> {
    let at = offsets(fd)?;
    let fill = ring(fd, &at.fr, size, 8, libc::XDP_UMEM_PGOFF_FILL_RING as i64)?;
    let completion = ring(fd, &at.cr, size, 8, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64)?;
    let fill = Producer::new(fill, place(&at.fr), size);
    let completion = Consumer::new(completion, place(&at.cr), size);
    Ok(Shared::new(umem, frames, fill, completion, size as usize / 2))
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

pub(crate) fn set<T>(fd: &OwnedFd, level: i32, option: i32, value: &T) -> std::result::Result<(), ()> {
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
