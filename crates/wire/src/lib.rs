//! Packet formats of Segue: checked views, representations and builders.
//!
//! Every format has a module with a view over octets (`new_checked` makes sure that every accessor is safe to call), an
//! owned representation (`…Repr`) that parses from the view and emits octets, and the constants of its fields. Nothing
//! here does I/O, and no input makes it panic.
//!
//! Offsets and lengths are in octets and multi-octet values in host byte order unless a page says otherwise.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "test-support"))]
extern crate std;

pub mod aggfrag;
pub mod builder;
pub mod checksum;
pub mod classify;
mod error;
pub mod ethernet;
mod field;
#[cfg(any(test, feature = "test-support"))]
pub mod fuzz;
pub mod icmpv4;
pub mod icmpv6;
mod icmpv6_error;
pub mod ipcomp;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_extension;
pub mod layer;
pub mod mpls;
pub mod packet;
pub mod srh;
pub mod summary;
pub mod tcp;
pub mod udp;
pub mod vlan;

pub use aggfrag::{Aggfrag, AggfragRepr};
pub use builder::PacketBuilder;
pub use checksum::PseudoHeader;
pub use classify::{OuterClass, OuterSrh, OuterStatus, classify_outer};
pub use error::{Error, Result};
pub use ethernet::{EthernetFrame, EthernetRepr, MacAddress};
pub use icmpv4::{Icmpv4Message, Icmpv4Repr};
pub use icmpv6::{Icmpv6Message, Icmpv6Repr};
pub use icmpv6_error::Icmpv6Error;
pub use ipcomp::{IpComp, IpCompRepr};
pub use ipv4::{Ipv4Packet, Ipv4Repr};
pub use ipv6::{Ipv6Packet, Ipv6Repr};
pub use ipv6_extension::{ExtensionHeader, FragmentRepr, HeaderChain, OptionsRepr, RoutingRepr};
pub use layer::{LayerKind, ethertype, protocol};
pub use mpls::{LabelStack, MplsEntry};
pub use packet::{FiveTuple, Layer, Layers, parse_as_far_as_possible, parse_ip_packet, parse_packet};
pub use srh::{HmacVariant, Srh, SrhContext, SrhError, SrhRepr, TlvRepr};
pub use summary::{Snapshot, Summary, summary};
pub use tcp::{TcpRepr, TcpSegment};
pub use udp::{UdpDatagram, UdpRepr};
pub use vlan::{VlanRepr, VlanTag};
