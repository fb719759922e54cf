//! The files of a crate import each other in one direction: no file needs, by way of others, itself.
//!
//! A folder's `mod.rs` may name what is in the folder's files (it declares and exports them, and a type of its own may have its `impl`
//! blocks there): that is no way back up. What is under `#[cfg(test)]` does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module, by its path below the crate.
type Module = Vec<String>;

/// Circles that are meant, as `CRATE: MODULE, MODULE`, each with its reason.
const MEANT: [(&str, &str); 0] = [];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn module(source: &Path, file: &Path) -> Module {
    let place = file.strip_prefix(source).expect("below").with_extension("");
    let mut parts: Module = place.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// The text without comments and without the tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    text.lines().map(|line| line.split("//").next().unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// All paths of a `use` tree.
fn expand(tree: &str, found: &mut Vec<String>) {
    let Some((before, rest)) = tree.split_once('{') else {
        found.push(tree.split(" as ").next().unwrap_or(tree).trim().to_owned());
        return;
    };
    let inside = rest.rsplit_once('}').map_or(rest, |(inside, _)| inside);
    let (mut depth, mut part) = (0, String::new());
    for character in inside.chars().chain([',']) {
        match character {
            ',' if depth == 0 => {
                if !part.trim().is_empty() {
                    expand(&format!("{}{}", before.trim(), part.trim()), found);
                }
                part.clear();
                continue;
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        part.push(character);
    }
}

/// Paths from `crate` or `super` on that stand in the code, in `use` or elsewhere.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(start) = ["crate::", "super::", "self::"].iter().filter_map(|word| rest.find(word)).min() {
        let is_use = rest[..start].trim_end().ends_with("use");
        let begin = &rest[start..];
        let end = match is_use {
            true => begin.find(';').unwrap_or(begin.len()),
            false => begin.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(begin.len()),
        };
        // `segue_crate::` and `$crate::` are something else.
        if !rest[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            expand(&begin[..end], &mut found);
        }
        rest = &begin[end.max(1)..];
    }
    found
}

fn target(from: &Module, path: &str, modules: &BTreeSet<Module>) -> Option<Module> {
    let mut parts = path.split("::").map(str::to_owned).collect::<Vec<_>>().into_iter().peekable();
    let mut base = from.clone();
    match parts.peek().map(String::as_str) {
        Some("crate") => {
            base.clear();
            parts.next();
        }
        Some("self") => drop(parts.next()),
        _ => {
            while parts.next_if(|part| part == "super").is_some() {
                base.pop();
            }
        }
    }
    base.extend(parts);
    let found = (1..=base.len()).rev().map(|length| base[..length].to_vec()).find(|module| modules.contains(module))?;
    let own_part = found.starts_with(from) && !from.is_empty();
    (found != *from && !own_part).then_some(found)
}

/// What each file imports of its own crate.
fn imports(source: &Path) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut files = Vec::new();
    sources(source, &mut files);
    let files: BTreeMap<Module, PathBuf> = files.into_iter().map(|file| (module(source, &file), file)).collect();
    let modules: BTreeSet<Module> = files.keys().cloned().collect();
    let no_test =
        files.iter().filter(|(module, _)| !module.iter().any(|part| part == "tests" || part.ends_with("_tests")));
    let of = |(module, file): (&Module, &PathBuf)| {
        let text = code(&fs::read_to_string(file).expect("a source"));
        (module.clone(), paths(&text).iter().filter_map(|path| target(module, path, &modules)).collect())
    };
    no_test.map(of).collect()
}

fn reached(from: &Module, imports: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(next) = open.pop() {
        for module in imports.get(&next).into_iter().flatten() {
            if found.insert(module.clone()) {
                open.push(module.clone());
            }
        }
    }
    found
}

#[test]
fn no_file_imports_itself_by_way_of_others() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates");
    let mut circles = BTreeSet::new();
    let mut looked_at = 0;
    for entry in fs::read_dir(crates).expect("crates").flatten() {
        let source = entry.path().join("src");
        if !source.is_dir() {
            continue;
        }
        let imports = imports(&source);
        looked_at += imports.values().map(BTreeSet::len).sum::<usize>();
        for module in imports.keys() {
            let from_here = reached(module, &imports);
            if from_here.contains(module) {
                let circle = from_here.iter().filter(|other| reached(other, &imports).contains(module));
                let names: Vec<String> = circle.map(|module| module.join("::")).collect();
                circles.insert(format!("{}: {}", entry.file_name().to_string_lossy(), names.join(", ")));
            }
        }
    }
    assert!(looked_at > 500, "only {looked_at} imports were found: does this test still read them?");
    let meant: BTreeSet<String> = MEANT.iter().map(|(circle, _)| (*circle).to_owned()).collect();
    assert_eq!(circles, meant, "circles of imports, and those that are meant");
}

#[test]
fn imports_are_read() {
    let found =
        paths("use crate::a::{b, c::{D, e as f}};\nlet x = super::g::h(1);\npub use self::i;\nfoo_crate::no::no");
    assert_eq!(found, ["crate::a::b", "crate::a::c::D", "crate::a::c::e", "super::g::h", "self::i"]);
}
