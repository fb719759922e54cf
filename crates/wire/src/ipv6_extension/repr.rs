//! Owned representations of extension headers other than the SRH.

use super::{HDR_EXT_LEN, MIN_HEADER_LENGTH, NEXT_HEADER, ROUTING_TYPE, SEGMENTS_LEFT, header_length};
use crate::error::{Error, Result, fits, require, room};
use crate::field::{array_at, range, set, u8_at, u16_at, u32_at};
use crate::layer::{LayerKind, protocol};
use alloc::vec::Vec;

const OPTIONS: usize = 2;
const ROUTING_DATA: usize = 4;
const FRAGMENT_OFFSET: usize = 2;
const IDENTIFICATION: usize = 4;

const PAD1: u8 = 0;
const PAD_N: u8 = 1;

/// Largest extension header: 255 units behind the first.
const MAX_LENGTH: usize = 2048;

/// A hop-by-hop or destination options header (RFC 8200 sections 4.3 and 4.6).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OptionsRepr {
    /// Protocol number of what follows. The builder sets it when it knows.
    pub next_header: u8,
    /// The options as octets. [`OptionsRepr::emit`] pads them to a whole number of units; an options field parsed from
    /// octets holds its padding.
    pub options: Vec<u8>,
}

impl Default for OptionsRepr {
    /// No next header and no options.
    fn default() -> Self {
        Self { next_header: protocol::NO_NEXT_HEADER, options: Vec::new() }
    }
}

impl OptionsRepr {
    /// The options header at the start of `bytes`. `layer` says which of the two it is, for errors.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::LengthTooLarge`].
    pub fn parse(layer: LayerKind, bytes: &[u8]) -> Result<Self> {
        let length = header_length(layer, bytes)?;
        let options = range(bytes, OPTIONS, length).to_vec();
        Ok(Self { next_header: u8_at(bytes, NEXT_HEADER), options })
    }

    /// The options one by one, padding included.
    pub fn iter(&self) -> OptionIter<'_> {
        OptionIter { options: &self.options, offset: 0 }
    }

    /// Octets that [`OptionsRepr::emit`] writes, a multiple of 8.
    pub fn header_length(&self) -> usize {
        (OPTIONS + self.options.len()).next_multiple_of(8)
    }

    /// Writes the header to the start of `buffer`. `layer` says which of the two it is, for errors.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`]; [`Error::ValueTooLarge`] for more than 2046 octets of options.
    pub fn emit(&self, layer: LayerKind, buffer: &mut [u8]) -> Result<()> {
        let length = self.header_length();
        fits(layer, "length of the header", MAX_LENGTH as u64, length as u64)?;
        let buffer = room(layer, buffer, length)?;
        set(buffer, NEXT_HEADER, &[self.next_header]);
        set(buffer, HDR_EXT_LEN, &[(length / 8 - 1) as u8]);
        set(buffer, OPTIONS, &self.options);
        let end = OPTIONS + self.options.len();
        // One octet of padding is a Pad1, which is the zero that is there already.
        if let Some(data_length) = (length - end).checked_sub(2) {
            set(buffer, end, &[PAD_N, data_length as u8]);
        }
        Ok(())
    }
}

/// One option of an options header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderOption<'a> {
    /// Octets from the start of the options (2 behind the start of the header) to the option.
    pub offset: usize,
    /// Option Type. 0 is Pad1, 1 is PadN.
    pub option_type: u8,
    /// Option Data.
    pub data: &'a [u8],
}

impl HeaderOption<'_> {
    /// Whether this is padding.
    pub fn is_padding(&self) -> bool {
        matches!(self.option_type, PAD1 | PAD_N)
    }

    /// What a node does that does not know the option, the two highest bits of the type (RFC 8200 section 4.2): 0 skip
    /// it; 1 discard the packet; 2 discard and send Parameter Problem code 2; 3 the same unless multicast.
    pub fn action_if_unrecognized(&self) -> u8 {
        self.option_type >> 6
    }
}

/// Iterator over options, see [`OptionsRepr::iter`]. Ends after the first error.
#[derive(Clone, Debug)]
pub struct OptionIter<'a> {
    options: &'a [u8],
    offset: usize,
}

impl<'a> OptionIter<'a> {
    /// The options in `options`: the header's octets from its third one on.
    pub fn new(options: &'a [u8]) -> Self {
        Self { options, offset: 0 }
    }
}

impl<'a> Iterator for OptionIter<'a> {
    type Item = Result<HeaderOption<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset;
        let available = self.options.len().checked_sub(offset).filter(|left| *left > 0)?;
        let option_type = u8_at(self.options, offset);
        if option_type == PAD1 {
            self.offset += 1;
            return Some(Ok(HeaderOption { offset, option_type, data: &[] }));
        }
        let length = if available < 2 { 2 } else { 2 + usize::from(u8_at(self.options, offset + 1)) };
        if length > available {
            self.offset = self.options.len();
            let (layer, field) = (LayerKind::DestinationOptions, "Opt Data Len");
            let (expected, found) = (available, length);
            return Some(Err(Error::LengthTooLarge { layer, field, offset: offset + 1, expected, found }));
        }
        self.offset += length;
        Some(Ok(HeaderOption { offset, option_type, data: range(self.options, offset + 2, offset + length) }))
    }
}

/// A routing header of any type (RFC 8200 section 4.4). For type 4 see [`crate::srh`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RoutingRepr {
    /// Protocol number of what follows. The builder sets it when it knows.
    pub next_header: u8,
    /// Routing Type.
    pub routing_type: u8,
    /// Segments Left.
    pub segments_left: u8,
    /// Type-specific data. [`RoutingRepr::emit`] adds zero octets to fill the last unit.
    pub data: Vec<u8>,
}

impl Default for RoutingRepr {
    /// No next header, everything else zero.
    fn default() -> Self {
        Self { next_header: protocol::NO_NEXT_HEADER, routing_type: 0, segments_left: 0, data: Vec::new() }
    }
}

impl RoutingRepr {
    /// The routing header at the start of `bytes`.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::LengthTooLarge`].
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let length = header_length(LayerKind::Routing, bytes)?;
        Ok(Self {
            next_header: u8_at(bytes, NEXT_HEADER),
            routing_type: u8_at(bytes, ROUTING_TYPE),
            segments_left: u8_at(bytes, SEGMENTS_LEFT),
            data: range(bytes, ROUTING_DATA, length).to_vec(),
        })
    }

    /// Octets that [`RoutingRepr::emit`] writes, a multiple of 8.
    pub fn header_length(&self) -> usize {
        (ROUTING_DATA + self.data.len()).next_multiple_of(8)
    }

    /// Writes the header to the start of `buffer`.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`]; [`Error::ValueTooLarge`] for more than 2044 octets of data.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let layer = LayerKind::Routing;
        let length = self.header_length();
        fits(layer, "length of the header", MAX_LENGTH as u64, length as u64)?;
        let buffer = room(layer, buffer, length)?;
        let fixed = [self.next_header, (length / 8 - 1) as u8, self.routing_type, self.segments_left];
        set(buffer, NEXT_HEADER, &fixed);
        set(buffer, ROUTING_DATA, &self.data);
        Ok(())
    }
}

/// A fragment header (RFC 8200 section 4.5). Its reserved fields are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentRepr {
    /// Protocol number of the first header of the fragmentable part. The builder sets it when it knows.
    pub next_header: u8,
    /// Octets of the fragmentable part in front of this fragment, a multiple of 8 up to 65,528.
    pub fragment_offset: u16,
    /// M flag.
    pub more_fragments: bool,
    /// Identification.
    pub identification: u32,
}

impl Default for FragmentRepr {
    /// An atomic fragment with identification 0 and no next header.
    fn default() -> Self {
        let next_header = protocol::NO_NEXT_HEADER;
        Self { next_header, fragment_offset: 0, more_fragments: false, identification: 0 }
    }
}

impl FragmentRepr {
    pub(super) fn from_bytes(bytes: [u8; MIN_HEADER_LENGTH]) -> Self {
        let offset_and_flags = u16_at(&bytes, FRAGMENT_OFFSET);
        Self {
            next_header: u8_at(&bytes, NEXT_HEADER),
            fragment_offset: offset_and_flags & 0xfff8,
            more_fragments: offset_and_flags & 1 != 0,
            identification: u32_at(&bytes, IDENTIFICATION),
        }
    }

    /// The fragment header at the start of `bytes`.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        require(LayerKind::Fragment, MIN_HEADER_LENGTH, bytes.len())?;
        Ok(Self::from_bytes(array_at(bytes, 0)))
    }

    /// Whether this is an atomic fragment: a whole packet with a fragment header (RFC 6946).
    pub fn is_atomic(&self) -> bool {
        self.fragment_offset == 0 && !self.more_fragments
    }

    /// Octets that [`FragmentRepr::emit`] writes.
    pub const fn header_length(&self) -> usize {
        MIN_HEADER_LENGTH
    }

    /// Writes the header to the start of `buffer`.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`]; [`Error::NotAMultiple`] for an offset that is not a multiple of 8.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let layer = LayerKind::Fragment;
        if !self.fragment_offset.is_multiple_of(8) {
            let found = self.fragment_offset.into();
            return Err(Error::NotAMultiple { layer, field: "Fragment Offset", expected: 8, found });
        }
        let buffer = room(layer, buffer, MIN_HEADER_LENGTH)?;
        set(buffer, NEXT_HEADER, &[self.next_header]);
        set(buffer, FRAGMENT_OFFSET, &(self.fragment_offset | u16::from(self.more_fragments)).to_be_bytes());
        set(buffer, IDENTIFICATION, &self.identification.to_be_bytes());
        Ok(())
    }
}
