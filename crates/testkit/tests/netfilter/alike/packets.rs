//! Packets at random, as octets of layer 3: plausible ones, strange ones, and sequences of them.

use segue_classifier::random::Random;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    pub fn program(self) -> &'static str {
        if self == Self::Ipv4 { "iptables" } else { "ip6tables" }
    }

    pub fn key(self) -> &'static str {
        if self == Self::Ipv4 { "ipv4" } else { "ipv6" }
    }

    pub fn icmp(self) -> u8 {
        if self == Self::Ipv4 { 1 } else { 58 }
    }
}

/// What kind of packet it is. Each is a kind of differences, too: see the exceptions of the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A step of a TCP connection in order.
    Tcp,
    /// A TCP segment with flags and options at random.
    TcpWild,
    /// UDP, one way or the other.
    Udp,
    /// Echo requests and replies.
    Echo,
    /// ICMP messages of other types that are no errors.
    Icmp,
    /// The same of types that the kernel has of its own: IPv4 router discovery and above 18, IPv6 redirects and 151 to 153 (multicast router discovery).
    IcmpOdd,
    /// An ICMP error about an earlier packet.
    Error,
    /// An ICMP error about a packet that never was.
    ErrorWild,
    /// DCCP and UDP-Lite.
    Transport,
    /// SCTP.
    Sctp,
    /// Protocols without ports.
    Other,
    /// IPv6: No Next Header.
    NoNext,
    /// IPv4 options; IPv6 extension headers but Fragment.
    Options,
    /// All fragments of a datagram, in order.
    Fragments,
    /// The same out of order.
    FragmentsMixed,
    /// A fragment whose others never come.
    FragmentAlone,
    /// The same with a first one of eight octets.
    FragmentCut,
    /// A layer-4 header that is cut by the packet's end, or TCP options that are.
    Cut,
    /// A wrong checksum of layer 4.
    Checksum,
    /// A wrong checksum of the IPv4 header.
    ChecksumOfHeader,
    /// Packets in packets (protocols 4 and 41), up to three deep, of all other kinds; and answers.
    Tunnel,
    /// The same with what is inside cut short, with lengths that disagree, or no packet at all.
    TunnelOdd,
    /// IPv6: extension headers but Fragment in any order, more than once, with whatever behind them. IPv4: an Authentication header.
    Headers,
    /// IPv6: the same with one that the packet or its length cuts short.
    HeadersCut,
    /// IPv6: a Hop-by-Hop option that no router may skip.
    OptionRefused,
    /// IPv6: Segment Routing headers.
    Segments,
    /// Fragments of a datagram with headers before and behind the Fragment header, or IPv4 options; tunnels in fragments.
    FragmentHeaders,
    /// IPv6: a whole packet with a Fragment header.
    FragmentAtomic,
    /// IPv6: two Fragment headers.
    FragmentTwice,
    /// Octets behind the packet's end, or before it too few; lengths of UDP and UDP-Lite that disagree.
    Lengths,
    /// An error about a packet of any kind, with as much of it as there is room for, or less.
    ErrorAny,
}

pub const CLASSES: [Class; 31] = [
    Class::Tcp,
    Class::TcpWild,
    Class::Udp,
    Class::Echo,
    Class::Icmp,
    Class::IcmpOdd,
    Class::Error,
    Class::ErrorWild,
    Class::Transport,
    Class::Sctp,
    Class::Other,
    Class::NoNext,
    Class::Options,
    Class::Fragments,
    Class::FragmentsMixed,
    Class::FragmentAlone,
    Class::FragmentCut,
    Class::Cut,
    Class::Checksum,
    Class::ChecksumOfHeader,
    Class::Tunnel,
    Class::TunnelOdd,
    Class::Headers,
    Class::HeadersCut,
    Class::OptionRefused,
    Class::Segments,
    Class::FragmentHeaders,
    Class::FragmentAtomic,
    Class::FragmentTwice,
    Class::Lengths,
    Class::ErrorAny,
];

impl Class {
    pub fn fits(self, family: Family) -> bool {
        let of_one = match self {
            Self::NoNext
            | Self::HeadersCut
            | Self::OptionRefused
            | Self::Segments
            | Self::FragmentAtomic
            | Self::FragmentTwice => Some(Family::Ipv6),
            Self::ChecksumOfHeader => Some(Family::Ipv4),
            _ => None,
        };
        of_one.is_none_or(|one| one == family)
    }
}

/// One thing that happens: packets of one side, most often one.
#[derive(Debug, Clone)]
pub struct Event {
    pub class: Class,
    /// 0: by eth0, 1: by eth1.
    pub side: usize,
    pub packets: Vec<Vec<u8>>,
}

/// A TCP connection between an address of either side.
#[derive(Debug, Clone)]
struct Connection {
    /// Which side began.
    opener: usize,
    addresses: [u128; 2],
    ports: [u16; 2],
    /// What each sends next.
    next: [u32; 2],
    step: usize,
}

/// What goes into the IP header.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    pub source: u128,
    pub destination: u128,
    pub protocol: u8,
}

#[derive(Clone)]
pub struct Generator {
    pub random: Random,
    pub family: Family,
    /// Addresses behind each side.
    pub addresses: [Vec<u128>; 2],
    ports: Vec<u16>,
    connections: Vec<Connection>,
    /// Packets that were sent, for answers and errors about them: side and octets.
    sent: Vec<(usize, Head, Vec<u8>)>,
    /// The same of those that are no plain ones, for errors alone.
    pub others: Vec<(usize, Head, Vec<u8>)>,
    identification: u16,
}

const FIN: u8 = 1;
pub const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

pub fn sum(octets: &[u8], start: u64) -> u64 {
    octets.chunks(2).fold(start, |sum, pair| sum + u64::from(pair[0]) * 256 + u64::from(*pair.get(1).unwrap_or(&0)))
}

pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The checksum with the pseudo-header of a packet's addresses: 0 if it is right.
pub fn checksum_of(packet: &[u8], family: Family, protocol: u8, segment: &[u8]) -> u16 {
    let addresses = if family == Family::Ipv4 { &packet[12..20] } else { &packet[8..40] };
    let pseudo = if protocol == 1 { 0 } else { sum(addresses, segment.len() as u64 + u64::from(protocol)) };
    fold(sum(segment, pseudo))
}

/// CRC32c (RFC 9260 appendix A), bit by bit.
pub fn crc32c(octets: &[u8]) -> u32 {
    !octets.iter().fold(!0, |crc, octet| {
        (0..8).fold(crc ^ u32::from(*octet), |crc: u32, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

impl Generator {
    /// `hosts`: addresses behind each side; `ports`: those that rules name.
    pub fn new(seed: u64, family: Family, hosts: [Vec<u128>; 2], ports: Vec<u16>) -> Self {
        let (connections, sent, others) = (Vec::new(), Vec::new(), Vec::new());
        let random = Random::new(seed);
        Self { random, family, addresses: hosts, ports, connections, sent, others, identification: 1 }
    }

    pub fn addresses(&mut self, side: usize) -> (u128, u128) {
        let pick = |generator: &mut Self, side: usize| {
            let known = generator.addresses[side].len();
            // The first ones are met again and again.
            let among = if generator.random.below(2) == 0 { known.min(3) } else { known };
            generator.addresses[side][generator.random.below(among)]
        };
        (pick(self, side), pick(self, 1 - side))
    }

    pub fn port(&mut self) -> u16 {
        match self.random.below(4) {
            0 => 1024 + self.random.below(20) as u16,
            1 => self.random.number() as u16,
            _ => *self.random.pick(&self.ports),
        }
    }

    /// The checksum that layer 4 has with its pseudo-header.
    pub fn checksum(&self, head: Head, segment: &[u8]) -> u16 {
        let length = segment.len() as u64;
        let octets = |address: u128| match self.family {
            Family::Ipv4 => (address as u32).to_be_bytes().to_vec(),
            Family::Ipv6 => address.to_be_bytes().to_vec(),
        };
        let pseudo = sum(&octets(head.source), sum(&octets(head.destination), length + u64::from(head.protocol)));
        let pseudo = if head.protocol == 1 { 0 } else { pseudo };
        fold(sum(segment, pseudo))
    }

    pub fn tcp(
        &self,
        head: Head,
        ports: (u16, u16),
        numbers: (u32, u32),
        flags: u8,
        options: &[u8],
        data: usize,
    ) -> Vec<u8> {
        let mut segment = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
        segment.extend(numbers.0.to_be_bytes());
        segment.extend(numbers.1.to_be_bytes());
        segment.extend([((20 + options.len()) / 4 * 16) as u8, flags, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend(options);
        segment.resize(segment.len() + data, 0x55);
        let checksum = self.checksum(head, &segment);
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
        segment
    }

    pub fn udp(&self, head: Head, ports: (u16, u16), data: usize) -> Vec<u8> {
        let mut datagram = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
        datagram.extend(((8 + data) as u16).to_be_bytes());
        datagram.extend([0, 0]);
        datagram.resize(8 + data, 0x66);
        let checksum = self.checksum(head, &datagram);
        datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
        datagram
    }

    pub fn icmp(&self, head: Head, kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
        let mut message = [&[kind, code, 0, 0], rest].concat();
        let checksum = self.checksum(head, &message);
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        message
    }

    /// A whole packet. `extra`: IPv4 options, or IPv6 extension headers with the protocol that leads to them.
    pub fn ip(&mut self, head: Head, upper: &[u8], extra: &[u8], first: Option<u8>) -> Vec<u8> {
        let class = *self.random.pick(&[0, 0, 0, 0x10, 0x28, 0xb8]);
        let hops = *self.random.pick(&[64, 64, 64, 255, 63, 2]);
        match self.family {
            Family::Ipv4 => {
                self.identification = self.identification.wrapping_add(1).max(1);
                let length = (20 + extra.len() + upper.len()) as u16;
                let mut packet = vec![0x45 + (extra.len() / 4) as u8, class];
                packet.extend(length.to_be_bytes());
                packet.extend(self.identification.to_be_bytes());
                packet.extend([0, 0, hops, head.protocol, 0, 0]);
                packet.extend((head.source as u32).to_be_bytes());
                packet.extend((head.destination as u32).to_be_bytes());
                packet.extend(extra);
                let checksum = fold(sum(&packet, 0));
                packet[10..12].copy_from_slice(&checksum.to_be_bytes());
                packet.extend(upper);
                packet
            }
            Family::Ipv6 => {
                let mut packet = vec![0x60 | class >> 4, class << 4, 0, 0];
                packet.extend(((extra.len() + upper.len()) as u16).to_be_bytes());
                packet.extend([first.unwrap_or(head.protocol), hops]);
                packet.extend(head.source.to_be_bytes());
                packet.extend(head.destination.to_be_bytes());
                packet.extend(extra);
                packet.extend(upper);
                packet
            }
        }
    }

    pub fn single(&mut self, class: Class, side: usize, head: Head, upper: Vec<u8>) -> Event {
        let packet = self.ip(head, &upper, &[], None);
        if self.sent.len() > 40 {
            self.sent.remove(0);
        }
        self.sent.push((side, head, packet.clone()));
        Event { class, side, packets: vec![packet] }
    }

    /// Nothing was sent before.
    pub fn forget(&mut self) {
        self.connections.clear();
        self.sent.clear();
        self.others.clear();
    }

    /// What happens next.
    pub fn event(&mut self, class: Class) -> Event {
        let side = self.random.below(2);
        let (source, destination) = self.addresses(side);
        let head = |protocol| Head { source, destination, protocol };
        match class {
            Class::Tcp => self.connection(),
            Class::TcpWild => {
                let ports = (self.port(), self.port());
                let numbers = (self.random.number() as u32, self.random.number() as u32);
                let flags = self.random.number() as u8 & 0x3f;
                const OPTIONS: [&[u8]; 5] = [&[], &[2, 4, 5, 0xb4], &[1, 3, 3, 7], &[30, 4, 0, 0], &[4, 2, 1, 0]];
                let options = *self.random.pick(&OPTIONS);
                let data = self.random.below(30);
                let segment = self.tcp(head(6), ports, numbers, flags, options, data);
                self.single(class, side, head(6), segment)
            }
            Class::Udp => self.datagram(side, head(17)),
            Class::Echo => self.echo(side, head(self.family.icmp())),
            Class::Icmp | Class::IcmpOdd => {
                let kinds: &[u8] = match (self.family, class) {
                    (Family::Ipv4, Class::Icmp) => &[13, 14, 17, 18],
                    (Family::Ipv6, Class::Icmp) => &[130, 131, 132, 139, 140, 141, 142, 144, 145, 200, 255],
                    (Family::Ipv4, _) => &[9, 10, 40, 77, 255],
                    (Family::Ipv6, _) => &[137, 151, 152, 153],
                };
                let (kind, code) = (*self.random.pick(kinds), *self.random.pick(&[0, 0, 1, 4]));
                let head = head(self.family.icmp());
                let message = self.icmp(head, kind, code, &[0, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                self.single(class, side, head, message)
            }
            Class::Error => self.error(),
            Class::ErrorWild => {
                let inner = Head { source: destination, destination: source, protocol: 17 };
                let ports = (self.port(), self.port());
                let datagram = self.udp(inner, ports, 8);
                let about = self.ip(inner, &datagram, &[], None);
                self.error_about(class, side, source, destination, &about)
            }
            Class::Transport | Class::Sctp => {
                let protocol = if class == Class::Sctp { 132 } else { *self.random.pick(&[33, 136]) };
                let (from, to) = (self.port(), self.port());
                let segment = self.transport(head(protocol), (from, to));
                self.single(class, side, head(protocol), segment)
            }
            Class::Other => {
                let protocol = *self.random.pick(&[2, 47, 50, 89, 112, 200]);
                // The kernel's ip6tables holds a checksum against many of them (row `reject-checksum`): it is right.
                let mut octets = vec![0; 24];
                if self.family == Family::Ipv6 && protocol != 47 {
                    let checksum = self.checksum(head(protocol), &octets);
                    octets[..2].copy_from_slice(&checksum.to_be_bytes());
                }
                self.single(class, side, head(protocol), octets)
            }
            Class::NoNext => self.single(class, side, head(59), Vec::new()),
            Class::Options => self.options(side, source, destination),
            Class::Fragments
            | Class::FragmentsMixed
            | Class::FragmentAlone
            | Class::FragmentCut
            | Class::FragmentHeaders => self.fragments(class, side, source, destination),
            Class::Cut => {
                let protocol = *self.random.pick(&[6, 6, 17, 33, 132, 136, self.family.icmp()]);
                let head = head(protocol);
                let ports = (self.port(), self.port());
                let whole = match protocol {
                    6 => self.tcp(head, ports, (1, 0), SYN, &[2, 4, 5, 0xb4], 0),
                    17 => self.udp(head, ports, 0),
                    1 | 58 => self.icmp(head, 13, 0, &[0; 4]),
                    _ => self.transport(head, ports),
                };
                let length = self.random.below(whole.len());
                // Nothing is said about it later: it has no ports.
                let packet = self.ip(head, &whole[..length], &[], None);
                Event { class, side, packets: vec![packet] }
            }
            Class::Checksum => {
                let ports = (self.port(), self.port());
                let (protocol, mut upper, at) = match self.random.below(3) {
                    0 => (6, self.tcp(head(6), ports, (1, 0), SYN, &[], 4), 16),
                    1 => (17, self.udp(head(17), ports, 4), 6),
                    _ => {
                        let head = head(self.family.icmp());
                        let kind = if self.family == Family::Ipv4 { 8 } else { 128 };
                        (head.protocol, self.icmp(head, kind, 0, &[0, 5, 0, 1]), 2)
                    }
                };
                upper[at] ^= 0x11;
                self.single(class, side, head(protocol), upper)
            }
            Class::ChecksumOfHeader => {
                let mut event = self.datagram(side, head(17));
                event.packets[0][10] ^= 0x11;
                Event { class, ..event }
            }
            Class::Tunnel => self.tunnel(side, source, destination),
            Class::TunnelOdd => self.tunnel_odd(side, source, destination),
            Class::Headers => self.headers(side, source, destination),
            Class::HeadersCut => self.headers_cut(side, source, destination),
            Class::OptionRefused => self.option_refused(side, head(17)),
            Class::Segments => self.segments(side, head(17)),
            Class::FragmentAtomic | Class::FragmentTwice => self.whole_fragment(class, side, source, destination),
            Class::Lengths => self.lengths(side, source, destination),
            Class::ErrorAny => self.error_any(),
        }
    }

    /// The next step of a connection, or a new one.
    fn connection(&mut self) -> Event {
        if self.connections.is_empty() || self.random.below(4) == 0 {
            let opener = self.random.below(2);
            let (near, far) = self.addresses(opener);
            let addresses = if opener == 0 { [near, far] } else { [far, near] };
            let client = 20_000 + self.random.below(20_000) as u16;
            let server = self.port();
            let ports = if opener == 0 { [client, server] } else { [server, client] };
            let next = [self.random.number() as u32, self.random.number() as u32];
            self.connections.push(Connection { opener, addresses, ports, next, step: 0 });
        }
        let index = self.random.below(self.connections.len());
        let mut connection = self.connections[index].clone();
        // Who speaks, and what: a handshake, some data, an end.
        let (by_opener, flags, data) = match connection.step {
            0 => (true, SYN, 0),
            1 => (false, SYN | ACK, 0),
            2 => (true, ACK, 0),
            3 => (true, PSH | ACK, 20),
            4 => (false, ACK, 0),
            5 => (false, PSH | ACK, 30),
            6 if self.random.below(4) == 0 => (true, RST | ACK, 0),
            6 => (true, FIN | ACK, 0),
            7 => (false, FIN | ACK, 0),
            _ => (true, ACK, 0),
        };
        let side = if by_opener { connection.opener } else { 1 - connection.opener };
        let (sequence, expected) = (connection.next[side], connection.next[1 - side]);
        let acknowledgment = if flags & ACK != 0 { expected } else { 0 };
        let controls = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        connection.next[side] = sequence.wrapping_add(data as u32 + controls);
        connection.step += 1;
        let head =
            Head { source: connection.addresses[side], destination: connection.addresses[1 - side], protocol: 6 };
        let ports = (connection.ports[side], connection.ports[1 - side]);
        let options: &[u8] = if flags & SYN != 0 { &[2, 4, 5, 0xb4] } else { &[] };
        let segment = self.tcp(head, ports, (sequence, acknowledgment), flags, options, data);
        let ended = connection.step > 8 || flags & RST != 0;
        self.connections[index] = connection;
        if ended || self.connections.len() > 12 {
            self.connections.remove(index);
        }
        self.single(Class::Tcp, side, head, segment)
    }

    /// A datagram, or an answer to one.
    fn datagram(&mut self, side: usize, head: Head) -> Event {
        let earlier: Vec<(usize, Head, Vec<u8>)> =
            self.sent.iter().filter(|(_, head, _)| head.protocol == 17).cloned().collect();
        if !earlier.is_empty() && self.random.below(2) == 0 {
            let (side, head, packet) = self.random.pick(&earlier).clone();
            let at = if self.family == Family::Ipv4 { 20 } else { 40 };
            let ports = (
                u16::from_be_bytes([packet[at + 2], packet[at + 3]]),
                u16::from_be_bytes([packet[at], packet[at + 1]]),
            );
            let head = Head { source: head.destination, destination: head.source, ..head };
            let datagram = self.udp(head, ports, 12);
            return self.single(Class::Udp, 1 - side, head, datagram);
        }
        let ports = (self.port(), self.port());
        let data = self.random.below(200);
        let datagram = self.udp(head, ports, data);
        self.single(Class::Udp, side, head, datagram)
    }

    fn echo(&mut self, side: usize, head: Head) -> Event {
        let (request, reply) = if self.family == Family::Ipv4 { (8, 0) } else { (128, 129) };
        let at = if self.family == Family::Ipv4 { 20 } else { 40 };
        let earlier: Vec<(usize, Head, Vec<u8>)> = self
            .sent
            .iter()
            .filter(|(_, head, packet)| head.protocol == self.family.icmp() && packet.get(at) == Some(&request))
            .cloned()
            .collect();
        if !earlier.is_empty() && self.random.below(2) == 0 {
            let (side, head, packet) = self.random.pick(&earlier).clone();
            let head = Head { source: head.destination, destination: head.source, ..head };
            let message = self.icmp(head, reply, 0, &packet[at + 4..]);
            return self.single(Class::Echo, 1 - side, head, message);
        }
        let identifier = 1 + self.random.below(5) as u8;
        let kind = if self.random.below(5) == 0 { reply } else { request };
        let message = self.icmp(head, kind, 0, &[0, identifier, 0, 1, 1, 2, 3, 4]);
        self.single(Class::Echo, side, head, message)
    }

    fn error(&mut self) -> Event {
        let plain: Vec<(usize, Head, Vec<u8>)> = self
            .sent
            .iter()
            .filter(|(_, head, _)| matches!(head.protocol, 6 | 17) || head.protocol == self.family.icmp())
            .cloned()
            .collect();
        if plain.is_empty() {
            return self.event(Class::Udp);
        }
        let (side, head, packet) = self.random.pick(&plain).clone();
        // From the destination, or from a router on the way.
        let source = match self.random.below(3) {
            0 => self.addresses(1 - side).0,
            _ => head.destination,
        };
        self.error_about(Class::Error, 1 - side, source, head.source, &packet)
    }

    pub fn error_about(&mut self, class: Class, side: usize, source: u128, destination: u128, about: &[u8]) -> Event {
        let (kind, code) = match self.family {
            Family::Ipv4 => *self.random.pick(&[(3, 0), (3, 1), (3, 3), (3, 4), (3, 13), (11, 0), (12, 0), (4, 0)]),
            Family::Ipv6 => *self.random.pick(&[(1, 0), (1, 1), (1, 3), (1, 4), (2, 0), (3, 0), (4, 0), (4, 1)]),
        };
        let head = Head { source, destination, protocol: self.family.icmp() };
        let quoted = if class == Class::ErrorAny { about } else { &about[..about.len().min(60)] };
        let rest = [&[0, 0, 5, 0xdc][..], quoted].concat();
        let message = self.icmp(head, kind, code, &rest);
        let packet = self.ip(head, &message, &[], None);
        Event { class, side, packets: vec![packet] }
    }

    pub fn transport(&mut self, head: Head, (from, to): (u16, u16)) -> Vec<u8> {
        let mut segment = [from.to_be_bytes(), to.to_be_bytes()].concat();
        match head.protocol {
            // SCTP: tag 0 and an INIT chunk, or some tag and data, a cookie, an end.
            132 => {
                let kind = *self.random.pick(&[1, 1, 0, 10, 6]);
                segment.extend([0, 0, 0, u8::from(kind != 1), 0, 0, 0, 0]);
                segment.extend([kind, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0x10, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
                let crc = crc32c(&segment);
                segment[8..12].copy_from_slice(&crc.to_le_bytes());
            }
            // DCCP: a Request with an extended sequence number.
            33 => {
                segment.extend([5, 0, 0, 0, 0x01, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
                let checksum = self.checksum(head, &segment);
                segment[6..8].copy_from_slice(&checksum.to_be_bytes());
            }
            _ => {
                segment.extend([0, 0, 0, 0]);
                segment.extend([1, 2, 3, 4]);
                // What is right, and what the kernel takes for right.
                let protocol = *self.random.pick(&[136, 17]);
                let checksum = self.checksum(Head { protocol, ..head }, &segment);
                segment[6..8].copy_from_slice(&checksum.to_be_bytes());
            }
        }
        segment
    }
}
