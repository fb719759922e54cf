//! SIDs: their place, and what each behaviour needs and does not take.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::check;
use crate::error::KeyPath;
use crate::limits::SEGMENTS_MAX;
use crate::node::{Behaviour, Flavour, HeadendMode, InnerType, PortRole, Proxy, Sid};

use super::{Check, family};

/// Whether a behaviour has a parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Must,
    May,
    Not,
}

/// Parameters of a behaviour.
struct Needs {
    next_hop: Need,
    /// IPv4 or IPv6; none if both do.
    next_hop_is_ipv4: Option<bool>,
    next_hop_mac: Need,
    port: Need,
    table: Need,
    policy: Need,
    proxy: Need,
    flavours: Need,
}

const NOTHING: Needs = Needs {
    next_hop: Need::Not,
    next_hop_is_ipv4: None,
    next_hop_mac: Need::Not,
    port: Need::Not,
    table: Need::Not,
    policy: Need::Not,
    proxy: Need::Not,
    flavours: Need::Not,
};

fn needs(behaviour: Behaviour) -> Needs {
    use Need::{May, Must};
    match behaviour {
        Behaviour::End => Needs { flavours: May, ..NOTHING },
        Behaviour::EndX => Needs { next_hop: Must, next_hop_is_ipv4: Some(false), port: May, flavours: May, ..NOTHING },
        Behaviour::EndT => Needs { table: May, flavours: May, ..NOTHING },
        Behaviour::EndDx2 => Needs { port: Must, ..NOTHING },
        Behaviour::EndDx4 => Needs { next_hop: May, next_hop_is_ipv4: Some(true), ..NOTHING },
        Behaviour::EndDx6 => Needs { next_hop: May, next_hop_is_ipv4: Some(false), ..NOTHING },
        Behaviour::EndDt4 | Behaviour::EndDt6 | Behaviour::EndDt46 => Needs { table: May, ..NOTHING },
        Behaviour::EndB6Encaps | Behaviour::EndB6EncapsRed => Needs { policy: Must, ..NOTHING },
        Behaviour::EndAs => Needs { next_hop: May, next_hop_mac: May, proxy: Must, ..NOTHING },
    }
}

impl Check<'_> {
    pub(super) fn sids(&mut self) {
        let sids = KeyPath::root().at("sids");
        let (mut seen, mut returns) = (HashMap::new(), HashMap::new());
        for (position, sid) in self.state.sids.iter().enumerate() {
            let key = sids.at(position);
            self.sid_address(sid, &key);
            if let Some(other) = seen.insert(sid.sid, position) {
                let message = format!("the SID {} is there twice", sid.sid.addr());
                self.error(&key.at("sid"), message, format!("give this one or sids[{other}] another SID"));
            }
            self.sid_parameters(sid, &key);
            self.sid_flavours(sid, &key);
            if let Some(proxy) = &sid.proxy {
                self.proxy(sid, proxy, &key.at("proxy"));
                if let Some(other) = returns.insert(proxy.from_function.as_str(), position) {
                    let message = format!(
                        "packets that return on {:?} belong to sids[{other}] already: one interface serves one proxy SID",
                        proxy.from_function
                    );
                    let remedy = "give each direction and each chain an interface of its own";
                    self.error(&key.at("proxy").at("from_function"), message, remedy);
                }
            }
        }
    }

    fn sid_address(&mut self, sid: &Sid, key: &KeyPath) {
        let key = key.at("sid");
        self.truncated(sid.sid, &key);
        if !self.ipv6_address(sid.sid.addr(), &key) {
            return;
        }
        if sid.sid.prefix_len() < 8 {
            let message = format!("a SID of length {} takes in too much", sid.sid.prefix_len());
            self.error(&key, message, "write LOC:FUNCT with the length of both");
        }
        if let Some(locator) = self.state.locator
            && !locator.contains(&sid.sid)
            && !sid.outside_locator
        {
            let message = format!("{} lies outside the locator {locator}", sid.sid.addr());
            let remedy =
                "choose one inside, or add `outside_locator: true`: other nodes then reach it only behind another SID";
            self.error(&key, message, remedy);
        }
        self.guarded(sid.sid, &key);
    }

    fn sid_parameters(&mut self, sid: &Sid, key: &KeyPath) {
        let needs = needs(sid.behaviour);
        let name = sid.behaviour.name();
        let given = [
            ("next_hop", needs.next_hop, sid.next_hop.is_some()),
            ("next_hop_mac", needs.next_hop_mac, sid.next_hop_mac.is_some()),
            ("port", needs.port, sid.port.is_some()),
            ("table", needs.table, sid.table.is_some()),
            ("policy", needs.policy, sid.policy.is_some()),
            ("proxy", needs.proxy, sid.proxy.is_some()),
        ];
        for (parameter, need, is_given) in given {
            match (need, is_given) {
                (Need::Must, false) => {
                    self.error(key, format!("{name} needs the key {parameter:?}"), format!("add `{parameter}:`"));
                }
                (Need::Not, true) => {
                    let remedy = "remove it, or change the behaviour";
                    self.error(&key.at(parameter), format!("{name} does not take the key {parameter:?}"), remedy);
                }
                _ => {}
            }
        }
        self.sid_next_hop(sid, &needs, key);
        if let Some(port) = &sid.port
            && needs.port != Need::Not
        {
            self.port(port, &key.at("port"));
        }
        if sid.table == Some(0) {
            let remedy = "choose 1 or more, or remove the key for the main table (254)";
            self.error(&key.at("table"), "there is no routing table 0", remedy);
        }
        if let Some(policy) = &sid.policy
            && needs.policy != Need::Not
        {
            self.sid_policy(sid, policy, &key.at("policy"));
        }
        let takes_ip_off = matches!(
            sid.behaviour,
            Behaviour::EndDx4 | Behaviour::EndDx6 | Behaviour::EndDt4 | Behaviour::EndDt6 | Behaviour::EndDt46
        ) || sid.flavours.contains(&Flavour::Usd);
        if sid.allow_inner_sid && !takes_ip_off {
            let message = format!("{name} does not forward inner packets by their destination");
            self.error(&key.at("allow_inner_sid"), message, "remove the key");
        }
    }

    fn sid_next_hop(&mut self, sid: &Sid, needs: &Needs, key: &KeyPath) {
        if sid.behaviour == Behaviour::EndAs {
            match (sid.next_hop, sid.next_hop_mac) {
                (None, None) => {
                    let remedy =
                        "add `next_hop_mac:` with the function's link-layer address, or `next_hop:` with its address";
                    self.error(key, "End.AS needs to know its function's address", remedy);
                }
                (Some(_), Some(_)) => {
                    let message = "both a next hop and its link-layer address are given";
                    self.error(&key.at("next_hop"), message, "keep one of `next_hop` and `next_hop_mac`");
                }
                _ => {}
            }
        }
        if let Some(mac) = sid.next_hop_mac
            && needs.next_hop_mac != Need::Not
            && mac.octets() == [0; 6]
        {
            self.error(
                &key.at("next_hop_mac"),
                "00:00:00:00:00:00 is nobody's address",
                "write the function's address",
            );
        }
        let (Some(next_hop), true) = (sid.next_hop, needs.next_hop != Need::Not) else { return };
        let key = key.at("next_hop");
        if let Some(is_ipv4) = needs.next_hop_is_ipv4
            && next_hop.is_ipv4() != is_ipv4
        {
            let wanted = if is_ipv4 { "IPv4" } else { "IPv6" };
            let message = format!(
                "{next_hop} is an {} address, and {} forwards to {wanted}",
                family(next_hop),
                sid.behaviour.name()
            );
            self.error(&key, message, format!("write an {wanted} address"));
            return;
        }
        let link_local = matches!(next_hop, IpAddr::V6(address) if address.is_unicast_link_local());
        match (link_local, sid.behaviour) {
            // The interface is known from IFACE-OUT.
            (true, Behaviour::EndAs) => {}
            (true, Behaviour::EndX) if sid.port.is_some() => {}
            (true, Behaviour::EndX) => {
                self.error(&key, format!("{next_hop} is link-local, so the link must be known"), "add `port:`");
            }
            (true, _) => {
                let message = format!("{next_hop} is link-local, so the link must be known");
                self.error(&key, message, "write the neighbour's global or unique local address");
            }
            (false, _) => {
                if let Some(problem) = check::ip_problem(next_hop) {
                    let remedy = match sid.behaviour {
                        Behaviour::EndDx4 | Behaviour::EndDx6 => {
                            "write the neighbour's address, or remove the key to go by the inner destination"
                        }
                        _ => "write the neighbour's unicast address",
                    };
                    self.error(&key, format!("{next_hop} {problem}"), remedy);
                }
            }
        }
    }

    fn sid_flavours(&mut self, sid: &Sid, key: &KeyPath) {
        let key = key.at("flavours");
        if !sid.flavours.is_empty() && needs(sid.behaviour).flavours == Need::Not {
            let message = format!("{} has no flavours", sid.behaviour.name());
            self.error(&key, message, "remove the key: only End, End.X and End.T have them (RFC 8986 section 4.16)");
        }
        for (position, flavour) in sid.flavours.iter().enumerate() {
            if sid.flavours[..position].contains(flavour) {
                self.error(&key.at(position), "this flavour is there twice", "remove one");
            }
        }
    }

    fn sid_policy(&mut self, sid: &Sid, name: &str, key: &KeyPath) {
        let Some(policy) = self.policy(name, key) else { return };
        let wanted = match sid.behaviour {
            Behaviour::EndB6Encaps => HeadendMode::HEncaps,
            _ => HeadendMode::HEncapsRed,
        };
        if policy.mode != wanted {
            let message = format!(
                "{} encapsulates by {}, but the policy {name:?} by {}",
                sid.behaviour.name(),
                wanted.name(),
                policy.mode.name()
            );
            self.error(key, message, format!("give the policy `mode: {}`, or change the behaviour", wanted.name()));
        }
        let lists = policy.segment_lists.iter();
        if lists.filter_map(|list| list.segments.first()).any(|first| sid.sid.contains(first)) {
            let message =
                format!("the policy {name:?} leads back to this SID: packets would be encapsulated again and again");
            self.error(key, message, "let its segment lists begin with another SID");
        }
    }

    fn proxy(&mut self, sid: &Sid, proxy: &Proxy, key: &KeyPath) {
        if proxy.inner.is_empty() {
            self.error(&key.at("inner"), "the function takes nothing", "write [IPv4, IPv6], or one of the two");
        }
        for (position, inner) in proxy.inner.iter().enumerate() {
            let key = key.at("inner").at(position);
            if proxy.inner[..position].contains(inner) {
                self.error(&key, format!("{inner:?} is there twice"), "remove one");
            }
            if *inner == InnerType::Ethernet {
                self.error(&key, "End.AS takes IP packets only so far", "write IPv4, IPv6 or both");
            }
        }
        for (name, port) in [("to_function", &proxy.to_function), ("from_function", &proxy.from_function)] {
            let key = key.at(name);
            if let Some(port) = self.port(port, &key)
                && port.role != PortRole::Service
            {
                let message = format!("the port {:?} does not lead to a function", port.name);
                self.error(&key, message, "give the port `role: service`, or name another");
            }
        }
        if let Some(address) = proxy.source_address {
            self.ipv6_address(address, &key.at("source_address"));
        }
        self.proxy_segments(sid, proxy, &key.at("segments"));
    }

    fn proxy_segments(&mut self, sid: &Sid, proxy: &Proxy, key: &KeyPath) {
        if proxy.segments.is_empty() {
            let remedy = "write the segments that are still to visit, the egress last";
            self.error(key, "what comes back from the function has nowhere to go", remedy);
        }
        if proxy.segments.len() > SEGMENTS_MAX {
            self.too_many_segments(proxy.segments.len(), SEGMENTS_MAX, key);
        }
        for (position, segment) in proxy.segments.iter().enumerate() {
            self.ipv6_address(*segment, &key.at(position));
        }
        if proxy.segments.first().is_some_and(|first| sid.sid.contains(first)) {
            let message = "the first segment is this SID: packets would visit the function again and again";
            self.error(&key.at(0), message, "begin with the segment that follows this one");
        }
    }
}
