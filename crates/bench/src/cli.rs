//! `segue bench`.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::contest::{self, Effort};
use crate::cpu::{self, Pinned};
use crate::error::{Error, Result};
use crate::report::Report;
use crate::scenario::{DEFAULT_SIZE, Engine, Napi, Redirect, SIZES, Scenario};
use crate::{cost, interrupt, netns, plot};

/// Measure Segue's data plane beside the kernel's, in network namespaces of its own, on one processor.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Needs root. Everything that a run sets up is removed again, also after Ctrl-C.\n\
    docs/benchmarks.md explains the method and how to read the figures.")]
pub struct Args {
    /// What to measure. `cost`: clocks of the program alone, behaviour by behaviour. `all`: all of it
    #[arg(value_enum)]
    pub scenario: Choice,
    /// With what to compare: the kernel's seg6 (receiving with GRO, or with an XDP program that passes), or a bare redirect
    #[arg(long, value_enum, value_name = "PEER", default_value = "kernel")]
    pub vs: PeerChoice,
    /// Print one JSON object a line, one for each measurement
    #[arg(long)]
    pub json: bool,
    /// Octets of the inner packet, 64 to 1400; several separated by commas
    #[arg(long, value_name = "OCTETS", value_delimiter = ',', default_values_t = [DEFAULT_SIZE], value_parser = octets)]
    pub sizes: Vec<usize>,
    /// Rounds; each runs every engine once
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// Length of one run in seconds
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    /// Different flows in the traffic, a power of two up to 4096
    #[arg(long, default_value_t = 64, value_parser = flows)]
    pub flows: u32,
    /// cost: only behaviours with this text in their names
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub behaviour: String,
    /// Processor to measure on; the last one if not given
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Do not ask for a real-time priority: other programs then disturb the figures
    #[arg(long)]
    pub no_real_time: bool,
    /// Draw the result into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write a JSON file and a plot for each scenario into this directory
    #[arg(long, value_name = "DIRECTORY")]
    pub output: Option<PathBuf>,
}

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// End: Segments Left 1 to 0
    End,
    /// End.DX6
    EndDx6,
    /// End.DX4
    EndDx4,
    /// H.Encaps with two segments, inner IPv6
    HEncaps,
    /// H.Encaps with two segments, inner IPv4
    HEncapsV4,
    /// Clocks of the program alone, every behaviour
    Cost,
    /// All of these
    All,
}

/// With what to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PeerChoice {
    /// The kernel, receiving through NAPI that GRO turned on
    Kernel,
    /// The kernel, receiving through an XDP program that passes everything
    KernelXdp,
    /// An XDP program that only writes MAC addresses and redirects
    Bare,
}

/// One thing to measure.
#[derive(Debug, Clone, Copy)]
enum Task {
    Forward(Scenario),
    Cost,
}

impl Choice {
    fn tasks(self) -> Vec<Task> {
        match self {
            Self::End => vec![Task::Forward(Scenario::End)],
            Self::EndDx6 => vec![Task::Forward(Scenario::EndDx6)],
            Self::EndDx4 => vec![Task::Forward(Scenario::EndDx4)],
            Self::HEncaps => vec![Task::Forward(Scenario::HEncaps)],
            Self::HEncapsV4 => vec![Task::Forward(Scenario::HEncapsV4)],
            Self::Cost => vec![Task::Cost],
            Self::All => Scenario::value_variants().iter().copied().map(Task::Forward).chain([Task::Cost]).collect(),
        }
    }
}

fn octets(text: &str) -> std::result::Result<usize, String> {
    let octets = text.parse::<usize>().ok().filter(|octets| SIZES.contains(octets));
    octets.ok_or_else(|| format!("{} to {} octets", SIZES.start(), SIZES.end()))
}

fn flows(text: &str) -> std::result::Result<u32, String> {
    let flows = text.parse::<u32>().ok().filter(|flows| flows.is_power_of_two() && *flows <= 4096);
    flows.ok_or_else(|| "a power of two, 1 to 4096".into())
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("0.01 to 60 seconds".into()),
    }
}

/// Measures what `args` say and prints the result.
///
/// # Errors
/// If it can not be measured; what was printed until then holds.
pub fn run(args: &Args) -> Result<()> {
    let tasks = args.scenario.tasks();
    if args.svg.is_some() && tasks.len() > 1 {
        return Err(Error::Usage("--svg draws one scenario; use --output DIRECTORY for several".into()));
    }
    // Said before minutes of measuring, not after.
    if let Some(directory) = args.svg.as_deref().and_then(Path::parent).filter(|path| !path.as_os_str().is_empty())
        && !directory.is_dir()
    {
        return Err(Error::Usage(format!("--svg: there is no directory {}", directory.display())));
    }
    if !nix::unistd::Uid::effective().is_root() {
        return Err(Error::Usage(
            "segue bench makes network namespaces and loads eBPF programs: run it as root".into(),
        ));
    }
    if let Some(directory) = &args.output {
        std::fs::create_dir_all(directory).map_err(Error::file(&directory.display().to_string()))?;
    }
    let _alone = alone()?;
    interrupt::watch()?;
    netns::remove_stale();
    let pinned = cpu::pin(args.cpu, !args.no_real_time)?;
    for task in tasks {
        let (name, reports) = match task {
            Task::Forward(scenario) => (scenario.name(), forward(args, scenario, &pinned)?),
            Task::Cost => ("cost", costs(args, &pinned)?),
        };
        if let Some(file) = &args.svg {
            draw(file, task, &reports)?;
        }
        if let Some(directory) = &args.output {
            draw(&directory.join(format!("{name}.svg")), task, &reports)?;
            let file = directory.join(format!("{name}.json"));
            let lines: String = reports.iter().map(|report| json(report) + "\n").collect();
            std::fs::write(&file, lines).map_err(Error::file(&file.display().to_string()))?;
        }
    }
    Ok(())
}

/// Two measurements at a time would measure each other: the second one waits until the first one is over.
fn alone() -> Result<Flock<File>> {
    const DIRECTORY: &str = "/run/segue";
    const PATH: &str = "/run/segue/bench.lock";
    std::fs::create_dir_all(DIRECTORY).map_err(Error::file(DIRECTORY))?;
    let open = || File::create(PATH).map_err(Error::file(PATH));
    match Flock::lock(open()?, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((file, Errno::EWOULDBLOCK)) => {
            eprintln!("another `segue bench` runs (it holds {PATH}): waiting for its end ...");
            Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| Error::system("lock bench.lock")(error))
        }
        Err((_, error)) => Err(Error::system("lock bench.lock")(error)),
    }
}

fn forward(args: &Args, scenario: Scenario, pinned: &Pinned) -> Result<Vec<Report>> {
    let run = Duration::from_secs_f64(args.seconds);
    let effort = Effort { rounds: usize::from(args.rounds), run, paced: run / 2, flows: args.flows };
    let peer = match args.vs {
        PeerChoice::Kernel => Engine::Kernel(Napi::Gro),
        PeerChoice::KernelXdp => Engine::Kernel(Napi::Xdp),
        PeerChoice::Bare => Engine::Bare(Redirect::Ifindex),
    };
    let mut reports = Vec::new();
    for octets in &args.sizes {
        progress(&format!("{} with {octets} inner octets", scenario.name()));
        let report = contest::run(scenario, *octets, peer, &effort, pinned)?;
        show(args, &report);
        reports.push(report);
    }
    Ok(reports)
}

fn costs(args: &Args, pinned: &Pinned) -> Result<Vec<Report>> {
    // A packet takes about 100 ns, the harness around it included.
    let packets = (args.seconds * 1e6) as u32;
    let effort = cost::Effort { rounds: usize::from(args.rounds), packets: packets.max(1 << 18) };
    progress("cost of every behaviour");
    cost::run(&args.behaviour, effort, pinned, |report| show(args, report))
}

fn draw(file: &Path, task: Task, reports: &[Report]) -> Result<()> {
    match task {
        Task::Forward(scenario) => {
            plot::rates(file, &format!("{}, one processor, two veth hops", scenario.name()), reports)
        }
        Task::Cost => plot::costs(file, "cost of the program alone", reports),
    }
}

fn json(report: &Report) -> String {
    serde_json::to_string(report).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
}

/// Tells a person what takes so long.
fn progress(what: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("measuring {what} ...");
    }
}

fn show(args: &Args, report: &Report) {
    let text = if args.json { json(report) } else { format!("{}\n{report}", report.scenario) };
    // A reader that went away (`| head`) is no reason to end a measurement in a panic.
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> std::result::Result<Args, String> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        Command::try_parse_from(words).map(|command| command.args).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_is_consistent() {
        Command::command().debug_assert();
    }

    #[test]
    fn the_contract_of_the_design_is_accepted() {
        let args = parse("h-encaps --vs kernel --json").unwrap();
        assert_eq!((args.scenario, args.vs, args.json), (Choice::HEncaps, PeerChoice::Kernel, true));
        assert_eq!((args.sizes, args.rounds), (vec![112], 7));
        assert_eq!(parse("end --sizes 64,1400").unwrap().sizes, [64, 1400]);
    }

    #[test]
    fn what_can_not_be_measured_is_a_usage_error_that_says_what_can() {
        for (line, remedy) in [
            ("end --sizes 63", "64 to 1400 octets"),
            ("end --sizes 64,1401", "64 to 1400 octets"),
            ("end --flows 3", "a power of two"),
            ("end --flows 8192", "a power of two"),
            ("end --rounds 0", "1..=1000"),
            ("end --seconds 0", "0.01 to 60 seconds"),
            ("end --vs vpp", "kernel"),
            ("end.x", "end-dx6"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(remedy), "{line}: {error}");
        }
    }

    #[test]
    fn all_is_every_scenario_and_cost() {
        assert_eq!(Choice::All.tasks().len(), Scenario::value_variants().len() + 1);
    }
}
