//! `segued`, the agent of one node: makes the node what its desired state says, keeps it so while links, routes and
//! neighbours change, and serves its state over a Unix socket. Forwarding never needs it: the data plane lives on its own.
#![forbid(unsafe_code)]

pub mod actor;
pub mod api;
pub mod apply;
pub mod background;
pub mod devices;
pub mod diff;
pub mod doctor;
pub mod firewall;
pub mod fitness;
pub mod follow;
mod functions;
pub mod hold;
pub mod kernel;
pub mod learned;
pub mod liveness;
pub mod metrics;
pub mod mode;
mod netfilter;
pub mod node;
pub mod observe;
pub mod options;
pub mod plane;
pub mod problem;
pub mod server;
pub mod store;
mod validate;
mod vlan;
pub mod xdp;
