//! What Segue does not treat as netfilter does: closed, each a row of "Differences from netfilter" in docs/using/firewall.md,
//! each for the packets and rules that it names and no others.

use std::cmp::Ordering;

use super::Case;
use super::packets::{Class, Event, Family, checksum_of, crc32c, fold, sum};
use super::router::Result;

/// A packet's layer 4.
#[derive(Default)]
struct Upper<'p> {
    protocol: u8,
    octets: &'p [u8],
    /// Fragments that are not whole packets: offset in octets, and whether more follow.
    fragment: Option<(usize, bool)>,
    /// Octets of the headers in front of what is in the fragment, without the Fragment header.
    head: Vec<u8>,
    /// What is in the fragment; of a packet that is none, layer 4.
    behind: &'p [u8],
    /// How many extension headers there are.
    headers: usize,
    /// One of them is a Hop-by-Hop Options header, and not the first.
    misplaced: bool,
    /// One of them is not there as a whole.
    broken: bool,
}

/// The packet without what is behind its end.
fn within(packet: &[u8], family: Family) -> &[u8] {
    let length = match family {
        Family::Ipv4 => usize::from(u16::from_be_bytes([packet[2], packet[3]])),
        Family::Ipv6 => 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])),
    };
    packet.get(..length).unwrap_or(packet)
}

fn upper(packet: &[u8], family: Family) -> Upper<'_> {
    if packet.len() < if family == Family::Ipv4 { 20 } else { 40 } {
        return Upper::default();
    }
    let packet = within(packet, family);
    if family == Family::Ipv4 {
        let at = (usize::from(packet.first().copied().unwrap_or_default() & 15) * 4).min(packet.len());
        if at < 20 {
            return Upper::default();
        }
        let word = u16::from_be_bytes([packet[6], packet[7]]);
        let fragment = (word & 0x3fff != 0).then_some((usize::from(word & 0x1fff) * 8, word & 0x2000 != 0));
        let (head, octets) = packet.split_at(at);
        return Upper {
            protocol: packet[9],
            octets,
            fragment,
            head: head.to_vec(),
            behind: octets,
            ..Upper::default()
        };
    }
    let mut found = Upper { protocol: packet[6], ..Upper::default() };
    // Where the next header is named, and what is in front of the Fragment header.
    let (mut at, mut named, mut front, mut visited) = (40, 6, None, false);
    while [0, 43, 44, 51, 60].contains(&found.protocol) {
        let length = match packet.get(at + 1).map(|length| usize::from(*length)) {
            _ if found.protocol == 44 => 8,
            Some(length) if found.protocol == 51 => (length + 2) * 4,
            Some(length) => (length + 1) * 8,
            None => 8,
        };
        if at + length.max(8) > packet.len() {
            found.broken = true;
            break;
        }
        found.headers += 1;
        // A walk that looks for SRHs ends at what another node has to go on with.
        found.misplaced |= found.protocol == 0 && found.headers > 1 && !visited;
        visited |= found.protocol == 43 && packet[at + 3] > 0;
        if found.protocol == 44 {
            let word = u16::from_be_bytes([packet[at + 2], packet[at + 3]]);
            let fragment = (word & !6 != 0).then_some((usize::from(word & !7), word & 1 != 0));
            if front.is_none() {
                let mut head = packet[..at].to_vec();
                head[named] = packet[at];
                front = Some((head, at + 8));
                found.fragment = fragment;
            } else if word & !7 != 0 {
                found.fragment = fragment;
            }
        }
        named = at;
        found.protocol = packet[at];
        at += length;
        if matches!(found.fragment, Some((1.., _))) {
            break;
        }
    }
    found.octets = &packet[at..];
    let (head, behind) = front.unwrap_or_else(|| (packet[..at].to_vec(), at));
    found.head = head;
    found.behind = &packet[behind..];
    found
}

fn icmp(family: Family) -> u8 {
    if family == Family::Ipv4 { 1 } else { 58 }
}

/// Of a header that is cut short by the end of the packet or first fragment: RFC 7112 section 5, docs/design/firewall.md.
fn cut(packet: &[u8], family: Family) -> bool {
    let Upper { protocol, octets, fragment, broken, .. } = upper(packet, family);
    if broken {
        return false;
    }
    let length = match protocol {
        6 => 20,
        17 | 136 => 8,
        33 | 132 => 12,
        other if other == icmp(family) => 8,
        _ => 0,
    };
    match fragment {
        Some((8, _)) => protocol == 6,
        Some((1.., _)) => false,
        _ if octets.len() < length => true,
        _ => protocol == 6 && !(20..=octets.len()).contains(&(usize::from(octets[12] >> 4) * 4)),
    }
}

/// A whole packet's checksum is what its protocol says.
fn sums_up(packet: &[u8], family: Family) -> bool {
    let Upper { protocol, octets, fragment, .. } = upper(packet, family);
    let summed = matches!(protocol, 6 | 17 | 132 | 136) || protocol == icmp(family);
    if fragment.is_some() || !summed || cut(packet, family) {
        return true;
    }
    if protocol == 132 {
        let crc = crc32c(&[&octets[..8], &[0; 4], &octets[12..]].concat());
        return octets[8..12] == crc.to_le_bytes();
    }
    // A UDP datagram over IPv4 may do without.
    if family == Family::Ipv4 && protocol == 17 && octets[6..8] == [0, 0] {
        return true;
    }
    // The kernel takes UDP-Lite's number for UDP's in the pseudo-header, and holds what is right to be wrong.
    let protocol = if protocol == 136 { 17 } else { protocol };
    checksum_of(packet, family, protocol, octets) == 0
}

/// The kernel's REJECT answers it: nf_reject_verify_csum() names the protocols that it does not sum up. In IPv4 those that it does not
/// know are summed up without addresses; and of what it has not put together, each fragment alone.
fn rejected_aloud(packet: &[u8], family: Family) -> bool {
    let Upper { protocol, octets, .. } = upper(packet, family);
    if family == Family::Ipv6 && octets.is_empty() {
        return false;
    }
    if matches!(protocol, 47 | 50 | 51 | 132 | 136) {
        return true;
    }
    if family == Family::Ipv4 && protocol == 17 && octets.get(6..8) == Some(&[0, 0]) {
        return true;
    }
    let sum = if family == Family::Ipv4 && !matches!(protocol, 6 | 17) {
        fold(sum(octets, 0))
    } else {
        checksum_of(packet, family, protocol, octets)
    };
    matches!(sum, 0 | 0xffff)
}

fn tunnel(packet: &[u8], family: Family) -> bool {
    matches!(upper(packet, family).protocol, 4 | 41)
}

/// Of an event whose fragments the kernel puts together: Segue's and the kernel's are put together here, as far as they go.
fn put_together(packets: &mut Vec<Vec<u8>>, family: Family) {
    let mut parts: Vec<(usize, Vec<u8>, Vec<u8>)> = packets
        .iter()
        .map(|packet| {
            let upper = upper(packet, family);
            (upper.fragment.map_or(0, |(offset, _)| offset), upper.head, upper.behind.to_vec())
        })
        .collect();
    parts.sort();
    let Some((0, mut head, _)) = parts.first().cloned() else { return };
    let mut whole = Vec::new();
    for (offset, _, octets) in parts {
        match offset.cmp(&whole.len()) {
            Ordering::Equal => whole.extend(octets),
            // A hole, or what is there twice: as it is, to be seen.
            _ => return,
        }
    }
    match family {
        Family::Ipv4 => {
            head[2..8].fill(0);
            head[10..12].fill(0);
        }
        Family::Ipv6 => head[4..6].fill(0),
    }
    *packets = vec![[head, whole].concat()];
}

/// The first fragment's octets of what is put together.
fn first_fragment(packets: &mut [Vec<u8>], event: &Event, family: Family) {
    let first = event
        .packets
        .iter()
        .map(|packet| upper(packet, family))
        .find(|upper| upper.fragment.is_none_or(|(at, _)| at == 0));
    let Some(first) = first else { return };
    for packet in packets {
        packet.truncate(first.head.len() + first.behind.len());
    }
}

/// An answer without what tells a datagram from its first fragment: lengths, Fragment headers, what a reset acknowledges.
fn without_length(answer: &mut Vec<u8>, family: Family) {
    let at = if family == Family::Ipv4 { usize::from(answer[0] & 15) * 4 } else { 40 };
    let protocol = if family == Family::Ipv4 { answer[9] } else { answer[6] };
    let quoted = at + 8;
    if protocol == 6 {
        answer[at + 8..at + 12].fill(0);
    } else if family == Family::Ipv4 {
        answer[quoted + 2..quoted + 8].fill(0);
    } else {
        let about = answer.split_off(quoted);
        let upper = upper(&about, family);
        answer.extend(upper.head);
        answer.extend(upper.behind);
        answer[quoted + 4..quoted + 6].fill(0);
    }
}

pub enum How {
    /// What comes behind it differs too: it is sent apart from the rest, and this holds for what the kernel and Segue make of it.
    Apart(fn(Family, &Result, &Result) -> bool),
    /// What comes out differs by this and nothing else, and what the rules count only by octets and `-m length`.
    View(fn(&Event, Family, &mut Result, &mut Result)),
}

pub struct Exception {
    /// A row of the table "Differences from netfilter" in docs/using/firewall.md.
    pub row: &'static str,
    /// Of these events.
    pub applies: fn(&Case, &Event) -> bool,
    pub how: How,
    /// A class of packets of which some are such.
    pub class: Class,
}

/// A datagram in fragments where rules look at connections.
pub fn put_together_by_kernel(case: &Case, event: &Event) -> bool {
    use Class::{FragmentAtomic, FragmentCut, FragmentHeaders, Fragments, FragmentsMixed};
    let whole = matches!(event.class, Fragments | FragmentsMixed | FragmentCut | FragmentHeaders | FragmentAtomic);
    case.connections && whole
}

fn any(case: &Case, event: &Event, of: fn(&[u8], Family) -> bool) -> bool {
    event.packets.iter().any(|packet| of(packet, case.family))
}

/// A later fragment whose Fragment header names another extension header.
fn names_extension(packet: &[u8], family: Family) -> bool {
    let upper = upper(packet, family);
    family == Family::Ipv6 && matches!((upper.fragment, upper.protocol), (Some((1.., _)), 0 | 43 | 44 | 51 | 60))
}

fn nothing(result: &Result) -> bool {
    result.on.is_empty() && result.back.is_empty()
}

/// Segue lets neither the packet nor its first fragment pass. What rules say of later ones alone, they say here too.
fn not_the_first(family: Family, _: &Result, segue: &Result) -> bool {
    segue.back.is_empty() && segue.on.iter().all(|packet| matches!(upper(packet, family).fragment, Some((1.., _))))
}

/// Closed: what is not here is a failure.
pub const EXCEPTIONS: [Exception; 18] = [
    Exception {
        row: "layer4-cut",
        applies: |case, event| event.class != Class::FragmentCut && any(case, event, cut),
        how: How::Apart(not_the_first),
        class: Class::Cut,
    },
    Exception {
        row: "first-fragment-cut",
        applies: |case, event| event.class == Class::FragmentCut && any(case, event, cut),
        how: How::Apart(not_the_first),
        class: Class::FragmentCut,
    },
    Exception {
        row: "checksum",
        applies: |case, event| case.connections && !event.packets.iter().all(|packet| sums_up(packet, case.family)),
        // Which state it has in both: exact.rs.
        how: How::Apart(|_, _, _| true),
        class: Class::Checksum,
    },
    Exception {
        row: "sctp",
        applies: |case, event| {
            case.connections
                && any(case, event, |packet, family| {
                    let upper = upper(packet, family);
                    upper.protocol == 132 && upper.octets.get(12) != Some(&1)
                })
        },
        // Which state it has in both: exact.rs.
        how: How::Apart(|_, _, _| true),
        class: Class::Sctp,
    },
    Exception {
        row: "dccp",
        applies: |case, event| {
            case.connections && any(case, event, |packet, family| upper(packet, family).protocol == 33)
        },
        // Which state it has in both: exact.rs.
        how: How::Apart(|_, _, _| true),
        class: Class::Transport,
    },
    Exception {
        row: "header-cut",
        applies: |case, event| any(case, event, |packet, family| upper(packet, family).broken),
        how: How::Apart(|_, _, segue| nothing(segue)),
        class: Class::HeadersCut,
    },
    Exception {
        row: "many-headers",
        applies: |case, event| any(case, event, |packet, family| upper(packet, family).headers > 8),
        how: How::Apart(|_, _, segue| nothing(segue)),
        class: Class::Headers,
    },
    Exception {
        row: "hop-by-hop-place",
        applies: |case, event| any(case, event, |packet, family| upper(packet, family).misplaced),
        how: How::Apart(|_, _, segue| segue.on.is_empty()),
        class: Class::Headers,
    },
    Exception {
        row: "fragment-extension",
        applies: |case, event| !case.connections && any(case, event, names_extension),
        how: How::Apart(|_, kernel, segue| kernel.on.iter().all(|packet| segue.on.contains(packet))),
        class: Class::FragmentHeaders,
    },
    Exception {
        row: "fragment-headers",
        applies: |case, event| case.connections && event.class == Class::FragmentTwice,
        how: How::Apart(|_, _, segue| nothing(segue)),
        class: Class::FragmentTwice,
    },
    Exception {
        row: "sr-from-outside",
        applies: |_, event| event.class == Class::Segments,
        how: How::Apart(|_, _, segue| segue.on.is_empty()),
        class: Class::Segments,
    },
    Exception {
        row: "header-refused",
        applies: |_, event| matches!(event.class, Class::OptionRefused | Class::ChecksumOfHeader),
        how: How::Apart(|_, kernel, segue| kernel.on.is_empty() && segue.on.is_empty()),
        class: Class::OptionRefused,
    },
    Exception {
        row: "fragment-incomplete",
        applies: |case, event| {
            event.class == Class::FragmentAlone
                && case.connections
                && any(case, event, |packet, family| matches!(upper(packet, family).fragment, Some((0, true))))
        },
        how: How::Apart(|_, kernel, _| nothing(kernel)),
        class: Class::FragmentAlone,
    },
    Exception {
        row: "fragment-size",
        applies: put_together_by_kernel,
        how: How::View(|_, family, kernel, segue| {
            put_together(&mut kernel.on, family);
            put_together(&mut segue.on, family);
        }),
        class: Class::Fragments,
    },
    Exception {
        row: "fragment-early",
        applies: |case, event| event.class == Class::FragmentsMixed && put_together_by_kernel(case, event),
        how: How::View(|event, family, kernel, _| first_fragment(&mut kernel.on, event, family)),
        class: Class::FragmentsMixed,
    },
    Exception {
        row: "fragment-length",
        applies: put_together_by_kernel,
        how: How::View(|_, family, kernel, segue| {
            for answer in kernel.back.iter_mut().chain(&mut segue.back) {
                without_length(answer, family);
            }
        }),
        class: Class::Fragments,
    },
    Exception {
        row: "reject-checksum",
        applies: |case, event| {
            any(case, event, tunnel)
                || !put_together_by_kernel(case, event)
                    && any(case, event, |packet, family| !rejected_aloud(packet, family))
        },
        how: How::View(|event, family, kernel, segue| {
            // Of what is in a tunnel, receive offload (GRO) may have found that it is right.
            if kernel.back.is_empty() || !event.packets.iter().any(|packet| tunnel(packet, family)) {
                segue.back.clear();
            }
        }),
        class: Class::Checksum,
    },
    Exception {
        row: "redirect",
        applies: |case, event| {
            case.family == Family::Ipv6
                && any(case, event, |packet, family| {
                    let upper = upper(packet, family);
                    upper.protocol == 58 && upper.octets.first() == Some(&137)
                })
        },
        how: How::View(|_, _, kernel, _| kernel.back.clear()),
        class: Class::IcmpOdd,
    },
];

/// Octets of a datagram, and of its first fragment.
pub fn lengths(event: &Event, family: Family) -> (u64, u64) {
    let (mut whole, mut first) = (0, 0);
    for packet in &event.packets {
        let upper = upper(packet, family);
        let (offset, _) = upper.fragment.unwrap_or_default();
        whole = whole.max(upper.head.len() + offset + upper.behind.len());
        if offset == 0 {
            first = packet.len();
        }
    }
    (whole as u64, first as u64)
}
