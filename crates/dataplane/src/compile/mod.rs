//! From what an operator wants ([`NodeState`]) to what the data plane reads ([`Compiled`]). Pure: nothing here touches the
//! kernel, and the same input gives the same output.

mod allocate;
mod bucket;
mod error;
pub(crate) mod firewall;
mod label;
mod label_ecn;
mod label_list;
mod memory;
mod policy;
mod port;
mod returns;
mod sid;
mod source;
mod steering;
mod template;
#[cfg(test)]
mod tests;
mod udp;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv6Addr;
use std::sync::Arc;

use ipnet::Ipv6Net;
use segue_abi as abi;
use segue_classifier::image::Image;
use segue_model::node::{LabelBehaviour, NodeState, Port, TtlModel, Vm};
use segue_model::proxy::LOOP_IN;
use segue_model::wiring::Wiring;
use zerocopy::FromZeros;

use self::allocate::{Rows, full_for};
pub use self::error::CompileError;
use self::memory::Scopes;
use self::policy::PoliciesByName;
pub use self::port::{needs_cut, prefers_xdp};
pub(crate) use self::sid::function_mtu;
pub use self::steering::{SteeringRules, rule_name, steering_rules};
use crate::compiled::{Compiled, CompiledList};
use crate::facts::{Capabilities, Capacity, Interface, Interfaces, MissingInterface, Table};
use crate::firewall::rules::CompiledRules;
pub use crate::firewall::rules::lower as firewall_rules;

/// All SIDs of RFC 9602 lie here, whether configured or not.
const SRV6_SIDS: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16);

/// Flows to one next segment are spread over this many FIB decisions plus one: enough for an even spread over a few equal
/// paths, few enough that the adjacency cache holds them.
const FLOW_BUCKETS_MASK: u16 = 15;

/// Interfaces have smaller numbers than this, which is a flag beside them in the keys of the adjacency cache
/// (`ADJACENCY_INSIDE` in `bpf/lib/forward/adjacency.h`).
const IFINDEX_LIMIT: u32 = 1 << 23;

/// RT_TABLE_MAIN of rtnetlink.
const MAIN_TABLE: u32 = 254;

/// What [`compile`] works on.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The desired state, validated by `segue_model`.
    pub state: &'a NodeState,
    /// The interfaces that exist.
    pub interfaces: &'a Interfaces,
    /// What to do about those that do not.
    pub missing: MissingInterface,
    /// The kernel's abilities.
    pub capabilities: &'a Capabilities,
    /// Sizes of the tables.
    pub capacity: &'a Capacity,
    /// The generation that is active: its indices stay untouched.
    pub previous: Option<&'a Compiled>,
    /// The number of the new generation; not 0.
    pub generation: u32,
}

/// Makes all map entries of a new generation.
///
/// # Errors
/// The first thing that does not fit this machine or this data plane. Input that `segue_model` would have refused gives an
/// error too, never a panic.
pub fn compile(input: &Input<'_>) -> Result<Compiled, CompileError> {
    let mut compiler = Compiler::new(input);
    let policies = policy::compile(&mut compiler)?;
    let firewalls = firewall::compile(&mut compiler)?;
    let by_name = firewalls.iter().map(|firewall| (firewall.name.as_str(), firewall.index)).collect();
    let (sids, labels) = sid::compile(&mut compiler, &policies, &by_name)?;
    let ports = port::compile(&mut compiler, &policies, &sids, &by_name)?;
    let loop_ifindex = match input.state.needs_loop() {
        true => compiler.interface("the agent's loop", LOOP_IN)?.map_or(0, |interface| interface.ifindex),
        false => 0,
    };
    let (steering, steering_counters) = steering::compile(&mut compiler, &policies)?;
    let mut config = config(input)?;
    config.steering = steering.chain;
    // Its program shares the stages of ports.
    let has_skb_ports = ports.iter().any(|port| port.skb);
    let (cut, cut_ifindex) = if has_skb_ports { port::cut(input.state, input.interfaces) } else { (0, 0) };
    config.cut = cut;
    Ok(Compiled {
        generation: input.generation,
        config,
        ports,
        sids,
        labels,
        policies: policies.into_compiled(),
        steering,
        steering_counters,
        returns: returns::compile(input.state, input.interfaces),
        scopes: compiler.scopes.into_names(),
        firewalls,
        loop_ifindex,
        cut_ifindex,
        warnings: compiler.warnings,
    })
}

/// What was compiled in advance. A check or an apply finds it as long as this is kept.
#[derive(Debug)]
pub struct Prepared {
    _firewalls: Vec<Arc<CompiledRules>>,
    _steering: Option<Arc<Image>>,
}

/// Compiles the rules of `state`, which may take seconds, where nobody waits for it: a check or an apply soon after does not have to.
/// It may run on any thread. What is wrong with the rules is for these to say.
pub fn prepare(state: &NodeState, interfaces: &Interfaces) -> Prepared {
    // Errors are not lost: they are made again.
    Prepared { _firewalls: firewall::prepare(state, interfaces), _steering: steering::prepare(state, interfaces) }
}

/// The compiled firewalls: index by name.
type FirewallsByName<'a> = HashMap<&'a str, u32>;

/// Index of the firewall that a SID or port names; 0 if it names none.
fn firewall_index(firewalls: &FirewallsByName<'_>, name: Option<&str>, place: &str) -> Result<u32, CompileError> {
    let Some(name) = name else { return Ok(0) };
    let unknown = || CompileError::invalid(place, format!("there is no firewall {name}; add it to `firewalls`"));
    firewalls.get(name).copied().ok_or_else(unknown)
}

/// What the parts share.
struct Compiler<'a> {
    input: &'a Input<'a>,
    counters: Rows<String>,
    scopes: Scopes,
    /// Names of the configured ports and of those that the agent makes.
    ports: Vec<Port>,
    port_names: HashSet<String>,
    /// Of virtual machines, which make them when they start, and of network cards.
    may_come: HashSet<String>,
    policies: PoliciesByName<'a>,
    warnings: Vec<String>,
}

impl<'a> Compiler<'a> {
    fn new(input: &'a Input<'a>) -> Self {
        let rows = input.capacity.counters();
        let previous = input.previous.map(counter_names).unwrap_or_default();
        let ports = input.state.all_ports();
        Self {
            input,
            counters: Rows::new(previous, rows, Table::Counters, rows),
            scopes: Scopes::new(input),
            may_come: may_come(input.state),
            port_names: ports.iter().map(|port| port.name.clone()).collect(),
            ports,
            policies: input.state.policies.iter().map(|policy| (policy.name.as_str(), policy)).collect(),
            warnings: Vec::new(),
        }
    }

    /// The interface of a configured port. `None`, with a warning, if it does not exist or its number is too large, and that is
    /// allowed.
    fn interface(&mut self, place: &str, name: &str) -> Result<Option<&'a Interface>, CompileError> {
        if name != LOOP_IN && !self.port_names.contains(name) {
            return Err(CompileError::PortUnknown { place: place.to_owned(), name: name.to_owned() });
        }
        let found = self.input.interfaces.get(name);
        if found.is_some_and(|interface| interface.ifindex < IFINDEX_LIMIT) {
            return Ok(found);
        }
        let (place, name) = (place.to_owned(), name.to_owned());
        let wrong = match found {
            None => CompileError::InterfaceMissing { place: place.clone(), name: name.clone() },
            Some(&Interface { ifindex, .. }) => CompileError::InterfaceNumber {
                place: place.clone(),
                name: name.clone(),
                ifindex,
                limit: IFINDEX_LIMIT,
            },
        };
        match if self.may_come.contains(&name) { MissingInterface::LeaveOut } else { self.input.missing } {
            MissingInterface::Refuse => Err(wrong),
            MissingInterface::LeaveOut => {
                self.warnings.push(match found {
                    None => format!("{place}: left out, because there is no interface {name}"),
                    Some(_) => format!("left out: {wrong}"),
                });
                Ok(None)
            }
        }
    }

    /// The routing table as the data plane asks it.
    fn table(&self, table: Option<u32>, place: &str) -> Result<u32, CompileError> {
        match table {
            None => Ok(0),
            Some(table) if self.input.capabilities.fib_table => Ok(table),
            // The kernel's own rules lead there.
            Some(MAIN_TABLE) => Ok(0),
            Some(table) => {
                let problem = format!(
                    "table {table}: XDP can look into a routing table other than main from Linux 6.5 on; leave `table` out, or use a newer kernel"
                );
                Err(CompileError::invalid(place, problem))
            }
        }
    }

    fn check_room(&self, table: Table, count: usize, capacity: u32, place: &str) -> Result<(), CompileError> {
        if count > capacity as usize {
            return Err(full_for(place, table, capacity, u32::try_from(count).unwrap_or(u32::MAX)));
        }
        Ok(())
    }
}

/// Devices of virtual machines, which come and go with these, and VLANs of virtual functions, with their cards; the functions are down
/// meanwhile.
fn may_come(state: &NodeState) -> HashSet<String> {
    let machines = state.attached().filter_map(|(wiring, function)| Some((wiring, function.vm.as_ref()?)));
    let of = |(wiring, vm): (Wiring, &Vm)| {
        let given = [(vm.west.interface.is_some(), wiring.node_west), (vm.east.interface.is_some(), wiring.node_east)];
        given.into_iter().filter_map(|(is_given, name)| is_given.then_some(name))
    };
    let cards = state.attached().filter(|(_, function)| function.vf.is_some());
    let vlans = cards.flat_map(|(wiring, _)| [wiring.node_west, wiring.node_east]);
    machines.flat_map(of).chain(vlans).collect()
}

/// The names under which rows of `counters` are kept.
mod counter_name {
    use std::net::Ipv6Addr;

    use ipnet::Ipv6Net;

    pub fn sid(prefix: &Ipv6Net) -> String {
        format!("sid {prefix}")
    }
    pub fn returned(prefix: &Ipv6Net) -> String {
        format!("returned {prefix}")
    }
    pub fn label(label: u32) -> String {
        format!("label {label}")
    }
    /// The same for a list of labels.
    pub fn labels(policy: &str, labels: &[u32], repetition: usize) -> String {
        format!("labels {labels:?} {repetition} {policy}")
    }
    /// `repetition` tells lists of the same segments apart.
    pub fn list(policy: &str, segments: &[Ipv6Addr], repetition: usize) -> String {
        format!("list {segments:?} {repetition} {policy}")
    }
    pub fn steering(name: &str) -> String {
        format!("steering {name}")
    }
}

fn counter_names(compiled: &Compiled) -> BTreeMap<String, u32> {
    let mut names = BTreeMap::new();
    for sid in &compiled.sids {
        names.insert(counter_name::sid(&sid.prefix), sid.entry.counter);
        if sid.entry.counter_return != 0 {
            names.insert(counter_name::returned(&sid.prefix), sid.entry.counter_return);
        }
    }
    // Those of further paths count with the first.
    let labels = compiled.labels.iter().filter(|label| label.is_first_path());
    names.extend(labels.map(|label| (counter_name::label(label.label), label.entry.counter)));
    for policy in &compiled.policies {
        for (position, list) in policy.lists.iter().enumerate() {
            let repetition = repetition(&policy.lists[..position], &list.segments);
            let name = match list.labels.is_empty() {
                true => counter_name::list(&policy.name, &list.segments, repetition),
                false => counter_name::labels(&policy.name, &list.labels, repetition),
            };
            names.insert(name, list.entry.counter);
        }
    }
    names.extend(compiled.steering_counters.iter().map(|(name, row)| (counter_name::steering(name), *row)));
    names
}

fn repetition(before: &[CompiledList], segments: &[Ipv6Addr]) -> usize {
    before.iter().filter(|list| list.segments == segments).count()
}

fn config(input: &Input<'_>) -> Result<abi::Config, CompileError> {
    let NodeState { settings, domain, .. } = input.state;
    let mut config = abi::Config::new_zeroed();
    let jiffies = u64::from(settings.adjacency_lifetime_ms) * u64::from(input.capabilities.hz) / 1000;
    config.cache_lifetime = u32::try_from(jiffies).unwrap_or(u32::MAX).max(1);
    config.icmp_per_second = settings.icmp_errors_per_second;
    config.icmp_burst = settings.icmp_error_burst;
    config.echo_per_second = settings.echo_replies_per_second;
    config.echo_burst = settings.echo_reply_burst;
    config.resets_per_second = settings.tcp_resets_per_second;
    config.resets_burst = settings.tcp_reset_burst;
    config.label_classes = label_ecn::classes(label_ecn::pairs(input.state));
    config.address_ipv4 = u32::from_ne_bytes(source::ipv4(input.state, input.interfaces).octets());
    config.address = input.state.source_address.octets();
    let blocks = sid_blocks(input);
    config.sid_blocks_count = fill(&mut config.sid_blocks, &blocks, "domain.sid_blocks")?;
    config.source_prefixes_count =
        fill(&mut config.source_prefixes, &domain.source_prefixes, "domain.source_prefixes")?;
    config.infrastructure_prefixes_count =
        fill(&mut config.infrastructure_prefixes, &domain.infrastructure_prefixes, "domain.infrastructure_prefixes")?;
    Ok(config)
}

/// What every packet finds in its port.
fn config_flags(input: &Input<'_>) -> abi::ConfigFlags {
    let mut flags = 0;
    if input.capabilities.fib_table {
        flags |= abi::SEGUE_CONFIG_FIB_TABLE;
    }
    if input.capabilities.redirect_multi_buffer {
        flags |= abi::SEGUE_CONFIG_REDIRECT_MULTI_BUFFER;
    }
    if !input.state.domain.source_prefixes.is_empty() {
        flags |= abi::SEGUE_CONFIG_CHECK_SOURCE;
    }
    if steering::looks_at_marks(&input.state.steering) {
        flags |= abi::SEGUE_CONFIG_STEER_MARKS;
    }
    if input.state.knows_labels() || policy::pushes(input.state) {
        flags |= abi::SEGUE_CONFIG_LABELS;
    }
    if input.state.labels.iter().any(|label| label.behaviour == LabelBehaviour::Pseudowire) {
        flags |= abi::SEGUE_CONFIG_PSEUDOWIRES;
    }
    if input.state.mpls.as_ref().is_some_and(|mpls| mpls.ttl == TtlModel::Uniform) {
        flags |= abi::SEGUE_CONFIG_TTL_UNIFORM;
    }
    if !label_ecn::pairs(input.state).is_empty() {
        flags |= abi::SEGUE_CONFIG_LABEL_ECN;
    }
    flags |= udp::config_flags(input.state.udp_endpoints());
    if sid_block_hints(input).is_none() {
        flags |= abi::SEGUE_CONFIG_MANY_BLOCKS;
    }
    flags
}

/// All SID blocks, that of RFC 9602 among them.
fn sid_blocks(input: &Input<'_>) -> Vec<Ipv6Net> {
    let mut blocks = vec![SRV6_SIDS];
    blocks.extend(input.state.domain.sid_blocks.iter().filter(|block| !SRV6_SIDS.contains(*block)));
    blocks
}

/// The first 16 bits of the SID blocks, as they lie in a packet. `None` if two such numbers do not say them all.
fn sid_block_hints(input: &Input<'_>) -> Option<[u16; 2]> {
    let blocks = sid_blocks(input);
    if blocks.iter().any(|block| block.prefix_len() < 16) {
        return None;
    }
    let mut hints: Vec<u16> =
        blocks.iter().map(|block| block.addr().octets()).map(|[a, b, ..]| u16::from_ne_bytes([a, b])).collect();
    hints.sort_unstable();
    hints.dedup();
    match hints[..] {
        [only] => Some([only, only]),
        [first, second] => Some([first, second]),
        _ => None,
    }
}

fn fill(entries: &mut [abi::Prefix], prefixes: &[Ipv6Net], place: &str) -> Result<u32, CompileError> {
    if prefixes.len() > entries.len() {
        let problem =
            format!("{} prefixes, 5f00::/16 included where it applies; at most {}", prefixes.len(), entries.len());
        return Err(CompileError::invalid(place, problem));
    }
    for (entry, prefix) in entries.iter_mut().zip(prefixes) {
        *entry = abi::Prefix { address: words(prefix.network()), mask: words(prefix.netmask()) };
    }
    Ok(prefixes.len() as u32)
}

/// The address as two words that lie in memory as they do in a packet.
fn words(address: Ipv6Addr) -> [u64; 2] {
    zerocopy::transmute!(address.octets())
}
