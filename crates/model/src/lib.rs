//! What an operator writes, and what follows from it: the desired state of one node ([`node`]), whole topologies and
//! chains, their validation, their JSON Schema and the planner from chains to each node's desired state.
//!
//! This crate never touches the kernel: it builds and tests without root.
#![forbid(unsafe_code)]

mod check;
pub mod error;
pub mod firewall;
pub mod limits;
pub mod load;
mod locate;
pub mod node;
mod node_check;
pub mod owner;
pub mod plan;
pub mod proxy;
pub mod range;
pub mod schema;
pub mod topology;
mod topology_check;
pub mod value;
pub mod wiring;
