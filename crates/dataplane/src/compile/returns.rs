//! By which ports the packets come that a segment list is put on, so that errors about them find the way back.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use segue_abi as abi;
use segue_model::node::NodeState;
use zerocopy::FromZeros;

use crate::compiled::CompiledReturn;
use crate::facts::Interfaces;

/// Entries of the map `returns`. Last segments to which packets of any port are sent have none; nor have those of more ports than an
/// entry has room for.
pub(super) fn compile(state: &NodeState, interfaces: &Interfaces) -> Vec<CompiledReturn> {
    let mut ports: BTreeMap<Ipv6Addr, BTreeSet<u32>> = BTreeMap::new();
    let mut of_any: BTreeSet<Ipv6Addr> = BTreeSet::new();
    let last: BTreeMap<&str, Vec<Ipv6Addr>> = state
        .policies
        .iter()
        .map(|policy| {
            let last = policy.segment_lists.iter().filter_map(|list| list.segments.last().copied());
            (policy.name.as_str(), last.collect())
        })
        .collect();
    for rule in &state.steering {
        let segments = rule.policy.as_deref().and_then(|policy| last.get(policy)).into_iter().flatten();
        match &rule.ingress {
            None => of_any.extend(segments),
            // A rule of a port that does not exist is left out.
            Some(port) => {
                let Some(interface) = interfaces.get(port) else { continue };
                segments.for_each(|segment| {
                    ports.entry(*segment).or_default().insert(interface.ifindex);
                });
            }
        }
    }
    let fits = |(segment, ports): &(Ipv6Addr, BTreeSet<u32>)| {
        !of_any.contains(segment) && ports.len() <= abi::SEGUE_RETURN_PORTS as usize
    };
    let entry = |(segment, ports): (Ipv6Addr, BTreeSet<u32>)| {
        let mut entry = abi::Return::new_zeroed();
        entry.ports.iter_mut().zip(ports).for_each(|(place, port)| *place = port);
        CompiledReturn { segment, entry }
    };
    ports.into_iter().filter(fits).map(entry).collect()
}
