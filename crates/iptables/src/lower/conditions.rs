//! Options and matches as conditions on fields.

use super::super::head::{Head, Interface, Network, Not};
use super::super::matches::{
    AddressType, Compared, Conntrack, Direction, Frag, HashLimit, HopLimitTest, Icmp, IpRange, Multiport,
    MultiportSide, PortRange, Recent, Rt, Srh, Tcp, names_translation,
};
use super::{Condition, ErrorKind, Extension, Family, Lowering, Match, Mode, Origin, Parts, RuleError, mpls};
use segue_classifier::field::{Field, state};
use segue_classifier::program::{self, Limit, Test};

/// Routing, Fragment, Authentication and Destination Options.
const EXTENSION_HEADERS: [u8; 4] = [43, 44, 51, 60];

impl<T> Not<T> {
    /// A condition with this test's negation.
    pub(super) fn on(&self, field: Field, test: Test) -> Condition {
        Condition { field, negated: self.negated, test }
    }
}

/// A condition that is not negated.
fn is(field: Field, test: Test) -> Condition {
    Condition { field, negated: false, test }
}

/// That the packet has the field.
fn present(field: Field) -> Condition {
    is(field, Test::range(0, field.max()))
}

/// No value at all.
fn never() -> Test {
    Test::Ranges(Vec::new())
}

fn port_ranges(ports: &[PortRange]) -> Test {
    Test::Ranges(ports.iter().map(|(first, last)| (u128::from(*first), u128::from(*last))).collect())
}

impl<'a> Lowering<'a> {
    /// Fields of the source and destination that `-s` and `-d` mean.
    fn address_fields(&self) -> [Field; 2] {
        match (self.family, self.mode) {
            (Family::Ipv4, _) => [Field::SourceIpv4, Field::DestinationIpv4],
            (Family::Ipv6, Mode::Basic) => [Field::SourceIpv6, Field::DestinationIpv6],
            (Family::Ipv6, Mode::Advanced) => [Field::OuterSource, Field::OuterDestination],
        }
    }

    /// Fields of the source and destination of the packet that all other matches are about.
    fn inner_fields(&self) -> [Field; 2] {
        match self.family {
            Family::Ipv4 => [Field::SourceIpv4, Field::DestinationIpv4],
            Family::Ipv6 => [Field::SourceIpv6, Field::DestinationIpv6],
        }
    }

    pub(super) fn head(&mut self, head: &Head, origin: Origin, parts: &mut Parts) {
        let fields = self.address_fields();
        for (field, network) in fields.into_iter().zip([&head.source, &head.destination]) {
            if let Some(network) = network {
                parts.push(network_condition(field, network));
            }
        }
        for (field, interface) in [(Field::Ingress, &head.in_interface), (Field::Egress, &head.out_interface)] {
            if let Some(interface) = interface {
                parts.push(self.interface(field, interface, origin));
            }
        }
        if let Some(protocol) = &head.protocol {
            // ip6tables says so, too: the protocol is what follows the extension headers.
            if self.family == Family::Ipv6 && !protocol.negated && EXTENSION_HEADERS.contains(&protocol.value) {
                let message =
                    "this protocol is an extension header, so the rule matches nothing; use -m frag or -m srh";
                self.warn(origin, message.to_owned());
            }
            parts.push(protocol.on(Field::Protocol, Test::equal(Field::Protocol, u128::from(protocol.value))));
        }
        if let Some(fragment) = &head.fragment {
            parts.push(fragment.on(Field::FragmentOffset, Test::range(1, Field::FragmentOffset.max())));
        }
    }

    fn interface(&mut self, field: Field, interface: &Not<Interface>, origin: Origin) -> Condition {
        let Interface { name, wildcard } = &interface.value;
        let indexes = self.surroundings.indexes(name, *wildcard).map(u128::from);
        let ranges = indexes.map(|index| (index, index)).collect::<Vec<_>>();
        if ranges.is_empty() {
            let text = interface.value.text();
            self.warn(origin, format!("there is no interface {text} now; rules are made anew when there is one"));
        }
        interface.on(field, Test::Ranges(ranges))
    }

    pub(super) fn test(&mut self, test: &'a Match, origin: Origin, parts: &mut Parts) -> Result<(), RuleError> {
        match test {
            Match::Tcp(tcp) => self.tcp(tcp, parts),
            Match::Udp(ports) | Match::Sctp(ports) => self.ports(&ports.source, &ports.destination, parts),
            Match::Icmp(icmp) => icmp_conditions(icmp, parts),
            Match::Multiport(multiport) => multiport_conditions(multiport, parts),
            Match::IpRange(ranges) => self.ranges(ranges, parts),
            Match::State(state) => states(&state.states, parts),
            Match::Conntrack(conntrack) => {
                if names_translation(&conntrack.states) {
                    let message = "SNAT and DNAT are states of no connection here: there is no address translation";
                    self.warn(origin, message.to_owned());
                }
                conntrack_conditions(conntrack, parts);
            }
            Match::Mark(mark) => {
                if let Some(value) = &mark.value {
                    let (wanted, mask) = value.value;
                    let test = Test::Masked { value: u128::from(wanted), mask: u128::from(mask) };
                    parts.push(value.on(Field::Mark, test));
                }
            }
            Match::Limit(limit) => parts
                .extensions
                .push(Extension::Limit(Limit { interval: limit.rate().interval(), burst: limit.burst() })),
            Match::HashLimit(limit) => parts.extensions.extend(hash_limit(limit)),
            Match::Length(length) => {
                if let Some(range) = &length.range {
                    let (first, last) = range.value;
                    parts.push(range.on(Field::Length, Test::range(u128::from(first), u128::from(last))));
                }
            }
            Match::Dscp(dscp) => {
                if let Some(value) = &dscp.value {
                    parts.push(value.on(Field::Dscp, Test::equal(Field::Dscp, u128::from(value.value))));
                }
            }
            Match::Tos(tos) => {
                if let Some(value) = &tos.value {
                    let (wanted, mask) = value.value;
                    let test = Test::Masked { value: u128::from(wanted), mask: u128::from(mask) };
                    parts.push(value.on(Field::TrafficClass, test));
                }
            }
            Match::HopLimit(limit) => {
                if let Some(test) = &limit.test {
                    let (how, value) = test.value;
                    parts.push(test.on(Field::HopLimit, compared(Field::HopLimit, how, value)));
                }
            }
            Match::Comment(_) => {}
            Match::Set(set) => self.set(set, origin, parts)?,
            Match::Mac(mac) => {
                if let Some(source) = &mac.source {
                    parts.push(source.on(Field::SourceMac, Test::equal(Field::SourceMac, u128::from(source.value))));
                }
            }
            Match::AddressType(types) => self.address_types(types, origin, parts),
            Match::Frag(frag) => frag_conditions(frag, parts),
            Match::Srh(srh) => self.srh(srh, parts),
            Match::Rt(rt) => rt_conditions(rt, parts),
            Match::Mpls(mpls) => mpls::conditions(mpls, parts),
            Match::Recent(recent) => self.recent(recent, origin, parts)?,
        }
        Ok(())
    }

    fn tcp(&self, tcp: &Tcp, parts: &mut Parts) {
        self.ports(&tcp.source, &tcp.destination, parts);
        if let Some(option) = &tcp.option {
            parts.push(option.on(Field::TcpOptions, Test::AnyBit(1 << option.value)));
        }
        if let Some(flags) = &tcp.flags {
            let test = Test::Masked { value: u128::from(flags.value.set), mask: u128::from(flags.value.mask) };
            parts.push(flags.on(Field::TcpFlags, test));
        }
    }

    /// Without ports such a match still never holds for a later fragment.
    fn ports(&self, source: &Option<Not<PortRange>>, destination: &Option<Not<PortRange>>, parts: &mut Parts) {
        for (field, ports) in [(Field::SourcePort, source), (Field::DestinationPort, destination)] {
            if let Some(ports) = ports {
                parts.push(ports.on(field, port_ranges(&[ports.value])));
            }
        }
        if source.is_none() && destination.is_none() {
            parts.push(present(Field::SourcePort));
        }
    }

    fn ranges(&self, ranges: &IpRange, parts: &mut Parts) {
        for (field, range) in self.inner_fields().into_iter().zip([&ranges.source, &ranges.destination]) {
            if let Some(range) = range {
                parts.push(range.on(field, Test::range(range.value.first, range.value.last)));
            }
        }
    }

    fn address_types(&mut self, types: &AddressType, origin: Origin, parts: &mut Parts) {
        for (field, chosen) in self.inner_fields().into_iter().zip([&types.source, &types.destination]) {
            let Some(chosen) = chosen else { continue };
            if self.family == Family::Ipv6 {
                parts.push(Condition { field, negated: chosen.negated, test: self.address_types_ipv6(chosen.value) });
                continue;
            }
            if chosen.value & AddressType::NEVER_IPV4 != 0 {
                let message = "the kernel looks for types of IPv4 addresses in the table `local` alone, where only \
                               UNICAST, LOCAL, BROADCAST and MULTICAST are; the other types of this rule never hold";
                self.warn(origin, message.to_owned());
            }
            // Unicast is what is none of the others.
            let unicast = chosen.value & AddressType::UNICAST != 0;
            let listed = if unicast { !chosen.value } else { chosen.value };
            let ranges = self.addresses_of(listed);
            parts.push(Condition { field, negated: chosen.negated != unicast, test: Test::Ranges(ranges) });
        }
    }

    /// In IPv6 all of these must hold: UNICAST, MULTICAST and UNSPEC, which the address tells by itself, and one of the types that
    /// the node's routes tell.
    fn address_types_ipv6(&self, types: u16) -> Test {
        const MULTICAST: u128 = 0xff << 120;
        const MAPPED: u128 = 0xffff << 32;
        let mut left = vec![(0, u128::MAX)];
        if types & AddressType::MULTICAST != 0 {
            left = common(&left, &[(MULTICAST, u128::MAX)]);
        }
        if types & AddressType::UNICAST != 0 {
            // Neither :: nor ::ffff:0:0/96 (`__ipv6_addr_type`).
            left = common(&left, &[(1, MAPPED - 1), (MAPPED + (1 << 32), MULTICAST - 1)]);
        }
        if types & AddressType::UNSPEC != 0 {
            left = common(&left, &[(0, 0)]);
        }
        if types & (AddressType::LOCAL | AddressType::ANYCAST) != 0 {
            let mut known = Vec::new();
            if types & AddressType::LOCAL != 0 {
                known.extend(self.addresses_of(AddressType::LOCAL));
            }
            if types & AddressType::ANYCAST != 0 {
                known.extend(self.surroundings.anycasts.iter().map(|address| (address.to_bits(), address.to_bits())));
            }
            left = common(&left, &known);
        }
        Test::Ranges(left)
    }

    fn recent(&mut self, recent: &'a Recent, origin: Origin, parts: &mut Parts) -> Result<(), RuleError> {
        let Some((negated, action)) = recent.action else { return Ok(()) };
        if *self.recents.entry(recent.name()).or_insert(recent.mask()) != recent.mask() {
            let reason = "another rule has this list with another mask; the kernel would take the mask of the first";
            let remedy = "give both the same --mask, or the lists two names";
            return Err(RuleError::about(origin.0, recent.name(), ErrorKind::Conflict, reason, remedy));
        }
        parts.extensions.push(Extension::Recent(program::Recent {
            name: recent.name().to_owned(),
            action,
            negated,
            side: recent.side(),
            mask: recent.mask(),
            family: recent.family(),
            seconds: recent.seconds.unwrap_or(0),
            hits: recent.hits.unwrap_or(0),
        }));
        Ok(())
    }

    /// All addresses of some types other than unicast.
    fn addresses_of(&self, types: u16) -> Vec<(u128, u128)> {
        let around = self.surroundings;
        let mut ranges = Vec::new();
        if types & AddressType::LOCAL != 0 {
            ranges.extend(
                around
                    .addresses
                    .iter()
                    .filter_map(|address| match (address, self.family) {
                        (std::net::IpAddr::V4(address), Family::Ipv4) => Some(u128::from(address.to_bits())),
                        (std::net::IpAddr::V6(address), Family::Ipv6) => Some(address.to_bits()),
                        _ => None,
                    })
                    .map(|address| (address, address)),
            );
            ranges.push(match self.family {
                Family::Ipv4 => (0x7f00_0000, 0x7fff_ffff),
                Family::Ipv6 => (1, 1),
            });
        }
        if types & AddressType::BROADCAST != 0 && self.family == Family::Ipv4 {
            let own = around.broadcasts.iter().map(|address| u128::from(address.to_bits()));
            // The kernel counts 0.0.0.0 as broadcast, too.
            ranges.extend(own.chain([0, 0xffff_ffff]).map(|address| (address, address)));
        }
        if types & AddressType::MULTICAST != 0 {
            ranges.push(match self.family {
                Family::Ipv4 => (0xe000_0000, 0xefff_ffff),
                Family::Ipv6 => (0xff << 120, u128::MAX),
            });
        }
        ranges
    }

    fn srh(&self, srh: &Srh, parts: &mut Parts) {
        let [source, destination] = self.inner_fields();
        let inner = [(source, &srh.inner_source), (destination, &srh.inner_destination)];
        let before = parts.branches.first().map_or(0, Vec::len);
        if let Some(next) = &srh.next_header {
            parts.push(next.on(Field::SrhNextHeader, Test::equal(Field::SrhNextHeader, u128::from(next.value))));
        }
        numbers(Field::SrhLength, &srh.length, parts);
        numbers(Field::SrhSegmentsLeft, &srh.segments_left, parts);
        numbers(Field::SrhLastEntry, &srh.last_entry, parts);
        if let Some(tag) = &srh.tag {
            parts.push(tag.on(Field::SrhTag, Test::equal(Field::SrhTag, u128::from(tag.value))));
        }
        for (field, sid) in
            [(Field::PreviousSid, &srh.previous_sid), (Field::NextSid, &srh.next_sid), (Field::LastSid, &srh.last_sid)]
        {
            if let Some(sid) = sid {
                parts.push(network_condition(field, sid));
            }
        }
        let about_srh = parts.branches.first().map_or(0, Vec::len) > before;
        for (field, network) in inner {
            if let Some(network) = network {
                parts.push(network_condition(field, network));
            }
        }
        // Fields of an SRH that is not there match nothing. An encapsulated packet need not have one to have an inner packet.
        let about_inner = srh.inner_source.is_some() || srh.inner_destination.is_some();
        if !about_srh && !about_inner {
            parts.push(is(Field::SrhPresent, Test::equal(Field::SrhPresent, 1)));
        }
    }
}

/// What is in both lists of ranges. Those of each are apart.
fn common(some: &[(u128, u128)], others: &[(u128, u128)]) -> Vec<(u128, u128)> {
    let pairs = some.iter().flat_map(|one| others.iter().map(move |other| (one.0.max(other.0), one.1.min(other.1))));
    pairs.filter(|(first, last)| first <= last).collect()
}

fn rt_conditions(rt: &Rt, parts: &mut Parts) {
    parts.push(present(Field::RoutingType));
    if let Some(kind) = &rt.kind {
        parts.push(kind.on(Field::RoutingType, Test::equal(Field::RoutingType, u128::from(kind.value))));
    }
    if let Some(left) = &rt.segments_left {
        let (first, last) = (u128::from(left.value.0), u128::from(left.value.1));
        let last = last.min(Field::RoutingSegmentsLeft.max());
        parts.push(left.on(Field::RoutingSegmentsLeft, if first > last { never() } else { Test::range(first, last) }));
    }
    if let Some(length) = &rt.length {
        // The whole header in octets: 8 * (Hdr Ext Len + 1).
        let units = u128::from(length.value / 8);
        let fits = length.value % 8 == 0 && (1..=256).contains(&units);
        let test = if fits { Test::equal(Field::RoutingLength, units - 1) } else { never() };
        parts.push(length.on(Field::RoutingLength, test));
    }
}

fn network_condition(field: Field, network: &Not<Network>) -> Condition {
    let Network { address, mask, .. } = network.value;
    network.on(field, Test::Masked { value: address & mask, mask })
}

fn compared(field: Field, how: HopLimitTest, value: u8) -> Test {
    let value = u128::from(value);
    match how {
        HopLimitTest::Equal => Test::equal(field, value),
        HopLimitTest::Less if value == 0 => never(),
        HopLimitTest::Less => Test::range(0, value - 1),
        HopLimitTest::Greater if value == field.max() => never(),
        HopLimitTest::Greater => Test::range(value + 1, field.max()),
    }
}

fn numbers(field: Field, tests: &Compared, parts: &mut Parts) {
    for (how, test) in [
        (HopLimitTest::Equal, &tests.equal),
        (HopLimitTest::Greater, &tests.greater),
        (HopLimitTest::Less, &tests.less),
    ] {
        if let Some(test) = test {
            parts.push(test.on(field, compared(field, how, test.value)));
        }
    }
}

fn conntrack_conditions(conntrack: &Conntrack, parts: &mut Parts) {
    states(&conntrack.states, parts);
    let Some(direction) = conntrack.direction else { return };
    // With a state, too, the kernel does not look at the direction of a packet that has no connection.
    let lone = conntrack.states.map_or(0, |states| if states.negated { !states.value } else { states.value })
        & (state::INVALID | state::UNTRACKED);
    let mut others = if lone == 0 { Vec::new() } else { parts.branches.clone() };
    for branch in &mut others {
        branch.push(is(Field::ConnectionState, Test::AnyBit(u128::from(lone))));
    }
    let value = u128::from(direction == Direction::Reply);
    parts.push(is(Field::ConnectionDirection, Test::equal(Field::ConnectionDirection, value)));
    parts.branches.extend(others);
}

fn states(states: &Option<Not<u8>>, parts: &mut Parts) {
    if let Some(states) = states {
        parts.push(states.on(Field::ConnectionState, Test::AnyBit(u128::from(states.value))));
    }
}

fn icmp_conditions(icmp: &Icmp, parts: &mut Parts) {
    let Some(kind) = &icmp.kind else { return };
    if icmp.is_any() {
        parts.push(kind.on(Field::IcmpType, Test::range(0, 255)));
        return;
    }
    let (first, last) = (u128::from(kind.value.first), u128::from(kind.value.last));
    let is_type = is(Field::IcmpType, Test::equal(Field::IcmpType, u128::from(kind.value.kind)));
    let any_code = (first, last) == (0, 255);
    if any_code {
        parts.push(Condition { negated: kind.negated, ..is_type });
    } else if !kind.negated {
        parts.push(is_type);
        parts.push(is(Field::IcmpCode, Test::range(first, last)));
    } else {
        // Not this type and code: another type, or this type and another code.
        let other_code = Condition { negated: true, ..is(Field::IcmpCode, Test::range(first, last)) };
        branch(parts, vec![vec![Condition { negated: true, ..is_type.clone() }], vec![is_type, other_code]]);
    }
}

/// Each branch so far continues in each of these ways, of which at most one holds.
fn branch(parts: &mut Parts, ways: Vec<Vec<Condition>>) {
    let before = std::mem::take(&mut parts.branches);
    for conditions in before {
        for way in &ways {
            parts.branches.push(conditions.iter().chain(way).cloned().collect());
        }
    }
}

fn multiport_conditions(multiport: &Multiport, parts: &mut Parts) {
    let Some(Not { negated, value: (side, ports) }) = &multiport.ports else { return };
    let on = |field, negated| Condition { field, negated, test: port_ranges(ports) };
    match side {
        MultiportSide::Source => parts.push(on(Field::SourcePort, *negated)),
        MultiportSide::Destination => parts.push(on(Field::DestinationPort, *negated)),
        MultiportSide::Either if *negated => {
            parts.push(on(Field::SourcePort, true));
            parts.push(on(Field::DestinationPort, true));
        }
        MultiportSide::Either => {
            let source = vec![on(Field::SourcePort, false)];
            let destination_alone = vec![on(Field::SourcePort, true), on(Field::DestinationPort, false)];
            branch(parts, vec![source, destination_alone]);
        }
    }
}

fn frag_conditions(frag: &Frag, parts: &mut Parts) {
    parts.push(present(Field::FragmentOffset));
    if let Some(id) = &frag.identification {
        let (first, last) = id.value;
        parts.push(id.on(Field::FragmentIdentification, Test::range(u128::from(first), u128::from(last))));
    }
    if frag.reserved {
        parts.push(is(Field::FragmentReserved, Test::equal(Field::FragmentReserved, 0)));
    }
    if frag.first {
        parts.push(is(Field::FragmentOffset, Test::equal(Field::FragmentOffset, 0)));
    }
    if let Some(more) = frag.more {
        parts.push(is(Field::FragmentMore, Test::equal(Field::FragmentMore, u128::from(more))));
    }
}

fn hash_limit(limit: &HashLimit) -> Option<Extension> {
    let (above, rate) = limit.rate?;
    let (source_prefix, destination_prefix) = limit.prefixes();
    Some(Extension::HashLimit(program::HashLimit {
        name: limit.name().to_owned(),
        limit: Limit { interval: rate.interval(), burst: limit.burst() },
        above,
        mode: limit.mode(),
        source_prefix,
        destination_prefix,
        expire: limit.expire(),
        entries_max: limit.entries_max(),
    }))
}

/// An error about a set.
pub(super) fn set_error(origin: Origin, name: &str, reason: String, remedy: &str) -> RuleError {
    RuleError::about(origin.0, name, ErrorKind::Set, reason, remedy)
}
