//! What a service implements for each of its workers.

use std::os::fd::BorrowedFd;

use crate::context::Context;
use crate::packet::Packet;
use crate::verdict::Verdict;

/// One worker's part of a service. A worker is one thread; it is never called by two at a time.
///
/// Only [`Service::packet`] must be there.
pub trait Service: Send {
    /// Decides on one packet. What is sent through `context` meanwhile leaves before this packet.
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> Verdict;

    /// Decides on several packets, in order. For a service that gains by looking at them together; it calls [`Context::at`] with each
    /// one's index before it sends anything for it, and [`Packet::decide`] on each.
    fn batch(&mut self, packets: &mut [Packet<'_>], context: &mut Context) {
        for (index, packet) in packets.iter_mut().enumerate() {
            context.at(index);
            let verdict = self.packet(packet, context);
            packet.decide(verdict);
        }
    }

    /// The time that [`Context::wake_at`] was given has come. A service that wants to be woken again says so again.
    fn timer(&mut self, context: &mut Context) {
        let _ = context;
    }

    /// Sends or drops all that it holds: no packet will come any more, or the service gets another configuration. Afterwards nothing may
    /// be held.
    fn stop(&mut self, context: &mut Context) {
        let _ = context;
    }

    /// What else can give it something to do: descriptors that [`Service::readable`] is called for, such as that of a TUN device.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Its descriptor can be read.
    fn readable(&mut self, context: &mut Context) {
        let _ = context;
    }

    /// What it wants to be seen of its state, for `segue service list -o json` and `segue service top`.
    fn report(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}
