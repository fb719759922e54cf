//! What the data plane counted, by the names of the configuration.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use ipnet::Ipv6Net;
use segue_abi::{self as abi, Outcome};
use segue_model::node::NodeState;
use serde::Serialize;

use super::links::{Attachment, attachments};
use super::{Carried, Dataplane, MemoryCounters};
use crate::Error;
use crate::compiled::{Compiled, CompiledPort};
use crate::maps::{MapSet, Sums, ascending};
use crate::records::Record;

/// Packets, and their layer 3 octets as received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// Layer 3 octets as received.
    pub bytes: u64,
}

impl From<abi::Counter> for Counter {
    fn from(counter: abi::Counter) -> Self {
        Self { packets: counter.packets, bytes: counter.bytes }
    }
}

impl std::ops::AddAssign for Counter {
    fn add_assign(&mut self, other: Self) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

/// All counters of the active configuration. An object keeps its counters while it stays configured under its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Outcomes by port.
    pub ports: Vec<PortCounters>,
    /// Local SIDs, binding SIDs included.
    pub sids: Vec<SidCounters>,
    /// SR policies with their segment lists; the lists that End.AS proxies put back are policies named `End.AS SID`.
    pub policies: Vec<PolicyCounters>,
    /// Steering rules.
    pub steering: Vec<SteeringCounters>,
    /// ICMP messages that the data plane made.
    pub icmp: IcmpSent,
}

/// What became of the packets that came in by a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortCounters {
    /// Name of the interface.
    pub port: String,
    /// Its number.
    pub ifindex: u32,
    /// By name of the outcome; those that have not occurred are left out.
    pub outcomes: BTreeMap<&'static str, Counter>,
}

/// Packets to a local SID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SidCounters {
    /// LOC:FUNCT.
    pub sid: Ipv6Net,
    /// Policy whose binding SID it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding_of: Option<String>,
    /// Packets that the SID's behaviour took.
    pub counter: Counter,
    /// Proxies: packets that came back from the function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returned: Option<Counter>,
    /// Proxies that remember: what became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryCounters>,
}

/// Packets steered into a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyCounters {
    /// Name of the policy.
    pub policy: String,
    /// All of its packets that were sent.
    pub counter: Counter,
    /// By segment list, in the order of configuration.
    pub lists: Vec<ListCounters>,
}

/// Packets sent by a segment list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListCounters {
    /// SIDs in order of traversal.
    pub segments: Vec<Ipv6Addr>,
    /// Its packets.
    pub counter: Counter,
}

/// Packets that matched a steering rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SteeringCounters {
    /// Name of the rule.
    pub rule: String,
    /// Its packets.
    pub counter: Counter,
}

/// ICMP messages that the data plane made, or did not make.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct IcmpSent {
    /// Destination Unreachable.
    pub unreachable: u64,
    /// Packet Too Big, or Fragmentation Needed.
    pub too_big: u64,
    /// Time Exceeded.
    pub time_exceeded: u64,
    /// Parameter Problem.
    pub parameter_problem: u64,
    /// Echo replies by SIDs.
    pub echo_reply: u64,
    /// Errors from inside the domain that were sent on to the inner source.
    pub relayed: u64,
    /// TCP segments with RST of firewalls.
    pub tcp_reset: u64,
    /// Not sent, because the rate limit was reached.
    pub rate_limited: u64,
    /// Not sent, because RFC 4443 section 2.4(e) forbids it or there is no way back.
    pub not_sent: u64,
}

/// The last packet that a port dropped for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastDrop {
    /// Name of the port; empty if it is not configured any more.
    pub port: String,
    /// Its number when the packet came.
    pub ifindex: u32,
    /// The reason.
    #[serde(serialize_with = "outcome_name")]
    pub outcome: Outcome,
    /// Nanoseconds since boot (CLOCK_MONOTONIC).
    pub time_ns: u64,
    /// Octets of the frame.
    pub length: u32,
    /// Its first octets.
    pub bytes: Vec<u8>,
}

fn outcome_name<S: serde::Serializer>(outcome: &Outcome, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(outcome.name())
}

/// Reads what was counted, on any thread: an apply does not wait for it, nor it for an apply. It knows the configuration that was
/// active when it was made.
#[derive(Debug, Clone)]
pub struct Reader {
    pin_dir: PathBuf,
    pub(super) maps: Arc<MapSet>,
    pub(super) active: Option<Arc<Record>>,
    pub(super) carried: Arc<Carried>,
}

impl Dataplane {
    /// What reads the counters of the active configuration. Cheap.
    pub fn reader(&self) -> Reader {
        Reader {
            pin_dir: self.pin_dir.clone(),
            maps: Arc::clone(&self.maps),
            active: self.active.clone(),
            carried: Arc::clone(&self.carried),
        }
    }

    /// As [`Reader::counters`].
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn counters(&self) -> Result<Counters, Error> {
        self.reader().counters()
    }

    /// As [`Reader::icmp_sent`].
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn icmp_sent(&self) -> Result<IcmpSent, Error> {
        self.reader().icmp_sent()
    }

    /// Outcomes of packets on interfaces that the active configuration does not have as ports (`drop_port_unknown`).
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn unknown_port_outcomes(&self) -> Result<BTreeMap<&'static str, Counter>, Error> {
        let reader = self.reader();
        Ok(outcomes(reader.sums("outcomes", &[0])?.row(0)))
    }

    /// As [`Reader::last_drops`].
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn last_drops(&self) -> Result<Vec<LastDrop>, Error> {
        self.reader().last_drops()
    }
}

impl Reader {
    /// Whether the configuration that it knows is the active one still: if not, rows may have got other owners meanwhile.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn is_current(&self) -> Result<bool, Error> {
        let control: abi::Control = self.maps.read_array("control", 0)?;
        Ok(self.active.as_ref().is_none_or(|active| active.compiled.generation == control.generation))
    }

    /// By what each port has its program, by ifindex; those that have none are missing.
    pub fn attachments(&self) -> BTreeMap<u32, Attachment> {
        let ports = self.applied().map(|compiled| compiled.ports.as_slice()).unwrap_or_default();
        attachments(&self.pin_dir, &self.maps, ports)
    }

    /// The configuration that it knows.
    pub fn applied(&self) -> Option<&Compiled> {
        self.active.as_ref().map(|record| &record.compiled)
    }

    /// The desired state that it was made from.
    pub fn applied_state(&self) -> Option<&NodeState> {
        self.active.as_ref().map(|record| &record.state)
    }

    /// By which it is known again.
    pub fn identity(&self) -> Identity {
        Identity(self.active.as_ref().map(Arc::downgrade).unwrap_or_default())
    }

    /// All counters, summed over CPUs. Those of one object are not read at one instant.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn counters(&self) -> Result<Counters, Error> {
        let mut counters = Counters { icmp: self.icmp_sent()?, ports: self.ports()?, ..Counters::default() };
        let Some(active) = self.applied() else { return Ok(counters) };
        let memories = self.memories()?;
        let counted = self.counted(&active.all_counter_rows())?;
        for sid in &active.sids {
            counters.sids.push(SidCounters {
                sid: sid.prefix,
                binding_of: sid.binding_of.clone(),
                counter: counted.counter(sid.entry.counter),
                returned: sid.returned().map(|row| counted.counter(row)),
                memory: memories.get(&sid.scope()).cloned(),
            });
        }
        for policy in &active.policies {
            let mut lists = Vec::new();
            let mut sum = Counter::default();
            for list in &policy.lists {
                let of_list = counted.counter(list.entry.counter);
                sum += of_list;
                lists.push(ListCounters { segments: list.segments.clone(), counter: of_list });
            }
            counters.policies.push(PolicyCounters { policy: policy.name.clone(), counter: sum, lists });
        }
        for (rule, row) in &active.steering_counters {
            counters.steering.push(SteeringCounters { rule: rule.clone(), counter: counted.counter(*row) });
        }
        Ok(counters)
    }

    /// What was counted in these rows of [`Compiled`], which are in ascending order: `counter` and `counter_return` of SIDs, `counter`
    /// of lists, and those of steering rules.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn counted(&self, rows: &[u32]) -> Result<Sums, Error> {
        self.sums("counters", rows)
    }

    /// Outcomes by port.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn ports(&self) -> Result<Vec<PortCounters>, Error> {
        let ports = self.applied().map(|active| active.ports.as_slice()).unwrap_or_default();
        let row = |port: &CompiledPort| u32::from(port.entry.index);
        let counted = self.sums("outcomes", &ascending(ports.iter().map(row)))?;
        let counters = |port: &CompiledPort| PortCounters {
            port: port.name.clone(),
            ifindex: port.entry.ifindex,
            outcomes: outcomes(counted.row(row(port))),
        };
        Ok(ports.iter().map(counters).collect())
    }

    /// ICMP messages, summed over CPUs.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn icmp_sent(&self) -> Result<IcmpSent, Error> {
        let sum = |row| Ok::<u64, Error>(self.maps.read_percpu::<u64>("icmp_sent", row)?.iter().sum());
        Ok(IcmpSent {
            unreachable: sum(abi::SEGUE_ICMP_UNREACHABLE)?,
            too_big: sum(abi::SEGUE_ICMP_TOO_BIG)?,
            time_exceeded: sum(abi::SEGUE_ICMP_TIME_EXCEEDED)?,
            parameter_problem: sum(abi::SEGUE_ICMP_PARAMETER_PROBLEM)?,
            echo_reply: sum(abi::SEGUE_ICMP_ECHO_REPLY)?,
            relayed: sum(abi::SEGUE_ICMP_RELAYED)?,
            tcp_reset: sum(abi::SEGUE_ICMP_TCP_RESET)?,
            rate_limited: sum(abi::SEGUE_ICMP_RATE_LIMITED)?,
            not_sent: sum(abi::SEGUE_ICMP_NOT_SENT)?,
        })
    }

    /// The last packet of each port and reason, the latest first.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn last_drops(&self) -> Result<Vec<LastDrop>, Error> {
        let mut drops = Vec::new();
        let ports = self.applied().map(|active| active.ports.as_slice()).unwrap_or_default();
        let ports: HashMap<u16, &CompiledPort> = ports.iter().map(|port| (port.entry.index, port)).collect();
        for key in self.maps.keys::<abi::LastDropKey>("last_drops")? {
            // The data plane may replace an entry of the LRU map at any time.
            let Some(drop) = self.maps.read::<_, abi::LastDrop>("last_drops", &key)? else { continue };
            let Some(outcome) = Outcome::from_number(key.outcome) else { continue };
            let port = ports.get(&key.port).filter(|_| key.port != 0);
            let captured = (drop.captured as usize).min(drop.bytes.len());
            drops.push(LastDrop {
                port: port.map(|port| port.name.clone()).unwrap_or_default(),
                ifindex: drop.ifindex,
                outcome,
                time_ns: drop.time,
                length: drop.length,
                bytes: drop.bytes[..captured].to_vec(),
            });
        }
        drops.sort_by_key(|drop| std::cmp::Reverse(drop.time_ns));
        Ok(drops)
    }

    /// Rows of a table of counters, in ascending order, with what tables had counted that larger ones have replaced.
    pub(crate) fn sums(&self, table: &str, rows: &[u32]) -> Result<Sums, Error> {
        let mut sums = self.maps.read_sums(table, rows)?;
        for (row, words) in self.carried.rows(table).filter(|(row, _)| rows.binary_search(row).is_ok()) {
            sums.add(row, words);
        }
        Ok(sums)
    }
}

impl Sums {
    /// A row as a counter; 0 if it was not read.
    pub fn counter(&self, row: u32) -> Counter {
        match self.row(row) {
            [packets, bytes] => Counter { packets: *packets, bytes: *bytes },
            _ => Counter::default(),
        }
    }
}

/// What tells one configuration from another, without keeping either.
#[derive(Debug, Clone, Default)]
pub struct Identity(Weak<Record>);

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        // What is dead still has its place in memory: nothing else is there.
        Weak::ptr_eq(&self.0, &other.0)
    }
}

/// Those that have occurred, of a row of `outcomes`: packets and octets for each.
fn outcomes(words: &[u64]) -> BTreeMap<&'static str, Counter> {
    let of = |outcome: Outcome| match words.get(2 * usize::from(outcome.number())..)? {
        [0, ..] | [] | [_] => None,
        [packets, bytes, ..] => Some((outcome.name(), Counter { packets: *packets, bytes: *bytes })),
    };
    Outcome::ALL.into_iter().filter_map(of).collect()
}
