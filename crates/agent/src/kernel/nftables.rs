//! The boundary as a table of nf_tables, over netlink: no program `nft` is needed. What it holds:
//!
//! ```text
//! table ip6 segue {
//!     set closed_a { type ipv6_addr; flags interval; }    # SID blocks, infrastructure
//!     set open_a { type iface_index; }                    # ports
//!     set inside_a { type iface_index; }                  # core ports
//!     set signed_a { type ether_addr; }                   # what the data plane has judged
//!     chain prerouting {
//!         type filter hook prerouting priority -450; policy accept;
//!         meta iifkind "vrf" accept
//!         ip6 daddr @closed_a iif != @open_a counter drop
//!         ip6 daddr @closed_a iif != @inside_a ether saddr != @signed_a counter drop
//!         ip6 daddr @closed_a meta secpath exists counter drop
//!         iif != @inside_a meta l4proto icmpv6 icmpv6 type < 128 @th,256,128 @closed_a counter drop
//!     }
//! }
//! ```
//!
//! The rules change in one transaction and the chain stays: a packet reads all rules of a chain at one moment, so it meets the old
//! ones or the new ones. With a new chain in place of the old, it could read the new one before the change and the old one after
//! it, and find both empty; a set whose elements change could be read before the change by one rule and after it by the next.
//! So new rules come with new sets, whose names end in `a` and `b` by turns. They are complete in a transaction before that of
//! the rules: a kernel publishes what it looks up intervals in (since 6.18 an array of them, for ranges of several fields ever
//! since) only behind the switch from the old rules to the new ones, so that rules which came together with `closed` met it empty for
//! some microseconds, and let through what came then.
//!
//! What comes in by a slave of a VRF passes here twice, first with its own interface, then with the VRF's: the first time
//! decides. What the data plane itself passes up to a SID by an access or service port has a link-layer source that nobody
//! else knows (`sign()` in bpf/lib/packet/outcome.h), drawn when the table is made: anything else has slipped past it, in the moment in
//! which a link goes down and its program is off, or before it is on. What IPsec took out of a tunnel comes in anew by the interface of the outer packet, and is from outside. The last
//! rule is that of bpf/lib/packet/flow.h: errors about packets of the domain come from inside the domain.
//!
//! Where the kernel knows it (6.9 and newer), the table is owned by the agent's socket: nobody else can change it, and `nft
//! flush ruleset` leaves it alone; without an agent it stays, and belongs to nobody until the next one takes it over.

use std::{collections::BTreeSet, io};

use netlink_sys::{Socket, SocketAddr};
use nix::libc::{EAFNOSUPPORT, EINVAL, ENOENT, EOPNOTSUPP, EPERM, EPROTONOSUPPORT, MSG_DONTWAIT};

use super::{KernelError, boundary::Boundary};

/// Name of the table, of family `ip6`.
pub const TABLE: &str = "segue";
/// In the agent's environment: tables of kernels that know no owner.
const WITHOUT_OWNER: &str = "SEGUE_WITHOUT_TABLE_OWNER";
/// `NETLINK_NETFILTER`.
const NETLINK_NETFILTER: isize = 12;
/// `NFNLGRP_NFTABLES`.
const GROUP: u32 = 7;
/// `NFNL_SUBSYS_NFTABLES`, in the high octet of a message's type.
const SUBSYSTEM: u16 = 10;
/// `NFPROTO_IPV6`.
const FAMILY: u8 = 10;
/// In front of all of netfilter's own hooks, conntrack's defragmentation (-400) included.
const PRIORITY: i32 = -450;
/// Most elements in one message, whose attribute has 16 bits of length.
const ELEMENTS: usize = 512;

/// Octets of a datagram of answers, at most: each quotes what it answers.
const ANSWERS: usize = 65_536;

/// Message types and attributes of `linux/netfilter/nf_tables.h`.
mod abi {
    pub const BATCH_BEGIN: u16 = 16;
    pub const BATCH_END: u16 = 17;
    pub const NEWTABLE: u16 = 10 << 8;
    pub const DELTABLE: u16 = 10 << 8 | 2;
    pub const NEWCHAIN: u16 = 10 << 8 | 3;
    pub const NEWRULE: u16 = 10 << 8 | 6;
    pub const GETRULE: u16 = 10 << 8 | 7;
    pub const DELRULE: u16 = 10 << 8 | 8;
    pub const NEWSET: u16 = 10 << 8 | 9;
    pub const DELSET: u16 = 10 << 8 | 11;
    pub const NEWSETELEM: u16 = 10 << 8 | 12;
    pub const GETSETELEM: u16 = 10 << 8 | 13;
    /// Of every kind of object: the name of its table.
    pub const IN_TABLE: u16 = 1;
    pub const LIST_ELEM: u16 = 1;
    pub const VALUE: u16 = 1;
    pub const F_OWNER: u32 = 2;
    pub const F_PERSIST: u32 = 4;
    pub const SET_INTERVAL: u32 = 4;
    pub const ELEM_INTERVAL_END: u32 = 1;
    pub const META_IIF: u32 = 4;
    pub const META_L4PROTO: u32 = 16;
    pub const META_SECPATH: u32 = 25;
    pub const META_IIFKIND: u32 = 26;
    pub const NF_DROP: u32 = 0;
    pub const NF_ACCEPT: u32 = 1;
}

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_APPEND: u16 = 0x800;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Octets of a message's header.
const HEADER: usize = 16;
/// The same with that of nfnetlink.
const HEADERS: usize = 20;

/// Attributes, one behind the other.
#[derive(Debug, Clone, Default)]
struct Attributes(Vec<u8>);

impl Attributes {
    fn raw(mut self, kind: u16, value: &[u8]) -> Self {
        self.0.extend_from_slice(&((value.len() + 4) as u16).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn text(self, kind: u16, value: &str) -> Self {
        self.raw(kind, &[value.as_bytes(), &[0]].concat())
    }

    fn number(self, kind: u16, value: u32) -> Self {
        self.raw(kind, &value.to_be_bytes())
    }

    fn nested(self, kind: u16, value: &Self) -> Self {
        const NESTED: u16 = 1 << 15;
        self.raw(kind | NESTED, &value.0)
    }

    /// One more expression of a rule.
    fn expression(self, name: &str, data: &Self) -> Self {
        self.nested(abi::LIST_ELEM, &Self::default().text(1, name).nested(2, data))
    }

    fn meta(self, key: u32) -> Self {
        self.expression("meta", &Self::default().number(1, 1).number(2, key))
    }

    /// `base`: 0 link-layer header, 1 network header, 2 transport header.
    fn payload(self, base: u32, offset: u32, length: u32) -> Self {
        self.expression("payload", &Self::default().number(1, 1).number(2, base).number(3, offset).number(4, length))
    }

    /// `operation`: 0 equal, 1 not equal, 2 less.
    fn compare(self, operation: u32, value: &[u8]) -> Self {
        let data = Self::default().raw(abi::VALUE, value);
        self.expression("cmp", &Self::default().number(1, 1).number(2, operation).nested(3, &data))
    }

    fn lookup(self, set: &str, inverse: bool) -> Self {
        self.expression("lookup", &Self::default().text(1, set).number(2, 1).number(5, inverse.into()))
    }

    fn count(self) -> Self {
        self.expression("counter", &Self::default().raw(1, &[0; 8]).raw(2, &[0; 8]))
    }

    fn verdict(self, code: u32) -> Self {
        let verdict = Self::default().nested(2, &Self::default().number(1, code));
        self.expression("immediate", &Self::default().number(1, 0).nested(2, &verdict))
    }
}

/// Messages of one transaction.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    sequence: u32,
    /// Where the last message begins.
    last: usize,
}

impl Batch {
    fn message(&mut self, kind: u16, flags: u16, attributes: &Attributes) {
        let control = kind == abi::BATCH_BEGIN || kind == abi::BATCH_END;
        let (family, resource) = if control { (0, SUBSYSTEM) } else { (FAMILY, 0) };
        self.last = self.bytes.len();
        self.bytes.extend_from_slice(&((HEADERS + attributes.0.len()) as u32).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        self.bytes.extend_from_slice(&self.sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&[family, 0]);
        self.bytes.extend_from_slice(&resource.to_be_bytes());
        self.bytes.extend_from_slice(&attributes.0);
        self.sequence += 1;
    }

    fn set(&mut self, name: &str, id: u32, key: (u32, u32), flags: u32, elements: &[Attributes]) {
        let head = Attributes::default().text(1, TABLE).text(2, name);
        let set = head.number(3, flags).number(4, key.0).number(5, key.1).number(10, id);
        self.message(abi::NEWSET, NLM_F_CREATE, &set);
        for part in elements.chunks(ELEMENTS) {
            let list = part.iter().fold(Attributes::default(), |list, element| list.nested(abi::LIST_ELEM, element));
            let attributes = Attributes::default().text(1, TABLE).text(2, name).number(4, id).nested(3, &list);
            self.message(abi::NEWSETELEM, NLM_F_CREATE, &attributes);
        }
    }

    /// All rules, with the sets of this turn.
    fn rules(&mut self, turn: usize) {
        let start = Attributes::default;
        let [closed_set, open, inside, signed] = set_names(turn);
        let mut vrf = [0; 16];
        vrf[..3].copy_from_slice(b"vrf");
        self.rule(&start().meta(abi::META_IIFKIND).compare(0, &vrf).verdict(abi::NF_ACCEPT));
        let closed = start().payload(1, 24, 16).lookup(&closed_set, false);
        let refused = |rule: Attributes| rule.count().verdict(abi::NF_DROP);
        self.rule(&refused(closed.clone().meta(abi::META_IIF).lookup(&open, true)));
        let unsigned = closed.clone().meta(abi::META_IIF).lookup(&inside, true);
        self.rule(&refused(unsigned.payload(0, 6, 6).lookup(&signed, true)));
        self.rule(&refused(closed.meta(abi::META_SECPATH).compare(0, &[1])));
        let error = start().meta(abi::META_IIF).lookup(&inside, true);
        let error = error.meta(abi::META_L4PROTO).compare(0, &[58]).payload(2, 0, 1).compare(2, &[128]);
        let error = error.payload(2, 8 + 24, 16).lookup(&closed_set, false);
        self.rule(&refused(error));
    }

    fn rule(&mut self, expressions: &Attributes) {
        let rule = Attributes::default().text(1, TABLE).text(2, "prerouting").nested(4, expressions);
        self.message(abi::NEWRULE, NLM_F_CREATE | NLM_F_APPEND, &rule);
    }
}

fn element(key: &[u8], flags: u32) -> Attributes {
    let element = Attributes::default().nested(1, &Attributes::default().raw(abi::VALUE, key));
    if flags == 0 { element } else { element.number(3, flags) }
}

fn interfaces(numbers: &BTreeSet<u32>) -> Vec<Attributes> {
    numbers.iter().map(|number| element(&number.to_ne_bytes(), 0)).collect()
}

fn signatures(boundary: &Boundary) -> Vec<Attributes> {
    Some(boundary.signature).filter(|signature| *signature != [0; 6]).iter().map(|octets| element(octets, 0)).collect()
}

/// Intervals as nf_tables has them: where one begins, and where what lies behind it begins.
fn intervals(boundary: &Boundary) -> Vec<Attributes> {
    let ranges = boundary.ranges();
    let mut elements = Vec::new();
    if ranges.first().is_some_and(|(first, _)| *first > 0) {
        elements.push(element(&[0; 16], abi::ELEM_INTERVAL_END));
    }
    for (first, last) in ranges {
        elements.push(element(&first.to_be_bytes(), 0));
        if let Some(next) = last.checked_add(1) {
            elements.push(element(&next.to_be_bytes(), abi::ELEM_INTERVAL_END));
        }
    }
    elements
}

/// Endings of the sets' names.
const TURNS: [&str; 2] = ["a", "b"];

/// The names of the sets of one turn, in the order of [`keys`].
fn set_names(turn: usize) -> [String; 4] {
    ["closed", "open", "inside", "signed"].map(|name| format!("{name}_{}", TURNS[turn % TURNS.len()]))
}

/// Type and size of a set's key: `ipv6_addr`, `iface_index`, `ether_addr`.
const fn keys(set: usize) -> (u32, u32) {
    match set {
        0 => (8, 16),
        3 => (9, 6),
        _ => (20, 4),
    }
}

fn set_flags(set: usize) -> u32 {
    if set == 0 { abi::SET_INTERVAL } else { 0 }
}

impl Batch {
    fn begin() -> Self {
        let mut batch = Self::default();
        batch.message(abi::BATCH_BEGIN, 0, &Attributes::default());
        batch
    }

    /// What there is so far is the transaction; its last message is acknowledged when all of it holds.
    fn end(mut self) -> Self {
        self.bytes[self.last + 6] |= NLM_F_ACK as u8;
        self.message(abi::BATCH_END, 0, &Attributes::default());
        self
    }

    /// The table, which may be there.
    fn table(&mut self, flags: u32) {
        self.message(abi::NEWTABLE, NLM_F_CREATE, &Attributes::default().text(1, TABLE).number(2, flags));
    }

    /// No table. What is not there cannot be removed, so it is made first.
    fn no_table(&mut self, flags: u32) {
        self.table(flags);
        self.message(abi::DELTABLE, 0, &Attributes::default().text(1, TABLE));
    }

    /// No sets of this turn.
    fn no_sets(&mut self, turn: usize) {
        for (set, name) in set_names(turn).iter().enumerate() {
            self.set(name, set as u32 + 1, keys(set), set_flags(set), &[]);
            self.message(abi::DELSET, 0, &Attributes::default().text(1, TABLE).text(2, name));
        }
    }

    fn sets(&mut self, boundary: &Boundary, turn: usize) {
        let elements =
            [intervals(boundary), interfaces(&boundary.open), interfaces(&boundary.inside), signatures(boundary)];
        for ((set, name), elements) in set_names(turn).iter().enumerate().zip(elements) {
            self.set(name, set as u32 + 5, keys(set), set_flags(set), &elements);
        }
    }

    /// The chain, without rules.
    fn chain(&mut self) {
        let hook = Attributes::default().number(1, 0).raw(2, &PRIORITY.to_be_bytes());
        let chain = Attributes::default().text(1, TABLE).text(3, "prerouting").nested(4, &hook);
        self.message(abi::NEWCHAIN, NLM_F_CREATE, &chain.number(5, abi::NF_ACCEPT).text(7, "filter"));
        self.message(abi::DELRULE, 0, &Attributes::default().text(1, TABLE).text(2, "prerouting"));
    }
}

/// The table of the network namespace in which it was opened.
pub struct Table {
    socket: Socket,
    /// Flags that this kernel takes.
    flags: u32,
}

impl Table {
    /// Opens the socket that owns the table.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        let flags = if std::env::var_os(WITHOUT_OWNER).is_some() { 0 } else { abi::F_OWNER | abi::F_PERSIST };
        Ok(Self { socket, flags })
    }

    /// The number by which notifications name this socket as their cause.
    pub fn port(&mut self) -> io::Result<u32> {
        let mut address = SocketAddr::new(0, 0);
        self.socket.get_address(&mut address)?;
        Ok(address.port_number())
    }

    /// After this, `boundary` holds, whatever is there now; without one the table goes. No packet meets a moment in which neither
    /// the one before nor this one holds.
    pub fn set(&mut self, boundary: Option<&Boundary>) -> io::Result<()> {
        let Some(boundary) = boundary else {
            return self.with_flags(|table| {
                let mut batch = Batch::begin();
                batch.no_table(table.flags);
                table.exchange(&batch.end())
            });
        };
        match self.with_flags(|table| table.put(boundary)) {
            Err(error) if error.raw_os_error() != Some(EPERM) => {
                // Somebody has made a table of another shape of it.
                tracing::debug!(%error, "table ip6 {TABLE} is made anew");
                let mut batch = Batch::begin();
                batch.no_table(self.flags);
                batch.table(self.flags);
                batch.sets(boundary, 0);
                batch.chain();
                batch.rules(0);
                self.exchange(&batch.end())
            }
            other => other,
        }
    }

    /// What the kernel refuses is tried again without an owner: it knows no owners, or not that they may go without their
    /// tables; or the table is one of such an agent.
    fn with_flags(&mut self, change: impl Fn(&mut Self) -> io::Result<()>) -> io::Result<()> {
        match change(self) {
            Err(error)
                if self.flags != 0 && matches!(error.raw_os_error(), Some(EOPNOTSUPP | EINVAL | EAFNOSUPPORT)) =>
            {
                self.flags = 0;
                change(self)
            }
            other => other,
        }
    }

    /// Changes the table in its place: sets first, then what uses them.
    fn put(&mut self, boundary: &Boundary) -> io::Result<()> {
        let used = self.used()?;
        let next = used.map_or(0, |turn| (turn + 1) % TURNS.len());
        let mut batch = Batch::begin();
        batch.table(self.flags);
        // An agent that was killed between the two transactions has left some.
        batch.no_sets(next);
        batch.sets(boundary, next);
        self.exchange(&batch.end())?;
        let mut batch = Batch::begin();
        batch.table(self.flags);
        batch.chain();
        batch.rules(next);
        batch.no_sets(next + 1);
        self.exchange(&batch.end())
    }

    fn exchange(&mut self, batch: &Batch) -> io::Result<()> {
        self.socket.send(&batch.bytes, 0)?;
        // Each message that fails is answered, and all answers are there when the sending is done: the first counts, and none
        // may be left for the next exchange.
        let mut result = None;
        let (mut bytes, _) = self.socket.recv_from_full()?;
        loop {
            for message in messages(&bytes).filter(|message| message.kind == NLMSG_ERROR) {
                let answer = message.error();
                match &result {
                    Some(Err(_)) => {}
                    _ => result = Some(answer),
                }
            }
            let mut more = Vec::with_capacity(ANSWERS);
            match self.socket.recv_from(&mut more, MSG_DONTWAIT) {
                Ok(_) => bytes = more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        result.unwrap_or_else(|| Err(io::Error::other("the kernel did not answer")))
    }

    /// What is there, left by an agent before; `closed` is not read.
    pub fn read(&mut self) -> io::Result<Option<Boundary>> {
        let Some(turn) = self.used()? else { return Ok(None) };
        let [_, open, inside, signed] = set_names(turn);
        let (open, inside) = (self.elements(&open)?, self.elements(&inside)?);
        let signature = self.elements(&signed)?.pop_first().unwrap_or_default();
        Ok(Some(Boundary { open: numbers(open), inside: numbers(inside), signature, ..Boundary::default() }))
    }

    /// The turn of the sets that the rules use, if there are such rules.
    fn used(&mut self) -> io::Result<Option<usize>> {
        let rules = Attributes::default().text(1, TABLE).text(2, "prerouting");
        let mut found = None;
        self.dump(abi::GETRULE, &rules, |message| {
            if message.kind == abi::NEWRULE {
                let uses = |turn: &usize| {
                    let name = [set_names(*turn)[1].as_bytes(), &[0]].concat();
                    message.bytes.windows(name.len()).any(|window| window == name)
                };
                found = found.or_else(|| (0..TURNS.len()).find(uses));
            }
        })?;
        Ok(found)
    }

    fn elements<const LENGTH: usize>(&mut self, set: &str) -> io::Result<BTreeSet<[u8; LENGTH]>> {
        let mut found = BTreeSet::new();
        self.dump(abi::GETSETELEM, &Attributes::default().text(1, TABLE).text(2, set), |message| {
            if message.kind == abi::NEWSETELEM {
                found.extend(keys_in(message.attributes()));
            }
        })?;
        Ok(found)
    }

    /// Asks for all that there is of something; that there is nothing is no error.
    fn dump(&mut self, kind: u16, what: &Attributes, mut each: impl FnMut(&Message<'_>)) -> io::Result<()> {
        let mut batch = Batch::default();
        batch.message(kind, NLM_F_DUMP, what);
        self.socket.send(&batch.bytes, 0)?;
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            for message in messages(&bytes) {
                match message.kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => match message.error() {
                        Err(error) if error.raw_os_error() == Some(ENOENT) => return Ok(()),
                        other => return other,
                    },
                    _ => each(&message),
                }
            }
        }
    }
}

/// What to tell the operator.
pub fn refused(error: &io::Error) -> KernelError {
    let errno = error.raw_os_error();
    let remedy = match errno {
        Some(EPERM) => {
            "run segued with CAP_NET_ADMIN; if another segued runs in this network namespace, stop it: the table is its"
        }
        Some(EAFNOSUPPORT | EPROTONOSUPPORT | EOPNOTSUPP | ENOENT) => {
            "use a kernel with nf_tables for IPv6 (CONFIG_NF_TABLES_IPV6; `modprobe nf_tables`): without it SIDs would be open \
             to every interface that is no port"
        }
        _ => "see `nft list table ip6 segue` and the kernel's log, then apply again",
    };
    KernelError {
        action: format!("table ip6 {TABLE} of nf_tables"),
        errno,
        cause: error.to_string(),
        remedy: remedy.to_owned(),
    }
}

/// Notifications about the table.
pub struct Watch {
    socket: Socket,
}

impl Watch {
    /// Subscribes in the calling thread's network namespace.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        socket.add_membership(GROUP)?;
        Ok(Self { socket })
    }

    /// Returns when somebody else than the socket `own` has changed the table or removed it.
    pub fn wait(&mut self, own: u32) -> io::Result<()> {
        loop {
            let bytes = match self.socket.recv_from_full() {
                Ok((bytes, _)) => bytes,
                // More came than fits: it may have been that.
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => return Ok(()),
                Err(error) => return Err(error),
            };
            let ours = |message: &Message<'_>| {
                message.kind >> 8 == SUBSYSTEM
                    && message.port != own
                    && attributes(message.attributes())
                        .any(|(kind, value)| kind == abi::IN_TABLE && value == [TABLE.as_bytes(), &[0]].concat())
            };
            if messages(&bytes).any(|message| ours(&message)) {
                return Ok(());
            }
        }
    }
}

/// One message of a datagram.
struct Message<'a> {
    kind: u16,
    /// Of the socket that caused it.
    port: u32,
    bytes: &'a [u8],
}

impl Message<'_> {
    fn attributes(&self) -> &[u8] {
        self.bytes.get(HEADERS..).unwrap_or_default()
    }

    /// Of NLMSG_ERROR.
    fn error(&self) -> io::Result<()> {
        match self.bytes.get(HEADER..HEADER + 4).and_then(|word| word.try_into().ok()).map(i32::from_ne_bytes) {
            Some(0) => Ok(()),
            Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
            None => Err(io::Error::other("the kernel's answer is too short")),
        }
    }
}

fn messages(bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let head = rest.get(..HEADER)?;
        let length = u32::from_ne_bytes(head[..4].try_into().ok()?) as usize;
        let bytes = rest.get(..length).filter(|bytes| bytes.len() >= HEADER)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        let kind = u16::from_ne_bytes([head[4], head[5]]);
        Some(Message { kind, port: u32::from_ne_bytes(head[12..16].try_into().ok()?), bytes })
    })
}

fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const KIND: u16 = (1 << 14) - 1;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let head = rest.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([head[2], head[3]]) & KIND, value))
    })
}

fn numbers(keys: BTreeSet<[u8; 4]>) -> BTreeSet<u32> {
    keys.into_iter().map(u32::from_ne_bytes).collect()
}

/// The keys in a message with elements.
fn keys_in<const LENGTH: usize>(message: &[u8]) -> Vec<[u8; LENGTH]> {
    let inner = |bytes, wanted| attributes(bytes).filter(move |(kind, _)| *kind == wanted).map(|(_, value)| value);
    inner(message, 3)
        .flat_map(|list| inner(list, abi::LIST_ELEM))
        .flat_map(|element| inner(element, 1))
        .flat_map(|key| inner(key, abi::VALUE))
        .filter_map(|value| value.try_into().ok())
        .collect()
}
