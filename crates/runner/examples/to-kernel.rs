//! A program with a service of its own: what is for the namespace itself goes to its kernel, without the steering header; the rest goes on.
//!
//! `segue service new` makes a crate like this one.
#![forbid(unsafe_code)]

use std::net::Ipv6Addr;
use std::process::ExitCode;

use schemars::JsonSchema;
use segue_service::{
    BuildError, Context, Kind, Mode, Packet, Registered, Service, Steering, Verdict, Way, Worker, kind,
};
use serde::{Deserialize, Serialize};

/// The kind.
struct ToKernel;

/// What an operator writes.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Configuration {
    /// Packets whose steering header has this source go to the kernel.
    source: Ipv6Addr,
}

impl Default for Configuration {
    fn default() -> Self {
        Self { source: Ipv6Addr::UNSPECIFIED }
    }
}

impl Kind for ToKernel {
    const NAME: &'static str = "to-kernel";
    const ABOUT: &'static str = "gives packets of one source to the kernel of its namespace";
    type Configuration = Configuration;

    fn mode(_: &Configuration) -> Mode {
        Mode::Synchronous
    }

    fn uses_kernel(_: &Configuration) -> bool {
        true
    }

    fn build(configuration: &Configuration, _: Worker) -> Result<Box<dyn Service>, BuildError> {
        Ok(Box::new(OneWorker(configuration.source)))
    }
}

struct OneWorker(Ipv6Addr);

impl Service for OneWorker {
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> Verdict {
        let Steering::Srv6(header) = packet.steering() else { return Verdict::Onward };
        if header.source() != self.0 {
            return Verdict::Onward;
        }
        // The packet as it is: its destination is the service's SID. And a second one, of the service's own.
        context.send_by(Way::Kernel, packet.to_owned());
        Verdict::Kernel
    }
}

static KINDS: &[&dyn Registered] = &[kind::<ToKernel>()];

fn main() -> ExitCode {
    segue_runner::program(KINDS)
}
