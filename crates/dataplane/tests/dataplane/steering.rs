//! Steering by rules at random, and by 100,000 of them: the rule that the data plane finds is the one that the documentation
//! names, found here by trying them one by one.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use crate::support::{ifindex, interfaces, ip, isolated, options, state, takes_redirected};
use ipnet::IpNet;
use segue_classifier::random::Random;
use segue_dataplane::{Dataplane, MissingInterface, TestRun};
use segue_model::node::{NodeState, SteeringRule, SteeringVerdict};
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, TcpRepr, UdpRepr};
use serde_json::{Value, json};

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;

#[derive(Debug, Clone, Copy)]
struct Packet {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    ports: [u16; 2],
    dscp: u8,
    flow_label: u32,
    ingress: &'static str,
}

impl Packet {
    /// As it comes to a port with this MAC address.
    fn frame(&self, port: [u8; 6]) -> Vec<u8> {
        let frame = PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], port);
        let frame = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.ipv4(Ipv4Repr { type_of_service: self.dscp << 2, ..Ipv4Repr::new(source, destination) })
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => frame.ipv6(Ipv6Repr {
                traffic_class: self.dscp << 2 | 1,
                flow_label: self.flow_label,
                ..Ipv6Repr::new(source, destination)
            }),
            _ => unreachable!("both are of one family"),
        };
        let [from, to] = self.ports;
        match self.protocol {
            6 => frame.tcp(TcpRepr::new(from, to, 0x10)).payload(b"x").build(),
            _ => frame.udp(UdpRepr::new(from, to)).payload(b"x").build(),
        }
    }
}

fn holds(rule: &SteeringRule, packet: &Packet) -> bool {
    let among = |ranges: &[segue_model::value::PortRange], port: u16| {
        ranges.is_empty() || ranges.iter().any(|range| (range.low()..=range.high()).contains(&port))
    };
    let marked = |ranges: &[segue_model::range::NumberRange], value: u32| {
        ranges.is_empty() || ranges.iter().any(|range| (range.low()..=range.high()).contains(&value))
    };
    let within = |range: Option<segue_model::range::AddressRange>, address: IpAddr| {
        range.is_none_or(|range| (range.first()..=range.last()).contains(&address))
    };
    rule.destination.contains(&packet.destination)
        && rule.source.is_none_or(|source| source.contains(&packet.source))
        && rule.protocol.is_none_or(|protocol| protocol.0 == packet.protocol)
        && among(&rule.source_ports, packet.ports[0])
        && among(&rule.destination_ports, packet.ports[1])
        && rule.ingress.as_ref().is_none_or(|port| port == packet.ingress)
        && within(rule.source_range, packet.source)
        && within(rule.destination_range, packet.destination)
        && marked(&rule.dscp, packet.dscp.into())
        && (rule.flow_labels.is_empty() || packet.source.is_ipv6() && marked(&rule.flow_labels, packet.flow_label))
}

/// The rule that docs/using/configuration.md says decides: its position.
fn decides(rules: &[SteeringRule], packet: &Packet) -> Option<usize> {
    let rank = |rule: &SteeringRule| {
        let ports = u8::from(!rule.source_ports.is_empty()) + u8::from(!rule.destination_ports.is_empty());
        let marks = u8::from(!rule.flow_labels.is_empty()) + u8::from(!rule.dscp.is_empty());
        let source = rule.source.map_or(0, |source| source.prefix_len());
        let destination = rule.destination.prefix_len();
        (rule.priority, destination, source, rule.protocol.is_some(), ports, rule.ingress.is_some(), marks)
    };
    let fitting = rules.iter().enumerate().filter(|(_, rule)| holds(rule, packet));
    fitting.max_by_key(|(position, rule)| (rank(rule), std::cmp::Reverse(*position))).map(|(position, _)| position)
}

fn address(random: &mut Random, ipv4: bool, net: Option<IpNet>) -> IpAddr {
    let bits = if ipv4 { 32 } else { 128 };
    let (network, length) = match net {
        Some(IpNet::V4(net)) => (u128::from(u32::from(net.network())), net.prefix_len()),
        Some(IpNet::V6(net)) => (u128::from(net.network()), net.prefix_len()),
        None if ipv4 => (u128::from(u32::from(Ipv4Addr::new(10, 0, 0, 0))), 8),
        None => (u128::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0)), 32),
    };
    let free = bits - u32::from(length);
    // Few different values, so that prefixes meet.
    let low = if free == 0 { 0 } else { random.wide() & ((1_u128 << (free - 1) << 1) - 1) };
    let low = if random.per_mille(500) { low & 0x0303 } else { low };
    match u32::try_from(network | low) {
        Ok(number) if ipv4 => Ipv4Addr::from(number).into(),
        _ => Ipv6Addr::from(network | low).into(),
    }
}

fn rule(random: &mut Random, number: usize) -> Value {
    let ipv4 = random.per_mille(500);
    let prefix = |random: &mut Random| {
        let length =
            *random.pick(if ipv4 { &[8, 12, 16, 24, 30, 32][..] } else { &[32, 33, 48, 64, 112, 126, 128][..] });
        IpNet::new(address(random, ipv4, None), length).expect("a prefix").trunc().to_string()
    };
    let mut rule = json!({ "name": format!("r{number}"), "destination": prefix(random) });
    if random.per_mille(300) {
        rule["source"] = json!(prefix(random));
    }
    if random.per_mille(400) {
        rule["protocol"] = json!(*random.pick(&["tcp", "udp"]));
        let list = |random: &mut Random| -> Value {
            let range = |random: &mut Random| {
                let low = random.below(12);
                json!(format!("{low}-{}", low + random.below(4)))
            };
            (0..1 + random.below(3)).map(|_| range(random)).collect()
        };
        if random.per_mille(500) {
            rule["destination_ports"] = list(random);
        }
        if random.per_mille(300) {
            rule["source_ports"] = list(random);
        }
    }
    if random.per_mille(200) {
        rule["ingress"] = json!(*random.pick(&["p1", "p2"]));
    }
    if random.per_mille(200) {
        rule["dscp"] = json!([random.below(4), "8-63"]);
    }
    if random.per_mille(200) && !ipv4 {
        rule["flow_labels"] = json!(["0x2-0x3", "0x10000-0x4ffff"]);
    }
    for key in ["source_range", "destination_range"] {
        if random.per_mille(100) {
            let ends = [address(random, ipv4, None), address(random, ipv4, None)];
            rule[key] = json!(format!("{}-{}", ends[0].min(ends[1]), ends[0].max(ends[1])));
        }
    }
    if random.per_mille(100) {
        rule["priority"] = json!(random.below(5) as i32 - 2);
    }
    match random.below(3) {
        0 => rule["action"] = json!("pass"),
        1 => rule["action"] = json!("drop"),
        _ => rule["policy"] = json!("to-2"),
    }
    rule
}

fn packet(random: &mut Random, rules: &[SteeringRule]) -> Packet {
    let rule = random.pick(rules).clone();
    let ipv4 = rule.destination.addr().is_ipv4();
    let near = |random: &mut Random, net: Option<IpNet>, range: Option<segue_model::range::AddressRange>| match range {
        Some(range) if random.per_mille(800) => *random.pick(&[range.first(), range.last()]),
        _ => address(random, ipv4, net.filter(|_| true)),
    };
    Packet {
        source: near(random, rule.source, rule.source_range),
        destination: near(random, Some(rule.destination), rule.destination_range),
        protocol: rule.protocol.map_or(*random.pick(&[6, 17]), |protocol| protocol.0),
        ports: [random.below(16) as u16, random.below(16) as u16],
        dscp: random.below(12) as u8,
        flow_label: random.between(0, 5) as u32 * if random.per_mille(500) { 1 } else { 0x10000 },
        ingress: ["p1", "p2"][random.below(2)],
    }
}

fn with_rules(rules: Vec<Value>) -> NodeState {
    let mut state = state();
    let ports = [("p1", "access"), ("p2", "access"), ("p3", "core")];
    state["ports"] = ports.map(|(name, role)| json!({ "name": name, "role": role })).into();
    state["steering"] = Value::Array(rules);
    let state: NodeState = serde_json::from_value(state).expect("a node state");
    state
}

/// A core port, by which the segments are reached: what has an SRH leaves by no access port.
fn core_port() {
    ip("link add p3 type veth peer name h3");
    ip("link set p3 up");
    ip("link set h3 up");
    takes_redirected("h3", true);
    ip("address add fd00:3::1/64 dev p3 nodad");
    ip("neighbour add fd00:3::2 lladdr 02:00:00:00:00:03 dev p3");
    ip("route replace fc00:2::/32 via fd00:3::2");
}

fn apply(dataplane: &mut Dataplane, state: &NodeState) {
    dataplane.apply(state, &interfaces(), MissingInterface::Refuse).expect("an apply that works");
}

fn mac(port: &str) -> [u8; 6] {
    interfaces().get(port).expect("an interface of the test").mac
}

/// Packets by rule, as the data plane counted them.
fn counted(dataplane: &Dataplane) -> BTreeMap<String, u64> {
    let counters = dataplane.counters().expect("counters");
    counters.steering.into_iter().map(|rule| (rule.rule, rule.counter.packets)).filter(|(_, n)| *n > 0).collect()
}

/// Sends a packet and checks its end.
fn send(
    dataplane: &mut Dataplane,
    rules: &[SteeringRule],
    packet: &Packet,
    ports: &[(&str, u32, [u8; 6])],
) -> Option<usize> {
    let wanted = decides(rules, packet);
    let &(_, ingress, mac) = ports.iter().find(|(name, ..)| *name == packet.ingress).expect("a port");
    let verdict = dataplane.test_run(&TestRun::once(&packet.frame(mac), ingress)).expect("a run").verdict;
    let rule = wanted.map(|position| &rules[position]);
    let fits = match rule.map(|rule| rule.action) {
        None | Some(Some(SteeringVerdict::Pass)) => verdict == XDP_PASS,
        Some(Some(SteeringVerdict::Drop)) => verdict == XDP_DROP,
        // Encapsulated, whatever the kernel knows about the way.
        Some(None) => true,
    };
    assert!(fits, "verdict {verdict} for {packet:?}\nby {rule:?}");
    wanted
}

#[test]
#[ignore = "needs root"]
fn rules_at_random_steer_as_documented() {
    isolated(|pins| {
        core_port();
        let mut random = Random::new(4);
        let mut dataplane = Dataplane::open_or_load(pins, options()).expect("a data plane");
        let ports = ["p1", "p2"].map(|name| (name, ifindex(name), mac(name)));
        let mut hits = 0;
        for round in 0..25 {
            let count = *random.pick(&[1, 5, 40, 120]);
            let state = with_rules((0..count).map(|number| rule(&mut random, 1000 * round + number)).collect());
            apply(&mut dataplane, &state);
            let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
            for _ in 0..400 {
                let packet = packet(&mut random, &state.steering);
                let Some(position) = send(&mut dataplane, &state.steering, &packet, &ports) else { continue };
                *wanted.entry(state.steering[position].name.clone().expect("a name")).or_default() += 1;
                hits += 1;
            }
            assert_eq!(counted(&dataplane), wanted, "round {round}: {:#?}", state.steering);
        }
        assert!(hits > 4000, "only {hits} packets were steered");
    });
}

/// Rules with wildcards of all kinds; the last one takes what no other does.
fn descriptors(count: usize, random: &mut Random) -> Vec<Value> {
    let mut rules = Vec::with_capacity(count);
    for number in 0..count - 1 {
        let [high, low] = [number >> 8 & 0xffff, number & 0xff];
        let mut rule = json!({ "destination": format!("2001:db8:{high:x}:{low:x}::/64"), "action": "drop" });
        match random.below(6) {
            0 => rule["destination"] = json!(format!("2001:db8:{high:x}:{low:x}::{:x}/128", number & 0xffff)),
            1 => rule["source"] = json!(format!("2001:db9:{:x}::/48", random.below(64))),
            2 => {
                rule["protocol"] = json!(*random.pick(&["tcp", "udp"]));
                let low = random.below(60_000);
                rule["destination_ports"] = json!([format!("{low}-{}", low + random.below(3000))]);
            }
            3 => rule["protocol"] = json!(*random.pick(&["tcp", "udp"])),
            4 => rule["destination"] = json!(format!("10.{}.{}.{}/32", number >> 16 & 0xff, high & 0xff, low)),
            _ => {}
        }
        rules.push(rule);
    }
    rules.push(json!({ "destination": "2001:db8::/32", "action": "drop", "name": "all others" }));
    rules
}

#[test]
#[ignore = "needs root"]
fn a_hundred_thousand_descriptors() {
    isolated(|pins| {
        core_port();
        let is_long = std::env::var_os("SEGUE_LONG").is_some();
        let (count, packets_beside) = (100_000, if is_long { 2_000_000 } else { 500_000 });
        let mut random = Random::new(9);
        let mut dataplane = Dataplane::open_or_load(pins, options()).expect("a data plane");
        let ports = ["p1", "p2"].map(|name| (name, ifindex(name), mac(name)));
        let mut state = with_rules(descriptors(count, &mut random));
        let began = Instant::now();
        apply(&mut dataplane, &state);
        println!("{count} descriptors: applied in {:.1?}", began.elapsed());
        let packets: Vec<Packet> = (0..300)
            .map(|_| Packet {
                dscp: 0,
                flow_label: 0,
                ports: [1, random.below(65536) as u16],
                ..packet(&mut random, &state.steering)
            })
            .collect();
        let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
        for packet in &packets {
            let position = send(&mut dataplane, &state.steering, packet, &ports);
            let name =
                position.map(|position| segue_dataplane::compile::rule_name(&state.steering[position], position));
            *wanted.entry(name.unwrap_or_else(|| "none".to_owned())).or_default() += 1;
        }
        wanted.remove("none");
        assert_eq!(counted(&dataplane), wanted);
        assert!(wanted.len() > 100, "packets hit {} rules", wanted.len());

        // The other half, while packets that only the last rule takes go on.
        let mut runner = Dataplane::open_or_load(pins, options()).expect("the same data plane");
        let last = Packet {
            source: "2001:dba::1".parse().expect("an address"),
            destination: "2001:db8:ffff::1".parse().expect("an address"),
            protocol: 17,
            ports: [1, 2],
            dscp: 0,
            flow_label: 0,
            ingress: "p1",
        };
        assert_eq!(decides(&state.steering, &last), Some(count - 1));
        let (frame, ingress) = (last.frame(ports[0].2), ports[0].1);
        let before = counted(&dataplane).get("all others").copied().unwrap_or(0);
        let run = std::thread::spawn(move || {
            runner
                .test_run(&TestRun { repeat: packets_beside, ..TestRun::once(&frame, ingress) })
                .expect("a run")
                .verdict
        });
        let mut applied = 0;
        while !run.is_finished() || applied < if is_long { 3 } else { 2 } {
            // Another action, so that the structure is compiled anew the first time.
            state.steering[0].action =
                Some(if applied % 2 == 0 { SteeringVerdict::Pass } else { SteeringVerdict::Drop });
            let began = Instant::now();
            apply(&mut dataplane, &state);
            println!("applied again in {:.1?}", began.elapsed());
            applied += 1;
        }
        assert_eq!(run.join().expect("no panic"), XDP_DROP);
        assert_eq!(
            counted(&dataplane)["all others"] - before,
            u64::from(packets_beside),
            "no packet is lost or steered wrong"
        );
    });
}
