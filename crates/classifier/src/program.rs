//! The rule model: chains of rules as iptables has them, whatever language they were written in.
//!
//! What a program means is iptables' semantics: a packet enters a base chain; the first rule all of whose conditions hold is hit and
//! counted; [`Action`] says what follows. [`crate::interpreter`] is the definition.

use thiserror::Error;

use crate::field::Field;

/// Chains that a packet may be in at once: a base chain and the calls of [`Action::Jump`] below it.
pub const DEPTH_MAX: usize = 8;

/// Chains that jumps and gotos may lead through one after the other.
const PATH_MAX: usize = 64;

/// A whole rule set. Chains are named by their index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    /// All chains, base chains and user chains, in any order.
    pub chains: Vec<Chain>,
    /// Sets that [`Extension::Set`] names by index.
    pub sets: Vec<Set>,
}

/// A list of rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// As the operator calls it: `FORWARD`, `web`.
    pub name: String,
    /// In order: the first that matches is hit.
    pub rules: Vec<Rule>,
    /// Base chains: what becomes of a packet that reaches the end. None: a user chain, whose end returns to the caller.
    pub policy: Option<Verdict>,
}

/// The end of a packet's way through the rules without more ado.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The packet goes on.
    Accept,
    /// The packet is dropped in silence.
    Drop,
}

/// Matches when all conditions and then all extensions hold; with none of either it matches every packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What the packet must be. Functions of the packet alone: they may be evaluated in any order.
    pub conditions: Vec<Condition>,
    /// Conditions with a state of their own or a table behind them, evaluated in this order, only if all `conditions` hold, and only
    /// as long as they hold (a limit loses a token only for packets that get to it).
    pub extensions: Vec<Extension>,
    /// What happens to packets that match.
    pub action: Action,
    /// Line in the file that the rule came from, from 1.
    pub line: Option<u32>,
    /// The rule as it was written, for displays.
    pub text: String,
}

/// One test of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Which field.
    pub field: Field,
    /// The test must fail instead. A packet without the field matches in neither case (see [`Field`]).
    pub negated: bool,
    /// The test.
    pub test: Test,
}

/// A test of a field's value. Values beyond the field's width are an error ([`Program::check`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// `field & mask == value`: prefixes, marks, TCP flags (mask and comp), a single value (mask [`Field::max`]). A value with bits
    /// outside the mask never matches.
    Masked {
        /// What the bits under the mask must be.
        value: u128,
        /// Which bits are compared.
        mask: u128,
    },
    /// The value lies in one of these ranges, both ends included. In any order; they may overlap. Empty: never. A range whose
    /// first is greater than its last holds nothing.
    Ranges(Vec<(u128, u128)>),
    /// `field & mask != 0`: connection states, TCP options.
    AnyBit(u128),
}

impl Test {
    /// Exactly this value of a field.
    pub fn equal(field: Field, value: u128) -> Self {
        Self::Masked { value, mask: field.max() }
    }

    /// A prefix of `length` bits of a field.
    ///
    /// A length beyond the field's width counts as the width.
    pub fn prefix(field: Field, value: u128, length: u32) -> Self {
        let free = field.width().saturating_sub(length);
        let mask = if free >= 128 { 0 } else { field.max() >> free << free };
        Self::Masked { value: value & mask, mask }
    }

    /// One range, both ends included.
    pub fn range(first: u128, last: u128) -> Self {
        Self::Ranges(vec![(first, last)])
    }

    /// Whether a value passes.
    pub fn holds(&self, value: u128) -> bool {
        match self {
            Self::Masked { value: wanted, mask } => value & mask == *wanted,
            Self::Ranges(ranges) => ranges.iter().any(|(first, last)| (*first..=*last).contains(&value)),
            Self::AnyBit(mask) => value & mask != 0,
        }
    }
}

/// A condition that is more than a function of the packet's fields. The lookup structure ignores it; whoever executes the program
/// evaluates it after the rule's other conditions, and goes on behind the rule if it fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extension {
    /// `-m limit`: a token bucket of the rule.
    Limit(Limit),
    /// `-m hashlimit`: a token bucket for each value of some fields.
    HashLimit(HashLimit),
    /// `-m set`: the packet is in a set.
    Set {
        /// Index in [`Program::sets`].
        set: usize,
        /// Which side of the packet each dimension of the set is compared with; at most as many as the set has.
        sides: Vec<Side>,
        /// The packet must not be in the set.
        negated: bool,
    },
    /// `-m recent`: the packet's address is in a list that rules fill.
    Recent(Recent),
}

/// `-m recent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recent {
    /// `--name`: rules with one name share the list.
    pub name: String,
    /// What is done.
    pub action: RecentAction,
    /// The rule holds where the test does not.
    pub negated: bool,
    /// `--rsource` or `--rdest`.
    pub side: Side,
    /// `--mask`, of the packet's family; IPv4 in the lower 32 bits.
    pub mask: u128,
    /// 4 or 6.
    pub family: u8,
    /// `--seconds`: only packets that were noted so lately count; 0: all.
    pub seconds: u32,
    /// `--hitcount`: so many packets must count; 0: one. At most [`Recent::HITS_MAX`].
    pub hits: u32,
}

impl Recent {
    /// Packets of one address that are remembered: `SEGUE_RECENT_STAMPS`.
    pub const HITS_MAX: u32 = 32;
}

/// What `-m recent` does with an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecentAction {
    /// `--set`: notes the packet; holds for every address.
    Set,
    /// `--rcheck`: holds for an address that is in the list.
    Check,
    /// `--update`: the same, and notes the packet if the rule holds.
    Update,
    /// `--remove`: takes an address out; holds for one that was in.
    Remove,
}

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Nanoseconds in which one token comes: `3/minute` is 20 000 000 000. Not 0.
    pub interval: u64,
    /// Tokens that the bucket holds; it is full at first. Not 0.
    pub burst: u32,
}

/// Token buckets by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashLimit {
    /// `--hashlimit-name`: rules with one name share the buckets.
    pub name: String,
    /// Rate and burst of each bucket.
    pub limit: Limit,
    /// `--hashlimit-above`: the rule matches packets that find no token, instead of those that find one.
    pub above: bool,
    /// `--hashlimit-mode`: what a bucket is for. Empty: one bucket.
    pub mode: Vec<HashLimitKey>,
    /// `--hashlimit-srcmask`, in bits: 32 or 128 for whole addresses.
    pub source_prefix: u8,
    /// `--hashlimit-dstmask`.
    pub destination_prefix: u8,
    /// `--hashlimit-htable-expire`: milliseconds after which an idle bucket is forgotten.
    pub expire: u32,
    /// `--hashlimit-htable-max`: most buckets; 0: the data plane's own limit.
    pub entries_max: u32,
}

/// Fields that tell the buckets of a [`HashLimit`] apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashLimitKey {
    /// Source address.
    Source,
    /// Destination address.
    Destination,
    /// Source port.
    SourcePort,
    /// Destination port.
    DestinationPort,
}

/// Side of the packet that a dimension of a set is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Source address, source port, source MAC address or ingress interface.
    Source,
    /// Destination address, destination port or egress interface.
    Destination,
}

/// A set, as `ipset save` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// 4 or 6: the family of its addresses; 0 if it has none.
    pub family: u8,
    /// What each dimension is.
    pub dimensions: Vec<Dimension>,
    /// Its members. The most specific one that fits decides.
    pub entries: Vec<SetEntry>,
}

/// What a dimension of a set holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    /// An address.
    Address,
    /// A prefix.
    Network,
    /// A port with its protocol.
    Port,
    /// A port, whatever the protocol (bitmap:port).
    PortAlone,
    /// A MAC address.
    Mac,
    /// A mark.
    Mark,
    /// An interface, as index.
    Interface,
}

/// One member of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetEntry {
    /// One value for each dimension.
    pub values: Vec<SetValue>,
    /// `nomatch`: packets that this entry fits are not in the set.
    pub no_match: bool,
}

/// The value of one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetValue {
    /// A prefix (whole addresses: of 32 or 128 bits); the address as a number, IPv4 in the lower 32 bits.
    Prefix {
        /// The address; bits behind the prefix are 0.
        address: u128,
        /// Length in bits.
        length: u8,
    },
    /// Inclusive range of ports, or of ICMP type and code as `type << 8 | code`.
    Ports {
        /// IANA protocol number; None: any (bitmap:port).
        protocol: Option<u8>,
        /// The first.
        first: u16,
        /// The last.
        last: u16,
    },
    /// A number: MAC address (48 bit), mark, interface index.
    Number(u64),
}

/// What happens to a packet that matches a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The packet goes on; no more rules.
    Accept,
    /// The packet is dropped; no more rules.
    Drop,
    /// The packet is dropped and its sender told; no more rules.
    Reject(Reject),
    /// Written to the log; the next rule follows.
    Log(Log),
    /// Copied to a listener; the next rule follows.
    Nflog(Nflog),
    /// `mark = mark & !mask ^ value`; the next rule follows. `--set-mark v`: value v, mask all ones; `--or-mark v`: value v, mask v.
    Mark {
        /// What is xored in.
        value: u32,
        /// Which bits are cleared first.
        mask: u32,
    },
    /// The rules of that chain follow; at its end, or at [`Action::Return`], the rule behind this one.
    Jump(usize),
    /// The rules of that chain follow; its end is the end of this chain.
    Goto(usize),
    /// The end of this chain: its policy, or back to the caller.
    Return,
    /// An operation on the segment list (SERA's SEG6 target); no more rules.
    Seg6(Seg6),
    /// The same on the stack behind a label of this node; no more rules.
    Mpls(Mpls),
    /// Headend: the packet is steered into the SR policy of this index; no more rules.
    Policy(u32),
    /// Only counted; the next rule follows.
    Continue,
}

impl Action {
    /// Whether no rule behind this one, in this chain or another, can be hit by the same packet.
    pub const fn terminates(&self) -> bool {
        matches!(self, Self::Accept | Self::Drop | Self::Reject(_) | Self::Seg6(_) | Self::Mpls(_) | Self::Policy(_))
    }

    /// Whether the next rule of the same chain is certain not to be tried for a packet that this one is hit by.
    pub const fn leaves_chain(&self) -> bool {
        self.terminates() || matches!(self, Self::Return | Self::Goto(_))
    }

    /// The chain that it leads to.
    pub const fn target(&self) -> Option<usize> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(*chain),
            _ => None,
        }
    }
}

/// `--reject-with`, of both families; the names are iptables'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reject {
    /// `icmp-net-unreachable`: type 3 code 0.
    IcmpNetUnreachable,
    /// `icmp-host-unreachable`: 3, 1.
    IcmpHostUnreachable,
    /// `icmp-proto-unreachable`: 3, 2.
    IcmpProtoUnreachable,
    /// `icmp-port-unreachable`: 3, 3. The default of iptables.
    IcmpPortUnreachable,
    /// `icmp-net-prohibited`: 3, 9.
    IcmpNetProhibited,
    /// `icmp-host-prohibited`: 3, 10.
    IcmpHostProhibited,
    /// `icmp-admin-prohibited`: 3, 13.
    IcmpAdminProhibited,
    /// `icmp6-no-route`: type 1 code 0.
    Icmp6NoRoute,
    /// `icmp6-adm-prohibited`: 1, 1.
    Icmp6AdmProhibited,
    /// `icmp6-addr-unreachable`: 1, 3.
    Icmp6AddrUnreachable,
    /// `icmp6-port-unreachable`: 1, 4. The default of ip6tables.
    Icmp6PortUnreachable,
    /// `icmp6-policy-fail`: 1, 5.
    Icmp6PolicyFail,
    /// `icmp6-reject-route`: 1, 6.
    Icmp6RejectRoute,
    /// `tcp-reset`: a TCP segment with RST. Only in rules for TCP.
    TcpReset,
}

/// `-j LOG`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    /// `--log-prefix`.
    pub prefix: String,
    /// `--log-level`: 0 (emergency) to 7 (debug); iptables' default is 4.
    pub level: u8,
    /// `--log-tcp-sequence`.
    pub tcp_sequence: bool,
    /// `--log-tcp-options`.
    pub tcp_options: bool,
    /// `--log-ip-options`.
    pub ip_options: bool,
    /// `--log-uid`. The data plane knows no user; kept so that a listing shows it.
    pub uid: bool,
    /// `--log-macdecode`.
    pub mac_decode: bool,
}

/// `-j NFLOG`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nflog {
    /// `--nflog-group`.
    pub group: u16,
    /// `--nflog-prefix`.
    pub prefix: String,
    /// `--nflog-size`: octets copied of each packet; None: the whole packet.
    pub size: Option<u32>,
    /// `--nflog-threshold`: packets queued before they are handed over; 0: the listener's default.
    pub threshold: u16,
}

/// `-j SEG6 --seg6-action`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seg6 {
    /// The next segment becomes the active one.
    GoNext,
    /// The segment behind the next one becomes the active one.
    SkipNext,
    /// The last segment becomes the active one.
    GoLast,
    /// The action is named by the ARG bits of the active SID.
    EvalArgs,
}

/// `-j MPLS --mpls-action`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mpls {
    /// The packet goes on by the label behind the firewall's.
    GoNext,
    /// By the one behind so many more.
    SkipNext(u8),
    /// By so many last ones.
    GoLast(u8),
}

/// Labels that [`Mpls`] skips or leaves at most.
pub const MPLS_COUNT_MAX: u8 = 31;

/// Why a program cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{reason}", self.place())]
pub struct ProgramError {
    /// Name of the chain.
    pub chain: String,
    /// Index of the rule in the chain.
    pub rule: Option<usize>,
    /// Line that the rule came from.
    pub line: Option<u32>,
    /// What is wrong, and what to do.
    pub reason: Reason,
}

impl ProgramError {
    fn place(&self) -> String {
        match (self.line, self.rule) {
            (Some(line), _) => format!("line {line}: chain {}: ", self.chain),
            (None, Some(rule)) => format!("chain {}, rule {}: ", self.chain, rule + 1),
            (None, None) => format!("chain {}: ", self.chain),
        }
    }
}

/// What is wrong with a program.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Reason {
    /// Jump or goto to an index without chain.
    #[error("leads to chain {0}, which there is not")]
    NoSuchChain(usize),
    /// A set that is not there.
    #[error("tests set {0}, which there is not")]
    NoSuchSet(usize),
    /// More sides than the set has dimensions, or none.
    #[error("tests set {set} with {sides} dimensions, but it has {dimensions}")]
    Sides {
        /// Its name.
        set: String,
        /// Sides that the rule names.
        sides: usize,
        /// Dimensions of the set.
        dimensions: usize,
    },
    /// Chains that lead to themselves.
    #[error("loop: {0}; a packet could stay in it for ever, remove one of these jumps")]
    Loop(String),
    /// Deeper than [`DEPTH_MAX`].
    #[error("{0}: more than {DEPTH_MAX} chains deep; put some of them into one chain")]
    Depth(String),
    /// A jump into a base chain.
    #[error("leads to {0}, which has a policy; only user chains can be jumped to")]
    BaseChain(String),
    /// A value beyond the field's width.
    #[error("{0:?} has {width} bits, the value has more", width = .0.width())]
    Width(Field),
    /// No label, or more than [`MPLS_COUNT_MAX`].
    #[error("MPLS is about 1 to {MPLS_COUNT_MAX} labels")]
    Labels,
    /// A limit of nothing.
    #[error("a limit needs a rate and a burst that are not 0")]
    Limit,
}

impl Program {
    /// Some rule looks at connections, so that they are tracked, and fragments are judged as their datagram.
    pub fn looks_at_connections(&self) -> bool {
        let mut conditions = self.chains.iter().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.conditions);
        conditions.any(|condition| matches!(condition.field, Field::ConnectionState | Field::ConnectionDirection))
    }

    /// Some rule looks at every entry of a label stack: none may be too deep to be seen.
    pub fn looks_at_any_label(&self) -> bool {
        let mut conditions = self.chains.iter().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.conditions);
        conditions.any(|condition| condition.field.is_any())
    }

    /// The chain of that name.
    pub fn chain(&self, name: &str) -> Option<usize> {
        self.chains.iter().position(|chain| chain.name == name)
    }

    /// Checks all that execution relies on: targets exist, chains do not lead to themselves, depth, widths.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, with its line.
    pub fn check(&self) -> Result<(), ProgramError> {
        for chain in &self.chains {
            for (index, rule) in chain.rules.iter().enumerate() {
                self.check_rule(rule).map_err(|reason| ProgramError {
                    chain: chain.name.clone(),
                    rule: Some(index),
                    line: rule.line,
                    reason,
                })?;
            }
        }
        // Chains that are certain to end well, with the depth that they need below them.
        let mut depth = vec![None; self.chains.len()];
        (0..self.chains.len()).try_for_each(|chain| self.check_depth(chain, &mut Vec::new(), &mut depth).map(|_| ()))
    }

    fn check_rule(&self, rule: &Rule) -> Result<(), Reason> {
        if let Some(target) = rule.action.target() {
            let chain = self.chains.get(target).ok_or(Reason::NoSuchChain(target))?;
            if chain.policy.is_some() {
                return Err(Reason::BaseChain(chain.name.clone()));
            }
        }
        if let Action::Mpls(Mpls::SkipNext(count) | Mpls::GoLast(count)) = rule.action
            && !(1..=MPLS_COUNT_MAX).contains(&count)
        {
            return Err(Reason::Labels);
        }
        for condition in &rule.conditions {
            let max = condition.field.max();
            let fits = match &condition.test {
                Test::Masked { value, mask } => *value <= max && *mask <= max,
                Test::Ranges(ranges) => ranges.iter().all(|(first, last)| *first <= max && *last <= max),
                Test::AnyBit(mask) => *mask <= max,
            };
            if !fits {
                return Err(Reason::Width(condition.field));
            }
        }
        for extension in &rule.extensions {
            match extension {
                Extension::Limit(limit) | Extension::HashLimit(HashLimit { limit, .. })
                    if limit.interval == 0 || limit.burst == 0 =>
                {
                    return Err(Reason::Limit);
                }
                Extension::Limit(_) | Extension::HashLimit(_) | Extension::Recent(_) => {}
                Extension::Set { set, sides, .. } => {
                    let set = self.sets.get(*set).ok_or(Reason::NoSuchSet(*set))?;
                    let (sides, dimensions) = (sides.len(), set.dimensions.len());
                    if sides == 0 || sides > dimensions {
                        return Err(Reason::Sides { set: set.name.clone(), sides, dimensions });
                    }
                }
            }
        }
        Ok(())
    }

    /// Chains that a packet in this one may be in at once, this one included. A goto does not add one, but is followed for loops.
    ///
    /// `path`: the chains that led here, with the rule that was taken in each.
    fn check_depth(
        &self,
        chain: usize,
        path: &mut Vec<(usize, usize)>,
        known: &mut [Option<usize>],
    ) -> Result<usize, ProgramError> {
        if let Some(depth) = known[chain] {
            return Ok(depth);
        }
        let mut deepest = 1;
        for (index, rule) in self.chains[chain].rules.iter().enumerate() {
            let Some(target) = rule.action.target() else { continue };
            path.push((chain, index));
            let error = |reason| ProgramError {
                chain: self.chains[chain].name.clone(),
                rule: Some(index),
                line: rule.line,
                reason,
            };
            if path.iter().any(|(visited, _)| *visited == target) {
                return Err(error(Reason::Loop(self.path_text(path, target))));
            }
            if path.len() > PATH_MAX {
                return Err(error(Reason::Depth(self.path_text(path, target))));
            }
            let mut depth = self.check_depth(target, path, known)?;
            if matches!(rule.action, Action::Jump(_)) {
                depth += 1;
            }
            if depth > DEPTH_MAX {
                return Err(error(Reason::Depth(self.path_text(path, target))));
            }
            deepest = deepest.max(depth);
            path.pop();
        }
        known[chain] = Some(deepest);
        Ok(deepest)
    }

    fn path_text(&self, path: &[(usize, usize)], target: usize) -> String {
        let mut names = path.iter().map(|(chain, _)| self.chains[*chain].name.as_str()).collect::<Vec<_>>();
        names.push(&self.chains[target].name);
        names.join(" -> ")
    }
}
