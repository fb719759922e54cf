//! SIDs whose entries change in the middle of being looked up: whoever looks one up does not know what has changed meanwhile, and so
//! keeps no copy, which nobody would make it forget any more.

use std::net::Ipv6Addr;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput};
use segue_abi as abi;
use segue_testkit::object;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// `XDP_PASS` and `XDP_DROP`: the SID was found, or there is none.
const FOUND: u32 = 2;
const NONE: u32 = 1;

fn map(object: &Object, name: &str) -> MapHandle {
    let map = object.maps().find(|map| map.name() == name).expect("the map");
    MapHandle::try_from(&map).expect("a handle")
}

fn write(object: &Object, name: &str, key: &[u8], value: &[u8]) {
    map(object, name).update(key, value, MapFlags::ANY).unwrap_or_else(|error| panic!("{name}: {error}"));
}

/// Looks it up while an entry changes in front of that lookup in a map, counted from 1. Returns the answer, and the epochs of
/// copies that are kept.
fn look_up(object: &Object, address: Ipv6Addr, change_before: u32) -> (u32, Vec<u64>) {
    let copies = map(object, "sids_cached");
    let cpus = libbpf_rs::num_possible_cpus().expect("CPUs");
    let nothing = vec![abi::SidCached::new_zeroed().as_bytes().to_vec(); cpus];
    for entry in 0..copies.max_entries() {
        copies.update_percpu(&entry.to_ne_bytes(), &nothing, MapFlags::ANY).expect("a write");
    }
    write(object, "moment", &0_u32.to_ne_bytes(), [change_before, 0].as_bytes());
    let mut frame = vec![0; 14 + 40];
    frame[14 + 24..].copy_from_slice(&address.octets());
    let program = object.progs_mut().find(|program| program.name() == "look_up").expect("the program");
    let input = ProgramInput { data_in: Some(&frame), ..ProgramInput::default() };
    let answer = program.test_run(input).expect("a run").return_value;
    let all = (0..copies.max_entries()).flat_map(|entry| {
        copies.lookup_percpu(&entry.to_ne_bytes(), MapFlags::ANY).expect("a read").expect("an entry")
    });
    let all = all.map(|copy| abi::SidCached::read_from_bytes(&copy).expect("a copy"));
    let of = all.filter(|copy| Ipv6Addr::from(copy.address) == address);
    (answer, of.map(|copy| copy.epoch).filter(|epoch| *epoch != 0).collect())
}

#[test]
#[ignore = "needs root"]
fn a_copy_made_while_something_changes_is_not_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = object::compile(&object::repository().join("bpf/test/sid.bpf.c"), directory.path());
    let object = ObjectBuilder::default().open_file(file).and_then(|open| open.load()).expect("the kernel takes it");
    let sid: Ipv6Addr = "fd00:0:1:a::".parse().expect("an address");
    let key = abi::SidKey { prefixlen: 32 + 64, generation: 1, address: sid.octets() };
    let entry = abi::Sid { behaviour: 1, prefix_length: 64, ..abi::Sid::new_zeroed() };
    write(&object, "sids", key.as_bytes(), &7_u32.to_ne_bytes());
    write(&object, "sid_entries", &7_u32.to_ne_bytes(), entry.as_bytes());
    let covered = "fd00:0:1:a::5".parse().expect("an address");
    let other = "fd00:0:1:b::5".parse().expect("an address");

    // Lookups: the copy, the prefix, and for a SID its entry.
    for (address, answer, lookups) in [(covered, FOUND, 3), (other, NONE, 2)] {
        for change_before in 0..=4 {
            let kept = if (2..=lookups).contains(&change_before) { vec![] } else { vec![1] };
            assert_eq!(look_up(&object, address, change_before), (answer, kept), "{address}, before {change_before}");
        }
    }
}
