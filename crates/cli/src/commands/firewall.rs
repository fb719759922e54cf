//! `firewall`: rules and counters, the switch, checks of rule files.

use std::{fs, path::Path};

use anyhow::{Context, Result, anyhow, bail};
use segue_api::firewall::FirewallReport;
use segue_classifier::analysis::analyse;
use segue_firewall::Source;
use segue_model::{
    firewall::{Firewall, FirewallMode, RuleFile, Unsupported},
    node::NodeState,
};
use serde::Serialize;

use crate::{
    args::{FirewallCommand, FirewallForm, Global, Output},
    output, target,
};

/// Runs the command.
pub fn run(global: &Global, command: FirewallCommand) -> Result<()> {
    match command {
        FirewallCommand::Show { name, form, never_hit } => show(global, name.as_deref(), form, never_hit),
        FirewallCommand::On { name } => switch(global, &name, true),
        FirewallCommand::Off { name } => switch(global, &name, false),
        FirewallCommand::Explain { name, packet } => {
            let state: NodeState = target::one(global)?.client().get("/v1/state")?;
            let firewall = state.firewalls.iter().find(|firewall| firewall.name == name);
            let firewall =
                firewall.ok_or_else(|| anyhow!("there is no firewall {name:?}; see `segue firewall show` for all"))?;
            output::print(&super::firewall_explain::run(&state, firewall, &packet)?)
        }
        FirewallCommand::Check { files, ipv4, sets, advanced, hook, skip_unsupported } => {
            let firewall = Firewall {
                sets: sets.iter().map(|file| read(file)).collect::<Result<_>>()?,
                mode: if advanced { FirewallMode::Advanced } else { FirewallMode::Basic },
                hook,
                unsupported: if skip_unsupported { Unsupported::Skip } else { Unsupported::Refuse },
                ..Firewall::default()
            };
            files.iter().try_for_each(|file| {
                let yaml = file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
                let mut firewall = firewall.clone();
                let rules = match (yaml, ipv4) {
                    (true, _) => &mut firewall.yaml,
                    (false, true) => &mut firewall.ipv4,
                    (false, false) => &mut firewall.ipv6,
                };
                *rules = Some(read(file)?);
                let (warnings, text) = check(&firewall)?;
                for warning in warnings {
                    eprintln!("segue: warning: {warning}");
                }
                output::print(&text)
            })
        }
    }
}

fn read(file: &Path) -> Result<RuleFile> {
    let text = fs::read_to_string(file);
    let text = text.with_context(|| format!("{}: give a file that can be read", file.display()))?;
    Ok(RuleFile::Text { file: file.display().to_string(), text })
}

/// Warnings about a firewall with one file, and what is in the file.
fn check(firewall: &Firewall) -> Result<(Vec<String>, String)> {
    let source = Source::parse(firewall)?;
    let (mut warnings, mut text) = (Vec::new(), String::new());
    let hook = &firewall.hook;
    // Interfaces are the node's: rules that name some are not wrong because this machine has others.
    for (family, lowered) in source.lower_each(&source.named_interfaces())? {
        let (rules, name) = (&family.rules, &family.file);
        if rules.filter().and_then(|table| table.chain(hook)).is_none_or(|chain| chain.policy.is_none()) {
            bail!("{name}: the table filter has no built-in chain {hook}; add it, or name another with --hook");
        }
        let places = lowered
            .warnings
            .iter()
            .map(|warning| format!("{name}: line {}: {}", warning.position.line, warning.message));
        warnings.extend(places);
        warnings.extend(analyse(&lowered.program).iter().map(|warning| format!("{name}: {warning}")));
        let count: usize = lowered.program.chains.iter().map(|chain| chain.rules.len()).sum();
        let chains = rules.filter().map_or(&[][..], |table| &table.chains);
        let (unreached, reached): (Vec<_>, Vec<_>) = chains.iter().partition(|chain| chain.unreached);
        let others: usize = unreached.iter().map(|chain| chain.rules.len()).sum();
        let others = match others {
            0 => String::new(),
            others => format!("; {others} in chains that {hook} does not lead to are not run"),
        };
        let chains = match reached.len() {
            1 => "1 chain".to_owned(),
            many => format!("{many} chains"),
        };
        text.push_str(&format!("{name}: {count} rules in {chains} can be loaded{others}\n"));
    }
    Ok((warnings, text))
}

/// A firewall, and what is odd about its rules.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    report: FirewallReport,
    /// Rules that no packet can hit, and why.
    warnings: Vec<String>,
}

fn show(global: &Global, name: Option<&str>, form: FirewallForm, never_hit: bool) -> Result<()> {
    if form != FirewallForm::Table && (never_hit || global.output != Output::Table) {
        bail!("--form {form:?} prints what iptables prints: leave out --never-hit and -o, or --form");
    }
    let target = target::one(global)?;
    let mut reports: Vec<FirewallReport> = target.client().get("/v1/firewalls")?;
    if let Some(name) = name {
        reports.retain(|report| report.name == name);
        if reports.is_empty() {
            bail!("there is no firewall {name:?}; see `segue firewall show` for all");
        }
    }
    if form != FirewallForm::Table {
        let iptables = form == FirewallForm::Iptables;
        let text = reports.iter().map(|report| if iptables { report.listing.as_str() } else { report.save.as_str() });
        return output::print(&text.collect::<String>());
    }
    let state: NodeState = target.client().get("/v1/state")?;
    let shown = reports.into_iter().map(|report| shown(&state, report, never_hit)).collect::<Result<Vec<_>>>()?;
    match global.output {
        Output::Table => output::print(&shown.iter().map(table).collect::<String>()),
        structured => output::structured(&shown, structured),
    }
}

/// With what is odd about the rules; `never_hit` leaves only rules and policies that no packet has met.
fn shown(state: &NodeState, mut report: FirewallReport, never_hit: bool) -> Result<Shown> {
    if never_hit {
        report.rules.retain(|rule| rule.packets == 0);
        report.policies.retain(|policy| policy.packets == 0);
    }
    let mut warnings = Vec::new();
    if let Some(firewall) = state.firewalls.iter().find(|firewall| firewall.name == report.name) {
        let source = Source::parse(firewall)?;
        for (family, lowered) in source.lower_each(&source.named_interfaces())? {
            warnings.extend(analyse(&lowered.program).iter().map(|warning| format!("{}: {warning}", family.file)));
        }
    }
    Ok(Shown { report, warnings })
}

fn table(shown: &Shown) -> String {
    let report = &shown.report;
    let state = if report.basic { "on" } else { "off: every packet passes" };
    let mut text =
        format!("firewall {} ({} mode, {state})\n{:>12} {:>15}  rule\n", report.name, report.mode, "packets", "bytes");
    for rule in report.rules.iter().chain(&report.policies) {
        let line = rule.line.map(|line| format!(" (line {line})")).unwrap_or_default();
        let hit = if rule.packets == 0 { "  never hit" } else { "" };
        text.push_str(&format!("{:>12} {:>15}  {}{line}{hit}\n", rule.packets, rule.bytes, rule.name.trim()));
    }
    for warning in &shown.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    text
}

/// The switch is a part of the desired state.
fn switch(global: &Global, name: &str, on: bool) -> Result<()> {
    let target = target::one(global)?;
    let report = target.client().change(|state| {
        let firewall = state.firewalls.iter_mut().find(|firewall| firewall.name == name);
        let firewall =
            firewall.ok_or_else(|| anyhow!("there is no firewall {name:?}; see `segue firewall show` for all"))?;
        firewall.basic = on;
        Ok::<_, anyhow::Error>(())
    })?;
    for warning in &report.warnings {
        eprintln!("segue: warning: {warning}");
    }
    output::print(&format!("firewall {name} is {}\n", if on { "on" } else { "off: every packet passes" }))
}

#[cfg(test)]
mod tests {
    use segue_api::firewall::RuleReport;

    use super::*;

    const RULES: &str = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -i eth0 -s fd00::/16 -j ACCEPT\n\
        -A FORWARD -m limit --limit 1/second -p tcp -m tcp --dport 22 -j ACCEPT\n\
        -A FORWARD -i eth0 -s fd00:1::/32 -j DROP\n-A FORWARD ! -i eth0 -s fd00:1::/32 -j DROP\nCOMMIT\n";

    #[test]
    fn check_names_both_lines_of_a_shadowed_rule() {
        let file = tempfile::Builder::new().suffix(".v6").tempfile().unwrap();
        fs::write(file.path(), RULES).unwrap();
        let firewall = || Firewall { ipv6: Some(read(file.path()).unwrap()), ..Firewall::default() };
        let (warnings, text) = check(&firewall()).unwrap();
        let name = file.path().display();
        assert_eq!(text, format!("{name}: 4 rules in 1 chain can be loaded\n"));
        let shadowed = "line 5: chain FORWARD, rule 3: never hit: rule 1 (line 3) takes every packet that it matches";
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].starts_with(&format!("{name}: line 4: a limit in front of tcp")), "{warnings:?}");
        assert_eq!(warnings[1], format!("{name}: {shadowed}"));
        fs::write(file.path(), "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m owner --uid-owner 1 -j DROP\nCOMMIT\n")
            .unwrap();
        let error = check(&firewall()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{name}:3:15: `owner`: the match owner is not honoured: ")), "{error}");
    }

    #[test]
    fn show_has_counters_lines_and_warnings() {
        let rules = RULES.replace('\n', "\\n");
        let yaml = format!(
            "node: n\nsource_address: fd00::1\nfirewalls: [{{name: fw, ipv6: {{file: r, text: \"{rules}\"}}}}]\n"
        );
        let state = segue_model::load::load_node_state(&yaml, "node.yaml").unwrap_or_else(|errors| panic!("{errors}"));
        let rule = |name: &str, line, packets| {
            let (name, file) = (name.into(), "rules.v6".into());
            RuleReport { name, file, line, packets, bytes: packets * 60 }
        };
        let report = || FirewallReport {
            name: "fw".into(),
            mode: "basic".into(),
            basic: true,
            rules: vec![rule("IPv6 -A FORWARD one", Some(3), 7), rule("IPv6 -A FORWARD two", Some(5), 0)],
            policies: vec![rule("IPv6 policy of FORWARD", None, 1)],
            listing: String::new(),
            save: String::new(),
        };
        let all = shown(&state, report(), false).unwrap();
        let warning = "r: line 5: chain FORWARD, rule 3: never hit: rule 1 (line 3) takes every packet that it matches";
        assert_eq!(all.warnings, [warning]);
        let text = table(&all);
        assert!(text.contains("           7             420  IPv6 -A FORWARD one (line 3)\n"), "{text}");
        assert!(text.contains("IPv6 -A FORWARD two (line 5)  never hit\n"), "{text}");
        assert!(text.ends_with(&format!("warning: {warning}\n")), "{text}");
        let json = serde_json::to_value(shown(&state, report(), true).unwrap()).unwrap();
        assert_eq!(
            json["rules"],
            serde_json::json!([{"name": "IPv6 -A FORWARD two", "file": "rules.v6", "line": 5, "packets": 0, "bytes": 0}])
        );
        assert_eq!((json["policies"].as_array().map(Vec::len), json["warnings"][0].as_str()), (Some(0), Some(warning)));
    }
}
