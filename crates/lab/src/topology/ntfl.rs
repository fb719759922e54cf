//! nanonet's topology files (NTFL): one link on each line, with source, destination, weight, and delay in milliseconds.

use indexmap::{IndexMap, IndexSet};
use segue_model::check::is_lab_name;
use segue_model::topology::DELAY_MAX_MS;

use super::write::{Link, yaml};
use crate::error::{LabError, Result};

/// A topology file of ours, as YAML, from one of nanonet's. `file` is for messages and for the comment at its head.
///
/// Names of nodes become names of ours: lower case, anything else than letters, digits and hyphens as a hyphen. Lines that name the same link in both
/// directions are one link; a line that comes twice is two links side by side. A line without delay has none, one without weight has weight 1.
///
/// # Errors
/// The first line that is no link, with what is wrong and what to do.
pub fn import(text: &str, file: &str, name: &str) -> Result<String> {
    let mut names: IndexMap<String, String> = IndexMap::new();
    let mut links: Vec<Link> = Vec::new();
    // Lines of the other direction that already have their link.
    let mut paired: IndexSet<usize> = IndexSet::new();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |what: String, remedy: &str| LabError::Exchange {
            place: format!("{file}:{number}"),
            what,
            remedy: remedy.to_owned(),
        };
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split([' ', '\t', ',', ';']).filter(|word| !word.is_empty()).collect();
        let Some(link) = read_line(&words, number, &mut names).map_err(|what| {
            wrong(what, "write source, destination, weight and delay in ms with spaces between, such as `A B 1 2`")
        })?
        else {
            continue;
        };
        let [a, b] = &link.between;
        let opposite = links
            .iter()
            .enumerate()
            .position(|(at, other)| other.between == [b.clone(), a.clone()] && !paired.contains(&at));
        match opposite {
            Some(at) if (links[at].weight, links[at].delay_ms) == (link.weight, link.delay_ms) => {
                paired.insert(at);
            }
            Some(at) => {
                let what = format!(
                    "the link between {a} and {b} has weight {} and delay {} in the other direction, and {} and {} in this one",
                    links[at].weight, links[at].delay_ms, link.weight, link.delay_ms
                );
                return Err(wrong(what, "give both directions the same: links of the lab are symmetric"));
            }
            None => links.push(link),
        }
    }
    if links.is_empty() {
        let (what, remedy) = ("there is no link in it".to_owned(), "give a file with a link on each line".to_owned());
        return Err(LabError::Exchange { place: file.to_owned(), what, remedy });
    }
    let renamed: Vec<String> = names
        .iter()
        .filter(|(theirs, ours)| theirs != ours)
        .map(|(theirs, ours)| format!("{theirs} is {ours}"))
        .collect();
    let mut comment = format!("From {file}, by `segue lab import ntfl`.");
    if !renamed.is_empty() {
        comment.push_str(&format!("\n{}.", renamed.join(", ")));
    }
    let nodes: Vec<String> = names.into_values().collect();
    Ok(yaml(name, &comment, &nodes, &links))
}

/// The link on a line; none on a line that has none, which are empty ones, and the first if it names the columns.
fn read_line(
    words: &[&str],
    number: usize,
    names: &mut IndexMap<String, String>,
) -> std::result::Result<Option<Link>, String> {
    let (ends, rest) = match words {
        [] => return Ok(None),
        [source, destination, rest @ ..] if rest.len() <= 2 => ([*source, *destination], rest),
        [_] => return Err("there is one word, and a link has two ends".to_owned()),
        _ => return Err(format!("there are {} words, and a link has at most four", words.len())),
    };
    if number == 1 && rest.first().is_some_and(|word| word.eq_ignore_ascii_case("weight")) {
        return Ok(None);
    }
    let weight = match rest.first() {
        Some(word) => word
            .parse()
            .ok()
            .filter(|weight| *weight > 0)
            .ok_or(format!("the weight {word:?} is no whole number from 1"))?,
        None => 1,
    };
    let delay_ms = match rest.get(1) {
        Some(word) => word
            .parse()
            .ok()
            .filter(|delay| (0.0..=DELAY_MAX_MS).contains(delay))
            .ok_or(format!("the delay {word:?} is no number from 0 to {DELAY_MAX_MS}"))?,
        None => 0.0,
    };
    if ends[0] == ends[1] {
        return Err(format!("the link leads from {} to itself", ends[0]));
    }
    let [a, b] = [our_name(ends[0], names)?, our_name(ends[1], names)?];
    Ok(Some(Link { between: [a, b], weight, delay_ms }))
}

fn our_name(theirs: &str, names: &mut IndexMap<String, String>) -> std::result::Result<String, String> {
    if let Some(known) = names.get(theirs) {
        return Ok(known.clone());
    }
    let mut ours: String = theirs
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' })
        .collect();
    if !ours.starts_with(|letter: char| letter.is_ascii_lowercase()) {
        ours.insert(0, 'n');
    }
    if !is_lab_name(&ours) {
        return Err(format!("the name {theirs:?} would be {ours:?} here, which is longer than 15 characters"));
    }
    if let Some((other, _)) = names.iter().find(|(_, taken)| **taken == ours) {
        return Err(format!("the names {other:?} and {theirs:?} would both be {ours:?} here"));
    }
    names.insert(theirs.to_owned(), ours.clone());
    Ok(ours)
}

#[cfg(test)]
mod tests {
    use segue_wiring::load_plan;

    use super::*;

    /// Table 10 of the thesis.
    const THESIS: &str = "A\tB\t1\t2\nB C 2 1\nB E 1 1\nC D 1 1\nD E 1 1\n";

    #[test]
    fn the_topology_of_the_thesis() {
        let yaml = import(THESIS, "thesis.ntfl", "thesis").unwrap();
        let (topology, plan) = load_plan(&yaml, "yaml").unwrap_or_else(|errors| panic!("{errors}\n{yaml}"));
        assert!(topology.nodes.keys().eq(["a", "b", "c", "e", "d"]));
        let delays: Vec<_> = topology.links.iter().map(|link| link.impaired.as_ref().unwrap().delay_ms).collect();
        assert_eq!(delays, [2.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(topology.links[1].weight, 2);
        // From B, C by the link of weight 2 or by E and D of weight 3.
        let to_c = plan.nodes["b"].routes.iter().find(|route| route.reason.starts_with("loopback of c")).unwrap();
        assert!(to_c.reason.contains("distance 2"), "{}", to_c.reason);
        assert!(yaml.starts_with("# From thesis.ntfl"), "{yaml}");
    }

    #[test]
    fn both_directions_are_one_link_and_a_line_twice_is_two() {
        let links = |text: &str| load_plan(&import(text, "f", "x").unwrap(), "y").unwrap().0.links.len();
        assert_eq!(links("SOURCE DESTINATION WEIGHT DELAY\n\nA B 1 2 # there\nB A 1 2 # and back\n"), 1);
        assert_eq!(links("A B\nA B\nB A\nB A\n"), 2);
    }

    #[test]
    fn what_is_wrong_has_its_line() {
        for (text, wanted) in [
            ("A B 1 2\nA", "f:2: there is one word"),
            ("A B 0 1", "f:1: the weight \"0\""),
            ("A B 1 -1", "f:1: the delay \"-1\""),
            ("A B 1 NaN", "f:1: the delay \"NaN\""),
            ("A B 1 2 3", "f:1: there are 5 words"),
            ("A A 1 2", "f:1: the link leads from A to itself"),
            ("A B 1 2\nB A 2 2", "f:2: the link between b and a has weight 1"),
            ("a A 1 2", "f:1: the names \"a\" and \"A\" would both be"),
            ("averyveryverylongname B", "f:1: the name"),
            ("", "f: there is no link in it"),
        ] {
            let error = import(text, "f", "x").unwrap_err().to_string();
            assert!(error.starts_with(wanted) && error.contains("do: "), "{text:?}: {error}");
        }
    }
}
