//! What proxies remember: rows of `memories`, and the settings of each SID that has one.

use std::collections::BTreeMap;

use segue_abi as abi;
use segue_model::node::{Behaviour, MayChange, MayRewrite, Memory, OnFailure, OwnTraffic, Sid, UnknownFlow};

use super::allocate::Rows;
use super::error::sid_place;
use super::{CompileError, Compiler, Input};
use crate::facts::{Capacity, Table};

/// Rows of `memories`, by what shares them. A row goes with its return interface and its kind, so that what is remembered
/// stays when the SIDs change. A row may go to another interface once its own has gone: the generation that gave it tells
/// what one has remembered from what the other has.
#[derive(Debug)]
pub(super) struct Scopes {
    rows: Rows<String>,
    names: BTreeMap<String, u32>,
    /// Since which generation each row of the previous generation belongs to whom it does.
    since: BTreeMap<u32, u32>,
    generation: u32,
}

impl Capacity {
    /// Rows of `memories` and `memory_counters`: row 0 is never used, and there are two generations.
    pub(crate) fn memories(&self) -> u32 {
        1 + 2 * self.sids
    }
}

impl Scopes {
    pub fn new(input: &Input<'_>) -> Self {
        let previous = input.previous.map(|previous| previous.scopes.clone()).unwrap_or_default();
        let rows = Rows::new(previous, input.capacity.memories(), Table::Sids, input.capacity.sids);
        let sids = input.previous.map(|previous| previous.sids.as_slice()).unwrap_or_default();
        let since = sids.iter().map(|sid| (sid.entry.scope_row(), (sid.entry.scope >> 32) as u32)).collect();
        Self { rows, names: BTreeMap::new(), since, generation: input.generation }
    }

    fn take(&mut self, name: String, place: &str) -> Result<u64, CompileError> {
        let row = match self.names.get(&name) {
            Some(row) => *row,
            None => self.rows.take(name.clone(), place)?,
        };
        self.names.insert(name, row);
        // What the previous generation does not have is new: its own rows are given to nobody else.
        let since = *self.since.get(&row).unwrap_or(&self.generation);
        Ok(u64::from(row) | u64::from(since) << 32)
    }

    pub fn into_names(self) -> BTreeMap<String, u32> {
        self.names
    }
}

/// How a kind of memory is named beside its return interface. None: nothing is remembered.
fn kind(sid: &Sid) -> Option<&'static str> {
    match (sid.behaviour, sid.memory()) {
        (Behaviour::EndAm, _) => Some("masquerading"),
        (Behaviour::EndAn, _) => Some("aware"),
        (_, Some(Memory::Interface)) => Some("interface"),
        (_, Some(Memory::Flow)) => Some("flow"),
        (_, Some(Memory::Packet)) => Some("packet"),
        (_, None) => None,
    }
}

/// Seconds as the data plane counts them.
pub(super) fn jiffies(compiler: &Compiler<'_>, seconds: u32) -> u32 {
    u32::try_from(u64::from(seconds) * u64::from(compiler.input.capabilities.hz)).unwrap_or(u32::MAX).max(1)
}

/// Fills what a SID does while its function is down.
pub(super) fn fill_failure(sid: &Sid, entry: &mut abi::Sid) -> Result<(), CompileError> {
    entry.failure = match sid.on_failure() {
        OnFailure::Drop | OnFailure::Withdraw => abi::SEGUE_FAILURE_DROP,
        OnFailure::Bypass => abi::SEGUE_FAILURE_BYPASS,
        OnFailure::Reroute => abi::SEGUE_FAILURE_REROUTE,
    } as u8;
    if sid.on_failure() == OnFailure::Reroute {
        let missing = || CompileError::invalid(sid_place(&sid.sid), "`on_failure: reroute` needs `backup`");
        match sid.backup_label().filter(|_| sid.label().is_some()) {
            Some(label) => entry.out_label = label,
            None => entry.backup = sid.backup().ok_or_else(missing)?.octets(),
        }
    }
    Ok(())
}

/// Fills what a SID remembers, by what, and what it does while its function is down. `entry.oif` is known.
pub(super) fn fill(
    compiler: &mut Compiler<'_>,
    sid: &Sid,
    peer_elsewhere: bool,
    entry: &mut abi::Sid,
) -> Result<(), CompileError> {
    let place = sid_place(&sid.sid);
    entry.prefix_length = sid.sid.prefix_len();
    entry.memory = match sid.memory() {
        None => abi::SEGUE_MEMORY_NONE,
        Some(Memory::Interface) => abi::SEGUE_MEMORY_INTERFACE,
        Some(Memory::Flow) => abi::SEGUE_MEMORY_FLOW,
        Some(Memory::Packet) => abi::SEGUE_MEMORY_PACKET,
    } as u8;
    fill_failure(sid, entry)?;
    let Some((_, from)) = sid.function_ports() else { return Ok(()) };
    if let Some(kind) = kind(sid) {
        // What is remembered of labels and of SIDs is never mixed up.
        let of = if sid.label().is_some() { "labels " } else { "" };
        entry.scope = compiler.scopes.take(format!("{from} {of}{kind}"), &place)?;
    }
    entry.hop_limit_margin = sid.hop_limit_margin();
    if sid.memory() == Some(Memory::Flow) {
        entry.flow_timeout = jiffies(compiler, sid.flow_timeout());
    }
    if sid.behaviour == Behaviour::EndAnNf && sid.label().is_none() {
        let room = 128_u8.saturating_sub(sid.sid.prefix_len());
        if sid.argument_length > room.min(32) {
            let problem = format!("an argument of {} bits; at most {} fit", sid.argument_length, room.min(32));
            return Err(CompileError::invalid(place, problem));
        }
        entry.argument_length = sid.argument_length;
    }
    entry.permission = permission(sid) as u8;
    entry.rewrite = rewrite(sid) as u8;
    entry.proxy_flags = flags(sid, peer_elsewhere) as u8;
    Ok(())
}

fn permission(sid: &Sid) -> abi::Permission {
    match sid.proxy.as_ref().and_then(|proxy| proxy.may_change).unwrap_or_default() {
        MayChange::Nothing => abi::SEGUE_MAY_ADVANCE,
        MayChange::InsertNext => abi::SEGUE_MAY_INSERT_NEXT,
        MayChange::Insert => abi::SEGUE_MAY_INSERT,
        MayChange::Replace => abi::SEGUE_MAY_REPLACE,
        MayChange::ReplaceAll => abi::SEGUE_MAY_REPLACE_LAST,
    }
}

fn rewrite(sid: &Sid) -> abi::Rewrite {
    let what = sid.proxy.iter().flat_map(|proxy| &proxy.may_rewrite);
    what.fold(0, |all, one| {
        all | match one {
            MayRewrite::Addresses => abi::SEGUE_REWRITE_ADDRESSES,
            MayRewrite::TrafficClass => abi::SEGUE_REWRITE_TRAFFIC_CLASS,
            MayRewrite::Tlvs => abi::SEGUE_REWRITE_TLVS,
        }
    })
}

fn flags(sid: &Sid, peer_elsewhere: bool) -> abi::ProxyFlags {
    let mut flags = 0;
    if sid.proxy.as_ref().and_then(|proxy| proxy.unknown_flow) == Some(UnknownFlow::Interface) {
        flags |= abi::SEGUE_PROXY_UNKNOWN_TO_INTERFACE;
    }
    if sid.memory() == Some(Memory::Packet) && peer_elsewhere {
        flags |= abi::SEGUE_PROXY_PEER;
    }
    flags |= match sid.own_traffic() {
        OwnTraffic::Route => 0,
        OwnTraffic::Steer => abi::SEGUE_PROXY_OWN_STEER,
        OwnTraffic::Drop => abi::SEGUE_PROXY_OWN_DROP,
    };
    if sid.behaviour == Behaviour::EndAnNf {
        flags |= abi::SEGUE_PROXY_KEEP_HOP_LIMIT;
    }
    flags
}
