//! A whole packet into fragments.

use super::datagram::Whole;
use super::fragment::{Fault, inspect};
use segue_wire::ipv6::{self, Ipv6Packet};
use segue_wire::ipv6_extension::MIN_HEADER_LENGTH;
use segue_wire::layer::protocol;
use segue_wire::{FragmentRepr, HeaderChain, Ipv4Packet, Ipv4Repr, LayerKind};

/// Bit of an IPv4 option's type that says that every fragment has it (RFC 791 section 3.1).
const COPIED: u8 = 0x80;
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;

/// Why a packet cannot be fragmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// The size leaves no room for eight octets behind the headers, or not for all headers in the first fragment (RFC 7112).
    #[error("fragments of this size cannot hold the headers")]
    TooSmall,
    /// IPv4 with DF, larger than the size.
    #[error("the packet must not be fragmented")]
    DontFragment,
    /// Its headers cannot be read.
    #[error("the headers cannot be read")]
    Malformed,
}

/// `whole` as fragments that are packets of at most `largest` octets, in order. All but the last carry a multiple of 8 octets. One fragment
/// that would be the whole packet is the packet itself, without a fragment header.
///
/// The identification is that of the fragments that came, or that [`unsplit`] was given.
///
/// # Errors
/// [`SplitError`].
pub fn split(whole: &Whole, largest: usize) -> Result<Vec<Vec<u8>>, SplitError> {
    if whole.packet.len() <= largest {
        return Ok(vec![whole.packet.clone()]);
    }
    match whole.packet.first().map(|octet| octet >> 4) {
        Some(4) => split_ipv4(whole, largest),
        Some(6) => split_ipv6(whole, largest),
        _ => Err(SplitError::Malformed),
    }
}

/// A packet that came whole, for [`split`]. `identification` is for one of IPv6, which has none yet. Nothing if its headers cannot be read.
#[must_use]
pub fn unsplit(packet: &[u8], identification: u32) -> Option<Whole> {
    let whole = |length: usize, header_length: usize, identification: u32, dont_fragment: bool| {
        let packet = packet.get(..length)?.to_vec();
        Some(Whole { packet, header_length, identification, largest: length, dont_fragment, fragments: 1 })
    };
    match packet.first().map(|octet| octet >> 4) {
        Some(4) => {
            let view = Ipv4Packet::new_checked(packet).ok()?;
            let identification = view.identification().into();
            whole(view.total_length(), view.header_length(), identification, view.dont_fragment())
        }
        Some(6) => {
            let view = Ipv6Packet::new_checked(packet).ok()?;
            let chain = HeaderChain::parse(&view).ok()?;
            // What routers on the way read is in each fragment: all up to the last routing header, else the hop-by-hop options (RFC 8200
            // section 4.5).
            let is_in_each =
                |kind: LayerKind| matches!(kind, LayerKind::HopByHopOptions | LayerKind::Routing | LayerKind::Srh);
            let last = chain.headers().iter().rfind(|header| is_in_each(header.kind));
            let header_length = last.map_or(ipv6::HEADER_LENGTH, |header| header.end());
            whole(view.total_length(), header_length, identification, false)
        }
        _ => None,
    }
}

fn split_ipv6(whole: &Whole, largest: usize) -> Result<Vec<Vec<u8>>, SplitError> {
    let (header, data) = whole.packet.split_at_checked(whole.header_length).ok_or(SplitError::Malformed)?;
    let view = Ipv6Packet::new_checked(whole.packet.as_slice()).map_err(|_| SplitError::Malformed)?;
    let announced_at = announced_at(&view, header.len()).ok_or(SplitError::Malformed)?;
    let next_header = *header.get(announced_at).ok_or(SplitError::Malformed)?;
    let room = room_for_data(largest, header.len() + MIN_HEADER_LENGTH)?;
    let mut fragments = Vec::with_capacity(data.len() / room + 1);
    for (offset, piece) in pieces(data, room) {
        let fields = FragmentRepr {
            next_header,
            fragment_offset: offset,
            more_fragments: usize::from(offset) + piece.len() < data.len(),
            identification: whole.identification,
        };
        let mut fragment = vec![0; header.len() + MIN_HEADER_LENGTH];
        fragment[..header.len()].copy_from_slice(header);
        fragment[announced_at] = protocol::FRAGMENT;
        fields.emit(&mut fragment[header.len()..]).map_err(|_| SplitError::Malformed)?;
        fragment.extend_from_slice(piece);
        let length = u16::try_from(fragment.len() - ipv6::HEADER_LENGTH).map_err(|_| SplitError::Malformed)?;
        Ipv6Packet::new_quoted(&mut fragment).map_err(|_| SplitError::Malformed)?.set_payload_length(length);
        fragments.push(fragment);
    }
    check_first(protocol::IPV6, &fragments)?;
    Ok(fragments)
}

/// Where the last header of the first `length` octets says what follows it.
fn announced_at(view: &Ipv6Packet<&[u8]>, length: usize) -> Option<usize> {
    if length == ipv6::HEADER_LENGTH {
        return Some(ipv6::NEXT_HEADER);
    }
    let chain = HeaderChain::parse(view).ok()?;
    chain.headers().iter().find(|header| header.end() == length).map(|header| header.offset)
}

fn split_ipv4(whole: &Whole, largest: usize) -> Result<Vec<Vec<u8>>, SplitError> {
    // Fragments with DF that fit were let through; larger ones may not be made smaller.
    if whole.dont_fragment && whole.largest > largest {
        return Err(SplitError::DontFragment);
    }
    let view = Ipv4Packet::new_checked(whole.packet.as_slice()).map_err(|_| SplitError::Malformed)?;
    let mut repr = Ipv4Repr::parse(&view).map_err(|_| SplitError::Malformed)?;
    let data = view.payload();
    let room = room_for_data(largest, repr.header_length())?;
    let mut fragments = Vec::with_capacity(data.len() / room + 1);
    for (offset, piece) in pieces(data, room) {
        if offset > 0 {
            repr.options = copied_options(&repr.options);
        }
        repr.fragment_offset = offset;
        repr.more_fragments = usize::from(offset) + piece.len() < data.len();
        repr.payload_length = u16::try_from(piece.len()).map_err(|_| SplitError::Malformed)?;
        let mut fragment = vec![0; repr.header_length()];
        repr.emit(&mut fragment).map_err(|_| SplitError::Malformed)?;
        fragment.extend_from_slice(piece);
        fragments.push(fragment);
    }
    check_first(protocol::IPV4, &fragments)?;
    Ok(fragments)
}

/// Octets of data, a multiple of 8, behind `headers` octets.
fn room_for_data(largest: usize, headers: usize) -> Result<usize, SplitError> {
    let room = largest.saturating_sub(headers) / 8 * 8;
    if room == 0 { Err(SplitError::TooSmall) } else { Ok(room) }
}

fn pieces(data: &[u8], room: usize) -> impl Iterator<Item = (u16, &[u8])> {
    // Offsets are below the length of an IP packet.
    data.chunks(room).enumerate().map(move |(index, piece)| ((index * room) as u16, piece))
}

fn check_first(number: u8, fragments: &[Vec<u8>]) -> Result<(), SplitError> {
    match fragments.first().map(|first| inspect(number, first)) {
        Some(Err(Fault::IncompleteChain | Fault::Tiny)) => Err(SplitError::TooSmall),
        _ => Ok(()),
    }
}

/// Those options of `options` that every fragment has, padded to fours.
fn copied_options(options: &[u8]) -> Vec<u8> {
    let mut copied = Vec::new();
    let mut rest = options;
    while let [kind, tail @ ..] = rest {
        let length = match *kind {
            END_OF_OPTIONS => break,
            NO_OPERATION => 1,
            _ => tail.first().map_or(0, |length| usize::from(*length)),
        };
        // A length that cannot be: nothing behind it can be read.
        let Some((option, behind)) = rest.split_at_checked(length).filter(|(option, _)| !option.is_empty()) else {
            break;
        };
        if kind & COPIED != 0 {
            copied.extend_from_slice(option);
        }
        rest = behind;
    }
    copied.resize(copied.len().next_multiple_of(4), END_OF_OPTIONS);
    copied
}
