//! What the agent must know about a generation lies beside the maps, in a pinned map of its own, so that it lives exactly as
//! long as they do. JSON in chunks.

use std::path::Path;

use libbpf_rs::libbpf_sys::{BPF_F_NO_PREALLOC, bpf_map_create_opts};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use segue_model::node::NodeState;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Error;
use crate::carried::Carried;
use crate::compiled::Compiled;
use crate::maps::map_error;

/// Name of the map, and of its pin.
pub(crate) const STATE: &str = "state";

const CHUNK: usize = 4096;
/// No generation has this number: the number that was used last lies here.
const LAST: Key = Key { generation: 0, chunk: 0 };
/// At most 1 GiB for both generations, which takes memory only as far as it is used: 100,000 SIDs and as many policies take 200 MB.
const CHUNKS: u32 = 1 << 18;

/// Chunks from this on hold what tables had counted that larger ones have replaced.
const CARRIED: u32 = 1 << 31;

/// What is kept about a generation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub state: NodeState,
    pub compiled: Compiled,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Key {
    generation: u32,
    chunk: u32,
}

/// The map `state`.
#[derive(Debug)]
pub(crate) struct Records(MapHandle);

impl Records {
    pub fn create(path: &Path) -> Result<Self, Error> {
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as _,
            map_flags: BPF_F_NO_PREALLOC,
            ..Default::default()
        };
        let mut map = MapHandle::create(
            MapType::Hash,
            Some("segue_state"),
            size_of::<Key>() as u32,
            CHUNK as u32,
            CHUNKS,
            &options,
        )
        .map_err(map_error(STATE, "create it"))?;
        map.pin(path).map_err(|source| Error::BpfPin { path: path.to_owned(), action: "pin the map", source })?;
        Ok(Self(map))
    }

    /// Pins the same map once more.
    pub fn pin(&self, path: &Path) -> Result<(), Error> {
        let mut again = MapHandle::try_from(&self.0).map_err(map_error(STATE, "take another handle of it"))?;
        again.pin(path).map_err(|source| Error::BpfPin { path: path.to_owned(), action: "pin the map", source })
    }

    pub fn open(path: &Path) -> Option<Self> {
        let map = MapHandle::from_pinned_path(path).ok()?;
        let fits = map.key_size() as usize == size_of::<Key>() && map.value_size() as usize == CHUNK;
        fits.then_some(Self(map))
    }

    /// Keeps the record of the generation in it. On an error a part may be there; [`Records::keep_only`] takes it away.
    pub fn write(&self, record: &Record) -> Result<(), Error> {
        self.write_value(record.compiled.generation, 0, record)
    }

    /// The record of a generation; `None` if there is none that this build understands.
    pub fn read(&self, generation: u32) -> Option<Record> {
        self.read_value(generation, 0).filter(|record: &Record| record.compiled.generation == generation)
    }

    /// Keeps beside a generation's record what the counters of its objects had before their tables grew.
    pub fn write_carried(&self, generation: u32, carried: &Carried) -> Result<(), Error> {
        self.write_value(generation, CARRIED, carried)
    }

    /// What [`Records::write_carried`] has kept.
    pub fn read_carried(&self, generation: u32) -> Option<Carried> {
        self.read_value(generation, CARRIED)
    }

    fn write_value(&self, generation: u32, first: u32, value: &impl Serialize) -> Result<(), Error> {
        // The length goes in front, because the last chunk is filled up with zeros.
        let mut bytes = vec![0; size_of::<u64>()];
        serde_json::to_writer(&mut bytes, value)
            .map_err(|error| Error::State { octets: 0, problem: error.to_string() })?;
        let length = bytes.len() - size_of::<u64>();
        bytes[..size_of::<u64>()].copy_from_slice(&(length as u64).to_ne_bytes());
        if bytes.len() > CHUNK * CHUNKS as usize / 2 {
            return Err(Error::State {
                octets: bytes.len(),
                problem: "too large; use fewer rules or segment lists".into(),
            });
        }
        for (chunk, part) in (first..).zip(bytes.chunks(CHUNK)) {
            let mut value = [0; CHUNK];
            value[..part.len()].copy_from_slice(part);
            let key = Key { generation, chunk };
            self.0.update(key.as_bytes(), &value, MapFlags::ANY).map_err(map_error(STATE, "write an entry"))?;
        }
        Ok(())
    }

    fn read_value<T: DeserializeOwned>(&self, generation: u32, first: u32) -> Option<T> {
        let chunk = |chunk: u32| {
            self.0.lookup(Key { generation, chunk: first + chunk }.as_bytes(), MapFlags::ANY).ok().flatten()
        };
        let mut bytes = chunk(0)?;
        let length = bytes.first_chunk::<8>().map(|octets| u64::from_ne_bytes(*octets))?;
        let length =
            usize::try_from(length).ok()?.checked_add(8).filter(|length| *length <= CHUNK * CHUNKS as usize)?;
        for next in 1..length.div_ceil(CHUNK) as u32 {
            bytes.extend(chunk(next)?);
        }
        serde_json::from_slice(bytes.get(8..length)?).ok()
    }

    /// The generation that packets have met last, be it active yet or not. What they left in caches may be found under its number.
    pub fn last_used(&self) -> Option<u32> {
        let value = self.0.lookup(LAST.as_bytes(), MapFlags::ANY).ok().flatten()?;
        value.first_chunk().map(|octets| u32::from_ne_bytes(*octets))
    }

    /// To be called before packets can meet a generation.
    pub fn use_number(&self, generation: u32) -> Result<(), Error> {
        let mut value = [0; CHUNK];
        value[..4].copy_from_slice(&generation.to_ne_bytes());
        self.0.update(LAST.as_bytes(), &value, MapFlags::ANY).map_err(map_error(STATE, "write an entry"))
    }

    /// Removes everything but the record of `generation`, and which number was used last.
    pub fn keep_only(&self, generation: u32) -> Result<(), Error> {
        let keys: Vec<Key> = self.0.keys().filter_map(|key| Key::read_from_bytes(&key).ok()).collect();
        for key in keys.iter().filter(|key| ![LAST.generation, generation].contains(&key.generation)) {
            self.0.delete(key.as_bytes()).map_err(map_error(STATE, "remove an entry"))?;
        }
        Ok(())
    }
}
