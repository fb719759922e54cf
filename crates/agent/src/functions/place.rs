//! Where a function is: a network namespace by name, or that of a container.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::sync::{LazyLock, Mutex, PoisonError};

use segue_host::{Namespace, Run, namespace};
use segue_model::node::NodeFunction;

use crate::kernel::KernelError;

/// Programs that know containers, in the order in which they are asked.
const ENGINES: [&str; 2] = ["podman", "docker"];

/// A place by name; whether something is there is another question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A namespace as `ip netns` has it.
    Netns(String),
    /// A container.
    Container(String),
    /// The other ends of a virtual machine's links; in no namespace.
    Machine,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Netns(name) => write!(f, "netns {name}"),
            Self::Container(name) => write!(f, "container {name}"),
            Self::Machine => f.write_str("vm"),
        }
    }
}

/// A process by number and start: numbers come again.
type Process = (u32, u64);

/// First processes of containers, as they were found last: asking an engine takes as long as starting a program.
static KNOWN: LazyLock<Mutex<HashMap<String, Process>>> = LazyLock::new(Mutex::default);

impl Place {
    /// That of a function that was checked: one of the three is given.
    pub fn of(function: &NodeFunction) -> Self {
        match (&function.netns, &function.container) {
            (Some(netns), _) => Self::Netns(netns.clone()),
            (None, Some(container)) => Self::Container(container.clone()),
            (None, None) => Self::Machine,
        }
    }

    /// What [`fmt::Display`] wrote, and perhaps more behind it. Names have no blanks.
    pub fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        match (words.next()?, words.next()?) {
            ("netns", name) => Some(Self::Netns(name.to_owned())),
            ("container", name) => Some(Self::Container(name.to_owned())),
            _ => None,
        }
    }

    /// The namespace, if something is there. Never the agent's own: a container without a network of its own is none.
    pub fn find(&self) -> Result<Option<Namespace>, KernelError> {
        let found = match self {
            Self::Netns(name) => Namespace::find(name)?,
            Self::Container(name) => match process(name) {
                // It may end in this moment.
                Some((pid, _)) => Namespace::find(&format!("/proc/{pid}/ns/net")).ok().flatten(),
                None => None,
            },
            Self::Machine => None,
        };
        let own = namespace::identity("/proc/thread-self/ns/net");
        Ok(found.filter(|found| Some(found.identity()) != own))
    }
}

/// The first process of a container that runs.
fn process(container: &str) -> Option<Process> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(process) = known.get(container).filter(|(pid, start)| started(*pid) == Some(*start)) {
        return Some(*process);
    }
    known.remove(container);
    let ask = |engine: &&str| {
        let arguments = ["inspect", "--type", "container", "--format", "{{.State.Pid}}", container];
        // An engine that is not installed, or does not know it.
        Run::new(*engine, arguments).text().ok()?.trim().parse().ok()
    };
    let pid: u32 = ENGINES.iter().find_map(ask).filter(|pid| *pid != 0)?;
    let process = (pid, started(pid)?);
    known.insert(container.to_owned(), process);
    Some(process)
}

/// When a process was started, in ticks since the machine was.
fn started(pid: u32) -> Option<u64> {
    /// Of /proc/PID/stat, counted behind the command, which may hold anything but ends with the last parenthesis.
    const START: usize = 19;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(START)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        for place in [Place::Netns("fw".into()), Place::Container("a.b".into())] {
            assert_eq!(Place::read(&place.to_string()), Some(place));
        }
        assert_eq!(Place::read("elsewhere x"), None);
    }

    #[test]
    fn a_process_is_known_by_its_start() {
        let own = started(std::process::id()).unwrap();
        assert!(own > 0 && started(1).unwrap() <= own);
        assert_eq!(started(u32::MAX >> 1), None);
    }
}
