//! `refragment`: puts the fragments of inner packets together, from whatever order, and sends whole packets, or clean fragments of them.
//!
//! What is behind it in the chain sees each datagram as its destination will: no overlaps, no tiny first fragments, nothing that was never
//! completed. The rules are those of RFC 8200 section 4.5, RFC 5722, RFC 6946 and RFC 7112, of RFC 791, RFC 1858 and RFC 3128, and of RFC 3168
//! section 5.3 for ECN. Memory is bounded for each source and for all.

mod datagram;
mod fragment;
mod split;
mod table;

pub use datagram::Whole;
pub use fragment::{Fault, Fragment, Identity, Inner, inspect};
pub use split::{SplitError, split, unsplit};
pub use table::{Limits, Lost, Outcome, Reassembler};

use datagram::{Added, Datagram};
use schemars::JsonSchema;
use segue_model::error::{KeyPath, Report};
use segue_service::{BuildError, Context, Kind, Metric, Mode, Packet, Reason, Service, Steering, Verdict, Worker};
use segue_wire::Ipv6Packet;
use segue_wire::layer::protocol;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// ECN: congestion experienced.
const CE: u8 = 3;

/// The kind.
pub struct Refragment;

/// What leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Output {
    /// Whole packets where the MTU has room for them, fragments of them else.
    #[default]
    Whole,
    /// Always fragments, in order, none larger than the largest that came; whole packets that are too large become fragments too.
    Fragments,
}

/// What `refragment` can be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Configuration {
    /// `whole` packets, or `fragments`.
    pub output: Output,
    /// Octets of the largest packet that leaves, outer header included, 1280 to 65575; more than the MTU of the way out is not used. If it is not
    /// given: that MTU.
    pub mtu: Option<u32>,
    /// Seconds after the first fragment of an IPv6 packet at which the others are waited for no longer, 1 to 60.
    pub timeout_ipv6_s: u8,
    /// The same for IPv4, 1 to 60.
    pub timeout_ipv4_s: u8,
    /// Octets of memory for all fragments, bookkeeping included.
    pub memory: u32,
    /// Octets of memory for the fragments of one source address behind the same steering header, at most `memory`.
    pub memory_of_source: u32,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            output: Output::Whole,
            mtu: None,
            timeout_ipv6_s: 60,
            timeout_ipv4_s: 30,
            memory: 4 << 20,
            memory_of_source: 512 << 10,
        }
    }
}

/// Octets that the largest datagram takes in fragments of 576 octets, bookkeeping included.
const SMALLEST_MEMORY: u32 = 128 << 10;

const REASSEMBLED: usize = 0;
const FRAGMENTED: usize = 1;
const ATOMIC: usize = 2;
const FAULTS: usize = 3;
const HELD: usize = 10;
const DATAGRAMS: usize = 11;
const SOURCES: usize = 12;
const CUT: usize = 13;

impl Kind for Refragment {
    const NAME: &'static str = "refragment";
    const ABOUT: &'static str = "puts the fragments of inner packets together";
    const METRICS: &'static [Metric] = &[
        Metric::counter("reassembled_datagrams", "Datagrams that were put together"),
        Metric::counter("fragmented_datagrams", "Datagrams among them that left as fragments again"),
        Metric::counter("atomic_fragments", "Whole packets with a fragment header, which was taken off"),
        Metric::counter("malformed_packets", "Inner packets whose headers cannot be read"),
        Metric::counter("length_fragments", "Fragments but the last whose length is no multiple of 8"),
        Metric::counter("too_long_fragments", "Fragments that reach behind 65535 octets"),
        Metric::counter("incomplete_chain_fragments", "First fragments without all headers"),
        Metric::counter("tiny_fragments", "TCP fragments that begin or end in the TCP header"),
        Metric::counter("empty_fragments", "Fragments without data"),
        Metric::counter("nested_fragments", "Packets with two fragment headers"),
        Metric::gauge("held_octets", "Octets of memory that fragments take now"),
        Metric::gauge("known_datagrams", "Datagrams that something is known of now"),
        Metric::gauge("known_sources", "Sources of these"),
        Metric::counter("cut_packets", "Packets that came whole, were too large, and left as fragments"),
    ];

    type Configuration = Configuration;

    fn check(configuration: &Configuration, report: &mut Report) {
        let at = |key: &str| KeyPath::root().at(key);
        if let Some(mtu) = configuration.mtu.filter(|mtu| !(1280..=65_575).contains(mtu)) {
            report.error(&at("mtu"), format!("{mtu} octets"), "use 1280 to 65575, or remove the key");
        }
        for (key, seconds) in
            [("timeout_ipv6_s", configuration.timeout_ipv6_s), ("timeout_ipv4_s", configuration.timeout_ipv4_s)]
        {
            if !(1..=60).contains(&seconds) {
                report.error(&at(key), format!("{seconds} s"), "use 1 to 60");
            }
        }
        let (all, one) = (configuration.memory, configuration.memory_of_source);
        if one < SMALLEST_MEMORY {
            let message = format!("{one} octets do not hold the fragments of one large packet");
            report.error(&at("memory_of_source"), message, format!("use {SMALLEST_MEMORY} or more"));
        }
        if one > all {
            let message = format!("{one} octets are more than all sources have together");
            report.error(&at("memory_of_source"), message, format!("use {all} or less, or raise memory"));
        }
    }

    fn mode(_: &Configuration) -> Mode {
        Mode::Synchronous
    }

    /// Fragments of one packet need not look like one flow, so all must come together somewhere.
    fn many_workers(_: &Configuration) -> bool {
        false
    }

    /// Fragments have no ports, what is made of them has.
    fn rewrites_flows(_: &Configuration) -> bool {
        true
    }

    fn build(configuration: &Configuration, _: Worker) -> Result<Box<dyn Service>, BuildError> {
        Ok(Box::new(Refragmenter {
            output: configuration.output,
            mtu: configuration.mtu.map_or(usize::MAX, |octets| octets as usize),
            identifications: RandomState::new(),
            cut: 0,
            table: Reassembler::new(Limits {
                memory: configuration.memory as usize,
                memory_of_source: configuration.memory_of_source as usize,
                timeout_ipv6: Duration::from_secs(configuration.timeout_ipv6_s.into()),
                timeout_ipv4: Duration::from_secs(configuration.timeout_ipv4_s.into()),
            }),
        }))
    }
}

struct Refragmenter {
    output: Output,
    mtu: usize,
    /// What nobody can guess (RFC 7739 section 5): keys of the hash that gives packets of IPv6 an identification.
    identifications: RandomState,
    /// Packets that got one.
    cut: u64,
    table: Reassembler<Packet<'static>>,
}

impl Refragmenter {
    fn take(&mut self, packet: &Packet<'_>, fragment: &Fragment<'_>, context: &mut Context) -> Verdict {
        let steering = packet.steering();
        let mut way = steering.remaining();
        way.push(packet.inner_protocol());
        let carried = (packet.len(), outer_ecn(packet) == CE);
        let outcome = self.table.push(context.now(), &way, fragment, carried, || packet.to_owned());
        match outcome {
            Outcome::Held => Verdict::Taken,
            Outcome::Dropped(reason) => Verdict::Drop(reason),
            Outcome::Complete(whole, mut carrier, is_marked) => {
                context.count(REASSEMBLED, 1);
                if is_marked {
                    mark(&mut carrier);
                }
                self.send(&whole, &carrier, context);
                Verdict::Taken
            }
        }
    }

    fn send(&self, whole: &Whole, carrier: &Packet<'_>, context: &mut Context) {
        let sent = self.packets(whole, carrier, context.mtu());
        match sent {
            Ok(packets) => {
                context.count(FRAGMENTED, u64::from(packets.len() > 1));
                for packet in packets {
                    context.send(packet);
                }
                context.account_sent(whole.fragments);
            }
            Err(reason) => context.account_dropped(reason, whole.fragments),
        }
    }

    fn packets(&self, whole: &Whole, carrier: &Packet<'_>, mtu: usize) -> Result<Vec<Packet<'static>>, Reason> {
        let room = self.room(carrier, mtu);
        let largest = match self.output {
            Output::Whole if whole.packet.len() <= room => room,
            // Not larger than what came: that is known to reach its destination.
            Output::Whole | Output::Fragments => room.min(whole.largest),
        };
        let pieces = split(whole, largest).map_err(|error| match error {
            SplitError::TooSmall | SplitError::DontFragment => Reason::TooBig,
            SplitError::Malformed => Reason::Malformed,
        })?;
        let behind =
            |piece: Vec<u8>| carrier.behind_the_same(carrier.inner_protocol(), &[&piece]).map_err(|_| Reason::TooBig);
        pieces.into_iter().map(behind).collect()
    }

    /// Octets of an inner packet that can leave behind the steering header of `carrier`.
    fn room(&self, carrier: &Packet<'_>, mtu: usize) -> usize {
        self.mtu.min(mtu).saturating_sub(carrier.steering().octets().len())
    }

    /// A packet without a fragment header, which may be too large for what is behind the jumbo domain.
    fn whole(&mut self, packet: &Packet<'_>, identification: Option<u32>, context: &mut Context) -> Verdict {
        let is_ip = [protocol::IPV4, protocol::IPV6].contains(&packet.inner_protocol());
        let fits = packet.inner().len() <= self.room(packet, context.mtu());
        if self.output == Output::Whole || fits || !is_ip {
            return Verdict::Onward;
        }
        let identification = identification.unwrap_or_else(|| {
            self.cut += 1;
            self.identifications.hash_one(self.cut) as u32
        });
        let Some(whole) = unsplit(packet.inner(), identification) else { return Verdict::Drop(Reason::Malformed) };
        match self.packets(&whole, packet, context.mtu()) {
            Ok(packets) => {
                context.count(CUT, 1);
                packets.into_iter().for_each(|packet| context.send(packet));
                context.account_sent(whole.fragments);
                Verdict::Taken
            }
            Err(reason) => Verdict::Drop(reason),
        }
    }

    fn account(&mut self, context: &mut Context) {
        for lost in self.table.take_lost() {
            context.account_dropped(lost.reason, lost.packets);
        }
        context.set(HELD, self.table.octets() as u64);
        context.set(DATAGRAMS, self.table.datagrams() as u64);
        context.set(SOURCES, self.table.sources() as u64);
        if let Some(time) = self.table.next_deadline() {
            context.wake_at(time);
        }
    }
}

/// Of congestion that labels tell of a function is told by the packet behind them: the node sees to it.
fn outer_ecn(packet: &Packet<'_>) -> u8 {
    match packet.steering() {
        Steering::Srv6(header) => header.ecn(),
        _ => 0,
    }
}

/// Congestion that one of the fragments has met is told by the outer header of the whole, if that can carry it.
fn mark(carrier: &mut Packet<'_>) {
    if outer_ecn(carrier) != 0
        && let Ok(mut view) = Ipv6Packet::new_checked(carrier.octets_mut())
    {
        let class = view.traffic_class() | CE;
        view.set_traffic_class(class);
    }
}

/// Takes the fragment header off a packet that is whole.
fn take_off(packet: &mut Packet<'_>) -> Result<(), Reason> {
    let Ok(Inner::Fragment(fragment)) = inspect(packet.inner_protocol(), packet.inner()) else { return Ok(()) };
    let mut datagram = Datagram::default();
    let whole = match datagram.add(&fragment) {
        Added::Complete => datagram.assemble(fragment.identity.identification, fragment.identity.source),
        _ => None,
    };
    let number = packet.inner_protocol();
    let whole = whole.ok_or(Reason::FragmentInvalid)?;
    packet.replace_inner(number, &[&whole.packet]).map_err(|_| Reason::TooBig)
}

fn metric_of(fault: Fault) -> usize {
    FAULTS
        + match fault {
            Fault::Malformed => 0,
            Fault::Length => 1,
            Fault::TooLong { .. } => 2,
            Fault::IncompleteChain => 3,
            Fault::Tiny => 4,
            Fault::Empty => 5,
            Fault::Nested => 6,
        }
}

impl Service for Refragmenter {
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> Verdict {
        let verdict = match inspect(packet.inner_protocol(), packet.inner()) {
            Ok(Inner::Whole) => return self.whole(packet, None, context),
            Ok(Inner::Fragment(fragment)) if fragment.is_atomic() => {
                context.count(ATOMIC, 1);
                let identification = fragment.identity.identification;
                return match take_off(packet) {
                    Ok(()) => self.whole(packet, Some(identification), context),
                    Err(reason) => Verdict::Drop(reason),
                };
            }
            Ok(Inner::Fragment(fragment)) => self.take(packet, &fragment, context),
            Err(fault) => {
                context.count(metric_of(fault), 1);
                let is_malformed = fault == Fault::Malformed;
                return Verdict::Drop(if is_malformed { Reason::Malformed } else { Reason::FragmentInvalid });
            }
        };
        self.account(context);
        verdict
    }

    fn timer(&mut self, context: &mut Context) {
        self.table.expire(context.now());
        self.account(context);
    }

    fn stop(&mut self, context: &mut Context) {
        self.table.clear();
        self.account(context);
    }
}
