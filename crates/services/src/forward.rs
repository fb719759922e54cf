//! `forward`: lets every packet go on as it is.
//!
//! It has no use but one: what it costs is what every service costs.

use schemars::JsonSchema;
use segue_service::{BuildError, Context, Kind, Mode, Packet, Service, Verdict, Worker};
use serde::{Deserialize, Serialize};

/// The kind.
pub struct Forward;

/// It has no options.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Configuration {}

impl Kind for Forward {
    const NAME: &'static str = "forward";
    const ABOUT: &'static str = "lets every packet go on as it is";

    type Configuration = Configuration;

    fn mode(_: &Configuration) -> Mode {
        Mode::Synchronous
    }

    fn takes_merged(_: &Configuration) -> bool {
        true
    }

    fn build(_: &Configuration, _: Worker) -> Result<Box<dyn Service>, BuildError> {
        Ok(Box::new(Relay))
    }
}

struct Relay;

impl Service for Relay {
    fn packet(&mut self, _: &mut Packet<'_>, _: &mut Context) -> Verdict {
        Verdict::Onward
    }
}
