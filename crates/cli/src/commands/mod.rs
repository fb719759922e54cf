//! One module per subcommand.

mod capture;
mod doctor;
mod firewall;
mod firewall_explain;
mod firewall_packet;
mod get;
mod program;
mod state;
mod stdio;
mod top;
mod trace;

use anyhow::{Context, Result};
use clap::CommandFactory;
use segue_api::report::Version;
use serde::Serialize;

use crate::{
    args::{Cli, Command, Global, Output, SchemaKind, VERSION},
    output, target,
};

/// Runs the command; returns the exit status.
pub fn run(cli: Cli) -> Result<u8> {
    let global = &cli.global;
    match cli.command {
        Command::Apply { file, dry_run, if_revision } => {
            state::apply(global, &file, &if_revision.unwrap_or_default(), dry_run)?;
        }
        Command::Diff { file } => state::diff(global, &file)?,
        Command::Get { what } => get::get(global, what)?,
        Command::Drops => get::get(global, crate::args::What::Drops)?,
        Command::Doctor { all } => return doctor::doctor(global, all),
        Command::Top(args) => top::top(global, &args)?,
        Command::Capture(args) => capture::capture(global, &args)?,
        Command::Trace(arguments) => return trace::trace(global, &arguments),
        Command::Ping(arguments) => return trace::ping(global, arguments),
        Command::Traceroute(arguments) => return trace::traceroute(global, arguments),
        Command::Stdio => stdio::stdio(global)?,
        Command::Firewall(command) => firewall::run(global, command)?,
        Command::Schema { kind } => schema(kind, global.output)?,
        Command::Lab(command) => {
            let output = match global.output {
                Output::Table => segue_lab::cli::Output::Table,
                Output::Json => segue_lab::cli::Output::Json,
                Output::Yaml => {
                    return Err(target::WrongUsage("`segue lab` prints tables and JSON: use -o json".into()).into());
                }
            };
            return Ok(segue_lab::cli::run(command, output)?);
        }
        Command::Bench { args } => {
            return program::become_one("bench", "segue-bench", &args, &json_as(global, &["--json"]));
        }
        Command::Service { args } => {
            return program::become_one("service", "segue-service", &args, &json_as(global, &["-o", "json"]));
        }
        Command::Completion { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "segue", &mut text);
            output::print(&String::from_utf8_lossy(&text))?;
        }
        Command::Man { directory } => clap_mangen::generate_to(Cli::command(), &directory)
            .with_context(|| format!("{}: give a directory that can be written", directory.display()))?,
        Command::Version => version(global)?,
    }
    Ok(0)
}

/// How another program is told that JSON is wanted, if it is.
fn json_as<'a>(global: &Global, words: &'a [&'a str]) -> Vec<&'a str> {
    if global.output == Output::Json { words.to_vec() } else { Vec::new() }
}

fn schema(kind: SchemaKind, output: Output) -> Result<()> {
    let schema = match kind {
        SchemaKind::Node => schemars::schema_for!(segue_model::node::NodeState),
        SchemaKind::Topology => schemars::schema_for!(segue_model::topology::Topology),
        SchemaKind::Nodes => schemars::schema_for!(segue_model::reach::Nodes),
    };
    output::structured(&schema, output)
}

#[derive(Serialize)]
struct Versions {
    segue: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    agents: Vec<Version>,
}

fn version(global: &Global) -> Result<()> {
    // Without an agent there is just this program to tell of, unless one was asked for by name.
    let asked = global.socket.is_some() || global.lab.is_some() || global.node.is_some();
    let mut agents = Vec::new();
    for target in target::all(global)? {
        match target.client().get("/v1/version") {
            Ok(version) => agents.push(version),
            Err(error) if asked => return Err(error.into()),
            Err(_) => {}
        }
    }
    let versions = Versions { segue: VERSION, agents };
    if global.output != Output::Table {
        return output::structured(&versions, global.output);
    }
    let mut text = format!("segue {}\n", versions.segue);
    for agent in &versions.agents {
        let node = if agent.node.is_empty() { String::new() } else { format!(" on {}", agent.node) };
        text.push_str(&format!("segued {}{node} (data plane ABI {})\n", agent.version, agent.abi));
    }
    output::print(&text)
}
