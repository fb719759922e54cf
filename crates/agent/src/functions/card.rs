//! What there is of the network card of a function, and what a node's end says of its virtual function.

use std::collections::{BTreeMap, HashSet};
use std::sync::{LazyLock, Mutex, PoisonError};

use segue_host::Namespace;
use segue_host::link::{Link, LinkSocket, Tag};
use segue_host::sriov::{Card, CardSocket, Settings};
use segue_model::node::{NodeFunction, NodeState, VirtualFunction, VirtualFunctions};
use segue_model::wiring::Wiring;

use super::place::Place;
use super::{ALIAS, alias};
use crate::kernel::KernelError;

/// In an alias, in front of what is said of the virtual function.
const VF: &str = " vf ";

/// How often somebody else has changed what a card enforces on a virtual function, by its place on the bus, and what he did last.
pub(super) static CHANGED: LazyLock<Mutex<BTreeMap<String, (u64, String)>>> = LazyLock::new(Mutex::default);

/// Counts such a change.
pub(super) fn changed_by_another(address: &str, differences: String) {
    let mut changed = CHANGED.lock().unwrap_or_else(PoisonError::into_inner);
    let (times, last) = changed.entry(address.to_owned()).or_default();
    *times += 1;
    *last = differences;
}

/// One of the two.
pub(super) struct Side<'a> {
    pub wanted: &'a VirtualFunction,
    /// The node's end.
    pub near: &'a str,
    /// What the function calls its own.
    pub far: &'static str,
    /// The function's link-layer address.
    pub mac: [u8; 6],
}

pub(super) fn sides<'a>(wiring: &'a Wiring, vf: &'a VirtualFunctions) -> [Side<'a>; 2] {
    [
        Side { wanted: &vf.west, near: &wiring.node_west, far: Wiring::WEST, mac: wiring.west_mac.octets() },
        Side { wanted: &vf.east, near: &wiring.node_east, far: Wiring::EAST, mac: wiring.east_mac.octets() },
    ]
}

impl Side<'_> {
    /// What the card is to enforce; what nobody has asked for is as it is.
    pub(super) fn settings(&self, now: &Settings) -> Settings {
        Settings {
            mac: self.mac,
            vlan: self.wanted.vlan,
            spoof_check: self.wanted.spoof_check.unwrap_or(now.spoof_check),
            trust: self.wanted.trust.unwrap_or(now.trust),
            min_rate: self.wanted.min_rate.unwrap_or_default(),
            max_rate: self.wanted.max_rate.unwrap_or_default(),
        }
    }
}

/// A virtual function that a node's end has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    /// Where on the bus it is.
    pub address: String,
    /// What its interface is called on the node.
    pub called: String,
    /// What the card enforced on it before.
    pub before: Settings,
}

impl Given {
    pub(super) fn written(&self, wiring: &Wiring, place: &Place) -> String {
        format!("{}{VF}{} {} {}", alias(wiring, place), self.address, self.called, self.before)
    }

    /// What an alias says.
    pub(super) fn read(alias: &str) -> Option<Self> {
        let mut words = alias.strip_prefix(ALIAS)?.rsplit_once(VF)?.1.split(' ');
        let (address, called, before) = (words.next()?, words.next()?, words.next()?);
        Some(Self { address: address.to_owned(), called: called.to_owned(), before: before.parse().ok()? })
    }
}

/// How aliases of the node's ends begin.
pub(super) fn begins(wiring: &Wiring, function: &NodeFunction) -> String {
    format!("{}{VF}", alias(wiring, &Place::of(function)))
}

/// What is there of a function: its card, what carries its VLANs, its namespace.
pub(super) struct Seen {
    pub card: Card,
    pub carrier: Link,
    pub namespace: Option<Namespace>,
    /// Interfaces of the node, and of the function's namespace.
    pub here: Vec<Link>,
    pub there: Vec<Link>,
}

impl Seen {
    /// None if the card is not there, or what carries its VLANs.
    pub(super) fn look(
        links: &mut LinkSocket,
        cards: &mut CardSocket,
        function: &NodeFunction,
        vf: &VirtualFunctions,
    ) -> Result<Option<Self>, KernelError> {
        let (Some(card), Some(carrier)) = (cards.find(&vf.device)?, links.find(vf.carrier())?) else { return Ok(None) };
        let namespace = Place::of(function).find()?;
        let there = namespace.as_ref().map(|namespace| namespace.inside(|| LinkSocket::open()?.all()));
        let there = there.transpose()?.transpose()?.unwrap_or_default();
        Ok(Some(Self { card, carrier, namespace, here: links.all()?, there }))
    }

    /// What a node's end has, if it is as it should be.
    pub(super) fn given(&self, side: &Side<'_>, begins: &str) -> Option<Given> {
        let link = self.here.iter().find(|link| link.name == side.near && link.alias.starts_with(begins))?;
        let given = Given::read(&link.alias)?;
        let number = self.card.number(&given.address)?;
        let is_wanted = side.wanted.number.is_none_or(|wanted| wanted == number) && link.tag() == Some(self.tag(side));
        is_wanted.then_some(given)
    }

    /// Whether a function that the state does not have has virtual functions still, which will be free.
    pub(super) fn is_left_over(&self, state: &NodeState) -> bool {
        let ends: HashSet<String> =
            state.attached().flat_map(|(wiring, _)| [wiring.node_west, wiring.node_east]).collect();
        self.here.iter().any(|link| Given::read(&link.alias).is_some() && !ends.contains(&link.name))
    }

    pub(super) fn tag(&self, side: &Side<'_>) -> Tag {
        Tag { lower: self.carrier.index(), id: side.wanted.vlan }
    }

    /// The number of a virtual function for a side that has none yet: the one it asks for, or the first one that nobody has.
    pub(super) fn choose(&self, side: &Side<'_>, state: &NodeState) -> Option<u32> {
        if let Some(number) = side.wanted.number {
            // Its interface comes with its driver.
            let address = self.card.address(number)?;
            let is_seen = at(&self.here, &address).or(at(&self.there, &address)).is_some();
            return is_seen.then_some(number);
        }
        let asked: HashSet<u32> = numbers(state, &self.card.name).collect();
        let given: HashSet<String> =
            self.here.iter().filter_map(|link| Some(Given::read(&link.alias)?.address)).collect();
        (0..self.card.count()).filter(|number| !asked.contains(number)).find(|number| {
            let Some(address) = self.card.address(*number).filter(|address| !given.contains(address)) else {
                return false;
            };
            // One that is up is in use here; one that is elsewhere, there.
            at(&self.here, &address).is_some_and(|link| !link.is_up())
        })
    }
}

/// The numbers that a state asks of a card.
fn numbers<'a>(state: &'a NodeState, card: &'a str) -> impl Iterator<Item = u32> + 'a {
    let all = state.functions.values().filter_map(|function| function.vf.as_ref()).filter(move |vf| vf.device == card);
    all.flat_map(|vf| [vf.west.number, vf.east.number]).flatten()
}

/// The interface of the device that is there on the bus.
pub(super) fn at<'a>(links: &'a [Link], address: &str) -> Option<&'a Link> {
    links.iter().find(|link| link.parent() == Some(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_end_has_is_read_as_it_is_written() {
        let wiring = Wiring::of_function("fw");
        let before = Settings { vlan: 7, max_rate: 100, ..Settings::default() };
        let given = Given { address: "0000:01:10.0".into(), called: "enp1s0f0v0".into(), before };
        for place in [Place::Netns("fw".into()), Place::Container("c.1".into())] {
            let alias = given.written(&wiring, &place);
            assert_eq!(Given::read(&alias), Some(given.clone()));
            let (_, rest) = alias.strip_prefix(ALIAS).unwrap().split_once(' ').unwrap();
            assert_eq!(Place::read(rest), Some(place));
        }
        // The longest that there may be fits an alias of 255 octets.
        let longest = Wiring::of_function(&"n".repeat(63));
        assert!(given.written(&longest, &Place::Container("c".repeat(63))).len() < 255);
        for other in ["segue function fw netns fw", "segue function fw netns fw vf 0000:01:10.0 e", "x vf a b 1,2", ""]
        {
            assert_eq!(Given::read(other), None, "{other}");
        }
    }

    #[test]
    fn what_nobody_asks_for_stays_as_the_card_has_it() {
        let wanted = VirtualFunction { vlan: 101, trust: Some(true), max_rate: Some(5), ..VirtualFunction::default() };
        let side = Side { wanted: &wanted, near: "fnw-fw", far: Wiring::WEST, mac: [2, 0, 0, 0, 0, 1] };
        let now = Settings { spoof_check: false, min_rate: 9, vlan: 3, ..Settings::default() };
        let settings = side.settings(&now);
        assert_eq!((settings.spoof_check, settings.trust), (false, true));
        assert_eq!((settings.vlan, settings.min_rate, settings.max_rate, settings.mac[5]), (101, 0, 5, 1));
    }

    #[test]
    fn sids_lead_to_the_address_that_the_card_enforces() {
        let mac = "02:00:5e:00:00:03";
        let state: NodeState = serde_json::from_value(serde_json::json!({"node": "n", "source_address": "fc00::1",
            "functions": {"fw": {"netns": "a", "vf": {"device": "e", "west": {"vlan": 1}, "east": {"vlan": 2, "mac": mac}}}},
            "sids": [
                {"sid": "fc00:1::", "behaviour": "End.AM", "proxy": {"function": "fw"}},
                {"sid": "fc00:2::", "behaviour": "End.AM", "proxy": {"function": "fw", "direction": "reverse"}},
            ],
        }))
        .unwrap();
        let state = state.written_out();
        let (wiring, function) = state.attached().next().unwrap();
        let sides = sides(&wiring, function.vf.as_ref().unwrap());
        for (sid, side) in state.sids.iter().zip(&sides) {
            assert_eq!(sid.function_mac().unwrap().octets(), side.mac);
            assert_eq!(sid.function_ports().unwrap().0, side.near);
        }
        assert_eq!(state.sids[1].function_mac().unwrap().to_string(), mac);
    }

    #[test]
    fn numbers_are_those_of_the_card() {
        let state: NodeState = serde_json::from_value(serde_json::json!({"node": "n", "source_address": "fc00::1", "functions": {
            "a": {"netns": "a", "vf": {"device": "e", "west": {"vlan": 1, "number": 3}, "east": {"vlan": 2}}},
            "b": {"netns": "b", "vf": {"device": "f", "west": {"vlan": 1, "number": 4}, "east": {"vlan": 2, "number": 5}}},
        }}))
        .unwrap();
        assert_eq!(numbers(&state, "e").collect::<Vec<_>>(), [3]);
        assert_eq!(numbers(&state, "f").collect::<Vec<_>>(), [4, 5]);
    }
}
