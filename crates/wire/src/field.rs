//! Big-endian fields at fixed offsets of a byte slice.
//!
//! Every function here is total. The views check their lengths once, in `new_checked`, so a read outside the slice does
//! not happen through them; if a caller changes a length field through a mutable view afterwards, reads outside give
//! zero and writes outside are left undone instead of panicking.

use core::net::{Ipv4Addr, Ipv6Addr};

pub(crate) fn u8_at(bytes: &[u8], offset: usize) -> u8 {
    bytes.get(offset).copied().unwrap_or(0)
}

pub(crate) fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes.get(offset..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes(array_at(bytes, offset))
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, offset))
}

pub(crate) fn ipv4_at(bytes: &[u8], offset: usize) -> Ipv4Addr {
    Ipv4Addr::from(array_at::<4>(bytes, offset))
}

pub(crate) fn ipv6_at(bytes: &[u8], offset: usize) -> Ipv6Addr {
    Ipv6Addr::from(array_at::<16>(bytes, offset))
}

/// The bytes from `start` up to, not including, `end`, as far as they exist.
pub(crate) fn range(bytes: &[u8], start: usize, end: usize) -> &[u8] {
    let end = end.min(bytes.len());
    bytes.get(start..end).unwrap_or(&[])
}

/// Mutable twin of [`range`].
pub(crate) fn range_mut(bytes: &mut [u8], start: usize, end: usize) -> &mut [u8] {
    let end = end.min(bytes.len());
    bytes.get_mut(start..end).unwrap_or(&mut [])
}

/// Writes `value` at `offset` when all of it fits, else nothing.
pub(crate) fn set(bytes: &mut [u8], offset: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(offset..).and_then(|rest| rest.get_mut(..value.len())) {
        place.copy_from_slice(value);
    }
}
