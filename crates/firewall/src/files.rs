//! The rule files that a document names.

use std::fs;
use std::path::Path;

use segue_model::firewall::{Firewall, RuleFile};
use segue_model::node::NodeState;

use crate::Error;

/// Replaces the paths of a firewall's rule files, which are relative to the document at `document`, by what the files hold: who
/// gets the document need not have them. `name` is for the error.
///
/// # Errors
/// [`Error::File`]; files before it have been replaced.
pub fn read(firewall: &mut Firewall, name: &str, document: &Path) -> Result<(), Error> {
    let directory = document.parent().unwrap_or(Path::new(""));
    for rules in firewall.files_mut() {
        if let RuleFile::Path(file) = rules {
            let path = directory.join(&*file);
            let text = fs::read_to_string(&path).map_err(|source| Error::File {
                firewall: name.to_owned(),
                path: path.clone(),
                source,
            })?;
            *rules = RuleFile::Text { file: file.clone(), text };
        }
    }
    Ok(())
}

/// The same for all firewalls of a desired state.
///
/// # Errors
/// Those of [`read`].
pub fn read_all(state: &mut NodeState, document: &Path) -> Result<(), Error> {
    state.firewalls.iter_mut().try_for_each(|firewall| {
        let name = firewall.name.clone();
        read(firewall, &name, document)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_files_are_read_beside_the_document() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("rules.v6"), "*filter\nCOMMIT\n").expect("a file");
        let document = directory.path().join("node.yaml");
        let mut firewall: Firewall = serde_json::from_str(r#"{"ipv6": "rules.v6"}"#).expect("a firewall");
        read(&mut firewall, "fw", &document).expect("the file is there");
        assert_eq!(firewall.ipv6.as_ref().and_then(RuleFile::text), Some("*filter\nCOMMIT\n"));
        firewall.ipv6 = Some(RuleFile::Path("missing.v6".into()));
        let error = read(&mut firewall, "fw", &document).expect_err("it is not there").to_string();
        assert!(error.starts_with("firewall fw: ") && error.contains("missing.v6: No such file"), "{error}");
    }
}
