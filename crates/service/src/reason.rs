//! Why a service, or the engine around it, drops a packet: the one closed list.

use serde::Serialize;

macro_rules! reasons {
    ($($(#[doc = $text:literal])+ $variant:ident = $name:literal,)+) => {
        /// Why a packet is dropped. Names are those of metrics and of `segue service list -o json`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Reason {
            $($(#[doc = $text])+ $variant,)+
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// What it means.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($text),+).trim_ascii(),)+
                }
            }
        }
    };
}

reasons! {
    /// The packet has no steering header.
    NotSteered = "not_steered",
    /// A header's lengths or fields contradict each other or the packet.
    Malformed = "malformed",
    /// The steered packet is itself a fragment.
    OuterFragment = "outer_fragment",
    /// No segment is left to go on to.
    NoSegmentLeft = "no_segment_left",
    /// The hop limit does not reach further.
    HopLimit = "hop_limit",
    /// The service's configuration says that such packets are dropped.
    Refused = "refused",
    /// The inner packet is of a protocol that the service does not take.
    UnsupportedProtocol = "unsupported_protocol",
    /// The result would be larger than a packet can be, or than the way out lets through.
    TooBig = "too_big",
    /// No buffer or place in a ring was free for the packet on its way out.
    OutputFull = "output_full",
    /// The kernel did not take the packet.
    NotDelivered = "not_delivered",
    /// The packet was cut to fewer octets than the service needs.
    CutShort = "cut_short",
    /// Compressed by an algorithm or with parameters that the service does not know (RFC 3173: CPI).
    UnknownCompression = "unknown_compression",
    /// Compressed with a dictionary that the service does not have.
    UnknownDictionary = "unknown_dictionary",
    /// Compressed octets that do not decompress.
    CorruptCompression = "corrupt_compression",
    /// It would decompress to more octets than is permitted.
    DecompressionLimit = "decompression_limit",
    /// An aggregate of packets whose frame contradicts itself (RFC 9347).
    CorruptAggregate = "corrupt_aggregate",
    /// The service's memory for packets that it holds is used up.
    MemoryLimit = "memory_limit",
    /// A source has used up its share of the service's memory.
    SourceLimit = "source_limit",
    /// The rest of what was held did not come in time.
    HeldTooLong = "held_too_long",
    /// Fragments overlap (RFC 5722, RFC 8200 section 4.5).
    FragmentOverlap = "fragment_overlap",
    /// A fragment whose offset, length or headers are not permitted.
    FragmentInvalid = "fragment_invalid",
    /// A fragment that has come before.
    Duplicate = "duplicate",
    /// The program that the packet was meant for takes none.
    ProgramGone = "program_gone",
    /// What the program behind the service sent back fits no packet that it was given.
    UnknownReturn = "unknown_return",
    /// The service failed on this packet.
    ServiceFailed = "service_failed",
}

impl Reason {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Its place in [`Reason::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_are_those_that_serde_writes() {
        let names: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), Reason::COUNT);
        for (index, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
            assert!(reason.about().ends_with('.'), "{}", reason.about());
        }
    }
}
