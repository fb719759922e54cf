//! The kernel's FIB, asked as the data plane asks it: by `bpf_fib_lookup()`, in a program that is on no port (`bpf/lib/forward/ask.h`).

use std::net::{IpAddr, Ipv6Addr};

use libbpf_rs::{Object, ProgramInput};

use super::Dataplane;
use super::pins::own_maps;
use crate::Error;
use crate::maps::map_error;
use crate::object::{self, Selection};

/// Octets in front of what the program is given.
const ETHERNET: usize = 14;
/// Octets of `struct bpf_fib_lookup`.
const FIB: usize = 64;
/// `BPF_FIB_LOOKUP_DIRECT`, `_OUTPUT`, `_TBID`.
const DIRECT: u32 = 1;
const OUTPUT: u32 = 2;
const TBID: u32 = 8;

/// A question of `adjacency_resolve()` in `bpf/lib/forward/adjacency.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FibQuestion {
    /// IPv6: the source that is asked with.
    pub source: Ipv6Addr,
    /// Where to.
    pub destination: IpAddr,
    /// Which of the equally good ways.
    pub bucket: u32,
    /// Number of the interface that the packet came in by; with `is_output` of the one that it is to leave by.
    pub ifindex: u32,
    /// Whether the way out is given.
    pub is_output: bool,
    /// Routing table; 0: by the kernel's rules.
    pub table: u32,
}

/// What the kernel said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FibVerdict {
    /// A link, and a neighbour whose link-layer address is known.
    Link,
    /// A link, and a neighbour who is not known yet.
    NoNeighbour,
    /// The route says blackhole or prohibit.
    Blackhole,
    /// The route says unreachable.
    Unreachable,
    /// The kernel must decide, for this reason.
    Kernel(&'static str),
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FibAnswer {
    /// What the kernel said.
    pub verdict: FibVerdict,
    /// Number of the interface that leads there.
    pub ifindex: u32,
    /// The neighbour there: the gateway, or the destination itself.
    pub next_hop: IpAddr,
    /// The route's MTU, octets; 0: not said.
    pub mtu: u32,
    /// Link-layer address of the interface.
    pub source_mac: [u8; 6],
    /// Link-layer address of the neighbour.
    pub destination_mac: [u8; 6],
}

/// Who asks; see [`Dataplane::fib`].
#[derive(Debug)]
pub struct Fib {
    object: Object,
}

impl Dataplane {
    /// Loads the program that asks. Its questions are about the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`Error::Load`].
    pub fn fib(&self) -> Result<Fib, Error> {
        let own = own_maps(&self.set)?;
        let reused: Vec<_> = self.maps.iter().chain(own.iter()).collect();
        Ok(Fib { object: object::load(object::open(&self.options.capacity)?, &reused, Selection::Ask)? })
    }
}

impl Fib {
    /// Asks.
    ///
    /// # Errors
    /// [`Error::Map`] if the program cannot be run.
    pub fn ask(&self, question: &FibQuestion) -> Result<FibAnswer, Error> {
        let mut octets = vec![0; ETHERNET];
        octets.extend(question.octets());
        let mut out = vec![0; octets.len()];
        let program = object::program(&self.object, object::ASK)?;
        let input = ProgramInput { data_in: Some(&octets), data_out: Some(&mut out), ..ProgramInput::default() };
        program.test_run(input).map_err(map_error("FIB", "ask it"))?;
        Ok(FibAnswer::read(&out[ETHERNET..], question.destination))
    }
}

impl FibQuestion {
    /// `struct fib_question`.
    fn octets(&self) -> [u8; FIB + 8] {
        let mut octets = [0; FIB + 8];
        let mut put = |at: usize, from: &[u8]| octets[at..at + from.len()].copy_from_slice(from);
        // u8 family, u8 l4_protocol, be16 sport, be16 dport, u16 tot_len, u32 ifindex, be32 flowinfo or rt_metric, 16 src, 16 dst,
        // be16 h_vlan_proto and be16 h_vlan_TCI or u32 tbid, 6 smac, 6 dmac.
        put(2, &(self.bucket as u16).to_be_bytes());
        put(8, &self.ifindex.to_ne_bytes());
        match self.destination {
            IpAddr::V6(destination) => {
                put(0, &[10]);
                put(12, &self.bucket.to_be_bytes());
                put(16, &self.source.octets());
                put(32, &destination.octets());
            }
            IpAddr::V4(destination) => {
                put(0, &[2]);
                put(16, &self.bucket.to_ne_bytes());
                put(32, &destination.octets());
            }
        }
        let mut flags = if self.is_output { OUTPUT } else { 0 };
        if self.table != 0 {
            flags |= DIRECT | TBID;
            put(48, &self.table.to_ne_bytes());
        }
        put(FIB, &flags.to_ne_bytes());
        octets
    }
}

impl FibAnswer {
    fn read(octets: &[u8], destination: IpAddr) -> Self {
        let word = |at: usize| u32::from_ne_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]);
        let mac = |at: usize| [0, 1, 2, 3, 4, 5].map(|index| octets[at + index]);
        let verdict = match word(FIB + 4) as i32 {
            0 => FibVerdict::Link,
            1 | 3 => FibVerdict::Blackhole,
            2 => FibVerdict::Unreachable,
            4 => FibVerdict::Kernel("there is no route that forwards; it is this node's own, or nobody's"),
            5 => FibVerdict::Kernel("the interface that it came in by does not forward"),
            6 => FibVerdict::Kernel("there is an encapsulation on the route"),
            7 => FibVerdict::NoNeighbour,
            8 => FibVerdict::Kernel("it is longer than the route's MTU"),
            9 => FibVerdict::Kernel("there is no source address"),
            _ => FibVerdict::Kernel("the kernel refused the question"),
        };
        // The kernel has put the gateway, if there is one, in the destination's place.
        let mut address = [0; 16];
        address.copy_from_slice(&octets[32..48]);
        let next_hop = match octets[0] {
            2 => IpAddr::from([address[0], address[1], address[2], address[3]]),
            10 => IpAddr::from(address),
            _ => destination,
        };
        let mtu = u32::from(u16::from_ne_bytes([octets[6], octets[7]]));
        Self { verdict, ifindex: word(8), next_hop, mtu, source_mac: mac(52), destination_mac: mac(58) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_lie_as_the_kernel_has_them() {
        let destination: Ipv6Addr = "fc00::7".parse().unwrap();
        let question = FibQuestion {
            source: "fd00::1".parse().unwrap(),
            destination: destination.into(),
            bucket: 5,
            ifindex: 9,
            is_output: false,
            table: 100,
        };
        let mut octets = question.octets();
        assert_eq!((octets[0], &octets[2..4], octets[8], octets[15]), (10, &[0, 5][..], 9, 5));
        assert_eq!((&octets[48..52], &octets[64..68]), (&100_u32.to_ne_bytes()[..], &9_u32.to_ne_bytes()[..]));
        octets[32..48].copy_from_slice(&"fe80::2".parse::<Ipv6Addr>().unwrap().octets());
        octets[6..8].copy_from_slice(&1400_u16.to_ne_bytes());
        octets[68] = 7;
        let answer = FibAnswer::read(&octets, destination.into());
        assert_eq!((answer.verdict, answer.mtu, answer.ifindex), (FibVerdict::NoNeighbour, 1400, 9));
        assert_eq!(answer.next_hop, "fe80::2".parse::<IpAddr>().unwrap());
    }
}
