//! `firewall`: rules and counters, the switch, checks of rule files.

use std::{fs, path::Path};

use anyhow::{Context, Result, anyhow, bail};
use segue_agent::{apply::ApplyReport, firewall::FirewallReport};
use segue_classifier::{
    analysis::analyse,
    iptables::{Family, Mode, SetFile, Surroundings, parse_rules, parse_sets, parse_yaml},
};
use segue_model::node::NodeState;

use crate::{
    args::{FirewallCommand, FirewallForm, Global, Output},
    client, output, target,
};

/// Runs the command.
pub fn run(global: &Global, command: FirewallCommand) -> Result<()> {
    match command {
        FirewallCommand::Show { name, form } => show(global, name.as_deref(), form),
        FirewallCommand::On { name } => switch(global, &name, true),
        FirewallCommand::Off { name } => switch(global, &name, false),
        FirewallCommand::Explain { name, packet } => {
            let state: NodeState = client::request(&target::one(global)?, "GET", "/v1/state", None)?;
            let firewall = state.firewalls.iter().find(|firewall| firewall.name == name);
            let firewall =
                firewall.ok_or_else(|| anyhow!("there is no firewall {name:?}; see `segue firewall show` for all"))?;
            output::print(&super::firewall_explain::run(&state, firewall, &packet)?)
        }
        FirewallCommand::Check { files, ipv4, sets, advanced } => {
            let sets = read_sets(&sets)?;
            let family = if ipv4 { Family::Ipv4 } else { Family::Ipv6 };
            let mode = if advanced { Mode::Advanced } else { Mode::Basic };
            files.iter().try_for_each(|file| check(file, family, mode, &sets))
        }
    }
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("{}: give a file that can be read", file.display()))
}

fn read_sets(files: &[std::path::PathBuf]) -> Result<SetFile> {
    let mut all = SetFile::default();
    for file in files {
        let sets = parse_sets(&read(file)?, &file.display().to_string()).map_err(|errors| anyhow!("{errors}"))?;
        all.sets.extend(sets.sets);
    }
    Ok(all)
}

fn check(file: &Path, family: Family, mode: Mode, sets: &SetFile) -> Result<()> {
    let (text, name) = (read(file)?, file.display().to_string());
    let yaml = file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    let rules = if yaml { parse_yaml(&text, &name) } else { parse_rules(&text, &name, family) };
    let rules = rules.map_err(|errors| anyhow!("{errors}"))?;
    // Interfaces are the node's: rules that name some are not wrong because this machine has others.
    let lowered = rules.lower(sets, &Surroundings::default(), mode, &name).map_err(|errors| anyhow!("{errors}"))?;
    for warning in analyse(&lowered.program) {
        eprintln!("segue: warning: {name}: {warning}");
    }
    let count: usize = lowered.program.chains.iter().map(|chain| chain.rules.len()).sum();
    output::print(&format!("{name}: {count} rules in {} chains can be loaded\n", lowered.program.chains.len()))
}

fn show(global: &Global, name: Option<&str>, form: FirewallForm) -> Result<()> {
    let target = target::one(global)?;
    let mut reports: Vec<FirewallReport> = client::request(&target, "GET", "/v1/firewalls", None)?;
    if let Some(name) = name {
        reports.retain(|report| report.name == name);
        if reports.is_empty() {
            bail!("there is no firewall {name:?}; see `segue firewall show` for all");
        }
    }
    if global.output != Output::Table {
        return output::structured(&reports, global.output);
    }
    let text: String = reports
        .iter()
        .map(|report| match form {
            FirewallForm::Table => table(report),
            FirewallForm::Iptables => report.listing.clone(),
            FirewallForm::Save => report.save.clone(),
        })
        .collect();
    output::print(&text)
}

fn table(report: &FirewallReport) -> String {
    let state = if report.basic { "on" } else { "off: every packet passes" };
    let mut text =
        format!("firewall {} ({} mode, {state})\n{:>12} {:>15}  rule\n", report.name, report.mode, "packets", "bytes");
    for rule in report.rules.iter().chain(&report.policies) {
        let line = rule.line.map(|line| format!(" (line {line})")).unwrap_or_default();
        let hit = if rule.packets == 0 { "  never hit" } else { "" };
        text.push_str(&format!("{:>12} {:>15}  {}{line}{hit}\n", rule.packets, rule.bytes, rule.name.trim()));
    }
    text
}

/// The switch is a part of the desired state.
fn switch(global: &Global, name: &str, on: bool) -> Result<()> {
    let target = target::one(global)?;
    let mut state: NodeState = client::request(&target, "GET", "/v1/state", None)?;
    let firewall = state.firewalls.iter_mut().find(|firewall| firewall.name == name);
    let firewall =
        firewall.ok_or_else(|| anyhow!("there is no firewall {name:?}; see `segue firewall show` for all"))?;
    firewall.basic = on;
    let report: ApplyReport = client::request(&target, "PUT", "/v1/state", Some(&serde_json::to_string(&state)?))?;
    for warning in &report.warnings {
        eprintln!("segue: warning: {warning}");
    }
    output::print(&format!("firewall {name} is {}\n", if on { "on" } else { "off: every packet passes" }))
}
