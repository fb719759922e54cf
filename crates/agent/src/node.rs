//! The real node: its data plane, kernel and record put together.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use segue_dataplane::Dataplane;
use segue_model::{load::load_node_state, node::NodeState};

use crate::{
    apply::Agent,
    kernel::LinuxKernel,
    liveness::journal::{Entries, Journal},
    options::Options,
    plane::DataPlane as _,
    store::{Directory, Store as _},
    xdp::Xdp,
};

/// One node as the agent has it.
pub type Node = Agent<Xdp, LinuxKernel, Directory>;

/// What earlier agents knew about functions.
pub fn functions(options: &Options) -> Entries {
    Journal::new(&options.state_dir).load()
}

/// Opens what is there, to remove it.
///
/// # Errors
/// What could not be opened, and what to do.
pub fn open(options: &Options) -> Result<Node> {
    open_with(options, |_| Ok(Xdp::open_pinned(&options.pin_dir)?))
}

/// Opens everything; changes nothing but loads the data plane if it is not there, for a node that is to have `first` soon, or else what
/// it had before.
fn open_for(options: &Options, first: Option<&NodeState>) -> Result<Node> {
    open_with(options, |store| {
        // Read only where it says how large tables are to be; one that cannot be read is told about when it is needed.
        let is_known = first.is_some() || Dataplane::is_pinned(&options.pin_dir);
        let recorded = if is_known { None } else { store.load().ok().flatten() };
        let first = first.or(recorded.as_ref().map(|recorded| recorded.state.as_ref()));
        Ok(Xdp::open(&options.pin_dir, first)?)
    })
}

fn open_with(options: &Options, open: impl FnOnce(&mut Directory) -> Result<Xdp>) -> Result<Node> {
    let kernel = LinuxKernel::open()?;
    let mut store = Directory::open(options.state_dir.clone()).with_context(|| {
        format!("--state-dir {}: give a directory that can be written", options.state_dir.display())
    })?;
    let plane = open(&mut store)?;
    // The maps know too, unless they are new.
    let down = functions(options).into_iter().filter(|(_, entry)| entry.down);
    plane.life().set(down.map(|(sid, _)| sid), true)?;
    let adopted = plane.applied_state();
    let mut node = Agent::new(plane, kernel, store)?;
    if let Some(state) = adopted {
        node.adopt(state);
    }
    Ok(node)
}

/// Opens the node and makes it what the configuration says, or what it was before a restart.
///
/// # Errors
/// A configuration that cannot be applied; what could not be opened.
pub fn start(options: &Options) -> Result<Node> {
    // Before anything is loaded: for its size, and because it may be wrong.
    let config = options.config.as_deref().map(read).transpose()?;
    let was_there = Dataplane::is_pinned(&options.pin_dir);
    let mut node = open_for(options, config.as_ref().map(|(_, state)| state))?;
    match config {
        Some((name, state)) => {
            let applied = node.apply(&state);
            // What was loaded for this configuration alone is for nobody.
            if applied.is_err()
                && !was_there
                && let Err(problems) = node.plane.remove()
            {
                problems.iter().for_each(|problem| tracing::warn!("the data plane stays pinned: {problem}"));
            }
            let report = applied.with_context(|| format!("--config {name} cannot be applied"))?;
            for warning in &report.warnings {
                tracing::warn!("{warning}");
            }
            tracing::info!(generation = report.generation, changes = report.changes.len(), "applied {name}");
        }
        // An interface may be missing right now; following the kernel makes it good when it comes.
        None => match node.reconcile() {
            Ok(()) if node.state().is_some() => tracing::info!("took over what was applied before"),
            Ok(()) => tracing::info!("nothing applied yet"),
            Err(failure) => tracing::warn!("what was applied before does not fit any more: {failure}"),
        },
    }
    Ok(node)
}

/// A configuration with its name and its rule files.
fn read(path: &Path) -> Result<(String, NodeState)> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).with_context(|| format!("--config {name}"))?;
    let mut state = load_node_state(&text, &name)?;
    segue_firewall::files::read_all(&mut state, path)?;
    Ok((name, state))
}
