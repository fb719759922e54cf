//! Tests that share something which takes long to make: the last of those that this run has asked for takes it down.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The tests that share it, by their whole names.
pub struct Group {
    pub names: &'static [&'static str],
    pub begun: AtomicUsize,
}

impl Group {
    /// To be called once by each test, when it begins: whether it is the last one.
    pub fn is_last(&self) -> bool {
        let asked = asked(std::env::args().skip(1), self.names);
        self.begun.fetch_add(1, Ordering::SeqCst) + 1 >= asked
    }
}

/// How many of these tests the arguments of a test program ask for.
fn asked(arguments: impl Iterator<Item = String>, names: &[&str]) -> usize {
    let (mut filters, mut skips, mut exact) = (Vec::new(), Vec::new(), false);
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--exact" => exact = true,
            "--skip" => skips.extend(arguments.next()),
            "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" | "--shuffle-seed" | "--report-time" => {
                arguments.next();
            }
            other if other.starts_with('-') => skips.extend(other.strip_prefix("--skip=").map(str::to_owned)),
            _ => filters.push(argument),
        }
    }
    let fits = |name: &str, filter: &String| if exact { name == filter } else { name.contains(filter.as_str()) };
    let is_asked = |name: &&&str| {
        (filters.is_empty() || filters.iter().any(|filter| fits(name, filter)))
            && !skips.iter().any(|skip| fits(name, skip))
    };
    names.iter().filter(is_asked).count()
}

#[test]
fn the_last_test_that_is_asked_for_is_known() {
    let names = ["a::one", "a::two", "a::three"];
    for (line, count) in [
        ("", 3),
        ("--ignored --test-threads=1", 3),
        ("--test-threads 1 a::t", 2),
        ("--exact a::one b::one", 1),
        ("--skip two --ignored", 2),
        ("--quiet --exact a::t", 0),
    ] {
        assert_eq!(asked(line.split_whitespace().map(str::to_owned), &names), count, "{line}");
    }
}
