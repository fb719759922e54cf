//! Plans of known topologies: what the main job needs, and what the planner promises beyond it.

use std::net::Ipv6Addr;
use std::path::Path;

use segue_model::node::{AddressFamily, Behaviour, MayChange, Memory, OnFailure, Owner, PortRole, Sid};
use segue_model::range::NumberRange;
use segue_model::value::Protocol;
use segue_plan::{Direction, StepAction};
use segue_wiring::{LabPlan, load_plan};

fn example(name: &str) -> LabPlan {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let source = std::fs::read_to_string(path).expect("example");
    plan(&source)
}

fn plan(source: &str) -> LabPlan {
    load_plan(source, "lab.yaml").unwrap_or_else(|errors| panic!("{errors}")).1
}

fn segments(plan: &LabPlan, policy: &str) -> Vec<String> {
    let policies = plan.nodes.values().filter_map(|node| node.state.as_ref()).flat_map(|state| &state.policies);
    let mut found = policies.filter(|candidate| candidate.name == policy);
    let policy = found.next().unwrap_or_else(|| panic!("no policy {policy}"));
    assert!(found.next().is_none());
    policy.segment_lists[0].segments.iter().map(Ipv6Addr::to_string).collect()
}

fn sid<'a>(plan: &'a LabPlan, node: &str, sid: &str) -> &'a Sid {
    let state = plan.nodes[node].state.as_ref().expect("a Segue node");
    let found = state.sids.iter().find(|candidate| candidate.sid.addr().to_string() == sid);
    found.unwrap_or_else(|| panic!("no SID {sid} on {node}"))
}

fn routes(list: &[segue_wiring::Route]) -> Vec<String> {
    list.iter().map(|route| route.ip_arguments().join(" ")).collect()
}

#[test]
fn the_main_job() {
    let plan = example("main-job.yaml");
    assert_eq!(segments(&plan, "inspected-forward"), ["fc00:5e9:2:100::", "fc00:5e9:3:46::"]);
    assert_eq!(segments(&plan, "inspected-reverse"), ["fc00:5e9:2:101::", "fc00:5e9:1:46::"]);

    let forward = sid(&plan, "nfv1", "fc00:5e9:2:100::");
    let reverse = sid(&plan, "nfv1", "fc00:5e9:2:101::");
    let (forward_proxy, reverse_proxy) = (forward.proxy.as_ref().unwrap(), reverse.proxy.as_ref().unwrap());
    assert_eq!(forward.behaviour, Behaviour::EndAs);
    assert_eq!(
        (forward_proxy.to_function.as_str(), forward_proxy.from_function.as_str()),
        ("firewall-w", "firewall-e")
    );
    assert_eq!(
        (reverse_proxy.to_function.as_str(), reverse_proxy.from_function.as_str()),
        ("firewall-e", "firewall-w")
    );
    assert_eq!(forward_proxy.segments, ["fc00:5e9:3:46::".parse::<Ipv6Addr>().unwrap()]);
    assert_eq!(reverse_proxy.segments, ["fc00:5e9:1:46::".parse::<Ipv6Addr>().unwrap()]);
    let owner = |direction, family| Some(Owner { chain: "inspected".into(), direction: Some(direction), family });
    assert_eq!(forward.owner, owner(Direction::Forward, None));
    assert_eq!(reverse.owner, owner(Direction::Reverse, None));
    let policies = &plan.nodes["edge1"].state.as_ref().unwrap().policies;
    assert_eq!(policies[0].owner, owner(Direction::Forward, None));
    assert_eq!(sid(&plan, "edge1", "fc00:5e9:1:46::").owner, None, "all chains share it");
    let west = &plan.functions["firewall"].interfaces[0];
    assert_eq!((west.name.as_str(), Some(west.mac), west.port), ("west", forward.next_hop_mac, false));

    assert_eq!(
        routes(&plan.functions["firewall"].routes),
        [
            "-4 route replace 10.0.2.2/32 via 100.64.0.2 dev east",
            "-6 route replace 2001:db8:2::2/128 via fc00:5ec::2:2:0:0 dev east",
            "-4 route replace 10.0.1.2/32 via 100.64.0.0 dev west",
            "-6 route replace 2001:db8:1::2/128 via fc00:5ec::2:1:0:0 dev west",
        ]
    );
    assert_eq!(
        routes(&plan.hosts["client"].routes),
        ["-4 route replace default via 10.0.1.1 dev edge1", "-6 route replace default via 2001:db8:1::1 dev edge1"]
    );
    let edge1 = plan.nodes["edge1"].state.as_ref().unwrap();
    let roles: Vec<_> = edge1.ports.iter().map(|port| (port.name.as_str(), port.role)).collect();
    assert_eq!(roles, [("nfv1", PortRole::Core), ("client", PortRole::Access)]);
    let steering: Vec<_> = edge1.steering.iter().map(|rule| (rule.destination.to_string(), rule.source)).collect();
    assert_eq!(
        steering,
        [
            ("10.0.2.2/32".to_owned(), Some("10.0.1.2/32".parse().unwrap())),
            ("2001:db8:2::2/128".to_owned(), Some("2001:db8:1::2/128".parse().unwrap())),
        ]
    );
    let mtus: Vec<_> = plan.nodes["nfv1"].interfaces.iter().map(|interface| interface.mtu).collect();
    assert_eq!(mtus, [9000, 9000, 1500, 1500]);
    assert_eq!(plan.links().len(), 6);
}

#[test]
fn the_main_job_explains_itself() {
    let plan = example("main-job.yaml");
    let steps: Vec<_> = plan
        .explain()
        .iter()
        .map(|step| {
            let what = match &step.action {
                StepAction::Headend { mode, segments } => format!("{} {}", mode.name(), segments.len()),
                StepAction::Push { .. } | StepAction::Label { .. } => panic!("SIDs steer packets: {step:?}"),
                StepAction::Segment { sid, behaviour, function } => {
                    format!("{sid} {} {}", behaviour.name(), function.as_deref().unwrap_or("-"))
                }
            };
            assert_eq!(step.chain, "inspected");
            assert!(!step.why.is_empty());
            (step.direction, step.step, step.node.as_str(), what, step.path.join(">"))
        })
        .collect();
    let forward = Direction::Forward;
    assert_eq!(
        steps[..3],
        [
            (forward, 0, "edge1", "H.Encaps.Red 2".to_owned(), "edge1".to_owned()),
            (forward, 1, "nfv1", "fc00:5e9:2:100:: End.AS firewall".to_owned(), "edge1>nfv1".to_owned()),
            (forward, 2, "edge2", "fc00:5e9:3:46:: End.DT46 -".to_owned(), "nfv1>edge2".to_owned()),
        ]
    );
    assert_eq!(steps.len(), 6);
    assert!(plan.explain()[1].why.contains("knows nothing of Segment Routing"), "{}", plan.explain()[1].why);
    assert!(plan.explain()[2].why.contains("shortest path nfv1 > edge2"), "{}", plan.explain()[2].why);
}

#[test]
fn chains_by_class_and_by_flow_label() {
    let plan = plan(
        "name: lab\nnodes: {a: {}, b: {}}\nhosts: {x: {node: a}, y: {node: b}}\nlinks: [{between: [a, b]}]\nchains:\n  \
         voice: {from: x, to: y, via: [], match: {dscp: [46, \"32-39\"]}}\n  \
         labelled: {from: x, to: y, via: [], match: {flow_labels: [\"0x100-0x1ff\"]}}\n  rest: {from: x, to: y, via: []}\n",
    );
    for (node, direction, source) in [("a", "forward", "10.0.1.2/32"), ("b", "reverse", "10.0.2.2/32")] {
        let steering = &plan.nodes[node].state.as_ref().unwrap().steering;
        let of = |chain: &str| -> Vec<_> {
            let policy = format!("{chain}-{direction}");
            let rules = steering.iter().filter(|rule| rule.policy.as_deref() == Some(&policy));
            let text = |ranges: &[NumberRange]| ranges.iter().map(NumberRange::to_string).collect::<Vec<_>>().join(",");
            rules.map(|rule| (rule.source.unwrap(), text(&rule.dscp), text(&rule.flow_labels))).collect()
        };
        let [voice, labelled, rest] = ["voice", "labelled", "rest"].map(of);
        assert_eq!(voice.len(), 2, "both families: {voice:?}");
        assert_eq!(voice[0], (source.parse().unwrap(), "46,32-39".to_owned(), String::new()));
        assert_eq!(labelled.len(), 1, "IPv4 has no flow label: {labelled:?}");
        assert!(labelled[0].0.addr().is_ipv6() && labelled[0].1.is_empty());
        assert_eq!(labelled[0].2, "256-511", "{direction}: the same labels both ways");
        assert_eq!(rest.len(), 2);
        assert!(rest.iter().all(|(_, dscp, labels)| dscp.is_empty() && labels.is_empty()), "{rest:?}");
    }
}

#[test]
fn a_kernel_egress_gets_a_sid_and_a_course_for_each_family() {
    let plan = example("kernel-interop.yaml");
    assert_eq!(segments(&plan, "filtered-forward-ipv4"), ["fc00:5e9:1:100::", "fc00:5e9:3:4::"]);
    assert_eq!(segments(&plan, "filtered-forward-ipv6"), ["fc00:5e9:1:102::", "fc00:5e9:3:6::"]);
    let policies = plan.nodes.values().filter_map(|node| node.state.as_ref()).flat_map(|state| &state.policies);
    let owners: Vec<_> = policies.filter_map(|policy| policy.owner.as_ref()).map(Owner::to_string).collect();
    assert!(owners.contains(&"chain filtered forward ipv6".to_owned()), "{owners:?}");
    let family = sid(&plan, "entry", "fc00:5e9:1:100::").owner.as_ref().and_then(|owner| owner.family);
    assert_eq!(family, Some(AddressFamily::Ipv4));
    let exit = &plan.nodes["exit"];
    assert_eq!((exit.state.as_ref(), exit.tunnel_source), (None, Some(exit.loopback)));
    let routes = routes(&exit.routes);
    for wanted in [
        "-6 route replace fc00:5e9:3:1::/128 encap seg6local action End dev transit",
        "-6 route replace fc00:5e9:3:4::/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev transit",
        "-6 route replace fc00:5e9:3:6::/128 encap seg6local action End.DT6 table 254 dev transit",
        "-4 route replace 10.0.1.2/32 encap seg6 mode encap.red segs fc00:5e9:1:101::,fc00:5e9:1:46:: dev transit",
        "-6 route replace 2001:db8:1::2/128 encap seg6 mode encap.red segs fc00:5e9:1:103::,fc00:5e9:1:46:: dev transit",
        "-4 route replace 10.0.1.0/24 via inet6 fc00:5eb::2:3:0:0 dev transit",
        "-6 route replace fc00:5e9:1::/48 via fc00:5eb::2:3:0:0 dev transit src fc00:5ea:3::1",
    ] {
        assert!(routes.iter().any(|route| route == wanted), "{wanted}\n{routes:#?}");
    }
    let transit = &plan.nodes["transit"];
    assert!(transit.state.is_none() && transit.tunnel_source.is_none());
    assert!(transit.routes.iter().all(|route| route.encap.is_none()));
    assert!(transit.interfaces.iter().all(|interface| !interface.port));
}

#[test]
fn equal_paths_and_a_waypoint() {
    let plan = example("ring-ecmp.yaml");
    let routes = routes(&plan.nodes["west"].routes);
    assert!(
        routes.iter().any(|route| {
            route
                == "-6 route replace fc00:5e9:3::/48 src fc00:5ea:1::1 nexthop via fc00:5eb::1:2:0:1 dev north \
                    nexthop via fc00:5eb::1:4:0:1 dev south"
        }),
        "{routes:#?}"
    );
    assert_eq!(segments(&plan, "rest-forward"), ["fc00:5e9:2:1::", "fc00:5e9:3:46::"]);
    assert_eq!(sid(&plan, "north", "fc00:5e9:2:1::").behaviour, Behaviour::End);
    let east = plan.nodes["east"].state.as_ref().unwrap();
    let reverse = east.steering.iter().find(|rule| rule.policy.as_deref() == Some("web-reverse")).unwrap();
    assert_eq!(reverse.protocol, Some(Protocol::TCP));
    assert!(reverse.destination_ports.is_empty());
    assert_eq!(reverse.source_ports.len(), 2, "the ports change sides with the direction");
    let why = |chain: &str| &plan.explain().iter().rfind(|step| step.chain == chain).unwrap().why;
    assert!(why("spread").contains("equally short paths, one is east > north > west"), "{}", why("spread"));
    assert!(why("rest").contains("; shortest path north > west"), "{}", why("rest"));
}

#[test]
fn a_function_with_one_interface_gets_one_for_each_direction() {
    let plan = plan(
        "name: x\nnodes: {a: {}}\nhosts: {h: {node: a}, i: {node: a}}\nfunctions: {f: {node: a, namespace: {interfaces: one}}}\n\
         chains: {c: {from: h, to: i, via: [f]}}\n",
    );
    let state = plan.nodes["a"].state.as_ref().unwrap();
    let proxies: Vec<_> = state.sids.iter().filter_map(|sid| sid.proxy.as_ref()).collect();
    assert_eq!(proxies.len(), 2);
    for proxy in proxies {
        assert_eq!(proxy.to_function, proxy.from_function);
    }
    let names: Vec<_> = plan.functions["f"].interfaces.iter().map(|interface| interface.name.as_str()).collect();
    assert_eq!(names, ["forward", "reverse"]);
}

#[test]
fn two_chains_share_a_static_proxy_s_function_if_their_ends_differ() {
    let plan = plan(
        "name: x\nnodes: {a: {}, b: {}}\nlinks: [{between: [a, b]}]\n\
         hosts: {h: {node: a}, i: {node: b}, j: {node: a}, k: {node: b}}\n\
         functions: {f: {node: b, proxy: static}}\nchains:\n  c: {from: h, to: i, via: [f]}\n  d: {from: j, to: k, via: [f]}\n",
    );
    let names: Vec<_> = plan.functions["f"].interfaces.iter().map(|interface| interface.name.as_str()).collect();
    assert_eq!(names, ["west", "east", "west2", "east2"]);
    assert_eq!(plan.functions["f"].routes.len(), 8);
}

#[test]
fn without_a_reverse_direction_the_function_still_answers() {
    let plan = plan(
        "name: x\nnodes: {a: {}, b: {}}\nlinks: [{between: [a, b]}]\nhosts: {h: {node: a}, i: {node: b}}\n\
         functions: {f: {node: b}}\nchains:\n  c: {from: h, to: i, via: [f], reverse: false}\n",
    );
    assert!(plan.nodes["b"].state.as_ref().unwrap().policies.is_empty());
    let east = |route: &str| route.ends_with("dev east");
    let routes = routes(&plan.functions["f"].routes);
    assert_eq!(routes.len(), 4, "{routes:?}");
    assert!(routes.iter().all(|route| east(route)), "{routes:?}");
}

#[test]
fn names_are_cut_and_stay_unique() {
    let plan = plan(
        "name: x\nnodes: {averylongname-1: {}, averylongname-2: {}}\n\
         links: [{between: [averylongname-1, averylongname-2]}, {between: [averylongname-2, averylongname-1]}]\n\
         hosts: {h: {node: averylongname-1}, abcdefghijklm-w: {node: averylongname-2}}\n\
         functions: {abcdefghijklmno: {node: averylongname-2}}\n\
         chains: {c: {from: h, to: abcdefghijklm-w, via: [abcdefghijklmno]}}\n",
    );
    let names = |node: &str| -> Vec<_> { plan.nodes[node].interfaces.iter().map(|i| i.name.clone()).collect() };
    assert_eq!(names("averylongname-1"), ["averylongname-2", "averylongname-3", "h"]);
    assert_eq!(
        names("averylongname-2"),
        ["averylongname-1", "averylongname-2", "abcdefghijklm-w", "abcdefghijk-w-2", "abcdefghijklm-e"]
    );
}

#[test]
fn service_links_are_as_wide_as_hosts_send() {
    let plan = plan(
        "name: x\nnodes: {a: {}}\nhosts: {h: {node: a, mtu: 4000}, i: {node: a}}\nfunctions: {f: {node: a}}\n\
         chains: {c: {from: h, to: i, via: [f]}}\n",
    );
    assert!(plan.functions["f"].interfaces.iter().all(|interface| interface.mtu == 4000));
}

#[test]
fn a_plan_is_the_same_every_time_and_is_json() {
    let (one, two) = (example("ten-nodes.yaml"), example("ten-nodes.yaml"));
    assert_eq!(serde_json::to_string(&one).unwrap(), serde_json::to_string(&two).unwrap());
    let json = serde_json::to_value(&one).unwrap();
    assert_eq!(json["explanations"][0]["action"], "headend");
    assert_eq!(json["nodes"]["n7"]["state"]["sids"][1]["behaviour"], "End.AS");
}

/// Two chains between the same two hosts, told apart by protocol, with one function.
fn two_chains(function: &str, via: &str) -> LabPlan {
    plan(&format!(
        "name: x\nnodes: {{a: {{}}, b: {{}}}}\nlinks: [{{between: [a, b]}}]\nhosts: {{h: {{node: a}}, i: {{node: b}}}}\n\
         functions: {{f: {{node: b{function}}}}}\nchains:\n  c: {{from: h, to: i, via: [{via}], match: {{protocol: tcp}}}}\n  \
         d: {{from: h, to: i, via: [{via}], match: {{protocol: udp}}}}\n"
    ))
}

fn functions(plan: &LabPlan) -> Vec<&Sid> {
    let state = plan.nodes["b"].state.as_ref().unwrap();
    state.sids.iter().filter(|sid| sid.proxy.is_some() || sid.netfilter.is_some()).collect()
}

#[test]
fn one_instance_serves_chains_whose_destinations_overlap() {
    let plan = two_chains("", "f");
    let [west, east] = functions(&plan)[..] else { panic!("two ways, four courses") };
    for (sid, out, back) in [(west, "f-w", "f-e"), (east, "f-e", "f-w")] {
        let proxy = sid.proxy.as_ref().unwrap();
        assert_eq!((sid.behaviour, proxy.memory), (Behaviour::EndAd, Some(Memory::Packet)));
        assert_eq!((proxy.to_function.as_str(), proxy.from_function.as_str()), (out, back));
        assert!(proxy.segments.is_empty());
    }
    assert_eq!(segments(&plan, "c-forward"), ["fc00:5e9:2:100::", "fc00:5e9:2:46::"]);
    assert_eq!(segments(&plan, "d-forward"), segments(&plan, "c-forward"));
    assert_eq!(segments(&plan, "d-reverse"), ["fc00:5e9:2:101::", "fc00:5e9:1:46::"]);
    let function = &plan.functions["f"];
    assert_eq!(function.approach, "exact proxy (End.AD by packet): 2 chains visit it");
    assert_eq!(
        routes(&function.routes),
        [
            "-4 route replace default via 100.64.0.2 dev east",
            "-6 route replace default via fc00:5ec::2:2:0:0 dev east",
            "-4 route replace default via 100.64.0.2 dev east table 100",
            "-6 route replace default via fc00:5ec::2:2:0:0 dev east table 100",
            "-4 route replace default via 100.64.0.0 dev west table 101",
            "-6 route replace default via fc00:5ec::2:1:0:0 dev west table 101",
        ]
    );
    let rules: Vec<_> = function.rules.iter().map(|rule| rule.ip_arguments().join(" ")).collect();
    assert_eq!(rules, ["rule add pref 100 iif west lookup 100", "rule add pref 101 iif east lookup 101"]);
    let neighbours: Vec<_> = function.neighbours.iter().map(|neighbour| neighbour.ip_arguments().join(" ")).collect();
    assert_eq!(neighbours.len(), 4);
    assert_eq!(neighbours[0], "neigh replace 100.64.0.0 lladdr 02:5e:00:00:04:01 dev west nud permanent");
    let why = &plan.explain()[1].why;
    assert!(why.contains("the exact proxy") && why.contains("2 chains visit it"), "{why}");
}

#[test]
fn a_function_is_visited_twice_by_one_chain() {
    let source = "name: x\nnodes: {a: {}}\nhosts: {h: {node: a}, i: {node: a}}\nfunctions: {f: {node: a}, g: {node: a}}\n\
                  chains: {c: {from: h, to: i, via: [f, g, f, f]}}\n";
    let plan = plan(source);
    let [f, g, egress] = ["fc00:5e9:1:100::", "fc00:5e9:1:101::", "fc00:5e9:1:46::"];
    assert_eq!(segments(&plan, "c-forward"), [f, g, f, f, egress]);
    assert_eq!(sid(&plan, "a", g).behaviour, Behaviour::EndAs, "what is visited once by one chain needs no more");
    assert_eq!(plan.functions["f"].approach, "exact proxy (End.AD by packet): the chain c visits it more than once");
}

#[test]
fn functions_on_tap_have_interfaces_and_no_namespace() {
    let source = |second: &str| {
        format!(
            "name: x\nnodes: {{a: {{}}}}\nhosts: {{h: {{node: a}}, i: {{node: a}}}}\nfunctions: {{f: {{node: a, tap: {{program: p}}}}}}\n\
             chains:\n  c: {{from: h, to: i, via: [f], match: {{protocol: tcp}}}}\n{second}"
        )
    };
    let one = plan(&source(""));
    assert_eq!(
        one.functions["f"].approach,
        "static proxy (End.AS): one chain visits it, so that the rest of the list is known"
    );
    let two = plan(&source("  d: {from: h, to: i, via: [f]}\n"));
    let function = &two.functions["f"];
    assert_eq!(
        function.approach,
        "dynamic proxy by flow (End.AD): 2 chains visit it, and it is on TAP, where the exact proxy does not work"
    );
    assert!(function.tap && !function.has_namespace() && function.sysctls.is_empty(), "{function:?}");
    let names: Vec<_> = function.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    assert_eq!(names, ["west", "east"]);
    assert_eq!(sid(&two, "a", "fc00:5e9:1:100::").behaviour, Behaviour::EndAd);
}

#[test]
fn netfilter_has_one_sid_and_each_chain_its_mark() {
    let plan = two_chains(", netfilter: {}", "f");
    let [sid] = functions(&plan)[..] else { panic!("one SID for all") };
    assert_eq!((sid.behaviour, sid.sid.to_string()), (Behaviour::EndAnNf, "fc00:5e9:2:100::/64".to_owned()));
    assert_eq!((sid.argument_length, sid.netfilter.as_ref().unwrap().namespace.as_str()), (16, "f"));
    assert_eq!(segments(&plan, "c-forward"), ["fc00:5e9:2:100:1::", "fc00:5e9:2:46::"]);
    assert_eq!(segments(&plan, "d-reverse"), ["fc00:5e9:2:100:2::", "fc00:5e9:1:46::"]);
    assert!(plan.functions["f"].interfaces.is_empty(), "the agent makes them");
    let marked = load_plan(
        "name: x\nnodes: {a: {}}\nhosts: {h: {node: a}, i: {node: a}}\nfunctions: {f: {node: a, netfilter: {}}}\n\
         chains: {c: {from: h, to: i, via: [f], mark: 4660}}\n",
        "x",
    );
    assert_eq!(segments(&marked.unwrap().1, "c-forward")[0], "fc00:5e9:1:100:1234::");
}

#[test]
fn an_aware_function_owns_its_sids() {
    let plan = two_chains(", aware: true, may_change: insert_next", "f");
    let [west, east] = functions(&plan)[..] else { panic!("two ways") };
    assert_eq!((west.behaviour, east.behaviour), (Behaviour::EndAn, Behaviour::EndAn));
    assert_eq!(west.proxy.as_ref().unwrap().may_change, Some(MayChange::InsertNext));
    let routes = routes(&plan.functions["f"].routes);
    for wanted in [
        "-6 route replace fc00:5e9:2:100::/128 encap seg6local action End dev west table 100",
        "-6 route replace fc00:5e9:2:101::/128 encap seg6local action End dev east table 101",
    ] {
        assert!(routes.iter().any(|route| route == wanted), "{routes:#?}");
    }
    assert!(plan.functions["f"].interfaces.iter().all(|interface| interface.mtu == 9000), "outer headers stay on");
    assert!(plan.functions["f"].interfaces.iter().all(|interface| interface.addresses.len() == 1), "IPv6 only");
}

#[test]
fn what_the_operator_chooses_is_taken() {
    for (choice, behaviour, memory, sids) in [
        ("static", Behaviour::EndAs, None, 2),
        ("dynamic", Behaviour::EndAd, None, 2),
        ("dynamic-flow", Behaviour::EndAd, Some(Memory::Flow), 2),
        ("exact", Behaviour::EndAd, Some(Memory::Packet), 2),
        ("masquerading", Behaviour::EndAm, None, 2),
    ] {
        let plan = plan(&format!(
            "name: x\nnodes: {{a: {{}}}}\nhosts: {{h: {{node: a}}, i: {{node: a}}}}\nchains: {{c: {{from: h, to: i, via: [f]}}}}\n\
             functions: {{f: {{node: a, proxy: {choice}, on_failure: bypass, watch: {{hold_ms: 5}}}}}}\n"
        ));
        let state = plan.nodes["a"].state.as_ref().unwrap();
        let found: Vec<_> = state.sids.iter().filter_map(|sid| Some((sid, sid.proxy.as_ref()?))).collect();
        assert_eq!(found.len(), sids, "{choice}");
        for (sid, proxy) in found {
            assert_eq!((sid.behaviour, proxy.memory), (behaviour, memory), "{choice}");
            assert_eq!((proxy.on_failure, proxy.watch.map(|watch| watch.hold_ms)), (OnFailure::Bypass, Some(5)));
        }
        assert!(plan.functions["f"].approach.ends_with("the topology says so"), "{}", plan.functions["f"].approach);
    }
}

const NAT_ON_TAP: &str = ", tap: {program: p}, capabilities: {rewrites_flows: true}";

#[test]
fn a_function_that_no_shared_proxy_serves_has_interfaces_for_each_chain() {
    let plan = two_chains(NAT_ON_TAP, "f");
    let function = &plan.functions["f"];
    let names: Vec<_> = function.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    assert_eq!(names, ["west", "east", "west2", "east2"]);
    assert_eq!(
        function.approach,
        "static proxy (End.AS): 2 chains visit it, but it is on TAP and rewrites flows; so each chain has interfaces of its own"
    );
    let state = plan.nodes["b"].state.as_ref().unwrap();
    let proxies: Vec<_> = state.sids.iter().filter_map(|sid| Some((sid.behaviour, sid.proxy.as_ref()?))).collect();
    assert_eq!(proxies.len(), 4, "both ways of two chains");
    assert!(proxies.iter().all(|(behaviour, _)| *behaviour == Behaviour::EndAs));
    let ways_back: std::collections::HashSet<_> = proxies.iter().map(|(_, proxy)| &proxy.from_function).collect();
    assert_eq!(ways_back.len(), 4, "what comes back shows whose it is");
}

#[test]
fn a_program_in_a_namespace_is_off_the_kernels_path() {
    let plan = two_chains(", capabilities: {kernel_path: false}", "f");
    let state = plan.nodes["b"].state.as_ref().unwrap();
    let memories: Vec<_> = state.sids.iter().filter_map(|sid| sid.proxy.as_ref()?.memory).collect();
    assert_eq!(memories, [Memory::Flow; 2]);
}

#[test]
fn what_is_known_and_makes_no_difference_changes_nothing() {
    for (known, function) in [
        (", capabilities: {rewrites_flows: true, kernel_path: true}", ""),
        (", netfilter: {}, capabilities: {rewrites_flows: true}", ", netfilter: {}"),
        (
            ", aware: true, may_rewrite: [addresses], capabilities: {rewrites_flows: true}",
            ", aware: true, may_rewrite: [addresses]",
        ),
        (
            ", tap: {}, proxy: static, capabilities: {rewrites_flows: true, makes_packets: true}",
            ", tap: {}, proxy: static",
        ),
    ] {
        assert_eq!(two_chains(known, "f"), two_chains(function, "f"), "{known}");
    }
}

#[test]
fn a_dead_function_has_a_backup() {
    // Each other's backups, on two nodes; no chain names the second.
    let plan = plan(
        "name: x\nnodes: {a: {}, b: {}}\nlinks: [{between: [a, b]}]\nhosts: {h: {node: a}, i: {node: a}}\n\
         chains: {c: {from: h, to: i, via: [f], mode: H.Encaps}}\nfunctions:\n\
         \x20 f: {node: a, on_failure: reroute, backup: g, watch: {}}\n\
         \x20 g: {node: b, on_failure: reroute, backup: f, watch: {}}\n",
    );
    let sids = |node: &str| -> Vec<Sid> {
        let state = plan.nodes[node].state.as_ref().unwrap();
        state.sids.iter().filter(|sid| sid.proxy.is_some()).cloned().collect()
    };
    let (first, second) = (sids("a"), sids("b"));
    assert_eq!((first.len(), second.len()), (2, 2), "one for each way");
    for (one, other) in first.iter().zip(&second) {
        for (sid, backup) in [(one, other), (other, one)] {
            let proxy = sid.proxy.as_ref().unwrap();
            assert_eq!((sid.behaviour, proxy.memory), (Behaviour::EndAd, Some(Memory::Packet)));
            assert_eq!((proxy.on_failure, proxy.backup), (OnFailure::Reroute, Some(backup.sid.addr())));
        }
    }
    assert!(plan.functions["g"].approach.contains("it is a backup"), "{}", plan.functions["g"].approach);
}

#[test]
fn a_static_proxy_may_have_a_backup_that_chains_share() {
    let plan = plan(
        "name: x\nnodes: {a: {}}\nhosts: {h: {node: a}, i: {node: a}}\nchains: {c: {from: h, to: i, via: [f]}}\nfunctions:\n\
         \x20 f: {node: a, proxy: static, on_failure: reroute, backup: g, watch: {}}\n  g: {node: a, proxy: dynamic-flow}\n",
    );
    let state = plan.nodes["a"].state.as_ref().unwrap();
    let of = |behaviour: Behaviour| state.sids.iter().filter(move |sid| sid.behaviour == behaviour);
    let backups: Vec<_> = of(Behaviour::EndAs).map(|sid| sid.proxy.as_ref().unwrap().backup).collect();
    let sids: Vec<_> = of(Behaviour::EndAd).map(|sid| Some(sid.sid.addr())).collect();
    assert_eq!((backups.len(), &backups), (2, &sids));
}

const RULES: &str = "{ipv6: rules.v6, mode: advanced, argument_length: 8}";

#[test]
fn a_firewall_is_in_its_node_and_has_one_sid() {
    let plan = two_chains(&format!(", firewall: {RULES}"), "f, f");
    let state = plan.nodes["b"].state.as_ref().unwrap();
    let sids: Vec<_> = state.sids.iter().filter(|sid| sid.firewall.is_some()).collect();
    let [sid] = sids[..] else { panic!("one SID for all ways") };
    assert_eq!((sid.behaviour, sid.sid.to_string()), (Behaviour::EndAn, "fc00:5e9:2:100::/64".to_owned()));
    assert_eq!((sid.firewall.as_deref(), sid.proxy.is_some()), (Some("f"), false));
    assert_eq!(
        (state.firewalls.len(), state.firewalls[0].name.as_str(), state.firewalls[0].argument_length),
        (1, "f", 8)
    );
    for (policy, egress) in [("c-forward", 2), ("d-reverse", 1)] {
        let [function, egress] = ["fc00:5e9:2:100::".to_owned(), format!("fc00:5e9:{egress}:46::")];
        assert_eq!(segments(&plan, policy), [function.clone(), function, egress]);
    }
    let function = &plan.functions["f"];
    assert!(function.inside && function.interfaces.is_empty(), "no namespace, no links");
    assert_eq!(function.approach, "firewall of the node itself (End.AN): it has the key `firewall`");
    assert!(plan.explain()[1].why.contains("f is a firewall of b itself"), "{}", plan.explain()[1].why);
}

#[test]
fn a_chain_s_mark_is_the_argument_of_a_firewall() {
    let plan = plan(&format!(
        "name: x\nnodes: {{a: {{}}}}\nhosts: {{h: {{node: a}}, i: {{node: a}}}}\nfunctions: {{f: {{node: a, firewall: {RULES}}}}}\n\
         chains: {{c: {{from: h, to: i, via: [f], mark: 2}}}}\n"
    ));
    assert_eq!(segments(&plan, "c-forward")[0], "fc00:5e9:1:100:200::");
}

#[test]
fn a_host_s_firewall_is_that_of_its_port() {
    let plan = plan(&format!(
        "name: x\nnodes: {{a: {{}}}}\nhosts: {{h: {{node: a, firewall: f}}, i: {{node: a}}}}\n\
         functions: {{f: {{node: a, firewall: {RULES}}}}}\n"
    ));
    let state = plan.nodes["a"].state.as_ref().unwrap();
    let ports: Vec<_> = state.ports.iter().map(|port| (port.name.as_str(), port.firewall.as_deref())).collect();
    assert_eq!(ports, [("h", Some("f")), ("i", None)]);
    assert!(state.sids.iter().all(|sid| sid.firewall.is_none()), "no chain visits it");
}

#[test]
fn a_function_may_get_its_own_address_back() {
    let plan = plan(
        "name: x\nnodes: {a: {}, b: {}}\nhosts: {h: {node: a}}\nfunctions: {f: {node: a}, g: {node: b, tap: {}}}\n",
    );
    let sysctl = |function: &str| plan.functions[function].sysctls.get("net.ipv4.conf.all.accept_local").cloned();
    assert_eq!(sysctl("f").as_deref(), Some("1"), "what it has masqueraded comes again if a chain visits it twice");
    assert_eq!(sysctl("g"), None, "it has no namespace");
    assert!(!plan.nodes["a"].sysctls.contains_key("net.ipv4.conf.all.accept_local"));
}
