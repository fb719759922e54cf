//! Checks of a node's desired state that the types alone do not make.

mod firewall;
mod function;
mod label;
mod learn;
mod policy;
mod proxy;
mod pseudowire;
mod service_label;
mod sid;
mod steering;
mod udp;
mod virtual_function;

pub(crate) use firewall::firewall_values;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

use crate::check;
use crate::error::{Errors, KeyPath, Report};
use crate::firewall::Firewall;
use crate::limits::{INFRASTRUCTURE_PREFIXES_MAX, SID_BLOCKS_MAX, SOURCE_PREFIXES_MAX};
use crate::node::{HeadendMode, NodeState, Owner, Policy, Port, PortRole, Vlan};
use crate::proxy::{CUT_IN, CUT_OUT, LOOP_IN, LOOP_OUT};

/// Most flows that proxies remember: about a gigabyte.
const PROXY_FLOWS_MAX: u32 = 10_000_000;

/// Largest number of a VLAN: 0 and 4095 are none (IEEE 802.1Q).
const VLAN_MAX: u16 = 4094;

/// Most ports of one node.
const PORTS_MAX: usize = 4095;

impl NodeState {
    /// Checks what the types alone do not say: references, names, SIDs, what behaviours need, what the data plane can do.
    /// Works on values from any source; key paths are those of the document.
    ///
    /// # Errors
    /// All that is wrong, with key paths; [`crate::load::locate`] adds the lines.
    pub fn validate(&self) -> Result<(), Errors> {
        let mut check = Check::new(self);
        check.node();
        check.domain();
        check.hmac_keys();
        check.ports();
        check.firewalls();
        check.functions();
        check.sids();
        check.labels();
        check.learn();
        check.udp_endpoints();
        check.policies();
        check.steering();
        check.settings();
        check.report.finish()
    }
}

struct Check<'a> {
    state: &'a NodeState,
    report: Report,
    ports: HashMap<&'a str, &'a Port>,
    policies: HashMap<&'a str, &'a Policy>,
    /// Beside each whether its rules read arguments, which takes reading them.
    firewalls: HashMap<&'a str, (&'a Firewall, bool)>,
    has_boundary: bool,
}

impl<'a> Check<'a> {
    fn new(state: &'a NodeState) -> Self {
        let ports = state.ports.iter().map(|port| (port.name.as_str(), port)).collect();
        let policies = state.policies.iter().map(|policy| (policy.name.as_str(), policy)).collect();
        let firewalls = state.firewalls.iter().rev();
        let firewalls = firewalls.map(|firewall| (firewall.name.as_str(), (firewall, firewall.reads_arguments())));
        let has_boundary = state.ports.iter().any(|port| port.role == PortRole::Access);
        Self { state, report: Report::default(), ports, policies, firewalls: firewalls.collect(), has_boundary }
    }

    fn error(&mut self, key: &KeyPath, message: impl Into<String>, remedy: impl Into<String>) {
        self.report.error(key, message, remedy);
    }

    fn ipv6_address(&mut self, address: Ipv6Addr, key: &KeyPath) -> bool {
        let problem = check::ipv6_problem(address);
        if let Some(problem) = problem {
            self.error(key, format!("{address} {problem}"), "choose a global or unique local unicast address");
        }
        problem.is_none()
    }

    fn truncated(&mut self, prefix: impl Into<IpNet>, key: &KeyPath) {
        let prefix = prefix.into();
        if prefix.trunc() != prefix {
            self.error(key, format!("{prefix} has bits set behind its length"), format!("write {}", prefix.trunc()));
        }
    }

    fn display_name(&mut self, name: &str, key: &KeyPath) {
        if !check::is_display_name(name) {
            self.error(
                key,
                format!("{name:?} cannot be a name"),
                "use 1 to 63 visible ASCII characters, without blanks",
            );
        }
    }

    fn owner(&mut self, owner: Option<&Owner>, key: &KeyPath) {
        if let Some(owner) = owner {
            self.display_name(&owner.chain, &key.at("owner").at("chain"));
        }
    }

    /// The port of a name; an error if there is none.
    fn port(&mut self, name: &str, key: &KeyPath) -> Option<&'a Port> {
        let port = self.ports.get(name).copied();
        if port.is_none() {
            self.error(key, format!("there is no port {name:?}"), "add it to `ports`, or correct the name");
        }
        port
    }

    /// The policy of a name; an error if there is none.
    fn policy(&mut self, name: &str, key: &KeyPath) -> Option<&'a Policy> {
        let policy = self.policies.get(name).copied();
        if policy.is_none() {
            self.error(key, format!("there is no policy {name:?}"), "add it to `policies`, or correct the name");
        }
        policy
    }

    /// Whether the domain's boundary protects an address that is a SID.
    fn in_sid_block(&self, address: Ipv6Net) -> bool {
        // RFC 9602: always a SID block.
        let rfc9602 = Ipv6Net::new_assert(Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16);
        rfc9602.contains(&address) || self.state.domain.sid_blocks.iter().any(|block| block.contains(&address))
    }

    /// A SID outside of the SID blocks would be open to every host on an access port of any node.
    fn guarded(&mut self, sid: Ipv6Net, key: &KeyPath) {
        if self.has_boundary && !self.in_sid_block(sid) {
            let message =
                format!("{} lies in no SID block, so that the domain's boundary does not guard it", sid.addr());
            self.error(
                key,
                message,
                "add its block to `domain.sid_blocks` (RFC 8754 section 5.1), or choose another SID",
            );
        }
    }

    fn node(&mut self) {
        let root = KeyPath::root();
        let state = self.state;
        self.display_name(&state.node, &root.at("node"));
        self.ipv6_address(state.source_address, &root.at("source_address"));
        if let Some(address) = state.source_address_ipv4
            && let Some(problem) = check::ipv4_problem(address)
        {
            self.error(&root.at("source_address_ipv4"), format!("{address} {problem}"), "choose a unicast address");
        }
        if let Some(locator) = state.locator {
            let key = root.at("locator");
            self.truncated(locator, &key);
            if locator.prefix_len() == 0 || locator.prefix_len() == 128 {
                let message = format!("a locator of length {} leaves nothing to tell apart", locator.prefix_len());
                self.error(&key, message, "choose a length from 1 to 127, usually 48 or 64");
            } else {
                self.ipv6_address(locator.addr(), &key);
            }
        }
    }

    fn domain(&mut self) {
        let key = KeyPath::root().at("domain");
        let domain = &self.state.domain;
        for (name, prefixes, max, why) in [
            ("sid_blocks", &domain.sid_blocks, SID_BLOCKS_MAX, "5f00::/16 takes a fourth place"),
            ("source_prefixes", &domain.source_prefixes, SOURCE_PREFIXES_MAX, "more would slow every packet down"),
            (
                "infrastructure_prefixes",
                &domain.infrastructure_prefixes,
                INFRASTRUCTURE_PREFIXES_MAX,
                "the data plane has room for these",
            ),
        ] {
            let key = key.at(name);
            if prefixes.len() > max {
                let message = format!("{} prefixes are too many", prefixes.len());
                self.error(&key, message, format!("keep at most {max} ({why}); join neighbours to shorter prefixes"));
            }
            for (position, prefix) in prefixes.iter().enumerate() {
                let key = key.at(position);
                self.truncated(*prefix, &key);
                if prefix.prefix_len() == 0 {
                    self.error(&key, "::/0 covers everything, inside and outside", "choose the domain's own prefix");
                } else {
                    self.ipv6_address(prefix.addr(), &key);
                }
            }
        }
        let key = key.at("trusted_interfaces");
        for (position, name) in domain.trusted_interfaces.iter().enumerate() {
            let key = key.at(position);
            if !check::is_interface_name(name) {
                let message = format!("{name:?} cannot be an interface's name");
                self.error(&key, message, "write the name that `ip link` shows, at most 15 characters");
            }
            if self.ports.contains_key(name.as_str()) {
                let message = format!("{name:?} is a port: its role says what may come in by it");
                self.error(&key, message, "remove it here, or from `ports`");
            }
        }
    }

    fn hmac_keys(&mut self) {
        let keys = KeyPath::root().at("hmac_keys");
        let mut ids = HashSet::new();
        for (position, hmac) in self.state.hmac_keys.iter().enumerate() {
            let key = keys.at(position);
            if hmac.id == 0 {
                let remedy = "choose 1 or more (RFC 8754 section 2.1.2)";
                self.error(&key.at("id"), "0 is not an HMAC Key ID", remedy);
            }
            if !ids.insert(hmac.id) {
                self.error(
                    &key.at("id"),
                    format!("the HMAC Key ID {} is there twice", hmac.id),
                    "give each key its own",
                );
            }
            if hmac.secret_file.is_empty() {
                self.error(
                    &key.at("secret_file"),
                    "no file is named",
                    "write the path of the file that holds the secret",
                );
            }
        }
    }

    fn ports(&mut self) {
        let ports = KeyPath::root().at("ports");
        if self.state.ports.len() > PORTS_MAX {
            let message = format!("{} ports are too many", self.state.ports.len());
            self.error(&ports, message, format!("keep at most {PORTS_MAX}"));
        }
        let (mut names, mut vlans) = (HashMap::new(), HashMap::new());
        for (position, port) in self.state.ports.iter().enumerate() {
            let key = ports.at(position);
            let name = key.at("name");
            if !check::is_interface_name(&port.name) {
                let message = format!("{:?} cannot be an interface's name", port.name);
                self.error(&name, message, "write the name that `ip link` shows, at most 15 characters");
            }
            if [LOOP_IN, LOOP_OUT, CUT_IN, CUT_OUT].contains(&port.name.as_str()) {
                self.error(&name, format!("{:?} is a link of the agent's own", port.name), "remove the port");
            }
            if names.insert(port.name.as_str(), position).is_some() {
                self.error(&name, format!("the port {:?} is there twice", port.name), "remove one");
            }
            if let Some(vlan) = &port.vlan {
                self.vlan(port, vlan, &key.at("vlan"));
                if let Some(other) = vlans.insert((vlan.on.as_str(), vlan.id), port.name.as_str()) {
                    let message = format!("VLAN {} on {:?} is the port {other:?} already", vlan.id, vlan.on);
                    self.error(&key.at("vlan").at("id"), message, "correct the number, or remove one of the ports");
                }
            }
            if port.accept_hmac && port.role != PortRole::Access {
                let message = "only access ports choose which SRHs come in";
                self.error(&key.at("accept_hmac"), message, "remove the key, or write `role: access`");
            }
            if let Some(policy_name) = &port.l2_policy {
                let key = key.at("l2_policy");
                if port.role != PortRole::Access {
                    self.error(
                        &key,
                        "only access ports put frames into a policy",
                        "remove the key, or write `role: access`",
                    );
                }
                if let Some(policy) = self.policy(policy_name, &key)
                    && !policy.carries_frames()
                {
                    let message = format!("the policy {policy_name:?} does not carry Ethernet frames");
                    let remedy = match policy.mode {
                        HeadendMode::Push => "add `pseudowire:` to the policy",
                        _ => "give the policy `mode: H.Encaps.L2` or H.Encaps.L2.Red",
                    };
                    self.error(&key, message, remedy);
                }
            }
        }
    }

    fn vlan(&mut self, port: &Port, vlan: &Vlan, key: &KeyPath) {
        if !check::is_interface_name(&vlan.on) {
            let message = format!("{:?} cannot be an interface's name", vlan.on);
            self.error(&key.at("on"), message, "write the name that `ip link` shows, at most 15 characters");
        }
        let other = self.ports.get(vlan.on.as_str());
        if vlan.on == port.name {
            let message = "a VLAN is another interface than the one that carries it";
            self.error(
                &key.at("on"),
                message,
                format!("give the port a name of its own, such as {}.{}", vlan.on, vlan.id),
            );
        } else if other.is_some_and(|other| other.vlan.is_some()) {
            let message = format!("the agent makes no VLAN inside a VLAN, and {:?} is one", vlan.on);
            self.error(&key.at("on"), message, "make the interface yourself, and leave `vlan` out");
        }
        if !(1..=VLAN_MAX).contains(&vlan.id) {
            let message = format!("{} is no number of a VLAN", vlan.id);
            self.error(&key.at("id"), message, format!("choose one from 1 to {VLAN_MAX}"));
        }
    }

    fn settings(&mut self) {
        let settings = &self.state.settings;
        let bursts = [
            ("icmp_error_burst", settings.icmp_error_burst, settings.icmp_errors_per_second),
            ("echo_reply_burst", settings.echo_reply_burst, settings.echo_replies_per_second),
            ("tcp_reset_burst", settings.tcp_reset_burst, settings.tcp_resets_per_second),
        ];
        for (name, burst, per_second) in bursts {
            if burst == 0 && per_second != 0 {
                let key = KeyPath::root().at("settings").at(name);
                self.error(&key, "a burst of 0 lets nothing through", "choose 1 or more, or a rate of 0 to send none");
            }
        }
        let flows = self.state.settings.proxy_flows;
        if !(1..=PROXY_FLOWS_MAX).contains(&flows) {
            let key = KeyPath::root().at("settings").at("proxy_flows");
            self.error(&key, format!("{flows} flows are out of range"), format!("choose 1 to {PROXY_FLOWS_MAX}"));
        }
        let lifetime = self.state.settings.adjacency_lifetime_ms;
        if !(1..=60_000).contains(&lifetime) {
            let key = KeyPath::root().at("settings").at("adjacency_lifetime_ms");
            let message = format!("{lifetime} ms is out of range");
            self.error(
                &key,
                message,
                "choose 1 to 60000 ms: packets may go the old way that long after a route change",
            );
        }
    }
}

/// An address's family, for messages.
fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}
