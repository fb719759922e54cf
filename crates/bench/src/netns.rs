//! Network namespaces of a run: made, entered, and removed whatever happens.

use segue_host::{Run, Temporary, namespace, sysctl};

pub use segue_host::Entered;

use crate::error::{Error, Result};

const PREFIX: &str = "sg-bench-";

/// A network namespace with a name below `/run/netns`, removed when dropped.
#[derive(Debug)]
pub struct Namespace(Temporary);

impl Namespace {
    /// Makes the namespace `sg-bench-<process>-<suffix>`.
    ///
    /// # Errors
    /// No root, or the name exists.
    pub fn create(suffix: &str) -> Result<Self> {
        Ok(Self(Temporary::make(PREFIX, suffix)?))
    }

    /// Its name below `/run/netns`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Runs `ip -n <name> <arguments>`; arguments are separated by spaces.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn ip(&self, arguments: &str) -> Result<String> {
        let all = ["-n", self.name()].into_iter().chain(arguments.split_whitespace());
        Ok(Run::new("ip", all).text()?)
    }

    /// As [`Namespace::ip`] for many lines, in their order, in as few runs of `ip` as there are changes of `-6` and `-4` at their beginnings.
    ///
    /// # Errors
    /// If `ip` fails: it names the line, and those behind it are not done.
    pub fn ip_all<T: AsRef<str>>(&self, lines: impl IntoIterator<Item = T>) -> Result<()> {
        let mut runs: Vec<(&str, String)> = Vec::new();
        for line in lines {
            let line = line.as_ref();
            let (family, rest) = match line.split_once(' ') {
                Some(("-6", rest)) => ("-6", rest),
                Some(("-4", rest)) => ("-4", rest),
                _ => ("", line),
            };
            match runs.last_mut() {
                Some((last, text)) if *last == family => *text += &format!("{rest}\n"),
                _ => runs.push((family, format!("{rest}\n"))),
            }
        }
        for (family, text) in runs {
            let family = Some(family).filter(|family| !family.is_empty());
            let arguments = ["-n", self.name()].into_iter().chain(family).chain(["-batch", "-"]);
            Run::new("ip", arguments).input(text).text()?;
        }
        Ok(())
    }

    /// Moves this thread into the namespace until the guard is dropped.
    ///
    /// # Errors
    /// If the namespace is gone or `setns` is refused.
    pub fn enter(&self) -> Result<Entered> {
        Ok(self.0.enter()?)
    }

    /// Writes a file below `/proc/sys/net` of the namespace.
    ///
    /// # Errors
    /// If the kernel has no such setting or refuses the value.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        Ok(self.0.inside(|| sysctl::set(&format!("net/{name}"), value))??)
    }

    /// Index of an interface of the namespace.
    ///
    /// # Errors
    /// If there is no such interface.
    pub fn ifindex(&self, interface: &str) -> Result<u32> {
        self.0.inside(|| nix::net::if_::if_nametoindex(interface))?.map_err(Error::system("find an interface"))
    }
}

/// Removes namespaces of runs that were killed. What cannot be removed is in nobody's way.
pub(crate) fn remove_stale() {
    let _ = namespace::remove_all(namespace::orphans(PREFIX).iter().map(String::as_str));
}
