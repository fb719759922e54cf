//! One worker: a thread with an engine, and where its packets come from.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use segue_host::tun::Tun;
use segue_service::{Engine, Packet, Service, Time};
use segue_xsk::interface::RawSocket;
use segue_xsk::{Arrival, Copies, LINK_LENGTH, Part, Socket};

use crate::merged::MergedSource;
use crate::ports::{Frames, Link, Raw};
use crate::status::{SocketStatus, WorkerStatus};

/// Packets of one batch at most.
const BATCH: usize = 64;
/// How long a worker sleeps at most.
const SLEEP: Duration = Duration::from_millis(100);
/// How often a worker looks for copies, of which nobody tells it.
const LOOK: Duration = Duration::from_millis(1);
/// How long packets may take to leave when the worker stops.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);

/// What a worker is told.
pub(crate) enum Order {
    /// Work off what has come in, and end.
    Stop,
    /// Another configuration; answered when it has taken over, with how many packets the old one has lost.
    Replace(Box<dyn Service>, Sender<u64>),
    /// Say how it is.
    Report(Sender<WorkerStatus>),
    /// Have the service give out what it holds, and touch no packet until it is replaced or stopped; answered when that is so.
    Pause(Sender<()>),
    /// While it pauses: what another process needs to take its sockets over.
    Give(Sender<std::io::Result<Vec<Part>>>),
}

/// What comes after orders.
enum Next {
    /// Packets.
    GoOn,
    /// The end, once what has come is worked off.
    End,
    /// The end at once: its sockets are another process's.
    Gone,
}

/// Where packets come from.
pub(crate) enum Source {
    /// They wait for the verdict. A socket for each queue of the interface; what leaves, leaves by the first, so that queues cannot
    /// change the order.
    Wait(Vec<Socket>),
    /// The same, those that segmentation offload has merged whole.
    Merged(MergedSource),
    /// They have gone on: these are copies.
    Copy(CopySource),
}

/// Copies in the ring.
pub(crate) struct CopySource {
    pub(crate) copies: Copies<'static>,
    pub(crate) received: std::sync::mpsc::Receiver<(usize, Vec<u8>)>,
    pub(crate) socket: RawSocket,
}

pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) cpu: Option<u32>,
    pub(crate) engine: Engine,
    pub(crate) source: Source,
    pub(crate) link: Link,
    /// What gives packets to the kernel of the namespace.
    pub(crate) kernel: Option<Arc<Tun>>,
    pub(crate) orders: Receiver<Order>,
    /// Can be read when there are orders.
    pub(crate) bell: UnixStream,
    pub(crate) spin: Duration,
    pub(crate) begun: Instant,
}

impl Worker {
    fn now(&self) -> Time {
        Time::START + self.begun.elapsed()
    }

    /// Works until it is told to stop. Returns why it could not, if that is so.
    pub(crate) fn work(mut self) -> Result<(), String> {
        let mut arrivals = Vec::with_capacity(BATCH);
        let mut last = Instant::now();
        loop {
            match self.obey()? {
                Next::GoOn => {}
                Next::End => return self.end(&mut arrivals),
                Next::Gone => return Ok(()),
            }
            let count = self.step(&mut arrivals)?;
            if count > 0 {
                last = Instant::now();
            } else if last.elapsed() >= self.spin {
                self.sleep()?;
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// One batch and the timer. Returns how many packets there were.
    fn step(&mut self, arrivals: &mut Vec<Arrival>) -> Result<usize, String> {
        let now = self.now();
        let kernel = self.kernel.as_deref();
        let count = match &mut self.source {
            Source::Wait(sockets) => {
                let mut count = 0;
                for index in 0..sockets.len() {
                    let Some((first, others)) = sockets.split_first_mut() else { break };
                    let (socket, home) = match index.checked_sub(1) {
                        Some(other) => (&mut others[other], Some(first)),
                        None => (first, None),
                    };
                    arrivals.clear();
                    socket.receive(BATCH, arrivals);
                    let mut way = WaitBatch { engine: &mut self.engine, link: &mut self.link, kernel };
                    count += way.run(socket, home, arrivals, now)?;
                }
                count
            }
            Source::Merged(source) => source.run(&mut self.engine, &mut self.link, kernel, now)?,
            Source::Copy(source) => copy_batch(&mut self.engine, source, self.link, kernel, now),
        };
        if self.engine.wake().is_some_and(|wake| wake <= now) {
            self.with_sink(|engine, sink| engine.timer(now, sink))?;
        }
        Ok(count)
    }

    /// For what the service sends outside of a batch.
    fn with_sink<T>(&mut self, work: impl FnOnce(&mut Engine, &mut dyn segue_service::Sink) -> T) -> Result<T, String> {
        let kernel = self.kernel.as_deref();
        match &mut self.source {
            Source::Wait(sockets) => {
                let socket = sockets.first_mut().ok_or("it has no socket")?;
                let mut transmitter = socket.transmitter();
                let (frames, sent) = (&[][..], &mut [][..]);
                let mut sink = Frames { link: self.link, kernel, transmitter: &mut transmitter, frames, sent };
                let result = work(&mut self.engine, &mut sink);
                transmitter.flush().map_err(|error| format!("the interface does not send: {error}"))?;
                Ok(result)
            }
            Source::Merged(source) => Ok(work(&mut self.engine, &mut source.sink(self.link, kernel))),
            Source::Copy(source) => {
                Ok(work(&mut self.engine, &mut Raw { link: self.link, kernel, socket: &source.socket }))
            }
        }
    }

    /// Does what it is told.
    fn obey(&mut self) -> Result<Next, String> {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return Ok(Next::End),
                Ok(Order::Replace(service, answer)) => {
                    let now = self.now();
                    let lost = self.with_sink(|engine, sink| engine.replace(service, now, sink))?;
                    let _ = answer.send(lost);
                }
                Ok(Order::Report(answer)) => {
                    let _ = answer.send(self.status());
                }
                Ok(Order::Pause(quiet)) => {
                    if let Next::Gone = self.pause(&quiet)? {
                        return Ok(Next::Gone);
                    }
                }
                // Only who pauses has anything to give.
                Ok(Order::Give(answer)) => drop(answer),
                Err(TryRecvError::Empty) => return Ok(Next::GoOn),
            }
        }
    }

    /// Touches no packet until it is told to go on or to end.
    fn pause(&mut self, quiet: &Sender<()>) -> Result<Next, String> {
        let now = self.now();
        self.with_sink(|engine, sink| engine.stop(now, sink))?;
        self.leave(Instant::now())?;
        let _ = quiet.send(());
        loop {
            match self.orders.recv() {
                Ok(Order::Give(answer)) => {
                    let _ = answer.send(self.parts());
                }
                Ok(Order::Replace(service, answer)) => {
                    let now = self.now();
                    let lost = self.with_sink(|engine, sink| engine.replace(service, now, sink))?;
                    let _ = answer.send(lost);
                    return Ok(Next::GoOn);
                }
                Ok(Order::Report(answer)) => {
                    let _ = answer.send(self.status());
                }
                Ok(Order::Pause(quiet)) => {
                    let _ = quiet.send(());
                }
                Ok(Order::Stop) | Err(_) => return Ok(Next::Gone),
            }
        }
    }

    fn parts(&self) -> std::io::Result<Vec<Part>> {
        match &self.source {
            Source::Wait(sockets) => sockets.iter().map(|socket| socket.part(self.index == 0)).collect(),
            Source::Merged(_) | Source::Copy(_) => Ok(Vec::new()),
        }
    }

    fn status(&mut self) -> WorkerStatus {
        let (sockets, lost) = match &mut self.source {
            Source::Wait(sockets) => (sockets.iter().filter_map(SocketStatus::of).collect(), None),
            Source::Merged(source) => (Vec::new(), Some(source.lost())),
            Source::Copy(_) => (Vec::new(), None),
        };
        WorkerStatus {
            index: self.index,
            cpu: self.cpu,
            counters: self.engine.counters().snapshot(),
            held: self.engine.counters().snapshot().held(),
            sockets,
            lost,
            report: self.engine.service().report(),
        }
    }

    /// Sleeps until there is something to do.
    fn sleep(&mut self) -> Result<(), String> {
        let now = self.now();
        let until_timer = self.engine.wake().map_or(SLEEP, |wake| wake.since(now));
        let longest = match &self.source {
            Source::Wait(_) | Source::Merged(_) => SLEEP,
            Source::Copy(_) => LOOK,
        };
        let timeout = until_timer.min(longest);
        // Rounded up: a timer that is called too early would be called again and again.
        let milliseconds = timeout.as_nanos().div_ceil(1_000_000);
        let timeout =
            PollTimeout::try_from(i32::try_from(milliseconds).unwrap_or(i32::MAX)).unwrap_or(PollTimeout::ZERO);
        let (rung, readable) = {
            let of_service = self.engine.service().descriptor();
            let of_sockets: Vec<BorrowedFd<'_>> = match &self.source {
                Source::Wait(sockets) => sockets.iter().map(AsFd::as_fd).collect(),
                Source::Merged(source) => vec![source.as_fd()],
                Source::Copy(_) => Vec::new(),
            };
            let mut fds = vec![PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)];
            fds.extend(of_service.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
            fds.extend(of_sockets.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
            match poll(&mut fds, timeout) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(error) => return Err(format!("cannot wait for packets: {error}")),
            }
            let ready = |index: usize| fds.get(index).and_then(|fd| fd.any()).unwrap_or(false);
            (ready(0), of_service.is_some() && ready(1))
        };
        if rung {
            let mut octets = [0; 64];
            let _ = (&self.bell).read(&mut octets);
        }
        if readable {
            let now = self.now();
            self.with_sink(|engine, sink| engine.readable(now, sink))?;
        }
        Ok(())
    }

    /// Works off what has come in, makes the service give out what it holds, and waits until that has left.
    fn end(&mut self, arrivals: &mut Vec<Arrival>) -> Result<(), String> {
        let begun = Instant::now();
        while self.step(arrivals)? > 0 && begun.elapsed() < LEAVE_WITHIN {}
        let now = self.now();
        let lost = self.with_sink(|engine, sink| engine.stop(now, sink))?;
        if lost > 0 {
            eprintln!("segue-service: worker {}: {lost} packets were taken, and neither sent nor dropped", self.index);
        }
        self.leave(begun)
    }

    /// Waits until what was sent has left, but not for ever.
    fn leave(&mut self, begun: Instant) -> Result<(), String> {
        if let Source::Wait(sockets) = &mut self.source
            && let Some(socket) = sockets.first_mut()
        {
            while !socket.is_idle() && begun.elapsed() < LEAVE_WITHIN {
                socket.transmitter().flush().map_err(|error| error.to_string())?;
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        Ok(())
    }
}

/// What a batch of packets that wait meets.
struct WaitBatch<'a> {
    engine: &'a mut Engine,
    link: &'a mut Link,
    kernel: Option<&'a Tun>,
}

impl WaitBatch<'_> {
    /// Runs a batch of `socket`. What leaves, leaves by `home` if that is another one. Returns how many packets there were.
    fn run(
        &mut self,
        socket: &mut Socket,
        home: Option<&mut Socket>,
        arrivals: &[Arrival],
        now: Time,
    ) -> Result<usize, String> {
        if arrivals.is_empty() {
            return Ok(0);
        }
        let (slices, mut own) = socket.split(arrivals);
        let mut packets = Vec::with_capacity(arrivals.len());
        let mut frames = Vec::with_capacity(arrivals.len());
        let mut refused = Vec::new();
        for (arrival, slice) in arrivals.iter().zip(slices) {
            let (frame, length, parsed) = match (arrival, slice) {
                (Arrival::Frame(frame, range), Some(slice)) => {
                    self.link.learn(slice.get(range.clone()).unwrap_or_default());
                    let octets = range.start + LINK_LENGTH..range.end.max(range.start + LINK_LENGTH);
                    let length = octets.len();
                    (Some(*frame), length, Packet::in_frame(self.link.steering, slice, octets, length, now))
                }
                (Arrival::Several(octets), _) => {
                    self.link.learn(octets);
                    let octets = octets.get(LINK_LENGTH..).unwrap_or_default();
                    (None, octets.len(), Packet::from_octets(self.link.steering, octets, now))
                }
                (Arrival::Frame(..), None) => continue,
            };
            match parsed {
                Ok(packet) => {
                    packets.push(packet);
                    frames.push(frame);
                }
                Err(reason) => {
                    self.engine.refuse(reason, length);
                    refused.extend(frame);
                }
            }
        }
        let mut sent = vec![false; packets.len()];
        let mut failed = None;
        if !packets.is_empty() {
            // A frame leaves by the queue whose it is, or as a copy.
            let copied = vec![None; packets.len()];
            let mut elsewhere = home.map(Socket::transmitter);
            let (transmitter, frames) = match &mut elsewhere {
                Some(transmitter) => (transmitter, &copied),
                None => (&mut own, &frames),
            };
            let mut sink = Frames { link: *self.link, kernel: self.kernel, transmitter, frames, sent: &mut sent };
            self.engine.batch(now, &mut packets, &mut sink);
            failed = elsewhere.and_then(|mut transmitter| transmitter.flush().err());
        }
        drop(packets);
        let kept = frames.iter().zip(&sent).filter(|(_, sent)| !**sent).filter_map(|(frame, _)| *frame);
        kept.chain(refused).for_each(|frame| own.free(frame));
        match failed.or_else(|| own.flush().err()) {
            Some(error) => Err(format!("the interface does not send: {error}")),
            None => Ok(arrivals.len()),
        }
    }
}

/// Copies. Returns how many there were.
fn copy_batch(engine: &mut Engine, source: &CopySource, link: Link, kernel: Option<&Tun>, now: Time) -> usize {
    let count = source.copies.consume(BATCH);
    if count == 0 {
        return 0;
    }
    let mut packets = Vec::with_capacity(count);
    for (wire_length, octets) in source.received.try_iter() {
        match Packet::from_cut(link.steering, octets, wire_length, now) {
            Ok(packet) => packets.push(packet),
            Err(reason) => engine.refuse(reason, wire_length),
        }
    }
    engine.batch(now, &mut packets, &mut Raw { link, kernel, socket: &source.socket });
    count
}
