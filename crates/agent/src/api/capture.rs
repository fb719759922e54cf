//! POST /v1/capture: packets as the data plane sees them, as they come.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use nix::time::{ClockId, clock_gettime};
use segue_api::{
    capture::{CaptureRequest, Format, Line, Packet},
    pcap::pcapng,
};
use segue_dataplane::{CapturedPacket, Direction};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

use super::Context;
use crate::{
    problem::{ErrorBody, Failure, Fault, Problem},
    xdp,
};

/// Between two looks at whether the client is still there.
const LOOK: Duration = Duration::from_millis(100);
/// Pieces that wait for a slow client; then packets are lost in the kernel's rings, and counted.
const PIECES: usize = 64;

/// Streams captured packets until the client closes, or the count or the seconds are reached.
#[utoipa::path(post, path = "/v1/capture", request_body = CaptureRequest, responses(
    (status = 200, description = "Packets as they come", body = Vec<u8>, content_type = "application/x-pcapng"),
    (status = 400, description = "An unknown port or option", body = ErrorBody),
    (status = 409, description = "Another capture is under way", body = ErrorBody)))]
pub async fn capture(State(context): State<Context>, body: String) -> Result<Response, Failure> {
    let text = if body.trim().is_empty() { "{}" } else { body.as_str() };
    let request: CaptureRequest = serde_json::from_str(text).map_err(|error| {
        let remedy = "the options are ports, count, seconds and format (pcapng or json)";
        Failure::one(Fault::Request, Problem::new("request body", error.to_string(), remedy))
    })?;
    let ports = request.ports.clone();
    let started = context.node.call(move |node| {
        let known = node.plane.applied().map(|known| known.ports.as_slice()).unwrap_or_default();
        let known: HashSet<&str> = known.iter().map(|port| port.name.as_str()).collect();
        let unknown = ports.iter().find(|port| !known.contains(port.as_str()));
        if let Some(port) = unknown {
            let message = format!("there is no port `{port}`");
            return Err(Failure::one(Fault::Request, Problem::new("ports", message, "see `segue get ports`")));
        }
        node.plane.start_capture(&ports).map_err(|problem| Failure::one(Fault::Kernel, problem))
    });
    let started = started.await?;
    let (sender, receiver) = mpsc::channel(PIECES);
    let format = request.format;
    std::thread::spawn(move || {
        let ports = started.ports.clone();
        let mut run = Run { format, sender, stop: context.stop, names: started.names.into_iter().collect(), sent: 0 };
        if let Err(error) = run.run(started.source, &request) {
            tracing::warn!("{error}");
        }
        let ended = context.node.call_blocking(move |node| {
            node.plane.stop_capture(&ports);
            Ok(())
        });
        if let Err(failure) = ended {
            tracing::warn!("{failure}");
        }
    });
    let stream = ReceiverStream::new(receiver);
    let stream = tokio_stream::StreamExt::map(stream, Ok::<Bytes, std::convert::Infallible>);
    Ok(([(header::CONTENT_TYPE, format.media_type())], Body::from_stream(stream)).into_response())
}

/// A capture under way.
struct Run {
    format: Format,
    sender: mpsc::Sender<Bytes>,
    stop: watch::Receiver<bool>,
    /// ifindex and name; the position is the interface's number in the file.
    names: Vec<(u32, String)>,
    sent: u64,
}

impl Run {
    fn run(&mut self, source: segue_dataplane::CaptureSource, request: &CaptureRequest) -> Result<(), Problem> {
        let mut reader = source.open().map_err(|error| xdp::problem(&error))?;
        let end = request.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds.min(u64::from(u32::MAX))));
        let limit = request.count.unwrap_or(u64::MAX);
        if self.format == Format::Pcapng && !self.head() {
            return Ok(());
        }
        while self.sent < limit && !self.sender.is_closed() && !*self.stop.borrow() {
            let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()).min(LOOK));
            if left.is_zero() {
                break;
            }
            let offset = realtime_offset();
            for packet in reader.read(left).map_err(|error| xdp::problem(&error))? {
                if self.sent == limit || !self.packet(&packet, offset) {
                    return Ok(());
                }
                self.sent += 1;
            }
            let lost = reader.lost();
            if lost > 0 {
                tracing::warn!(lost, "capture: the client or this thread is too slow");
                if self.format == Format::Json && !self.send(line(&Line::Lost { lost })) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn head(&mut self) -> bool {
        let interfaces = self.names.iter().flat_map(|(_, name)| pcapng::interface(name));
        let head: Vec<u8> = pcapng::section().into_iter().chain(interfaces).collect();
        self.send(head)
    }

    fn packet(&mut self, packet: &CapturedPacket, offset: u64) -> bool {
        let position = match self.names.iter().position(|(ifindex, _)| *ifindex == packet.ifindex) {
            Some(position) => position,
            None => {
                // An apply added a port meanwhile.
                let name = format!("ifindex {}", packet.ifindex);
                let description = pcapng::interface(&name);
                self.names.push((packet.ifindex, name));
                if self.format == Format::Pcapng && !self.send(description) {
                    return false;
                }
                self.names.len() - 1
            }
        };
        let time = packet.time_ns.wrapping_add(offset);
        let outcome = packet.outcome.map(|outcome| outcome.name());
        let bytes = match self.format {
            Format::Pcapng => {
                let direction = match packet.direction {
                    Direction::Received => pcapng::Direction::Inbound,
                    Direction::Sent => pcapng::Direction::Outbound,
                };
                let number = u32::try_from(position).unwrap_or_default();
                pcapng::packet(number, time, &packet.bytes, packet.length, direction, outcome.unwrap_or_default())
            }
            Format::Json => {
                let packet = Packet {
                    time: format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000),
                    port: self.names[position].1.clone(),
                    direction: match packet.direction {
                        Direction::Received => "in",
                        Direction::Sent => "out",
                    }
                    .to_owned(),
                    outcome: outcome.map(str::to_owned),
                    length: packet.length,
                    headers: segue_wire::Snapshot::new(&packet.bytes, packet.length as usize).to_string(),
                    bytes: packet.bytes.iter().map(|octet| format!("{octet:02x}")).collect(),
                };
                line(&Line::Packet(packet))
            }
        };
        self.send(bytes)
    }

    /// Waits while the client is slow; false when it has gone.
    fn send(&mut self, bytes: Vec<u8>) -> bool {
        self.sender.blocking_send(bytes.into()).is_ok()
    }
}

/// As JSON, with its end.
fn line(line: &Line) -> Vec<u8> {
    // Texts and numbers are always written.
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// What to add to the monotonic clock to have nanoseconds since 1970.
fn realtime_offset() -> u64 {
    let read = |clock| {
        clock_gettime(clock)
            .map(|time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
            .unwrap_or_default()
    };
    read(ClockId::CLOCK_REALTIME).wrapping_sub(read(ClockId::CLOCK_MONOTONIC))
}
