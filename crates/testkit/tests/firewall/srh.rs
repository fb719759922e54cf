//! Every option of `-m srh` (SERA's fifteen, and the last SID), as it is and negated, together with tests of the outermost header, on
//! real packets: with encapsulated and inserted SRHs at a SID, and without an SRH on a port.

use std::net::Ipv6Addr;

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, leaving};
use segue_testkit::golden::Golden;
use segue_wire::ipv6_extension::OptionsRepr;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TlvRepr, UdpRepr};

const FIREWALL: u16 = 0xa1;
const SID: &str = "sid fc00:0:1:a1::/64";
/// An outer source that no rule takes.
const ELSEWHERE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const FIRST_PORT: u16 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Encapsulated,
    Inserted,
}

/// A packet on its way: the path is `before`, the firewall, `behind`, `last`.
#[derive(Debug, Clone)]
struct Shape {
    outer_source: Ipv6Addr,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    before: Vec<Ipv6Addr>,
    behind: Vec<Ipv6Addr>,
    last: Ipv6Addr,
    tag: u16,
    tlv: bool,
    /// Encapsulated: the inner packet is IPv4. Inserted: Destination Options follow the SRH.
    other_header: bool,
}

fn base(mode: Mode) -> Shape {
    let (outer_source, last) = match mode {
        Mode::Encapsulated => (HEADEND, behind_core1(0xf)),
        Mode::Inserted => (CLIENT, SERVER),
    };
    Shape {
        outer_source,
        source: CLIENT,
        destination: SERVER,
        before: vec![behind_core1(1)],
        behind: vec![behind_core1(0xa)],
        last,
        tag: 7,
        tlv: false,
        other_header: false,
    }
}

impl Shape {
    fn srh(&self) -> SrhRepr {
        let path = [&self.before[..], &[local(FIREWALL)], &self.behind, &[self.last]].concat();
        let srh = SrhRepr::new(&path).with_segments_left(self.behind.len() as u8 + 1).with_tag(self.tag);
        if self.tlv { srh.with_tlv(TlvRepr::Unknown { tlv_type: 0x7d, value: vec![1; 6] }) } else { srh }
    }

    /// What follows the SRH, or the outer header where there is none.
    fn inside(&self, packet: PacketBuilder, mode: Mode, port: u16) -> PacketBuilder {
        let packet = match (mode, self.other_header) {
            (Mode::Encapsulated, false) => packet.inner_ipv6(Ipv6Repr::new(self.source, self.destination)),
            (Mode::Encapsulated, true) => packet.inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4)),
            (Mode::Inserted, false) => packet,
            (Mode::Inserted, true) => packet.destination_options(OptionsRepr::default()),
        };
        packet.udp(UdpRepr::new(40_000, port)).payload(b"segments and rules")
    }

    /// As it comes to the SID.
    fn to(&self, mode: Mode, port: u16) -> PacketBuilder {
        let outer = Ipv6Repr::new(self.outer_source, local(FIREWALL));
        self.inside(arriving("core0").ipv6(outer).srh(self.srh()), mode, port)
    }

    /// As it leaves.
    fn from(&self, mode: Mode, port: u16) -> PacketBuilder {
        let outer = Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(self.outer_source, self.behind[0]) };
        let srh = self.srh().with_segments_left(self.behind.len() as u8);
        self.inside(leaving("core1").ipv6(outer).srh(srh), mode, port)
    }

    /// Octets that the rules' counters count of it: of the packet that they look at.
    fn octets(&self, mode: Mode) -> u64 {
        let whole = self.to(mode, 1).build().len() as u64 - 14;
        match mode {
            Mode::Encapsulated => whole - 40 - self.srh().header_length() as u64,
            Mode::Inserted => whole,
        }
    }
}

/// Changes that make of a packet one that fits, or one that does not.
type Change = fn(&mut Shape);

/// An option of `-m srh`, and packets with an SRH that it fits and does not fit.
struct Case {
    encapsulated: &'static str,
    inserted: &'static str,
    fits: Change,
    fits_not: Change,
    /// It tests the SRH: no packet without one matches, negated or not.
    of_srh: bool,
}

const fn case(option: &'static str, fits: Change, fits_not: Change) -> Case {
    Case { encapsulated: option, inserted: option, fits, fits_not, of_srh: true }
}

fn as_it_is(_: &mut Shape) {}

fn one_more(shape: &mut Shape) {
    shape.behind.push(behind_core1(0xc));
}

fn none_before(shape: &mut Shape) {
    shape.before.clear();
}

/// Hdr Ext Len of [`base`] is 8, Segments Left 2, Last Entry 3. Numbers are tried on both sides of what is compared.
fn cases() -> Vec<Case> {
    vec![
        Case {
            of_srh: false,
            ..case("--inner-src fd00:0:a0::/64", as_it_is, |shape| {
                (shape.source, shape.outer_source) = match shape.outer_source {
                    HEADEND => (SERVER, HEADEND),
                    _ => (SERVER, SERVER),
                }
            })
        },
        Case {
            of_srh: false,
            ..case("--inner-dst fd00:0:a1::2", as_it_is, |shape| {
                let other = Ipv6Addr::from_bits(SERVER.to_bits() + 1);
                shape.destination = other;
                if shape.last == SERVER {
                    shape.last = other;
                }
            })
        },
        Case {
            encapsulated: "--srh-next-hdr ipv6",
            inserted: "--srh-next-hdr udp",
            ..case("", as_it_is, |shape| shape.other_header = true)
        },
        case("--srh-len-eq 8", as_it_is, |shape| shape.tlv = true),
        case("--srh-len-gt 8", |shape| shape.tlv = true, as_it_is),
        case("--srh-len-lt 8", none_before, as_it_is),
        case("--srh-segs-eq 2", as_it_is, one_more),
        case("--srh-segs-gt 2", one_more, as_it_is),
        case("--srh-segs-lt 3", as_it_is, one_more),
        case("--srh-last-eq 3", as_it_is, none_before),
        case("--srh-last-gt 3", one_more, as_it_is),
        case("--srh-last-lt 3", none_before, as_it_is),
        case("--srh-tag 7", as_it_is, |shape| shape.tag = 0x700),
        case("--srh-psid fc00:0:2:1::/64", as_it_is, |shape| shape.before = vec![behind_core1(2)]),
        case("--srh-nsid fc00:0:2:a::", as_it_is, |shape| shape.behind = vec![behind_core1(0xb)]),
        Case {
            encapsulated: "--srh-lsid fc00:0:2:f::",
            inserted: "--srh-lsid fd00:0:a1::2",
            ..case("", as_it_is, |shape| shape.last = Ipv6Addr::from_bits(shape.last.to_bits() + 1))
        },
    ]
}

/// A rule for each option, as it is and negated; the port says which.
fn rules(mode: Mode, outer: &str) -> Vec<String> {
    let option = |case: &Case| if mode == Mode::Encapsulated { case.encapsulated } else { case.inserted };
    let rule = |(port, (not, option)): (u16, (&str, &str))| {
        format!("-A FORWARD {outer} -p udp --dport {port} -m srh {not}{option} -j DROP")
    };
    let both = cases().iter().flat_map(|case| [("", option(case)), ("! ", option(case))]).collect::<Vec<_>>();
    (FIRST_PORT..).zip(both).map(rule).collect()
}

fn document(rules: &[String], mode: &str) -> String {
    let text = format!("*filter\\n:FORWARD ACCEPT [0:0]\\n{}\\nCOMMIT\\n", rules.join("\\n"));
    let firewall = format!("firewalls:\n  - {{name: fw, mode: {mode}, ipv6: {{file: v6, text: \"{text}\"}}}}\n");
    let sid = "  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: fw}\n";
    configuration(DOMAIN).replacen("sids:\n", &format!("{firewall}sids:\n{sid}"), 1).replacen(
        "{name: acc0, role: access}",
        "{name: acc0, role: access, firewall: fw}",
        1,
    )
}

fn changed(mode: Mode, change: Change) -> Shape {
    let mut shape = base(mode);
    change(&mut shape);
    shape
}

/// Sends what fits and what does not, with a right and a wrong outermost header, to each rule; compares octets and counters.
fn at_a_sid(mode: Mode, rule_mode: &str, outer: &str) {
    let network = Network::new();
    let rules = rules(mode, outer);
    let node = Golden::load(&network, &document(&rules, rule_mode));
    let passes = |name: &str, shape: &Shape, port| {
        node.forwards(name, "core0", &shape.to(mode, port), &shape.from(mode, port), &[SID]);
    };
    let drops = |name: &str, shape: &Shape, port| node.drops(name, "core0", &shape.to(mode, port), "drop_firewall");
    let mut counted = Vec::new();
    for (number, case) in cases().iter().enumerate() {
        let (fits, fits_not) = (changed(mode, case.fits), changed(mode, case.fits_not));
        let elsewhere = Shape { outer_source: ELSEWHERE, ..fits.clone() };
        let [plain, negated] = [0, 1].map(|index| FIRST_PORT + 2 * number as u16 + index);
        let name = |what: &str| format!("{} {mode:?}: {what}", rules[2 * number]);
        drops(&name("it fits"), &fits, plain);
        passes(&name("it does not fit"), &fits_not, plain);
        passes(&name("another outer source"), &elsewhere, plain);
        passes(&name("negated, it fits"), &fits, negated);
        drops(&name("negated, it does not fit"), &fits_not, negated);
        let outside = Shape { outer_source: ELSEWHERE, ..fits_not.clone() };
        passes(&name("negated, another outer source"), &outside, negated);
        counted.extend([(1, fits.octets(mode)), (1, fits_not.octets(mode))]);
    }
    // Nothing lies before the active SID: the option holds neither as it is nor negated.
    let psid = rules.iter().position(|rule| rule.contains("--srh-psid")).expect("the option") as u16;
    for port in [psid, psid + 1] {
        passes("no previous SID", &changed(mode, none_before), FIRST_PORT + port);
    }
    let counters = node.node().firewall_counters();
    let found: Vec<_> = counters[0].rules.iter().map(|rule| (rule.counter.packets, rule.counter.bytes)).collect();
    assert_eq!(found, counted);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn encapsulated_with_outer_matches() {
    at_a_sid(Mode::Encapsulated, "advanced", "-s fd00:0:9::/48 -d fc00:0:1:a1::/64");
}

#[test]
#[ignore = "needs root"]
fn inserted_with_outer_matches() {
    at_a_sid(Mode::Inserted, "advanced", "-s fd00::/16 -d fc00:0:1:a1::/64");
}

/// In basic mode `-s` and `-d` are those of the inner packet, or the path's last SID; the options of `srh` mean the same.
#[test]
#[ignore = "needs root"]
fn inserted_in_basic_mode() {
    at_a_sid(Mode::Inserted, "basic", "-s fd00::/16 -d fd00:0:a1::/64");
}

#[test]
#[ignore = "needs root"]
fn packets_without_srh_match_no_option_of_it() {
    let network = Network::new();
    let mode = Mode::Encapsulated;
    let rules = rules(mode, "-s fd00:0:a0::/64");
    let node = Golden::load(&network, &document(&rules, "advanced"));
    let shape = base(mode);
    let mut counted = Vec::new();
    for (index, port) in (0..rules.len()).zip(FIRST_PORT..) {
        let case = &cases()[index / 2];
        let outer = |destination| arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, destination));
        // Steered without an SRH; nobody may do so by this port, which the rules come before.
        let encapsulated = shape.inside(outer(behind_core1(1)), mode, port);
        let plain = outer(SERVER).udp(UdpRepr::new(40_000, port)).payload(b"no SRH anywhere");
        // Inner addresses are those of the inner packet, or the packet's own.
        let hit = !case.of_srh && index % 2 == 0;
        let name = |of: &str| format!("{}: {of}", rules[index]);
        if hit {
            node.drops(&name("encapsulated"), "acc0", &encapsulated, "drop_firewall");
            node.drops(&name("plain"), "acc0", &plain, "drop_firewall");
        } else {
            node.drops(&name("encapsulated"), "acc0", &encapsulated, "drop_sid_from_outside");
            node.passes(&name("plain"), "acc0", &plain, &plain, "passed_not_for_segue", &[]);
        }
        counted.push(if hit { 2 } else { 0 });
    }
    let counters = node.node().firewall_counters();
    assert_eq!(counters[0].rules.iter().map(|rule| rule.counter.packets).collect::<Vec<_>>(), counted);
    node.finish();
}
