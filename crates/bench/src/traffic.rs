//! The generator and the sink: loading bpf/bench/traffic.bpf.c, sending, counting.

use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
use nix::time::{ClockId, clock_gettime};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::cpu::RealTime;
use crate::error::{Error, Result};
use crate::frame::{ETHERNET, Packet};
use crate::object::{attach, map, per_cpu, program, update, update_per_cpu};
use crate::scenario::Arrival;
use crate::topology::{EAST_MAC, FUNCTION_BACK_MAC, GENERATOR_MAC, IN_MAC, OUT_MAC, SINK_MAC, Topology};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/traffic.bpf.o"));
const HEADER_WORDS: usize = 24;
const FRAME_WORDS: usize = 190;
/// `BPF_F_TEST_XDP_LIVE_FRAMES`: what the program redirects is transmitted.
const LIVE_FRAMES: u32 = 1 << 1;

/// `struct bench_config` of bpf/bench/traffic.h.
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct Config {
    header: [[u8; 8]; HEADER_WORDS],
    macs: [[u8; 6]; 2],
    ethertype: [u8; 2],
    reserved0: u16,
    bare_macs: [[u8; 6]; 2],
    words: u32,
    generator_out: u32,
    bare_out: u32,
    sink_length: u32,
    flows: u32,
    port_offset: u32,
    balance_offset: u32,
    sink_port_offset: u32,
    sink_balance_offset: u32,
    slack: u32,
    chain_offset: u32,
    sink_chain_offsets: [u32; 2],
    reflector_out: u32,
    reflector_macs: [[u8; 6]; 2],
    reserved1: [u32; 2],
}

/// `struct bench_sent`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Sent {
    /// Frames given to the first link.
    pub packets: u64,
    /// Frames that the generator could not restore; not given to the link.
    pub refused: u64,
    first: u64,
    next: u64,
    interval: u64,
    flow: u64,
    burst: u64,
    /// Paced runs: runs of the generator in which no packet was due.
    pub idle: u64,
    begun: u64,
    latest: u64,
}

impl Sent {
    /// From the first frame to `end` on the monotonic clock.
    #[must_use]
    pub fn until(&self, end: Duration) -> Duration {
        end.saturating_sub(Duration::from_nanos(self.first))
    }
}

/// The monotonic clock, by which the generator notes its first frame.
///
/// # Errors
/// If the system has no such clock.
pub fn now() -> Result<Duration> {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).map_err(Error::system("read the monotonic clock"))
}

/// `struct bench_received`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Received {
    /// Frames of the expected length.
    pub packets: u64,
    /// Frames of another length.
    pub other: u64,
    stamp: u64,
    stamp_packets: u64,
    /// While verifying: frames that differ from what was expected.
    pub wrong: u64,
    /// Offset of the first difference.
    pub wrong_offset: u64,
    /// What stood there: up to eight octets, the first in the lowest byte.
    pub wrong_found: u64,
    /// What should have.
    pub wrong_wanted: u64,
}

#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct Expected {
    want: [[u8; 8]; FRAME_WORDS],
    mask: [[u8; 8]; FRAME_WORDS],
    last_want: [u8; 8],
    last_mask: [u8; 8],
}

/// What the generator varies and how it hands frames in.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Different inner source ports, at most [`FLOWS_MAX`].
    pub flows: u32,
    /// Octets of extra headroom; not 0 (see `generate` in bpf/bench/traffic.bpf.c).
    pub slack: u32,
    /// Where in the packet each flow has its number, 32 bits of a segment: then each flow is a chain of its own.
    pub chain: Option<usize>,
    /// The interface by which `reflector` sends on, in the function's namespace.
    pub reflector_out: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { flows: 1, slack: 8, chain: None, reflector_out: 0 }
    }
}

/// Most flows of a run, `BENCH_FLOWS_MAX`.
pub const FLOWS_MAX: u32 = 16384;
/// Nanoseconds in one bucket of the latency histogram, `BENCH_BUCKET`.
const BUCKET: u64 = 64;

/// How long packets were under way, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// Packets.
    pub packets: u64,
    /// Half of them were faster.
    pub median: f64,
    /// 99 of 100 were faster.
    pub p99: f64,
}

impl Latency {
    /// From a histogram with buckets of [`BUCKET`] nanoseconds. None if it is empty.
    fn of(histogram: &[u64]) -> Option<Self> {
        let packets: u64 = histogram.iter().sum();
        let quantile = |share: f64| {
            let wanted = (packets as f64 * share).ceil() as u64;
            let mut seen = 0;
            let bucket = histogram.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            (bucket.unwrap_or(0) as f64 + 0.5) * BUCKET as f64
        };
        (packets > 0).then(|| Self { packets, median: quantile(0.5), p99: quantile(0.99) })
    }
}

/// What a generator in a thread of its own needs.
#[derive(Debug, Clone)]
pub struct Generator {
    config: Config,
    input: Vec<u8>,
}

impl Generator {
    /// Sends `times` frames from this thread, which must be in the generator's namespace; the first one is of flow `first`.
    ///
    /// # Errors
    /// If the kernel refuses the program.
    pub fn transmit(&self, times: u32, first: u32) -> Result<Sent> {
        let object = load(&self.config)?;
        let sent = map(&object, "sent")?;
        update_per_cpu(&sent, &Sent { flow: u64::from(first), ..Sent::default() })?;
        run_generator(&object, &self.input, times)?;
        Ok(per_cpu::<Sent>(&sent)?.into_iter().max_by_key(|value| value.packets).unwrap_or_default())
    }
}

/// Generator and sink of one topology.
#[derive(Debug)]
pub struct Traffic {
    // Before the object, so that the links go first.
    sink: Link,
    object: Object,
    generator: Generator,
}

impl Traffic {
    /// Loads both and attaches the sink, which counts and does not verify yet.
    ///
    /// # Errors
    /// If the kernel refuses a program, or a packet does not fit the harness.
    pub fn start(topology: &Topology, packet: &Packet, arrival: &Arrival, settings: Settings) -> Result<Self> {
        let config = config(topology, packet, arrival, settings)?;
        let object = load(&config)?;
        let expected = map(&object, "expected")?;
        update(&expected, "expected", expected_of(arrival)?.as_bytes())?;
        let sink = {
            let _inside = topology.sink.enter()?;
            attach(&object, "sink", topology.sink_ifindex)?
        };
        let mut input = vec![0; settings.slack as usize];
        input.extend(packet.frame(IN_MAC, GENERATOR_MAC));
        Ok(Self { sink, object, generator: Generator { config, input } })
    }

    /// Switches the comparison of every octet on or off.
    ///
    /// # Errors
    /// If the kernel does not exchange the program.
    pub fn verify(&mut self, on: bool) -> Result<()> {
        self.exchange(if on { "sink_verify" } else { "sink" })
    }

    /// Switches the measurement of latencies on, with an empty histogram, or off; for paced runs.
    ///
    /// # Errors
    /// As [`Traffic::verify`].
    pub fn measure_latency(&mut self, on: bool) -> Result<()> {
        let latencies = map(&self.object, "latencies")?;
        for bucket in 0..latencies.max_entries() {
            latencies
                .update(&bucket.to_ne_bytes(), &0u64.to_ne_bytes(), MapFlags::ANY)
                .map_err(Error::bpf("empty the histogram of latencies"))?;
        }
        self.exchange(if on { "sink_latency" } else { "sink" })
    }

    /// Latencies since [`Traffic::measure_latency`].
    ///
    /// # Errors
    /// If the histogram cannot be read.
    pub fn latency(&self) -> Result<Option<Latency>> {
        let latencies = map(&self.object, "latencies")?;
        let mut histogram = Vec::new();
        for bucket in 0..latencies.max_entries() {
            let value = latencies
                .lookup(&bucket.to_ne_bytes(), MapFlags::ANY)
                .map_err(Error::bpf("read the histogram of latencies"))?;
            histogram.push(value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_ne_bytes));
        }
        Ok(Latency::of(&histogram))
    }

    /// A generator of the same frames for another thread.
    #[must_use]
    pub fn generator(&self) -> Generator {
        self.generator.clone()
    }

    fn exchange(&mut self, name: &str) -> Result<()> {
        let program = program(&self.object, name)?;
        self.sink.update_prog(&program).map_err(Error::bpf(format!("exchange the sink for {name}")))
    }

    /// Attaches `bare`, `bare_map` or `pass` to the node's port `in`. The link is the attachment.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn attach_to_node(&self, topology: &Topology, name: &str) -> Result<Link> {
        let _inside = topology.node.enter()?;
        if name == "bare_map" {
            update(&map(&self.object, "ports")?, "ports", topology.out_ifindex.as_bytes())?;
        }
        attach(&self.object, name, topology.in_ifindex)
    }

    /// Attaches `reflector` or `pass` to an interface of the namespace that this thread is in.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn attach_here(&self, name: &str, ifindex: u32) -> Result<Link> {
        attach(&self.object, name, ifindex)
    }

    /// Sets all counts to zero. With an `interval`, frames are then sent that far apart, else as fast as possible.
    ///
    /// # Errors
    /// If the maps cannot be written.
    pub fn reset(&self, interval: Duration) -> Result<()> {
        let nanoseconds = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        update_per_cpu(&map(&self.object, "sent")?, &Sent { interval: nanoseconds, ..Sent::default() })?;
        update_per_cpu(&map(&self.object, "received")?, &Received::default())
    }

    /// Runs the generator `times` times: so many frames, or fewer in a paced run.
    ///
    /// # Errors
    /// If the kernel refuses to run it.
    pub fn transmit(&self, topology: &Topology, times: u32) -> Result<()> {
        let _inside = topology.generator.enter()?;
        run_generator(&self.object, &self.generator.input, times)
    }

    /// What was sent and what arrived since [`Traffic::reset`].
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn counts(&self) -> Result<(Sent, Received)> {
        // One processor generates and sinks, so only its values are not zero.
        let sent = per_cpu::<Sent>(&map(&self.object, "sent")?)?.into_iter().max_by_key(|value| value.packets);
        let received = per_cpu::<Received>(&map(&self.object, "received")?)?;
        let mut total = received.iter().copied().max_by_key(|value| value.packets).unwrap_or_default();
        total.packets = received.iter().map(|value| value.packets).sum();
        total.other = received.iter().map(|value| value.other).sum();
        let wrong = received.iter().copied().max_by_key(|value| value.wrong).unwrap_or_default();
        total.wrong = received.iter().map(|value| value.wrong).sum();
        (total.wrong_offset, total.wrong_found, total.wrong_wanted) =
            (wrong.wrong_offset, wrong.wrong_found, wrong.wrong_wanted);
        Ok((sent.unwrap_or_default(), total))
    }
}

fn run_generator(object: &Object, input: &[u8], times: u32) -> Result<()> {
    let program = program(object, "generate")?;
    let input = ProgramInput { data_in: Some(input), flags: LIVE_FRAMES, repeat: times, ..ProgramInput::default() };
    let _undisturbed = RealTime::if_allowed();
    program
        .test_run(input)
        .map_err(Error::bpf("run the generator (BPF_PROG_TEST_RUN with live frames, Linux 5.18)"))?;
    Ok(())
}

impl Traffic {
    /// Frames of the expected length that each processor brought to the sink.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn received_by_processor(&self) -> Result<Vec<u64>> {
        Ok(per_cpu::<Received>(&map(&self.object, "received")?)?.iter().map(|value| value.packets).collect())
    }
}

/// What the generator did in a run that is paced to the packet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offered {
    /// How long the generator ran.
    pub time: Duration,
    /// Runs in which no packet was due.
    pub idle: u64,
}

impl Traffic {
    /// Offers `rate` packets per second for `duration`. Packets that become due while the processor forwards others are sent late, as
    /// long as that is not by more than [`BURST`].
    ///
    /// # Errors
    /// If the kernel refuses to run the generator.
    pub fn offer(&self, topology: &Topology, rate: f64, duration: Duration) -> Result<Offered> {
        const TIMES: u32 = 1 << 17;
        self.reset(Duration::from_secs_f64(1.0 / rate))?;
        let sent = map(&self.object, "sent")?;
        let program = program(&self.object, "generate")?;
        let current =
            || Ok::<_, Error>(per_cpu::<Sent>(&sent)?.into_iter().max_by_key(|value| value.latest).unwrap_or_default());
        let mut offered = Offered::default();
        let _inside = topology.generator.enter()?;
        let _undisturbed = RealTime::if_allowed();
        while offered.time < duration {
            let burst = BURST.as_nanos() as u64;
            update_per_cpu(&sent, &Sent { begun: 0, burst, ..current()? })?;
            let input = ProgramInput {
                data_in: Some(&self.generator.input),
                flags: LIVE_FRAMES,
                repeat: TIMES,
                ..ProgramInput::default()
            };
            program.test_run(input).map_err(Error::bpf("run the generator"))?;
            let now = current()?;
            offered.time += Duration::from_nanos(now.latest - now.begun);
            offered.idle = now.idle;
        }
        Ok(offered)
    }
}

/// Packets that are later than this are not sent any more.
pub const BURST: Duration = Duration::from_micros(200);

/// Frames per second at the sink: from the first frame sent to the last one whose time the sink noted.
#[must_use]
pub fn rate(sent: &Sent, received: &Received) -> Option<f64> {
    let nanoseconds = received.stamp.checked_sub(sent.first)?;
    (nanoseconds > 0 && received.stamp_packets > 0).then(|| received.stamp_packets as f64 * 1e9 / nanoseconds as f64)
}

fn config(topology: &Topology, packet: &Packet, arrival: &Arrival, settings: Settings) -> Result<Config> {
    let words = packet.headers.div_ceil(8);
    if words > HEADER_WORDS || 8 * words > packet.octets.len() {
        return Err(Error::Usage(format!("{} octets of headers cannot be restored by the generator", packet.headers)));
    }
    if !(1..=FLOWS_MAX).contains(&settings.flows) {
        return Err(Error::Usage(format!("{} flows: 1 to {FLOWS_MAX} can be sent", settings.flows)));
    }
    let mut header = [[0; 8]; HEADER_WORDS];
    for (word, octets) in header.iter_mut().zip(packet.octets.chunks_exact(8)).take(words) {
        word.copy_from_slice(octets);
    }
    Ok(Config {
        header,
        macs: [IN_MAC, GENERATOR_MAC],
        ethertype: packet.ethertype.to_be_bytes(),
        reserved0: 0,
        bare_macs: [SINK_MAC, OUT_MAC],
        words: words as u32,
        generator_out: topology.generator_ifindex,
        bare_out: topology.out_ifindex,
        sink_length: arrival.frame.len() as u32,
        flows: settings.flows,
        port_offset: (ETHERNET + packet.port) as u32,
        balance_offset: (ETHERNET + packet.balance) as u32,
        sink_port_offset: arrival.port as u32,
        sink_balance_offset: arrival.balance as u32,
        slack: settings.slack,
        chain_offset: settings.chain.map_or(0, |chain| (ETHERNET + chain) as u32),
        sink_chain_offsets: arrival.chains.map(|chain| chain as u32),
        reflector_out: settings.reflector_out,
        reflector_macs: [FUNCTION_BACK_MAC, EAST_MAC],
        reserved1: [0; 2],
    })
}

fn expected_of(arrival: &Arrival) -> Result<Expected> {
    let length = arrival.frame.len();
    if !(ETHERNET..=8 * FRAME_WORDS).contains(&length) || arrival.mask.len() != length {
        return Err(Error::Usage(format!("frames of {length} octets cannot be verified")));
    }
    let masked: Vec<u8> = arrival.frame.iter().zip(&arrival.mask).map(|(octet, mask)| octet & mask).collect();
    let words = |octets: &[u8]| {
        let mut words = [[0; 8]; FRAME_WORDS];
        for (word, octets) in words.iter_mut().zip(octets.chunks_exact(8)) {
            word.copy_from_slice(octets);
        }
        words
    };
    let last = |octets: &[u8]| octets.last_chunk::<8>().copied().unwrap_or_default();
    Ok(Expected {
        want: words(&masked),
        mask: words(&arrival.mask),
        last_want: last(&masked),
        last_mask: last(&arrival.mask),
    })
}

fn load(config: &Config) -> Result<Object> {
    let mut open = ObjectBuilder::default().open_memory(OBJECT).map_err(Error::bpf("open traffic.bpf.o"))?;
    for mut map in open.maps_mut() {
        if map.name().to_string_lossy().ends_with(".rodata") {
            map.set_initial_value(config.as_bytes()).map_err(Error::bpf("set the configuration of traffic.bpf.o"))?;
        }
    }
    open.load().map_err(Error::bpf("load traffic.bpf.o"))
}

#[cfg(test)]
mod tests {
    use super::Latency;

    #[test]
    fn quantiles_are_those_of_the_packets_in_the_buckets() {
        let mut histogram = vec![0; 64];
        (histogram[10], histogram[20], histogram[40]) = (60, 38, 2);
        let latency = Latency::of(&histogram).unwrap();
        assert_eq!((latency.packets, latency.median, latency.p99), (100, 672.0, 2592.0));
        assert_eq!(Latency::of(&[0; 8]), None);
    }
}
