//! `apply` and `diff`.

use std::{fs, io::Read, path::Path};

use anyhow::{Context, Result, anyhow};
use segue_api::{
    client::Condition,
    state::{Change, ChangeKind},
};
use segue_model::{load::load_node_state, node::NodeState};
use serde_json::Value;

use crate::{
    args::{Global, Output},
    output, target,
};

/// Applies a file, or checks it.
pub fn apply(global: &Global, file: &Path, condition: &Condition, dry_run: bool) -> Result<()> {
    let state = read(file)?;
    let report = target::one(global)?.client().apply(&state, condition, dry_run)?;
    for warning in &report.warnings {
        eprintln!("segue: warning: {warning}");
    }
    if global.output != Output::Table {
        return output::structured(&report, global.output);
    }
    if !report.outside.is_empty() {
        eprintln!("segue: outside of the domain, without a way to any SID: {}", report.outside.join(", "));
    }
    let count = match report.changes.len() {
        0 => "nothing changes".to_owned(),
        1 => "1 change".to_owned(),
        count => format!("{count} changes"),
    };
    let end = match report.dry_run {
        true => format!("fit to be applied: {count}\n"),
        false => format!("applied as generation {}: {count}\n", report.generation),
    };
    output::print(&(changes(&report.changes) + &end))
}

/// Shows what a file would change.
pub fn diff(global: &Global, file: &Path) -> Result<()> {
    let state = read(file)?;
    let report = target::one(global)?.client().diff(&state)?;
    match global.output {
        Output::Table if report.changes.is_empty() => output::print("nothing would change\n"),
        Output::Table => output::print(&changes(&report.changes)),
        other => output::structured(&report.changes, other),
    }
}

/// Reads and checks a desired state; errors name file and line.
fn read(file: &Path) -> Result<NodeState> {
    let (text, name) = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("read stdin")?;
        (text, "stdin".to_owned())
    } else {
        let name = file.display().to_string();
        (fs::read_to_string(file).with_context(|| format!("{name}: give a file that can be read"))?, name)
    };
    let mut state = load_node_state(&text, &name).map_err(|errors| {
        let lines: Vec<_> = errors.iter().map(|error| format!("  {error}")).collect();
        anyhow!("the state is invalid, nothing was applied:\n{}", lines.join("\n"))
    })?;
    segue_firewall::files::read_all(&mut state, file)?;
    Ok(state)
}

fn changes(changes: &[Change]) -> String {
    let line = |change: &Change| match change.kind {
        ChangeKind::Added => format!("+ {}{}\n", change.key, value(&change.after)),
        ChangeKind::Removed => format!("- {}{}\n", change.key, value(&change.before)),
        ChangeKind::Changed => {
            format!("~ {}{} ->{}\n", change.key, value(&change.before), value(&change.after).trim_start_matches(':'))
        }
    };
    changes.iter().map(line).collect()
}

/// A value behind its key; flow style, on one line.
fn value(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => format!(": {text}"),
        other => format!(": {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_read_like_a_patch() {
        let change = |kind, before: Value, after: Value| Change { kind, key: "sids[x].table".into(), before, after };
        let text = changes(&[
            change(ChangeKind::Added, Value::Null, 7.into()),
            change(ChangeKind::Removed, "a".into(), Value::Null),
            change(ChangeKind::Changed, 7.into(), 8.into()),
        ]);
        assert_eq!(text, "+ sids[x].table: 7\n- sids[x].table: a\n~ sids[x].table: 7 -> 8\n");
    }

    #[test]
    fn an_invalid_file_names_file_and_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("node.yaml");
        fs::write(&file, "node: n\nsource_address: fc00::1\nsidz: []\n").unwrap();
        let error = format!("{:#}", read(&file).unwrap_err());
        assert!(error.contains("node.yaml:3"), "{error}");
        assert!(error.contains("sidz"), "{error}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = format!("{:#}", read(Path::new("/nonexistent.yaml")).unwrap_err());
        assert!(error.contains("/nonexistent.yaml"), "{error}");
    }
}
