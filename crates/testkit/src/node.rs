//! The data plane of one node, loaded and attached for real. Packets go in by `BPF_PROG_TEST_RUN`, and everything that comes
//! of one is seen: verdict, octets, and every counter that moved.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use ipnet::Ipv6Net;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use segue_abi as abi;
use segue_dataplane::shared::Loaded;
use segue_dataplane::{
    Capacity, Compiled, Dataplane, Hook, Interfaces, MemoryCounters, MissingInterface, TestOutput, TestProgram, TestRun,
};
use segue_model::node::NodeState;
use segue_model::service_label::{key_label, sid_or_label};
use zerocopy::{FromBytes, IntoBytes};

use crate::netns::Netns;

/// What an XDP program says about a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Verdict {
    Aborted,
    Drop,
    Pass,
    Transmit,
    Redirect,
}

impl Verdict {
    fn from_return(value: u32) -> Self {
        match value {
            0 => Self::Aborted,
            1 => Self::Drop,
            2 => Self::Pass,
            3 => Self::Transmit,
            4 => Self::Redirect,
            other => panic!("an XDP program returned {other}"),
        }
    }
}

/// Packets and octets by which counters moved, by name: `core0 forwarded`, `sid fc00:0:1:1::/64`, `label 16`, `returned ...` (proxies),
/// `policy NAME`, `list NAME/POSITION`, `rule NAME`, `icmp ROW`.
pub type Moved = BTreeMap<String, (u64, u64)>;

/// What became of one packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processed {
    /// The program's verdict.
    pub verdict: Verdict,
    /// The frame afterwards, as the next one to see it would.
    pub frame: Vec<u8>,
    /// All counters that moved.
    pub moved: Moved,
}

/// A loaded data plane with its configuration, attached to its ports. It is detached when dropped, and left to the next test.
#[derive(Debug)]
pub struct Node<'a> {
    netns: &'a Netns,
    /// Behind a lock because closures in other threads use it; there is never more than one of these.
    loaded: Mutex<Option<Loaded>>,
    compiled: Compiled,
    rows: Rows,
    hook: Hook,
    /// Others know its pins, and may have done with it what nobody can take back.
    given_away: AtomicBool,
}

const CAPACITY: Capacity = Capacity {
    sids: 128,
    policies: 64,
    segment_lists: 128,
    steering_rules: 64,
    steering: 1 << 16,
    ports: 32,
    proxy_flows: 1,
    instance_flows: 1,
    stash: Capacity::STASH_UNUSED,
    firewalls: 8,
    firewall_rules: 256,
    classifier: 1 << 16,
    listed: 1,
};

impl<'a> Node<'a> {
    /// Gets a data plane with this configuration, for the interfaces that `netns` has now: one that tests before have left, made as if
    /// it were new, or a new one.
    ///
    /// # Panics
    ///
    /// When the kernel, the model or the compiler refuses something.
    pub fn load(netns: &'a Netns, yaml: &str) -> Self {
        Self::load_on(netns, yaml, if on_socket_buffers() { Hook::Skb } else { Hook::Xdp })
    }

    /// As [`Node::load`] with ports on this hook, as far as they can be.
    pub fn load_on(netns: &'a Netns, yaml: &str, hook: Hook) -> Self {
        let state = state(yaml);
        let capacity = CAPACITY.for_memories_of(&state);
        let loaded = netns.enter(|| {
            let mut loaded = Loaded::take_or_load(capacity).unwrap_or_else(|error| panic!("{error}"));
            let interfaces = interfaces(&state, hook);
            let applied = loaded
                .dataplane
                .apply(&state, &interfaces, MissingInterface::Refuse)
                .unwrap_or_else(|error| panic!("applying the test's configuration: {error}"));
            assert!(applied.warnings.is_empty(), "{:?}", applied.warnings);
            loaded
        });
        let compiled = loaded.dataplane.applied().expect("it was applied").clone();
        let rows = Rows::of(&compiled);
        Self { netns, loaded: Mutex::new(Some(loaded)), compiled, rows, hook, given_away: AtomicBool::new(false) }
    }

    /// What the rules of all firewalls have counted.
    ///
    /// # Panics
    ///
    /// When it cannot be read.
    pub fn firewall_counters(&self) -> Vec<segue_dataplane::FirewallCounters> {
        self.with(|dataplane| dataplane.firewall_counters().unwrap_or_else(|error| panic!("{error}")))
    }

    fn with<T>(&self, body: impl FnOnce(&mut Dataplane) -> T) -> T {
        let mut guard = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        body(&mut guard.as_mut().expect("it is there until the node is dropped").dataplane)
    }

    /// Does something with the data plane itself, in the node's namespace.
    pub fn inside<T: Send>(&self, body: impl FnOnce(&mut Dataplane) -> T + Send) -> T {
        self.netns.enter(|| self.with(body))
    }

    /// Applies another configuration.
    ///
    /// # Panics
    ///
    /// When it is refused.
    pub fn apply(&mut self, yaml: &str) {
        let state = state(yaml);
        let compiled = self.netns.enter(|| {
            self.with(|dataplane| {
                let interfaces = interfaces(&state, self.hook);
                dataplane
                    .apply(&state, &interfaces, MissingInterface::Refuse)
                    .unwrap_or_else(|error| panic!("{error}"));
                dataplane.applied().expect("it was applied").clone()
            })
        });
        self.rows.extend(Rows::of(&compiled));
        self.compiled = compiled;
    }

    /// Keys and values of a pinned hash map.
    ///
    /// # Panics
    ///
    /// When there is no such map.
    pub fn entries(&self, map: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.with(|dataplane| {
            let map = dataplane.map(map).unwrap_or_else(|error| panic!("{error}"));
            let value = |key: &Vec<u8>| map.lookup(key, MapFlags::ANY).ok().flatten();
            map.keys().filter_map(|key| value(&key).map(|value| (key, value))).collect()
        })
    }

    /// Sets a value of a pinned hash map.
    ///
    /// # Panics
    ///
    /// When there is no such map, or it takes no such entry.
    pub fn set_entry(&self, map: &str, key: &[u8], value: &[u8]) {
        self.with(|dataplane| {
            let map = dataplane.map(map).unwrap_or_else(|error| panic!("{error}"));
            map.update(key, value, MapFlags::ANY).expect("the entry is taken");
        });
    }

    /// What the firewalls remember of connections, those that have expired included, each with its table's slot.
    ///
    /// # Panics
    ///
    /// When a table cannot be read.
    pub fn connections(&self) -> Vec<(u32, abi::ConnectionEntry)> {
        let mut found = Vec::new();
        self.change_buckets(|slot, bucket| {
            let entries = bucket.tags.iter().zip(&bucket.entries).filter(|(tag, _)| **tag != 0);
            found.extend(entries.map(|(_, entry)| (slot, *entry)));
        });
        found
    }

    /// Changes what the firewalls remember of connections. Lifetimes are also what decides which one gives way.
    ///
    /// # Panics
    ///
    /// When a table cannot be read or written.
    pub fn change_connections(&self, mut change: impl FnMut(&mut abi::ConnectionEntry)) {
        self.change_buckets(|_, bucket| {
            for way in (0..bucket.entries.len()).filter(|way| bucket.tags[*way] != 0) {
                change(&mut bucket.entries[way]);
                bucket.ranks[way] = bucket.ranks[way] & 3 << 62 | bucket.entries[way].connection.expires >> 2;
            }
        });
    }

    /// Changes the buckets of the firewalls' tables, which are given with their table's slot.
    ///
    /// # Panics
    ///
    /// When a table cannot be read or written.
    pub fn change_buckets(&self, mut change: impl FnMut(u32, &mut abi::ConnectionBucket)) {
        self.with(|dataplane| {
            let mut changed = false;
            for firewall in self.compiled.firewalls.iter().filter(|firewall| firewall.entry.table != 0) {
                let slot = firewall.entry.table;
                let table = dataplane.connection_table(slot).unwrap_or_else(|error| panic!("{error}"));
                let table = table.expect("a firewall with states has a table");
                for index in 0..firewall.entry.buckets {
                    let key = index.to_ne_bytes();
                    let octets = table.lookup(&key, MapFlags::ANY).expect("a bucket is read").expect("it is there");
                    let mut bucket = abi::ConnectionBucket::read_from_bytes(&octets).expect("a bucket");
                    change(slot, &mut bucket);
                    if bucket.as_bytes() != octets {
                        table.update(&key, bucket.as_bytes(), MapFlags::ANY).expect("a bucket is written");
                        changed = true;
                    }
                }
            }
            if changed {
                // Verdicts that the data plane keeps beside the table.
                dataplane.bump_caches().expect("the map control");
            }
        });
    }

    /// Sizes of the tables, for another data plane that adopts the pins.
    pub fn capacity(&self) -> Capacity {
        CAPACITY
    }

    /// Directory of the pins, for another data plane in this process. No other test gets this one then.
    pub fn pin_directory(&self) -> PathBuf {
        self.given_away.store(true, Ordering::Relaxed);
        let guard = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        guard.as_ref().expect("it is there until the node is dropped").pin_directory()
    }

    /// What the proxy of a SID remembers, in numbers.
    ///
    /// # Panics
    ///
    /// When there is no such SID, or when it remembers nothing.
    pub fn memory(&self, sid: &str) -> MemoryCounters {
        let counters = self.with(|dataplane| dataplane.counters().unwrap_or_else(|error| panic!("{error}")));
        let found = counters.sids.into_iter().find(|one| one.sid.to_string() == sid);
        found.and_then(|one| one.memory).unwrap_or_else(|| panic!("{sid} remembers nothing"))
    }

    /// The compiled configuration.
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// Makes the data plane ask the kernel's tables anew.
    ///
    /// # Panics
    ///
    /// When the map cannot be written.
    pub fn forget_routes(&self) {
        self.with(|dataplane| dataplane.bump_caches().expect("the map control"));
    }

    /// Makes the data plane ask for these neighbours anew: interfaces' numbers, and addresses there.
    ///
    /// # Panics
    ///
    /// When the map cannot be written.
    pub fn forget_neighbours(&self, neighbours: &[(u32, std::net::IpAddr)]) {
        self.with(|dataplane| dataplane.life().forget_neighbours(neighbours).expect("the map control"));
    }

    /// Makes limits of what the data plane was told of paths, as the agent does every second.
    ///
    /// # Panics
    ///
    /// When a map cannot be read or written.
    pub fn follow_path_mtus(&self, now: Instant) {
        self.netns.enter(|| {
            let interfaces = Interfaces::query().unwrap_or_else(|error| panic!("{error}"));
            self.with(|dataplane| dataplane.follow_path_mtus(&interfaces, now).expect("the map path_mtus"));
        });
    }

    /// The function behind a SID, or a label by its key, is down or up.
    pub fn set_down(&self, sid: Ipv6Net, down: bool) {
        self.with(|dataplane| dataplane.life().set([sid], down).expect("the map sid_entries"));
    }

    /// Sends a frame through the data plane as if it had come in by `port`.
    ///
    /// # Panics
    ///
    /// When the kernel refuses to run the program, or more than one outcome is counted for the packet.
    pub fn send(&self, port: &str, frame: &[u8]) -> Processed {
        let before = self.counters();
        let (verdict, frame) = self.run(port, frame);
        let after = self.counters();
        let moved: Moved = after
            .into_iter()
            .filter_map(|(name, (packets, bytes))| {
                let (packets_before, bytes_before) = before.get(&name).copied().unwrap_or_default();
                let delta = (packets - packets_before, bytes - bytes_before);
                (delta != (0, 0)).then_some((name, delta))
            })
            .collect();
        Processed { verdict, frame, moved }
    }

    /// As [`Node::send`] without looking at counters.
    pub fn run(&self, port: &str, frame: &[u8]) -> (Verdict, Vec<u8>) {
        self.run_many(|runner| runner.run(port, frame))
    }

    /// Runs many frames inside the namespace without leaving it in between.
    pub fn run_many<T: Send>(&self, body: impl FnOnce(&mut Runner<'_>) -> T + Send) -> T {
        self.netns.enter(|| {
            self.with(|dataplane| body(&mut Runner { dataplane, compiled: &self.compiled, programs: HashMap::new() }))
        })
    }

    /// All counters that are not zero. The node asserts when it goes that there was nothing in any other.
    pub fn counters(&self) -> Moved {
        let mut found = Moved::new();
        let mut add = |name: String, (packets, bytes): (u64, u64)| {
            if (packets, bytes) != (0, 0) {
                let entry = found.entry(name).or_default();
                *entry = (entry.0 + packets, entry.1 + bytes);
            }
        };
        for (row, words) in self.sums("outcomes", &Vec::from_iter(self.rows.outcomes.keys().copied())) {
            for (number, counter) in (0_u16..).zip(words.chunks_exact(2)).filter(|(_, counter)| **counter != [0, 0]) {
                let outcome = abi::Outcome::from_number(number).map_or("unknown", abi::Outcome::name);
                add(format!("{} {outcome}", self.rows.outcomes[&row]), (counter[0], counter[1]));
            }
        }
        for (row, words) in self.sums("counters", &Vec::from_iter(self.rows.counters.keys().copied())) {
            add(self.rows.counters[&row].clone(), (words[0], words[1]));
        }
        for ((_, words), name) in
            self.sums("icmp_sent", &Vec::from_iter(0..abi::SEGUE_ICMP_MAX)).into_iter().zip(ICMP_ROWS)
        {
            add(format!("icmp {name}"), (words[0], 0));
        }
        found
    }

    /// Rows of the map `counters`, as [`Moved`] names them.
    pub fn counter_names(&self) -> &BTreeMap<u32, String> {
        &self.rows.counters
    }

    fn sums(&self, table: &str, rows: &[u32]) -> Vec<(u32, Vec<u64>)> {
        let sums = self.with(|dataplane| dataplane.sums(table, rows));
        sums.unwrap_or_else(|error| panic!("reading map {table}: {error}"))
    }

    /// Rows of `outcomes` and `counters` that are nobody's and in which something was counted.
    fn counted_for_nobody(&self) -> Vec<String> {
        let last = self.rows.outcomes.keys().max().copied().unwrap_or(0);
        let [outcomes, counters]: [Vec<u32>; 2] = [
            (0..last).filter(|row| !self.rows.outcomes.contains_key(row)).collect(),
            (0..CAPACITY.counters()).filter(|row| !self.rows.counters.contains_key(row)).collect(),
        ];
        let counted = [("outcomes", outcomes), ("counters", counters)].map(|(table, rows)| {
            let sums = self.sums(table, &rows).into_iter().filter(|(_, words)| words.iter().any(|word| *word != 0));
            sums.map(move |(row, words)| format!("{table}, row {row}: {words:?}")).collect::<Vec<_>>()
        });
        counted.concat()
    }
}

/// What is counted for whom, as [`Moved`] names it, by row.
#[derive(Debug)]
struct Rows {
    outcomes: BTreeMap<u32, String>,
    counters: BTreeMap<u32, String>,
}

impl Rows {
    fn of(compiled: &Compiled) -> Self {
        // Row 0 of outcomes: what has come in by no port.
        let mut outcomes = BTreeMap::from([(0, "row0".to_owned())]);
        outcomes.extend(compiled.ports.iter().map(|port| (u32::from(port.entry.index), port.name.clone())));
        Self { outcomes, counters: counter_names(compiled) }
    }

    /// With those of another configuration, whose names hold. What was counted before stays counted.
    fn extend(&mut self, other: Self) {
        self.outcomes.extend(other.outcomes);
        self.counters.extend(other.counters);
    }
}

/// Rows of the map `counters`.
fn counter_names(compiled: &Compiled) -> BTreeMap<u32, String> {
    let mut names = BTreeMap::new();
    for sid in &compiled.sids {
        let name = key_label(&sid.prefix).map_or_else(|| format!("sid {}", sid.prefix), |_| sid_or_label(&sid.prefix));
        names.insert(sid.entry.counter, name);
        let of = key_label(&sid.prefix).map_or_else(|| sid.prefix.to_string(), |_| sid_or_label(&sid.prefix));
        names.insert(sid.entry.counter_return, format!("returned {of}"));
    }
    for label in compiled.labels.iter().filter(|label| label.is_first_path()) {
        names.insert(label.entry.counter, format!("label {}", label.label));
    }
    for policy in &compiled.policies {
        for (position, list) in policy.lists.iter().enumerate() {
            names.insert(list.entry.counter, format!("list {}/{position}", policy.name));
        }
    }
    for (name, row) in &compiled.steering_counters {
        names.insert(*row, format!("rule {name}"));
    }
    names.remove(&0);
    names
}

/// The state with what the agent makes of it.
fn state(yaml: &str) -> NodeState {
    segue_model::load::load_node_state(yaml, "test.yaml").unwrap_or_else(|errors| panic!("{errors}")).written_out()
}

/// In the environment of a test program: `skb` has ports on socket buffers, as far as they can be.
pub const HOOK: &str = "SEGUE_TEST_HOOK";

/// Whether ports are on socket buffers.
pub fn on_socket_buffers() -> bool {
    std::env::var_os(HOOK).is_some_and(|hook| hook == "skb")
}

/// Octets that a frame must have for `BPF_PROG_TEST_RUN`: it takes no socket buffer that ends in its IP header, or with its
/// Ethernet header.
fn least(frame: &[u8]) -> usize {
    match frame.get(12..14) {
        _ if !on_socket_buffers() => 14,
        Some([0x86, 0xdd]) => 54,
        Some([8, 0]) => 34,
        _ => 15,
    }
}

/// Whether a frame can be run.
pub fn can_run(frame: &[u8]) -> bool {
    frame.len() >= least(frame)
}

/// A frame with a VLAN tag as it lies in the buffer that it leaves in: in a socket buffer the outermost tag is beside it.
pub fn in_buffer(frame: &[u8]) -> Vec<u8> {
    let tagged = matches!(frame.get(12..14), Some([0x81, 0] | [0x88, 0xa8]));
    if on_socket_buffers() && tagged { [&frame[..12], &frame[16..]].concat() } else { frame.to_vec() }
}

/// Makes a frame long enough to be run.
pub fn make_runnable(frame: &mut Vec<u8>) {
    frame.resize(frame.len().max(least(frame)), 0);
}

/// The interfaces of the calling thread's namespace, with the hook that is tested.
fn interfaces(state: &NodeState, hook: Hook) -> Interfaces {
    let mut interfaces = Interfaces::query().unwrap_or_else(|error| panic!("{error}"));
    for port in state.all_ports() {
        if let Some(interface) = interfaces.0.get_mut(&port.name) {
            interface.hook = hook;
        }
    }
    interfaces
}

/// Names of the rows of `icmp_sent`, by number.
const ICMP_ROWS: [&str; abi::SEGUE_ICMP_MAX as usize] = [
    "unreachable",
    "too_big",
    "time_exceeded",
    "parameter_problem",
    "echo_reply",
    "relayed",
    "rate_limited",
    "not_sent",
    "tcp_reset",
];

impl Drop for Node<'_> {
    fn drop(&mut self) {
        let odd = self.given_away.load(Ordering::Relaxed) || std::thread::panicking();
        let counted = if odd { Vec::new() } else { self.counted_for_nobody() };
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(loaded) = loaded else { return };
        let left = self.netns.enter(|| {
            let left = if odd { loaded.remove() } else { loaded.give_back() };
            left.map_err(|error| error.to_string())
        });
        if let Err(error) = left {
            eprintln!("the data plane goes with what is left in it: {error}");
        }
        assert!(counted.is_empty(), "counted for nobody: {counted:?}");
    }
}

/// A thread inside the node's namespace. See [`Node::run_many`].
#[derive(Debug)]
pub struct Runner<'a> {
    dataplane: &'a mut Dataplane,
    compiled: &'a Compiled,
    /// Those that have run, by stage (None: the one of the ports) and interface.
    programs: HashMap<(Option<&'static str>, u32), TestProgram>,
}

impl Runner<'_> {
    /// As [`Node::run`].
    ///
    /// # Panics
    ///
    /// When the kernel refuses to run the program.
    pub fn run(&mut self, port: &str, frame: &[u8]) -> (Verdict, Vec<u8>) {
        self.run_program(None, port, frame)
    }

    /// As [`Runner::run`] with a stage of the data plane in place of the program on the ports, by its name: as if that had called
    /// it at once.
    ///
    /// # Panics
    ///
    /// When there is no such stage, or the kernel refuses to run it.
    pub fn run_stage(&mut self, stage: &'static str, port: &str, frame: &[u8]) -> (Verdict, Vec<u8>) {
        self.run_program(Some(stage), port, frame)
    }

    fn run_program(&mut self, stage: Option<&'static str>, port: &str, frame: &[u8]) -> (Verdict, Vec<u8>) {
        let ingress = self.compiled.port(port).unwrap_or_else(|| panic!("no port {port}")).entry.ifindex;
        let what = || format!("{}, {} octets", stage.unwrap_or("the program of the ports"), frame.len());
        let program = self.programs.entry((stage, ingress)).or_insert_with(|| {
            let program = self.dataplane.test_program(stage, ingress);
            program.unwrap_or_else(|error| panic!("{}: {error}", what()))
        });
        let output = program.run(&TestRun::once(frame, ingress));
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", what()));
        self.verdict(&output)
    }

    /// What comes of the frame, the TC program on the same port included: it sends what XDP gives it to be sent.
    fn verdict(&self, output: &TestOutput) -> (Verdict, Vec<u8>) {
        let verdict = Verdict::from_return(output.verdict);
        let metadata = abi::AnswerMetadata::read_from_prefix(&output.frame);
        match metadata {
            Ok((metadata, frame)) if verdict == Verdict::Pass && metadata.magic == !self.magic() => {
                (Verdict::Redirect, frame.to_vec())
            }
            _ => (verdict, output.frame.clone()),
        }
    }

    /// The word that metadata begin with.
    fn magic(&self) -> u64 {
        let control = self.dataplane.map("control").unwrap_or_else(|error| panic!("{error}"));
        let octets = control.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).expect("it is read").expect("it is there");
        abi::Control::read_from_bytes(&octets).expect("struct segue_control").metadata_magic
    }

    /// The maps of this name that only the programs have: scratch memory, which is pinned nowhere. There may be more than one,
    /// because several objects share what is pinned.
    pub fn scratch(&self, name: &str) -> Vec<MapHandle> {
        let id = |map: &MapHandle| map.info().expect("what the map is").info.id;
        let outcomes = id(self.dataplane.map("outcomes").unwrap_or_else(|error| panic!("{error}")));
        let options = ProgInfoQueryOptions::default().include_map_ids(true);
        let mine = ProgInfoIter::with_query_opts(options).filter(|program| program.map_ids.contains(&outcomes));
        let ids: BTreeSet<u32> = mine.flat_map(|program| program.map_ids).collect();
        ids.into_iter().filter_map(|id| MapHandle::from_map_id(id).ok()).filter(|map| map.name() == name).collect()
    }

    /// Packets counted so far for each outcome of a port.
    ///
    /// # Panics
    ///
    /// When there is no such port.
    pub fn outcomes(&self, port: &str) -> Vec<u64> {
        let row = self.compiled.port(port).unwrap_or_else(|| panic!("no port {port}")).entry.index;
        outcome_row(self.dataplane, u32::from(row)).into_iter().map(|(packets, _)| packets).collect()
    }
}

/// Packets and octets of each outcome in one row, all CPUs together.
fn outcome_row(dataplane: &Dataplane, row: u32) -> Vec<(u64, u64)> {
    let mut sums = vec![(0, 0); abi::SEGUE_OUTCOMES_MAX as usize];
    let read = |bytes: &[u8]| abi::Outcomes::read_from_bytes(bytes).expect("struct segue_outcomes");
    for outcomes in per_cpu(dataplane, "outcomes", row, read) {
        // By index: it is done for each of millions of packets, and hardly optimised.
        let mut outcome = 0;
        while outcome < sums.len() {
            let counter = &outcomes.outcome[outcome];
            if counter.packets != 0 {
                let sum = &mut sums[outcome];
                *sum = (sum.0 + counter.packets, sum.1 + counter.bytes);
            }
            outcome += 1;
        }
    }
    sums
}

fn per_cpu<T>(dataplane: &Dataplane, map: &str, row: u32, read: impl Fn(&[u8]) -> T) -> Vec<T> {
    let found = dataplane.map(map).unwrap_or_else(|error| panic!("{error}"));
    let values = found
        .lookup_percpu(&row.to_ne_bytes(), MapFlags::ANY)
        .unwrap_or_else(|error| panic!("reading map {map}: {error}"))
        .unwrap_or_else(|| panic!("map {map} has no row {row}"));
    values.iter().map(|bytes| read(bytes)).collect()
}

/// Now, by the clock that connections expire by: nanoseconds.
///
/// # Panics
///
/// Without that clock.
pub fn clock() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC_COARSE).expect("a clock");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}
