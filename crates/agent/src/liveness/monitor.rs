//! The thread that watches: it waits for the kernel's notifications, for answers to probes and for time to pass, all at once
//! and for nothing else, so that none of them holds up the others. What it finds goes into the data plane right away.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap},
    hash::{BuildHasher, Hasher, RandomState},
    io,
    sync::{Arc, mpsc},
    time::{Instant, SystemTime},
};

use ipnet::Ipv6Net;
use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
    eventfd::{EfdFlags, EventFd},
};
use segue_dataplane::Life;
use segue_model::node::OnFailure;
use tokio::sync::oneshot;

use super::{
    config::Watched,
    function::{Function, Glance, Running, name_of},
    journal::Entries,
    links::Links,
    machine::{State, Time},
    probe::{Answer, Prober, Token, Unsent},
};

const LINKS: u64 = 0;
const WAKE: u64 = 1;
const PROBES: u64 = 16;
/// Events that are taken from the kernel at once.
const EVENTS: usize = 256;
/// After the notifications failed.
const RETRY: Time = Time::from_secs(1);

/// What the monitor is asked.
pub enum Command {
    /// Watch these from now on.
    Configure(Vec<Watched>),
    /// Tell what is known.
    Report(oneshot::Sender<Vec<Glance>>),
}

/// What the rest of the agent is told about changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// What has been done already, in the order in which it was.
    pub changes: Vec<Change>,
    /// SIDs of functions that went down.
    pub went_down: BTreeSet<Ipv6Net>,
    /// Kernel routes of SIDs must go or come back.
    pub routes: Routes,
    /// What the next agent is to know.
    pub entries: News,
}

/// What is to be known that was not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// These, and nothing else any more.
    All(Entries),
    /// These beside what was known: of thousands of functions few change at a time.
    Of(Entries),
}

impl Default for News {
    fn default() -> Self {
        Self::Of(Entries::new())
    }
}

impl News {
    /// Adds what is newer.
    pub fn add(&mut self, newer: Self) {
        match (self, newer) {
            (Self::All(entries) | Self::Of(entries), Self::Of(newer)) => entries.extend(newer),
            (all, newer @ Self::All(_)) => *all = newer,
        }
    }

    /// Brings what was known up to date.
    pub fn update(self, known: &mut Entries) {
        match self {
            Self::All(entries) => *known = entries,
            Self::Of(entries) => known.extend(entries),
        }
    }
}

impl Notice {
    /// Adds what happened later, to be acted on together.
    pub fn add(&mut self, later: Self) {
        self.changes.extend(later.changes);
        self.went_down.extend(later.went_down);
        match (&mut self.routes, later.routes) {
            (Routes::Of(sids), Routes::Of(later)) => sids.extend(later),
            (routes, _) => *routes = Routes::All,
        }
        self.entries.add(later.entries);
    }
}

/// Which routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Routes {
    /// Those of these SIDs; perhaps none.
    Of(BTreeSet<Ipv6Net>),
    /// Any may not be as it should be.
    All,
}

impl Default for Routes {
    fn default() -> Self {
        Self::Of(BTreeSet::new())
    }
}

/// A function that went down or came up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its interfaces.
    pub function: String,
    /// Whether it is down now.
    pub down: bool,
    /// Why.
    pub reason: String,
    /// The first SID that leads to it.
    pub sid: String,
    /// How many lead to it.
    pub sids: usize,
    /// What they do while it is down.
    pub on_failure: String,
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Send,
    /// The probe of this number should have been answered.
    Answer(u32),
    Hold,
}

/// Reaches the monitor from other threads.
#[derive(Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    wake: Arc<EventFd>,
}

impl Handle {
    /// Sends a command; the monitor takes it up as soon as it is through with what it is at.
    pub fn send(&self, command: Command) {
        // A monitor that has ended has logged why.
        let _ = self.commands.send(command);
        let _ = self.wake.write(1);
    }
}

/// The state of the thread.
pub struct Monitor<N> {
    epoll: Arc<Epoll>,
    wake: Arc<EventFd>,
    commands: mpsc::Receiver<Command>,
    links: Links,
    prober: Prober,
    functions: BTreeMap<u32, Function>,
    by_port: BTreeMap<String, BTreeSet<u32>>,
    due: BinaryHeap<Reverse<(Time, u32, Due)>>,
    next_slot: u32,
    cycle: u32,
    life: Life,
    /// What agents before this one knew, of functions that have not been configured yet.
    earlier: Entries,
    saved: Entries,
    notify: N,
    changes: Vec<Change>,
    went_down: BTreeSet<Ipv6Net>,
    dirty: bool,
    routes: Routes,
    /// What is known since it was told last; none: all has to be told anew.
    news: Option<Entries>,
    /// What the data plane is to be told of, once for all that is found in a turn.
    lives: Vec<(Ipv6Net, bool)>,
    origin: Instant,
}

impl<N: FnMut(Notice)> Monitor<N> {
    /// Opens all that it needs in the calling thread's network namespace.
    pub fn open(life: Life, earlier: Entries, notify: N) -> io::Result<(Self, Handle)> {
        let epoll = Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?);
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        epoll.add(&*wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        let links = Links::open()?;
        epoll.add(&links, EpollEvent::new(EpollFlags::EPOLLIN, LINKS))?;
        let (sender, commands) = mpsc::channel();
        let handle = Handle { commands: sender, wake: wake.clone() };
        // Nobody must be able to foresee it: who knows it could answer for a failed function.
        let nonce = RandomState::new().build_hasher().finish() as u32;
        let monitor = Self {
            prober: Prober::new(epoll.clone(), PROBES, nonce),
            epoll,
            wake,
            commands,
            links,
            functions: BTreeMap::new(),
            by_port: BTreeMap::new(),
            due: BinaryHeap::new(),
            next_slot: 0,
            cycle: 0,
            life,
            saved: earlier.clone(),
            earlier,
            notify,
            changes: Vec::new(),
            went_down: BTreeSet::new(),
            dirty: false,
            routes: Routes::default(),
            news: Some(Entries::new()),
            lives: Vec::new(),
            origin: Instant::now(),
        };
        Ok((monitor, handle))
    }

    /// Watches until the process ends.
    pub fn run(mut self) {
        let mut events = [EpollEvent::empty(); EVENTS];
        let mut answers = Vec::new();
        loop {
            let count = match self.epoll.wait(&mut events, self.patience()) {
                Ok(count) => count,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "watching functions: waiting for events");
                    std::thread::sleep(RETRY);
                    continue;
                }
            };
            let ready: BTreeSet<u64> = events[..count].iter().map(EpollEvent::data).collect();
            // Links first: what they say holds at once. Answers before the clock: one that has come has not failed.
            if ready.contains(&LINKS) {
                self.links_changed();
            }
            if ready.contains(&WAKE) {
                self.obey();
            }
            for number in ready.into_iter().filter(|number| *number >= PROBES) {
                let now = self.now();
                self.prober.receive(number, now, &mut answers);
                answers.drain(..).for_each(|answer| self.answered(answer));
            }
            self.work_off();
            self.act();
            self.tell();
        }
    }

    fn now(&self) -> Time {
        self.origin.elapsed()
    }

    /// How long nothing is due.
    fn patience(&self) -> EpollTimeout {
        let Some(Reverse((next, ..))) = self.due.peek() else { return EpollTimeout::NONE };
        let left = next.saturating_sub(self.now());
        // Rounded up: to wake up just before it is due would be to wake up twice.
        EpollTimeout::try_from(left + Time::from_micros(999)).unwrap_or(EpollTimeout::MAX)
    }

    fn obey(&mut self) {
        let _ = self.wake.read();
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Configure(watched) => self.configure(watched),
                Command::Report(sender) => {
                    // Who is told that a function is down may rely on its SIDs to do what they were told.
                    self.act();
                    let up = |name: &str| self.links.up(name) == Some(true);
                    let _ = sender.send(self.functions.values().map(|function| function.glance(up)).collect());
                }
            }
        }
    }

    fn configure(&mut self, watched: Vec<Watched>) {
        let now = self.now();
        let down = self.life.down();
        let legs_before = self.legs();
        let mut before = std::mem::take(&mut self.functions);
        let mut fresh = Vec::new();
        let by_key: HashMap<String, u32> =
            before.iter().map(|(slot, function)| (function.watched.key.clone(), *slot)).collect();
        for watched in watched {
            match by_key.get(&watched.key).copied() {
                Some(slot) => {
                    let Some(mut function) = before.remove(&slot) else { continue };
                    let again = function.next_send;
                    function.reconfigure(watched, now);
                    if function.next_send != again {
                        self.due.push(Reverse((function.next_send, slot, Due::Send)));
                    }
                    self.functions.insert(slot, function);
                }
                None => fresh.push(watched),
            }
        }
        let by_sid: HashMap<Ipv6Net, u32> = before
            .iter()
            .flat_map(|(slot, function)| function.watched.sids.iter().map(|sid| (sid.sid, *slot)))
            .collect();
        for watched in fresh {
            // The same SID with other settings: what is known about it stays.
            let known = watched.sids.iter().find_map(|sid| before.get(by_sid.get(&sid.sid)?));
            let known = known.map(|function| (function.down(), Some(function.entry())));
            let (is_dead, entry) = known.unwrap_or_else(|| {
                let entry = watched.sids.iter().find_map(|sid| self.earlier.get(&sid.sid)).copied();
                (watched.sids.iter().any(|sid| down.contains(&sid.sid)), entry)
            });
            self.add(Function::new(watched, is_dead, entry, now));
        }
        self.earlier.clear();
        self.index();
        let legs = self.legs();
        if legs != legs_before {
            self.prober.reconfigure(legs.iter());
        }
        self.settle(&down);
        let slots: Vec<u32> = self.functions.keys().copied().collect();
        slots.into_iter().for_each(|slot| self.look_at_links(slot));
        self.news = None;
        self.dirty = true;
    }

    fn add(&mut self, mut function: Function) {
        let slot = self.next_slot;
        self.next_slot = self.next_slot.wrapping_add(1) & 0xff_ffff;
        if let Some(probe) = &function.watched.probe {
            // Spread over the interval, however many there are.
            let part = (u64::from(slot.wrapping_mul(0x9e37_79b9)) * probe.interval.as_micros() as u64) >> 32;
            function.next_send += Time::from_micros(part);
            self.due.push(Reverse((function.next_send, slot, Due::Send)));
        }
        self.functions.insert(slot, function);
    }

    fn index(&mut self) {
        self.by_port.clear();
        for (slot, function) in &self.functions {
            for port in &function.watched.ports {
                self.by_port.entry(port.clone()).or_default().insert(*slot);
            }
        }
    }

    fn legs(&self) -> Vec<super::probe::Leg> {
        let plans = self.functions.values().filter_map(|function| function.watched.probe.as_ref());
        plans.filter_map(|plan| plan.legs.as_ref().ok()).flatten().copied().collect()
    }

    /// The data plane is made to agree: SIDs that joined a failed function, and those that nobody watches any more.
    fn settle(&mut self, down: &BTreeSet<Ipv6Net>) {
        let mut unwatched = down.clone();
        let mut all = Vec::new();
        for function in self.functions.values() {
            for sid in &function.watched.sids {
                unwatched.remove(&sid.sid);
                all.push((sid.sid, function.down()));
            }
        }
        let changes = !unwatched.is_empty();
        match self.life.set_all(all.into_iter().chain(unwatched.into_iter().map(|sid| (sid, false)))) {
            Ok(changed) if !changes && changed.is_empty() => {}
            Ok(_) => self.routes = Routes::All,
            Err(error) => tracing::error!("the life of functions: {error}"),
        }
    }

    /// The data plane is told of all functions that went down or came up in this turn: however many, its caches are dropped once.
    fn act(&mut self) {
        if self.lives.is_empty() {
            return;
        }
        if let Err(error) = self.life.set_all(std::mem::take(&mut self.lives)) {
            tracing::error!("the life of functions: {error}");
        }
    }

    fn links_changed(&mut self) {
        let names = match self.links.read() {
            Ok(names) => names,
            Err(error) => {
                tracing::error!(%error, "notifications about links");
                match Links::open() {
                    // The old socket leaves the epoll instance as it is closed.
                    Ok(links) => self.links = links,
                    Err(error) => tracing::error!(%error, "open a socket for notifications about links"),
                }
                if let Err(error) = self.epoll.add(&self.links, EpollEvent::new(EpollFlags::EPOLLIN, LINKS)) {
                    tracing::error!(%error, "wait for notifications about links");
                }
                return;
            }
        };
        let slots: BTreeSet<u32> = names.iter().filter_map(|name| self.by_port.get(name)).flatten().copied().collect();
        slots.into_iter().for_each(|slot| self.look_at_links(slot));
    }

    fn look_at_links(&mut self, slot: u32) {
        let now = self.now();
        let Some(function) = self.functions.get_mut(&slot) else { return };
        let [Some(out), Some(into)] = function.watched.ports.each_ref().map(|port| self.links.up(port)) else { return };
        if function.machine.link() == Some(out && into) {
            return;
        }
        let changed = function.linked([out, into], now);
        self.prober_ends(slot);
        self.after(slot, changed);
    }

    fn prober_ends(&mut self, slot: u32) {
        if self.functions.get(&slot).is_some_and(|function| function.running.is_none()) {
            self.prober.give_up(slot);
        }
    }

    /// After anything was noted about a function: acts if it changed, and sees to it that the end of a hold time is noticed.
    fn after(&mut self, slot: u32, changed: Option<State>) {
        let Some(function) = self.functions.get_mut(&slot) else { return };
        if let Some(deadline) = function.machine.deadline()
            && function.hold_timer != Some(deadline)
        {
            function.hold_timer = Some(deadline);
            self.due.push(Reverse((deadline, slot, Due::Hold)));
        }
        let Some(state) = changed else { return };
        let down = state == State::Down;
        self.lives.extend(function.watched.sids.iter().map(|sid| (sid.sid, down)));
        if down {
            self.went_down.extend(function.watched.sids.iter().map(|sid| sid.sid));
        }
        function.since = SystemTime::now();
        self.dirty = true;
        if let Some(news) = &mut self.news {
            news.extend(function.watched.sids.iter().map(|sid| (sid.sid, function.entry())));
        }
        if let (true, Routes::Of(sids)) = (function.withdraws(), &mut self.routes) {
            let withdrawn = function.watched.sids.iter().filter(|sid| sid.on_failure == OnFailure::Withdraw);
            sids.extend(withdrawn.map(|sid| sid.sid));
        }
        let actions: BTreeSet<String> = function.watched.sids.iter().map(|sid| name_of(&sid.on_failure)).collect();
        self.changes.push(Change {
            function: function.name(),
            down,
            reason: function.reason.clone(),
            sid: function.watched.sids.first().map(|sid| sid.sid.to_string()).unwrap_or_default(),
            sids: function.watched.sids.len(),
            on_failure: actions.into_iter().collect::<Vec<_>>().join(", "),
        });
    }

    fn answered(&mut self, answer: Answer) {
        let now = self.now();
        let (token, arrived) = match answer {
            Answer::Token(token) => (token, true),
            Answer::Neighbour(token) => (token, false),
            Answer::Refused(token) => return self.refused(token, now),
            Answer::Short(short) => {
                let slot = short >> 18;
                let running = self.functions.get(&slot).and_then(|function| function.running);
                let Some(running) = running else { return };
                (Token::new(slot, (short >> 16 & 3) as u8, running.cycle & !0xffff | short & 0xffff), true)
            }
        };
        let Some(function) = self.functions.get_mut(&token.slot()) else { return };
        let bit = 1_u32.checked_shl(token.leg().into()).unwrap_or(0);
        let Some(running) = function.running.as_mut().filter(|running| running.cycle == token.cycle()) else { return };
        let legs = function.watched.probe.as_ref().and_then(|probe| probe.legs.as_ref().ok());
        let Some(leg) = legs.and_then(|legs| legs.get(usize::from(token.leg()))) else { return };
        if !arrived && matches!(leg, super::probe::Leg::Through { .. }) {
            // Now that the neighbour is known, the packet itself.
            if running.waiting & bit != 0 {
                running.waiting &= !bit;
                if let Err(Unsent::Failed(error)) = self.prober.send(leg, token, now) {
                    self.failed(token.slot(), &error.to_string());
                }
            }
            return;
        }
        running.open &= !bit;
        let (open, sent) = (running.open, running.sent);
        if open == 0 {
            let changed = function.probed(Ok(now.saturating_sub(sent)), now);
            self.after(token.slot(), changed);
        }
    }

    fn refused(&mut self, token: Token, now: Time) {
        let Some(function) = self.functions.get_mut(&token.slot()) else { return };
        if function.running.is_some_and(|running| running.cycle == token.cycle()) {
            let changed = function.probed(Err("the connection was refused"), now);
            self.after(token.slot(), changed);
        }
    }

    fn work_off(&mut self) {
        loop {
            let now = self.now();
            match self.due.peek() {
                Some(Reverse((time, ..))) if *time <= now => {}
                _ => return,
            }
            let Some(Reverse((time, slot, due))) = self.due.pop() else { return };
            match due {
                Due::Send => self.send(slot, time, now),
                Due::Answer(cycle) => self.overdue(slot, cycle),
                Due::Hold => {
                    let changed = self.functions.get_mut(&slot).and_then(|function| {
                        function.hold_timer = function.hold_timer.filter(|timer| *timer != time);
                        function.tick(now)
                    });
                    self.after(slot, changed);
                }
            }
        }
    }

    fn send(&mut self, slot: u32, time: Time, now: Time) {
        let Some(function) = self.functions.get_mut(&slot).filter(|function| function.next_send == time) else {
            return;
        };
        if let (Some(running), Some(plan)) = (function.running, &function.watched.probe) {
            let deadline = running.sent + plan.timeout;
            if now < deadline {
                // One probe at a time: the next goes out as soon as this one is decided.
                function.next_send = deadline;
                return self.due.push(Reverse((deadline, slot, Due::Send)));
            }
            self.overdue(slot, running.cycle);
        }
        let Some(function) = self.functions.get_mut(&slot) else { return };
        let Some(plan) = &function.watched.probe else { return };
        // Not made up for: a node that was busy must not send a burst.
        function.next_send = (time + plan.interval).max(now);
        if function.next_send == time {
            function.next_send += Time::from_millis(1);
        }
        self.due.push(Reverse((function.next_send, slot, Due::Send)));
        if function.watched.settings.link && function.machine.link() == Some(false) {
            return function.not_probed("not sent: the link is down".to_owned());
        }
        let legs = match &plan.legs {
            Ok(legs) => legs.clone(),
            Err(why) => {
                let why = format!("not sent: {why}");
                return self.failed(slot, &why);
            }
        };
        self.cycle = self.cycle.wrapping_add(1);
        let cycle = self.cycle;
        let deadline = now + plan.timeout;
        let open = (1_u32 << legs.len().min(31)) - 1;
        function.running = Some(Running { cycle, sent: now, open, waiting: 0 });
        for (number, leg) in (0_u8..).zip(&legs) {
            match self.prober.send(leg, Token::new(slot, number, cycle), now) {
                Ok(true) => {}
                Ok(false) => {
                    if let Some(running) = &mut function.running {
                        running.waiting |= 1 << number;
                    }
                }
                Err(Unsent::Busy(error)) => return function.not_probed(format!("not sent: {error}")),
                Err(Unsent::Failed(error)) => return self.failed(slot, &format!("{leg} cannot be sent: {error}")),
            }
        }
        self.due.push(Reverse((deadline, slot, Due::Answer(cycle))));
    }

    fn overdue(&mut self, slot: u32, cycle: u32) {
        let Some(function) = self.functions.get(&slot) else { return };
        let Some(running) = function.running.filter(|running| running.cycle == cycle) else { return };
        let Some(plan) = &function.watched.probe else { return };
        let legs = plan.legs.clone().unwrap_or_default();
        let open = legs.iter().enumerate().filter(|(number, _)| running.open & 1 << number != 0);
        let missing: Vec<String> = open
            .map(|(number, leg)| {
                self.prober.distrust(leg);
                if running.waiting & 1 << number != 0 {
                    format!("{leg}: nobody told the function's link-layer address")
                } else {
                    leg.to_string()
                }
            })
            .collect();
        let why = format!("no answer within {} ms: {}", plan.timeout.as_millis(), missing.join("; "));
        self.failed(slot, &why);
    }

    fn failed(&mut self, slot: u32, why: &str) {
        let now = self.now();
        let changed = self.functions.get_mut(&slot).and_then(|function| function.probed(Err(why), now));
        self.prober.give_up(slot);
        self.after(slot, changed);
    }

    /// Tells the rest of the agent, once for all that happened.
    fn tell(&mut self) {
        if !std::mem::take(&mut self.dirty) {
            return;
        }
        let routes = std::mem::take(&mut self.routes);
        let changes = std::mem::take(&mut self.changes);
        let went_down = std::mem::take(&mut self.went_down);
        let (entries, newer) = match self.news.replace(Entries::new()) {
            Some(news) => {
                self.saved.extend(news.iter().map(|(sid, entry)| (*sid, *entry)));
                let newer = !news.is_empty();
                (News::Of(news), newer)
            }
            None => {
                let worth = self.functions.values().filter(|function| function.down() || function.changes() > 0);
                let known =
                    worth.flat_map(|function| function.watched.sids.iter().map(|sid| (sid.sid, function.entry())));
                let known: Entries = known.collect();
                let newer = known != self.saved;
                self.saved.clone_from(&known);
                (News::All(known), newer)
            }
        };
        if routes != Routes::default() || !changes.is_empty() || newer {
            (self.notify)(Notice { changes, went_down, routes, entries });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness::journal::Entry;

    fn entries(all: &[(u16, bool)]) -> Entries {
        let entry = |(number, down): &(u16, bool)| {
            let sid = format!("fc00:{number:x}::/64").parse().unwrap();
            (sid, Entry { down: *down, since_ms: 0, changes: 1 })
        };
        all.iter().map(entry).collect()
    }

    #[test]
    fn news_add_up_to_what_is_known() {
        let steps = || {
            [
                News::Of(entries(&[(1, true)])),
                News::All(entries(&[(2, true), (3, false)])),
                News::Of(entries(&[(3, true), (4, true)])),
                News::Of(entries(&[(4, false)])),
            ]
        };
        let expected = entries(&[(2, true), (3, true), (4, false)]);
        let mut one_by_one = entries(&[(9, true)]);
        steps().into_iter().for_each(|news| news.update(&mut one_by_one));
        assert_eq!(one_by_one, expected);
        let mut sum = News::default();
        steps().into_iter().for_each(|news| sum.add(news));
        let mut at_once = entries(&[(9, true)]);
        sum.update(&mut at_once);
        assert_eq!(at_once, expected);
    }

    #[test]
    fn notices_are_joined() {
        let notice = |sid: &str| Notice {
            changes: Vec::new(),
            went_down: [sid.parse().unwrap()].into(),
            routes: Routes::Of([sid.parse().unwrap()].into()),
            entries: News::default(),
        };
        let mut joined = notice("fc00:1::/64");
        joined.add(notice("fc00:2::/64"));
        let both = BTreeSet::from(["fc00:1::/64".parse().unwrap(), "fc00:2::/64".parse().unwrap()]);
        assert_eq!((joined.routes.clone(), joined.went_down.clone()), (Routes::Of(both.clone()), both));
        joined.add(Notice { routes: Routes::All, ..notice("fc00:3::/64") });
        joined.add(notice("fc00:4::/64"));
        assert_eq!(joined.routes, Routes::All);
    }
}
