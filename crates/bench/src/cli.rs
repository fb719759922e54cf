//! `segue bench`.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use segue_model::node::PortMode;

use crate::an_nf::{self, Point};
use crate::cli_figures::{self, Subject};
use crate::contest::{self, Effort, First};
use crate::cpu::{self, Pinned};
use crate::error::{Error, Result};
use crate::firewall::{self, Form};
use crate::firewall_rules::Last;
use crate::function::Vnf;
use crate::hosts::{self, Kind, Through};
use crate::proxy::{self, Course, Proxy};
use crate::report::Report;
use crate::scenario::{DEFAULT_SIZE, Engine, Napi, Redirect, SIZES, Scenario};
use crate::topology::Shape;
use crate::traffic::FLOWS_MAX;
use crate::{
    classify, connector, conntrack_flood, cost, interrupt, lookup_case, netns, plot, plot_curves, plot_rules, service,
    service_soak, wrong_header,
};

/// Length of a run.
const SECONDS: f64 = 1.0;
/// Length of a run of a firewall: dozens of points.
const FIREWALL_SECONDS: f64 = 0.25;
/// Length of a flood.
const FLOOD_SECONDS: f64 = 60.0;

/// Where Segue meets packets between hosts.
const OURS: PortMode = PortMode::Skb;

/// Measure Segue's data plane beside the kernel's, in network namespaces of its own, on one processor.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Needs root. Everything that a run sets up is removed again, also after Ctrl-C.\n\
    docs/developing/benchmarks.md explains the method and how to read the figures.")]
pub struct Args {
    /// What to measure. `cost`: cycles of the program alone, behaviour by behaviour. `all`: all of it
    #[arg(value_enum)]
    pub scenario: Choice,
    /// With what to compare: the kernel's seg6 (receiving with GRO, or with an XDP program that passes), or a bare redirect; tcp,
    /// udp-gso: also plain forwarding, and Segue on XDP
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
    /// Length of one run in seconds; 1 if not given, 0.25 for firewall-*, which have many, 60 for service-soak and each kind of conntrack-flood
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Different flows in the traffic, at most 16384
    #[arg(long, default_value_t = 64, value_parser = flows)]
    pub flows: u32,
    /// proxy-*: chains through the one function, 1 to 16384; several separated by commas. What the proxy can do if not given
    #[arg(long, value_name = "CHAINS", value_delimiter = ',', value_parser = flows)]
    pub chains: Vec<u32>,
    /// service-forward: what the service is compared with
    #[arg(long, value_enum, default_value = "kernel")]
    pub course: service::Course,
    /// proxy-*, wrong-header: what the function does; what the proxy can do with if not given
    #[arg(long, value_enum)]
    pub function: Option<Vnf>,
    /// tcp, udp-gso: through a function with nftables rules at the middle node, by this proxy of ours
    #[arg(long, value_enum)]
    pub through: Option<Through>,
    /// end, end-dx6, end-dx4, h-encaps, h-encaps-v4, mpls-*: our ports are on socket buffers, not on XDP
    #[arg(long)]
    pub skb: bool,
    /// wrong-header: packets for each memory, both processors together
    #[arg(long, default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000_000))]
    pub packets: u64,
    /// wrong-header: seconds between two rounds of changes to the data plane, each an upgrade, a growth of a table and an apply; 0:
    /// it is left alone
    #[arg(long, default_value_t = 1.0, value_parser = pause)]
    pub every: f64,
    /// firewall-*: numbers of rules, 1 to 100000, separated by commas; 1, 2, 4 ... 512, 4096 and 10000 if not given
    #[arg(long, value_name = "RULES", value_delimiter = ',', default_values_t = firewall::RULES, hide_default_value = true)]
    pub rules: Vec<usize>,
    /// firewall-*: what the last rule does, which is the only one that matches
    #[arg(long, value_enum, default_value = "drop")]
    pub last: Last,
    /// service-forward --course program: a program that runs services, such as `python3 SERVICE.py`; its first one is measured
    #[arg(long, value_name = "WORDS")]
    pub program: Option<String>,
    /// cost, an-nf: only behaviours or points with this text in their names; service-tcp and those behind it: only such figures
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
    /// PUSH of two labels; --vs bare
    MplsPush,
    /// PUSH of ten labels; --vs bare
    #[value(name = "mpls-push-10")]
    MplsPush10,
    /// A label swapped; --vs bare
    MplsSwap,
    /// A label popped; --vs bare
    MplsPop,
    /// End.AS through a function
    ProxyAs,
    /// End.AD through a function, header remembered by interface
    ProxyAd,
    /// End.AD through a function, header remembered by flow
    ProxyAdFlow,
    /// End.AM through a function
    ProxyAm,
    /// End.AD through a function, header remembered by packet
    ProxyExact,
    /// End.AN.NF beside the kernel's End and its End.DT with H.Encaps
    AnNf,
    /// A service in user space that lets every packet go on, beside the kernel's End in its place and in the node's
    ServiceForward,
    /// A service that counts copies, all of them whole or 1 in 100, beside the same path without copies
    ServiceCounter,
    /// The service `forward`, flooded and at ease by turns: whether memory, frames and accounts hold; no rate
    ServiceSoak,
    /// TCP through the services `forward` and `counter`, and without: by segment size, processor, threads, ring size
    ServiceTcp,
    /// The services `compress` and `decompress`: what is saved, and how fast, by algorithm and payload
    Compress,
    /// TCP through the services `bulk` and `debulk`: rate and packets spared, by path MTU and delay
    Bulk,
    /// TCP through the service `tcp-bulk`: rate and packets spared, by threads, buffer size, delay, parallel clients
    TcpBulk,
    /// The service `refragment`: rate and what is put together, by order and loss
    Refragment,
    /// TCP through the service `tun`, with programs at its device
    Tun,
    /// Firewall on plain packets over the number of rules, beside ip6tables and nft
    FirewallPlain,
    /// Firewall on encapsulated packets, inner addresses compared, beside ip6tables and nft on plain packets
    FirewallBasicEncap,
    /// The same with an inserted SRH
    FirewallBasicInsert,
    /// Firewall on encapsulated packets, outer and inner addresses compared
    FirewallAdvancedEncap,
    /// The same with an inserted SRH
    FirewallAdvancedInsert,
    /// H.Encaps with 10 to 100,000 flow descriptors, and with more flows than the flow cache holds
    Classify,
    /// Success ratio and CPU use over offered rates, and what a packet costs
    Connector,
    /// Two processors, 10,000 chains, every packet's steering header compared; no rate
    WrongHeader,
    /// One TCP connection between hosts with their own offloads, through three nodes
    Tcp,
    /// UDP with segmentation offload between hosts, through three nodes
    UdpGso,
    /// SYNs as fast as one processor makes them: whether handshakes and connections survive, there and in the neighbour
    ConntrackFlood,
    /// Cycles of the program alone, every behaviour
    Cost,
    /// All of these but wrong-header, conntrack-flood and service-soak
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
    /// tcp, udp-gso: the kernel's IPv6 forwarding without a steering header
    Plain,
    /// tcp, udp-gso: Segue with its ports on XDP
    Xdp,
}

/// One thing to measure.
#[derive(Debug, Clone, Copy)]
enum Task {
    Forward(Scenario),
    Proxy(Proxy),
    AnNf,
    ServiceForward,
    ServiceCounter,
    ServiceSoak,
    Figures(Subject),
    Firewall(Form),
    Classify,
    Connector,
    Hosts(Kind),
    WrongHeader,
    ConntrackFlood,
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
            Self::MplsPush => vec![Task::Forward(Scenario::MplsPush)],
            Self::MplsPush10 => vec![Task::Forward(Scenario::MplsPush10)],
            Self::MplsSwap => vec![Task::Forward(Scenario::MplsSwap)],
            Self::MplsPop => vec![Task::Forward(Scenario::MplsPop)],
            Self::ProxyAs => vec![Task::Proxy(Proxy::ProxyAs)],
            Self::ProxyAd => vec![Task::Proxy(Proxy::ProxyAd)],
            Self::ProxyAdFlow => vec![Task::Proxy(Proxy::ProxyAdFlow)],
            Self::ProxyAm => vec![Task::Proxy(Proxy::ProxyAm)],
            Self::ProxyExact => vec![Task::Proxy(Proxy::ProxyExact)],
            Self::AnNf => vec![Task::AnNf],
            Self::ServiceForward => vec![Task::ServiceForward],
            Self::ServiceCounter => vec![Task::ServiceCounter],
            Self::ServiceSoak => vec![Task::ServiceSoak],
            Self::ServiceTcp => vec![Task::Figures(Subject::ServiceTcp)],
            Self::Compress => vec![Task::Figures(Subject::Compress)],
            Self::Bulk => vec![Task::Figures(Subject::Bulk)],
            Self::TcpBulk => vec![Task::Figures(Subject::TcpBulk)],
            Self::Refragment => vec![Task::Figures(Subject::Refragment)],
            Self::Tun => vec![Task::Figures(Subject::Tun)],
            Self::FirewallPlain => vec![Task::Firewall(Form::Plain)],
            Self::FirewallBasicEncap => vec![Task::Firewall(Form::BasicEncap)],
            Self::FirewallBasicInsert => vec![Task::Firewall(Form::BasicInsert)],
            Self::FirewallAdvancedEncap => vec![Task::Firewall(Form::AdvancedEncap)],
            Self::FirewallAdvancedInsert => vec![Task::Firewall(Form::AdvancedInsert)],
            Self::Classify => vec![Task::Classify],
            Self::Connector => vec![Task::Connector],
            Self::Tcp => vec![Task::Hosts(Kind::Tcp)],
            Self::UdpGso => vec![Task::Hosts(Kind::UdpGso)],
            Self::WrongHeader => vec![Task::WrongHeader],
            Self::ConntrackFlood => vec![Task::ConntrackFlood],
            Self::Cost => vec![Task::Cost],
            Self::All => {
                let forward = Scenario::value_variants().iter().copied().map(Task::Forward);
                let proxies = Proxy::ALL.map(Task::Proxy);
                let firewalls = Form::ALL.map(Task::Firewall);
                let hosts = [Kind::Tcp, Kind::UdpGso].map(Task::Hosts);
                let others = [
                    Task::AnNf,
                    Task::ServiceForward,
                    Task::ServiceCounter,
                    Task::Classify,
                    Task::Connector,
                    Task::Cost,
                ];
                let figures = Subject::ALL.map(Task::Figures);
                forward.chain(proxies).chain(firewalls).chain(hosts).chain(others).chain(figures).collect()
            }
        }
    }
}

fn octets(text: &str) -> std::result::Result<usize, String> {
    let octets = text.parse::<usize>().ok().filter(|octets| SIZES.contains(octets));
    octets.ok_or_else(|| format!("{} to {} octets", SIZES.start(), SIZES.end()))
}

fn flows(text: &str) -> std::result::Result<u32, String> {
    let flows = text.parse::<u32>().ok().filter(|flows| (1..=FLOWS_MAX).contains(flows));
    flows.ok_or_else(|| format!("1 to {FLOWS_MAX} flows"))
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("0.01 to 3600 seconds".into()),
    }
}

fn pause(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("0 to 60 seconds".into()),
    }
}

/// Measures what `args` say and prints the result.
///
/// # Errors
/// If it cannot be measured; what was printed until then holds.
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
    interrupt::watch();
    netns::remove_stale();
    // Without a rate there is nothing that other programs could disturb, and both processors would be taken from them.
    let pinned = cpu::pin(args.cpu, !args.no_real_time && args.scenario != Choice::WrongHeader)?;
    for task in tasks {
        let (name, reports) = match task {
            Task::Forward(scenario) => (scenario.name(), forward(args, scenario, &pinned)?),
            Task::Proxy(proxy) => (proxy.name(), proxies(args, proxy, &pinned)?),
            Task::AnNf => ("an-nf", an_nf(args, &pinned)?),
            Task::Hosts(kind) => (kind.name(), vec![pinned.released(|| between_hosts(args, kind))??]),
            Task::ServiceForward => ("service-forward", services(args, Some(args.course), &pinned)?),
            Task::ServiceCounter => ("service-counter", services(args, None, &pinned)?),
            Task::ServiceSoak => {
                soak(args, &pinned)?;
                continue;
            }
            Task::Figures(subject) => {
                figures(args, subject, &pinned)?;
                continue;
            }
            Task::Firewall(form) => {
                firewalls(args, form, &pinned)?;
                continue;
            }
            Task::Classify => {
                classify(args, &pinned)?;
                continue;
            }
            Task::Connector => {
                connector(args, &pinned)?;
                continue;
            }
            Task::WrongHeader => {
                wrong_headers(args)?;
                continue;
            }
            Task::ConntrackFlood => {
                conntrack_floods(args)?;
                continue;
            }
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

fn figures(args: &Args, subject: Subject, pinned: &Pinned) -> Result<()> {
    progress(subject.name());
    let wanted = cli_figures::Wanted {
        figures: &args.behaviour,
        may_be_none: args.scenario == Choice::All,
        rounds: args.rounds.into(),
        seconds: args.seconds,
        json: args.json,
        svg: args.svg.as_deref(),
        output: args.output.as_deref(),
    };
    pinned.released(|| cli_figures::run(&wanted, subject))?
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

/// `service-forward` in a course, or `service-counter`.
fn services(args: &Args, course: Option<service::Course>, pinned: &Pinned) -> Result<Vec<Report>> {
    let effort = effort(args);
    let mut reports = Vec::new();
    for octets in &args.sizes {
        progress(&format!("service with {octets} inner octets"));
        let measured = match course {
            Some(course) => service::forward(course, args.program.as_deref(), *octets, &effort, pinned)?,
            None => service::counter(*octets, &effort, pinned)?,
        };
        for report in measured {
            show(args, &report);
            reports.push(report);
        }
    }
    Ok(reports)
}

fn soak(args: &Args, pinned: &Pinned) -> Result<()> {
    let seconds = args.seconds.unwrap_or(FLOOD_SECONDS);
    progress(&format!("service-soak for {seconds} s"));
    let octets = args.sizes.first().copied().unwrap_or(DEFAULT_SIZE);
    let found = service_soak::run(octets, args.flows, Duration::from_secs_f64(seconds), pinned)?;
    let text = if args.json { to_json(&found) } else { found.to_string() };
    let _ = writeln!(std::io::stdout(), "{text}");
    found.verdict()
}

fn forward(args: &Args, scenario: Scenario, pinned: &Pinned) -> Result<Vec<Report>> {
    let effort = effort(args);
    let peer = match args.vs {
        PeerChoice::Kernel | PeerChoice::KernelXdp if scenario.is_by_labels() => {
            if args.scenario != Choice::All {
                let name = scenario.name();
                return Err(Error::Usage(format!(
                    "{name}: the bench does not set up the kernel's MPLS; use --vs bare"
                )));
            }
            Some(Engine::Bare(Redirect::Ifindex))
        }
        PeerChoice::Kernel => Some(Engine::Kernel(Napi::Gro)),
        PeerChoice::KernelXdp => Some(Engine::Kernel(Napi::Xdp)),
        PeerChoice::Bare => Some(Engine::Bare(Redirect::Ifindex)),
        PeerChoice::Plain | PeerChoice::Xdp => None,
    };
    let Some(peer) = peer else {
        return Err(Error::Usage(
            "--vs plain and --vs xdp are for tcp and udp-gso: use kernel, kernel-xdp or bare".into(),
        ));
    };
    let ours = if args.skb { Engine::SegueSkb } else { Engine::Segue };
    let mut reports = Vec::new();
    for octets in &args.sizes {
        progress(&format!("{} with {octets} inner octets", scenario.name()));
        let report = contest::run(scenario, *octets, [ours, peer], &effort, pinned)?;
        show(args, &report);
        reports.push(report);
    }
    Ok(reports)
}

fn effort(args: &Args) -> Effort {
    let run = Duration::from_secs_f64(args.seconds.unwrap_or(SECONDS));
    Effort { rounds: usize::from(args.rounds), run, paced: run / 2, flows: args.flows, first: First::WHOLE }
}

fn proxies(args: &Args, proxy: Proxy, pinned: &Pinned) -> Result<Vec<Report>> {
    if args.vs != PeerChoice::Kernel {
        return Err(Error::Usage("proxies can be compared with the kernel only: --vs kernel".into()));
    }
    let functions = args.function.map_or_else(|| proxy.functions().to_vec(), |function| vec![function]);
    let chains = if args.chains.is_empty() { proxy.chains() } else { &args.chains };
    let mut reports = Vec::new();
    for vnf in functions {
        for chains in chains {
            for octets in &args.sizes {
                progress(&format!("{}, {}, {chains} chains", proxy.name(), vnf.name()));
                let shape = Shape::default();
                let course = Course {
                    vnf,
                    octets: *octets,
                    chains: *chains,
                    flows: args.flows,
                    same_flow: false,
                    small_tables: false,
                    shape,
                };
                let report = proxy::run(proxy, &course, &effort(args), pinned)?;
                show(args, &report);
                reports.push(report);
            }
        }
    }
    Ok(reports)
}

fn an_nf(args: &Args, pinned: &Pinned) -> Result<Vec<Report>> {
    let mut reports = Vec::new();
    for point in Point::all().into_iter().filter(|point| point.name().contains(&args.behaviour)) {
        progress(&format!("an-nf, {point:?}"));
        for report in an_nf::run(&point, &effort(args), pinned)? {
            show(args, &report);
            reports.push(report);
        }
    }
    Ok(reports)
}

fn between_hosts(args: &Args, kind: Kind) -> Result<Report> {
    let peer = match args.vs {
        PeerChoice::Kernel => hosts::Engine::Kernel,
        PeerChoice::Plain => hosts::Engine::Plain,
        PeerChoice::Xdp => hosts::Engine::Segue(PortMode::Xdp),
        PeerChoice::KernelXdp | PeerChoice::Bare => {
            return Err(Error::Usage(format!("{}: compare with --vs kernel, plain or xdp", kind.name())));
        }
    };
    progress(&format!("{} between hosts, beside {}", kind.name(), peer.name()));
    let run = Duration::from_secs_f64(args.seconds.unwrap_or(SECONDS));
    let ours = hosts::Engine::Segue(OURS);
    if ours == peer {
        return Err(Error::Usage("Segue is on XDP here itself: compare with --vs kernel or plain".into()));
    }
    if args.through.is_some() && peer == hosts::Engine::Plain {
        return Err(Error::Usage("nothing leads plain packets through a function: compare with --vs kernel".into()));
    }
    let course = hosts::Course { kind, ours, peer, through: args.through, rounds: usize::from(args.rounds), run };
    let report = hosts::run(&course)?;
    show(args, &report);
    Ok(report)
}

fn connector(args: &Args, pinned: &Pinned) -> Result<()> {
    progress("connector: success ratio and CPU use over the offered rate");
    let octets = args.sizes.first().copied().unwrap_or(DEFAULT_SIZE);
    let all = connector::run(octets, &effort(args), pinned)?;
    for found in &all {
        let text = if args.json { to_json(found) } else { found.to_string() };
        let _ = writeln!(std::io::stdout(), "{text}");
    }
    if let Some(file) = &args.svg {
        plot_curves::connector(file, &all)?;
    }
    if let Some(directory) = &args.output {
        plot_curves::connector(&directory.join("connector.svg"), &all)?;
        let file = directory.join("connector.json");
        let lines: String = all.iter().map(|found| to_json(found) + "\n").collect();
        std::fs::write(&file, lines).map_err(Error::file(&file.display().to_string()))?;
    }
    Ok(())
}

fn firewalls(args: &Args, form: Form, pinned: &Pinned) -> Result<()> {
    progress(&format!("{} with {:?} rules", form.name(), args.rules));
    let octets = args.sizes.first().copied().unwrap_or(DEFAULT_SIZE);
    let course = firewall::Course { form, last: args.last, octets, rules: args.rules.clone() };
    let run = Duration::from_secs_f64(args.seconds.unwrap_or(FIREWALL_SECONDS));
    let found = firewall::run(&course, &Effort { run, ..effort(args) }, pinned, |report| show(args, report))?;
    let title = format!("{}, one processor", form.name());
    let draw = |file: &Path| plot_rules::rules(file, &title, "rules", &found.curves);
    if let Some(file) = &args.svg {
        draw(file)?;
    }
    if let Some(directory) = &args.output {
        draw(&directory.join(format!("{}.svg", form.name())))?;
        let file = directory.join(format!("{}.json", form.name()));
        let lines: String = found.reports.iter().map(|report| json(report) + "\n").collect();
        std::fs::write(&file, lines).map_err(Error::file(&file.display().to_string()))?;
    }
    Ok(())
}

fn classify(args: &Args, pinned: &Pinned) -> Result<()> {
    progress("classify with 10 to 100,000 descriptors");
    let octets = args.sizes.first().copied().unwrap_or(DEFAULT_SIZE);
    let found = classify::run(octets, &effort(args), pinned, |report| show(args, report))?;
    let title = "H.Encaps behind flow descriptors, one processor";
    let draw = |file: &Path| plot_rules::rules(file, title, "flow descriptors", &found.curves);
    if let Some(file) = &args.svg {
        draw(file)?;
    }
    if let Some(directory) = &args.output {
        draw(&directory.join("classify.svg"))?;
        let file = directory.join("classify.json");
        let lines: String = found.reports.iter().map(|report| json(report) + "\n").collect();
        std::fs::write(&file, lines).map_err(Error::file(&file.display().to_string()))?;
    }
    Ok(())
}

fn wrong_headers(args: &Args) -> Result<()> {
    for proxy in wrong_header::MEMORIES {
        let chains = args.chains.first().copied().unwrap_or(wrong_header::CHAINS);
        progress(&format!("wrong-header, {}, {chains} chains, {} packets", proxy.name(), args.packets));
        let every = Duration::from_secs_f64(args.every);
        let found = wrong_header::run(proxy, chains, args.packets, args.function, every)?;
        let text = if args.json { to_json(&found) } else { found.to_string() };
        let _ = writeln!(std::io::stdout(), "{text}");
        found.verdict()?;
    }
    Ok(())
}

fn conntrack_floods(args: &Args) -> Result<()> {
    let seconds = args.seconds.unwrap_or(FLOOD_SECONDS);
    let mut verdict = Ok(());
    for kind in conntrack_flood::Kind::ALL {
        progress(&format!("conntrack-flood of {kind} for {seconds} s"));
        let found = conntrack_flood::run(kind, Duration::from_secs_f64(seconds), 0)?;
        let text = if args.json { to_json(&found) } else { found.to_string() };
        let _ = writeln!(std::io::stdout(), "{text}");
        verdict = verdict.and(found.verdict());
    }
    verdict
}

fn costs(args: &Args, pinned: &Pinned) -> Result<Vec<Report>> {
    // A packet takes about 100 ns, the harness around it included.
    let packets = (args.seconds.unwrap_or(SECONDS) * 1e6) as u32;
    let effort = cost::Effort { rounds: usize::from(args.rounds), packets: packets.max(1 << 18) };
    progress("cost of every behaviour");
    let mut reports = lookup_case::run(&args.behaviour, effort.rounds, pinned, |report| show(args, report))?;
    if reports.is_empty() || cost::has(&args.behaviour) {
        reports.extend(cost::run(&args.behaviour, effort, pinned, |report| show(args, report))?);
    }
    Ok(reports)
}

fn draw(file: &Path, task: Task, reports: &[Report]) -> Result<()> {
    match task {
        Task::Forward(scenario) => {
            plot::rates(file, &format!("{}, one processor, two veth hops", scenario.name()), reports)
        }
        Task::Proxy(_) | Task::AnNf | Task::ServiceForward | Task::ServiceCounter => {
            plot::pairs(file, "through a function, one processor", reports)
        }
        Task::Classify
        | Task::Firewall(_)
        | Task::Connector
        | Task::Hosts(_)
        | Task::Figures(_)
        | Task::WrongHeader
        | Task::ServiceSoak
        | Task::ConntrackFlood => Ok(()),
        Task::Cost => plot::costs(file, "cost of the program alone", reports),
    }
}

fn json(report: &Report) -> String {
    to_json(report)
}

fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
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
            ("end --flows 0", "1 to 16384 flows"),
            ("end --flows 16385", "1 to 16384 flows"),
            ("end --rounds 0", "1..=1000"),
            ("end --seconds 0", "0.01 to 3600 seconds"),
            ("end --vs vpp", "kernel"),
            ("end.x", "end-dx6"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(remedy), "{line}: {error}");
        }
    }

    #[test]
    fn all_is_every_choice_that_measures() {
        let others = [Choice::All, Choice::WrongHeader, Choice::ConntrackFlood, Choice::ServiceSoak];
        let each: usize = Choice::value_variants()
            .iter()
            .filter(|choice| !others.contains(choice))
            .map(|choice| choice.tasks().len())
            .sum();
        assert_eq!(Choice::All.tasks().len(), each);
    }
}
