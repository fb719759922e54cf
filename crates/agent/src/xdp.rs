//! The real data plane.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Instant,
};

use ipnet::Ipv6Net;
use segue_dataplane::{
    CaptureSource, Compiled, Dataplane, Error, Interfaces, Life, MissingInterface, Options, PathMtu, Reader,
};
use segue_host::bpffs;
use segue_model::node::NodeState;

use crate::{
    plane::{Activated, DataPlane},
    problem::Problem,
};

/// Where Segue mounts a BPF file system of its own.
const BPF_ROOT: &str = "/run/segue/bpf";

/// The XDP data plane of the calling thread's network namespace.
pub struct Xdp {
    pin_dir: PathBuf,
    options: Options,
    /// None after [`DataPlane::remove`], until the next apply.
    plane: Option<Dataplane>,
    capturing: Vec<String>,
    /// Outlives what is in `plane`.
    life: Life,
}

/// A capture that was started.
pub struct Capture {
    /// Where the packets come from.
    pub source: CaptureSource,
    /// Names of all ports by ifindex: a packet's way out may be any of them.
    pub names: BTreeMap<u32, String>,
    /// The ports that are captured.
    pub ports: Vec<String>,
}

impl Xdp {
    /// Adopts the data plane that is pinned, or loads it, with tables for what `first` remembers: larger ones would mean that the
    /// verifier looks at all programs again.
    ///
    /// # Errors
    /// What kept the programs from loading; what is pinned stays active.
    pub fn open(pin_dir: &Path, first: Option<&NodeState>) -> Result<Self, Error> {
        let mut xdp = Self::unopened(pin_dir);
        // What is pinned and too small grows when something is applied, and what it counted goes on.
        if let Some(state) = first.filter(|_| !Dataplane::is_pinned(pin_dir)) {
            xdp.options.capacity = xdp.options.capacity.for_memories_of(state);
        }
        let plane = xdp.plane()?;
        tracing::info!(origin = ?plane.origin(), pins = %pin_dir.display(), "data plane");
        // A capture that was under way when the agent died has no reader any more.
        let ports: Vec<_> = plane.applied().map(names).unwrap_or_default().into_values().collect();
        plane.set_captures(&ports, false)?;
        Ok(xdp)
    }

    /// Adopts the data plane that is pinned, if there is one: to remove it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_pinned(pin_dir: &Path) -> Result<Self, Error> {
        if Dataplane::is_pinned(pin_dir) { Self::open(pin_dir, None) } else { Ok(Self::unopened(pin_dir)) }
    }

    fn unopened(pin_dir: &Path) -> Self {
        let (pin_dir, options) = (pin_dir.to_owned(), Options::default());
        Self { pin_dir, options, plane: None, capturing: Vec::new(), life: Life::default() }
    }

    fn plane(&mut self) -> Result<&mut Dataplane, Error> {
        let plane = match self.plane.take() {
            Some(plane) => plane,
            None => {
                mount(&self.pin_dir)?;
                let mut plane = Dataplane::open_or_load(&self.pin_dir, self.options)?;
                plane.share_life(&self.life);
                plane
            }
        };
        Ok(self.plane.insert(plane))
    }

    /// Where programs, links and maps are pinned.
    pub fn pin_dir(&self) -> &Path {
        &self.pin_dir
    }

    /// The state that the pinned data plane was given last, by whichever agent.
    pub fn applied_state(&self) -> Option<NodeState> {
        self.plane.as_ref().and_then(Dataplane::applied_state).cloned()
    }

    /// Which functions are down, for those who watch them.
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// The active configuration.
    pub fn applied(&self) -> Option<&Compiled> {
        self.plane.as_ref().and_then(Dataplane::applied)
    }

    /// What reads the counters of the active configuration, on any thread. None while there is no data plane.
    pub fn reader(&self) -> Option<Reader> {
        self.plane.as_ref().map(Dataplane::reader)
    }

    /// The data plane itself; None while there is none.
    pub fn dataplane(&self) -> Option<&Dataplane> {
        self.plane.as_ref()
    }

    /// The data plane itself, to put a packet in; None while there is none.
    pub fn dataplane_mut(&mut self) -> Option<&mut Dataplane> {
        self.plane.as_mut()
    }

    /// Starts to copy packets of these ports, or of all if none is named. One capture at a time.
    ///
    /// # Errors
    /// An unknown port; another capture.
    pub fn start_capture(&mut self, ports: &[String]) -> Result<Capture, Problem> {
        if !self.capturing.is_empty() {
            let message = format!("a capture of {} is under way", self.capturing.join(", "));
            return Err(Problem::new("capture", message, "end it first: there is one at a time"));
        }
        let plane = self.plane().map_err(|error| problem(&error))?;
        let names = plane.applied().map(names).unwrap_or_default();
        let ports = if ports.is_empty() { names.values().cloned().collect() } else { ports.to_vec() };
        if ports.is_empty() {
            return Err(Problem::new("capture", "the node has no ports yet", "apply a configuration first"));
        }
        let source = plane.capture_source().map_err(|error| problem(&error))?;
        if let Err(error) = plane.set_captures(&ports, true) {
            self.stop(&ports);
            return Err(problem(&error));
        }
        self.capturing.clone_from(&ports);
        Ok(Capture { source, names, ports })
    }

    /// Ends the capture of these ports.
    pub fn stop_capture(&mut self, ports: &[String]) {
        self.stop(ports);
        self.capturing.clear();
    }

    fn stop(&mut self, ports: &[String]) {
        let Some(plane) = &mut self.plane else { return };
        // A port that an apply took away meanwhile has no flag to take back.
        if let Err(error) = plane.set_captures(ports, false) {
            tracing::debug!(%error, "end of capture");
        }
    }
}

fn names(compiled: &Compiled) -> BTreeMap<u32, String> {
    compiled.ports.iter().map(|port| (port.entry.ifindex, port.name.clone())).collect()
}

/// Sees to it that the pin directory lies on a BPF file system.
fn mount(pin_dir: &Path) -> Result<(), Error> {
    let root = if pin_dir.starts_with(BPF_ROOT) { Path::new(BPF_ROOT) } else { pin_dir.parent().unwrap_or(pin_dir) };
    Ok(bpffs::ensure(root)?)
}

/// What the data plane says, for the operator; its texts carry the remedy.
pub fn problem(error: &Error) -> Problem {
    if let Error::Host(error) = error {
        let (what, cause, remedy) = error.parts();
        return Problem::new("data plane", format!("cannot {what}: {cause}"), remedy);
    }
    let text = error.to_string();
    let otherwise = match error {
        Error::Compile(_) => "correct the configuration there, and apply again",
        _ => "look at the messages of the kernel (dmesg) and of segued (journalctl -u segued), then apply again",
    };
    let (message, remedy) = match text.split_once("; ") {
        Some((message, remedy)) if !text.contains('\n') => (message.to_owned(), remedy.to_owned()),
        _ => (text.clone(), otherwise.to_owned()),
    };
    let (key, message) = match message.split_once(": ") {
        Some((key, rest)) if key.len() < 80 => (key.to_owned(), rest.to_owned()),
        _ => ("data plane".to_owned(), message),
    };
    Problem::new(key, message, remedy)
}

fn problems(error: Error) -> Vec<Problem> {
    vec![problem(&error)]
}

impl DataPlane for Xdp {
    fn check(&mut self, state: &NodeState, interfaces: &Interfaces) -> Result<(), Vec<Problem>> {
        self.plane().and_then(|plane| plane.check(state, interfaces, MissingInterface::Refuse)).map_err(problems)
    }

    fn apply(
        &mut self,
        state: &NodeState,
        interfaces: &Interfaces,
        missing: MissingInterface,
    ) -> Result<Activated, Vec<Problem>> {
        let applied = self.plane().and_then(|plane| plane.apply(state, interfaces, missing)).map_err(problems)?;
        Ok(Activated { generation: applied.generation, warnings: applied.warnings })
    }

    fn follow_links(&mut self, interfaces: &Interfaces) -> Result<bool, Vec<Problem>> {
        self.plane.as_mut().map_or(Ok(false), |plane| plane.follow_links(interfaces)).map_err(problems)
    }

    fn follow_path_mtus(&mut self, interfaces: &Interfaces) -> Result<(), Vec<Problem>> {
        let followed = self.plane.as_mut().map_or(Ok(()), |plane| plane.follow_path_mtus(interfaces, Instant::now()));
        followed.map_err(problems)
    }

    fn path_mtus(&self) -> Vec<PathMtu> {
        self.plane.as_ref().map_or_else(Vec::new, |plane| plane.path_mtus(Instant::now()))
    }

    fn sign(&mut self, signature: [u8; 6]) -> Result<(), Vec<Problem>> {
        self.plane().map_err(problems)?;
        self.life.sign(signature).map_err(problems)
    }

    fn remove(&mut self) -> Result<(), Vec<Problem>> {
        // It was not opened, or could not be removed the last time.
        if self.plane.is_none() && Dataplane::is_pinned(&self.pin_dir) {
            self.plane().map_err(problems)?;
        }
        let removed = match self.plane.take() {
            Some(plane) => plane.remove(),
            None => Dataplane::remove_leftovers(&self.pin_dir),
        };
        removed.map_err(problems)
    }

    fn down(&self) -> BTreeSet<Ipv6Net> {
        self.life.down()
    }

    fn bump_caches(&mut self) -> Result<(), Vec<Problem>> {
        self.plane.as_mut().map_or(Ok(()), Dataplane::bump_caches).map_err(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_plane_error_becomes_place_message_and_remedy() {
        let error = Error::NotBpffs { path: "/x".into() };
        let problem = problem(&error);
        assert_eq!((problem.key.as_str(), problem.message.as_str()), ("/x", "not on a BPF file system"));
        assert!(problem.remedy.starts_with("mount one there"), "{problem}");
    }
}
