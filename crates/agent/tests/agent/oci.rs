//! The agent as a container: the image that packaging/oci makes, run by podman in the node's network namespace.

use std::path::Path;
use std::time::{Duration, Instant};

use segue_api::http;
use segue_host::Run;
use segue_testkit::packet_socket::PacketSocket;
use segue_wire::{Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, UdpRepr};

use crate::support::Network;

/// podman with files of its own, as CI's machine takes it.
struct Podman(tempfile::TempDir);

impl Podman {
    const NAME: &'static str = "segue-agent";

    fn words(&self) -> String {
        let path = self.0.path().display();
        format!(
            "podman --runtime runc --root {path}/storage --runroot {path}/run --storage-driver vfs --cgroup-manager cgroupfs \
             --events-backend none"
        )
    }

    fn run(&self, arguments: &str) -> String {
        Run::new("sh", ["-c", &format!("{} {arguments}", self.words())]).text().unwrap()
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = Run::new("sh", ["-c", &format!("{} rm --force --time 0 {}", self.words(), Self::NAME)]).text();
        let _ = nix::mount::umount(&self.0.path().join("segue/bpf"));
        let _ = nix::mount::umount(&self.0.path().join("segue"));
    }
}

#[test]
#[ignore = "needs root"]
fn an_image_of_the_agent_makes_a_node() {
    let network = Network::new();
    let podman = Podman(tempfile::tempdir().unwrap());
    let path = podman.0.path().display().to_string();
    let built = Path::new(env!("CARGO_BIN_EXE_segued")).parent().unwrap();
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/oci");
    let line = format!("BUILT={} PODMAN='{}' {} {path}", built.display(), podman.words(), recipe.display());
    let image = Run::new("sh", ["-c", &line]).text().unwrap();
    // As whoever gets the file.
    podman.run("rmi --all --force");
    podman.run(&format!("load --quiet --input {}", image.trim()));
    let image = podman.run("images --quiet").lines().next().unwrap().to_owned();
    std::fs::create_dir(podman.0.path().join("segue")).unwrap();
    Run::new("sh", ["-c", &format!("mount -t tmpfs segue {path}/segue && mount --make-shared {path}/segue")])
        .text()
        .unwrap();
    std::fs::create_dir(podman.0.path().join("state")).unwrap();
    let state = "{node: n1, source_address: 'fc00:0:1::1', domain: {sid_blocks: ['fc00::/32']}, \
        ports: [{name: west, role: core}, {name: east, role: core}], sids: [{sid: 'fc00:0:1:1::', behaviour: End}]}";
    std::fs::write(podman.0.path().join("node.yaml"), state).unwrap();
    let start = format!(
        "run --detach --name {} --privileged --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 --network ns:/run/netns/{} \
         --volume {path}/node.yaml:/etc/segue/node.yaml:ro --volume {path}/segue:/run/segue:rshared \
         --volume {path}/state:/var/lib/segue {image}",
        Podman::NAME,
        network.node.name()
    );
    podman.run(&start);
    let socket = podman.0.path().join("segue/segued.sock");
    let end = Instant::now() + Duration::from_secs(30);
    while http::request(&socket, "GET", "/v1/version", None, Duration::from_secs(5)).is_err() {
        assert!(Instant::now() < end, "{}", podman.run(&format!("logs {} 2>&1", Podman::NAME)));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(podman.run(&format!("exec {} segue get sids", Podman::NAME)).contains("fc00:0:1:1::"));
    let passes = || {
        let (sender, receiver) = (PacketSocket::open(&network.left, "n"), PacketSocket::open(&network.right, "n"));
        let path = ["fc00:0:1:1::".parse().unwrap(), "fc00:0:2:1::".parse().unwrap()];
        let frame = PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]))
            .ipv6(Ipv6Repr::new("2001:db8:1::2".parse().unwrap(), path[0]))
            .srh(SrhRepr::new(&path))
            .udp(UdpRepr::new(1, 2))
            .payload(b"by way of a container")
            .build();
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            sender.send(&frame);
            let found = |bytes: &[u8]| bytes.ends_with(b"by way of a container");
            if receiver.receive_where(Duration::from_millis(200), found).is_some() {
                return true;
            }
        }
        false
    };
    assert!(passes(), "{}", podman.run(&format!("logs {} 2>&1", Podman::NAME)));
    // The agent goes; the data plane stays, as its pins lie outside of the container.
    podman.run(&format!("rm --force --time 5 {}", Podman::NAME));
    assert!(passes());
    let clean = start.replace("run --detach", "run --rm") + " clean";
    podman.run(&clean);
    let routes = network.node.sh("ip -6 route show proto 83");
    assert!(routes.is_empty(), "{routes}");
}
