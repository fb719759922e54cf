//! What CPUs remember of SIDs (`bpf/lib/forward/sid.h`): copies of their entries, which are forgotten when the entries change in place. Those of
//! other SIDs, and ways, stay: functions go down and links go down as often as others than the operator like.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::Ipv6Addr;
use std::sync::atomic::{Ordering, fence};

use ipnet::Ipv6Net;
use libbpf_rs::{MapCore, MapHandle, Object, ProgramInput};
use segue_abi as abi;
use zerocopy::IntoBytes;

use crate::maps::map_error;
use crate::{Error, batch, object};

const COPIES: &str = "sids_cached";
/// Octets in front of what the program is given.
const ETHERNET_LENGTH: usize = 14;

/// The copies that the programs of one set of maps keep, and the program that makes them forget some.
#[derive(Debug)]
pub(crate) struct SidCopies {
    map: MapHandle,
    program: Object,
}

impl SidCopies {
    /// `program` has [`object::FORGET`].
    pub fn new(program: Object) -> Result<Self, Error> {
        let map = object::map(&program, COPIES)?;
        Ok(Self { map, program })
    }

    /// Has all CPUs forget what they know of addresses that these SIDs cover; how many copies that were. Their entries have been
    /// changed before, and `narrow_changes` raised.
    pub fn forget(&self, sids: &BTreeSet<Ipv6Net>) -> Result<usize, Error> {
        // What was written before is to be seen by who completes a copy that is not found below.
        fence(Ordering::SeqCst);
        let failed = map_error(COPIES, "read it");
        let entries = self.map.max_entries();
        let words = batch::rows(&self.map, 0, entries).map_err(|error| failed(error.into()))?;
        let forgotten = covered(&words, entries, sids);
        let program = object::program(&self.program, object::FORGET)?;
        for part in forgotten.chunks(abi::SEGUE_FORGOTTEN_MAX as usize) {
            let mut list = vec![0; ETHERNET_LENGTH];
            list.extend_from_slice(part.as_bytes());
            let input = ProgramInput { data_in: Some(&list), ..ProgramInput::default() };
            program.test_run(input).map_err(map_error(COPIES, "forget entries"))?;
        }
        Ok(forgotten.len())
    }
}

/// Entries in which there is something about an address that one of these SIDs covers, on which CPU. `words`: all of them.
fn covered(words: &[u64], entries: u32, sids: &BTreeSet<Ipv6Net>) -> Vec<abi::Forgotten> {
    const EACH: usize = size_of::<abi::SidCached>() / size_of::<u64>();
    let mut by_length: BTreeMap<u8, HashSet<Ipv6Addr>> = BTreeMap::new();
    for sid in sids {
        by_length.entry(sid.prefix_len()).or_default().insert(sid.network());
    }
    let is_covered = |address: Ipv6Addr| {
        by_length.iter().any(|(length, networks)| {
            Ipv6Net::new(address, *length).is_ok_and(|prefix| networks.contains(&prefix.network()))
        })
    };
    let of_all_cpus = (words.len() / entries.max(1) as usize).max(EACH);
    let rows = (0..).zip(words.chunks_exact(of_all_cpus));
    let copies =
        rows.flat_map(|(entry, row)| (0..).zip(row.chunks_exact(EACH)).map(move |(cpu, copy)| (entry, cpu, copy)));
    let found = copies.filter(|(.., copy)| {
        // The fields of `SidCached` in turn.
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(copy[0].as_bytes());
        octets[8..].copy_from_slice(copy[1].as_bytes());
        copy[2] != 0 && is_covered(octets.into())
    });
    found.map(|(entry, cpu, _)| abi::Forgotten { entry, cpu }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::{FromBytes, FromZeros};

    #[test]
    fn what_the_sids_cover_is_found_on_each_cpu() {
        let copy = |address: &str, epoch| {
            let address = address.parse::<Ipv6Addr>().unwrap().octets();
            abi::SidCached { address, epoch, ..abi::SidCached::new_zeroed() }
        };
        let none = abi::SidCached::new_zeroed;
        // Three entries of two CPUs.
        let all = [
            [copy("fc00:1::1", 7), copy("fc00:2::9", 7)],
            [none(), copy("fc00:1::2", 8)],
            [copy("fc00:1::1", 0), copy("fc00:3::", 7)],
        ];
        let words: Vec<u64> = all.as_bytes().chunks_exact(8).map(|word| u64::read_from_bytes(word).unwrap()).collect();
        let found = |sids: &[&str]| {
            let sids = sids.iter().map(|sid| sid.parse().unwrap()).collect();
            let found = covered(&words, 3, &sids);
            found.iter().map(|one| (one.entry, one.cpu)).collect::<Vec<_>>()
        };
        assert_eq!(found(&["fc00:1::/64"]), [(0, 0), (1, 1)]);
        assert_eq!(found(&["fc00:2::9/128", "fc00:1::2/128", "fc00:4::/48"]), [(0, 1), (1, 1)]);
        assert_eq!(found(&["::/0"]), [(0, 0), (0, 1), (1, 1), (2, 1)], "and nothing where nothing is");
        assert_eq!(found(&[]), []);
    }
}
