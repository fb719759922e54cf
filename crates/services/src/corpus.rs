//! Payloads that tests and the bench measure with, and packets that carry them: the same in every run.

use segue_service::driver::srv6;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, TcpRepr, tcp::control};
use std::fmt::Write;
use std::net::Ipv6Addr;

/// A small generator of pseudo-random numbers (xorshift64*).
pub struct Random(u64);

impl Random {
    /// The sequence of a seed; that of 0 is that of 1.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        ((self.number() >> 16) % limit.max(1) as u64) as usize
    }

    /// So many octets, which no algorithm makes fewer.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.number() >> 32) as u8).collect()
    }
}

/// 3,000 words of one to four syllables, the same for all texts; word number n is as frequent as in a language, about 1/n.
struct Language(Vec<String>);

impl Language {
    fn new() -> Self {
        let syllables = [
            "an", "ber", "con", "dis", "ed", "for", "gen", "her", "in", "jo", "ka", "lo", "men", "no", "or", "per",
            "qui", "re", "sta", "tion", "un", "ver", "wal", "ex", "ly", "zen", "a", "th", "al", "ing",
        ];
        let mut random = Random::new(0x1a46);
        let mut word = |_| (0..1 + random.below(4)).map(|_| syllables[random.below(syllables.len())]).collect();
        Self((0..3000).map(&mut word).collect())
    }

    fn word(&self, random: &mut Random) -> &str {
        // The inverse of the cumulated 1/n: exp(u ln N).
        let uniform = random.below(1 << 24) as f64 / f64::from(1 << 24);
        let rank = (self.0.len() as f64).powf(uniform) as usize - 1;
        &self.0[rank.min(self.0.len() - 1)]
    }

    fn words(&self, count: usize, random: &mut Random) -> String {
        (0..count).map(|_| self.word(random)).collect::<Vec<_>>().join(" ")
    }
}

/// Names of sections that most pages have.
const SECTIONS: &[&str] = &[
    "References",
    "External links",
    "See also",
    "History",
    "Early life",
    "Career",
    "Geography",
    "Notes",
    "Bibliography",
    "Personal life",
    "Demographics",
    "Further reading",
    "Plot",
    "Reception",
    "Track listing",
    "Distribution",
];

/// At least `octets` octets of XML built like the abstracts of an encyclopaedia, which the thesis measured with: a title, an address,
/// an abstract, and links to the sections of the page, of which three in four have a name that other pages have too.
#[must_use]
pub fn xml(octets: usize, seed: u64) -> Vec<u8> {
    let (language, mut random) = (Language::new(), Random::new(seed));
    let mut text = String::from("<feed>\n");
    while text.len() < octets {
        let length = 1 + random.below(3);
        let title = language.words(length, &mut random);
        let page = format!("https://en.encyclopaedia.example/wiki/{}", title.replace(' ', "_"));
        let length = 10 + random.below(40);
        let text_of = language.words(length, &mut random);
        let _ = write!(
            text,
            "<doc>\n<title>Encyclopaedia: {title}</title>\n<url>{page}</url>\n<abstract>{title} {text_of}.</abstract>\n<links>\n"
        );
        for _ in 0..2 + random.below(12) {
            let length = 1 + random.below(4);
            let own = language.words(length, &mut random);
            let anchor = if random.below(4) == 0 { &own } else { SECTIONS[random.below(SECTIONS.len())] };
            let place = anchor.replace(' ', "_");
            let _ = writeln!(
                text,
                "<sublink linktype=\"nav\"><anchor>{anchor}</anchor><link>{page}#{place}</link></sublink>"
            );
        }
        text.push_str("</links>\n</doc>\n");
    }
    text.into_bytes()
}

/// HTTP answers whose bodies are compressed already, as nearly all are: a header of text in front of octets without repetition.
#[must_use]
pub fn http(octets: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut stream = Vec::new();
    while stream.len() < octets {
        stream.extend(answer(&mut random));
    }
    stream
}

/// Answers of web servers, each a stream of its own: of a hundred 86 with a body that is compressed already (the share of servers that the thesis
/// names), the others with text.
#[must_use]
pub fn answers(count: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    let text = xml(200_000, seed);
    let mut one = |_| {
        if random.below(100) < 86 {
            return answer(&mut random);
        }
        let (from, length) = (random.below(text.len() / 2), 200 + random.below(20_000));
        let header =
            format!("HTTP/1.1 200 OK\r\nServer: example\r\nContent-Type: text/xml\r\nContent-Length: {length}\r\n\r\n");
        [header.as_bytes(), &text[from..from + length]].concat()
    };
    (0..count).map(&mut one).collect()
}

/// One answer with a body that is compressed already.
fn answer(random: &mut Random) -> Vec<u8> {
    let length = 2_000 + random.below(60_000);
    let tag = random.number();
    let header = format!(
        "HTTP/1.1 200 OK\r\nServer: example\r\nContent-Type: text/html; charset=utf-8\r\nContent-Encoding: gzip\r\nVary: Accept-Encoding\r\n\
             Cache-Control: max-age=3600\r\nETag: \"{tag:016x}\"\r\nContent-Length: {length}\r\n\r\n"
    );
    let mut octets = header.into_bytes();
    octets.extend(random.bytes(length));
    octets
}

/// What sends a TCP stream: addresses, ports, and segments of at most so many octets.
#[derive(Debug, Clone, Copy)]
pub struct Sender {
    /// Or IPv4.
    pub ipv6: bool,
    /// The source's.
    pub port: u16,
    /// Octets of payload in a segment at most.
    pub segment: usize,
}

impl Sender {
    /// By IPv4, in segments as the thesis had them.
    pub const IPV4: Self = Self { ipv6: false, port: 40_000, segment: 1340 };
    /// The same by IPv6.
    pub const IPV6: Self = Self { ipv6: true, port: 40_000, segment: 1340 };

    /// A segment with this sequence number, as an IP packet. IPv4 identifications count segments.
    #[must_use]
    pub fn packet(self, index: usize, sequence_number: u32, control_bits: u8, payload: &[u8]) -> Vec<u8> {
        let tcp = TcpRepr {
            sequence_number,
            acknowledgment_number: 77_000,
            window: 502,
            // No operation twice, then timestamps.
            options: [&[1, 1, 8, 10][..], &0x1234_5678_u32.to_be_bytes(), &0x9abc_def0_u32.to_be_bytes()].concat(),
            ..TcpRepr::new(self.port, 445, control_bits)
        };
        let builder = if self.ipv6 {
            let address = |site: u16| Ipv6Addr::new(0x2001, 0xdb8, site, 0, 0, 0, 0, 2);
            let header = Ipv6Repr { flow_label: 0x1_2345, ..Ipv6Repr::new(address(0xa), address(0xb)) };
            PacketBuilder::new().ipv6(header)
        } else {
            let header = Ipv4Repr::new([10, 1, 0, 2].into(), [10, 2, 0, 2].into());
            PacketBuilder::new().ipv4(Ipv4Repr { identification: index as u16, dont_fragment: true, ..header })
        };
        builder.tcp(tcp).payload(payload).build()
    }

    /// A stream in segments, as inner packets.
    #[must_use]
    pub fn inner(self, stream: &[u8]) -> Vec<Vec<u8>> {
        let chunks = stream.chunks(self.segment).enumerate();
        chunks.map(|(index, chunk)| self.packet(index, (index * self.segment) as u32, control::ACK, chunk)).collect()
    }

    /// A stream in segments behind steering headers.
    #[must_use]
    pub fn steered(self, stream: &[u8]) -> Vec<Vec<u8>> {
        self.inner(stream).iter().map(|inner| srv6(inner)).collect()
    }
}
