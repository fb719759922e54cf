//! A function in a namespace of its own, behind the node under test: packets go in by `west` and come back by `east`.
//!
//! ```text
//!   node             function
//!   fn-west ═══════ west ─┐  forwards: the kernel's own forwarding, which lowers hop limits
//!   fn-east ═══════ east ─┘  reflects: an XDP program that writes MAC addresses and redirects
//! ```

use crate::error::Result;
use crate::netns::{Entered, Namespace};
use crate::topology::{EAST_MAC, FUNCTION_BACK_MAC, Shape, Topology, gro, link, mac};
use crate::traffic::Traffic;
use libbpf_rs::Link;

/// Link-layer address of the node's end of the link into the function.
pub const FUNCTION_OUT_MAC: [u8; 6] = [2, 0x5e, 0x67, 0, 0, 5];
/// Link-layer address of the function's `west`.
pub const WEST_MAC: [u8; 6] = [2, 0x5e, 0x67, 0, 0, 6];

/// IFACE-OUT: the node's port towards the function.
pub const TO_FUNCTION: &str = "fn-west";
/// IFACE-IN: the node's port back from it.
pub const FROM_FUNCTION: &str = "fn-east";

/// What the function does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Vnf {
    /// The kernel forwards
    Forward,
    /// An XDP program redirects
    Reflect,
}

impl Vnf {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forwarding function",
            Self::Reflect => "reflecting function",
        }
    }
}

/// A function at work; its namespace goes with it.
#[derive(Debug)]
pub struct Function {
    // Before the namespace, so that it goes first.
    _reflector: Option<Link>,
    /// Where it runs.
    pub namespace: Namespace,
}

/// The namespace and the links, before the function works.
#[derive(Debug)]
pub struct Links {
    namespace: Namespace,
    /// Index of `east` in the namespace.
    pub east: u32,
    west: u32,
}

impl Links {
    /// Makes the namespace and joins it to the node.
    ///
    /// # Errors
    /// If `ip` or a setting fails.
    pub fn build(topology: &Topology, name: &str, shape: Shape) -> Result<Self> {
        let namespace = Namespace::create(&format!("{name}-fn"))?;
        namespace.sysctl("ipv6/conf/default/accept_dad", "0")?;
        namespace.sysctl("ipv6/conf/default/accept_ra", "0")?;
        namespace.sysctl("ipv6/conf/default/router_solicitations", "0")?;
        namespace.sysctl("ipv6/conf/default/addr_gen_mode", "1")?;
        namespace.sysctl("ipv4/conf/default/rp_filter", "0")?;
        namespace.sysctl("ipv4/conf/all/rp_filter", "0")?;
        link(shape, (&topology.node, TO_FUNCTION, FUNCTION_OUT_MAC), (&namespace, "west", WEST_MAC))?;
        link(shape, (&topology.node, FROM_FUNCTION, FUNCTION_BACK_MAC), (&namespace, "east", EAST_MAC))?;
        for interface in [TO_FUNCTION, FROM_FUNCTION] {
            topology.node.sysctl(&format!("ipv4/conf/{interface}/rp_filter"), "0")?;
        }
        Ok(Self { east: namespace.ifindex("east")?, west: namespace.ifindex("west")?, namespace })
    }

    /// Starts the function.
    ///
    /// # Errors
    /// If `ip`, a setting or a program fails.
    pub fn start(self, vnf: Vnf, traffic: &Traffic) -> Result<Function> {
        let Self { namespace, west, east } = self;
        let reflector = match vnf {
            Vnf::Forward => {
                forward(&namespace)?;
                None
            }
            Vnf::Reflect => {
                let _inside = namespace.enter()?;
                // A veth takes redirected frames only if its peer, which has XDP or GRO, is the node's.
                let _ = east;
                Some(traffic.attach_here("reflector", west)?)
            }
        };
        Ok(Function { _reflector: reflector, namespace })
    }
}

impl Function {
    /// A namespace in which something else works.
    #[must_use]
    pub fn only(namespace: Namespace) -> Self {
        Self { _reflector: None, namespace }
    }

    /// Moves this thread into the function's namespace.
    ///
    /// # Errors
    /// If the namespace is gone.
    pub fn enter(&self) -> Result<Entered> {
        self.namespace.enter()
    }
}

/// The kernel forwards everything from west to the node behind east.
fn forward(namespace: &Namespace) -> Result<()> {
    namespace.sysctl("ipv6/conf/all/forwarding", "1")?;
    namespace.sysctl("ipv4/ip_forward", "1")?;
    for interface in ["all", "west", "east"] {
        namespace.sysctl(&format!("ipv6/conf/{interface}/seg6_enabled"), "1")?;
    }
    let node = mac(FUNCTION_BACK_MAC);
    namespace.ip_all([
        format!("-6 neighbour add fe80::1 lladdr {node} dev east nud permanent"),
        "-6 route add default via fe80::1 dev east".into(),
        "-4 route add default via inet6 fe80::1 dev east".into(),
    ])?;
    gro(namespace, "west")
}
