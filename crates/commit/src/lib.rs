//! For build scripts: the version that a program calls itself, with the commit that it was built from.
//!
//! The commit is read from the repository's files: neither git nor a library is needed, and sources without a repository, as from
//! a tarball, build all the same. Only builds with optimisation have it: each commit would otherwise build the programs and their
//! tests anew, and what is being worked on is no commit anyway.
#![forbid(unsafe_code)]

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Digits of a commit that are shown.
const DIGITS: usize = 12;

/// Sets SEGUE_VERSION for the package whose build script calls it. SEGUE_COMMIT in the environment is taken as the commit: for
/// packagers, who know it where the sources do not.
pub fn emit() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SEGUE_COMMIT");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo::rustc-env=SEGUE_VERSION={version}{}", suffix());
}

fn suffix() -> String {
    if let Ok(commit) = env::var("SEGUE_COMMIT") {
        // A line of its own would be another instruction to cargo.
        return if commit.is_empty() { commit } else { format!(" ({})", commit.replace(['\n', '\r'], " ")) };
    }
    if env::var("PROFILE").as_deref() != Ok("release") {
        return " (development build)".to_owned();
    }
    // Of this repository, not of one that a tarball was unpacked in.
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let Some(found) = package.ancestors().nth(2).and_then(|root| commit(&root.join(".git"))) else {
        return String::new();
    };
    for file in found.files {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    format!(" ({})", found.commit)
}

/// A commit, and the files that say so.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    commit: String,
    files: Vec<PathBuf>,
}

/// What is checked out, by the repository's directory or, in a worktree, the file that names it.
fn commit(git: &Path) -> Option<Found> {
    let directory = match fs::read_to_string(git) {
        Ok(text) => git.parent()?.join(text.strip_prefix("gitdir:")?.trim()),
        Err(_) => git.to_path_buf(),
    };
    let head = directory.join("HEAD");
    let text = fs::read_to_string(&head).ok()?;
    let Some(name) = text.trim().strip_prefix("ref:").map(str::trim) else {
        return Some(Found { commit: short(&text)?, files: vec![head] });
    };
    // Worktrees share branches with the repository.
    let common =
        fs::read_to_string(directory.join("commondir")).map_or(directory.clone(), |c| directory.join(c.trim()));
    let branch = common.join(name);
    if let Ok(text) = fs::read_to_string(&branch) {
        return Some(Found { commit: short(&text)?, files: vec![head, branch] });
    }
    let packed = common.join("packed-refs");
    let text = fs::read_to_string(&packed).ok()?;
    let line = text.lines().find(|line| line.split_once(' ').is_some_and(|(_, of)| of == name))?;
    Some(Found { commit: short(line)?, files: vec![head, packed] })
}

fn short(text: &str) -> Option<String> {
    let digits: String = text.chars().take(DIGITS).collect();
    (digits.len() == DIGITS && digits.bytes().all(|octet| octet.is_ascii_hexdigit())).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0123456789abcdef0123456789abcdef01234567";
    const OTHER: &str = "fedcba9876543210fedcba9876543210fedcba98";

    fn write(file: PathBuf, text: &str) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn branches_packed_branches_detached_heads_and_worktrees() {
        let root = tempfile::tempdir().unwrap();
        let git = root.path().join("main/.git");
        let found = |git: &Path| commit(git).map(|found| found.commit);
        assert_eq!(found(&git), None, "no repository");
        write(git.join("HEAD"), &format!("{ONE}\n"));
        assert_eq!(found(&git).unwrap(), "0123456789ab");
        write(git.join("HEAD"), "ref: refs/heads/main\n");
        assert_eq!(found(&git), None, "no commit yet");
        write(
            git.join("packed-refs"),
            &format!("# pack-refs with: peeled\n{OTHER} refs/heads/main2\n{ONE} refs/heads/main\n"),
        );
        assert_eq!(found(&git).unwrap(), "0123456789ab");
        write(git.join("refs/heads/main"), &format!("{OTHER}\n"));
        let read = commit(&git).unwrap();
        assert_eq!(read.commit, "fedcba987654");
        assert_eq!(read.files, [git.join("HEAD"), git.join("refs/heads/main")]);
        let own = git.join("worktrees/w");
        write(own.join("HEAD"), "ref: refs/heads/w\n");
        write(own.join("commondir"), "../..\n");
        write(git.join("refs/heads/w"), ONE);
        write(root.path().join("w/.git"), &format!("gitdir: {}\n", own.display()));
        assert_eq!(found(&root.path().join("w/.git")).unwrap(), "0123456789ab");
        write(git.join("refs/heads/w"), "no commit\n");
        assert_eq!(found(&root.path().join("w/.git")), None);
    }
}
