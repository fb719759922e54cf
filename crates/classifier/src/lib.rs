//! Rules over the fields of a packet, for the firewall and for steering: the model ([`program`]), and its meaning.
//!
//! No kernel, no unsafe code: all of it builds and is tested without root.
#![forbid(unsafe_code)]

pub mod field;
pub mod interpreter;
pub mod key;
pub mod program;

pub use field::Field;
pub use key::Key;
pub use program::{Action, Chain, Condition, Extension, Program, ProgramError, Rule, Test, Verdict};
