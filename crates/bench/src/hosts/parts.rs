//! What a row and a function in it are made of.

use segue_model::node::PortMode;
use serde_json::{Value, json};

use crate::error::Result;
use crate::netns::Namespace;
use crate::topology::mac;

/// MTU of links between nodes, and to functions.
pub(super) const CORE_MTU: u32 = 9000;

/// One end of a link.
type End<'a> = (&'a Namespace, &'a str, u8);

/// Joins two namespaces by a veth pair as it is by itself: every offload that the kernel gives it.
pub(super) fn link(mtu: u32, left: End<'_>, right: End<'_>) -> Result<()> {
    let address = |last: u8| mac([2, 0x5e, 0x68, 0, 0, last]);
    left.0.ip(&format!(
        "link add {} address {} mtu {mtu} type veth peer name {} address {} mtu {mtu} netns {}",
        left.1,
        address(left.2),
        right.1,
        address(right.2),
        right.0.name()
    ))?;
    left.0.ip(&format!("link set {} up", left.1))?;
    right.0.ip(&format!("link set {} up", right.1)).map(drop)
}

pub(super) fn port(name: &str, role: &str, mode: PortMode) -> Value {
    json!({"name": name, "role": role, "mode": mode})
}
