//! Time, as a service sees it.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time: nanoseconds since some moment before the service started. It never goes back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The moment that all others count from.
    pub const START: Self = Self(0);
    /// Later than any.
    pub const NEVER: Self = Self(u64::MAX);

    /// So many nanoseconds after [`Time::START`].
    #[must_use]
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since [`Time::START`].
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Since an earlier moment; zero if that is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}
