//! `lab capture`: packets of one node, from the data plane on Segue nodes and from tcpdump elsewhere.
//!
//! A packet that XDP redirects never reaches the kernel's packet sockets, so tcpdump on a Segue node would show only what
//! the data plane leaves to the kernel. The agent's capture shows what arrives at the ports, before anything is done to it,
//! and what leaves by them.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use segue_api::{
    capture::{CaptureRequest, Format},
    client::Client,
    http, pcap,
};
use segue_host::Run;
use segue_host::command::install_hint;

use clap::Args;

use crate::error::{LabError, Result};
use crate::labels;
use crate::names::{LabPaths, Roots};
use crate::state::{LabRecord, NodeRecord};

/// What to capture, and for how long.
#[derive(Debug, Clone, Args)]
pub struct CaptureArguments {
    /// Name of the lab
    pub lab: String,
    /// Node, host or function; a link as `edge1--nfv1`; a SID or a chain by its label, such as '$nfv1.firewall' or '$chain.web'
    pub node: String,
    /// Interface of the node; all of them if not given
    pub port: Option<String>,
    /// Write pcapng (on Segue nodes) or pcap into this file instead of showing packets; `-` for stdout
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// End after this many packets
    #[arg(long)]
    pub count: Option<u64>,
    /// End after this many seconds
    #[arg(long)]
    pub seconds: Option<u64>,
}

/// What stands for the standard output in place of a file.
pub(crate) const STDOUT: &str = "-";

/// How long a capture without a given end may stay silent: as good as for ever.
const FOR_EVER: Duration = Duration::from_secs(30 * 24 * 3600);

/// Runs a capture to its end and returns the exit status.
///
/// # Errors
/// If the lab, node or port does not exist, or the capture cannot be started.
pub fn capture(roots: &Roots, arguments: &CaptureArguments) -> Result<u8> {
    let paths = LabPaths::new(roots, &arguments.lab)?;
    let record = LabRecord::read(&paths).ok_or_else(|| LabError::NoSuchLab { lab: arguments.lab.clone() })?;
    let node = labels::namespace(&paths, &record, &arguments.node)?;
    // What a firewall sees is what its node sees.
    let of_node = record.nodes.iter().find(|other| other.namespace == node.namespace && other.socket.is_some());
    let node = of_node.unwrap_or(node);
    if let Some(port) = &arguments.port
        && !node.ports.contains(port)
    {
        return Err(LabError::NoSuchPort {
            lab: arguments.lab.clone(),
            node: node.name.clone(),
            port: port.clone(),
            known: node.ports.join(", "),
        });
    }
    match &node.socket {
        Some(socket) => from_agent(node, socket, arguments),
        None => from_tcpdump(node, arguments),
    }
}

/// Frames of a capture file.
///
/// # Errors
/// If the file cannot be read or is no capture of Ethernet frames.
pub fn read(path: &Path) -> Result<Vec<Vec<u8>>> {
    let bytes = std::fs::read(path).map_err(LabError::io("read", path, "check that the capture was written"))?;
    pcap::frames(&bytes).map_err(|reason| LabError::Capture { path: path.to_path_buf(), reason })
}

/// Starts a capture at an agent; its answer's body is a pcapng file that grows.
///
/// # Errors
/// If the agent does not answer or refuses.
pub fn open(node: &str, socket: &Path, request: &CaptureRequest, patience: Duration) -> Result<http::Response> {
    Client::new(socket).with_patience(patience).capture(request).map_err(|error| LabError::Agent {
        node: node.to_owned(),
        what: format!("capture: {error}"),
        remedy: format!("look at its log beside {}", socket.display()),
    })
}

fn from_agent(node: &NodeRecord, socket: &Path, arguments: &CaptureArguments) -> Result<u8> {
    let request = CaptureRequest {
        ports: arguments.port.iter().cloned().collect(),
        count: arguments.count,
        seconds: arguments.seconds,
        format: Format::Pcapng,
    };
    let to_stdout = arguments.write.as_deref() == Some(Path::new(STDOUT));
    if to_stdout && io::stdout().is_terminal() {
        return Err(LabError::io(
            "write",
            Path::new("the terminal"),
            "give -w a file, or pipe it: ... -w - | tshark -r -",
        )(io::Error::other("packets in pcapng are not for people")));
    }
    let mut packets = open(&node.name, socket, &request, FOR_EVER)?.body;
    let (mut sink, viewer): (Box<dyn Write>, Option<Child>) = match &arguments.write {
        Some(_) if to_stdout => (Box::new(io::stdout()), None),
        Some(path) => (
            Box::new(File::create(path).map_err(LabError::io("write", path, "choose a file that can be written"))?),
            None,
        ),
        None => {
            let mut child = viewer()?;
            let closed = LabError::io("write to", "tcpdump", "write to a file with -w");
            let input = child.stdin.take().ok_or_else(|| closed(io::ErrorKind::BrokenPipe.into()))?;
            (Box::new(input), Some(child))
        }
    };
    let mut buffer = [0; 65536];
    loop {
        let length = packets.read(&mut buffer).map_err(LabError::io(
            "read capture from",
            socket,
            "see whether the agent lives",
        ))?;
        if length == 0 {
            break;
        }
        match (sink.write_all(&buffer[..length]).and_then(|()| sink.flush()), &arguments.write) {
            (Ok(()), _) => {}
            (Err(error), Some(path)) if error.kind() != io::ErrorKind::BrokenPipe => {
                return Err(LabError::io("write", path, "choose a place with space")(error));
            }
            // A viewer that was closed ends the capture; that is not an error.
            (Err(_), _) => break,
        }
    }
    drop(sink);
    if let Some(mut child) = viewer {
        let _ = child.wait();
    }
    Ok(0)
}

/// A program that shows packets from its standard input, with the routing header and what is inside on one line.
pub(crate) fn viewer() -> Result<Child> {
    let viewer = Run::new("tcpdump", ["-n", "-l", "-r", "-"]).spawn(|command| {
        command.stdin(Stdio::piped()).stderr(Stdio::null());
    });
    let remedy = format!("{}, or write to a file with -w", install_hint("tcpdump"));
    viewer.map_err(|error| error.remedied(remedy).into())
}

fn from_tcpdump(node: &NodeRecord, arguments: &CaptureArguments) -> Result<u8> {
    let mut line: Vec<String> = vec!["-n".into(), "-i".into(), arguments.port.clone().unwrap_or_else(|| "any".into())];
    match &arguments.write {
        Some(path) => line.extend(["-U".into(), "-w".into(), path.display().to_string()]),
        None => line.push("-l".into()),
    }
    if let Some(count) = arguments.count {
        line.extend(["-c".into(), count.to_string()]);
    }
    let mut child = Run::new("tcpdump", line).inside(&node.namespace).spawn(|_| ())?;
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(LabError::io("wait for", "tcpdump", "try again"))? {
            return Ok(u8::from(!status.success()));
        }
        if arguments.seconds.is_some_and(|seconds| begun.elapsed() >= Duration::from_secs(seconds)) {
            end(&mut child);
            return Ok(0);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends a tcpdump so that it writes out what it has.
pub fn end(child: &mut Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGINT);
    }
    let _ = child.wait();
}
