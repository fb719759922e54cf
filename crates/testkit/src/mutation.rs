//! Packets that went wrong: valid ones, mutated in the ways that parsers get wrong.

use std::net::Ipv6Addr;

use segue_wire::ipv6_extension::{FragmentRepr, OptionsRepr, RoutingRepr};
use segue_wire::{Icmpv6Repr, Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TcpRepr, TlvRepr, UdpRepr};

use crate::fixture::{address::*, arriving, function};

/// A small generator of pseudo-random numbers (SplitMix64), the same everywhere for the same seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// A valid packet for one port.
#[derive(Debug, Clone)]
pub struct Seed {
    /// The port that it comes in by.
    pub port: &'static str,
    /// The frame.
    pub frame: Vec<u8>,
}

/// Offset of the SRH in frames where it follows the IPv6 header.
const SRH: usize = 14 + 40;

/// Valid packets of every kind that the data plane knows, for ports of every role.
pub fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |port: &'static str, packet: PacketBuilder| seeds.push(Seed { port, frame: packet.build() });
    let six = |packet: PacketBuilder| {
        packet.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(1, 2)).payload(&[7; 40])
    };
    let four = |packet: PacketBuilder| {
        packet.inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4)).tcp(TcpRepr::new(1, 80, 2)).payload(&[7; 40])
    };
    let ethernet = |packet: PacketBuilder| {
        packet
            .inner_ethernet([2; 6], [4; 6])
            .ipv4(Ipv4Repr::new(CLIENT4, SERVER4))
            .udp(UdpRepr::new(1, 2))
            .payload(&[7; 20])
    };
    for sid in FUNCTIONS {
        let outer = || arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(sid)));
        let path = [local(sid), behind_core1(1), behind_core1(2)];
        let tlv = TlvRepr::Unknown { tlv_type: 0x7d, value: vec![1; 6] };
        add("core0", six(outer().srh(SrhRepr::new(&path))));
        add("core0", four(outer().srh(SrhRepr::reduced(&path).with_tlv(tlv))));
        add("core0", six(outer().srh(SrhRepr::new(&path[..2]).with_segments_left(1))));
        add("core0", six(outer().hop_by_hop(OptionsRepr::default()).srh(SrhRepr::new(&path).with_segments_left(0))));
        add("core0", six(outer().destination_options(OptionsRepr::default()).srh(SrhRepr::new(&path[..2]))));
        add("core0", six(outer()));
        add("core0", four(outer()));
        add("core0", ethernet(outer()));
        add("core0", six(outer().fragment(FragmentRepr::default())));
        add("core0", six(outer().routing(RoutingRepr { data: vec![0; 20], ..RoutingRepr::default() })));
        add("core0", outer().icmpv6(Icmpv6Repr::EchoRequest { identifier: 1, sequence_number: 1, data: vec![1; 30] }));
    }
    let wrapped = PacketBuilder::new().ipv6(Ipv6Repr::new(NODE, behind_core1(1))).srh(SrhRepr::new(&[behind_core1(1)]));
    let quoted = six(wrapped).build();
    add(
        "core1",
        arriving("core1")
            .ipv6(Ipv6Repr::new(HEADEND, NODE))
            .icmpv6(Icmpv6Repr::PacketTooBig { mtu: 1300, packet: quoted.clone() }),
    );
    add(
        "core1",
        arriving("core1")
            .ipv6(Ipv6Repr::new(HEADEND, NODE))
            .icmpv6(Icmpv6Repr::TimeExceeded { code: 0, packet: quoted }),
    );
    add(
        "core1",
        six(arriving("core1").ipv6(Ipv6Repr::new(HEADEND, behind_core1(1))).srh(SrhRepr::new(&[behind_core1(1)]))),
    );
    for network in (0xe0..=0xec).filter(|network| *network != 0xe8) {
        let to = Ipv6Addr::new(0xfd00, 0, network, 0, 0, 0, 0, 7);
        add("acc0", arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, to)).udp(UdpRepr::new(1, 2)).payload(&[7; 40]));
        add(
            "acc0",
            arriving("acc0")
                .ipv6(Ipv6Repr::new(CLIENT, to))
                .destination_options(OptionsRepr::default())
                .tcp(TcpRepr::new(1, 2, 2)),
        );
    }
    for network in [[20, 0], [20, 1], [20, 2], [20, 6], [21, 1], [22, 0]] {
        let to = [10, network[0], network[1], 7].into();
        add("acc0", arriving("acc0").ipv4(Ipv4Repr::new(CLIENT4, to)).tcp(TcpRepr::new(1, 80, 2)).payload(&[7; 40]));
    }
    let hmac = SrhRepr::new(&[local(1), behind_core1(1)]).with_hmac(segue_wire::HmacVariant::Linux, SERVER, 1, b"key");
    add("acc1", six(arriving("acc1").ipv6(Ipv6Repr::new(SERVER, local(1))).srh(hmac)));
    add("wire0", ethernet(PacketBuilder::new()));
    for port in ["fun0", "fun1", "fun2", "fun3"] {
        add(port, six(arriving(port)));
        add(port, four(arriving(port)));
    }
    seeds
}

const FUNCTIONS: [u16; 20] = [
    function::END,
    function::END_PSP,
    function::END_USP,
    function::END_USD,
    function::END_ALL,
    function::END_X,
    function::END_T,
    function::END_DX2,
    function::END_DX4,
    function::END_DX6,
    function::END_DT4,
    function::END_DT6,
    function::END_DT46,
    function::END_DT6_NESTED,
    function::END_B6,
    function::END_B6_RED,
    function::END_AS,
    function::END_AS_IPV6,
    function::END_AS_BYPASS,
    function::END_X_USD,
];

/// Octets that mean something in one place or another.
const TELLING: [u8; 24] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 17, 40, 41, 43, 44, 51, 58, 59, 60, 127, 128, 143, 255];

/// Changes a frame in one to four ways. It stays at least 14 octets long, which is the least that the kernel takes.
pub fn mutate(random: &mut Random, frame: &mut Vec<u8>) {
    for _ in 0..=random.below(4) {
        mutate_once(random, frame);
    }
    frame.truncate(2_000);
    crate::node::make_runnable(frame);
}

fn mutate_once(random: &mut Random, frame: &mut Vec<u8>) {
    let length = frame.len();
    let put = |frame: &mut Vec<u8>, at: usize, octets: &[u8]| {
        for (position, octet) in octets.iter().enumerate() {
            if let Some(place) = frame.get_mut(at + position) {
                *place = *octet;
            }
        }
    };
    match random.below(14) {
        0 => frame.truncate(14 + random.below(length.max(15) - 14)),
        1 => {
            let at = random.below(length);
            frame[at] ^= 1 << random.below(8);
        }
        // Only the headers, where it hurts.
        2 => {
            let at = 12 + random.below(length.clamp(13, 120) - 12);
            put(frame, at, &[*random.pick(&TELLING)]);
        }
        3 => put(frame, 18, &(random.number() as u16).to_be_bytes()),
        4 => {
            let real = length.saturating_sub(54) as u16;
            let lie = real.wrapping_add(random.below(17) as u16).wrapping_sub(8);
            put(frame, 18, &lie.to_be_bytes());
        }
        5 => put(frame, SRH + 1 + random.below(4), &[*random.pick(&TELLING)]),
        6 => put(frame, SRH + 3, &[random.below(5) as u8, random.below(5) as u8]),
        7 => put(frame, 20, &[*random.pick(&[0, 43, 44, 51, 60, 41, 4, 143, 58, 59])]),
        8 => put(frame, 21, &[random.below(3) as u8]),
        // A chain of extension headers that leads nowhere.
        9 => {
            let headers = random.below(20);
            let at = SRH.min(length);
            let next = *random.pick(&[0_u8, 43, 60, 51, 44]);
            let chain: Vec<u8> = (0..headers).flat_map(|_| [next, 0, 4, 0, 0, 0, 0, 0]).collect();
            put(frame, 20, &[next]);
            frame.splice(at..at, chain);
            let payload = frame.len().saturating_sub(54) as u16;
            put(frame, 18, &payload.to_be_bytes());
        }
        10 => put(frame, SRH + random.below(64), &(random.number()).to_be_bytes()),
        11 => {
            let extra = random.below(300);
            frame.extend((0..extra).map(|_| random.number() as u8));
        }
        12 => {
            let at = 14 + random.below(length.max(15) - 14);
            let end = (at + random.below(24)).min(length);
            frame.drain(at.min(end)..end);
        }
        _ => {
            let at = 14 + random.below(length.max(15) - 14);
            let fresh: Vec<u8> = (0..random.below(length)).map(|_| random.number() as u8).collect();
            put(frame, at, &fresh);
        }
    }
}
