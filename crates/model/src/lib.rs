//! What an operator writes: the desired state of one node ([`node`]), whole topologies and chains ([`topology`]), their
//! validation and their JSON Schema. What follows from chains is for the planner, the crate `segue-plan`.
//!
//! This crate never touches the kernel: it builds and tests without root.
#![forbid(unsafe_code)]

pub mod attached;
pub mod check;
mod direction;
pub mod error;
pub mod firewall;
mod guard;
pub mod instances;
pub mod label;
pub mod label_ecn;
pub mod learn;
pub mod limits;
pub mod load;
mod locate;
pub mod near;
pub mod node;
mod node_check;
pub mod owner;
pub mod proxy;
pub mod range;
pub mod reach;
pub mod schema;
pub mod service_label;
pub mod topology;
mod topology_check;
pub mod udp;
pub mod value;
pub mod wiring;
