//! Planned routes, and how they look as `ip route` arguments.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use serde::Serialize;

use segue_model::value::MacAddress;
use segue_plan::{Encap, Seg6LocalAction};

/// A route.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Route {
    /// Number of its table; the main table if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Where to.
    pub destination: IpNet,
    /// Ways there; several are equal-cost paths.
    pub next_hops: Vec<NextHop>,
    /// Source address that the namespace's own packets get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// What the kernel puts on or takes off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encap: Option<Encap>,
    /// Why it is there.
    pub reason: String,
}

/// What comes in by an interface is routed by a table of its own, in both address families.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// The interface.
    pub incoming: String,
    /// Number of the table, and of the rule.
    pub table: u32,
    /// Why it is there.
    pub reason: String,
}

impl Rule {
    /// The arguments of `ip -4` and `ip -6` that install it.
    pub fn ip_arguments(&self) -> Vec<String> {
        let table = self.table.to_string();
        ["rule", "add", "pref", &table, "iif", &self.incoming, "lookup", &table].map(String::from).to_vec()
    }
}

/// A neighbour whose link-layer address is known, so that nothing has to be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Neighbour {
    /// Its address.
    pub address: IpAddr,
    /// Its link-layer address.
    pub mac: MacAddress,
    /// The interface that it is on.
    pub interface: String,
}

impl Neighbour {
    /// The arguments of `ip` that install it.
    pub fn ip_arguments(&self) -> Vec<String> {
        let (address, mac) = (self.address.to_string(), self.mac.to_string());
        ["neigh", "replace", &address, "lladdr", &mac, "dev", &self.interface, "nud", "permanent"]
            .map(String::from)
            .to_vec()
    }
}

/// One way of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextHop {
    /// The neighbour, possibly of the other address family; none if the destination is on the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Outgoing interface.
    pub interface: String,
}

impl Route {
    /// The arguments of `ip` that install this route: `-6 route replace ...`, as also understood line by line by
    /// `ip -batch` (without the family option: see [`Route::ip_family`]).
    pub fn ip_arguments(&self) -> Vec<String> {
        let mut arguments = vec![self.ip_family().to_owned(), "route".into(), "replace".into()];
        arguments.push(if self.destination.prefix_len() == 0 {
            "default".into()
        } else {
            self.destination.to_string()
        });
        self.push_encap(&mut arguments);
        if let [next_hop] = self.next_hops.as_slice() {
            self.push_next_hop(next_hop, &mut arguments);
        }
        if let Some(source) = self.source {
            arguments.extend(["src".into(), source.to_string()]);
        }
        if let Some(table) = self.table {
            arguments.extend(["table".into(), table.to_string()]);
        }
        if self.next_hops.len() > 1 {
            for next_hop in &self.next_hops {
                arguments.push("nexthop".into());
                self.push_next_hop(next_hop, &mut arguments);
            }
        }
        arguments
    }

    /// `-4` or `-6`.
    pub fn ip_family(&self) -> &'static str {
        match self.destination {
            IpNet::V4(_) => "-4",
            IpNet::V6(_) => "-6",
        }
    }

    fn push_next_hop(&self, next_hop: &NextHop, arguments: &mut Vec<String>) {
        if let Some(gateway) = next_hop.gateway {
            arguments.push("via".into());
            if gateway.is_ipv6() && matches!(self.destination, IpNet::V4(_)) {
                arguments.push("inet6".into());
            }
            arguments.push(gateway.to_string());
        }
        arguments.extend(["dev".into(), next_hop.interface.clone()]);
    }

    fn push_encap(&self, arguments: &mut Vec<String>) {
        let Some(encap) = &self.encap else { return };
        arguments.push("encap".into());
        match encap {
            Encap::Seg6 { reduced, segments } => {
                let segments: Vec<String> = segments.iter().map(Ipv6Addr::to_string).collect();
                let mode = if *reduced { "encap.red" } else { "encap" };
                arguments.extend(["seg6", "mode", mode, "segs"].map(String::from));
                arguments.push(segments.join(","));
            }
            Encap::Seg6Local(action) => {
                arguments.extend(["seg6local", "action"].map(String::from));
                arguments.extend(match action {
                    Seg6LocalAction::End => vec!["End".into()],
                    Seg6LocalAction::EndDx4 { next_hop } => vec!["End.DX4".into(), "nh4".into(), next_hop.to_string()],
                    Seg6LocalAction::EndDx6 { next_hop } => vec!["End.DX6".into(), "nh6".into(), next_hop.to_string()],
                    Seg6LocalAction::EndDt6 { table } => vec!["End.DT6".into(), "table".into(), table.to_string()],
                });
            }
        }
    }
}
