//! Pages: the examples in docs/using/configuration.md are accepted, and show every key; links and names of pages lead somewhere.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use segue_model::{load, schema};

fn documented() -> (String, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/using/configuration.md");
    let text = std::fs::read_to_string(path).expect("docs/using/configuration.md");
    let blocks: Vec<&str> = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let [node_state, topology] = blocks.as_slice() else { panic!("{} examples", blocks.len()) };
    ((*node_state).to_owned(), (*topology).to_owned())
}

/// Every property of the schema is written somewhere in the example.
fn shows_every_key(example: &str, schema: &Value, but: &[&str]) {
    let definitions = schema["$defs"].as_object().expect("definitions").values();
    for part in definitions.chain([schema]) {
        for key in
            part.get("properties").and_then(Value::as_object).into_iter().flat_map(|properties| properties.keys())
        {
            assert!(but.contains(&key.as_str()) || example.contains(&format!("{key}:")), "the key {key} is not shown");
        }
    }
}

#[test]
fn documented_node_state() {
    let (source, _) = documented();
    load::load_node_state(&source, "docs/using/configuration.md").unwrap_or_else(|errors| panic!("{errors}"));
    let other_behaviours =
        ["next_hop", "port", "policy", "endpoint", "answer_echo", "allow_inner_sid", "comment", "name"];
    shows_every_key(
        &source,
        &schema::node_state(),
        &[&other_behaviours[..], &["source_ports", "outside_locator"]].concat(),
    );
}

#[test]
fn documented_topology() {
    let (_, source) = documented();
    load::load_plan(&source, "docs/using/configuration.md").unwrap_or_else(|errors| panic!("{errors}"));
    shows_every_key(&source, &schema::topology(), &["aware", "behaviour", "source_ports", "prefixes"]);
}

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

/// docs/README.md leads to every page.
#[test]
fn the_index_names_every_page() {
    let index = std::fs::read_to_string(root().join("docs/README.md")).expect("docs/README.md");
    let listed: BTreeSet<PathBuf> =
        links(&index).filter_map(|link| root().join("docs").join(link).canonicalize().ok()).collect();
    let pages = texts().into_iter().map(|(path, _)| path);
    let pages =
        pages.filter(|path| path.starts_with(root().join("docs")) && path.extension().is_some_and(|e| e == "md"));
    let missing: Vec<PathBuf> =
        pages.filter(|path| !path.ends_with("docs/README.md") && !listed.contains(path)).collect();
    assert!(missing.is_empty(), "docs/README.md does not name {missing:?}");
}
