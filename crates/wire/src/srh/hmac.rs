//! HMAC TLV: computing and checking it (RFC 8754 section 2.1.2), also in the way that Linux does.

use super::error::SrhError;
use super::meaning::SrhContext;
use super::tlv::{PlacedTlv, Tlv, tlv_type};
use super::{HmacTlv, Srh};
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Octets of the HMAC field for SHA-256.
pub const HMAC_LENGTH: usize = 32;
/// Octets of an HMAC TLV with a SHA-256 digest, Type and Length octets included.
pub const HMAC_TLV_LENGTH: usize = 40;
/// The flag of an older draft by which Linux announces an HMAC TLV. RFC 8754 has no such flag.
pub const LINUX_HMAC_FLAG: u8 = 0x08;

/// Which octets the HMAC covers.
///
/// Both cover the IPv6 source address, Last Entry, Flags, HMAC Key ID and the segment list. Neither covers Segments
/// Left, Tag, other TLVs or the payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HmacVariant {
    /// RFC 8754 section 2.1.2.1: also the D bit and the 15 reserved bits.
    #[default]
    Rfc8754,
    /// The Linux kernel: without the D bit and the reserved bits; the HMAC TLV must be the last one and 40 octets
    /// long, and [`LINUX_HMAC_FLAG`] must be set.
    Linux,
}

impl HmacVariant {
    /// The octets that the HMAC covers, in order, in pieces.
    fn feed(
        self,
        source: Ipv6Addr,
        last_entry_and_flags: [u8; 2],
        d_and_reserved: u16,
        key_id: u32,
        segments: impl Iterator<Item = Ipv6Addr>,
        mut sink: impl FnMut(&[u8]),
    ) {
        sink(&source.octets());
        sink(&last_entry_and_flags);
        if self == Self::Rfc8754 {
            sink(&d_and_reserved.to_be_bytes());
        }
        sink(&key_id.to_be_bytes());
        for segment in segments {
            sink(&segment.octets());
        }
    }

    /// The text that the HMAC of `tlv` covers: 24 octets (22 for Linux) and 16 for each segment.
    pub fn text<T: AsRef<[u8]>>(self, source: Ipv6Addr, srh: &Srh<T>, tlv: &HmacTlv<'_>) -> Vec<u8> {
        let mut text = Vec::new();
        let head = [srh.last_entry(), srh.flags()];
        self.feed(source, head, tlv.d_and_reserved(), tlv.key_id(), srh.segment_list(), |piece| {
            text.extend_from_slice(piece);
        });
        text
    }

    /// The SHA-256 HMAC of `tlv` under `key`. The key may have any length.
    pub fn compute<T: AsRef<[u8]>>(
        self,
        key: &[u8],
        source: Ipv6Addr,
        srh: &Srh<T>,
        tlv: &HmacTlv<'_>,
    ) -> [u8; HMAC_LENGTH] {
        let head = [srh.last_entry(), srh.flags()];
        let segments = srh.segment_list();
        self.authenticator(key, source, head, tlv.d_and_reserved(), tlv.key_id(), segments)
            .map_or([0; HMAC_LENGTH], |mac| mac.finalize().into_bytes().into())
    }

    pub(super) fn authenticator(
        self,
        key: &[u8],
        source: Ipv6Addr,
        last_entry_and_flags: [u8; 2],
        d_and_reserved: u16,
        key_id: u32,
        segments: impl Iterator<Item = Ipv6Addr>,
    ) -> Option<Hmac<Sha256>> {
        // HMAC takes keys of every length, so this is always `Some`.
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).ok()?;
        self.feed(source, last_entry_and_flags, d_and_reserved, key_id, segments, |piece| mac.update(piece));
        Some(mac)
    }
}

impl<T: AsRef<[u8]>> Srh<T> {
    /// The one HMAC TLV of this SRH.
    fn hmac_tlv(&self, srh_offset: usize) -> Result<(PlacedTlv<'_>, HmacTlv<'_>), SrhError> {
        let mut found = None;
        for placed in self.tlvs() {
            let placed = placed.map_err(|error| error.shifted(srh_offset))?;
            let offset = placed.offset;
            let tlv = match placed.tlv {
                Tlv::Hmac(tlv) => tlv,
                Tlv::Unknown { tlv_type: tlv_type::HMAC, value } => {
                    let (expected, found) = (HMAC_TLV_LENGTH - 2, value.len());
                    return Err(SrhError::HmacBadLength { srh_offset, offset, expected, found });
                }
                _ => continue,
            };
            if found.replace((placed, tlv)).is_some() {
                return Err(SrhError::HmacRepeated { srh_offset, offset });
            }
        }
        found.ok_or(SrhError::HmacMissing { srh_offset, offset: self.tlv_offset() })
    }

    /// Verifies the HMAC TLV, which must be there, and returns its HMAC Key ID.
    ///
    /// `destination` is the IPv6 destination address as received; `key` gives the SHA-256 key of a Key ID. The
    /// comparison takes the same time wherever digests differ. Only the full 32 octets are accepted.
    ///
    /// [`HmacVariant::Linux`] does not cover the D bit, so with it an SRH with Segments Left above Last Entry passes
    /// the address check without one.
    ///
    /// # Errors
    /// One of the `Hmac…` faults, [`SrhError::TlvOverrun`], or those of [`Srh::check_bounds`].
    pub fn verify_hmac<'k>(
        &self,
        variant: HmacVariant,
        context: SrhContext,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        key: impl FnOnce(u32) -> Option<&'k [u8]>,
    ) -> Result<u32, SrhError> {
        let srh_offset = context.srh_offset;
        self.check_bounds(context)?;
        let (placed, tlv) = self.hmac_tlv(srh_offset)?;
        let offset = placed.offset;
        if tlv.hmac().len() != HMAC_LENGTH {
            let (expected, found) = (HMAC_TLV_LENGTH - 2, placed.length - 2);
            return Err(SrhError::HmacBadLength { srh_offset, offset, expected, found });
        }
        if variant == HmacVariant::Linux {
            self.check_linux_placement(srh_offset, placed)?;
        }
        let covered = match self.active_segment() {
            Some(active) => active == destination,
            None => tlv.d_bit() || variant == HmacVariant::Linux,
        };
        if !covered {
            return Err(SrhError::HmacAddress { srh_offset, offset, found: destination });
        }
        let key_id = tlv.key_id();
        let key = key(key_id).ok_or(SrhError::HmacKeyUnknown { srh_offset, offset, found: key_id })?;
        let head = [self.last_entry(), self.flags()];
        variant
            .authenticator(key, source, head, tlv.d_and_reserved(), key_id, self.segment_list())
            .and_then(|mac| mac.verify_slice(tlv.hmac()).ok())
            .ok_or(SrhError::HmacMismatch { srh_offset, offset, key_id })?;
        Ok(key_id)
    }

    fn check_linux_placement(&self, srh_offset: usize, placed: PlacedTlv<'_>) -> Result<(), SrhError> {
        let offset = placed.offset;
        if offset + placed.length != self.header_length() {
            return Err(SrhError::HmacNotLast { srh_offset, offset });
        }
        let (expected, found) = (LINUX_HMAC_FLAG, self.flags());
        if found & expected == 0 {
            return Err(SrhError::HmacFlagClear { srh_offset, offset, expected, found });
        }
        Ok(())
    }
}
