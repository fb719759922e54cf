//! The module `segue_service._native`: what a packet service of Segue is, for services in Python.
//!
//! # Promise
//!
//! A class with one method, `packet`, is a service: [`kind`] makes of it what `crates/service` calls a kind, and the runner, the engine and the
//! driver for tests are those of services in Rust. What Python code does wrong costs the packet at hand, which is dropped and counted, and a
//! line in the log; the service goes on, and every packet still has one counted end.
//!
//! # Packets belong to Python
//!
//! A packet that Python code gets is a copy in memory of its own, which is written back if it was changed. So Python may keep it for as long
//! as it likes, no reference can outlive a frame of the device, and none of this crate is `unsafe`. The copy costs an allocation.
//!
//! # The GIL
//!
//! A worker takes it once for each batch. Workers of one process take turns: more than one makes a service in Python no faster.
#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::all)]

mod configuration;
mod context;
mod driver;
mod failure;
mod kind;
mod octets;
mod packet;
mod program;
mod rate;
mod service;
mod snapshot;
mod steering;
mod values;

#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::configuration::Report;
    #[pymodule_export]
    use crate::context::{Context, Worker};
    #[pymodule_export]
    use crate::driver::{Driver, Sent, srv6, srv6_around};
    #[pymodule_export]
    use crate::packet::{Packet, five_tuple};
    #[pymodule_export]
    use crate::program::program;
    #[pymodule_export]
    use crate::rate::seconds;
    #[pymodule_export]
    use crate::snapshot::Snapshot;
    #[pymodule_export]
    use crate::steering::{FiveTuple, Srh, Steering};
    #[pymodule_export]
    use crate::values::{Metric, Mode, Reason, Sampling, Spread, Verdict, Way};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        Reason::name_all(module.py())?;
        module.add("SID", segue_service::driver::SID)?;
        module.add("NEXT", segue_service::driver::NEXT)
    }
}
