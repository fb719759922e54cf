//! Network namespaces of a run: made, entered, and removed whatever happens.

use std::fs::{self, File};
use std::os::fd::AsFd;

use nix::sched::{CloneFlags, setns};

use crate::command;
use crate::error::{Error, Result};

const DIRECTORY: &str = "/run/netns";
const PREFIX: &str = "sg-bench-";

/// A network namespace with a name below `/run/netns`, removed when dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes the namespace `sg-bench-<process>-<suffix>`.
    ///
    /// # Errors
    /// If `ip netns add` fails: no root, or the name exists.
    pub fn create(suffix: &str) -> Result<Self> {
        let name = format!("{PREFIX}{}-{suffix}", std::process::id());
        command::run("ip", &["netns", "add", &name])?;
        let namespace = Self { name };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Its name below `/run/netns`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip -n <name> <arguments>`; arguments are separated by spaces.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn ip(&self, arguments: &str) -> Result<String> {
        let mut all = vec!["-n", &self.name];
        all.extend(arguments.split_whitespace());
        command::run("ip", &all)
    }

    /// Moves this thread into the namespace until the guard is dropped.
    ///
    /// # Errors
    /// If the namespace is gone or `setns` is refused.
    pub fn enter(&self) -> Result<Entered> {
        let own = "/proc/thread-self/ns/net";
        let back = File::open(own).map_err(Error::file(own))?;
        let path = format!("{DIRECTORY}/{}", self.name);
        let file = File::open(&path).map_err(Error::file(&path))?;
        setns(file.as_fd(), CloneFlags::CLONE_NEWNET).map_err(Error::system("enter a network namespace"))?;
        Ok(Entered { back })
    }

    /// Writes a file below `/proc/sys/net` of the namespace.
    ///
    /// # Errors
    /// If the kernel has no such setting or refuses the value.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        let _inside = self.enter()?;
        let path = format!("/proc/sys/net/{name}");
        fs::write(&path, value).map_err(Error::file(&path))
    }

    /// Index of an interface of the namespace.
    ///
    /// # Errors
    /// If there is no such interface.
    pub fn ifindex(&self, interface: &str) -> Result<u32> {
        let _inside = self.enter()?;
        nix::net::if_::if_nametoindex(interface).map_err(Error::system("find an interface"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // A failure here has no one to go to; `remove_stale` of the next run finds what is left.
        let _ = command::run("ip", &["netns", "del", &self.name]);
    }
}

/// This thread is inside a namespace; it returns when this is dropped.
#[derive(Debug)]
pub struct Entered {
    back: File,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // To go on in the wrong namespace would change someone else's network.
        if setns(self.back.as_fd(), CloneFlags::CLONE_NEWNET).is_err() {
            std::process::abort();
        }
    }
}

/// Whether a name is of a run whose process is gone.
pub(crate) fn is_stale(name: &str) -> bool {
    let Some((process, _)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')) else { return false };
    process.parse::<u32>().is_ok() && !fs::exists(format!("/proc/{process}")).unwrap_or(true)
}

/// Removes namespaces and pins of runs that were killed.
pub fn remove_stale() {
    crate::segue::remove_stale_pins();
    let Ok(entries) = fs::read_dir(DIRECTORY) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_stale(&name) {
            let _ = command::run("ip", &["netns", "del", &name]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_stale;

    #[test]
    fn only_runs_whose_process_is_gone_are_stale() {
        let own = format!("sg-bench-{}-a-node", std::process::id());
        assert!(!is_stale(&own));
        // Larger than the kernel's largest process identifier, 2^22.
        assert!(is_stale("sg-bench-4294967295-a-node"));
        for other in ["sg-bench-x-node", "sg-bench-", "sg-lab-4294967295-a", "4294967295-a"] {
            assert!(!is_stale(other), "{other}");
        }
    }
}
