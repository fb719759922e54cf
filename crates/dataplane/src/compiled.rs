//! One generation of a node's configuration as map entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::Ipv6Net;
use segue_abi as abi;
use segue_classifier::image::Image;
use serde::{Deserialize, Serialize};

use crate::firewall::rules::CompiledRules;
use crate::maps::ascending;

/// All map entries of one generation, with the names that operators know them by. [`crate::compile`] makes it from a
/// [`segue_model::node::NodeState`]; it is kept beside the maps, because the next one takes its free indices from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compiled {
    /// The generation that the keys and slots below belong to; not 0.
    pub generation: u32,
    /// Entry of the map `config`, slot `generation & 1`.
    #[serde(with = "octets")]
    pub config: abi::Config,
    /// Entries of the map `ports`.
    pub ports: Vec<CompiledPort>,
    /// Entries of the maps `sids` and `sid_entries`; those of labels with a function behind them too, by [`segue_model::service_label::label_key`].
    pub sids: Vec<CompiledSid>,
    /// Entries of the maps `labels` and `sid_entries`.
    #[serde(default)]
    pub labels: Vec<CompiledLabel>,
    /// Entries of the maps `policies` and `segment_lists`.
    pub policies: Vec<CompiledPolicy>,
    /// What lies in the map `steering`.
    pub steering: CompiledSteering,
    /// Steering rules by name: row in `counters`.
    pub steering_counters: BTreeMap<String, u32>,
    /// Entries of the map `returns`.
    #[serde(default)]
    pub returns: Vec<CompiledReturn>,
    /// What proxies remember, by return interface and kind: row in `memories` and `memory_counters`, the `scope` of their
    /// SIDs.
    pub scopes: BTreeMap<String, u32>,
    /// Firewalls.
    #[serde(default)]
    pub firewalls: Vec<CompiledFirewall>,
    /// The interface by which TC programs give packets to segments of this node; 0 if there is none.
    pub loop_ifindex: u32,
    /// The interface from which socket buffers come back that the kernel had to make single packets of; 0 if there is none. `config` has the
    /// one by which they go.
    #[serde(default)]
    pub cut_ifindex: u32,
    /// What the operator should know, such as a port that was left out.
    pub warnings: Vec<String>,
}

/// What tells the flows of one function's instances from those of another's, in `segue_instance_key.function`: FNV-1a of its name.
pub fn function_number(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, octet| (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3))
}

/// A port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompiledPort {
    /// Name of the interface.
    pub name: String,
    /// The XDP program belongs on it, and the TC program behind it. False where packets come back from functions that work on
    /// the kernel's path: those are another TC program's alone.
    pub xdp: bool,
    /// The data plane on socket buffers belongs on it, in place of the XDP program. Never both.
    #[serde(default)]
    pub skb: bool,
    /// Its slot among the [`abi::SEGUE_PORT_SLOTS`] of a generation.
    pub place: u32,
    /// The map entry.
    #[serde(with = "octets")]
    pub entry: abi::Port,
}

impl CompiledPort {
    /// Slot in the map `ports`.
    pub fn slot(&self, generation: u32) -> u32 {
        self.place + abi::SEGUE_PORT_SLOTS * (generation & 1)
    }
}

/// A local SID, or the binding SID of a policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompiledSid {
    /// LOC:FUNCT.
    pub prefix: Ipv6Net,
    /// The policy whose binding SID it is.
    pub binding_of: Option<String>,
    /// Index in `sid_entries`.
    pub index: u32,
    /// The map entry.
    #[serde(with = "octets")]
    pub entry: abi::Sid,
}

impl CompiledSid {
    /// Whether its behaviour is that of a proxy, or one of several instances behind it.
    fn leads_to_function(&self) -> bool {
        matches!(
            u32::from(self.entry.behaviour),
            abi::SEGUE_END_AS
                | abi::SEGUE_END_AD
                | abi::SEGUE_END_AM
                | abi::SEGUE_END_AN
                | abi::SEGUE_END_AN_NF
                | abi::SEGUE_END_INSTANCES
                | abi::SEGUE_LABEL_STATIC
                | abi::SEGUE_LABEL_DYNAMIC
                | abi::SEGUE_LABEL_FIREWALL
                | abi::SEGUE_LABEL_INSTANCES
                | abi::SEGUE_LABEL_AWARE
        )
    }

    /// Row of `counters` of what came back from the function; none if there is none.
    pub fn returned(&self) -> Option<u32> {
        Some(self.entry.counter_return).filter(|row| *row != 0)
    }

    /// Whether it is found by its prefix; else by the label whose key that is.
    pub(crate) fn is_found_by_prefix(&self) -> bool {
        u32::from(self.entry.kind) == abi::SEGUE_HEADER_SRV6
    }

    /// Row of `memories`; 0 if it remembers nothing.
    pub fn scope(&self) -> u32 {
        self.entry.scope_row()
    }
}

/// A label, or another one of its paths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompiledLabel {
    /// Its value; above its 20 bits the number of the path, if it has several and this is not the first.
    pub label: u32,
    /// The number of one of several instances of its function; 0: the label itself.
    #[serde(default, skip_serializing_if = "is_none")]
    pub instance: u32,
    /// Index in `sid_entries`.
    pub index: u32,
    /// The map entry.
    #[serde(with = "octets")]
    pub entry: abi::Sid,
}

fn is_none(instance: &u32) -> bool {
    *instance == 0
}

impl CompiledLabel {
    /// By which labels are in order.
    pub fn key(&self) -> (u32, u32) {
        (self.label, self.instance)
    }

    /// Whether it is the label itself, by its only path or the first of several, which all count as that one; instances do not.
    pub fn is_first_path(&self) -> bool {
        self.label >> abi::SEGUE_LABEL_PATH_SHIFT == 0 && self.instance == 0
    }

    /// Whether it leads into a tunnel in UDP.
    pub(crate) fn goes_in_udp(&self) -> bool {
        u32::from(self.entry.behaviour) == abi::SEGUE_LABEL_UDP
    }

    /// Whether its function is a firewall of this node.
    pub(crate) fn has_firewall(&self) -> bool {
        u32::from(self.entry.behaviour) == abi::SEGUE_LABEL_FIREWALL
    }

    /// Whether it is that of a policy.
    pub(crate) fn is_binding(&self) -> bool {
        u32::from(self.entry.behaviour) == abi::SEGUE_LABEL_BINDING
    }

    pub(crate) fn is_pseudowire(&self) -> bool {
        u32::from(self.entry.behaviour) == abi::SEGUE_LABEL_PSEUDOWIRE
    }

    /// Whether its map entry is that of a [`CompiledSid`], since a function is behind it.
    pub(crate) fn is_among_sids(&self) -> bool {
        matches!(
            u32::from(self.entry.behaviour),
            abi::SEGUE_LABEL_STATIC
                | abi::SEGUE_LABEL_DYNAMIC
                | abi::SEGUE_LABEL_FIREWALL
                | abi::SEGUE_LABEL_INSTANCES
                | abi::SEGUE_LABEL_AWARE
        )
    }

    /// Whether its function is of this kind.
    pub(crate) fn is(&self, behaviour: abi::Behaviour) -> bool {
        u32::from(self.entry.behaviour) == behaviour
    }
}

/// An SR policy, or the list that an End.AS proxy puts back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompiledPolicy {
    /// Name, unique; that of an End.AS proxy is `End.AS SID`.
    pub name: String,
    /// Index in `policies`.
    pub index: u32,
    /// The map entry.
    #[serde(with = "octets")]
    pub entry: abi::Policy,
    /// Its segment lists in the order of configuration.
    pub lists: Vec<CompiledList>,
}

/// A segment list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompiledList {
    /// Index in `segment_lists`.
    pub index: u32,
    /// The segments in order of traversal.
    pub segments: Vec<std::net::Ipv6Addr>,
    /// The labels in order of traversal, instead of segments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<u32>,
    /// The map entry.
    #[serde(with = "octets")]
    pub entry: abi::SegmentList,
}

/// By which ports come the packets that are sent to a last segment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompiledReturn {
    /// The last segment of a list.
    pub segment: std::net::Ipv6Addr,
    /// The map entry.
    #[serde(with = "octets")]
    pub entry: abi::Return,
}

/// The steering rules: their image in the map `steering`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CompiledSteering {
    /// Hash of all that the image follows from; empty if there are no rules.
    pub source: String,
    /// The half of the map that the image is in: 0 or 1.
    pub half: u32,
    /// First line of the image.
    pub first_line: u32,
    /// Line of the chain; 0 if there are no rules.
    pub chain: u32,
    /// The image; not kept beside the maps.
    #[serde(skip)]
    pub(crate) image: Option<Arc<SteeringImage>>,
}

/// A compiled chain of steering rules, and what becomes of packets that match.
#[derive(Debug)]
pub(crate) struct SteeringImage {
    pub image: Arc<Image>,
    /// Index of the policy and row in `counters` of each rule.
    pub results: Vec<[u32; 2]>,
}

impl SteeringImage {
    /// As it lies in the map from line `first_line` on.
    pub fn octets(&self, first_line: u32) -> Vec<u8> {
        self.image.emit_with(first_line, &self.results)
    }
}

impl PartialEq for CompiledSteering {
    /// The source decides what the image is.
    fn eq(&self, other: &Self) -> bool {
        (&self.source, self.chain) == (&other.source, other.chain)
    }
}

/// A firewall: entry of the map `firewalls`, rows of those beside it, and its image in the map `classifier`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CompiledFirewall {
    /// Its name.
    pub name: String,
    /// Hash of all that it was made from.
    pub source: String,
    /// Hash of what its image and rows were made from: without the switch, for example.
    #[serde(default)]
    pub rules_source: String,
    /// Index in `firewalls`.
    pub index: u32,
    /// The map entry.
    #[serde(with = "octets")]
    pub entry: abi::Firewall,
    /// First line of its image.
    pub first_line: u32,
    /// Lines of the image.
    pub lines: u32,
    /// Rows of `firewall_rules` from `entry.first_rule` on.
    pub rules: Vec<CompiledRule>,
    /// First row in `firewall_extensions`.
    pub first_extension: u32,
    /// Rows from there on.
    #[serde(with = "octets_list")]
    pub extensions: Vec<abi::FirewallExtension>,
    /// Rows of `firewall_limits` and slots in `firewall_hashlimits`, by rule.
    pub limits: BTreeMap<String, u32>,
    /// The most buckets of the hashlimits, by slot.
    #[serde(default)]
    pub hashlimits: BTreeMap<u32, u32>,
    /// Rows of `firewall_counters` of policies.
    pub policies: BTreeMap<String, u32>,
    /// The image and what it was made from; not kept beside the maps.
    #[serde(skip)]
    pub(crate) image: Option<Arc<CompiledRules>>,
}

/// A rule of a firewall.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompiledRule {
    /// Chain and text: the counter follows it.
    pub name: String,
    /// Line of the rule's file.
    pub line: Option<u32>,
    /// Number in the image.
    pub number: usize,
    /// The map entry.
    #[serde(with = "octets")]
    pub entry: abi::FirewallRule,
}

impl PartialEq for CompiledFirewall {
    /// The source decides what the image is.
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.source, self.index, self.entry) == (&other.name, &other.source, other.index, other.entry)
    }
}

impl CompiledFirewall {
    /// Rows of `firewall_counters` in use.
    pub(crate) fn counter_rows(&self) -> impl Iterator<Item = u32> {
        self.rules.iter().map(|rule| rule.entry.counter).chain(self.policies.values().copied())
    }

    /// The same by the names that they are kept under.
    pub(crate) fn counter_names(&self) -> BTreeMap<String, u32> {
        let rules = self.rules.iter().map(|rule| (format!("{} {}", self.name, rule.name), rule.entry.counter));
        rules.chain(self.policies.iter().map(|(name, row)| (format!("{} {name}", self.name), *row))).collect()
    }
}

impl Compiled {
    /// The port of this name.
    pub fn port(&self, name: &str) -> Option<&CompiledPort> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// The SID of this prefix.
    pub fn sid(&self, prefix: &Ipv6Net) -> Option<&CompiledSid> {
        self.sids.iter().find(|sid| sid.prefix == *prefix)
    }

    /// The policy of this name.
    pub fn policy(&self, name: &str) -> Option<&CompiledPolicy> {
        self.policies.iter().find(|policy| policy.name == name)
    }

    /// Whether both would make the data plane do the same: everything is equal but the generation and the warnings.
    pub fn same_as(&self, other: &Self) -> bool {
        let Self {
            generation: _,
            config,
            ports,
            sids,
            labels,
            policies,
            steering,
            steering_counters,
            scopes,
            firewalls,
            loop_ifindex,
            cut_ifindex,
            returns,
            warnings: _,
        } = self;
        (config, ports, sids, labels, policies, steering)
            == (&other.config, &other.ports, &other.sids, &other.labels, &other.policies, &other.steering)
            && (steering_counters, scopes, firewalls, returns)
                == (&other.steering_counters, &other.scopes, &other.firewalls, &other.returns)
            && (loop_ifindex, cut_ifindex) == (&other.loop_ifindex, &other.cut_ifindex)
    }

    /// Whether there are functions behind this node, or ports that functions return packets on.
    pub fn has_functions(&self) -> bool {
        // The node's own firewall has stages of its own.
        self.sids.iter().any(|sid| sid.entry.firewall == 0 && sid.leads_to_function()) || self.has_service_ports()
    }

    /// The same, or a firewall of this node by the behaviour of a proxy.
    pub fn has_proxies(&self) -> bool {
        self.sids.iter().any(CompiledSid::leads_to_function) || self.has_service_ports()
    }

    fn has_service_ports(&self) -> bool {
        self.ports.iter().any(|port| u32::from(port.entry.role) == abi::SEGUE_ROLE_SERVICE)
    }

    /// Whether packets may come in from outside the SR domain.
    pub fn has_access_ports(&self) -> bool {
        self.ports.iter().any(|port| u32::from(port.entry.role) == abi::SEGUE_ROLE_ACCESS)
    }

    /// Whether some SID is of this behaviour.
    pub fn has_behaviour(&self, behaviour: abi::Behaviour) -> bool {
        self.sids.iter().any(|sid| u32::from(sid.entry.behaviour) == behaviour)
    }

    /// Whether packets come with labels, or get some.
    pub fn has_labels(&self) -> bool {
        let pushes = |policy: &CompiledPolicy| policy.lists.iter().any(|list| !list.labels.is_empty());
        !self.labels.is_empty() || self.policies.iter().any(pushes)
    }

    /// Whether labels that come in may have congestion marks.
    pub fn has_label_ecn(&self) -> bool {
        self.has_labels() && self.config.label_classes != abi::SEGUE_LABEL_CLASSES_NONE
    }

    /// Whether frames go into pseudowires, or come out of some.
    pub fn has_pseudowires(&self) -> bool {
        let is_wire = |policy: &CompiledPolicy| policy.lists.iter().any(|list| list.entry.pseudowire != 0);
        self.labels.iter().any(CompiledLabel::is_pseudowire) || self.policies.iter().any(is_wire)
    }

    /// Whether labels leave in UDP.
    pub fn has_udp_tunnels(&self) -> bool {
        let tunnelled = |list: &CompiledList| u32::from(list.entry.flags) & abi::SEGUE_LIST_UDP != 0;
        self.labels.iter().any(CompiledLabel::goes_in_udp)
            || self.policies.iter().any(|policy| policy.lists.iter().any(tunnelled))
    }

    /// Whether packets return from functions on the kernel's path, which programs of the TC hook take.
    pub fn has_kernel_path(&self) -> bool {
        self.ports.iter().any(|port| !port.xdp && !port.skb)
    }

    /// Whether some port is on XDP.
    pub fn has_xdp_ports(&self) -> bool {
        self.ports.iter().any(|port| port.xdp)
    }

    /// Whether some port is on socket buffers.
    pub fn has_skb_ports(&self) -> bool {
        self.ports.iter().any(|port| port.skb)
    }

    /// Rows of `counters` in use, in ascending order.
    pub fn all_counter_rows(&self) -> Vec<u32> {
        ascending(self.counter_rows())
    }

    /// Rows of `counters` in use.
    pub fn counter_rows(&self) -> impl Iterator<Item = u32> {
        let sids = self.sids.iter().flat_map(|sid| [sid.entry.counter, sid.entry.counter_return]);
        let policies = self.policies.iter().flat_map(|policy| policy.lists.iter().map(|list| list.entry.counter));
        let labels = self.labels.iter().map(|label| label.entry.counter);
        sids.chain(labels).chain(policies).chain(self.steering_counters.values().copied()).filter(|row| *row != 0)
    }
}

/// Structures of the ABI as hexadecimal octets, without the zeros at their ends. More octets than the structure has are refused.
/// Records of another ABI are not read at all: the version is compared first.
mod octets {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use zerocopy::{FromBytes, Immutable, IntoBytes};

    pub fn serialize<T: IntoBytes + Immutable, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text(value))
    }

    pub fn deserialize<'de, T: FromBytes, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }

    const DIGITS: &[u8; 16] = b"0123456789abcdef";

    /// Without the zeros at the end, which most structures have many of.
    pub fn text<T: IntoBytes + Immutable>(value: &T) -> String {
        let octets = value.as_bytes();
        let end = octets.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
        let mut text = String::with_capacity(2 * end);
        for octet in &octets[..end] {
            text.push(char::from(DIGITS[usize::from(octet >> 4)]));
            text.push(char::from(DIGITS[usize::from(octet & 15)]));
        }
        text
    }

    pub fn parse<T: FromBytes>(text: &str) -> Result<T, String> {
        let digit = |digit: u8| char::from(digit).to_digit(16).map(|nibble| nibble as u8);
        let octet = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        let octets: Option<Vec<u8>> = text.as_bytes().chunks(2).map(octet).collect();
        let mut octets = octets.ok_or("not hexadecimal")?;
        let size = size_of::<T>();
        if octets.len() > size {
            return Err(format!("{} octets do not fit the structure", octets.len()));
        }
        octets.resize(size, 0);
        T::read_from_bytes(&octets).map_err(|_| format!("{size} octets do not fit the structure"))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn octets_come_back_as_they_were() {
            for value in [[0, 0, 0, 0_u8], [0, 0xab, 0, 0], [1, 2, 3, 0xff], [0, 0, 0, 1]] {
                assert_eq!(parse::<[u8; 4]>(&text(&value)), Ok(value), "{}", text(&value));
            }
            assert_eq!(text(&[0_u8, 0x1f, 0, 0]), "001f");
            // As earlier versions wrote it.
            assert_eq!(parse::<[u8; 4]>("001f0000"), Ok([0, 0x1f, 0, 0]));
            for broken in ["0", "0x", "0011223344", "é"] {
                assert!(parse::<[u8; 4]>(broken).is_err(), "{broken}");
            }
        }
    }
}

mod octets_list {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use zerocopy::{FromBytes, Immutable, IntoBytes};

    use super::octets;

    pub fn serialize<T: IntoBytes + Immutable, S: Serializer>(list: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(octets::text))
    }

    pub fn deserialize<'de, T: FromBytes, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| octets::parse(text)).collect::<Result<_, _>>().map_err(D::Error::custom)
    }
}
