//! Entering a network namespace. Only that: the mounts stay, so that the BPF file system is still where it was.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use nix::sched::{CloneFlags, setns};

/// Where `ip netns` keeps its namespaces.
const DIRECTORY: &str = "/run/netns";

/// Why a namespace could not be entered.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// There is none of this name.
    #[error("network namespace {0}: there is none; `ip netns list` shows all")]
    Missing(PathBuf),
    /// It could not be opened or entered.
    #[error("network namespace {path}: {source}; it takes root (CAP_SYS_ADMIN)", path = .path.display())]
    Refused {
        /// The namespace's file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Threads that run already would stay in the old namespace.
    #[error("this process has {0} threads already: it must enter a network namespace first")]
    Threads(usize),
}

/// The namespace's file: a name as `ip netns` has it, or a path.
pub fn path(name: &str) -> PathBuf {
    if name.contains('/') { PathBuf::from(name) } else { Path::new(DIRECTORY).join(name) }
}

/// Moves the calling thread, which must be the only one, into the namespace.
pub fn enter(name: &str) -> Result<(), NetnsError> {
    let threads = fs::read_dir("/proc/self/task").map(Iterator::count).unwrap_or(1);
    if threads > 1 {
        return Err(NetnsError::Threads(threads));
    }
    let path = path(name);
    let refused = |source| NetnsError::Refused { path: path.clone(), source };
    let file = File::open(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NetnsError::Missing(path.clone()),
        _ => refused(error),
    })?;
    setns(file, CloneFlags::CLONE_NEWNET).map_err(|error| refused(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths() {
        assert_eq!(path("lab-n1"), Path::new("/run/netns/lab-n1"));
        assert_eq!(path("/proc/1/ns/net"), Path::new("/proc/1/ns/net"));
    }
}
