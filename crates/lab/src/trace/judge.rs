//! What became of a probe, from what was seen and counted. Pure.

use segue_wiring::{Interface, LabPlan};

use super::blame::{Changed, changed, handed_over};
use super::counters::{Counters, Station, dropped, moved, passed};
use super::event::{Direction, Event, Flow, Hop, Trace, Verdict, What};
use super::passages::{agree, hops, order};
use super::probe::Mark;

/// A chain's name, and its stations besides the hosts, in order.
pub type WayOfChain = (String, Vec<String>);

/// All that is known of a probe.
pub struct Evidence<'a> {
    /// What should be.
    pub plan: &'a LabPlan,
    /// The chain and its stations besides the hosts, in order, if one was asked for.
    pub chain: Option<WayOfChain>,
    /// The probe.
    pub flow: Flow,
    /// Its mark.
    pub mark: Mark,
    /// What was seen.
    pub events: Vec<Event>,
    /// Counters before it was sent.
    pub before: Counters,
    /// Counters when all was quiet again.
    pub after: Counters,
    /// Interfaces that are down, as `station:interface`.
    pub down: Vec<String>,
    /// Why the host's kernel did not send it.
    pub unsent: Option<String>,
    /// What could not be observed.
    pub blind: Vec<String>,
}

/// The station that is to blame, and why.
struct Finding {
    verdict: Verdict,
    station: String,
    reason: String,
    text: String,
    look_at: Vec<String>,
}

/// The verdict.
#[must_use]
pub fn judge(mut evidence: Evidence<'_>) -> Trace {
    order(&mut evidence.events, evidence.plan);
    agree(&mut evidence.events);
    let mut hops = hops(&evidence.events);
    for hop in &mut hops {
        // Nobody else has a data plane that could have done it.
        hop.by_kernel &= evidence.plan.nodes.get(&hop.station).is_some_and(|node| node.state.is_some());
    }
    let finding = evidence.find(&hops);
    let errors = evidence.errors();
    let Finding { verdict, station, reason, text, look_at } = finding;
    let Evidence { chain, flow, blind, .. } = evidence;
    let chain = chain.map(|(name, _)| name);
    let (simulation, differs) = (None, None);
    Trace { chain, flow, verdict, station, reason, text, look_at, hops, errors, blind, simulation, differs }
}

impl Evidence<'_> {
    fn find(&self, hops: &[Hop]) -> Finding {
        if let Some(why) = &self.unsent {
            let from = &self.flow.from;
            return Finding {
                verdict: Verdict::NotSent,
                station: from.clone(),
                reason: "not_sent".into(),
                text: format!("the kernel of {from} did not send it: {why}"),
                look_at: vec![
                    self.exec(from, &format!("ip route get {}", self.flow.destination)),
                    self.exec(from, "ip link"),
                ],
            };
        }
        let Some(last) = self.last() else { return self.never_seen() };
        if let Some(arrived) = self.arrival() {
            return self.arrived(arrived, hops);
        }
        if let Some(changed) = changed(&self.events, self.plan) {
            return self.changed(changed);
        }
        match last.direction {
            Direction::In => self.vanished_at(last),
            Direction::Out => self.vanished_behind(last),
        }
    }

    fn last(&self) -> Option<&Event> {
        self.events.iter().rfind(|event| event.what == What::Probe)
    }

    /// Where the destination's host took it; or, if the destination is none of a host, that it was answered.
    fn arrival(&self) -> Option<&Event> {
        let has =
            |interface: &Interface| interface.addresses.iter().any(|address| address.addr() == self.flow.destination);
        match self.plan.hosts.iter().find(|(_, host)| has(&host.interface)) {
            Some((name, _)) => self
                .events
                .iter()
                .find(|event| event.what == What::Probe && event.station == *name && event.direction == Direction::In),
            None => self.events.iter().rfind(|event| {
                event.what == What::Reply && event.station == self.flow.from && event.direction == Direction::In
            }),
        }
    }

    fn arrived(&self, event: &Event, hops: &[Hop]) -> Finding {
        let station = event.station.clone();
        if event.what == What::Probe && event.steered {
            return Finding {
                verdict: Verdict::Leaked,
                text: format!("it arrived at {station} with a steering header: {}", event.headers),
                look_at: vec![
                    "the last node of the segment list: its SID is to take the header off (`segue get sids`)".into(),
                ],
                reason: "leaked".into(),
                station,
            };
        }
        if let Some((chain, stations)) = &self.chain {
            let mut left = hops.iter().map(|hop| &hop.station);
            // Where nobody watches it may have been.
            let is_watched = |name: &&String| !self.blind.iter().any(|blind| blind.starts_with(&format!("{name}: ")));
            let mut wanted = stations.iter().filter(is_watched);
            if let Some(missed) = wanted.find(|wanted| !left.any(|station| station == *wanted)) {
                return self.not_by_the_chain(chain, missed, hops);
            }
        }
        let text = format!("it arrived at {station}");
        Finding { verdict: Verdict::Delivered, station, reason: "arrived".into(), text, look_at: Vec::new() }
    }

    fn not_by_the_chain(&self, chain: &str, missed: &str, hops: &[Hop]) -> Finding {
        let steered = self.events.iter().find(|event| event.what == What::Probe && event.steered);
        let headend = hops.iter().map(|hop| &hop.station).find(|station| self.plan.nodes.contains_key(*station));
        let (station, reason, text) = match (steered, headend) {
            (None, Some(headend)) => {
                let text = format!(
                    "it arrived, but {headend} put no steering header on: no steering rule took it into chain {chain}"
                );
                (headend.clone(), "not_steered", text)
            }
            _ => {
                let with = steered.map_or("", |event| event.headers.as_str());
                (
                    missed.to_owned(),
                    "not_visited",
                    format!("it arrived, but not by way of {missed} as chain {chain} wants; it had {with}"),
                )
            }
        };
        let look_at = vec![
            self.segue(&station, "get steering"),
            self.segue(&station, "get policies"),
            format!("segue lab plan: how {chain} should go"),
        ];
        Finding { verdict: Verdict::NotByTheChain, station, reason: reason.into(), text, look_at }
    }

    fn never_seen(&self) -> Finding {
        let from = &self.flow.from;
        Finding {
            verdict: Verdict::Vanished,
            station: from.clone(),
            reason: "kernel".into(),
            text: format!("it was sent, and no interface of {from} carried it{}", self.kernel_words(from)),
            look_at: vec![
                self.exec(from, &format!("ip route get {}", self.flow.destination)),
                self.exec(from, "ip neigh"),
                self.exec(from, "nft list ruleset"),
            ],
        }
    }

    /// A function gave back another packet, which did not arrive.
    fn changed(&self, changed: Changed) -> Finding {
        let Changed { function, got, gave } = changed;
        Finding {
            verdict: Verdict::Vanished,
            text: format!("it did not arrive, and {function} had made another packet of it: {got} became {gave}"),
            look_at: vec![self.exec(&function, "nft list ruleset"), self.exec(&function, "conntrack -L")],
            station: function,
            reason: "function_changed".into(),
        }
    }

    /// It came in, and nothing went out.
    fn vanished_at(&self, event: &Event) -> Finding {
        let station = event.station.clone();
        let (before, after) = (
            self.before.get(&station).cloned().unwrap_or_default(),
            self.after.get(&station).cloned().unwrap_or_default(),
        );
        let vanished = |reason: &str, text: String, look_at: Vec<String>| Finding {
            verdict: Verdict::Vanished,
            station: station.clone(),
            reason: reason.to_owned(),
            text,
            look_at,
        };
        let drops = dropped(&before, &after, &self.mark);
        let own = drops.iter().find(|drop| drop.is_probe).or_else(|| drops.iter().find(|drop| drop.port == event.port));
        if let Some(drop) = own {
            let sure = if drop.is_probe {
                ""
            } else {
                " (by its counter; the last such packet's octets are another's or too few)"
            };
            return vanished(
                &drop.reason,
                format!("{station} dropped it as {}, in by {}: {}{sure}", drop.reason, drop.port, drop.text),
                vec![
                    self.segue(&station, "drops"),
                    format!("docs/using/troubleshooting.md says what to do about {}", drop.reason),
                ],
            );
        }
        if let Some(sid) = self.missing_sid(event) {
            let text = format!("{station} has no SID {sid}, which lies in its own locator");
            return vanished(
                "no_sid",
                text,
                vec![self.segue(&station, "get sids"), format!("segue lab labels {}", self.plan.name)],
            );
        }
        if handed_over(&before, &after, &event.port) {
            let text = format!("{station} gave it to a function, in by {}, which did not give it back", event.port);
            let look_at = vec![self.segue(&station, "get sids"), self.exec(&station, "ip netns")];
            return vanished("function", text, look_at);
        }
        if self.plan.nodes.contains_key(&station) {
            let given = passed(&before, &after, &event.port);
            let given: Vec<String> =
                given.into_iter().take(1).map(|(outcome, text)| format!("{outcome}: {text}")).collect();
            let down = way_is_down(self.plan, self.chain.as_ref(), self.flow.destination, &self.down, &station);
            if let Some(interface) = down {
                let text = format!("{station} did not send it on: its way leads by {interface}, and that link is down");
                return vanished(
                    "link_down",
                    text,
                    vec![self.exec(&station, "ip link"), self.exec(&station, "ip -6 route")],
                );
            }
            let reason = given.first().and_then(|words| words.split(':').next()).unwrap_or("kernel").to_owned();
            let why = if given.is_empty() {
                String::new()
            } else {
                format!(", which the data plane had given it ({})", given.join("; "))
            };
            let words = self.kernel_words(&station);
            let text = format!("the kernel of {station} did not send it on{why}{words}");
            let look_at = vec![
                self.exec(&station, "ip -6 route"),
                self.exec(&station, "ip neigh"),
                self.segue(&station, "get outcomes"),
            ];
            return vanished(&reason, text, look_at);
        }
        let words = self.kernel_words(&station);
        let rules = moved(&before.rules, &after.rules);
        let rules = if rules.is_empty() { String::new() } else { format!("; its rules counted {}", rules.join(", ")) };
        vanished(
            "function",
            format!("{station} took it in by {} and did not send it on{words}{rules}", event.port),
            vec![
                self.exec(&station, "nft list ruleset"),
                self.exec(&station, "ip route"),
                self.exec(&station, "sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding"),
            ],
        )
    }

    /// The active segment of a packet that the node did not send on, where it is one of the node's own.
    fn missing_sid(&self, event: &Event) -> Option<std::net::Ipv6Addr> {
        let locator = self.plan.nodes.get(&event.station)?.locator;
        let behind = event.headers.split(" > ").nth(1)?;
        let active: std::net::Ipv6Addr = behind.split([',', ' ']).next()?.parse().ok()?;
        let has = |station: &Station| station.sids.iter().any(|sid| sid.contains(&active));
        let has = self.after.get(&event.station).is_some_and(has);
        (locator.contains(&active) && !has).then_some(active)
    }

    /// It went out, and did not arrive at the other end.
    fn vanished_behind(&self, event: &Event) -> Finding {
        let peer = self.plan.links().into_iter().find_map(|ends| {
            let at =
                ends.iter().position(|(name, interface)| *name == event.station && interface.name == event.port)?;
            let (name, interface) = ends[1 - at];
            Some((name.to_owned(), interface.clone()))
        });
        let Some((there, interface)) = peer else {
            return Finding {
                verdict: Verdict::Vanished,
                station: event.station.clone(),
                reason: "lost_on_link".into(),
                text: format!("it left {} by {}, and was seen nowhere else", event.station, event.port),
                look_at: vec![self.exec(&event.station, "ip -s link")],
            };
        };
        let link = format!("{} - {there}", event.station);
        let names = [format!("{}:{}", event.station, event.port), format!("{there}:{}", interface.name)];
        let down = names.iter().find(|name| self.down.contains(name));
        let (reason, text, look_at) = match (down, &interface.impaired) {
            (Some(name), _) => (
                "link_down",
                format!("it left {} by {}, and the link to {there} is down: {name}", event.station, event.port),
                vec![self.exec(&event.station, "ip link"), self.exec(&there, "ip link")],
            ),
            (None, Some(impaired)) if impaired.loss_percent > 0.0 => (
                "link_impaired",
                format!(
                    "the link from {} to {there} lost it, as `impaired` says it does with {} % of packets",
                    event.station, impaired.loss_percent
                ),
                vec!["`impaired` of the link in the topology; trace again".to_owned()],
            ),
            _ => (
                "lost_on_link",
                format!(
                    "it left {} by {}, and did not come in at {there} by {}",
                    event.station, event.port, interface.name
                ),
                vec![
                    self.exec(&there, &format!("ip -s link show {}", interface.name)),
                    self.exec(&there, &format!("ethtool -k {}", interface.name)),
                ],
            ),
        };
        Finding { verdict: Verdict::Vanished, station: link, reason: reason.into(), text, look_at }
    }

    /// What the kernel of a station counted as errors meanwhile, as the end of a sentence.
    fn kernel_words(&self, station: &str) -> String {
        let of = |counters: &Counters| counters.get(station).map(|station| station.kernel.clone()).unwrap_or_default();
        let moved = moved(&of(&self.before), &of(&self.after));
        if moved.is_empty() { String::new() } else { format!("; it counted {}", moved.join(", ")) }
    }

    /// Each error once, where it was seen first. Those that a data plane makes are seen only where they arrive.
    fn errors(&self) -> Vec<String> {
        let mut seen: Vec<&str> = Vec::new();
        let mut errors = Vec::new();
        for event in self.events.iter().filter(|event| event.what == What::Error) {
            if !seen.contains(&event.headers.as_str()) {
                seen.push(&event.headers);
                errors.push(format!("{} (seen at {})", event.headers, event.station));
            }
        }
        errors
    }

    fn exec(&self, station: &str, command: &str) -> String {
        format!("segue lab exec {} {station} -- {command}", self.plan.name)
    }

    fn segue(&self, station: &str, command: &str) -> String {
        format!("segue --lab {} --node {station} {command}", self.plan.name)
    }
}

/// The interface by which a node should reach the destination, or a node of the chain, if it is down and no other leads there.
pub(super) fn way_is_down(
    plan: &LabPlan,
    chain: Option<&WayOfChain>,
    destination: std::net::IpAddr,
    down: &[String],
    station: &str,
) -> Option<String> {
    let node = plan.nodes.get(station)?;
    let of_chain = chain.iter().flat_map(|(_, stations)| stations).filter(|name| *name != station);
    let targets = of_chain.filter_map(|name| Some(std::net::IpAddr::from(plan.nodes.get(name)?.loopback)));
    targets.chain([destination]).find_map(|target| {
        let routes = node.routes.iter().filter(|route| route.encap.is_none() && route.destination.contains(&target));
        let route = routes.max_by_key(|route| route.destination.prefix_len())?;
        let is_down = |interface: &String| down.contains(&format!("{station}:{interface}"));
        let all = route.next_hops.iter().all(|hop| is_down(&hop.interface));
        all.then(|| route.next_hops.first().map(|hop| hop.interface.clone())).flatten()
    })
}
