//! Five namespaces in a row, and who forwards in them.
//!
//! ```text
//!   client ── first ══ middle ══ last ── server        ── MTU 1500, plain    ══ MTU 9000, SRv6
//!                H.Encaps   End    End.DT
//! ```
//!
//! The middle node has no route to either host: what arrives has gone by its SID, unless all is plain forwarding.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::thread;
use std::time::{Duration, Instant};

use segue_host::Run;
use segue_model::node::PortMode;
use serde_json::{Value, json};

use super::parts::{CORE_MTU, link, port};
use super::slots::Slots;
use super::through::{BACK, THERE, Through};
use super::transfer::{Kind, Load, Transfer};
use crate::error::{Error, Result};
use crate::netns::Namespace;
use crate::segue::Node;

/// MTU of the hosts' links.
const HOST_MTU: u32 = 1500;
/// How long the hosts may take to find their neighbours.
const REACHED_WITHIN: Duration = Duration::from_secs(5);

/// The server's address.
pub const SERVER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd, 0, 0, 0, 0, 2);

/// The middle node's End.
const END: &str = "5f00:0:2:1::";

/// Who forwards in the three nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Segue in this mode of its ports.
    Segue(PortMode),
    /// The kernel's seg6 and seg6local.
    Kernel,
    /// The kernel, IPv6 without any steering header.
    Plain,
}

impl Engine {
    /// Its name in reports and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Segue(PortMode::Xdp) => "xdp",
            Self::Segue(PortMode::Skb) => "skb",
            Self::Segue(PortMode::Auto) => "segue",
            Self::Kernel => "kernel",
            Self::Plain => "plain",
        }
    }
}

/// Five namespaces at work; removed with this.
#[derive(Debug)]
pub struct Row {
    // Before the namespaces, so that they go first.
    nodes: Vec<Node>,
    /// What the one that sends is in.
    pub client: Namespace,
    /// The nodes.
    pub steps: [Namespace; 3],
    /// What the one that receives is in.
    pub server: Namespace,
    /// The function at the middle node, and by which proxy it is reached.
    function: Option<(Namespace, Through)>,
    /// Places of packet services at the middle node.
    slots: Option<Slots>,
    engine: Engine,
}

impl Row {
    /// Makes the namespaces with the offloads that veths have by themselves, and sets `engine` up in the nodes.
    ///
    /// # Errors
    /// If `ip` fails or the data plane cannot be started.
    pub fn open(name: &str, engine: Engine, through: Option<Through>) -> Result<Self> {
        let mut row = Self::lay(name, engine, HOST_MTU)?;
        row.function =
            through.map(|through| Ok::<_, Error>((through.build(name, &row.steps[1])?, through))).transpose()?;
        match engine {
            Engine::Segue(mode) => row.segue(mode)?,
            Engine::Kernel => row.kernel()?,
            Engine::Plain => row.plain()?,
        }
        Ok(row)
    }

    /// Segue on socket buffers, with places for packet services at the middle node: by the port that is asked for ([`Slots::port`]), packets to the
    /// server go through none of them, the first, the first two, and so on. Services may change addresses if `rewrites`.
    ///
    /// # Errors
    /// As [`Row::open`].
    pub fn open_with_slots(name: &str, count: usize, rewrites: bool) -> Result<Self> {
        // The server's link lets through what a service has put together.
        let mut row = Self::lay(name, Engine::Segue(PortMode::Skb), CORE_MTU)?;
        row.slots = Some(Slots::build(name, &row.steps[1], count, rewrites)?);
        row.segue(PortMode::Skb)?;
        Ok(row)
    }

    /// The places of packet services.
    #[must_use]
    pub fn slots(&self) -> Option<&Slots> {
        self.slots.as_ref()
    }

    /// Namespaces, links, addresses. `mtu` is that of the server's link.
    fn lay(name: &str, engine: Engine, mtu: u32) -> Result<Self> {
        let make = |what: &str| -> Result<Namespace> {
            let namespace = Namespace::create(&format!("{name}-{what}"))?;
            for (key, value) in [
                ("ipv6/conf/default/accept_dad", "0"),
                ("ipv6/conf/default/accept_ra", "0"),
                ("ipv6/conf/default/router_solicitations", "0"),
            ] {
                namespace.sysctl(key, value)?;
            }
            Ok(namespace)
        };
        let (client, server) = (make("client")?, make("server")?);
        let steps = [make("first")?, make("middle")?, make("last")?];
        let [first, middle, last] = &steps;
        link(HOST_MTU, (&client, "eth0", 1), (first, "host", 2))?;
        link(CORE_MTU, (first, "core", 3), (middle, "left", 4))?;
        link(CORE_MTU, (middle, "right", 5), (last, "core", 6))?;
        link(mtu, (last, "host", 7), (&server, "eth0", 8))?;
        let row = Self { nodes: Vec::new(), client, steps, server, function: None, slots: None, engine };
        row.address()?;
        Ok(row)
    }

    fn address(&self) -> Result<()> {
        let [first, middle, last] = &self.steps;
        for (namespace, commands) in [
            (&self.client, vec!["address add 2001:db8:c::2/64 dev eth0", "route add default via 2001:db8:c::1"]),
            (&self.server, vec!["address add 2001:db8:d::2/64 dev eth0", "route add default via 2001:db8:d::1"]),
            (first, vec!["address add 2001:db8:c::1/64 dev host", "address add fd00:12::1/64 dev core"]),
            (middle, vec!["address add fd00:12::2/64 dev left", "address add fd00:23::2/64 dev right"]),
            (last, vec!["address add 2001:db8:d::1/64 dev host", "address add fd00:23::3/64 dev core"]),
        ] {
            let commands = commands.iter().map(|command| format!("-6 {command}"));
            namespace.ip_all(std::iter::once("link set lo up".to_owned()).chain(commands))?;
        }
        for (step, interfaces) in self.steps.iter().zip([["host", "core"], ["left", "right"], ["core", "host"]]) {
            step.sysctl("ipv6/conf/all/forwarding", "1")?;
            for interface in ["all"].iter().chain(&interfaces) {
                step.sysctl(&format!("ipv6/conf/{interface}/seg6_enabled"), "1")?;
            }
        }
        Ok(())
    }

    /// Where SIDs are.
    fn sid_routes(&self) -> Result<()> {
        let [first, middle, last] = &self.steps;
        first.ip("-6 route add 5f00:0:2::/47 via fd00:12::2")?;
        middle.ip("-6 route add 5f00:0:1::/48 via fd00:12::1")?;
        middle.ip("-6 route add 5f00:0:3::/48 via fd00:23::3")?;
        last.ip("-6 route add 5f00:0:1::/48 via fd00:23::2")?;
        last.ip("-6 route add 5f00:0:2::/48 via fd00:23::2").map(drop)
    }

    fn plain(&self) -> Result<()> {
        let [first, middle, last] = &self.steps;
        first.ip("-6 route add 2001:db8:d::/64 via fd00:12::2")?;
        middle.ip("-6 route add 2001:db8:c::/64 via fd00:12::1")?;
        middle.ip("-6 route add 2001:db8:d::/64 via fd00:23::3")?;
        last.ip("-6 route add 2001:db8:c::/64 via fd00:23::2").map(drop)
    }

    fn kernel(&self) -> Result<()> {
        self.sid_routes()?;
        let [first, middle, last] = &self.steps;
        let [towards, back] = self.by();
        for (node, here, there, far, by) in [(first, 1, "d", 3, towards), (last, 3, "c", 1, back)] {
            node.ip(&format!("sr tunsrc set 2001:db8:ff::{here}"))?;
            // End.DX6 is the end of a list: what comes back from the function is put into one of its own.
            let segments = if self.function.is_some() { by.to_owned() } else { format!("{by},5f00:0:{far}:46::") };
            node.ip(&format!("-6 route add 2001:db8:{there}::/64 encap seg6 mode encap segs {segments} dev core"))?;
            node.ip(&format!("-6 route add 5f00:0:{here}:46:: encap seg6local action End.DT6 table 254 dev core"))?;
        }
        if self.function.is_some() {
            return Through::kernel(middle);
        }
        middle.ip(&format!("-6 route add {END} encap seg6local action End dev left")).map(drop)
    }

    fn segue(&mut self, mode: PortMode) -> Result<()> {
        self.sid_routes()?;
        if mode == PortMode::Xdp {
            self.suit_xdp()?;
        }
        let [towards, back] = self.by();
        let mut between = match &self.function {
            Some((_, through)) => through.state(&self.steps[1], mode)?,
            None => middle(mode),
        };
        let mut first = end(1, "d", (towards, 3), mode);
        if let Some(slots) = &self.slots {
            slots.add_to(&mut between, &mut first, mode);
        }
        let states = [first, between, end(3, "c", (back, 1), mode)];
        for (step, state) in self.steps.iter().zip(states) {
            self.nodes.push(Node::start(step, state)?);
        }
        Ok(())
    }

    /// The SIDs of the middle node, towards the server and back.
    fn by(&self) -> [&'static str; 2] {
        if self.function.is_some() { [THERE, BACK] } else { [END; 2] }
    }

    /// What XDP needs of hosts: somebody who polls at the far end, and checksums that are complete.
    fn suit_xdp(&self) -> Result<()> {
        for host in [&self.client, &self.server] {
            Run::new("ethtool", ["-K", "eth0", "gro", "on"]).inside(host.name()).text()?;
        }
        self.checksum_offload(false)
    }

    /// Whether the hosts leave checksums to their devices.
    ///
    /// # Errors
    /// If `ethtool` fails.
    pub fn checksum_offload(&self, on: bool) -> Result<()> {
        for host in [&self.client, &self.server] {
            Run::new("ethtool", ["-K", "eth0", "tx", if on { "on" } else { "off" }]).inside(host.name()).text()?;
        }
        Ok(())
    }

    /// Whether the hosts hand over segments put together, and take them so.
    ///
    /// # Errors
    /// If `ethtool` fails.
    pub fn segmentation_offload(&self, on: bool) -> Result<()> {
        let state = if on { "on" } else { "off" };
        for host in [&self.client, &self.server] {
            let words = ["-K", "eth0", "tso", state, "gso", state];
            Run::new("ethtool", words).inside(host.name()).text()?;
        }
        Ok(())
    }

    /// Suits the link of a place to its service ([`Slots::suit`]).
    ///
    /// # Errors
    /// If `ethtool` fails.
    pub(crate) fn suit_slot(&self, slot: usize, merged: bool) -> Result<()> {
        Slots::suit(&self.steps[1], slot, merged)
    }

    /// Who forwards.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Waits until hosts and nodes know their neighbours.
    ///
    /// # Errors
    /// [`Error::NotDone`] if the server is not reached.
    pub fn reach(&self) -> Result<()> {
        let end = Instant::now() + REACHED_WITHIN;
        let ping = || {
            Run::new("ping", ["-6", "-c", "1", "-W", "1", &SERVER.to_string()])
                .inside(self.client.name())
                .text()
                .is_ok()
        };
        while !ping() {
            if Instant::now() > end {
                let reason = format!("the server does not answer a ping{}", self.drops()?);
                return Err(Error::NotDone { what: self.engine.name().to_owned(), reason });
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Transfers for as long as `measured`, after as much of a warm-up as it takes to open windows.
    ///
    /// # Errors
    /// If a socket cannot be made.
    pub fn transfer(&self, kind: Kind, measured: Duration, verify: bool) -> Result<Transfer> {
        Transfer::run(kind, (&self.client, &self.server), SERVER, measured, verify)
    }

    /// The same with another load, every octet compared.
    ///
    /// # Errors
    /// If a socket cannot be made.
    pub fn transfer_load(&self, measured: Duration, load: &Load) -> Result<Transfer> {
        Transfer::run_load(Kind::Tcp, (&self.client, &self.server), SERVER, measured, true, load)
    }

    /// Packets that Segue's nodes dropped, by outcome.
    ///
    /// # Errors
    /// If counters cannot be read.
    pub fn dropped(&self) -> Result<BTreeMap<&'static str, u64>> {
        let mut sum = BTreeMap::new();
        for node in &self.nodes {
            for (outcome, packets) in node.outcomes()? {
                if outcome.starts_with("drop_") && packets > 0 {
                    *sum.entry(outcome).or_default() += packets;
                }
            }
        }
        Ok(sum)
    }

    /// Packets that the middle node's data plane sent on; None for engines that are not Segue's.
    ///
    /// # Errors
    /// If counters cannot be read.
    pub fn forwarded(&self) -> Result<Option<u64>> {
        let Some(middle) = self.nodes.get(1) else { return Ok(None) };
        let what = if self.function.is_some() { "to_function" } else { "forwarded" };
        Ok(Some(middle.outcomes()?.get(what).copied().unwrap_or_default()))
    }

    /// What Segue dropped, for messages.
    ///
    /// # Errors
    /// If counters cannot be read.
    pub fn drops(&self) -> Result<String> {
        let dropped = self.dropped()?;
        if dropped.is_empty() {
            return Ok(String::new());
        }
        let all: Vec<_> = dropped.iter().map(|(outcome, packets)| format!("{outcome} {packets}")).collect();
        Ok(format!("; Segue counted {}", all.join(", ")))
    }
}

/// State of the first or the last node: `here` and `far` are numbers of nodes, `by` the SID of the middle one, `there` the prefix of the host
/// behind the other one.
fn end(here: u8, there: &str, (by, far): (&str, u8), mode: PortMode) -> Value {
    json!({
        "node": format!("n{here}"),
        "source_address": format!("2001:db8:ff::{here}"),
        "ports": [port("host", "access", mode), port("core", "core", mode)],
        "sids": [{"sid": format!("5f00:0:{here}:46::"), "behaviour": "End.DT46"}],
        "policies": [{"name": "there", "mode": "H.Encaps",
            "segment_lists": [{"segments": [by, &format!("5f00:0:{far}:46::")]}]}],
        "steering": [{"destination": format!("2001:db8:{there}::/64"), "policy": "there"}],
    })
}

fn middle(mode: PortMode) -> Value {
    json!({
        "node": "n2",
        "source_address": "2001:db8:ff::2",
        "ports": [port("left", "core", mode), port("right", "core", mode)],
        "sids": [{"sid": END, "behaviour": "End"}],
    })
}
