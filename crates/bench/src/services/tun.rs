//! The scenario `tun`: TCP through the service `tun`, with copies for programs that look; the form of the thesis's figure 56.

use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::chain::{Chain, Found, Service};
use super::{Extent, Tell};
use crate::error::{Error, Result};
use crate::figure::Figure;
use crate::hosts::Load;
use crate::netns::Namespace;

/// Section 9.3: its results "are quite similar" to those of its asynchronous service (table 5), whatever the number of threads.
const THESIS: f64 = 1389.0;
const DEVICE: &str = "segue-tun";
const PLACES: [Place; 3] = [Place::Nobody, Place::Ndpi, Place::Tcpdump];

/// Who is at the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Nobody,
    Ndpi,
    Tcpdump,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody looks",
            Self::Ndpi => "ndpiReader",
            Self::Tcpdump => "tcpdump",
        }
    }

    fn words(self) -> Option<Vec<&'static str>> {
        match self {
            Self::Ndpi => Some(vec!["ndpiReader", "-i", DEVICE, "-s", "3600"]),
            Self::Tcpdump => Some(vec!["tcpdump", "-n", "-i", DEVICE, "-w", "/dev/null"]),
            Self::Nobody => None,
        }
    }
}

/// A program at the device; it ends when dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(place: Place, namespace: &Namespace) -> Result<Option<Program>> {
    let Some(words) = place.words() else { return Ok(None) };
    let _inside = namespace.enter()?;
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(Error::file(words[0]))?;
    Ok(Some(Program(child)))
}

/// Measures it.
///
/// # Errors
/// As [`Chain::measure`]; or if a program is missing.
pub fn run(chain: &Chain, extent: &Extent<'_>, tell: Tell<'_>) -> Result<()> {
    if !extent.wants("tun/programs") {
        return Ok(());
    }
    let places = extent.some(&PLACES);
    let names: Vec<_> = places.iter().map(|place| place.name()).collect();
    let mut figure =
        Figure::new("tun/programs", "TCP through tun (figure 56)", "who is at the device", &names, "Mbit/s");
    let load = Load { warm_up: extent.warm_up, ..Load::default() };
    let Some(namespace) = chain.in_service() else { return Ok(()) };
    let mut found: Vec<Found> = Vec::new();
    for place in places {
        let processes = chain.start(&[Service::new("tun", json!({ "device": DEVICE }))])?;
        let program = start(*place, namespace)?;
        let measured = chain.measure_through(&processes, &load, extent);
        drop(program);
        found.push(measured?);
    }
    figure.measured("tun", found.iter().map(|found| Some(found.goodput)).collect());
    figure.measured("no service", found.iter().map(|found| Some(found.without)).collect());
    figure.thesis("TUN", &places.iter().map(|place| (*place == Place::Ndpi).then_some(THESIS)).collect::<Vec<_>>());
    figure.notes.push(
        "the thesis prints its figure without numbers; its text says: as its asynchronous service (1,389 Mbit/s), with any number of threads. One worker here: there is one device".into(),
    );
    figure.notes.push(extent.conditions());
    tell(figure)
}
