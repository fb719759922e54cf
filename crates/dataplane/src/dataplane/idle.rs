//! Data planes that others have left ([`segue_host::idle`]), taken instead of loading one, and made what a new one is.

use std::fs;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapType, OpenObject};
use segue_abi as abi;
use segue_host::idle;
use zerocopy::FromZeros;

use super::pins::{self, own_maps};
use super::remove_tree;
use crate::Error;
use crate::map_table;
use crate::maps::{MapSet, map_error};
use crate::object;
use crate::records::STATE;
use crate::shared::clear;

/// Moves the maps of one to `set`, where nothing is, if there is one of this build with tables as large as those of `open`.
pub(super) fn take(set: &Path, open: &OpenObject) -> Result<bool, Error> {
    for candidate in idle::all() {
        let Some(own) = only_set(&candidate) else { continue };
        let alike = maps(&own).is_some_and(|maps| alike(open, &maps));
        // Somebody else may be faster.
        if !alike || fs::rename(&own, set).is_err() {
            continue;
        }
        // Best effort: what is empty is nobody's candidate.
        let _ = fs::remove_dir(&candidate);
        if let Err(error) = make_new(set) {
            tracing::warn!("an idle data plane is of no use: {error}");
            remove_tree(set)?;
            continue;
        }
        return Ok(true);
    }
    Ok(false)
}

fn only_set(pin_dir: &Path) -> Option<PathBuf> {
    let sets = pins::numbered(pin_dir).ok()?;
    let [(_, set)] = sets.as_slice() else { return None };
    Some(set.clone())
}

/// Those that the ABI covers, and those of this build.
fn maps(set: &Path) -> Option<[MapSet; 2]> {
    Some([MapSet::open(set, map_table::shared())?, own_maps(set).ok()?])
}

fn alike(open: &OpenObject, maps: &[MapSet; 2]) -> bool {
    open.maps().all(|own| {
        let Some(name) = object::pin_name(own.name()) else { return true };
        let there = maps.iter().find_map(|maps| maps.get(&name).ok());
        // The kernel chooses the size of those: one entry for each CPU.
        let entries = |entries: u32| own.map_type() == MapType::PerfEventArray || entries == own.max_entries();
        there.is_some_and(|there| {
            there.map_type() == own.map_type()
                && entries(there.max_entries())
                && there.key_size() == own.key_size()
                && there.value_size() == own.value_size()
        })
    })
}

/// Nothing is applied, counted, remembered or cached any more.
fn make_new(set: &Path) -> Result<(), Error> {
    let [shared, own] = maps(set).ok_or_else(|| pins::lost(set))?;
    let control = abi::Control { abi_version: abi::SEGUE_ABI_VERSION, ..abi::Control::new_zeroed() };
    shared.write("control", &0_u32, &control)?;
    for (name, map) in shared.iter().chain(own.iter()) {
        clear(map).map_err(map_error(&name, "clear it"))?;
    }
    let records = MapSet::open(set, [STATE]).ok_or_else(|| pins::lost(set))?;
    clear(records.get(STATE)?).map_err(map_error(STATE, "clear it"))
}
