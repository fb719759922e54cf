//! A data plane, a kernel and a store in memory, of which any one operation can be made to fail.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use ipnet::Ipv6Net;
use segue_dataplane::{Interface, Interfaces, MissingInterface};
use segue_model::node::{NodeState, Vlan};

use super::Agent;
use crate::{
    kernel::{Boundary, Kernel, KernelError, KernelHmacKey, RouteTarget, SidRoute},
    plane::{Activated, DataPlane},
    problem::Problem,
    store::{Applied, Store},
};

/// What can be seen from outside: must be as before after a failed apply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct World {
    pub routes: BTreeMap<Ipv6Net, RouteTarget>,
    pub sysctls: BTreeMap<String, String>,
    pub keys: BTreeMap<u32, KernelHmacKey>,
    pub boundary: Option<Boundary>,
    /// Links that were made, with what they are on.
    pub vlans: BTreeMap<String, Vlan>,
    pub plane: Option<NodeState>,
    pub record: Option<Applied>,
}

/// The world, and what goes wrong in it.
#[derive(Default)]
pub struct Inner {
    pub world: World,
    pub links: Interfaces,
    /// Routes of others to these prefixes.
    pub foreign: Vec<Ipv6Net>,
    /// The kernel has no seg6local.
    pub no_seg6local: bool,
    /// Fails the change with this number, counted from 0.
    pub fail_at: Option<usize>,
    pub changes: usize,
    pub bumps: usize,
    /// Times that the data plane was told which links are up, and nothing else.
    pub followed: usize,
    /// Calls that changed many routes.
    pub batches: usize,
    /// What was made for functions: only in these namespaces, or all.
    pub made: Vec<Option<BTreeSet<String>>>,
    /// SIDs of failed functions.
    pub down: BTreeSet<Ipv6Net>,
}

/// A handle on the world; plays all three parts.
#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<Inner>>);

pub type FakeAgent = Agent<Fake, Fake, Fake>;

impl Fake {
    /// A world with these interfaces, all up, and with the sysctls that every kernel has.
    pub fn new(links: &[&str]) -> Self {
        let fake = Self::default();
        for (index, name) in (2..).zip(links) {
            fake.lock().links.0.insert((*name).to_owned(), interface(index));
        }
        for name in ["net/ipv6/conf/all/forwarding", "net/ipv4/ip_forward", "net/ipv6/conf/all/seg6_enabled"] {
            fake.lock().world.sysctls.insert(name.to_owned(), "0".to_owned());
        }
        for link in links {
            for name in ["seg6_enabled", "seg6_require_hmac"] {
                fake.lock().world.sysctls.insert(format!("net/ipv6/conf/{link}/{name}"), "0".to_owned());
            }
        }
        fake
    }

    pub fn agent(&self) -> FakeAgent {
        Agent::new(self.clone(), self.clone(), self.clone()).unwrap()
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    pub fn world(&self) -> World {
        self.lock().world.clone()
    }

    /// Every change passes here.
    fn change(&self, what: &str) -> Result<MutexGuard<'_, Inner>, KernelError> {
        let mut inner = self.lock();
        let number = inner.changes;
        inner.changes += 1;
        if inner.fail_at == Some(number) {
            return Err(error(what, nix::libc::ENOMEM));
        }
        Ok(inner)
    }
}

pub fn interface(ifindex: u32) -> Interface {
    Interface {
        ifindex,
        mtu: 1500,
        mac: [2, 0, 0, 0, 0, 1],
        addresses: Vec::new(),
        up: true,
        peer_elsewhere: false,
        vrf: None,
        ruled: false,
        hook: segue_dataplane::Hook::default(),
        takes_frames: true,
    }
}

fn error(what: &str, errno: i32) -> KernelError {
    KernelError {
        action: what.to_owned(),
        errno: Some(errno),
        cause: io::Error::from_raw_os_error(errno).to_string(),
        remedy: "none: it is a test".to_owned(),
    }
}

impl Kernel for Fake {
    fn links(&mut self) -> Result<Interfaces, KernelError> {
        Ok(self.lock().links.clone())
    }

    fn own_routes(&mut self) -> Result<Vec<SidRoute>, KernelError> {
        let routes = self.world().routes;
        Ok(routes.into_iter().map(|(prefix, target)| SidRoute { prefix, target }).collect())
    }

    fn add_route(&mut self, route: &SidRoute) -> Result<(), KernelError> {
        let mut inner = self.change("add route")?;
        if inner.foreign.contains(&route.prefix) || inner.world.routes.contains_key(&route.prefix) {
            return Err(error("add route", nix::libc::EEXIST));
        }
        if inner.no_seg6local && matches!(route.target, RouteTarget::Seg6Local { .. }) {
            return Err(error("add route", nix::libc::EOPNOTSUPP));
        }
        inner.world.routes.insert(route.prefix, route.target.clone());
        Ok(())
    }

    fn replace_route(&mut self, route: &SidRoute) -> Result<(), KernelError> {
        let mut inner = self.change("replace route")?;
        assert!(inner.world.routes.contains_key(&route.prefix), "replaces what is not there");
        inner.world.routes.insert(route.prefix, route.target.clone());
        Ok(())
    }

    fn delete_route(&mut self, prefix: Ipv6Net) -> Result<(), KernelError> {
        self.change("remove route")?.world.routes.remove(&prefix);
        Ok(())
    }

    fn change_routes(&mut self, remove: &[Ipv6Net], add: &[SidRoute]) -> Result<(), KernelError> {
        self.lock().batches += 1;
        remove.iter().try_for_each(|prefix| self.delete_route(*prefix))?;
        add.iter().try_for_each(|route| self.add_route(route))
    }

    fn sysctl(&mut self, name: &str) -> Result<Option<String>, KernelError> {
        Ok(self.world().sysctls.get(name).cloned())
    }

    fn set_sysctl(&mut self, name: &str, value: &str) -> Result<(), KernelError> {
        let mut inner = self.change("set sysctl")?;
        assert!(inner.world.sysctls.insert(name.to_owned(), value.to_owned()).is_some(), "no sysctl {name}");
        Ok(())
    }

    fn hmac_keys(&mut self) -> Result<Vec<KernelHmacKey>, KernelError> {
        Ok(self.world().keys.into_values().collect())
    }

    fn put_hmac_key(&mut self, key: &KernelHmacKey) -> Result<(), KernelError> {
        let mut inner = self.change("set HMAC key")?;
        if inner.world.keys.contains_key(&key.id) {
            return Err(error("set HMAC key", nix::libc::EEXIST));
        }
        inner.world.keys.insert(key.id, key.clone());
        Ok(())
    }

    fn delete_hmac_key(&mut self, id: u32) -> Result<(), KernelError> {
        self.change("remove HMAC key")?.world.keys.remove(&id);
        Ok(())
    }

    fn boundary(&mut self) -> Result<Option<Boundary>, KernelError> {
        Ok(self.world().boundary)
    }

    fn set_boundary(&mut self, boundary: Option<&Boundary>) -> Result<(), KernelError> {
        self.change("boundary")?.world.boundary = boundary.cloned();
        Ok(())
    }

    fn restore_boundary(&mut self) -> Result<(), KernelError> {
        Ok(())
    }

    fn make_functions(
        &mut self,
        _state: &NodeState,
        _links: &Interfaces,
        only: Option<&BTreeSet<String>>,
    ) -> Result<bool, KernelError> {
        self.lock().made.push(only.cloned());
        Ok(false)
    }

    fn make_vlans(&mut self, state: &NodeState) -> Result<bool, KernelError> {
        let mut made = false;
        for port in &state.ports {
            let Some(vlan) = &port.vlan else { continue };
            let links = self.lock().links.clone();
            if links.get(&vlan.on).is_none() || links.get(&port.name).is_some() {
                continue;
            }
            let mut inner = self.change("make VLAN")?;
            let index = links.0.values().map(|link| link.ifindex).max().unwrap_or(1) + 1;
            inner.links.0.insert(port.name.clone(), interface(index));
            inner.world.vlans.insert(port.name.clone(), vlan.clone());
            for name in ["seg6_enabled", "seg6_require_hmac"] {
                inner.world.sysctls.insert(format!("net/ipv6/conf/{}/{name}", port.name), "0".to_owned());
            }
            made = true;
        }
        Ok(made)
    }

    fn remove_vlans(&mut self, state: Option<&NodeState>) -> Result<(), KernelError> {
        let wanted = |name: &str| {
            let ports = state.into_iter().flat_map(|state| &state.ports);
            ports.into_iter().any(|port| port.name == name && port.vlan.is_some())
        };
        let gone: Vec<String> = self.world().vlans.into_keys().filter(|name| !wanted(name)).collect();
        for name in gone {
            let mut inner = self.change("remove VLAN")?;
            inner.world.vlans.remove(&name);
            inner.links.0.remove(&name);
            inner.world.sysctls.retain(|key, _| !key.starts_with(&format!("net/ipv6/conf/{name}/")));
        }
        Ok(())
    }

    fn refresh_neighbours(&mut self, next_hops: &[IpAddr]) -> Result<usize, KernelError> {
        Ok(next_hops.len())
    }
}

impl DataPlane for Fake {
    fn check(&mut self, _state: &NodeState, _interfaces: &Interfaces) -> Result<(), Vec<Problem>> {
        Ok(())
    }

    fn apply(
        &mut self,
        state: &NodeState,
        interfaces: &Interfaces,
        missing: MissingInterface,
    ) -> Result<Activated, Vec<Problem>> {
        let gone = state.ports.iter().any(|port| interfaces.get(&port.name).is_none());
        assert!(!gone || missing == MissingInterface::LeaveOut, "refused before the data plane is asked");
        let done = self.change("data plane").map(|mut inner| inner.world.plane = Some(state.clone()));
        done.map_err(|error| vec![Problem::new(error.action, error.cause, error.remedy)])?;
        Ok(Activated { generation: 1, warnings: Vec::new() })
    }

    fn follow_links(&mut self, _interfaces: &Interfaces) -> Result<bool, Vec<Problem>> {
        let done = self.change("links").map(|mut inner| inner.followed += 1);
        done.map_err(|error| vec![Problem::new(error.action, error.cause, error.remedy)])?;
        Ok(true)
    }

    fn follow_path_mtus(&mut self, _interfaces: &Interfaces) -> Result<(), Vec<Problem>> {
        Ok(())
    }

    fn path_mtus(&self) -> Vec<segue_dataplane::PathMtu> {
        Vec::new()
    }

    fn sign(&mut self, _signature: [u8; 6]) -> Result<(), Vec<Problem>> {
        Ok(())
    }

    fn remove(&mut self) -> Result<(), Vec<Problem>> {
        self.lock().world.plane = None;
        Ok(())
    }

    fn down(&self) -> BTreeSet<Ipv6Net> {
        self.lock().down.clone()
    }

    fn bump_caches(&mut self) -> Result<(), Vec<Problem>> {
        self.lock().bumps += 1;
        Ok(())
    }
}

impl Store for Fake {
    fn load(&mut self) -> io::Result<Option<Applied>> {
        Ok(self.world().record)
    }

    fn save(&mut self, applied: Option<&Applied>) -> io::Result<()> {
        let mut inner = self.change("save").map_err(|_| io::Error::from_raw_os_error(nix::libc::ENOSPC))?;
        inner.world.record = applied.cloned();
        Ok(())
    }

    fn place(&self) -> String {
        "memory".to_owned()
    }
}
