//! What is in the maps of a data plane, by its pins.

use std::collections::BTreeMap;
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

/// Keys and values of each map that is not zero; of one for each CPU, its values in turn.
pub type Tables = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// All that the maps pinned anywhere below a directory hold, by their names there. Maps of programs, of events and of constants are
/// left out: they are no content.
///
/// # Panics
/// If a map cannot be read.
pub fn content(directory: &Path) -> Tables {
    let mut tables = Tables::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for path in std::fs::read_dir(&directory).expect("pins").flatten().map(|entry| entry.path()) {
            let Ok(map) = (if path.is_dir() { Err(()) } else { MapHandle::from_pinned_path(&path).map_err(drop) })
            else {
                directories.extend(path.is_dir().then_some(path));
                continue;
            };
            // Programs of several kinds have maps of their own beside those that all have.
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(content) = content_of(&map) {
                tables.entry(name).or_default().extend(content);
            }
        }
    }
    tables
}

fn content_of(map: &MapHandle) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
    let per_cpu = matches!(map.map_type(), MapType::PercpuArray | MapType::PercpuHash | MapType::LruPercpuHash);
    let hash_of_maps = map.map_type() == MapType::HashOfMaps;
    if !per_cpu
        && !hash_of_maps
        && !matches!(map.map_type(), MapType::Array | MapType::Hash | MapType::LruHash | MapType::LpmTrie)
        || map.name().to_string_lossy().contains(".rodata")
    {
        return None;
    }
    let value = |key: &[u8]| match per_cpu {
        true => map.lookup_percpu(key, MapFlags::ANY).expect("a read").map(|values| values.concat()),
        false => map.lookup(key, MapFlags::ANY).expect("a read"),
    };
    let is_array = matches!(map.map_type(), MapType::PercpuArray | MapType::Array);
    let rows = map.keys().filter_map(|key| value(&key).map(|value| (key, value)));
    Some(rows.filter(|(_, value)| !is_array || value.iter().any(|octet| *octet != 0)).collect())
}
