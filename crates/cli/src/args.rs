//! The command line.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use segue_api::client::Condition;
use segue_lab::{
    cli::LabCommand,
    trace::{
        TraceArguments,
        ping::{EchoArguments, RouteArguments},
    },
};

/// With the commit, where it is known.
pub const VERSION: &str = env!("SEGUE_VERSION");

/// Where `segued` listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/segue/segued.sock";

const EXAMPLES: &str = "\
Examples:
  segue apply node.yaml                 make this node what the file says, or leave it as it is
  segue get sids                        local SIDs with counters and kernel routes
  segue top                             packets/s and bits/s of ports, SIDs and policies
  segue drops                           what was dropped, why, and the last such packet
  segue lab up examples/main-job.yaml   a whole topology in network namespaces
  segue --lab main-job get chains       what every node of a lab does for each chain
  segue --lab main-job --node nfv1 top
  segue capture -w - | tshark -r -      packets as the data plane sees them

Exit status: 0 done, 1 failed, 2 wrong usage.";

/// Service chaining with Segment Routing on a stock Linux kernel.
#[derive(Debug, Parser)]
#[command(name = "segue", version = VERSION, after_help = EXAMPLES)]
pub struct Cli {
    /// Options of all subcommands.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of all subcommands.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Socket of the agent to talk to [default: /run/segue/segued.sock]
    #[arg(id = "agent_socket", long = "socket", global = true, value_name = "PATH", conflicts_with_all = ["of_lab", "of_node"])]
    pub socket: Option<PathBuf>,
    /// Talk to the agents of this lab; without --node, `get`, `top` and `drops` show all of its nodes
    #[arg(id = "of_lab", long = "lab", global = true, value_name = "LAB")]
    pub lab: Option<String>,
    /// Talk to the agent of this node of the lab (of the only lab if --lab is not given)
    #[arg(id = "of_node", long = "node", global = true, value_name = "NODE")]
    pub node: Option<String>,
    /// How to print
    #[arg(
        id = "output_format",
        short = 'o',
        long = "format",
        global = true,
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub output: Output,
}

/// How lists are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make the node what a file says: all of it, or nothing
    #[command(after_help = "\
The state is checked here first, so that errors name file and line. When the kernel refuses a part, everything is put back.

Examples:
  segue apply node.yaml
  segue apply node.yaml --dry-run
  segue get revision && segue get state > node.yaml   # then edit it, and nobody else's change is undone:
  segue apply node.yaml --if-revision REVISION
  segue --lab main-job --node edge1 apply edge1.yaml")]
    Apply {
        /// Desired state (YAML or JSON; `-` for stdin)
        file: PathBuf,
        /// Only check whether it could be applied, and show what would change
        #[arg(long)]
        dry_run: bool,
        /// Refuse if another state is applied than this one, as `segue get revision` says it; `none`: if any is
        #[arg(long, value_name = "REVISION", value_parser = condition)]
        if_revision: Option<Condition>,
    },
    /// Show what applying a file would change
    #[command(after_help = "Example:\n  segue diff node.yaml")]
    Diff {
        /// Desired state (YAML or JSON; `-` for stdin)
        file: PathBuf,
    },
    /// Show configuration with counters
    #[command(after_help = "\
Examples:
  segue get sids
  segue --lab main-job get chains
  segue get state -o yaml > node.yaml
  segue get ports -o json | jq '.[] | select(.up == false)'")]
    Get {
        /// What to show
        what: What,
    },
    /// Live counters: packets and bits per second of ports, SIDs and policies
    #[command(after_help = "\
Examples:
  segue top
  segue --lab main-job top --interval 2
  segue top --once -o json")]
    Top(TopArgs),
    /// What was dropped: by node, port and reason, with the headers of the last such packet
    #[command(after_help = "Examples:\n  segue drops\n  segue --lab main-job drops -o json")]
    Drops,
    /// Look at the node for what loses packets, or will, and say what to do
    #[command(after_help = "\
Looks at the kernel, interfaces, addresses, routing tables, neighbours, MTUs, SIDs, functions and the boundary. Nothing is changed and no
traffic sent, but that neighbours are asked for. Exit status 1 if something is wrong.

Examples:
  segue doctor
  segue doctor --all                  what is well, too
  segue --lab main-job doctor
  segue doctor -o json | jq '.[] | select(.result == \"wrong\")'")]
    Doctor {
        /// Show what is well, too
        #[arg(long)]
        all: bool,
    },
    /// Capture packets as the data plane sees them (tcpdump does not see what XDP forwards)
    #[command(after_help = "\
Prints one line per packet, or JSON lines with -o json; -w writes pcapng for Wireshark.

Examples:
  segue capture --port eth0 --count 10
  segue capture --seconds 5 -w trace.pcapng
  segue --lab main-job --node nfv1 capture -w - | tshark -r - -V")]
    Capture(CaptureArgs),
    /// Say what happens to one packet: simulate it from what the nodes have, then send a marked probe and observe it wherever it comes by
    #[command(after_help = "\
First what configurations and routing tables say: rule, policy, segment list, SIDs, functions, firewalls, routes, with the counter of each; then
what happens to a probe that looks like the packet. In a lab the probe is really sent by the kernel of a host, or put in at a port (--ingress); on
deployed nodes it is put in at a port. Labels work for --to. Exit status 1 if it did not arrive as it should, or the two differ.

Examples:
  segue --lab main-job trace inspected
  segue --lab main-job trace inspected --reverse --ipv4
  segue trace --from client --to server --protocol tcp --destination-port 443
  segue --lab main-job trace --pcap odd.pcapng --number 7 --ingress edge1:client
  segue trace inspected --length 1500 -o json | jq '.verdict, .station, .reason'
  segue trace --ingress eth1 --source 2001:db8:1::2 --to 2001:db8:2::2 --simulate     on a deployed node: its part
  segue trace --nodes nodes.yaml --ingress edge1:eth1 --source 2001:db8:1::2 --to 2001:db8:2::2")]
    Trace(TraceArguments),
    /// Ping a SID or an address, also by way of a segment list (RFC 9259)
    #[command(after_help = "\
Exit status 1 if nothing was answered. Needs root: it sends raw packets.

Examples:
  segue ping fc00:5e9:2:100::
  segue ping fc00:5e9:3:46:: --segments fc00:5e9:2:1::
  segue --lab main-job --node edge1 ping '$nfv1.firewall'
  segue --lab main-job --node edge1 ping '$edge2.end-dt46' --segments '$nfv1.end' --oam")]
    Ping(EchoArguments),
    /// Find out by which nodes a SID or an address is reached, also by way of a segment list (RFC 9259)
    #[command(after_help = "\
Each line is a node that the request came to with its last hop, and how far the segment list was then.

Examples:
  segue traceroute fc00:5e9:3:46::
  segue --lab main-job --node edge1 traceroute '$edge2.end-dt46' --segments '$nfv1.end'")]
    Traceroute(RouteArguments),
    /// Talk to the agent's socket by standard input and output: what `connect` in a file of nodes starts on the other machine
    #[command(
        after_help = "Example, in a file for `segue trace --nodes`:\n  nodes: {nfv1: {connect: [ssh, root@nfv1, segue, stdio]}}"
    )]
    Stdio,
    /// Firewalls: rules with counters, the switch, checks of rule files
    #[command(subcommand)]
    Firewall(FirewallCommand),
    /// Print the JSON Schema of what an operator writes
    #[command(after_help = "Example:\n  segue schema topology > topology.schema.json")]
    Schema {
        /// Which file's
        kind: SchemaKind,
    },
    /// Topologies in network namespaces of this machine
    #[command(subcommand)]
    Lab(LabCommand),
    /// Measure Segue against its peers on this machine
    #[command(
        disable_help_flag = true,
        after_help = "Runs the program segue-bench with these arguments; `segue bench --help` is its help."
    )]
    Bench {
        /// Arguments of segue-bench
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<OsString>,
    },
    /// Packet services in user space: run, list, top, logs, reload
    #[command(
        disable_help_flag = true,
        after_help = "Runs the program segue-service with these arguments; `segue service --help` is its help."
    )]
    Service {
        /// Arguments of segue-service
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<OsString>,
    },
    /// Print completions for a shell
    #[command(after_help = "\
Examples:
  segue completion bash > /etc/bash_completion.d/segue
  segue completion zsh > ~/.zfunc/_segue
  segue completion fish > ~/.config/fish/completions/segue.fish")]
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Write man pages into a directory
    #[command(hide = true)]
    Man {
        /// An existing directory
        directory: PathBuf,
    },
    /// Versions of this program, and of the agent if one answers
    Version,
}

/// What to do with firewalls.
#[derive(Debug, Subcommand)]
pub enum FirewallCommand {
    /// Show rules with their counters
    #[command(
        after_help = "Examples:\n  segue firewall show\n  segue firewall show fw1 --never-hit\n  segue firewall show fw1 -o json\n  segue firewall show fw1 --form iptables\n  segue firewall show fw1 --form save > rules.v6"
    )]
    Show {
        /// Only this one
        name: Option<String>,
        /// How rules are printed; not with -o json or yaml, which have all of it
        #[arg(long, value_enum, default_value_t = FirewallForm::Table)]
        form: FirewallForm,
        /// Only rules that no packet has hit yet
        #[arg(long)]
        never_hit: bool,
    },
    /// Filter again
    #[command(after_help = "Example:\n  segue firewall on fw1")]
    On {
        /// Which one
        name: String,
    },
    /// Let every packet pass, unfiltered and uncounted
    #[command(after_help = "Example:\n  segue firewall off fw1")]
    Off {
        /// Which one
        name: String,
    },
    /// Say which rules a packet would be compared with, which it would hit, and why not the others
    #[command(after_help = "\
Examples:
  segue firewall explain fw1 --source fd00::1 --destination fd00::2 --protocol tcp --destination-port 22 --state new
  segue firewall explain fw1 --source fd00::1 --destination fd00::2 --segments fc00:0:1:a1::,fc00:0:2:: --outer-source fd00::9
  segue firewall explain fw1 --source fd00::1 --destination fd00::2 --labels 15010,16002/5,17010
  tcpdump -xx -r file.pcap -c 1 | segue firewall explain fw1 --hex -
  segue firewall explain fw1 --pcap file.pcapng --number 7")]
    Explain {
        /// Which firewall
        name: String,
        /// The packet
        #[command(flatten)]
        packet: Box<PacketArgs>,
    },
    /// Read rule files and say what is wrong with them; no agent is needed
    #[command(
        after_help = "Examples:\n  segue firewall check rules.v6\n  segue firewall check --ipv4 --sets sets.ipset rules.v4\n  segue firewall check --ipv4 --skip-unsupported docker.v4"
    )]
    Check {
        /// Files of ip6tables-save (with --ipv4: of iptables-save), or in YAML if the name ends so
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// The files are rules for IPv4
        #[arg(long)]
        ipv4: bool,
        /// Files of ipset save that the rules name
        #[arg(long = "sets", value_name = "FILE")]
        sets: Vec<PathBuf>,
        /// SERA's advanced mode: -s and -d are those of the outermost header
        #[arg(long)]
        advanced: bool,
        /// The built-in chain that packets meet (`hook` of the firewall)
        #[arg(long, value_name = "CHAIN", default_value = "FORWARD")]
        hook: String,
        /// Leave out, with a warning, other tables than filter and rules without which no more packets pass (`unsupported: skip`)
        #[arg(long)]
        skip_unsupported: bool,
    },
}

/// A label stack entry as one writes it: `LABEL[/TC[/TTL]]`. As it lies in a stack, but for the bottom of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelArg(pub u32);

impl std::str::FromStr for LabelArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("{text:?} is no LABEL[/TC[/TTL]]: up to 1048575, 7 and 255");
        let mut parts = text.split('/');
        let mut number = |default: Option<u32>, last: u32| match parts.next() {
            None => default.ok_or_else(error),
            Some(part) => part.parse().ok().filter(|number| *number <= last).ok_or_else(error),
        };
        let (label, class, ttl) = (number(None, (1 << 20) - 1)?, number(Some(0), 7)?, number(Some(64), 255)?);
        match parts.next() {
            None => Ok(Self(label << 12 | class << 9 | ttl)),
            Some(_) => Err(error()),
        }
    }
}

/// A packet: by its fields (those of the inner packet where it is steered), as octets, or from a capture file.
#[derive(Debug, Clone, Args)]
pub struct PacketArgs {
    /// Its source address, which says whether it is IPv4 or IPv6
    #[arg(long, value_name = "ADDRESS", required_unless_present_any = ["hex", "pcap"], requires = "destination")]
    pub source: Option<std::net::IpAddr>,
    /// Its destination address
    #[arg(long, value_name = "ADDRESS", requires = "source")]
    pub destination: Option<std::net::IpAddr>,
    /// tcp, udp, icmp, icmpv6, sctp or a number
    #[arg(long, default_value = "udp")]
    pub protocol: segue_model::value::Protocol,
    /// Source port
    #[arg(long, value_name = "PORT")]
    pub source_port: Option<u16>,
    /// Destination port
    #[arg(long, value_name = "PORT")]
    pub destination_port: Option<u16>,
    /// TCP: octet 13 of its header, such as 2 for SYN
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    pub tcp_flags: u8,
    /// ICMP: type
    #[arg(long, value_name = "NUMBER", default_value_t = 128)]
    pub icmp_type: u8,
    /// ICMP: code
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub icmp_code: u8,
    /// Layer 3 octets
    #[arg(long, value_name = "OCTETS", default_value_t = 100)]
    pub length: u32,
    /// It has an SRH with these segments, in the order in which they are visited
    #[arg(long, value_name = "SID,...", value_delimiter = ',', requires = "source")]
    pub segments: Vec<std::net::Ipv6Addr>,
    /// Segments Left of the SRH: the first segment is active unless given
    #[arg(long, value_name = "NUMBER", requires = "segments")]
    pub segments_left: Option<u8>,
    /// Tag of the SRH
    #[arg(long, value_name = "NUMBER", requires = "segments", default_value_t = 0)]
    pub tag: u16,
    /// It is encapsulated, and this is the outer source; without it the SRH was inserted into its own header
    #[arg(long, value_name = "ADDRESS", requires = "segments")]
    pub outer_source: Option<std::net::Ipv6Addr>,
    /// It has come by the first of these labels, which is the firewall's own, with the others behind it; TC is 0 and TTL 64 unless given
    #[arg(
        long,
        value_name = "LABEL[/TC[/TTL]],...",
        value_delimiter = ',',
        requires = "source",
        conflicts_with = "segments"
    )]
    pub labels: Vec<LabelArg>,
    /// The packet in hexadecimal, as tcpdump, tshark, xxd and hexdump -C print it or without any order; - reads standard input
    #[arg(long, value_name = "OCTETS", conflicts_with_all = ["source", "pcap"])]
    pub hex: Option<String>,
    /// All packets of this capture file, pcap or pcapng
    #[arg(long, value_name = "FILE", conflicts_with = "source")]
    pub pcap: Option<PathBuf>,
    /// Of the capture file only this packet, counted from 1
    #[arg(long, value_name = "NUMBER", requires = "pcap")]
    pub number: Option<usize>,
    /// Interface that it comes in by
    #[arg(long, value_name = "INTERFACE")]
    pub ingress: Option<String>,
    /// Interface that it leaves by: that of the route to the next segment, or to a plain packet's destination
    #[arg(long, value_name = "INTERFACE")]
    pub egress: Option<String>,
    /// Firewall mark that it has before the first rule
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub mark: u32,
    /// State of its connection
    #[arg(long, value_enum, default_value_t = StateArg::New)]
    pub state: StateArg,
    /// It goes back to the side that began the connection
    #[arg(long)]
    pub reply: bool,
    /// Packets of its address that a list of `-m recent` has noted; may be given several times
    #[arg(long, value_name = "LIST=PACKETS", value_parser = recent)]
    pub recent: Vec<(String, u32)>,
    /// Show every rule that it is compared with, not only those that it hits or hardly misses
    #[arg(long)]
    pub all: bool,
}

fn recent(text: &str) -> Result<(String, u32), String> {
    let (list, packets) = text.rsplit_once('=').ok_or("give the name of a list, = and a number of packets")?;
    Ok((list.to_owned(), packets.parse().map_err(|_| format!("{packets:?} is no number of packets"))?))
}

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StateArg {
    /// No packet of it was accepted yet, or it was not answered yet
    New,
    /// Both sides have sent
    Established,
    /// An ICMP error about a known connection
    Related,
    /// It fits no connection
    Invalid,
    /// Not looked up
    Untracked,
}

/// How `firewall show` prints rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FirewallForm {
    /// One line for each rule, with its counters
    Table,
    /// As `iptables -L -n -v --line-numbers`
    Iptables,
    /// As `iptables-save -c`
    Save,
}

/// What `get` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Local SIDs with behaviour, counters and kernel route
    Sids,
    /// SR policies with segment lists
    Policies,
    /// This node's part in each chain
    Chains,
    /// Functions that are watched: up or down, and why
    Functions,
    /// Network interfaces that Segue forwards on
    Ports,
    /// Which traffic goes into which policy
    Steering,
    /// Paths that turned out to be narrower than their first link
    PathMtus,
    /// Drops by port and reason
    Drops,
    /// What became of all packets, by port
    Outcomes,
    /// The desired state that was applied last
    State,
    /// Which state that is: a hash of what it says, for `apply --if-revision`
    Revision,
}

/// Which schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaKind {
    /// Of a node's desired state
    Node,
    /// Of a topology
    Topology,
    /// Of a file of nodes, and how their agents are reached
    Nodes,
}

/// Arguments of `top`.
#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
    /// Print one reading and end
    #[arg(long)]
    pub once: bool,
    /// Also rows without traffic
    #[arg(long)]
    pub all: bool,
}

/// Arguments of `capture`.
#[derive(Debug, Clone, Args)]
pub struct CaptureArgs {
    /// Only this port; may be given several times
    #[arg(long = "port", value_name = "NAME")]
    pub ports: Vec<String>,
    /// End after this many packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// End after this many seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
    /// Write pcapng to this file; `-` for stdout
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

fn condition(text: &str) -> Result<Condition, String> {
    if text == "none" { Ok(Condition::Nothing) } else { text.parse().map(Condition::Is) }
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds from 0.1 to 3600".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_may_stand_behind_the_subcommand() {
        let cli = Cli::parse_from(["segue", "get", "sids", "--lab", "x", "--node", "n", "-o", "json"]);
        assert_eq!(cli.global.lab.as_deref(), Some("x"));
        assert_eq!(cli.global.output, Output::Json);
        assert!(Cli::try_parse_from(["segue", "get", "sids", "--lab", "x", "--socket", "y"]).is_err());
    }

    #[test]
    fn lab_arguments_do_not_collide_with_global_ones() {
        let cli = Cli::parse_from(["segue", "lab", "exec", "x", "n", "--", "ip", "-o", "link"]);
        assert!(cli.global.lab.is_none());
        assert!(matches!(cli.command, Command::Lab(LabCommand::Exec { lab, command, .. })
            if lab == "x" && command == ["ip", "-o", "link"]));
    }

    #[test]
    fn every_subcommand_says_what_it_does() {
        fn check(command: &clap::Command) {
            for sub in command.get_subcommands() {
                assert!(sub.get_about().is_some(), "`{}` has no help", sub.get_name());
                check(sub);
            }
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} of `{}` has no help", argument.get_id(), command.get_name());
            }
        }
        check(&Cli::command());
    }
}
