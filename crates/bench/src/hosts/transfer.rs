//! One transfer between two sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use nix::sys::socket::{setsockopt, sockopt};

use crate::error::{Error, Result};
use crate::netns::Namespace;

/// The server's port, if nothing else is said.
pub const PORT: u16 = 5201;
/// Octets that a sender gives to the kernel at once.
const WRITE: usize = 128 * 1024;
/// Length of what is sent over and over: a prime, so that it is nowhere in step with segments.
const PATTERN: usize = 65_521;
/// UDP: octets of a segment, and segments that the kernel is given at once.
pub(super) const SEGMENT: usize = 1400;
const SEGMENTS: usize = 44;
/// Room for what has arrived, octets.
const ROOM: usize = 4 << 20;
/// For windows to open.
const WARM_UP: Duration = Duration::from_millis(300);
/// A socket that waits looks so often whether it is to end.
const TICK: Duration = Duration::from_millis(100);
/// How long a connection may take to be there.
const CONNECT: Duration = Duration::from_secs(2);

/// What is transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// One TCP connection
    Tcp,
    /// UDP datagrams that the kernel is given 44 at a time (UDP_SEGMENT), and that the receiver takes merged (UDP_GRO)
    UdpGso,
}

impl Kind {
    /// Its name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::UdpGso => "udp-gso",
        }
    }
}

/// Octets in a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Octets.
    pub octets: u64,
    /// The time.
    pub time: Duration,
}

impl Rate {
    /// Bits per second.
    #[must_use]
    pub fn bits(self) -> f64 {
        self.octets as f64 * 8.0 / self.time.as_secs_f64()
    }
}

/// What is sent, and how.
#[derive(Debug, Clone)]
pub struct Load {
    /// TCP: connections side by side.
    pub connections: usize,
    /// The server's port.
    pub port: u16,
    /// TCP: octets of a segment at most, options included; what the path lets through if not given.
    pub segment: Option<u32>,
    /// TCP: what is sent over and over.
    pub content: Arc<[u8]>,
    /// For windows to open, before anything is measured.
    pub warm_up: Duration,
}

impl Default for Load {
    fn default() -> Self {
        Self { connections: 1, port: PORT, segment: None, content: pattern().into(), warm_up: WARM_UP }
    }
}

/// What came of one transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// What arrived in the measured time. 0 octets: nothing did, or the connection was never there.
    pub arrived: Rate,
    /// Octets that were sent and that arrived from beginning to end. Of TCP what is under way when it ends is in the first only.
    pub sent: u64,
    /// Octets that arrived.
    pub received: u64,
    /// Octets that were not those that were sent there; only where it was verified.
    pub wrong: u64,
}

/// What the threads of a transfer share.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    sent_all: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    wrong: AtomicU64,
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Transfer {
    /// Runs one from the first namespace to `to` in the second.
    ///
    /// # Errors
    /// If a namespace cannot be entered or a socket not be made.
    pub fn run(
        kind: Kind,
        (client, server): (&Namespace, &Namespace),
        to: Ipv6Addr,
        measured: Duration,
        verify: bool,
    ) -> Result<Self> {
        Self::run_load(kind, (client, server), to, measured, verify, &Load::default())
    }

    /// The same with another load.
    ///
    /// # Errors
    /// As [`Transfer::run`].
    pub fn run_load(
        kind: Kind,
        (client, server): (&Namespace, &Namespace),
        to: Ipv6Addr,
        measured: Duration,
        verify: bool,
        load: &Load,
    ) -> Result<Self> {
        let shared = Shared::default();
        let to = SocketAddr::from((to, load.port));
        thread::scope(|scope| {
            let shared = &shared;
            let (ready, is_ready) = std::sync::mpsc::channel();
            let sink = scope.spawn(move || {
                let _inside = server.enter()?;
                // Whoever waits for it is there.
                let ready = || ready.send(()).unwrap_or_default();
                match kind {
                    Kind::Tcp => receive_tcp(to, shared, verify, load, ready),
                    Kind::UdpGso => receive_udp(to, shared, verify, ready),
                }
            });
            // A sink that fails drops the sender: then there is nothing to wait for.
            let listens = is_ready.recv().is_ok();
            let source = scope.spawn(move || {
                let result =
                    if listens { client.enter().and_then(|_inside| send(kind, to, shared, load)) } else { Ok(()) };
                shared.sent_all.store(true, Ordering::Relaxed);
                result
            });
            let arrived =
                if listens { measure(shared, load.warm_up, measured) } else { Rate { octets: 0, time: measured } };
            shared.stop.store(true, Ordering::Relaxed);
            joined(source)?;
            joined(sink)?;
            let [sent, received, wrong] =
                [&shared.sent, &shared.received, &shared.wrong].map(|count| count.load(Ordering::Relaxed));
            Ok(Self { arrived, sent, received, wrong })
        })
    }
}

fn joined(thread: thread::ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What arrives within the time, once something does.
fn measure(shared: &Shared, warm_up: Duration, measured: Duration) -> Rate {
    let first = Instant::now() + CONNECT;
    while shared.received.load(Ordering::Relaxed) == 0 && Instant::now() < first {
        thread::sleep(Duration::from_millis(2));
    }
    thread::sleep(warm_up);
    let (begun, before) = (Instant::now(), shared.received.load(Ordering::Relaxed));
    thread::sleep(measured);
    let octets = shared.received.load(Ordering::Relaxed) - before;
    Rate { octets, time: begun.elapsed() }
}

/// What is sent over and over.
fn pattern() -> Vec<u8> {
    (0..PATTERN as u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect()
}

/// How many of these octets, which begin at `at` of what was sent, are not those of the pattern.
fn differing(pattern: &[u8], mut at: usize, mut octets: &[u8]) -> u64 {
    let mut wrong = 0;
    while !octets.is_empty() {
        let expected = &pattern[at % pattern.len()..];
        let length = expected.len().min(octets.len());
        if expected[..length] != octets[..length] {
            wrong += expected.iter().zip(octets).filter(|(a, b)| a != b).count() as u64;
        }
        octets = &octets[length..];
        at += length;
    }
    wrong
}

fn send(kind: Kind, to: SocketAddr, shared: &Shared, load: &Load) -> Result<()> {
    match kind {
        Kind::Tcp => side_by_side(load.connections, |_| send_tcp(to, shared, &load.content)),
        Kind::UdpGso => send_udp(to, shared),
    }
}

/// Does the same so many times at once; the first that fails has said why.
fn side_by_side(count: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    if count <= 1 {
        return work(0);
    }
    thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..count).map(|number| scope.spawn(move || work(number))).collect();
        all.into_iter().map(joined).fold(Ok(()), Result::and)
    })
}

fn send_tcp(to: SocketAddr, shared: &Shared, content: &[u8]) -> Result<()> {
    // A connection that does not come about, or breaks, shows as nothing that arrives.
    let Ok(mut stream) = TcpStream::connect_timeout(&to, CONNECT) else { return Ok(()) };
    stream.set_write_timeout(Some(TICK)).map_err(Error::file("TCP socket"))?;
    let block: Vec<u8> = content.iter().copied().cycle().take(content.len() + WRITE).collect();
    let mut at = 0;
    while !shared.stopped() {
        match stream.write(&block[at..at + WRITE]) {
            Ok(written) => {
                shared.sent.fetch_add(written as u64, Ordering::Relaxed);
                at = (at + written) % content.len();
            }
            Err(error) if waits(&error) => {}
            Err(_) => break,
        }
    }
    Ok(())
}

fn receive_tcp(at: SocketAddr, shared: &Shared, verify: bool, load: &Load, ready: impl FnOnce()) -> Result<()> {
    let listener = TcpListener::bind(at).and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
    let listener = listener.map_err(Error::file("TCP socket"))?;
    if let Some(octets) = &load.segment {
        // Connections have it from here: it is told in the answer to a SYN.
        setsockopt(&listener, sockopt::TcpMaxSeg, octets).map_err(Error::system("set TCP_MAXSEG"))?;
    }
    ready();
    let accept = || loop {
        match listener.accept() {
            Ok((stream, _)) => return Some(stream),
            Err(_) if shared.stopped() => return None,
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    };
    side_by_side(load.connections, |_| match accept() {
        Some(stream) => receive_stream(stream, shared, verify.then_some(&*load.content)),
        None => Ok(()),
    })
}

/// Counts what comes by one connection, and compares it with what was sent there if that is given.
fn receive_stream(mut stream: TcpStream, shared: &Shared, expected: Option<&[u8]>) -> Result<()> {
    let set = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(TICK)));
    set.map_err(Error::file("TCP socket"))?;
    let mut buffer = vec![0; 4 * WRITE];
    let mut at = 0;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                shared.received.fetch_add(length as u64, Ordering::Relaxed);
                if let Some(expected) = expected {
                    shared.wrong.fetch_add(differing(expected, at, &buffer[..length]), Ordering::Relaxed);
                    at = (at + length) % expected.len();
                }
            }
            // Until the other has closed it, so that all that was sent is counted; unless nothing comes any more.
            Err(error) if waits(&error) && !shared.sent_all.load(Ordering::Relaxed) => {}
            Err(_) => return Ok(()),
        }
    }
}

fn send_udp(to: SocketAddr, shared: &Shared) -> Result<()> {
    let socket = UdpSocket::bind("[::]:0").and_then(|socket| socket.connect(to).map(|()| socket));
    let socket = socket.map_err(Error::file("UDP socket"))?;
    let size = i32::try_from(SEGMENT).unwrap_or(i32::MAX);
    setsockopt(&socket, sockopt::UdpGsoSegment, &size).map_err(Error::system("set UDP_SEGMENT"))?;
    socket.set_write_timeout(Some(TICK)).map_err(Error::file("UDP socket"))?;
    // Every segment says the same, so that it can be told whether one that arrived is right.
    let segment = &pattern()[..SEGMENT];
    let block = segment.repeat(SEGMENTS);
    while !shared.stopped() {
        match socket.send(&block) {
            Ok(sent) => {
                shared.sent.fetch_add(sent as u64, Ordering::Relaxed);
            }
            // Refused for a moment: queues are full.
            Err(_) => thread::sleep(Duration::from_micros(100)),
        }
    }
    Ok(())
}

fn receive_udp(at: SocketAddr, shared: &Shared, verify: bool, ready: impl FnOnce()) -> Result<()> {
    let socket = UdpSocket::bind(at).map_err(Error::file("UDP socket"))?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true).map_err(Error::system("set UDP_GRO"))?;
    setsockopt(&socket, sockopt::RcvBufForce, &ROOM).map_err(Error::system("set SO_RCVBUFFORCE"))?;
    socket.set_read_timeout(Some(TICK)).map_err(Error::file("UDP socket"))?;
    ready();
    let pattern = pattern();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) => {
                shared.received.fetch_add(length as u64, Ordering::Relaxed);
                if verify {
                    let wrong = buffer[..length].chunks(SEGMENT).map(|segment| differing(&pattern, 0, segment)).sum();
                    shared.wrong.fetch_add(wrong, Ordering::Relaxed);
                }
            }
            // What is under way when the other ends still counts.
            Err(error) if waits(&error) && !shared.sent_all.load(Ordering::Relaxed) => {}
            Err(_) => return Ok(()),
        }
    }
}

fn waits(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_octet_is_found_wherever_it_is() {
        let pattern = pattern();
        let sent: Vec<u8> = pattern.iter().copied().cycle().skip(PATTERN - 10).take(3 * PATTERN).collect();
        assert_eq!(differing(&pattern, PATTERN - 10, &sent), 0);
        for at in [0, 9, 10, 3 * PATTERN - 1] {
            let mut other = sent.clone();
            other[at] ^= 1;
            assert_eq!(differing(&pattern, PATTERN - 10, &other), 1, "octet {at}");
        }
        assert!(differing(&pattern, 0, &sent) > 0, "a part that is missing");
    }
}
