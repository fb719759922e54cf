//! Rules over the fields of a packet, for the firewall and for steering: the model ([`program`]), and its meaning.
//!
//! No kernel, no unsafe code: all of it builds and is tested without root.
#![forbid(unsafe_code)]

pub mod analysis;
#[cfg(feature = "generators")]
pub mod arbitrary;
#[cfg(feature = "generators")]
pub mod classbench;
pub mod compile;
mod covering;
pub mod execute;
pub mod explain;
pub mod field;
pub mod frame;
pub mod image;
pub mod interpreter;
pub mod key;
mod normal;
pub mod program;
pub mod random;

pub use field::Field;
pub use key::Key;
pub use program::{Action, Chain, Condition, Extension, Program, ProgramError, Rule, Test, Verdict};
