//! Following a source of labels: it is read when it changes, and what it says is handed to the node, at most once a second. Labels of a
//! source that cannot be read hold for their time.

use std::os::unix::fs::MetadataExt as _;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{fs, io};

use segue_model::node::Learn;

use super::Table;
use crate::actor::Handle;
use crate::background;
use crate::kernel::{Kernel as _, LinuxKernel, MplsChanges};
use crate::node::Node;
use crate::problem::{Failure, Problem};

/// From one look at the source to the next.
const INTERVAL: Duration = Duration::from_millis(200);
/// From one time that labels change to the next: each makes a new configuration.
const PACE: Duration = Duration::from_secs(1);
/// The kernel is asked again, should it not have told of something.
const AGAIN: Duration = Duration::from_secs(10);
/// After the node could not do what it was told.
const RETRY: Duration = Duration::from_secs(5);
/// There is nothing to follow.
const LONG: Duration = Duration::from_secs(3600);

/// Follows the source that it is told.
#[derive(Clone)]
pub struct Watch(mpsc::Sender<Option<Learn>>);

impl Watch {
    /// Starts the thread, in the calling thread's network namespace. It ends with the process.
    ///
    /// # Errors
    /// Sockets that cannot be opened.
    pub fn spawn(node: Handle<Node>) -> io::Result<Self> {
        let mut kernel = LinuxKernel::open().map_err(io::Error::other)?;
        let (changes, (sender, wanted)) = (MplsChanges::open()?, mpsc::channel::<Option<Learn>>());
        std::thread::Builder::new().name("labels".to_owned()).spawn(move || {
            let mut source = None::<Source>;
            loop {
                match wanted.recv_timeout(if source.is_some() { INTERVAL } else { LONG }) {
                    Ok(told) => {
                        let from = wanted.try_iter().last().unwrap_or(told);
                        if source.as_ref().map(|source| &source.from) != from.as_ref() {
                            source = from.map(|from| Source::new(from, Instant::now()));
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                let Some(source) = &mut source else { continue };
                let mark = source.mark(&changes);
                let read = |from: &Learn| kernel.learned(from);
                let Some(found) = source.look(mark, Instant::now(), read) else { continue };
                let done = hand_over(&node, source.from.clone(), found);
                if let Err(failure) = &done {
                    tracing::warn!("labels that are learned: {failure}; what was learned before stays");
                }
                source.handed_over(done.is_ok(), Instant::now());
            }
        })?;
        Ok(Self(sender))
    }

    /// Follows this source from now on, or none.
    pub fn follow(&self, from: Option<&Learn>) {
        // A thread that has ended has said why.
        let _ = self.0.send(from.cloned());
    }
}

fn hand_over(node: &Handle<Node>, from: Learn, found: Found) -> Result<(), Failure> {
    // Kept until the end.
    let _prepared = background::prepare_again(node)?;
    node.call_blocking(move |node| node.learn_labels(&from, found.read, found.is_over))
}

/// By what it is seen that a source has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// A file: device, number, octets, and when it was written.
    File([u64; 3], [i64; 4]),
    /// There is no file.
    Missing,
    /// The kernel has told of something.
    Told,
    /// It has not.
    Quiet,
}

impl Mark {
    fn of_file(path: &str) -> Self {
        let Ok(file) = fs::metadata(path) else { return Self::Missing };
        let written = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
        Self::File([file.dev(), file.ino(), file.size()], written)
    }
}

/// What came of a look.
#[derive(Debug)]
struct Found {
    read: Result<Table, Problem>,
    /// What was there before does not hold any more.
    is_over: bool,
}

/// A source that is followed.
#[derive(Debug)]
struct Source {
    from: Learn,
    /// As it was when it was read last.
    mark: Option<Mark>,
    /// Why it could not be read then.
    problem: Option<Problem>,
    /// When it could.
    good: Instant,
    /// The node knows that its labels do not hold any more.
    is_over: bool,
    /// Not before this is it read again, whatever happens.
    not_before: Instant,
    /// Then it is, even if nothing has happened.
    again: Option<Instant>,
}

impl Source {
    fn new(from: Learn, now: Instant) -> Self {
        Self { from, mark: None, problem: None, good: now, is_over: false, not_before: now, again: None }
    }

    fn mark(&self, changes: &MplsChanges) -> Mark {
        match &self.from.file {
            Some(path) => Mark::of_file(path),
            None if changes.any() => Mark::Told,
            None => Mark::Quiet,
        }
    }

    /// What the node has to know; nothing if it does already.
    fn look(&mut self, mark: Mark, now: Instant, read: impl FnOnce(&Learn) -> Result<Table, Problem>) -> Option<Found> {
        let is_due = self.again.is_some_and(|again| again <= now);
        let has_changed = self.mark.is_none() || mark == Mark::Told || (mark != Mark::Quiet && self.mark != Some(mark));
        if now < self.not_before {
            // The kernel tells once.
            if mark == Mark::Told {
                self.again = Some(self.not_before);
            }
            return None;
        }
        if has_changed || is_due {
            (self.mark, self.again) = (Some(mark), self.from.kernel.then(|| now + AGAIN));
            let read = read(&self.from);
            self.problem = read.as_ref().err().cloned();
            if self.problem.is_none() {
                (self.good, self.is_over) = (now, false);
                return Some(Found { read, is_over: false });
            }
        } else if self.problem.is_none() || self.is_over {
            return None;
        }
        let problem = self.problem.clone()?;
        let is_over = now.duration_since(self.good) >= Duration::from_secs(self.from.hold_time().into());
        if !has_changed && !is_due && !is_over {
            return None;
        }
        self.is_over = is_over;
        Some(Found { read: Err(problem), is_over })
    }

    /// The node has done what it was told, or could not.
    fn handed_over(&mut self, done: bool, now: Instant) {
        self.not_before = now + PACE;
        if !done {
            self.not_before = now + RETRY;
            self.again = Some(self.not_before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn file(number: u64) -> Mark {
        Mark::File([1, number, 1], [0; 4])
    }

    fn bad() -> Result<Table, Problem> {
        Err(Problem::new("mpls.learn.file", "bad", "mend it"))
    }

    fn source(kernel: bool) -> (Source, Instant) {
        let file = (!kernel).then(|| "/x".to_owned());
        let from = Learn { kernel, file, max_labels: None, hold_time: Some(10) };
        let now = Instant::now();
        (Source::new(from, now), now)
    }

    /// Whether it was read well, and whether what was known is over; nothing if there was nothing to tell.
    fn told(found: Option<Found>) -> Option<(bool, bool)> {
        found.map(|found| (found.read.is_ok(), found.is_over))
    }

    fn not_read(_: &Learn) -> Result<Table, Problem> {
        panic!("it is not to be read")
    }

    #[test]
    fn a_file_is_read_when_it_has_changed_and_not_more_than_once_a_second() {
        let (mut source, mut now) = source(false);
        assert_eq!(told(source.look(file(1), now, |_| Ok(Table::new()))), Some((true, false)));
        source.handed_over(true, now);
        assert_eq!(told(source.look(file(2), now + INTERVAL, not_read)), None, "at most once a second");
        now += PACE;
        assert_eq!(told(source.look(file(2), now, |_| Ok(Table::new()))), Some((true, false)), "but then");
        now += 100 * SECOND;
        assert_eq!(told(source.look(file(2), now, not_read)), None, "it is as it was");
        assert_eq!(told(source.look(file(3), now, |_| Ok(Table::new()))), Some((true, false)));
        source.handed_over(false, now);
        assert_eq!(told(source.look(file(3), now + PACE, not_read)), None);
        assert_eq!(told(source.look(file(3), now + RETRY, |_| Ok(Table::new()))), Some((true, false)), "tried again");
    }

    #[test]
    fn what_a_file_said_holds_for_its_time() {
        let (mut source, mut now) = source(false);
        assert_eq!(told(source.look(file(1), now, |_| Ok(Table::new()))), Some((true, false)));
        now += 2 * SECOND;
        assert_eq!(told(source.look(Mark::Missing, now, |_| bad())), Some((false, false)));
        now += 2 * SECOND;
        assert_eq!(told(source.look(Mark::Missing, now, not_read)), None, "that is known");
        assert_eq!(told(source.look(file(4), now, |_| bad())), Some((false, false)), "another mistake");
        now += 5 * SECOND;
        assert_eq!(told(source.look(file(4), now, not_read)), None);
        now += SECOND;
        assert_eq!(told(source.look(file(4), now, not_read)), Some((false, true)), "ten seconds after it was good");
        assert_eq!(told(source.look(file(4), now + SECOND, not_read)), None, "once");
        assert_eq!(told(source.look(file(5), now + SECOND, |_| Ok(Table::new()))), Some((true, false)));
        now += 9 * SECOND;
        assert_eq!(told(source.look(file(6), now, |_| bad())), Some((false, false)), "its time begins anew");
    }

    #[test]
    fn the_kernel_is_asked_when_it_tells_and_now_and_then() {
        let (mut source, mut now) = source(true);
        assert_eq!(told(source.look(Mark::Quiet, now, |_| Ok(Table::new()))), Some((true, false)), "at first");
        source.handed_over(true, now);
        assert_eq!(told(source.look(Mark::Told, now + INTERVAL, not_read)), None);
        now += PACE;
        assert_eq!(told(source.look(Mark::Quiet, now, |_| Ok(Table::new()))), Some((true, false)), "it told before");
        now += AGAIN - SECOND;
        assert_eq!(told(source.look(Mark::Quiet, now, not_read)), None);
        now += SECOND;
        assert_eq!(told(source.look(Mark::Quiet, now, |_| Ok(Table::new()))), Some((true, false)));
        assert_eq!(told(source.look(Mark::Told, now, |_| bad())), Some((false, false)));
    }
}
