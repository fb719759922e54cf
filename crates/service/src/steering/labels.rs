//! SR-MPLS: a stack of labels (RFC 3032), as the node gives it to a function that sees it (docs/design/labels.md).

use segue_wire::ipv6;
use segue_wire::layer::protocol;
use segue_wire::mpls::{ENTRY_LENGTH, MplsEntry, label};

use crate::reason::Reason;

/// Labels of a stack at most: as many as a node gives to a function.
const MOST: usize = 32;
/// Says that an entropy label follows (RFC 6790).
const ENTROPY_INDICATOR: u32 = 7;
/// Octets of an IPv4 header without options.
const IPV4_HEADER: usize = 20;

/// Where things are in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    /// The first octet behind the stack.
    pub(super) inner: usize,
    /// What is there: IPv4 or IPv6.
    pub(super) protocol: u8,
}

fn entries(octets: &[u8]) -> impl Iterator<Item = MplsEntry> + '_ {
    octets.as_chunks::<ENTRY_LENGTH>().0.iter().map(|entry| MplsEntry::from_bytes(*entry))
}

/// Octets of the stack that `octets` begin with.
pub(super) fn length(octets: &[u8]) -> Result<usize, Reason> {
    let mut indicated = false;
    for (index, entry) in entries(octets).take(MOST).enumerate() {
        // What is behind an indicator is no label, whatever it is.
        indicated = entry.label == ENTROPY_INDICATOR && !indicated;
        if entry.bottom_of_stack {
            return if indicated { Err(Reason::Malformed) } else { Ok((index + 1) * ENTRY_LENGTH) };
        }
    }
    Err(Reason::Malformed)
}

/// Finds the places, and how long the packet is. `octets` may be followed by others, and be fewer than that.
pub(super) fn parse(octets: &[u8], is_cut: bool) -> Result<(Places, usize), Reason> {
    let at = length(octets)?;
    let bottom = octets.get(..at).and_then(|stack| entries(stack).last());
    let inner = octets.get(at..).unwrap_or_default();
    // No label says what is behind it, but for explicit null; what routers go by is the version.
    let (number, not_said_by) = match inner.first().map(|octet| octet >> 4) {
        Some(4) => (protocol::IPV4, label::IPV6_EXPLICIT_NULL),
        Some(6) => (protocol::IPV6, label::IPV4_EXPLICIT_NULL),
        Some(_) => return Err(Reason::UnsupportedProtocol),
        None => return Err(Reason::Malformed),
    };
    if bottom.is_none_or(|entry| entry.label == not_said_by) {
        return Err(Reason::Malformed);
    }
    let total = at + ip_length(inner).ok_or(Reason::Malformed)?;
    if total > octets.len() && !is_cut {
        return Err(Reason::Malformed);
    }
    Ok((Places { inner: at, protocol: number }, total))
}

/// Octets of the IP packet that `octets` begin with, by its own header. None: its header is not there, or is longer than it.
fn ip_length(octets: &[u8]) -> Option<usize> {
    let length_at = |at: usize| Some(usize::from(u16::from_be_bytes([*octets.get(at)?, *octets.get(at + 1)?])));
    let (header, total) = match octets.first()? >> 4 {
        4 => (usize::from(octets.first()? & 15) * 4, length_at(2)?),
        _ => (ipv6::HEADER_LENGTH, ipv6::HEADER_LENGTH + length_at(4)?),
    };
    (header >= IPV4_HEADER && header <= total && header <= octets.len()).then_some(total)
}

/// A stack of labels, from the one behind the service's own down to the bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Labels<'a> {
    octets: &'a [u8],
}

impl<'a> Labels<'a> {
    pub(super) fn new(octets: &'a [u8]) -> Self {
        Self { octets }
    }

    pub(super) fn octets(&self) -> &'a [u8] {
        self.octets
    }

    /// All entries, the first to be visited first.
    pub fn entries(&self) -> impl Iterator<Item = MplsEntry> + 'a {
        entries(self.octets)
    }

    /// The entries that lead: without indicators of entropy labels, and these.
    pub fn path(&self) -> impl Iterator<Item = MplsEntry> + 'a {
        let mut indicated = false;
        self.entries().filter(move |entry| {
            let is_entropy = std::mem::take(&mut indicated);
            indicated = !is_entropy && entry.label == ENTROPY_INDICATOR;
            !is_entropy && !indicated
        })
    }

    /// The first entropy label (RFC 6790), if there is one.
    #[must_use]
    pub fn entropy_label(&self) -> Option<u32> {
        let mut entries = self.entries().skip_while(|entry| entry.label != ENTROPY_INDICATOR);
        entries.nth(1).map(|entry| entry.label)
    }

    pub(super) fn remaining(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.octets.len());
        for entry in self.path() {
            key.extend((entry.label << 3 | u32::from(entry.traffic_class)).to_be_bytes());
        }
        key
    }
}
