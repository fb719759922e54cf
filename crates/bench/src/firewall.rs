//! The scenarios `firewall-*`: Segue's firewall on steered and on plain packets, beside ip6tables and nft on plain packets, over the
//! number of rules. Rules and forms of packets are those of "SERA: SEgment Routing Aware Firewall for Service Function Chaining
//! scenarios" (Abdelsalam and others, 2018), section VI.

use std::time::Duration;

use serde_json::{Value, json};

use crate::contest::{self, Effort, mpps, target};
use crate::cpu::Pinned;
use crate::error::{Error, Result};
use crate::firewall_rules::{self as rules, Compared, Last};
use crate::frame::{self, ETHERNET, Packet, Steering};
use crate::interrupt;
use crate::lane::Lane;
use crate::netns::Namespace;
use crate::plot_rules::Curve;
use crate::report::{Peer, Report};
use crate::scenario::Arrival;
use crate::segue::Node;
use crate::stats::Summary;
use crate::topology::{
    HEADEND, INNER_DESTINATION, INNER_SOURCE, NEXT_SID, OUT_ADDRESS, OUT_MAC, SID, SINK_MAC, Topology,
};
use crate::traffic::{Settings, Traffic};

const TTL: u8 = 64;
/// Numbers of rules that are measured unless the user says otherwise: the paper's, and two more.
pub const RULES: [usize; 12] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 4096, 10_000];
/// Most rules.
pub const RULES_MAX: usize = 100_000;
/// Frames that the last rule must have counted, each of them, before anything is timed.
const VERIFIED: u32 = 4096;
/// Least frames of a run: what a slow engine may still hold at its end must not count.
const LEAST: u32 = 4096;

/// What packets are like, and which of their addresses rules compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Packets without segment routing, in by a port with a firewall.
    Plain,
    /// Behind an outer header, at a SID; rules compare the inner packet's addresses.
    BasicEncap,
    /// With an inserted SRH, at a SID; rules compare source and last segment.
    BasicInsert,
    /// Behind an outer header; rules compare outer and inner addresses.
    AdvancedEncap,
    /// With an inserted SRH; rules compare outer and inner addresses.
    AdvancedInsert,
}

/// Who filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Segue, packets of this form.
    Segue(Form),
    /// The same, always with one rule.
    OneRule(Form),
    /// `ip6tables-legacy`, plain packets that the kernel forwards.
    Ip6tables,
    /// `nft`, one rule a line, plain packets that the kernel forwards.
    Nft,
}

impl Form {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Plain, Self::BasicEncap, Self::BasicInsert, Self::AdvancedEncap, Self::AdvancedInsert];

    /// Its scenario's name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "firewall-plain",
            Self::BasicEncap => "firewall-basic-encap",
            Self::BasicInsert => "firewall-basic-insert",
            Self::AdvancedEncap => "firewall-advanced-encap",
            Self::AdvancedInsert => "firewall-advanced-insert",
        }
    }

    fn compared(self) -> Compared {
        match self {
            Self::Plain | Self::BasicEncap | Self::BasicInsert => Compared::Two,
            Self::AdvancedEncap => Compared::ENCAPSULATED,
            Self::AdvancedInsert => Compared::INSERTED,
        }
    }

    /// The packet, before the firewall (`left` 1) or behind it (0).
    fn packet(self, octets: usize, left: usize) -> Packet {
        let hop_limit = if left == 0 { TTL - 1 } else { TTL };
        match self {
            Self::Plain => frame::udp_over_ipv6(INNER_SOURCE, INNER_DESTINATION, hop_limit, octets),
            Self::BasicEncap | Self::AdvancedEncap => frame::encapsulated(
                frame::udp_over_ipv6(INNER_SOURCE, INNER_DESTINATION, TTL, octets),
                &Steering { source: HEADEND, segments: &[SID, NEXT_SID], left, hop_limit, reduced: false },
            ),
            Self::BasicInsert | Self::AdvancedInsert => {
                let inner = frame::udp_over_ipv6(INNER_SOURCE, INNER_DESTINATION, hop_limit, octets);
                frame::inserted(inner, &[SID], left)
            }
        }
    }

    fn arrival(self, octets: usize) -> Arrival {
        let packet = self.packet(octets, 0);
        let frame = packet.frame(SINK_MAC, OUT_MAC);
        let mut mask = vec![0xff; frame.len()];
        let (port, balance) = (ETHERNET + packet.port, ETHERNET + packet.balance);
        mask[port..port + 2].fill(0);
        mask[balance..balance + 2].fill(0);
        Arrival { frame, mask, port, balance, chains: [0; 2] }
    }

    fn node_state(self, count: usize, last: Last) -> Value {
        let advanced = matches!(self, Self::AdvancedEncap | Self::AdvancedInsert);
        let mut state = json!({
            "node": "bench",
            "source_address": OUT_ADDRESS,
            "ports": [{"name": "in", "role": "core"}, {"name": "out", "role": "core"}],
            "firewalls": [{
                "name": "rules",
                "ipv6": {"file": "rules.v6", "text": rules::save(count, self.compared(), last)},
                "mode": if advanced { "advanced" } else { "basic" },
            }],
        });
        if self == Self::Plain {
            state["ports"][0]["firewall"] = json!("rules");
        } else {
            state["sids"] = json!([{"sid": SID, "behaviour": "End.AN", "firewall": "rules"}]);
        }
        state
    }
}

impl Engine {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Segue(Form::Plain) => "segue, plain packets",
            Self::Segue(_) => "segue",
            Self::OneRule(_) => "segue, one rule",
            Self::Ip6tables => "ip6tables-legacy",
            Self::Nft => "nft",
        }
    }

    fn form(self) -> Form {
        match self {
            Self::Segue(form) | Self::OneRule(form) => form,
            Self::Ip6tables | Self::Nft => Form::Plain,
        }
    }
}

/// One measurement's circumstances.
#[derive(Debug, Clone)]
pub struct Course {
    /// What Segue filters.
    pub form: Form,
    /// What the last rule does.
    pub last: Last,
    /// Octets of the inner or plain packet.
    pub octets: usize,
    /// Numbers of rules.
    pub rules: Vec<usize>,
}

/// Packets of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Given to the first link.
    pub sent: u64,
    /// Dropped by the last rule; or, if it accepts, arrived.
    pub done: u64,
    /// Of these, per second.
    pub rate: f64,
}

/// An engine with rules.
#[derive(Debug)]
pub struct Filter {
    lane: Lane,
    engine: Engine,
    last: Last,
    count: usize,
}

impl Filter {
    /// Sets up topology, engine, generator and sink, with one rule.
    ///
    /// # Errors
    /// If any of it cannot be set up; nothing stays behind.
    pub fn open(engine: Engine, course: &Course, flows: u32) -> Result<Self> {
        let (form, octets) = (engine.form(), course.octets);
        let topology = Topology::build(match engine {
            Engine::Segue(Form::Plain) => "fw-plain",
            Engine::Segue(_) => "fw-segue",
            Engine::OneRule(_) => "fw-one",
            Engine::Ip6tables => "fw-ip6tables",
            Engine::Nft => "fw-nft",
        })?;
        let settings = Settings { flows, ..Settings::default() };
        let traffic = Traffic::start(&topology, &form.packet(octets, 1), &form.arrival(octets), settings)?;
        let node = match engine {
            Engine::Segue(form) | Engine::OneRule(form) => {
                Some(Node::start(&topology.node, form.node_state(1, course.last))?)
            }
            Engine::Ip6tables | Engine::Nft => {
                topology.enable_gro()?;
                None
            }
        };
        let what = format!("{}, {}", course.form.name(), engine.name());
        let lane = Lane::alone(node, traffic, topology, what);
        let mut filter = Self { lane, engine, last: course.last, count: 1 };
        filter.lay(1)?;
        Ok(filter)
    }

    /// Replaces the rules, and makes sure that each packet gets to the last one.
    ///
    /// # Errors
    /// If the engine refuses them, or packets do not get there.
    pub fn lay(&mut self, count: usize) -> Result<()> {
        interrupt::check()?;
        let count = if matches!(self.engine, Engine::OneRule(_)) { 1 } else { count };
        self.count = count;
        let last = self.last;
        match self.engine {
            Engine::Segue(form) | Engine::OneRule(form) => {
                if let Some((node, namespace)) = self.lane.node() {
                    node.apply(namespace, form.node_state(count, last))?;
                }
            }
            Engine::Ip6tables => rules::lay_ip6tables(self.namespace(), count, last)?,
            Engine::Nft => rules::lay_nft(self.namespace(), count, last)?,
        }
        let before = self.counted()?;
        let sent = match last {
            Last::Drop => self.lane.pour(VERIFIED)?.0,
            Last::Accept => self.lane.verify(VERIFIED)?.sent,
        };
        let counted = self.counted()? - before;
        if counted == sent {
            return Ok(());
        }
        let drops = self.lane.drops();
        Err(self.lane.not_done(format!("the last of {count} rules counted {counted} of {sent} packets{drops}")))
    }

    /// Where it filters.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.lane.topology().node
    }

    /// Packets that the last rule has counted since the rules were laid.
    fn counted(&mut self) -> Result<u64> {
        match self.engine {
            Engine::Segue(_) | Engine::OneRule(_) => self.lane.node().map_or(Ok(0), |(node, _)| node.last_rule()),
            Engine::Ip6tables => rules::counted_by_ip6tables(self.namespace(), self.count),
            Engine::Nft => rules::counted_by_nft(self.namespace()),
        }
    }

    /// Sends `packets` frames as fast as the engine takes them.
    ///
    /// # Errors
    /// If the generator cannot run, or the engine does nothing.
    pub fn run(&mut self, packets: u32) -> Result<Run> {
        if self.last == Last::Accept {
            let run = self.lane.saturate(packets)?;
            return Ok(Run { sent: run.sent, done: run.received, rate: run.rate });
        }
        let before = self.counted()?;
        let (sent, time) = self.lane.pour(packets)?;
        let done = self.counted()?.saturating_sub(before);
        if done == 0 {
            return Err(self.lane.not_done(format!("no packet met the last of {} rules", self.count)));
        }
        Ok(Run { sent, done, rate: done as f64 / time.as_secs_f64() })
    }

    /// Frames of a run of this length.
    fn fitting(&mut self, time: Duration) -> Result<u32> {
        // The first run warms up, the second one is long enough for an estimate.
        let rough = self.run(LEAST)?.rate;
        let rate = self.run(((rough * 0.05) as u32).max(LEAST))?.rate;
        Ok(((rate * time.as_secs_f64()) as u32).max(LEAST))
    }
}

/// What an engine did with one number of rules.
#[derive(Debug, Clone, Copy)]
struct Tally {
    rate: Summary,
    sent: u64,
    lost: u64,
}

fn alternate(filters: &mut [Filter], effort: &Effort) -> Result<Vec<Tally>> {
    let packets = filters.iter_mut().map(|filter| filter.fitting(effort.run)).collect::<Result<Vec<_>>>()?;
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); filters.len()];
    for round in 0..effort.rounds {
        let mut order: Vec<usize> = (0..filters.len()).collect();
        // As in every comparison: no engine always runs behind the same other one.
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            runs[index].push(filters[index].run(packets[index])?);
        }
    }
    let tally = |runs: Vec<Run>| {
        let rates: Vec<f64> = runs.iter().map(|run| run.rate).collect();
        let rate = Summary::of(&rates).ok_or_else(|| Error::Usage("--rounds must be at least 1".into()))?;
        let sent = runs.iter().map(|run| run.sent).sum();
        Ok(Tally { rate, sent, lost: runs.iter().map(|run| run.sent.saturating_sub(run.done)).sum() })
    };
    runs.into_iter().map(tally).collect()
}

/// Reports of a scenario, and what is drawn of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// One for each number of rules and peer.
    pub reports: Vec<Report>,
    /// One for each engine.
    pub curves: Vec<Curve>,
}

/// Measures one form of packets over all numbers of rules. `done` is told of each report as soon as it is there.
///
/// # Errors
/// If an engine cannot be set up, refuses rules, or lets packets past the last rule.
pub fn run(course: &Course, effort: &Effort, pinned: &Pinned, mut done: impl FnMut(&Report)) -> Result<Found> {
    if let Some(count) = course.rules.iter().find(|count| !(1..=RULES_MAX).contains(*count)) {
        return Err(Error::Usage(format!("--rules {count}: 1 to {RULES_MAX} rules can be measured")));
    }
    let mut engines = vec![Engine::Segue(course.form), Engine::Ip6tables, Engine::Nft, Engine::OneRule(course.form)];
    if course.form != Form::Plain {
        engines.push(Engine::Segue(Form::Plain));
    }
    let mut filters =
        engines.iter().map(|engine| Filter::open(*engine, course, effort.flows)).collect::<Result<Vec<_>>>()?;
    let mut found = Found::default();
    found.curves.extend(engines.iter().map(|engine| Curve { name: engine.name().into(), points: Vec::new() }));
    for count in &course.rules {
        for filter in &mut filters {
            filter.lay(*count)?;
        }
        let tallies = alternate(&mut filters, effort)?;
        for (curve, tally) in found.curves.iter_mut().zip(&tallies) {
            curve.points.push((*count, tally.rate));
        }
        for (engine, theirs) in engines.iter().zip(&tallies).skip(1) {
            let report = report(course, *count, (*engine, &tallies[0], theirs), effort, pinned);
            done(&report);
            found.reports.push(report);
        }
    }
    Ok(found)
}

/// What the project has set itself, where this point is one of them.
fn required(course: &Course, count: usize, engine: Engine, ratio: f64) -> Option<String> {
    let (what, least) = match (course.form, count, engine) {
        (Form::Plain, 1, Engine::Ip6tables) => ("ratio to ip6tables", 2.0),
        (Form::BasicEncap, 1, Engine::Segue(_)) => ("ratio to our own plain packets", 0.95),
        (_, 512, Engine::OneRule(_)) => ("ratio to our own rate at one rule", 0.9),
        (_, 4096, Engine::Nft) => ("ratio to nft", 50.0),
        _ => return None,
    };
    Some(target(what, ratio, least))
}

fn report(
    course: &Course,
    count: usize,
    (engine, ours, theirs): (Engine, &Tally, &Tally),
    effort: &Effort,
    pinned: &Pinned,
) -> Report {
    let ratio = ours.rate.median / theirs.rate.median;
    let mut notes: Vec<String> = required(course, count, engine, ratio).into_iter().collect();
    notes.push(match course.last {
        Last::Drop => format!("{} rules that do not match, then one that drops; its counter is the rate", count - 1),
        Last::Accept => {
            format!("{} rules that do not match, then one that accepts; counted where they arrive", count - 1)
        }
    });
    notes.push(format!(
        "inner packet {} octets; segue: frames of {}, {}: frames of {} octets",
        course.octets,
        ETHERNET + course.form.packet(course.octets, 1).octets.len(),
        engine.name(),
        ETHERNET + engine.form().packet(course.octets, 1).octets.len()
    ));
    notes.push(format!(
        "segue {}, {} of {} lost; {} {}, {} of {} lost",
        mpps(&ours.rate),
        ours.lost,
        ours.sent,
        engine.name(),
        mpps(&theirs.rate),
        theirs.lost,
        theirs.sent
    ));
    notes.push(contest::conditions(effort, pinned));
    Report {
        scenario: format!("{}/{count} rules/{}", course.form.name(), engine.name()),
        unit: "packets/s".into(),
        ours: ours.rate,
        peer: Some(Peer { name: engine.name().into(), rate: theirs.rate }),
        ratio: Some(ratio),
        packets_lost: ours.lost,
        notes,
        size: course.octets,
        limit: None,
    }
}
