//! The runtime of network functions: what makes a function live behind its node, whatever it runs in.
//!
//! # Promise
//!
//! A [`Runtime`] takes a [`Function`] through `prepare`, `attach`, `start`, in this order; `status` says at any time how far it is, and
//! `stop` removes all of it, also after a failure or a death half-way, and does nothing where nothing is left. When `start` has
//! returned, the function takes packets.
//!
//! # Data structures
//!
//! A [`Function`] is all that a planner says about one: links to its node, the network on its side, a ruleset, a program. It is plain data
//! with plain names: topologies, chains and Segment Routing are the caller's, and so is the choice of a proxy in the node's data
//! plane. Nothing is remembered here: what is there is found again by names and by the function's mark (the alias of `lo` in a namespace
//! of its own, a variable in the environment of its processes), so that it can be stopped by whoever comes after a crash.
//!
//! # What it is not
//!
//! No scheduler, no supervisor (the node's agent watches functions, and sees a dead one), no data plane. It makes no node: the node's namespace must be
//! there, and the caller gives the node's ends of the links their addresses.
//!
//! # Another kind
//!
//! A kind is a [`Runtime`] and a line in [`Kind::runtime`]; docs/developing/adding-a-function-runtime.md shows it.
#![forbid(unsafe_code)]

mod error;
mod function;
mod namespace;
mod registry;
mod runtime;
mod service;
mod tap;

pub use error::{FunctionError, Result};
pub use function::{Function, Kind, Link, NodeEnd, Program};
pub use runtime::{Runtime, Status};
pub use tap::environment;
