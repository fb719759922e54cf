//! What can go wrong between the agent and the kernel.

use std::path::PathBuf;

use segue_host::HostError;

use crate::CompileError;

/// A failure of the data plane. Unless the variant says otherwise, what was active before is still active.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host does not give what the pins need.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The configuration does not fit.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The pin directory is not on a BPF file system.
    #[error(
        "{path}: not on a BPF file system; mount one there (mount -t bpf bpf DIRECTORY) or choose another directory"
    )]
    NotBpffs {
        /// The directory.
        path: PathBuf,
    },
    /// A file operation in the pin directory failed.
    #[error("{path}: cannot {action}: {source}")]
    Pin {
        /// What was pinned, opened or removed.
        path: PathBuf,
        /// The operation.
        action: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// libbpf could not pin or open something.
    #[error("{path}: cannot {action}: {source}")]
    BpfPin {
        /// What was pinned or opened.
        path: PathBuf,
        /// The operation.
        action: &'static str,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// The data plane is not right on this machine's architecture.
    #[error(
        "the data plane is for x86_64, and this is {architecture}: it reads words that other CPUs write, and relies on x86_64's order of \
         loads and of stores; run it on x86_64"
    )]
    Architecture {
        /// The machine's, as Rust names it.
        architecture: &'static str,
    },
    /// The kernel did not take a program, or libbpf the object.
    #[error(
        "the XDP programs do not load: {source}; run as root on Linux 6.1 or newer. The kernel's and libbpf's messages:\n{log}"
    )]
    Load {
        /// Why.
        source: libbpf_rs::Error,
        /// The verifier's log and libbpf's warnings.
        log: String,
    },
    /// The object has no map or program of this name.
    #[error("the data plane has no {kind} {name}: this program and bpf/segue.bpf.c do not fit together")]
    NotInObject {
        /// `map` or `program`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// An access to a map failed.
    #[error("map {map}: cannot {action}: {source}")]
    Map {
        /// Name of the map.
        map: String,
        /// The operation.
        action: &'static str,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// A map holds something of an unexpected size.
    #[error("map {map}: an entry is missing or has the wrong size; remove the pin directory and start the agent anew")]
    MapEntry {
        /// Name of the map.
        map: String,
    },
    /// The XDP program cannot be attached.
    #[error(
        "interface {interface}: cannot attach the XDP program: {source}. If another XDP program is attached, remove it (ip link set dev \
         INTERFACE xdp off); a driver may also refuse XDP because of the MTU or because large receive offload is on"
    )]
    Attach {
        /// Name, or number where no name is known.
        interface: String,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// An attached program cannot be replaced or detached.
    #[error("interface {interface}: cannot {action} the XDP program: {source}")]
    Link {
        /// Name, or number where no name is known.
        interface: String,
        /// The operation.
        action: &'static str,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// A program of the TC hook cannot be attached.
    #[error(
        "interface {interface}: cannot {action} it: {source}; the kernel needs CONFIG_NET_SCH_INGRESS and CONFIG_NET_CLS_BPF, and the \
         interface a queueing discipline `clsact` or none on its ingress (tc qdisc show dev INTERFACE)"
    )]
    Filter {
        /// Name, or number where no name is known.
        interface: String,
        /// The operation.
        action: &'static str,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// No port of this name is active.
    #[error("there is no port {name} in the active configuration; `segue get ports` lists them")]
    PortUnknown {
        /// Name that was asked for.
        name: String,
    },
    /// A trial run of the program failed.
    #[error(
        "BPF_PROG_TEST_RUN with ingress ifindex {ingress}: {source}; the interface must be in this namespace and have XDP attached"
    )]
    TestRun {
        /// Interface that the frame was to come from.
        ingress: u32,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// The packet capture cannot be set up or read.
    #[error("capture: {source}")]
    Capture {
        /// Why.
        source: libbpf_rs::Error,
    },
    /// Interfaces cannot be listed.
    #[error("cannot list the network interfaces: {0}")]
    Netlink(String),
    /// The active configuration cannot be written beside the maps.
    #[error("the state of {octets} octets cannot be kept: {problem}")]
    State {
        /// Its size.
        octets: usize,
        /// What, and what to do.
        problem: String,
    },
}
