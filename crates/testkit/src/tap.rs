//! A TAP device: what a virtual machine or a user-space function sees of a node's interface.

use std::time::Duration;

use crate::netns::Netns;

/// The user's side of a TAP device. The device goes with it.
#[derive(Debug)]
pub struct Tap(segue_host::tap::Tap);

impl Tap {
    /// Makes a device of this name in `netns`, with this link-layer address of the node's side, up.
    ///
    /// # Panics
    ///
    /// Without root, or when the name is taken or longer than 15 octets.
    pub fn new(netns: &Netns, name: &str, mac: &str, mtu: u32) -> Self {
        let tap = netns.enter(|| segue_host::tap::Tap::open(name).unwrap_or_else(|error| panic!("{error}")));
        netns.sh(&format!("ip link set dev {name} address {mac} mtu {mtu} up"));
        Self(tap)
    }

    /// Gives a frame to the node.
    ///
    /// # Panics
    ///
    /// When the node does not take it: the device is down, or the frame is shorter than an Ethernet header.
    pub fn send(&self, frame: &[u8]) {
        self.0.send(frame).unwrap_or_else(|error| panic!("sending {} octets: {error}", frame.len()));
    }

    /// The next frame from the node, if one comes within `limit`.
    pub fn receive(&self, limit: Duration) -> Option<Vec<u8>> {
        self.0.receive(limit).unwrap_or_else(|error| panic!("reading from the TAP device: {error}"))
    }
}
