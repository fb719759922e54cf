//! The link-layer addresses of virtual machines: told by whatever they send. Who says nothing by itself is asked, by an echo request to all
//! nodes of the link, which every machine with IPv6 answers, or asks in its turn who wants to know.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{LinkAddr, MsgFlags, bind, recvfrom, send};
use segue_host::link::LinkSocket;
use segue_model::node::NodeState;
use segue_model::value::MacAddress;
use segue_wire::{Icmpv6Repr, Ipv6Repr, PacketBuilder};
use socket2::{Domain, Protocol, Socket, Type};

use crate::apply::Learnt;
use crate::kernel::KernelError;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_millis(100);
/// Octets of a frame's addresses.
const ADDRESSES: usize = 12;

/// A link as long as the same machine is at its other end: its number, and how often that has come and gone.
type Life = (u32, u32);

/// What virtual machines have told, as long as they are at the other end of the link.
#[derive(Debug, Default)]
pub struct Learner(BTreeMap<String, (Life, MacAddress)>);

impl Learner {
    /// Looks at the links of the machines of `state` whose addresses are not written, in the calling thread's namespace. Takes up to a
    /// tenth of a second for each that is silent.
    ///
    /// # Errors
    /// Interfaces that the kernel does not tell.
    pub fn look(&mut self, made: &NodeState) -> Result<Learnt, KernelError> {
        let links = LinkSocket::open()?.all()?;
        let with_carrier = links.into_iter().filter(|link| link.carrier);
        let lives: BTreeMap<String, Life> =
            with_carrier.map(|link| (link.name.clone(), (link.index(), link.carrier_changes))).collect();
        let addresses = link_addresses();
        let mut learnt = BTreeMap::new();
        for (wiring, function) in made.attached() {
            let Some(vm) = &function.vm else { continue };
            for (link, interface) in [(&vm.west, wiring.node_west), (&vm.east, wiring.node_east)] {
                let before = self.0.get(&interface);
                let is_written = link.mac.is_some() && before.map(|(_, mac)| *mac) != link.mac;
                let (Some(life), Some(address)) = (lives.get(&interface), addresses.get(&interface)) else { continue };
                if is_written {
                    continue;
                }
                let mac = match before.filter(|(of, _)| of == life) {
                    Some((_, mac)) => Some(*mac),
                    None => ask(address).unwrap_or_else(|error| {
                        tracing::debug!(interface, "the machine's address: {error}");
                        None
                    }),
                };
                learnt.extend(mac.map(|mac| (interface, (*life, mac))));
            }
        }
        self.0 = learnt;
        Ok(self.0.iter().map(|(interface, (_, mac))| (interface.clone(), *mac)).collect())
    }
}

fn link_addresses() -> BTreeMap<String, LinkAddr> {
    let all = nix::ifaddrs::getifaddrs().into_iter().flatten();
    all.filter_map(|found| Some((found.interface_name, *found.address?.as_link_addr()?))).collect()
}

/// Asks who is there; the address of the first who says something.
fn ask(link: &LinkAddr) -> io::Result<Option<MacAddress>> {
    let protocol = Protocol::from(i32::from((nix::libc::ETH_P_ALL as u16).to_be()));
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    bind(socket.as_raw_fd(), link)?;
    let own = link.addr().unwrap_or_default();
    send(socket.as_raw_fd(), &question(own), MsgFlags::MSG_DONTWAIT)?;
    let end = Instant::now() + PATIENCE;
    let mut frame = [0; 64];
    while Instant::now() < end {
        let length = match recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut frame) {
            Ok((length, _)) => length,
            Err(nix::Error::EAGAIN) => break,
            Err(error) => return Err(error.into()),
        };
        if let Some(mac) = source(&frame[..length]).filter(|mac| mac.octets() != own) {
            return Ok(Some(mac));
        }
    }
    Ok(None)
}

/// Who sent a frame, if it is one station.
fn source(frame: &[u8]) -> Option<MacAddress> {
    let mac = MacAddress(frame.get(6..ADDRESSES)?.try_into().ok()?);
    mac.is_unicast().then_some(mac)
}

/// An echo request to all nodes of the link, from the link-local address of this end.
fn question(own: [u8; 6]) -> Vec<u8> {
    let [a, b, c, d, e, f] = own;
    // RFC 4291 appendix A.
    let from = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f];
    let all_nodes = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let to = segue_wire::MacAddress([0x33, 0x33, 0, 0, 0, 1]);
    PacketBuilder::ethernet(segue_wire::MacAddress(own), to)
        .ipv6(Ipv6Repr { hop_limit: 255, ..Ipv6Repr::new(from.into(), all_nodes.into()) })
        .icmpv6(Icmpv6Repr::EchoRequest { identifier: 0x5e9, sequence_number: 1, data: Vec::new() })
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_are_told_from_groups() {
        let frame = question([2, 0, 0, 0, 0, 9]);
        assert_eq!(source(&frame).unwrap().octets(), [2, 0, 0, 0, 0, 9]);
        assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 1]);
        let mut group = frame;
        group[6] |= 1;
        assert_eq!(source(&group), None);
        assert_eq!(source(&[0; 11]), None);
    }
}
