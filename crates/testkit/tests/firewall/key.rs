//! What the firewall's rules look at: the data plane's reading of a packet (`bpf/lib/firewall/key.h`) and that of `firewall explain`
//! (`segue_classifier::frame`) must agree on whole and broken packets, field by field.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use segue_classifier::field::{Depth, Entry, Field};
use segue_classifier::frame::{Arrival, Fault, Unlabelled, read, without_labels};
use segue_classifier::key::KEY_WORDS;
use segue_classifier::{Key, arbitrary};
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, macs};
use segue_testkit::mutation::{Random, mutate, seeds};
use segue_testkit::node::{Node, Runner};
use segue_wire::ipv6_extension::{FragmentRepr, OptionsRepr, RoutingRepr};
use segue_wire::mpls::MplsEntry;
use segue_wire::{Icmpv4Repr, Icmpv6Repr, Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TcpRepr, UdpRepr};

const PACKETS: usize = 40_000;
const PORT: &str = "acc0";

/// A firewall on the port whose rules look at TCP options and the SRH, which else are not read.
fn document() -> String {
    let file = |name: &str| {
        let srh = if name == "v6" { "-A FORWARD -m srh --srh-tag 99 -j ACCEPT\\n" } else { "" };
        let rules =
            format!("*filter\\n:FORWARD ACCEPT [0:0]\\n-A FORWARD -p tcp --tcp-option 9 -j ACCEPT\\n{srh}COMMIT\\n");
        format!("{{file: {name}, text: \"{rules}\"}}")
    };
    let firewall = format!("firewalls:\n  - {{name: fw, ipv6: {}, ipv4: {}}}\n", file("v6"), file("v4"));
    let sid = "  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: fw}\n";
    configuration(DOMAIN).replacen("sids:\n", &format!("{firewall}sids:\n{sid}"), 1).replacen(
        "{name: acc0, role: access}",
        "{name: acc0, role: access, firewall: fw}",
        1,
    )
}

/// Beside the seeds of the mutation test: fragments, options, tags, and headers in unusual places.
fn more() -> Vec<Vec<u8>> {
    let six = || arriving(PORT).ipv6(Ipv6Repr::new(CLIENT, SERVER));
    let four = |repr: Ipv4Repr| arriving(PORT).ipv4(repr);
    let srh = || SrhRepr::new(&[behind_core1(1), local(1), behind_core1(2), SERVER]).with_segments_left(2).with_tag(9);
    let tcp = || TcpRepr { options: vec![2, 4, 5, 0xb4, 1, 3, 3, 7, 4, 2, 1, 1], ..TcpRepr::new(5, 80, 0x12) };
    let fragment = |offset, more| FragmentRepr {
        fragment_offset: offset,
        more_fragments: more,
        identification: 0x0102_0304,
        ..FragmentRepr::default()
    };
    let routing = || RoutingRepr { routing_type: 0, data: vec![0; 20], ..RoutingRepr::default() };
    let echo4 = || Icmpv4Repr::EchoRequest { identifier: 1, sequence_number: 2, data: vec![1; 9] };
    let echo6 = || Icmpv6Repr::EchoRequest { identifier: 1, sequence_number: 2, data: vec![1; 9] };
    let udp = |packet: PacketBuilder| packet.udp(UdpRepr::new(7, 53)).payload(b"datagram");
    let all = [
        udp(six()),
        six().tcp(tcp()),
        six().icmpv6(echo6()),
        udp(six().hop_by_hop(OptionsRepr::default()).destination_options(OptionsRepr::default())),
        udp(six().fragment(fragment(0, true))),
        udp(six().fragment(fragment(72, false))),
        udp(six().routing(routing()).srh(srh()).destination_options(OptionsRepr::default())),
        six().srh(srh()).tcp(tcp()),
        udp(six().srh(srh()).fragment(fragment(8, true))),
        udp(six().srh(srh()).srh(srh())),
        udp(six().srh(srh()).inner_ipv6(Ipv6Repr::new(SERVER, CLIENT))),
        udp(six().srh(srh()).inner_ipv6(Ipv6Repr::new(SERVER, CLIENT)).srh(srh())),
        six().srh(srh()).inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4)).tcp(tcp()),
        udp(six().fragment(fragment(0, false)).inner_ipv6(Ipv6Repr::new(SERVER, CLIENT))),
        udp(six().inner_ipv6(Ipv6Repr::new(SERVER, CLIENT)).fragment(fragment(16, true))),
        udp(six().inner_ipv6(Ipv6Repr::new(SERVER, CLIENT)).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER))),
        udp(arriving(PORT).ipv6(Ipv6Repr::new(CLIENT, behind_core1(1))).inner_ipv6(Ipv6Repr::new(SERVER, CLIENT))),
        udp(arriving(PORT).ipv6(Ipv6Repr::new(CLIENT, local(2))).inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4))),
        udp(four(Ipv4Repr::new(CLIENT4, SERVER4))),
        four(Ipv4Repr::new(CLIENT4, SERVER4)).tcp(tcp()),
        four(Ipv4Repr::new(CLIENT4, SERVER4)).icmpv4(echo4()),
        four(Ipv4Repr::new(CLIENT4, SERVER4)).icmpv6(echo6()),
        udp(four(Ipv4Repr { fragment_offset: 24, ..Ipv4Repr::new(CLIENT4, SERVER4) })),
        udp(four(Ipv4Repr { more_fragments: true, type_of_service: 0xb8, ..Ipv4Repr::new(CLIENT4, SERVER4) })),
        udp(arriving(PORT).vlan(0).ipv6(Ipv6Repr::new(CLIENT, SERVER))),
        udp(arriving(PORT).vlan(5).ipv4(Ipv4Repr::new(CLIENT4, SERVER4))),
    ];
    all.iter().map(PacketBuilder::build).collect()
}

/// Where the data plane makes its keys. Test runs happen on the CPU of this thread, which stays on one.
struct Works(MapHandle);

impl Works {
    /// `frame` has to come to the firewall by `port`.
    fn new(runner: &mut Runner<'_>, port: &str, frame: &[u8]) -> Self {
        let mut cpus = nix::sched::CpuSet::new();
        cpus.set(0).expect("CPU 0");
        nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus).expect("CPU 0");
        let found: Vec<Self> = runner.scratch("firewall_works").into_iter().map(Self).collect();
        found.iter().for_each(Self::clear);
        runner.run(port, frame);
        found.into_iter().find(|works| works.key().get(Field::Family) == Some(6)).expect("the map that is written to")
    }

    fn values(&self) -> Vec<Vec<u8>> {
        self.0.lookup_percpu(&[0; 4], MapFlags::ANY).expect("it can be read").expect("row 0")
    }

    fn clear(&self) {
        let zeros: Vec<Vec<u8>> = self.values().iter().map(|value| vec![0; value.len()]).collect();
        self.0.update_percpu(&[0; 4], &zeros, MapFlags::ANY).expect("it can be written");
    }

    /// The key that was made last.
    fn key(&self) -> Key {
        let values = self.values();
        let mut key = Key::new();
        for (word, octets) in key.words.iter_mut().zip(values[0].chunks_exact(8)) {
            *word = u64::from_ne_bytes(octets.try_into().expect("eight octets"));
        }
        key
    }
}

/// Everything that a rule can ask, but for states of connections.
fn fields() -> impl Iterator<Item = Field> {
    let places = Depth::all().flat_map(|depth| {
        let entry = Entry::At(depth);
        [Field::Label(entry), Field::LabelClass(entry), Field::LabelBottom(entry), Field::LabelTtl(entry)]
    });
    let more = [Field::Family, Field::OuterFamily, Field::IcmpType, Field::IcmpCode, Field::TcpOptions];
    let apart = [Field::ConnectionState, Field::ConnectionDirection, Field::Mark];
    arbitrary::FIELDS.into_iter().chain(more).chain(places).filter(move |field| !apart.contains(field))
}

fn compare(found: &Key, wanted: &Key, frame: &[u8]) {
    for field in fields() {
        let shown = || frame.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
        assert_eq!(found.get(field), wanted.get(field), "{field:?}: {}", shown());
    }
}

#[test]
#[ignore = "needs root"]
fn both_readings_agree() {
    let network = Network::new();
    let node = Node::load(&network.node, &document());
    let ingress = node.compiled().port(PORT).expect("the port").entry.ifindex;
    let mut frames: Vec<Vec<u8>> = seeds().into_iter().map(|seed| seed.frame).collect();
    let mac = macs(PORT).0.0;
    for frame in &mut frames {
        frame[..mac.len()].copy_from_slice(&mac);
    }
    frames.extend(more());
    let (mut equal, mut faulty, mut passed, mut strange) = (0, 0, 0, 0);
    node.run_many(|runner| {
        let works = Works::new(runner, PORT, &more()[0]);
        let mut random = Random::new(0x000f_17e5);
        for number in 0..PACKETS {
            let mut frame = if number < frames.len() { frames[number].clone() } else { random.pick(&frames).clone() };
            if number >= frames.len() {
                mutate(&mut random, &mut frame);
            }
            let wanted = read(
                &frame,
                Arrival { ingress, segments: &[(0xfc00 << 112, 16), (0x5f00 << 112, 16)], ..Arrival::default() },
            );
            let before = runner.outcomes(PORT);
            works.clear();
            runner.run(PORT, &frame);
            let after = runner.outcomes(PORT);
            let outcome = before.iter().zip(&after).position(|(before, after)| before != after);
            let outcome = outcome.and_then(|number| segue_abi::Outcome::from_number(number as u16));
            let outcome = outcome.map(segue_abi::Outcome::name).expect("an outcome");
            let shown = || frame.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
            let foreign = frame.len() >= 14 && frame[0] & 1 == 0 && frame[..mac.len()] != mac;
            match wanted {
                Err(Fault::NotIp) => {
                    assert_eq!(works.key().words, [0; KEY_WORDS], "read though it is no IP packet: {}", shown());
                    passed += 1;
                }
                _ if foreign => {
                    assert_eq!(outcome, "drop_other_host", "{}", shown());
                    strange += 1;
                }
                Ok(wanted) => {
                    compare(&works.key(), &wanted, &frame);
                    equal += 1;
                }
                Err(fault) => {
                    assert_eq!(Some(outcome), fault.outcome(), "{}", shown());
                    faulty += 1;
                }
            }
        }
    });
    println!(
        "{equal} keys are equal, {faulty} packets have the same fault, {passed} are no IP packets, {strange} for others"
    );
    assert!(
        equal > PACKETS / 4 && faulty > PACKETS / 10 && passed > 50 && strange > 50,
        "{equal} {faulty} {passed} {strange}"
    );
}

/// Where the active SID is known, too. What is broken does not get to the firewall there.
#[test]
#[ignore = "needs root"]
fn both_readings_agree_at_a_sid() {
    let network = Network::new();
    let node = Node::load(&network.node, &document());
    let ingress = node.compiled().port("core0").expect("the port").entry.ifindex;
    let before = [behind_core1(1)];
    let behind = [behind_core1(2), SERVER];
    let outer = |sid| arriving("core0").ipv6(Ipv6Repr::new(HEADEND, sid));
    let mut frames = Vec::new();
    for sid in [local(0xa1), local_with_argument(0xa1, 0x1234)] {
        for (before, behind) in
            [(&before[..], &behind[..]), (&[], &behind), (&before, &behind[1..]), (&[], &behind[1..])]
        {
            let path = [before, &[sid], behind].concat();
            let srh = || SrhRepr::new(&path).with_segments_left(behind.len() as u8).with_tag(0x102);
            let packet = || outer(sid).srh(srh());
            frames.extend([
                packet().inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(1, 2)),
                packet().inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4)).tcp(TcpRepr::new(1, 2, 2)),
                packet().tcp(TcpRepr::new(1, 2, 2)),
                packet().destination_options(OptionsRepr::default()).udp(UdpRepr::new(1, 2)),
                outer(sid).hop_by_hop(OptionsRepr::default()).srh(srh()).udp(UdpRepr::new(1, 2)),
            ]);
        }
    }
    node.run_many(|runner| {
        let works = Works::new(runner, "core0", &frames[0].build());
        for frame in frames.iter().map(PacketBuilder::build) {
            works.clear();
            runner.run("core0", &frame);
            let wanted = read(&frame, Arrival { ingress, sid: true, ..Arrival::default() }).expect("a whole packet");
            assert!(wanted.get(Field::ActiveSid).is_some() && wanted.get(Field::SrhTag) == Some(0x102));
            compare(&works.key(), &wanted, &frame);
        }
    });
}

/// Where it came by a label: what it was in front of it, and nothing of an SRH behind the stack.
#[test]
#[ignore = "needs root"]
fn both_readings_agree_behind_a_label() {
    let network = Network::new();
    let label = 15_010;
    let more = format!("labels: [{{label: {label}, behaviour: firewall, firewall: fw}}]\n");
    let rule = "-A FORWARD -m srh --srh-tag 99 -j ACCEPT\\n";
    let both = format!("{rule}-A FORWARD -m mpls --mpls-depth any --mpls-label 5 -j DROP\\n");
    let node = Node::load(&network.node, &(document().replacen(rule, &both, 1) + &more));
    let ingress = node.compiled().port("core0").expect("the port").entry.ifindex;
    let mut random = Random::new(0x1abe1);
    let mut frame = |behind: usize, kind: usize| {
        let mut entry = |label| MplsEntry {
            label,
            traffic_class: random.below(8) as u8,
            time_to_live: 1 + random.below(255) as u8,
            ..MplsEntry::default()
        };
        let stack: Vec<MplsEntry> =
            (0..=behind).map(|place| entry(if place == 0 { label } else { 4000 * place as u32 })).collect();
        let packet = arriving("core0").mpls(&stack);
        let srh = SrhRepr::new(&[behind_core1(1), behind_core1(2), SERVER]).with_segments_left(0).with_tag(9);
        let frame = match kind {
            0 => packet.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(1, 2)),
            1 => packet.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).srh(srh).udp(UdpRepr::new(1, 2)),
            2 => {
                let outer = packet.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).srh(srh);
                outer.inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4)).tcp(TcpRepr::new(1, 2, 2))
            }
            _ => packet.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).tcp(TcpRepr::new(1, 2, 2)),
        };
        frame.build()
    };
    let frames: Vec<Vec<u8>> = (0..=16)
        .flat_map(|behind| (0..4).map(move |kind| (behind, kind)))
        .map(|(behind, kind)| frame(behind, kind))
        .collect();
    node.run_many(|runner| {
        let works = Works::new(runner, "core0", &frames[0]);
        for frame in &frames {
            works.clear();
            runner.run("core0", frame);
            let Unlabelled { stack: labels, frame: without } =
                without_labels(frame).expect("a whole stack").expect("a stack");
            let arrival =
                Arrival { ingress, segments: &[(0xfc00 << 112, 16), (0x5f00 << 112, 16)], labels: &labels, sid: false };
            let wanted = read(&without, arrival).expect("a whole packet");
            assert_eq!(wanted.get(Field::LabelEntries), Some(labels.len() as u128 - 1));
            assert_eq!(wanted.get(Field::SrhTag), None);
            compare(&works.key(), &wanted, frame);
        }
    });
}
