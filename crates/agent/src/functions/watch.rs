//! Watching for functions that come: nothing tells of a namespace or a container that is made. That one goes is seen by its links.

use std::{io, time::Duration};

use crate::{actor::Handle, node::Node};

/// How long a function that has come waits for its links.
const INTERVAL: Duration = Duration::from_secs(1);

/// Starts the thread. Must be called in the node's network namespace. It ends with the process.
pub fn spawn(node: Handle<Node>) -> io::Result<()> {
    std::thread::Builder::new().name("functions".to_owned()).spawn(move || {
        loop {
            std::thread::sleep(INTERVAL);
            // A worker that has ended says so elsewhere.
            let Ok(Some(state)) = node.call_blocking(|node| Ok(node.shared_state())) else { continue };
            // Beside the node's thread: asking for a container takes a program.
            if !state.functions.is_empty()
                && super::has_come(&state)
                && let Err(failure) = node.call_blocking(Node::reconcile)
            {
                tracing::warn!("a function that has come: {failure}; tried again every second");
            }
        }
    })?;
    Ok(())
}
