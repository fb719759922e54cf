//! Network namespaces by name, as `ip netns` has them: found, made, entered, removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

pub use crate::identity::Identity;
use crate::identity::own_identity;
use crate::link::LinkSocket;
use crate::process;
use crate::{HostError, Result};

/// Where iproute2 keeps the names of network namespaces.
pub const DIRECTORY: &str = "/run/netns";

const REMEDY: &str = "check with `ip netns` that it exists, and run as root (CAP_SYS_ADMIN)";
const NONE: Option<&str> = None;

/// The namespace's file: a name as `ip netns` has it, or a path.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    if name.contains('/') { PathBuf::from(name) } else { Path::new(DIRECTORY).join(name) }
}

/// Names of all network namespaces, sorted.
#[must_use]
pub fn all() -> Vec<String> {
    let Ok(entries) = fs::read_dir(DIRECTORY) else { return Vec::new() };
    let mut found: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    found.sort();
    found
}

/// Whether there is anything of this name, be it only a leftover file.
#[must_use]
pub fn exists(name: &str) -> bool {
    path(name).exists()
}

/// Identity of a namespace; `None` if it does not exist or its name is only a leftover file.
#[must_use]
pub fn identity(name: &str) -> Option<Identity> {
    identity_of(&fs::metadata(path(name)).ok()?)
}

/// `None` if the file is no namespace: a name whose mount never happened lies on another device than the namespaces themselves.
fn identity_of(metadata: &fs::Metadata) -> Option<Identity> {
    (metadata.dev() == own_identity()?.0).then_some((metadata.dev(), metadata.ino()))
}

/// As [`Namespace::inside`], by name.
///
/// # Errors
/// If there is no such namespace, or it cannot be entered.
pub fn inside<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    Namespace::open(name)?.inside(work)
}

/// Removes several namespaces. One that is gone already, or goes meanwhile, is none the worse.
///
/// # Errors
/// The first one that could not be removed; the others are tried all the same.
pub fn remove_all<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    names.into_iter().map(remove).fold(Ok(()), Result::and)
}

/// Removes a namespace's name, also one that is only a leftover file; nothing happens if there is none.
fn remove(name: &str) -> Result<()> {
    let path = path(name);
    match umount2(&path, MntFlags::MNT_DETACH) {
        // EINVAL: nothing is mounted there.
        Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => {}
        Err(errno) => return Err(HostError::io("unmount network namespace", &path, REMEDY)(errno.into())),
    }
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(HostError::io("remove network namespace", &path, REMEDY)(error))
        }
        _ => Ok(()),
    }
}

/// A network namespace that is there.
#[derive(Debug)]
pub struct Namespace {
    path: PathBuf,
    file: File,
    identity: Identity,
}

impl Namespace {
    /// The namespace of this name.
    ///
    /// # Errors
    /// [`HostError::NoNamespace`]; or it cannot be opened.
    pub fn open(name: &str) -> Result<Self> {
        Self::find(name)?.ok_or_else(|| HostError::NoNamespace(path(name)))
    }

    /// The namespace of this name, if there is one. A file that is no namespace, as one that died half-way leaves it, is none.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn find(name: &str) -> Result<Option<Self>> {
        let path = path(name);
        match File::open(&path) {
            Ok(file) => {
                let metadata = file.metadata().map_err(HostError::io("look at network namespace", &path, REMEDY))?;
                Ok(identity_of(&metadata).map(|identity| Self { path, file, identity }))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(HostError::io("open network namespace", &path, REMEDY)(error)),
        }
    }

    /// Makes a namespace.
    ///
    /// # Errors
    /// [`HostError::NamespaceExists`]; or it cannot be made.
    pub fn make(name: &str) -> Result<Self> {
        match Self::find_or_make(name)? {
            (namespace, true) => Ok(namespace),
            (namespace, false) => Err(HostError::NamespaceExists(namespace.path)),
        }
    }

    /// Finds a namespace, or makes it if there is none; says whether it did.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn find_or_make(name: &str) -> Result<(Self, bool)> {
        let path = path(name);
        let failed = |error| HostError::io("make network namespace", &path, REMEDY)(error);
        let directory = path.parent().unwrap_or(&path);
        fs::create_dir_all(directory).map_err(failed)?;
        // As iproute2 does: two that come first at the same time would mount the directory over each other's names. And a file that
        // is no namespace is then a leftover, and not one that another makes just now.
        let lock = File::open(directory).map_err(failed)?;
        let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, errno)| failed(errno.into()))?;
        if let Some(found) = Self::find(name)? {
            return Ok((found, false));
        }
        share(directory).and_then(|()| mount_new(&path)).map_err(failed)?;
        Ok((Self::open(name)?, true))
    }

    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What tells it from all others, as long as it lives.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Runs `work` in a thread of its own that has entered the namespace. Programs that it starts and sockets that it opens belong
    /// there.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.set().map(|()| work()));
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves this thread into the namespace until the guard is dropped.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    pub fn enter(&self) -> Result<Entered> {
        let own = "/proc/thread-self/ns/net";
        let back = File::open(own).map_err(HostError::io("open", own, "mount /proc"))?;
        self.set()?;
        Ok(Entered { back })
    }

    /// Moves the process into the namespace: the calling thread, which must be its only one.
    ///
    /// # Errors
    /// [`HostError::Threads`]; or the namespace cannot be entered.
    pub fn enter_for_good(&self) -> Result<()> {
        match fs::read_dir("/proc/self/task").map(Iterator::count) {
            Ok(threads) if threads > 1 => Err(HostError::Threads(threads)),
            _ => self.set(),
        }
    }

    fn set(&self) -> Result<()> {
        setns(&self.file, CloneFlags::CLONE_NEWNET)
            .map_err(|errno| HostError::io("enter network namespace", &self.path, REMEDY)(errno.into()))
    }

    /// Takes the name away, and with it the namespace unless a program runs in it.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(self) -> Result<()> {
        remove(&self.path.to_string_lossy())
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A new namespace, mounted on a file.
fn mount_new(path: &Path) -> io::Result<()> {
    match OpenOptions::new().read(true).write(true).create_new(true).mode(0o444).open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let mounted = std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> io::Result<()> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            mount(Some("/proc/thread-self/ns/net"), path, NONE, MsFlags::MS_BIND, NONE)?;
            Ok(())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    mounted.inspect_err(|_| drop(fs::remove_file(path)))
}

/// Mounts below it are seen by programs with a mount namespace of their own, so that names come and go for all.
fn share(directory: &Path) -> io::Result<()> {
    let shared = || mount(NONE, directory, NONE, MsFlags::MS_SHARED | MsFlags::MS_REC, NONE);
    if shared().is_ok() {
        return Ok(());
    }
    // It is no mount point yet.
    mount(Some(directory), directory, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
    Ok(shared()?)
}

/// This thread is inside a namespace; it returns when this is dropped.
#[derive(Debug)]
pub struct Entered {
    back: File,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // To go on in the wrong namespace would change someone else's network.
        if setns(self.back.as_fd(), CloneFlags::CLONE_NEWNET).is_err() {
            std::process::abort();
        }
    }
}

/// A network namespace with `lo` up that goes away with its value, and with all that runs in it.
#[derive(Debug)]
pub struct Temporary {
    name: String,
    namespace: Namespace,
}

impl Temporary {
    /// Makes the namespace `<prefix><process>-<suffix>`, so that [`orphans`] finds it if this process dies.
    ///
    /// # Errors
    /// No root, or the name exists.
    pub fn make(prefix: &str, suffix: &str) -> Result<Self> {
        let name = format!("{prefix}{}-{suffix}", std::process::id());
        let temporary = Self { namespace: Namespace::make(&name)?, name };
        temporary.inside(|| LinkSocket::open()?.settle("lo", None, 0))??;
        Ok(temporary)
    }

    /// Its name below [`DIRECTORY`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl std::ops::Deref for Temporary {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.namespace
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // No panic here: it may run because of one. A failure has no one to go to but whoever reads the terminal.
        process::end(&[self.identity].into(), Duration::ZERO);
        if let Err(error) = remove(&self.name) {
            eprintln!("{}: {error}", self.name);
        }
    }
}

/// Whether a name was given by [`Temporary::make`] with this prefix, by a process that is gone.
#[must_use]
pub fn is_orphan(prefix: &str, name: &str) -> bool {
    let Some((process, _)) = name.strip_prefix(prefix).and_then(|rest| rest.split_once('-')) else { return false };
    process.parse::<u32>().is_ok() && !fs::exists(format!("/proc/{process}")).unwrap_or(true)
}

/// Namespaces that processes left which are gone.
#[must_use]
pub fn orphans(prefix: &str) -> Vec<String> {
    all().into_iter().filter(|name| is_orphan(prefix, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths() {
        assert_eq!(path("lab-n1"), Path::new("/run/netns/lab-n1"));
        assert_eq!(path("/proc/1/ns/net"), Path::new("/proc/1/ns/net"));
    }

    #[test]
    fn what_is_not_there_is_told() {
        let error = Namespace::open("sg-t-there-is-none").unwrap_err().to_string();
        assert!(error.contains("/run/netns/sg-t-there-is-none") && error.contains("ip netns list"), "{error}");
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(Namespace::find(&file.path().to_string_lossy()).unwrap().is_none(), "a leftover file is no namespace");
        assert_eq!(identity("/proc/self/ns/net"), own_identity());
    }

    #[test]
    fn a_process_with_threads_does_not_move() {
        // The test's own thread is beside the first one.
        let error = Namespace::open("/proc/self/ns/net").unwrap().enter_for_good().unwrap_err();
        assert!(matches!(error, HostError::Threads(2..)), "{error}");
    }

    #[test]
    fn only_names_whose_process_is_gone_are_orphans() {
        assert!(!is_orphan("sg-x-", &format!("sg-x-{}-a-node", std::process::id())));
        // Larger than the kernel's largest process identifier, 2^22.
        assert!(is_orphan("sg-x-", "sg-x-4294967295-a-node"));
        for other in ["sg-x-x-node", "sg-x-", "sg-lab-4294967295-a", "4294967295-a"] {
            assert!(!is_orphan("sg-x-", other), "{other}");
        }
    }
}
