//! The BPF file system, where maps, programs and links outlive the agent.

use std::fs;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use crate::Error;

/// Makes the directory and mounts a BPF file system on it, unless it lies on one already.
///
/// # Errors
/// [`Error::Pin`] if the directory cannot be made or mounted on.
pub fn mount_bpffs(directory: &Path) -> Result<(), Error> {
    let failed = |action, source| Error::Pin { path: directory.to_owned(), action, source };
    fs::create_dir_all(directory).map_err(|source| failed("make the directory", source))?;
    if is_bpffs(directory) {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("bpf"), directory, Some("bpf"), flags, Some("mode=700"))
        .map_err(|errno| failed("mount a BPF file system", errno.into()))
}

/// Whether the directory exists on a BPF file system.
pub fn is_bpffs(directory: &Path) -> bool {
    statfs(directory).is_ok_and(|status| status.filesystem_type() == BPF_FS_MAGIC)
}
