# SPDX-License-Identifier: Apache-2.0
"""The tutorial (docs/using/srft.md), command by command; then its tests on a lab that stands for a deployed network."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import srft
from srft.lab import STATE, Lab
from srft.silence import silence

ROOT = Path(srft.__file__).parents[3]
PAGE = ROOT / "docs" / "using" / "srft.md"
BLOCK = re.compile(r"^```(\S+) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PATIENCE = 120
NOBODY = "65534"


def blocks() -> list[tuple[str, str, str]]:
    """Language, word behind it, and text of each block of the page, up to its reference."""
    return BLOCK.findall(PAGE.read_text().split("\n## Reference")[0])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the tutorial, with its files."""
    directory = tmp_path_factory.mktemp("tutorial")
    for _, name, text in blocks():
        if "." in name:
            (directory / name).write_text(text)
    return directory


def environment() -> dict[str, str]:
    """As in a shell, without what this run of pytest has set."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONPATH", "SEGUE") and not key.startswith(("PYTEST", "SRFT"))
    }
    return kept | {"PATH": f"{ROOT}/target/debug:{os.environ['PATH']}"}


def test_tutorial(tmp_path: Path) -> None:
    """Each command does what the page says; files are there when the page has shown them."""
    count = 0
    shown = ""
    # A copy: pip builds where the sources are, and leaves there what the next build takes for new.
    source = tmp_path / "source"
    shutil.copytree(ROOT / "srft", source / "srft", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    (source / "target").symlink_to(ROOT / "target")
    place = tmp_path / "empty"
    place.mkdir()
    try:
        for language, word, text in blocks():
            if "." in word:
                (place / word).write_text(text)
            elif language == "sh":
                done = subprocess.run(
                    ["bash", "-euc", text],
                    cwd=place,
                    env=environment() | {"SEGUE_SOURCE": str(source)},
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE,
                    check=False,
                )
                shown = done.stdout
                assert (done.returncode != 0) == (word == "fails"), f"{text}\n{done.stdout}\n{done.stderr}"
                count += 1
            elif word == "says":
                # How many flows fail depends on where the meter's count stood.
                for line in text.splitlines()[1:]:
                    assert line in shown, f"{line!r} is not in\n{shown}"
    finally:
        for lab in ("two", "packed"):
            subprocess.run([f"{ROOT}/target/debug/segue", "lab", "down", lab], capture_output=True, check=False)
    assert count == 10
    assert (place / "kept" / "test_datagrams_pass-6.pcapng").stat().st_size > 1000


@pytest.fixture
def deployed(place: Path) -> Iterator[tuple[Lab, Path]]:
    """Another network with the same functions, elsewhere: other names of the nodes' places, other addresses, other SIDs.

    The tester's machine is a namespace with both access links: nobody sees from there that there is a lab.
    """
    text = yaml.safe_load((place / "chain.yaml").read_text())
    text["name"] = "deployed"
    text["domain"] = {"sid_block": "fc00:aaaa::/32", "host_prefix": "2001:db8:ffff::/48", "host_prefix_ipv4": "172.16.0.0/12"}
    text["nodes"] = {"core": {}, "west": {}, "east": {}}
    text["links"] = [{"between": ["west", "core"]}, {"between": ["core", "east"]}]
    text["nodes"]["core"]["dataplane"] = "plain"
    file = place / "deployed.yaml"
    file.write_text(yaml.safe_dump(text, sort_keys=False))
    lab = Lab(file)
    machine = "sg-srft-machine"
    try:
        subprocess.run([lab.segue, "lab", "up", str(file)], check=True, capture_output=True)
        subprocess.run(["ip", "netns", "add", machine], check=True)
        yield lab, move(lab, machine, place)
    finally:
        subprocess.run(["ip", "netns", "del", machine], check=False)
        subprocess.run([lab.segue, "lab", "down", "deployed"], check=True, capture_output=True)


def move(lab: Lab, machine: str, place: Path) -> Path:
    """Moves the hosts' ends of their links to the tester's machine, and writes the remote file for it."""
    description = lab.description()
    hosts = {}
    for attachment in description.attachments:
        host, namespace = attachment.host, attachment.namespace
        addresses = lab.plan["hosts"][host]["interface"]["addresses"]
        gateway = lab.plan["hosts"][host]["routes"][-1]["next_hops"][0]["gateway"]
        run(namespace, "ip", "link", "set", attachment.interface, "netns", machine, "name", host)
        run(machine, "sysctl", "-qw", f"net.ipv6.conf.{host}.accept_dad=0")
        for address in addresses:
            run(machine, "ip", "address", "add", address, "dev", host)
        run(machine, "ip", "link", "set", host, "up")
        hosts[host] = {"interface": host, "addresses": [one.split("/")[0] for one in addresses], "gateway": gateway}
    subprocess.run(["ip", "netns", "exec", machine, "nft", "-f", "-"], input=silence(list(hosts)), text=True, check=True)
    remote = {
        "name": "branch",
        "hosts": hosts,
        "labels": {"east.meter": description.labels.address("$east.meter")},
        "services": {one.name: {"node": one.node, "ports": sorted(one.ports)} for one in description.services},
        # As if `ssh -L` had brought them here: sockets that belong to the tester.
        "agents": {node: str(STATE / "deployed" / f"{node}.sock") for node in description.agents},
    }
    for socket in remote["agents"].values():
        Path(socket).chmod(0o666)
    file = place / "remote.json"
    file.write_text(json.dumps(remote))
    return file.rename(place / "remote.yaml")


def run(namespace: str, *command: str) -> str:
    return subprocess.run(["ip", "netns", "exec", namespace, *command], check=True, capture_output=True, text=True).stdout


def as_tester(place: Path, remote: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest on the tester's machine as somebody who may do nothing but open packet sockets."""
    who = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
    may = ["--inh-caps", "-all,+net_raw", "--ambient-caps", "+net_raw"]
    pytest_itself = [sys.executable, "-m", "pytest", "-p", "srft.plugin", "-p", "no:cacheprovider"]
    place.chmod(0o777)
    return subprocess.run(
        ["ip", "netns", "exec", "sg-srft-machine", *who, *may, *pytest_itself, "--srft-remote", str(remote), *arguments],
        cwd=place,
        env=environment() | {"HOME": str(place), "PYTHONPATH": f"{ROOT}/srft/src"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_the_same_file_on_a_deployed_network(deployed: tuple[Lab, Path], place: Path) -> None:
    """It passes as it is; and when a function there breaks, it says which, without having been on any node."""
    lab, remote = deployed
    readable(place)
    done = as_tester(place, remote, "test_chain.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout
    assert "srft: remote mode" in done.stdout
    # Without agents and services: the tester has its two links, and nothing else.
    alone = {key: value for key, value in json.loads(remote.read_text()).items() if key not in ("agents", "services")}
    (place / "alone.yaml").write_text(json.dumps(alone))
    broken = "table inet broken { chain forward { type filter hook forward priority 0; numgen inc mod 10 == 9 drop; }; }"
    run(lab.namespace("meter"), "nft", broken)
    done = as_tester(place, remote, "test_chain.py", "-k", "datagrams and 6")
    assert done.returncode == 1, done.stdout
    assert "service meter on east: lost 1 of 10 packets" in done.stdout
    done = as_tester(place, place / "alone.yaml", "test_chain.py", "-k", "datagrams and 6 or meter")
    assert done.returncode == 1, done.stdout
    assert "at server: lost 1 of 10 packets" in done.stdout
    assert "service meter" not in done.stdout
    # It cannot ask a node, and says so rather than to pass.
    assert "the agent of node east is not known in branch" in done.stdout


def readable(place: Path) -> None:
    """Nobody can read all of the way to the tutorial's files, and to SRFT."""
    for directory in [place, *place.parents]:
        if directory.stat().st_uid == os.geteuid() and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o055)


def test_what_the_tutorial_needs_is_here() -> None:
    """Its commands are not skipped where something is missing: this says what."""
    for program in ("ip", "nft", "setpriv", "sysctl", "tshark"):
        assert shutil.which(program), f"{program} is missing: ./x test installs it"
