//! Command line of `segued`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  segued --config /etc/segue/node.yaml
  segued --netns blue --socket /run/segue/blue.sock --pin-dir /run/segue/bpf/blue --state-dir /var/lib/segue/blue
  segued clean                 remove all that segued made on this node

Forwarding does not need the agent: when it ends, the data plane stays (unless --detach-on-exit), and the next start
takes it over without losing a packet. Talk to it with `segue`, or with
  curl --unix-socket /run/segue/segued.sock http://segued/v1/state";

/// The agent of one Segue node: makes the node what one YAML file says, and serves an API on a Unix socket.
#[derive(Debug, Clone, Parser)]
#[command(name = "segued", version = env!("SEGUE_VERSION"), after_help = EXAMPLES)]
pub struct Options {
    /// Desired state (YAML) to apply at start; without it, what was applied last
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Unix socket of the API
    #[arg(long, global = true, value_name = "PATH", default_value = "/run/segue/segued.sock")]
    pub socket: PathBuf,
    /// Directory for pinned programs and maps; a BPF file system is mounted at /run/segue/bpf if none is there
    #[arg(long, global = true, value_name = "DIR", default_value = "/run/segue/bpf/default")]
    pub pin_dir: PathBuf,
    /// Directory for what must survive a restart
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/lib/segue")]
    pub state_dir: PathBuf,
    /// Network namespace to work in: a name as `ip netns` has it, or a path
    #[arg(long, global = true, value_name = "NAME|PATH")]
    pub netns: Option<String>,
    /// TCP address on which to serve /metrics for Prometheus, such as [::1]:9430; reachable from the namespace
    #[arg(long, value_name = "ADDR")]
    pub metrics_listen: Option<SocketAddr>,
    /// What to log: a level (error, warn, info, debug) or a tracing filter
    #[arg(long, global = true, value_name = "FILTER", default_value = "info,libbpf=error")]
    pub log: String,
    /// On SIGTERM or SIGINT remove the data plane, routes and all, instead of leaving it running
    #[arg(long)]
    pub detach_on_exit: bool,
    /// Something else than to run
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Something else than to run.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Remove everything that segued made on this node: links, pins, routes, keys, its record; the agent must not run
    Clean,
    /// Write man pages into a directory
    #[command(hide = true)]
    Man {
        /// An existing directory
        directory: PathBuf,
    },
}
