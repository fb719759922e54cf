//! Labels (RFC 8660): entries beside those of SIDs.

use std::net::IpAddr;

use segue_abi as abi;
use segue_model::label::{IMPLICIT_NULL, LAST_LABEL};
use segue_model::node::{Label, LabelBehaviour};
use segue_model::service_label::{key_instance, key_label};
use segue_model::udp::UDP_HOP_LIMIT;
use zerocopy::FromZeros;

use super::allocate::Indices;
use super::policy::Policies;
use super::{CompileError, Compiler, counter_name, udp};
use crate::compiled::{CompiledLabel, CompiledSid};

/// Explicit null of IPv4 and IPv6 (RFC 3032 section 2.1), which a node with labels always takes.
const EXPLICIT_NULLS: [(u32, abi::Inner); 2] = [(0, abi::SEGUE_INNER_IPV4), (2, abi::SEGUE_INNER_IPV6)];

/// The entries of all labels in ascending order, without indices.
pub(super) fn entries(compiler: &mut Compiler<'_>, policies: &Policies) -> Result<Vec<CompiledLabel>, CompileError> {
    if !compiler.input.state.knows_labels() {
        return Ok(Vec::new());
    }
    let labels = &compiler.input.state.labels;
    let mut entries = Vec::new();
    for (label, inner) in EXPLICIT_NULLS {
        let mut entry = empty(abi::SEGUE_LABEL_NODE);
        entry.inner = inner as u8;
        entry.counter = compiler.counters.take(counter_name::label(label), &place(label))?;
        entries.push(CompiledLabel { label, instance: 0, index: 0, entry });
    }
    for label in labels.iter().filter(|label| label.behaviour.of_sid().is_none()) {
        let paths = entries_of(compiler, policies, label)?.into_iter().zip(0_u32..);
        entries.extend(paths.map(|(entry, path)| CompiledLabel {
            label: label.label | path << abi::SEGUE_LABEL_PATH_SHIFT,
            instance: 0,
            index: 0,
            entry,
        }));
    }
    if compiler.input.state.mpls.as_ref().is_some_and(|mpls| mpls.allow_inner_sid) {
        entries.iter_mut().for_each(|label| label.entry.flags |= abi::SEGUE_SID_ALLOW_INNER_SID as u8);
    }
    sorted(entries)
}

fn sorted(mut labels: Vec<CompiledLabel>) -> Result<Vec<CompiledLabel>, CompileError> {
    labels.sort_by_key(CompiledLabel::key);
    match labels.windows(2).find(|pair| pair[0].key() == pair[1].key()) {
        Some(pair) => Err(CompileError::Duplicate { place: place(pair[0].label) }),
        None => Ok(labels),
    }
}

/// Makes the entry of a SID with a function that of a label with the same function.
pub(super) fn behind_label(entry: &mut abi::Sid) {
    entry.kind = abi::SEGUE_HEADER_MPLS as u8;
    entry.behaviour = match u32::from(entry.behaviour) {
        abi::SEGUE_END_AS => abi::SEGUE_LABEL_STATIC,
        abi::SEGUE_END_AN if entry.firewall == 0 => abi::SEGUE_LABEL_AWARE,
        abi::SEGUE_END_AN => abi::SEGUE_LABEL_FIREWALL,
        abi::SEGUE_END_INSTANCES => abi::SEGUE_LABEL_INSTANCES,
        _ => abi::SEGUE_LABEL_DYNAMIC,
    } as u8;
    if matches!(u32::from(entry.behaviour), abi::SEGUE_LABEL_FIREWALL | abi::SEGUE_LABEL_AWARE) {
        entry.inner = (abi::SEGUE_INNER_IPV4 | abi::SEGUE_INNER_IPV6) as u8;
    }
}

/// The labels that lead to functions: their entries are among those of SIDs, with which all that functions need is done.
pub(super) fn add_services(labels: &mut Vec<CompiledLabel>, sids: &[CompiledSid]) -> Result<(), CompileError> {
    let services = sids.iter().filter(|sid| u32::from(sid.entry.kind) == abi::SEGUE_HEADER_MPLS);
    labels.extend(services.filter_map(|sid| {
        let (label, instance) = (key_label(&sid.prefix)?, key_instance(&sid.prefix));
        Some(CompiledLabel { label, instance, index: sid.index, entry: sid.entry })
    }));
    *labels = sorted(std::mem::take(labels))?;
    Ok(())
}

/// The same with their indices: those that they had if nothing of them differs.
pub(super) fn indexed(
    mut labels: Vec<CompiledLabel>,
    known: &[CompiledLabel],
    indices: &mut Indices,
) -> Result<Vec<CompiledLabel>, CompileError> {
    for label in &mut labels {
        let same = known.binary_search_by_key(&label.key(), CompiledLabel::key).ok().map(|at| &known[at]);
        label.index = match same.filter(|same| same.entry == label.entry) {
            Some(same) => same.index,
            None => indices.take(&place(label.label))?,
        };
    }
    Ok(labels)
}

fn place(label: u32) -> String {
    format!("label {label}")
}

fn empty(behaviour: abi::Behaviour) -> abi::Sid {
    let mut entry = abi::Sid::new_zeroed();
    entry.behaviour = behaviour as u8;
    entry.kind = abi::SEGUE_HEADER_MPLS as u8;
    entry.policy = abi::SEGUE_NONE;
    entry.inner = (abi::SEGUE_INNER_IPV4 | abi::SEGUE_INNER_IPV6) as u8;
    entry
}

/// The entries of a label's paths, mostly one; none if the port that it needs is left out, or another kind of entry is for it.
fn entries_of(compiler: &mut Compiler<'_>, policies: &Policies, label: &Label) -> Result<Vec<abi::Sid>, CompileError> {
    let place = place(label.label);
    let out = label.out.unwrap_or(label.label);
    if label.label > LAST_LABEL || out > LAST_LABEL {
        return Err(CompileError::invalid(place, "a label has 20 bits"));
    }
    let mut entry = empty(match label.behaviour {
        LabelBehaviour::Node => abi::SEGUE_LABEL_NODE,
        LabelBehaviour::Swap | LabelBehaviour::ExplicitNull => abi::SEGUE_LABEL_SWAP,
        LabelBehaviour::Pop | LabelBehaviour::Adjacency => abi::SEGUE_LABEL_POP,
        LabelBehaviour::Table => abi::SEGUE_LABEL_TABLE,
        LabelBehaviour::NextHop => abi::SEGUE_LABEL_NEXT_HOP,
        LabelBehaviour::Binding => abi::SEGUE_LABEL_BINDING,
        LabelBehaviour::Pseudowire => abi::SEGUE_LABEL_PSEUDOWIRE,
        LabelBehaviour::StaticProxy
        | LabelBehaviour::DynamicProxy
        | LabelBehaviour::SrAware
        | LabelBehaviour::Netfilter
        | LabelBehaviour::Firewall => return Ok(Vec::new()),
    });
    entry.table = compiler.table(label.table, &place)?;
    entry.out_label = out;
    if label.behaviour == LabelBehaviour::Binding {
        let Some(policy) = &label.policy else { return Err(CompileError::invalid(place, "binding needs `policy`")) };
        entry.policy = policies.index(policy, &place)?;
    }
    if label.behaviour == LabelBehaviour::Pseudowire {
        if label.port.is_none() {
            return Err(CompileError::invalid(place, "pseudowire needs `port`"));
        }
        entry.inner = abi::SEGUE_INNER_ETHERNET as u8;
        if label.control_word.unwrap_or(true) {
            entry.flags |= abi::SEGUE_SID_CONTROL_WORD as u8;
        }
    }
    if label.behaviour == LabelBehaviour::ExplicitNull {
        entry.flags |= abi::SEGUE_SID_EXPLICIT_NULL as u8;
    }
    let mut entries = Vec::new();
    if let Some(tunnel) = &label.udp {
        if matches!(label.behaviour, LabelBehaviour::Pop | LabelBehaviour::Adjacency) {
            entry.out_label = IMPLICIT_NULL;
        }
        udp::of_label(compiler, &mut entry, tunnel, UDP_HOP_LIMIT, &place)?;
        entries.push(entry);
    } else if label.paths.is_empty() {
        entries.extend(by_path(compiler, entry, label, label.next_hop, label.port.as_deref())?);
    }
    for path in &label.paths {
        let mut entry = entry;
        match path.out {
            Some(IMPLICIT_NULL) => entry.behaviour = abi::SEGUE_LABEL_POP as u8,
            Some(out) if out > LAST_LABEL => return Err(CompileError::invalid(place, "a label has 20 bits")),
            out => entry.out_label = out.unwrap_or(entry.out_label),
        }
        entries.extend(by_path(compiler, entry, label, Some(path.next_hop), path.port.as_deref())?);
    }
    if entries.len() > abi::SEGUE_LABEL_PATHS_MAX as usize {
        return Err(CompileError::invalid(place, "these are too many paths"));
    }
    if !entries.is_empty() {
        let counter = compiler.counters.take(counter_name::label(label.label), &place)?;
        entries.iter_mut().for_each(|entry| entry.counter = counter);
    }
    if let several @ 2.. = entries.len() {
        entries[0].table = several as u32;
    }
    Ok(entries)
}

/// The entry with its next hop. `None` if the port is left out.
fn by_path(
    compiler: &mut Compiler<'_>,
    mut entry: abi::Sid,
    label: &Label,
    next_hop: Option<IpAddr>,
    port: Option<&str>,
) -> Result<Option<abi::Sid>, CompileError> {
    let place = place(label.label);
    match next_hop {
        Some(IpAddr::V6(address)) => entry.next_hop = address.octets(),
        Some(IpAddr::V4(address)) => entry.next_hop_ipv4 = u32::from_ne_bytes(address.octets()),
        None if label.behaviour.has_next_hop() => {
            return Err(CompileError::invalid(place, format!("{} needs `next_hop`", label.behaviour.name())));
        }
        None => {}
    }
    if label.behaviour == LabelBehaviour::NextHop {
        let family = if entry.next_hop_ipv4 != 0 { abi::SEGUE_INNER_IPV4 } else { abi::SEGUE_INNER_IPV6 };
        entry.inner = family as u8;
    }
    if let Some(port) = port {
        let Some(interface) = compiler.interface(&place, port)? else { return Ok(None) };
        entry.oif = interface.ifindex;
    }
    Ok(Some(entry))
}
