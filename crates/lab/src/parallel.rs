//! The same work for many things, a few at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::error::Result;

/// How many namespaces are worked on at a time: two for each processor, because most of the time goes into waiting for the
/// kernel and for other programs.
#[must_use]
pub fn workers() -> usize {
    2 * std::thread::available_parallelism().map_or(1, usize::from)
}

/// Does `work` for every item on at most [`workers`] threads and returns the results in the items' order.
///
/// # Errors
/// The first error; items that were not begun by then are left out.
pub fn each<I: Sync, T: Send>(items: &[I], work: impl Fn(&I) -> Result<T> + Sync) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    std::thread::scope(|scope| {
        for _ in 0..workers().min(items.len()) {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    let result = work(item);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    if let Ok(mut results) = results.lock() {
                        results.push((index, result));
                    }
                }
            });
        }
    });
    // A thread that panicked has ended the scope with its panic; the lock is whole.
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::LabError;

    #[test]
    fn results_keep_the_order() {
        let items: Vec<usize> = (0..100).collect();
        assert_eq!(each(&items, |item| Ok(item * 2)).unwrap(), (0..200).step_by(2).collect::<Vec<_>>());
        assert!(each(&[] as &[u8], |_| Ok(())).unwrap().is_empty());
    }

    #[test]
    fn an_error_ends_it() {
        let begun = AtomicUsize::new(0);
        let items: Vec<usize> = (0..10_000).collect();
        let result = each(&items, |item| {
            begun.fetch_add(1, Ordering::Relaxed);
            if *item == 3 { Err(LabError::Topology("no".into())) } else { Ok(()) }
        });
        assert!(result.is_err());
        assert!(begun.load(Ordering::Relaxed) < items.len());
    }
}
