//! What takes long is done aside: the node's thread and the API go on meanwhile.

use std::sync::Arc;

use segue_api::state::Change;
use segue_dataplane::{Interfaces, Prepared};
use segue_model::node::NodeState;

use crate::actor::Handle;
use crate::apply::{self, kernel_failure};
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
    let before = node.call(|node| Ok(node.shared_state())).await?;
    let state = Arc::clone(state);
    aside(move || apply::changes(before.as_deref(), &state)).await?
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
        let Some(state) = node.shared_state().filter(|state| about_links(&&**state)) else { return Ok(None) };
        Ok(Some((state, links(node)?)))
    })?;
    Ok(needed.map(|(state, links)| segue_dataplane::prepare(&state, &links)))
}

/// Takes something from the node, which goes on at once, and makes of it elsewhere what takes long: an apply, or the withdrawal of a
/// route, does not wait for it.
///
/// # Errors
/// Those of both, and that the second panicked.
pub async fn apart<T: 'static, S: Send + 'static, R: Send + 'static>(
    node: &Handle<T>,
    take: impl FnOnce(&mut T) -> Result<S, Failure> + Send + 'static,
    make: impl FnOnce(S) -> Result<R, Failure> + Send + 'static,
) -> Result<R, Failure> {
    let taken = node.call(take).await?;
    aside(move || make(taken)).await?
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_node_goes_on_while_something_is_made_of_what_was_taken() {
        let node = Handle::spawn(|| Ok::<_, ()>(1_u32)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (begun, is_begun) = mpsc::channel();
        let (end, may_end) = mpsc::channel();
        let worker = node.clone();
        let made = std::thread::spawn(move || {
            let taken = |node: &mut u32| Ok(*node);
            let make = move |taken: u32| {
                begun.send(()).unwrap();
                may_end.recv().unwrap();
                Ok(taken)
            };
            runtime.block_on(apart(&worker, taken, make))
        });
        is_begun.recv().unwrap();
        // Nothing lets the other end before this has been done.
        assert_eq!(node.call_blocking(|node| Ok(std::mem::replace(node, 2))), Ok(1));
        end.send(()).unwrap();
        assert_eq!(made.join().unwrap(), Ok(1), "what was there when it began");
    }
}
