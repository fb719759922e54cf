//! The data plane's C parser and the Rust parser read the same frames and must say the same.

use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
use segue_abi::Outcome;
use segue_testkit::mutation::{Random, mutate, seeds};
use segue_testkit::object;
use segue_wire::classify::{OuterClass, OuterStatus, classify_outer};
use zerocopy::{FromBytes, Immutable, KnownLayout};

const FRAMES: usize = 300_000;
/// Octets in front of the extension headers.
const HEADERS: usize = 14 + 40;
/// The limit of both parsers.
const MOST: usize = 8;

/// `struct parsed` of bpf/test/parser.bpf.c.
#[derive(Debug, Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Parsed {
    walked: u32,
    srh: u16,
    previous: u16,
    upper: u16,
    error_at: u16,
    protocol: u8,
    fragment: u8,
    sr_seen: u8,
    error: u8,
}

/// What both must agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// The fixed headers are wrong or of another kind.
    NotWalked,
    /// An SRH with segments left, at this offset.
    Active { srh: usize },
    /// Not the first fragment of a whole packet; behind the Fragment header.
    Fragment { upper: usize },
    /// The upper layer.
    Upper { upper: usize, protocol: u8, sr_seen: bool },
    /// Refused.
    Refused(Outcome),
}

fn c_parser(object: &Object, frame: &[u8]) -> Walk {
    let program = object.progs_mut().next().expect("the program");
    let input = ProgramInput { data_in: Some(frame), ..ProgramInput::default() };
    let output = program.test_run(input).unwrap_or_else(|error| panic!("{} octets: {error}", frame.len()));
    assert_eq!(output.return_value, 2, "the test program passes everything");
    let map = object.maps().find(|map| map.name() == "parsed").expect("the map");
    let bytes = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).expect("a lookup").expect("its only entry");
    let parsed = Parsed::read_from_bytes(&bytes).expect("struct parsed");
    let upper = usize::from(parsed.upper);
    match parsed {
        Parsed { walked: 0, .. } => Walk::NotWalked,
        Parsed { error: error @ 1.., .. } => {
            Walk::Refused(Outcome::from_number(error.into()).unwrap_or_else(|| panic!("outcome {error}")))
        }
        Parsed { srh: srh @ 1.., .. } => Walk::Active { srh: srh.into() },
        Parsed { fragment: 1.., .. } => Walk::Fragment { upper },
        Parsed { protocol, sr_seen, .. } => Walk::Upper { upper, protocol, sr_seen: sr_seen != 0 },
    }
}

/// The same by the Rust parser. It stops behind the first SRH, so behind an SRH without segments left it is asked again about
/// the same packet without the headers walked so far.
fn rust_parser(frame: &[u8]) -> Walk {
    let (mut shift, mut walked, mut sr_seen) = (0, 0, false);
    let mut rest = frame.to_vec();
    loop {
        let class = classify_outer(&rest);
        if shift == 0 && (class.vlan_tags > 0 || fixed_is_wrong(&class, &rest)) {
            return Walk::NotWalked;
        }
        if let Some(fragment) = first_fragment(&class, &rest) {
            return if too_many(walked, fragment.position) {
                Walk::Refused(Outcome::DropTooManyHeaders)
            } else {
                Walk::Fragment { upper: fragment.end + shift }
            };
        }
        let count = usize::from(class.header_count);
        match class.status {
            OuterStatus::Ok => {}
            // The header at fault would be one too many in the whole packet.
            _ if walked + count >= MOST => return Walk::Refused(Outcome::DropTooManyHeaders),
            OuterStatus::TooManyHeaders | OuterStatus::HopByHopMisplaced => {
                return Walk::Refused(Outcome::DropTooManyHeaders);
            }
            OuterStatus::Truncated | OuterStatus::BadLength => return Walk::Refused(Outcome::DropBadLength),
            OuterStatus::RoutingTypeUnknown => return Walk::Refused(Outcome::DropRoutingType),
            OuterStatus::NotIpv6 | OuterStatus::BadVersion => unreachable!("looked at above"),
        }
        if walked + count > MOST {
            return Walk::Refused(Outcome::DropTooManyHeaders);
        }
        let upper = class.upper_layer_offset;
        let Some(srh) = class.srh else {
            return Walk::Upper { upper: upper + shift, protocol: class.upper_layer, sr_seen };
        };
        sr_seen = true;
        if srh.segments_left > 0 {
            return Walk::Active { srh: srh.offset + shift };
        }
        if class.upper_layer == 0 {
            return Walk::Refused(Outcome::DropTooManyHeaders); // hop-by-hop options in a later place
        }
        walked += count;
        let removed = upper - HEADERS;
        let payload = usize::from(u16::from_be_bytes([rest[18], rest[19]])) - removed;
        rest[18..20].copy_from_slice(&(payload as u16).to_be_bytes());
        rest[20] = class.upper_layer;
        rest.drain(HEADERS..upper);
        shift += removed;
    }
}

fn too_many(walked: usize, position: usize) -> bool {
    walked + position >= MOST
}

/// Whether the C side does not begin to walk: its caller has looked at the fixed headers.
fn fixed_is_wrong(class: &OuterClass, frame: &[u8]) -> bool {
    let payload = || usize::from(u16::from_be_bytes([frame[18], frame[19]]));
    matches!(class.status, OuterStatus::NotIpv6 | OuterStatus::BadVersion)
        || frame.len() < HEADERS
        || HEADERS + payload() > frame.len()
}

struct FirstFragment {
    position: usize,
    end: usize,
}

/// The C parser stops behind every Fragment header that is not atomic, the Rust parser only where no upper layer follows. So the
/// headers that the Rust parser found are looked through for one.
fn first_fragment(class: &OuterClass, frame: &[u8]) -> Option<FirstFragment> {
    let mut at = HEADERS;
    for (position, protocol) in class.headers.iter().take(class.header_count.into()).enumerate() {
        let octets = frame.get(at..at + 8)?;
        let length = match protocol {
            44 => 8,
            51 => (usize::from(octets[1]) + 2) * 4,
            _ => (usize::from(octets[1]) + 1) * 8,
        };
        if *protocol == 44 && (octets[2] | octets[3] & 0xf9) != 0 {
            return Some(FirstFragment { position, end: at + length });
        }
        at += length;
    }
    None
}

#[test]
#[ignore = "needs root"]
fn both_parsers_say_the_same() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("differential");
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = object::compile(&object::repository().join("bpf/test/parser.bpf.c"), &directory);
    let object = ObjectBuilder::default().open_file(file).and_then(|open| open.load()).expect("the parser loads");
    let seeds = seeds();
    let mut random = Random::new(0xd1ff);
    let mut kinds = std::collections::BTreeMap::<String, usize>::new();
    for number in 0..FRAMES {
        let mut frame = random.pick(&seeds).frame.clone();
        if number >= seeds.len() {
            mutate(&mut random, &mut frame);
        }
        let (c, rust) = (c_parser(&object, &frame), rust_parser(&frame));
        let text = || frame.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
        assert_eq!(c, rust, "frame {number}: left C, right Rust, classified {:?}\n{}", classify_outer(&frame), text());
        let kind = format!("{c:?}");
        *kinds.entry(kind.split([' ', '{']).next().unwrap_or_default().to_owned()).or_default() += 1;
    }
    println!("{kinds:?}");
    for kind in [
        "NotWalked",
        "Active",
        "Fragment",
        "Upper",
        "Refused(DropBadLength)",
        "Refused(DropTooManyHeaders)",
        "Refused(DropRoutingType)",
    ] {
        assert!(kinds.get(kind).is_some_and(|count| *count > 100), "too few of {kind}: {kinds:?}");
    }
}
