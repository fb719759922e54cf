//! What ICMPv4 errors are sent from where the port that a packet came in by has no address.

use std::net::Ipv4Addr;

use ipnet::IpNet;
use segue_model::node::NodeState;

use crate::facts::{Interface, Interfaces};

/// RFC 7600 section 4.8: what an IPv6-only node sends ICMPv4 errors from.
const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// What the operator has said, else an address of a port, else one of the node, else the one for nodes that have none: an error without a
/// source could not be sent, and path MTU discovery would wait for it in vain.
pub(super) fn ipv4(state: &NodeState, interfaces: &Interfaces) -> Ipv4Addr {
    let of_ports = state.ports.iter().filter_map(|port| interfaces.get(&port.name));
    let mut all = of_ports.chain(interfaces.0.values()).filter_map(address);
    state.source_address_ipv4.or_else(|| all.next()).unwrap_or(DUMMY)
}

/// The first address of an interface that others may see.
fn address(interface: &Interface) -> Option<Ipv4Addr> {
    interface.addresses.iter().find_map(|net| match net {
        IpNet::V4(net) if !net.addr().is_loopback() && !net.addr().is_link_local() => Some(net.addr()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_has_a_source_whatever_addresses_there_are() {
        let state = |address: Option<&str>| -> NodeState {
            let mut state =
                json!({"node": "n", "source_address": "fc00:a::1", "ports": [{"name": "port", "role": "access"}]});
            if let Some(address) = address {
                state["source_address_ipv4"] = json!(address);
            }
            serde_json::from_value(state).expect("a state")
        };
        let interface = |addresses: &[&str]| -> Interface {
            serde_json::from_value(
                json!({"ifindex": 2, "mtu": 1500, "mac": [0, 0, 0, 0, 0, 1], "addresses": addresses, "up": true}),
            )
            .expect("an interface")
        };
        let mut interfaces = Interfaces::default();
        interfaces.0.insert("a".to_owned(), interface(&["fc00::1/64", "10.0.0.1/24"]));
        interfaces.0.insert("lo".to_owned(), interface(&["127.0.0.1/8"]));
        interfaces.0.insert("port".to_owned(), interface(&["169.254.0.1/16", "10.0.1.1/24"]));
        assert_eq!(ipv4(&state(Some("192.0.2.1")), &interfaces), Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(ipv4(&state(None), &interfaces), Ipv4Addr::new(10, 0, 1, 1), "of a port");
        interfaces.0.remove("port");
        assert_eq!(ipv4(&state(None), &interfaces), Ipv4Addr::new(10, 0, 0, 1), "of the node");
        interfaces.0.remove("a");
        assert_eq!(ipv4(&state(None), &interfaces), DUMMY);
    }
}
