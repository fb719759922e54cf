//! When a function counts as up. Pure: time comes from outside, as the time since any origin, so that tests make it up.
//!
//! Failure is at once: a link that is down, or `fall` failed probes in a row. Life takes proof: the link up, `rise` answers in
//! a row, and the hold time since the failure. A function that goes down soon after it came back is held down twice as long each
//! time, so that it cannot flap.

use std::time::Duration;

/// Time since any origin.
pub type Time = Duration;

/// The longest hold time that flapping leads to, unless the operator's own is more than a sixteenth of it.
const HOLD_MAX: Duration = Duration::from_secs(60);
/// Doubled for a function that flaps although the operator asked for no hold time.
const HOLD_MIN: Duration = Duration::from_millis(100);
/// A function that lived for so many of its hold times does not flap.
const STABLE: u32 = 10;
/// At least so many times the operator's hold time is the longest hold time.
const GROWTH: u32 = 16;

/// What makes a function down or up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Whether its links count.
    pub link: bool,
    /// Whether it is probed.
    pub probe: bool,
    /// Failed probes in a row that make it down, at least 1.
    pub fall: u32,
    /// Answered probes in a row that it takes to live again, at least 1.
    pub rise: u32,
    /// How long it stays down at least.
    pub hold: Duration,
}

/// Whether a function works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It does, or nothing speaks against it yet.
    Up,
    /// It does not.
    Down,
}

/// One function.
#[derive(Debug, Clone)]
pub struct Machine {
    settings: Settings,
    state: State,
    since: Time,
    /// None until the kernel has told of the links.
    link: Option<bool>,
    failures: u32,
    successes: u32,
    /// Failures that came too soon after the life before, in a row.
    flaps: u32,
    changes: u64,
    /// Nothing but an assumption has made it up yet.
    assumed: bool,
}

impl Machine {
    /// A function that nobody has looked at yet: `Up` until something speaks against it, or `Down`, as an agent before
    /// this one left it, until it has proven to be up.
    pub fn new(settings: Settings, state: State, now: Time) -> Self {
        let assumed = state == State::Up;
        Self { settings, state, since: now, link: None, failures: 0, successes: 0, flaps: 0, changes: 0, assumed }
    }

    /// Other settings from now on; what is known stays.
    pub fn reconfigure(&mut self, settings: Settings) {
        if settings.probe != self.settings.probe {
            (self.failures, self.successes) = (0, 0);
        }
        self.settings = settings;
    }

    /// Up or down.
    pub fn state(&self) -> State {
        self.state
    }

    /// When it became so.
    pub fn since(&self) -> Time {
        self.since
    }

    /// How often it changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether it is up only because nothing speaks against it yet.
    pub fn assumed(&self) -> bool {
        self.assumed
    }

    /// Whether its links are up, as far as they are known.
    pub fn link(&self) -> Option<bool> {
        self.link
    }

    /// Probes in a row that failed.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Probes in a row that were answered.
    pub fn successes(&self) -> u32 {
        self.successes
    }

    /// How long a failure lasts at least, as things are.
    pub fn hold(&self) -> Duration {
        let base = self.settings.hold;
        if self.flaps == 0 {
            return base;
        }
        let longest = HOLD_MAX.max(base.saturating_mul(GROWTH));
        let factor = 1_u32.checked_shl(self.flaps).unwrap_or(u32::MAX);
        base.max(HOLD_MIN).saturating_mul(factor).min(longest)
    }

    /// The links came up or went down. Returns the new state if it changed.
    pub fn set_link(&mut self, up: bool, now: Time) -> Option<State> {
        self.link = Some(up);
        if !up {
            (self.failures, self.successes) = (0, 0);
        }
        self.decide(now)
    }

    /// A probe was answered or not. Returns the new state if it changed.
    pub fn set_probe(&mut self, answered: bool, now: Time) -> Option<State> {
        if answered {
            self.failures = 0;
            self.successes = self.successes.saturating_add(1);
        } else {
            self.successes = 0;
            self.failures = self.failures.saturating_add(1);
        }
        self.decide(now)
    }

    /// Time has passed. Returns the new state if it changed.
    pub fn tick(&mut self, now: Time) -> Option<State> {
        self.decide(now)
    }

    /// When it will come up if nothing happens till then: [`Machine::tick`] is due.
    pub fn deadline(&self) -> Option<Time> {
        (self.state == State::Down && self.well()).then(|| self.since.saturating_add(self.hold()))
    }

    /// All that is watched speaks for it.
    fn well(&self) -> bool {
        (!self.settings.link || self.link == Some(true))
            && (!self.settings.probe || self.successes >= self.settings.rise)
    }

    fn ill(&self) -> bool {
        (self.settings.link && self.link == Some(false)) || (self.settings.probe && self.failures >= self.settings.fall)
    }

    fn decide(&mut self, now: Time) -> Option<State> {
        match self.state {
            State::Up if self.ill() => {
                let lived = now.saturating_sub(self.since);
                // The first failure ends an assumption, not a life.
                if self.changes > 0 {
                    let stable = lived >= self.hold().max(HOLD_MIN).saturating_mul(STABLE);
                    self.flaps = if stable { 0 } else { self.flaps.saturating_add(1) };
                }
                Some(self.become_(State::Down, now))
            }
            State::Down if self.well() && now >= self.since.saturating_add(self.hold()) => {
                Some(self.become_(State::Up, now))
            }
            State::Up if self.well() => {
                self.assumed = false;
                None
            }
            _ => None,
        }
    }

    fn become_(&mut self, state: State, now: Time) -> State {
        self.state = state;
        self.since = now;
        self.changes += 1;
        self.assumed = false;
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Settings = Settings { link: true, probe: false, fall: 3, rise: 3, hold: Duration::from_secs(1) };
    const PROBE: Settings = Settings { probe: true, ..LINK };

    fn ms(milliseconds: u64) -> Time {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_link_that_goes_down_is_death_at_once_and_life_takes_the_hold_time() {
        let mut machine = Machine::new(LINK, State::Up, ms(0));
        assert!(machine.assumed());
        assert_eq!(machine.set_link(true, ms(1)), None);
        assert!(!machine.assumed(), "the link is all that is watched");
        assert_eq!(machine.set_link(false, ms(5000)), Some(State::Down));
        assert_eq!(machine.deadline(), None, "nothing speaks for it");
        assert_eq!(machine.set_link(true, ms(5010)), None);
        assert_eq!(machine.deadline(), Some(ms(6000)));
        assert_eq!(machine.tick(ms(5999)), None);
        assert_eq!(machine.tick(ms(6000)), Some(State::Up));
        assert_eq!((machine.changes(), machine.since()), (2, ms(6000)));
    }

    #[test]
    fn fall_and_rise_count_probes_in_a_row() {
        let mut machine = Machine::new(PROBE, State::Up, ms(0));
        machine.set_link(true, ms(0));
        for answered in [false, false, true, false, false] {
            assert_eq!(machine.set_probe(answered, ms(100)), None);
        }
        assert_eq!(machine.set_probe(false, ms(200)), Some(State::Down));
        for answered in [true, true, false, true, true] {
            assert_eq!(machine.set_probe(answered, ms(5000)), None);
        }
        assert_eq!(machine.set_probe(true, ms(5000)), Some(State::Up));
    }

    #[test]
    fn answers_do_not_outweigh_a_link_that_is_down() {
        let mut machine = Machine::new(PROBE, State::Up, ms(0));
        assert_eq!(machine.set_link(false, ms(0)), Some(State::Down));
        for now in 1..100 {
            assert_eq!(machine.set_probe(true, ms(100 * now)), None);
        }
        // And those from before do not count for the time after.
        machine.set_link(false, ms(10_000));
        assert_eq!(machine.set_link(true, ms(10_000)), None);
        assert_eq!(machine.set_probe(true, ms(10_200)), None);
        assert_eq!(machine.set_probe(true, ms(10_400)), None);
        assert_eq!(machine.set_probe(true, ms(10_600)), Some(State::Up));
    }

    #[test]
    fn what_was_dead_before_a_restart_stays_dead_until_it_is_proven_alive() {
        let mut machine = Machine::new(PROBE, State::Down, ms(0));
        assert!(!machine.assumed());
        assert_eq!(machine.set_link(true, ms(1)), None);
        assert_eq!(machine.tick(ms(60_000)), None, "no probe was answered");
        assert_eq!(machine.set_probe(true, ms(60_000)), None);
        assert_eq!(machine.set_probe(true, ms(60_000)), None);
        assert_eq!(machine.set_probe(true, ms(60_000)), Some(State::Up));
    }

    #[test]
    fn flapping_doubles_the_hold_time_and_a_long_life_forgives() {
        let mut machine = Machine::new(LINK, State::Up, ms(0));
        let mut now = ms(0);
        let mut held = Vec::new();
        for _ in 0..9 {
            assert_eq!(machine.set_link(false, now), Some(State::Down));
            machine.set_link(true, now);
            let deadline = machine.deadline().unwrap();
            held.push((deadline - now).as_secs());
            now = deadline;
            assert_eq!(machine.tick(now), Some(State::Up));
        }
        assert_eq!(held, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        now += ms(600_000);
        machine.set_link(false, now);
        assert_eq!(machine.hold(), ms(1000));
    }

    #[test]
    fn other_settings_keep_what_is_known() {
        let mut machine = Machine::new(LINK, State::Up, ms(0));
        machine.set_link(false, ms(10));
        machine.reconfigure(Settings { hold: ms(0), ..LINK });
        assert_eq!(machine.set_link(true, ms(20)), Some(State::Up));
        assert_eq!(machine.changes(), 2);
    }

    /// Numbers that only look random, always the same for one seed.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) % end
        }
    }

    /// However links and probes behave: at most ten changes at once, and two in eleven hold times in the long run. (A cycle
    /// with a stable life takes one hold time down and ten up; every other one doubles the next hold time.)
    #[test]
    fn no_behaviour_of_links_and_probes_makes_it_flap() {
        let mut most = 0_u64;
        for seed in 1..=300 {
            let mut random = Random(seed * 0x9e37_79b9);
            let hold = [100, 500, 1000, 30_000][random.below(4) as usize];
            let settings = Settings {
                hold: ms(hold),
                rise: 1 + random.below(3) as u32,
                fall: 1 + random.below(3) as u32,
                probe: random.below(4) > 0,
                ..LINK
            };
            let mut machine = Machine::new(settings, State::Up, ms(0));
            let mut now = ms(0);
            let end = ms(hold * 2000);
            // From hostile to mostly well.
            let (bias, step) = (1 + random.below(20), 1 + random.below(hold * 3));
            machine.set_link(true, now);
            while now < end {
                now += ms(random.below(step) + 1);
                match random.below(3) {
                    0 => drop(machine.set_link(random.below(bias + 1) > 0, now)),
                    1 => drop(machine.set_probe(random.below(bias + 1) > 0, now)),
                    _ => drop(machine.tick(now)),
                }
                let bound = 2 * (now.as_millis() as u64 / (11 * hold) + 5);
                assert!(machine.changes() <= bound, "seed {seed}: {} changes in {now:?}", machine.changes());
            }
            most = most.max(machine.changes());
        }
        assert!(most > 20, "the test has made nothing flap: {most}");
    }

    /// The worst that can be done: go down at once whenever up, or exactly when the life counts as stable.
    #[test]
    fn an_adversary_gets_no_further() {
        for patience in [0, 1, 5, 10, 11] {
            let mut machine = Machine::new(LINK, State::Up, ms(0));
            let mut now = ms(0);
            while now < ms(3_600_000) {
                machine.set_link(false, now);
                machine.set_link(true, now);
                now = machine.deadline().unwrap();
                assert_eq!(machine.tick(now), Some(State::Up));
                now += machine.hold() * patience;
                assert!(machine.changes() <= 2 * (now.as_millis() as u64 / 11_000 + 5), "patience {patience}");
            }
        }
    }
}
