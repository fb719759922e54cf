//! From a file to a service that runs, until it is told to stop.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use segue_host::polling::{self, Deferral};
use segue_host::tun::Tun;
use segue_service::{Counters, Engine, Mode, Prepared, Sampling, Snapshot, SteeringKind, Worker as Place};
use segue_xsk::interface::{self, Interface, RawSocket};
use segue_xsk::{COUNTERS, Options, Part, Program, Settings, Socket, Spread, Steering};

use crate::cgroup::ControlGroup;
use crate::confine::{self, Confinement};
use crate::control::{Listener, Served};
use crate::error::{Error, Result};
use crate::handover;
use crate::merged::MergedSource;
use crate::ports::Link;
use crate::running::{Kinds, Running};
use crate::status::{Status, WorkerStatus};
use crate::worker::{CopySource, Order, Source, Worker};

/// How long a worker may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The device by which a service gives packets to the kernel of its namespace.
const KERNEL: &str = "segue-kernel";

/// Runs what the file says, and returns when it was told to stop. `control`: the socket to answer on; that of its name in
/// `/run/segue/services` if none.
///
/// # Errors
/// What is wrong with the file; what cannot be opened; that a worker has failed.
pub fn run(file: &Path, socket: Option<PathBuf>, kinds: Kinds) -> Result<()> {
    // Nothing that a service starts gets more rights than it has.
    let _ = nix::sys::prctl::set_no_new_privs();
    let (running, prepared) = Running::read(file, kinds)?;
    let socket = socket.unwrap_or_else(|| crate::running::directory().join(format!("{}.socket", running.name())));
    let listener = Listener::bind(&socket)?;
    let mut confinement = Confinement::default();
    // Before there are threads and rings, which count too.
    let group = held(&running, &mut confinement);
    let mut service = Service::start(file, running, prepared, kinds)?;
    confine(service.prepared.makes_devices(), &mut confinement);
    for missing in &confinement.missing {
        eprintln!("segue-service: {}: {missing}", service.running.name());
    }
    service.confinement = confinement;
    // Who waits for the service sees its socket answer: only now it is there to stay.
    let ended = listener.serve(&mut service);
    let stopped = service.stop();
    drop(group);
    ended.and(stopped)
}

/// Runs what the file says in place of the process that runs it now, which hands over: no packet is lost. If that cannot be, it goes on.
///
/// # Errors
/// As [`run`]; if nobody runs it, or it cannot go over.
pub fn take_over(file: &Path, socket: Option<PathBuf>, kinds: Kinds) -> Result<()> {
    let _ = nix::sys::prctl::set_no_new_privs();
    let (running, prepared) = Running::read(file, kinds)?;
    let socket = socket.unwrap_or_else(|| crate::running::directory().join(format!("{}.socket", running.name())));
    handover::check(&running, prepared.as_ref())?;
    let (mut service, listener) = Service::after(file, running, prepared, kinds, &socket)?;
    let mut confinement = Confinement::default();
    confine(false, &mut confinement);
    service.confinement = confinement;
    let ended = listener.serve(&mut service);
    let stopped = service.stop();
    ended.and(stopped)
}

/// Puts the process into a control group if it has limits. That there is none is said, and no reason not to run.
fn held(running: &Running, confinement: &mut Confinement) -> Option<ControlGroup> {
    if running.limits.is_none() {
        return None;
    }
    match ControlGroup::enter(running.name(), running.limits) {
        Ok(group) => {
            confinement.control_group = group.path();
            Some(group)
        }
        Err(why) => {
            confinement.missing.push(format!("limits of memory and processor time are not kept: {why}"));
            None
        }
    }
}

/// Gives up what is not needed any more.
fn confine(devices: bool, confinement: &mut Confinement) {
    confinement.missing.extend(confine::give_up_capabilities(devices).err());
    let kept = caps::read(None, caps::CapSet::Permitted).unwrap_or_default();
    confinement.capabilities = kept.iter().map(ToString::to_string).collect();
    match confine::refuse_system_calls() {
        Ok(()) => confinement.system_calls = true,
        Err(why) => confinement.missing.push(why),
    }
}

/// A service that runs.
pub(crate) struct Service {
    file: PathBuf,
    running: Running,
    prepared: Arc<dyn Prepared>,
    program: Program,
    workers: Vec<Handle>,
    kernel: Option<Arc<Tun>>,
    begun: Instant,
    reloads: u64,
    confinement: Confinement,
    kinds: Kinds,
}

struct Handle {
    orders: Sender<Order>,
    bell: UnixStream,
    thread: JoinHandle<std::result::Result<(), String>>,
}

impl Handle {
    fn order(&self, order: Order) -> bool {
        let sent = self.orders.send(order).is_ok();
        // A worker that sleeps hears it; one that works looks anyway.
        let _ = (&self.bell).write(&[1]);
        sent
    }
}

impl Service {
    fn start(file: &Path, running: Running, prepared: Arc<dyn Prepared>, kinds: Kinds) -> Result<Self> {
        let interface = interface::find(&running.interface)?;
        if running.defer_times > 0 || running.defer_time > 0 {
            let deferral = Deferral { times: running.defer_times, nanoseconds: u64::from(running.defer_time) * 1000 };
            polling::defer(&running.interface, deferral)
                .map_err(|error| error.remedied("be root, or remove defer_times and defer_time"))?;
        }
        let kernel = prepared.uses_kernel().then(|| Tun::open_for_kernel(KERNEL)).transpose()?.map(Arc::new);
        let link = Link::new(&interface, running.node_mac.map(|mac| mac.octets()), running.steering);
        let begun = Instant::now();
        let (program, sources) = match prepared.mode() {
            Mode::Synchronous if running.merged => merged(&running, prepared.spread(), &interface)?,
            Mode::Synchronous => waiting(&running, prepared.spread(), interface.queues)?,
            Mode::Asynchronous => copying(&running, prepared.sampling(), &interface)?,
        };
        let mut service = Self {
            file: file.to_owned(),
            running,
            prepared,
            program,
            workers: Vec::new(),
            kernel,
            begun,
            reloads: 0,
            confinement: Confinement::default(),
            kinds,
        };
        service.begin(sources, link)?;
        // Packets come from now on, and everything is there that takes them.
        if !service.running.merged {
            service.program.attach()?;
        }
        Ok(service)
    }

    fn begin(&mut self, sources: Vec<Source>, link: Link) -> Result<()> {
        for (index, source) in sources.into_iter().enumerate() {
            let handle = self.worker(index, source, link)?;
            self.workers.push(handle);
        }
        Ok(())
    }

    /// In place of the process that answers on `socket`. What may fail comes before that process is told that it can end.
    fn after(
        file: &Path,
        running: Running,
        prepared: Arc<dyn Prepared>,
        kinds: Kinds,
        socket: &Path,
    ) -> Result<(Self, Listener)> {
        let interface = interface::find(&running.interface)?;
        let link = Link::new(&interface, running.node_mac.map(|mac| mac.octets()), running.steering);
        // What takes long comes before packets wait.
        let (program, mut sources) = match prepared.mode() {
            Mode::Synchronous => (loaded(&running, prepared.spread())?, Vec::new()),
            Mode::Asynchronous => copying(&running, prepared.sampling(), &interface)?,
        };
        let mut service = Self {
            file: file.to_owned(),
            running,
            prepared,
            program,
            workers: Vec::new(),
            kernel: None,
            begun: Instant::now(),
            reloads: 0,
            confinement: Confinement::default(),
            kinds,
        };
        for index in 0..service.running.workers as usize {
            // Only to see that it can be.
            service.built(service.prepared.as_ref(), index)?;
        }
        let taken = handover::ask(socket, &service.running, service.prepared.mode())?;
        let (stream, of_program, queues) = taken.into_parts();
        if service.prepared.mode() == Mode::Synchronous {
            sources = adopted(&service.running, &service.program, queues)?;
        }
        let listener = Listener::replace(socket)?;
        service.program.replace(of_program)?;
        handover::Taken::confirm(&stream).map_err(Error::file("take over from", socket, "start the service again"))?;
        service.begin(sources, link)?;
        Ok((service, listener))
    }

    /// Stops all workers without losing what has come, and sends everything to the successor.
    fn give(&self, stream: &UnixStream) -> std::result::Result<bool, String> {
        let (answer, answers) = channel();
        let asked = self.workers.iter().filter(|worker| worker.order(Order::Pause(answer.clone()))).count();
        if (0..asked).any(|_| answers.recv_timeout(ANSWER_WITHIN).is_err()) {
            return Err("a worker does not answer".to_owned());
        }
        // None touches a frame any more.
        let mut queues: Vec<Vec<Part>> = Vec::new();
        for worker in &self.workers {
            let (answer, answers) = channel();
            worker.order(Order::Give(answer));
            let parts = answers.recv_timeout(ANSWER_WITHIN).map_err(|_| "a worker does not answer".to_owned())?;
            let parts = parts.map_err(|error| format!("its open files cannot be given: {error}"))?;
            queues.resize_with(parts.len().max(queues.len()), Vec::new);
            queues.iter_mut().zip(parts).for_each(|(queue, part)| queue.push(part));
        }
        let link = self.program.link().map_err(|error| format!("its XDP program cannot be given: {error}"))?;
        handover::give(stream, &self.running, self.prepared.mode(), link, queues).map_err(|error| error.to_string())
    }

    fn built(&self, prepared: &dyn Prepared, index: usize) -> Result<Box<dyn segue_service::Service>> {
        let place = Place { index, count: self.running.workers as usize };
        let failed = |cause| Error::Build { service: self.running.service.clone(), cause };
        prepared.build(place).map_err(failed)
    }

    fn worker(&self, index: usize, source: Source, link: Link) -> Result<Handle> {
        let prepared = self.prepared.as_ref();
        let counters = Arc::new(Counters::new(prepared.metrics()));
        let place = Place { index, count: self.running.workers as usize };
        let engine = Engine::new(self.built(prepared, index)?, prepared.mode(), place, link.mtu, counters);
        let (orders, receiver) = channel();
        let failed = || Error::file("open a pair of sockets for", &self.file, "allow more open files (`ulimit -n`)");
        let (bell, hears) = UnixStream::pair().map_err(failed())?;
        hears.set_nonblocking(true).map_err(failed())?;
        bell.set_nonblocking(true).map_err(failed())?;
        let cpu = self.running.cpus.get(index).copied();
        let spin = Duration::from_micros(self.running.spin.into());
        let (engine, begun) = (engine, self.begun);
        let kernel = self.kernel.clone();
        let worker = Worker { index, cpu, engine, source, link, kernel, orders: receiver, bell: hears, spin, begun };
        let name = format!("worker-{index}");
        let (gives_up, given_up) = channel();
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                pin(cpu)?;
                // It has its rings; what it cannot give up is told by the main thread, which cannot either.
                let _ = confine::give_up_capabilities(false);
                let _ = gives_up.send(());
                worker.work()
            })
            .map_err(Error::file("start a thread for", &self.file, "allow more processes (`ulimit -u`)"))?;
        // Or it ends, which is found later. A worker that is slow would meet the filter of system calls, which refuses this one, and keep them.
        let _ = given_up.recv();
        Ok(Handle { orders, bell, thread })
    }

    fn ended(&self, index: usize, why: String) -> Error {
        Error::Worker { service: self.running.service.clone(), index, why }
    }

    fn fate(&mut self, index: usize) -> Result<()> {
        let worker = self.workers.remove(index);
        match worker.thread.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(self.ended(index, why)),
            Err(_) => Err(self.ended(index, "it panicked".into())),
        }
    }

    /// Stops: no packet comes any more, what has come is worked off.
    fn stop(&mut self) -> Result<()> {
        for worker in &self.workers {
            worker.order(Order::Stop);
        }
        let mut result = Ok(());
        while !self.workers.is_empty() {
            let ended = self.fate(0);
            result = result.and(ended);
        }
        self.program.detach();
        result
    }
}

impl Served for Service {
    fn check(&mut self) -> Result<()> {
        match self.workers.iter().position(|worker| worker.thread.is_finished()) {
            Some(index) => Err(self.fate(index).err().unwrap_or_else(|| self.ended(index, "without a reason".into()))),
            None => Ok(()),
        }
    }

    fn reload(&mut self) -> Result<()> {
        let (running, prepared) = Running::read(&self.file, self.kinds)?;
        if let Err(key) = self.running.same_but_configuration(&running) {
            let message =
                format!("{}: {key} has changed, which a running service cannot; start it again", self.file.display());
            return Err(Error::Usage(message));
        }
        if prepared.mode() != self.prepared.mode() || prepared.sampling() != self.prepared.sampling() {
            let message =
                format!("{}: which packets wait, or are copied, has changed; start it again", self.file.display());
            return Err(Error::Usage(message));
        }
        // All are built before one is replaced.
        let workers = 0..self.workers.len();
        let built: Vec<_> = workers.map(|index| self.built(prepared.as_ref(), index)).collect::<Result<_>>()?;
        let (answer, answers) = channel();
        for (worker, service) in self.workers.iter().zip(built) {
            worker.order(Order::Replace(service, answer.clone()));
        }
        for index in 0..self.workers.len() {
            let lost = answers.recv_timeout(ANSWER_WITHIN);
            if lost.is_err() {
                return Err(self.ended(index, "it does not answer".into()));
            }
        }
        (self.running, self.prepared) = (running, prepared);
        self.reloads += 1;
        Ok(())
    }

    fn hand_over(&mut self, stream: &UnixStream) -> bool {
        if let Err(error) = handover::check(&self.running, self.prepared.as_ref()) {
            handover::refuse(stream, &error.to_string());
            return false;
        }
        match self.give(stream) {
            Ok(true) => {
                eprintln!("segue-service: another program has taken over");
                return true;
            }
            Ok(false) => eprintln!("segue-service: another program was to take over, and has not: this one goes on"),
            Err(error) => {
                handover::refuse(stream, &error);
                eprintln!("segue-service: another program was to take over: {error}");
            }
        }
        for (index, worker) in self.workers.iter().enumerate() {
            // One that cannot be made stops, which the next look finds.
            if let Ok(service) = self.built(self.prepared.as_ref(), index) {
                let (answer, answers) = channel();
                worker.order(Order::Replace(service, answer));
                let _ = answers.recv_timeout(ANSWER_WITHIN);
            } else {
                worker.order(Order::Stop);
            }
        }
        false
    }

    fn status(&self) -> Status {
        let (answer, answers) = channel();
        let asked = self.workers.iter().filter(|worker| worker.order(Order::Report(answer.clone()))).count();
        let mut workers: Vec<WorkerStatus> =
            (0..asked).map_while(|_| answers.recv_timeout(ANSWER_WITHIN).ok()).collect();
        workers.sort_by_key(|worker| worker.index);
        let mut total = Snapshot::default();
        // Of the same moment as what the services say.
        workers.iter().for_each(|worker| total.merge(&worker.counters));
        let counted = self.program.counters().unwrap_or_default();
        let xdp: BTreeMap<_, _> = COUNTERS.iter().map(|(name, _)| *name).zip(counted).collect();
        Status {
            name: self.running.name().to_owned(),
            service: self.prepared.name(),
            mode: self.prepared.mode(),
            pid: std::process::id(),
            interface: self.running.interface.clone(),
            steering: self.running.steering,
            seconds: self.begun.elapsed().as_secs(),
            reloads: self.reloads,
            confinement: self.confinement.clone(),
            configuration: self.prepared.configuration(),
            xdp,
            held: total.held(),
            total,
            workers,
        }
    }
}

/// The program for packets that wait.
fn loaded(running: &Running, spread: segue_service::Spread) -> Result<Program> {
    let mode = if running.merged { segue_xsk::Mode::Merged } else { segue_xsk::Mode::Wait };
    let spread = match spread {
        segue_service::Spread::Flow => Spread::Flow,
        segue_service::Spread::Way => Spread::Way,
    };
    let settings = Settings { steering: steering(running), workers: running.workers, spread, ..Settings::default() };
    Ok(Program::load(&running.interface, mode, settings)?)
}

fn steering(running: &Running) -> Steering {
    match running.steering {
        SteeringKind::Srv6 => Steering::Srv6,
        SteeringKind::SrMpls => Steering::Labels,
    }
}

fn options(running: &Running) -> Options {
    Options { ring_size: running.ring_size, busy_poll: running.busy_poll, ..Options::default() }
}

/// Sockets of another process for each worker: of each queue those of all workers.
fn adopted(running: &Running, program: &Program, queues: Vec<Vec<Part>>) -> Result<Vec<Source>> {
    let mut sources: Vec<Vec<Socket>> = (0..running.workers).map(|_| Vec::new()).collect();
    for (queue, parts) in (0..).zip(queues) {
        let sockets = Socket::adopt(&running.interface, parts, options(running))?;
        for (worker, (sockets, socket)) in (0..).zip(sources.iter_mut().zip(sockets)) {
            program.serve(queue, worker, &socket)?;
            sockets.push(socket);
        }
    }
    Ok(sources.into_iter().map(Source::Wait).collect())
}

/// Sockets for each worker: one at each queue of the interface.
fn waiting(running: &Running, spread: segue_service::Spread, queues: u32) -> Result<(Program, Vec<Source>)> {
    let program = loaded(running, spread)?;
    let options = options(running);
    let mut sources: Vec<Vec<Socket>> = (0..running.workers).map(|_| Vec::new()).collect();
    for queue in 0..queues {
        let sockets = Socket::open(&running.interface, queue, running.workers, options)?;
        for (worker, (sockets, socket)) in (0..).zip(sources.iter_mut().zip(sockets)) {
            program.serve(queue, worker, &socket)?;
            sockets.push(socket);
        }
    }
    Ok((program, sources.into_iter().map(Source::Wait).collect()))
}

/// A packet socket for each worker, behind programs that are attached: what came to both would go on twice.
fn merged(running: &Running, spread: segue_service::Spread, interface: &Interface) -> Result<(Program, Vec<Source>)> {
    let mut program = loaded(running, spread)?;
    program.attach()?;
    let sockets = program.merged_sockets(interface)?;
    Ok((program, sockets.into_iter().map(|socket| Source::Merged(MergedSource::new(socket))).collect()))
}

/// The ring with copies.
fn copying(running: &Running, sampling: Sampling, interface: &Interface) -> Result<(Program, Vec<Source>)> {
    let settings = Settings {
        steering: steering(running),
        one_in: sampling.one_in,
        snap_length: sampling.snap_length.unwrap_or(u32::MAX),
        // As many packets of 2048 octets as the ring of a worker that packets wait for.
        ring_length: (running.ring_size * 2048).max(1 << 16),
        ..Settings::default()
    };
    let program = Program::load(&running.interface, segue_xsk::Mode::Copy, settings)?;
    let (sender, received) = channel();
    let copies = program.copies(move |wire_length, octets| {
        let _ = sender.send((wire_length, octets.to_vec()));
    })?;
    let socket = RawSocket::open(interface)?;
    Ok((program, vec![Source::Copy(CopySource { copies, received, socket })]))
}

fn pin(cpu: Option<u32>) -> std::result::Result<(), String> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = nix::sched::CpuSet::new();
    let bound = set.set(cpu as usize).and_then(|()| nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set));
    bound.map_err(|error| format!("it cannot be bound to processor {cpu}: {error}; see `cpus` in its file"))
}
