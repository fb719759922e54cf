//! Loading, adopting, applying: with a real kernel. Needs root.
//!
//! Longer than 500 lines: what must survive a load, a growth and an apply is one list, and its tests share flows and readers of maps.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::*;
use libbpf_rs::{MapCore, MapFlags, Xdp, XdpFlags};
use nix::sys::socket::{setsockopt, sockopt};
use segue_abi as abi;
use segue_abi::zerocopy::{FromBytes, IntoBytes};
use segue_dataplane::{AttachMode, Dataplane, Error, MissingInterface, Origin, TestRun, build_id};
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};
use serde_json::{Value, json};

const XDP_DROP: u32 = 1;
const XDP_REDIRECT: u32 = 4;

fn open(pins: &Path) -> Dataplane {
    Dataplane::open_or_load(pins, options()).expect("a data plane")
}

fn control(dataplane: &Dataplane) -> abi::Control {
    let bytes = dataplane.map("control").expect("control").lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).expect("a read");
    abi::Control::read_from_bytes(&bytes.expect("an entry")).expect("a control entry")
}

fn sid_generations(dataplane: &Dataplane) -> Vec<u32> {
    let keys = dataplane.map("sids").expect("sids").keys();
    keys.map(|key| abi::SidKey::read_from_bytes(&key).expect("a key").generation).collect()
}

/// Slots of the port table that are in use.
fn port_slots(dataplane: &Dataplane) -> Vec<u32> {
    let ports = dataplane.map("ports").expect("ports");
    let used = |slot: &u32| {
        let entry = ports.lookup(&slot.to_ne_bytes(), MapFlags::ANY).expect("a read").expect("an entry");
        abi::Port::read_from_bytes(&entry).expect("a port").ifindex != 0
    };
    (0..2 * abi::SEGUE_PORT_SLOTS).filter(used).collect()
}

/// The program that an interface runs; 0 for none.
fn program_of(dataplane: &Dataplane, ifindex: u32) -> u32 {
    use std::os::fd::AsFd;
    let map = dataplane.map("control").expect("control");
    Xdp::new(map.as_fd()).query_id(ifindex as i32, XdpFlags::NONE).expect("an answer")
}

fn sid_packets(dataplane: &Dataplane) -> u64 {
    dataplane.counters().expect("counters").sids[0].counter.packets
}

fn send(dataplane: &mut Dataplane) -> u32 {
    dataplane.test_run(&TestRun::once(&packet(), ifindex("p1"))).expect("a run").verdict
}

#[test]
#[ignore = "needs root"]
fn a_port_that_would_lose_what_is_redirected_into_it_is_warned_of() {
    isolated(|pins| {
        takes_redirected("h2", false);
        let mut dataplane = open(pins);
        let warned = |warnings: Vec<String>| {
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            assert!(warnings[0].starts_with("port p2: ") && warnings[0].contains("gro on"), "{warnings:?}");
        };
        warned(apply(&mut dataplane, &state()).warnings);
        warned(apply(&mut dataplane, &state()).warnings);
        takes_redirected("h2", true);
        assert_eq!(apply(&mut dataplane, &state()).warnings, Vec::<String>::new());
    });
}

#[test]
#[ignore = "needs root"]
fn loads_applies_forwards_and_removes() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        assert_eq!(dataplane.origin(), Origin::Loaded);
        assert!(dataplane.applied().is_none());
        let applied = apply(&mut dataplane, &state());
        assert_eq!((applied.generation, applied.changed), (1, true));
        assert_eq!(applied.warnings, Vec::<String>::new());
        assert_eq!(dataplane.attached(), [ifindex("p1"), ifindex("p2")]);
        assert_eq!(dataplane.attach(ifindex("p1")).expect("attached already"), AttachMode::Native);
        assert_eq!(control(&dataplane).abi_version, abi::SEGUE_ABI_VERSION);

        let output = dataplane.test_run(&TestRun::once(&packet(), ifindex("p1"))).expect("a run");
        assert_eq!(output.verdict, XDP_REDIRECT);
        assert_eq!(output.frame.len(), packet().len());
        assert_eq!(
            output.frame[14 + 24..14 + 40],
            packet()[14 + 40 + 8..14 + 40 + 24],
            "the destination is the next segment"
        );
        let counters = dataplane.counters().expect("counters");
        assert_eq!(counters.sids[0].counter.packets, 1);
        assert_eq!(counters.ports[0].outcomes.keys().collect::<Vec<_>>(), [&"forwarded"]);
        assert_eq!(counters.ports[0].outcomes["forwarded"].packets, 1);
        assert_eq!(counters.ports[1].outcomes.len(), 0);
        assert_eq!(counters.policies[0].counter.packets, 0);
        assert_eq!(counters.steering[0].rule, "web");

        let again = apply(&mut dataplane, &state());
        assert_eq!((again.generation, again.changed), (1, false), "applying is idempotent");
        dataplane.remove().expect("removal");
        assert!(!pins.exists());
    });
}

#[test]
#[ignore = "needs root"]
fn adopts_after_the_agent_has_gone() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &state());
        assert_eq!(send(&mut dataplane), XDP_REDIRECT);
        let program = program_of(&dataplane, ifindex("p1"));
        let magic = control(&dataplane).metadata_magic;
        assert_ne!(magic, 0);
        drop(dataplane);

        let mut dataplane = open(pins);
        assert_eq!(dataplane.origin(), Origin::Adopted);
        assert_eq!(program_of(&dataplane, ifindex("p1")), program, "the program runs on");
        assert_eq!(control(&dataplane).metadata_magic, magic, "packets on their way are known still");
        assert_eq!(dataplane.applied_state(), Some(&node(&state())));
        assert_eq!(sid_packets(&dataplane), 1);
        assert!(!apply(&mut dataplane, &state()).changed);

        let mut less = state();
        less["ports"] = json!([{ "name": "p1", "role": "core" }]);
        assert!(apply(&mut dataplane, &less).changed);
        assert_eq!(dataplane.attached(), [ifindex("p1")]);
        assert!(apply(&mut dataplane, &state()).changed, "attaching works after an adoption");
        assert_eq!(dataplane.attached(), [ifindex("p1"), ifindex("p2")]);
        assert_eq!(send(&mut dataplane), XDP_REDIRECT);
        assert_eq!(sid_packets(&dataplane), 2, "counters follow the name of an object across generations");
        assert_eq!(control(&dataplane).metadata_magic, magic);
        dataplane.remove().expect("removal");
        let mut dataplane = open(pins);
        apply(&mut dataplane, &state());
        // Equal by chance once in four thousand million runs.
        assert_ne!(control(&dataplane).metadata_magic, magic, "nobody can know it before");
    });
}

#[test]
#[ignore = "needs root"]
fn each_apply_leaves_one_generation() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        for generation in 1..=4 {
            let mut changing = state();
            changing["settings"] = json!({ "icmp_errors_per_second": generation });
            assert_eq!(apply(&mut dataplane, &changing).generation, generation);
            assert_eq!(control(&dataplane).generation, generation);
            assert_eq!(sid_generations(&dataplane), [generation]);
            let base = abi::SEGUE_PORT_SLOTS * (generation & 1);
            assert_eq!(port_slots(&dataplane), [base + ifindex("p1"), base + ifindex("p2")]);
            assert_eq!(send(&mut dataplane), XDP_REDIRECT);
        }
        assert_eq!(sid_packets(&dataplane), 4);
        let before = control(&dataplane);
        dataplane.bump_caches().expect("a bump");
        let after = control(&dataplane);
        assert_eq!(after, abi::Control { cache_generation: before.cache_generation + 1, ..before });
    });
}

#[test]
#[ignore = "needs root"]
fn refused_configuration_leaves_the_old_one() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &state());
        let before = (control(&dataplane), sid_generations(&dataplane), port_slots(&dataplane), dataplane.attached());

        let mut missing = state();
        missing["ports"] = json!([{ "name": "p1", "role": "core" }, { "name": "nothing", "role": "core" }]);
        let error =
            dataplane.apply(&node(&missing), &interfaces(), MissingInterface::Refuse).expect_err("no such interface");
        assert!(error.to_string().contains("nothing"), "{error}");

        // h1 runs another program: attaching to it fails after the new generation is active.
        let mut other = Dataplane::open_or_load(&pins.with_file_name("other"), options()).expect("another data plane");
        other.attach(ifindex("h1")).expect("attached");
        let mut busy = state();
        busy["ports"] = json!([{ "name": "p1", "role": "core" }, { "name": "h2", "role": "core" }, { "name": "h1", "role": "core" }]);
        busy["sids"] = json!([{ "sid": "fc00:1:2::/48", "behaviour": "End" }]);
        let error = dataplane.apply(&node(&busy), &interfaces(), MissingInterface::Refuse).expect_err("h1 is busy");
        assert!(matches!(&error, Error::Attach { interface, .. } if interface == "h1"), "{error}");

        let after = (control(&dataplane), sid_generations(&dataplane), port_slots(&dataplane), dataplane.attached());
        assert_eq!(before, after);
        assert_eq!(dataplane.applied_state(), Some(&node(&state())));
        assert_eq!(send(&mut dataplane), XDP_REDIRECT);
        assert!(apply(&mut other, &json!({ "node": "o", "source_address": "fc00:8::1" })).changed, "an empty node");
        assert_eq!(other.attached(), Vec::<u32>::new(), "what is not configured is detached");
        assert!(apply(&mut dataplane, &busy).changed, "works once h1 is free");
        assert_eq!(program_of(&dataplane, ifindex("p2")), 0, "p2 is not configured any more");
    });
}

/// A flow from behind p1 that is steered, by a socket on h1.
struct Flow(UdpSocket);

impl Flow {
    fn open() -> Self {
        ip("address add 10.1.0.2/24 dev h1");
        ip("route add 10.2.0.0/16 dev h1");
        let mac = interfaces().get("p1").expect("p1").mac.map(|octet| format!("{octet:02x}")).join(":");
        ip(&format!("neighbour add 10.2.3.4 lladdr {mac} dev h1"));
        let socket = UdpSocket::bind("10.1.0.2:40000").expect("a socket");
        setsockopt(&socket, sockopt::BindToDevice, &"h1".into()).expect("on h1");
        socket.connect("10.2.3.4:53").expect("a route");
        Self(socket)
    }

    fn send(&self) {
        self.0.send(b"query").expect("sent");
    }
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What packets of the flow find while an apply is given up is kept under a number that is never used again.
#[test]
#[ignore = "needs root"]
fn a_generation_that_was_given_up_leaves_nothing_to_the_next() {
    isolated(|pins| {
        // Caches are those of a CPU.
        pin_to(0);
        for port in 3..=4 {
            ip(&format!("link add p{port} type veth peer name h{port}"));
        }
        let mut dataplane = open(pins);
        let steered = |action: Value, ports: &[&str]| {
            let mut state = state();
            let roles = ports.iter().map(|name| json!({ "name": name, "role": "access" }));
            let core = json!({ "name": "p2", "role": "core" });
            state["ports"] = [core].into_iter().chain(roles).collect();
            state["steering"] = json!([{ "name": "all", "destination": "10.2.0.0/16" }]);
            state["steering"][0].as_object_mut().expect("a rule").extend(action.as_object().expect("keys").clone());
            state
        };
        let policy = json!({ "policy": "to-2" });
        let taken = |dataplane: &Dataplane| dataplane.counters().expect("counters").policies[0].counter.packets;
        let dropped = |dataplane: &Dataplane| {
            let ports = dataplane.counters().expect("counters").ports;
            let outcomes = ports.into_iter().flat_map(|port| port.outcomes);
            outcomes.filter(|(name, _)| name.starts_with("drop")).map(|(_, counter)| counter.packets).sum::<u64>()
        };
        assert_eq!(apply(&mut dataplane, &steered(policy.clone(), &["p1"])).generation, 1);
        let flow = Flow::open();
        flow.send();
        assert_eq!((taken(&dataplane), dropped(&dataplane)), (1, 0));

        // h4 runs another program: attaching to it fails after the new generation is active.
        let mut other = Dataplane::open_or_load(&pins.with_file_name("other"), options()).expect("another data plane");
        other.attach(ifindex("h4")).expect("attached");
        let refused = node(&steered(json!({ "action": "drop" }), &["p1", "p3", "h4"]));
        let end = Instant::now() + Duration::from_secs(60);
        let stop = AtomicBool::new(false);
        let mut attempts = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin_to(0);
                while !stop.load(Ordering::Relaxed) {
                    flow.send();
                }
            });
            // Also when this fails.
            let _stop = StopAtEnd(&stop);
            while dropped(&dataplane) == 0 {
                assert!(Instant::now() < end, "no packet met the generation that was given up");
                let result = dataplane.apply(&refused, &interfaces(), MissingInterface::Refuse);
                assert!(matches!(result, Err(Error::Attach { .. })), "{result:?}");
                attempts += 1;
                assert_eq!(control(&dataplane).generation, 1);
            }
        });
        // Nor if the agent is killed before it can apply anything else.
        drop(dataplane);
        let mut dataplane = open(pins);
        let before = (taken(&dataplane), dropped(&dataplane));
        let mut again = steered(policy, &["p1"]);
        again["settings"] = json!({ "icmp_errors_per_second": 7 });
        assert_eq!(apply(&mut dataplane, &again).generation, 2 * attempts + 2);
        (0..5).for_each(|_| flow.send());
        assert_eq!((taken(&dataplane), dropped(&dataplane)), (before.0 + 5, before.1), "after {attempts} attempts");
    });
}

#[test]
#[ignore = "needs root"]
fn write_that_fails_half_way_leaves_the_old_one() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &state());
        // Fills the trie of SIDs, whose entries the compiler cannot know of.
        let sids = dataplane.map("sids").expect("sids");
        let room = options().capacity.sids * 2 - 1;
        for number in 0..room {
            let key = [&160_u32.to_ne_bytes()[..], &99_u32.to_ne_bytes(), &[0; 12], &number.to_be_bytes()].concat();
            sids.update(&key, &0_u32.to_ne_bytes(), MapFlags::ANY).expect("room");
        }
        let mut more = state();
        more["sids"] =
            json!([{ "sid": "fc00:1:1::/48", "behaviour": "End" }, { "sid": "fc00:1:2::/48", "behaviour": "End" }]);
        let error =
            dataplane.apply(&node(&more), &interfaces(), MissingInterface::Refuse).expect_err("the trie is full");
        assert!(matches!(&error, Error::Map { map, .. } if map == "sids"), "{error}");
        assert_eq!(control(&dataplane).generation, 1);
        assert_eq!(send(&mut dataplane), XDP_REDIRECT);
        assert_eq!(sid_generations(&dataplane).iter().filter(|generation| **generation == 2).count(), 0);

        // An agent that starts anew clears away what no generation needs.
        drop(dataplane);
        let mut dataplane = open(pins);
        assert_eq!(sid_generations(&dataplane), [1]);
        assert!(apply(&mut dataplane, &more).changed);
    });
}

#[test]
#[ignore = "needs root"]
fn other_build_replaces_programs_and_keeps_maps() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &state());
        assert_eq!(send(&mut dataplane), XDP_REDIRECT);
        let program = program_of(&dataplane, ifindex("p1"));
        drop(dataplane);
        let set = pins.join("maps-1");
        fs::rename(set.join(format!("programs-{}", build_id())), set.join("programs-0123456789abcdef"))
            .expect("a rename");

        let mut dataplane = open(pins);
        assert_eq!(dataplane.origin(), Origin::ProgramReplaced);
        assert_ne!(program_of(&dataplane, ifindex("p1")), program);
        assert!(!set.join("programs-0123456789abcdef").exists());
        assert_eq!(sid_packets(&dataplane), 1);
        assert_eq!(send(&mut dataplane), XDP_REDIRECT);
        assert_eq!(sid_packets(&dataplane), 2);
        drop(dataplane);
        assert_eq!(open(pins).origin(), Origin::Adopted);
    });
}

#[test]
#[ignore = "needs root"]
fn larger_tables_take_over_at_the_next_apply() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &state());
        let program = program_of(&dataplane, ifindex("p1"));
        drop(dataplane);
        let mut larger = options();
        larger.capacity.sids *= 2;
        let open = || Dataplane::open_or_load(pins, larger).expect("a data plane");

        let dataplane = open();
        assert_eq!(dataplane.origin(), Origin::Replacing);
        assert!(dataplane.applied().is_none());
        assert_eq!(program_of(&dataplane, ifindex("p1")), program, "the old one forwards until the apply");
        drop(dataplane);

        let mut dataplane = open();
        assert_eq!(dataplane.origin(), Origin::Replacing, "also after the agent died in between");
        apply(&mut dataplane, &state());
        assert_ne!(program_of(&dataplane, ifindex("p1")), program);
        assert_eq!(send(&mut dataplane), XDP_REDIRECT);
        assert_eq!(sid_packets(&dataplane), 1);
        assert!(!pins.join("maps-1").exists());
        drop(dataplane);
        assert_eq!(open().origin(), Origin::Adopted);
    });
}

#[test]
#[ignore = "needs root"]
fn tables_grow_with_the_configuration() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &state());
        let many = |last: u32| {
            let sids: Vec<_> =
                (1..=last).map(|n| json!({ "sid": format!("fc00:1:{n:x}::/48"), "behaviour": "End" })).collect();
            let mut many = state();
            many["sids"] = json!(sids);
            many
        };
        assert_eq!(send(&mut dataplane), XDP_REDIRECT);
        // A configuration that needs larger tables and fails for another reason leaves all as it was, but in larger tables.
        let mut other = Dataplane::open_or_load(&pins.with_file_name("other"), options()).expect("another data plane");
        other.attach(ifindex("h1")).expect("attached");
        let mut busy = many(200);
        busy["ports"] = json!([{ "name": "p1", "role": "core" }, { "name": "h1", "role": "core" }]);
        dataplane.check(&node(&busy), &interfaces(), MissingInterface::Refuse).expect("tables can grow");
        let error = dataplane.apply(&node(&busy), &interfaces(), MissingInterface::Refuse).expect_err("h1 is busy");
        assert!(matches!(error, Error::Attach { .. }), "{error}");
        assert_eq!(dataplane.applied_state(), Some(&node(&state())));
        assert_eq!(dataplane.map("sid_entries").expect("sid_entries").max_entries(), 2 * 256);
        assert!(!pins.join("maps-1").exists());
        assert_eq!(send(&mut dataplane), XDP_REDIRECT);
        assert_eq!(sid_packets(&dataplane), 2, "counters go on");
        assert_eq!(apply(&mut dataplane, &many(200)).warnings, Vec::<String>::new());

        let applied = apply(&mut dataplane, &many(300));
        assert!(applied.warnings.iter().any(|warning| warning.contains("larger tables")), "{applied:?}");
        assert_eq!(dataplane.map("sid_entries").expect("sid_entries").max_entries(), 2 * 512);
        assert_eq!(send(&mut dataplane), XDP_REDIRECT);
        assert_eq!(sid_packets(&dataplane), 3);
        assert!(!pins.join("maps-2").exists());
        drop(dataplane);
        let mut dataplane = open(pins);
        assert_eq!(dataplane.origin(), Origin::Adopted, "though the default is smaller");
        assert_eq!(apply(&mut dataplane, &many(150)).warnings, Vec::<String>::new());
        assert_eq!(sid_packets(&dataplane), 3);
        // What goes and comes again begins at 0.
        let mut without = state();
        without["sids"] = json!([{ "sid": "fc00:1:2::/48", "behaviour": "End" }]);
        apply(&mut dataplane, &without);
        apply(&mut dataplane, &state());
        assert_eq!(sid_packets(&dataplane), 0);
    });
}

#[test]
#[ignore = "needs root"]
fn interface_that_comes_back_is_attached_again() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &state());
        let old = ifindex("p2");
        ip("link delete p2");
        let applied = dataplane.apply(&node(&state()), &interfaces(), MissingInterface::LeaveOut).expect("an apply");
        assert!(applied.warnings.iter().any(|warning| warning.contains("p2")), "{applied:?}");
        assert_eq!(dataplane.attached(), [ifindex("p1")]);
        assert!(!pins.join(format!("link-{old}")).exists());
        ip(&format!("link add p2 index {old} type veth peer name h2"));
        ip("link set p2 up");
        apply(&mut dataplane, &state());
        assert_eq!(dataplane.attached(), [ifindex("p1"), old]);
        // Gone and back with the same number, and nobody told: the next apply repairs it.
        ip("link delete p2");
        ip(&format!("link add p2 index {old} type veth peer name h2"));
        assert_eq!(dataplane.attached(), [ifindex("p1")]);
        assert!(apply(&mut dataplane, &state()).changed);
        assert_ne!(program_of(&dataplane, old), 0);
    });
}

#[test]
#[ignore = "needs root"]
fn port_that_is_not_configured_drops_and_counts() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &state());
        dataplane.attach(ifindex("h1")).expect("attached");
        let run = dataplane.test_run(&TestRun::once(&packet(), ifindex("h1"))).expect("a run");
        assert_eq!(run.verdict, XDP_DROP);
        let outcomes = dataplane.unknown_port_outcomes().expect("counters");
        assert_eq!(
            outcomes.into_iter().map(|(name, counter)| (name, counter.packets)).collect::<Vec<_>>(),
            [("drop_port_unknown", 1)]
        );
    });
}

#[test]
#[ignore = "needs root"]
fn last_drop_has_the_packet_and_its_reason() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        let mut outside = state();
        outside["ports"] = json!([{ "name": "p1", "role": "access" }]);
        apply(&mut dataplane, &outside);
        assert_eq!(send(&mut dataplane), XDP_DROP, "an SRH from outside the domain");
        let drops = dataplane.last_drops().expect("drops");
        assert_eq!(drops.len(), 1, "{drops:?}");
        assert_eq!((drops[0].port.as_str(), drops[0].ifindex), ("p1", ifindex("p1")));
        assert_eq!(drops[0].outcome, abi::Outcome::DropSrFromOutside);
        assert_eq!(drops[0].length as usize, packet().len());
        assert_eq!(drops[0].bytes, packet());
        assert_eq!(dataplane.counters().expect("counters").ports[0].outcomes["drop_sr_from_outside"].packets, 1);
    });
}

/// Packets run through the program on one CPU while the other changes the configuration a hundred times. All of the
/// configurations drop the packet by a rule, each by other entries of the maps: one that saw a mix would find a trie
/// entry without its rules, or no configuration at all.
#[test]
#[ignore = "needs root"]
fn no_packet_sees_a_mix_of_two_configurations() {
    const PACKETS: u32 = 3_000_000;
    isolated(|pins| {
        let with_steering = |steering: serde_json::Value| {
            let mut outside = state();
            outside["ports"] = json!([{ "name": "p1", "role": "access" }]);
            outside["steering"] = steering;
            outside
        };
        let variants = [
            with_steering(json!([{ "name": "net", "destination": "10.2.0.0/16", "action": "drop" }])),
            with_steering(json!([
                { "name": "net", "destination": "10.0.0.0/8", "action": "drop" },
                { "name": "pass", "destination": "10.2.3.0/24", "protocol": "tcp", "action": "pass" }
            ])),
            with_steering(json!([
                { "name": "pass", "destination": "10.0.0.0/8", "action": "pass" },
                { "name": "net", "destination": "10.2.3.4/32", "protocol": "udp", "action": "drop" }
            ])),
        ];
        let mut dataplane = open(pins);
        apply(&mut dataplane, &variants[0]);
        let mut runner = open(pins);
        let (frame, ingress) = (plain_packet(), ifindex("p1"));
        let run = std::thread::spawn(move || {
            runner.test_run(&TestRun { repeat: PACKETS, ..TestRun::once(&frame, ingress) }).expect("a run").verdict
        });
        let mut applied = 1;
        while !run.is_finished() || applied < 100 {
            let result = apply(&mut dataplane, &variants[applied % variants.len()]);
            assert!(result.changed);
            applied += 1;
        }
        assert_eq!(run.join().expect("no panic"), XDP_DROP);
        let counters = dataplane.counters().expect("counters");
        let outcomes: Vec<(&str, u64)> =
            counters.ports[0].outcomes.iter().map(|(name, counter)| (*name, counter.packets)).collect();
        assert_eq!(outcomes, [("drop_steering_rule", u64::from(PACKETS))], "after {applied} applies");
        let net = counters.steering.iter().find(|rule| rule.rule == "net").expect("the rule");
        assert_eq!(net.counter.packets, u64::from(PACKETS), "the rule kept its name, and so its counter");
    });
}

#[test]
#[ignore = "needs root"]
fn directory_must_be_on_a_bpf_file_system() {
    isolated(|_| {
        let path = Path::new("/mnt/plain");
        let error = Dataplane::open_or_load(path, options()).expect_err("a tmpfs");
        assert!(matches!(error, Error::NotBpffs { .. }), "{error}");
        assert!(!path.exists());
    });
}

#[test]
#[ignore = "needs root"]
fn captured_port_shows_its_packets_across_applies() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        assert!(matches!(dataplane.set_capture("p1", true), Err(Error::PortUnknown { .. })));
        apply(&mut dataplane, &state());
        dataplane.set_capture("p1", true).expect("p1 is a port");
        let mut changed = state();
        changed["settings"] = json!({ "icmp_error_burst": 7 });
        apply(&mut dataplane, &changed);
        assert_eq!(control(&dataplane).captures, 1);
        drop(dataplane);

        let mut dataplane = open(pins);
        let mut reader = dataplane.capture_source().expect("a source").open().expect("rings");
        send(&mut dataplane);
        let packets = reader.read(std::time::Duration::from_secs(2)).expect("packets");
        assert_eq!(packets.len(), 1, "{packets:?}");
        assert_eq!(packets[0].bytes, packet());
        assert_eq!((packets[0].ifindex, packets[0].direction), (ifindex("p1"), segue_dataplane::Direction::Received));
        assert_eq!(reader.lost(), 0);

        dataplane.set_capture("p1", false).expect("p1 is a port");
        dataplane.set_capture("p2", true).expect("p2 is a port");
        assert_eq!(control(&dataplane).captures, 1);
        send(&mut dataplane);
        let packets = reader.read(std::time::Duration::from_secs(2)).expect("packets");
        assert_eq!(packets.len(), 1, "{packets:?}");
        assert_eq!((packets[0].ifindex, packets[0].direction), (ifindex("p2"), segue_dataplane::Direction::Sent));
        assert_eq!(packets[0].outcome, Some(abi::Outcome::Forwarded));
        dataplane.set_capture("p2", false).expect("p2 is a port");
        assert_eq!(control(&dataplane).captures, 0);
    });
}

fn with_flows(flows: u32) -> serde_json::Value {
    let mut with = state();
    with["ports"] = json!([{ "name": "p1", "role": "core" }, { "name": "p2", "role": "service" }]);
    let proxy = json!({ "inner": ["IPv4"], "memory": "flow", "to_function": "p2", "from_function": "p2" });
    let sids = with["sids"].as_array_mut().expect("a list");
    sids.push(
        json!({ "sid": "fc00:1:a::", "behaviour": "End.AD", "next_hop_mac": "02:00:00:00:00:07", "proxy": proxy }),
    );
    with["settings"] = json!({ "proxy_flows": flows });
    with
}

#[test]
#[ignore = "needs root"]
fn memories_grow_and_nothing_else_is_lost() {
    isolated(|pins| {
        let size = |dataplane: &Dataplane, map: &str| dataplane.map(map).expect("a map").max_entries();
        let mut dataplane = open(pins);
        apply(&mut dataplane, &state());
        assert_eq!(send(&mut dataplane), XDP_REDIRECT);
        assert_eq!((size(&dataplane, "stash"), size(&dataplane, "proxy_flows")), (64, 1));
        let before = control(&dataplane);

        let applied = apply(&mut dataplane, &with_flows(300));
        assert_eq!((applied.generation, applied.warnings), (2, vec![]), "no counter starts anew");
        assert_eq!((size(&dataplane, "stash"), size(&dataplane, "stash_index")), (65_536, 65_536));
        let cpus = libbpf_rs::num_possible_cpus().expect("CPUs") as u32;
        // The kernel keeps 128 entries of an LRU table in hand for each CPU.
        let spare = 128 * cpus;
        assert_eq!(size(&dataplane, "proxy_flows"), 300 + spare);
        let after = control(&dataplane);
        assert_eq!((before.stash_bits, after.stash_bits), (6, 16), "all slots, whatever CPUs there may be");
        assert_eq!(sid_packets(&dataplane), 1);
        assert_ne!(program_of(&dataplane, ifindex("p1")), 0);
        assert_eq!(send(&mut dataplane), XDP_REDIRECT);
        assert_eq!(sid_packets(&dataplane), 2, "the program that is attached counts in the same row");
        assert_eq!(
            fs::read_dir(pins)
                .expect("pins")
                .filter(|entry| {
                    entry.as_ref().expect("an entry").file_name().to_string_lossy().starts_with("maps-")
                })
                .count(),
            1,
            "the old set has gone"
        );
        drop(dataplane);

        let mut dataplane = open(pins);
        assert_eq!(dataplane.origin(), Origin::Adopted);
        assert!(!apply(&mut dataplane, &with_flows(300)).changed);
        assert!(apply(&mut dataplane, &with_flows(200)).changed, "fewer fit as well");
        assert_eq!(size(&dataplane, "proxy_flows"), 300 + spare);
        assert!(apply(&mut dataplane, &with_flows(301)).changed);
        assert_eq!(size(&dataplane, "proxy_flows"), 301 + spare);
        assert_eq!(sid_packets(&dataplane), 2);
    });
}

/// Puts a flow and a counter into the memory of the proxy.
fn remember(dataplane: &Dataplane, scope: u32) {
    use segue_abi::zerocopy::FromZeros;
    let key = abi::ProxyFlowKey { key: [1; 5], scope, ..abi::ProxyFlowKey::new_zeroed() };
    let flows = dataplane.map("proxy_flows").expect("flows");
    flows
        .update(
            key.as_bytes(),
            abi::ProxyFlow { stash: 1, used: 1, ..abi::ProxyFlow::new_zeroed() }.as_bytes(),
            MapFlags::ANY,
        )
        .expect("room");
    let memory = abi::Memory { current: 5, ..abi::Memory::new_zeroed() };
    let memories = dataplane.map("memories").expect("memories");
    memories.update(&scope.to_ne_bytes(), memory.as_bytes(), MapFlags::ANY).expect("room");
    let counters = abi::MemoryCounters { created: 3, removed: 1, ..abi::MemoryCounters::new_zeroed() };
    let cpus = libbpf_rs::num_possible_cpus().expect("CPUs");
    let values = vec![counters.as_bytes().to_vec(); cpus];
    let map = dataplane.map("memory_counters").expect("counters");
    map.update_percpu(&scope.to_ne_bytes(), &values, MapFlags::ANY).expect("room");
}

#[test]
#[ignore = "needs root"]
fn memories_are_counted_and_never_inherited() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &with_flows(300));
        let scope = dataplane.applied().expect("applied").scopes["p2 flow"];
        remember(&dataplane, scope);
        let counted = |dataplane: &Dataplane| {
            let sids = dataplane.counters().expect("counters").sids;
            sids.into_iter().find_map(|sid| sid.memory).expect("a proxy that remembers")
        };
        let cpus = libbpf_rs::num_possible_cpus().expect("CPUs") as u64;
        let memory = counted(&dataplane);
        assert_eq!((memory.shared.as_str(), memory.created, memory.removed), ("p2 flow", 3 * cpus, cpus));
        assert_eq!((memory.present, memory.evicted), (1, 2 * cpus - 1));

        let mut renamed = with_flows(300);
        renamed["sids"][1]["sid"] = json!("fc00:1:b::");
        apply(&mut dataplane, &renamed);
        assert_eq!(counted(&dataplane), memory, "another SID, the same function");

        apply(&mut dataplane, &state());
        remember(&dataplane, scope);
        apply(&mut dataplane, &with_flows(300));
        assert_eq!(dataplane.applied().expect("applied").scopes["p2 flow"], scope, "the lowest free row");
        let fresh = counted(&dataplane);
        assert_eq!((fresh.created, fresh.present, fresh.evicted), (0, 0, 0));
        let bytes = dataplane.map("memories").expect("memories").lookup(&scope.to_ne_bytes(), MapFlags::ANY);
        let current = abi::Memory::read_from_bytes(&bytes.expect("a read").expect("an entry")).expect("a memory");
        assert_eq!(current.current, 0);
    });
}

/// Runs this thread on one CPU.
fn pin_to(cpu: usize) {
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu).expect("a CPU");
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).expect("a CPU of this machine");
}

/// To the proxy of [`with_flows`], with the steering header and the inner flow of this chain.
fn to_proxy(chain: u16) -> Vec<u8> {
    let address = |text: &str| text.parse().expect("an address");
    let mac = interfaces().get("p1").expect("p1").mac;
    let srh = SrhRepr::new(&[address("fc00:1:a::"), address("fc00:2:1::")]);
    let front = PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], mac)
        .ipv6(Ipv6Repr::new(address("fc00:9::1"), address("fc00:1:a::")))
        .srh(SrhRepr { tag: chain, ..srh });
    inner_flow(front, chain)
}

fn inner_flow(front: PacketBuilder, chain: u16) -> Vec<u8> {
    let repr = Ipv4Repr::new([10, 1, 0, 2].into(), [10, 2, 3, 4].into());
    front.inner_ipv4(repr).udp(UdpRepr::new(chain, 53)).payload(b"query").build()
}

/// The chain, as its SRH says, of the header that a packet of this inner flow gets when it comes back.
fn comes_back(dataplane: &mut Dataplane, flow: u16) -> Option<u16> {
    let mac = interfaces().get("p2").expect("p2").mac;
    let packet = inner_flow(PacketBuilder::ethernet([2, 0, 0, 0, 0, 7], mac), flow);
    let found = dataplane.test_run(&TestRun::once(&packet, ifindex("p2"))).expect("a run");
    (found.verdict == XDP_REDIRECT).then(|| u16::from_be_bytes([found.frame[60], found.frame[61]]))
}

#[test]
#[ignore = "needs root"]
fn references_outlive_programs_and_tables() {
    isolated(|pins| {
        // Slots once were of one CPU each.
        pin_to(0);
        let goes = |dataplane: &mut Dataplane, chain| {
            let run = dataplane.test_run(&TestRun::once(&to_proxy(chain), ifindex("p1"))).expect("a run");
            assert_eq!(run.verdict, XDP_REDIRECT);
        };
        let mut dataplane = open(pins);
        apply(&mut dataplane, &with_flows(300));
        goes(&mut dataplane, 1);
        assert_eq!(comes_back(&mut dataplane, 1), Some(1));
        drop(dataplane);

        // The memory's tables have grown once.
        let set = pins.join("maps-2");
        fs::rename(set.join(format!("programs-{}", build_id())), set.join("programs-0123456789abcdef"))
            .expect("a rename");
        let mut dataplane = open(pins);
        assert_eq!(dataplane.origin(), Origin::ProgramReplaced);
        goes(&mut dataplane, 2);
        assert_eq!([1, 2].map(|chain| comes_back(&mut dataplane, chain)), [Some(1), Some(2)], "an upgrade");

        let mut many = with_flows(300);
        let sids = many["sids"].as_array_mut().expect("a list");
        sids.extend((2..100).map(|n| json!({ "sid": format!("fc00:1:{n:x}::/48"), "behaviour": "End" })));
        apply(&mut dataplane, &many);
        assert_eq!(dataplane.map("sid_entries").expect("sid_entries").max_entries(), 2 * 128);
        goes(&mut dataplane, 3);
        let chains = [1, 2, 3];
        assert_eq!(chains.map(|chain| comes_back(&mut dataplane, chain)), chains.map(Some), "a table has grown");

        // Whatever a reference leads to: the header of another interface is never put back.
        let stash = dataplane.map("stash").expect("the stash");
        for slot in 0..64_u32 {
            let entry = stash.lookup(&slot.to_ne_bytes(), MapFlags::ANY).expect("a read").expect("an entry");
            let mut entry = abi::Stash::read_from_bytes(&entry).expect("a header");
            entry.scope += 1 << 32;
            stash.update(&slot.to_ne_bytes(), entry.as_bytes(), MapFlags::ANY).expect("room");
        }
        let mut fallback = many;
        fallback["sids"][1]["proxy"]["unknown_flow"] = json!("interface");
        apply(&mut dataplane, &fallback);
        assert_eq!([3, 4].map(|flow| comes_back(&mut dataplane, flow)), [None, None]);
    });
}

/// Puts flows in from all CPUs by turns, and says how many are there then.
fn fill(dataplane: &Dataplane, flows: u32) -> u64 {
    use segue_abi::zerocopy::FromZeros;
    let scope = dataplane.applied().expect("applied").scopes["p2 flow"];
    let map = dataplane.map("proxy_flows").expect("flows");
    let cpus = std::thread::available_parallelism().expect("the number of CPUs").get() as u32;
    for cpu in 0..cpus {
        pin_to(cpu as usize);
        for number in (cpu..flows).step_by(cpus as usize) {
            let key = [u64::from(number), 0, 0, 0, 0];
            let key = abi::ProxyFlowKey { key, scope, ..abi::ProxyFlowKey::new_zeroed() };
            map.update(
                key.as_bytes(),
                abi::ProxyFlow { stash: 1, used: 1, ..abi::ProxyFlow::new_zeroed() }.as_bytes(),
                MapFlags::ANY,
            )
            .expect("room");
        }
    }
    let sids = dataplane.counters().expect("counters").sids;
    sids.into_iter().find_map(|sid| sid.memory).expect("a proxy that remembers").present
}

#[test]
#[ignore = "needs root"]
fn as_many_flows_are_held_as_the_setting_says() {
    isolated(|pins| {
        let mut dataplane = open(pins);
        for flows in [2, 300, 4096, 50_000] {
            let mut state = with_flows(flows);
            // Another function, so that it remembers nothing yet.
            apply(&mut dataplane, &crate::support::state());
            state["sids"][1]["next_hop_mac"] = json!(format!("02:00:00:00:{:02x}:07", flows & 0xff));
            apply(&mut dataplane, &state);
            assert_eq!(fill(&dataplane, flows), u64::from(flows), "none had to go, and all are counted");
        }
    });
}

#[test]
#[ignore = "needs root"]
fn a_function_inherits_none_of_many_flows() {
    const FLOWS: u32 = 50_000;
    isolated(|pins| {
        let mut dataplane = open(pins);
        apply(&mut dataplane, &with_flows(FLOWS));
        assert_eq!(fill(&dataplane, FLOWS), u64::from(FLOWS));
        apply(&mut dataplane, &state());
        apply(&mut dataplane, &with_flows(FLOWS));
        assert_eq!(dataplane.map("proxy_flows").expect("flows").keys().count(), 0);
    });
}
