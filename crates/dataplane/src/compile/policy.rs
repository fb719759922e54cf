//! SR policies and their segment lists; the lists of End.AS proxies are policies too.

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv6Addr;

use segue_abi as abi;
use segue_model::node::{
    Behaviour, HeadendMode, InnerType, LabelBehaviour, NodeState, Policy, SegmentList, Sid, TrafficClass,
};
use zerocopy::FromZeros;

use super::allocate::Indices;
use super::bucket::{buckets, consistent};
use super::error::sid_place;
use super::label_list::{Push, label_list, stack};
use super::template::{Encapsulation, segment_list};
use super::{CompileError, Compiler, counter_name, repetition};
use crate::compiled::{CompiledList, CompiledPolicy};
use crate::facts::Table;

/// Hop limit of what an End.AS proxy puts on (RFC 8986 leaves it to the operator; the model has no setting for it).
const PROXY_HOP_LIMIT: u8 = 64;

/// Lists of one policy: the entries of `list` in [`abi::Policy`].
const LISTS_MAX: usize = 16;

/// The configured policies.
pub(super) type PoliciesByName<'a> = HashMap<&'a str, &'a Policy>;

/// The compiled policies, and how to find the one that something refers to.
#[derive(Debug)]
pub(super) struct Policies {
    all: Vec<CompiledPolicy>,
    indices: HashMap<String, u32>,
}

impl Policies {
    /// Index of the policy of this name, as an operator writes it.
    pub fn index(&self, name: &str, place: &str) -> Result<u32, CompileError> {
        let missing = || CompileError::PolicyUnknown { place: place.to_owned(), name: name.to_owned() };
        self.indices.get(name).copied().ok_or_else(missing)
    }

    pub fn into_compiled(self) -> Vec<CompiledPolicy> {
        self.all
    }
}

/// A policy before it has indices.
struct Definition<'a> {
    name: String,
    place: String,
    how: Encapsulation,
    lists: Vec<List<'a>>,
    spread: Spread,
    /// Octets of the largest packet that TCP connections may be opened for; 0: any.
    clamp: u16,
}

/// A list, with its weight.
#[derive(Clone, Copy)]
enum List<'a> {
    Sids(u32, &'a [Ipv6Addr]),
    Labels(&'a SegmentList, Push),
    /// What goes back on behind a function: its labels lead on by themselves.
    Rest(&'a [u32], Push),
}

impl<'a> List<'a> {
    fn weight(self) -> u32 {
        match self {
            Self::Sids(weight, _) => weight,
            Self::Labels(list, _) => list.weight,
            Self::Rest(..) => 1,
        }
    }

    fn sids(self) -> &'a [Ipv6Addr] {
        match self {
            Self::Sids(_, segments) => segments,
            Self::Labels(..) | Self::Rest(..) => &[],
        }
    }
}

/// Whether some policy pushes labels.
pub(super) fn pushes(state: &NodeState) -> bool {
    state.policies.iter().any(|policy| policy.mode == HeadendMode::Push)
}

/// How flows are spread over the lists.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spread {
    /// In shares by weight.
    ByWeight,
    /// Few change when a list comes or goes.
    Consistently,
}

/// Name of the policy whose only list an End.AS proxy puts back.
pub(super) fn proxy_policy(sid: &Sid) -> String {
    match sid.label() {
        Some(label) => rest_policy(label),
        None => format!("End.AS {}", sid.sid),
    }
}

fn rest_policy(label: u32) -> String {
    format!("static_proxy {label}")
}

/// The lists that static proxies behind labels put back.
fn rests(state: &NodeState) -> impl Iterator<Item = Definition<'_>> {
    let push = Push {
        ttl: state.mpls.as_ref().map(|mpls| mpls.ttl).unwrap_or_default(),
        hop_limit: PROXY_HOP_LIMIT,
        traffic_class: TrafficClass::Copy,
        entropy_label: false,
        pseudowire: None,
    };
    state.labels.iter().filter(|label| label.behaviour == LabelBehaviour::StaticProxy).filter_map(move |label| {
        let labels = label.proxy.as_ref()?.labels.as_slice();
        (!labels.is_empty()).then(|| Definition {
            name: rest_policy(label.label),
            place: format!("label {}, labels", label.label),
            how: Encapsulation {
                mode: HeadendMode::Push,
                source: state.source_address,
                hop_limit: PROXY_HOP_LIMIT,
                traffic_class: TrafficClass::Copy,
            },
            lists: vec![List::Rest(labels, push)],
            spread: Spread::ByWeight,
            clamp: 0,
        })
    })
}

/// Name of the policy whose lists lead to the instances of a function.
pub(super) fn instances_policy(sid: &Sid) -> String {
    match sid.label() {
        Some(label) => format!("instances label {label}"),
        None => format!("instances {}", sid.sid),
    }
}

/// The lists that lead to the instances of a function, if there are several.
fn instances<'a>(state: &NodeState, sid: &'a Sid) -> Option<Definition<'a>> {
    let members = sid.instances()?;
    Some(Definition {
        name: instances_policy(sid),
        place: format!("{}, instances", sid_place(&sid.sid)),
        // Of the lists only the first segment is used.
        how: Encapsulation {
            mode: HeadendMode::HEncapsRed,
            source: state.source_address,
            hop_limit: PROXY_HOP_LIMIT,
            traffic_class: TrafficClass::Copy,
        },
        lists: members.iter().map(|member| List::Sids(1, std::slice::from_ref(member))).collect(),
        spread: Spread::Consistently,
        clamp: 0,
    })
}

/// Name of the policy that an End.B6.Encaps or End.B6.Encaps.Red SID uses: the operator's, or a variant of it where the
/// SID's behaviour asks for the other kind of SRH.
pub(super) fn endpoint_policy(policies: &PoliciesByName<'_>, sid: &Sid) -> Result<String, CompileError> {
    let place = sid_place(&sid.sid);
    let Some(name) = &sid.policy else {
        return Err(CompileError::invalid(place, format!("{} needs `policy`", sid.behaviour.name())));
    };
    let Some(policy) = policies.get(name.as_str()) else {
        return Err(CompileError::PolicyUnknown { place, name: name.clone() });
    };
    match endpoint_mode(sid.behaviour) {
        None if policy.mode == HeadendMode::Push && !policy.carries_frames() => Ok(name.clone()),
        None => Err(CompileError::invalid(place, format!("policy {name} pushes no labels; choose one that does"))),
        Some(mode) if mode == policy.mode => Ok(name.clone()),
        Some(HeadendMode::HEncaps) if policy.mode == HeadendMode::HEncapsRed => Ok(format!("{name} (H.Encaps)")),
        Some(HeadendMode::HEncapsRed) if policy.mode == HeadendMode::HEncaps => Ok(format!("{name} (H.Encaps.Red)")),
        _ => Err(CompileError::invalid(
            place,
            format!("policy {name} does not encapsulate IP packets; choose one that does"),
        )),
    }
}

fn endpoint_mode(behaviour: Behaviour) -> Option<HeadendMode> {
    match behaviour {
        Behaviour::EndB6Encaps => Some(HeadendMode::HEncaps),
        Behaviour::EndB6EncapsRed => Some(HeadendMode::HEncapsRed),
        _ => None,
    }
}

pub(super) fn compile(compiler: &mut Compiler<'_>) -> Result<Policies, CompileError> {
    let input = compiler.input;
    let services = input.state.services();
    let definitions = definitions(input.state, &services, &compiler.policies)?;
    let previous = input.previous.map(|previous| previous.policies.as_slice()).unwrap_or_default();
    for Definition { name, lists, .. } in &definitions {
        if lists.len() > LISTS_MAX {
            return Err(CompileError::Lists { policy: name.clone(), count: lists.len(), max: LISTS_MAX });
        }
    }
    let lists: usize = definitions.iter().map(|definition| definition.lists.len()).sum();
    compiler.check_room(Table::Policies, definitions.len(), input.capacity.policies, "policies")?;
    compiler.check_room(Table::SegmentLists, lists, input.capacity.segment_lists, "policies")?;
    let mut allocator = Allocator::new(compiler, previous);
    let mut compiled = Vec::new();
    for definition in &definitions {
        compiled.push(allocator.policy(definition)?);
    }
    let indices = compiled.iter().map(|policy| (policy.name.clone(), policy.index)).collect();
    Ok(Policies { all: compiled, indices })
}

/// `services`: those of labels.
fn definitions<'a>(
    state: &'a NodeState,
    services: &'a [Sid],
    policies: &PoliciesByName<'a>,
) -> Result<Vec<Definition<'a>>, CompileError> {
    let mut definitions: Vec<Definition<'_>> =
        state.policies.iter().map(|policy| configured(state, policy, policy.name.clone(), policy.mode)).collect();
    definitions.extend(rests(state));
    definitions.extend(state.sids.iter().chain(services).filter_map(|sid| instances(state, sid)));
    let mut variants = BTreeSet::new();
    for sid in state.sids.iter().filter(|sid| sid.instances().is_none()) {
        if let Some(proxy) = sid.proxy.as_ref().filter(|_| sid.behaviour == Behaviour::EndAs) {
            definitions.push(Definition {
                name: proxy_policy(sid),
                place: format!("{}, segments", sid_place(&sid.sid)),
                how: Encapsulation {
                    mode: match (proxy.inner.contains(&InnerType::Ethernet), proxy.reduced) {
                        (false, true) => HeadendMode::HEncapsRed,
                        (false, false) => HeadendMode::HEncaps,
                        (true, true) => HeadendMode::HEncapsL2Red,
                        (true, false) => HeadendMode::HEncapsL2,
                    },
                    source: proxy.source_address.unwrap_or(state.source_address),
                    hop_limit: PROXY_HOP_LIMIT,
                    traffic_class: TrafficClass::Copy,
                },
                lists: vec![List::Sids(1, proxy.segments.as_slice())],
                spread: Spread::ByWeight,
                clamp: 0,
            });
        }
        if let Some(mode) = endpoint_mode(sid.behaviour) {
            let name = endpoint_policy(policies, sid)?;
            let configured_name = sid.policy.as_deref().unwrap_or_default();
            let policy = policies.get(configured_name);
            if let Some(policy) = policy.filter(|_| name != configured_name && variants.insert(name.clone())) {
                definitions.push(configured(state, policy, name, mode));
            }
        }
    }
    let mut names = BTreeSet::new();
    match definitions.iter().find(|definition| !names.insert(&definition.name)) {
        Some(twice) => Err(CompileError::Duplicate { place: twice.place.clone() }),
        None => Ok(definitions),
    }
}

fn configured<'a>(state: &NodeState, policy: &'a Policy, name: String, mode: HeadendMode) -> Definition<'a> {
    let push = Push {
        ttl: policy.ttl,
        hop_limit: policy.hop_limit,
        traffic_class: policy.traffic_class,
        entropy_label: policy.entropy_label,
        pseudowire: policy.pseudowire,
    };
    Definition {
        place: format!("policy {name}"),
        name,
        how: Encapsulation {
            mode,
            source: policy.source_address.unwrap_or(state.source_address),
            hop_limit: policy.hop_limit,
            traffic_class: policy.traffic_class,
        },
        lists: policy
            .segment_lists
            .iter()
            .map(|list| match policy.mode {
                HeadendMode::Push => List::Labels(list, push),
                _ => List::Sids(list.weight, list.segments.as_slice()),
            })
            .collect(),
        spread: Spread::ByWeight,
        clamp: policy.mss_clamp.unwrap_or(0),
    }
}

struct Allocator<'a, 'b> {
    compiler: &'a mut Compiler<'b>,
    previous: HashMap<&'b str, &'b CompiledPolicy>,
    policies: Indices,
    lists: Indices,
}

impl<'a, 'b> Allocator<'a, 'b> {
    fn new(compiler: &'a mut Compiler<'b>, previous: &'b [CompiledPolicy]) -> Self {
        let capacity = compiler.input.capacity;
        let used = previous.iter().map(|policy| policy.index);
        let policies = Indices::new(0, 2 * capacity.policies, used, Table::Policies, capacity.policies);
        let used = previous.iter().flat_map(|policy| policy.lists.iter().map(|list| list.index));
        let lists = Indices::new(0, 2 * capacity.segment_lists, used, Table::SegmentLists, capacity.segment_lists);
        let previous = previous.iter().map(|policy| (policy.name.as_str(), policy)).collect();
        Self { compiler, previous, policies, lists }
    }

    /// A policy and its lists keep their indices together or not at all: a list names its policy.
    fn policy(&mut self, definition: &Definition<'_>) -> Result<CompiledPolicy, CompileError> {
        let mut policy = self.without_indices(definition)?;
        if let Some(same) = self.previous.get(policy.name.as_str()).filter(|previous| neutral(previous) == policy) {
            return Ok((*same).clone());
        }
        policy.index = self.policies.take(&definition.place)?;
        for (position, list) in policy.lists.iter_mut().enumerate() {
            list.index = self.lists.take(&definition.place)?;
            list.entry.policy = policy.index;
            policy.entry.list[position] = list.index;
        }
        Ok(policy)
    }

    fn without_indices(&mut self, definition: &Definition<'_>) -> Result<CompiledPolicy, CompileError> {
        let Definition { name, place, how, lists, spread, clamp } = definition;
        let mut entry = abi::Policy::new_zeroed();
        if let Some(list) = lists.iter().position(|list| list.weight() == 0) {
            return Err(CompileError::Weight { policy: name.clone(), list: list + 1 });
        }
        let weights: Vec<u32> = lists.iter().map(|list| list.weight()).collect();
        entry.lists = lists.len() as u32;
        entry.bucket = match spread {
            Spread::ByWeight => buckets(&weights),
            Spread::Consistently => {
                consistent(&lists.iter().map(|list| list.sids().first().map_or(0, number)).collect::<Vec<_>>())
            }
        };
        let mut compiled: Vec<CompiledList> = Vec::new();
        for (position, one) in lists.iter().enumerate() {
            let list_place = format!("{place}, list {}", position + 1);
            let segments = one.sids();
            let repetition = repetition(&compiled, segments);
            let (mut list, labels, row) = match one {
                List::Sids(..) => {
                    let row = counter_name::list(name, segments, repetition);
                    (segment_list(how, segments, &list_place)?, Vec::new(), row)
                }
                List::Labels(list, push) => {
                    let row = counter_name::labels(name, &list.labels, repetition);
                    (label_list(self.compiler, push, list, &list_place)?, list.labels.clone(), row)
                }
                List::Rest(labels, push) => {
                    let row = counter_name::labels(name, labels, repetition);
                    (stack(push, labels, &list_place)?, labels.to_vec(), row)
                }
            };
            list.clamp = *clamp;
            list.counter = self.compiler.counters.take(row, place)?;
            compiled.push(CompiledList { index: 0, segments: segments.to_vec(), labels, entry: list });
        }
        Ok(CompiledPolicy { name: name.clone(), index: 0, entry, lists: compiled })
    }
}

/// The number of an instance: the last 32 bits of its SID.
fn number(sid: &Ipv6Addr) -> u32 {
    let [.., a, b, c, d] = sid.octets();
    u32::from_be_bytes([a, b, c, d])
}

/// The policy as it is before it has indices: what tells whether it has changed.
fn neutral(policy: &CompiledPolicy) -> CompiledPolicy {
    let mut neutral = policy.clone();
    neutral.index = 0;
    neutral.entry.list = [0; 16];
    for list in &mut neutral.lists {
        list.index = 0;
        list.entry.policy = 0;
    }
    neutral
}
