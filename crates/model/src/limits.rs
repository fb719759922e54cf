//! Limits of the data plane, and the arithmetic behind them.

use crate::label::{ENTRY_OCTETS, LABELS_MAX};
use crate::node::{HeadendMode, Policy};

/// Most segments in one list.
pub const SEGMENTS_MAX: usize = 10;
/// Octets in front of a packet that an XDP program may use: 256 less what the kernel needs itself.
pub const HEADROOM_MAX: usize = 216;
/// Most segment lists of one policy.
pub const LISTS_MAX: usize = 16;
/// Flows are spread over a policy's segment lists in this many shares.
pub const SHARES: u16 = 256;
/// Most SID blocks besides 5f00::/16 (RFC 9602).
pub const SID_BLOCKS_MAX: usize = 3;
/// Most prefixes that packets to local SIDs may come from.
pub const SOURCE_PREFIXES_MAX: usize = 4;
/// Most prefixes of the domain's own nodes and links.
pub const INFRASTRUCTURE_PREFIXES_MAX: usize = 4;

const ETHERNET: usize = 14;
const IPV6: usize = 40;
const SRH: usize = 8;
const SEGMENT: usize = 16;

impl HeadendMode {
    /// Whether the inner packet is an Ethernet frame.
    pub fn is_l2(self) -> bool {
        matches!(self, Self::HEncapsL2 | Self::HEncapsL2Red)
    }

    /// Whether it puts an outer header around an IPv4 or IPv6 packet.
    pub fn is_l3_encapsulation(self) -> bool {
        matches!(self, Self::HEncaps | Self::HEncapsRed)
    }

    /// Octets that it puts in front of the inner packet's own octets, without the link-layer header: what the MTU has to leave
    /// room for. For Ethernet the inner frame's header counts as inner octets.
    pub fn overhead(self, segments: usize) -> usize {
        let srh = |entries: usize| if entries == 0 { 0 } else { SRH + SEGMENT * entries };
        match self {
            Self::HEncaps | Self::HEncapsL2 => IPV6 + srh(segments),
            Self::HEncapsRed | Self::HEncapsL2Red => IPV6 + srh(segments.saturating_sub(1)),
            // The inner packet's destination becomes the last segment.
            Self::HInsert => srh(segments + 1),
            Self::Push => ENTRY_OCTETS * segments,
        }
    }

    /// Octets of headroom that it takes: the overhead, and for Ethernet the inner frame's own header, which stays.
    pub fn headroom(self, segments: usize) -> usize {
        self.overhead(segments) + if self.is_l2() { ETHERNET } else { 0 }
    }

    /// Most segments that fit: [`SEGMENTS_MAX`] ([`LABELS_MAX`] labels) or what [`HEADROOM_MAX`] leaves room for.
    pub fn segments_max(self) -> usize {
        let most = if self == Self::Push { LABELS_MAX } else { SEGMENTS_MAX };
        (1..=most).rev().find(|segments| self.headroom(*segments) <= HEADROOM_MAX).unwrap_or(0)
    }
}

impl Policy {
    /// Whether Ethernet frames go into it, not IP packets.
    pub fn carries_frames(&self) -> bool {
        self.mode.is_l2() || self.pseudowire.is_some()
    }
}

/// How many of the [`SHARES`] each weight gets; they sum up to [`SHARES`] unless all weights are 0. Every share is rounded
/// down, then those that lost most get one more, the earlier first among equals.
pub fn shares(weights: &[u32]) -> Vec<u16> {
    let total: u64 = weights.iter().copied().map(u64::from).sum();
    if total == 0 {
        return vec![0; weights.len()];
    }
    let scaled = |weight: &u32| u64::from(*weight) * u64::from(SHARES);
    // At most SHARES, since no weight is above the total.
    let mut shares: Vec<u16> =
        weights.iter().map(|weight| u16::try_from(scaled(weight) / total).unwrap_or(SHARES)).collect();
    let missing = usize::from(SHARES - shares.iter().sum::<u16>());
    let mut by_loss: Vec<usize> = (0..weights.len()).collect();
    by_loss.sort_by_key(|index| std::cmp::Reverse(scaled(&weights[*index]) % total));
    for index in by_loss.into_iter().take(missing) {
        shares[index] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_that_fit() {
        assert_eq!(HeadendMode::HEncaps.headroom(10), 208);
        assert_eq!(HeadendMode::HEncaps.segments_max(), 10);
        assert_eq!(HeadendMode::HEncapsL2.headroom(10), 222);
        assert_eq!(HeadendMode::HEncapsL2.segments_max(), 9);
        assert_eq!(HeadendMode::HEncapsL2Red.headroom(10), 206);
        assert_eq!(HeadendMode::HEncapsL2Red.segments_max(), 10);
        assert_eq!(HeadendMode::HInsert.headroom(10), 184);
        assert_eq!((HeadendMode::Push.segments_max(), HeadendMode::Push.overhead(32)), (32, 128));
        assert_eq!(HeadendMode::HEncapsRed.overhead(1), 40, "a single segment needs no SRH");
    }

    #[test]
    fn shares_sum_up() {
        assert_eq!(shares(&[1]), [256]);
        assert_eq!(shares(&[1, 1, 1]), [86, 85, 85]);
        assert_eq!(shares(&[3, 1]), [192, 64]);
        assert_eq!(shares(&[1000, 1]), [256, 0], "not representable");
        assert_eq!(shares(&[u32::MAX; 16]), [16; 16]);
        assert_eq!(shares(&[0, 0]), [0, 0]);
        assert_eq!(shares(&[]), [0; 0]);
    }
}
