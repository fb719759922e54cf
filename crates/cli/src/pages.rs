//! Every command that the pages show is one that `segue` takes.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Parser as _, error::ErrorKind};

use crate::args::Cli;

/// What a page shows: its line, and the words.
struct Shown {
    place: String,
    words: Vec<String>,
}

fn pages(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// A command with a form of its own (`[--json]`, `...`, `(on|off)`) is for people, not for a shell.
fn words(command: &str) -> Option<Vec<String>> {
    let end = ["  #", " #", "&&", "|", ">", "<", ";"].iter().filter_map(|end| command.find(end)).min();
    let command = &command[..end.unwrap_or(command.len())];
    let is_form = ["[", "(", "{", "...", "…", "SUBCOMMAND"].iter().any(|sign| command.contains(sign));
    (!is_form).then(|| command.split_whitespace().map(|word| word.trim_matches(['\'', '"']).to_owned()).collect())
}

/// Lines of code blocks, and code within a sentence.
fn shown(page: &Path, text: &str) -> Vec<Shown> {
    let mut in_block = false;
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
            continue;
        }
        let line = line.trim_start();
        let commands: Vec<&str> = if in_block { vec![line] } else { line.split('`').skip(1).step_by(2).collect() };
        let commands = commands.into_iter().map(|command| command.trim_start_matches("$ ").trim_start_matches("sudo "));
        for command in commands.filter(|command| command.starts_with("segue ")) {
            let place = format!("{}:{}", page.display(), number + 1);
            found.extend(words(command).map(|words| Shown { place, words }));
        }
    }
    found
}

#[test]
fn commands_of_the_pages_are_taken() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md"), root.join("CONTRIBUTING.md"), root.join("ARCHITECTURE.md")];
    pages(&root.join("docs"), &mut files);
    let all: Vec<Shown> =
        files.iter().flat_map(|page| shown(page, &fs::read_to_string(page).expect("a page"))).collect();
    assert!(all.len() > 60, "only {} commands were found", all.len());
    let refused = |shown: &Shown| {
        let error = Cli::try_parse_from(&shown.words).err()?;
        // What is left out in a sentence (`segue get`, `segue apply`) need not be said again.
        let is_short = matches!(
            error.kind(),
            ErrorKind::MissingRequiredArgument
                | ErrorKind::MissingSubcommand
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                | ErrorKind::DisplayHelp
                | ErrorKind::DisplayVersion
        );
        (!is_short).then(|| format!("{}: {}: {error}", shown.place, shown.words.join(" ")))
    };
    let refused: Vec<String> = all.iter().filter_map(refused).collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
