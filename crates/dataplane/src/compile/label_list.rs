//! Lists of labels (RFC 8660) as the octets that a headend pushes, or that go back on behind a function.

use std::net::IpAddr;

use segue_abi as abi;
use segue_model::label::{ENTROPY_ENTRIES, ENTROPY_INDICATOR, LABELS_MAX, LAST_LABEL};
use segue_model::node::{Pseudowire, SegmentList, TrafficClass, TtlModel};
use zerocopy::FromZeros;

use super::udp::{self, WAY_IPV4};
use super::{CompileError, Compiler, IFINDEX_LIMIT};

/// The bottom of the stack, in an entry in host byte order.
const BOTTOM: u32 = 0x100;

/// What a policy says about all of its lists of labels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Push {
    pub ttl: TtlModel,
    pub hop_limit: u8,
    pub traffic_class: TrafficClass,
    pub entropy_label: bool,
    pub pseudowire: Option<Pseudowire>,
}

/// The map entry of a list of labels, without its indices and counter. `place` names the list in errors.
pub(super) fn label_list(
    compiler: &mut Compiler<'_>,
    how: &Push,
    list: &SegmentList,
    place: &str,
) -> Result<abi::SegmentList, CompileError> {
    let mut entry = stack(how, &list.labels, place)?;
    if let Some(tunnel) = &list.udp {
        udp::of_list(compiler, &mut entry, tunnel, how.hop_limit, place)?;
        return Ok(entry);
    }
    match list.next_hop {
        Some(IpAddr::V6(address)) => entry.first = address.octets(),
        Some(IpAddr::V4(address)) => {
            // In the low word of an address, as the data plane has IPv4 addresses.
            entry.first[8..12].copy_from_slice(&address.octets());
            entry.way = WAY_IPV4;
        }
        None if starts_here(compiler, list) => entry.flags |= abi::SEGUE_LIST_LOCAL as u8,
        None => {
            let problem = "a list of labels needs `next_hop`, unless its first label is one of this node's";
            return Err(CompileError::invalid(place, problem));
        }
    }
    if let Some(port) = &list.port {
        // Without the interface there is no way, and no other one is right.
        entry.oif = compiler.interface(place, port)?.map_or(IFINDEX_LIMIT - 1, |interface| interface.ifindex);
    }
    Ok(entry)
}

/// Whether the first label of a list is one of the node's own, so that what that says finds the way. One that is learned may not be there
/// now: until it comes, packets are dropped as ones with an unknown label.
fn starts_here(compiler: &Compiler<'_>, list: &SegmentList) -> bool {
    let is_own = |first: &u32| compiler.input.state.labels.iter().any(|label| label.label == *first);
    compiler.input.state.learn().is_some() || list.labels.first().is_some_and(is_own)
}

/// The same without a next hop, as what comes back from a function gets it.
pub(super) fn stack(how: &Push, labels: &[u32], place: &str) -> Result<abi::SegmentList, CompileError> {
    let entropy = if how.entropy_label { ENTROPY_ENTRIES } else { 0 };
    let max = LABELS_MAX - entropy;
    if !(1..=max).contains(&labels.len()) {
        return Err(CompileError::Segments { place: place.to_owned(), count: labels.len(), max });
    }
    let count = labels.len() + entropy;
    let mut entry = abi::SegmentList::new_zeroed();
    entry.mode = abi::SEGUE_PUSH as u8;
    entry.kind = abi::SEGUE_HEADER_MPLS as u8;
    entry.segments = count as u8;
    entry.header_length = 4 * count as u16;
    entry.ttl = how.hop_limit;
    let mut flags = 0;
    if how.ttl == TtlModel::Uniform {
        flags |= abi::SEGUE_LIST_TTL_UNIFORM;
    }
    match how.traffic_class {
        TrafficClass::Copy => flags |= abi::SEGUE_LIST_TRAFFIC_CLASS_COPY,
        TrafficClass::Dscp(dscp) => entry.traffic_class = dscp << 2,
    }
    if how.entropy_label {
        flags |= abi::SEGUE_LIST_ENTROPY;
    }
    entry.flags = flags as u8;
    entry.pseudowire = match how.pseudowire {
        None => abi::SEGUE_PSEUDOWIRE_NONE,
        Some(Pseudowire { control_word: false }) => abi::SEGUE_PSEUDOWIRE_FRAME,
        Some(Pseudowire { control_word: true }) => abi::SEGUE_PSEUDOWIRE_CONTROL_WORD,
    } as u8;
    // The data plane makes the entropy label of each packet.
    let all = labels.iter().chain(&[ENTROPY_INDICATOR, 0][..entropy]);
    for (position, (label, octets)) in all.zip(entry.header.chunks_exact_mut(4)).enumerate() {
        if *label > LAST_LABEL {
            return Err(CompileError::invalid(place, format!("{label} is no label: they have 20 bits")));
        }
        let bottom = if position + 1 == count { BOTTOM } else { 0 };
        octets.copy_from_slice(&(label << 12 | bottom).to_be_bytes());
    }
    Ok(entry)
}
