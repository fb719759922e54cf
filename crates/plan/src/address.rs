//! The rule by which numbers become parts of addresses, and SIDs of locators.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

/// A number as the group of an IPv6 address that looks like it: 12 becomes 0x12. Up to 9999.
pub fn group(number: u16) -> u16 {
    let digit = |place: u16| (number / place) % 10;
    (digit(1000) << 12) | (digit(100) << 8) | (digit(10) << 4) | digit(1)
}

/// The prefix that has a group right behind another prefix; what does not fit into 128 bits is cut.
pub fn behind(prefix: Ipv6Net, group: u16) -> Ipv6Net {
    let length = (prefix.prefix_len() + 16).min(128);
    let bits = prefix.network().to_bits() | (u128::from(group) << (128 - length));
    Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), length)
}

/// A SID (RFC 8986 section 3.1): a function number, its digits read as written, right behind the locator; the argument is 0.
pub fn sid(locator: Ipv6Net, function: u16) -> Ipv6Addr {
    behind(locator, group(function)).addr()
}

/// The SID with an argument of `bits` bits right behind LOC:FUNCT, whose length is `prefix_length`. What does not fit is refused
/// elsewhere.
pub(crate) fn with_argument(sid: Ipv6Addr, prefix_length: u8, bits: u8, argument: u16) -> Ipv6Addr {
    let shift = 128_u32.saturating_sub(u32::from(prefix_length) + u32::from(bits));
    Ipv6Addr::from_bits(sid.to_bits() | u128::from(argument).checked_shl(shift).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_digits_read_as_written() {
        assert_eq!(group(12), 0x12);
        assert_eq!(group(9999), 0x9999);
        let locator: Ipv6Net = "fc00:5e9:12::/48".parse().unwrap();
        assert_eq!(sid(locator, 46).to_string(), "fc00:5e9:12:46::");
        assert_eq!(sid(locator, 101).to_string(), "fc00:5e9:12:101::");
    }

    #[test]
    fn marks_lie_right_behind_the_function_number() {
        let sid: Ipv6Addr = "fc00:5e9:2:100::".parse().unwrap();
        assert_eq!(with_argument(sid, 64, 16, 0xabcd).to_string(), "fc00:5e9:2:100:abcd::");
        assert_eq!(with_argument("fc00:0:0:2:100::".parse().unwrap(), 80, 16, 7).to_string(), "fc00::2:100:7:0:0");
        assert_eq!(with_argument(sid, 64, 8, 2).to_string(), "fc00:5e9:2:100:200::");
    }
}
