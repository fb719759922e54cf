//! Firewalls: rule files become an image of the classifier, and rows beside it.
//!
//! Rule files are read and compiled only when something that they depend on has changed: [`CompiledFirewall::rules_source`]. That may
//! be done in advance, where nobody waits: [`super::prepare`].

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use segue_abi as abi;
use segue_classifier::image::{Image, LINE};
use segue_classifier::program::{Action, Chain, Rule};
use segue_model::firewall::{Firewall, FirewallMode};
use segue_model::node::NodeState;
use sha2::{Digest, Sha256};
use zerocopy::FromZeros;

use super::allocate::{Indices, Rows, full};
use super::{CompileError, Compiler};
use crate::compiled::{CompiledFirewall, CompiledRule};
use crate::facts::{Capacity, Interfaces, Table};
use crate::firewall::connections::slots;
use crate::firewall::rules::{self, CompiledRules};

/// Line 0 of the array names nothing.
const FIRST_LINE: u32 = 1;

/// Compiled rules that may be needed again soon: they may have been compiled in advance, a check is followed by an apply, and either may
/// be repeated for larger tables.
static RECENT: LazyLock<Mutex<HashMap<String, Arc<CompiledRules>>>> = LazyLock::new(Mutex::default);
const RECENT_MAX: usize = 16;

pub(super) fn compile(compiler: &mut Compiler<'_>) -> Result<Vec<CompiledFirewall>, CompileError> {
    let input = compiler.input;
    let state = input.state;
    let (firewalls, capacity) = (&state.firewalls, input.capacity);
    compiler.check_room(Table::Firewalls, firewalls.len(), capacity.firewalls, "firewalls")?;
    let previous = input.previous.map(|previous| previous.firewalls.as_slice()).unwrap_or_default();
    let by_name: HashMap<&str, &CompiledFirewall> = previous.iter().map(|other| (other.name.as_str(), other)).collect();
    let mut space = Space::new(compiler, previous);
    let mut compiled = Vec::new();
    let addresses = addresses(firewalls, input.interfaces);
    for firewall in firewalls {
        let place = format!("firewall {}", firewall.name);
        let rules_source = rules_source(firewall, &addresses);
        let conntrack = &firewall.conntrack;
        let source = format!("{rules_source} {} {} {conntrack:?}", firewall.basic, firewall.argument_length);
        let previous = by_name.get(firewall.name.as_str()).copied();
        let before = previous.map(|other| &other.entry);
        let known = previous.filter(|other| other.rules_source == rules_source);
        let next = match known {
            // After an adoption nobody knows the image, and nobody needs it: it lies in the map.
            Some(same) if same.source == source => same.clone(),
            Some(same) => {
                let mut entry = abi::Firewall {
                    flags: same.entry.flags & !SWITCHES | switches(firewall),
                    argument_length: firewall.argument_length,
                    ..same.entry
                };
                space.table(firewall, before, &mut entry, &place)?;
                CompiledFirewall { index: space.indices.take(&place)?, entry, source, ..same.clone() }
            }
            None => {
                let rules = recent(&rules_source, || rules::compile(firewall, input.interfaces))
                    .map_err(|problem| CompileError::invalid(&place, problem))?;
                let mut placed = space.place(firewall, (source, rules_source), rules, &place)?;
                space.table(firewall, before, &mut placed.entry, &place)?;
                placed
            }
        };
        let warnings = next.image.iter().flat_map(|rules| &rules.warnings);
        compiler.warnings.extend(warnings.map(|warning| format!("{place}: {warning}")));
        let of_others = next.image.iter().filter_map(|rules| of_other_packets(state, firewall, &rules.chains));
        compiler.warnings.extend(of_others.map(|warning| format!("{place}: {warning}")));
        compiled.push(next);
    }
    leave_room(&compiled, capacity)?;
    Ok(compiled)
}

/// What an operator should know of rules that no packet matches, since those that could meet other firewalls.
fn of_other_packets(state: &NodeState, firewall: &Firewall, chains: &[Chain]) -> Option<String> {
    let is_this = |name: &Option<String>| name.as_ref() == Some(&firewall.name);
    let behind_labels = state.labels.iter().any(|label| is_this(&label.firewall));
    let by_sids = state.sids.iter().any(|sid| is_this(&sid.firewall));
    let elsewhere = by_sids || state.ports.iter().any(|port| is_this(&port.firewall));
    let (is_about, what, why, instead): (fn(&Rule) -> bool, _, _, _) = match (behind_labels, elsewhere) {
        (true, false) => (is_about_srh, "`-m srh` or SEG6", "is behind labels only", "`-m mpls` and MPLS"),
        (false, true) => (is_about_labels, "`-m mpls` or MPLS", "is behind no label", "`-m srh` and SEG6"),
        _ => return None,
    };
    let rule = chains.iter().flat_map(|chain| &chain.rules).find(|rule| is_about(rule))?;
    let line = rule.line.map(|line| format!("line {line}: ")).unwrap_or_default();
    Some(format!("{line}no packet matches a rule with {what}, since this firewall {why}: use {instead}"))
}

fn is_about_srh(rule: &Rule) -> bool {
    matches!(rule.action, Action::Seg6(_)) || rule.conditions.iter().any(|condition| condition.field.is_of_srh())
}

fn is_about_labels(rule: &Rule) -> bool {
    matches!(rule.action, Action::Mpls(_)) || rule.conditions.iter().any(|condition| condition.field.is_of_labels())
}

/// What takes the place of these must fit beside them, or the tables would grow a second time for the same number of rules.
fn leave_room(compiled: &[CompiledFirewall], capacity: &Capacity) -> Result<(), CompileError> {
    let lines: u64 = compiled.iter().map(|firewall| u64::from(firewall.lines)).sum();
    let room = capacity.classifier / LINE as u32;
    if 2 * lines + u64::from(FIRST_LINE) > u64::from(room) {
        return Err(full("firewalls", Table::FirewallLines, room));
    }
    let rows = |firewall: &CompiledFirewall| firewall.rules.len().max(firewall.extensions.len());
    if compiled.iter().map(rows).sum::<usize>() > capacity.firewall_rules as usize {
        return Err(full("firewalls", Table::FirewallRules, capacity.firewall_rules));
    }
    Ok(())
}

/// Compiles the firewalls of `state`; see [`super::prepare`].
pub(super) fn prepare(state: &NodeState, interfaces: &Interfaces) -> Vec<Arc<CompiledRules>> {
    let addresses = addresses(&state.firewalls, interfaces);
    let compile = |firewall| recent(&rules_source(firewall, &addresses), || rules::compile(firewall, interfaces)).ok();
    state.firewalls.iter().filter_map(compile).collect()
}

/// What rules may ask of interfaces, hashed once for all firewalls.
fn addresses(firewalls: &[Firewall], interfaces: &Interfaces) -> Sha256 {
    let mut hash = Sha256::new();
    for (name, interface) in interfaces.0.iter().filter(|_| !firewalls.is_empty()) {
        hash.update(format!("{name} {} {:?}\n", interface.ifindex, interface.addresses));
    }
    hash
}

/// What the image and the rows beside it follow from. `hash`: of [`addresses`].
fn rules_source(firewall: &Firewall, hash: &Sha256) -> String {
    // Switches and the argument's length are in the map's entry only; the size of a table is nobody's rule.
    let Firewall { name: _, ipv4, ipv6, yaml, sets, mode, hook, unsupported, .. } = firewall;
    let mut hash = hash.clone();
    hash.update(serde_json::to_vec(&(ipv4, ipv6, yaml, sets, mode, hook, unsupported)).unwrap_or_default());
    hash.finalize().iter().map(|octet| format!("{octet:02x}")).collect()
}

fn recent(source: &str, make: impl FnOnce() -> Result<CompiledRules, String>) -> Result<Arc<CompiledRules>, String> {
    let known = || RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(rules) = known().get(source) {
        return Ok(Arc::clone(rules));
    }
    let rules = Arc::new(make()?);
    let mut known = known();
    if known.len() >= RECENT_MAX {
        // What is in use somewhere costs nothing here.
        known.retain(|_, rules| Arc::strong_count(rules) > 1);
    }
    known.insert(source.to_owned(), Arc::clone(&rules));
    Ok(rules)
}

/// Gaps of one map in which runs of rows are placed.
struct Gaps {
    /// Runs in use: first row and length.
    used: BTreeMap<u32, u32>,
    end: u32,
    table: Table,
    capacity: u32,
}

impl Gaps {
    fn take(&mut self, length: u32, place: &str) -> Result<u32, CompileError> {
        let mut start = FIRST_LINE;
        for (&first, &count) in &self.used {
            if first.saturating_sub(start) >= length {
                break;
            }
            start = start.max(first.saturating_add(count));
        }
        if length == 0 {
            return Ok(start);
        }
        if start.saturating_add(length) > self.end {
            return Err(full(place, self.table, self.capacity));
        }
        self.used.insert(start, length);
        Ok(start)
    }
}

/// Where new firewalls find room beside those of the previous generation.
struct Space {
    indices: Indices,
    lines: Gaps,
    rules: Gaps,
    extensions: Gaps,
    counters: Rows<String>,
    limits: Rows<String>,
    scopes: Rows<String>,
    tables: Indices,
}

impl Space {
    fn new(compiler: &Compiler<'_>, previous: &[CompiledFirewall]) -> Self {
        let capacity = compiler.input.capacity;
        let gaps = |table, end, size, runs: Vec<(u32, u32)>| Gaps {
            used: runs.into_iter().filter(|(_, length)| *length > 0).collect(),
            end,
            table,
            capacity: size,
        };
        let rules = capacity.firewall_rules;
        let names = |of: fn(&CompiledFirewall) -> BTreeMap<String, u32>| {
            previous.iter().flat_map(of).collect::<BTreeMap<_, _>>()
        };
        Self {
            indices: Indices::new(
                1,
                1 + 2 * capacity.firewalls,
                previous.iter().map(|firewall| firewall.index),
                Table::Firewalls,
                capacity.firewalls,
            ),
            lines: gaps(
                Table::FirewallLines,
                capacity.classifier / LINE as u32,
                capacity.classifier / LINE as u32,
                previous.iter().map(|firewall| (firewall.first_line, firewall.lines)).collect(),
            ),
            rules: gaps(
                Table::FirewallRules,
                1 + 2 * rules,
                rules,
                previous.iter().map(|firewall| (firewall.entry.first_rule, firewall.rules.len() as u32)).collect(),
            ),
            extensions: gaps(
                Table::FirewallRules,
                1 + 2 * rules,
                rules,
                previous.iter().map(|firewall| (firewall.first_extension, firewall.extensions.len() as u32)).collect(),
            ),
            counters: Rows::new(
                names(CompiledFirewall::counter_names),
                capacity.firewall_counters(),
                Table::FirewallRules,
                rules,
            ),
            limits: Rows::new(names(|firewall| firewall.limits.clone()), 1 + 2 * rules, Table::FirewallRules, rules),
            scopes: Rows::new(
                previous.iter().map(|firewall| (firewall.name.clone(), firewall.entry.scope)).collect(),
                1 + 2 * capacity.firewalls,
                Table::Firewalls,
                capacity.firewalls,
            ),
            tables: Indices::new(
                1,
                capacity.connection_tables(),
                slots(previous),
                Table::Firewalls,
                capacity.firewalls,
            ),
        }
    }

    /// The table of connections: that of before if it has the right size, or a new one that takes over from it.
    fn table(
        &mut self,
        firewall: &Firewall,
        before: Option<&abi::Firewall>,
        entry: &mut abi::Firewall,
        place: &str,
    ) -> Result<(), CompileError> {
        let before = before.filter(|before| before.table != 0);
        (entry.table, entry.buckets, entry.beginnings) = (0, 0, 0);
        (entry.previous, entry.previous_buckets) = (0, 0);
        entry.hash = before.map_or_else(secret, |before| before.hash);
        if entry.flags & abi::SEGUE_FIREWALL_STATE == 0 {
            return Ok(());
        }
        entry.buckets = firewall.conntrack.entries.div_ceil(abi::SEGUE_CONNECTION_WAYS).max(2);
        entry.beginnings =
            firewall.conntrack.beginnings.div_ceil(abi::SEGUE_BEGINNING_LINES * abi::SEGUE_BEGINNING_WORDS);
        match before {
            Some(same) if (same.buckets, same.beginnings) == (entry.buckets, entry.beginnings) => {
                (entry.table, entry.previous, entry.previous_buckets) =
                    (same.table, same.previous, same.previous_buckets);
            }
            Some(other) => {
                entry.table = self.tables.take(place)?;
                (entry.previous, entry.previous_buckets) = (other.table, other.buckets);
            }
            None => entry.table = self.tables.take(place)?,
        }
        Ok(())
    }

    fn place(
        &mut self,
        firewall: &Firewall,
        (source, rules_source): (String, String),
        rules: Arc<CompiledRules>,
        place: &str,
    ) -> Result<CompiledFirewall, CompileError> {
        let (image, name) = (&rules.image, &firewall.name);
        let lines = u32::try_from(image.lines()).map_err(|_| full(place, Table::FirewallLines, u32::MAX))?;
        let base = self.lines.take(lines, place)?;
        let mut entry = abi::Firewall::new_zeroed();
        for (family, chain) in rules.base.iter().enumerate() {
            if let Some(chain) = chain {
                entry.chain[family] = image.chain_line(*chain, base);
                let policy = policy_name(family, &rules.chains[*chain].name);
                entry.policy[family] = self.counters.take(format!("{name} {policy}"), place)?;
            }
        }
        entry.first_line = if rules.count == 0 { base } else { image.rule_line(0, 0, base) };
        entry.first_rule = self.rules.take(rules.count as u32, place)?;
        entry.flags = flags(firewall, &rules);
        entry.scope = self.scopes.take(name.clone(), place)?;
        entry.words = image.key_words();
        entry.argument_length = firewall.argument_length;
        let mut limits = BTreeMap::new();
        let mut hashlimits = BTreeMap::new();
        let mut extensions = Vec::new();
        let mut table = Vec::new();
        let first_extension = self.extensions.take(rules.extension_count() as u32, place)?;
        for (number, rule) in rules.rules.iter().enumerate() {
            let counter = self.counters.take(format!("{name} {}", rule.name), place)?;
            let row = abi::FirewallRule {
                counter,
                extension: first_extension + extensions.len() as u32,
                extensions: rule.extensions.len() as u16,
                log: rule.log,
                name: counter,
            };
            for (index, extension) in rule.extensions.iter().enumerate() {
                let mut made = extension.entry;
                if let Some(chain) = extension.chain {
                    made.chain = image.chain_line(chain, base);
                } else if let Some(list) = &extension.list {
                    (made.bucket, made.chain) = list_name(name, list);
                } else {
                    let key = extension.bucket.clone().unwrap_or_else(|| format!("{} {index}", rule.name));
                    let key = format!("{name} {key}");
                    made.bucket = match limits.get(&key) {
                        Some(row) => *row,
                        None => self.limits.take(key.clone(), place)?,
                    };
                    limits.insert(key, made.bucket);
                    if made.kind == abi::SEGUE_EXTENSION_HASHLIMIT {
                        // The first rule of a name makes its table, as in netfilter.
                        hashlimits.entry(made.bucket).or_insert(extension.most);
                    }
                }
                extensions.push(made);
            }
            table.push(CompiledRule { name: rule.name.clone(), line: rule.line, number, entry: row });
        }
        Ok(CompiledFirewall {
            name: name.clone(),
            source,
            rules_source,
            index: self.indices.take(place)?,
            entry,
            first_line: base,
            lines,
            rules: table,
            first_extension,
            extensions,
            limits,
            hashlimits,
            policies: rules
                .base
                .iter()
                .enumerate()
                .filter_map(|(family, chain)| {
                    chain.map(|chain| (policy_name(family, &rules.chains[chain].name), entry.policy[family]))
                })
                .collect(),
            image: Some(rules),
        })
    }
}

/// Words that nobody can guess.
fn secret() -> [u32; 12] {
    use std::hash::{BuildHasher, Hasher};
    // SipHash of nothing, with keys that the operating system draws.
    std::array::from_fn(|_| std::hash::RandomState::new().build_hasher().finish() as u32)
}

/// The number of a list of `-m recent` in the data plane: of no other list, now or later.
fn list_name(firewall: &str, list: &str) -> (u32, u32) {
    let digest = Sha256::digest(format!("{} {firewall} {list}", firewall.len()));
    let word = |at: usize| u32::from_be_bytes([digest[at], digest[at + 1], digest[at + 2], digest[at + 3]]);
    (word(0), word(4))
}

/// How a policy is called beside the rules of its family.
fn policy_name(family: usize, chain: &str) -> String {
    format!("{} policy of {chain}", ["IPv4", "IPv6"][family & 1])
}

/// Flags that do not follow from the rules.
const SWITCHES: u32 = abi::SEGUE_FIREWALL_OFF | abi::SEGUE_FIREWALL_LIBERAL;

fn switches(firewall: &Firewall) -> u32 {
    let mut flags = 0;
    if !firewall.basic {
        flags |= abi::SEGUE_FIREWALL_OFF;
    }
    if firewall.conntrack.tcp_be_liberal {
        flags |= abi::SEGUE_FIREWALL_LIBERAL;
    }
    flags
}

fn flags(firewall: &Firewall, rules: &CompiledRules) -> u32 {
    let mut flags = switches(firewall);
    if rules.state {
        flags |= abi::SEGUE_FIREWALL_STATE;
    }
    if firewall.mode == FirewallMode::Advanced {
        flags |= abi::SEGUE_FIREWALL_ADVANCED;
    }
    if rules.any_label {
        flags |= abi::SEGUE_FIREWALL_ANY_LABEL;
    }
    flags
}

/// The image of a firewall as it lies in the map `classifier`.
pub(crate) fn image_octets(image: &Image, base: u32) -> Vec<u8> {
    image.emit(base).into_iter().flatten().collect()
}
