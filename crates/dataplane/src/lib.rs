//! Loads, attaches and pins Segue's XDP data plane; fills its maps from a node's desired state; reads its counters.
//!
//! [`compile()`] is pure: a [`segue_model::node::NodeState`] becomes map entries. [`Dataplane`] is the only part of Segue that
//! talks to libbpf: it loads or adopts, applies a compiled state all-or-nothing, and reads what was counted.
// Allowed in three modules, for calls that libbpf-rs lacks: skb/tcx.rs, program.rs, batch.rs.
#![deny(unsafe_code)]

mod batch;
mod bpf_link;
mod carried;
pub mod compile;
mod compiled;
mod dataplane;
mod error;
mod facts;
mod firewall;
mod grace;
mod interfaces;
mod kernel;
mod map_table;
mod maps;
mod object;
mod program;
mod records;
pub mod shared;
mod skb;

pub use compile::{CompileError, Prepared, compile, needs_cut, prefers_xdp, prepare};
pub use compiled::{
    Compiled, CompiledFirewall, CompiledLabel, CompiledList, CompiledPolicy, CompiledPort, CompiledSid,
    CompiledSteering, function_number,
};
pub use dataplane::{
    Applied, AttachMode, Attachment, CaptureReader, CaptureSource, CapturedPacket, Counter, Counters, Dataplane,
    Direction, Fib, FibAnswer, FibQuestion, FibVerdict, IcmpSent, Identity, LastDrop, Life, ListCounters,
    MemoryCounters, Options, Origin, PathMtu, PathMtuOf, PolicyCounters, PortCounters, Reader, SidCounters,
    SteeringCounters, TestOutput, TestProgram, TestRun,
};
pub use error::Error;
pub use facts::{Capabilities, Capacity, Hook, Interface, Interfaces, MissingInterface, Table};
pub use firewall::{
    FirewallCounters, FirewallListing, LogReader, LogRecord, LogRule, LogSource, RuleCounters, firewall_listing,
};
pub use maps::Sums;
pub use object::{OBJECT, build_id};
pub use skb::OBJECT as SKB_OBJECT;
