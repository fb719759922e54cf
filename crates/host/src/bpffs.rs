//! The BPF file system, where maps, programs and links outlive whoever made them.

use std::fs::{self, File};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use crate::{HostError, Result};

/// Held while a file system is mounted; beside the directory that it is mounted on.
const LOCK: &str = ".segue-bpf.lock";

/// Sees to it that `root` lies on a BPF file system: makes the directory and mounts one on it, unless there is one. Two that start at
/// once do not both mount one: the second would hide the pins of the first.
///
/// # Errors
/// If the directory cannot be made or mounted on.
pub fn ensure(root: &Path) -> Result<()> {
    if is_bpffs(root) {
        return Ok(());
    }
    let remedy = || format!("be root, or mount it by hand: mount -t bpf bpf {}", root.display());
    fs::create_dir_all(root).map_err(HostError::io("make the directory", root, remedy()))?;
    let lock = root.parent().unwrap_or(root).join(LOCK);
    let failed = |error| HostError::io("lock", &lock, remedy())(error);
    let file = File::create(&lock).map_err(failed)?;
    let _lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| failed(errno.into()))?;
    if is_bpffs(root) {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("bpf"), root, Some("bpf"), flags, Some("mode=700"))
        .map_err(|errno| HostError::io("mount a BPF file system on", root, remedy())(errno.into()))
}

/// Whether the directory exists on a BPF file system.
#[must_use]
pub fn is_bpffs(directory: &Path) -> bool {
    statfs(directory).is_ok_and(|status| status.filesystem_type() == BPF_FS_MAGIC)
}
