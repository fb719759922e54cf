//! Packets that do not fit after encapsulation: TCP works through the chain with hosts at 1500 around a domain at 9000, and
//! with a domain at 1500, where the hosts have to learn the path's MTU.

use std::net::IpAddr;

use crate::common::TestLab;
use segue_lab::demo::proof::Tcpdump;
use segue_lab::demo::traffic::{self, End, Flow};
use segue_wire::{EthernetFrame, Icmpv4Message, Icmpv6Message, Ipv4Packet, Ipv6Packet, ethertype, protocol};

const CHAIN: &str = "
nodes: { edge1: {}, nfv1: {}, edge2: {} }
hosts: { client: { node: edge1 }, server: { node: edge2 } }
links: [{ between: [edge1, nfv1] }, { between: [nfv1, edge2] }]
functions: { fw: { node: nfv1 } }
chains: { c: { from: client, to: server, via: [fw] } }
";

/// IPv6 header, and an SRH with one segment: what H.Encaps.Red puts on for the proxy and the egress.
const ENVELOPE: u32 = 40 + 8 + 16;

pub fn end(lab: &TestLab, host: &str) -> End {
    let addresses = lab.addresses(host).iter().map(|text| text.parse().unwrap()).collect();
    End { name: host.into(), namespace: lab.namespace(host), addresses }
}

/// The MTU that a host has learned for a destination.
pub fn learned(lab: &TestLab, host: &str, destination: IpAddr) -> Option<u32> {
    let route = lab.sh(host, &format!("ip route get {destination}"));
    let mut words = route.split_whitespace().skip_while(|word| *word != "mtu").skip(1);
    words.next().and_then(|word| word.parse().ok())
}

/// Sends TCP both ways and fetches a file, all through the chain.
fn tcp_works(lab: &TestLab) {
    let (client, server) = (end(lab, "client"), end(lab, "server"));
    let directory = tempfile::tempdir().unwrap();
    let web = traffic::serve(&server, &directory.path().join("www"), 3 << 20).unwrap();
    for address in &server.addresses {
        for flow in [Flow::Tcp, Flow::TcpReverse] {
            let throughput =
                traffic::iperf(&client, &server, *address, flow, 1).unwrap_or_else(|error| panic!("{error}"));
            assert!(throughput.bits_per_second > 1e6, "{address} {flow:?}: {throughput:?}");
        }
        let file = traffic::download(&client, *address, &directory.path().join("got"))
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((file.octets, &file.digest), (3 << 20, &web.digest), "{address}");
    }
}

#[test]
#[ignore = "needs root"]
fn hosts_at_1500_around_a_domain_at_9000() {
    let lab = TestLab::up("jum", CHAIN);
    for host in ["client", "server"] {
        let features = lab.sh(host, "ethtool -k $(ls /proc/sys/net/ipv6/conf | grep ^edge)");
        for left in ["tx-checksumming", "tcp-segmentation-offload", "generic-segmentation-offload"] {
            assert!(features.contains(&format!("{left}: on")), "{left} is left to the link: {features}");
        }
    }
    tcp_works(&lab);
    for address in end(&lab, "server").addresses {
        assert_eq!(learned(&lab, "client", address), None, "nothing had to shrink");
        // The largest packet of a host fits as it is.
        let size = if address.is_ipv4() { 1500 - 28 } else { 1500 - 48 };
        assert!(lab.try_sh("client", &format!("ping -n -M do -s {size} -c 2 -i 0.1 -w 5 {address}")), "{address}");
    }
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn a_domain_at_1500_teaches_the_hosts() {
    let lab = TestLab::up("ptb", &format!("domain: {{ core_mtu: 1500 }}\n{CHAIN}"));
    let directory = tempfile::tempdir().unwrap();
    let port = lab.record.node("client").unwrap().ports[0].clone();
    let dump = Tcpdump::start(&lab.namespace("client"), &port, directory.path().join("client.pcap")).unwrap();
    tcp_works(&lab);
    let told = dump.stop().unwrap().iter().filter_map(|frame| told_mtu(frame)).collect::<Vec<_>>();
    let fits = 1500 - ENVELOPE;
    for version in [4, 6] {
        let mtus: Vec<u32> = told.iter().filter(|(of, _)| *of == version).map(|(_, mtu)| *mtu).collect();
        assert!(!mtus.is_empty() && mtus.iter().all(|mtu| *mtu == fits), "IPv{version}: told {mtus:?}, {fits} fits");
    }
    for (host, peer) in [("client", "server"), ("server", "client")] {
        for address in end(&lab, peer).addresses {
            // TCP need not have sent anything too long to this end: who has learned offers the smaller segments, too.
            let size = if address.is_ipv4() { 1500 - 28 } else { 1500 - 48 };
            assert!(
                !lab.try_sh(host, &format!("ping -n -M do -s {size} -c 1 -W 1 {address}")),
                "{address}: cannot fit"
            );
            assert_eq!(learned(&lab, host, address), Some(fits), "{host} to {address}");
        }
    }
    lab.down();
}

/// Version and MTU of a Packet Too Big, or of an ICMPv4 "fragmentation needed".
fn told_mtu(frame: &[u8]) -> Option<(u8, u32)> {
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    match ethernet.ethertype() {
        ethertype::IPV6 => {
            let packet = Ipv6Packet::new_checked(ethernet.payload()).ok()?;
            let message = packet.payload();
            Icmpv6Message::new_checked(message).ok()?;
            let too_big = packet.next_header() == protocol::ICMPV6 && message[0] == 2;
            too_big.then(|| (6, u32::from_be_bytes(message[4..8].try_into().unwrap())))
        }
        ethertype::IPV4 => {
            let packet = Ipv4Packet::new_checked(ethernet.payload()).ok()?;
            let message = packet.payload();
            Icmpv4Message::new_checked(message).ok()?;
            let needed = packet.protocol() == protocol::ICMPV4 && message[..2] == [3, 4];
            needed.then(|| (4, u32::from(u16::from_be_bytes(message[6..8].try_into().unwrap()))))
        }
        _ => None,
    }
}
