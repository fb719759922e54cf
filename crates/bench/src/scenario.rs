//! What is measured: for each scenario the frame that the generator sends, the frame that must arrive, and the kernel's
//! configuration for the same work.

use std::net::IpAddr;

use clap::ValueEnum;

use crate::error::{Error, Result};
use crate::frame::{self, Packet, Steering};
use crate::topology::{
    GENERATOR_MAC, HEADEND, IN_MAC, INNER_DESTINATION, INNER_DESTINATION_IPV4, INNER_SOURCE, INNER_SOURCE_IPV4,
    LAST_SID, NEXT_SID, OUT_ADDRESS, OUT_MAC, SID, SINK_ADDRESS, SINK_IPV4, SINK_MAC,
};

/// Inner octets that make the SRv6 packet of 206 octets (Ethernet header included) of the design.
pub const DEFAULT_SIZE: usize = 112;
/// Smallest and largest inner packet, octets.
pub const SIZES: std::ops::RangeInclusive<usize> = 64..=1400;

/// A forwarding scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum Scenario {
    /// End: Segments Left 1 to 0.
    End,
    /// End.DX6: two segments in the SRH, none left.
    EndDx6,
    /// End.DX4: two segments in the SRH, none left.
    EndDx4,
    /// H.Encaps with two segments; inner IPv6.
    HEncaps,
    /// H.Encaps with two segments; inner IPv4.
    HEncapsV4,
    /// PUSH of two labels; inner IPv6.
    MplsPush,
    /// PUSH of ten labels; inner IPv6.
    #[value(name = "mpls-push-10")]
    MplsPush10,
    /// CONTINUE: another label in place of the first of two.
    MplsSwap,
    /// NEXT over a link: the first of two labels comes off.
    MplsPop,
}

/// Who forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Engine {
    /// Segue, on XDP.
    Segue,
    /// Segue on socket buffers, receiving through NAPI that GRO turned on, as the kernel does.
    SegueSkb,
    /// The kernel's seg6 and seg6local.
    Kernel(Napi),
    /// An XDP program that writes MAC addresses and redirects: the limit of the machine. It changes nothing else.
    Bare(Redirect),
}

/// What turns NAPI on at the port on which the kernel receives; a veth without it takes no redirected frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Napi {
    /// GRO: what an administrator would do.
    Gro,
    /// An XDP program that passes everything: somewhat faster.
    Xdp,
}

/// How the bare program redirects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Redirect {
    /// `bpf_redirect` with an interface index.
    Ifindex,
    /// `bpf_redirect_map` with a DEVMAP.
    Map,
}

impl Engine {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Segue => "segue",
            Self::SegueSkb => "segue-skb",
            Self::Kernel(Napi::Gro) => "kernel",
            Self::Kernel(Napi::Xdp) => "kernel-xdp",
            Self::Bare(Redirect::Ifindex) => "bare",
            Self::Bare(Redirect::Map) => "bare-devmap",
        }
    }
}

/// A frame as it must arrive, and which of its bits are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The frame.
    pub frame: Vec<u8>,
    /// One where a bit must be equal.
    pub mask: Vec<u8>,
    /// Offset of the inner source port in the frame.
    pub port: usize,
    /// Offset of the octets that keep the checksum.
    pub balance: usize,
    /// Offsets at which the number of the flow must stand, as far as they are not 0.
    pub chains: [usize; 2],
}

const TTL: u8 = 64;
/// Labels: the node's own, which are swapped and popped, and those that others know.
const SWAPPED: u32 = 16_002;
const POPPED: u32 = 16_003;
const NEXT_LABEL: u32 = 17_002;
const BOTTOM_LABEL: u32 = 17_100;

impl Scenario {
    /// Its name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::EndDx6 => "end-dx6",
            Self::EndDx4 => "end-dx4",
            Self::HEncaps => "h-encaps",
            Self::HEncapsV4 => "h-encaps-v4",
            Self::MplsPush => "mpls-push",
            Self::MplsPush10 => "mpls-push-10",
            Self::MplsSwap => "mpls-swap",
            Self::MplsPop => "mpls-pop",
        }
    }

    /// The ratio to the kernel's rate that the project must reach with this engine, if it has set itself one.
    #[must_use]
    pub fn required_ratio(self, ours: Engine) -> Option<f64> {
        match self {
            Self::End | Self::HEncaps if ours == Engine::SegueSkb => Some(1.3),
            _ if ours == Engine::SegueSkb => None,
            Self::End => Some(2.8),
            Self::EndDx6 | Self::HEncaps => Some(2.5),
            Self::EndDx4 | Self::HEncapsV4 => None,
            Self::MplsPush | Self::MplsPush10 | Self::MplsSwap | Self::MplsPop => None,
        }
    }

    /// The share of the bare redirect's rate that the project must reach with this engine, if it has set itself one.
    #[must_use]
    pub fn required_share(self, ours: Engine) -> Option<f64> {
        match self {
            _ if ours != Engine::Segue => None,
            Self::End => Some(0.85),
            Self::MplsPush => Some(0.92),
            Self::MplsPush10 => Some(0.88),
            _ => None,
        }
    }

    /// Whether labels lead: the kernel's work is not set up for that here, since its MPLS is a module that few kernels have loaded.
    #[must_use]
    pub fn is_by_labels(self) -> bool {
        matches!(self, Self::MplsPush | Self::MplsPush10 | Self::MplsSwap | Self::MplsPop)
    }

    fn is_headend(self) -> bool {
        matches!(self, Self::HEncaps | Self::HEncapsV4 | Self::MplsPush | Self::MplsPush10)
    }

    /// The labels that the node pushes.
    fn pushed(self) -> Vec<u32> {
        let count = if self == Self::MplsPush10 { 10 } else { 2 };
        (0..count).map(|position| NEXT_LABEL + position).collect()
    }

    fn inner(self, octets: usize, ttl: u8) -> Packet {
        match self {
            Self::EndDx4 | Self::HEncapsV4 => {
                frame::udp_over_ipv4(INNER_SOURCE_IPV4, INNER_DESTINATION_IPV4, ttl, octets)
            }
            Self::End
            | Self::EndDx6
            | Self::HEncaps
            | Self::MplsPush
            | Self::MplsPush10
            | Self::MplsSwap
            | Self::MplsPop => frame::udp_over_ipv6(INNER_SOURCE, INNER_DESTINATION, ttl, octets),
        }
    }

    /// The packet that the generator sends, with an inner packet of `octets`.
    ///
    /// # Errors
    /// If the size is outside [`SIZES`].
    pub fn sent(self, octets: usize) -> Result<Packet> {
        if !SIZES.contains(&octets) {
            return Err(Error::Usage(format!(
                "--sizes {octets}: inner packets of {} to {} octets can be measured",
                SIZES.start(),
                SIZES.end()
            )));
        }
        let inner = self.inner(octets, TTL);
        let (segments, left) = match self {
            Self::HEncaps | Self::HEncapsV4 | Self::MplsPush | Self::MplsPush10 => return Ok(inner),
            Self::MplsSwap => return Ok(frame::labelled(inner, &[(SWAPPED, TTL), (BOTTOM_LABEL, TTL)])),
            Self::MplsPop => return Ok(frame::labelled(inner, &[(POPPED, TTL), (BOTTOM_LABEL, TTL)])),
            Self::End => ([SID, NEXT_SID], 1),
            Self::EndDx6 | Self::EndDx4 => ([NEXT_SID, SID], 0),
        };
        Ok(frame::encapsulated(
            inner,
            &Steering { source: HEADEND, segments: &segments, left, hop_limit: TTL, reduced: false },
        ))
    }

    /// The frame that the generator sends.
    ///
    /// # Errors
    /// As [`Scenario::sent`].
    pub fn sent_frame(self, octets: usize) -> Result<Vec<u8>> {
        Ok(self.sent(octets)?.frame(IN_MAC, GENERATOR_MAC))
    }

    /// The frame that must arrive behind `engine`.
    ///
    /// # Errors
    /// As [`Scenario::sent`].
    pub fn arrival(self, octets: usize, engine: Engine) -> Result<Arrival> {
        let sent = self.sent(octets)?;
        let packet = match (engine, self) {
            (Engine::Bare(_), _) => sent,
            (_, Self::End) => forwarded_by_end(self.inner(octets, TTL)),
            // A decapsulating cross-connect does not route the inner packet; the kernel and RFC 8986 section 4.4 agree
            // that "the packet is sent to the next hop", but only Linux leaves the inner hop limit as it is.
            (_, Self::EndDx6) => self.inner(octets, TTL),
            (_, Self::EndDx4) => self.inner(octets, TTL),
            (_, Self::HEncaps | Self::HEncapsV4) => encapsulated(self.inner(octets, TTL)),
            (_, Self::MplsPush | Self::MplsPush10) => {
                let entries: Vec<(u32, u8)> = self.pushed().into_iter().map(|label| (label, TTL)).collect();
                frame::labelled(self.inner(octets, TTL - 1), &entries)
            }
            (_, Self::MplsSwap) => {
                frame::labelled(self.inner(octets, TTL), &[(NEXT_LABEL, TTL - 1), (BOTTOM_LABEL, TTL)])
            }
            (_, Self::MplsPop) => frame::labelled(self.inner(octets, TTL), &[(BOTTOM_LABEL, TTL)]),
        };
        let frame = packet.frame(SINK_MAC, OUT_MAC);
        let mut mask = vec![0xff; frame.len()];
        let (port, balance) = (frame::ETHERNET + packet.port, frame::ETHERNET + packet.balance);
        // The generator varies both; the sink checks their sum.
        mask[port..port + 2].fill(0);
        mask[balance..balance + 2].fill(0);
        if !matches!(engine, Engine::Bare(_)) {
            self.unmask_what_rfcs_leave_open(&mut mask);
        }
        Ok(Arrival { frame, mask, port, balance, chains: [0; 2] })
    }

    /// Octets of the frame that no standard fixes: flow label and hop limit of a pushed header, and whether a packet's own
    /// hop limit is lowered where it enters or leaves the tunnel.
    fn unmask_what_rfcs_leave_open(self, mask: &mut [u8]) {
        const IP: usize = frame::ETHERNET;
        let ttl_of_ipv4 = |mask: &mut [u8], at: usize| {
            mask[at + 8] = 0;
            mask[at + 10..at + 12].fill(0);
        };
        match self {
            Self::End | Self::MplsPush | Self::MplsPush10 | Self::MplsSwap | Self::MplsPop => {}
            Self::EndDx6 => mask[IP + 7] = 0,
            Self::EndDx4 => ttl_of_ipv4(mask, IP),
            Self::HEncaps | Self::HEncapsV4 => {
                mask[IP + 1] = 0xf0;
                mask[IP + 2..IP + 4].fill(0);
                mask[IP + 7] = 0;
                let inner = IP + 40 + 8 + 32;
                if self == Self::HEncaps { mask[inner + 7] = 0 } else { ttl_of_ipv4(mask, inner) }
            }
        }
    }

    /// `ip` commands that make the kernel of the node do this scenario's work; none where labels lead.
    #[must_use]
    pub fn kernel_commands(self) -> Vec<String> {
        let encapsulation = format!("encap seg6 mode encap segs {NEXT_SID},{LAST_SID} via");
        match self {
            Self::MplsPush | Self::MplsPush10 | Self::MplsSwap | Self::MplsPop => Vec::new(),
            Self::End => vec![format!("-6 route add {SID}/128 encap seg6local action End dev out")],
            // A next hop behind a gateway, not the sink's own address: for one on the link the kernel makes a route entry
            // for every packet (ip6_rt_cache_alloc), which costs it a third of its rate. The peer gets its better side.
            Self::EndDx6 => {
                vec![format!("-6 route add {SID}/128 encap seg6local action End.DX6 nh6 {INNER_DESTINATION} dev out")]
            }
            Self::EndDx4 => {
                vec![format!("-6 route add {SID}/128 encap seg6local action End.DX4 nh4 {SINK_IPV4} dev out")]
            }
            Self::HEncaps => vec![
                format!("sr tunsrc set {OUT_ADDRESS}"),
                format!("-6 route add {INNER_DESTINATION}/128 {encapsulation} {SINK_ADDRESS} dev out"),
            ],
            Self::HEncapsV4 => vec![
                format!("sr tunsrc set {OUT_ADDRESS}"),
                format!(
                    "-4 route add {INNER_DESTINATION_IPV4}/32 encap seg6 mode encap segs {NEXT_SID},{LAST_SID} dev out"
                ),
            ],
        }
    }

    /// Segue's desired state for the node.
    #[must_use]
    pub fn node_state(self, engine: Engine) -> serde_json::Value {
        let mode = if engine == Engine::SegueSkb { "skb" } else { "xdp" };
        let role = if self.is_headend() { "access" } else { "core" };
        let mut state = serde_json::json!({
            "node": "bench",
            "source_address": OUT_ADDRESS,
            "ports": [{"name": "in", "role": role, "mode": mode}, {"name": "out", "role": "core", "mode": mode}],
        });
        let sid = |behaviour: &str, next_hop: Option<IpAddr>| serde_json::json!([{"sid": SID, "behaviour": behaviour, "next_hop": next_hop}]);
        let labels = |label: u32, behaviour: &str| serde_json::json!([{"label": label, "behaviour": behaviour, "next_hop": SINK_ADDRESS}]);
        match self {
            Self::End => state["sids"] = sid("End", None),
            Self::EndDx6 => state["sids"] = sid("End.DX6", Some(SINK_ADDRESS.into())),
            Self::EndDx4 => state["sids"] = sid("End.DX4", Some(SINK_IPV4.into())),
            Self::HEncaps | Self::HEncapsV4 => {
                let destination = match self {
                    Self::HEncaps => format!("{INNER_DESTINATION}/128"),
                    _ => format!("{INNER_DESTINATION_IPV4}/32"),
                };
                state["policies"] = serde_json::json!([{
                    "name": "two", "mode": "H.Encaps", "segment_lists": [{"segments": [NEXT_SID, LAST_SID]}]
                }]);
                state["steering"] = serde_json::json!([{"destination": destination, "policy": "two"}]);
            }
            Self::MplsPush | Self::MplsPush10 => {
                state["policies"] = serde_json::json!([{
                    "name": "labels", "mode": "PUSH",
                    "segment_lists": [{"labels": self.pushed(), "next_hop": SINK_ADDRESS}]
                }]);
                let destination = format!("{INNER_DESTINATION}/128");
                state["steering"] = serde_json::json!([{"destination": destination, "policy": "labels"}]);
            }
            Self::MplsSwap => {
                state["labels"] = labels(SWAPPED, "swap");
                state["labels"][0]["out"] = NEXT_LABEL.into();
            }
            Self::MplsPop => state["labels"] = labels(POPPED, "pop"),
        }
        state
    }

    /// Octets that the harness adds to the headroom of frames for the kernel. A pushed header uses up headroom, and a veth
    /// with XDP (the sink) copies a packet that has less than 256 octets left: a cost of the harness, not of the kernel.
    #[must_use]
    pub fn kernel_slack(self) -> u32 {
        if self.is_headend() { 128 } else { 8 }
    }
}

fn forwarded_by_end(inner: Packet) -> Packet {
    let steering =
        Steering { source: HEADEND, segments: &[SID, NEXT_SID], left: 0, hop_limit: TTL - 1, reduced: false };
    frame::encapsulated(inner, &steering)
}

fn encapsulated(inner: Packet) -> Packet {
    let segments = [NEXT_SID, LAST_SID];
    let steering = Steering { source: OUT_ADDRESS, segments: &segments, left: 1, hop_limit: TTL, reduced: false };
    frame::encapsulated(inner, &steering)
}
