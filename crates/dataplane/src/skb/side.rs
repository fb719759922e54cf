//! Which packets of an interface meet a program on TC.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Which way packets go that a filter sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// They come in.
    Ingress,
    /// They go out.
    Egress,
}

impl Side {
    /// Name of its link's pin.
    pub(super) fn pin(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// What the kernel says of a program or link: `prog_id:`, `ifindex:`.
pub(super) fn number_of(object: BorrowedFd<'_>, what: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", object.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix(what))?.trim().parse().ok()
}
