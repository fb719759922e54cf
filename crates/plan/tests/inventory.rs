//! An inventory written by hand, without topology or lab: three nodes, the last with the kernel's data plane; two functions, of which two
//! chains share one.

use indexmap::IndexMap;
use serde_json::{Value, json};

use segue_model::error::Errors;
use segue_model::node::InnerType;
use segue_model::owner::{AddressFamily, Direction, Owner};
use segue_model::proxy::OnFailure;
use segue_model::topology::{Capabilities, Chain, Dataplane, FunctionKind, Interfaces, ProxyChoice, SrDataplane};
use segue_model::value::MacAddress;
use segue_plan::inventory::{Attachment, Customer, Function, Link, Node, Reachability, Side};
use segue_plan::{
    Approach, Demand, Encap, Inventory, KernelEntry, NodePlan, Plan, Seg6LocalAction, StepAction, Way, demands, plan,
};

fn node(dataplane: Dataplane, number: u8) -> Node {
    Node {
        dataplane,
        locator: format!("fc00:5e9:{number}::/48").parse().unwrap(),
        loopback: format!("fc00:5ea:{number}::1").parse().unwrap(),
        sids: true,
        labels: None,
        hairpins: Vec::new(),
    }
}

fn function(inner: &[InnerType]) -> Function {
    Function {
        node: "middle".into(),
        kind: FunctionKind::Namespace,
        aware: false,
        capabilities: Capabilities::default(),
        proxy: ProxyChoice::Auto,
        interfaces: Interfaces::Two,
        inner: inner.to_vec(),
        argument_length: 0,
        may_change: None,
        may_rewrite: Vec::new(),
        on_failure: OnFailure::Drop,
        backup: None,
        watch: None,
        attachments: Vec::new(),
    }
}

fn customer(node: &str, prefix: &str, mtu: u32) -> Customer {
    let prefixes: Vec<ipnet::IpNet> = vec![prefix.parse().unwrap()];
    Customer { node: node.into(), networks: prefixes.clone(), prefixes, mtu, port: None }
}

fn chain(value: Value) -> Chain {
    serde_json::from_value(value).expect("a chain")
}

fn named<T>(entries: impl IntoIterator<Item = (&'static str, T)>) -> IndexMap<String, T> {
    entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// `edge` - `middle` - `far`; both functions are on `middle`.
fn inventory() -> Inventory {
    let link = |from: &str, to: &str| Link { between: [from.into(), to.into()], weight: 1, mtu: 9000 };
    Inventory {
        nodes: named([
            ("edge", node(Dataplane::Segue, 1)),
            ("middle", node(Dataplane::Segue, 2)),
            ("far", node(Dataplane::Kernel, 3)),
        ]),
        reachability: Reachability::Links(vec![link("edge", "middle"), link("middle", "far")]),
        tunnels: Vec::new(),
        functions: named([
            ("fw", Function { proxy: ProxyChoice::Static, ..function(&[InnerType::IPv4]) }),
            ("ids", function(&[InnerType::IPv4, InnerType::IPv6])),
        ]),
        customers: named([
            ("client", customer("edge", "10.0.1.0/24", 1500)),
            ("site", customer("far", "10.9.0.0/16", 4000)),
            ("lab", customer("edge", "2001:db8:1::/64", 1500)),
        ]),
        chains: named([
            ("web", chain(json!({"from": "client", "to": "site", "via": ["fw", "ids"]}))),
            (
                "mail",
                chain(json!({
                    "from": "lab",
                    "to": {"node": "middle", "prefixes": ["2001:db8:2::/64"]},
                    "via": ["ids"],
                    "match": {"protocol": "tcp", "destination_ports": [25]},
                    "reverse": false,
                    "color": 7,
                })),
            ),
        ]),
        dataplane: SrDataplane::Srv6,
    }
}

fn mac(number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, number])
}

fn pair(owner: Option<Owner>, name: &str, number: u8) -> Attachment {
    let side = |end: &str, number| Side { interface: format!("{name}-{end}"), function: mac(number) };
    Attachment { owner, west: side("w", number), east: Some(side("e", number + 1)) }
}

/// Of a whole chain.
fn owner(chain: &str) -> Owner {
    Owner { chain: chain.into(), direction: None, family: None }
}

fn attached() -> Inventory {
    let mut inventory = inventory();
    inventory.functions["fw"].attachments.push(pair(Some(owner("web")), "fw", 1));
    inventory.functions["ids"].attachments.push(pair(None, "ids", 3));
    inventory
}

fn planned(inventory: &Inventory) -> Plan {
    plan(inventory).unwrap_or_else(|errors| panic!("{errors}"))
}

fn refused(inventory: &Inventory) -> Vec<String> {
    let errors: Errors = plan(inventory).expect_err("refused");
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn functions_ask_for_what_chains_need() {
    let prefix = |text: &str| vec![text.parse::<ipnet::IpNet>().unwrap()];
    let (client, site) = (prefix("10.0.1.0/24"), prefix("10.9.0.0/16"));
    let way = |direction, sources: &Vec<_>, destinations: &Vec<_>| Way {
        direction,
        sources: sources.clone(),
        destinations: destinations.clone(),
    };
    let fw = Demand {
        function: "fw".into(),
        node: "middle".into(),
        owner: Some(owner("web")),
        approach: Approach::Static,
        by_labels: false,
        interfaces: Interfaces::Two,
        families: vec![AddressFamily::Ipv4],
        outer: false,
        mtu: Some(4000),
        ways: vec![way(Direction::Forward, &client, &site), way(Direction::Reverse, &site, &client)],
    };
    let ids = Demand {
        function: "ids".into(),
        owner: None,
        approach: Approach::Exact,
        families: vec![AddressFamily::Ipv4, AddressFamily::Ipv6],
        ways: Vec::new(),
        ..fw.clone()
    };
    assert_eq!(demands(&inventory()).unwrap(), [fw.clone(), ids.clone()]);
    assert_eq!(demands(&attached()).unwrap(), [fw, ids], "what is attached makes no difference");
}

#[test]
fn one_interface_is_asked_for_each_direction_and_a_kernel_egress_for_each_family() {
    let mut inventory = inventory();
    inventory.functions["fw"].interfaces = Interfaces::One;
    inventory.functions["fw"].inner.push(InnerType::IPv6);
    for (name, prefix) in [("client", "2001:db8:8::/64"), ("site", "2001:db8:9::/64")] {
        inventory.customers[name].prefixes.push(prefix.parse().unwrap());
    }
    let demands = demands(&inventory).unwrap();
    let owners = |function: &str| -> Vec<String> {
        let owner = |demand: &Demand| demand.owner.as_ref().map_or("all".to_owned(), Owner::to_string);
        demands.iter().filter(|demand| demand.function == function).map(owner).collect()
    };
    let one = |part: &str| format!("chain web {part}");
    assert_eq!(owners("fw"), ["forward ipv4", "reverse ipv4", "forward ipv6", "reverse ipv6"].map(one));
    assert_eq!(owners("ids"), ["all"]);
}

#[test]
fn an_sr_aware_function_gets_outer_headers_and_netfilter_is_attached_by_the_agent() {
    let mut inventory = inventory();
    inventory.functions["fw"].kind = FunctionKind::Netfilter;
    inventory.functions["ids"].aware = true;
    let demands = demands(&inventory).unwrap();
    let [ids] = demands.as_slice() else { panic!("{demands:?}") };
    assert_eq!((ids.function.as_str(), ids.outer), ("ids", true));
    assert_eq!(ids.families, [AddressFamily::Ipv6]);
    inventory.functions["ids"].attachments.push(pair(None, "ids", 3));
    let plan = planned(&inventory);
    let sids: Vec<String> = plan.functions["ids"].sids.values().map(ToString::to_string).collect();
    assert_eq!(sids, ["fc00:5e9:2:101::", "fc00:5e9:2:102::"], "what the function takes for its own");
    let StepAction::Headend { segments, .. } = &plan.explanations[0].action else { panic!("first the headend") };
    assert_eq!(segments[0].to_string(), "fc00:5e9:2:100:1::", "the mark of the first chain");
}

fn json_of(list: &impl serde::Serialize) -> Value {
    serde_json::to_value(list).expect("JSON")
}

fn check_edge(edge: &NodePlan) {
    assert_eq!(
        json_of(&edge.sids),
        json!([
            {"sid": "fc00:5e9:1:1::", "behaviour": "End", "comment": "waypoint"},
            {"sid": "fc00:5e9:1:46::", "behaviour": "End.DT46", "comment": "egress of chains"},
        ])
    );
    let list = |segments: Value| json!([{"weight": 1, "segments": segments}]);
    assert_eq!(
        json_of(&edge.policies),
        json!([
            {"name": "web-forward", "mode": "H.Encaps.Red", "traffic_class": "copy", "hop_limit": 64,
             "segment_lists": list(json!(["fc00:5e9:2:100::", "fc00:5e9:2:101::", "fc00:5e9:3:4::"])),
             "owner": {"chain": "web", "direction": "forward"}},
            {"name": "mail-forward", "mode": "H.Encaps.Red", "traffic_class": "copy", "hop_limit": 64,
             "color": 7, "endpoint": "fc00:5ea:2::1",
             "segment_lists": list(json!(["fc00:5e9:2:101::", "fc00:5e9:2:46::"])),
             "owner": {"chain": "mail", "direction": "forward"}},
        ])
    );
    assert_eq!(
        json_of(&edge.steering),
        json!([
            {"name": "web-forward", "destination": "10.9.0.0/16", "source": "10.0.1.0/24", "policy": "web-forward"},
            {"name": "mail-forward", "destination": "2001:db8:2::/64", "source": "2001:db8:1::/64", "protocol": "tcp",
             "destination_ports": [25], "policy": "mail-forward"},
        ])
    );
    assert!(edge.kernel.is_empty());
}

fn check_middle(middle: &NodePlan) {
    let own = |sid: &str, mac: &str, [to, from]: [&str; 2], rest: Value, direction: &str| {
        json!({"sid": sid, "behaviour": "End.AS", "next_hop_mac": mac, "comment": "function fw",
               "proxy": {"inner": ["IPv4"], "to_function": to, "from_function": from, "segments": rest,
                         "other_types": "drop"},
               "owner": {"chain": "web", "direction": direction}})
    };
    let shared = |sid: &str, mac: &str, [to, from]: [&str; 2], comment: &str| {
        json!({"sid": sid, "behaviour": "End.AD", "next_hop_mac": mac, "comment": comment,
               "proxy": {"inner": ["IPv4", "IPv6"], "to_function": to, "from_function": from, "memory": "packet",
                         "other_types": "drop"}})
    };
    let (west, east) = (["ids-w", "ids-e"], ["ids-e", "ids-w"]);
    let behind = ["fc00:5e9:2:101::", "fc00:5e9:3:4::"];
    assert_eq!(
        json_of(&middle.sids),
        json!([
            {"sid": "fc00:5e9:2:1::", "behaviour": "End", "comment": "waypoint"},
            shared("fc00:5e9:2:101::", "02:00:00:00:00:03", west, "function ids, all chains, west to east"),
            own("fc00:5e9:2:100::", "02:00:00:00:00:01", ["fw-w", "fw-e"], json!(behind), "forward"),
            shared("fc00:5e9:2:102::", "02:00:00:00:00:04", east, "function ids, all chains, east to west"),
            own("fc00:5e9:2:103::", "02:00:00:00:00:02", ["fw-e", "fw-w"], json!(["fc00:5e9:1:46::"]), "reverse"),
            {"sid": "fc00:5e9:2:46::", "behaviour": "End.DT46", "comment": "egress of chains"},
        ])
    );
    assert!(middle.policies.is_empty() && middle.steering.is_empty() && middle.kernel.is_empty());
}

fn check_far(far: &NodePlan) {
    let sid = |number: u16, action, reason: &str| KernelEntry {
        destination: format!("fc00:5e9:3:{number}::/128").parse().unwrap(),
        encap: Encap::Seg6Local(action),
        towards: None,
        reason: reason.to_owned(),
    };
    let next_hop = std::net::Ipv4Addr::UNSPECIFIED;
    let segments = ["fc00:5e9:2:102::", "fc00:5e9:2:103::", "fc00:5e9:1:46::"].map(|sid| sid.parse().unwrap());
    let headend = KernelEntry {
        destination: "10.0.1.0/24".parse().unwrap(),
        encap: Encap::Seg6 { reduced: true, segments: segments.to_vec() },
        towards: Some("middle".to_owned()),
        reason: "chain web reverse: the kernel is the headend".to_owned(),
    };
    let egress = "egress of IPv4 chains, by route on the inner destination";
    let kernel = vec![
        sid(1, Seg6LocalAction::End, "End, for waypoints"),
        sid(4, Seg6LocalAction::EndDx4 { next_hop }, egress),
        headend,
    ];
    assert_eq!(*far, NodePlan { kernel, ..NodePlan::default() });
}

fn paths(plan: &Plan) -> Vec<(String, String)> {
    let of_mail = plan.explanations.iter().filter(|step| step.chain == "mail");
    of_mail.map(|step| (step.path.join(">"), step.why.rsplit("; ").next().unwrap_or_default().to_owned())).collect()
}

#[test]
fn an_inventory_with_links_is_planned() {
    let plan = planned(&attached());
    let names: Vec<_> = plan.nodes.keys().map(String::as_str).collect();
    assert_eq!(names, ["edge", "middle", "far"]);
    check_edge(&plan.nodes["edge"]);
    check_middle(&plan.nodes["middle"]);
    check_far(&plan.nodes["far"]);
    let sids = |function: &str| -> Vec<(Direction, String)> {
        plan.functions[function].sids.iter().map(|(way, sid)| (*way, sid.to_string())).collect()
    };
    let [west, east] = ["fc00:5e9:2:101::", "fc00:5e9:2:102::"].map(str::to_owned);
    assert_eq!(sids("ids"), [(Direction::Forward, west), (Direction::Reverse, east)]);
    assert!(sids("fw").is_empty(), "each chain has its own");
    assert_eq!(paths(&plan)[1], ("edge>middle".to_owned(), "shortest path edge > middle (distance 1)".to_owned()));
    assert_eq!(paths(&plan)[2], ("middle".to_owned(), "on the same node, so nothing is sent".to_owned()));
}

/// The path is not the planner's business then, and all else is the same.
#[test]
fn an_inventory_with_routing_is_planned_alike() {
    let mut inventory = attached();
    let over_links = planned(&inventory);
    inventory.reachability = Reachability::Routing;
    let plan = planned(&inventory);
    assert_eq!((&plan.nodes, &plan.functions), (&over_links.nodes, &over_links.functions));
    assert_eq!(paths(&plan)[1], ("edge>middle".to_owned(), "routing knows the way".to_owned()));
    assert_eq!(paths(&plan)[2], paths(&over_links)[2]);
    for (step, other) in plan.explanations.iter().zip(&over_links.explanations) {
        assert_eq!((&step.node, &step.action, step.step), (&other.node, &other.action, other.step));
    }
}

#[test]
fn what_is_not_attached_is_named() {
    assert_eq!(
        refused(&inventory()),
        [
            "functions.fw.attachments: nothing leads to \"fw\" for chain web; add an attachment with this owner: a pair of \
             interfaces, west and east, of middle",
            "functions.ids.attachments: nothing leads to \"ids\" for all chains, which share it; add an attachment with this owner: a \
             pair of interfaces, west and east, of middle",
        ]
    );
    let mut half = attached();
    half.functions["ids"].attachments[0].east = None;
    assert_eq!(
        refused(&half),
        [
            "functions.ids.attachments: the attachment of \"ids\" for all chains, which share it does not fit its interfaces; give \
          it a pair of interfaces, west and east"
        ]
    );
    let mut other = attached();
    other.functions["fw"].attachments[0].owner = Some(owner("mail"));
    assert!(refused(&other)[0].starts_with("functions.fw.attachments: nothing leads to \"fw\" for chain web"));
}

#[test]
fn an_interface_leads_to_one_function_for_one_demand() {
    let mut twice = attached();
    twice.functions["ids"].attachments[0].east = twice.functions["fw"].attachments[0].east.clone();
    assert_eq!(
        refused(&twice),
        [
            "functions.ids.attachments[0]: the interface \"fw-e\" of middle leads to \"fw\" already; attach it by another \
          interface: packets come back by it for one only"
        ]
    );
    let mut spare = attached();
    let again = pair(None, "more", 9);
    spare.functions["ids"].attachments.push(again);
    assert_eq!(
        refused(&spare),
        ["functions.ids.attachments[1]: it has the owner of one before it; keep one attachment for each demand"]
    );
    spare.functions["ids"].attachments[1].owner = Some(owner("gone"));
    assert_eq!(planned(&spare), planned(&attached()), "what no chain needs is ignored");
}

/// The planner chooses, not the source: a capability alone makes another proxy of the one that two chains share.
#[test]
fn the_proxy_follows_what_a_function_can() {
    let mut inventory = inventory();
    inventory.functions["ids"].capabilities.makes_packets = true;
    let of_ids = |inventory: &Inventory| -> Vec<(Option<Owner>, Approach)> {
        let demands = demands(inventory).unwrap_or_else(|errors| panic!("{errors}"));
        let ids = demands.into_iter().filter(|demand| demand.function == "ids");
        ids.map(|demand| (demand.owner, demand.approach)).collect()
    };
    assert_eq!(
        of_ids(&inventory),
        [(Some(owner("web")), Approach::Static), (Some(owner("mail")), Approach::Static)],
        "a pair for each chain"
    );
    inventory.functions["ids"].capabilities = Capabilities { kernel_path: Some(false), ..Capabilities::default() };
    assert_eq!(of_ids(&inventory), [(None, Approach::Flow)]);
    inventory.functions["ids"].proxy = ProxyChoice::Exact;
    let errors = demands(&inventory).expect_err("the exact proxy cannot");
    let keys: Vec<_> = errors.iter().map(|error| error.key.to_string()).collect();
    assert_eq!(keys, ["functions.ids.proxy"]);
}

#[test]
fn what_cannot_be_is_refused() {
    let with = |change: &dyn Fn(&mut Inventory)| {
        let mut inventory = attached();
        change(&mut inventory);
        refused(&inventory)
    };
    let cut = |inventory: &mut Inventory| {
        if let Reachability::Links(links) = &mut inventory.reachability {
            links.pop();
        }
    };
    assert_eq!(
        with(&cut),
        [
            "chains.web.via: no links lead from middle to far (forward); add the missing link to `links`",
            "chains.web.via: no links lead from far to middle (reverse); add the missing link to `links`",
        ]
    );
    assert_eq!(
        with(&|inventory| inventory.chains["web"].via.push("proxy".into())),
        ["chains.web.via[2]: there is no function \"proxy\"; add it to `functions`, or correct the name"]
    );
    assert_eq!(
        with(&|inventory| inventory.chains["web"].via.push("fw".into())),
        [
            "chains.web.via[2]: the chain visits \"fw\" twice, and its proxy could not tell the two visits apart; give the function \
          `proxy: exact` (or none: it is chosen then), or add a second function"
        ]
    );
    assert_eq!(
        with(&|inventory| inventory.functions["fw"].node = "nowhere".into()),
        ["functions.fw.node: there is no node \"nowhere\"; add it to `nodes`, or correct the name"]
    );
    assert_eq!(
        with(&|inventory| inventory.functions["ids"].node = "far".into())[0],
        "functions.ids.node: the node \"far\" cannot host a function: only Segue's data plane has proxies; move the function, or \
         set the node's `dataplane: segue`"
    );
    assert_eq!(
        with(&|inventory| inventory.nodes["middle"].locator = "fc00:5e9:1:2::/64".parse().unwrap()),
        [
            "nodes.middle: the locator fc00:5e9:1:2::/64 overlaps with fc00:5e9:1::/48 of node \"edge\"; give one of them \
          another `locator`"
        ]
    );
    assert_eq!(
        with(&|inventory| inventory.customers.clear()),
        [
            "chains.web.from: there is no customer \"client\"; add it to `customers`, or correct the name",
            "chains.web.to: there is no customer \"site\"; add it to `customers`, or correct the name",
            "chains.mail.from: there is no customer \"lab\"; add it to `customers`, or correct the name",
        ]
    );
    let backup = |inventory: &mut Inventory| {
        inventory.functions["ids"].on_failure = OnFailure::Reroute;
        inventory.functions["ids"].backup = Some("fw".into());
    };
    assert_eq!(
        with(&backup),
        [
            "functions.ids.backup: \"fw\" has a proxy for one chain, and cannot take what comes for \"ids\"; give it `proxy: exact`, or \
          another that chains can share",
            "functions.ids.backup: \"fw\" does not take IPv6 packets, which come for \"ids\"; add the type to `inner` of the backup, or \
             name another function",
        ]
    );
}
