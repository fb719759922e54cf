//! What data plane (C) and agent (Rust) share: structures and constants generated from `bpf/include/abi/segue.h`, and the
//! closed list of outcomes from `bpf/include/abi/outcomes.def`. Names are the header's without `segue_`: `struct
//! segue_sid_key` is [`SidKey`]. Constants keep theirs.
//!
//! Every structure converts to and from bytes with zerocopy's `IntoBytes` and `FromBytes`; `Structure::new_zeroed()` (trait
//! [`zerocopy::FromZeros`]) makes an empty one. Tests in `segue-dataplane` compare the layouts with the compiled object's BTF.
#![forbid(unsafe_code)]

mod generated {
    // The header's comments are not carried over: documentation of the fields is in segue.h. Hence no docs here.
    #![allow(missing_docs)]
    include!(concat!(env!("OUT_DIR"), "/segue.rs"));
}
pub use generated::*;

impl Sid {
    /// The row in `memories` and `memory_counters` that a proxy's scope has; 0: it remembers nothing.
    pub const fn scope_row(&self) -> u32 {
        self.scope as u32
    }
}

impl Sid {
    /// The tunnel of a label with the behaviour [`SEGUE_LABEL_UDP`], but for its other end.
    pub fn udp(&self) -> Udp {
        Udp {
            source: self.backup,
            mtu: self.function_mtu,
            hop_limit: self.hop_limit_margin,
            flags: self.flavours as u8,
        }
    }

    /// Puts it there.
    pub fn set_udp(&mut self, udp: &Udp) {
        self.backup = udp.source;
        self.function_mtu = udp.mtu;
        self.hop_limit_margin = udp.hop_limit;
        self.flavours = udp.flags.into();
    }
}

impl SegmentList {
    /// The tunnel of a list with the flag [`SEGUE_LIST_UDP`], but for its other end.
    pub fn udp(&self) -> Udp {
        let at = SEGUE_LIST_UDP_AT as usize;
        let octets = self.header.get(at..at + size_of::<Udp>());
        let udp = octets.and_then(|octets| zerocopy::FromBytes::read_from_bytes(octets).ok());
        udp.unwrap_or_else(zerocopy::FromZeros::new_zeroed)
    }

    /// Puts it there.
    pub fn set_udp(&mut self, udp: &Udp) {
        let at = SEGUE_LIST_UDP_AT as usize;
        if let Some(place) = self.header.get_mut(at..at + size_of::<Udp>()) {
            place.copy_from_slice(zerocopy::IntoBytes::as_bytes(udp));
        }
    }
}

mod outcome;
pub use outcome::{Outcome, OutcomeKind, markdown_table};

pub use zerocopy;
