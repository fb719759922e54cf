//! Checks of a topology that need nothing but the topology's text: names, references, values.

mod backup;
mod firewall;
mod function;
mod impairment;
mod labels;
mod matching;
mod traffic;

use std::collections::HashMap;

use indexmap::IndexMap;
use ipnet::{IpNet, Ipv6Net};

use crate::check::{self, MTU_MAX, MTU_MIN};
use crate::error::{Errors, KeyPath, Report};
use crate::node::HeadendMode;
use crate::topology::{Chain, Endpoint, Host, LabDomain, NODE_ID_MAX, Topology, WAYPOINT};

/// Most nodes of a lab: every one has routes to every other.
const NODES_MAX: usize = 500;

impl Topology {
    /// Checks names, references and values. What needs paths or addresses is for the planner to check.
    ///
    /// # Errors
    /// All that is wrong, with key paths.
    pub fn validate(&self) -> Result<(), Errors> {
        let mut check = Check { topology: self, report: Report::default() };
        check.names();
        check.domain(&self.domain, &KeyPath::root().at("domain"));
        check.label_blocks();
        check.nodes();
        let hosts = KeyPath::root().at("hosts");
        for (name, host) in &self.hosts {
            check.host(host, &hosts.at(name));
        }
        check.links();
        let functions = KeyPath::root().at("functions");
        for (name, function) in &self.functions {
            let key = functions.at(name);
            check.function(function, &key);
            if let Some(backup) = &function.backup {
                check.backup(name, backup, &key.at("backup"));
            }
            if let Some(firewall) = function.firewall() {
                check.firewall(name, function, firewall, &key);
            }
        }
        let chains = KeyPath::root().at("chains");
        for (name, chain) in &self.chains {
            check.chain(chain, &chains.at(name));
        }
        let traffic = KeyPath::root().at("traffic");
        for (name, source) in &self.traffic {
            check.traffic(source, &traffic.at(name));
        }
        check.receivers();
        let captures = KeyPath::root().at("captures");
        for (name, capture) in &self.captures {
            check.capture(capture, &captures.at(name));
        }
        check.files();
        check.report.finish()
    }
}

struct Check<'a> {
    topology: &'a Topology,
    report: Report,
}

impl Check<'_> {
    fn name(&mut self, name: &str, key: &KeyPath) {
        if !check::is_lab_name(name) {
            self.report.error(
                key,
                format!("{name:?} cannot be a name"),
                "use 1 to 15 characters: a lower-case letter first, then lower-case letters, digits and hyphens",
            );
        } else if ["lo", "all", "default"].contains(&name) {
            let remedy = "choose another name: the kernel gives this one a meaning of its own for interfaces";
            self.report.error(key, format!("{name:?} cannot be a name"), remedy);
        }
    }

    fn names(&mut self) {
        let root = KeyPath::root();
        let topology = self.topology;
        self.name(&topology.name, &root.at("name"));
        fn of<'a, T>(kind: &'static str, map: &'a IndexMap<String, T>) -> Vec<(&'static str, &'a String)> {
            map.keys().map(|name| (kind, name)).collect()
        }
        let mut namespaces = HashMap::new();
        let all =
            [of("nodes", &topology.nodes), of("hosts", &topology.hosts), of("functions", &topology.functions)].concat();
        for (kind, name) in all {
            let key = root.at(kind).at(name);
            self.name(name, &key);
            if let Some(other) = namespaces.insert(name, kind) {
                let message = format!("the name {name:?} is also one of {other}");
                self.report.error(&key, message, "rename one: each becomes a network namespace of its name");
            }
        }
        let others = [
            ("chains", topology.chains.keys().collect::<Vec<_>>()),
            ("traffic", topology.traffic.keys().collect()),
            ("captures", topology.captures.keys().collect()),
        ];
        for (kind, name) in others.iter().flat_map(|(kind, names)| names.iter().map(move |name| (kind, name))) {
            self.name(name, &root.at(*kind).at(*name));
        }
    }

    fn mtu(&mut self, mtu: u32, key: &KeyPath) {
        if !(MTU_MIN..=MTU_MAX).contains(&mtu) {
            let remedy = format!("choose one from {MTU_MIN}, the least for IPv6 (RFC 8200 section 5), to {MTU_MAX}");
            self.report.error(key, format!("an MTU of {mtu} octets does not work"), remedy);
        }
    }

    fn prefix(&mut self, prefix: &IpNet, key: &KeyPath) {
        if prefix.trunc() != *prefix {
            let message = format!("{prefix} has bits set behind its length");
            self.report.error(key, message, format!("write {}", prefix.trunc()));
        }
    }

    fn domain(&mut self, domain: &LabDomain, key: &KeyPath) {
        let aligned = |length: u8| [16, 32, 48, 64].contains(&length);
        let mut prefixes: Vec<(&str, IpNet)> = Vec::new();
        for (name, prefix, fits, wanted) in [
            ("sid_block", domain.sid_block, aligned(domain.sid_block.prefix_len()), "16, 32, 48 or 64"),
            (
                "loopback_prefix",
                domain.loopback_prefix,
                aligned(domain.loopback_prefix.prefix_len()),
                "16, 32, 48 or 64",
            ),
            ("link_prefix", domain.link_prefix, domain.link_prefix.prefix_len() <= 64, "at most 64"),
            ("service_prefix", domain.service_prefix, domain.service_prefix.prefix_len() <= 64, "at most 64"),
            ("host_prefix", domain.host_prefix, domain.host_prefix.prefix_len() <= 48, "at most 48"),
        ] {
            if !fits {
                let message = format!("the length of {prefix} does not fit");
                self.report.error(&key.at(name), message, format!("choose a prefix whose length is {wanted}"));
            }
            if let Some(problem) = check::ipv6_problem(prefix.addr()) {
                self.report.error(
                    &key.at(name),
                    format!("{prefix} {problem}"),
                    "choose a global or unique local prefix",
                );
            }
            prefixes.push((name, prefix.into()));
        }
        for (name, prefix, longest) in
            [("service_prefix_ipv4", domain.service_prefix_ipv4, 24), ("host_prefix_ipv4", domain.host_prefix_ipv4, 16)]
        {
            if prefix.prefix_len() > longest {
                let message = format!("the length of {prefix} does not fit");
                self.report.error(&key.at(name), message, format!("choose a prefix whose length is at most {longest}"));
            }
            prefixes.push((name, prefix.into()));
        }
        for (position, (name, prefix)) in prefixes.iter().enumerate() {
            self.prefix(prefix, &key.at(*name));
            for (other_name, other) in &prefixes[..position] {
                if check::overlap(prefix, other) {
                    let message = format!("{prefix} overlaps with {other_name} ({other})");
                    self.report.error(&key.at(*name), message, "choose prefixes that do not overlap");
                }
            }
        }
        self.mtu(domain.core_mtu, &key.at("core_mtu"));
        self.mtu(domain.access_mtu, &key.at("access_mtu"));
    }

    fn nodes(&mut self) {
        let nodes = KeyPath::root().at("nodes");
        if self.topology.nodes.is_empty() {
            self.report.error(&nodes, "there is no node", "name at least one, such as `nodes: {edge1: {}}`");
        }
        if self.topology.nodes.len() > NODES_MAX {
            let message = format!("{} nodes are too many for one machine", self.topology.nodes.len());
            self.report.error(&nodes, message, format!("keep to {NODES_MAX}"));
        }
        let (mut ids, mut loopbacks) = (HashMap::new(), HashMap::new());
        let mut locators: Vec<(&str, Ipv6Net)> = Vec::new();
        for (name, node) in &self.topology.nodes {
            let key = nodes.at(name);
            if let Some(id) = node.id {
                let key = key.at("id");
                if !(1..=NODE_ID_MAX).contains(&id) {
                    self.report.error(
                        &key,
                        format!("the id {id} is out of range"),
                        format!("choose one from 1 to {NODE_ID_MAX}"),
                    );
                }
                if let Some(other) = ids.insert(id, name) {
                    self.report.error(
                        &key,
                        format!("node {other:?} has the id {id} too"),
                        "give each node an id of its own",
                    );
                }
            }
            if let Some(loopback) = node.loopback {
                let key = key.at("loopback");
                if let Some(problem) = check::ipv6_problem(loopback) {
                    self.report.error(&key, format!("{loopback} {problem}"), "choose a global or unique local address");
                }
                let prefix = self.topology.domain.loopback_prefix;
                if !prefix.contains(&loopback) {
                    let message = format!("{loopback} lies outside the domain's loopback_prefix ({prefix})");
                    let remedy = "choose one inside, or change the prefix: SIDs only take packets from inside it";
                    self.report.error(&key, message, remedy);
                }
                if let Some(other) = loopbacks.insert(loopback, name) {
                    let message = format!("node {other:?} has the loopback address {loopback} too");
                    self.report.error(&key, message, "give each node an address of its own");
                }
            }
            if let Some(locator) = node.locator {
                self.locator(name, locator, &locators, &key.at("locator"));
                locators.push((name, locator));
            }
        }
    }

    fn locator(&mut self, name: &str, locator: Ipv6Net, others: &[(&str, Ipv6Net)], key: &KeyPath) {
        let block = self.topology.domain.sid_block;
        self.prefix(&locator.into(), key);
        if !block.contains(&locator) {
            let message = format!("the locator {locator} of node {name:?} lies outside the SID block {block}");
            self.report.error(
                key,
                message,
                "choose one inside, or widen `domain.sid_block`: the domain's boundary guards the block",
            );
        }
        if locator.prefix_len() > 96 || locator.prefix_len() <= block.prefix_len() {
            let remedy = format!("choose a length from {} to 96", block.prefix_len() + 1);
            self.report.error(key, format!("the length of the locator {locator} does not fit"), remedy);
        }
        for (other_name, other) in others {
            if check::overlap_ipv6(&locator, other) {
                let message = format!("the locator {locator} overlaps with {other} of node {other_name:?}");
                self.report.error(key, message, "give each node a locator of its own");
            }
        }
    }

    fn node_exists(&mut self, name: &str, key: &KeyPath) -> bool {
        let exists = self.topology.nodes.contains_key(name);
        if !exists {
            let remedy = if self.topology.hosts.contains_key(name) {
                "name a node; this is a host".to_owned()
            } else {
                "add it to `nodes`, or correct the name".to_owned()
            };
            self.report.error(key, format!("there is no node {name:?}"), remedy);
        }
        exists
    }

    fn host(&mut self, host: &Host, key: &KeyPath) {
        self.node_exists(&host.node, &key.at("node"));
        if let Some(mtu) = host.mtu {
            self.mtu(mtu, &key.at("mtu"));
        }
        if let Some(firewall) = &host.firewall {
            self.host_firewall(host, firewall, &key.at("firewall"));
        }
        for (position, network) in host.addresses.iter().enumerate() {
            let key = key.at("addresses").at(position);
            let same_family = |other: &IpNet| other.addr().is_ipv4() == network.addr().is_ipv4();
            if host.addresses[..position].iter().any(same_family) {
                self.report.error(
                    &key,
                    "this is a second address of its family",
                    "keep at most one IPv4 and one IPv6 address",
                );
            }
            if let Some(problem) = check::ip_problem(network.addr()) {
                self.report.error(&key, format!("{} {problem}", network.addr()), "choose a unicast address");
            }
            let longest = network.max_prefix_len() - 1;
            if !(8..=longest).contains(&network.prefix_len()) {
                let message = format!("{network} leaves no address for the node, or is too wide");
                self.report.error(&key, message, format!("choose a prefix length from 8 to {longest}"));
            } else if let IpNet::V4(ipv4) = network
                && ipv4.prefix_len() < 31
                && (ipv4.addr() == ipv4.network() || ipv4.addr() == ipv4.broadcast())
            {
                self.report.error(
                    &key,
                    format!("{} is not a host's address in {}", ipv4.addr(), ipv4.trunc()),
                    "choose one between the network's first and last",
                );
            }
        }
    }

    fn links(&mut self) {
        let links = KeyPath::root().at("links");
        for (position, link) in self.topology.links.iter().enumerate() {
            let key = links.at(position);
            for (end, name) in link.between.iter().enumerate() {
                self.node_exists(name, &key.at("between").at(end));
            }
            if link.between[0] == link.between[1] {
                let message = format!("the link leads from {:?} to itself", link.between[0]);
                self.report.error(&key.at("between"), message, "name two different nodes");
            }
            if let Some(mtu) = link.mtu {
                self.mtu(mtu, &key.at("mtu"));
            }
            if link.weight == 0 {
                self.report.error(&key.at("weight"), "a weight of 0 is not possible", "choose 1 or more");
            }
            if let Some(impaired) = &link.impaired {
                self.impairment(impaired, &key.at("impaired"));
            }
        }
    }

    fn chain(&mut self, chain: &Chain, key: &KeyPath) {
        self.endpoint(&chain.from, &key.at("from"));
        self.endpoint(&chain.to, &key.at("to"));
        if chain.from == chain.to {
            self.report.error(&key.at("to"), "the chain ends where it begins", "name two different ends");
        }
        self.matching(&chain.matching, &key.at("match"));
        for (position, name) in chain.via.iter().enumerate() {
            let key = key.at("via").at(position);
            if let Some(node) = name.strip_prefix(WAYPOINT) {
                self.node_exists(node, &key);
            } else if !self.topology.functions.contains_key(name) {
                let remedy = if self.topology.nodes.contains_key(name) {
                    format!("write \"{WAYPOINT}{name}\" if you mean the node")
                } else {
                    "add it to `functions`, or correct the name".to_owned()
                };
                self.report.error(&key, format!("there is no function {name:?}"), remedy);
            }
        }
        if let Some(mark) = chain.mark {
            self.mark(mark, chain, &key.at("mark"));
        }
        if !matches!(chain.mode, HeadendMode::HEncaps | HeadendMode::HEncapsRed) {
            let message = "this mode does not suit a chain, whose egress takes the outer header off";
            self.report.error(&key.at("mode"), message, "write H.Encaps or H.Encaps.Red");
        }
        if chain.color == Some(0) {
            self.report.error(&key.at("color"), "color 0 is not possible (RFC 9256 section 2.1)", "choose 1 or more");
        }
    }

    fn endpoint(&mut self, endpoint: &Endpoint, key: &KeyPath) {
        match endpoint {
            Endpoint::Host(name) => {
                if !self.topology.hosts.contains_key(name) {
                    let remedy = if self.topology.nodes.contains_key(name) {
                        format!("write {{node: {name}, prefixes: [..]}} if you mean what lies behind the node")
                    } else {
                        "add it to `hosts`, or correct the name".to_owned()
                    };
                    self.report.error(key, format!("there is no host {name:?}"), remedy);
                }
            }
            Endpoint::Prefixes(prefixes) => self.prefixes(prefixes, key),
            Endpoint::Behind(behind) => {
                self.node_exists(&behind.node, &key.at("node"));
                self.prefixes(&behind.prefixes, &key.at("prefixes"));
            }
        }
    }

    fn prefixes(&mut self, prefixes: &[IpNet], key: &KeyPath) {
        if prefixes.is_empty() {
            self.report.error(key, "there is no prefix", "write at least one, such as [10.0.1.0/24]");
        }
        for (position, prefix) in prefixes.iter().enumerate() {
            let key = key.at(position);
            self.prefix(prefix, &key);
            if prefixes[..position].iter().any(|other| check::overlap(prefix, other)) {
                self.report.error(&key, format!("{prefix} overlaps with one before it"), "keep only the wider one");
            }
        }
    }
}
