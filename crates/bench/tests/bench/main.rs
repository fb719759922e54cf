//! The measurements run, and say what they are to say.

mod functions;
mod runs;
mod services;

use segue_bench::contest::First;
use std::time::Duration;

/// Whether a run is a long one: what is done often or for long is shorter else, and asserts the same (docs/developing/testing.md).
fn is_long() -> bool {
    std::env::var_os("SEGUE_LONG").is_some()
}

/// What goes before a measurement: still some hundred times the pages that the generator has.
fn first() -> First {
    let short = First { verified: 20_000, warm_up: 10_000, latency: Duration::from_millis(100) };
    if is_long() { First::WHOLE } else { short }
}
