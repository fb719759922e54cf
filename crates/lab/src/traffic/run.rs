//! A source's process: sends, counts what arrives, and writes down how it is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use segue_host::interrupt::{Interrupt, Second};
use segue_model::topology::SIZE_MIN;

use super::account::{Account, Arrivals, State};
use super::message::{self, PROBE};
use super::way::{self, Receiver, Sender};
use super::{Source, account_file, source_file};
use crate::error::{LabError, Result};
use crate::names::LabPaths;
use crate::state;

/// A way is looked for so long; then packets are sent all the same, since none need arrive.
const PROBE_FOR: Duration = Duration::from_secs(3);
/// Between two probes.
const PROBE_EVERY: Duration = Duration::from_millis(20);
/// How long the last packets may be on the way.
const REST: Duration = Duration::from_secs(2);
/// How long duplicates are waited for once all have arrived.
const QUIET: Duration = Duration::from_millis(100);
/// How often the account is written.
const WRITE_EVERY: Duration = Duration::from_millis(200);
/// How long it sleeps at most, so that it ends soon when it is told to.
const NAP: Duration = Duration::from_millis(50);

/// What both threads know.
#[derive(Default)]
struct Shared {
    arrivals: Mutex<Arrivals>,
    /// Numbers below this one were given to packets.
    numbered: AtomicU64,
    /// A probe has arrived.
    found: AtomicBool,
    /// Nobody wants to receive any more.
    ended: AtomicBool,
    failed: Mutex<Option<String>>,
}

/// Runs a source of a lab to its end.
///
/// # Errors
/// If the lab has no such source, or its sockets cannot be opened. What goes wrong later is in its account.
pub fn run(paths: &LabPaths, name: &str) -> Result<()> {
    let path = source_file(paths, name);
    let remedy = "bring the lab up: `segue lab up` starts its traffic";
    let text = std::fs::read_to_string(&path).map_err(LabError::io("read", &path, remedy))?;
    let source: Source =
        serde_json::from_str(&text).map_err(|error| LabError::io("read", &path, remedy)(error.into()))?;
    let (sender, receiver) = way::open(&source)?;
    let shared = Arc::new(Shared::default());
    let thread = receive(receiver, &source, &shared);
    let names = [&source.name, &source.from, &source.to].map(String::clone);
    let account = Account::new(names, source.protocol, source.family());
    let interrupt = Interrupt::watch(Second::Ends);
    let mut run = Run { paths, source, sender, account, shared, interrupt, written: Instant::now() };
    run.write()?;
    let sent = run.send();
    let ended = sent.and_then(|()| run.rest());
    run.shared.ended.store(true, Ordering::Relaxed);
    let _ = thread.join();
    run.account.state = if ended.is_ok() { State::Done } else { State::Failed };
    run.account.why = ended.err();
    run.write()
}

fn receive(receiver: Receiver, source: &Source, shared: &Arc<Shared>) -> JoinHandle<()> {
    let (size, shared) = (source.size.max(SIZE_MIN) as usize, Arc::clone(shared));
    std::thread::spawn(move || {
        let take = |octets: &[u8]| {
            let Some(message) = message::read(octets, size) else { return };
            if message.number == PROBE {
                shared.found.store(true, Ordering::Relaxed);
            } else if message.number < shared.numbered.load(Ordering::Acquire) {
                lock(&shared.arrivals).take(message, octets.len(), now());
            }
        };
        if let Err(error) = receiver.receive(size, &shared.ended, take) {
            *lock(&shared.failed) = Some(format!("nothing can be received any more: {error}"));
        }
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nanoseconds of the machine's monotonic clock.
fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| u64::try_from(Duration::from(time).as_nanos()).unwrap_or(u64::MAX))
}

struct Run<'a> {
    paths: &'a LabPaths,
    source: Source,
    sender: Sender,
    account: Account,
    shared: Arc<Shared>,
    interrupt: Interrupt,
    written: Instant,
}

impl Run<'_> {
    /// All packets, at their times.
    fn send(&mut self) -> Result<(), String> {
        self.nap(Instant::now() + Duration::from_millis(self.source.delay_ms.into()))?;
        self.probe()?;
        self.account.state = State::Running;
        let begun = Instant::now();
        let end = self.source.seconds.map(|seconds| begun + Duration::from_secs_f64(seconds));
        let size = self.source.size as usize;
        for number in 0..self.source.count.unwrap_or(u64::MAX) {
            let at = begun + Duration::from_secs_f64(number as f64 / self.source.rate);
            if end.is_some_and(|end| at >= end) {
                break;
            }
            self.nap(at)?;
            self.shared.numbered.store(number + 1, Ordering::Release);
            match self.sender.send(&message::make(number, now(), size)) {
                Ok(()) => self.account.sent += 1,
                Err(error) if self.sender.ends_with_a_failure() => return Err(format!("packet {number}: {error}")),
                Err(_) => self.account.refused += 1,
            }
        }
        Ok(())
    }

    /// Sends what does not count, until it arrives or it has been tried for long.
    fn probe(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        let size = self.source.size as usize;
        while !self.shared.found.load(Ordering::Relaxed) && begun.elapsed() < PROBE_FOR {
            match self.sender.send(&message::make(PROBE, now(), size)) {
                Ok(()) => self.account.probes += 1,
                Err(error) if self.sender.ends_with_a_failure() => return Err(format!("no connection: {error}")),
                // No route yet, perhaps.
                Err(_) => {}
            }
            self.nap(Instant::now() + PROBE_EVERY)?;
            if self.sender.ends_with_a_failure() {
                // One is enough: it arrives, or the connection fails.
                let until = begun + PROBE_FOR;
                while !self.shared.found.load(Ordering::Relaxed) && Instant::now() < until {
                    self.nap(Instant::now() + PROBE_EVERY)?;
                }
                break;
            }
        }
        Ok(())
    }

    /// Waits for what is on the way.
    fn rest(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < REST && lock(&self.shared.arrivals).received() < self.account.sent {
            self.nap(Instant::now() + Duration::from_millis(5))?;
        }
        self.nap(Instant::now() + QUIET)
    }

    /// Sleeps until then, and does meanwhile what else there is to do.
    fn nap(&mut self, until: Instant) -> Result<(), String> {
        loop {
            if self.interrupt.requested() {
                return Err("it was ended".to_owned());
            }
            if let Some(why) = lock(&self.shared.failed).clone() {
                return Err(why);
            }
            if self.written.elapsed() >= WRITE_EVERY {
                self.write().map_err(|error| error.to_string())?;
            }
            match until.checked_duration_since(Instant::now()) {
                None => return Ok(()),
                Some(left) if left.is_zero() => return Ok(()),
                Some(left) => std::thread::sleep(left.min(NAP)),
            }
        }
    }

    fn write(&mut self) -> Result<()> {
        lock(&self.shared.arrivals).write(&mut self.account);
        self.written = Instant::now();
        state::write_file(&account_file(self.paths, &self.source.name), &state::json(&self.account))
    }
}
