//! Probes: how they are sent and how their answers are known. Nothing here waits; one set of sockets serves all functions.

mod filter;
pub mod frames;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    os::fd::AsRawFd,
    sync::Arc,
};

use nix::sys::{
    epoll::{Epoll, EpollEvent, EpollFlags},
    socket::{LinkAddr, MsgFlags, SockaddrIn, SockaddrIn6, bind, recvfrom, sendto},
};
use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};

use self::frames::{Came, Mac, Through};
use super::machine::Time;

/// A link-layer address that was told is believed so long without asking again.
const NEIGHBOUR_AGE: Time = Time::from_secs(5);
/// At most so many packets are read from one socket before everything else gets a turn.
const BUDGET: usize = 4096;
/// Octets of the longest packet that any answer needs.
const LONGEST: usize = 256;

/// Names one packet of one probe: the function's slot, which of several packets, and the number of the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token(pub u64);

impl Token {
    /// At most 2^24 slots and 256 legs.
    pub fn new(slot: u32, leg: u8, cycle: u32) -> Self {
        Self(u64::from(slot) << 40 | u64::from(leg) << 32 | u64::from(cycle))
    }

    /// The function's slot.
    pub fn slot(self) -> u32 {
        (self.0 >> 40) as u32
    }

    /// Which of the probe's packets.
    pub fn leg(self) -> u8 {
        (self.0 >> 32) as u8
    }

    /// Number of the probe.
    pub fn cycle(self) -> u32 {
        self.0 as u32
    }

    /// What fits a TCP sequence number: 14 bits of the slot, two of the leg, 16 of the number.
    pub fn short(self) -> u32 {
        (self.slot() & 0x3fff) << 18 | u32::from(self.leg() & 3) << 16 | (self.cycle() & 0xffff)
    }
}

/// The function's link-layer address, or whom to ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is configured.
    Mac(Mac),
    /// This neighbour on the link tells it.
    Ask(IpAddr),
}

/// An end of a link towards a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Side {
    /// Number of the interface.
    pub ifindex: u32,
    /// Its link-layer address.
    pub mac: Mac,
    /// Own IPv4 address there, as the source of ARP requests; 0.0.0.0 if there is none.
    pub ipv4: Ipv4Addr,
}

/// One packet of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leg {
    /// ARP or neighbour solicitation.
    Neighbour {
        /// By this interface.
        side: Side,
        /// For this address.
        target: IpAddr,
    },
    /// Echo request through the node's own stack.
    Echo(SocketAddr),
    /// TCP connection through the node's own stack.
    Connect(SocketAddr),
    /// Out by one interface, back by another.
    Through {
        /// Where it goes out.
        side: Side,
        /// Number of the interface by which it comes back.
        into: u32,
        /// The function's end.
        next: Next,
        /// Own address on the side where it goes out.
        source: IpAddr,
        /// Own address on the side where it comes back.
        destination: IpAddr,
        /// TCP destination port; an echo request without.
        port: Option<u16>,
    },
}

impl fmt::Display for Leg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Neighbour { target: IpAddr::V4(target), .. } => write!(f, "ARP for {target}"),
            Self::Neighbour { target, .. } => write!(f, "neighbour solicitation for {target}"),
            Self::Echo(target) => write!(f, "echo request to {}", target.ip()),
            Self::Connect(target) => write!(f, "TCP connection to {target}"),
            Self::Through { destination, port: None, .. } => write!(f, "echo request through it to {destination}"),
            Self::Through { destination, port: Some(port), .. } => {
                write!(f, "TCP opening through it to {}", SocketAddr::new(*destination, *port))
            }
        }
    }
}

/// What came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// This packet of a probe was answered, or came back.
    Token(Token),
    /// One whose token is only known by [`Token::short`].
    Short(u32),
    /// Somebody told his link-layer address to whoever asked in the name of this token.
    Neighbour(Token),
    /// The connection was refused.
    Refused(Token),
}

/// Why a probe could not be sent.
#[derive(Debug)]
pub enum Unsent {
    /// The node itself is short of something for a moment: says nothing about the function.
    Busy(io::Error),
    /// It cannot be sent as things are.
    Failed(io::Error),
}

impl From<io::Error> for Unsent {
    fn from(error: io::Error) -> Self {
        match (error.kind(), error.raw_os_error()) {
            (ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::OutOfMemory, _) => Self::Busy(error),
            (_, Some(nix::libc::ENOBUFS | nix::libc::EMFILE | nix::libc::ENFILE)) => Self::Busy(error),
            _ => Self::Failed(error),
        }
    }
}

impl From<nix::Error> for Unsent {
    fn from(error: nix::Error) -> Self {
        io::Error::from(error).into()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Which {
    Arp,
    Icmpv4,
    Icmpv6,
    /// Interface, IPv6.
    Tap(u32, bool),
    Connection(u32),
}

/// An interface's number (0 for IPv6 addresses that are unique anyway) and an address there.
type Neighbour = (u32, IpAddr);

/// All sockets of all probes, in the network namespace of the thread that uses it.
pub struct Prober {
    epoll: Arc<Epoll>,
    /// The next socket's number in `epoll`.
    next: u64,
    nonce: u32,
    sockets: BTreeMap<u64, (Which, Socket)>,
    numbers: HashMap<Which, u64>,
    /// Connections under way, by slot.
    connecting: HashMap<u32, (Which, Token)>,
    /// Who waits for a neighbour: by slot and leg the last token that asked.
    asked: HashMap<Neighbour, HashMap<(u32, u8), Token>>,
    told: HashMap<Neighbour, (Mac, Time)>,
    /// Where packet sockets send to, by interface. The kernel's own list has them in the form that it wants.
    link_addresses: HashMap<u32, LinkAddr>,
}

impl Prober {
    /// Sockets are opened when a probe needs them, and announce what comes in `epoll` under numbers from `first` on. `nonce`
    /// tells answers to this agent from others.
    pub fn new(epoll: Arc<Epoll>, first: u64, nonce: u32) -> Self {
        Self {
            epoll,
            next: first,
            nonce,
            sockets: BTreeMap::new(),
            numbers: HashMap::new(),
            connecting: HashMap::new(),
            asked: HashMap::new(),
            told: HashMap::new(),
            link_addresses: HashMap::new(),
        }
    }

    /// Closes what only earlier probes needed, and forgets what it knew of interfaces.
    pub fn reconfigure<'a>(&mut self, legs: impl Iterator<Item = &'a Leg>) {
        let taps: HashSet<Which> = legs
            .filter_map(|leg| match leg {
                Leg::Through { into, destination, .. } => Some(Which::Tap(*into, destination.is_ipv6())),
                _ => None,
            })
            .collect();
        let stale: Vec<Which> = self
            .numbers
            .keys()
            .filter(|which| matches!(which, Which::Tap(..)) && !taps.contains(which))
            .copied()
            .collect();
        stale.into_iter().for_each(|which| self.close(which));
        self.asked.clear();
        self.told.clear();
        self.link_addresses.clear();
    }

    /// Sends one packet of a probe. True if it is on its way; false if it waits for a neighbour: then
    /// [`Answer::Neighbour`] comes, and it is to be sent again.
    pub fn send(&mut self, leg: &Leg, token: Token, now: Time) -> Result<bool, Unsent> {
        match leg {
            Leg::Neighbour { side, target } => self.ask(side, *target, token).map(|()| true),
            Leg::Echo(target) => self.echo(*target, token).map(|()| true),
            Leg::Connect(target) => self.connect(*target, token).map(|()| true),
            Leg::Through { side, into, next, source, destination, port } => {
                // Before it goes out: it may be back at once.
                self.tap(*into, destination.is_ipv6())?;
                let destination_mac = match next {
                    Next::Mac(mac) => Some(*mac),
                    Next::Ask(neighbour) => self.neighbour(side, *neighbour, token, now)?,
                };
                let Some(destination_mac) = destination_mac else { return Ok(false) };
                let (source, destination, port) = (*source, *destination, *port);
                let through = Through { source_mac: side.mac, destination_mac, source, destination, port };
                let mismatch = || Unsent::Failed(io::Error::from(ErrorKind::InvalidInput));
                let frame = through.frame(self.nonce, token).ok_or_else(mismatch)?;
                self.send_frame(side.ifindex, &frame).map(|()| true)
            }
        }
    }

    /// The last probe of this leg failed: the neighbour may have another link-layer address by now.
    pub fn distrust(&mut self, leg: &Leg) {
        if let Leg::Through { side, next: Next::Ask(neighbour), .. } = leg {
            self.told.remove(&key(side.ifindex, *neighbour));
        }
    }

    /// Ends what waits for an answer.
    pub fn give_up(&mut self, slot: u32) {
        if let Some((which, _)) = self.connecting.remove(&slot) {
            self.close(which);
        }
    }

    /// Reads what has come on the socket of this number.
    pub fn receive(&mut self, number: u64, now: Time, answers: &mut Vec<Answer>) {
        let Some((which, _)) = self.sockets.get(&number) else { return };
        let which = *which;
        if let Which::Connection(slot) = which {
            return self.connected(slot, which, number, answers);
        }
        let mut buffer = [0_u8; LONGEST];
        for _ in 0..BUDGET {
            let Some((_, socket)) = self.sockets.get(&number) else { return };
            let Some((length, from)) = read(socket, which, &mut buffer) else { return };
            let bytes = &buffer[..length];
            match which {
                Which::Icmpv4 => answers.extend(frames::echo_reply(bytes, true, self.nonce).map(Answer::Token)),
                Which::Icmpv6 => match frames::neighbour_advertisement(bytes) {
                    Some((target, mac)) => self.neighbour_told(key(from, target.into()), mac, now, answers),
                    None => answers.extend(frames::echo_reply(bytes, false, self.nonce).map(Answer::Token)),
                },
                Which::Arp => {
                    if let Some((target, mac)) = frames::arp_reply(bytes) {
                        self.neighbour_told((from, target.into()), Some(mac), now, answers);
                    }
                }
                Which::Tap(..) => answers.extend(Through::returned(bytes, self.nonce).map(|came| match came {
                    Came::Whole(token) => Answer::Token(token),
                    Came::Short(short) => Answer::Short(short),
                })),
                Which::Connection(_) => {}
            }
        }
    }

    fn neighbour_told(&mut self, neighbour: Neighbour, mac: Option<Mac>, now: Time, answers: &mut Vec<Answer>) {
        let Some(waiting) = self.asked.remove(&neighbour) else { return };
        if let Some(mac) = mac {
            self.told.insert(neighbour, (mac, now));
        }
        answers.extend(waiting.into_values().map(Answer::Neighbour));
    }

    /// The link-layer address of a neighbour. Asks for it if it is not known, or not for long any more.
    fn neighbour(&mut self, side: &Side, target: IpAddr, token: Token, now: Time) -> Result<Option<Mac>, Unsent> {
        let known = self.told.get(&key(side.ifindex, target)).copied();
        match known {
            Some((mac, told)) if now.saturating_sub(told) < NEIGHBOUR_AGE => Ok(Some(mac)),
            known => {
                self.ask(side, target, token)?;
                Ok(known.map(|(mac, _)| mac))
            }
        }
    }

    fn ask(&mut self, side: &Side, target: IpAddr, token: Token) -> Result<(), Unsent> {
        self.asked.entry(key(side.ifindex, target)).or_default().insert((token.slot(), token.leg()), token);
        match target {
            IpAddr::V4(target) => {
                self.socket(Which::Arp)?;
                self.send_frame(side.ifindex, &frames::arp_request(side.mac, side.ipv4, target))
            }
            IpAddr::V6(target) => {
                let message = frames::neighbour_solicitation(side.mac, target);
                let group = SocketAddrV6::new(frames::solicited_node(target), 0, 0, side.ifindex);
                self.socket(Which::Icmpv6)?.send_to(&message, &SockAddr::from(group))?;
                Ok(())
            }
        }
    }

    fn echo(&mut self, target: SocketAddr, token: Token) -> Result<(), Unsent> {
        let (which, message) = match target {
            SocketAddr::V4(_) => (Which::Icmpv4, frames::echo_request_ipv4(self.nonce, token)),
            SocketAddr::V6(_) => (Which::Icmpv6, frames::echo_request_ipv6(self.nonce, token)),
        };
        self.socket(which)?.send_to(&message, &SockAddr::from(target))?;
        Ok(())
    }

    fn connect(&mut self, target: SocketAddr, token: Token) -> Result<(), Unsent> {
        let which = Which::Connection(token.slot());
        self.close(which);
        let socket = Socket::new(Domain::for_address(target), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        // Closed by RST, so that nothing stays in TIME-WAIT.
        socket.set_linger(Some(std::time::Duration::ZERO))?;
        match socket.connect(&SockAddr::from(target)) {
            Err(error) if error.raw_os_error() == Some(nix::libc::EINPROGRESS) => {}
            // Refused at once, by this node: told like any other refusal, when it is asked for.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Err(Unsent::Failed(error)),
            other => other?,
        }
        self.connecting.insert(token.slot(), (which, token));
        self.register(which, socket, EpollFlags::EPOLLOUT)
    }

    fn connected(&mut self, slot: u32, which: Which, number: u64, answers: &mut Vec<Answer>) {
        let error = self.sockets.get(&number).and_then(|(_, socket)| socket.take_error().unwrap_or_else(Some));
        if let Some((_, token)) = self.connecting.remove(&slot) {
            answers.push(if error.is_none() { Answer::Token(token) } else { Answer::Refused(token) });
        }
        self.close(which);
    }

    fn tap(&mut self, ifindex: u32, ipv6: bool) -> Result<(), Unsent> {
        let which = Which::Tap(ifindex, ipv6);
        if self.numbers.contains_key(&which) {
            return Ok(());
        }
        let (protocol, filters): (_, Vec<SockFilter>) = if ipv6 {
            (nix::libc::ETH_P_IPV6, filter::through_ipv6().into())
        } else {
            (nix::libc::ETH_P_IP, filter::through_ipv4().into())
        };
        let address = self.link_address(ifindex)?;
        let socket = packet_socket(Type::DGRAM, protocol)?;
        socket.attach_filter(&filters)?;
        // The address has no protocol: the socket keeps its own.
        bind(socket.as_raw_fd(), &address)?;
        self.register(which, socket, EpollFlags::EPOLLIN)
    }

    fn send_frame(&mut self, ifindex: u32, frame: &[u8]) -> Result<(), Unsent> {
        let address = self.link_address(ifindex)?;
        let socket = self.socket(Which::Arp)?.as_raw_fd();
        sendto(socket, frame, &address, MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }

    fn link_address(&mut self, ifindex: u32) -> Result<LinkAddr, Unsent> {
        if let Some(address) = self.link_addresses.get(&ifindex) {
            return Ok(*address);
        }
        let addresses = nix::ifaddrs::getifaddrs()?.filter_map(|interface| interface.address?.as_link_addr().copied());
        self.link_addresses = addresses.map(|address| (address.ifindex() as u32, address)).collect();
        let gone = || Unsent::Failed(io::Error::from_raw_os_error(nix::libc::ENODEV));
        self.link_addresses.get(&ifindex).copied().ok_or_else(gone)
    }

    /// One of the sockets that serve all functions.
    fn socket(&mut self, which: Which) -> Result<&Socket, Unsent> {
        if !self.numbers.contains_key(&which) {
            let identifier = frames::identifier(self.nonce);
            let socket = match which {
                Which::Icmpv4 => {
                    let socket = Socket::new(Domain::IPV4, Type::RAW.nonblocking(), Some(Protocol::ICMPV4))?;
                    socket.attach_filter(&filter::icmpv4(identifier))?;
                    socket
                }
                Which::Icmpv6 => {
                    let socket = Socket::new(Domain::IPV6, Type::RAW.nonblocking(), Some(Protocol::ICMPV6))?;
                    socket.attach_filter(&filter::icmpv6(identifier))?;
                    // RFC 4861 section 7.1.1.
                    socket.set_multicast_hops_v6(255)?;
                    socket.set_multicast_loop_v6(false)?;
                    socket
                }
                _ => packet_socket(Type::RAW, nix::libc::ETH_P_ARP)?,
            };
            self.register(which, socket, EpollFlags::EPOLLIN)?;
        }
        let socket = self.numbers.get(&which).and_then(|number| self.sockets.get(number));
        socket.map(|(_, socket)| socket).ok_or_else(|| Unsent::Failed(io::Error::from(ErrorKind::NotFound)))
    }

    fn register(&mut self, which: Which, socket: Socket, flags: EpollFlags) -> Result<(), Unsent> {
        let number = self.next;
        self.next += 1;
        self.epoll.add(&socket, EpollEvent::new(flags, number))?;
        self.numbers.insert(which, number);
        self.sockets.insert(number, (which, socket));
        Ok(())
    }

    fn close(&mut self, which: Which) {
        // The kernel takes a closed socket out of the epoll instance.
        if let Some(number) = self.numbers.remove(&which) {
            self.sockets.remove(&number);
        }
    }
}

/// A packet socket of all interfaces for one ethertype.
fn packet_socket(kind: Type, ethertype: i32) -> io::Result<Socket> {
    let protocol = i32::from((ethertype as u16).to_be());
    Socket::new(Domain::PACKET, kind.nonblocking(), Some(Protocol::from(protocol)))
}

fn key(ifindex: u32, target: IpAddr) -> Neighbour {
    match target {
        IpAddr::V6(target) if !target.is_unicast_link_local() => (0, target.into()),
        _ => (ifindex, target),
    }
}

/// A packet's length, and the number of the interface by which it came where that is known. `None` when there is no more.
fn read(socket: &Socket, which: Which, buffer: &mut [u8]) -> Option<(usize, u32)> {
    let socket = socket.as_raw_fd();
    match which {
        Which::Icmpv4 => recvfrom::<SockaddrIn>(socket, buffer).ok().map(|(length, _)| (length, 0)),
        Which::Icmpv6 => {
            let (length, from) = recvfrom::<SockaddrIn6>(socket, buffer).ok()?;
            Some((length, from.map_or(0, |from| from.scope_id())))
        }
        _ => {
            let (length, from) = recvfrom::<LinkAddr>(socket, buffer).ok()?;
            Some((length, from.map_or(0, |from| from.ifindex() as u32)))
        }
    }
}

/// Where an echo request or a connection goes; link-local addresses need the interface.
pub fn socket_address(target: IpAddr, port: u16, ifindex: u32) -> SocketAddr {
    match target {
        IpAddr::V4(target) => SocketAddrV4::new(target, port).into(),
        IpAddr::V6(target) => {
            let scope = if Ipv6Addr::is_unicast_link_local(&target) { ifindex } else { 0 };
            SocketAddrV6::new(target, port, 0, scope).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_hold_their_parts() {
        let token = Token::new(0xab_cdef, 3, 0x8765_4321);
        assert_eq!((token.slot(), token.leg(), token.cycle()), (0xab_cdef, 3, 0x8765_4321));
        assert_eq!(token.short(), (0xab_cdef & 0x3fff) << 18 | 3 << 16 | 0x4321);
    }

    #[test]
    fn link_local_targets_have_a_scope() {
        assert_eq!(socket_address("fe80::1".parse().unwrap(), 0, 7).to_string(), "[fe80::1%7]:0");
        assert_eq!(socket_address("2001:db8::1".parse().unwrap(), 80, 7).to_string(), "[2001:db8::1]:80");
        assert_eq!(key(7, "2001:db8::1".parse().unwrap()).0, 0);
        assert_eq!(key(7, "192.0.2.1".parse().unwrap()).0, 7);
    }
}
