//! Real traffic between two hosts of a lab, by the programs that people use.

use std::fs::{self, File};
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use segue_host::{HostError, Run};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::{LabError, Result};
use crate::netns;

/// One end of the traffic.
#[derive(Debug, Clone)]
pub struct End {
    /// Name of the host.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its IPv4 and IPv6 address, as far as it has them.
    pub addresses: Vec<IpAddr>,
}

/// `IPv4` or `IPv6`.
#[must_use]
pub fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// Pairs of addresses of the same family: from, to.
#[must_use]
pub fn pairs(from: &End, to: &End) -> Vec<(IpAddr, IpAddr)> {
    let partner = |address: &IpAddr| to.addresses.iter().find(|other| other.is_ipv4() == address.is_ipv4());
    from.addresses.iter().filter_map(|address| Some((*address, *partner(address)?))).collect()
}

/// Replies to echo requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Echo {
    /// Requests sent.
    pub sent: u32,
    /// Replies received.
    pub received: u32,
    /// Mean time for there and back, milliseconds.
    pub milliseconds: f64,
}

/// Sends echo requests.
///
/// # Errors
/// If `ping` cannot be run or says something else than usual.
pub fn ping(from: &End, to: IpAddr, count: u32) -> Result<Echo> {
    let arguments = ["-n", "-q", "-i", "0.1", "-W", "2", "-c", &count.to_string(), &to.to_string()].map(String::from);
    let output = Run::new("ping", arguments).inside(&from.namespace).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    parse_ping(&text).ok_or_else(|| odd("ping", &text, &output.stderr))
}

fn parse_ping(text: &str) -> Option<Echo> {
    let line = text.lines().find(|line| line.contains("packets transmitted"))?;
    let mut numbers = line.split(',').filter_map(|part| part.trim().split(' ').next()?.parse::<u32>().ok());
    let (sent, received) = (numbers.next()?, numbers.next()?);
    let mean = text.lines().find(|line| line.starts_with("rtt")).and_then(|line| line.split('/').nth(4)?.parse().ok());
    Some(Echo { sent, received, milliseconds: mean.unwrap_or(f64::NAN) })
}

/// A process that is ended when it goes out of scope.
#[derive(Debug)]
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An HTTP server with one random file.
#[derive(Debug)]
pub struct Web {
    _server: Ended,
    /// SHA-256 of the file.
    pub digest: String,
}

/// Port of [`Web`].
pub const WEB_PORT: u16 = 80;

/// Makes a random file of so many octets in `directory` and serves it on port 80.
///
/// # Errors
/// If the server does not come up.
pub fn serve(host: &End, directory: &Path, octets: u64) -> Result<Web> {
    let remedy = "check that the file system has space";
    fs::create_dir_all(directory).map_err(LabError::io("make directory", directory, remedy))?;
    let path = directory.join("file");
    let mut bytes = Vec::new();
    let random = Path::new("/dev/urandom");
    let source = File::open(random).map_err(LabError::io("open", random, remedy))?;
    source.take(octets).read_to_end(&mut bytes).map_err(LabError::io("read", random, remedy))?;
    fs::write(&path, &bytes).map_err(LabError::io("write", &path, remedy))?;
    let port = WEB_PORT.to_string();
    let shown = directory.display().to_string();
    let run = Run::new(python(), ["-m", "http.server", &port, "--bind", "::", "--directory", &shown]);
    let server = Ended(run.inside(&host.namespace).spawn(silent)?);
    for address in &host.addresses {
        wait_for_listener(host, SocketAddr::new(*address, WEB_PORT))?;
    }
    Ok(Web { _server: server, digest: hex(&Sha256::digest(&bytes)) })
}

fn silent(command: &mut std::process::Command) {
    command.stdout(Stdio::null()).stderr(Stdio::null());
}

/// The system's Python rather than a wrapper: one process to end.
fn python() -> PathBuf {
    let system = PathBuf::from("/usr/bin/python3");
    if system.is_file() { system } else { PathBuf::from("python3") }
}

fn wait_for_listener(host: &End, address: SocketAddr) -> Result<()> {
    let begun = Instant::now();
    while netns::inside(&host.namespace, || TcpStream::connect_timeout(&address, Duration::from_secs(1)))?.is_err() {
        if begun.elapsed() > Duration::from_secs(60) {
            return Err(LabError::Agent {
                node: host.name.clone(),
                what: format!("nothing listens on {address} a minute after its server was started"),
                remedy: "see whether another program has the port".into(),
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A finished download.
#[derive(Debug, Clone, PartialEq)]
pub struct Download {
    /// Octets of the file that arrived.
    pub octets: u64,
    /// Octets per second.
    pub speed: f64,
    /// SHA-256 of what arrived.
    pub digest: String,
}

/// Fetches the file of a [`Web`] with curl into `path`.
///
/// # Errors
/// If curl fails.
pub fn download(from: &End, server: IpAddr, path: &Path) -> Result<Download> {
    let url = format!("http://{}/file", SocketAddr::new(server, WEB_PORT));
    let target = path.display().to_string();
    let arguments = [
        "-sSfg",
        "--noproxy",
        "*",
        "--connect-timeout",
        "5",
        "--max-time",
        "60",
        "-o",
        &target,
        "-w",
        "%{speed_download}",
        &url,
    ];
    let remedy = "the chain does not carry HTTP as it should: see the counters and the agents' logs";
    let speed = Run::new("curl", arguments).inside(&from.namespace).remedy(remedy).text()?;
    let bytes = fs::read(path).map_err(LabError::io("read", path, "check that the file system has space"))?;
    Ok(Download {
        octets: bytes.len() as u64,
        speed: speed.trim().parse().unwrap_or(f64::NAN),
        digest: hex(&Sha256::digest(&bytes)),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Result of one iperf3 run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    /// Bits per second that arrived.
    pub bits_per_second: f64,
    /// TCP segments sent again; UDP datagrams lost.
    pub lost: u64,
    /// UDP datagrams sent; 0 for TCP.
    pub datagrams: u64,
    /// UDP datagrams that arrived at the receiving host and found its socket full, because the receiver had no processor.
    pub overrun: u64,
}

impl Throughput {
    /// UDP datagrams that did not arrive at the receiving host.
    #[must_use]
    pub fn lost_on_the_way(&self) -> u64 {
        self.lost.saturating_sub(self.overrun)
    }
}

/// How iperf3 sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// TCP from the client, as fast as it goes.
    Tcp,
    /// TCP from the server.
    TcpReverse,
    /// UDP from the client with so many megabits per second.
    Udp(u32),
}

/// Runs iperf3 for so many seconds.
///
/// # Errors
/// If it fails.
pub fn iperf(from: &End, to: &End, address: IpAddr, flow: Flow, seconds: u32) -> Result<Throughput> {
    let _server = Ended(Run::new("iperf3", ["-s", "-1"]).inside(&to.namespace).spawn(silent)?);
    wait_until_listening(&to.namespace, 5201)?;
    let mut arguments: Vec<String> =
        ["-J", "--connect-timeout", "5000", "-t", &seconds.to_string(), "-c", &address.to_string()]
            .map(String::from)
            .into();
    match flow {
        Flow::Tcp => {}
        Flow::TcpReverse => arguments.push("-R".into()),
        Flow::Udp(megabits) => {
            arguments.extend(["-u".into(), "-b".into(), format!("{megabits}M"), "-l".into(), "1200".into()])
        }
    }
    let remedy = "the chain does not carry this traffic as it should: see the counters and the agents' logs";
    let overruns = || netns::inside(&to.namespace, socket_overruns);
    let before = overruns()?;
    let text = Run::new("iperf3", arguments).inside(&from.namespace).remedy(remedy).text()?;
    let overrun = overruns()?.saturating_sub(before);
    let throughput = parse_iperf(&text, flow).ok_or_else(|| odd("iperf3", &text, b""))?;
    Ok(Throughput { overrun, ..throughput })
}

/// UDP datagrams, IPv4 and IPv6, that the calling thread's namespace dropped because their socket was full.
fn socket_overruns() -> u64 {
    let v4 = fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
    let v6 = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
    parse_overruns(&v4, &v6)
}

fn parse_overruns(v4: &str, v6: &str) -> u64 {
    // A line of names, then a line of values.
    let mut lines = v4.lines().filter(|line| line.starts_with("Udp:")).map(str::split_whitespace);
    let (names, values) = (lines.next(), lines.next());
    let of_v4 =
        names.zip(values).and_then(|(names, values)| names.zip(values).find(|(name, _)| *name == "RcvbufErrors"));
    let of_v6 = v6.lines().find_map(|line| line.strip_prefix("Udp6RcvbufErrors"));
    let number = |text: Option<&str>| text.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0);
    number(of_v4.map(|(_, value)| value)) + number(of_v6)
}

fn parse_iperf(text: &str, flow: Flow) -> Option<Throughput> {
    let report: Value = serde_json::from_str(text).ok()?;
    let end = report.get("end")?;
    if let Flow::Udp(_) = flow {
        let sum = end.get("sum")?;
        return Some(Throughput {
            bits_per_second: sum.get("bits_per_second")?.as_f64()?,
            lost: sum.get("lost_packets")?.as_u64()?,
            datagrams: sum.get("packets")?.as_u64()?,
            overrun: 0,
        });
    }
    Some(Throughput {
        bits_per_second: end.get("sum_received")?.get("bits_per_second")?.as_f64()?,
        lost: end.get("sum_sent")?.get("retransmits").and_then(Value::as_u64).unwrap_or(0),
        datagrams: 0,
        overrun: 0,
    })
}

/// Waits for a listener without connecting to it, which iperf3 would take for its one client.
fn wait_until_listening(namespace: &str, port: u16) -> Result<()> {
    let begun = Instant::now();
    loop {
        // The thread's own view: /proc/self would be that of the main thread.
        let listens = netns::inside(namespace, || {
            ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"]
                .iter()
                .any(|table| fs::read_to_string(table).is_ok_and(|text| has_listener(&text, port)))
        })?;
        if listens {
            return Ok(());
        }
        if begun.elapsed() > Duration::from_secs(60) {
            return Err(LabError::Agent {
                node: namespace.to_owned(),
                what: format!("nothing listens on TCP port {port} a minute after the server was started"),
                remedy: "see whether another program has the port".into(),
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn has_listener(table: &str, port: u16) -> bool {
    let wanted = format!(":{port:04X}");
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields.as_slice(), [_, local, _, "0A", ..] if local.ends_with(&wanted))
    })
}

/// How a connection to TCP port 23 went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Telnet {
    /// The server accepts connections from itself: a refusal is not its own.
    pub server_listens: bool,
    /// The connection from the other host came through.
    pub connected: bool,
    /// What the client was told.
    pub said: String,
}

/// Tries telnet from one host to the other, where something listens.
///
/// # Errors
/// If the listener cannot be set up.
pub fn telnet(from: &End, to: &End, address: IpAddr) -> Result<Telnet> {
    let target = SocketAddr::new(address, 23);
    let bound = netns::inside(&to.namespace, || TcpListener::bind(target))?;
    let _listener = bound.map_err(LabError::io(
        "listen on TCP port 23 in",
        &to.namespace,
        "see whether another program has the port",
    ))?;
    let patience = Duration::from_millis(1500);
    let own = netns::inside(&to.namespace, || TcpStream::connect_timeout(&target, patience))?;
    let other = netns::inside(&from.namespace, || TcpStream::connect_timeout(&target, patience))?;
    let said = other.as_ref().err().map_or_else(|| "connected".to_owned(), ToString::to_string);
    Ok(Telnet { server_listens: own.is_ok(), connected: other.is_ok(), said })
}

fn odd(program: &str, stdout: &str, stderr: &[u8]) -> LabError {
    let odd = HostError::Command {
        place: "demo".into(),
        command: program.to_owned(),
        status: "its output is not as expected".into(),
        output: format!("{}{}", stdout.trim(), String::from_utf8_lossy(stderr).trim()),
        remedy: format!("check the version of {program}").into(),
    };
    odd.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_summary() {
        let text = "PING x\n\n--- 10.0.2.2 ping statistics ---\n5 packets transmitted, 4 received, 20% packet loss, time 402ms\nrtt min/avg/max/mdev = 0.031/0.045/0.060/0.010 ms\n";
        let echo = parse_ping(text).unwrap();
        assert_eq!((echo.sent, echo.received, echo.milliseconds), (5, 4, 0.045));
        let lost = parse_ping("3 packets transmitted, 0 received, +3 errors, 100% packet loss\n").unwrap();
        assert_eq!((lost.sent, lost.received), (3, 0));
        assert!(parse_ping("ping: unknown host").is_none());
    }

    #[test]
    fn iperf_reports() {
        let tcp = r#"{"end":{"sum_sent":{"retransmits":2},"sum_received":{"bits_per_second":1e9}}}"#;
        assert_eq!(
            parse_iperf(tcp, Flow::Tcp),
            Some(Throughput { bits_per_second: 1e9, lost: 2, datagrams: 0, overrun: 0 })
        );
        let udp = r#"{"end":{"sum":{"bits_per_second":5e6,"lost_packets":1,"packets":100}}}"#;
        assert_eq!(
            parse_iperf(udp, Flow::Udp(5)),
            Some(Throughput { bits_per_second: 5e6, lost: 1, datagrams: 100, overrun: 0 })
        );
        assert_eq!(parse_iperf(r#"{"error":"x"}"#, Flow::Tcp), None);
    }

    #[test]
    fn a_busy_receiver_is_told_from_a_lossy_way() {
        let v4 = "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdp: 10 0 3 10 3\n";
        let v6 = "Udp6InErrors                    \t4\nUdp6RcvbufErrors                \t4\n";
        assert_eq!(parse_overruns(v4, v6), 7);
        assert_eq!(parse_overruns("", ""), 0);
        let busy = Throughput { bits_per_second: 1.0, lost: 7, datagrams: 100, overrun: 7 };
        assert_eq!((busy.lost_on_the_way(), Throughput { lost: 8, ..busy }.lost_on_the_way()), (0, 1));
    }

    #[test]
    fn listeners_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st\n   0: 00000000:1451 00000000:0000 0A 0 0\n   1: 0100007F:0050 0100007F:9999 01 0 0\n";
        assert!(has_listener(table, 5201));
        assert!(!has_listener(table, 80));
    }

    #[test]
    fn addresses_of_the_same_family_meet() {
        let end = |addresses: &[&str]| End {
            name: String::new(),
            namespace: String::new(),
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        };
        let found = pairs(&end(&["10.0.0.1", "2001:db8::1"]), &end(&["2001:db8::2", "10.0.0.2"]));
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|(a, b)| a.is_ipv4() == b.is_ipv4()));
        assert_eq!(pairs(&end(&["10.0.0.1"]), &end(&["2001:db8::2"])), []);
    }
}
