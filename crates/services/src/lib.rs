//! The packet services of Segue: one module each, and the list of them.
//!
//! A service is a type that implements [`segue_service::Kind`] and one that implements [`segue_service::Service`]
//! (docs/design/services.md). It becomes one that can be run by its line in [`ALL`].
#![forbid(unsafe_code)]

pub mod bulk;
pub mod compress;
pub mod compression;
#[cfg(feature = "generators")]
pub mod corpus;
pub mod counter;
mod deadline;
pub mod debulk;
pub mod decompress;
pub mod forward;
#[cfg(any(test, feature = "test-support"))]
pub mod fuzz;
pub mod refragment;
pub mod tcp_bulk;
pub mod tun;

use segue_service::{Registered, kind};

/// All services, by name.
pub static ALL: &[&dyn Registered] = &[
    kind::<bulk::Bulk>(),
    kind::<compress::Compress>(),
    kind::<counter::Counter>(),
    kind::<debulk::Debulk>(),
    kind::<decompress::Decompress>(),
    kind::<forward::Forward>(),
    kind::<refragment::Refragment>(),
    kind::<tcp_bulk::TcpBulk>(),
    kind::<tun::TunKind>(),
];

/// The service with a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static dyn Registered> {
    ALL.iter().copied().find(|service| service.name() == name)
}
