//! What data plane (C) and agent (Rust) share: structures and constants generated from `bpf/include/abi/segue.h`, and the
//! closed list of outcomes from `bpf/include/abi/outcomes.def`. Names are the header's without `segue_`: `struct
//! segue_sid_key` is [`SidKey`]. Constants keep theirs.
//!
//! Every structure converts to and from bytes with zerocopy's `IntoBytes` and `FromBytes`; `Structure::new_zeroed()` (trait
//! [`zerocopy::FromZeros`]) makes an empty one. Tests in `segue-dataplane` compare the layouts with the compiled object's BTF.
#![forbid(unsafe_code)]

mod generated {
    // The header's comments are not carried over: documentation of the fields is in segue.h. Hence no docs here.
    #![allow(missing_docs)]
    include!(concat!(env!("OUT_DIR"), "/segue.rs"));
}
pub use generated::*;

impl Sid {
    /// The row in `memories` and `memory_counters` that a proxy's scope has; 0: it remembers nothing.
    pub const fn scope_row(&self) -> u32 {
        self.scope as u32
    }
}

mod outcome;
pub use outcome::{Outcome, OutcomeKind, markdown_table};

pub use zerocopy;
