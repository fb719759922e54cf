//! The services in the form in which the thesis "SFC with SR" measured its own: ratios and rates of a service by itself ([`pass`]), and TCP between hosts
//! through it ([`chain`]), beside the same chain without it.

pub mod bulk;
pub mod chain;
pub mod compress;
pub mod forward;
pub mod ordered;
pub mod pass;
pub mod refragment;
pub mod tun;

use std::time::Duration;

use crate::figure::Figure;

/// What of a scenario is measured, how long and how often.
#[derive(Debug, Clone, Copy)]
pub struct Extent<'a> {
    /// Only figures with this in their names; all if it is empty.
    pub figures: &'a str,
    /// Only so many places of each figure, from the right.
    pub places: usize,
    /// Rounds; each measures everything at a place once.
    pub rounds: usize,
    /// Length of one transfer.
    pub run: Duration,
    /// Time for windows to open before it.
    pub warm_up: Duration,
    /// Octets of each sort of payload, for ratios.
    pub volume: usize,
}

impl Extent<'_> {
    /// Whether the figure is wanted.
    #[must_use]
    pub fn wants(&self, figure: &str) -> bool {
        figure.contains(self.figures)
    }

    /// The places that are.
    #[must_use]
    pub fn some<'b, T>(&self, places: &'b [T]) -> &'b [T] {
        &places[places.len().saturating_sub(self.places)..]
    }

    /// How it was measured, for notes.
    #[must_use]
    pub fn conditions(&self) -> String {
        format!(
            "{} rounds of {:.2} s, in turn with the same chain without a service, all processors, every octet compared; MTU 1500 at the client, 9000 elsewhere",
            self.rounds,
            self.run.as_secs_f64()
        )
    }
}

/// What is measured of a scenario goes to this, figure by figure.
pub type Tell<'a> = &'a mut dyn FnMut(Figure) -> crate::error::Result<()>;
