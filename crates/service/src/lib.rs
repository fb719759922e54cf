//! What a packet service of Segue is: the trait, packets, verdicts, counters, configuration, and a driver for tests.
//!
//! docs/design/services.md has promise, data structures and invariants. In short: a service implements [`Service`] (one worker's
//! state) and [`Kind`] (name, configuration, how to make a worker's state). The [`Engine`] runs it, whoever does the I/O: the
//! program on AF_XDP, or the [`Driver`] in tests.
//!
//! ```
//! use segue_service::{Context, Driver, Packet, Reason, Service, Verdict};
//!
//! /// Lets small packets go on.
//! struct Small(usize);
//!
//! impl Service for Small {
//!     fn packet(&mut self, packet: &mut Packet<'_>, _: &mut Context) -> Verdict {
//!         if packet.inner().len() <= self.0 { Verdict::Onward } else { Verdict::Drop(Reason::Refused) }
//!     }
//! }
//!
//! let mut driver = Driver::new(vec![Box::new(Small(100))]);
//! driver.receive(&[segue_service::driver::srv6(&[0; 60]), segue_service::driver::srv6(&[0; 160])]);
//! assert_eq!(driver.sent().len(), 1);
//! assert_eq!(driver.counters().dropped(Reason::Refused), 1);
//! driver.stop();
//! ```
//!
//! No I/O, no clock, no thread: this crate builds and tests without root.
#![forbid(unsafe_code)]

mod context;
mod counters;
pub mod driver;
mod engine;
mod flow;
mod kind;
mod metric;
mod packet;
mod reason;
mod service;
mod steering;
mod time;
mod verdict;

/// The code of the page runs with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/developing/writing-a-service.md")]
struct WritingAService;

pub use context::{Context, Worker};
pub use counters::{Counters, Origin, Snapshot};
pub use driver::Driver;
pub use engine::{Engine, Sink};
pub use flow::{FlowKey, five_tuple};
pub use kind::{BuildError, Kind, Mode, Prepared, Registered, Sampling, Spread, kind};
pub use metric::{Metric, MetricKind};
pub use packet::{Offload, Packet, Unfit};
pub use reason::Reason;
pub use service::Service;
pub use steering::{Labels, Srv6, Steering, SteeringKind};
pub use time::Time;
pub use verdict::{Verdict, Way};
