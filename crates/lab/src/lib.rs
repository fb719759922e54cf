//! Segue's lab: a topology file becomes network namespaces, veth pairs, addresses, routes and one agent per node, and all
//! of it goes away again.
//!
//! Everything that the lab makes carries the lab's name: namespaces are called `sg-<lab>-<node>` and hold the lab's and
//! the node's name as alias of their `lo` interface, files lie in `/run/segue/lab/<lab>`, pinned BPF objects in
//! `/run/segue/bpf/lab/<lab>`. So [`down`] finds what to remove even when the lab's own records are lost.
#![forbid(unsafe_code)]

pub mod agent;
pub mod attach;
mod blocks;
pub mod capture;
pub mod cli;
mod daemon;
pub mod debug;
pub mod demo;
pub mod down;
pub mod error;
pub mod exec;
pub mod explain;
mod firewall;
pub mod functions;
pub mod gather;
pub mod labels;
pub mod list;
mod loaded;
pub mod names;
pub mod netns;
mod offloads;
mod output;
pub mod parallel;
pub mod progress;
pub mod random;
mod read;
pub mod recorder;
mod recording;
pub mod relay;
pub mod reload;
pub mod seen;
mod service;
pub mod state;
pub mod topology;
pub mod trace;
pub mod traffic;
pub mod up;
pub mod wiring;

pub use error::{LabError, Result};
