//! Names that look like a mistyped one, for messages.

/// How many single-character changes lead from one word to the other (Levenshtein distance).
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// The known names that are nearest to one that is not known, at most `limit`, nearest first. Those that have nothing to do with it are
/// left out.
pub fn nearest<'a>(found: &str, known: impl IntoIterator<Item = &'a str>, limit: usize) -> Vec<&'a str> {
    let found = found.to_lowercase();
    let within = |name: &str| 1 + found.len().max(name.len()) / 3;
    let mut all: Vec<(usize, &str)> = known
        .into_iter()
        .map(|name| (distance(&found, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= within(name) || name.starts_with(&found))
        .collect();
    all.sort_by_key(|(distance, _)| *distance);
    all.into_iter().map(|(_, name)| name).take(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_first_and_nothing_far() {
        assert_eq!(nearest("ede1", ["edge1", "edge2", "server"], 3), ["edge1", "edge2"]);
        assert_eq!(nearest("x", ["edge1", "server"], 3), [] as [&str; 0]);
        // What was begun counts, however much is missing.
        assert_eq!(nearest("nfv1", ["nfv1.firewall.inspected"], 3), ["nfv1.firewall.inspected"]);
        assert_eq!(distance("", "abc"), 3);
    }
}
