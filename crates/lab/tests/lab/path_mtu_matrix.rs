//! Path MTU discovery wherever the function is, whatever its proxy, in both families and directions, and wherever the small link is: a
//! transfer ends, and its sender has learned the MTU that fits.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use segue_api::client::Client;
use segue_api::report::PathMtuReport;
use segue_host::namespace::inside;

use crate::common::TestLab;
use crate::path_mtu::{end, learned};

/// Octets of a transfer: many segments.
const OCTETS: usize = 200_000;
/// Within this a transfer ends, or never.
const PATIENCE: Duration = Duration::from_millis(1000);
/// The same behind a function that translates: agents look once a second at what nodes have said of paths.
const PATIENCE_WITH_NAT: Duration = Duration::from_millis(6000);
/// From a change of a link's MTU until the agents have it: they look at most once a second.
const FOLLOWED: Duration = Duration::from_millis(1500);

/// IPv6 header, and an SRH with one segment: what H.Encaps.Red puts on for the proxy and the egress; and what is left behind a static proxy
/// in front of the egress.
const ENVELOPE: u32 = 40 + 8 + 16;
const PLAIN_ENVELOPE: u32 = 40;

/// With NAT: the function translates the port that the client connects to, so what errors quote from behind it is no connection of the client's.
/// Then it takes a lost packet or two until a node refuses one that its sender knows.
const KINDS: [&str; 10] = [
    "static",
    "dynamic",
    "dynamic-flow",
    "exact",
    "masquerading",
    "netfilter",
    "static with NAT",
    "dynamic with NAT",
    "exact with NAT",
    "netfilter with NAT",
];

/// The nodes in the direction from the client.
const NODES: [&str; 3] = ["edge1", "nfv", "edge2"];

/// One transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    /// Position in [`KINDS`].
    kind: usize,
    /// Position in [`NODES`] of the function.
    node: usize,
    ipv4: bool,
    /// From the client to the server.
    upload: bool,
}

impl Cell {
    fn all() -> impl Iterator<Item = Self> {
        let each = |count: usize| 0..count;
        each(KINDS.len()).flat_map(move |kind| {
            each(NODES.len()).flat_map(move |node| {
                [(false, false), (false, true), (true, false), (true, true)].map(|(ipv4, upload)| Self {
                    kind,
                    node,
                    ipv4,
                    upload,
                })
            })
        })
    }

    /// One of the families and, in turn, the other.
    fn is_of_few(&self) -> bool {
        (self.kind + self.node + usize::from(self.upload)).is_multiple_of(2) == self.ipv4
    }

    /// That the client connects to.
    fn port(&self) -> u16 {
        8000 + u16::try_from(self.kind * NODES.len() + self.node).unwrap()
    }

    /// That the server listens on.
    fn port_behind(&self) -> u16 {
        if self.proxy().1 { self.port() + 1000 } else { self.port() }
    }

    /// The kind of proxy, and whether the function translates.
    fn proxy(&self) -> (&'static str, bool) {
        KINDS[self.kind].strip_suffix(" with NAT").map_or((KINDS[self.kind], false), |proxy| (proxy, true))
    }

    /// How far the function is along the way, 0: on the headend's own node.
    fn step(&self) -> usize {
        if self.upload { self.node } else { NODES.len() - 1 - self.node }
    }

    /// What fits links between nodes with these MTUs, in the direction from the client.
    fn fits(&self, links: [u32; 2]) -> u32 {
        let along = if self.upload { links } else { [links[1], links[0]] };
        let envelope = |link: usize| {
            let behind = self.proxy().0 == "static" && self.step() <= link;
            if behind { PLAIN_ENVELOPE } else { ENVELOPE }
        };
        (0..2).map(|link| along[link] - envelope(link)).min().unwrap()
    }

    /// Behind a function that translates the headend may have been told too: an SRH of H.Encaps.Red is that of all lists with another
    /// first segment, so that it has to reckon with the whole header up to the narrow link.
    fn fits_at_least(&self, links: [u32; 2]) -> Option<u32> {
        self.proxy().1.then(|| links[0].min(links[1]) - ENVELOPE)
    }
}

/// Where the plan puts the server, whose address the functions' rules name.
const SERVER_IPV4: &str = "10.0.2.2";
const SERVER_IPV6: &str = "2001:db8:2::2";

fn topology() -> String {
    let (mut functions, mut chains) = (String::new(), String::new());
    for cell in Cell::all().filter(|cell| cell.ipv4 && cell.upload) {
        let (node, port, behind) = (NODES[cell.node], cell.port(), cell.port_behind());
        let (kind, nat) = cell.proxy();
        let rules = match (nat, kind) {
            (true, _) => format!(
                "nftables: 'table inet f {{ chain f {{ type nat hook prerouting priority dstnat; \
                 ip daddr {SERVER_IPV4} tcp dport {port} dnat ip to {SERVER_IPV4}:{behind}; \
                 ip6 daddr {SERVER_IPV6} tcp dport {port} dnat ip6 to [{SERVER_IPV6}]:{behind}; }}; }}'"
            ),
            (false, _) => {
                "nftables: 'table inet f { chain f { type filter hook forward priority 0; policy accept; }; }'"
                    .to_owned()
            }
        };
        let how = match (kind, nat) {
            ("netfilter", _) => format!("netfilter: {{ {rules} }}"),
            (_, true) => {
                format!("proxy: {kind}, namespace: {{ {rules} }}, capabilities: {{ rewrites_flows: true }}")
            }
            (_, false) => format!("proxy: {kind}"),
        };
        functions += &format!("  f{port}: {{ node: {node}, {how} }}\n");
        let ports = if nat { format!("{port}, {behind}") } else { port.to_string() };
        chains += &format!(
            "  c{port}: {{ from: client, to: server, match: {{ protocol: tcp, destination_ports: [{ports}] }}, via: [f{port}] }}\n"
        );
    }
    format!(
        "domain: {{ core_mtu: 1500 }}\nnodes: {{ edge1: {{}}, nfv: {{}}, edge2: {{}} }}\n\
         hosts: {{ client: {{ node: edge1 }}, server: {{ node: edge2 }} }}\n\
         links: [{{ between: [edge1, nfv] }}, {{ between: [nfv, edge2] }}]\nfunctions:\n{functions}chains:\n{chains}"
    )
}

/// Whether all octets arrive.
fn transfer(lab: &TestLab, cell: Cell, server: IpAddr) -> bool {
    let at = SocketAddr::new(server, cell.port());
    let behind = SocketAddr::new(server, cell.port_behind());
    let listener = inside(&lab.namespace("server"), || TcpListener::bind(behind)).unwrap().unwrap();
    let client = inside(&lab.namespace("client"), || TcpStream::connect_timeout(&at, PATIENCE)).unwrap();
    let client = client.unwrap_or_else(|error| panic!("{cell:?}: not even a connection: {error}"));
    let (server, _) = listener.accept().unwrap();
    let (mut from, mut to) = if cell.upload { (client, server) } else { (server, client) };
    let patience = if cell.proxy().1 { PATIENCE_WITH_NAT } else { PATIENCE };
    from.set_write_timeout(Some(patience)).unwrap();
    to.set_read_timeout(Some(patience)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // What does not arrive is seen there.
            let _ = from.write_all(&vec![7; OCTETS]);
        });
        let mut received = Vec::new();
        to.read_to_end(&mut received).is_ok() && received.len() == OCTETS
    })
}

/// Has the hosts forget what they have learned, transfers, and looks at what the sender knows then. Tells of all that is otherwise.
fn check(lab: &TestLab, cells: &[Cell], links: [u32; 2]) -> Vec<String> {
    let mut otherwise = Vec::new();
    let (client, server) = (end(lab, "client"), end(lab, "server"));
    let of = |addresses: &[IpAddr], cell: Cell| *addresses.iter().find(|one| one.is_ipv4() == cell.ipv4).unwrap();
    for cell in cells.iter().copied() {
        let (sender, to) =
            if cell.upload { ("client", of(&server.addresses, cell)) } else { ("server", of(&client.addresses, cell)) };
        // Both: who has learned offers smaller segments to the other.
        for host in ["client", "server"] {
            lab.sh(host, "ip route flush cache; ip -6 route flush cache");
        }
        let what = format!("{} on {}, {cell:?}, links of {links:?}", KINDS[cell.kind], NODES[cell.node]);
        let arrived = transfer(lab, cell, of(&server.addresses, cell));
        let known = learned(lab, sender, to);
        if !arrived {
            otherwise.push(format!("{what}: the transfer does not end; learned {known:?}"));
        } else if known != Some(cell.fits(links)) && known != cell.fits_at_least(links) {
            otherwise.push(format!("{what}: learned {known:?}, {} fits", cell.fits(links)));
        }
    }
    otherwise
}

fn set_mtu(lab: &TestLab, between: [&str; 2], mtu: u32) {
    for (node, other) in [(between[0], between[1]), (between[1], between[0])] {
        lab.sh(node, &format!("ip link set {other} mtu {mtu}"));
    }
}

/// With SEGUE_LONG all of it; else each kind at each place in each direction, in one family, and fewer where the small link is one of the two.
#[test]
#[ignore = "needs root"]
fn a_transfer_ends_wherever_function_and_small_link_are() {
    let long = std::env::var_os("SEGUE_LONG").is_some();
    let lab = TestLab::up("mtx", &topology());
    assert_eq!(lab.addresses("server"), [SERVER_IPV4, SERVER_IPV6]);
    let few: Vec<Cell> = Cell::all().filter(|cell| long || cell.is_of_few()).collect();
    let mut otherwise = check(&lab, &few, [1500, 1500]);
    // Where the function is between the two links it matters most which of them is the small one; and behind one that translates.
    let wanted = |cell: &Cell| cell.node == 1 || (cell.node == 0 && cell.proxy().1 && cell.upload);
    let fewer: Vec<Cell> = few.into_iter().filter(|cell| long || wanted(cell)).collect();
    for links in [[1400, 1500], [1500, 1400]] {
        set_mtu(&lab, [NODES[0], NODES[1]], links[0]);
        set_mtu(&lab, [NODES[1], NODES[2]], links[1]);
        std::thread::sleep(FOLLOWED);
        otherwise.extend(check(&lab, &fewer, links));
    }
    assert!(otherwise.is_empty(), "{}", otherwise.join("\n"));
    // What the first node has been told of the second one's narrow link, and of its own.
    let agent = Client::new(lab.paths().socket(NODES[0]));
    let told: Vec<PathMtuReport> = agent.get("/v1/path-mtus").unwrap();
    let lists: Vec<u16> = told.iter().filter(|limit| limit.policy.is_some()).map(|limit| limit.mtu).collect();
    assert!(!lists.is_empty() && lists.iter().all(|mtu| *mtu == 1400), "{told:?}");
    assert!(told.iter().any(|limit| limit.sid.is_some() && limit.mtu == (1400 - PLAIN_ENVELOPE) as u16), "{told:?}");
    assert!(told.iter().all(|limit| limit.seconds_left <= 600), "{told:?}");
    lab.down();
}
