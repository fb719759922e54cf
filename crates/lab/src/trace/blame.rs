//! What functions have done to a probe.

use segue_wiring::LabPlan;

use super::counters::Station;
use super::event::{Direction, Event, What};

/// A function that has given back another packet than it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The function.
    pub function: String,
    /// Headers of what it got.
    pub got: String,
    /// Headers of what it gave back.
    pub gave: String,
}

/// The last function that changed the probe's addresses or ports. `events` are in order. Packets in steering headers are not compared: an
/// SR-aware function may change those.
#[must_use]
pub fn changed(events: &[Event], plan: &LabPlan) -> Option<Changed> {
    let mut got: Option<&Event> = None;
    let mut found = None;
    let is_at_function =
        |event: &&Event| event.what == What::Probe && !event.steered && plan.functions.contains_key(&event.station);
    for event in events.iter().filter(is_at_function) {
        match (event.direction, got) {
            (Direction::In, _) => got = Some(event),
            (Direction::Out, Some(before)) if before.station == event.station && before.headers != event.headers => {
                let (function, got, gave) = (event.station.clone(), before.headers.clone(), event.headers.clone());
                found = Some(Changed { function, got, gave });
            }
            _ => {}
        }
    }
    found
}

/// Whether a station's data plane has given a packet that came in by this port to a function meanwhile.
#[must_use]
pub fn handed_over(before: &Station, after: &Station, port: &str) -> bool {
    let packets = |station: &Station| {
        let of = station.outcomes.iter().find(|outcome| outcome.outcome == "to_function" && outcome.port == port);
        of.map_or(0, |outcome| outcome.counter.packets)
    };
    packets(after) > packets(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPOLOGY: &str = "
name: x
nodes: { a: {}, b: {} }
hosts: { c: { node: a }, s: { node: b } }
links: [{ between: [a, b] }]
functions: { f: { node: a } }
chains: { web: { from: c, to: s, via: [f] } }
";

    #[test]
    fn what_a_function_gives_back_is_compared_with_what_it_got() {
        let plan = segue_wiring::load_plan(TOPOLOGY, "t").unwrap_or_else(|errors| panic!("{errors}")).1;
        let event = |time, station: &str, direction, headers: &str, steered| Event {
            time,
            station: station.into(),
            port: "west".into(),
            direction,
            what: What::Probe,
            steered,
            by_kernel: true,
            headers: headers.into(),
        };
        let way = |gave: &str, steered| {
            [
                event(1, "a", Direction::In, "x", true),
                event(2, "f", Direction::In, "c > s UDP 1 > 2", steered),
                event(3, "f", Direction::Out, gave, steered),
                event(4, "a", Direction::In, "y", false),
            ]
        };
        assert_eq!(changed(&way("c > s UDP 1 > 2", false), &plan), None);
        assert_eq!(changed(&way("c > t UDP 1 > 2", true), &plan), None, "that may be its task");
        let found = changed(&way("c > t UDP 1 > 2", false), &plan).unwrap();
        assert_eq!((found.function.as_str(), found.gave.as_str()), ("f", "c > t UDP 1 > 2"));
    }
}
