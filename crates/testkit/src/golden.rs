//! Golden cases: one packet in, and everything that must come of it.

use std::cell::RefCell;

use segue_wire::PacketBuilder;

use crate::fixture::Network;
use crate::node::{Moved, Node, Processed, Verdict};

/// A node that cases are sent to. [`Golden::finish`] ends it: it shows all frames that left to Wireshark.
#[derive(Debug)]
pub struct Golden<'a> {
    node: Node<'a>,
    emitted: RefCell<Vec<Vec<u8>>>,
    finished: bool,
}

impl<'a> Golden<'a> {
    /// Loads the data plane with this configuration. See [`Node::load`].
    pub fn load(network: &'a Network, yaml: &str) -> Self {
        Self { node: Node::load(&network.node, yaml), emitted: RefCell::default(), finished: false }
    }

    /// Applies another configuration. See [`Node::apply`].
    pub fn apply(&mut self, yaml: &str) {
        self.node.apply(yaml);
    }

    /// The node.
    pub fn node(&self) -> &Node<'a> {
        &self.node
    }

    /// The frame leaves by a port as `expected`; the counters in `also`, and `forwarded`, count it.
    pub fn forwards(&self, case: &str, port: &str, frame: &PacketBuilder, expected: &PacketBuilder, also: &[&str]) {
        self.leaves(case, port, &frame.build(), &expected.build(), "forwarded", also);
    }

    /// As [`Golden::forwards`] with any outcome, and octets for frames that a builder does not build.
    pub fn leaves(&self, case: &str, port: &str, frame: &[u8], expected: &[u8], outcome: &str, also: &[&str]) {
        let found = self.node.send(port, frame);
        self.emitted.borrow_mut().push(found.frame.clone());
        compare(case, &found.frame, expected);
        assert_eq!(found.verdict, Verdict::Redirect, "{case}: verdict; counters {:?}", found.moved);
        assert_eq!(found.moved, counted(port, outcome, frame, also), "{case}: counters");
    }

    /// The frame goes to the kernel as `expected` (unchanged: the same as `frame`).
    pub fn passes(
        &self,
        case: &str,
        port: &str,
        frame: &PacketBuilder,
        expected: &PacketBuilder,
        outcome: &str,
        also: &[&str],
    ) {
        let (frame, expected) = (frame.build(), expected.build());
        let found = self.node.send(port, &frame);
        compare(case, &found.frame, &expected);
        assert_eq!(found.verdict, Verdict::Pass, "{case}: verdict; counters {:?}", found.moved);
        assert_eq!(found.moved, counted(port, outcome, &frame, also), "{case}: counters");
    }

    /// The frame is dropped without an answer.
    pub fn drops(&self, case: &str, port: &str, frame: &PacketBuilder, outcome: &str) {
        self.drops_octets(case, port, &frame.build(), outcome);
    }

    /// As [`Golden::drops`] for frames that a builder does not build.
    pub fn drops_octets(&self, case: &str, port: &str, frame: &[u8], outcome: &str) {
        let found = self.node.send(port, frame);
        assert_eq!(found.verdict, Verdict::Drop, "{case}: verdict; counters {:?}", found.moved);
        assert_eq!(found.moved, counted(port, outcome, frame, &[]), "{case}: counters");
    }

    /// The frame is dropped, and an answer is refused because RFC 4443 section 2.4(e) forbids one.
    pub fn drops_unanswered(&self, case: &str, port: &str, frame: &PacketBuilder, outcome: &str) {
        let frame = frame.build();
        let found = self.node.send(port, &frame);
        assert_eq!(found.verdict, Verdict::Drop, "{case}: verdict; counters {:?}", found.moved);
        let mut moved = counted(port, outcome, &frame, &[]);
        moved.insert("icmp not_sent".into(), (1, 0));
        assert_eq!(found.moved, moved, "{case}: counters");
    }

    /// The frame is dropped and answered by `reply`, which the row `icmp` counts.
    pub fn answers(
        &self,
        case: &str,
        port: &str,
        frame: &PacketBuilder,
        outcome: &str,
        icmp: &str,
        reply: &PacketBuilder,
    ) {
        self.answers_counted(case, port, &frame.build(), reply, &[outcome], icmp);
    }

    /// As [`Golden::answers`]; the names in `counters` after the outcome are other counters that move.
    pub fn answers_counted(
        &self,
        case: &str,
        port: &str,
        frame: &[u8],
        reply: &PacketBuilder,
        counters: &[&str],
        icmp: &str,
    ) {
        let reply = reply.build();
        let found = self.node.send(port, frame);
        self.emitted.borrow_mut().push(found.frame.clone());
        compare(case, &found.frame, &reply);
        assert!(matches!(found.verdict, Verdict::Redirect | Verdict::Transmit), "{case}: {:?}", found.verdict);
        let (outcome, also) = counters.split_first().expect("an outcome");
        let mut moved = counted(port, outcome, frame, also);
        moved.insert(format!("icmp {icmp}"), (1, 0));
        assert_eq!(found.moved, moved, "{case}: counters");
    }

    /// Sends a frame without any expectation; what leaves is shown to Wireshark.
    pub fn send(&self, port: &str, frame: &PacketBuilder) -> Processed {
        let found = self.node.send(port, &frame.build());
        if matches!(found.verdict, Verdict::Redirect | Verdict::Transmit) {
            self.emitted.borrow_mut().push(found.frame.clone());
        }
        found
    }

    /// As [`Golden::finish`] without Wireshark: for cases whose errors quote faults that it would warn of.
    pub fn finish_with_faults(mut self) {
        self.finished = true;
    }

    /// Shows every frame that left to Wireshark.
    ///
    /// # Panics
    ///
    /// When it finds one malformed, or has a warning for one.
    pub fn finish(mut self) {
        self.finished = true;
        crate::dissector::no_warnings(&self.emitted.borrow());
    }
}

impl Drop for Golden<'_> {
    fn drop(&mut self) {
        assert!(self.finished || std::thread::panicking(), "the test does not call Golden::finish");
    }
}

/// Layer 3 octets of a frame as its own header has them; of the frame where it holds less or the header is no IP.
fn layer_3_octets(frame: &[u8]) -> u64 {
    let held = frame.len() as u64 - 14;
    let word =
        |at: usize| frame.get(at..at + 2).map_or(0, |octets| u64::from(u16::from_be_bytes([octets[0], octets[1]])));
    let said = match word(12) {
        0x86dd if frame.len() >= 54 => 40 + word(18),
        0x0800 if frame.len() >= 34 => word(16),
        _ => held,
    };
    said.min(held)
}

fn counted(port: &str, outcome: &str, frame: &[u8], also: &[&str]) -> Moved {
    let octets = layer_3_octets(frame);
    let names = also.iter().map(|name| (*name).to_owned());
    std::iter::once(format!("{port} {outcome}")).chain(names).map(|name| (name, (1, octets))).collect()
}

/// # Panics
///
/// When the frames differ; the message shows both, and where they part.
fn compare(case: &str, found: &[u8], expected: &[u8]) {
    if found == expected {
        return;
    }
    let at =
        found.iter().zip(expected).position(|(left, right)| left != right).unwrap_or(found.len().min(expected.len()));
    panic!(
        "{case}: {} octets, expected {}; they part at octet {at}\nfound    {}\nexpected {}",
        found.len(),
        expected.len(),
        hexadecimal(found),
        hexadecimal(expected)
    );
}

/// Octets in hexadecimal: the Ethernet header, then words of 8 octets.
fn hexadecimal(frame: &[u8]) -> String {
    let (ethernet, rest) = frame.split_at(frame.len().min(14));
    let word = |octets: &[u8]| octets.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
    std::iter::once(word(ethernet)).chain(rest.chunks(8).map(word)).collect::<Vec<_>>().join(" ")
}
