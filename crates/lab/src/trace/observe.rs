//! Who sees the probe: the data planes of Segue nodes, through their agents' captures, and packet sockets in all namespaces.

use std::collections::HashMap;
use std::io::{BufReader, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeSpec;
use segue_api::capture::{CaptureRequest, Format};
use socket2::{SockFilter, SockRef};

use super::event::{Direction, Event, Flow};
use super::probe::{Mark, recognise};
use super::source::Source;
use crate::blocks::Blocks;
use crate::error::Result;

/// How long an agent may take to begin a capture, and a capture to be silent.
const PATIENCE: Duration = Duration::from_secs(60);
/// `PACKET_OUTGOING` of `linux/if_packet.h`.
const OUTGOING: u8 = 4;

/// What is recognised by all observers.
#[derive(Debug, Clone)]
pub struct Probe {
    /// Its mark.
    pub mark: Mark,
    /// What it looks like.
    pub flow: Flow,
}

/// All observers of one trace; they end with it.
pub struct Observers {
    /// What they see, in any order.
    pub events: Receiver<Event>,
    /// Nodes whose data plane cannot be observed, and why.
    pub blind: Vec<String>,
    stop: Arc<AtomicBool>,
    captures: Vec<UnixStream>,
    threads: Vec<JoinHandle<()>>,
}

/// A packet socket in a namespace.
struct Listener {
    station: String,
    socket: OwnedFd,
    interfaces: HashMap<usize, String>,
}

impl Observers {
    /// Begins to observe all stations. When it returns, everybody watches.
    ///
    /// # Errors
    /// If a packet socket cannot be opened.
    pub fn start(sources: &[Source], probe: &Probe) -> Result<Self> {
        let (sender, events) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let mut observers = Self { events, blind: Vec::new(), stop, captures: Vec::new(), threads: Vec::new() };
        let mut listeners = Vec::new();
        for source in sources {
            listeners.extend(listen(source)?);
        }
        let (to, stop, what) = (sender.clone(), observers.stop.clone(), probe.clone());
        observers.threads.push(std::thread::spawn(move || watch(&listeners, &what, &to, &stop)));
        for source in sources {
            let Some(agent) = &source.agent else { continue };
            let request = CaptureRequest { format: Format::Pcapng, ..CaptureRequest::default() };
            let begun = agent.clone().with_patience(PATIENCE).capture(&request).map_err(|error| error.to_string());
            let opened = begun.and_then(|answer| {
                let stream = answer.body.get_ref().try_clone().map_err(|error| error.to_string())?;
                Ok((stream, Blocks::open(answer.body).map_err(|error| error.to_string())?))
            });
            match opened {
                Ok((stream, blocks)) => {
                    observers.captures.push(stream);
                    let (to, what, station) = (sender.clone(), probe.clone(), source.station.clone());
                    observers.threads.push(std::thread::spawn(move || follow(blocks, &station, &what, &to)));
                }
                Err(error) => observers.blind.push(format!("{}: its data plane is not seen: {error}", source.station)),
            }
        }
        Ok(observers)
    }
}

impl Drop for Observers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for capture in &self.captures {
            let _ = capture.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn listen(source: &Source) -> Result<Option<Listener>> {
    let opened = source.inside.run(|| -> nix::Result<(OwnedFd, HashMap<usize, String>)> {
        // Of no interface: it hears all of them.
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
        if source.agent.is_some() {
            only_outgoing(&socket)?;
        }
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        let names = nix::net::if_::if_nameindex()?;
        let name = |interface: &nix::net::if_::Interface| {
            (interface.index() as usize, interface.name().to_string_lossy().into_owned())
        };
        Ok((socket, names.iter().map(name).collect()))
    })?;
    let Some(opened) = opened else { return Ok(None) };
    let remedy = "check that you are root, and in a lab that it is up";
    let (socket, interfaces) = opened.map_err(|error| {
        crate::error::LabError::io("open a packet socket for", &source.station, remedy)(error.into())
    })?;
    Ok(Some(Listener { station: source.station.clone(), socket, interfaces }))
}

/// What comes in at a node's ports its data plane tells. A second reader of such a packet would take away what XDP has written in front of it for
/// the TC program (the kernel copies a packet that two read before it is written to, without its metadata), and functions on the kernel's path
/// would not get it.
fn only_outgoing(socket: &OwnedFd) -> nix::Result<()> {
    /// `SKF_AD_OFF + SKF_AD_PKTTYPE`.
    const PACKET_TYPE: u32 = 0xffff_f004;
    // ldb [type]; jeq OUTGOING; ret all; ret 0
    let program = [
        SockFilter::new(0x30, 0, 0, PACKET_TYPE),
        SockFilter::new(0x15, 0, 1, u32::from(OUTGOING)),
        SockFilter::new(0x06, 0, 0, u32::MAX),
        SockFilter::new(0x06, 0, 0, 0),
    ];
    let attached = SockRef::from(socket).attach_filter(&program);
    attached.map_err(|error| nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or_default()))
}

fn watch(listeners: &[Listener], probe: &Probe, to: &Sender<Event>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let mut fds: Vec<PollFd<'_>> =
            listeners.iter().map(|listener| PollFd::new(listener.socket.as_fd(), PollFlags::POLLIN)).collect();
        let _ = poll(&mut fds, PollTimeout::from(20u16));
        for listener in listeners {
            while let Some(event) = heard(listener, probe) {
                if event.is_some_and(|event| to.send(event).is_err()) {
                    return;
                }
            }
        }
    }
}

/// The next packet of a socket: none if there is none, and nothing of one that is not the probe's.
fn heard(listener: &Listener, probe: &Probe) -> Option<Option<Event>> {
    let mut frame = vec![0; 65_536];
    let mut control = nix::cmsg_space!(TimeSpec);
    let (length, from, time) = {
        let mut parts = [IoSliceMut::new(&mut frame)];
        let message =
            recvmsg::<LinkAddr>(listener.socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_DONTWAIT)
                .ok()?;
        let time = message.cmsgs().ok()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(time) => Some(nanoseconds(&time)),
            _ => None,
        });
        (message.bytes, message.address?, time.unwrap_or_default())
    };
    frame.truncate(length);
    let port = listener.interfaces.get(&from.ifindex()).cloned().unwrap_or_default();
    let direction = if from.pkttype() == OUTGOING { Direction::Out } else { Direction::In };
    Some(event(&frame, probe, time, &listener.station, port, direction, true).filter(|event| event.port != "lo"))
}

fn nanoseconds(time: &TimeSpec) -> u64 {
    u64::try_from(time.tv_sec()).unwrap_or_default() * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or_default()
}

fn follow(mut blocks: Blocks<BufReader<UnixStream>>, station: &str, probe: &Probe, to: &Sender<Event>) {
    // It ends with the connection.
    while let Ok(Some(packet)) = blocks.next_packet() {
        let direction = if packet.outbound { Direction::Out } else { Direction::In };
        let event = event(&packet.frame, probe, packet.time, station, packet.port, direction, false);
        if event.is_some_and(|event| to.send(event).is_err()) {
            return;
        }
    }
}

fn event(
    frame: &[u8],
    probe: &Probe,
    time: u64,
    station: &str,
    port: String,
    direction: Direction,
    by_kernel: bool,
) -> Option<Event> {
    let (what, steered, headers) = recognise(frame, &probe.mark, &probe.flow)?;
    Some(Event { time, station: station.to_owned(), port, direction, what, steered, by_kernel, headers })
}
