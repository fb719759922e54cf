//! Whatever functions return: packets that went wrong in every way, at proxies that remember, masquerade, or trust a function with the
//! list. Each packet that leaves has the steering header of its own chain, or one that its function may make.

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*, leaving};
use segue_testkit::is_long;
use segue_testkit::mutation::{Random, mutate};
use segue_testkit::node::{Node, Verdict};
use segue_wire::{Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};

/// Packets at each function.
fn packets() -> usize {
    if is_long() { 150_000 } else { 50_000 }
}

/// Two chains for each function; the tag tells them apart, and the inner source port is the flow.
fn list(function: u16, chain: u16) -> SrhRepr {
    let last = if function == END_AM { SERVER } else { behind_core1(0x300 + chain) };
    SrhRepr::new(&[local(function), behind_core1(0x100 + chain), behind_core1(0x200 + chain), last]).with_tag(chain)
}

fn inner(packet: PacketBuilder, chain: u16, hop_limit: u8) -> PacketBuilder {
    let repr = Ipv6Repr { hop_limit, ..Ipv6Repr::new(CLIENT, SERVER) };
    packet.inner_ipv6(repr).udp(UdpRepr::new(chain, 40_001)).payload(&[7; 40])
}

/// What goes in for a function, and what it gives back if it does nothing wrong.
fn there_and_back(function: u16, port: &str, chain: u16) -> (Vec<u8>, Vec<u8>) {
    let srh = list(function, chain);
    let there = arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(function))).srh(srh.clone());
    let steered = |destination| {
        let repr = Ipv6Repr { hop_limit: 60, ..Ipv6Repr::new(HEADEND, destination) };
        arriving(port).ipv6(repr).srh(srh.clone().with_segments_left(2))
    };
    let back = match function {
        END_AM => inner(steered(SERVER), chain, 33),
        END_AN => inner(steered(behind_core1(0x100 + chain)), chain, 33),
        _ => inner(arriving(port), chain, 33),
    };
    (inner(there, chain, 33).build(), back.build())
}

/// Inner source port of what follows the SRH, if that is a UDP packet from the client to the server.
fn flow(rest: &[u8]) -> Option<u16> {
    let same = rest.get(8..40)? == [CLIENT.octets(), SERVER.octets()].concat() && rest[6] == 17;
    same.then(|| u16::from_be_bytes([rest[40], rest[41]]))
}

/// What is wrong with a frame that left towards a SID. Octets behind the segments, where TLVs would be, count for nothing.
fn fault(function: u16, frame: &[u8]) -> Option<&'static str> {
    let ip = &frame[14..];
    let Some(srh) = ip.get(40..).filter(|srh| srh.len() >= 8 && ip[6] == 43 && srh[2] == 4) else {
        return Some("no SRH");
    };
    let left = usize::from(srh[3]);
    let segments: Vec<&[u8]> = srh[8..].chunks_exact(16).take(left + 1).collect();
    let Some(inner) = srh.get(8 * (usize::from(srh[1]) + 1)..) else { return Some("Hdr Ext Len beyond the frame") };
    let chain = u16::from_be_bytes([srh[6], srh[7]]);
    if !(1..=2).contains(&chain) || srh[5] != 0 {
        return Some("the tag, or flags");
    }
    if segments.get(left) != Some(&&ip[24..40]) {
        return Some("the destination is not the active segment");
    }
    // To a masquerading proxy's function the packet is one from its source: it may rewrite that, as a NAT does.
    if ip[8..24] != HEADEND.octets() && function != END_AM {
        return Some("another source");
    }
    let sent = list(function, chain).segments;
    let same = |segments: &[&[u8]]| segments.iter().zip(&sent).all(|(found, sent)| **found == sent.octets());
    match function {
        // The function may put segments in front of the rest of the list.
        END_AN => {
            let inside = |segment: &&[u8]| segment[..2] == [0xfc, 0];
            let fits = left >= 2 && same(&segments[..3]) && segments[3..].iter().all(inside);
            (!fits || flow(inner) != Some(chain)).then_some("not what the function may change")
        }
        END_AD_FLOW if flow(inner) != Some(chain) => Some("another flow's header"),
        // By interface, and with the list in the packet, there is no inner flow to compare.
        _ => (left != 2 || !same(&segments)).then_some("a list that nobody sent"),
    }
}

#[test]
#[ignore = "needs root"]
fn what_functions_return_never_leaves_with_a_header_that_is_not_its_own() {
    let network = Network::new();
    let node = Node::load(&network.node, &configuration(DOMAIN));
    let to_core1 = leaving("core1").build();
    for (function, port) in [(END_AD, "dyn1"), (END_AD_FLOW, "flow0"), (END_AM, "mask0"), (END_AN, "aware0")] {
        let chains = [1, 2].map(|chain| there_and_back(function, port, chain));
        let (mut left, mut dropped, mut passed) = (0, 0, 0);
        node.run_many(|runner| {
            let mut random = Random::new(0xf00d + u64::from(function));
            for (there, back) in &chains {
                assert_eq!(runner.run("core0", there).0, Verdict::Redirect);
                assert_eq!(runner.run(port, back).0, Verdict::Redirect, "{port}: unharmed");
            }
            for _ in 0..packets() {
                let mut frame = random.pick(&chains).1.clone();
                mutate(&mut random, &mut frame);
                let (verdict, found) = runner.run(port, &frame);
                // Errors go back to whoever a broken packet says that it came from.
                let error = found.len() >= 54 && found[20] == 58 && found[22..38] == NODE.octets();
                let to_sid = found.len() >= 54 && found[12..14] == [0x86, 0xdd] && found[38..40] == [0xfc, 0] && !error;
                match verdict {
                    Verdict::Redirect if found[..12] == to_core1[..12] && to_sid => {
                        left += 1;
                        let problem = fault(function, &found);
                        assert_eq!(problem, None, "{port}: {found:02x?} came of {frame:02x?}");
                    }
                    // Answers to senders, and the function's own traffic.
                    Verdict::Redirect | Verdict::Transmit | Verdict::Pass => {
                        passed += 1;
                        assert!(!to_sid, "{port}: {verdict:?} {found:02x?} came of {frame:02x?}");
                    }
                    Verdict::Drop => dropped += 1,
                    Verdict::Aborted => panic!("{port}: {frame:02x?}"),
                }
            }
        });
        println!("{port}: {left} left, {dropped} dropped, {passed} answered or passed");
        assert!(
            left > packets() / 100 && dropped > packets() / 10,
            "{port}: {left} left, {dropped} dropped: a poor mixture"
        );
    }
}
