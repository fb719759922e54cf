//! One function that is watched: what is known about it, and what becomes of its probes. Pure; the monitor acts on it.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use segue_api::function::{FunctionReport, LinkReport, ProbeReport};
use segue_model::node::OnFailure;
use serde::Serialize;

use super::{
    config::Watched,
    journal::Entry,
    machine::{Machine, State, Time},
};

/// A probe that has not been answered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    /// Its number.
    pub cycle: u32,
    /// When it was sent.
    pub sent: Time,
    /// Packets without an answer, by bit.
    pub open: u32,
    /// Packets that wait for a neighbour before they can be sent, by bit.
    pub waiting: u32,
}

/// A function.
#[derive(Debug)]
pub struct Function {
    /// What was configured.
    pub watched: Arc<Watched>,
    /// Whether it is up.
    pub machine: Machine,
    /// Why.
    pub reason: String,
    /// Since when, by the clock on the wall.
    pub since: SystemTime,
    /// The next probe is due.
    pub next_send: Time,
    /// The probe under way.
    pub running: Option<Running>,
    /// When the monitor will look at it again because a hold time ends.
    pub hold_timer: Option<Time>,
    /// How often it changed under agents before this one.
    earlier_changes: u64,
    last: String,
    round_trip: Option<Duration>,
    answered: u64,
    failed: u64,
}

impl Function {
    /// A function that is new to this agent; `entry` is what earlier ones knew, `down` what the data plane says.
    pub fn new(watched: Watched, down: bool, entry: Option<Entry>, now: Time) -> Self {
        let (state, reason) = if down {
            (State::Down, "was down before the agent started, and has not proven to be up")
        } else {
            (State::Up, "nothing speaks against it yet")
        };
        let since = entry.filter(|entry| entry.down == down).map(|entry| Duration::from_millis(entry.since_ms));
        Self {
            machine: Machine::new(watched.settings, state, now),
            watched: Arc::new(watched),
            reason: reason.to_owned(),
            since: since.and_then(|since| UNIX_EPOCH.checked_add(since)).unwrap_or_else(SystemTime::now),
            next_send: now,
            running: None,
            hold_timer: None,
            earlier_changes: entry.map_or(0, |entry| entry.changes),
            last: String::new(),
            round_trip: None,
            answered: 0,
            failed: 0,
        }
    }

    /// Goes on under another configuration.
    pub fn reconfigure(&mut self, watched: Watched, now: Time) {
        let plan = |watched: &Watched| watched.probe.as_ref().map(|probe| probe.legs.clone());
        if plan(&self.watched) != plan(&watched) {
            self.running = None;
            self.next_send = now;
        }
        self.machine.reconfigure(watched.settings);
        self.watched = Arc::new(watched);
    }

    /// Whether it is down.
    pub fn down(&self) -> bool {
        self.machine.state() == State::Down
    }

    /// Whether a change of its life changes kernel routes.
    pub fn withdraws(&self) -> bool {
        self.watched.sids.iter().any(|sid| sid.on_failure == OnFailure::Withdraw)
    }

    /// Its interfaces, as an operator names them.
    pub fn name(&self) -> String {
        self.watched.ports.join("/")
    }

    /// Notes what became of a probe; the text says why it failed. Returns the new state if it changed.
    pub fn probed(&mut self, result: Result<Duration, &str>, now: Time) -> Option<State> {
        self.running = None;
        match result {
            Ok(round_trip) => {
                self.answered += 1;
                self.round_trip = Some(round_trip);
                "answered".clone_into(&mut self.last);
            }
            Err(why) => {
                self.failed += 1;
                self.round_trip = None;
                why.clone_into(&mut self.last);
            }
        }
        let changed = self.machine.set_probe(result.is_ok(), now)?;
        self.reason = match changed {
            State::Down => format!("{} probes in a row failed: {}", self.machine.failures(), self.last),
            State::Up => self.proof(),
        };
        Some(changed)
    }

    /// Notes that no probe was sent, which says nothing about the function.
    pub fn not_probed(&mut self, why: String) {
        self.running = None;
        self.round_trip = None;
        self.last = why;
    }

    /// Notes whether each of its links is up. Returns the new state if it changed.
    pub fn linked(&mut self, up: [bool; 2], now: Time) -> Option<State> {
        let all = up[0] && up[1];
        if !all && self.watched.settings.link {
            self.running = None;
        }
        let changed = self.machine.set_link(all, now)?;
        self.reason = match changed {
            State::Down => {
                let mut down: Vec<&str> = Vec::new();
                for (name, up) in self.watched.ports.iter().zip(up) {
                    if !up && !down.contains(&name.as_str()) {
                        down.push(name);
                    }
                }
                format!("link down or gone: {}", down.join(", "))
            }
            State::Up => self.proof(),
        };
        Some(changed)
    }

    /// Time has passed. Returns the new state if it changed.
    pub fn tick(&mut self, now: Time) -> Option<State> {
        let changed = self.machine.tick(now)?;
        self.reason = self.proof();
        Some(changed)
    }

    fn proof(&self) -> String {
        let settings = self.watched.settings;
        let link = settings.link.then(|| "links up".to_owned());
        let probe = settings.probe.then(|| format!("{} probes in a row answered", self.machine.successes()));
        link.into_iter().chain(probe).collect::<Vec<_>>().join(", ")
    }

    /// How often it changed.
    pub fn changes(&self) -> u64 {
        self.earlier_changes + self.machine.changes()
    }

    /// What the next agent is to know.
    pub fn entry(&self) -> Entry {
        Entry { down: self.down(), since_ms: milliseconds(self.since), changes: self.changes() }
    }

    /// What operators are told is made of this.
    pub fn glance(&self, link_up: impl Fn(&str) -> bool) -> Glance {
        Glance {
            watched: Arc::clone(&self.watched),
            up: self.watched.ports.each_ref().map(|name| link_up(name)),
            down: self.down(),
            reason: self.reason.clone(),
            since: self.since,
            changes: self.changes(),
            last: self.last.clone(),
            round_trip: self.round_trip,
            answered: self.answered,
            failed: self.failed,
            hold: self.machine.hold(),
        }
    }
}

/// A function at one moment. Taking it is cheap: the thread that watches has to go on.
#[derive(Debug)]
pub struct Glance {
    watched: Arc<Watched>,
    up: [bool; 2],
    down: bool,
    reason: String,
    since: SystemTime,
    changes: u64,
    last: String,
    round_trip: Option<Duration>,
    answered: u64,
    failed: u64,
    hold: Duration,
}

impl Glance {
    /// What operators are told, one for each SID.
    pub fn reports(&self) -> Vec<FunctionReport> {
        let link = |side: usize| LinkReport { name: self.watched.ports[side].clone(), up: self.up[side] };
        let for_ms = SystemTime::now().duration_since(self.since).unwrap_or_default();
        let report = |sid: &super::config::WatchedSid| FunctionReport {
            sid: shown(sid.sid),
            behaviour: sid.behaviour.to_owned(),
            to_function: link(0),
            from_function: link(1),
            state: if self.down { "down" } else { "up" }.to_owned(),
            reason: self.reason.clone(),
            since_ms: milliseconds(self.since),
            for_ms: for_ms.as_millis() as u64,
            changes: self.changes,
            on_failure: name_of(&sid.on_failure),
            backup: sid.backup.clone(),
            probe: self.watched.probe.as_ref().map(|probe| ProbeReport {
                kind: probe.kind.clone(),
                last: self.last.clone(),
                round_trip_us: self.round_trip.map(|time| time.as_micros() as u64),
                answered: self.answered,
                failed: self.failed,
            }),
            hold_ms: self.hold.as_millis() as u64,
            instance: None,
            vf: None,
            comment: sid.comment.clone(),
            owner: sid.owner.clone(),
        };
        self.watched.sids.iter().map(report).collect()
    }
}

fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// A whole address without its length, or a label, as operators write it.
fn shown(prefix: ipnet::Ipv6Net) -> String {
    segue_model::service_label::sid_or_label(&prefix)
}

/// A value of the model by the name that an operator writes.
pub fn name_of<T: Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
