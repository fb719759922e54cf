//! Loads, attaches and pins Segue's XDP data plane; fills its maps from a node's desired state; reads its counters.
#![forbid(unsafe_code)]

pub mod compile;
mod compiled;
mod facts;

pub use compile::{CompileError, compile};
pub use compiled::{Compiled, CompiledList, CompiledPolicy, CompiledPort, CompiledSid, CompiledSteering, port_slot};
pub use facts::{Capabilities, Capacity, Interface, Interfaces, MissingInterface};
