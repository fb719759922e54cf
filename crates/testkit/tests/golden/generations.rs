//! Packets under way while generations change: each meets one, however many stages it meets, and what only the old one needs stays
//! until the last such packet is through.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, Program, ProgramInput};
use segue_abi as abi;
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*};
use segue_testkit::golden::Golden;
use segue_testkit::object;
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::wait::wait_for;
use segue_wire::ipv6_extension::OptionsRepr;
use segue_wire::{Icmpv6Repr, Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, TcpRepr, UdpRepr};
use zerocopy::{FromBytes, IntoBytes};

const ZERO: [u8; 4] = [0; 4];

fn programs(control: Option<&MapHandle>) -> Object {
    let directory = tempfile::tempdir().expect("a directory");
    let file = object::compile(&object::repository().join("bpf/test/control.bpf.c"), directory.path());
    let mut open = ObjectBuilder::default().open_file(file).expect("an object");
    if let Some(control) = control {
        let mut map = open.maps_mut().find(|map| map.name() == "control").expect("the map");
        map.reuse_fd(control.as_fd()).expect("the data plane's map");
    }
    open.load().expect("the kernel takes it")
}

fn map(object: &Object, name: &str) -> MapHandle {
    let map = object.maps().find(|map| map.name() == name).expect("the map");
    MapHandle::try_from(&map).expect("a handle")
}

fn program_fd(object: &Object, name: &str) -> i32 {
    object.progs().find(|program| program.name() == name).expect("the program").as_fd().as_raw_fd()
}

fn seen(map: &MapHandle, what: u32) -> u64 {
    let octets = map.lookup(&what.to_ne_bytes(), MapFlags::ANY).expect("a read").expect("an entry");
    u64::read_from_bytes(&octets).expect("a number")
}

fn pinned(pins: &Path, name: &str) -> MapHandle {
    let sets = std::fs::read_dir(pins).expect("the pins").flatten().map(|entry| entry.path());
    let set = sets.filter(|path| path.to_string_lossy().contains("/maps-")).max().expect("maps");
    let programs = std::fs::read_dir(&set).expect("the pins").flatten().map(|entry| entry.path());
    let mut places = programs.filter(|path| path.is_dir()).chain([set.clone()]).map(|path| path.join(name));
    let path = places.find(|path| path.exists()).unwrap_or_else(|| panic!("no map {name}"));
    MapHandle::from_pinned_path(path).expect("a map")
}

fn outer(destination: std::net::Ipv6Addr) -> Ipv6Repr {
    Ipv6Repr::new(HEADEND, destination)
}

fn inner(packet: PacketBuilder) -> PacketBuilder {
    packet.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(40_000, 40_001)).payload(b"under way")
}

/// SIDs that [`with_functions`] adds: a firewall, netfilter in a namespace.
const FIREWALL: u16 = 0xa1;
const END_AN_NF: u16 = 0xb1;

/// A name, the stage that is met, a port, a packet that meets it.
fn cases() -> Vec<(&'static str, abi::Stage, &'static str, Vec<u8>)> {
    let srv6 = |path: &[std::net::Ipv6Addr], limit| {
        let outer = Ipv6Repr { hop_limit: limit, ..outer(path[0]) };
        inner(arriving("core0").ipv6(outer).srh(SrhRepr::new(path))).build()
    };
    let through = |function| srv6(&[local(function), behind_core1(0xa)], 64);
    // The usual header of a known flow needs no stage.
    let unusual = srv6(&[local(END_AD_FLOW), behind_core1(0xa), behind_core1(0xb)], 64);
    let inserted = arriving("core0")
        .ipv6(Ipv6Repr::new(CLIENT, local(END_AN_NF)))
        .srh(SrhRepr::new(&[local(END_AN_NF), behind_core1(0xa), SERVER]))
        .udp(UdpRepr::new(40_000, 40_001));
    let plain = |port| {
        let ip = Ipv6Repr::new(CLIENT, "fd00:0:e0::5".parse().expect("an address"));
        arriving(port).ipv6(ip).udp(UdpRepr::new(40_000, 40_001)).payload(b"under way").build()
    };
    let refused = arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, SERVER)).tcp(TcpRepr::new(40_000, 80, 2));
    let mut tagged = plain("acc1");
    tagged.splice(12..12, [0x81, 0, 0, 0]);
    // Without options it would need no stage.
    let back = arriving("fun1").ipv6(Ipv6Repr::new(CLIENT, SERVER)).destination_options(OptionsRepr::default());
    let back = back.udp(UdpRepr::new(40_000, 40_001)).payload(b"back");
    // What this node sent, quoted by a router of the domain for which it was too long.
    let sent = PacketBuilder::new().ipv6(Ipv6Repr::new(NODE, behind_core1(0xa)));
    let too_big = arriving("core1")
        .ipv6(Ipv6Repr::new(behind_core1(0xa), NODE))
        .icmpv6(Icmpv6Repr::PacketTooBig { mtu: 1400, packet: inner(sent).build() })
        .build();
    vec![
        ("the next segment is local too", abi::SEGUE_STAGE_AGAIN, "core0", srv6(&[local(END), local(END_DT46)], 64)),
        ("an ICMP error", abi::SEGUE_STAGE_ICMP, "core0", srv6(&[local(END), behind_core1(0xa)], 1)),
        ("to a function by flow", abi::SEGUE_STAGE_PROXY, "core0", unusual),
        ("to an aware function", abi::SEGUE_STAGE_PROXY, "core0", through(END_AN)),
        ("an inserted SRH to netfilter", abi::SEGUE_STAGE_INSERTED, "core0", inserted.build()),
        ("back from a function", abi::SEGUE_STAGE_SERVICE, "fun1", back.build()),
        ("with a priority tag", abi::SEGUE_STAGE_ACCESS, "acc1", tagged),
        ("an error to relay", abi::SEGUE_STAGE_RELAY, "core1", too_big),
        ("to a SID with a firewall", abi::SEGUE_STAGE_FIREWALL, "core0", through(FIREWALL)),
        ("into a firewall", abi::SEGUE_STAGE_FILTER, "acc0", plain("acc0")),
        ("out of a firewall", abi::SEGUE_STAGE_FILTERED, "acc0", plain("acc0")),
        ("a firewall's RST", abi::SEGUE_STAGE_RESET, "acc0", refused.build()),
    ]
}

/// The configuration with a firewall, alone and at a SID, and with netfilter in a namespace `nf`, whose links are made.
fn with_functions(network: &Network) -> String {
    network.links_to_netfilter();
    let rule = "-A FORWARD -p tcp -j REJECT --reject-with tcp-reset";
    let file = format!(r"{{file: v6, text: '*filter\n:FORWARD ACCEPT [0:0]\n{rule}\nCOMMIT\n'}}").replace('\'', "\"");
    let sids = "sids:\n  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: fw}\n  \
                - {sid: 'fc00:0:1:b1::/64', behaviour: End.AN.NF, netfilter: {namespace: nf, own_traffic: steer}}\n";
    configuration(DOMAIN)
        .replacen("sids:\n", &format!("firewalls:\n  - {{name: fw, ipv6: {file}}}\n{sids}"), 1)
        .replacen("{name: acc0, role: access}", "{name: acc0, role: access, firewall: fw}", 1)
}

/// The data plane's control word, and the program that raises its generation in the place of a stage.
struct Change<'a> {
    control: MapHandle,
    stages: MapHandle,
    displaced: MapHandle,
    runs: &'a MapHandle,
    program: i32,
}

impl Change<'_> {
    /// Whatever the packet meets, it is `expected`, though another generation begins at this stage.
    fn at<T: PartialEq + std::fmt::Debug>(&self, case: &str, slot: u32, mut send: impl FnMut() -> T) {
        send(); // what is remembered of it is remembered
        let expected = send();
        let slot = slot.to_ne_bytes();
        let id = self.stages.lookup(&slot, MapFlags::ANY).expect("a read").expect("the stage is loaded");
        let stage = Program::fd_from_id(u32::read_from_bytes(&id).expect("a number")).expect("the stage");
        self.displaced.update(&ZERO, &stage.as_raw_fd().to_ne_bytes(), MapFlags::ANY).expect("it is displaced");
        self.stages.update(&slot, &self.program.to_ne_bytes(), MapFlags::ANY).expect("in its place");
        let before = self.control.lookup(&ZERO, MapFlags::ANY).expect("a read").expect("an entry");
        let runs = seen(self.runs, 0);
        let found = send();
        assert!(seen(self.runs, 0) > runs, "{case}: the stage is not met");
        let after = self.control.lookup(&ZERO, MapFlags::ANY).expect("a read").expect("an entry");
        let generation = |octets: &[u8]| abi::Control::read_from_bytes(octets).expect("control").generation;
        assert_ne!(generation(&before), generation(&after), "{case}: the generation changed under way");
        assert_eq!(found, expected, "{case}: as if it had not");
        self.control.update(&ZERO, before.as_bytes(), MapFlags::ANY).expect("the generation as it was");
        self.stages.update(&slot, &stage.as_raw_fd().to_ne_bytes(), MapFlags::ANY).expect("the stage as it was");
    }
}

#[test]
#[ignore = "needs root"]
fn a_packet_meets_one_generation_in_all_its_stages() {
    let network = Network::new();
    let node = Golden::load(&network, &with_functions(&network));
    let pins = node.node().pin_directory();
    let control = pinned(&pins, "control");
    let object = programs(Some(&control));
    let runs = map(&object, "seen");
    let (displaced, program) = (map(&object, "displaced"), program_fd(&object, "change"));
    let change = Change { control, stages: pinned(&pins, "stages"), displaced, runs: &runs, program };
    let cases = cases();
    for (case, slot, port, frame) in &cases {
        change.at(case, *slot, || node.node().send(port, frame));
    }
    // That of instances is not loaded here: no state that is read can name one, the agent writes them out.
    let met: BTreeSet<u32> = cases.iter().map(|case| case.1).collect();
    let slots = change.stages.keys().map(|slot| u32::read_from_bytes(&slot).expect("a number"));
    let loaded =
        slots.filter(|slot| change.stages.lookup(&slot.to_ne_bytes(), MapFlags::ANY).is_ok_and(|id| id.is_some()));
    assert_eq!(loaded.collect::<BTreeSet<_>>(), met, "each stage has its case");
    // The one of the programs for socket buffers: what a function sends of its own.
    let (displaced, program) = (map(&object, "displaced_skb"), program_fd(&object, "change_skb"));
    let change = Change { stages: pinned(&pins, "skb_stages"), displaced, program, ..change };
    let function = PacketSocket::open(&network.world, "nfe-nf-far");
    let neighbour = PacketSocket::open(&network.world, "core1-far");
    let frame = PacketBuilder::ethernet(MacAddress([2; 6]), MacAddress([2, 0, 0, 0, 1, 0xe1]))
        .ipv6(Ipv6Repr::new(CLIENT, "fd00:0:e0::5".parse().expect("an address")))
        .udp(UdpRepr::new(40_000, 40_001))
        .payload(b"its own")
        .build();
    change.at("a function's own packet", abi::SEGUE_STAGE_OWN, || {
        function.send(&frame);
        let found = neighbour.receive_where(Duration::from_secs(20), |frame| frame.ends_with(b"its own"));
        found.expect("it is steered")
    });
    node.finish_with_faults();
}

#[test]
#[ignore = "needs root"]
fn an_apply_waits_for_packets_of_the_generation_before() {
    let network = Network::new();
    let mut node = Golden::load(&network, &configuration(DOMAIN));
    let (sender, notes) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let packet = scope.spawn(move || {
            let object = programs(None);
            sender.send(map(&object, "seen")).expect("somebody waits");
            let slow = object.progs_mut().find(|program| program.name() == "slow").expect("the program");
            let mut context = [0_u32, 64, 0, 0, 0, 0].as_bytes().to_vec();
            let input = ProgramInput {
                context_in: Some(&mut context),
                data_in: Some(&[0; 64]),
                repeat: 1,
                ..ProgramInput::default()
            };
            slow.test_run(input).expect("a run");
        });
        let notes = notes.recv().expect("the programs");
        wait_for("the packet has begun", Duration::from_secs(10), || (seen(&notes, 1) == 1).then_some(()));
        // It ends the generation in which that packet began.
        node.apply(&configuration("{sid_blocks: ['fc00::/16', 'fd01::/16']}"));
        assert_eq!(seen(&notes, 2), 1, "the packet of the generation before is through");
        packet.join().expect("no panic");
    });
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn interfaces_whose_numbers_meet_in_one_slot_are_ports_all_the_same() {
    let network = Network::new();
    let home = network.node.ifindex("core0");
    let ports: Vec<(String, u32)> = (1..=3).map(|at| (format!("far{at}"), home + at * abi::SEGUE_PORT_SLOTS)).collect();
    let mut text = configuration(DOMAIN);
    for (name, index) in &ports {
        network.node.sh(&format!(
            "ip link add {name} index {index} address 02:00:00:00:00:10 mtu 3000 type veth peer name {name}-peer"
        ));
        for end in [format!("{name}-peer"), name.clone()] {
            network.node.sh(&format!("ethtool -K {end} gro on"));
        }
        network.node.sh(&format!("ip link set {name}-peer up"));
        network.node.sh(&format!("ip link set {name} up"));
        text = text.replacen("ports:\n", &format!("ports:\n  - {{name: {name}, role: core}}\n"), 1);
    }
    let mut node = Golden::load(&network, &text);
    let frame = inner(arriving("core0").ipv6(outer(local(END))).srh(SrhRepr::new(&[local(END), behind_core1(0xa)])));
    let all = |node: &Golden<'_>| {
        for port in ["core0", "far1", "far2", "far3"] {
            let found = node.send(port, &frame);
            let length = (frame.build().len() - 14) as u64;
            assert_eq!(found.moved[&format!("{port} forwarded")], (1, length), "{port}: {:?}", found.moved);
        }
    };
    all(&node);
    // In the other half of the table too, and without the first of them, which had the slot.
    node.apply(&text.replace("hop_limit: 33", "hop_limit: 34"));
    all(&node);
    node.apply(&text.replacen("  - {name: far1, role: core}\n", "", 1));
    let found = node.send("far2", &frame);
    assert!(found.moved.contains_key("far2 forwarded"), "{:?}", found.moved);
    node.finish();
}
