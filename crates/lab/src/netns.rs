//! Network namespaces: which exist, whose they are, running code inside one, and the processes in them.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{LabError, Result};
use crate::{names, state};

/// Where iproute2 keeps the names of network namespaces.
const DIRECTORY: &str = "/run/netns";

/// Identity of a network namespace: device and inode number of its file.
pub type Identity = (u64, u64);

/// File of a named namespace.
#[must_use]
pub fn path(namespace: &str) -> PathBuf {
    PathBuf::from(DIRECTORY).join(namespace)
}

/// Names of all network namespaces.
#[must_use]
pub fn all() -> Vec<String> {
    let Ok(entries) = fs::read_dir(DIRECTORY) else { return Vec::new() };
    let mut found: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    found.sort();
    found
}

/// Whether a namespace of this name exists.
#[must_use]
pub fn exists(namespace: &str) -> bool {
    path(namespace).exists()
}

/// Identity of a named namespace; `None` if it does not exist or its name is only a leftover file.
#[must_use]
pub fn identity(namespace: &str) -> Option<Identity> {
    let metadata = fs::metadata(path(namespace)).ok()?;
    let own = own_identity()?;
    // A name whose mount never happened lies on another device than the namespaces themselves.
    (metadata.dev() == own.0).then_some((metadata.dev(), metadata.ino()))
}

fn own_identity() -> Option<Identity> {
    let metadata = fs::metadata("/proc/self/ns/net").ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Runs `work` on a thread of its own that has entered the namespace. Programs that it starts and sockets that it opens
/// belong there. Mounts stay as they are (unlike with `ip netns exec`), so the BPF file system stays in sight.
///
/// # Errors
/// If the namespace cannot be entered.
pub fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    let path = path(namespace);
    let remedy = "check with `ip netns` that it exists, and run as root";
    let file = File::open(&path).map_err(LabError::io("open network namespace", &path, remedy))?;
    let result = std::thread::scope(|scope| {
        let thread = scope.spawn(move || setns(&file, CloneFlags::CLONE_NEWNET).map(|()| work()));
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    result.map_err(|errno| LabError::io("enter network namespace", &path, remedy)(errno.into()))
}

/// The lab's namespaces: those that start with its prefix and are not another lab's. Works without any record.
#[must_use]
pub fn of_lab(roots: &names::Roots, lab: &str) -> BTreeMap<String, String> {
    let prefix = names::namespace_prefix(lab);
    let mut other_labs: Vec<String> = state::recorded_labs(roots);
    other_labs.retain(|other| other != lab && names::namespace_prefix(other).starts_with(&prefix));
    all()
        .into_iter()
        .filter_map(|namespace| {
            let node = namespace.strip_prefix(&prefix)?.to_owned();
            let ours = match alias(&namespace).as_deref().and_then(names::parse_mark) {
                Some((owner, _)) => owner == lab,
                // `up` died before it could mark the namespace.
                None => !other_labs.iter().any(|other| namespace.starts_with(&names::namespace_prefix(other))),
            };
            ours.then_some((namespace, node))
        })
        .collect()
}

/// Labs that have namespaces, with the nodes of each, by the marks on the namespaces.
#[must_use]
pub fn marked() -> BTreeMap<String, Vec<String>> {
    let mut labs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for namespace in all().into_iter().filter(|namespace| namespace.starts_with("sg-")) {
        if let Some((lab, node)) = alias(&namespace).as_deref().and_then(names::parse_mark) {
            labs.entry(lab.to_owned()).or_default().push(node.to_owned());
        }
    }
    labs
}

/// Alias of the namespace's `lo` interface.
fn alias(namespace: &str) -> Option<String> {
    identity(namespace)?;
    let text = crate::command::Run::new("ip", ["-n", namespace, "-json", "link", "show", "dev", "lo"]).text().ok()?;
    let links: serde_json::Value = serde_json::from_str(&text).ok()?;
    Some(links.get(0)?.get("ifalias")?.as_str()?.to_owned())
}

/// Processes whose network namespace is one of these. Never those of the caller's own namespace.
#[must_use]
pub fn processes(identities: &HashSet<Identity>) -> Vec<(Pid, Identity)> {
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

/// Ends all processes in these namespaces: asks first, then kills. Returns how many there were.
pub fn end_processes(identities: &HashSet<Identity>, patience: Duration) -> usize {
    let mut ended = HashSet::new();
    let start = Instant::now();
    loop {
        let left = processes(identities);
        if left.is_empty() || start.elapsed() > patience + Duration::from_secs(5) {
            return ended.len();
        }
        for (pid, _) in left {
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
