//! Functions of each kind from nothing to nothing, also half-way.

use std::path::PathBuf;

use segue_function::{Function, FunctionError, Kind, Link, NodeEnd, Program, Status, environment};
use segue_host::network::{Interface, Line};
use segue_host::{HostError, Network, Temporary, namespace};
use tempfile::TempDir;

const PREFIX: &str = "sg-t-";

/// A node, and a function that is to be behind it.
struct Site {
    node: Temporary,
    function: Function,
    _files: TempDir,
}

impl Site {
    fn new(kind: Kind, suffix: &str) -> Self {
        let node = Temporary::make(PREFIX, &format!("{suffix}-node")).unwrap();
        let files = tempfile::tempdir().unwrap();
        let own = format!("{PREFIX}{}-{suffix}-function", std::process::id());
        let link = |name: &str, number: u8| Link {
            node: NodeEnd {
                namespace: node.name().to_owned(),
                name: format!("f-{name}"),
                mac: [2, 0, 0, 0, 0, number],
            },
            name: name.to_owned(),
            mac: [2, 0, 0, 0, 1, number],
            mtu: 1400,
        };
        let interface =
            |name: &str, address: &str| Interface { name: name.to_owned(), addresses: vec![address.parse().unwrap()] };
        let network = Network {
            interfaces: vec![interface("west", "fd00:1::2/64"), interface("east", "fd00:2::2/64")],
            lines: vec![Line { families: &["-6"], words: "route replace default via fd00:2::1".into() }],
            sysctls: vec![
                ("net.ipv6.conf.all.forwarding".into(), "1".into()),
                ("net.ipv6.conf.west.hop_limit".into(), "77".into()),
            ],
            ..Network::default()
        };
        let on_tap = kind == Kind::Tap;
        let function = Function {
            name: "f".into(),
            kind,
            namespace: if on_tap { node.name().to_owned() } else { own },
            mark: format!("test {} {suffix}", std::process::id()),
            links: vec![link("west", 1), link("east", 2)],
            network: if on_tap { Network::default() } else { network },
            ruleset: None,
            program: None,
            control: None,
            merged: false,
            log: files.path().join("log"),
        };
        Self { node, function, _files: files }
    }

    fn status(&self) -> Status {
        self.function.runtime().status(&self.function).unwrap()
    }

    /// Interfaces of the node besides `lo`.
    fn ends(&self) -> Vec<String> {
        let links = segue_host::network::links(self.node.name()).unwrap();
        links.into_iter().map(|link| link.name).filter(|name| name != "lo").collect()
    }

    fn stop(&self) {
        // The second time there is nothing to do.
        for _ in 0..2 {
            self.function.runtime().stop(&self.function).unwrap();
            assert_eq!(self.status(), Status::Absent);
            assert_eq!(self.ends(), Vec::<String>::new());
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_namespace_lives_and_goes() {
    let mut site = Site::new(Kind::Namespace, "ns");
    site.function.ruleset = Some("table inet t { counter c { }; }".into());
    let (function, runtime) = (&site.function, site.function.runtime());
    assert_eq!((runtime.name(), site.status()), ("namespace", Status::Absent));
    assert_eq!(runtime.needs(function), ["ip", "nft"]);
    runtime.prepare(function).unwrap();
    assert_eq!(site.status(), Status::Partial);
    let again = runtime.prepare(function).unwrap_err();
    assert!(matches!(again, FunctionError::Host(HostError::NamespaceExists(_))), "{again}");
    runtime.attach(function).unwrap();
    runtime.start(function).unwrap();
    assert_eq!(site.status(), Status::Running);
    assert_eq!(site.ends(), ["f-west", "f-east"]);
    for (command, said) in [
        ("cat /proc/sys/net/ipv6/conf/west/hop_limit", "77"),
        ("ip -6 route show default", "default via fd00:2::1 dev east"),
        ("nft list counters", "counter c"),
        ("ip -6 address show dev west", "fd00:1::2/64"),
        ("ip link show west", "mtu 1400"),
    ] {
        let text = runtime.execute(function, command).unwrap();
        assert!(text.contains(said), "{command}: {text}");
    }
    let wrong = runtime.execute(function, "echo so not >&2; exit 7").unwrap_err().to_string();
    assert!(wrong.contains("so not") && wrong.contains("exit status: 7"), "{wrong}");
    // What runs in it goes with it.
    runtime.execute(function, "sleep 600 >/dev/null 2>&1 &").unwrap();
    segue_host::Run::new("ip", ["-n", site.node.name(), "link", "delete", "f-west"]).text().unwrap();
    assert_eq!(site.status(), Status::Partial);
    site.stop();
    assert!(!namespace::exists(&site.function.namespace));
}

#[test]
#[ignore = "needs root"]
fn what_fails_half_way_can_be_stopped() {
    let mut site = Site::new(Kind::Namespace, "half");
    site.function.network.lines[0].words = "route replace default via fd00:3::1".into();
    let (function, runtime) = (&site.function, site.function.runtime());
    runtime.prepare(function).unwrap();
    let error = runtime.attach(function).unwrap_err().to_string();
    assert!(error.contains("`ip route replace default via fd00:3::1`"), "{error}");
    site.stop();
    assert!(!namespace::exists(&site.function.namespace));
    // Somebody else's is left alone.
    runtime.prepare(function).unwrap();
    let other = Function { mark: "another's".into(), ..site.function.clone() };
    let error = runtime.stop(&other).unwrap_err();
    assert!(matches!(&error, FunctionError::NotOurs { mark, .. } if *mark == function.mark), "{error}");
    assert_eq!(runtime.status(&other).unwrap(), Status::Partial);
    site.stop();
}

/// Opens both devices, and says so.
const PROGRAM: &str = r#"exec python3 -c '
import fcntl, os, signal, struct, sys
signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", flush=True), sys.exit(0)))
devices = []
for name in (os.environ["SEGUE_TAP_WEST"], os.environ["SEGUE_TAP_EAST"]):
    devices.append(os.open("/dev/net/tun", os.O_RDWR))
    fcntl.ioctl(devices[-1], 0x400454ca, struct.pack("16sH22x", name.encode(), 0x1002))
print("in", os.getcwd(), flush=True)
signal.pause()
'"#;

#[test]
#[ignore = "needs root"]
fn a_program_on_tap_lives_and_goes() {
    let mut site = Site::new(Kind::Tap, "tap");
    site.function.program = Some(Program { command: PROGRAM.into(), directory: Some(PathBuf::from("/")) });
    let (function, runtime) = (&site.function, site.function.runtime());
    assert_eq!((runtime.name(), site.status()), ("tap", Status::Absent));
    runtime.prepare(function).unwrap();
    runtime.attach(function).unwrap();
    assert_eq!(site.status(), Status::Attached);
    runtime.start(function).unwrap();
    assert_eq!(site.status(), Status::Running);
    assert_eq!(environment(function).len(), 6);
    let told = runtime.execute(function, "echo $SEGUE_TAP_WEST $SEGUE_MAC_EAST $SEGUE_NODE_MAC_EAST").unwrap();
    assert_eq!(told.trim(), "f-west 02:00:00:00:01:02 02:00:00:00:00:02");
    // Another function of the same node is not touched.
    let mut beside = site.function.clone();
    beside.mark.push_str(" beside");
    beside.links.clear();
    beside.program = Some(Program { command: "exec sleep 600".into(), directory: None });
    beside.log.set_extension("beside");
    runtime.start(&beside).unwrap();
    site.function.runtime().stop(&site.function).unwrap();
    let log = std::fs::read_to_string(&site.function.log).unwrap();
    assert_eq!(log, "in /\nasked to end\n");
    site.stop();
    assert_ne!(runtime.status(&beside).unwrap(), Status::Absent);
    runtime.stop(&beside).unwrap();
    assert_eq!(runtime.status(&beside).unwrap(), Status::Absent);
}

#[test]
#[ignore = "needs root"]
fn a_program_that_does_not_open_its_devices_is_told_and_stopped() {
    let mut site = Site::new(Kind::Tap, "shut");
    site.function.program = Some(Program { command: "echo it goes wrong; exit 3".into(), directory: None });
    let (function, runtime) = (&site.function, site.function.runtime());
    runtime.prepare(function).unwrap();
    runtime.attach(function).unwrap();
    let error = runtime.start(function).unwrap_err().to_string();
    for part in ["function f", "exit status: 3", "f-west", "it goes wrong", "do: fix the program"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(site.status(), Status::Attached);
    site.stop();
}
