//! TCP segments, plausible and wild, in the kernel's connection tracking and in Segue's: every segment has the same state and
//! direction in both, and leaves a connection with the same state and lifetime.

use std::fmt::{self, Write};

use segue_classifier::random::Random;
use segue_testkit::fixture::Network;
use segue_testkit::is_long;
use segue_testkit::node::clock;
use segue_wire::{Ipv6Repr, PacketBuilder, TcpRepr};

use crate::track::{FAR, Kernel, NEAR, STATES, Segue};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

const SERVICE: u16 = 80;

/// Seconds that connections live. What is left of one is rounded up to the next of them, as the two are not asked at once.
const LIFETIMES: [u64; 7] = [10, 30, 60, 120, 300, 432_000, u64::MAX];
const TCP_STATES: [&str; 10] = [
    "NONE",
    "SYN_SENT",
    "SYN_RECV",
    "ESTABLISHED",
    "FIN_WAIT",
    "CLOSE_WAIT",
    "LAST_ACK",
    "TIME_WAIT",
    "CLOSE",
    "SYN_SENT2",
];

/// What is known of a connection: the name of its state, its lifetime, and whether it is assured.
type Known = Option<(String, u64, bool)>;

fn lifetime(left: u64) -> u64 {
    *LIFETIMES.iter().find(|lifetime| left <= **lifetime).expect("the last one is the largest")
}

#[derive(Clone)]
struct Segment {
    /// From the near host, which uses the port that the script has.
    near: bool,
    flags: u8,
    sequence: u32,
    acknowledgment: u32,
    window: u16,
    options: Vec<u8>,
    length: usize,
    /// Its checksum is wrong.
    damaged: bool,
}

impl fmt::Debug for Segment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { near, flags, sequence, acknowledgment, window, options, length, damaged: _ } = self;
        let names = [(SYN, "SYN "), (FIN, "FIN "), (RST, "RST "), (PSH, "PSH "), (ACK, "ACK ")];
        let flags: String = names.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect();
        let side = if *near { "near" } else { "far " };
        write!(out, "{side} {flags}{sequence}+{length} ack {acknowledgment} win {window} {options:02x?}")
    }
}

impl Segment {
    fn build(&self, packet: PacketBuilder, port: u16) -> Vec<u8> {
        let (from, to) = if self.near { (port, SERVICE) } else { (SERVICE, port) };
        let header = TcpRepr {
            sequence_number: self.sequence,
            acknowledgment_number: self.acknowledgment,
            window: self.window,
            options: self.options.clone(),
            ..TcpRepr::new(from, to, self.flags)
        };
        let start = self.options.len() + self.length + 20;
        let mut frame = packet.ipv6(self.ip()).tcp(header).payload(&vec![0x55; self.length]).build();
        let checksum = frame.len() - start + 16;
        frame[checksum] ^= u8::from(self.damaged);
        frame
    }

    fn ip(&self) -> Ipv6Repr {
        if self.near { Ipv6Repr::new(NEAR, FAR) } else { Ipv6Repr::new(FAR, NEAR) }
    }

    fn end(&self) -> u32 {
        let controls = u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0);
        self.sequence.wrapping_add(self.length as u32).wrapping_add(controls)
    }
}

/// What the kernel and Segue think of a segment: indices of [`STATES`].
fn judge(kernel: &Kernel, segue: &mut Segue<'_>, segment: &Segment, port: u16) -> [usize; 2] {
    let ports = if segment.near { (port, SERVICE) } else { (SERVICE, port) };
    let ports = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    let is_it = |frame: &[u8]| frame.len() > 74 - 20 && frame[20] == 6 && frame[54..58] == ports;
    let build = |packet| segment.build(packet, port);
    [kernel.judge(segment.near, build, is_it), segue.judge(build)]
}

impl Kernel {
    fn known(&self, port: u16) -> Known {
        let table = self.connections();
        let wanted = [format!("sport={port} dport={SERVICE}"), format!("sport={SERVICE} dport={port}")];
        let line = table.lines().find(|line| wanted.iter().any(|ports| line.contains(ports.as_str())))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let left = words[4].parse().expect("a lifetime in seconds");
        Some((words[5].to_owned(), lifetime(left), line.contains("[ASSURED]")))
    }
}

impl Segue<'_> {
    fn known(&self, port: u16) -> Known {
        let now = clock();
        for (_, entry) in self.node.connections() {
            let (ports, connection) = (entry.key.ports, entry.connection);
            if (ports >> 16 == u32::from(port) || ports as u16 == port) && connection.expires > now {
                let left = (connection.expires - now) / 1_000_000_000;
                let assured = u32::from(connection.flags) & segue_abi::SEGUE_CONNECTION_ASSURED != 0;
                return Some((TCP_STATES[usize::from(connection.state)].into(), lifetime(left), assured));
            }
        }
        None
    }
}

/// How many segments were in each of [`STATES`]; the story up to the first difference.
fn play(kernel: &Kernel, segue: &mut Segue<'_>, port: u16, script: &[Segment]) -> Result<[u64; STATES.len()], String> {
    let mut story = String::new();
    let mut found = [0; STATES.len()];
    for segment in script {
        let [theirs, ours] = judge(kernel, segue, segment, port);
        let known = (kernel.known(port), segue.known(port));
        let _ = writeln!(story, "{segment:?}: {}, then {:?}", STATES[theirs], known.0);
        if (ours, &known.1) != (theirs, &known.0) {
            return Err(format!("{story}but for Segue {}, then {:?}", STATES[ours], known.1));
        }
        found[theirs] += 1;
    }
    Ok(found)
}

/// One of two sides that mean to talk sensibly.
#[derive(Clone)]
struct Side {
    /// What it sends next.
    next: u32,
    /// What it expects next.
    expected: u32,
    /// Of its window.
    scale: Option<u8>,
    sack: bool,
    window: u16,
}

struct Script<'a> {
    random: &'a mut Random,
    sides: [Side; 2],
    segments: Vec<Segment>,
    timestamps: bool,
}

fn padded(mut options: Vec<u8>) -> Vec<u8> {
    options.resize(options.len().next_multiple_of(4), 1);
    options
}

impl<'a> Script<'a> {
    fn new(random: &'a mut Random) -> Self {
        let mut side = || {
            let start = match random.below(3) {
                0 => 0_u32.wrapping_sub(random.below(3000) as u32),
                1 => 0x8000_0000_u32.wrapping_sub(random.below(3000) as u32),
                _ => random.number() as u32,
            };
            let scale = (random.below(3) > 0).then(|| random.below(17) as u8);
            let window = *random.pick(&[0, 1, 100, 1000, 8000, 30_000, 65_535]);
            Side { next: start, expected: 0, scale, sack: random.below(3) > 0, window }
        };
        let sides = [side(), side()];
        Self { timestamps: random.below(2) == 0, sides, segments: Vec::new(), random }
    }

    fn options(&mut self, from: usize, syn: bool) -> Vec<u8> {
        let mut options = Vec::new();
        let side = &self.sides[from];
        if syn {
            options.extend([2, 4, 5, 0xa0]);
            if side.sack {
                options.extend([4, 2]);
            }
            if let Some(scale) = side.scale {
                options.extend([1, 3, 3, scale]);
            }
        }
        if self.timestamps {
            options.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        }
        padded(options)
    }

    /// The segment that `from` would send now.
    fn segment(&mut self, from: usize, flags: u8, length: usize) -> Segment {
        let options = self.options(from, flags & SYN != 0);
        let side = &self.sides[from];
        let acknowledgment = if flags & ACK != 0 { side.expected } else { 0 };
        Segment {
            near: from == 0,
            flags,
            sequence: side.next,
            acknowledgment,
            window: side.window,
            options,
            length,
            damaged: false,
        }
    }

    /// Sends it; `seen` by what is between, or lost before; `arrives`, or is lost behind.
    fn say(&mut self, from: usize, flags: u8, length: usize, seen: bool, arrives: bool) {
        let segment = self.segment(from, flags, length);
        self.sides[from].next = segment.end();
        if arrives {
            self.sides[1 - from].expected = segment.end();
        }
        if seen {
            self.segments.push(segment);
        }
    }

    fn shake_hands(&mut self) {
        self.say(0, SYN, 0, true, true);
        self.say(1, SYN | ACK, 0, true, true);
        self.say(0, ACK, 0, true, true);
    }

    /// Something that is not in order.
    fn wild(&mut self) {
        let from = self.random.below(2);
        let flags = *self.random.pick(&[
            ACK,
            ACK,
            ACK | PSH,
            SYN,
            SYN | ACK,
            FIN | ACK,
            RST,
            RST | ACK,
            RST,
            FIN,
            0,
            SYN | FIN,
        ]);
        let length = *self.random.pick(&[0, 0, 1, 10, 800]);
        let mut segment = self.segment(from, flags, if flags & RST != 0 { 0 } else { length });
        let near = [0, 0, 1, u32::MAX, 100, 0_u32.wrapping_sub(100), 1000, 66_000, 0_u32.wrapping_sub(66_001), 65_535];
        let far = [100_000, 0_u32.wrapping_sub(100_000), 1 << 20, 1 << 31, (1 << 31) - 1];
        let strange = |random: &mut Random| match random.below(8) {
            0 => random.number() as u32,
            1 => *random.pick(&far),
            2 | 3 => random.below(70_000) as u32,
            _ => *random.pick(&near),
        };
        match self.random.below(4) {
            0 => segment.sequence = segment.sequence.wrapping_add(strange(self.random)),
            1 => segment.acknowledgment = segment.acknowledgment.wrapping_add(strange(self.random)),
            2 => {
                segment.sequence = segment.sequence.wrapping_add(strange(self.random));
                segment.acknowledgment = segment.acknowledgment.wrapping_add(strange(self.random));
            }
            _ => {}
        }
        match self.random.below(12) {
            0 => segment.sequence = 0,
            1 => segment.acknowledgment = 0,
            2 => segment.window = 0,
            3 => segment.sequence = self.sides[1 - from].expected,
            _ => {}
        }
        self.segments.push(segment);
    }

    /// One of the things that happen on a connection.
    fn step(&mut self) {
        let from = self.random.below(2);
        match self.random.below(26) {
            0..=6 => {
                let length = self.random.below(1200);
                let (seen, arrives) = (!self.random.per_mille(100), !self.random.per_mille(100));
                self.say(from, ACK | PSH, length, seen, seen && arrives);
            }
            7..=9 => self.say(from, ACK, 0, true, true),
            10 | 11 => self.again(),
            12 => self.sides[from].window = *self.random.pick(&[0, 1, 500, 10_000, 65_535]),
            13 => self.selective(from),
            14 => {
                // A keepalive, with or without an octet.
                let length = self.random.below(2);
                let mut segment = self.segment(from, ACK, length);
                segment.sequence = segment.sequence.wrapping_sub(1);
                self.segments.push(segment);
            }
            15 => self.say(from, FIN | ACK, 0, true, true),
            16 => {
                let flags = *self.random.pick(&[RST, RST | ACK]);
                self.say(from, flags, 0, true, true);
            }
            17 => {
                // The client has forgotten it, and begins again.
                self.sides[from].next = self.random.number() as u32;
                self.say(from, SYN, 0, true, true);
                if self.random.below(2) == 0 {
                    self.say(1 - from, SYN | ACK, 0, true, true);
                    self.say(from, ACK, 0, true, true);
                }
            }
            18 | 19 => self.answer_by_reset(),
            _ => self.wild(),
        }
    }

    /// One side has nothing to do with the last segment.
    fn answer_by_reset(&mut self) {
        let Some(last) = self.segments.last().cloned() else { return };
        let flags = *self.random.pick(&[RST, RST | ACK]);
        let mut segment = self.segment(usize::from(last.near), flags, 0);
        segment.sequence = if last.flags & ACK != 0 { last.acknowledgment } else { 0 };
        segment.acknowledgment = if segment.flags & ACK != 0 { last.end() } else { 0 };
        self.segments.push(segment);
    }

    /// A segment that was sent before, the last or any.
    fn again(&mut self) {
        let count = self.segments.len();
        let which = if self.random.below(2) == 0 { count.saturating_sub(1) } else { self.random.below(count) };
        if let Some(old) = self.segments.get(which).cloned() {
            for _ in 0..1 + self.random.below(4) {
                self.segments.push(old.clone());
            }
        }
    }

    /// An ACK with SACK blocks.
    fn selective(&mut self, from: usize) {
        let mut segment = self.segment(from, ACK, 0);
        let blocks = 1 + self.random.below(if self.timestamps { 3 } else { 4 });
        let mut options = if self.timestamps { segment.options.clone() } else { Vec::new() };
        options.extend([1, 1, 5, 2 + 8 * blocks as u8]);
        for _ in 0..blocks {
            let left = self.sides[1 - from].next.wrapping_sub(self.random.below(3000) as u32);
            let right = left.wrapping_add(self.random.below(3000) as u32);
            options.extend(left.to_be_bytes());
            options.extend(right.to_be_bytes());
        }
        segment.options = options;
        self.segments.push(segment);
    }
}

fn random_script(random: &mut Random) -> Vec<Segment> {
    let mut script = Script::new(random);
    match script.random.below(8) {
        0 => {
            // Picked up in the middle.
            let (near, far) = (script.sides[0].next, script.sides[1].next);
            (script.sides[0].expected, script.sides[1].expected) = (far, near);
        }
        1 => {
            script.say(0, SYN, 0, true, true);
            script.say(1, SYN, 0, true, true);
            script.say(0, SYN | ACK, 0, true, true);
            script.say(1, SYN | ACK, 0, true, true);
        }
        2 => {
            script.say(0, SYN, 0, true, true);
            script.again();
        }
        _ => script.shake_hands(),
    }
    for _ in 0..script.random.below(30) {
        script.step();
    }
    script.segments
}

/// Plays so many random scripts, whose stories may differ nowhere.
fn compare(kernel: &Kernel, segue: &mut Segue<'_>, seeds: std::ops::Range<u64>) -> [u64; STATES.len()] {
    let (mut found, mut different) = ([0; STATES.len()], Vec::new());
    for seed in seeds.clone() {
        let script = random_script(&mut Random::new(seed));
        let port = 1024 + (seed % 60_000) as u16;
        match play(kernel, segue, port, &script) {
            Ok(counts) => found.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count),
            Err(story) => different.push(format!("seed {seed}:\n{story}\n")),
        }
    }
    let counts: Vec<String> = STATES.iter().zip(found).map(|(state, count)| format!("{count} {state}")).collect();
    println!("scripts {seeds:?}: {}", counts.join("; "));
    let some = different.iter().take(3).map(String::as_str).collect::<String>();
    assert!(different.is_empty(), "{} of {seeds:?} differ:\n{some}", different.len());
    found
}

/// `SEGUE_TCP_SEEDS=1000..3000` plays others than the usual ones.
fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("SEGUE_TCP_SEEDS") else { return usual };
    let (first, end) = text.split_once("..").expect("FIRST..END");
    first.parse().expect("a number")..end.parse().expect("a number")
}

#[test]
#[ignore = "needs root"]
fn random_segments_are_what_netfilter_takes_them_for() {
    let (network, kernel) = (Network::new(), Kernel::new());
    let mut segue = Segue::new(&network, "entries: 2048");
    let scripts = if is_long() { 300 } else { 120 };
    let found = compare(&kernel, &mut segue, seeds(0..scripts));
    let often = scripts * 2 / 3;
    assert!(found[0] == 0 && found[1..5].iter().all(|count| *count > often), "each state is met: {found:?}");
}

#[test]
#[ignore = "needs root"]
fn random_segments_are_what_a_liberal_netfilter_takes_them_for() {
    let (network, kernel) = (Network::new(), Kernel::new());
    kernel.router.sh("sysctl -q net.netfilter.nf_conntrack_tcp_be_liberal=1");
    let mut segue = Segue::new(&network, "entries: 2048, tcp_be_liberal: true");
    compare(&kernel, &mut segue, seeds(10_000..if is_long() { 10_100 } else { 10_040 }));
}

/// What is different, on purpose. (Fragments are, too: firewall/state.rs.)
#[test]
#[ignore = "needs root"]
fn only_netfilter_looks_at_checksums() {
    let (network, kernel) = (Network::new(), Kernel::new());
    let mut segue = Segue::new(&network, "entries: 2048");
    let mut random = Random::new(1);
    let mut script = Script::new(&mut random);
    script.shake_hands();
    script.sides[0].window = 1000;
    script.say(0, ACK, 10, true, true);
    let mut segments = script.segments;
    let last = segments.last_mut().expect("data");
    last.damaged = true;
    for segment in &segments[..3] {
        let [theirs, ours] = judge(&kernel, &mut segue, segment, 2000);
        assert_eq!(ours, theirs);
    }
    assert_eq!(judge(&kernel, &mut segue, &segments[3], 2000).map(|state| STATES[state]), ["INVALID", "ESTABLISHED"]);
}
