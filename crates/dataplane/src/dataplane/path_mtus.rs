//! Paths that packets do not fit (RFC 2473 section 7.1). The data plane notes what it is told of them, in the map `path_mtus`; here it
//! becomes a limit of the segment list, or of the function that the packets came from, so that the next one is refused where its
//! sender knows it. A limit holds for ten minutes from the last word on it (RFC 8201 section 4): then larger packets are tried again.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use libbpf_rs::{MapCore, MapFlags};
use segue_abi as abi;
use zerocopy::FromBytes;

use super::{Dataplane, Origin};
use crate::Error;
use crate::compile::function_mtu;
use crate::compiled::{Compiled, CompiledList, CompiledSid};
use crate::facts::Interfaces;
use crate::maps::map_error;

const NOTED: &str = "path_mtus";
const LISTS: &str = "segment_lists";
/// How long a limit holds.
const LASTS: Duration = Duration::from_secs(600);
/// No IPv6 link has a smaller MTU (RFC 8200 section 5).
const LEAST: u32 = 1280;
/// Octets of an IPv6 header.
const IPV6: usize = 40;
/// Octets of an SRH in front of its segments; Segments Left, the fourth of them, is not compared, nor the first, what is behind it.
const SRH: usize = 8;

/// What is known of paths.
#[derive(Debug, Default)]
pub(super) struct PathMtus {
    /// How often each row had been written when it was looked at; `None`: never.
    counts: Option<Vec<u32>>,
    /// By the index in `segment_lists`.
    lists: BTreeMap<u32, ListLimit>,
    /// By the SID.
    functions: BTreeMap<Ipv6Net, FunctionLimit>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ListLimit {
    segments: Vec<Ipv6Addr>,
    mtu: u16,
    until: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FunctionLimit {
    mtu: u16,
    /// What the interface takes.
    link: u16,
    /// What is in the maps, unless somebody else has written there since.
    written: u16,
    until: Instant,
}

/// A limit that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathMtu {
    /// What has it.
    pub of: PathMtuOf,
    /// Octets: of a list with its headers, of a function's packets as they go into it.
    pub mtu: u16,
    /// How long it holds unless it is told again.
    pub lasts: Duration,
}

/// What has a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathMtuOf {
    /// A segment list: the policy's name and its position there, from 0.
    List(String, usize),
    /// A SID with a function.
    Function(Ipv6Net),
}

impl Dataplane {
    /// Makes limits of what the data plane was told since the last call, and takes off those that hold no more. To be called every
    /// second or so.
    ///
    /// # Errors
    /// [`Error::Map`]: the next call does the rest.
    pub fn follow_path_mtus(&mut self, interfaces: &Interfaces, now: Instant) -> Result<(), Error> {
        if self.origin == Origin::Replacing || self.unclean {
            return Ok(());
        }
        let Some(active) = self.active.clone() else { return Ok(()) };
        let noted = self.noted()?;
        let mut known = std::mem::take(&mut self.path_mtus);
        let before = known.counts.replace(noted.iter().map(|row| row.count).collect());
        let before = before.or_else(|| (self.origin == Origin::Loaded).then(|| vec![0; noted.len()]));
        let result = match before {
            // Nobody knows how old that is which an agent before this one has found; but its limits are in force.
            None => self.adopt_path_mtus(&mut known, &active.compiled, interfaces, now),
            Some(counts) => {
                let new = noted.iter().zip(counts).filter(|(row, count)| row.count != *count && row.count != 0);
                new.for_each(|(row, _)| known.learn(row, &active.compiled, now));
                Ok(())
            }
        };
        let result = result.and_then(|()| self.enforce_lists(&mut known, &active.compiled, now));
        let result = result.and_then(|()| self.enforce_functions(&mut known, &active.compiled, now));
        self.path_mtus = known;
        result
    }

    /// Forgets what is known of paths, as a data plane does that nobody has used.
    pub(crate) fn forget_path_mtus(&mut self) {
        self.path_mtus = PathMtus::default();
    }

    /// The limits that hold.
    pub fn path_mtus(&self, now: Instant) -> Vec<PathMtu> {
        let Some(active) = self.applied() else { return Vec::new() };
        let mut found = Vec::new();
        for policy in &active.policies {
            for (position, list) in policy.lists.iter().enumerate() {
                if let Some(limit) = self.path_mtus.lists.get(&list.index).filter(|limit| limit.is_of(list)) {
                    let of = PathMtuOf::List(policy.name.clone(), position);
                    found.push(PathMtu { of, mtu: limit.mtu, lasts: limit.until.saturating_duration_since(now) });
                }
            }
        }
        found.extend(self.path_mtus.functions.iter().map(|(sid, limit)| PathMtu {
            of: PathMtuOf::Function(*sid),
            mtu: limit.mtu,
            lasts: limit.until.saturating_duration_since(now),
        }));
        found
    }

    fn noted(&self) -> Result<Vec<abi::PathMtu>, Error> {
        let rows = self.map(NOTED)?.lookup_batch(abi::SEGUE_PATH_MTUS, MapFlags::ANY, MapFlags::ANY);
        let rows = rows.map_err(map_error(NOTED, "read its entries"))?;
        let missing = || Error::MapEntry { map: NOTED.to_owned() };
        rows.map(|(_, octets)| abi::PathMtu::read_from_bytes(&octets).map_err(|_| missing())).collect()
    }

    /// Takes up what another agent has put into the maps.
    fn adopt_path_mtus(
        &self,
        known: &mut PathMtus,
        active: &Compiled,
        interfaces: &Interfaces,
        now: Instant,
    ) -> Result<(), Error> {
        for list in active.policies.iter().flat_map(|policy| &policy.lists).filter(|list| list.labels.is_empty()) {
            let entry: abi::SegmentList = self.maps.read_array(LISTS, list.index)?;
            if entry.mtu != 0 {
                known.lists.insert(list.index, ListLimit::new(list, entry.mtu, now));
            }
        }
        for sid in self.up_to_date(active, |sid| sid.returned().is_some()) {
            let link = interfaces.0.values().find(|link| link.ifindex == sid.entry.oif).map_or(0, function_mtu);
            if sid.entry.function_mtu != 0 && sid.entry.function_mtu < link {
                let written = sid.entry.function_mtu;
                let limit = FunctionLimit { mtu: written, link, written, until: now + LASTS };
                known.functions.insert(sid.prefix, limit);
            }
        }
        Ok(())
    }

    /// SIDs with their entries as they are in the maps.
    fn up_to_date(&self, active: &Compiled, wanted: impl Fn(&CompiledSid) -> bool) -> Vec<CompiledSid> {
        let mut sids: Vec<_> = active.sids.iter().filter(|sid| wanted(sid)).cloned().collect();
        self.life.bring_up_to_date(&self.set, &mut sids);
        sids
    }

    fn enforce_lists(&self, known: &mut PathMtus, active: &Compiled, now: Instant) -> Result<(), Error> {
        if known.lists.is_empty() {
            return Ok(());
        }
        let lists = active.policies.iter().flat_map(|policy| &policy.lists);
        let mut there: BTreeMap<u32, &CompiledList> = lists.map(|list| (list.index, list)).collect();
        there.retain(|index, list| known.lists.get(index).is_some_and(|limit| limit.is_of(list)));
        known.lists.retain(|index, _| there.contains_key(index));
        let mut over = Vec::new();
        for (index, limit) in &known.lists {
            let mut entry: abi::SegmentList = self.maps.read_array(LISTS, *index)?;
            let wanted = if limit.until > now { limit.mtu } else { 0 };
            // An apply has written it anew.
            if entry.mtu != wanted {
                entry.mtu = wanted;
                self.maps.write(LISTS, index, &entry)?;
            }
            over.extend((wanted == 0).then_some(*index));
        }
        known.lists.retain(|index, _| !over.contains(index));
        Ok(())
    }

    fn enforce_functions(&self, known: &mut PathMtus, active: &Compiled, now: Instant) -> Result<(), Error> {
        if known.functions.is_empty() {
            return Ok(());
        }
        let sids = self.up_to_date(active, |sid| known.functions.contains_key(&sid.prefix));
        known.functions.retain(|prefix, _| sids.iter().any(|sid| sid.prefix == *prefix));
        let mut entries = Vec::new();
        for sid in sids {
            let Some(limit) = known.functions.get_mut(&sid.prefix) else { continue };
            let is = sid.entry.function_mtu;
            // The link has come up again, or an apply has written it.
            if is != limit.written && is != 0 {
                limit.link = is;
            }
            let wanted = if limit.until > now { limit.mtu.min(limit.link) } else { limit.link };
            if is != 0 && is != wanted {
                entries.push((sid.prefix, sid.index, abi::Sid { function_mtu: wanted, ..sid.entry }));
            }
        }
        self.life.rewrite(&self.set, &self.maps, &entries)?;
        for (prefix, _, entry) in entries {
            known.functions.entry(prefix).and_modify(|limit| limit.written = entry.function_mtu);
        }
        known.functions.retain(|_, limit| limit.until > now);
        Ok(())
    }
}

impl PathMtus {
    /// What one row says.
    fn learn(&mut self, row: &abi::PathMtu, active: &Compiled, now: Instant) {
        // The smallest MTU of IPv6 is no secret that somebody could tell.
        let mtu = u16::try_from(row.mtu.max(LEAST)).unwrap_or(u16::MAX);
        if row.ifindex != 0 {
            let port = active.ports.iter().find(|port| port.entry.ifindex == row.ifindex);
            let first = port.and_then(|port| active.sids.iter().find(|sid| sid.index == port.entry.proxy));
            let Some(first) = first else { return };
            // Those that share a memory share the port.
            let shared = |sid: &&CompiledSid| sid.entry.scope != 0 && sid.entry.scope == first.entry.scope;
            for sid in active.sids.iter().filter(|sid| sid.index == first.index || shared(sid)) {
                self.limit_function(sid, mtu, now);
            }
            return;
        }
        // Without an SRH: those that have none, or else those that a node before the last has taken theirs off (PSP).
        let exact = active.policies.iter().flat_map(|policy| &policy.lists).any(|list| has_header(row, list));
        let about = |list: &&CompiledList| {
            if exact { has_header(row, list) } else { row.srh_length == 0 && ends(row, list) }
        };
        for policy in &active.policies {
            for list in policy.lists.iter().filter(about) {
                self.limit_list(&policy.name, list, mtu, now);
                // What a static proxy puts on. Its function is the place where the sender still knows the packet.
                let put_on = |sid: &&CompiledSid| {
                    u32::from(sid.entry.behaviour) == abi::SEGUE_END_AS && sid.entry.policy == policy.index
                };
                for sid in active.sids.iter().filter(put_on) {
                    self.limit_function(sid, mtu.saturating_sub(list.entry.header_length), now);
                }
            }
        }
    }

    fn limit_list(&mut self, policy: &str, list: &CompiledList, mtu: u16, now: Instant) {
        let known = self.lists.get(&list.index).filter(|known| known.is_of(list));
        let limit = ListLimit::new(list, known.map_or(mtu, |known| mtu.min(known.mtu)), now);
        if known.is_none_or(|known| known.mtu != limit.mtu) {
            tracing::info!(policy, mtu = limit.mtu, "a node of the path lets no larger packets pass");
        }
        self.lists.insert(list.index, limit);
    }

    fn limit_function(&mut self, sid: &CompiledSid, mtu: u16, now: Instant) {
        let mtu = mtu.max(LEAST as u16);
        let known = self.functions.get(&sid.prefix);
        let limit = FunctionLimit {
            mtu: known.map_or(mtu, |known| mtu.min(known.mtu)),
            link: known.map_or(sid.entry.function_mtu, |known| known.link),
            written: known.map_or(sid.entry.function_mtu, |known| known.written),
            until: now + LASTS,
        };
        if known.is_none_or(|known| known.mtu != limit.mtu) {
            tracing::info!(sid = %sid.prefix, mtu = limit.mtu, "what is larger does not fit the way out of the function");
        }
        self.functions.insert(sid.prefix, limit);
    }
}

impl ListLimit {
    fn new(list: &CompiledList, mtu: u16, now: Instant) -> Self {
        Self { segments: list.segments.clone(), mtu, until: now + LASTS }
    }

    /// Whether that index still has the list that it is about.
    fn is_of(&self, list: &CompiledList) -> bool {
        list.labels.is_empty() && self.segments == list.segments
    }
}

/// Whether a row is about packets to where this list ends.
fn ends(row: &abi::PathMtu, list: &CompiledList) -> bool {
    list.labels.is_empty() && list.segments.last() == Some(&Ipv6Addr::from(row.last))
}

/// Whether packets of this list have the header that a row tells of.
fn has_header(row: &abi::PathMtu, list: &CompiledList) -> bool {
    let header = list.entry.header.get(..usize::from(list.entry.header_length)).unwrap_or_default();
    let length = row.srh_length as usize;
    if !ends(row, list) || header.len() != IPV6 + length {
        return false;
    }
    let (mine, told) = (&header[IPV6..], row.srh.get(..length).unwrap_or_default());
    length == 0 || (mine.len() == told.len() && mine[1..3] == told[1..3] && mine[SRH..] == told[SRH..])
}
