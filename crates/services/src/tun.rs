//! `tun`: inner packets on a TUN device, for programs that know nothing of Segment Routing.
//!
//! *Copy*: packets go on in their chain, and programs that look at the device (tcpdump, nDPI) see copies. *Inline*: packets go to a program on
//! the device only, and what it sends by the device goes on in the chain, behind the steering header that its flow came with.

mod memory;

use memory::{Kept, Memory};
use schemars::JsonSchema;
use segue_host::tun::{LARGEST, Tun};
use segue_model::error::{KeyPath, Report};
use segue_service::{
    BuildError, Context, Kind, Metric, Mode as KindMode, Packet, Reason, Sampling, Service, Verdict, Worker,
};
use segue_wire::layer::protocol;
use segue_wire::{FiveTuple, Ipv4Packet, LayerKind, parse_ip_packet};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Packets that are read from the device at a time, so that a program that floods does not keep the chain waiting.
const MOST_READ: usize = 256;

/// The kind.
pub struct TunKind;

/// What becomes of packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// They go on, and the device gets copies.
    #[default]
    Copy,
    /// They go to the device, and what comes from it goes on.
    Inline,
}

/// What `tun` can be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Configuration {
    /// `copy` or `inline`.
    pub mode: Mode,
    /// Name of the device, 1 to 15 letters. It is made in the service's namespace.
    pub device: String,
    /// `copy`: octets of each packet that are copied at most, from the outer header on, at least 128. If it is not given: all.
    pub snap_length: Option<u32>,
    /// `copy`: one packet in so many is copied.
    pub one_in: u32,
    /// `inline`: flows whose steering header is remembered at a time.
    pub most_flows: u32,
    /// `inline`: seconds without a packet after which a flow is forgotten, 1 to 3600.
    pub flow_timeout_s: u16,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            mode: Mode::Copy,
            device: "segue-tun".to_owned(),
            snap_length: None,
            one_in: 1,
            most_flows: 65_536,
            flow_timeout_s: 120,
        }
    }
}

const GIVEN: usize = 0;
const RETURNED: usize = 1;
const UNKNOWN: usize = 2;
const FLOWS: usize = 3;

impl Kind for TunKind {
    const NAME: &'static str = "tun";
    const ABOUT: &'static str = "inner packets on a TUN device, as copies or inline";
    const METRICS: &'static [Metric] = &[
        Metric::counter("given_packets", "Inner packets that the device took"),
        Metric::counter("returned_packets", "inline: packets from the device that went on in their chain"),
        Metric::counter(
            "unknown_return_packets",
            "inline: packets from the device of flows that nobody gave it; dropped",
        ),
        Metric::gauge("remembered_flows", "inline: flows whose steering header is remembered now"),
    ];

    type Configuration = Configuration;

    fn check(configuration: &Configuration, report: &mut Report) {
        let at = |key: &str| KeyPath::root().at(key);
        let name = &configuration.device;
        let is_name =
            !name.is_empty() && name.len() <= 15 && name.bytes().all(|octet| octet.is_ascii_graphic() && octet != b'/');
        if !is_name || name == "." || name == ".." {
            report.error(
                &at("device"),
                format!("{name:?} is no name of an interface"),
                "use 1 to 15 letters, digits, - and _",
            );
        }
        if let Some(length) = configuration.snap_length.filter(|length| *length < 128) {
            report.error(&at("snap_length"), format!("{length} octets do not hold the headers"), "use 128 or more");
        }
        if configuration.one_in == 0 {
            report.error(&at("one_in"), "one packet in 0", "use 1 for all packets");
        }
        if configuration.most_flows == 0 {
            report.error(&at("most_flows"), "0 flows: every packet would be dropped", "use 1 or more");
        }
        let timeout = configuration.flow_timeout_s;
        if !(1..=3600).contains(&timeout) {
            report.error(&at("flow_timeout_s"), format!("{timeout} s"), "use 1 to 3600");
        }
    }

    fn mode(configuration: &Configuration) -> KindMode {
        match configuration.mode {
            Mode::Copy => KindMode::Asynchronous,
            Mode::Inline => KindMode::Synchronous,
        }
    }

    fn sampling(configuration: &Configuration) -> Sampling {
        Sampling { snap_length: configuration.snap_length, one_in: configuration.one_in }
    }

    /// There is one device.
    fn many_workers(_: &Configuration) -> bool {
        false
    }

    fn makes_devices(_: &Configuration) -> bool {
        true
    }

    fn build(configuration: &Configuration, _: Worker) -> Result<Box<dyn Service>, BuildError> {
        let device = opened(&configuration.device).map_err(|error| BuildError {
            what: error.to_string(),
            remedy: "see that no other service or program has this device, and that the service may make one"
                .to_owned(),
        })?;
        Ok(with_device(configuration, Box::new(device)))
    }
}

/// What packets are given to. [`Tun`], or something else in a test.
pub trait Device: Send {
    /// Gives a packet.
    ///
    /// # Errors
    /// If it is not taken.
    fn send(&self, packet: &[u8]) -> io::Result<()>;
    /// The next packet that comes back, into `buffer`; none if no packet waits.
    ///
    /// # Errors
    /// If the device is gone.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>>;
    /// What tells that one waits.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// Devices of this process by name: the kernel lets nobody open one twice, and another configuration takes over that of the one before.
static OPEN: LazyLock<Mutex<HashMap<String, Weak<Tun>>>> = LazyLock::new(Mutex::default);

/// The device of this name: the one that is open, else a new one.
fn opened(name: &str) -> segue_host::Result<Arc<Tun>> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|_, device| device.strong_count() > 0);
    if let Some(device) = open.get(name).and_then(Weak::upgrade) {
        return Ok(device);
    }
    let device = Arc::new(Tun::open(name)?);
    open.insert(name.to_owned(), Arc::downgrade(&device));
    Ok(device)
}

impl Device for Tun {
    fn send(&self, packet: &[u8]) -> io::Result<()> {
        Tun::send(self, packet)
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        Tun::receive(self, buffer)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

impl<D: Device + Sync> Device for Arc<D> {
    fn send(&self, packet: &[u8]) -> io::Result<()> {
        D::send(self, packet)
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        D::receive(self, buffer)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        D::descriptor(self)
    }
}

/// The service on a device.
#[must_use]
pub fn with_device(configuration: &Configuration, device: Box<dyn Device>) -> Box<dyn Service> {
    match configuration.mode {
        Mode::Copy => Box::new(Copier { device, buffer: vec![0; LARGEST] }),
        Mode::Inline => Box::new(Inline {
            device,
            memory: Memory::new(
                configuration.most_flows as usize,
                Duration::from_secs(configuration.flow_timeout_s.into()),
            ),
            buffer: vec![0; LARGEST],
        }),
    }
}

fn is_ip(number: u8) -> bool {
    matches!(number, protocol::IPV4 | protocol::IPV6)
}

struct Copier {
    device: Box<dyn Device>,
    buffer: Vec<u8>,
}

impl Service for Copier {
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> Verdict {
        if !is_ip(packet.inner_protocol()) {
            return Verdict::Drop(Reason::UnsupportedProtocol);
        }
        match self.device.send(packet.inner()) {
            Ok(()) => {
                context.count(GIVEN, 1);
                Verdict::Onward
            }
            Err(_) => Verdict::Drop(Reason::ProgramGone),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.device.descriptor()
    }

    /// Nobody is asked, so nothing is sent on.
    fn readable(&mut self, context: &mut Context) {
        for _ in 0..MOST_READ {
            let Ok(Some(_)) = self.device.receive(&mut self.buffer) else { return };
            context.count(UNKNOWN, 1);
        }
    }
}

struct Inline {
    device: Box<dyn Device>,
    memory: Memory,
    buffer: Vec<u8>,
}

/// The flow of an inner packet. None for what is none or cannot be told apart: a fragment, whose ports are elsewhere.
fn flow_of(inner: &[u8]) -> Option<FiveTuple> {
    let layers = parse_ip_packet(inner).ok()?;
    let tuple = layers.five_tuple()?;
    let is_fragment = layers.as_slice().iter().any(|layer| match layer.kind {
        LayerKind::Fragment => true,
        LayerKind::Ipv4 => Ipv4Packet::new_checked(layer.bytes(inner)).is_ok_and(|packet| packet.is_fragment()),
        _ => false,
    });
    let has_ports = tuple.ports.is_some() || !matches!(tuple.protocol, protocol::TCP | protocol::UDP);
    (has_ports && !is_fragment).then_some(tuple)
}

impl Inline {
    fn give(&mut self, packet: &Packet<'_>, context: &mut Context) -> Result<(), Reason> {
        if !is_ip(packet.inner_protocol()) {
            return Err(Reason::UnsupportedProtocol);
        }
        let flow = flow_of(packet.inner()).ok_or(Reason::UnsupportedProtocol)?;
        match self.memory.keep(flow, packet, context.now()) {
            Kept::Remembered => {}
            Kept::OfAnother => return Err(Reason::Refused),
            Kept::Full => return Err(Reason::MemoryLimit),
        }
        self.device.send(packet.inner()).map_err(|_| Reason::ProgramGone)
    }

    fn take_back(&mut self, length: usize, context: &mut Context) {
        let octets = self.buffer.get(..length).unwrap_or(&[]);
        let number = if octets.first().is_some_and(|first| first >> 4 == 4) { protocol::IPV4 } else { protocol::IPV6 };
        let header = flow_of(octets).and_then(|flow| self.memory.recall(&flow, context.now()));
        match header.and_then(|header| header.behind_the_same(number, &[octets]).ok()) {
            Some(packet) => {
                context.count(RETURNED, 1);
                context.send(packet);
            }
            None => context.count(UNKNOWN, 1),
        }
    }

    fn show(&self, context: &mut Context) {
        context.set(FLOWS, self.memory.len() as u64);
        if let Some(time) = self.memory.next_sweep() {
            context.wake_at(time);
        }
    }
}

impl Service for Inline {
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> Verdict {
        let given = self.give(packet, context);
        self.show(context);
        match given {
            // The program has it now. What it sends is another packet.
            Ok(()) => {
                context.count(GIVEN, 1);
                context.account_sent(1);
                Verdict::Taken
            }
            Err(reason) => Verdict::Drop(reason),
        }
    }

    fn timer(&mut self, context: &mut Context) {
        self.memory.sweep(context.now());
        self.show(context);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.device.descriptor()
    }

    fn readable(&mut self, context: &mut Context) {
        for _ in 0..MOST_READ {
            let Ok(Some(length)) = self.device.receive(&mut self.buffer) else { return };
            self.take_back(length, context);
        }
    }
}
