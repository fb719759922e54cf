//! What the agent asks of the kernel beside the data plane: SID routes, sysctls, HMAC keys, neighbours.
//!
//! [`Kernel`] is what `apply` needs, so that its all-or-nothing logic is tested with a fake one; [`LinuxKernel`]
//! is the real one.

pub mod boundary;
pub mod events;
mod hmac;
mod mpls;
mod neighbour_room;
mod netlink;
pub mod nftables;
mod own_routes;
pub mod plan;
mod route;
mod ways;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;

pub use boundary::Boundary;
pub use mpls::MplsChanges;
pub use netlink::LinuxKernel;
pub use own_routes::OwnRoutes;
use segue_dataplane::Interfaces;
use segue_host::HostError;
use segue_host::device::Devices;
pub use segue_host::netlink::NetlinkError;
use segue_model::node::{Learn, NodeState};
pub use ways::Way;

use crate::learned::{self, Table};
use crate::problem::Problem;

/// The routing protocol number of Segue's routes (`rtm_protocol`), by which the agent knows its own after a restart.
/// Not used by any entry of iproute2's `rt_protos`; `packaging/rt_protos.d/segue.conf` names it.
pub const ROUTE_PROTOCOL: u8 = 83;
/// Metric of SID routes: the lowest there is, so that no route to the same prefix wins over it.
pub const ROUTE_METRIC: u32 = 1;

/// A request to the kernel that failed.
#[derive(Debug, thiserror::Error)]
#[error("{action}: {cause}")]
pub struct KernelError {
    /// What was asked, such as `route fc00:1::/64`.
    pub action: String,
    /// The kernel's error number, if it gave one.
    pub errno: Option<i32>,
    /// Why it failed.
    pub cause: String,
    /// What to do about it.
    pub remedy: String,
}

impl KernelError {
    /// An error of a netlink request, with the remedy that fits its number.
    pub fn netlink(action: impl Into<String>, error: NetlinkError) -> Self {
        let errno = error.errno();
        Self { action: action.into(), errno, cause: error.to_string(), remedy: remedy(errno).to_owned() }
    }
}

impl From<HostError> for KernelError {
    fn from(error: HostError) -> Self {
        if let HostError::Netlink { what, cause } = error {
            return Self::netlink(what, cause);
        }
        let (action, cause, remedy) = error.parts();
        Self { action, errno: error.errno(), cause, remedy }
    }
}

fn remedy(errno: Option<i32>) -> &'static str {
    match errno {
        Some(libc_errno::EPERM | libc_errno::EACCES | libc_errno::EROFS) => {
            "run segued with CAP_NET_ADMIN in its network namespace, and with a writable /proc/sys"
        }
        Some(libc_errno::ENOENT | libc_errno::EOPNOTSUPP) => {
            "this kernel lacks the feature: it needs IPv6 segment routing (CONFIG_IPV6_SEG6_LWTUNNEL, and \
             CONFIG_IPV6_SEG6_HMAC for keys)"
        }
        Some(libc_errno::EEXIST) => {
            "another route to this prefix has metric 1 and is not Segue's (protocol 83): remove it, see `ip -6 route show`"
        }
        Some(libc_errno::ENODEV | libc_errno::ENXIO) => "the interface vanished meanwhile: apply again once it is back",
        _ => "see `ip -6 route` and the kernel's log for what stands in the way, then apply again",
    }
}

/// The error numbers that get a remedy of their own.
mod libc_errno {
    pub use nix::libc::{EACCES, EEXIST, ENODEV, ENOENT, ENXIO, EOPNOTSUPP, EPERM, EROFS};
}

/// The kernel's route for one SID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidRoute {
    /// LOC:FUNCT.
    pub prefix: Ipv6Net,
    /// What the kernel does with packets to it.
    pub target: RouteTarget,
}

/// What the kernel does with packets to a SID that XDP left to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteTarget {
    /// Nothing: the route is there to be seen and advertised.
    Blackhole,
    /// The kernel's own implementation of the behaviour.
    Seg6Local {
        /// The behaviour.
        action: LocalAction,
        /// ifindex of the device that the route names. The kernel wants one, not the loopback; it has no meaning.
        device: u32,
    },
    /// A route with Segue's protocol number that this version did not make; it is replaced or removed.
    Unknown,
}

/// Behaviours of the kernel's `seg6local`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalAction {
    /// End, with PSP or without.
    End {
        /// The PSP flavour.
        psp: bool,
    },
    /// End.X.
    EndX {
        /// Address of the adjacency.
        next_hop: Ipv6Addr,
    },
    /// End.T.
    EndT {
        /// Routing table.
        table: u32,
    },
    /// End.DX2.
    EndDx2 {
        /// ifindex of the outgoing interface.
        oif: u32,
    },
    /// End.DX4.
    EndDx4 {
        /// Next hop; unspecified: by route.
        next_hop: Ipv4Addr,
    },
    /// End.DX6.
    EndDx6 {
        /// Next hop; unspecified: by route.
        next_hop: Ipv6Addr,
    },
    /// End.DT6.
    EndDt6 {
        /// Routing table.
        table: u32,
    },
    /// End.B6.Encaps.
    EndB6Encaps {
        /// In order of traversal.
        segments: Vec<Ipv6Addr>,
    },
}

impl std::fmt::Display for RouteTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Blackhole => f.write_str("blackhole"),
            Self::Unknown => f.write_str("unknown"),
            Self::Seg6Local { action, .. } => write!(f, "seg6local {action}"),
        }
    }
}

impl std::fmt::Display for LocalAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::End { psp: false } => f.write_str("End"),
            Self::End { psp: true } => f.write_str("End flavors psp"),
            Self::EndX { next_hop } => write!(f, "End.X nh6 {next_hop}"),
            Self::EndT { table } => write!(f, "End.T table {table}"),
            Self::EndDx2 { oif } => write!(f, "End.DX2 oif {oif}"),
            Self::EndDx4 { next_hop } => write!(f, "End.DX4 nh4 {next_hop}"),
            Self::EndDx6 { next_hop } => write!(f, "End.DX6 nh6 {next_hop}"),
            Self::EndDt6 { table } => write!(f, "End.DT6 table {table}"),
            Self::EndB6Encaps { segments } => {
                let list: Vec<_> = segments.iter().map(ToString::to_string).collect();
                write!(f, "End.B6.Encaps srh segs {}", list.join(","))
            }
        }
    }
}

/// A key for SRH HMAC TLVs in the kernel.
#[derive(Clone, PartialEq, Eq)]
pub struct KernelHmacKey {
    /// HMAC Key ID, not 0.
    pub id: u32,
    /// `SEG6_HMAC_ALGO_*`: 1 SHA-1, 2 SHA-256.
    pub algorithm: u8,
    /// At most 64 octets.
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for KernelHmacKey {
    /// Without the secret, so that no log carries it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelHmacKey")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// What the agent asks of the kernel. All of it concerns one network namespace.
pub trait Kernel: Send {
    /// All interfaces.
    fn links(&mut self) -> Result<Interfaces, KernelError>;
    /// What they are and can do.
    fn devices(&mut self) -> Result<Devices, KernelError> {
        Ok(Devices::new())
    }
    /// The routes that carry [`ROUTE_PROTOCOL`] in the main table.
    fn own_routes(&mut self) -> Result<Vec<SidRoute>, KernelError>;
    /// Adds a SID route; EEXIST if somebody else's route to the prefix has the same metric.
    fn add_route(&mut self, route: &SidRoute) -> Result<(), KernelError>;
    /// Replaces our SID route of the same prefix in one step, so that no packet sees a moment without.
    fn replace_route(&mut self, route: &SidRoute) -> Result<(), KernelError>;
    /// Removes SID routes, and adds others: many at once. That one is not there to be removed is no error; one that is there
    /// already is.
    fn change_routes(&mut self, remove: &[Ipv6Net], add: &[SidRoute]) -> Result<(), KernelError> {
        remove.iter().try_for_each(|prefix| self.delete_route(*prefix))?;
        add.iter().try_for_each(|route| self.add_route(route))
    }
    /// Removes the SID route of this prefix; that there is none is no error.
    fn delete_route(&mut self, prefix: Ipv6Net) -> Result<(), KernelError>;
    /// A sysctl's value (`net/ipv6/conf/all/forwarding`); `None` if this kernel does not have it.
    fn sysctl(&mut self, name: &str) -> Result<Option<String>, KernelError>;
    /// Sets a sysctl.
    fn set_sysctl(&mut self, name: &str, value: &str) -> Result<(), KernelError>;
    /// All HMAC keys, secrets included.
    fn hmac_keys(&mut self) -> Result<Vec<KernelHmacKey>, KernelError>;
    /// Sets an HMAC key, or replaces that of the same ID.
    fn put_hmac_key(&mut self, key: &KernelHmacKey) -> Result<(), KernelError>;
    /// Removes an HMAC key; that there is none is no error.
    fn delete_hmac_key(&mut self, id: u32) -> Result<(), KernelError>;
    /// The boundary on interfaces that are no ports, as this agent or one before it left it; `closed` may be missing.
    fn boundary(&mut self) -> Result<Option<Boundary>, KernelError>;
    /// Puts this one in its place, in one step; without one nothing is closed any more.
    fn set_boundary(&mut self, boundary: Option<&Boundary>) -> Result<(), KernelError>;
    /// Puts it back as it was set last, after somebody else has touched it.
    fn restore_boundary(&mut self) -> Result<(), KernelError>;
    /// Makes the namespaces and links that functions of `state` need, or only those of these namespaces; true if the node has got
    /// other interfaces by that.
    fn make_functions(
        &mut self,
        _state: &NodeState,
        _links: &Interfaces,
        _only: Option<&BTreeSet<String>>,
    ) -> Result<bool, KernelError> {
        Ok(false)
    }
    /// Removes namespaces and links that were made for functions and that `state` does not need; without it, all.
    fn remove_functions(&mut self, _state: Option<&NodeState>) -> Result<(), KernelError> {
        Ok(())
    }
    /// What functions of `state` need of network cards and cannot get.
    fn function_problems(&mut self, _state: &NodeState) -> Result<Vec<Problem>, KernelError> {
        Ok(Vec::new())
    }
    /// Makes the VLANs of ports that are not there; true if the node has got other interfaces by that.
    fn make_vlans(&mut self, _state: &NodeState) -> Result<bool, KernelError> {
        Ok(false)
    }
    /// Removes VLANs that were made and that `state` does not have; without it, all.
    fn remove_vlans(&mut self, _state: Option<&NodeState>) -> Result<(), KernelError> {
        Ok(())
    }
    /// Which of these routing tables have a route, a rule or a VRF.
    fn known_tables(&mut self, asked: &BTreeSet<u32>) -> Result<BTreeSet<u32>, KernelError> {
        Ok(asked.clone())
    }
    /// What a source of labels says now.
    fn learned(&mut self, from: &Learn) -> Result<Table, Problem> {
        match &from.file {
            Some(path) => learned::read_file(from, path),
            None => Ok(Table::new()),
        }
    }
    /// Asks the kernel to confirm the neighbours behind these addresses and behind all gateways of the main table;
    /// returns how many it asked for.
    fn refresh_neighbours(&mut self, next_hops: &[IpAddr]) -> Result<usize, KernelError>;
}
