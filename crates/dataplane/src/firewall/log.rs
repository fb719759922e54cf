//! What rules with LOG and NFLOG have written.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::mpsc;
use std::time::Duration;

use libbpf_rs::{MapHandle, PerfBuffer, PerfBufferBuilder};
use segue_abi as abi;
use segue_classifier::Action;
use segue_model::firewall::Firewall;
use zerocopy::FromBytes;

use super::rules;
use crate::Error;
use crate::dataplane::{Dataplane, Reader};
use crate::facts::Interfaces;

/// Pages of the ring of each CPU.
const PAGES: usize = 64;

/// A packet that hit a rule with LOG or NFLOG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// Nanoseconds since boot (CLOCK_MONOTONIC).
    pub time_ns: u64,
    /// The rule: key of [`Reader::firewall_log_rules`].
    pub rule: u32,
    /// The interface that it came in by.
    pub ingress: u32,
    /// Octets of the frame.
    pub length: u32,
    /// Where in the frame the packet begins that the rules looked at.
    pub offset: usize,
    /// Its family: 4 or 6.
    pub family: u16,
    /// Its mark.
    pub mark: u32,
    /// The frame from its Ethernet header, cut to what the rule needs.
    pub bytes: Vec<u8>,
}

/// A rule that logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRule {
    /// Its firewall.
    pub firewall: String,
    /// What it writes in front.
    pub prefix: String,
    /// NFLOG: the group. None: LOG.
    pub group: Option<u16>,
}

/// Where log records come from. It can go to another thread, which opens it there.
#[derive(Debug)]
pub struct LogSource(MapHandle);

/// Reads log records. There is one reader at a time: a second one takes them from the first.
pub struct LogReader {
    ring: PerfBuffer<'static>,
    records: mpsc::Receiver<LogRecord>,
    lost: mpsc::Receiver<u64>,
}

impl fmt::Debug for LogReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogReader").finish_non_exhaustive()
    }
}

impl LogSource {
    /// Opens the rings.
    ///
    /// # Errors
    /// [`Error::Capture`].
    pub fn open(self) -> Result<LogReader, Error> {
        let (sender, records) = mpsc::channel();
        let (lost_sender, lost) = mpsc::channel();
        let ring = PerfBufferBuilder::new(&self.0)
            .pages(PAGES)
            .sample_cb(move |_cpu, sample: &[u8]| {
                if let Some(record) = parse(sample) {
                    // The receiver lives as long as the ring.
                    let _ = sender.send(record);
                }
            })
            .lost_cb(move |_cpu, count| {
                let _ = lost_sender.send(count);
            })
            .build()
            .map_err(|source| Error::Capture { source })?;
        Ok(LogReader { ring, records, lost })
    }
}

impl LogReader {
    /// Waits at most `timeout` for records and returns what has come, by time.
    ///
    /// # Errors
    /// [`Error::Capture`].
    pub fn read(&mut self, timeout: Duration) -> Result<Vec<LogRecord>, Error> {
        match self.ring.poll(timeout) {
            Err(source) if source.kind() != libbpf_rs::ErrorKind::Interrupted => return Err(Error::Capture { source }),
            _ => {}
        }
        let mut records: Vec<LogRecord> = self.records.try_iter().collect();
        // Each CPU has a ring of its own.
        records.sort_by_key(|record| record.time_ns);
        Ok(records)
    }

    /// Records that did not fit the rings since the last call.
    pub fn lost(&mut self) -> u64 {
        self.lost.try_iter().sum()
    }
}

fn parse(sample: &[u8]) -> Option<LogRecord> {
    let (head, bytes) = abi::FirewallLog::read_from_prefix(sample).ok()?;
    // The kernel rounds samples up.
    let bytes = bytes.get(..head.captured as usize)?.to_vec();
    Some(LogRecord {
        time_ns: head.time,
        rule: head.name,
        ingress: head.ingress,
        length: head.length,
        offset: usize::from(head.offset),
        family: head.family,
        mark: head.mark,
        bytes,
    })
}

impl Dataplane {
    /// Where log records come from.
    ///
    /// # Errors
    /// [`Error::Capture`].
    pub fn firewall_log_source(&self) -> Result<LogSource, Error> {
        let handle =
            MapHandle::try_from(self.maps().get("firewall_logs")?).map_err(|source| Error::Capture { source })?;
        Ok(LogSource(handle))
    }
}

impl Reader {
    /// The rules that log, by what their records call them. It reads the rule files: it may take a while for large ones.
    pub fn firewall_log_rules(&self) -> BTreeMap<u32, LogRule> {
        let mut found = BTreeMap::new();
        let (Some(state), Some(compiled)) = (self.applied_state(), self.applied()) else { return found };
        let sources: HashMap<&str, &Firewall> =
            state.firewalls.iter().map(|source| (source.name.as_str(), source)).collect();
        for firewall in &compiled.firewalls {
            let Some(source) = sources.get(firewall.name.as_str()) else { continue };
            // Most have none, and need not be read again.
            if !source.files().any(|file| file.text().is_some_and(|text| text.to_lowercase().contains("log"))) {
                continue;
            }
            let Ok(read) = rules::lower(source, &Interfaces::default()) else { continue };
            let rules = read.program().chains.iter().flat_map(|chain| &chain.rules);
            for (rule, row) in rules.zip(&firewall.rules) {
                let (prefix, group) = match &rule.action {
                    Action::Log(log) => (log.prefix.clone(), None),
                    Action::Nflog(nflog) => (nflog.prefix.clone(), Some(nflog.group)),
                    _ => continue,
                };
                found.insert(row.entry.name, LogRule { firewall: firewall.name.clone(), prefix, group });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    #[test]
    fn sample_is_cut_to_what_was_captured() {
        let head = abi::FirewallLog {
            time: 5,
            name: 9,
            firewall: 1,
            ingress: 3,
            length: 90,
            captured: 4,
            offset: 14,
            family: 6,
            mark: 7,
            reserved: 0,
        };
        let sample = [head.as_bytes(), &[1, 2, 3, 4, 0, 0, 0, 0]].concat();
        let record = parse(&sample).expect("a record");
        assert_eq!((record.rule, record.offset, record.family, record.mark), (9, 14, 6, 7));
        assert_eq!(record.bytes, [1, 2, 3, 4]);
        assert_eq!(parse(&sample[..sample.len() - 5]), None);
    }
}
