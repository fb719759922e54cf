//! What a source has sent, and what of it arrived.

use std::collections::VecDeque;

use segue_model::topology::{Family, TrafficProtocol};
use serde::{Deserialize, Serialize};

use super::message::Message;

/// So many numbers behind the newest one it is known which of them have arrived.
const WINDOW: u64 = 1 << 20;

/// How far a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It waits for its time, or for a way.
    Waiting,
    /// It sends.
    Running,
    /// It has sent all, and what can arrive has arrived.
    Done,
    /// It could not go on; `why` says more.
    Failed,
    /// Its process is gone, and had not finished.
    Dead,
}

impl State {
    /// Whether nothing will change any more.
    #[must_use]
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running)
    }

    /// As in displays.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Dead => "dead",
        }
    }
}

/// One source's account. Packets are messages with TCP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Who sends.
    pub from: String,
    /// For whom.
    pub to: String,
    /// How.
    pub protocol: TrafficProtocol,
    /// IPv4 or IPv6.
    pub family: Family,
    /// How far it is.
    pub state: State,
    /// Why it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Packets that were sent, beside probes.
    pub sent: u64,
    /// Packets that the host's kernel did not take.
    pub refused: u64,
    /// Of those sent, those that arrived (with ICMP: were answered), each counted once.
    pub received: u64,
    /// Of those sent, those that did not arrive: while it sends, before the newest that did; once it is done, of all.
    pub lost: u64,
    /// Arrived again.
    pub duplicated: u64,
    /// Arrived behind one that was sent later.
    pub reordered: u64,
    /// Arrived with other octets than were sent, or with another length.
    pub corrupted: u64,
    /// Octets of payload that arrived.
    pub octets: u64,
    /// How long they were on the way, microseconds; there and back with ICMP. None if none arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_us: Option<Delay>,
    /// Packets that were sent before, until one arrived: neighbours and links may not be known at first.
    pub probes: u64,
    /// Number of its process.
    pub process: u32,
}

impl Account {
    /// That of a source in this process, which has sent nothing yet. `names`: its own, who sends, for whom.
    pub(super) fn new(names: [String; 3], protocol: TrafficProtocol, family: Family) -> Self {
        let [name, from, to] = names;
        Self {
            name,
            from,
            to,
            protocol,
            family,
            state: State::Waiting,
            why: None,
            sent: 0,
            refused: 0,
            received: 0,
            lost: 0,
            duplicated: 0,
            reordered: 0,
            corrupted: 0,
            octets: 0,
            delay_us: None,
            probes: 0,
            process: std::process::id(),
        }
    }

    /// Whether all is done, and everything arrived once, in order and as it was sent.
    #[must_use]
    pub fn is_flawless(&self) -> bool {
        self.state == State::Done
            && [self.refused, self.lost, self.duplicated, self.reordered, self.corrupted] == [0; 5]
            && self.received == self.sent
    }
}

/// Microseconds on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// The least.
    pub least: u64,
    /// The mean.
    pub mean: u64,
    /// The most.
    pub most: u64,
}

/// Which numbers have arrived.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Bit by bit, from `first` on.
    words: VecDeque<u64>,
    /// The number of the first bit, a multiple of 64.
    first: u64,
    /// One more than the newest.
    end: u64,
    received: u64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
    octets: u64,
    delays: (u64, u64, u64),
}

impl Arrivals {
    /// A message arrived at `now`, nanoseconds of the machine's monotonic clock.
    pub fn take(&mut self, message: Message, octets: usize, now: u64) {
        if !message.whole {
            self.corrupted += 1;
        }
        if !self.mark(message.number) {
            self.duplicated += 1;
            return;
        }
        if message.number < self.end {
            self.reordered += 1;
        }
        self.end = self.end.max(message.number + 1);
        self.octets += octets as u64;
        let delay = now.saturating_sub(message.sent) / 1000;
        let (least, sum, most) = self.delays;
        self.delays =
            (if self.received == 0 { delay } else { least.min(delay) }, sum.saturating_add(delay), most.max(delay));
        self.received += 1;
    }

    /// Notes a number. False: it was there; or is so old that nobody knows.
    fn mark(&mut self, number: u64) -> bool {
        if number < self.first {
            return false;
        }
        // The window goes on with the newest number.
        let beyond = ((number - self.first) / 64 + 1).saturating_sub(WINDOW / 64);
        let gone = usize::try_from(beyond).unwrap_or(usize::MAX).min(self.words.len());
        self.words.drain(..gone);
        self.first += beyond * 64;
        let word = usize::try_from((number - self.first) / 64).unwrap_or(usize::MAX);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let bit = 1 << (number % 64);
        let fresh = self.words[word] & bit == 0;
        self.words[word] |= bit;
        fresh
    }

    /// How many have arrived, each counted once.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Writes into an account what has arrived.
    pub fn write(&self, account: &mut Account) {
        account.received = self.received;
        account.duplicated = self.duplicated;
        account.reordered = self.reordered;
        account.corrupted = self.corrupted;
        account.octets = self.octets;
        let (least, sum, most) = self.delays;
        account.delay_us = (self.received > 0).then(|| Delay { least, mean: sum / self.received, most });
        let expected = if account.state == State::Done { account.sent } else { self.end.min(account.sent) };
        account.lost = expected.saturating_sub(self.received);
    }
}

#[cfg(test)]
pub(super) fn empty() -> Account {
    let names = ["web", "client", "server"].map(str::to_owned);
    Account { state: State::Running, process: 1, ..Account::new(names, TrafficProtocol::Udp, Family::IPv6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(numbers: impl IntoIterator<Item = u64>, sent: u64, state: State) -> Account {
        let mut arrivals = Arrivals::default();
        for number in numbers {
            arrivals.take(Message { number, sent: 1000, whole: number != 13 }, 100, 1000 + 1000 * (number % 10));
        }
        let mut account = Account { sent, state, ..empty() };
        arrivals.write(&mut account);
        account
    }

    #[test]
    fn losses_duplicates_and_overtaken_ones_are_told_apart() {
        let account = arrived([0, 1, 2, 4, 3, 6, 6, 9], 12, State::Running);
        assert_eq!((account.received, account.lost, account.duplicated, account.reordered), (7, 3, 1, 1));
        assert_eq!((account.octets, account.delay_us), (700, Some(Delay { least: 0, mean: 3, most: 9 })));
        assert!(!account.is_flawless());
        let account = arrived([0, 1, 2, 4, 3, 6, 6, 9], 12, State::Done);
        assert_eq!(account.lost, 5);
        let account = arrived(0..12, 12, State::Done);
        assert!(account.is_flawless(), "{account:?}");
        assert!(!arrived(0..12, 12, State::Running).is_flawless());
        assert_eq!(arrived(0..20, 20, State::Done).corrupted, 1);
        assert_eq!(arrived([], 0, State::Done).delay_us, None);
    }

    #[test]
    fn memory_is_bounded_and_the_newest_numbers_are_known() {
        let mut arrivals = Arrivals::default();
        let message = |number| Message { number, sent: 0, whole: true };
        for number in 0..3 * WINDOW {
            arrivals.take(message(number), 1, 0);
        }
        arrivals.take(message(3 * WINDOW - 5), 1, 0);
        arrivals.take(message(10 * WINDOW), 1, 0);
        assert_eq!((arrivals.received(), arrivals.duplicated), (3 * WINDOW + 1, 1));
        assert!(arrivals.words.len() as u64 <= WINDOW / 64);
        // Nobody knows any more: as if it had been there.
        arrivals.take(message(1), 1, 0);
        assert_eq!(arrivals.duplicated, 2);
    }
}
