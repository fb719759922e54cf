//! Values of options: numbers, addresses, ports, names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::RuleError;
use super::head::{Family, Interface, Network};
use super::lexer::Word;
use super::names;

/// A number in decimal, in hexadecimal behind `0x` or in octal behind `0`, as strtoul reads it.
pub(super) fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hexadecimal) => (hexadecimal, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    // from_str_radix would take a sign.
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

/// A number from `first` to `last`.
pub(super) fn number_in(word: &Word<'_>, first: u64, last: u64) -> Result<u64, RuleError> {
    number(&word.text)
        .filter(|value| (first..=last).contains(value))
        .ok_or_else(|| RuleError::value(word, "no number that fits here", format!("give one from {first} to {last}")))
}

/// An octet.
pub(super) fn octet(word: &Word<'_>) -> Result<u8, RuleError> {
    number_in(word, 0, 255).map(|value| value as u8)
}

/// `first[:last]`; either may be left out as long as the colon stays, and means the end of the range then.
pub(super) fn range(word: &Word<'_>, last: u64) -> Result<(u64, u64), RuleError> {
    let one = |part: &str, default: u64| match part {
        "" => Ok(default),
        part => number_in(&word.part(part), 0, last),
    };
    match word.text.split_once(':') {
        None => number_in(word, 0, last).map(|value| (value, value)),
        Some((from, to)) => Ok((one(from, 0)?, one(to, last)?)),
    }
}

/// A protocol by number or name; 0 and `all` are every protocol.
pub(super) fn protocol(word: &Word<'_>) -> Result<u8, RuleError> {
    if word.text.eq_ignore_ascii_case("all") {
        return Ok(0);
    }
    if let Some(value) = number(&word.text) {
        return u8::try_from(value)
            .map_err(|_| RuleError::value(word, "no protocol has this number", "give one from 0 to 255"));
    }
    names::protocol(&word.text)
        .ok_or_else(|| RuleError::value(word, "no protocol of this name is known", "give its number"))
}

/// A port by number or the name of its service.
pub(super) fn port(word: &Word<'_>) -> Result<u16, RuleError> {
    let text = word.text.as_ref();
    let value = match number(text) {
        Some(value) => u16::try_from(value).ok(),
        None => names::service(text),
    };
    value.ok_or_else(|| match text.starts_with(|c: char| c.is_ascii_digit()) {
        true => RuleError::value(word, "no port has this number", "give one from 0 to 65535"),
        false => RuleError::value(word, "no service of this name is known", "give the number of the port"),
    })
}

/// `first[:last]` of ports.
pub(super) fn port_range(word: &Word<'_>) -> Result<(u16, u16), RuleError> {
    let one = |part: &str, default: u16| match part {
        "" => Ok(default),
        part => port(&word.part(part)),
    };
    let (first, last) = match word.text.split_once(':') {
        None => port(word).map(|port| (port, port))?,
        Some((from, to)) => (one(from, 0)?, one(to, u16::MAX)?),
    };
    if first > last {
        let remedy = format!("write {last}:{first}");
        return Err(RuleError::value(word, "the range's first port is greater than its last", remedy));
    }
    Ok((first, last))
}

/// An address of a family as a number.
pub(super) fn address(word: &Word<'_>, family: Family) -> Result<u128, RuleError> {
    let text = word.text.as_ref();
    let parsed = match family {
        Family::Ipv4 => ipv4(text).map(|address| u128::from(address.to_bits())),
        Family::Ipv6 => text.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits),
    };
    parsed.ok_or_else(|| bad_address(word, family))
}

/// Dotted; like iptables, octets at the end may be left out.
fn ipv4(text: &str) -> Option<Ipv4Addr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let mut octets = [0; 4];
    let mut parts = 0;
    for (index, part) in text.split('.').enumerate() {
        *octets.get_mut(index)? = decimal(part)?;
        parts = index;
    }
    (parts < 3).then_some(Ipv4Addr::from(octets))
}

/// An octet in decimal digits alone.
fn decimal(text: &str) -> Option<u8> {
    text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn bad_address(word: &Word<'_>, family: Family) -> RuleError {
    let other = match family {
        Family::Ipv4 => word.text.parse::<Ipv6Addr>().is_ok(),
        Family::Ipv6 => word.text.parse::<Ipv4Addr>().is_ok(),
    };
    let (reason, remedy) = if other {
        let (found, program, set) = match family {
            Family::Ipv4 => (Family::Ipv6, "ip6tables", "inet6"),
            Family::Ipv6 => (Family::Ipv4, "iptables", "inet"),
        };
        (
            format!("an {found} address where {family} is needed"),
            format!("rules about it belong into a file for {program}, entries into a set of family {set}"),
        )
    } else if word.text.chars().any(|c| c.is_ascii_alphabetic()) && !word.text.contains(':') {
        let reason = "a host's name; rules are loaded without asking a resolver, whose answer could change";
        (reason.to_owned(), format!("give its {family} address"))
    } else {
        (format!("no {family} address"), "write address[/length] or address/mask".to_owned())
    };
    RuleError::value(word, reason, remedy)
}

/// `address[/length]` or `address/mask`. The address keeps its bits outside the mask.
pub(super) fn network(word: &Word<'_>, family: Family) -> Result<Network, RuleError> {
    let (host, suffix) = match word.text.split_once('/') {
        None => (word.text.as_ref(), None),
        Some((host, suffix)) => (host, Some(suffix)),
    };
    let address = address(&word.part(host), family)?;
    let mask = match suffix {
        None => family.mask(family.bits()),
        Some(suffix) => mask(&word.part(suffix), family)?,
    };
    Ok(Network { family, address, mask })
}

fn mask(word: &Word<'_>, family: Family) -> Result<u128, RuleError> {
    if let Some(length) = decimal(&word.text).filter(|length| *length <= family.bits()) {
        return Ok(family.mask(length));
    }
    let is_address = word.text.contains(['.', ':']);
    is_address.then(|| address(word, family).ok()).flatten().ok_or_else(|| {
        RuleError::value(word, "no mask", format!("give a length from 0 to {} or a mask as an address", family.bits()))
    })
}

/// `value[/mask]` of 32 bit.
pub(super) fn value_and_mask(word: &Word<'_>) -> Result<(u32, Option<u32>), RuleError> {
    let one = |part: &str| number_in(&word.part(part), 0, u64::from(u32::MAX)).map(|value| value as u32);
    match word.text.split_once('/') {
        None => Ok((one(&word.text)?, None)),
        Some((value, mask)) => Ok((one(value)?, Some(one(mask)?))),
    }
}

/// `-i` and `-o`. None: `+` alone, every interface.
pub(super) fn interface(word: &Word<'_>) -> Result<Option<Interface>, RuleError> {
    let (name, wildcard) = match word.text.strip_suffix('+') {
        Some(name) => (name, true),
        None => (word.text.as_ref(), false),
    };
    if name.is_empty() {
        let empty = || RuleError::value(word, "an interface without a name", "give a name, or + for every interface");
        return if wildcard { Ok(None) } else { Err(empty()) };
    }
    if word.text.len() > 15 {
        return Err(RuleError::value(word, "longer than the name of an interface can be", "give at most 15 octets"));
    }
    if let Some(bad) = name.chars().find(|c| c.is_whitespace() || *c == '/') {
        return Err(RuleError::value(
            word,
            format!("{bad:?} in the name of an interface"),
            "give the name as `ip link` does",
        ));
    }
    Ok(Some(Interface { name: name.to_owned(), wildcard }))
}

/// A text of at most that many octets without line ends.
pub(super) fn text(word: &Word<'_>, octets: usize) -> Result<String, RuleError> {
    if word.text.len() > octets {
        let reason = format!("{} octets long", word.text.len());
        return Err(RuleError::value(word, reason, format!("shorten it to at most {octets} octets")));
    }
    if word.text.contains(['\n', '\0']) {
        return Err(RuleError::value(word, "a line end in it", "leave it out"));
    }
    Ok(word.text.to_string())
}

impl Network {
    /// Length of the prefix; None if the mask has holes.
    pub fn length(&self) -> Option<u8> {
        let length = u8::try_from(self.mask.count_ones()).ok()?;
        (self.family.mask(length) == self.mask).then_some(length)
    }

    /// The same without bits outside the mask.
    #[must_use]
    pub(super) fn masked(self) -> Self {
        Self { address: self.address & self.mask, ..self }
    }

    /// Whether it is every address.
    pub(super) fn is_any(&self) -> bool {
        self.mask == 0
    }

    /// As iptables-save writes it: always with length or mask.
    pub(super) fn save(&self) -> String {
        match self.length() {
            Some(length) => format!("{}/{length}", address_text(self.family, self.address)),
            None => format!("{}/{}", address_text(self.family, self.address), address_text(self.family, self.mask)),
        }
    }

    /// As `iptables -L -n` writes it: a whole address without length.
    pub(super) fn list(&self) -> String {
        match self.length() {
            Some(length) if length == self.family.bits() => address_text(self.family, self.address),
            _ => self.save(),
        }
    }
}

/// An address as text.
pub(super) fn address_text(family: Family, address: u128) -> String {
    match family {
        Family::Ipv4 => IpAddr::V4(Ipv4Addr::from_bits(address as u32)).to_string(),
        Family::Ipv6 => IpAddr::V6(Ipv6Addr::from_bits(address)).to_string(),
    }
}
