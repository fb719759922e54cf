//! Programs and maps of a loaded eBPF object, by name.

use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ProgramMut};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Error, Result};

fn missing(what: &str, name: &str) -> Error {
    let reason = format!("no {what} of that name in the object");
    Error::Bpf { what: format!("find {name}"), source: libbpf_rs::Error::from(std::io::Error::other(reason)) }
}

pub(crate) fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>> {
    object.progs_mut().find(|program| program.name() == name).ok_or_else(|| missing("program", name))
}

pub(crate) fn map<'a>(object: &'a Object, name: &str) -> Result<Map<'a>> {
    object.maps().find(|map| map.name() == name).ok_or_else(|| missing("map", name))
}

/// Attaches a program to an interface of the namespace that this thread is in.
pub(crate) fn attach(object: &Object, name: &str, ifindex: u32) -> Result<Link> {
    let index = i32::try_from(ifindex).map_err(|_| Error::Usage(format!("{ifindex} is no interface index")))?;
    program(object, name)?.attach_xdp(index).map_err(Error::bpf(format!("attach {name} to interface {ifindex}")))
}

/// Writes the only entry of an array.
pub(crate) fn update(map: &Map<'_>, name: &str, value: &[u8]) -> Result<()> {
    map.update(&0u32.to_ne_bytes(), value, MapFlags::ANY).map_err(Error::bpf(format!("write the map {name}")))
}

/// The only entry of a per-CPU array, of each CPU.
pub(crate) fn per_cpu<T: FromBytes + KnownLayout + Immutable>(map: &Map<'_>) -> Result<Vec<T>> {
    let name = map.name().to_string_lossy().into_owned();
    let values = map
        .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(Error::bpf(format!("read the map {name}")))?
        .unwrap_or_default();
    let size = size_of::<T>();
    values
        .iter()
        .map(|value| T::read_from_prefix(value).map(|(value, _)| value).ok())
        .collect::<Option<Vec<T>>>()
        .ok_or_else(|| Error::Usage(format!("the map {name} does not hold values of {size} octets")))
}

/// Writes the same value for every CPU into the only entry of a per-CPU array.
pub(crate) fn update_per_cpu<T: IntoBytes + Immutable>(map: &Map<'_>, value: &T) -> Result<()> {
    let name = map.name().to_string_lossy().into_owned();
    let cpus = libbpf_rs::num_possible_cpus().map_err(Error::bpf("count the CPUs"))?;
    let values = vec![value.as_bytes().to_vec(); cpus];
    map.update_percpu(&0u32.to_ne_bytes(), &values, MapFlags::ANY).map_err(Error::bpf(format!("write the map {name}")))
}
