//! Segue's data plane as the engine under test, in the node's namespace.

use std::collections::BTreeMap;
use std::net::IpAddr;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder};
use segue_abi as abi;
use segue_dataplane::{Capabilities, Capacity, Compiled, Interface, Interfaces, MissingInterface, compile};
use segue_model::node::NodeState;
use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::error::{Error, Result};
use crate::netns::Namespace;
use crate::object::{attach, map, program};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/segue.bpf.o"));
const GENERATION: u32 = 1;

/// The data plane of one node.
#[derive(Debug)]
pub struct Node {
    // Before the object, so that the ports go first.
    _links: Vec<Link>,
    pub(crate) object: Object,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Dataplane(error.to_string())
}

/// An interface of a node under test.
#[derive(Debug, Clone, Copy)]
pub struct PortFacts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its link-layer address.
    pub mac: [u8; 6],
    /// Its addresses.
    pub addresses: &'a [IpAddr],
}

impl Node {
    /// Loads the data plane, fills it from `state` and attaches it to all ports.
    ///
    /// # Errors
    /// [`Error::Dataplane`] if the state does not compile, [`Error::Bpf`] if the kernel refuses a program.
    pub fn start(namespace: &Namespace, state: serde_json::Value, ports: &[PortFacts<'_>]) -> Result<Self> {
        let state: NodeState = serde_json::from_value(state).map_err(failed)?;
        let mut interfaces = BTreeMap::new();
        for port in ports {
            let addresses = port.addresses.iter().map(|address| ipnet::IpNet::from(*address)).collect();
            let ifindex = namespace.ifindex(port.name)?;
            interfaces.insert(port.name.to_owned(), Interface { ifindex, mtu: 1500, mac: port.mac, addresses, up: true });
        }
        let interfaces = Interfaces(interfaces);
        let capacity =
            Capacity { sids: 256, policies: 64, segment_lists: 64, steering_rules: 64, steering_prefixes: 64, ports: 64 };
        let compiled = compile(&segue_dataplane::compile::Input {
            state: &state,
            interfaces: &interfaces,
            missing: MissingInterface::Refuse,
            capabilities: &Capabilities { fib_table: true, redirect_multi_buffer: true, hz: 250 },
            capacity: &capacity,
            previous: None,
            generation: GENERATION,
        })
        .map_err(failed)?;
        let _inside = namespace.enter()?;
        let open = ObjectBuilder::default().open_memory(OBJECT).map_err(Error::bpf("open segue.bpf.o"))?;
        let object = open.load().map_err(Error::bpf("load segue.bpf.o"))?;
        fill(&object, &compiled)?;
        let links =
            interfaces.0.values().map(|port| attach(&object, "segue_port", port.ifindex)).collect::<Result<_>>()?;
        Ok(Self { _links: links, object })
    }

    /// What became of packets, by outcome, since the start: all that are not zero.
    ///
    /// # Errors
    /// If the map can not be read.
    pub fn outcomes(&self) -> Result<Vec<(u32, u64)>> {
        let mut found = BTreeMap::new();
        let outcomes = map(&self.object, "outcomes")?;
        for row in 0..256u32 {
            let values = outcomes.lookup_percpu(&row.to_ne_bytes(), MapFlags::ANY).map_err(Error::bpf("read outcomes"))?;
            for value in values.unwrap_or_default() {
                for (outcome, counter) in value.chunks_exact(16).enumerate() {
                    let packets = u64::from_ne_bytes(counter[..8].try_into().unwrap_or_default());
                    if packets > 0 {
                        *found.entry(outcome as u32).or_default() += packets;
                    }
                }
            }
        }
        Ok(found.into_iter().collect())
    }
}

fn put<T: IntoBytes + Immutable>(object: &Object, name: &str, key: &[u8], value: &T) -> Result<()> {
    map(object, name)?.update(key, value.as_bytes(), MapFlags::ANY).map_err(Error::bpf(format!("write the map {name}")))
}

fn fill(object: &Object, compiled: &Compiled) -> Result<()> {
    let slot = GENERATION & 1;
    put(object, "config", &slot.to_ne_bytes(), &compiled.config)?;
    for port in &compiled.ports {
        put(object, "ports", &port.slot(GENERATION).to_ne_bytes(), &port.entry)?;
    }
    for sid in &compiled.sids {
        put(object, "sid_entries", &sid.index.to_ne_bytes(), &sid.entry)?;
        let key = abi::SidKey {
            prefixlen: 32 + u32::from(sid.prefix.prefix_len()),
            generation: GENERATION,
            address: sid.prefix.network().octets(),
        };
        put(object, "sids", key.as_bytes(), &sid.index)?;
    }
    for policy in &compiled.policies {
        put(object, "policies", &policy.index.to_ne_bytes(), &policy.entry)?;
        for list in &policy.lists {
            put(object, "segment_lists", &list.index.to_ne_bytes(), &list.entry)?;
        }
    }
    for steering in &compiled.steering {
        for (index, rule) in (steering.first..).zip(&steering.rules) {
            put(object, "steering_rules", &index.to_ne_bytes(), rule)?;
        }
        let mut key = abi::SteeringKey::new_zeroed();
        key.prefixlen = 64 + u32::from(steering.destination.prefix_len());
        key.generation = GENERATION;
        match steering.destination.network() {
            IpAddr::V4(address) => {
                key.family = 4;
                key.address[..4].copy_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                key.family = 6;
                key.address = address.octets();
            }
        }
        let value = abi::SteeringValue { first: steering.first, count: steering.rules.len() as u32 };
        put(object, "steering", key.as_bytes(), &value)?;
    }
    for (stage, name) in [(0u32, "segue_again"), (1, "segue_icmp"), (2, "segue_access"), (3, "segue_service"), (4, "segue_relay")] {
        if let Ok(program) = program(object, name) {
            use std::os::fd::{AsFd, AsRawFd};
            let fd = program.as_fd().as_raw_fd();
            put(object, "stages", &stage.to_ne_bytes(), &fd)?;
        }
    }
    let mut control = abi::Control::new_zeroed();
    control.abi_version = abi::SEGUE_ABI_VERSION;
    control.generation = GENERATION;
    control.cache_generation = 1;
    put(object, "control", &0u32.to_ne_bytes(), &control)
}
