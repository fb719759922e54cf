//! The far ends of ports, where they can be seen: in this network namespace, or in one that has a name.

use segue_api::doctor::Check;
use segue_api::report::PortReport;
use segue_host::device::{Device, DeviceSocket, OffloadSocket};
use segue_host::{Namespace, namespace};

/// Namespaces that are looked into for far ends.
const NAMESPACES_MAX: usize = 256;

/// What is known of a far end.
struct Peer {
    /// Name of its namespace; None: that of the node.
    namespace: Option<String>,
    name: String,
    tx_checksum: bool,
}

impl Peer {
    /// As a sentence and a command have it.
    fn where_it_is(&self) -> (String, String) {
        let name = self.namespace.as_ref();
        let place = name.map(|name| format!(" in namespace {name}")).unwrap_or_default();
        (place, name.map(|name| format!("ip netns exec {name} ")).unwrap_or_default())
    }
}

/// Senders at the far end of a veth that leave checksums to it: XDP passes on frames without them.
pub fn checksums(ports: &[PortReport]) -> Vec<Check> {
    let by_xdp = ports.iter().filter(|port| port.hook.starts_with("xdp"));
    let veths = by_xdp.filter_map(|port| {
        let device = port.device.as_ref().filter(|device| device.kind == segue_host::device::VETH)?;
        Some((port, device.peer?, device.peer_elsewhere))
    });
    veths
        .filter_map(|(port, peer, elsewhere)| {
            let peer = find(port.ifindex, peer, elsewhere);
            if port.role == "core" { from_node(port, peer) } else { Some(check(port, peer)) }
        })
        .collect()
}

/// The far end of a core port is another node's: whether it sends packets without checksums, from hosts behind it, depends on its own
/// ports' hooks, which cannot be seen from here.
fn from_node(port: &PortReport, peer: Option<Peer>) -> Option<Check> {
    let peer = peer.filter(|peer| peer.tx_checksum)?;
    let (place, inside) = peer.where_it_is();
    let reason = format!(
        "its far end {}{place} leaves checksums to the link: where it sends, without labels, what came in by `mode: skb` from hosts that do so too, \
         TCP through this port hangs, since XDP passes packets on without",
        peer.name
    );
    let remedy = format!("if so, give the port `mode: skb`, or `{inside}ethtool -K {} tx off`", peer.name);
    Some(Check::note("port", format!("port {}", port.name), reason, remedy))
}

fn check(port: &PortReport, peer: Option<Peer>) -> Check {
    let about = format!("port {}", port.name);
    let Some(peer) = peer else {
        let reason = "its far end is in a network namespace without a name: whether it leaves checksums to the link cannot be seen";
        return Check::note("port", about, reason, "there: `ethtool -K FAR-END tx off`, or give the port `mode: skb`");
    };
    let (place, inside) = peer.where_it_is();
    if !peer.tx_checksum {
        return Check::ok("port", about, format!("its far end {}{place} makes its checksums itself", peer.name));
    }
    let reason = format!(
        "its far end {}{place} leaves checksums to the link, and XDP passes packets on without: TCP through it hangs",
        peer.name
    );
    Check::wrong(
        "port",
        about,
        reason,
        format!("give the port `mode: skb`, or `{inside}ethtool -K {} tx off`", peer.name),
    )
}

/// The far end of the interface `own`, which has the number `peer` where it is.
fn find(own: u32, peer: u32, elsewhere: bool) -> Option<Peer> {
    if !elsewhere {
        return look(own, peer, false).map(|(name, tx_checksum)| Peer { namespace: None, name, tx_checksum });
    }
    namespace::all().into_iter().take(NAMESPACES_MAX).find_map(|namespace| {
        let inside = Namespace::find(&namespace).ok().flatten()?;
        let (name, tx_checksum) = inside.inside(|| look(own, peer, true)).ok().flatten()?;
        Some(Peer { namespace: Some(namespace), name, tx_checksum })
    })
}

/// In the thread's namespace: name, and whether it leaves checksums to the link.
fn look(own: u32, peer: u32, elsewhere: bool) -> Option<(String, bool)> {
    let is_it = |device: &Device| {
        device.index == peer && device.lower.is_some_and(|lower| lower.index == own && lower.elsewhere == elsewhere)
    };
    let devices = DeviceSocket::open().and_then(|mut socket| socket.all()).ok()?;
    let (name, device) = devices.into_iter().find(|(_, device)| is_it(device))?;
    let offloads = OffloadSocket::open().and_then(|mut socket| socket.of(device.index)).ok()?;
    Some((name, offloads.tx_checksum()))
}
