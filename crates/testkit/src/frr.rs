//! FRR (zebra and another daemon of Debian's package `frr`) in a test's namespace, with sockets, files and pid files of its own. The machine's
//! FRR, `/etc/frr` and `/run/frr` are not touched.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::{output, printed, run};
use crate::netns::Netns;
use crate::wait::wait_for;

/// Where Debian has the daemons; they are not in anybody's `PATH`.
const DAEMONS: &str = "/usr/lib/frr";
/// How long a daemon may take to make its sockets, on a machine that builds at the same time.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// How long a daemon may take to remove its routes and end.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Has a program see a kernel that routes MPLS: zebra looks for this directory alone, and without it takes no labels from anybody. The kernel
/// itself goes on refusing them, which zebra logs and bears. The first argument is a directory that is there, and in no other's way.
const PRETENDING_MPLS: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
for directory in /proc/sys/net/*/; do
    mkdir "$1/$(basename "$directory")"
    mount --bind "$directory" "$1/$(basename "$directory")"
done
mkdir "$1/mpls"
mount --rbind "$1" /proc/sys/net
shift
exec "$@"
"#;

/// A routing daemon pair, zebra and one that speaks a protocol, in one namespace. Both are ended with the value, and their routes and files go with them.
#[derive(Debug)]
pub struct Frr {
    /// In the order of starting.
    daemons: Vec<Child>,
    directory: tempfile::TempDir,
    /// Names, in the same order.
    names: [&'static str; 2],
}

impl Frr {
    /// Starts zebra and ospfd with segment routing in `netns`, with this configuration. zebra takes labels, as it does where the kernel has
    /// MPLS, whatever this one has.
    ///
    /// # Panics
    ///
    /// As [`Frr::start`].
    pub fn start_ospf(netns: &Netns, configuration: &str) -> Self {
        Self::start_pair(netns, "ospfd", configuration, true)
    }

    /// Starts both in `netns`, bgpd with this configuration (in FRR's language, beginning with `router bgp`).
    ///
    /// # Panics
    ///
    /// Without root or the package, and when a daemon ends instead of answering; the message has what it logged.
    pub fn start(netns: &Netns, configuration: &str) -> Self {
        Self::start_pair(netns, "bgpd", configuration, false)
    }

    fn start_pair(netns: &Netns, speaker: &'static str, configuration: &str, pretends_mpls: bool) -> Self {
        let directory = tempfile::Builder::new().prefix("segue-frr-").tempdir().expect("a directory");
        let path = directory.path();
        // zebra is configured by its options alone, and vtysh complains when it has no file.
        let speaker_file = format!("{speaker}.conf");
        for (file, text) in [("zebra.conf", ""), ("vtysh.conf", ""), (&speaker_file, configuration)] {
            std::fs::write(path.join(file), text).expect("a file in a new directory");
        }
        // The daemons insist on their own user.
        run(Command::new("chown").args(["-R", "frr:frr"]).arg(path));
        let mut frr = Self { daemons: Vec::new(), directory, names: ["zebra", speaker] };
        // The others wait long before they look for zebra again: it comes first, whole.
        frr.daemon(netns, "zebra", &["zserv.api", "zebra.vty"], pretends_mpls);
        frr.daemon(netns, speaker, &[&format!("{speaker}.vty")], false);
        frr
    }

    fn daemon(&mut self, netns: &Netns, name: &str, sockets: &[&str], pretends_mpls: bool) {
        let path = self.directory.path().to_owned();
        let program = Path::new(DAEMONS).join(name);
        assert!(program.exists(), "{} is missing: apt-get install frr, or ./x test", program.display());
        let log = std::fs::File::create(path.join(format!("{name}.out"))).expect("a file in a new directory");
        let mut command = if pretends_mpls {
            let pretended = path.join("net");
            std::fs::create_dir(&pretended).expect("a directory in a new one");
            let mut command = Command::new("unshare");
            command.args(["--mount", "bash", "-c", PRETENDING_MPLS, "bash"]).arg(pretended).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.args(["--user", "frr", "--group", "frr"]);
        // No TCP port for the terminal: its socket is enough.
        command.args(["--vty_port", "0", "--vty_socket"]).arg(&path);
        command.arg("--socket").arg(path.join("zserv.api"));
        command.arg("--pid_file").arg(path.join(format!("{name}.pid")));
        command.arg("--config_file").arg(path.join(format!("{name}.conf")));
        command.arg("--log").arg(format!("file:{}", path.join(format!("{name}.log")).display()));
        command.stdout(Stdio::from(log.try_clone().expect("a second handle"))).stderr(Stdio::from(log));
        self.daemons.push(netns.spawn(&mut command));
        wait_for(&format!("{name}'s sockets"), STARTS_WITHIN, || {
            let daemon = self.daemons.last_mut().expect("it was just pushed");
            if let Some(status) = daemon.try_wait().expect("a child of this process") {
                panic!("{name} ended ({status}):\n{}", self.logs());
            }
            sockets.iter().all(|socket| path.join(socket).exists()).then_some(())
        });
    }

    /// Says something to the daemons as an operator would, and returns what they print.
    ///
    /// # Panics
    ///
    /// When they do not understand it.
    pub fn vtysh(&self, command: &str) -> String {
        let found = output(
            Command::new("vtysh")
                .arg("--vty_socket")
                .arg(self.directory.path())
                .arg("--config_dir")
                .arg(self.directory.path())
                .args(["-c", command]),
        );
        assert!(found.status.success(), "vtysh -c '{command}': {}\n{}", printed(&found), self.logs());
        String::from_utf8_lossy(&found.stdout).into_owned()
    }

    /// The answer to a `show ... json`.
    ///
    /// # Panics
    ///
    /// When it is none.
    pub fn json(&self, command: &str) -> serde_json::Value {
        let text = self.vtysh(command);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{command}: {error}\n{text}"))
    }

    /// AS path of the best BGP route to exactly this IPv6 prefix, such as `65002 65003`; empty for the node's own. `None` if
    /// BGP knows none.
    pub fn best_path(&self, prefix: &str) -> Option<String> {
        let table = self.json("show bgp ipv6 unicast json");
        let paths = table["routes"].get(prefix)?.as_array()?.clone();
        let best = paths.iter().find(|path| path["bestpath"] == true)?;
        Some(best["path"].as_str().unwrap_or_default().to_owned())
    }

    /// Whether the BGP session to this neighbour is up.
    pub fn established(&self, neighbour: &str) -> bool {
        self.json("show bgp ipv6 unicast summary json")["peers"][neighbour]["state"] == "Established"
    }

    /// Everything that both have logged and printed.
    pub fn logs(&self) -> String {
        let files = self.names.iter().flat_map(|name| ["out", "log"].map(|kind| format!("{name}.{kind}")));
        let text = |file: String| {
            let text = std::fs::read_to_string(self.directory.path().join(&file)).unwrap_or_default();
            format!("--- {file}\n{text}")
        };
        files.map(text).collect()
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        // The speaker first, so that it tells its neighbours and zebra. Killed, they would leave files in /var/tmp/frr and routes.
        while let Some(mut daemon) = self.daemons.pop() {
            let _ = kill(Pid::from_raw(daemon.id().cast_signed()), Signal::SIGTERM);
            let end = Instant::now() + ENDS_WITHIN;
            while matches!(daemon.try_wait(), Ok(None)) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
