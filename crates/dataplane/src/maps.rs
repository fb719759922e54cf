//! Access to maps by name, with the ABI's structures as keys and values.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{Error, batch};

/// Rows or entries in one call.
pub(crate) const BATCH: u32 = 4096;

/// Maps that are pinned in one directory, by name.
#[derive(Debug, Default)]
pub(crate) struct MapSet(BTreeMap<String, MapHandle>);

impl MapSet {
    /// Opens all of `names` in `directory`. `None` if one is missing or cannot be opened.
    pub fn open<'a>(directory: &Path, names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let open = |name: &str| Some((name.to_owned(), MapHandle::from_pinned_path(directory.join(name)).ok()?));
        names.into_iter().map(open).collect::<Option<_>>().map(Self)
    }

    /// Opens everything in `directory` but what is in directories of its own.
    pub fn open_all(directory: &Path) -> Option<Self> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory).ok()? {
            let entry = entry.ok()?;
            if !entry.file_type().ok()?.is_dir() {
                names.push(entry.file_name().into_string().ok()?);
            }
        }
        Self::open(directory, names.iter().map(String::as_str))
    }

    pub fn get(&self, name: &str) -> Result<&MapHandle, Error> {
        self.0.get(name).ok_or_else(|| Error::NotInObject { kind: "map", name: name.to_owned() })
    }

    pub fn iter(&self) -> impl Iterator<Item = (String, &MapHandle)> {
        self.0.iter().map(|(name, handle)| (name.clone(), handle))
    }

    pub fn write<K, V>(&self, map: &str, key: &K, value: &V) -> Result<(), Error>
    where
        K: IntoBytes + Immutable + ?Sized,
        V: IntoBytes + Immutable + ?Sized,
    {
        self.get(map)?.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY).map_err(map_error(map, "write an entry"))
    }

    /// Writes many entries, in batches.
    pub fn write_all<K, V>(&self, map: &str, entries: impl IntoIterator<Item = (K, V)>) -> Result<(), Error>
    where
        K: IntoBytes + Immutable,
        V: IntoBytes + Immutable,
    {
        let handle = self.get(map)?;
        let (mut keys, mut values, mut count) = (Vec::new(), Vec::new(), 0);
        for (key, value) in entries {
            keys.extend_from_slice(key.as_bytes());
            values.extend_from_slice(value.as_bytes());
            count += 1;
            if count == BATCH {
                write_batch(handle, map, &keys, &values, count)?;
                keys.clear();
                values.clear();
                count = 0;
            }
        }
        if count > 0 { write_batch(handle, map, &keys, &values, count) } else { Ok(()) }
    }

    /// The value of `key`; `None` if there is none.
    pub fn read<K, V>(&self, map: &str, key: &K) -> Result<Option<V>, Error>
    where
        K: IntoBytes + Immutable + ?Sized,
        V: FromBytes,
    {
        let found = self.get(map)?.lookup(key.as_bytes(), MapFlags::ANY).map_err(map_error(map, "read an entry"))?;
        found.map(|bytes| value(map, &bytes)).transpose()
    }

    /// The octets of the value of `key`; `None` if there is none.
    pub fn read_raw<K: IntoBytes + Immutable>(&self, map: &str, key: &K) -> Result<Option<Vec<u8>>, Error> {
        self.get(map)?.lookup(key.as_bytes(), MapFlags::ANY).map_err(map_error(map, "read an entry"))
    }

    /// The words of these rows of a per-CPU array, which are in ascending order, summed over the CPUs. Read in batches.
    pub fn read_sums(&self, map: &str, rows: &[u32]) -> Result<Sums, Error> {
        /// Rows that nobody asks for but that cost less than another batch.
        const GAP: u32 = 64;
        let handle = self.get(map)?;
        let failed = map_error(map, "read entries");
        let width = (handle.value_size() as usize).div_ceil(size_of::<u64>());
        let end = rows.last().map_or(0, |last| last.saturating_add(1)).min(handle.max_entries());
        let mut sums = Sums { width, words: vec![0; end as usize * width] };
        let mut rest = rows.iter().copied().filter(|row| *row < end).peekable();
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if(|next| *next - last <= GAP && *next - first < BATCH) {
                last = next;
            }
            let values = batch::rows(handle, first, last - first + 1).map_err(|error| failed(error.into()))?;
            let each = values.len() / (last - first + 1) as usize;
            let into = sums.words[first as usize * width..].chunks_exact_mut(width);
            for (sum, of_cpus) in into.zip(values.chunks_exact(each.max(1))) {
                for value in of_cpus.chunks_exact(width) {
                    sum.iter_mut().zip(value).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
                }
            }
        }
        Ok(sums)
    }

    /// Overwrites parts of a map of lines, which is one value: what lies beside them is written again with the same octets. Parts:
    /// their first lines and their octets.
    pub fn write_lines(&self, map: &str, parts: impl Iterator<Item = (u32, Vec<u8>)>) -> Result<(), Error> {
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return Ok(());
        }
        let handle = self.get(map)?;
        let key = 0_u32.to_ne_bytes();
        let missing = || Error::MapEntry { map: map.to_owned() };
        let mut all = handle.lookup(&key, MapFlags::ANY).map_err(map_error(map, "read it"))?.ok_or_else(missing)?;
        for (first_line, octets) in parts {
            let start = first_line as usize * segue_classifier::image::LINE;
            all.get_mut(start..start + octets.len()).ok_or_else(missing)?.copy_from_slice(&octets);
        }
        handle.update(&key, &all, MapFlags::ANY).map_err(map_error(map, "write it"))
    }

    /// The entry `index` of an array map.
    pub fn read_array<V: FromBytes>(&self, map: &str, index: u32) -> Result<V, Error> {
        self.read(map, &index)?.ok_or_else(|| Error::MapEntry { map: map.to_owned() })
    }

    /// The values of all CPUs.
    pub fn read_percpu<V: FromBytes>(&self, map: &str, index: u32) -> Result<Vec<V>, Error> {
        let found = self
            .get(map)?
            .lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)
            .map_err(map_error(map, "read an entry"))?
            .ok_or_else(|| Error::MapEntry { map: map.to_owned() })?;
        found.iter().map(|bytes| value(map, bytes)).collect()
    }

    /// Sets the values of all CPUs to 0.
    pub fn clear_percpu(&self, map: &str, index: u32) -> Result<(), Error> {
        let handle = self.get(map)?;
        let failed = map_error(map, "clear an entry");
        let cpus = match libbpf_rs::num_possible_cpus() {
            Ok(cpus) => cpus,
            Err(error) => return Err(failed(error)),
        };
        let zeros = vec![vec![0; handle.value_size() as usize]; cpus];
        handle.update_percpu(&index.to_ne_bytes(), &zeros, MapFlags::ANY).map_err(failed)
    }

    /// Sets the values of all CPUs of many rows, which are in ascending order, to 0.
    pub fn clear_all(&self, map: &str, rows: &[u32]) -> Result<(), Error> {
        let handle = self.get(map)?;
        rows.chunks(BATCH as usize).try_for_each(|rows| match batch::clear(handle, rows) {
            Ok(()) => Ok(()),
            Err(_) => rows.iter().try_for_each(|row| self.clear_percpu(map, *row)),
        })
    }

    /// Removes an entry; it is no error if there is none.
    pub fn delete<K: IntoBytes + Immutable>(&self, map: &str, key: &K) -> Result<(), Error> {
        match self.get(map)?.delete(key.as_bytes()) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(map_error(map, "remove an entry")(error))
            }
            _ => Ok(()),
        }
    }

    /// All entries of a hash map: one that comes or goes meanwhile may be missed or be there twice.
    pub fn entries<K: FromBytes, V: FromBytes>(&self, map: &str) -> Result<Vec<(K, V)>, Error> {
        // All in one call. The kernel ends a batch before a bucket that does not fit, and libbpf-rs takes a batch that is not full
        // for the last one. Twice the size, because entries that come while it reads may be more than those that go. Memory
        // that nothing is written to costs nothing.
        let handle = self.get(map)?;
        let largest = u32::MAX / handle.key_size().max(handle.value_size()).max(4);
        let batch = handle.max_entries().saturating_mul(2).saturating_add(64).min(largest);
        let entries =
            handle.lookup_batch(batch, MapFlags::ANY, MapFlags::ANY).map_err(map_error(map, "read all entries"))?;
        entries.map(|(key, of_key)| Ok((value(map, &key)?, value(map, &of_key)?))).collect()
    }

    /// All keys of a map.
    pub fn keys<K: FromBytes>(&self, map: &str) -> Result<Vec<K>, Error> {
        self.get(map)?.keys().map(|bytes| value(map, &bytes)).collect()
    }
}

/// Rows of a table of counters, summed over the CPUs; those that were not read are 0.
#[derive(Debug, Clone, Default)]
pub struct Sums {
    width: usize,
    words: Vec<u64>,
}

impl FromIterator<(u32, [u64; 2])> for Sums {
    /// Packets and octets of rows.
    fn from_iter<T: IntoIterator<Item = (u32, [u64; 2])>>(rows: T) -> Self {
        let rows: Vec<_> = rows.into_iter().collect();
        let end = rows.iter().map(|(row, _)| *row as usize + 1).max().unwrap_or(0);
        let mut sums = Self { width: 2, words: vec![0; 2 * end] };
        rows.iter().for_each(|(row, words)| sums.add(*row, words));
        sums
    }
}

impl Sums {
    /// The words of a row.
    pub(crate) fn row(&self, row: u32) -> &[u64] {
        let start = row as usize * self.width;
        self.words.get(start..start + self.width).unwrap_or_default()
    }

    /// Adds what else was counted for a row.
    pub(crate) fn add(&mut self, row: u32, words: &[u64]) {
        let start = row as usize * self.width;
        let sums = self.words.get_mut(start..start + self.width).unwrap_or_default();
        sums.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
    }
}

/// Writes entries, whose keys and values lie behind each other, in one call; in one for each where the kernel has no other for this
/// kind of map, or to see which one it refuses.
pub(crate) fn write_batch(handle: &MapHandle, map: &str, keys: &[u8], values: &[u8], count: u32) -> Result<(), Error> {
    if handle.update_batch(keys, values, count, MapFlags::ANY, MapFlags::ANY).is_ok() {
        return Ok(());
    }
    let failed = map_error(map, "write an entry");
    let mut entries =
        keys.chunks_exact(handle.key_size() as usize).zip(values.chunks_exact(handle.value_size() as usize));
    entries.try_for_each(|(key, value)| handle.update(key, value, MapFlags::ANY).map_err(&failed))
}

/// Rows in the order in which tables are read.
pub(crate) fn ascending(rows: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut rows: Vec<u32> = rows.collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}

fn value<V: FromBytes>(map: &str, bytes: &[u8]) -> Result<V, Error> {
    V::read_from_bytes(bytes).map_err(|_| Error::MapEntry { map: map.to_owned() })
}

pub(crate) fn find_map<'a>(object: &'a Object, name: &str) -> Result<libbpf_rs::Map<'a>, Error> {
    object
        .maps()
        .find(|map| map.name() == name)
        .ok_or_else(|| Error::NotInObject { kind: "map", name: name.to_owned() })
}

/// Turns libbpf's error into one that names the map.
pub(crate) fn map_error(map: &str, action: &'static str) -> impl Fn(libbpf_rs::Error) -> Error {
    let map = map.to_owned();
    move |source| Error::Map { map: map.clone(), action, source }
}
