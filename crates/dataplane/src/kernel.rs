//! What the running kernel can do.

use std::fs;
use std::time::{Duration, Instant};

use crate::facts::Capabilities;

/// Without any hint the lowest usual value: adjacencies then live shorter than configured, never longer.
const HZ_UNKNOWN: u32 = 100;
/// All values that kernels are built with.
const HZ_CHOICES: [u32; 4] = [100, 250, 300, 1000];

impl Capabilities {
    /// Looks at the running kernel: its release and its timer frequency.
    pub fn detect() -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self::of_release(&release, hz(&release))
    }

    /// The abilities of a kernel by its release, such as `6.1.0-31-amd64`.
    pub fn of_release(release: &str, hz: u32) -> Self {
        let version = version(release).unwrap_or((0, 0));
        Self { fib_table: version >= (6, 5), redirect_multi_buffer: version >= (6, 3), hz }
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// CONFIG_HZ: from the kernel's configuration if it is installed, else by watching jiffies pass.
fn hz(release: &str) -> u32 {
    let configured = fs::read_to_string(format!("/boot/config-{}", release.trim())).ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("CONFIG_HZ="))?;
        line.parse().ok()
    });
    configured.or_else(measured).unwrap_or(HZ_UNKNOWN)
}

fn measured() -> Option<u32> {
    const WATCH: Duration = Duration::from_millis(40);
    let start = (Instant::now(), jiffies()?);
    std::thread::sleep(WATCH);
    let end = (Instant::now(), jiffies()?);
    let rate = end.1.checked_sub(start.1)? as f64 / end.0.duration_since(start.0).as_secs_f64();
    HZ_CHOICES.into_iter().min_by_key(|choice| (f64::from(*choice) - rate).abs() as u64)
}

/// `jiffies: N` is among the first lines of what each CPU shows there.
pub(crate) fn jiffies() -> Option<u64> {
    let text = fs::read_to_string("/proc/timer_list").ok()?;
    text.lines().find_map(|line| line.trim().strip_prefix("jiffies:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abilities_follow_the_release() {
        let of = |release| {
            let capabilities = Capabilities::of_release(release, 250);
            (capabilities.fib_table, capabilities.redirect_multi_buffer)
        };
        assert_eq!(of("6.1.0-31-amd64"), (false, false));
        assert_eq!(of("6.3.0"), (false, true));
        assert_eq!(of("6.5-rc1"), (true, true));
        assert_eq!(of("6.18.44-fc-v669\n"), (true, true));
        assert_eq!(of("7.0.1"), (true, true));
        assert_eq!(of("nonsense"), (false, false));
    }

    #[test]
    fn timer_frequency_is_one_that_kernels_have() {
        assert!(HZ_CHOICES.contains(&Capabilities::detect().hz));
    }
}
