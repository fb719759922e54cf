//! `segue lab`: its arguments, and what each subcommand prints.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};

pub use crate::capture::CaptureArguments;
use crate::error::{LabError, Result};
use crate::names::{self, Roots};
pub use crate::output::Output;
use crate::progress::Progress;
use crate::state::LabRecord;
use crate::topology::generate::{self, Shape};
use crate::topology::{clab, dot, ntfl, svg};
use crate::{
    attach, debug, demo, down, exec, explain, functions, gather, labels, list, recorder, relay, reload, state, traffic,
    up,
};

/// Topologies in network namespaces.
#[derive(Debug, Clone, Subcommand)]
pub enum LabCommand {
    /// Bring up a topology: namespaces, links, addresses, routes, functions, agents
    #[command(
        after_help = "A failed `up` takes down again what it made. The lab is called as the topology's `name` says."
    )]
    Up {
        /// Topology file (YAML; `-` for stdin)
        file: PathBuf,
    },
    /// Remove a lab: processes, pinned objects, namespaces, records; also what a crash left
    Down {
        /// Name of the lab, or the topology file that it was made from
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        lab: Option<String>,
        /// Every lab on this machine
        #[arg(long)]
        all: bool,
    },
    /// Show the labs of this machine with their nodes, agents and sockets
    List,
    /// Show what the planner makes of a topology, and why (needs no root, changes nothing)
    #[command(after_help = "Examples:\n  segue lab plan examples/main-job.yaml\n  make-topology | segue lab plan -")]
    Plan {
        /// Topology file (YAML; `-` for stdin)
        file: PathBuf,
    },
    /// Turn another format's topology file into one of ours, on standard output
    #[command(after_help = "Example:\n  segue lab import ntfl network.ntfl > network.yaml")]
    Import {
        /// The format
        format: ImportFormat,
        /// The file
        file: PathBuf,
        /// Name of the lab; that of the file if not given
        #[arg(long)]
        name: Option<String>,
    },
    /// Print a topology in another format: a picture (svg), Graphviz (dot), containerlab (clab)
    #[command(
        after_help = "Examples:\n  segue lab export svg examples/ten-nodes.yaml > ten-nodes.svg\n  segue lab export dot examples/ten-nodes.yaml | dot -Tpdf > ten-nodes.pdf\n  segue lab export clab examples/main-job.yaml --directory main-job"
    )]
    Export {
        /// The format
        format: ExportFormat,
        /// Topology file (YAML)
        file: PathBuf,
        /// clab: write LAB.clab.yml and the files that it needs into this directory, instead of printing it
        #[arg(long, value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
    },
    /// Print a topology made by a rule, with two hosts, a function and a chain
    #[command(
        after_help = "Examples:\n  segue lab generate ring --nodes 8 > ring.yaml\n  segue lab generate random --nodes 20 --seed 7 > random.yaml"
    )]
    Generate {
        /// The shape
        shape: Shape,
        /// How many nodes
        #[arg(long, value_name = "N")]
        nodes: usize,
        /// random: which graph
        #[arg(long, value_name = "S", default_value_t = 1)]
        seed: u64,
        /// Name of the lab; that of the shape if not given
        #[arg(long)]
        name: Option<String>,
    },
    /// Carry the packets of a lab's impaired links (`lab up` starts it)
    #[command(hide = true)]
    Relay {
        /// Name of the lab
        lab: String,
    },
    /// Write the captures of a lab (`lab up` starts it)
    #[command(hide = true)]
    Record {
        /// Name of the lab
        lab: String,
    },
    /// Send the packets of a traffic source of a lab (`lab up` starts it)
    #[command(hide = true)]
    Source {
        /// Name of the lab
        lab: String,
        /// Name of the source
        name: String,
    },
    /// Show what the traffic sources of a lab have sent, and what of it arrived
    #[command(
        after_help = "Sources are under `traffic` in the topology. Examples:\n  segue lab traffic main-job\n  segue lab traffic main-job --wait --strict -o json"
    )]
    Traffic {
        /// Name of the lab
        lab: String,
        /// Wait until all sources have ended
        #[arg(long)]
        wait: bool,
        /// Exit status 1 unless every packet of every source has arrived once, in order and unchanged
        #[arg(long)]
        strict: bool,
    },
    /// List labels: names such as $nfv1, $nfv1.firewall and $chain.web for addresses, SIDs and segment lists
    #[command(
        after_help = "Labels work in `lab exec`, `lab capture` and chains of topologies; in a shell, quote them.\n\nExamples:\n  segue lab labels examples/main-job.yaml\n  segue lab labels main-job -o json\n  segue lab exec main-job client -- ping '$server'"
    )]
    Labels {
        /// Topology file (needs no root), or name of a lab that is up
        lab: String,
    },
    /// Run a command inside a node, host or function
    #[command(
        after_help = "The exit status is the command's. Only the network namespace changes, mounts stay. Labels such as $server in the command \
                      become what `segue lab labels` says of them; $$ is a $."
    )]
    Exec {
        /// Name of the lab
        lab: String,
        /// Node, host or function
        node: String,
        /// The command and its arguments
        #[arg(required = true, last = true)]
        command: Vec<String>,
    },
    /// Open tmux with a pane for each node, function and host
    #[command(
        after_help = "The session stays when you detach (Ctrl-b d), and ends with the lab. Example:\n  segue lab attach main-job"
    )]
    Attach {
        /// Name of the lab
        lab: String,
        /// Only make the session: `tmux -L segue-LAB attach` opens it
        #[arg(long)]
        detached: bool,
    },
    /// Open gdb on the process of a packet service, or of a function with one, in its namespace
    #[command(
        after_help = "While gdb holds a service, its packets wait in its ring, and then are lost. Examples:\n  segue lab gdb main-job count\n  segue lab gdb main-job count --batch\n  segue lab gdb main-job count -- -ex 'break segue_service::Engine::batch' -ex continue"
    )]
    Gdb {
        /// Name of the lab
        lab: String,
        /// The service or function
        service: String,
        /// Show where all threads are, and end
        #[arg(long)]
        batch: bool,
        /// More arguments of gdb
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Give a packet service its configuration anew from the topology's file, and its program if that was built since; no packet is lost
    #[command(after_help = "Example:\n  cargo build -p segue-runner && segue lab reload main-job count")]
    Reload {
        /// Name of the lab
        lab: String,
        /// The service
        service: String,
    },
    /// Capture packets of a node, link, SID or chain: on Segue nodes through the data plane, elsewhere with tcpdump
    #[command(
        after_help = "Of links, SIDs and chains one pcapng file with an interface for each node and port (node:port) and each packet's direction.\n\nExamples:\n  segue lab capture main-job nfv1 edge1\n  segue lab capture main-job edge1--nfv1 -w link.pcapng --seconds 5\n  segue lab capture main-job '$nfv1.firewall'\n  segue lab capture main-job '$chain.inspected' -w - | tshark -r -"
    )]
    Capture(CaptureArguments),
    /// Bring a topology up, send real traffic through its chain, show what happened, take it down
    #[command(after_help = "Exit status 1 if any check differed from what it should be.")]
    Demo {
        /// Topology file with hosts `client` and `server`, nodes and a chain, such as examples/main-job.yaml
        file: PathBuf,
        /// Leave it up afterwards
        #[arg(long)]
        keep: bool,
    },
}

/// What `lab import` reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ImportFormat {
    /// nanonet's: source, destination, weight and delay (ms) on each line
    Ntfl,
}

/// What `lab export` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Graphviz
    Dot,
    /// A picture
    Svg,
    /// containerlab
    Clab,
}

/// Runs a subcommand and returns the program's exit status.
///
/// # Errors
/// Whatever kept it from its job; to be shown on stderr, with exit status 1.
pub fn run(command: LabCommand, output: Output) -> Result<u8> {
    let roots = Roots::default();
    match command {
        LabCommand::Up { file } => up_command(&roots, &file, output),
        LabCommand::Down { lab, all } => down_command(&roots, lab.as_deref(), all, output),
        LabCommand::List => list_command(&roots, output),
        LabCommand::Plan { file } => plan_command(&file, output),
        LabCommand::Import { format: ImportFormat::Ntfl, file, name } => import_command(&file, name),
        LabCommand::Export { format, file, directory } => export_command(format, &file, directory.as_deref()),
        LabCommand::Generate { shape, nodes, seed, name } => {
            let of_shape = || shape.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
            print(&generate::generate(shape, nodes, seed, &name.unwrap_or_else(of_shape))?);
            Ok(0)
        }
        LabCommand::Relay { lab } => {
            need_root("relay")?;
            relay::run(&names::LabPaths::new(&roots, &lab)?)?;
            Ok(0)
        }
        LabCommand::Record { lab } => {
            need_root("record")?;
            recorder::run(&names::LabPaths::new(&roots, &lab)?)?;
            Ok(0)
        }
        LabCommand::Source { lab, name } => {
            need_root("source")?;
            traffic::run(&names::LabPaths::new(&roots, &lab)?, &name)?;
            Ok(0)
        }
        LabCommand::Traffic { lab, wait, strict } => traffic_command(&roots, &lab, wait, strict, output),
        LabCommand::Labels { lab } => labels_command(&roots, &lab, output),
        LabCommand::Exec { lab, node, command } => {
            need_root("exec")?;
            exec::exec(&roots, &lab, &node, &command)
        }
        LabCommand::Capture(arguments) => {
            need_root("capture")?;
            gather::run(&roots, &arguments)
        }
        LabCommand::Attach { lab, detached } => {
            need_root("attach")?;
            attach::attach(&roots, &lab, detached)
        }
        LabCommand::Gdb { lab, service, batch, arguments } => {
            need_root("gdb")?;
            debug::gdb(&roots, &lab, &service, batch, &arguments)
        }
        LabCommand::Reload { lab, service } => {
            need_root("reload")?;
            let done = reload::reload(&roots, &lab, &service)?;
            print(&match output {
                Output::Json => state::json(&done),
                Output::Table => reload::line(&done),
            });
            Ok(0)
        }
        LabCommand::Demo { file, keep } => {
            need_root("demo")?;
            demo::demo(&roots, &file, keep, output)
        }
    }
}

fn need_root(verb: &'static str) -> Result<()> {
    if nix::unistd::geteuid().is_root() { Ok(()) } else { Err(LabError::NotRoot { verb }) }
}

/// Prints to stdout; a reader that went away is no error.
fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

fn down_command(roots: &Roots, lab: Option<&str>, all: bool, output: Output) -> Result<u8> {
    need_root("down")?;
    let labs = match lab {
        Some(argument) if names::is_file_argument(argument) => vec![name_in_file(argument.as_ref())?],
        Some(name) => vec![name.to_owned()],
        None => {
            debug_assert!(all, "clap asks for a name or --all");
            down::known_labs(roots)
        }
    };
    let mut removed = Vec::new();
    let mut first_error = None;
    for lab in &labs {
        // One lab that resists must not keep the others.
        match down::down(roots, lab) {
            Ok(one) => removed.push(one),
            Err(error) => first_error = Some(first_error.unwrap_or(error)),
        }
    }
    match output {
        Output::Json => print(&state::json(&removed)),
        Output::Table if removed.is_empty() && first_error.is_none() => print("no labs\n"),
        Output::Table => {
            for one in &removed {
                print(&down_line(one));
            }
        }
    }
    first_error.map_or(Ok(0), Err)
}

fn down_line(removed: &down::Removed) -> String {
    if removed.nothing() {
        return format!("{}: nothing to remove\n", removed.lab);
    }
    format!(
        "{}: removed {} namespaces, {} processes, {} pinned objects\n",
        removed.lab, removed.namespaces, removed.processes, removed.pins
    )
}

fn list_command(roots: &Roots, output: Output) -> Result<u8> {
    let labs = list::list(roots);
    match output {
        Output::Json => print(&state::json(&labs)),
        Output::Table if labs.is_empty() => print("no labs\n"),
        Output::Table => print(&list::table(&labs)),
    }
    Ok(0)
}

fn import_command(file: &Path, name: Option<String>) -> Result<u8> {
    let text = std::fs::read_to_string(file).map_err(LabError::io("read", file, "give the path of an NTFL file"))?;
    let of_file = || {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
        let name: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(15).collect();
        if segue_model::check::is_lab_name(&name) { name } else { "imported".to_owned() }
    };
    print(&ntfl::import(&text, &file.display().to_string(), &name.unwrap_or_else(of_file))?);
    Ok(0)
}

fn export_command(format: ExportFormat, file: &Path, directory: Option<&Path>) -> Result<u8> {
    let loaded = up::load(file)?;
    let (topology, plan) = (&loaded.topology, &loaded.plan);
    let text = match format {
        ExportFormat::Dot => dot::export(topology, plan),
        ExportFormat::Svg => svg::export(topology, plan),
        ExportFormat::Clab => clab::export(topology, plan),
    };
    let Some(directory) = directory.filter(|_| format == ExportFormat::Clab) else {
        print(&text);
        return Ok(0);
    };
    std::fs::create_dir_all(directory).map_err(LabError::io("make directory", directory, "choose another place"))?;
    state::write_file(&directory.join(format!("{}.clab.yml", plan.name)), &text)?;
    for (name, text) in clab::states(plan).into_iter().chain(functions::rulesets(&loaded)?) {
        state::write_file(&directory.join(name), &text)?;
    }
    Ok(0)
}

fn traffic_command(roots: &Roots, lab: &str, wait: bool, strict: bool, output: Output) -> Result<u8> {
    let accounts = if wait { traffic::wait(roots, lab)? } else { traffic::accounts(roots, lab)? };
    match output {
        Output::Json => print(&state::json(&accounts)),
        Output::Table if accounts.is_empty() => print("no traffic in this lab's topology\n"),
        Output::Table => print(&traffic::table(&accounts)),
    }
    Ok(u8::from(strict && !accounts.iter().all(traffic::Account::is_flawless)))
}

fn labels_command(roots: &Roots, lab: &str, output: Output) -> Result<u8> {
    let labels = match names::is_file_argument(lab) {
        true => segue_wiring::Labels::of(&up::load(lab.as_ref())?.plan),
        false => labels::of_lab(&names::LabPaths::new(roots, lab)?)?,
    };
    match output {
        Output::Json => print(&state::json(&labels)),
        Output::Table => print(&labels::table(&labels)),
    }
    Ok(0)
}

fn up_command(roots: &Roots, file: &Path, output: Output) -> Result<u8> {
    let loaded = up::load(file)?;
    need_root("up")?;
    let begun = std::time::Instant::now();
    let record = up::up(roots, &loaded, &Progress::on_terminal())?;
    match output {
        Output::Json => print(&state::json(&record)),
        Output::Table => print(&up_line(&record, begun.elapsed())),
    }
    Ok(0)
}

fn up_line(record: &LabRecord, time: std::time::Duration) -> String {
    let agents = record.nodes.iter().filter(|node| node.agent.is_some()).count();
    format!(
        "{}: {} namespaces, {agents} agents, up in {:.1} s\n  next: segue lab list; segue lab exec {} NODE -- COMMAND; segue lab down {}\n",
        record.lab,
        record.namespaces(),
        time.as_secs_f64(),
        record.lab,
        record.lab
    )
}

fn plan_command(file: &Path, output: Output) -> Result<u8> {
    let loaded = up::load(file)?;
    match output {
        Output::Json => print(&state::json(&loaded.plan)),
        Output::Table => print(&explain::text(&loaded.plan)),
    }
    Ok(0)
}

/// The lab's name in a topology file; read loosely, because `down` must work with a file that is not valid any more.
fn name_in_file(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).map_err(LabError::io(
        "read",
        file,
        "give the lab's name, or the path of its topology file",
    ))?;
    let name =
        text.lines().find_map(|line| line.strip_prefix("name:")).map(|rest| rest.split(" #").next().unwrap_or(rest));
    match name {
        Some(name) => Ok(name.trim().trim_matches(['"', '\'']).to_owned()),
        None => up::load(file).map(|loaded| loaded.plan.name),
    }
}
