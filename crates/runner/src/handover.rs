//! From one process of a service to its successor: sockets, frames and what keeps the XDP program on the interface go over, and no packet is lost.
//!
//! The successor asks on the control socket. The old process stops between two batches, has the service give out what it holds, and sends one
//! message: what it runs, where each frame is, and the open files. Packets wait in the rings meanwhile. Once the successor has everything it puts
//! its own XDP program in place of the old one, says [`TAKEN`], and works; the old process ends. If the successor does not say it, the old process goes on.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use segue_service::{Mode, Prepared};
use segue_xsk::{OfQueue, Part, Place, pass};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::running::Running;

/// What a successor asks.
pub(crate) const WORD: &str = "hand-over";
/// What it says when it has everything.
const TAKEN: &[u8; 5] = b"taken";
/// How long either side may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Raised when the message changes.
const VERSION: u32 = 1;

/// What goes over beside open files: the link of the XDP program, then of each queue its memory and the socket of each worker.
#[derive(Debug, Serialize, Deserialize)]
struct Offer {
    version: u32,
    running: Running,
    synchronous: bool,
    /// Of each queue: of each frame, where it is, a digit each.
    queues: Vec<String>,
}

/// What a process that does not hand over says.
#[derive(Debug, Serialize, Deserialize)]
struct Refusal {
    error: String,
}

/// What a successor has got.
pub(crate) struct Taken {
    stream: UnixStream,
    /// Keeps the old XDP program on the interface.
    pub(crate) link: OwnedFd,
    /// Of each queue the sockets of all workers.
    pub(crate) queues: Vec<Vec<Part>>,
}

/// Whether a service can go over at all.
///
/// # Errors
/// Why it cannot.
pub(crate) fn check(running: &Running, prepared: &dyn Prepared) -> Result<()> {
    let own = [
        (prepared.makes_devices(), "has a device of its own, which goes with its process"),
        (prepared.uses_kernel(), "gives packets to the kernel by a device of its own"),
        (!running.limits.is_none(), "has limits, which are of its process"),
        (running.merged, "has `merged`: its packet sockets are of its process"),
    ];
    match own.iter().find(|(applies, _)| *applies) {
        Some((_, why)) => Err(Error::Usage(format!("{} {why}; start it again instead", running.name()))),
        None => Ok(()),
    }
}

/// Sends all, and waits until the successor has it. False: it has not taken it.
///
/// # Errors
/// If it cannot be sent.
pub(crate) fn give(
    stream: &UnixStream,
    running: &Running,
    mode: Mode,
    link: OwnedFd,
    queues: Vec<Vec<Part>>,
) -> std::io::Result<bool> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut files, mut places) = (vec![link], Vec::new());
    for parts in queues {
        let mut sockets = Vec::new();
        for Part { socket, queue } in parts {
            if let Some(OfQueue { memory, places: of_queue }) = queue {
                files.push(memory);
                places.push(of_queue.iter().map(|place| digit(*place)).collect());
            }
            sockets.push(socket);
        }
        files.extend(sockets);
    }
    let offer =
        Offer { version: VERSION, running: running.clone(), synchronous: mode == Mode::Synchronous, queues: places };
    pass::send(stream, &serde_json::to_vec(&offer)?, &files)?;
    let mut said = [0; TAKEN.len()];
    Ok((&*stream).read_exact(&mut said).is_ok() && said == *TAKEN)
}

/// Says that it will not be.
pub(crate) fn refuse(stream: &UnixStream, error: &str) {
    if let Ok(text) = serde_json::to_vec(&Refusal { error: error.to_owned() }) {
        // Who has gone need not know.
        let _ = pass::send(stream, &text, &[]);
    }
}

/// Asks the process behind a control socket for everything that the same service needs.
///
/// # Errors
/// If nobody answers there; what it refuses; if it runs something else.
pub(crate) fn ask(socket: &Path, running: &Running, mode: Mode) -> Result<Taken> {
    let failed = || Error::file("take over from", socket, "see with `segue service list` whether it runs");
    let stream = UnixStream::connect(socket).map_err(failed())?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed())?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed())?;
    (&stream).write_all(WORD.as_bytes()).map_err(failed())?;
    let refused = |said: String| Error::Refused { name: running.name().to_owned(), said };
    let (octets, files) = pass::receive(&stream).map_err(failed())?;
    if let Ok(Refusal { error }) = serde_json::from_slice(&octets) {
        return Err(refused(error));
    }
    let offer: Offer = serde_json::from_slice(&octets).map_err(std::io::Error::other).map_err(failed())?;
    if offer.version != VERSION || offer.synchronous != (mode == Mode::Synchronous) {
        return Err(refused("what runs is of another kind; start the service again".to_owned()));
    }
    if let Err(key) = offer.running.same_but_configuration(running) {
        return Err(refused(format!("{key} has changed, which cannot go over; start the service again")));
    }
    let mut files = files.into_iter();
    let missing = || refused("it has not given all of its open files; start the service again".to_owned());
    let link = files.next().ok_or_else(missing)?;
    let mut queues = Vec::new();
    for places in &offer.queues {
        let memory = files.next().ok_or_else(missing)?;
        let places = places.chars().map(place).collect::<Option<Vec<_>>>().ok_or_else(missing)?;
        let mut of_queue = Some(OfQueue { memory, places });
        let mut parts = Vec::new();
        for _ in 0..running.workers {
            parts.push(Part { socket: files.next().ok_or_else(missing)?, queue: of_queue.take() });
        }
        queues.push(parts);
    }
    Ok(Taken { stream, link, queues })
}

impl Taken {
    /// Tells the old process that it can end, with what answers that.
    pub(crate) fn confirm(stream: &UnixStream) -> std::io::Result<()> {
        (&*stream).write_all(TAKEN)
    }

    /// What is to be told when all else is done; then what keeps the old XDP program; then the sockets.
    pub(crate) fn into_parts(self) -> (UnixStream, OwnedFd, Vec<Vec<Part>>) {
        (self.stream, self.link, self.queues)
    }
}

const PLACES: [Place; 4] = [Place::Free, Place::Fill, Place::Batch, Place::Transmit];

fn digit(place: Place) -> char {
    match place {
        Place::Free => '0',
        Place::Fill => '1',
        Place::Batch => '2',
        Place::Transmit => '3',
    }
}

fn place(digit: char) -> Option<Place> {
    PLACES.get(digit.to_digit(10)? as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_digits() {
        for one in PLACES {
            assert_eq!(place(digit(one)), Some(one));
        }
        assert_eq!((place('4'), place('x')), (None, None));
    }
}
