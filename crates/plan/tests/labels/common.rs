//! An inventory that labels steer, written by hand.

use indexmap::IndexMap;

use segue_model::node::{HeadendMode, InnerType};
use segue_model::proxy::OnFailure;
use segue_model::range::NumberRange;
use segue_model::topology::{
    Capabilities, Chain, Dataplane, Endpoint, FunctionKind, Interfaces, Match, ProxyChoice, SrDataplane,
};
use segue_model::value::MacAddress;
use segue_plan::inventory::{Attachment, Customer, Function, Link, Node, Reachability, Side};
use segue_plan::{Inventory, NodeLabels, Plan, demands, plan};

pub fn range(low: u32, high: u32) -> NumberRange {
    NumberRange::new(low, high).unwrap()
}

pub fn node(number: u32, labels: NodeLabels) -> Node {
    Node {
        dataplane: Dataplane::Segue,
        locator: format!("fc00:5e9:{number}::/48").parse().unwrap(),
        loopback: format!("fc00:5ea:{number}::1").parse().unwrap(),
        sids: false,
        labels: Some(labels),
        hairpins: Vec::new(),
    }
}

fn usual(number: u32) -> NodeLabels {
    NodeLabels { node: 16_000 + number, block: range(30_000 + 100 * number, 30_099 + 100 * number), entropy: false }
}

pub fn link(a: &str, b: &str) -> Link {
    Link { between: [a.to_owned(), b.to_owned()], weight: 1, mtu: 1500 }
}

fn customer(node: &str, number: u32) -> Customer {
    Customer {
        node: node.to_owned(),
        prefixes: vec![format!("10.0.{number}.2/32").parse().unwrap()],
        networks: vec![format!("10.0.{number}.0/24").parse().unwrap()],
        mtu: 1400,
        port: Some("access".to_owned()),
    }
}

pub fn chain(via: &[&str]) -> Chain {
    Chain {
        from: Endpoint::Host("client".to_owned()),
        to: Endpoint::Host("server".to_owned()),
        matching: Match::default(),
        ethernet: None,
        via: via.iter().map(|name| (*name).to_owned()).collect(),
        reverse: true,
        mode: HeadendMode::default(),
        mark: None,
        color: None,
    }
}

/// edge1 - mid1 - mid2 - edge2, and side beside mid1.
pub fn inventory(via: &[&str]) -> Inventory {
    let names = ["edge1", "mid1", "mid2", "edge2", "side"];
    let nodes = names.iter().zip(1..).map(|(name, number)| ((*name).to_owned(), node(number, usual(number))));
    Inventory {
        nodes: nodes.collect(),
        reachability: Reachability::Links(vec![
            link("edge1", "mid1"),
            link("mid1", "mid2"),
            link("mid2", "edge2"),
            link("mid1", "side"),
        ]),
        tunnels: Vec::new(),
        functions: IndexMap::new(),
        customers: [("client", customer("edge1", 1)), ("server", customer("edge2", 2))]
            .map(|(name, customer)| (name.to_owned(), customer))
            .into(),
        chains: [("web".to_owned(), chain(via))].into(),
        dataplane: SrDataplane::SrMpls,
    }
}

pub fn planned(inventory: &Inventory) -> Plan {
    plan(inventory).unwrap_or_else(|errors| panic!("{errors}"))
}

pub fn errors(inventory: &Inventory) -> String {
    plan(inventory).expect_err("it cannot be planned").to_string()
}

/// A function as if only its node were written.
pub fn function(node: &str) -> Function {
    Function {
        node: node.to_owned(),
        kind: FunctionKind::Namespace,
        aware: false,
        capabilities: Capabilities::default(),
        proxy: ProxyChoice::Auto,
        interfaces: Interfaces::Two,
        inner: vec![InnerType::IPv4, InnerType::IPv6],
        argument_length: 0,
        may_change: None,
        may_rewrite: Vec::new(),
        on_failure: OnFailure::Drop,
        backup: None,
        watch: None,
        attachments: Vec::new(),
    }
}

/// Answers all demands: interfaces are called after the function, and counted.
pub fn attach(inventory: &mut Inventory) {
    let demands = demands(inventory).unwrap_or_else(|errors| panic!("{errors}"));
    for (number, demand) in (1u8..).zip(demands) {
        let function = &mut inventory.functions[&demand.function];
        let count = function.attachments.len();
        let side = |end: &str, last: u8| Side {
            interface: format!("{}{count}-{end}", demand.function),
            function: MacAddress([2, 0, 0, 0, number, last]),
        };
        let east = (demand.interfaces == Interfaces::Two).then(|| side("e", 2));
        function.attachments.push(Attachment { owner: demand.owner, west: side("w", 1), east });
    }
}
