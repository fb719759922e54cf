# SPDX-License-Identifier: Apache-2.0
"""The guide "Segue on a real node" (docs/using/real-node.md), command by command.

Each machine is a network and a mount namespace, and its cables are veth pairs with the offloads that they come with. What a
namespace has not got stands beside it: `apt-get` (the programs are there), `systemctl` (starts the agent as the unit does), and
`podman` without cgroups and with an image that is here. packaging/vms tries the package itself, under systemd, in virtual
machines.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import srft

ROOT = Path(srft.__file__).parents[3]
PAGE = ROOT / "docs" / "using" / "real-node.md"
BLOCK = re.compile(r"^```(\S+) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PATIENCE = 60
#: Of the machine that runs the test: taken away again unless they were there.
DIRECTORIES = ["/etc/segue", "/var/lib/segue"]

SYSTEMCTL = """#!/bin/sh
start() {
    setsid segued --config /etc/segue/node.yaml >>/run/segue/log 2>&1 </dev/null &
    echo $! >/run/segue/pid
    for attempt in $(seq 400); do
        [ -S /run/segue/segued.sock ] && segue get revision >/dev/null 2>&1 && return
        kill -0 "$(cat /run/segue/pid)" || { cat /run/segue/log; exit 1; }
        sleep 0.05
    done
    exit 1
}
stop() {
    pid=$(cat /run/segue/pid)
    kill "$pid"
    # Nobody may be there to wait for it.
    while grep -q '^State:[[:space:]][^Z]' "/proc/$pid/status" 2>/dev/null; do sleep 0.05; done
}
case "$*" in
"enable --now segued") start ;;
"restart segued") stop; start ;;
"disable --now segued") stop ;;
*) echo "systemctl: what is $*?" >&2; exit 2 ;;
esac
"""

APT_GET = """#!/bin/sh
case "$*" in
"install -y ./segue_"*.deb | "install -y podman") ;;
*) echo "apt-get: what is $*?" >&2; exit 2 ;;
esac
"""

PODMAN = """#!/bin/sh
place={place}
[ "$1" != run ] || {{ shift; set -- run --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 "$@"; }}
exec /usr/bin/podman --runtime runc --root $place/storage --runroot $place/run --storage-driver vfs \\
    --cgroup-manager cgroupfs --events-backend none "$@"
"""


def blocks() -> list[tuple[str, list[str], str]]:
    """Language, words behind it, and text of each block of the page."""
    return [(language, words.split(), text) for language, words, text in BLOCK.findall(PAGE.read_text())]


class Machine:
    """A machine of the page."""

    def __init__(self, name: str, place: Path) -> None:
        self.name = name
        self.place = place
        self.started: list[subprocess.Popen[bytes]] = []
        private = "".join(f"mount -t tmpfs machine {directory} && " for directory in ["/run/segue", *DIRECTORIES])
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--net", "sh", "-c", f"{private} ip link set lo up && echo ready && exec sleep inf"],
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def command(self, text: str) -> list[str]:
        pid = str(self.process.pid)
        return ["nsenter", "--mount", "--net", "--target", pid, "--wd=.", "env", f"--chdir={self.place}", "bash", "-euc", text]

    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "SRFT", "SEGUE"))}
        return kept | {"PATH": f"{self.place}/programs:{ROOT}/target/debug:{os.environ['PATH']}"}

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(text), env=self.environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def sh(self, text: str) -> str:
        done = self.run(text)
        assert done.returncode == 0, f"{self.name}: {text}\n{done.stdout}\n{done.stderr}\n{self.log()}"
        return done.stdout

    def log(self) -> str:
        return self.run("tail -n 40 /run/segue/log 2>/dev/null; segue drops 2>/dev/null; true").stdout

    def start(self, text: str) -> None:
        self.started.append(
            subprocess.Popen(
                self.command(f"exec {text}"),
                env=self.environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )

    def end(self) -> None:
        self.run(
            "[ ! -e /run/segue/pid ] || { kill $(cat /run/segue/pid); sleep 0.5; segued clean; umount /run/segue/bpf; }; true"
        )
        for process in [*self.started, self.process]:
            process.kill()
            process.wait()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[dict[str, Machine]]:
    """Two nodes and two hosts, with their cables, and addresses of the hosts."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in [("systemctl", SYSTEMCTL), ("apt-get", APT_GET), ("podman", PODMAN.format(place=tmp_path))]:
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "segue_0.1.0_amd64.deb").touch()
    image(tmp_path)
    made = [directory for directory in map(Path, DIRECTORIES) if not directory.exists()]
    for directory in made:
        directory.mkdir(parents=True)
    all_machines: dict[str, Machine] = {}
    try:
        for name in ["n1", "n2", "client", "server"]:
            all_machines[name] = Machine(name, tmp_path)
        cable(all_machines["n1"], "eth0", all_machines["n2"], "eth0")
        for host, node, number in [("client", "n1", 1), ("server", "n2", 2)]:
            cable(all_machines[node], "eth1", all_machines[host], "eth0")
            all_machines[host].sh(
                f"ip address add 10.{number}.0.2/24 dev eth0; ip address add 2001:db8:{number}::2/64 dev eth0 nodad\n"
                f"ip route add default via 10.{number}.0.1; ip -6 route add default via 2001:db8:{number}::1"
            )
        yield all_machines
    finally:
        if "n2" in all_machines:
            all_machines["n2"].run("podman rm --force --time 0 fw")
        for machine in all_machines.values():
            machine.end()
        for directory in made:
            directory.rmdir()


def image(place: Path) -> None:
    """What stands for the image of the page: a program that sleeps."""
    root = place / "root" / "bin"
    root.mkdir(parents=True)
    shutil.copy("/usr/bin/busybox", root / "sleep")
    subprocess.run(["tar", "-C", str(place / "root"), "-cf", str(place / "image.tar"), "."], check=True)
    podman = [str(place / "programs" / "podman")]
    subprocess.run([*podman, "import", "image.tar", "docker.io/library/debian:12"], cwd=place, check=True, capture_output=True)


def cable(one: Machine, port: str, other: Machine, far: str) -> None:
    """A veth pair, with the offloads that veth has."""
    one.sh(
        f"ip link add {port} mtu 1500 type veth peer name {far} netns {other.process.pid}\n"
        f"sysctl -qw net.ipv6.conf.{port}.accept_dad=0; ip link set {port} up"
    )
    other.sh(f"sysctl -qw net.ipv6.conf.{far}.accept_dad=0; ip link set {far} up")


def until(machine: Machine, text: str, wanted: str) -> str:
    """Runs a command until all that it lists says so."""
    end = time.monotonic() + PATIENCE
    while True:
        shown = machine.sh(text)
        rows = shown.splitlines()[1:]
        if rows and all(re.search(rf"\b{wanted}\b", row) for row in rows):
            return shown
        assert time.monotonic() < end, f"{machine.name}: {text} does not say {wanted}:\n{shown}\n{machine.log()}"
        time.sleep(0.2)


def test_real_node(machines: dict[str, Machine]) -> None:
    """Each command does what the page says, on the machines that stand beside it."""
    shown, count = "", 0
    for language, words, text in blocks():
        if language == "yaml":
            name, _, path = words[0].partition(":")
            machines[name].sh(f"cat >{path} <<'END'\n{text}END")
        elif language == "text":
            for line in text.splitlines():
                assert line in shown, f"{line!r} is not in\n{shown}"
        elif language == "sh":
            count += 1
            for name in (word for word in words if word in machines):
                machine = machines[name]
                if "&" in words:
                    machine.start(text.strip())
                elif "until" in words:
                    shown = until(machine, text, words[-1])
                elif "fails" in words:
                    done = machine.run(text)
                    assert done.returncode != 0, f"{name}: {text}\n{done.stdout}"
                else:
                    shown = machine.sh(text)
    assert count == 25
    # Nothing of it stays.
    for name in ["n1", "n2"]:
        assert machines[name].sh("ip -6 route show proto 83; ip -o link | grep -c -e fnw- -e xdp || true").strip() == "0"
