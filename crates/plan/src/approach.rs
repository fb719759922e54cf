//! How a node gives packets to a function and gets them back: the one place that chooses, and says why.
//!
//! A function in netfilter is served by End.AN.NF, a firewall of the node by its own End.AN, one that understands Segment Routing by
//! End.AN. For all others a proxy stands in: the one that the operator names, or, if none is named, the first of these that serves it:
//!
//! | wanted | chosen | if the function |
//! |---|---|---|
//! | for one chain that visits it once | static (End.AS) | - |
//! | for several chains, for several visits, as a backup | exact (End.AD by packet) | is on the kernel's path, and makes no packets |
//! | | dynamic by flow (End.AD by flow) | neither rewrites flows nor makes packets |
//! | | static, for each chain with interfaces of its own | is none of these; a second visit of one chain, and a backup, are refused then |
//!
//! What each proxy cannot serve, whoever chooses it (`Nature::unfit`):
//!
//! | proxy | rewrites flows | makes packets | not on the kernel's path |
//! |---|---|---|---|
//! | static, dynamic | | | |
//! | dynamic by flow | no | no | |
//! | exact | | no | no |
//! | masquerading | no | no | |
//! | End.AN.NF | | no | no |
//! | End.AN | only with `may_rewrite: [addresses]` | the same | |
//!
//! Where labels steer packets the same holds, but for masquerading, which needs a segment routing header and is refused, and for functions that
//! understand Segment Routing: they see the stack, have to be on TAP, and change nothing of it (`leads::refusal`).
//!
//! A packet service of Segue says itself what it does: one that rewrites flows or makes packets gets `may_rewrite: [addresses]`.
//!
//! docs/using/proxies.md has the reasons.

use indexmap::IndexMap;

use segue_model::error::{KeyPath, Report};
use segue_model::proxy::MayRewrite;
use segue_model::topology::{Capabilities, Chain, FunctionKind, ProxyChoice};

use crate::inventory::{Function, Inventory};

/// How a node gives packets to a function and gets them back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approach {
    /// End.AS.
    Static,
    /// End.AD by interface.
    Dynamic,
    /// End.AD by flow.
    Flow,
    /// End.AD by packet.
    Exact,
    /// End.AM.
    Masquerading,
    /// End.AN.
    Aware,
    /// End.AN.NF.
    Netfilter,
    /// End.AN in the node's own data plane.
    Firewall,
}

impl Approach {
    /// Whether one instance with one pair of interfaces serves any number of chains.
    pub fn is_shared(self) -> bool {
        !matches!(self, Self::Static | Self::Dynamic)
    }

    /// Whether one chain can visit the function twice: packets of the two visits must tell themselves apart. What is remembered by flow
    /// does not: headers of End.AD by flow, stacks of SR-aware functions.
    pub fn allows_two_visits(self, by_labels: bool) -> bool {
        self.is_shared() && self != Self::Flow && !(by_labels && self == Self::Aware)
    }

    fn of_choice(choice: ProxyChoice) -> Option<Self> {
        match choice {
            ProxyChoice::Auto => None,
            ProxyChoice::Static => Some(Self::Static),
            ProxyChoice::Dynamic => Some(Self::Dynamic),
            ProxyChoice::DynamicFlow => Some(Self::Flow),
            ProxyChoice::Exact => Some(Self::Exact),
            ProxyChoice::Masquerading => Some(Self::Masquerading),
        }
    }
}

/// Proxies by the names that operators give them.
const PROXIES: [(&str, Approach); 5] = [
    ("static", Approach::Static),
    ("dynamic", Approach::Dynamic),
    ("dynamic-flow", Approach::Flow),
    ("exact", Approach::Exact),
    ("masquerading", Approach::Masquerading),
];

/// What of a function the choice looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nature {
    /// What it runs in.
    pub kind: FunctionKind,
    /// Whether it understands Segment Routing.
    pub aware: bool,
    /// Aware: whether it may rewrite addresses.
    pub may_rewrite_addresses: bool,
    /// What is known of what it does to packets.
    pub capabilities: Capabilities,
    /// What the operator wants.
    pub proxy: ProxyChoice,
}

/// Who needs a function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Visits<'a> {
    /// Chains that visit it, and how often each does.
    pub chains: Vec<(&'a str, usize)>,
    /// Another function has it for a backup.
    pub is_backup: bool,
}

impl<'a> Visits<'a> {
    /// What chains, and functions with these backups, need of the function with a name.
    pub fn of(
        name: &str,
        chains: impl IntoIterator<Item = (&'a String, &'a Chain)>,
        backups: impl IntoIterator<Item = &'a String>,
    ) -> Self {
        let visits = |chain: &Chain| chain.via.iter().filter(|stop| *stop == name).count();
        let chains = chains.into_iter().map(|(chain, definition)| (chain.as_str(), visits(definition)));
        Self {
            chains: chains.filter(|(_, count)| *count > 0).collect(),
            is_backup: backups.into_iter().any(|backup| backup == name),
        }
    }

    /// Why a proxy for one visit of one chain would not do. None: it does.
    fn need_to_share(&self) -> Option<String> {
        if self.is_backup {
            return Some("it is a backup, whatever chain needs it".to_owned());
        }
        match self.chains.as_slice() {
            [_, _, ..] => Some(format!("{} chains visit it", self.chains.len())),
            [(chain, 2..)] => Some(format!("the chain {chain} visits it more than once")),
            _ => None,
        }
    }
}

/// How packets get to a function and back, and what decided it.
pub fn choose(nature: &Nature, visits: &Visits<'_>) -> (Approach, String) {
    let fixed = match nature.kind {
        FunctionKind::Firewall => Some((Approach::Firewall, "it has the key `firewall`")),
        FunctionKind::Netfilter => Some((Approach::Netfilter, "it is of kind netfilter")),
        FunctionKind::Service => Some((Approach::Aware, "it is a packet service of Segue")),
        _ if nature.aware => Some((Approach::Aware, "it is `aware: true`")),
        _ => Approach::of_choice(nature.proxy).map(|approach| (approach, "the topology says so")),
    };
    if let Some((approach, why)) = fixed {
        return (approach, why.to_owned());
    }
    let Some(need) = visits.need_to_share() else {
        return (Approach::Static, "one chain visits it, so that the rest of the list is known".to_owned());
    };
    if nature.fits(Approach::Exact) {
        return (Approach::Exact, need);
    }
    if nature.fits(Approach::Flow) {
        let place = match nature.kind {
            FunctionKind::Tap => "it is on TAP, where the exact proxy does not work",
            _ => "it is not on the kernel's path, off which the exact proxy does not work",
        };
        return (Approach::Flow, format!("{need}, and {place}"));
    }
    let why = format!("{need}, but it {}; so each chain has interfaces of its own", nature.obstacles());
    (Approach::Static, why)
}

/// How packets get to each function of an inventory and back, and what decided it.
pub(crate) fn all(inventory: &Inventory) -> IndexMap<&str, (Approach, String)> {
    let choice = |(name, function): (&'_ String, &Function)| {
        let backups = inventory.functions.values().filter_map(|other| other.backup.as_ref());
        choose(&Nature::of(function), &Visits::of(name, &inventory.chains, backups))
    };
    inventory.functions.iter().map(|entry| (entry.0.as_str(), choice(entry))).collect()
}

impl Nature {
    /// That of a function of an inventory.
    pub fn of(function: &Function) -> Self {
        Self {
            kind: function.kind,
            aware: function.aware,
            may_rewrite_addresses: function.may_rewrite().contains(&MayRewrite::Addresses),
            capabilities: function.capabilities,
            proxy: function.proxy,
        }
    }

    fn is_on_kernel_path(&self) -> bool {
        // What the exact proxy puts on the kernel's packets does not go through a TAP device.
        !matches!(self.kind, FunctionKind::Tap | FunctionKind::Service) && self.capabilities.kernel_path != Some(false)
    }

    /// Whether this approach can serve it.
    pub fn fits(&self, approach: Approach) -> bool {
        self.unfit(approach).is_none()
    }

    /// Which capability keeps this approach from serving it, and why.
    fn unfit(&self, approach: Approach) -> Option<(&'static str, &'static str)> {
        let Capabilities { rewrites_flows, makes_packets, .. } = self.capabilities;
        let (rewritten, made, moved) = match approach {
            Approach::Static | Approach::Dynamic | Approach::Firewall => return None,
            Approach::Flow => (
                Some(
                    "the dynamic proxy by flow finds no header for a packet that came back as another flow, and drops it",
                ),
                Some(
                    "the dynamic proxy by flow has no header for packets that never went to the function, and drops them",
                ),
                None,
            ),
            Approach::Exact => (
                None,
                Some(
                    "the exact proxy leaves packets that the function makes to the node's kernel, which knows no chain",
                ),
                Some(
                    "the exact proxy needs a function on the kernel's path: a program that reads packets and writes others makes \
                     new ones, to which no header belongs",
                ),
            ),
            Approach::Masquerading => (
                Some(
                    "the masquerading proxy shows the function the outer packet, whose destination is a SID, and drops one that \
                     comes back with another",
                ),
                Some(
                    "the masquerading proxy drops packets whose list was never sent to the function, or that have none",
                ),
                None,
            ),
            Approach::Netfilter => (
                None,
                Some("what a function in netfilter makes itself, the node's kernel routes, which knows no chain"),
                Some("netfilter is on the kernel's path"),
            ),
            Approach::Aware if self.may_rewrite_addresses => return None,
            Approach::Aware => (
                Some("End.AN drops packets that come back as another flow, unless the function may rewrite addresses"),
                Some("End.AN drops packets that the function was not sent, unless it may rewrite addresses"),
                None,
            ),
        };
        let of = |key, applies: bool, why: Option<&'static str>| why.filter(|_| applies).map(|why| (key, why));
        of("rewrites_flows", rewrites_flows, rewritten)
            .or_else(|| of("makes_packets", makes_packets, made))
            .or_else(|| of("kernel_path", !self.is_on_kernel_path(), moved))
    }

    /// What keeps proxies that chains can share from serving it, as the end of a sentence about it.
    fn obstacles(&self) -> String {
        let Capabilities { rewrites_flows, makes_packets, .. } = self.capabilities;
        let place = if self.kind == FunctionKind::Tap { "is on TAP" } else { "is not on the kernel's path" };
        let all = [
            (!makes_packets && !self.is_on_kernel_path(), place),
            (!makes_packets && rewrites_flows, "rewrites flows"),
            (makes_packets, "makes packets of its own, for which a proxy that chains share has no header"),
        ];
        let named: Vec<&str> = all.into_iter().filter_map(|(applies, words)| applies.then_some(words)).collect();
        named.join(" and ")
    }

    /// What to do with a function whose proxy serves one chain, and that any chain may need.
    pub(crate) fn remedy_for_backup(&self) -> String {
        match [("exact", Approach::Exact), ("dynamic-flow", Approach::Flow)].iter().find(|(_, one)| self.fits(*one)) {
            Some((name, _)) => format!("give it `proxy: {name}`, or another that chains can share"),
            None => format!("name another function: this one {}", self.obstacles()),
        }
    }

    /// What to do with a function that one chain visits twice, and whose proxy cannot tell the visits apart.
    pub(crate) fn remedy_for_visits(&self, by_labels: bool) -> String {
        if self.fits(Approach::Exact) {
            "give the function `proxy: exact` (or none: it is chosen then), or add a second function".to_owned()
        } else if self.fits(Approach::Masquerading) && !by_labels {
            "add a second function, or give this one `proxy: masquerading`".to_owned()
        } else {
            format!("add a second function: this one {}", self.obstacles())
        }
    }

    /// The names of the proxies that can serve it.
    pub(crate) fn fitting_proxies(&self, by_labels: bool) -> String {
        let fits = |proxy: Approach| self.fits(proxy) && !(by_labels && proxy == Approach::Masquerading);
        let fitting: Vec<&str> = PROXIES.iter().filter(|(_, proxy)| fits(*proxy)).map(|(name, _)| *name).collect();
        fitting.join(", ")
    }

    /// Whether what is wanted of the function and what is known of it go together.
    pub(crate) fn check(&self, by_labels: bool, key: &KeyPath, report: &mut Report) {
        let capabilities = key.at("capabilities");
        if self.kind == FunctionKind::Tap && self.capabilities.kernel_path == Some(true) {
            let message = "what goes through a TAP device leaves the kernel's path: whoever is behind it gets frames";
            let remedy = "write `namespace` or `netfilter` instead of `tap`, or remove the key";
            report.error(&capabilities.at("kernel_path"), message, remedy);
        }
        let (approach, _) = choose(self, &Visits::default());
        let Some((capability, why)) = self.unfit(approach) else { return };
        let known = match capability {
            "kernel_path" if self.kind == FunctionKind::Tap => "the function is on TAP".to_owned(),
            "kernel_path" => "the function has `kernel_path: false`".to_owned(),
            other => format!("the function has `{other}: true`"),
        };
        let message = format!("{known}: {why}");
        match approach {
            Approach::Aware => {
                let remedy = match by_labels {
                    true => "remove the key, or `aware`: a proxy stands in for it then",
                    false => {
                        "add `may_rewrite: [addresses]`, if what it sends keeps a list that was sent to it; or remove the key"
                    }
                };
                report.error(&capabilities.at(capability), message, remedy);
            }
            Approach::Netfilter => {
                let remedy = "write `namespace` instead of `netfilter`, or remove the key";
                report.error(&capabilities.at(capability), message, remedy);
            }
            _ => {
                let others = self.fitting_proxies(by_labels);
                let remedy = format!("write one of them: {others}; or remove the key, and the planner chooses");
                report.error(&key.at("proxy"), message, remedy);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nature(kind: FunctionKind, capabilities: Capabilities) -> Nature {
        Nature { kind, aware: false, may_rewrite_addresses: false, capabilities, proxy: ProxyChoice::Auto }
    }

    fn all_capabilities() -> Vec<Capabilities> {
        let mut all = Vec::new();
        for kernel_path in [None, Some(true), Some(false)] {
            for (rewrites_flows, makes_packets) in [(false, false), (true, false), (false, true), (true, true)] {
                all.push(Capabilities { rewrites_flows, makes_packets, kernel_path });
            }
        }
        all
    }

    fn once() -> Visits<'static> {
        Visits { chains: vec![("c", 1)], is_backup: false }
    }

    fn shared() -> [Visits<'static>; 3] {
        [
            Visits { chains: vec![("c", 1), ("d", 1)], is_backup: false },
            Visits { chains: vec![("c", 2)], is_backup: false },
            Visits { chains: Vec::new(), is_backup: true },
        ]
    }

    #[test]
    fn one_visit_of_one_chain_takes_the_static_proxy_whatever_is_known() {
        for kind in [FunctionKind::Namespace, FunctionKind::Tap] {
            for capabilities in all_capabilities() {
                assert_eq!(choose(&nature(kind, capabilities), &once()).0, Approach::Static, "{capabilities:?}");
            }
        }
    }

    /// The table at the head of this file, written a second time.
    #[test]
    fn what_is_shared_is_chosen_by_capabilities() {
        for visits in shared() {
            for capabilities in all_capabilities() {
                let Capabilities { rewrites_flows, makes_packets, kernel_path } = capabilities;
                for kind in [FunctionKind::Namespace, FunctionKind::Tap] {
                    let kernel = kind == FunctionKind::Namespace && kernel_path != Some(false);
                    let wanted = match (kernel, rewrites_flows, makes_packets) {
                        (_, _, true) | (false, true, _) => Approach::Static,
                        (true, _, false) => Approach::Exact,
                        (false, false, false) => Approach::Flow,
                    };
                    let (chosen, why) = choose(&nature(kind, capabilities), &visits);
                    assert_eq!(chosen, wanted, "{kind:?} {capabilities:?} {visits:?}: {why}");
                    assert_eq!(chosen == Approach::Static, why.contains("interfaces of its own"), "{why}");
                }
            }
        }
    }

    #[test]
    fn reasons_name_what_decided() {
        let visits = &shared()[0];
        let rewrites = Capabilities { rewrites_flows: true, ..Capabilities::default() };
        let makes = Capabilities { makes_packets: true, ..Capabilities::default() };
        let user_space = Capabilities { kernel_path: Some(false), ..Capabilities::default() };
        for (kind, capabilities, wanted) in [
            (FunctionKind::Namespace, Capabilities::default(), "2 chains visit it"),
            (
                FunctionKind::Tap,
                Capabilities::default(),
                "2 chains visit it, and it is on TAP, where the exact proxy does not work",
            ),
            (
                FunctionKind::Namespace,
                user_space,
                "2 chains visit it, and it is not on the kernel's path, off which the exact proxy does not work",
            ),
            (
                FunctionKind::Tap,
                rewrites,
                "2 chains visit it, but it is on TAP and rewrites flows; so each chain has interfaces of its own",
            ),
            (
                FunctionKind::Namespace,
                makes,
                "2 chains visit it, but it makes packets of its own, for which a proxy that chains share has no header; so each \
                 chain has interfaces of its own",
            ),
        ] {
            assert_eq!(choose(&nature(kind, capabilities), visits).1, wanted);
        }
    }

    /// Whatever the planner chooses by itself, it would not refuse from an operator.
    #[test]
    fn the_choice_always_fits() {
        for kind in [FunctionKind::Namespace, FunctionKind::Tap] {
            for capabilities in all_capabilities() {
                for visits in shared().iter().chain([&once()]) {
                    let nature = nature(kind, capabilities);
                    let (approach, why) = choose(&nature, visits);
                    assert!(nature.fits(approach), "{kind:?} {capabilities:?} {visits:?}: {why}");
                }
            }
        }
    }
}
