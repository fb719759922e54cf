//! Waiting for something to become true.

use std::time::{Duration, Instant};

/// Asks again and again until there is an answer.
///
/// # Panics
///
/// When there is none within `limit`; `what` says what was waited for.
pub fn wait_for<T>(what: &str, limit: Duration, mut question: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(answer) = question() {
            return answer;
        }
        assert!(Instant::now() < end, "waited {limit:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
