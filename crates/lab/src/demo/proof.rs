//! Proof from packets: that the segment list was on them between the nodes, and that the function met none of it.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{IpAddr, Ipv6Addr, Shutdown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use segue_api::{capture::CaptureRequest, pcap};
use segue_host::{HostError, Run, command};
use segue_model::node::HeadendMode;
use segue_plan::{Explanation, StepAction};

use crate::capture;
use crate::error::{LabError, Result};
use crate::seen::{Seen, dissect};

/// What was seen is under way from the data plane to its agent to here: it has all arrived when nothing came for so long.
const SETTLED: Duration = Duration::from_millis(500);
/// Something else may go on for ever.
const SETTLED_AT_LAST: Duration = Duration::from_secs(10);

/// A capture at an agent that runs until it is stopped.
#[derive(Debug)]
pub struct Recording {
    stream: UnixStream,
    reader: JoinHandle<std::io::Result<()>>,
    pieces: Receiver<Vec<u8>>,
    file: PathBuf,
}

impl Recording {
    /// Starts capturing on all ports of a Segue node, or on one.
    ///
    /// # Errors
    /// If the agent refuses.
    pub fn start(node: &str, socket: &Path, port: Option<&str>, file: PathBuf) -> Result<Self> {
        let request =
            CaptureRequest { ports: port.map(str::to_owned).into_iter().collect(), ..CaptureRequest::default() };
        let response = capture::open(node, socket, &request, Duration::from_secs(120))?;
        let mut body = response.body;
        let stream = body.get_ref().try_clone().map_err(LabError::io("read capture from", socket, "try again"))?;
        let (sender, pieces) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            loop {
                match body.read(&mut buffer) {
                    Ok(0) => return Ok(()),
                    // Nobody receives any more only if the recording was dropped.
                    Ok(length) => drop(sender.send(buffer[..length].to_vec())),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        });
        Ok(Self { stream, reader, pieces, file })
    }

    /// Stops once what was seen so far has arrived, keeps the capture as a file, and returns its frames.
    ///
    /// # Errors
    /// If the connection broke or the agent sent something else than pcapng.
    pub fn stop(self) -> Result<Vec<Vec<u8>>> {
        let at_last = Instant::now() + SETTLED_AT_LAST;
        let mut bytes = Vec::new();
        while let Ok(piece) = self.pieces.recv_timeout(SETTLED) {
            bytes.extend(piece);
            if Instant::now() > at_last {
                break;
            }
        }
        let _ = self.stream.shutdown(Shutdown::Both);
        let broken = |reason: String| LabError::Capture { path: self.file.clone(), reason };
        match self.reader.join() {
            Ok(read) => read.map_err(|error| broken(error.to_string()))?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        bytes.extend(self.pieces.try_iter().flatten());
        fs::write(&self.file, &bytes).map_err(LabError::io(
            "write",
            &self.file,
            "check that the file system has space",
        ))?;
        pcap::frames(&bytes).map_err(broken)
    }
}

/// A tcpdump inside a namespace that runs until it is stopped.
#[derive(Debug)]
pub struct Tcpdump {
    child: Child,
    file: PathBuf,
}

impl Tcpdump {
    /// Starts capturing on an interface; returns once tcpdump listens.
    ///
    /// # Errors
    /// If tcpdump cannot be started.
    pub fn start(namespace: &str, interface: &str, file: PathBuf) -> Result<Self> {
        let target = file.display().to_string();
        let options = ["-n", "-U", "--immediate-mode", "-B", "16384", "-s", "0", "-i", interface, "-w", &target];
        let run = Run::new("tcpdump", options).inside(namespace);
        let mut child = run.spawn(|command| {
            command.stdout(Stdio::null()).stderr(Stdio::piped());
        })?;
        let mut said = String::new();
        if let Some(errors) = child.stderr.take() {
            let mut lines = BufReader::new(errors);
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|length| length > 0) {
                if line.contains("listening on") {
                    // The rest of what it says is a few lines at its end: they fit into the pipe.
                    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
                    return Ok(Self { child, file });
                }
                said.push_str(&line);
                line.clear();
            }
        }
        let _ = child.wait();
        let cause = std::io::Error::other(said.trim().to_owned());
        let remedy = command::install_hint("tcpdump").into();
        Err(HostError::Start { program: "tcpdump".into(), cause, remedy }.into())
    }

    /// Stops and returns the frames.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn stop(mut self) -> Result<Vec<Vec<u8>>> {
        capture::end(&mut self.child);
        capture::read(&self.file)
    }
}

/// What packets of one direction of a chain must look like when they reach the first segment's node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Source addresses of the inner packets.
    pub sources: Vec<IpAddr>,
    /// Destination addresses of the inner packets.
    pub destinations: Vec<IpAddr>,
    /// The segment list in the order of traversal.
    pub segments: Vec<Ipv6Addr>,
    /// Whether the SRH leaves the first segment out.
    pub reduced: bool,
}

impl Expected {
    /// From the steps of one direction; `None` without a headend among them.
    #[must_use]
    pub fn of(steps: &[Explanation], sources: &[IpAddr], destinations: &[IpAddr]) -> Option<Self> {
        steps.iter().find_map(|step| match &step.action {
            StepAction::Headend { mode, segments } => Some(Self {
                sources: sources.to_vec(),
                destinations: destinations.to_vec(),
                segments: segments.clone(),
                reduced: matches!(mode, HeadendMode::HEncapsRed | HeadendMode::HEncapsL2Red),
            }),
            // Labels have no SRH to look for.
            StepAction::Segment { .. } | StepAction::Push { .. } | StepAction::Label { .. } => None,
        })
    }

    fn is_mine(&self, source: IpAddr, destination: IpAddr) -> bool {
        self.sources.contains(&source) && self.destinations.contains(&destination)
    }
}

/// What was found among captured frames.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets with exactly the expected segment list.
    pub as_expected: usize,
    /// Packets of this direction that looked otherwise, in words (the first few).
    pub otherwise: Vec<String>,
    /// Packets in an SRv6 envelope, or with a routing header of any type.
    pub segment_routing: usize,
    /// This direction's packets without any envelope.
    pub bare: usize,
}

/// Counts what frames are, as far as they belong to this direction or to Segment Routing.
#[must_use]
pub fn tally(frames: &[Vec<u8>], expected: &Expected) -> Tally {
    let mut found = Tally::default();
    for frame in frames {
        match dissect(frame) {
            Seen::Enveloped(envelope, inner) => {
                found.segment_routing += 1;
                if envelope.destination != expected.segments[0] || !expected.is_mine(inner.source, inner.destination) {
                    continue;
                }
                let (in_srh, left) = match &envelope.srh {
                    Some(srh) => (srh.segments.as_slice(), usize::from(srh.segments_left)),
                    None => (&[][..], 0),
                };
                let wanted = &expected.segments[usize::from(expected.reduced)..];
                if in_srh == wanted && left == expected.segments.len() - 1 {
                    found.as_expected += 1;
                } else if found.otherwise.len() < 3 {
                    found.otherwise.push(format!("segments {in_srh:?}, Segments Left {left}"));
                }
            }
            Seen::SrhOnly(_) => found.segment_routing += 1,
            Seen::Bare(inner) => {
                found.segment_routing += usize::from(inner.routing_header);
                found.bare += usize::from(expected.is_mine(inner.source, inner.destination));
            }
            Seen::Malformed(reason) if found.otherwise.len() < 3 => found.otherwise.push(reason),
            Seen::Malformed(_) | Seen::Other => {}
        }
    }
    found
}

/// What tshark makes of a capture: packets with an SRH to that SID, and packets that it calls malformed. `None` if it is
/// not there.
///
/// # Errors
/// If it fails.
pub fn second_opinion(file: &Path, sid: Ipv6Addr) -> Result<Option<(usize, usize)>> {
    if command::find("tshark").is_none() {
        return Ok(None);
    }
    let count = |filter: &str| -> Result<usize> {
        let file = file.display().to_string();
        let arguments = ["-n", "-r", &file, "-Y", filter, "-T", "fields", "-e", "frame.number"];
        Ok(Run::new("tshark", arguments).remedy("open the file with another program").text()?.lines().count())
    };
    let with_srh = count(&format!("ipv6.routing.type == 4 && ipv6.dst == {sid}"))?;
    Ok(Some((with_srh, count("_ws.malformed")?)))
}

#[cfg(test)]
mod tests {
    use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr};

    use super::*;

    const HEADEND: Ipv6Addr = Ipv6Addr::new(0xfc00, 0x5ea, 1, 0, 0, 0, 0, 1);
    const PROXY: Ipv6Addr = Ipv6Addr::new(0xfc00, 0x5e9, 2, 1, 0, 0, 0, 0);
    const EGRESS: Ipv6Addr = Ipv6Addr::new(0xfc00, 0x5e9, 3, 1, 0, 0, 0, 0);

    fn expected() -> Expected {
        Expected {
            sources: vec!["10.0.1.2".parse().unwrap()],
            destinations: vec!["10.0.2.2".parse().unwrap()],
            segments: vec![PROXY, EGRESS],
            reduced: true,
        }
    }

    fn inner() -> Ipv4Repr {
        Ipv4Repr { source: [10, 0, 1, 2].into(), destination: [10, 0, 2, 2].into(), ..Ipv4Repr::default() }
    }

    fn enveloped(srh: SrhRepr) -> Vec<u8> {
        PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv6(Ipv6Repr::new(HEADEND, PROXY))
            .srh(srh)
            .inner_ipv4(inner())
            .payload(&[0; 8])
            .build()
    }

    #[test]
    fn the_expected_list_is_recognised_and_another_is_not() {
        let good = enveloped(SrhRepr::reduced(&[PROXY, EGRESS]));
        let longer = enveloped(SrhRepr::new(&[PROXY, EGRESS]));
        let found = tally(&[good.clone(), good, longer], &expected());
        assert_eq!((found.as_expected, found.otherwise.len(), found.segment_routing, found.bare), (2, 1, 3, 0));
    }

    #[test]
    fn bare_packets_are_counted_by_direction() {
        let ethernet = || PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let forward = ethernet().ipv4(inner()).payload(&[0; 8]).build();
        let swapped = Ipv4Repr { source: inner().destination, destination: inner().source, ..inner() };
        let reverse = ethernet().ipv4(swapped).payload(&[0; 8]).build();
        let found = tally(&[forward, reverse], &expected());
        assert_eq!(found, Tally { bare: 1, ..Tally::default() });
    }
}
