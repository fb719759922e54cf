//! Generator, node under test and sink: three namespaces in a row, joined by two veth pairs.

use std::net::{Ipv4Addr, Ipv6Addr};

use segue_host::Run;
use segue_model::proxy::{LOOP_IN, LOOP_OUT};

use crate::error::Result;
use crate::netns::Namespace;

/// Link-layer address of the generator's end of the first link.
pub const GENERATOR_MAC: [u8; 6] = [2, 0x5e, 0x67, 0, 0, 1];
/// Link-layer address of the node's port `in`.
pub const IN_MAC: [u8; 6] = [2, 0x5e, 0x67, 0, 0, 2];
/// Link-layer address of the node's port `out`.
pub const OUT_MAC: [u8; 6] = [2, 0x5e, 0x67, 0, 0, 3];
/// Link-layer address of the sink.
pub const SINK_MAC: [u8; 6] = [2, 0x5e, 0x67, 0, 0, 4];

/// The node's addresses on its ports, and its neighbours there.
pub const IN_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
/// The node's address on `out`.
pub const OUT_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);
/// The sink, next hop of everything.
pub const SINK_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2);
/// The sink's IPv4 address.
pub const SINK_IPV4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// Inner source: what the generator pretends to forward.
pub const INNER_SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 1);
/// Inner destination, behind the sink.
pub const INNER_DESTINATION: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 1);
/// Inner IPv4 source.
pub const INNER_SOURCE_IPV4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Inner IPv4 destination, behind the sink.
pub const INNER_DESTINATION_IPV4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The headend in front of the node under test.
pub const HEADEND: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2);
/// The SID of the node under test.
pub const SID: Ipv6Addr = Ipv6Addr::new(0x5f00, 0, 1, 0xe, 0, 0, 0, 0);
/// The next SID, behind the sink.
pub const NEXT_SID: Ipv6Addr = Ipv6Addr::new(0x5f00, 0, 2, 1, 0, 0, 0, 0);
/// The SID after that.
pub const LAST_SID: Ipv6Addr = Ipv6Addr::new(0x5f00, 0, 3, 1, 0, 0, 0, 0);

/// Octets of the largest IP packet of any scenario, and room.
pub const MTU_MAX: usize = 1600;

/// The three namespaces, removed with this.
#[derive(Debug)]
pub struct Topology {
    /// Where the traffic begins.
    pub generator: Namespace,
    /// The node under test, with ports `in` and `out`.
    pub node: Namespace,
    /// Where it ends.
    pub sink: Namespace,
    /// Index of the generator's interface, in its namespace.
    pub generator_ifindex: u32,
    /// Index of the node's port `in`.
    pub in_ifindex: u32,
    /// Index of the node's port `out`.
    pub out_ifindex: u32,
    /// Index of the sink's interface.
    pub sink_ifindex: u32,
}

impl Topology {
    /// Makes the namespaces, links, addresses, permanent neighbours and routes; `name` keeps several apart.
    ///
    /// # Errors
    /// If `ip` or a setting fails; what was made so far is removed.
    pub fn build(name: &str) -> Result<Self> {
        Self::build_shaped(name, Shape::default())
    }

    /// As [`Topology::build`], with links of this shape.
    ///
    /// # Errors
    /// As [`Topology::build`].
    pub fn build_shaped(name: &str, shape: Shape) -> Result<Self> {
        let generator = Namespace::create(&format!("{name}-gen"))?;
        let node = Namespace::create(&format!("{name}-node"))?;
        let sink = Namespace::create(&format!("{name}-sink"))?;
        for namespace in [&generator, &node, &sink] {
            // No neighbour discovery and no router solicitations: the sink shall see nothing but the test's frames.
            namespace.sysctl("ipv6/conf/default/accept_dad", "0")?;
            namespace.sysctl("ipv6/conf/default/accept_ra", "0")?;
            namespace.sysctl("ipv6/conf/default/router_solicitations", "0")?;
            namespace.sysctl("ipv6/conf/default/addr_gen_mode", "1")?;
        }
        link(shape, (&generator, "g0", GENERATOR_MAC), (&node, "in", IN_MAC))?;
        link(shape, (&node, "out", OUT_MAC), (&sink, "s0", SINK_MAC))?;
        configure_node(&node)?;
        Ok(Self {
            generator_ifindex: generator.ifindex("g0")?,
            in_ifindex: node.ifindex("in")?,
            out_ifindex: node.ifindex("out")?,
            sink_ifindex: sink.ifindex("s0")?,
            generator,
            node,
            sink,
        })
    }

    /// Turns NAPI on for the node's `in` without XDP, by GRO: how the kernel receives from a veth by default when redirects
    /// are to reach it.
    ///
    /// # Errors
    /// If `ethtool` fails.
    pub fn enable_gro(&self) -> Result<()> {
        gro(&self.node, "in")
    }

    /// Adds the link by which programs of the TC hook give packets to the node's own segments; the agent makes it in operation.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn add_loop(&self) -> Result<()> {
        let mtu = MTU_MAX;
        self.node.ip(&format!("link add {LOOP_IN} mtu {mtu} type veth peer name {LOOP_OUT} mtu {mtu}"))?;
        self.node.ip(&format!("link set {LOOP_IN} up"))?;
        self.node.ip(&format!("link set {LOOP_OUT} up")).map(drop)
    }

    /// Driver counters that are not zero and tell of drops or errors, as `where name=value`.
    ///
    /// # Errors
    /// If `ethtool` fails.
    pub fn driver_drops(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for (namespace, interface) in
            [(&self.generator, "g0"), (&self.node, "in"), (&self.node, "out"), (&self.sink, "s0")]
        {
            let text = Run::new("ethtool", ["-S", interface]).inside(namespace.name()).text()?;
            // The sink drops everything by XDP: that is its work and no loss.
            let lines = text.lines().filter_map(|line| line.trim().split_once(": ")).filter(|(name, value)| {
                *value != "0" && !(interface == "s0" && name.ends_with("xdp_drops")) && is_loss(name)
            });
            found.extend(lines.map(|(name, value)| format!("{interface} {name}={value}")));
        }
        Ok(found)
    }
}

fn is_loss(name: &str) -> bool {
    name.ends_with("drops") || name.ends_with("errors") || name.ends_with("_err")
}

pub(crate) fn mac(octets: [u8; 6]) -> String {
    octets.map(|octet| format!("{octet:02x}")).join(":")
}

/// What links are like.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Queues of each end: with as many as processors, each processor has its own all the way.
    pub queues: usize,
    /// Octets of the largest IP packet.
    pub mtu: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Self { queues: 1, mtu: 1500 }
    }
}

/// Joins two namespaces by a veth pair and sets both ends up.
pub(crate) fn link(shape: Shape, left: (&Namespace, &str, [u8; 6]), right: (&Namespace, &str, [u8; 6])) -> Result<()> {
    let Shape { queues, mtu } = shape;
    let queues = format!("mtu {mtu} numtxqueues {queues} numrxqueues {queues}");
    let pair = format!(
        "link add {} address {} {queues} type veth peer name {} address {} {queues} netns {}",
        left.1,
        mac(left.2),
        right.1,
        mac(right.2),
        right.0.name()
    );
    left.0.ip_all([pair, format!("link set {} up", left.1)])?;
    right.0.ip(&format!("link set {} up", right.1)).map(drop)
}

fn configure_node(node: &Namespace) -> Result<()> {
    node.sysctl("ipv6/conf/all/forwarding", "1")?;
    node.sysctl("ipv4/ip_forward", "1")?;
    for interface in ["all", "in", "out"] {
        node.sysctl(&format!("ipv6/conf/{interface}/seg6_enabled"), "1")?;
        node.sysctl(&format!("ipv4/conf/{interface}/rp_filter"), "0")?;
    }
    let sink = mac(SINK_MAC);
    node.ip_all([
        format!("address add {IN_ADDRESS}/64 dev in"),
        format!("address add {OUT_ADDRESS}/64 dev out"),
        "address add 192.0.2.254/24 dev in".into(),
        "address add 198.51.100.1/24 dev out".into(),
        format!("neighbour add {HEADEND} lladdr {} dev in nud permanent", mac(GENERATOR_MAC)),
        format!("neighbour add {SINK_ADDRESS} lladdr {sink} dev out nud permanent"),
        format!("neighbour add {SINK_IPV4} lladdr {sink} dev out nud permanent"),
        // The kernel's End.DX4 looks for the neighbour of the inner destination, not of `nh4`.
        format!("neighbour add {INNER_DESTINATION_IPV4} lladdr {sink} dev out nud permanent"),
        format!("route add 5f00:0:2::/47 via {SINK_ADDRESS} dev out"),
        format!("route add 2001:db8:b::/48 via {SINK_ADDRESS} dev out"),
        format!("route add 203.0.113.0/24 via {SINK_IPV4} dev out"),
    ])?;
    Ok(())
}

/// Link-layer address of the function's `east`.
pub const EAST_MAC: [u8; 6] = [2, 0x5e, 0x67, 0, 0, 7];

/// Link-layer address of the node's end of the link back from the function.
pub const FUNCTION_BACK_MAC: [u8; 6] = [2, 0x5e, 0x67, 0, 0, 8];

/// Receiving through NAPI without XDP: what frames may be redirected to.
///
/// # Errors
/// If `ethtool` fails.
pub fn gro(namespace: &Namespace, interface: &str) -> Result<()> {
    Run::new("ethtool", ["-K", interface, "gro", "on"]).inside(namespace.name()).text()?;
    Ok(())
}
