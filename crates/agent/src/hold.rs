//! Holding the boundary: when somebody changes or removes the table that keeps interfaces which are no ports out of the
//! domain, it is put back at once.

use std::{io, time::Duration};

use crate::{actor::Handle, kernel::nftables::Watch, node::Node, problem::Failure};

/// After a failure.
const RETRY: Duration = Duration::from_millis(100);

/// Starts the thread. Must be called in the node's network namespace. It ends with the process.
pub fn spawn(node: Handle<Node>) -> io::Result<()> {
    let mut watch = match Watch::open() {
        Ok(watch) => watch,
        // A kernel without nf_tables refuses every state, with the reason: there is nothing to hold.
        Err(error) => {
            tracing::debug!(%error, "no notifications of nf_tables");
            return Ok(());
        }
    };
    std::thread::Builder::new().name("hold".to_owned()).spawn(move || {
        loop {
            if let Err(failure) = hold(&node, &mut watch) {
                tracing::error!("the boundary: {failure}");
                std::thread::sleep(RETRY);
            }
        }
    })?;
    Ok(())
}

fn hold(node: &Handle<Node>, watch: &mut Watch) -> Result<(), String> {
    let shown = |error: io::Error| error.to_string();
    let own = node
        .call_blocking(|node| Ok(node.kernel.boundary_port()))
        .map_err(|failure| failure.to_string())?
        .map_err(shown)?;
    watch.wait(own).map_err(shown)?;
    tracing::warn!("somebody changed table ip6 segue of nf_tables, which keeps strangers out: put back");
    node.call_blocking(|node| node.hold_boundary()).map_err(|failure: Failure| failure.to_string())
}
