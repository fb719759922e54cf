//! Packet services that the agent starts itself: each in a network namespace of its own, with one link, in which nothing is forwarded.
//!
//! ```text
//!  node                     namespace segue-NAME-NODE
//!    fnw-NAME  <-- veth -->  port   segue-service run --restart
//! ```
//!
//! `segue-service` starts the service again when it dies, with the link down meanwhile; it outlives the agent, which finds it by its processes in the
//! namespace. What it may do it says itself (docs/using/services.md, "What a service may do").

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use segue_host::device::OffloadSocket;
use segue_host::link::{Kind, LinkSocket, New};
use segue_host::{Namespace, Run, command, namespace, polling, process};
use segue_model::node::{NodeService, NodeState, Sid};
use segue_model::wiring::Wiring;
use serde_json::json;

use super::ALIAS;
use crate::kernel::KernelError;
use crate::netfilter::{quiet, taken};

/// In an alias, in front of the namespace.
const SERVICE: &str = "service ";
/// The service's end of its link.
const PORT: &str = "port";
/// Where `segue service list` looks.
const DIRECTORY: &str = "/run/segue/services";
/// How long a service may take to answer, and to end.
const PATIENCE: Duration = Duration::from_secs(5);
const PROGRAM: &str = "segue-service";

/// Names that follow from the node's end of the link and from the node's own namespace: agents of several nodes may work on one host.
struct Place {
    namespace: String,
}

impl Place {
    fn of(wiring: &Wiring) -> Self {
        let (_, node) = namespace::identity("/proc/thread-self/ns/net").unwrap_or_default();
        let short = wiring.node_west.trim_start_matches("fnw-");
        Self { namespace: format!("segue-{short}-{node:x}") }
    }

    /// What an alias says behind the function's name.
    fn read(alias: &str) -> Option<Self> {
        let (_, place) = alias.strip_prefix(ALIAS)?.split_once(' ')?;
        Some(Self { namespace: place.strip_prefix(SERVICE)?.to_owned() })
    }

    fn file(&self, ending: &str) -> PathBuf {
        Path::new(DIRECTORY).join(format!("{}.{ending}", self.namespace))
    }

    /// Whether somebody works in the namespace.
    fn is_running(&self) -> bool {
        namespace::identity(&self.namespace)
            .is_some_and(|identity| !process::inside(&HashSet::from([identity])).is_empty())
    }

    fn end(&self) {
        if let Some(identity) = namespace::identity(&self.namespace) {
            process::end(&HashSet::from([identity]), PATIENCE);
        }
    }
}

/// Name and alias of the node's end.
pub fn link(wiring: &Wiring) -> (String, String) {
    let place = Place::of(wiring);
    (wiring.node_west.clone(), format!("{ALIAS}{} {SERVICE}{}", wiring.namespace, place.namespace))
}

/// Whether labels lead to it, and packets come with them.
pub fn is_behind_label(state: &NodeState, wiring: &Wiring) -> Result<bool, KernelError> {
    let name = &wiring.namespace;
    let labels = state.is_behind_label(name);
    let of_sid = |sid: &Sid| sid.proxy.as_ref().and_then(|proxy| proxy.function.as_ref()) == Some(name);
    if labels && state.sids.iter().any(of_sid) {
        return Err(KernelError {
            action: format!("function {name}"),
            errno: None,
            cause: "SIDs and labels lead to it, and a packet service gets packets with one kind of steering header"
                .to_owned(),
            remedy: "make two functions of it, with the same service".to_owned(),
        });
    }
    Ok(labels)
}

/// Makes namespace and link, and starts the service, or tells it another configuration. Returns whether the node has got another interface.
/// `labels`: it is behind a label.
pub fn make(
    sockets: &mut LinkSocket,
    wiring: &Wiring,
    service: &NodeService,
    labels: bool,
    mtu: u32,
) -> Result<bool, KernelError> {
    let place = Place::of(wiring);
    let (near, alias) = link(wiring);
    let (inside, _) = Namespace::find_or_make(&place.namespace)?;
    let has_port = inside.inside(|| LinkSocket::open()?.find(PORT))??.is_some();
    let changed = match sockets.find(&near)? {
        Some(there) if there.alias == alias && has_port => false,
        Some(there) if !there.alias.starts_with(ALIAS) => {
            return Err(taken(&near, "give the function another name"));
        }
        found => {
            if let Some(there) = found {
                if there.alias != alias {
                    super::undo(&there.alias)?;
                }
                sockets.delete(&near)?;
            }
            place.end();
            let [ours, theirs] = [
                New::named(&near, wiring.node_west_mac.octets(), mtu),
                New::named(PORT, wiring.west_mac.octets(), mtu),
            ];
            sockets.add(&ours, &alias, Kind::Veth { peer: &theirs, namespace: Some(&inside) })?;
            inside.inside(|| quiet(PORT))??;
            true
        }
    };
    quiet(&near)?;
    sockets.settle(&near, Some(&alias), mtu)?;
    let file = checked(&place, wiring, service, labels)?;
    suit(&near, service.merged)?;
    // It makes the service faster, no more.
    if let Err(error) = polling::defer(&near, polling::OF_SERVICES) {
        tracing::warn!(function = wiring.namespace, "packets of the service are taken one by one: {error}");
    }
    if let Some(file) = file {
        run(&place, wiring, service, &file)?;
    }
    Ok(changed)
}

/// Suits the node's end to a program that takes packets by XDP: checksums are complete, since nobody behind makes those that are left to the
/// link; and the end polls, since else what XDP sends back does not reach it. `merged`: to one that takes packets as they are on a link with
/// its offloads.
fn suit(near: &str, merged: bool) -> Result<(), KernelError> {
    let Some(link) = LinkSocket::open()?.find(near)? else { return Ok(()) };
    let mut offloads = OffloadSocket::open()?;
    let now = offloads.of(link.index())?;
    if !now.gro() {
        offloads.set(link.index(), "rx-gro", true)?;
    }
    if now.tx_checksum() != merged {
        offloads.set(link.index(), "tx-checksum-ip-generic", merged)?;
    }
    Ok(())
}

/// Whether it does not run.
pub fn is_gone(wiring: &Wiring) -> bool {
    !Place::of(wiring).is_running()
}

/// Ends the service that an alias tells of, and removes what it lived in. The node's end is the caller's. Nothing happens with another alias.
pub fn remove(alias: &str) -> Result<(), KernelError> {
    let Some(place) = Place::read(alias) else { return Ok(()) };
    place.end();
    if let Some(namespace) = Namespace::find(&place.namespace)? {
        namespace.remove()?;
    }
    for ending in ["json", "socket", "log"] {
        let _ = fs::remove_file(place.file(ending));
    }
    Ok(())
}

/// What `segue-service run` reads.
fn text(wiring: &Wiring, service: &NodeService, labels: bool) -> String {
    let mut file = json!({
        "name": wiring.namespace, "service": service.name, "config": service.config, "interface": PORT,
        "workers": service.workers.unwrap_or(1), "cpus": service.cpus, "node_mac": wiring.node_west_mac.to_string(),
    });
    if labels {
        file["steering"] = json!("sr-mpls");
    }
    if service.merged {
        file["merged"] = json!(true);
    }
    if let Some(limits) = &service.limits {
        file["limits"] = json!(limits);
    }
    format!("{file:#}\n")
}

/// The file that the service is to read, once its program has said that it is right. None: it runs by what this says already.
fn checked(
    place: &Place,
    wiring: &Wiring,
    service: &NodeService,
    labels: bool,
) -> Result<Option<PathBuf>, KernelError> {
    let (file, text) = (place.file("json"), text(wiring, service, labels));
    let is_other = fs::read_to_string(&file).ok().is_none_or(|there| there != text);
    if place.is_running() && !is_other {
        return Ok(None);
    }
    let program = program()?;
    fs::create_dir_all(DIRECTORY).map_err(failed(Path::new(DIRECTORY)))?;
    // Asked before anything is changed: what is wrong with a configuration is told when it is applied.
    let trial = place.file("trial");
    fs::write(&trial, &text).map_err(failed(&trial))?;
    let checked = Run::new(&program, ["check".as_ref(), trial.as_os_str()]).output();
    let moved = checked.map_err(KernelError::from).and_then(|output| match output.status.success() {
        true => fs::rename(&trial, &file).map_err(failed(&file)),
        false => Err(refused(wiring, &String::from_utf8_lossy(&output.stderr), &trial)),
    });
    if moved.is_err() {
        let _ = fs::remove_file(&trial);
    }
    moved.map(|()| Some(file))
}

fn failed(what: &Path) -> impl FnOnce(std::io::Error) -> KernelError {
    let action = format!("file {}", what.display());
    move |cause| KernelError {
        action,
        errno: cause.raw_os_error(),
        cause: cause.to_string(),
        remedy: "see that /run is there and can be written".to_owned(),
    }
}

/// Has the service read its file: starts it if it does not run.
fn run(place: &Place, wiring: &Wiring, service: &NodeService, file: &Path) -> Result<(), KernelError> {
    if place.is_running() {
        // What a running service cannot take over needs a start.
        if reload(&place.file("socket")) {
            return Ok(());
        }
        place.end();
    }
    let program = program()?;
    tracing::info!(function = wiring.namespace, service = service.name, "is started");
    let socket = place.file("socket");
    let arguments = [
        "run".as_ref(),
        file.as_os_str(),
        "--restart".as_ref(),
        "--netns".as_ref(),
        place.namespace.as_ref(),
        "--socket".as_ref(),
        socket.as_os_str(),
    ];
    let mut child = Run::new(&program, arguments).inside(&place.namespace).daemon(&place.file("log"))?;
    // Whoever ends is waited for, or it would stay as a zombie for as long as the agent lives.
    let waited = std::thread::Builder::new().name("service".to_owned()).spawn(move || child.wait());
    waited.map(drop).map_err(failed(&program))
}

fn refused(wiring: &Wiring, said: &str, trial: &Path) -> KernelError {
    let said = said.trim().trim_start_matches("segue-service: ");
    let place = format!("functions.{}.service", wiring.namespace);
    KernelError {
        action: format!("function {}", wiring.namespace),
        errno: None,
        cause: said.replace(&trial.display().to_string(), &place),
        remedy: "`segue service schema NAME` says what a service can be told".to_owned(),
    }
}

/// Whether the service has taken another configuration.
fn reload(socket: &Path) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"reload")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    ask().is_ok_and(|text| text == "{}")
}

/// `$SEGUE_SERVICE`, else beside this program, else in PATH.
fn program() -> Result<PathBuf, KernelError> {
    let named = std::env::var_os("SEGUE_SERVICE").map(PathBuf::from);
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    named.or(beside.filter(|path| path.is_file())).or_else(|| command::find(PROGRAM)).ok_or_else(|| KernelError {
        action: format!("program {PROGRAM}"),
        errno: None,
        cause: "it is neither beside segued nor in PATH".to_owned(),
        remedy: "install it, or set SEGUE_SERVICE to its path".to_owned(),
    })
}
