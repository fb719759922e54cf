//! Traffic that tells whether a single packet was lost.

use std::{thread, time::Duration};

use segue_testkit::packet_socket::PacketSocket;
use segue_wire::{Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, UdpRepr};

use super::Network;

/// Sends numbered packets to a SID of the node while `body` runs; panics unless each arrived exactly once. Returns how many there were
/// in all: UDP from port 1000 to 2000, from 2001:db8:1::2 to fc00:0:2:1::.
pub fn under_traffic(network: &Network, sid: &str, body: impl FnOnce()) -> u64 {
    const FIRST: u32 = 100;
    /// Packets that are sent at least.
    const ENOUGH: u32 = 1000;
    let frame = |number: u32| {
        let path = [sid.parse().unwrap(), "fc00:0:2:1::".parse().unwrap()];
        PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]))
            .ipv6(Ipv6Repr::new("2001:db8:1::2".parse().unwrap(), path[0]))
            .srh(SrhRepr::new(&path))
            .udp(UdpRepr::new(1000, 2000))
            .payload(&number.to_be_bytes())
            .build()
    };
    let length = frame(0).len();
    let (sender, receiver) = (PacketSocket::open(&network.left, "n"), PacketSocket::open(&network.right, "n"));
    let number_of =
        |bytes: &[u8]| (bytes.len() == length).then(|| u32::from_be_bytes(bytes[length - 4..].try_into().unwrap()));
    // The first ones find the neighbour.
    let mut before = 0;
    for number in 0..FIRST {
        sender.send(&frame(number));
        before += 1;
        if receiver.receive_where(Duration::from_millis(50), |bytes| number_of(bytes) == Some(number)).is_some() {
            break;
        }
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (sent, received) = thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut number = FIRST;
            // On a busy machine few are sent while `body` runs: then some more behind it.
            while !stop.load(std::sync::atomic::Ordering::Relaxed) || number - FIRST <= ENOUGH {
                sender.send(&frame(number));
                number += 1;
                thread::sleep(Duration::from_micros(300));
            }
            number - FIRST
        });
        let receiving = scope.spawn(|| {
            let mut received = Vec::new();
            // Only these count: neighbour discovery goes on for ever.
            let wanted = |bytes: &[u8]| number_of(bytes).is_some_and(|number| number >= FIRST);
            while let Some(bytes) = receiver.receive_where(Duration::from_secs(1), wanted) {
                received.extend(number_of(&bytes));
            }
            received
        });
        // Else a failure in there would wait for ever.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
        (sending.join().unwrap(), receiving.join().unwrap())
    });
    let missing: Vec<_> = (FIRST..FIRST + sent).filter(|number| received.binary_search(number).is_err()).collect();
    let first = &missing[..missing.len().min(10)];
    assert!(missing.is_empty(), "{} lost of {sent}: {first:?}", missing.len());
    assert_eq!(received.len() as u32, sent, "some arrived twice");
    before + u64::from(sent)
}
