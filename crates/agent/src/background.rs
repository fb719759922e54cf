//! What takes long is done aside: the node's thread and the API go on meanwhile.

use std::sync::Arc;

use segue_dataplane::{Interfaces, Prepared};
use segue_model::node::NodeState;

use crate::actor::Handle;
use crate::apply::{self, kernel_failure};
use crate::diff::Change;
use crate::kernel::Kernel;
use crate::node::Node;
use crate::problem::{Failure, Fault, Problem};

/// Compiles the rules of a state that is to be applied: as long as what it returns is kept, the node's thread finds them compiled.
///
/// # Errors
/// Interfaces that the kernel does not tell.
pub async fn prepare(node: &Handle<Node>, state: &Arc<NodeState>) -> Result<Option<Prepared>, Failure> {
    if state.firewalls.is_empty() && state.steering.is_empty() {
        return Ok(None);
    }
    let wanted = Arc::clone(state);
    // What is applied already needs nothing, and an agent that took it over has not compiled it.
    let links = node.call(move |node| if node.state() == Some(&*wanted) { Ok(None) } else { links(node).map(Some) });
    let Some(links) = links.await? else { return Ok(None) };
    let state = Arc::clone(state);
    aside(move || Some(segue_dataplane::prepare(&state, &links))).await
}

/// What would change if a state were applied.
///
/// # Errors
/// Those of [`crate::diff::diff`].
pub async fn changes(node: &Handle<Node>, state: &Arc<NodeState>) -> Result<Vec<Change>, Failure> {
    let before = node.call(|node| Ok(node.state().cloned())).await?;
    let state = Arc::clone(state);
    aside(move || apply::changes(before.as_ref(), &state)).await?
}

/// As [`prepare`], for what is applied already: its rules may be about interfaces and addresses, which have changed.
///
/// # Errors
/// Interfaces that the kernel does not tell.
pub fn prepare_again(node: &Handle<Node>) -> Result<Option<Prepared>, Failure> {
    let needed = node.call_blocking(|node| {
        let about_links = |state: &&NodeState| {
            !state.firewalls.is_empty() || state.steering.iter().any(|rule| rule.ingress.is_some())
        };
        let Some(state) = node.state().filter(about_links).cloned() else { return Ok(None) };
        Ok(Some((state, links(node)?)))
    })?;
    Ok(needed.map(|(state, links)| segue_dataplane::prepare(&state, &links)))
}

fn links(node: &mut Node) -> Result<Interfaces, Failure> {
    node.kernel.links().map_err(|error| kernel_failure("interfaces", &error))
}

/// Runs what takes long on a thread of its own.
///
/// # Errors
/// That it panicked.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        let remedy = "report this: it is a fault of Segue";
        Failure::one(Fault::Agent, Problem::new("segued", error.to_string(), remedy))
    })
}
