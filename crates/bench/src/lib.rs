//! Measures Segue's data plane beside the kernel's, and beside a bare redirect as the limit of the machine.
//!
//! docs/benchmarks.md explains the method.
#![forbid(unsafe_code)]

pub mod cli;
mod command;
pub mod contest;
pub mod cost;
pub mod cost_case;
pub mod cpu;
pub mod error;
pub mod frame;
pub mod interrupt;
pub mod lane;
pub mod netns;
mod object;
pub mod plot;
pub mod report;
pub mod scenario;
pub mod segue;
pub mod stats;
pub mod topology;
pub mod traffic;
