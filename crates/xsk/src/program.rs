//! What XDP, or tc, does on the interface of a service: `bpf/service.bpf.c`, loaded and attached.

#![allow(unsafe_code)] // calls that libbpf-rs lacks: for links of other processes, and for those of tc

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, RingBuffer, RingBufferBuilder, TC_EGRESS, TC_INGRESS,
    TcHookBuilder,
};

use crate::error::{Error, Result};
use crate::interface::Interface;
use crate::merged::MergedSocket;
use crate::socket::Socket;

/// The object, aligned as libbpf wants it.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/service.bpf.o")));

/// Counters of the program, in the order of `enum counter`, with what they say.
pub const COUNTERS: [(&str, &str); 5] = [
    ("to_service", "given to the service: packets, or copies of packets that went on"),
    ("to_kernel", "not steered, or not to go further: left to the kernel"),
    ("not_sampled", "went on without a copy, since not every packet is copied"),
    ("copy_lost", "went on without a copy, since the ring was full"),
    (
        "invalid",
        "dropped, since the segment list contradicts itself, the stack of labels has no end, or since merged segments could not go on in it",
    ),
];

/// Whether packets wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They go to the socket of their queue.
    Wait,
    /// They go on, and copies into the ring.
    Copy,
    /// They go to packet sockets, those that are merged by segmentation offload whole.
    Merged,
}

impl Mode {
    /// The programs that it needs; none if there is no such way.
    fn programs(self, steering: Steering) -> &'static [&'static str] {
        match (self, steering) {
            (Self::Wait, Steering::Srv6) => &["service_wait"],
            (Self::Copy, Steering::Srv6) => &["service_copy"],
            (Self::Wait, Steering::Labels) => &["labels_wait"],
            (Self::Copy, Steering::Labels) => &["labels_copy"],
            (Self::Merged, Steering::Labels) => &[],
            (Self::Merged, Steering::Srv6) => &[MERGED_IN, MERGED_OUT, MERGED_FILTER, MERGED_SPREAD],
        }
    }

    /// The maps that it can do without.
    fn spared(self) -> &'static [&'static str] {
        match self {
            Self::Wait => &["copies", "tunnels"],
            Self::Copy => &["sockets", "tunnels"],
            Self::Merged => &["copies", "sockets"],
        }
    }
}

const MERGED_IN: &str = "merged_in";
const MERGED_OUT: &str = "merged_out";
const MERGED_FILTER: &str = "merged_filter";
const MERGED_SPREAD: &str = "merged_spread";

/// Where the filters of tc are. The interface is the service's own.
const FILTER: (u32, u32) = (1, 1);

/// Which packets are for the service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Steering {
    /// Those with an SRH that has a segment left.
    #[default]
    Srv6,
    /// Those with labels. Not for [`Mode::Merged`]: the kernel does not cut up what is behind labels.
    Labels,
}

/// What packets that belong to one worker have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Addresses, protocol and ports of the inner packet; what is no IP packet goes by [`Spread::Way`].
    Flow,
    /// Source and flow label of the outer header.
    Way,
}

/// What the program is told before it is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Which packets are for the service.
    pub steering: Steering,
    /// For [`Mode::Copy`]: one packet in so many, at least 1.
    pub one_in: u32,
    /// For [`Mode::Copy`]: octets from the IP header on at most.
    pub snap_length: u32,
    /// For [`Mode::Copy`]: octets of the ring: a power of two, a page at least.
    pub ring_length: u32,
    /// For [`Mode::Wait`]: sockets of each queue, at least 1. For [`Mode::Merged`]: sockets.
    pub workers: u32,
    /// For [`Mode::Wait`] and [`Mode::Merged`]: how packets are spread over them.
    pub spread: Spread,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            steering: Steering::Srv6,
            one_in: 1,
            snap_length: u32::MAX,
            ring_length: 1 << 24,
            workers: 1,
            spread: Spread::Flow,
        }
    }
}

/// The program on an interface; it goes when this goes.
pub struct Program {
    // The link first: it ends before the object.
    link: Option<Held>,
    object: Object,
    interface: i32,
    workers: u32,
    mode: Mode,
}

/// What keeps the program on the interface.
enum Held {
    /// It was attached here.
    Own(Link),
    /// Another process attached one, and has given what keeps it there.
    Given(OwnedFd),
    /// Both programs of tc.
    Both(#[expect(dead_code, reason = "open, they keep the programs there")] Vec<OwnedFd>),
    /// Both as filters, before Linux 6.6. They stay until the interface goes, or who has the rights takes them off: until then what is
    /// steered ends there.
    Filters,
}

const REPORT: &str = "be root (CAP_BPF, CAP_NET_ADMIN), on Linux 6.1 or newer";

impl Program {
    /// Loads it for an interface of the calling thread's network namespace; it is not attached yet.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn load(interface: &str, mode: Mode, settings: Settings) -> Result<Self> {
        let index = nix::net::if_::if_nametoindex(interface).map_err(|_| Error::NoInterface(interface.to_owned()))?;
        let failed = || Error::bpf("load the program of the service's interface", REPORT);
        let programs = mode.programs(settings.steering);
        if programs.is_empty() {
            let what = "packets merged by segmentation offload, with labels".into();
            return Err(Error::Option { what, remedy: "take them one by one" });
        }
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(failed())?;
        for mut program in open.progs_mut() {
            program.set_autoload(programs.iter().any(|wanted| program.name() == *wanted));
        }
        for mut map in open.maps_mut() {
            if mode.spared().iter().any(|spared| map.name() == *spared) {
                map.set_autocreate(false).map_err(failed())?;
            } else if map.name() == "copies" {
                map.set_max_entries(settings.ring_length).map_err(failed())?;
            }
        }
        let object = open.load().map_err(failed())?;
        let workers = settings.workers.max(1);
        let interface = i32::try_from(index).unwrap_or(i32::MAX);
        let program = Self { link: None, object, interface, workers, mode };
        let words = [settings.one_in.max(1), settings.snap_length, workers, settings.spread as u32];
        let value = words.map(u32::to_ne_bytes).concat();
        let map = program.map("settings")?;
        map.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(Error::bpf("write the settings of the service's program", REPORT))?;
        Ok(program)
    }

    fn map(&self, name: &str) -> Result<MapHandle> {
        let map = self.object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| Error::Option { what: format!("no map {name}"), remedy: "build it again" })?;
        MapHandle::try_from(&map).map_err(Error::bpf(format!("open the map {name}"), REPORT))
    }

    /// Packets of this queue that a worker has go to the socket from now on.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn serve(&self, queue: u32, worker: u32, socket: &Socket) -> Result<()> {
        let fd = u32::try_from(socket.as_fd().as_raw_fd()).unwrap_or_default();
        let map = self.map("sockets")?;
        let place = queue.saturating_mul(self.workers).saturating_add(worker);
        map.update(&place.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY).map_err(Error::bpf(
            format!("give queue {queue} to its socket"),
            "have no more than 1024 workers and queues, multiplied",
        ))
    }

    /// The ring with the copies; `take` is called for each: octets on the wire, and those that were copied.
    ///
    /// # Errors
    /// If there is none, or the kernel refuses.
    pub fn copies<'a>(&self, mut take: impl FnMut(usize, &[u8]) + 'a) -> Result<Copies<'a>> {
        let failed = || Error::bpf("open the ring of copies", REPORT);
        let map = self.map("copies")?;
        let mut builder = RingBufferBuilder::new();
        let record = move |octets: &[u8]| {
            let number = |at: usize| octets.get(at..at + 4).and_then(|octets| octets.try_into().ok());
            if let (Some(wire), Some(length)) = (number(0), number(4)) {
                let length = u32::from_ne_bytes(length) as usize;
                take(u32::from_ne_bytes(wire) as usize, octets.get(8..8 + length).unwrap_or_default());
            }
            0
        };
        builder.add(&map, record).map_err(failed())?;
        Ok(Copies { ring: builder.build().map_err(failed())? })
    }

    /// The loaded program of this name.
    fn fd(&self, name: &str) -> Result<BorrowedFd<'_>> {
        let mut programs = self.object.progs();
        let program = programs.find(|program| program.name() == name && program.autoload());
        let program =
            program.ok_or_else(|| Error::Option { what: format!("no program {name}"), remedy: "build it again" })?;
        let fd = program.as_fd().as_raw_fd();
        // SAFETY: the object keeps it open as long as it lives.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Puts it on the interface.
    ///
    /// # Errors
    /// If another program is there, or the driver refuses.
    pub fn attach(&mut self) -> Result<()> {
        if self.mode == Mode::Merged {
            self.link = Some(self.both()?);
            return Ok(());
        }
        let failed = Error::bpf(
            format!("attach the service's program to interface {}", self.interface),
            "see with `ip link` whether another XDP program is there",
        );
        let program = self.object.progs_mut().find(|program| program.name() != "" && program.autoload());
        let program = program.ok_or_else(|| Error::Option { what: "no program".into(), remedy: "build it again" })?;
        self.link = Some(Held::Own(program.attach_xdp(self.interface).map_err(failed)?));
        Ok(())
    }

    /// The programs of tc: of what goes out first, so that nothing that comes in leaves unmarked.
    fn both(&self) -> Result<Held> {
        let sides =
            [(MERGED_OUT, TC_EGRESS, libbpf_sys::BPF_TCX_EGRESS), (MERGED_IN, TC_INGRESS, libbpf_sys::BPF_TCX_INGRESS)];
        let mut links = Vec::new();
        for (name, _, kind) in sides {
            // SAFETY: an open descriptor, a number, and no options.
            let link = unsafe {
                libbpf_sys::bpf_link_create(self.fd(name)?.as_raw_fd(), self.interface, kind, std::ptr::null())
            };
            if link >= 0 {
                // SAFETY: it was just opened, and nobody else has it.
                links.push(unsafe { OwnedFd::from_raw_fd(link) });
            } else if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
                break;
            } else {
                let what = format!("attach the service's programs to interface {}", self.interface);
                return Err(Error::last(what, REPORT));
            }
        }
        if links.len() == sides.len() {
            return Ok(Held::Both(links));
        }
        for (name, side, _) in sides {
            let failed = || {
                let what = format!("attach the service's filters to interface {}", self.interface);
                Error::bpf(what, "see with `tc filter show` whether others are there")
            };
            let mut builder = TcHookBuilder::new(self.fd(name)?);
            builder.ifindex(self.interface).handle(FILTER.0).priority(FILTER.1).replace(true);
            let mut hook = builder.hook(side);
            hook.create().map_err(failed())?;
            hook.attach().map_err(failed())?;
        }
        Ok(Held::Filters)
    }

    /// The sockets of all workers, for [`Mode::Merged`]. To be opened when it is attached: else what they take goes on as well.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn merged_sockets(&self, interface: &Interface) -> Result<Vec<MergedSocket>> {
        let (filter, spread) = (self.fd(MERGED_FILTER)?.as_raw_fd(), self.fd(MERGED_SPREAD)?.as_raw_fd());
        MergedSocket::open(interface, self.workers, filter, spread)
    }

    /// Puts it in the place of another process's program, without a packet in between; `link` is what keeps that there.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn replace(&mut self, link: OwnedFd) -> Result<()> {
        let program = self.object.progs_mut().find(|program| program.name() != "" && program.autoload());
        let program = program.ok_or_else(|| Error::Option { what: "no program".into(), remedy: "build it again" })?;
        let (old, new) = (link.as_raw_fd(), program.as_fd().as_raw_fd());
        // SAFETY: both are open, and there are no options.
        let done = unsafe { libbpf_sys::bpf_link_update(old, new, std::ptr::null()) };
        if done < 0 {
            return Err(Error::last("put the program in the place of another process's", REPORT));
        }
        self.link = Some(Held::Given(link));
        Ok(())
    }

    /// What keeps it on the interface, for another process.
    ///
    /// # Errors
    /// If it is not attached; if there are too many open files.
    pub fn link(&self) -> std::io::Result<OwnedFd> {
        match &self.link {
            Some(Held::Own(link)) => link.as_fd().try_clone_to_owned(),
            Some(Held::Given(link)) => link.try_clone(),
            Some(Held::Both(_) | Held::Filters) => {
                Err(std::io::Error::other("programs of tc do not go to another process"))
            }
            None => Err(std::io::Error::other("the program is not attached")),
        }
    }

    /// Takes it off the interface.
    pub fn detach(&mut self) {
        self.link = None;
    }

    /// What it has counted, in the order of [`COUNTERS`].
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn counters(&self) -> Result<[u64; COUNTERS.len()]> {
        let map = self.map("counters")?;
        let mut sums = [0; COUNTERS.len()];
        for (index, sum) in (0u32..).zip(&mut sums) {
            let values = map
                .lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)
                .map_err(Error::bpf("read the counters of the service's program", REPORT))?;
            let number =
                |value: Vec<u8>| value.get(..8).and_then(|octets| octets.try_into().ok()).map_or(0, u64::from_ne_bytes);
            *sum = values.into_iter().flatten().map(number).sum();
        }
        Ok(sums)
    }
}

/// The ring with the copies.
pub struct Copies<'a> {
    ring: RingBuffer<'a>,
}

impl Copies<'_> {
    /// Takes out what is there, at most `limit`. Returns how many copies that were.
    pub fn consume(&self, limit: usize) -> usize {
        usize::try_from(self.ring.consume_raw_n(limit)).unwrap_or(0)
    }
}
