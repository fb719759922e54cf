//! From the rule files of a firewall to an image, without regard to where it will lie.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;

use segue_abi as abi;
use segue_classifier::image::Image;
use segue_classifier::program::{
    Action, Chain, Extension, HashLimit, HashLimitKey, Limit, Program, Recent, RecentAction, Rule, Side,
};
use segue_firewall::Source;
use segue_firewall::sets::SetChains;
use segue_iptables::{Family, NodeInterface, Surroundings};
use segue_model::firewall::Firewall;
use zerocopy::FromZeros;

use crate::facts::Interfaces;

/// Most further conditions of one rule.
const EXTENSIONS_MAX: usize = 16;
/// Octets of a frame that LOG needs: headers.
const LOG_OCTETS: u16 = 256;

/// A firewall's rules, compiled.
#[derive(Debug)]
pub(crate) struct CompiledRules {
    /// The structure.
    pub image: Image,
    /// All chains, those of IPv4 first, then those of IPv6, then sets: rules in the image's order.
    pub chains: Vec<Chain>,
    /// The base chain of each family.
    pub base: [Option<usize>; 2],
    /// Rows beside the image, one for each rule.
    pub rules: Vec<RuleRow>,
    /// Rules of the image.
    pub count: usize,
    /// Some rule looks at the connection state.
    pub state: bool,
    /// Some rule looks at each entry of a stack of labels.
    pub any_label: bool,
    /// What the operator should know.
    pub warnings: Vec<String>,
}

/// What a rule has beside its line.
#[derive(Debug)]
pub(crate) struct RuleRow {
    /// The same for the same rule in another rule set: counters follow it.
    pub name: String,
    /// Line of the file.
    pub line: Option<u32>,
    /// Octets of the frame that LOG and NFLOG need.
    pub log: u16,
    pub extensions: Vec<ExtensionRow>,
}

/// A further condition, but for what depends on its place.
#[derive(Debug)]
pub(crate) struct ExtensionRow {
    pub entry: abi::FirewallExtension,
    /// A set: its chain.
    pub chain: Option<usize>,
    /// A limit or hashlimit whose bucket other rules share: its name.
    pub bucket: Option<String>,
    /// A hashlimit: the most buckets that its table may have.
    pub most: u32,
    /// The name of a list of `-m recent`.
    pub list: Option<String>,
}

impl CompiledRules {
    pub fn extension_count(&self) -> usize {
        self.rules.iter().map(|rule| rule.extensions.len()).sum()
    }
}

/// Reads and compiles; the error names file, line and column.
pub(crate) fn compile(firewall: &Firewall, interfaces: &Interfaces) -> Result<CompiledRules, String> {
    let read = lower(firewall, interfaces).map_err(|error| error.to_string())?;
    let base = [Family::Ipv4, Family::Ipv6].map(|family| read.base(family));
    let segue_firewall::Rules { lowered, ipv6, .. } = read;
    let mut warnings: Vec<String> =
        lowered.warnings.iter().map(|warning| format!("line {}: {}", warning.position.line, warning.message)).collect();
    warnings.extend(segue_classifier::analysis::analyse(&lowered.program).iter().map(ToString::to_string));
    let mut program = lowered.program;
    let sets = SetChains::append(&mut program);
    let image = segue_classifier::compile::compile(&program).map_err(|error| error.to_string())?;
    let rules = rows(&program, &lowered.origins, ipv6, &sets)?;
    let (state, any_label) = (program.looks_at_connections(), program.looks_at_any_label());
    Ok(CompiledRules { image, base, count: rules.len(), rules, state, any_label, warnings, chains: program.chains })
}

/// One program with the chains of both families, for a node with these interfaces.
///
/// # Errors
/// What cannot be read or run.
pub fn lower(firewall: &Firewall, interfaces: &Interfaces) -> Result<segue_firewall::Rules, segue_firewall::Error> {
    Source::parse(firewall)?.lower(&surroundings(interfaces))
}

fn surroundings(interfaces: &Interfaces) -> Surroundings {
    let all = || interfaces.0.iter();
    let addresses = || all().flat_map(|(_, interface)| &interface.addresses);
    Surroundings {
        interfaces: all()
            .map(|(name, interface)| NodeInterface { name: name.clone(), index: interface.ifindex })
            .collect(),
        addresses: addresses().map(|net| net.addr()).collect(),
        broadcasts: addresses()
            .filter_map(|net| match net.broadcast() {
                IpAddr::V4(address) if net.prefix_len() < 31 => Some(address),
                _ => None,
            })
            .collect(),
        anycasts: addresses()
            .filter_map(|net| match net.network() {
                IpAddr::V6(address) if net.prefix_len() < 127 => Some(address),
                _ => None,
            })
            .collect(),
    }
}

fn rows(
    program: &Program,
    origins: &[Vec<usize>],
    ipv6: Range<usize>,
    sets: &SetChains,
) -> Result<Vec<RuleRow>, String> {
    let mut rows = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, chain) in program.chains.iter().enumerate() {
        let origins = origins.get(index).map_or(&[][..], Vec::as_slice);
        let mut first: Option<(usize, String)> = None;
        for (number, rule) in chain.rules.iter().enumerate() {
            let base = match index {
                index if index < ipv6.start => format!("IPv4 {}", rule.text),
                index if index < ipv6.end => format!("IPv6 {}", rule.text),
                _ => format!("set {}", chain.name),
            };
            let repetition = seen.entry(base.clone()).or_default();
            *repetition += 1;
            let name = if *repetition == 1 { base } else { format!("{base} #{repetition}") };
            // One rule of the file may be several here, of which a packet hits one at most: they share the bucket of a limit.
            let origin = origins.get(number).copied().unwrap_or(number);
            let first = match &mut first {
                Some((same, first)) if *same == origin => first,
                other => &mut other.insert((origin, name.clone())).1,
            };
            rows.push(row(name, first, rule, sets)?);
        }
    }
    Ok(rows)
}

fn row(name: String, first: &str, rule: &Rule, sets: &SetChains) -> Result<RuleRow, String> {
    if rule.extensions.len() > EXTENSIONS_MAX {
        let line = rule.line.unwrap_or_default();
        return Err(format!(
            "line {line}: more than {EXTENSIONS_MAX} sets and limits in one rule; write several rules"
        ));
    }
    let log = match &rule.action {
        Action::Log(_) => LOG_OCTETS,
        Action::Nflog(nflog) => nflog.size.map_or(u16::MAX, |size| size.min(u32::from(u16::MAX)) as u16),
        _ => 0,
    };
    let mut extensions: Vec<ExtensionRow> =
        rule.extensions.iter().map(|extension| extension_row(extension, sets)).collect();
    for (index, extension) in extensions.iter_mut().enumerate() {
        if extension.entry.kind == abi::SEGUE_EXTENSION_LIMIT {
            extension.bucket = Some(format!("{first} {index}"));
        }
    }
    Ok(RuleRow { name, line: rule.line, log, extensions })
}

fn extension_row(extension: &Extension, sets: &SetChains) -> ExtensionRow {
    let mut entry = abi::FirewallExtension::new_zeroed();
    let limit = |entry: &mut abi::FirewallExtension, limit: &Limit| {
        entry.interval = limit.interval;
        entry.burst = u64::from(limit.burst - 1).saturating_mul(limit.interval);
    };
    match extension {
        Extension::Limit(each) => {
            entry.kind = abi::SEGUE_EXTENSION_LIMIT;
            limit(&mut entry, each);
            ExtensionRow { entry, chain: None, bucket: None, most: 0, list: None }
        }
        Extension::HashLimit(hash) => {
            entry.kind = abi::SEGUE_EXTENSION_HASHLIMIT;
            limit(&mut entry, &hash.limit);
            hash_limit(hash, &mut entry);
            ExtensionRow {
                entry,
                chain: None,
                bucket: Some(format!("hashlimit {}", hash.name)),
                most: hash_limit_most(hash),
                list: None,
            }
        }
        Extension::Set { set, sides, negated } => {
            entry.kind = abi::SEGUE_EXTENSION_SET;
            entry.flags = if *negated { abi::SEGUE_EXTENSION_NEGATED } else { 0 };
            let chain = sets.get(*set, sides);
            ExtensionRow { entry, chain, bucket: None, most: 0, list: None }
        }
        Extension::Recent(recent) => {
            entry.kind = abi::SEGUE_EXTENSION_RECENT;
            recent_entry(recent, &mut entry);
            ExtensionRow { entry, chain: None, bucket: None, most: 0, list: Some(recent.name.clone()) }
        }
    }
}

/// Buckets of a hashlimit that does not say how many (`--hashlimit-htable-max`): netfilter's default on a machine with 1 GiB or more.
const HASHLIMIT_MOST: u32 = 65_536;

fn hash_limit_most(hash: &HashLimit) -> u32 {
    if hash.entries_max == 0 { HASHLIMIT_MOST } else { hash.entries_max }
}

fn hash_limit(hash: &HashLimit, entry: &mut abi::FirewallExtension) {
    entry.flags = if hash.above { abi::SEGUE_EXTENSION_NEGATED } else { 0 };
    for key in &hash.mode {
        entry.flags |= match key {
            HashLimitKey::Source => abi::SEGUE_EXTENSION_SOURCE,
            HashLimitKey::Destination => abi::SEGUE_EXTENSION_DESTINATION,
            HashLimitKey::SourcePort => abi::SEGUE_EXTENSION_SOURCE_PORT,
            HashLimitKey::DestinationPort => abi::SEGUE_EXTENSION_DESTINATION_PORT,
        };
    }
    entry.expire = u64::from(hash.expire) * 1_000_000;
    entry.source_mask = address_mask(hash.source_prefix);
    entry.destination_mask = address_mask(hash.destination_prefix);
}

fn recent_entry(recent: &Recent, entry: &mut abi::FirewallExtension) {
    entry.flags = if recent.negated { abi::SEGUE_EXTENSION_NEGATED } else { 0 };
    if recent.side == Side::Source {
        entry.flags |= abi::SEGUE_EXTENSION_SOURCE;
    }
    entry.flags |= match recent.action {
        RecentAction::Set => abi::SEGUE_EXTENSION_RECENT_SET,
        RecentAction::Check => 0,
        RecentAction::Update => abi::SEGUE_EXTENSION_RECENT_UPDATE,
        RecentAction::Remove => abi::SEGUE_EXTENSION_RECENT_REMOVE,
    };
    entry.interval = u64::from(recent.seconds) * 1_000_000_000;
    entry.burst = u64::from(recent.hits);
    // As the words of a key: an IPv4 address is a number in the first.
    entry.source_mask = match recent.family {
        4 => [recent.mask as u64, 0],
        _ => [(recent.mask >> 64) as u64, recent.mask as u64],
    };
}

/// A prefix' mask on the address words of a key. An IPv4 address is a number of 32 bits in the first word: for lengths up to 32 both
/// forms are in the mask, and the address has no bits where the other form's are.
fn address_mask(length: u8) -> [u64; 2] {
    let ones = |bits: u8| if bits == 0 { 0 } else { u64::MAX << (64 - bits.min(64)) };
    let high = ones(length.min(64));
    let ipv4 = if length <= 32 { high >> 32 } else { 0 };
    [high | ipv4, ones(length.saturating_sub(64))]
}
