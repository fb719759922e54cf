//! When the kernel looks for packets on the service's interface: it can wait for more before it raises the next interrupt, which costs time at
//! low rates and saves it at high ones (`napi_defer_hard_irqs`, `gro_flush_timeout`; Documentation/networking/napi.rst).

use std::fs;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Sets both for an interface of the calling thread's network namespace. They stay until somebody sets them again, or the interface goes.
///
/// # Errors
/// What the kernel refused.
pub(crate) fn defer(interface: &str, times: u32, nanoseconds: u64) -> Result<(), String> {
    let work = || -> Result<(), String> {
        let failed = |what: &str| {
            let what = what.to_owned();
            move |error: nix::Error| format!("{what}: {error}")
        };
        // /sys shows the network namespace in which it was mounted: a mount of its own, which goes with this thread.
        unshare(CloneFlags::CLONE_NEWNS).map_err(failed("cannot have mounts of its own"))?;
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)
            .map_err(failed("cannot keep mounts to itself"))?;
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none).map_err(failed("cannot mount /sys"))?;
        for (key, value) in [("napi_defer_hard_irqs", u64::from(times)), ("gro_flush_timeout", nanoseconds)] {
            let file = format!("/sys/class/net/{interface}/{key}");
            fs::write(&file, value.to_string()).map_err(|error| format!("cannot write {value} to {file}: {error}"))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|_| Err("it panicked".into())))
}
