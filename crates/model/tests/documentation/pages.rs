//! Links and names of pages lead somewhere; lists of tests and of outcomes are complete.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("root of the repository")
}

/// Every file of the repository that may name a page, with its text.
fn texts() -> Vec<(PathBuf, String)> {
    fn walk(path: &Path, found: &mut Vec<(PathBuf, String)>) {
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name == "target" || name == "data") {
                return;
            }
            for entry in std::fs::read_dir(path).expect("directory") {
                walk(&entry.expect("entry").path(), found);
            }
        } else if let Ok(text) = std::fs::read_to_string(path) {
            found.push((path.to_owned(), text));
        }
    }
    let mut found = Vec::new();
    for part in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "docs",
        "crates",
        "bpf",
        "examples",
        "packaging",
        "srft",
        "python",
        "fuzz",
        "x",
    ] {
        walk(&root().join(part), &mut found);
    }
    found
}

/// What a heading is called in a link: as the usual renderers make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || "-_ ".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    page.lines().filter(|line| line.starts_with('#')).map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// Targets of the links in a page: all between `](` and `)`.
fn links(page: &str) -> impl Iterator<Item = &str> {
    page.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|target| !target.contains("://"))
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut wrong = Vec::new();
    for (path, text) in texts().iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "md")) {
        for link in links(text) {
            let (file, part) = link.split_once('#').map_or((link, None), |(file, part)| (file, Some(part)));
            let target = if file.is_empty() { path.clone() } else { path.with_file_name("").join(file) };
            if !target.exists() {
                wrong.push(format!("{}: {link}: there is no such file", path.display()));
            } else if let Some(part) = part
                && !anchors(&std::fs::read_to_string(&target).expect("page")).contains(part)
            {
                wrong.push(format!("{}: {link}: there is no such heading", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Cargo looks for examples to run only in crates that have some: to find none takes it half a second in each.
#[test]
fn examples_are_where_they_are_run() {
    let (texts, mut unseen) = (texts(), Vec::new());
    for (path, text) in texts.iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "rs")) {
        let Some(package) = path.ancestors().find(|directory| directory.join("Cargo.toml").exists()) else { continue };
        let manifest = std::fs::read_to_string(package.join("Cargo.toml")).expect("Cargo.toml");
        if !manifest.contains("doctest = false") || !path.starts_with(package.join("src")) {
            continue;
        }
        let fences = text.lines().filter_map(|line| {
            let comment = line.trim_start().strip_prefix("///").or(line.strip_prefix("//!"))?;
            comment.trim_start().strip_prefix("```")
        });
        unseen.extend(
            fences.step_by(2).filter(|kind| kind.is_empty() || kind.starts_with("rust")).map(|_| path.display()),
        );
    }
    assert!(unseen.is_empty(), "examples that nobody runs: remove `doctest = false`: {unseen:?}");
}

/// Sources, error texts and pages name pages by their path from the root of the repository.
#[test]
fn pages_that_are_named_exist() {
    let root = root();
    let mut wrong = Vec::new();
    for (path, text) in &texts() {
        for (at, _) in text.match_indices("docs/") {
            let word = text[at..].split(|letter: char| !(letter.is_ascii_alphanumeric() || "/._-".contains(letter)));
            let name = word.into_iter().next().unwrap_or_default().trim_end_matches(['.', '/']);
            if !root.join(name).exists() {
                wrong.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "pages that do not exist are named:\n{}", wrong.join("\n"));
}

/// Files of the repository that pages name by their paths: from its root, or from `bpf/` as the data plane's own files do.
#[test]
fn files_that_pages_name_exist() {
    const FROM: [(&str, &str); 7] = [
        ("bpf/", ""),
        ("crates/", ""),
        ("examples/", ""),
        ("packaging/", ""),
        ("python/", ""),
        ("fuzz/", ""),
        ("lib/", "bpf"),
    ];
    let part_of_path = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    let root = root();
    let mut wrong = Vec::new();
    for (path, text) in texts().iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "md")) {
        for (start, below) in FROM {
            for (at, _) in text.match_indices(start) {
                let name = text[at..].split(|letter| !part_of_path(letter)).next().unwrap_or_default();
                // A pattern, or the middle of another path.
                let is_whole = !text[at + name.len()..].starts_with(['*', '{']) && !text[..at].ends_with(part_of_path);
                if is_whole && !root.join(below).join(name.trim_end_matches(['.', '/'])).exists() {
                    wrong.push(format!("{}: {name}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "files that do not exist are named:\n{}", wrong.join("\n"));
}

/// docs/README.md leads to every page; results have an index of their own.
#[test]
fn the_index_names_every_page() {
    let mut listed = BTreeSet::from([root().join("docs/README.md")]);
    for directory in ["docs", "docs/results"] {
        let directory = root().join(directory);
        let index = std::fs::read_to_string(directory.join("README.md")).expect("an index");
        listed.extend(links(&index).filter_map(|link| directory.join(link).canonicalize().ok()));
    }
    let pages = texts().into_iter().map(|(path, _)| path);
    let pages =
        pages.filter(|path| path.starts_with(root().join("docs")) && path.extension().is_some_and(|e| e == "md"));
    let missing: Vec<PathBuf> = pages.filter(|path| !listed.contains(path)).collect();
    assert!(missing.is_empty(), "docs/README.md does not name {missing:?}");
}

/// Names of functions in the tests (and modules of tests) of all crates.
fn functions() -> BTreeSet<String> {
    let texts = texts().into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "rs"));
    texts.flat_map(|(_, text)| declared(&text)).collect()
}

fn declared(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("fn "));
    lines.filter_map(|rest| rest.split(['(', '<']).next()).map(str::to_owned).collect()
}

/// `A17` for `a17`: the line of the acceptance list that a part of a test's name stands for.
fn line_of_the_list(part: &str) -> Option<String> {
    let digits = part.strip_prefix('a')?;
    ((2..=3).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit()))
        .then(|| format!("A{digits}"))
}

/// docs/developing/acceptance.md: each line has a test, and each test that begins with a line's number is in that line.
#[test]
fn the_acceptance_list_is_that_of_the_tests() {
    let page = std::fs::read_to_string(root().join("docs/developing/acceptance.md")).expect("acceptance.md");
    let functions = functions();
    let mut asserted = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| A")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [line, _, tests] = cells.as_slice() else { panic!("{row}") };
        let line = line.trim_start_matches("| ");
        let tests: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "{line} names no test");
        for test in tests {
            assert!(functions.contains(test), "{line}: there is no test {test}");
            assert!(asserted.insert((line.to_owned(), test.to_owned())), "{line} names {test} twice");
        }
    }
    for test in &functions {
        for line in test.split('_').map_while(line_of_the_list) {
            assert!(asserted.contains(&(line.clone(), test.clone())), "{test} is not in line {line} of the list");
        }
    }
}

/// docs/using/troubleshooting.md has a row for each outcome, and none for what is no outcome.
#[test]
fn troubleshooting_has_every_outcome() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("a file of the repository");
    let definitions = read("bpf/include/abi/outcomes.def");
    let outcomes = definitions.lines().filter_map(|line| line.strip_prefix("OUTCOME(")?.split(", ").nth(1));
    let page = read("docs/using/troubleshooting.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name));
    let (outcomes, rows): (Vec<&str>, Vec<&str>) = (outcomes.collect(), rows.collect());
    let told: BTreeSet<&str> = rows.iter().copied().collect();
    assert_eq!(told.len(), rows.len(), "an outcome is there twice");
    let outcomes: BTreeSet<&str> = outcomes.into_iter().collect();
    assert_eq!(outcomes.difference(&told).collect::<Vec<_>>(), Vec::<&&str>::new(), "outcomes without a row");
    assert_eq!(told.difference(&outcomes).collect::<Vec<_>>(), Vec::<&&str>::new(), "rows of no outcome");
}

/// Each row of docs/design/threat-model.md ends with tests: functions, or whole files of them, that are there.
#[test]
fn the_threat_model_names_tests_that_exist() {
    let page = std::fs::read_to_string(root().join("docs/design/threat-model.md")).expect("the threat model");
    let texts = texts();
    let stems = texts.iter().filter_map(|(path, _)| path.file_stem());
    let files: BTreeSet<String> = stems.map(|stem| stem.to_string_lossy().into_owned()).collect();
    let in_c =
        |name: &str| texts.iter().any(|(path, text)| path.starts_with(root().join("bpf")) && text.contains(name));
    let functions = functions();
    let mut wrong = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| ") && line.contains('`')) {
        let tests = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
        for name in tests.split('`').skip(1).step_by(2) {
            let last = name.rsplit([' ', ':', '/']).next().unwrap_or_default();
            let known = match last.strip_suffix(')') {
                Some(function) => in_c(function),
                None => {
                    let last = last.trim_end_matches(".rs").trim_end_matches(".h");
                    !last.contains('_') || functions.contains(last) || files.contains(last)
                }
            };
            if !known {
                wrong.push(name);
            }
        }
    }
    assert!(wrong.is_empty(), "neither tests nor files: {wrong:?}");
}

/// `cargo test -p PACKAGE --test PROGRAM`, in pages, scripts and what programs say: there is such a program.
#[test]
fn test_programs_that_are_named_exist() {
    let mut wrong = Vec::new();
    for (path, text) in &texts() {
        for command in text.match_indices("cargo test").map(|(at, _)| &text[at..]) {
            let words: Vec<&str> = command.split(['\n', '`']).next().unwrap_or_default().split_whitespace().collect();
            let behind = |option: &str| words.iter().skip_while(|word| **word != option).nth(1).copied();
            let package = behind("-p").and_then(|package| package.strip_prefix("segue-"));
            let (Some(package), Some(program)) = (package, behind("--test")) else { continue };
            let program = program.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).next();
            let program = program.unwrap_or_default();
            let tests = root().join("crates").join(package).join("tests");
            let files = [format!("{program}.rs"), format!("{program}/main.rs")];
            // A script may put the names in.
            if !package.starts_with('$') && !files.iter().any(|file| tests.join(file).exists()) {
                wrong.push(format!("{}: -p segue-{package} --test {program}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "test programs that do not exist are named:\n{}", wrong.join("\n"));
}

/// Names in `snake_case` that pages have are in some source: functions, keys, outcomes, maps, programs, metrics. Pages of results are
/// records.
#[test]
fn names_in_pages_are_in_sources() {
    const OF_THE_KERNEL: [&str; 2] = ["nf_conntrack_tcp_loose", "reset_ctx"];
    let texts = texts();
    let is_page = |path: &Path| path.extension().is_some_and(|end| end == "md");
    let mut known = BTreeSet::new();
    for (_, text) in texts.iter().filter(|(path, _)| !is_page(path)) {
        known.extend(text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')));
    }
    let mut wrong = Vec::new();
    for (path, text) in texts.iter().filter(|(path, _)| is_page(path) && !path.starts_with(root().join("docs/results")))
    {
        for name in text.split('`').skip(1).step_by(2) {
            let is_name = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
            // OpenMetrics puts unit and kind behind a metric's name.
            let name = name.trim_end_matches("()").trim_end_matches("_total").trim_end_matches("_bytes");
            if name.contains('_')
                && name.chars().all(is_name)
                && !known.contains(name)
                && !OF_THE_KERNEL.contains(&name)
            {
                wrong.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "names that no source has:\n{}", wrong.join("\n"));
}

/// Words that pages do not have, each with the one that the glossary settles on. Examples in blocks are others' words.
#[test]
fn pages_use_the_words_of_the_glossary() {
    const INSTEAD: [(&str, &str); 12] = [
        ("can not", "cannot"),
        ("clocks", "cycles"),
        ("alive", "up"),
        ("dead", "down"),
        ("put right", "repair"),
        ("mend", "repair"),
        ("slow way", "slow path"),
        ("fast way", "fast path"),
        ("head end", "headend"),
        ("behavior", "behaviour"),
        ("flavor", "flavour"),
        ("neighbor", "neighbour"),
    ];
    let mut wrong = Vec::new();
    for (path, text) in texts().iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "md")) {
        // What stands between backquotes is a name, or somebody else's.
        let words: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
        let words = words.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
        let line = format!(" {} ", words.collect::<Vec<_>>().join(" "));
        for (word, instead) in INSTEAD {
            if line.contains(&format!(" {word} ")) {
                wrong.push(format!("{}: {word}: write {instead}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
