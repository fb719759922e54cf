//! What becomes of packets.

use crate::reason::Reason;

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It goes on in its chain, as it is now: the engine advances its steering header. Asynchronous: the copy was of use.
    Onward,
    /// It leaves by the interface that it came in by, and is not advanced: an answer, whose addresses the service has set.
    Back,
    /// The kernel of the service's namespace gets it, as it is now ([`crate::Kind::uses_kernel`]).
    Kernel,
    /// It is dropped. Asynchronous: the copy was of no use.
    Drop(Reason),
    /// The service has what it needs of it and will send that later, or has put it into something else. It owes an account
    /// ([`crate::Context::account_sent`], [`crate::Context::account_dropped`]).
    Taken,
}

/// Where a packet of a service's own goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// On in the chain: it has a steering header, which the engine advances.
    Onward,
    /// Out by the service's interface as it is.
    Back,
    /// To the kernel of the service's namespace ([`crate::Kind::uses_kernel`]).
    Kernel,
}
