//! What every kind of function can be asked for.

use std::fmt;

use segue_host::link::Link;
use segue_host::{Run, namespace, network};

use crate::{Function, NodeEnd, Result};

/// How far a function is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Nothing of it is there.
    Absent,
    /// A part of it is there: `attach` has not finished, or something was taken away.
    Partial,
    /// It is attached, and nobody takes its packets.
    Attached,
    /// It takes packets.
    Running,
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Absent => "absent",
            Self::Partial => "partly there",
            Self::Attached => "attached",
            Self::Running => "running",
        })
    }
}

/// One kind of function. Different functions may be worked on at the same time, one function only by one caller.
pub trait Runtime: Sync {
    /// The kind's name, for messages and lists.
    fn name(&self) -> &'static str;

    /// Programs of the host without which it cannot work for this function: to be looked for before anything is made.
    fn needs(&self, function: &Function) -> Vec<&'static str>;

    /// Makes what the function lives in, marked as its own, without a link. The node need not be there.
    ///
    /// # Errors
    /// Also if there is one already: [`Runtime::stop`] first.
    fn prepare(&self, function: &Function) -> Result<()>;

    /// Makes the links to the node's namespace, up at both ends, and the network on the function's side.
    ///
    /// # Errors
    /// What has been made until then stays, for [`Runtime::stop`].
    fn attach(&self, function: &Function) -> Result<()>;

    /// Loads the ruleset, starts the program, and waits until it takes packets.
    ///
    /// # Errors
    /// As [`Runtime::attach`]; with what the program said.
    fn start(&self, function: &Function) -> Result<()>;

    /// How far it is.
    ///
    /// # Errors
    /// If that cannot be seen.
    fn status(&self, function: &Function) -> Result<Status>;

    /// Ends and removes all that the other steps have made, however far they came. Nothing happens where nothing is left.
    ///
    /// # Errors
    /// [`crate::FunctionError::NotOurs`]; or what cannot be removed.
    fn stop(&self, function: &Function) -> Result<()>;

    /// Runs a shell command where the function works, to its end, and returns what it printed.
    ///
    /// # Errors
    /// Also if its status is not 0.
    fn execute(&self, function: &Function, command: &str) -> Result<String>;
}

/// Removes the node's ends of the function's links, as far as they and the node are there.
pub(crate) fn remove_ends(function: &Function) -> Result<()> {
    for NodeEnd { namespace, name, .. } in function.links.iter().map(|link| &link.node) {
        if has_link(namespace, name)? {
            match Run::new("ip", ["-n", namespace, "link", "delete", "dev", name]).text() {
                // It went meanwhile: with its other end.
                Err(error) if has_link(namespace, name)? => return Err(error.into()),
                _ => {}
            }
        }
    }
    Ok(())
}

fn has_link(namespace: &str, name: &str) -> Result<bool> {
    Ok(links(namespace)?.iter().any(|link| link.name == name))
}

/// The links of a namespace; none if it is not there.
pub(crate) fn links(namespace: &str) -> Result<Vec<Link>> {
    match namespace::identity(namespace) {
        Some(_) => Ok(network::links(namespace)?),
        None => Ok(Vec::new()),
    }
}
