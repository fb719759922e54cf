//! The target SEG6 at its limits: every action with one, two and many segments left, and eval-args with arguments of every length.

use std::net::Ipv6Addr;

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, leaving};
use segue_testkit::golden::Golden;
use segue_wire::{Icmpv6Repr, Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};

const FIREWALL: u16 = 0xa1;
const SID: &str = "sid fc00:0:1:a1::/64";
/// Octets from the start of the IPv6 header: the destination address, and Segments Left of an SRH that follows it.
const DESTINATION: u32 = 24;
const SEGMENTS_LEFT: u32 = 43;

/// The tag says which action; an encapsulated and an inserted packet have the same rules.
fn document(argument_length: u8) -> String {
    let actions = ["go-next", "skip-next", "go-last", "eval-args"];
    let rules = (1..)
        .zip(actions)
        .map(|(tag, action)| format!("-A FORWARD -m srh --srh-tag {tag} -j SEG6 --seg6-action seg6-{action}\\n"));
    let text = format!("*filter\\n:FORWARD DROP [0:0]\\n{}COMMIT\\n", rules.collect::<String>());
    let firewall = format!(
        "firewalls:\n  - {{name: fw, mode: advanced, argument_length: {argument_length}, ipv6: {{file: v6, text: \"{text}\"}}}}\n"
    );
    let sid = "  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: fw}\n";
    configuration(DOMAIN).replacen("sids:\n", &format!("{firewall}sids:\n{sid}"), 1)
}

#[derive(Debug, Clone, Copy)]
enum Mode {
    Ipv6,
    Ipv4,
    Inserted,
}

const MODES: [Mode; 3] = [Mode::Ipv6, Mode::Ipv4, Mode::Inserted];

fn inside(mode: Mode, packet: PacketBuilder) -> PacketBuilder {
    let packet = match mode {
        Mode::Ipv6 => packet.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)),
        Mode::Ipv4 => packet.inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4)),
        Mode::Inserted => packet,
    };
    packet.udp(UdpRepr::new(40_000, 40_001)).payload(b"to the next, or the last?")
}

fn source(mode: Mode) -> Ipv6Addr {
    if matches!(mode, Mode::Inserted) { CLIENT } else { HEADEND }
}

/// The active SID, and `left` more: the one with `n` segments left behind it has function `n`.
fn path(active: Ipv6Addr, left: u8) -> SrhRepr {
    let list = [active].into_iter().chain((0..left).rev().map(|left| behind_core1(0x10 + u16::from(left))));
    SrhRepr::new(&list.collect::<Vec<_>>())
}

fn to(mode: Mode, active: Ipv6Addr, tag: u16, left: u8) -> PacketBuilder {
    let outer = Ipv6Repr::new(source(mode), active);
    inside(mode, arriving("core0").ipv6(outer).srh(path(active, left).with_tag(tag)))
}

fn from(mode: Mode, active: Ipv6Addr, tag: u16, (left, after): (u8, u8)) -> PacketBuilder {
    let destination = behind_core1(0x10 + u16::from(after));
    let outer = Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(source(mode), destination) };
    inside(mode, leaving("core1").ipv6(outer).srh(path(active, left).with_tag(tag).with_segments_left(after)))
}

/// A Parameter Problem of code 0 to who sent `frame`.
fn problem(mode: Mode, frame: &PacketBuilder, pointer: u32) -> PacketBuilder {
    let packet = Icmpv6Repr::quote(&frame.build().split_off(14)).to_vec();
    let port = if matches!(mode, Mode::Inserted) { "acc0" } else { "core0" };
    leaving(port).ipv6(Ipv6Repr::new(NODE, source(mode))).icmpv6(Icmpv6Repr::ParameterProblem {
        code: 0,
        pointer,
        packet,
    })
}

/// tshark calls UDP behind an SRH in a quoted packet suspicious, though nothing is wrong: it sees only errors that quote encapsulated
/// packets.
fn finish(node: Golden<'_>, mode: Mode) {
    match mode {
        Mode::Inserted => node.finish_with_faults(),
        _ => node.finish(),
    }
}

#[test]
#[ignore = "needs root"]
fn actions_with_one_two_and_many_segments_left() {
    let network = Network::new();
    // Segments left before, and after go-next, skip-next, go-last; None: there is nothing to skip to.
    let table = [(1, 0, None, 0), (2, 1, Some(0), 0), (3, 2, Some(1), 0), (8, 7, Some(6), 0), (40, 39, Some(38), 0)];
    let active = local(FIREWALL);
    for mode in MODES {
        let node = Golden::load(&network, &document(16));
        for (left, next, skipped, last) in table {
            for (tag, after) in [(1, Some(next)), (2, skipped), (3, Some(last))] {
                let case = format!("action {tag} with {left} segments left, {mode:?}");
                let frame = to(mode, active, tag, left);
                match after {
                    Some(after) => {
                        node.forwards(&case, "core0", &frame, &from(mode, active, tag, (left, after)), &[SID]);
                    }
                    None => {
                        let reply = problem(mode, &frame, SEGMENTS_LEFT);
                        node.answers(&case, "core0", &frame, "drop_segments_left", "parameter_problem", &reply);
                    }
                }
            }
        }
        finish(node, mode);
    }
}

#[test]
#[ignore = "needs root"]
fn arguments_of_every_length() {
    let network = Network::new();
    for mode in MODES {
        let mut node = Golden::load(&network, &document(16));
        for length in [8, 16, 32] {
            node.apply(&document(length));
            for left in [1, 2, 5] {
                arguments(&node, mode, length, left);
            }
        }
        finish(node, mode);
    }
}

/// Arguments of `length` bits, for packets with `left` segments left.
fn arguments(node: &Golden<'_>, mode: Mode, length: u8, left: u8) {
    let greatest = u32::MAX >> (32 - u32::from(length));
    // The argument lies right behind LOC:FUNCT, which has 64 bits. What lies behind it means nothing.
    let active = |(value, beside): (u32, u64)| {
        let argument = u64::from(value) << (64 - length);
        Ipv6Addr::from_bits(local(FIREWALL).to_bits() | u128::from(argument | beside))
    };
    let beside = u64::MAX >> length;
    for (value, after) in [(0, Some(left - 1)), (1, left.checked_sub(2)), (2, Some(0))] {
        for value in [(value, 0), (value, beside)] {
            let case = format!("argument {value:x?} of {length} bits, {left} segments left, {mode:?}");
            let frame = to(mode, active(value), 4, left);
            if let Some(after) = after {
                let expected = from(mode, active(value), 4, (left, after));
                node.forwards(&case, "core0", &frame, &expected, &[SID]);
                continue;
            }
            let reply = problem(mode, &frame, SEGMENTS_LEFT);
            node.answers(&case, "core0", &frame, "drop_segments_left", "parameter_problem", &reply);
        }
    }
    for value in [3, 4, 0x80, greatest] {
        let case = format!("undefined argument {value:#x} of {length} bits, {left} segments left, {mode:?}");
        let frame = to(mode, active((value, 0)), 4, left);
        let reply = problem(mode, &frame, DESTINATION);
        node.answers(&case, "core0", &frame, "drop_firewall", "parameter_problem", &reply);
    }
}
