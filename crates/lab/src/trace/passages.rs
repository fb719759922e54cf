//! What was seen of a probe, in order: from the events of several observers, each with a clock of its own, to stations on its way. Pure.

use std::collections::BTreeMap;

use segue_wiring::LabPlan;

use super::event::{Direction, Event, Hop, What};

/// Sorts what was seen by time, and nothing comes in at the far end of a link before it left the near one: the clocks of kernel and data plane
/// are one, but to name the time of day an agent reads two, and may be interrupted in between.
pub(super) fn order(events: &mut [Event], plan: &LabPlan) {
    let links: Vec<[(String, String); 2]> = plan
        .links()
        .into_iter()
        .map(|ends| ends.map(|(name, interface)| (name.to_owned(), interface.name.clone())))
        .flat_map(|[a, b]| [[a.clone(), b.clone()], [b, a]])
        .collect();
    // Each round settles one more hop at least.
    for _ in 0..events.len() {
        events.sort_by_key(|event| event.time);
        let late = links.iter().find_map(|[near, far]| {
            let at = |(station, port): &(String, String), direction| -> Vec<&Event> {
                let here =
                    |event: &&Event| (&event.station, &event.port, event.direction) == (station, port, direction);
                let mut seen: Vec<&Event> = Vec::new();
                for event in events.iter().filter(|event| event.what == What::Probe).filter(here) {
                    // Kernel and data plane tell the same.
                    if seen.iter().all(|other| other.by_kernel == event.by_kernel) {
                        seen.push(event);
                    }
                }
                seen
            };
            let mut pairs = at(near, Direction::Out).into_iter().zip(at(far, Direction::In));
            pairs.find(|(out, arrival)| arrival.time <= out.time).map(|(out, arrival)| {
                (arrival.station.clone(), arrival.by_kernel, arrival.time, out.time - arrival.time + 1)
            })
        });
        let Some((station, by_kernel, from, by)) = late else { return };
        // Not what the other one tells, whose clock is another one.
        let here = |event: &&mut Event| event.station == station && event.by_kernel == by_kernel && event.time >= from;
        for event in events.iter_mut().filter(here) {
            event.time += by;
        }
    }
    events.sort_by_key(|event| event.time);
}

/// What kernel and data plane tell of one passage is where the first of them says: the other one may come to it when the packet is at the next
/// station already. `events`: in order, and afterwards again.
pub(super) fn agree(events: &mut [Event]) {
    let mut told: BTreeMap<(String, String, bool), [Vec<u64>; 2]> = BTreeMap::new();
    for event in events.iter_mut().filter(|event| event.what == What::Probe) {
        let passage = (event.station.clone(), event.port.clone(), event.direction == Direction::In);
        let times = told.entry(passage).or_default();
        let [mine, other] = [event.by_kernel, !event.by_kernel].map(usize::from);
        if let Some(first) = times[other].get(times[mine].len()) {
            event.time = *first;
        }
        times[mine].push(event.time);
    }
    events.sort_by_key(|event| event.time);
}

/// Stations in the order in which the probe was there. Two observers of one interface are one.
pub(super) fn hops(events: &[Event]) -> Vec<Hop> {
    let mut hops: Vec<(Hop, u64, u64)> = Vec::new();
    for event in events.iter().filter(|event| event.what == What::Probe) {
        let same = hops.last_mut().filter(|(hop, ..)| {
            // It comes in again where it was: a function has given it back, or two links lead around.
            let again =
                event.direction == Direction::In && hop.left_by.is_some() && hop.came_in.as_ref() != Some(&event.port);
            hop.station == event.station && !again
        });
        match same {
            Some((hop, _, last)) => {
                let place = if event.direction == Direction::In { &mut hop.came_in } else { &mut hop.left_by };
                let first = place.is_none();
                if first {
                    *place = Some(event.port.clone());
                    hop.headers.clone_from(&event.headers);
                }
                if event.direction == Direction::Out {
                    hop.by_kernel = if first { event.by_kernel } else { hop.by_kernel && event.by_kernel };
                }
                *last = event.time;
            }
            None => {
                let begun = hops.last().map_or(event.time, |(_, first, _)| *first);
                let (came_in, left_by) = match event.direction {
                    Direction::In => (Some(event.port.clone()), None),
                    Direction::Out => (None, Some(event.port.clone())),
                };
                #[allow(clippy::cast_precision_loss)] // microseconds of a trace
                let delay_us = event.time.saturating_sub(begun) as f64 / 1000.0;
                let by_kernel = event.direction == Direction::Out && event.by_kernel;
                let hop = Hop {
                    station: event.station.clone(),
                    came_in,
                    left_by,
                    delay_us,
                    by_kernel,
                    headers: event.headers.clone(),
                };
                hops.push((hop, event.time, event.time));
            }
        }
    }
    hops.into_iter().map(|(hop, ..)| hop).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPOLOGY: &str = "
name: x
nodes: { a: {}, b: {} }
hosts: { c: { node: a }, s: { node: b } }
links: [{ between: [a, b] }]
chains: { web: { from: c, to: s, via: [] } }
";

    fn event(time: u64, station: &str, port: &str, direction: Direction, by_kernel: bool) -> Event {
        Event {
            time,
            station: station.into(),
            port: port.into(),
            direction,
            what: What::Probe,
            steered: false,
            by_kernel,
            headers: String::new(),
        }
    }

    fn plan() -> LabPlan {
        segue_wiring::load_plan(TOPOLOGY, "t").unwrap_or_else(|errors| panic!("{errors}")).1
    }

    fn stations(events: &[Event]) -> Vec<String> {
        hops(events).into_iter().map(|hop| hop.station).collect()
    }

    #[test]
    fn a_late_clock_does_not_change_the_way() {
        use Direction::{In, Out};
        // The data plane of `a` says 250 us too early, that of `b` 90 us too late.
        let mut events = vec![
            event(1_000_000, "c", "a", Out, true),
            event(760_000, "a", "c", In, false),
            event(770_000, "a", "b", Out, false),
            event(1_120_000, "b", "a", In, false),
            event(1_130_000, "b", "s", Out, false),
            event(1_050_000, "s", "b", In, true),
        ];
        order(&mut events, &plan());
        assert_eq!(stations(&events), ["c", "a", "b", "s"]);
        assert!(events.windows(2).all(|pair| pair[0].time < pair[1].time), "{events:?}");
    }

    #[test]
    fn a_late_clock_of_the_data_plane_is_not_the_kernels() {
        use Direction::{In, Out};
        // The data plane of `a` says 2 ms too early, and its kernel tells the same of what leaves, in time.
        let mut events = vec![
            event(3_000_000, "c", "a", Out, true),
            event(1_010_000, "a", "c", In, false),
            event(1_020_000, "a", "b", Out, false),
            event(3_025_000, "a", "b", Out, true),
            event(3_030_000, "b", "a", In, false),
            event(3_040_000, "b", "s", Out, false),
            event(3_050_000, "s", "b", In, true),
        ];
        order(&mut events, &plan());
        assert_eq!(stations(&events), ["c", "a", "b", "s"]);
    }

    #[test]
    fn what_is_told_after_the_next_station_is_told_of_the_same_hop() {
        use Direction::{In, Out};
        let mut events = vec![
            event(1_000_000, "c", "a", Out, true),
            event(1_010_000, "a", "c", In, false),
            event(1_020_000, "a", "b", Out, false),
            event(1_040_000, "b", "a", In, true),
            // The kernel of `a` has been interrupted.
            event(1_050_000, "a", "b", Out, true),
            event(1_060_000, "b", "s", Out, false),
            event(1_070_000, "s", "b", In, true),
        ];
        order(&mut events, &plan());
        agree(&mut events);
        assert_eq!(stations(&events), ["c", "a", "b", "s"]);
        // Whoever is there again is told of again.
        let again = |event: &Event| Event { time: event.time + 1_000_000, ..event.clone() };
        let mut events: Vec<Event> = events[1..5].iter().flat_map(|event| [event.clone(), again(event)]).collect();
        events.sort_by_key(|event| event.time);
        agree(&mut events);
        assert_eq!(stations(&events), ["a", "b", "a", "b"]);
    }

    #[test]
    fn what_kernel_and_data_plane_tell_is_one_hop() {
        let events = [
            event(1, "a", "c", Direction::In, false),
            event(2, "a", "c", Direction::In, true),
            event(3, "a", "b", Direction::Out, true),
            event(9, "a", "x", Direction::In, false),
        ];
        let hops = hops(&events);
        assert_eq!(hops.len(), 2, "back at another interface, it is there again");
        assert!(hops[0].by_kernel && hops[0].left_by.as_deref() == Some("b"));
    }
}
