//! Instructions and stack of eBPF functions, and of all that they call.

use std::collections::{BTreeMap, BTreeSet};

use super::elf::{Code, Function, code};

/// What a program or function needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Instructions of its own.
    pub own: u32,
    /// With each function that it calls, once: what the kernel gets for a program.
    pub all: u32,
    /// Octets of its own frame.
    pub stack: u32,
    /// Octets of the deepest chain of calls from it, each frame rounded up to 32 as the kernel does.
    pub chain: u32,
}

/// One instruction, as in the kernel's `struct bpf_insn`.
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    destination: usize,
    source: usize,
    offset: i16,
    immediate: i32,
}

const FRAME: usize = 10; // r10
const CALL: u8 = 0x85;
const LOAD_64: u8 = 0x18;
const MOVE: u8 = 0xbf; // 64 bits, from a register
const ADD: u8 = 0x07; // 64 bits, an immediate
/// In the source of a call or of a load of 64 bits: it names a function of the object.
const PSEUDO_CALL: usize = 1;
const PSEUDO_FUNCTION: usize = 4;

fn instructions(code: &[u8]) -> Vec<Instruction> {
    let read = |octets: &[u8]| Instruction {
        code: octets[0],
        destination: usize::from(octets[1] & 15),
        source: usize::from(octets[1] >> 4),
        offset: i16::from_le_bytes([octets[2], octets[3]]),
        immediate: i32::from_le_bytes([octets[4], octets[5], octets[6], octets[7]]),
    };
    code.chunks_exact(8).map(read).collect()
}

/// The deepest octet of the frame that is named: by a load or store, or by an address that is made of r10.
fn stack(instructions: &[Instruction]) -> u32 {
    // What each register is below r10, if it is a place in the frame.
    let mut places: [Option<i32>; 16] = [None; 16];
    let mut deepest = 0;
    places[FRAME] = Some(0);
    for at in instructions {
        let class = at.code & 7;
        let pointer = match class {
            1 => places[at.source],
            2 | 3 => places[at.destination],
            _ => None,
        };
        if let Some(place) = pointer {
            deepest = deepest.min(place + i32::from(at.offset));
        }
        match at.code {
            MOVE => places[at.destination] = places[at.source],
            ADD => {
                places[at.destination] = places[at.destination].map(|place| place + at.immediate);
                deepest = deepest.min(places[at.destination].unwrap_or(0));
            }
            CALL => places[..6].fill(None),
            // Loads and all other arithmetic.
            _ if matches!(class, 0 | 1 | 4 | 7) => places[at.destination] = None,
            _ => {}
        }
        places[FRAME] = Some(0);
    }
    deepest.unsigned_abs()
}

/// Indices of the functions that one calls, or hands to a helper as a callback.
fn called(code: &Code<'_>, function: &Function<'_>) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for (index, at) in instructions(function.code).iter().enumerate() {
        let call = at.code == CALL && at.source == PSEUDO_CALL;
        if !call && at.code != LOAD_64 {
            continue;
        }
        let place = function.start + 8 * index as u64;
        let reference = code.references.iter().find(|found| (found.section, found.at) == (function.section, place));
        let immediate = i64::from(at.immediate);
        let (section, target) = match reference {
            // A call counts instructions from the next one on, a load octets.
            Some(named) if named.whole && call => (named.target_section, 8 * (immediate + 1)),
            Some(named) if named.whole => (named.target_section, immediate),
            Some(named) => (named.target_section, i64::try_from(named.target).expect("a place")),
            None if call => (function.section, i64::try_from(place).expect("a place") + 8 * (immediate + 1)),
            // A map, or a number.
            None => {
                assert_ne!(at.source, PSEUDO_FUNCTION, "{}: a callback without relocation", function.name);
                continue;
            }
        };
        let known = |other: &Function<'_>| other.section == section && i64::try_from(other.start) == Ok(target);
        let target = code.functions.iter().position(known);
        found.insert(target.unwrap_or_else(|| panic!("{}: instruction {index} calls nothing known", function.name)));
    }
    found
}

/// The functions of an object by name.
pub fn measure(object: &[u8]) -> BTreeMap<String, Measured> {
    let code = code(object);
    let calls: Vec<_> = code.functions.iter().map(|function| called(&code, function)).collect();
    let frames: Vec<_> = code.functions.iter().map(|function| stack(&instructions(function.code))).collect();
    let own = |index: usize| u32::try_from(code.functions[index].code.len() / 8).expect("few instructions");
    let needs = |index: usize| {
        let mut reached = BTreeSet::from([index]);
        let mut open = vec![index];
        while let Some(next) = open.pop() {
            open.extend(calls[next].iter().copied().filter(|found| reached.insert(*found)));
        }
        let all = reached.into_iter().map(own).sum();
        Measured { own: own(index), all, stack: frames[index], chain: chain(index, &calls, &frames) }
    };
    code.functions.iter().enumerate().map(|(index, function)| (function.name.clone(), needs(index))).collect()
}

/// The verifier refuses recursion, so that this ends.
fn chain(index: usize, calls: &[BTreeSet<usize>], frames: &[u32]) -> u32 {
    let below = calls[index].iter().map(|next| chain(*next, calls, frames)).max().unwrap_or(0);
    frames[index].max(1).next_multiple_of(32) + below
}
