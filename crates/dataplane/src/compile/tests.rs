//! Whole node states: what goes where, and what is refused.

mod generations;
mod labels;
mod memory;
mod steering;

use serde_json::{Value, json};
use zerocopy::IntoBytes;

use super::*;

fn interfaces() -> Interfaces {
    let interface = |ifindex: u32, addresses: &[&str]| Interface {
        ifindex,
        mtu: 9000,
        mac: [2, 0, 0, 0, 0, ifindex as u8],
        addresses: addresses.iter().map(|address| address.parse().expect("an address")).collect(),
        up: ifindex != 5,
        peer_elsewhere: ifindex == 4,
        vrf: None,
        ruled: false,
        hook: crate::facts::Hook::default(),
        takes_frames: true,
    };
    Interfaces(BTreeMap::from([
        ("core0".to_owned(), interface(2, &["fe80::2/64", "fd00:2::1/64", "10.0.2.1/24", "10.0.2.2/24"])),
        ("access0".to_owned(), interface(3, &["fe80::3/64"])),
        ("to-fw".to_owned(), interface(4, &[])),
        ("from-fw".to_owned(), interface(5, &[])),
        ("clash".to_owned(), interface(2 + 4096, &[])),
    ]))
}

fn base() -> Value {
    json!({
        "node": "n1",
        "source_address": "fc00:1::1",
        "source_address_ipv4": "192.0.2.1",
        "domain": { "sid_blocks": ["fc00::/16"] },
        "ports": [
            { "name": "core0", "role": "core" },
            { "name": "access0", "role": "access" },
            { "name": "to-fw", "role": "service" },
            { "name": "from-fw", "role": "service" }
        ],
        "policies": [{ "name": "a", "segment_lists": [{ "segments": ["fc00:2::1", "fc00:3::1"] }] }]
    })
}

struct Case {
    state: Value,
    interfaces: Interfaces,
    missing: MissingInterface,
    capabilities: Capabilities,
    capacity: Capacity,
}

impl Case {
    fn new(state: Value) -> Self {
        let capacity = Capacity {
            sids: 8,
            policies: 8,
            segment_lists: 8,
            steering_rules: 40,
            steering: 1 << 16,
            ports: 4,
            ..Capacity::default()
        };
        let capabilities = Capabilities { fib_table: true, redirect_multi_buffer: false, hz: 250 };
        Self { state, interfaces: interfaces(), missing: MissingInterface::Refuse, capabilities, capacity }
    }

    /// The base with some of its keys replaced.
    fn with(changes: Value) -> Self {
        let mut state = base();
        for (key, value) in changes.as_object().expect("an object") {
            state[key] = value.clone();
        }
        Self::new(state)
    }

    fn after(&self, previous: Option<&Compiled>) -> Result<Compiled, CompileError> {
        let state: NodeState = serde_json::from_value(self.state.clone()).expect("a node state");
        compile(&Input {
            state: &state,
            interfaces: &self.interfaces,
            missing: self.missing,
            capabilities: &self.capabilities,
            capacity: &self.capacity,
            previous,
            generation: previous.map_or(1, |previous| previous.generation + 1),
        })
    }

    fn compiled(&self) -> Compiled {
        self.after(None).expect("a state that compiles")
    }

    fn error(&self) -> CompileError {
        self.after(None).expect_err("a state that does not compile")
    }
}

fn octets(address: &str) -> [u8; 16] {
    address.parse::<Ipv6Addr>().expect("an address").octets()
}

fn flags(flags: u8) -> u32 {
    u32::from(flags)
}

#[test]
fn ports_carry_the_facts_of_their_interfaces() {
    let compiled = Case::with(json!({ "domain": { "source_prefixes": ["fc00::/16"] } })).compiled();
    let core = compiled.port("core0").expect("core0").entry;
    assert_eq!((core.ifindex, core.mtu, flags(core.role)), (2, 9000, abi::SEGUE_ROLE_CORE));
    assert_eq!(core.mac, [2, 0, 0, 0, 0, 2]);
    assert_eq!(core.ipv6, octets("fd00:2::1"), "link-local only where there is nothing else");
    assert_eq!(core.ipv4.as_bytes(), [10, 0, 2, 1]);
    assert_eq!((core.policy, core.proxy), (abi::SEGUE_NONE, abi::SEGUE_NONE));
    assert_eq!(flags(core.flags), abi::SEGUE_PORT_UP);
    assert_eq!(core.config_flags, abi::SEGUE_CONFIG_FIB_TABLE | abi::SEGUE_CONFIG_CHECK_SOURCE);
    let access = compiled.port("access0").expect("access0").entry;
    assert_eq!((access.ipv6, access.ipv4), (octets("fe80::3"), 0));
    let from = compiled.port("from-fw").expect("from-fw").entry;
    assert_eq!((from.ipv6, flags(from.flags)), ([0; 16], 0));
    let rows: Vec<u16> = compiled.ports.iter().map(|port| port.entry.index).collect();
    assert_eq!(rows, [1, 2, 3, 4], "row 0 is for ports that are not configured");
    assert_eq!(compiled.ports[0].slot(1), 4096 + 2);
    assert_eq!(compiled.ports[0].slot(2), 2);
}

#[test]
fn ports_whose_numbers_meet_stand_in_a_chain() {
    let ports = ["core0", "clash", "access0"].map(|name| json!({ "name": name, "role": "core" }));
    let compiled = Case::with(json!({ "ports": ports })).compiled();
    let [core, clash, access] = &compiled.ports[..] else { panic!("three ports") };
    assert_eq!((core.place, access.place), (2, 3));
    assert_eq!((clash.place, clash.entry.next), (0, 0), "the lowest slot that no port has by its number");
    assert_eq!((core.entry.next, access.entry.next), (1, 0));
}

#[test]
fn more_ports_than_a_chain_takes_are_refused() {
    let mut case = Case::new(base());
    let most = abi::SEGUE_PORT_CHAIN;
    case.capacity.ports = most + 1;
    let one = case.interfaces.0["core0"].clone();
    let names: Vec<String> = (0..=most).map(|at| format!("p{at}")).collect();
    case.interfaces.0 = (1..)
        .zip(&names)
        .map(|(at, name)| (name.clone(), Interface { ifindex: 7 + at * abi::SEGUE_PORT_SLOTS, ..one.clone() }))
        .collect();
    let ports = |count: u32| -> Vec<Value> {
        names.iter().take(count as usize).map(|name| json!({ "name": name, "role": "core" })).collect()
    };
    case.state["ports"] = json!(ports(most));
    assert_eq!(case.compiled().ports.len(), most as usize);
    case.state["ports"] = json!(ports(most + 1));
    let error = case.error().to_string();
    assert!(error.contains("more than 64 ports") && error.contains("p64"), "{error}");
}

#[test]
fn each_vrf_has_a_number() {
    let mut case = Case::new(base());
    for (name, vrf) in [("core0", 70), ("access0", 60), ("to-fw", 70)] {
        case.interfaces.0.get_mut(name).expect("an interface").vrf = Some(vrf);
    }
    let domains = |case: &Case| -> Vec<u16> { case.compiled().ports.iter().map(|port| port.entry.domain).collect() };
    assert_eq!(domains(&case), [2, 1, 2, 0]);
    case.interfaces.0.get_mut("to-fw").expect("an interface").ruled = true;
    assert_eq!(domains(&case), [2, 1, 3, 0], "a rule is about it alone");
}

#[test]
fn access_port_flags() {
    let compiled = Case::with(json!({
        "ports": [{ "name": "access0", "role": "access", "accept_hmac": true, "l2_policy": "wire" }],
        "policies": [{ "name": "wire", "mode": "H.Encaps.L2", "segment_lists": [{ "segments": ["fc00:2::1"] }] }],
    }))
    .compiled();
    let port = compiled.ports[0].entry;
    assert_eq!(flags(port.flags), abi::SEGUE_PORT_UP | abi::SEGUE_PORT_HMAC | abi::SEGUE_PORT_L2);
    assert_eq!(port.policy, compiled.policies[0].index);
}

#[test]
fn a_kernel_without_table_lookups_knows_the_main_table_only() {
    let with_table = |table: u32| {
        let mut case = Case::with(json!({ "policies": [], "steering": [], "sids": [
            { "sid": "fc00:1:6::", "behaviour": "End.DT46", "table": table }] }));
        case.capabilities.fib_table = false;
        case
    };
    assert_eq!(with_table(254).compiled().sids[0].entry.table, 0);
    let error = with_table(100).error().to_string();
    assert!(error.contains("SID fc00:1:6::: table 100") && error.contains("6.5"), "{error}");
}

#[test]
fn config_has_the_blocks_and_settings() {
    let mut case = Case::with(json!({
        "domain": { "sid_blocks": ["fc00:1::/32", "5f00:1::/32"], "source_prefixes": ["fd00::/8"],
                    "infrastructure_prefixes": ["fd00:1::/32", "fd00:2::/32"] },
        "settings": { "icmp_errors_per_second": 5, "icmp_error_burst": 6, "adjacency_lifetime_ms": 2000 },
    }));
    let config = case.compiled().config;
    assert_eq!((config.icmp_per_second, config.icmp_burst, config.cache_lifetime), (5, 6, 500));
    assert_eq!(config.address_ipv4.as_bytes(), [192, 0, 2, 1]);
    assert_eq!(config.address, octets("fc00:1::1"));
    assert_eq!(config.sid_blocks_count, 2, "5f00::/16 covers 5f00:1::/32");
    assert_eq!(config.sid_blocks[0].address.as_bytes(), octets("5f00::"));
    assert_eq!(config.sid_blocks[0].mask.as_bytes(), octets("ffff::"));
    assert_eq!(config.sid_blocks[1].address.as_bytes(), octets("fc00:1::"));
    assert_eq!(config.sid_blocks[1].mask.as_bytes(), octets("ffff:ffff::"));
    assert_eq!(config.source_prefixes_count, 1);
    assert_eq!(config.source_prefixes[0].mask.as_bytes(), octets("ff00::"));
    assert_eq!(config.infrastructure_prefixes_count, 2);
    assert_eq!(config.infrastructure_prefixes[1].address.as_bytes(), octets("fd00:2::"));
    case.state["settings"]["adjacency_lifetime_ms"] = json!(1);
    assert_eq!(case.compiled().config.cache_lifetime, 1, "never 0 jiffies");
    case.state["domain"]["sid_blocks"] = json!(["fc00::/16", "fc01::/16", "fc02::/16", "fc03::/16"]);
    assert!(case.error().to_string().contains("domain.sid_blocks"));
}

#[test]
fn every_behaviour_has_its_entry() {
    let compiled = Case::with(json!({ "sids": [
        { "sid": "fc00:1:1::/48", "behaviour": "End", "flavours": ["PSP", "USD"], "answer_echo": false },
        { "sid": "fc00:1:2::", "behaviour": "End.X", "next_hop": "fe80::9", "port": "core0" },
        { "sid": "fc00:1:3::", "behaviour": "End.T", "table": 100 },
        { "sid": "fc00:1:4::", "behaviour": "End.DX2", "port": "access0" },
        { "sid": "fc00:1:5::", "behaviour": "End.DX4", "next_hop": "10.0.2.9", "allow_inner_sid": true },
        { "sid": "fc00:1:6::", "behaviour": "End.DT46" },
        { "sid": "fc00:1:7::", "behaviour": "End.B6.Encaps.Red", "policy": "a" }
    ] }))
    .compiled();
    let entry = |sid: &str| {
        let prefix: Ipv6Net = sid.parse().expect("a prefix");
        compiled.sid(&prefix).unwrap_or_else(|| panic!("{sid}")).entry
    };
    let end = entry("fc00:1:1::/48");
    assert_eq!(
        (flags(end.behaviour), u32::from(end.flavours), end.flags),
        (abi::SEGUE_END, abi::SEGUE_PSP | abi::SEGUE_USD, 0)
    );
    assert_eq!((end.table, end.oif, end.policy, end.counter_return), (0, 0, abi::SEGUE_NONE, 0));
    let x = entry("fc00:1:2::/128");
    assert_eq!((flags(x.behaviour), x.oif, x.next_hop), (abi::SEGUE_END_X, 2, octets("fe80::9")));
    assert_eq!(flags(x.flags), abi::SEGUE_SID_ALLOW_ICMPV6);
    assert_eq!((flags(entry("fc00:1:3::/128").behaviour), entry("fc00:1:3::/128").table), (abi::SEGUE_END_T, 100));
    assert_eq!((flags(entry("fc00:1:4::/128").behaviour), entry("fc00:1:4::/128").oif), (abi::SEGUE_END_DX2, 3));
    let dx4 = entry("fc00:1:5::/128");
    assert_eq!((flags(dx4.behaviour), dx4.next_hop_ipv4.as_bytes()), (abi::SEGUE_END_DX4, [10, 0, 2, 9].as_slice()));
    assert_eq!(flags(dx4.flags), abi::SEGUE_SID_ALLOW_ICMPV6 | abi::SEGUE_SID_ALLOW_INNER_SID);
    assert_eq!(flags(entry("fc00:1:6::/128").behaviour), abi::SEGUE_END_DT46);
    let b6 = entry("fc00:1:7::/128");
    assert_eq!((flags(b6.behaviour), b6.policy), (abi::SEGUE_END_B6_ENCAPS_RED, compiled.policies[0].index));
    let mut rows: Vec<u32> = compiled.counter_rows().collect();
    rows.sort_unstable();
    assert_eq!(rows, (1..=8).collect::<Vec<_>>(), "7 SIDs and the list of a policy: a row each");
}

#[test]
fn proxy_has_its_list_and_its_way_back() {
    let compiled = Case::with(json!({ "policies": [], "sids": [{
        "sid": "fc00:1:f::", "behaviour": "End.AS", "next_hop_mac": "02:00:00:00:00:fe",
        "proxy": { "inner": ["IPv4", "IPv6"], "to_function": "to-fw", "from_function": "from-fw",
                   "segments": ["fc00:2::1", "fc00:3::1"], "source_address": "fc00:aa::1", "other_types": "bypass" }
    }] }))
    .compiled();
    let sid = &compiled.sids[0];
    assert_eq!((flags(sid.entry.behaviour), sid.entry.oif), (abi::SEGUE_END_AS, 4));
    assert_eq!(flags(sid.entry.inner), abi::SEGUE_INNER_IPV4 | abi::SEGUE_INNER_IPV6);
    let expected = abi::SEGUE_SID_ALLOW_ICMPV6 | abi::SEGUE_SID_NEXT_HOP_MAC | abi::SEGUE_SID_BYPASS_OTHER_TYPE;
    assert_eq!((flags(sid.entry.flags), sid.entry.mac), (expected, [2, 0, 0, 0, 0, 0xfe]));
    assert_ne!(sid.entry.counter_return, 0);
    assert_ne!(sid.entry.counter_return, sid.entry.counter);
    assert_eq!(compiled.port("from-fw").expect("from-fw").entry.proxy, sid.index);
    assert_eq!(compiled.port("to-fw").expect("to-fw").entry.proxy, abi::SEGUE_NONE);
    let policy = &compiled.policies[0];
    assert_eq!((policy.name.as_str(), policy.index), ("End.AS fc00:1:f::/128", sid.entry.policy));
    let list = policy.lists[0].entry;
    assert_eq!((flags(list.mode), list.header_length, list.header[7]), (abi::SEGUE_H_ENCAPS_RED, 40 + 24, 64));
    assert_eq!(list.header[8..24], octets("fc00:aa::1"));
    assert_eq!(list.header[24..40], octets("fc00:2::1"));
    assert_eq!(list.header[40..48], [0, 2, 4, 1, 0, 0, 0, 0]);
    assert_eq!(list.header[48..64], octets("fc00:3::1"));
}

#[test]
fn binding_sid_and_variants_of_a_policy() {
    let compiled = Case::with(json!({
        "policies": [{ "name": "a", "binding_sid": "fc00:1:b::", "segment_lists": [{ "segments": ["fc00:2::1"] }] }],
        "sids": [{ "sid": "fc00:1:7::", "behaviour": "End.B6.Encaps", "policy": "a" }]
    }))
    .compiled();
    let binding = compiled.sids.iter().find(|sid| sid.binding_of.as_deref() == Some("a")).expect("a binding SID");
    assert_eq!(flags(binding.entry.behaviour), abi::SEGUE_END_B6_ENCAPS_RED);
    assert_eq!(binding.entry.policy, compiled.policy("a").expect("a").index);
    let full = compiled.policy("a (H.Encaps)").expect("a variant with the whole SRH");
    assert_eq!(flags(full.lists[0].entry.mode), abi::SEGUE_H_ENCAPS);
    assert_eq!(full.lists[0].entry.header_length, 64);
    let sid = compiled.sids.iter().find(|sid| sid.binding_of.is_none()).expect("the configured SID");
    assert_eq!(sid.entry.policy, full.index);
}

#[test]
fn policy_knows_its_lists() {
    let compiled = Case::with(json!({ "policies": [
        { "name": "two", "mode": "H.Encaps", "hop_limit": 7, "source_address": "fc00:aa::1", "segment_lists": [
            { "weight": 1, "segments": ["fc00:2::1"] }, { "weight": 3, "segments": ["fc00:3::1"] } ] },
        { "name": "none", "segment_lists": [] }
    ] }))
    .compiled();
    let two = compiled.policy("two").expect("two");
    assert_eq!(two.entry.lists, 2);
    assert_eq!(two.entry.list[..3], [two.lists[0].index, two.lists[1].index, 0]);
    assert_eq!(two.entry.bucket.iter().filter(|position| **position == 1).count(), 192);
    assert_eq!(two.lists[1].entry.header[7], 7);
    assert_eq!(two.lists[1].entry.header[8..24], octets("fc00:aa::1"));
    assert_eq!(two.lists[1].entry.policy, two.index);
    assert_eq!(compiled.policy("none").expect("none").entry.lists, 0);
}

#[test]
fn missing_interface_is_refused_or_left_out() {
    let mut case = Case::with(json!({
        "sids": [
            { "sid": "fc00:1:2::", "behaviour": "End.X", "next_hop": "fe80::9", "port": "core0" },
            { "sid": "fc00:1:f::", "behaviour": "End.AS", "proxy": {
                "inner": ["IPv4"], "to_function": "to-fw", "from_function": "from-fw", "segments": ["fc00:2::1"] } }
        ],
        "steering": [{ "destination": "10.0.0.0/8", "ingress": "access0", "policy": "a" },
                     { "destination": "11.0.0.0/8", "policy": "a" }]
    }));
    assert_eq!(case.compiled().warnings, Vec::<String>::new());
    for name in ["core0", "access0", "to-fw", "from-fw"] {
        case.interfaces = interfaces();
        case.interfaces.0.remove(name);
        let error = case.error();
        assert!(matches!(&error, CompileError::InterfaceMissing { name: missing, .. } if missing == name), "{error}");
    }
    case.interfaces.0 = BTreeMap::new();
    case.missing = MissingInterface::LeaveOut;
    let compiled = case.compiled();
    assert_eq!((compiled.ports.len(), compiled.sids.len()), (0, 0));
    let left: Vec<String> = compiled.steering_counters.keys().cloned().collect();
    assert_eq!(left, ["rule 2"], "the rule of another port");
    assert_eq!(compiled.warnings.len(), 4 + 2 + 1);
}

/// The adjacency cache has a flag in the next bit.
#[test]
fn an_interface_with_too_large_a_number_is_refused_or_left_out() {
    let numbered = |ifindex| {
        let mut case = Case::with(json!({
            "sids": [{ "sid": "fc00:1:2::", "behaviour": "End.X", "next_hop": "fe80::9", "port": "core0" }]
        }));
        case.interfaces.0.get_mut("core0").expect("core0").ifindex = ifindex;
        case
    };
    assert_eq!(numbered((1 << 23) - 1).compiled().sids[0].entry.oif, (1 << 23) - 1);
    for ifindex in [1 << 23, 1 << 23 | 2, i32::MAX as u32] {
        let mut case = numbered(ifindex);
        let error = case.error();
        assert!(matches!(&error, CompileError::InterfaceNumber { ifindex: found, .. } if *found == ifindex), "{error}");
        case.missing = MissingInterface::LeaveOut;
        let compiled = case.compiled();
        assert_eq!((compiled.ports.len(), compiled.sids.len()), (3, 0));
        assert!(compiled.warnings.iter().all(|warning| warning.contains(&ifindex.to_string())), "{compiled:?}");
        assert_eq!(compiled.warnings.len(), 2);
    }
}

/// What becomes of packets while the function is down does not depend on its ports.
#[test]
fn a_watched_function_without_its_ports_keeps_its_sid() {
    let mut case = Case::with(json!({
        "sids": [{ "sid": "fc00:1:f::", "behaviour": "End.AS", "next_hop": "192.0.2.9", "proxy": {
            "inner": ["IPv4"], "to_function": "to-fw", "from_function": "from-fw", "segments": ["fc00:2::1"],
            "on_failure": "bypass", "watch": {} } }]
    }));
    let whole = case.compiled().sids[0].entry;
    assert_ne!(whole.oif, 0);
    case.missing = MissingInterface::LeaveOut;
    for name in ["to-fw", "from-fw"] {
        case.interfaces = interfaces();
        case.interfaces.0.remove(name);
        let compiled = case.compiled();
        let entry = compiled.sids[0].entry;
        assert_eq!((entry.oif, entry.failure), (0, whole.failure), "without {name}");
        assert!(!compiled.warnings.is_empty());
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let port = |name: &str| json!({ "name": name, "role": "core" });
    let proxy = |sid: &str| {
        json!({ "sid": sid, "behaviour": "End.AS", "proxy": {
            "inner": ["IPv4"], "to_function": "to-fw", "from_function": "from-fw", "segments": ["fc00:2::1"] } })
    };
    let list = json!([{ "segments": ["fc00:2::1"] }]);
    let cases = [
        (json!({ "ports": [port("core0"), port("core0")] }), "port core0: there are two"),
        (json!({ "ports": [{ "name": "access0", "role": "access", "l2_policy": "a" }] }), "H.Encaps.L2"),
        (json!({ "ports": [{ "name": "access0", "role": "access", "l2_policy": "b" }] }), "no policy b"),
        (
            json!({ "sids": [{ "sid": "fc00:1::", "behaviour": "End.DX2", "port": "eth9" }] }),
            "not among the node's ports",
        ),
        (
            json!({ "sids": [{ "sid": "fc00:1::", "behaviour": "End" }, { "sid": "fc00:1::", "behaviour": "End" }] }),
            "two of them",
        ),
        (json!({ "sids": [{ "sid": "fc00:1::", "behaviour": "End.B6.Encaps" }] }), "needs `policy`"),
        (json!({ "sids": [{ "sid": "fc00:1::", "behaviour": "End.B6.Encaps", "policy": "b" }] }), "no policy b"),
        (json!({ "sids": [{ "sid": "fc00:1::", "behaviour": "End.AS" }] }), "needs `proxy`"),
        (json!({ "sids": [proxy("fc00:1:1::"), proxy("fc00:1:2::")] }), "one proxy SID"),
        (
            json!({ "policies": [{ "name": "a", "mode": "H.Insert", "binding_sid": "fc00:1::", "segment_lists": list }] }),
            "binding SID",
        ),
        (
            json!({ "policies": [{ "name": "a", "segment_lists": [{ "weight": 0, "segments": ["fc00:2::1"] }] }] }),
            "weight 0",
        ),
        (json!({ "policies": [{ "name": "a", "segment_lists": [{ "segments": [] }] }] }), "0 segments"),
        (
            json!({ "policies": [{ "name": "a", "segment_lists": [{ "segments": vec!["fc00:2::1"; 11] }] }] }),
            "11 segments",
        ),
        (json!({ "policies": [{ "name": "a", "segment_lists": vec![list[0].clone(); 17] }] }), "17 segment lists"),
        (
            json!({ "policies": [{ "name": "a", "segment_lists": list }, { "name": "a", "segment_lists": list }] }),
            "two of them",
        ),
        (json!({ "steering": [{ "destination": "::/0" }] }), "either `policy` or `action`"),
        (json!({ "steering": [{ "destination": "::/0", "policy": "b" }] }), "no policy b"),
        (
            json!({ "steering": [{ "destination": "::/0", "source": "10.0.0.0/8", "policy": "a" }] }),
            "one address family",
        ),
        (
            json!({ "steering": [{ "name": "x", "destination": "::/0", "policy": "a" }, { "name": "x", "destination": "::/1", "policy": "a" }] }),
            "two of them",
        ),
    ];
    for (changes, expected) in cases {
        let error = Case::with(changes.clone()).error().to_string();
        assert!(error.contains(expected), "{changes}: {error}");
    }
}

#[test]
fn what_is_kept_beside_the_maps_reads_back() {
    let compiled = Case::with(json!({
        "sids": [{ "sid": "fc00:1:1::/48", "behaviour": "End" }],
        "steering": [{ "destination": "10.0.0.0/8", "policy": "a" }]
    }))
    .compiled();
    let text = serde_json::to_string(&compiled).expect("JSON");
    assert_eq!(serde_json::from_str::<Compiled>(&text).expect("a compiled state"), compiled);
    // Zeros at a structure's end are not written, so only what is longer is known to be another one.
    let longer = format!("\"config\":\"{}", "00".repeat(size_of_val(&compiled.config)));
    let longer = text.replacen("\"config\":\"", &longer, 1);
    assert!(serde_json::from_str::<Compiled>(&longer).is_err(), "a structure of another length");
    let letters = text.replacen("\"config\":\"f", "\"config\":\"x", 1);
    assert!(serde_json::from_str::<Compiled>(&letters).is_err());
}
