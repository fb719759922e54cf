//! The domain's boundary on interfaces that are no ports of Segue (RFC 8754 section 5.1): what the kernel lets nobody reach
//! from them. XDP sees ports only; SIDs are routes in the main table, and the kernel would follow them for anybody.
//!
//! Pure: what should hold. [`super::nftables`] makes it so.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, Hasher, RandomState},
    net::Ipv6Addr,
};

use ipnet::Ipv6Net;
use segue_dataplane::Interfaces;
use segue_model::node::{NodeState, PortRole};
use segue_model::proxy::{CUT_IN, CUT_OUT, LOOP_IN, LOOP_OUT};

/// RFC 9602: SIDs wherever they are.
const SRV6_SIDS: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16);
/// `lo`, in every network namespace: what the node sends to itself.
const LOOPBACK: u32 = 1;

/// Which addresses are closed, and to whom they are not. Interfaces are known by their numbers: one that is made anew, with
/// the name of a port, is not that port until the data plane is on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Boundary {
    /// SID blocks, SIDs that lie in none, and infrastructure.
    pub closed: BTreeSet<Ipv6Net>,
    /// Interfaces from which these may be reached: `lo`, all ports (the data plane has judged what it passes up), and those
    /// that the operator trusts.
    pub open: BTreeSet<u32>,
    /// Those of them that lead into the domain: ICMP errors about packets to closed addresses may come in by them.
    pub inside: BTreeSet<u32>,
    /// Link-layer source of what the data plane has judged. What else comes to a closed address by a port that does not lead into
    /// the domain has slipped past it.
    pub signature: [u8; 6],
}

impl Boundary {
    /// What a state asks for on a node that has these interfaces.
    pub fn of(state: &NodeState, interfaces: &Interfaces) -> Self {
        let mut closed: BTreeSet<Ipv6Net> = [SRV6_SIDS].into();
        closed.extend(state.domain.sid_blocks.iter().map(Ipv6Net::trunc));
        let blocks = closed.clone();
        let bindings = state.policies.iter().filter_map(|policy| policy.binding_sid).map(Ipv6Net::from);
        let sids = state.sids.iter().map(|sid| sid.sid.trunc()).chain(bindings);
        closed.extend(sids.filter(|sid| !blocks.iter().any(|block| block.contains(sid))));
        closed.extend(state.domain.infrastructure_prefixes.iter().map(Ipv6Net::trunc));
        let lo = || BTreeSet::from([LOOPBACK]);
        let mut boundary = Self { closed, open: lo(), inside: lo(), signature: [0; 6] };
        for port in state.all_ports() {
            let Some(interface) = interfaces.get(&port.name) else { continue };
            boundary.open.insert(interface.ifindex);
            if port.role == PortRole::Core {
                boundary.inside.insert(interface.ifindex);
            }
        }
        for interface in state.domain.trusted_interfaces.iter().filter_map(|name| interfaces.get(name)) {
            boundary.open.insert(interface.ifindex);
            boundary.inside.insert(interface.ifindex);
        }
        boundary
    }

    /// The same with the signature that is in use, or with one that nobody can know or try out: a unicast address that is
    /// administered locally.
    pub fn signed(mut self, before: Option<&Self>) -> Self {
        self.signature = before.map(|before| before.signature).filter(|used| *used != [0; 6]).unwrap_or_else(|| {
            // SipHash of nothing, with keys that the operating system draws.
            let [first, rest @ .., _, _] = RandomState::new().build_hasher().finish().to_ne_bytes();
            let mut signature = [first & !1 | 2, 0, 0, 0, 0, 0];
            signature[1..].copy_from_slice(&rest);
            signature
        });
        self
    }

    /// What may hold while this gives way to `next`: closed is what either closes, open what both open.
    pub fn between(&self, next: &Self) -> Self {
        Self {
            closed: &self.closed | &next.closed,
            open: &(&self.open & &next.open) | &[LOOPBACK].into(),
            inside: &(&self.inside & &next.inside) | &[LOOPBACK].into(),
            signature: next.signature,
        }
    }

    /// The closed addresses as ranges, first and last of each, ascending, with gaps between them.
    pub fn ranges(&self) -> Vec<(u128, u128)> {
        let mut ranges: Vec<(u128, u128)> = Vec::new();
        // Prefixes come in the order of their first addresses.
        for prefix in &self.closed {
            let (first, last) = (u128::from(prefix.network()), u128::from(prefix.broadcast()));
            match ranges.last_mut() {
                Some((_, end)) if *end == u128::MAX || first <= *end + 1 => *end = (*end).max(last),
                _ => ranges.push((first, last)),
            }
        }
        ranges
    }
}

/// Names of the interfaces that are outside: no ports, and not trusted. The agent's own ways back into the data plane are none
/// that anybody sends by.
pub fn outside(state: &NodeState, interfaces: &Interfaces) -> Vec<String> {
    let inside = Boundary::of(state, interfaces);
    let strange = interfaces.0.iter().filter(|(name, interface)| {
        !inside.open.contains(&interface.ifindex) && ![LOOP_IN, LOOP_OUT, CUT_IN, CUT_OUT].contains(&name.as_str())
    });
    let mut names: Vec<String> = strange.map(|(name, _)| name.clone()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(more: &str) -> NodeState {
        let text = format!(
            "{{node: n, source_address: 'fd00::1', ports: [{{name: a, role: core}}, {{name: b, role: access}}, \
             {{name: away, role: core}}], {more}}}"
        );
        segue_model::load::load_node_state(&text, "test").unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn interfaces() -> Interfaces {
        let mut interfaces = Interfaces::default();
        for (ifindex, name) in (1..).zip(["lo", "a", "b", "c", "d"]) {
            interfaces.0.insert(name.to_owned(), crate::apply::fake::interface(ifindex));
        }
        interfaces
    }

    #[test]
    fn ports_and_what_is_trusted_are_open_and_nothing_else() {
        let state = state(
            "domain: {sid_blocks: ['fc00::/32'], infrastructure_prefixes: ['fd00::/48'], trusted_interfaces: [c, gone]}, \
             sids: [{sid: 'fc00:0:1:1::', behaviour: End}]",
        );
        let found = Boundary::of(&state, &interfaces());
        let closed: Vec<_> = found.closed.iter().map(ToString::to_string).collect();
        assert_eq!(closed, ["5f00::/16", "fc00::/32", "fd00::/48"]);
        assert_eq!(found.open, [1, 2, 3, 4].into());
        assert_eq!(found.inside, [1, 2, 4].into());
        assert_eq!(outside(&state, &interfaces()), ["d"]);
    }

    #[test]
    fn on_the_way_from_one_to_the_next_nothing_is_open_that_one_of_them_closes() {
        let boundary = |closed: &str, open: [u32; 2]| Boundary {
            closed: [closed.parse().unwrap()].into(),
            open: open.into(),
            inside: open.into(),
            signature: [2, 0, 0, 0, 0, closed.as_bytes()[3]],
        };
        let between = boundary("fc00::/32", [1, 2]).between(&boundary("fc01::/32", [2, 3]));
        assert_eq!(between.closed.len(), 2);
        assert_eq!(between.open, [1, 2].into(), "and lo, always");
        assert_eq!(between.inside, [1, 2].into());
        assert_eq!(between.signature, [2, 0, 0, 0, 0, b'1'], "which the data plane uses already");
        assert_eq!(Boundary::default().between(&boundary("fc01::/32", [2, 3])).open, [1].into());
    }

    #[test]
    fn a_signature_stays_and_nobody_has_it() {
        let drawn = [(); 2].map(|()| Boundary::default().signed(None).signature);
        assert_ne!(drawn[0], drawn[1]);
        assert!(drawn.iter().all(|signature| signature[0] & 3 == 2), "{drawn:02x?}");
        let before = Boundary { signature: drawn[0], ..Boundary::default() };
        assert_eq!(Boundary::default().signed(Some(&before)).signature, drawn[0]);
        assert_ne!(Boundary::default().signed(Some(&Boundary::default())).signature, [0; 6]);
    }

    #[test]
    fn ranges_have_gaps_between_them() {
        let of = |prefixes: &[&str]| {
            let closed = prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect();
            Boundary { closed, ..Boundary::default() }.ranges()
        };
        let end = |text: &str| u128::from(text.parse::<Ipv6Addr>().unwrap());
        assert_eq!(
            of(&["fc00::/33", "fc00:0:8000::/33", "fc00::/48", "5f00::/16"]),
            [
                (end("5f00::"), end("5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff")),
                (end("fc00::"), end("fc00:0:ffff:ffff:ffff:ffff:ffff:ffff"))
            ]
        );
        assert_eq!(of(&["ff00::/8", "fe00::/7"]), [(end("fe00::"), u128::MAX)]);
    }
}
