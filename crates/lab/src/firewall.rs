//! Rule files of functions that are firewalls: read, and checked before anything is made.

use std::fs;
use std::path::Path;

use segue_classifier::iptables::{
    Family, Mode, Reading, RuleSet, SetFile, Surroundings, parse_rules_for, parse_sets, parse_yaml_for,
};
use segue_model::firewall::{Firewall, FirewallMode, RuleFile, Unsupported};
use segue_model::topology::Topology;

use crate::error::{LabError, Result};

/// Replaces the paths of rule files, which are relative to the topology's file, by what the files hold.
///
/// # Errors
/// A file that cannot be read; all that is wrong with a file, with line and column.
pub(crate) fn read(topology: &mut Topology, document: &Path) -> Result<()> {
    let directory = document.parent().unwrap_or(Path::new(""));
    for (name, function) in &mut topology.functions {
        let Some(firewall) = &mut function.firewall else { continue };
        for rules in firewall.files_mut() {
            if let RuleFile::Path(file) = rules {
                let path = directory.join(&*file);
                let remedy = "fix `firewall` of the function in the topology: a path relative to the topology's file";
                let text = fs::read_to_string(&path).map_err(LabError::io("read", &path, remedy))?;
                *rules = RuleFile::Text { file: file.clone(), text };
            }
        }
        check(firewall).map_err(|what| LabError::Rules { function: name.clone(), what })?;
    }
    Ok(())
}

/// What the agent would refuse, but for what depends on the node's interfaces.
fn check(firewall: &Firewall) -> std::result::Result<(), String> {
    let text = |file: &RuleFile| file.text().unwrap_or_default().to_owned();
    let mut sets = SetFile::default();
    for file in &firewall.sets {
        sets.sets.extend(parse_sets(&text(file), file.name()).map_err(|errors| errors.to_string())?.sets);
    }
    let mode = match firewall.mode {
        FirewallMode::Basic => Mode::Basic,
        FirewallMode::Advanced => Mode::Advanced,
    };
    let reading = Reading { hook: Some(&firewall.hook), skip: firewall.unsupported == Unsupported::Skip };
    let lower = |rules: &RuleSet, file: &RuleFile| {
        rules.lower(&sets, &Surroundings::default(), mode, file.name()).map_err(|errors| errors.to_string())
    };
    for (file, family) in [(&firewall.ipv4, Family::Ipv4), (&firewall.ipv6, Family::Ipv6)] {
        if let Some(file) = file {
            let parsed = parse_rules_for(&text(file), file.name(), family, reading);
            lower(&parsed.map_err(|errors| errors.to_string())?.0, file)?;
        }
    }
    if let Some(file) = &firewall.yaml {
        let parsed = parse_yaml_for(&text(file), file.name(), reading);
        lower(&parsed.map_err(|errors| errors.to_string())?.0, file)?;
    }
    Ok(())
}
