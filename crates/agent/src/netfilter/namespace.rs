//! Network namespaces by name, as `ip netns` has them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::kernel::KernelError;
use crate::netns;

const NONE: Option<&str> = None;

/// A namespace that is there.
#[derive(Debug)]
pub struct Namespace {
    path: PathBuf,
    file: File,
}

impl Namespace {
    /// The namespace of this name, if there is one.
    pub fn find(name: &str) -> Result<Option<Self>, KernelError> {
        let path = netns::path(name);
        match File::open(&path) {
            Ok(file) => {
                let namespace = Self { path, file };
                // A file that is no namespace is what an agent left that died half-way.
                Ok(namespace.enter(|| Ok(())).is_ok().then_some(namespace))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path, "open", &error)),
        }
    }

    /// The same; makes it if there is none, and says so.
    pub fn find_or_make(name: &str) -> Result<(Self, bool), KernelError> {
        if let Some(found) = Self::find(name)? {
            return Ok((found, false));
        }
        let path = netns::path(name);
        make(&path).map_err(|error| failed(&path, "make", &error))?;
        match Self::find(name)? {
            Some(made) => Ok((made, true)),
            None => Err(failed(&path, "make", &io::Error::from(ErrorKind::NotFound))),
        }
    }

    /// For netlink messages, as long as `self` lives.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Runs `body` in a thread of its own in the namespace.
    pub fn enter<T: Send>(&self, body: impl FnOnce() -> Result<T, KernelError> + Send) -> Result<T, KernelError> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                setns(&self.file, CloneFlags::CLONE_NEWNET)
                    .map_err(|error| failed(&self.path, "enter", &error.into()))?;
                body()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Takes the name away, and with it the namespace unless a program runs in it.
    pub fn remove(self) -> Result<(), KernelError> {
        umount2(&self.path, MntFlags::MNT_DETACH).map_err(|error| failed(&self.path, "unmount", &error.into()))?;
        fs::remove_file(&self.path).map_err(|error| failed(&self.path, "remove", &error))
    }
}

/// A new namespace, mounted on a file.
fn make(path: &Path) -> io::Result<()> {
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory)?;
    share(directory)?;
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

fn failed(path: &Path, action: &str, error: &io::Error) -> KernelError {
    KernelError {
        action: format!("{action} network namespace {}", path.display()),
        errno: error.raw_os_error(),
        cause: error.to_string(),
        remedy: "run segued as root (CAP_SYS_ADMIN) where it may mount; `ip netns` shows what is there".to_owned(),
    }
}
