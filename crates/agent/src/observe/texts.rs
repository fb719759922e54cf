//! What is told of SIDs and policies says the same each time but for the numbers: the rest is made once for a configuration.

use serde::Serialize;

use segue_api::report::Counter;

/// A counter of nothing, as it stands in a report.
const NOTHING: &str = r#","counter":{"packets":0,"bytes":0}"#;

/// Rows of a report as JSON, with nothing counted.
#[derive(Debug, Default)]
pub struct Texts {
    text: String,
    /// Where counters stand in it.
    counters: Vec<usize>,
    /// Where the text, and the counters, of each row end.
    ends: Vec<(usize, usize)>,
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    text: &'a str,
    begin: usize,
    counters: &'a [usize],
}

impl Texts {
    /// Those of rows in which nothing is counted.
    pub fn new(rows: impl Iterator<Item = impl Serialize>) -> Self {
        let mut texts = Self::default();
        let mut row_text = Vec::new();
        for row in rows {
            row_text.clear();
            // Structures of texts and numbers are written whole; what could not be would be an empty row.
            if serde_json::to_writer(&mut row_text, &row).is_err() {
                row_text.clear();
            }
            let begin = texts.text.len();
            texts.text.push_str(str::from_utf8(&row_text).unwrap_or_default());
            // In no text of a row: quotation marks are escaped there.
            texts.counters.extend(texts.text[begin..].match_indices(NOTHING).map(|(at, _)| begin + at));
            texts.ends.push((texts.text.len(), texts.counters.len()));
        }
        texts
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = Text<'_>> {
        let begins = std::iter::once((0, 0)).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|((begin, first), (end, last))| Text {
            text: &self.text[begin..*end],
            begin,
            counters: &self.counters[first..*last],
        })
    }
}

impl Text<'_> {
    /// Writes the row with what was counted. `before` and `behind` write what else changes, around the first of its counters.
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        mut counters: impl Iterator<Item = Counter>,
        before: impl FnOnce(&mut Vec<u8>),
        behind: impl FnOnce(&mut Vec<u8>),
    ) {
        let (mut written, mut around) = (0, Some((before, behind)));
        for at in self.counters.iter().map(|at| at - self.begin) {
            out.extend_from_slice(&self.text.as_bytes()[written..at]);
            written = at + NOTHING.len();
            let counter = counters.next().unwrap_or_default();
            match around.take() {
                Some((before, behind)) => {
                    before(out);
                    count(out, counter);
                    behind(out);
                }
                None => count(out, counter),
            }
        }
        out.extend_from_slice(&self.text.as_bytes()[written..]);
    }
}

fn count(out: &mut Vec<u8>, counter: Counter) {
    // Most.
    if counter == Counter::default() {
        out.extend_from_slice(NOTHING.as_bytes());
    } else {
        field(out, "counter", &counter);
    }
}

/// Adds a field to an object that has one already.
pub fn field(out: &mut Vec<u8>, name: &str, value: &impl Serialize) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    // What is counted, and words about routes, are written whole into memory.
    let _ = serde_json::to_writer(out, value);
}

#[cfg(test)]
mod tests {
    use segue_model::owner::{Direction, Owner};

    use super::*;
    use segue_api::report::{MemoryReport, PolicyReport, SegmentListReport, SidReport};

    fn counter(packets: u64) -> Counter {
        Counter { packets, bytes: 100 * packets }
    }

    #[test]
    fn rows_are_what_is_written_of_them_with_their_numbers() {
        let sid = |number: u64, comment: Option<&str>| SidReport {
            sid: format!("fc00:{number}::"),
            behaviour: "End.AM".into(),
            flavours: vec!["NAT".into()],
            to: "function a/b".into(),
            kernel_route: "blackhole".into(),
            counter: counter(number),
            returned: Some(counter(number + 1)),
            memory: Some(MemoryReport { shared: "b \"flow\"".into(), renewed: number, ..MemoryReport::default() }),
            comment: comment.map(str::to_owned),
            owner: comment.is_some().then(|| Owner { chain: NOTHING.to_owned(), direction: None, family: None }),
        };
        // A comment that looks like a counter.
        let sids = [sid(0, None), sid(7, Some(NOTHING)), sid(u64::MAX / 200, Some("\n"))];
        let bare = |sid: &SidReport| SidReport {
            kernel_route: String::new(),
            counter: Counter::default(),
            returned: None,
            memory: None,
            ..sid.clone()
        };
        let texts = Texts::new(sids.iter().map(bare));
        assert_eq!(texts.rows().count(), sids.len());
        for (sid, text) in sids.iter().zip(texts.rows()) {
            let mut out = Vec::new();
            let before = |out: &mut Vec<u8>| field(out, "kernel_route", &sid.kernel_route);
            let behind = |out: &mut Vec<u8>| {
                field(out, "returned", &sid.returned);
                field(out, "memory", &sid.memory);
            };
            text.write(&mut out, [sid.counter].into_iter(), before, behind);
            assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(sid).unwrap());
        }
        let policy = |numbers: [u64; 3]| PolicyReport {
            name: "p".into(),
            color: Some(1),
            endpoint: None,
            binding_sid: None,
            mode: "H.Encaps".into(),
            counter: counter(numbers[0]),
            segment_lists: numbers[1..]
                .iter()
                .map(|number| SegmentListReport { weight: 1, segments: vec!["a".into()], counter: counter(*number) })
                .collect(),
            owner: Some(Owner { chain: "c".into(), direction: Some(Direction::Reverse), family: None }),
        };
        let texts = Texts::new([policy([0; 3])].into_iter());
        for numbers in [[0; 3], [3, 0, 3], [3, 1, 2]] {
            let mut out = Vec::new();
            let text = texts.rows().next().unwrap();
            text.write(&mut out, numbers.into_iter().map(counter), |_| {}, |_| {});
            assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&policy(numbers)).unwrap());
        }
    }
}
