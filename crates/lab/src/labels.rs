//! `lab labels`, and labels in what is given to other commands.

use segue_wiring::{LABEL, LabelKind, Labels};

use crate::error::{LabError, Result};
use crate::explain;
use crate::list::columns;
use crate::names::LabPaths;
use crate::state::LabRecord;

/// File in a lab's directory with its labels.
pub(crate) const FILE: &str = "labels.json";

/// Labels of a lab that is up.
///
/// # Errors
/// If it is not.
pub fn of_lab(paths: &LabPaths) -> Result<Labels> {
    let missing = || LabError::NoSuchLab { lab: paths.lab.clone() };
    let text = std::fs::read_to_string(paths.directory.join(FILE)).map_err(|_| missing())?;
    serde_json::from_str(&text).map_err(|_| missing())
}

/// Words with the values of labels in their places. A lab whose records are lost has no labels; then words without any stay as they are.
///
/// # Errors
/// The first label that is not known.
pub fn resolve(paths: &LabPaths, words: &[String]) -> Result<Vec<String>> {
    if !words.iter().any(|word| word.contains(LABEL)) {
        return Ok(words.to_vec());
    }
    let labels = of_lab(paths)?;
    words.iter().map(|word| Ok(labels.resolve(word)?)).collect()
}

/// The node, host or function that a word names, with or without `$`: `nfv1`, `$nfv1`, `$nfv1.firewall`.
///
/// # Errors
/// [`LabError::NoSuchNode`] or an unknown label.
pub fn namespace<'a>(paths: &LabPaths, record: &'a LabRecord, word: &str) -> Result<&'a crate::state::NodeRecord> {
    let Some(name) = word.strip_prefix(LABEL) else { return record.node(word) };
    if let Some(found) = record.nodes.iter().find(|node| node.name == name) {
        return Ok(found);
    }
    if let Some((_, function)) = name.split_once('.')
        && let Some(found) = record.nodes.iter().find(|node| node.name == function && node.kind.is_function())
    {
        return Ok(found);
    }
    of_lab(paths)?.find(word)?;
    record.node(word)
}

/// A table for people.
#[must_use]
pub fn table(labels: &Labels) -> String {
    let mut rows = vec![["LABEL".to_owned(), "KIND".into(), "VALUE".into(), "WHAT".into()]];
    rows.extend(labels.list().iter().map(|label| {
        [label.label.clone(), explain::word::<LabelKind>(&label.kind), label.value.clone(), label.about.clone()]
    }));
    columns(&rows)
}
