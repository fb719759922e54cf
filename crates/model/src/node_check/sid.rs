//! SIDs: their place, and what each behaviour needs and does not take.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::check;
use crate::error::KeyPath;
use crate::node::{Behaviour, Flavour, HeadendMode, Sid};
use crate::service_label::is_kept_for_labels;

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
    netfilter: Need,
    argument_length: Need,
    /// Those that it may have.
    flavours: &'static [Flavour],
}

const NOTHING: Needs = Needs {
    next_hop: Need::Not,
    next_hop_is_ipv4: None,
    next_hop_mac: Need::Not,
    port: Need::Not,
    table: Need::Not,
    policy: Need::Not,
    proxy: Need::Not,
    netfilter: Need::Not,
    argument_length: Need::Not,
    flavours: &[],
};

/// RFC 8986 section 4.16.
const END_FLAVOURS: &[Flavour] = &[Flavour::Psp, Flavour::Usp, Flavour::Usd];
/// draft-ietf-spring-sr-service-programming sections 6.4.2 and 6.4.3.
const MASQUERADING_FLAVOURS: &[Flavour] = &[Flavour::Nat, Flavour::Caching];

fn needs(behaviour: Behaviour) -> Needs {
    use Need::{May, Must};
    match behaviour {
        Behaviour::End => Needs { flavours: END_FLAVOURS, ..NOTHING },
        Behaviour::EndX => {
            Needs { next_hop: Must, next_hop_is_ipv4: Some(false), port: May, flavours: END_FLAVOURS, ..NOTHING }
        }
        Behaviour::EndT => Needs { table: May, flavours: END_FLAVOURS, ..NOTHING },
        Behaviour::EndDx2 => Needs { port: Must, ..NOTHING },
        Behaviour::EndDx4 => Needs { next_hop: May, next_hop_is_ipv4: Some(true), ..NOTHING },
        Behaviour::EndDx6 => Needs { next_hop: May, next_hop_is_ipv4: Some(false), ..NOTHING },
        Behaviour::EndDt4 | Behaviour::EndDt6 | Behaviour::EndDt46 => Needs { table: May, ..NOTHING },
        Behaviour::EndB6Encaps | Behaviour::EndB6EncapsRed | Behaviour::EndBm => Needs { policy: Must, ..NOTHING },
        Behaviour::EndDtm => NOTHING,
        Behaviour::EndAs | Behaviour::EndAd => Needs { next_hop: May, next_hop_mac: May, proxy: Must, ..NOTHING },
        Behaviour::EndAm => Needs { flavours: MASQUERADING_FLAVOURS, ..needs(Behaviour::EndAn) },
        Behaviour::EndAn => {
            Needs { next_hop: May, next_hop_is_ipv4: Some(false), next_hop_mac: May, proxy: Must, ..NOTHING }
        }
        Behaviour::EndAnNf => Needs { netfilter: Must, argument_length: May, ..NOTHING },
    }
}

impl Check<'_> {
    pub(super) fn sids(&mut self) {
        let sids = KeyPath::root().at("sids");
        let mut seen = HashMap::new();
        for (position, sid) in self.state.sids.iter().enumerate() {
            let key = sids.at(position);
            self.sid_address(sid, &key);
            if let Some(other) = seen.insert(sid.sid, position) {
                let message = format!("the SID {} is there twice", sid.sid.addr());
                self.error(&key.at("sid"), message, format!("give this one or sids[{other}] another SID"));
            }
            self.sid_parameters(sid, &key);
            self.sid_flavours(sid, &key);
            self.owner(sid.owner.as_ref(), &key);
            if let Some(proxy) = &sid.proxy {
                self.proxy(sid, proxy, &key.at("proxy"));
                let of_labels = [("labels", !proxy.labels.is_empty()), ("backup_label", proxy.backup_label.is_some())];
                for (parameter, _) in of_labels.into_iter().filter(|(_, is_given)| *is_given) {
                    let message = format!("{} does not take the key {parameter:?}", sid.behaviour.name());
                    self.error(&key.at("proxy").at(parameter), message, "remove it: it is for labels");
                }
            }
            if let Some(netfilter) = &sid.netfilter {
                self.netfilter(sid, netfilter, &key.at("netfilter"));
            }
        }
        self.returns();
        self.wirings();
    }

    fn sid_address(&mut self, sid: &Sid, key: &KeyPath) {
        let key = key.at("sid");
        self.truncated(sid.sid, &key);
        if !self.ipv6_address(sid.sid.addr(), &key) {
            return;
        }
        if is_kept_for_labels(&sid.sid) {
            let message = format!("packets to {} are discarded (RFC 6666)", sid.sid.addr());
            self.error(&key, message, "choose one from a SID block");
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
        if let (Behaviour::EndAn, Some(firewall)) = (sid.behaviour, &sid.firewall) {
            return self.sid_firewall(sid, firewall, key);
        }
        let needs = needs(sid.behaviour);
        let name = sid.behaviour.name();
        let given = [
            ("next_hop", needs.next_hop, sid.next_hop.is_some()),
            ("next_hop_mac", needs.next_hop_mac, sid.next_hop_mac.is_some()),
            ("port", needs.port, sid.port.is_some()),
            ("table", needs.table, sid.table.is_some()),
            ("policy", needs.policy, sid.policy.is_some()),
            ("proxy", needs.proxy, sid.proxy.is_some()),
            ("firewall", Need::Not, sid.firewall.is_some()),
            ("netfilter", needs.netfilter, sid.netfilter.is_some()),
            ("argument_length", needs.argument_length, sid.argument_length != 0),
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
        if sid.behaviour == Behaviour::EndDtm && !self.state.knows_labels() {
            let message = "what is in it are packets with labels, of which this node has none";
            self.error(&key.at("behaviour"), message, "add the labels to `labels:`, or choose another behaviour");
        }
        self.sid_next_hop(sid, key);
        self.argument(sid, key);
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

    /// An SR-aware function that is the node's own needs nothing else.
    fn sid_firewall(&mut self, sid: &Sid, firewall: &str, key: &KeyPath) {
        let given = [
            ("next_hop", sid.next_hop.is_some()),
            ("next_hop_mac", sid.next_hop_mac.is_some()),
            ("port", sid.port.is_some()),
            ("table", sid.table.is_some()),
            ("policy", sid.policy.is_some()),
            ("proxy", sid.proxy.is_some()),
            ("netfilter", sid.netfilter.is_some()),
            ("argument_length", sid.argument_length != 0),
            ("allow_inner_sid", sid.allow_inner_sid),
        ];
        for (parameter, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
            let message = format!("a SID with a firewall does not take the key {parameter:?}");
            self.error(&key.at(parameter), message, "remove it");
        }
        self.firewall(firewall, &key.at("firewall"));
        self.firewall_argument(sid, firewall, key);
    }

    /// Without room for the argument, rules would take their action from bits that are not one.
    fn firewall_argument(&mut self, sid: &Sid, firewall: &str, key: &KeyPath) {
        let Some((found, true)) = self.firewalls.get(firewall).copied() else { return };
        let (length, bits) = (sid.sid.prefix_len(), found.argument_length);
        if u32::from(length) + u32::from(bits) > 128 {
            let message = format!(
                "rules of the firewall {firewall:?} read an argument of {bits} bits (seg6-eval-args), which go beyond an address \
                 behind a SID of length {length}"
            );
            let remedy =
                "write the SID with a shorter length, such as /64, or a smaller `argument_length` of the firewall";
            self.error(&key.at("sid"), message, remedy);
        }
    }

    pub(super) fn sid_next_hop(&mut self, sid: &Sid, key: &KeyPath) {
        let needs = needs(sid.behaviour);
        self.function_address(sid, key);
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
        // A label says nothing of addresses.
        if let Some(is_ipv4) = needs.next_hop_is_ipv4.filter(|_| sid.label().is_none())
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
            (true, Behaviour::EndAs | Behaviour::EndAd | Behaviour::EndAm | Behaviour::EndAn) => {}
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
        let allowed = needs(sid.behaviour).flavours;
        if !sid.flavours.is_empty() && allowed.is_empty() {
            let message = format!("{} has no flavours", sid.behaviour.name());
            let remedy = "remove the key: only End, End.X, End.T (RFC 8986 section 4.16) and End.AM have them";
            self.error(&key, message, remedy);
        }
        for (position, flavour) in sid.flavours.iter().enumerate() {
            if sid.flavours[..position].contains(flavour) {
                self.error(&key.at(position), "this flavour is there twice", "remove one");
            }
            if !allowed.is_empty() && !allowed.contains(flavour) {
                let message = format!("{} has no flavour {}", sid.behaviour.name(), flavour.name());
                let names: Vec<&str> = allowed.iter().map(|flavour| flavour.name()).collect();
                self.error(&key.at(position), message, format!("choose among {}, or remove it", names.join(", ")));
            }
        }
    }

    fn sid_policy(&mut self, sid: &Sid, name: &str, key: &KeyPath) {
        let Some(policy) = self.policy(name, key) else { return };
        let wanted = match sid.behaviour {
            Behaviour::EndB6Encaps => HeadendMode::HEncaps,
            Behaviour::EndBm => HeadendMode::Push,
            _ => HeadendMode::HEncapsRed,
        };
        if policy.mode != wanted {
            let message = format!(
                "{} needs a policy of mode {}, and {name:?} is of {}",
                sid.behaviour.name(),
                wanted.name(),
                policy.mode.name()
            );
            self.error(key, message, format!("give the policy `mode: {}`, or change the behaviour", wanted.name()));
        } else if policy.pseudowire.is_some() {
            let message = format!("the policy {name:?} carries Ethernet frames, and packets come to a SID");
            self.error(key, message, "name another policy, or remove its `pseudowire`");
        }
        let lists = policy.segment_lists.iter();
        if lists.filter_map(|list| list.segments.first()).any(|first| sid.sid.contains(first)) {
            let message =
                format!("the policy {name:?} leads back to this SID: packets would be encapsulated again and again");
            self.error(key, message, "let its segment lists begin with another SID");
        }
    }
}
