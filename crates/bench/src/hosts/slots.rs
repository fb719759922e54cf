//! Places for packet services at the middle node, and steering by port through the first so many of them.
//!
//! ```text
//!      left ══ middle ══ right
//!            ║  ║  ║
//!           fn0 fn1 ..          a namespace each, whose `port` a service takes
//! ```

use segue_host::{Run, polling};
use segue_model::node::PortMode;
use serde_json::{Value, json};

use super::parts::{CORE_MTU, link, port};
use super::transfer::PORT;
use crate::error::Result;
use crate::netns::Namespace;
use crate::topology::mac;

/// Last octet of the link-layer address of the first link's near end.
const MACS: u8 = 0x20;
/// The SID behind the last node.
const LAST: &str = "5f00:0:3:46::";

/// The places.
#[derive(Debug)]
pub struct Slots {
    namespaces: Vec<Namespace>,
    rewrites: bool,
}

fn near(slot: usize) -> String {
    format!("fn{slot}")
}

fn macs(slot: usize) -> [u8; 2] {
    [MACS + 2 * slot as u8, MACS + 2 * slot as u8 + 1]
}

fn sid(slot: usize) -> String {
    format!("5f00:0:2:a{slot}::")
}

impl Slots {
    /// Makes `count` namespaces, at most 8, each with a link to `middle` as agent and lab make it for a service.
    ///
    /// # Errors
    /// If `ip` or `ethtool` fails, or the kernel refuses to wait for a service's packets.
    pub(super) fn build(name: &str, middle: &Namespace, count: usize, rewrites: bool) -> Result<Self> {
        let make = |slot: usize| -> Result<Namespace> {
            let namespace = Namespace::create(&format!("{name}-service{slot}"))?;
            let (near, [mine, theirs]) = (near(slot), macs(slot));
            link(CORE_MTU, (middle, &near, mine), (&namespace, "port", theirs))?;
            Self::suit(middle, slot, false)?;
            let _inside = middle.enter()?;
            polling::defer(&near, polling::OF_SERVICES)?;
            Ok(namespace)
        };
        let namespaces = (0..count.min(8)).map(make).collect::<Result<_>>()?;
        Ok(Self { namespaces, rewrites })
    }

    /// Suits the node's end of a place to its service, as agent and lab do. `merged`: it takes packets as they are on a link with its offloads.
    ///
    /// # Errors
    /// If `ethtool` fails.
    pub(crate) fn suit(middle: &Namespace, slot: usize, merged: bool) -> Result<()> {
        let checksums = if merged { "on" } else { "off" };
        Run::new("ethtool", ["-K", &near(slot), "tx", checksums, "gro", "on"]).inside(middle.name()).text()?;
        Ok(())
    }

    /// Where the service of a place runs, on the interface `port`.
    #[must_use]
    pub fn namespace(&self, slot: usize) -> Option<&Namespace> {
        self.namespaces.get(slot)
    }

    /// The server's port, packets to which go through the first so many places.
    #[must_use]
    pub fn port(services: usize) -> u16 {
        PORT + services as u16
    }

    /// What the middle node and the first one need for them.
    pub(super) fn add_to(&self, middle: &mut Value, first: &mut Value, mode: PortMode) {
        let all = 0..self.namespaces.len();
        let may_rewrite: &[&str] = if self.rewrites { &["addresses"] } else { &[] };
        let extend = |of: &mut Value, key: &str, more: Vec<Value>| {
            if let Some(list) = of[key].as_array_mut() {
                list.extend(more);
            }
        };
        extend(middle, "ports", all.clone().map(|slot| port(&near(slot), "service", mode)).collect());
        let of = |slot: usize| {
            let (near, theirs) = (near(slot), mac([2, 0x5e, 0x68, 0, 0, macs(slot)[1]]));
            let proxy = json!({"to_function": near, "from_function": near, "may_rewrite": may_rewrite});
            json!({"sid": sid(slot), "behaviour": "End.AN", "next_hop_mac": theirs, "proxy": proxy})
        };
        extend(middle, "sids", all.clone().map(of).collect());
        let through = |services: usize| -> Vec<String> { (0..services).map(sid).chain([LAST.to_owned()]).collect() };
        let policy = |services: usize| {
            let lists = json!([{"segments": through(services)}]);
            json!({"name": format!("through-{services}"), "mode": "H.Encaps", "segment_lists": lists})
        };
        extend(first, "policies", all.clone().map(|slot| policy(slot + 1)).collect());
        let rule = |services: usize| {
            json!({"destination": "2001:db8:d::/64", "protocol": "tcp", "destination_ports": [Self::port(services)],
                "policy": format!("through-{services}")})
        };
        // The rule of all other packets goes by End, and comes last.
        if let Some(rules) = first["steering"].as_array_mut() {
            rules.splice(0..0, all.map(|slot| rule(slot + 1)));
        }
    }
}
