//! The command line: `segue-service`, which `segue service` runs.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use segue_services::compression::{Dictionary, dictionary};
use serde_json::Value;

use crate::control;
use crate::error::{Error, Result};
use crate::running::{self, Kinds, Running};

/// Runs packet services in user space, and lists those that run
#[derive(Debug, Parser)]
#[command(name = "segue-service", version = env!("SEGUE_VERSION"))]
pub struct Command {
    #[command(subcommand)]
    action: Action,
    /// How lists are written
    #[arg(short = 'o', long = "output", value_enum, default_value = "table", global = true)]
    output: Output,
    /// Where services that run have their control sockets
    #[arg(long, global = true, default_value_os_t = running::directory())]
    directory: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Runs what a file says, until it is told to stop (SIGTERM); SIGHUP reads the file again
    Run {
        /// YAML: service, config, interface, workers ..
        file: PathBuf,
        /// Control socket; NAME.socket in the directory if not given
        #[arg(long)]
        socket: Option<PathBuf>,
        /// Network namespace to enter first
        #[arg(long)]
        netns: Option<String>,
        /// Starts the service again when it dies; its interface is down meanwhile, so that the node sees it
        #[arg(long)]
        restart: bool,
        /// Takes the place of the process that runs the same service now, which hands over; no packet is lost
        #[arg(long)]
        take_over: bool,
    },
    /// Says what is wrong with a file
    Check {
        /// The file
        file: PathBuf,
    },
    /// Services that run here
    List,
    /// The same, again and again
    Top {
        /// Seconds between two looks
        #[arg(long, default_value_t = 1.0)]
        interval: f64,
        /// How often; for ever if not given
        #[arg(long)]
        count: Option<u64>,
    },
    /// Makes a service read its file again; no packet is lost
    Reload {
        /// Its name
        name: String,
    },
    /// Makes a service work off what it has, and end
    Stop {
        /// Its name
        name: String,
    },
    /// What a service has said
    Logs {
        /// Its name
        name: String,
    },
    /// Services that can be run
    Kinds,
    /// JSON Schema of a service's configuration, or of the file that `run` takes
    Schema {
        /// The service
        name: Option<String>,
    },
    /// Makes a crate with a service of one's own, which builds and has tests
    #[command(
        after_help = "Example, in a checkout of Segue:\n  segue service new my-service && cd my-service && cargo test"
    )]
    New {
        /// Its name: lower-case letters, digits and hyphens
        name: String,
        /// Where the crate's directory goes; here if not given
        #[arg(long = "in", value_name = "DIRECTORY", default_value = ".")]
        place: PathBuf,
        /// Checkout of Segue that it builds on; that which the current directory lies in if not given
        #[arg(long, value_name = "DIRECTORY")]
        segue: Option<PathBuf>,
    },
    /// What the services compress and decompress need
    Compress {
        #[command(subcommand)]
        action: CompressAction,
    },
    /// Writes man pages, for the package recipe
    #[command(hide = true)]
    Man {
        /// Where to
        directory: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
enum CompressAction {
    /// Makes a dictionary for `algorithm: zstd` of packets like those that it is for
    #[command(
        after_help = "The dictionary goes into `dictionary:` of compress and of decompress, on all nodes the same file.\n\n\
                            Example:\n  segue service compress train web.pcapng --dictionary web.zdict"
    )]
    Train {
        /// Capture (pcap or pcapng) with a hundred times as many octets as the dictionary is to have; of steered packets what is
        /// behind the outer IPv6 header counts
        capture: PathBuf,
        /// File to write it to
        #[arg(long)]
        dictionary: PathBuf,
        /// Most octets that it may have
        #[arg(long, default_value_t = dictionary::DEFAULT_SIZE, value_parser = size)]
        size: usize,
    },
}

/// Octets that a dictionary can have.
fn size(text: &str) -> std::result::Result<usize, String> {
    let size = text.parse().map_err(|_| "a number of octets is wanted".to_owned())?;
    let possible = 256..=dictionary::LARGEST;
    possible.contains(&size).then_some(size).ok_or_else(|| format!("use 256 to {} octets", dictionary::LARGEST))
}

/// Does what the command line says. `words`: what starts this program again; its process's own file if there are none.
///
/// # Errors
/// What went wrong.
pub fn main(command: &Command, kinds: Kinds, words: &[OsString]) -> Result<()> {
    let json = command.output == Output::Json;
    match &command.action {
        Action::Run { file, socket, netns, restart, take_over } => {
            if let Some(name) = netns {
                enter(name)?;
            }
            let (running, _) = Running::read(file, kinds)?;
            let socket = socket.clone().unwrap_or_else(|| command.directory.join(format!("{}.socket", running.name())));
            if *restart {
                crate::supervise::run(file, &running, &socket, *take_over, words)
            } else if *take_over {
                crate::take_over(file, Some(socket), kinds)
            } else {
                crate::run(file, Some(socket), kinds)
            }
        }
        Action::Check { file } => {
            let (running, _) = Running::read(file, kinds)?;
            say(&format!("{}: {} can run\n", file.display(), running.name()))
        }
        Action::List => say(&listed(&command.directory, json)?),
        Action::Top { interval, count } => top(&command.directory, json, *interval, *count),
        Action::Reload { name } => order(&command.directory, name, "reload"),
        Action::Stop { name } => order(&command.directory, name, "stop"),
        Action::Logs { name } => logs(&command.directory, name),
        Action::Kinds => say(&listed_kinds(kinds, json)),
        Action::Schema { name } => schema(kinds, name.as_deref()),
        Action::New { name, place, segue } => {
            let root = crate::new::make(name, place, segue.as_deref())?;
            say(&format!("{0}: try it with `cargo test` there; src/lib.rs is where it begins\n", root.display()))
        }
        Action::Compress { action: CompressAction::Train { capture, dictionary, size } } => {
            train(capture, dictionary, *size)
        }
        Action::Man { directory } => clap_mangen::generate_to(<Command as clap::CommandFactory>::command(), directory)
            .map_err(Error::file("write man pages to", directory, "give a directory that can be written")),
    }
}

fn train(capture: &Path, to: &Path, size: usize) -> Result<()> {
    let octets =
        std::fs::read(capture).map_err(Error::file("read", capture, "name a capture, such as tcpdump -w writes"))?;
    let frames = segue_api::pcap::frames(&octets).map_err(std::io::Error::other).map_err(Error::file(
        "train on",
        capture,
        "name a pcap or pcapng file of Ethernet frames",
    ))?;
    let samples = dictionary::samples(&frames);
    let trained = Dictionary::train(&samples, size).map_err(std::io::Error::other);
    let trained =
        trained.map_err(Error::file("train on", capture, "capture more packets, or take a smaller --size"))?;
    std::fs::write(to, trained.octets()).map_err(Error::file(
        "write",
        to,
        "name a file in a directory that can be written",
    ))?;
    say(&format!(
        "{}: {} octets from {} packets of {} frames; its compression parameter index is {}\n",
        to.display(),
        trained.octets().len(),
        samples.len(),
        frames.len(),
        trained.cpi()
    ))
}

fn enter(name: &str) -> Result<()> {
    let entered = segue_host::Namespace::open(name).and_then(|namespace| namespace.enter_for_good());
    entered.map_err(|error| Error::Usage(error.to_string()))
}

fn say(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // Who reads has gone: `segue service list | head`.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::file("write to", Path::new("/dev/stdout"), "see where the output goes")(error))
        }
        _ => Ok(()),
    }
}

fn order(directory: &Path, name: &str, word: &str) -> Result<()> {
    let missing = || Error::NotRunning { name: name.to_owned() };
    let socket = control::find(directory, name)?.ok_or_else(missing)?;
    control::ask(&socket, word)?.map(drop).ok_or_else(missing)
}

fn logs(directory: &Path, name: &str) -> Result<()> {
    let socket = control::find(directory, name)?.ok_or_else(|| Error::NotRunning { name: name.to_owned() })?;
    // Who starts services with a log puts it beside the socket: the lab does.
    let log = socket.with_extension("log");
    let remedy = "see where what has started the service puts its standard error: the journal, or a terminal";
    say(&std::fs::read_to_string(&log).map_err(Error::file("read", &log, remedy))?)
}

fn statuses(directory: &Path) -> Result<Vec<Value>> {
    let all = control::sockets(directory);
    // One that does not answer has died; its socket is only a leftover.
    all.iter().filter_map(|socket| control::ask(socket, "status").transpose()).collect()
}

fn listed(directory: &Path, json: bool) -> Result<String> {
    let statuses = statuses(directory)?;
    if json {
        return Ok(format!("{:#}\n", Value::from(statuses)));
    }
    let header = ["NAME", "SERVICE", "MODE", "INTERFACE", "WORKERS", "RECEIVED", "SENT", "DROPPED", "HELD"];
    let rows = statuses.iter().map(|status| {
        let total = &status["total"];
        let sum = |keys: &[&str]| keys.iter().filter_map(|key| total[key].as_u64()).sum::<u64>().to_string();
        let rows = ["dropped_received", "dropped_taken", "dropped_own"].iter().filter_map(|key| total[key].as_object());
        let dropped: u64 = rows.flat_map(|row| row.values()).filter_map(Value::as_u64).sum();
        let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
        // Copies are not sent: their packets went on by XDP.
        let sent =
            if status["mode"] == "synchronous" { sum(&["onward", "back", "own_out"]) } else { sum(&["own_out"]) };
        [
            text("name"),
            text("service"),
            text("mode"),
            text("interface"),
            status["workers"].as_array().map_or(0, Vec::len).to_string(),
            sum(&["received"]),
            sent,
            dropped.to_string(),
            status["held"].to_string(),
        ]
    });
    Ok(table(&header, rows))
}

fn table<const N: usize>(header: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let all: Vec<[String; N]> = std::iter::once(header.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    all.iter().map(line).collect()
}

fn top(directory: &Path, json: bool, interval: f64, count: Option<u64>) -> Result<()> {
    let pause = Duration::try_from_secs_f64(interval)
        .map_err(|_| Error::Usage(format!("--interval {interval} is no time; give seconds above 0")))?;
    let mut looks = 0;
    loop {
        let text = listed(directory, json)?;
        // From the top of the screen, where there is one.
        let clear = if json || !std::io::IsTerminal::is_terminal(&std::io::stdout()) { "" } else { "\x1b[H\x1b[2J" };
        say(&format!("{clear}{text}"))?;
        looks += 1;
        if count.is_some_and(|count| looks >= count) {
            return Ok(());
        }
        std::thread::sleep(pause);
    }
}

fn listed_kinds(all: Kinds, json: bool) -> String {
    if json {
        let kinds = all.iter().map(|kind| serde_json::json!({ "name": kind.name(), "about": kind.about() }));
        return format!("{:#}\n", Value::from(kinds.collect::<Vec<_>>()));
    }
    table(&["NAME", "WHAT IT DOES"], all.iter().map(|kind| [kind.name().to_owned(), kind.about().to_owned()]))
}

fn schema(kinds: Kinds, name: Option<&str>) -> Result<()> {
    let schema = match name {
        Some(name) => kinds
            .iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| Error::Usage(format!("there is no service {name:?}; see `segue service kinds`")))?
            .schema(),
        None => schemars::schema_for!(Running).to_value(),
    };
    say(&format!("{schema:#}\n"))
}
