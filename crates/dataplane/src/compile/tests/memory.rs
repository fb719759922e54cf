//! Proxies that remember, SR-aware functions, netfilter.

use super::*;

/// A SID with a proxy between to-fw and from-fw.
fn proxied(sid: &str, behaviour: &str, proxy: Value) -> Value {
    let mut all = json!({ "to_function": "to-fw", "from_function": "from-fw" });
    for (key, value) in proxy.as_object().expect("an object") {
        all[key] = value.clone();
    }
    json!({ "sid": sid, "behaviour": behaviour, "next_hop_mac": "02:00:00:00:00:fe", "proxy": all })
}

fn case(sids: &[Value]) -> Case {
    Case::with(json!({ "policies": [], "sids": sids }))
}

fn entry(compiled: &Compiled, sid: &str) -> abi::Sid {
    compiled.sid(&sid.parse().expect("a prefix")).unwrap_or_else(|| panic!("{sid}")).entry
}

#[test]
fn dynamic_proxy_by_interface() {
    let compiled =
        case(&[proxied("fc00:1:a::", "End.AD", json!({ "inner": ["IPv6"], "other_types": "bypass" }))]).compiled();
    let sid = entry(&compiled, "fc00:1:a::/128");
    assert_eq!((flags(sid.behaviour), flags(sid.memory)), (abi::SEGUE_END_AD, abi::SEGUE_MEMORY_INTERFACE));
    assert_eq!((sid.hop_limit_margin, flags(sid.failure), sid.backup), (8, abi::SEGUE_FAILURE_DROP, [0; 16]));
    assert_eq!((sid.oif, flags(sid.inner), sid.prefix_length, sid.flow_timeout), (4, abi::SEGUE_INNER_IPV6, 128, 0));
    assert_ne!(sid.flags & abi::SEGUE_SID_BYPASS_OTHER_TYPE as u8, 0);
    assert_eq!(sid.policy, abi::SEGUE_NONE, "nothing is configured to be put back");
    assert_eq!(compiled.scopes, BTreeMap::from([("from-fw interface".to_owned(), sid.scope_row())]));
    assert_ne!(sid.scope_row(), 0, "row 0 is nobody's");
    assert_ne!(sid.counter_return, 0);
    assert_eq!(sid.proxy_flags, 0, "only packets that the kernel forwards need a redirect to the peer");
    assert!(compiled.ports.iter().all(|port| port.xdp));
}

#[test]
fn a_scope_is_never_that_of_another_interface() {
    let with = |proxy: Value| case(&[proxied("fc00:1:a::", "End.AD", proxy)]);
    let (flow, interface) = (json!({ "inner": ["IPv6"], "memory": "flow" }), json!({ "inner": ["IPv6"] }));
    let scope = |compiled: &Compiled| entry(compiled, "fc00:1:a::/128").scope;
    let first = with(flow.clone()).compiled();
    let again = with(json!({ "inner": ["IPv4"], "memory": "flow" })).after(Some(&first)).expect("compiles");
    assert_eq!(scope(&again), scope(&first), "what it remembers stays");
    let other = with(interface).after(Some(&again)).expect("compiles");
    assert_ne!(scope(&other) as u32, scope(&first) as u32, "rows of the generation before are taken");
    let back = with(flow).after(Some(&other)).expect("compiles");
    assert_eq!(scope(&back) as u32, scope(&first) as u32, "the same row once more");
    assert_ne!(scope(&back), scope(&first), "and nothing that was remembered for it before");
}

#[test]
fn flows_share_a_scope_and_an_interface() {
    let flow = json!({ "inner": ["IPv4"], "memory": "flow", "flow_timeout": 60, "unknown_flow": "interface",
                       "hop_limit_margin": 3 });
    let compiled =
        case(&[proxied("fc00:1:a::", "End.AD", flow.clone()), proxied("fc00:1:9::", "End.AD", flow)]).compiled();
    let (a, b) = (entry(&compiled, "fc00:1:a::/128"), entry(&compiled, "fc00:1:9::/128"));
    assert_eq!(a.scope, b.scope);
    assert_eq!((flags(a.memory), a.flow_timeout, a.hop_limit_margin), (abi::SEGUE_MEMORY_FLOW, 60 * 250, 3));
    assert_eq!(flags(a.proxy_flags), abi::SEGUE_PROXY_UNKNOWN_TO_INTERFACE);
    let first = compiled.sid(&"fc00:1:a::/128".parse().expect("a prefix")).expect("the SID").index;
    assert_eq!(compiled.port("from-fw").expect("from-fw").entry.proxy, first, "the first of the configuration");
    assert_ne!(a.counter_return, b.counter_return);
}

#[test]
fn packets_need_the_tc_program_and_no_xdp_on_the_way_back() {
    let packet = json!({ "inner": ["IPv4", "IPv6"], "memory": "packet", "own_traffic": "steer" });
    let mut case = case(&[proxied("fc00:1:a::", "End.AD", packet)]);
    case.capacity.ports = 8;
    assert!(matches!(case.error(), CompileError::InterfaceMissing { name, .. } if name == "segue-loop1"));
    for (name, ifindex) in [("segue-loop0", 21), ("segue-loop1", 22)] {
        let like = case.interfaces.0["core0"].clone();
        case.interfaces.0.insert(name.to_owned(), Interface { ifindex, ..like });
    }
    let compiled = case.compiled();
    let sid = entry(&compiled, "fc00:1:a::/128");
    assert_eq!((flags(sid.memory), sid.hop_limit_margin), (abi::SEGUE_MEMORY_PACKET, 1));
    assert_eq!(flags(sid.proxy_flags), abi::SEGUE_PROXY_OWN_STEER | abi::SEGUE_PROXY_PEER, "to-fw's peer is elsewhere");
    assert_eq!(compiled.loop_ifindex, 21);
    let again = compiled.port("segue-loop1").expect("the loop's other end");
    assert_eq!((again.entry.ifindex, flags(again.entry.role), again.xdp), (22, abi::SEGUE_ROLE_CORE, true));
    let without: Vec<&str> = compiled.ports.iter().filter(|port| !port.xdp).map(|port| port.name.as_str()).collect();
    assert_eq!(without, ["from-fw"]);
    let text = serde_json::to_string(&compiled).expect("JSON");
    assert_eq!(serde_json::from_str::<Compiled>(&text).expect("a compiled state"), compiled);
}

#[test]
fn masquerading_and_aware_functions() {
    let mut am =
        proxied("fc00:1:a::", "End.AM", json!({ "on_failure": "reroute", "backup": "fc00:2:a::", "watch": {} }));
    am["flavours"] = json!(["NAT"]);
    let an = json!({ "sid": "fc00:1:b::/64", "behaviour": "End.AN", "next_hop": "fe80::1",
                     "proxy": { "to_function": "from-fw", "from_function": "to-fw", "may_change": "replace_all",
                                "may_rewrite": ["tlvs", "addresses"] } });
    let mut with = case(&[am, an]);
    let compiled = with.compiled();
    let (am, an) = (entry(&compiled, "fc00:1:a::/128"), entry(&compiled, "fc00:1:b::/64"));
    assert_eq!((flags(am.behaviour), u32::from(am.flavours)), (abi::SEGUE_END_AM, abi::SEGUE_NAT));
    assert_eq!((flags(am.memory), flags(am.inner)), (abi::SEGUE_MEMORY_NONE, abi::SEGUE_INNER_IPV6));
    assert_eq!((flags(am.failure), am.backup), (abi::SEGUE_FAILURE_REROUTE, octets("fc00:2:a::")));
    assert_eq!((flags(an.behaviour), flags(an.permission)), (abi::SEGUE_END_AN, abi::SEGUE_MAY_REPLACE_LAST));
    assert_eq!(flags(an.rewrite), abi::SEGUE_REWRITE_TLVS | abi::SEGUE_REWRITE_ADDRESSES);
    assert_eq!((an.next_hop, an.prefix_length), (octets("fe80::1"), 64));
    assert_ne!(am.scope, an.scope);
    with.state["sids"][0]["flavours"] = json!(["Caching", "NAT"]);
    with.state["sids"][0]["proxy"]["on_failure"] = json!("withdraw");
    let am = entry(&with.compiled(), "fc00:1:a::/128");
    assert_eq!(flags(am.memory), abi::SEGUE_MEMORY_INTERFACE);
    assert_eq!((flags(am.failure), am.backup), (abi::SEGUE_FAILURE_DROP, [0; 16]), "the route goes, that is all");
    assert_eq!(u32::from(am.flavours), abi::SEGUE_NAT | abi::SEGUE_CACHING);
}

#[test]
fn netfilter_has_its_wiring() {
    let sids = json!([
        { "sid": "fc00:1:a::/64", "behaviour": "End.AN.NF", "argument_length": 16, "netfilter": { "namespace": "nf" } },
        { "sid": "fc00:1:b::", "behaviour": "End.AN.NF", "netfilter": { "namespace": "nf", "own_traffic": "route" } }
    ]);
    let mut case = Case::with(json!({ "policies": [], "sids": sids }));
    for (name, ifindex) in [("segue-loop0", 21), ("segue-loop1", 22), ("nfw-nf", 23), ("nfe-nf", 24)] {
        let like = case.interfaces.0["core0"].clone();
        case.interfaces.0.insert(name.to_owned(), Interface { ifindex, peer_elsewhere: true, ..like });
    }
    case.capacity.ports = 8;
    let compiled = case.compiled();
    let (a, b) = (entry(&compiled, "fc00:1:a::/64"), entry(&compiled, "fc00:1:b::/128"));
    assert_eq!((flags(a.behaviour), flags(a.memory)), (abi::SEGUE_END_AN_NF, abi::SEGUE_MEMORY_PACKET));
    assert_eq!((a.prefix_length, a.argument_length, b.argument_length), (64, 16, 0));
    assert_eq!((a.oif, a.mac), (23, segue_model::wiring::Wiring::of("nf").west_mac.octets()));
    assert_eq!(flags(a.proxy_flags), abi::SEGUE_PROXY_PEER | abi::SEGUE_PROXY_KEEP_HOP_LIMIT);
    assert_eq!(flags(a.inner), abi::SEGUE_INNER_IPV4 | abi::SEGUE_INNER_IPV6);
    assert_eq!(a.scope, b.scope, "one namespace, one memory");
    let ports: Vec<(&str, bool)> = compiled.ports.iter().map(|port| (port.name.as_str(), port.xdp)).collect();
    assert_eq!(ports[4..], [("nfw-nf", true), ("nfe-nf", false), ("segue-loop1", true)]);
    assert_eq!(flags(compiled.ports[5].entry.role), abi::SEGUE_ROLE_SERVICE);
    assert_ne!(compiled.ports[5].entry.proxy, abi::SEGUE_NONE);
    case.state["sids"][0]["argument_length"] = json!(33);
    assert!(case.error().to_string().contains("33 bits"));
}

#[test]
fn frames_get_an_l2_encapsulation_back() {
    let compiled =
        case(&[proxied("fc00:1:a::", "End.AS", json!({ "inner": ["Ethernet"], "segments": ["fc00:2::1"] }))])
            .compiled();
    let list = compiled.policies[0].lists[0].entry;
    assert_eq!(flags(list.mode), abi::SEGUE_H_ENCAPS_L2_RED);
    assert_eq!(flags(entry(&compiled, "fc00:1:a::/128").inner), abi::SEGUE_INNER_ETHERNET);
}

#[test]
fn a_scope_stays_with_its_interface_and_kind() {
    let ad = |sid: &str, memory: &str| proxied(sid, "End.AD", json!({ "inner": ["IPv4"], "memory": memory }));
    let other = json!({ "sid": "fc00:1:c::", "behaviour": "End.AM", "next_hop_mac": "02:00:00:00:00:fe",
                        "proxy": { "to_function": "from-fw", "from_function": "to-fw" } });
    let first = case(&[other.clone(), ad("fc00:1:a::", "flow")]).compiled();
    let renamed = case(&[ad("fc00:1:b::", "flow")]).after(Some(&first)).expect("compiles");
    assert_eq!(renamed.scopes["from-fw flow"], first.scopes["from-fw flow"], "another SID, the same function");
    let changed = case(&[ad("fc00:1:b::", "interface"), other]).after(Some(&renamed)).expect("compiles");
    let row = changed.scopes["from-fw interface"];
    assert_ne!(row, renamed.scopes["from-fw flow"], "what the active generation remembers is not touched");
}

#[test]
fn what_tells_nothing_apart_shares_no_interface() {
    let ad = |sid: &str, memory: &str| proxied(sid, "End.AD", json!({ "inner": ["IPv4"], "memory": memory }));
    let refused = [
        vec![ad("fc00:1:a::", "interface"), ad("fc00:1:b::", "interface")],
        vec![ad("fc00:1:a::", "flow"), ad("fc00:1:b::", "interface")],
        vec![ad("fc00:1:a::", "flow"), proxied("fc00:1:b::", "End.AM", json!({}))],
        vec![
            proxied("fc00:1:a::", "End.AS", json!({ "inner": ["IPv4"], "segments": ["fc00:2::1"] })),
            ad("fc00:1:b::", "flow"),
        ],
    ];
    for sids in refused {
        let error = case(&sids).error().to_string();
        assert!(error.contains("returns by port from-fw too"), "{error}");
    }
    let caching = |sid: &str| {
        let mut sid = proxied(sid, "End.AM", json!({}));
        sid["flavours"] = json!(["Caching"]);
        sid
    };
    case(&[caching("fc00:1:a::"), caching("fc00:1:b::")]).compiled();
}

#[test]
fn memories_take_room_only_where_something_is_remembered() {
    let capacity = |sids: &[Value]| {
        let state: NodeState = serde_json::from_value(case(sids).state).expect("a node state");
        let capacity = Capacity::default().for_memories_of(&state);
        (capacity.stash, capacity.proxy_flows)
    };
    let ad = |memory: &str| proxied("fc00:1:a::", "End.AD", json!({ "inner": ["IPv4"], "memory": memory }));
    assert_eq!(capacity(&[]), (64, 1));
    assert_eq!(capacity(&[ad("interface")]), (65_536, 1));
    assert_eq!(capacity(&[ad("flow")]), (65_536, 100_000));
    assert_eq!(capacity(&[proxied("fc00:1:a::", "End.AM", json!({}))]), (65_536, 1));
    assert_eq!(capacity(&[proxied("fc00:1:a::", "End.AN", json!({}))]), (65_536, 100_000), "compared flow by flow");
    assert_eq!(
        capacity(&[proxied("fc00:1:a::", "End.AS", json!({ "inner": ["IPv4"], "segments": ["fc00:2::1"] }))]),
        (64, 1)
    );
}
