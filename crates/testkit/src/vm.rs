//! Other kernels in a virtual machine, without hardware support: enough to see whether a program loads there.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::command::{output, printed, run};
use crate::initramfs::Initramfs;

/// Why a virtual machine did not do what a test wanted.
#[derive(Debug, Error)]
pub enum VmError {
    /// The kernel image is neither stored nor to be had from the package archive.
    #[error("no kernel image: {0}; set SEGUE_VM_KERNEL to the path of a bzImage, or make Debian's archive reachable")]
    NoKernel(String),
    /// The machine did not power off in time.
    #[error("the virtual machine did not end within {0:?}; its console said:\n{1}")]
    TimedOut(Duration, String),
    /// QEMU did not start.
    #[error("qemu-system-x86_64: {0}")]
    Qemu(#[from] std::io::Error),
}

/// The kernel of Debian 12, the oldest that Segue supports: `SEGUE_VM_KERNEL`, or Debian's cloud image of 6.1, which is
/// fetched from the configured package archive once and kept in `cache`.
///
/// # Errors
///
/// [`VmError::NoKernel`] with the reason.
pub fn debian_12_kernel(cache: &Path) -> Result<PathBuf, VmError> {
    if let Some(path) = std::env::var_os("SEGUE_VM_KERNEL") {
        return Ok(path.into());
    }
    let stored = cache.join("vmlinuz-debian-12");
    if stored.exists() {
        return Ok(stored);
    }
    let work = cache.join("fetch");
    let _ = std::fs::remove_dir_all(&work);
    std::fs::create_dir_all(&work).map_err(|error| VmError::NoKernel(error.to_string()))?;
    let package = fetch_kernel_package(&work)?;
    let tree = work.join("tree");
    let unpacked = output(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&tree));
    if !unpacked.status.success() {
        return Err(VmError::NoKernel(printed(&unpacked)));
    }
    let image = std::fs::read_dir(tree.join("boot"))
        .map_err(|error| VmError::NoKernel(error.to_string()))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz")))
        .ok_or_else(|| VmError::NoKernel("the package holds no vmlinuz".into()))?;
    std::fs::rename(image, &stored).map_err(|error| VmError::NoKernel(error.to_string()))?;
    let _ = std::fs::remove_dir_all(&work);
    Ok(stored)
}

/// Downloads the package with the 6.1 cloud kernel into `work`. On a newer Debian the archive that is configured is asked for
/// Debian 12's packages too, with lists of their own, so that the machine's configuration stays as it is.
fn fetch_kernel_package(work: &Path) -> Result<PathBuf, VmError> {
    let mut options: Vec<String> = Vec::new();
    let mut name = kernel_package_name(&options);
    if name.is_none() {
        options = bookworm_lists(work).map_err(VmError::NoKernel)?;
        let updated = output(Command::new("apt-get").args(&options).args(["update", "-q"]));
        if !updated.status.success() {
            return Err(VmError::NoKernel(printed(&updated)));
        }
        name = kernel_package_name(&options);
    }
    let name =
        name.ok_or_else(|| VmError::NoKernel("no package linux-image-6.1.0-*-cloud-amd64 in the archive".into()))?;
    let fetched = output(Command::new("apt-get").current_dir(work).args(&options).args(["download", "-q", &name]));
    if !fetched.status.success() {
        return Err(VmError::NoKernel(printed(&fetched)));
    }
    std::fs::read_dir(work)
        .map_err(|error| VmError::NoKernel(error.to_string()))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .ok_or_else(|| VmError::NoKernel(format!("apt-get downloaded no file for {name}")))
}

/// The newest 6.1 cloud kernel that the package lists know.
fn kernel_package_name(options: &[String]) -> Option<String> {
    let list = run(Command::new("apt-cache").args(options).args([
        "search",
        "--names-only",
        "^linux-image-6.1.0-[0-9]+-cloud-amd64$",
    ]));
    let abi = |name: &str| name.split('-').nth(3).and_then(|number| number.parse::<u32>().ok());
    list.lines().filter_map(|line| line.split_whitespace().next()).max_by_key(|name| abi(name)).map(str::to_owned)
}

/// apt options that look at Debian 12 in the same archives as the machine's own release.
fn bookworm_lists(work: &Path) -> Result<Vec<String>, String> {
    let targets = run(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(REPO_URI) $(RELEASE)",
        "Created-By: Packages",
    ]));
    let mut archives: Vec<(&str, &str)> = targets
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, release)| !release.contains('-') || release.ends_with("-security"))
        .collect();
    archives.sort_unstable();
    archives.dedup();
    if archives.is_empty() {
        return Err("no package archive is configured".into());
    }
    let lines: String = archives
        .iter()
        .map(|(uri, release)| {
            let release = if release.ends_with("-security") { "bookworm-security" } else { "bookworm" };
            format!("deb {uri} {release} main\n")
        })
        .collect();
    let sources = work.join("sources.list");
    let lists = work.join("lists");
    std::fs::write(&sources, lines)
        .and_then(|()| std::fs::create_dir_all(lists.join("partial")))
        .map_err(|error| error.to_string())?;
    Ok(["Dir::Etc::SourceList=", "Dir::Etc::SourceParts=/dev/null", "Dir::State::Lists=", "Dir::Cache="]
        .iter()
        .map(|option| match *option {
            "Dir::Etc::SourceList=" => format!("{option}{}", sources.display()),
            "Dir::State::Lists=" => format!("{option}{}", lists.display()),
            "Dir::Cache=" => format!("{option}{}", work.join("cache").display()),
            other => other.to_owned(),
        })
        .map(|option| format!("-o{option}"))
        .collect())
}

/// An initial file system with a shell (busybox) and `programs` of this machine with the libraries that they need. It
/// mounts the usual file systems and a BPF file system at `/bpf`, runs `script`, and powers the machine off.
///
/// # Panics
///
/// When a program or library cannot be read.
pub fn initramfs(programs: &[&str], script: &str) -> Initramfs {
    let mut archive = Initramfs::default();
    archive.file("/bin/busybox", true, &std::fs::read("/bin/busybox").expect("busybox-static is installed"));
    let mut libraries: Vec<PathBuf> = Vec::new();
    for program in programs {
        archive.copy(Path::new(program));
        let listing = run(Command::new("ldd").arg(program));
        // `name => /path (address)`, or `/path (address)` for the loader itself.
        libraries.extend(listing.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from));
    }
    libraries.sort();
    libraries.dedup();
    for library in &libraries {
        archive.copy(library);
    }
    for directory in ["proc", "sys", "bpf", "tmp", "dev"] {
        archive.directory(directory);
    }
    let init = format!(
        "#!/bin/busybox sh\n\
         /bin/busybox mkdir -p /usr/bin /usr/sbin /sbin\n\
         /bin/busybox --install -s\n\
         mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t bpf bpf /bpf; mount -t devtmpfs dev /dev\n\
         {script}\n\
         poweroff -f\n"
    );
    archive.file("/init", true, init.as_bytes());
    archive
}

/// Boots a kernel with an initial file system and returns everything on its console once it has powered off.
///
/// # Errors
///
/// [`VmError::TimedOut`] with the console so far; the machine is stopped then.
pub fn boot(kernel: &Path, archive: Initramfs, limit: Duration) -> Result<String, VmError> {
    let mut initrd = tempfile::NamedTempFile::new()?;
    initrd.write_all(&archive.finish())?;
    // One processor: nothing in it runs beside something else. And without what costs an emulated one most and changes nothing of what it
    // is asked: memory that is cleared when it is taken and again when it is used, ways around faults of real processors, a fifth level of pages.
    let mut machine = Command::new("qemu-system-x86_64")
        .args(["-accel", "tcg", "-cpu", "max", "-m", "1024", "-smp", "1", "-display", "none", "-monitor", "none"])
        .args(["-serial", "stdio", "-no-reboot", "-nic", "none", "-kernel"])
        .arg(kernel)
        .arg("-initrd")
        .arg(initrd.path())
        .args(["-append", "console=ttyS0 quiet panic=-1 rdinit=/init init_on_alloc=0 mitigations=off no5lvl"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    let mut console = machine.stdout.take().expect("stdout is piped");
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = console.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let start = Instant::now();
    let mut timed_out = false;
    while machine.try_wait()?.is_none() {
        if start.elapsed() > limit {
            timed_out = true;
            machine.kill()?;
            machine.wait()?;
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let text = reader.join().expect("the console's reader does not panic");
    if timed_out { Err(VmError::TimedOut(limit, text)) } else { Ok(text) }
}
