//! A function at the middle node: a namespace that forwards, with one table of nftables in the way.
//!
//! ```text
//!            west ══ to-west   middle   to-east ══ east
//! ```
//!
//! What comes in by west leaves by east and the other way round; what is for either host, that is.

use clap::ValueEnum;
use segue_host::Run;
use segue_model::node::PortMode;
use segue_model::proxy::{LOOP_IN, LOOP_OUT};
use serde_json::{Value, json};

use super::parts::{CORE_MTU, link, port};
use crate::error::Result;
use crate::netns::Namespace;
use crate::topology::mac;

/// By which proxy; of the kernel's there is one, a static one: End.DX6, and a route with `encap seg6` back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Through {
    /// End.AS
    Static,
    /// End.AD with the header remembered by packet
    Exact,
}

/// SIDs of the middle node, towards the server and back.
pub const THERE: &str = "5f00:0:2:61::";
pub const BACK: &str = "5f00:0:2:62::";

/// What people put into a function: connections are tracked, and a rule looks at each packet.
const RULES: &str = "table inet f {
  chain forward { type filter hook forward priority 0; policy drop;
    ct state established,related accept
    ip6 nexthdr { tcp, udp, ipv6-icmp } ct state new accept
  }
}";

/// Last octets of link-layer addresses: both ends of both links.
const MACS: [u8; 4] = [9, 10, 11, 12];

impl Through {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static proxy",
            Self::Exact => "exact proxy",
        }
    }

    /// Makes the function's namespace and its links to the middle node.
    ///
    /// # Errors
    /// If `ip` or `nft` fails.
    pub fn build(self, name: &str, middle: &Namespace) -> Result<Namespace> {
        let function = Namespace::create(&format!("{name}-fun"))?;
        for (key, value) in [
            ("ipv6/conf/default/accept_dad", "0"),
            ("ipv6/conf/default/accept_ra", "0"),
            ("ipv6/conf/all/forwarding", "1"),
        ] {
            function.sysctl(key, value)?;
        }
        let [west, to_west, east, to_east] = MACS;
        link(CORE_MTU, (&function, "west", west), (middle, "to-west", to_west))?;
        link(CORE_MTU, (&function, "east", east), (middle, "to-east", to_east))?;
        for (interface, prefix, near, hosts) in
            [("west", "fd00:77", to_west, "2001:db8:c::/64"), ("east", "fd00:78", to_east, "2001:db8:d::/64")]
        {
            function.ip(&format!("-6 address add {prefix}::2/64 dev {interface}"))?;
            middle.ip(&format!("-6 address add {prefix}::1/64 dev to-{interface}"))?;
            let address = mac([2, 0x5e, 0x68, 0, 0, near]);
            function.ip(&format!("-6 neigh add {prefix}::1 lladdr {address} nud permanent dev {interface}"))?;
            function.ip(&format!("-6 route add {hosts} via {prefix}::1"))?;
            middle.sysctl(&format!("ipv6/conf/to-{interface}/seg6_enabled"), "1")?;
        }
        Run::new("nft", ["-f", "-"]).inside(function.name()).input(RULES.to_owned()).text()?;
        Ok(function)
    }

    /// The kernel in the middle node: decapsulation towards the function, and what comes back is wrapped by where it comes from.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn kernel(middle: &Namespace) -> Result<()> {
        middle.ip("sr tunsrc set 2001:db8:ff::2")?;
        for (sid, to, from, hosts, last, table) in [
            (THERE, ("to-west", "fd00:77::2"), "to-east", "2001:db8:d::/64", "5f00:0:3:46::", 161),
            (BACK, ("to-east", "fd00:78::2"), "to-west", "2001:db8:c::/64", "5f00:0:1:46::", 162),
        ] {
            middle.ip(&format!("-6 route add {sid} encap seg6local action End.DX6 nh6 {} dev {}", to.1, to.0))?;
            middle.ip(&format!("-6 rule add iif {from} lookup {table} priority {table}"))?;
            middle.ip(&format!("-6 route add {hosts} encap seg6 mode encap segs {last} dev left table {table}"))?;
        }
        Ok(())
    }

    /// Segue in the middle node.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn state(self, middle: &Namespace, mode: PortMode) -> Result<Value> {
        let address = |last: u8| mac([2, 0x5e, 0x68, 0, 0, last]);
        let [west, _, east, _] = MACS;
        let sid = |sid: &str, next_hop: u8, to: &str, from: &str, last: &str| {
            let mut proxy = json!({"inner": ["IPv6"], "to_function": to, "from_function": from});
            match self {
                Self::Static => proxy["segments"] = json!([last]),
                Self::Exact => proxy["memory"] = "packet".into(),
            }
            let behaviour = if self == Self::Static { "End.AS" } else { "End.AD" };
            json!({"sid": sid, "behaviour": behaviour, "next_hop_mac": address(next_hop), "proxy": proxy})
        };
        if self == Self::Exact {
            middle.ip(&format!("link add {LOOP_IN} mtu {CORE_MTU} type veth peer name {LOOP_OUT} mtu {CORE_MTU}"))?;
            middle.ip(&format!("link set {LOOP_IN} up"))?;
            middle.ip(&format!("link set {LOOP_OUT} up"))?;
        }
        let ports = ["left", "right"].map(|name| port(name, "core", mode));
        let service = ["to-west", "to-east"].map(|name| port(name, "service", mode));
        Ok(json!({
            "node": "n2",
            "source_address": "2001:db8:ff::2",
            "ports": ports.into_iter().chain(service).collect::<Vec<_>>(),
            "sids": [
                sid(THERE, west, "to-west", "to-east", "5f00:0:3:46::"),
                sid(BACK, east, "to-east", "to-west", "5f00:0:1:46::"),
            ],
        }))
    }
}
