//! One processor for a measurement: pinned, and undisturbed where the system allows that.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use segue_host::Run;

use crate::error::{Error, Result};

/// This thread is pinned to one processor; undone when dropped.
#[derive(Debug)]
pub struct Pinned {
    before: CpuSet,
    /// The processor.
    pub cpu: usize,
    /// Whether timed runs get a real-time priority, so that other programs do not take time from them.
    pub real_time: bool,
}

/// Pins this thread to `cpu`, or to the last one that it may use, and finds out whether the system allows `real_time`.
///
/// # Errors
/// If the thread may not run on `cpu`.
pub fn pin(cpu: Option<usize>, real_time: bool) -> Result<Pinned> {
    let this = Pid::from_raw(0);
    let before = sched_getaffinity(this).map_err(Error::system("read the CPU affinity"))?;
    let usable = |cpu: &usize| before.is_set(*cpu).unwrap_or(false);
    let cpu = match cpu {
        Some(cpu) => cpu,
        None => (0..CpuSet::count()).rev().find(usable).unwrap_or(0),
    };
    let mut one = CpuSet::new();
    one.set(cpu).map_err(Error::system("choose a CPU"))?;
    sched_setaffinity(this, &one).map_err(Error::system("pin the measurement to a CPU"))?;
    let real_time = real_time && RealTime::begin().is_some();
    REAL_TIME.store(real_time, Ordering::Relaxed);
    Ok(Pinned { before, cpu, real_time })
}

impl Pinned {
    /// Does `work` on whichever processors the thread might use before: for what has threads of its own.
    ///
    /// # Errors
    /// If the thread may not run there any more.
    pub fn released<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let this = Pid::from_raw(0);
        let now = sched_getaffinity(this).map_err(Error::system("read the CPU affinity"))?;
        sched_setaffinity(this, &self.before).map_err(Error::system("release the measurement from its CPU"))?;
        let done = work();
        sched_setaffinity(this, &now).map_err(Error::system("pin the measurement to a CPU"))?;
        Ok(done)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        REAL_TIME.store(false, Ordering::Relaxed);
        let _ = sched_setaffinity(Pid::from_raw(0), &self.before);
    }
}

/// Whether [`pin`] found that timed runs may have a real-time priority.
static REAL_TIME: AtomicBool = AtomicBool::new(false);

/// This thread has a real-time priority until this is dropped.
///
/// Only while packets run. Some settings of the kernel are retried in a loop while another task holds its network lock; with this priority, that
/// task would never get the processor to give it up.
#[derive(Debug)]
pub(crate) struct RealTime(());

impl RealTime {
    fn begin() -> Option<Self> {
        let thread = gettid().to_string();
        Run::new("chrt", ["--fifo", "--pid", "1", &thread]).text().is_ok().then_some(Self(()))
    }

    /// The priority, if [`pin`] was asked for it and may have it.
    pub(crate) fn if_allowed() -> Option<Self> {
        if REAL_TIME.load(Ordering::Relaxed) { Self::begin() } else { None }
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        let _ = Run::new("chrt", ["--other", "--pid", "0", &gettid().to_string()]).text();
    }
}

/// Frequency of the time stamp counter in hertz and where it comes from: the base frequency that the CPU driver knows, else
/// `cpu MHz` of /proc/cpuinfo, which a virtual machine sets to the counter's frequency.
///
/// # Errors
/// If neither can be read.
pub fn tsc_frequency(cpu: usize) -> Result<(f64, &'static str)> {
    let base = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/base_frequency");
    if let Some(kilohertz) = std::fs::read_to_string(base).ok().and_then(|text| text.trim().parse::<f64>().ok()) {
        return Ok((kilohertz * 1e3, "cpufreq base_frequency"));
    }
    let path = "/proc/cpuinfo";
    let text = std::fs::read_to_string(path).map_err(Error::file(path))?;
    let megahertz = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == "cpu MHz")
        .and_then(|(_, value)| value.trim().parse::<f64>().ok());
    match megahertz {
        Some(megahertz) => Ok((megahertz * 1e6, "cpu MHz of /proc/cpuinfo")),
        None => Err(Error::Usage(
            "the time stamp counter's frequency is unknown here: /proc/cpuinfo has no `cpu MHz`".into(),
        )),
    }
}
