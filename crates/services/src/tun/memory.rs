//! Which steering header a flow came with.

use segue_service::{Packet, Time};
use segue_wire::FiveTuple;
use std::collections::HashMap;
use std::time::Duration;

/// What became of a packet's steering header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// It will be found by its flow.
    Remembered,
    /// The flow is known with another way: on the device, the two could not be told apart.
    OfAnother,
    /// There is no room.
    Full,
}

struct Flow {
    /// A steering header with nothing behind it.
    header: Packet<'static>,
    way: Vec<u8>,
    used: Time,
}

/// Steering headers by flow. Flows without packets for some time are forgotten.
pub(super) struct Memory {
    flows: HashMap<FiveTuple, Flow>,
    most: usize,
    timeout: Duration,
    next_sweep: Option<Time>,
}

impl Memory {
    pub(super) fn new(most: usize, timeout: Duration) -> Self {
        Self { flows: HashMap::new(), most, timeout, next_sweep: None }
    }

    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    /// When [`Memory::sweep`] has something to do.
    pub(super) fn next_sweep(&self) -> Option<Time> {
        self.next_sweep
    }

    /// Remembers the steering header of `packet`: the last one that a flow came with stands for all.
    pub(super) fn keep(&mut self, flow: FiveTuple, packet: &Packet<'_>, now: Time) -> Kept {
        let steering = packet.steering();
        if let Some(known) = self.flows.get_mut(&flow) {
            let is_stale = now.since(known.used) >= self.timeout;
            if known.header.steering().is_same(&steering) {
                known.used = now;
                return Kept::Remembered;
            }
            let way = steering.remaining();
            if known.way != way && !is_stale {
                return Kept::OfAnother;
            }
            if let Ok(header) = packet.behind_the_same(packet.inner_protocol(), &[]) {
                *known = Flow { header, way, used: now };
            }
            return Kept::Remembered;
        }
        let header = packet.behind_the_same(packet.inner_protocol(), &[]);
        let (Ok(header), true) = (header, self.flows.len() < self.most) else { return Kept::Full };
        self.flows.insert(flow, Flow { header, way: steering.remaining(), used: now });
        if self.next_sweep.is_none() {
            self.next_sweep = Some(now + self.timeout);
        }
        Kept::Remembered
    }

    /// The header that this flow came with.
    pub(super) fn recall(&mut self, flow: &FiveTuple, now: Time) -> Option<&Packet<'static>> {
        let known = self.flows.get_mut(flow)?;
        if now.since(known.used) >= self.timeout {
            return None;
        }
        known.used = now;
        Some(&known.header)
    }

    /// Forgets flows whose time is up.
    pub(super) fn sweep(&mut self, now: Time) {
        let timeout = self.timeout;
        self.flows.retain(|_, flow| now.since(flow.used) < timeout);
        self.next_sweep = (!self.flows.is_empty()).then(|| now + timeout / 2);
    }
}
