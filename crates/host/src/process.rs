//! Processes by the network namespace that they are in.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
pub use nix::unistd::Pid;

use crate::identity::{Identity, own_identity};

/// How long a process may take to end once it was killed.
const DEATH: Duration = Duration::from_secs(5);

/// Processes whose network namespace is one of these. Never those of the caller's own namespace.
#[must_use]
pub fn inside(identities: &HashSet<Identity>) -> Vec<(Pid, Identity)> {
    let own = own_identity();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let metadata = fs::metadata(entry.path().join("ns/net")).ok()?;
            let identity = (metadata.dev(), metadata.ino());
            (identities.contains(&identity) && own != Some(identity)).then_some((Pid::from_raw(pid), identity))
        })
        .collect()
}

/// Processes in these namespaces that were started with this variable in their environment, or by one that was.
#[must_use]
pub fn with_variable(identities: &HashSet<Identity>, name: &str, value: &str) -> Vec<Pid> {
    let wanted = format!("{name}={value}");
    let has = |pid: &Pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|octet| *octet == 0).any(|variable| variable == wanted.as_bytes())
    };
    inside(identities).into_iter().map(|(pid, _)| pid).filter(has).collect()
}

/// Ends all processes in these namespaces: asks first (not without patience), then kills. Returns how many there were.
pub fn end(identities: &HashSet<Identity>, patience: Duration) -> usize {
    end_while(|| inside(identities).into_iter().map(|(pid, _)| pid).collect(), patience)
}

/// Ends processes until `left` finds none, in the same way: also those that others have started meanwhile.
pub fn end_while(mut left: impl FnMut() -> Vec<Pid>, patience: Duration) -> usize {
    let mut ended = HashSet::new();
    let start = Instant::now();
    loop {
        let left = left();
        if left.is_empty() || start.elapsed() > patience + DEATH {
            return ended.len();
        }
        for pid in left {
            if start.elapsed() >= patience {
                let _ = kill(pid, Signal::SIGKILL);
            } else if !ended.contains(&pid) {
                let _ = kill(pid, Signal::SIGTERM);
            }
            ended.insert(pid);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
