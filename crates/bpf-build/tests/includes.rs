//! `bpf/lib` is a graph without circles: each file includes what it uses, by its path from `bpf/`, and nothing that leads back to it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Name of a file of `bpf/` by its path from there -> what it includes from `lib/`.
type Includes = BTreeMap<String, Vec<String>>;

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

fn includes_of(text: &str) -> Vec<String> {
    let quoted = text.lines().filter_map(|line| line.trim().strip_prefix("#include \"")?.strip_suffix('"'));
    quoted.map(str::to_owned).collect()
}

fn library() -> Includes {
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.strip_prefix(&bpf).expect("below bpf/").to_string_lossy().into_owned();
        (name, includes_of(&text))
    };
    files_below(&bpf.join("lib")).into_iter().map(read).collect()
}

/// A circle that can be entered at `file`, or none. `way`: from where the walk began to `file`, without it.
fn circle(includes: &Includes, file: &str, way: &mut Vec<String>, done: &mut Vec<String>) -> Option<String> {
    if let Some(at) = way.iter().position(|passed| passed == file) {
        return Some(format!("{} -> {file}", way[at..].join(" -> ")));
    }
    if done.iter().any(|known| known == file) {
        return None;
    }
    way.push(file.to_owned());
    let found = includes.get(file).into_iter().flatten().find_map(|next| circle(includes, next, way, done));
    way.pop();
    done.push(file.to_owned());
    found
}

fn any_circle(includes: &Includes) -> Option<String> {
    let mut done = Vec::new();
    includes.keys().find_map(|file| circle(includes, file, &mut Vec::new(), &mut done))
}

#[test]
fn no_file_of_the_library_leads_back_to_itself() {
    assert_eq!(any_circle(&library()), None);
}

#[test]
fn what_is_included_is_named_by_its_path_and_is_there() {
    let library = library();
    for (file, includes) in &library {
        for included in includes.iter().filter(|included| !included.starts_with("abi/")) {
            assert!(library.contains_key(included), "{file} includes {included}, which is no file below bpf/");
        }
    }
}

#[test]
fn circles_are_found() {
    let graph = |edges: &[(&str, &str)]| -> Includes {
        edges.iter().map(|(from, to)| ((*from).to_owned(), vec![(*to).to_owned()])).collect()
    };
    assert_eq!(any_circle(&graph(&[("a", "b"), ("b", "c")])), None);
    assert_eq!(any_circle(&graph(&[("a", "b"), ("b", "c"), ("c", "b")])).as_deref(), Some("b -> c -> b"));
    assert_eq!(includes_of("#include <linux/bpf.h>\n#include \"lib/base/types.h\"\n"), ["lib/base/types.h"]);
}
