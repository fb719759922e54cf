//! What tells network namespaces apart.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Identity of a network namespace: device and inode number of its file.
pub type Identity = (u64, u64);

/// The namespace of the process, that is of its first thread.
pub(crate) fn own_identity() -> Option<Identity> {
    let metadata = fs::metadata("/proc/self/ns/net").ok()?;
    Some((metadata.dev(), metadata.ino()))
}
