//! XDP links: one for each port, pinned.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, MapHandle, Xdp, XdpFlags, libbpf_sys};
use serde::Serialize;
use std::os::fd::AsFd;

use super::Dataplane;
use super::pins::{names, pin_error};
use crate::Error;
use crate::bpf_link;
use crate::compiled::CompiledPort;
use crate::maps::MapSet;
use crate::skb;

const LINK: &str = "link-";
/// `NETDEV_XDP_ACT_NDO_XMIT` of linux/netdev.h.
const TAKES_REDIRECTED: u64 = 1 << 2;

/// How a driver runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachMode {
    /// In the driver, before a socket buffer is made.
    Native,
    /// In the network stack, because the driver has no XDP: correct, and slow.
    Generic,
}

/// By what a port has its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// On XDP; without a mode where the kernel does not tell.
    Xdp(Option<AttachMode>),
    /// On TC, by a link (Linux 6.6).
    Tcx,
    /// On TC, by a filter of `clsact`.
    Tc,
}

impl Attachment {
    /// Its name, as `segue get ports` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xdp(Some(AttachMode::Native)) => "xdp-native",
            Self::Xdp(Some(AttachMode::Generic)) => "xdp-generic",
            Self::Xdp(None) => "xdp",
            Self::Tcx => "tcx",
            Self::Tc => "tc",
        }
    }
}

/// Whether a pin is that of a port's link.
pub(super) fn is_link(name: &str) -> bool {
    link_number(name).is_some()
}

fn link_number(name: &str) -> Option<u32> {
    name.strip_prefix(LINK)?.parse().ok()
}

impl Dataplane {
    /// Attaches the program to an interface, pinned; nothing happens if it is attached already. [`Dataplane::apply`] does
    /// this for all ports of the configuration: on others every packet is dropped as `drop_port_unknown`.
    ///
    /// The kernel chooses native mode whenever the driver has it, and refuses rather than to fall back when native mode
    /// fails, for instance because of the MTU.
    ///
    /// # Errors
    /// [`Error::Attach`]; also if another XDP program is attached.
    pub fn attach(&mut self, ifindex: u32) -> Result<AttachMode, Error> {
        let path = self.link_path(ifindex);
        if let Ok(link) = Link::open(&path) {
            if attached_to(&link) == Some(ifindex) {
                return self.mode(ifindex);
            }
            // The interface has gone, and another one has its number.
            fs::remove_file(&path).map_err(pin_error(&path, "remove it"))?;
        }
        let attached = bpf_link::create(self.port()?, ifindex, libbpf_sys::BPF_XDP, 0);
        let failed =
            |source: io::Error| Error::Attach { interface: self.interface_name(ifindex), source: source.into() };
        let link = attached.map_err(failed)?;
        bpf_link::pin(link.as_fd(), &path).map_err(pin_error(&path, "pin the link"))?;
        self.mode(ifindex)
    }

    /// Detaches the program from an interface; nothing happens if it is not attached.
    ///
    /// # Errors
    /// [`Error::Pin`].
    pub fn detach(&mut self, ifindex: u32) -> Result<(), Error> {
        let path = self.link_path(ifindex);
        if let Ok(link) = Link::open(&path) {
            // Fails where the interface has gone: then there is nothing to detach, and the pin is all that is left.
            if let Err(error) = link.detach() {
                tracing::debug!("link of ifindex {ifindex}: {error}");
            }
        }
        match fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(pin_error(&path, "remove it")(source)),
            _ => Ok(()),
        }
    }

    /// The interfaces whose packets the program gets, by ifindex.
    pub fn attached(&self) -> Vec<u32> {
        attached(&self.pin_dir)
    }

    /// The interfaces that have a pin, also those that have gone since.
    pub(super) fn linked(&self) -> Vec<u32> {
        linked(&self.pin_dir)
    }

    /// Gives all links this build's program. Each port changes over at once, without losing a packet.
    pub(super) fn update_links(&mut self) -> Result<(), Error> {
        for ifindex in self.linked() {
            let path = self.link_path(ifindex);
            let link = Link::open(&path).map_err(|source| Error::BpfPin {
                path: path.clone(),
                action: "open the link",
                source,
            })?;
            if attached_to(&link) != Some(ifindex) {
                fs::remove_file(&path).map_err(pin_error(&path, "remove it"))?;
                continue;
            }
            let replaced = bpf_link::update(&link, self.port()?);
            let failed = |source: io::Error| {
                let interface = self.interface_name(ifindex);
                Error::Link { interface, action: "replace", source: source.into() }
            };
            replaced.map_err(failed)?;
        }
        Ok(())
    }

    fn link_path(&self, ifindex: u32) -> PathBuf {
        link_path(&self.pin_dir, ifindex)
    }

    fn mode(&self, ifindex: u32) -> Result<AttachMode, Error> {
        self.query(ifindex).map(|found| mode_of(&found))
    }

    /// Those of these ports, by name and number, to which the kernel gives no frames that a driver's XDP redirects. None on kernels
    /// before 6.3, which do not tell: there no interface has any feature.
    pub(super) fn without_redirect(&self, ports: &[(String, u32)]) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        for (name, ifindex) in ports {
            found.push((name, self.query(*ifindex)?));
        }
        let untold = found.iter().all(|(_, port)| port.feature_flags == 0);
        // What the network stack's XDP redirects is sent like any packet.
        let stack = found.iter().all(|(_, port)| u32::from(port.attach_mode) == libbpf_sys::XDP_ATTACHED_SKB);
        if untold || stack {
            return Ok(Vec::new());
        }
        let without = found.into_iter().filter(|(_, port)| port.feature_flags & TAKES_REDIRECTED == 0);
        Ok(without.map(|(name, _)| name.clone()).collect())
    }

    fn query(&self, ifindex: u32) -> Result<libbpf_sys::bpf_xdp_query_opts, Error> {
        query(self.maps.get("control")?, ifindex).map_err(|source| Error::Link {
            interface: self.interface_name(ifindex),
            action: "ask for the mode of",
            source,
        })
    }

    /// For messages.
    fn interface_name(&self, ifindex: u32) -> String {
        let ports = self.applied().map(|compiled| compiled.ports.as_slice()).unwrap_or_default();
        let port = ports.iter().find(|port| port.entry.ifindex == ifindex);
        port.map_or_else(|| format!("number {ifindex}"), |port| port.name.clone())
    }
}

fn link_path(pin_dir: &Path, ifindex: u32) -> PathBuf {
    pin_dir.join(format!("{LINK}{ifindex}"))
}

fn linked(pin_dir: &Path) -> Vec<u32> {
    let names = names(pin_dir).unwrap_or_default();
    let mut linked: Vec<u32> = names.iter().filter_map(|name| link_number(name)).collect();
    linked.sort_unstable();
    linked
}

fn attached(pin_dir: &Path) -> Vec<u32> {
    let mut attached = linked(pin_dir);
    attached.retain(|&ifindex| {
        Link::open(link_path(pin_dir, ifindex)).is_ok_and(|link| attached_to(&link) == Some(ifindex))
    });
    attached
}

/// By what each of these ports has its program, by ifindex; those that have none are missing.
pub(super) fn attachments(pin_dir: &Path, maps: &MapSet, ports: &[CompiledPort]) -> BTreeMap<u32, Attachment> {
    let attached = attached(pin_dir);
    let mode = |ifindex| query(maps.get("control").ok()?, ifindex).ok().map(|found| mode_of(&found));
    let find = |port: &CompiledPort| {
        let ifindex = port.entry.ifindex;
        let found = if port.xdp {
            attached.contains(&ifindex).then(|| Attachment::Xdp(mode(ifindex)))?
        } else {
            match skb::met(pin_dir, ifindex)? {
                skb::Met::Link => Attachment::Tcx,
                skb::Met::Filter => Attachment::Tc,
            }
        };
        Some((ifindex, found))
    };
    ports.iter().filter_map(find).collect()
}

fn mode_of(found: &libbpf_sys::bpf_xdp_query_opts) -> AttachMode {
    let generic = u32::from(found.attach_mode) == libbpf_sys::XDP_ATTACHED_SKB;
    if generic { AttachMode::Generic } else { AttachMode::Native }
}

fn query(control: &MapHandle, ifindex: u32) -> libbpf_rs::Result<libbpf_sys::bpf_xdp_query_opts> {
    let index = i32::try_from(ifindex).unwrap_or(i32::MAX);
    // The query is about the interface; the descriptor plays no part in it.
    Xdp::new(control.as_fd()).query(index, XdpFlags::NONE)
}

/// The interface that the link belongs to. `None` once that has gone.
fn attached_to(link: &Link) -> Option<u32> {
    match link.info().ok()?.info {
        LinkTypeInfo::Xdp(xdp) => Some(xdp.ifindex).filter(|ifindex| *ifindex != 0),
        _ => None,
    }
}
