//! What a service that runs says of itself.

use std::collections::BTreeMap;

use segue_service::{Mode, Snapshot, SteeringKind};
use segue_xsk::{Place, Socket};
use serde::Serialize;

use crate::confine::Confinement;

/// A service that runs.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Which service.
    pub service: &'static str,
    /// Whether packets wait for it.
    pub mode: Mode,
    /// Its process.
    pub pid: u32,
    /// The interface.
    pub interface: String,
    /// What packets come with.
    pub steering: SteeringKind,
    /// Seconds since it was started.
    pub seconds: u64,
    /// How often it has got another configuration.
    pub reloads: u64,
    /// The configuration, with defaults.
    pub configuration: serde_json::Value,
    /// What it may do, and what holds it.
    pub confinement: Confinement,
    /// What XDP has counted on the interface.
    pub xdp: BTreeMap<&'static str, u64>,
    /// Counters of all workers together.
    pub total: Snapshot,
    /// Packets that workers hold.
    pub held: u64,
    /// The workers.
    pub workers: Vec<WorkerStatus>,
}

/// A worker.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerStatus {
    /// From 0.
    pub index: usize,
    /// The processor that it is bound to.
    pub cpu: Option<u32>,
    /// Its counters.
    #[serde(flatten)]
    pub counters: Snapshot,
    /// Packets that it holds.
    pub held: u64,
    /// Its AF_XDP sockets: one for each queue of the interface.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<SocketStatus>,
    /// With `merged`: packets that its socket had no room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// What the service says.
    #[serde(skip_serializing_if = "serde_json::Value::is_null")]
    pub report: serde_json::Value,
}

/// An AF_XDP socket. Frames, and faults of theirs, are those of its queue, which the workers share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SocketStatus {
    /// Frames that nobody has.
    pub frames_free: usize,
    /// Frames for packets that will come.
    pub frames_to_receive: usize,
    /// Frames whose packets are being looked at.
    pub frames_in_batch: usize,
    /// Frames whose packets are leaving.
    pub frames_to_transmit: usize,
    /// Frames that were not where they should have been: 0, or there is a fault in the kernel or here.
    pub frame_faults: u64,
    /// Packets that came to a full ring.
    pub receive_full: u64,
    /// Packets that the kernel dropped on their way in for another reason.
    pub receive_dropped: u64,
    /// Times that the kernel found no frame for a packet.
    pub fill_empty: u64,
    /// Packets that the kernel did not take.
    pub transmit_invalid: u64,
}

impl SocketStatus {
    pub(crate) fn of(socket: &Socket) -> Option<Self> {
        let said = socket.statistics().ok()?;
        let count = |place| socket.frames(place);
        Some(Self {
            frames_free: count(Place::Free),
            frames_to_receive: count(Place::Fill),
            frames_in_batch: count(Place::Batch),
            frames_to_transmit: count(Place::Transmit),
            frame_faults: said.faults,
            receive_full: said.receive_full,
            receive_dropped: said.receive_dropped,
            fill_empty: said.fill_empty,
            transmit_invalid: said.transmit_invalid,
        })
    }
}
