//! As much of ELF as an eBPF object needs: sections, functions, relocations of calls.

/// A section of an ELF file of 64 bits in little-endian order.
struct Section<'a> {
    kind: u32,
    flags: u64,
    /// `sh_link`, `sh_info`.
    link: usize,
    info: usize,
    bytes: &'a [u8],
}

const SYMBOL_TABLE: u32 = 2;
const RELOCATIONS: u32 = 9;
const NO_BITS: u32 = 8;
const EXECUTABLE: u64 = 4;
const FUNCTION: u8 = 2;
const SECTION: u8 = 3;

/// A function: its place in the object's code, and its instructions of 8 octets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function<'a> {
    pub name: String,
    pub section: usize,
    /// Octets from the section's beginning.
    pub start: u64,
    pub code: &'a [u8],
    /// Whether it lies in a section of programs, not among what they call.
    pub program: bool,
}

/// Where an instruction refers to code: section and octets in it of what it names, and those of the symbol alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    pub section: usize,
    /// Octets in the section of the instruction.
    pub at: u64,
    pub target_section: usize,
    pub target: u64,
    /// The symbol is the whole section: the instruction says where in it.
    pub whole: bool,
}

pub struct Code<'a> {
    pub functions: Vec<Function<'a>>,
    pub references: Vec<Reference>,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + N].iter().rev().fold(0, |value, octet| value << 8 | u64::from(*octet))
}

fn place<const N: usize>(bytes: &[u8], at: usize) -> usize {
    usize::try_from(number::<N>(bytes, at)).expect("a place in the file")
}

fn name(table: &[u8], at: usize) -> String {
    let octets = table[at..].iter().take_while(|octet| **octet != 0).copied().collect();
    String::from_utf8(octets).expect("names are ASCII")
}

/// The line of text in the file that begins so.
pub fn find_text(file: &[u8], beginning: &str) -> Option<String> {
    let at = file.windows(beginning.len()).position(|window| window == beginning.as_bytes())?;
    Some(name(file, at))
}

fn sections(file: &[u8]) -> Vec<Section<'_>> {
    assert!(file.starts_with(b"\x7fELF\x02\x01"), "an ELF file of 64 bits, little endian");
    let (table, size, count) = (place::<8>(file, 0x28), place::<2>(file, 0x3a), place::<2>(file, 0x3c));
    let section = |index| {
        let header = &file[table + index * size..][..size];
        let kind = u32::try_from(number::<4>(header, 4)).expect("32 bits");
        let (start, length) = (place::<8>(header, 0x18), place::<8>(header, 0x20));
        Section {
            kind,
            flags: number::<8>(header, 8),
            link: place::<4>(header, 0x28),
            info: place::<4>(header, 0x2c),
            bytes: if kind == NO_BITS { &[] } else { &file[start..start + length] },
        }
    };
    (0..count).map(section).collect()
}

struct Symbol {
    name: String,
    kind: u8,
    section: usize,
    value: u64,
    size: usize,
}

fn symbols(sections: &[Section<'_>]) -> Vec<Symbol> {
    let table = sections.iter().find(|section| section.kind == SYMBOL_TABLE).expect("a table of symbols");
    let names = sections[table.link].bytes;
    let symbol = |entry: &[u8]| Symbol {
        name: name(names, place::<4>(entry, 0)),
        kind: entry[4] & 15,
        section: place::<2>(entry, 6),
        value: number::<8>(entry, 8),
        size: place::<8>(entry, 16),
    };
    table.bytes.chunks_exact(24).map(symbol).collect()
}

/// The code of an eBPF object.
pub fn code(file: &[u8]) -> Code<'_> {
    let sections = sections(file);
    let symbols = symbols(&sections);
    let executable = |index: usize| sections.get(index).is_some_and(|section| section.flags & EXECUTABLE != 0);
    let text = sections.iter().position(|section| section.flags & EXECUTABLE != 0);
    let functions = symbols.iter().filter(|symbol| symbol.kind == FUNCTION && executable(symbol.section));
    let functions = functions.map(|symbol| {
        let start = usize::try_from(symbol.value).expect("a place");
        Function {
            name: symbol.name.clone(),
            section: symbol.section,
            start: symbol.value,
            code: &sections[symbol.section].bytes[start..start + symbol.size],
            program: Some(symbol.section) != text,
        }
    });
    let mut references = Vec::new();
    for relocations in sections.iter().filter(|section| section.kind == RELOCATIONS && executable(section.info)) {
        for entry in relocations.bytes.chunks_exact(16) {
            let symbol = &symbols[place::<4>(entry, 12)];
            if executable(symbol.section) {
                references.push(Reference {
                    section: relocations.info,
                    at: number::<8>(entry, 0),
                    target_section: symbol.section,
                    target: symbol.value,
                    whole: symbol.kind == SECTION,
                });
            }
        }
    }
    Code { functions: functions.collect(), references }
}
