# SPDX-License-Identifier: Apache-2.0
"""Labels, flows, what tells a frame's flow, captures, and the files of remote mode."""

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from fake import LABELS, to_frame
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoRequest,
    ICMPv6ND_NS,
    IPerror6,
    IPv6,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrSegmentRouting,
)
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet
from scapy.utils import RawPcapNgReader, rdpcap

from srft import Crafter, Flow, LabelError, Labels, NetworkError, expect, pcapng, remote, send
from srft.agent import Counters
from srft.flow import FlowLabels, Registry
from srft.lab import labels, program
from srft.peek import marks
from srft.wire import Frame


def test_labels() -> None:
    known = Labels(LABELS)
    assert known.address("$client") == "2001:db8:1::2"
    assert known.address("$client", 4) == "10.0.1.2"
    assert known.address("192.0.2.1", 4) == "192.0.2.1"
    assert known.segments("$nfv.filter", "$chain.web", "fc00::1") == [
        "fc00:5e9:2:100::",
        "fc00:5e9:2:100::",
        "fc00:5e9:3:46::",
        "fc00::1",
    ]


def test_labels_of_stacks() -> None:
    """Names for labels of SR-MPLS are numbers, and no addresses."""
    known = Labels({**LABELS, "edge.table": "30400", "chain.mpls": ["16002", "30201", "30400"]})
    assert known.stack("$chain.mpls", "16005", "$edge.table") == [16002, 30201, 30400, 16005, 30400]
    with pytest.raises(LabelError, match="stands for 30400: not for one IPv6 address"):
        known.address("$edge.table")
    with pytest.raises(LabelError, match="has no IPv6 address"):
        known.segments("$chain.mpls")
    with pytest.raises(LabelError, match="fc00:5e9:2:100:: is no label"):
        known.stack("$chain.web")
    for reserved in ("15", "1048576"):
        with pytest.raises(ValueError, match="does not appear"):
            Labels({"x": reserved})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("$cleint", r"label \$cleint is not known; there are \$client"),
        ("$nfv.filtre", r"is not known; there are \$nfv\.filter"),
        ("$chain", r"or stands for several; there are \$chain\.web"),
        ("$chain.web", r"stands for fc00:5e9:2:100::, fc00:5e9:3:46::: not for one IPv6 address"),
    ],
)
def test_labels_that_are_wrong(text: str, says: str) -> None:
    with pytest.raises(LabelError, match=says):
        Labels(LABELS).address(text)
    with pytest.raises(LabelError, match="not for one IPv4 address"):
        Labels(LABELS).address("$nfv", 4)
    with pytest.raises(ValueError, match="label \\$x: 'y' does not appear"):
        Labels({"x": "y"})


def test_labels_of_a_lab() -> None:
    found = labels(
        [
            {"label": "$client", "kind": "host", "value": "2001:db8:1::2"},
            {"label": "$client.ipv6", "kind": "host", "value": "2001:db8:1::2"},
            {"label": "$client.ipv4", "kind": "host", "value": "10.0.1.2"},
            {"label": "$nfv.locator", "kind": "locator", "value": "fc00:5e9:2::/48"},
            {"label": "$chain.web", "kind": "chain", "value": "fc00:5e9:2:100::, fc00:5e9:3:46::"},
        ]
    )
    assert found.address("$client", 4) == found.address("$client.ipv4", 4) == "10.0.1.2"
    assert found.segments("$chain.web") == ["fc00:5e9:2:100::", "fc00:5e9:3:46::"]
    assert "nfv.locator" not in list(found)


def test_marks_are_set_where_a_test_sets_nothing() -> None:
    flow = Flow(0x12345, Labels(LABELS))

    def craft(flow: Flow) -> list[object]:
        bare = IPv6(src="::1", dst="::2") / IP(src="10.0.0.1") / TCP()
        chosen = flow.ipv4("$client", "$server", id=9) / UDP(sport=8)
        return [
            send(bare, "client"),
            expect(chosen, "server"),
            expect(flow.ipv6("$client", "$server") / ICMPv6EchoRequest(), "server"),
        ]

    bare, chosen, echo = (step.packet for step in Crafter(craft).steps(flow))
    assert (bare.fl, bare[IP].id, bare[TCP].sport) == (0x12345, 0x2345, flow.port)
    assert (chosen.id, chosen[UDP].sport) == (9, 8)
    assert (echo.fl, echo[ICMPv6EchoRequest].id) == (0x12345, 0x2345)


def test_steering_header() -> None:
    flow = Flow(5, Labels(LABELS))
    full, reduced = (flow.steering("$nfv", "$chain.web", "$server", reduced=value) for value in (False, True))
    listed = ["2001:db8:2::2", "fc00:5e9:3:46::", "fc00:5e9:2:100::"]
    assert (full.dst, full[1].addresses, full[1].segleft, full[1].lastentry) == (listed[2], listed, 2, 2)
    assert (reduced.dst, reduced[1].addresses, reduced[1].segleft, reduced[1].lastentry) == (listed[2], listed[:2], 2, 1)
    assert IPv6ExtHdrSegmentRouting not in flow.steering("$nfv", "$server", reduced=True)


@pytest.mark.parametrize("label", [0, -1, 1 << 20])
def test_numbers_that_are_no_flow_labels(label: int) -> None:
    with pytest.raises(ValueError, match="20 bits"):
        Flow(label)
    with pytest.raises(ValueError, match="12 octets or more"):
        Flow(1).payload(size=11)


def test_flow_labels_of_two_testers_differ() -> None:
    one, other = FlowLabels(), FlowLabels()
    assert {one.next() for _ in range(50)}.isdisjoint(other.next() for _ in range(50))
    one.close()
    other.close()


V4, V6 = IP(src="10.0.0.1", dst="10.0.0.2", id=77), IPv6(src="2001:db8::1", dst="2001:db8::2", fl=77)
OUTER = IPv6(src="fc00::1", dst="fc00::2", fl=1) / IPv6ExtHdrSegmentRouting(addresses=["fc00::3"])
FLOW = Flow(77)


@pytest.mark.parametrize(
    "packet",
    [
        V6 / UDP(),
        V4 / UDP(),
        OUTER / V6 / TCP(),
        OUTER / V4 / TCP(),
        IPv6(fl=1) / IPv6ExtHdrSegmentRouting(addresses=["fc00::3"], nh=143) / Ether() / V6 / UDP(),
        IPv6(fl=1) / IPv6ExtHdrHopByHop() / V6 / UDP(),
        Ether() / MPLS(label=16001, s=0) / MPLS(label=30100, s=1) / V4 / UDP(),
        Ether() / MPLS(label=30100, s=1) / V6 / TCP(),
        IPv6() / ICMPv6DestUnreach() / IPerror6(bytes(V6 / UDP())),
        IPv6() / ICMPv6DestUnreach() / IPerror6(bytes(OUTER / V4 / UDP())),
        IP() / ICMP(type=3, code=3) / V4 / UDP(),
        IP() / ICMP(type=0, id=77),
        IPv6() / ICMPv6EchoRequest(id=77),
        IPv6() / UDP() / FLOW.payload(),
        IP() / TCP() / (b"something before it" + FLOW.payload()),
        IPv6(src="2001:db8::9", dst="2001:db8::8") / UDP(sport=5, dport=6),
        IPv6(dst="2001:db8::9", src="2001:db8::8") / UDP(sport=6, dport=5),
        fragment(V4 / UDP() / bytes(100), 56)[1],
    ],
)
def test_frames_of_a_flow_are_known(packet: Packet) -> None:
    registry = Registry()
    registry.add(FLOW, [to_frame(IPv6(src="2001:db8::9", dst="2001:db8::8") / UDP(sport=5, dport=6))])
    registry.add(Flow(78), [])
    assert registry.identify(marks(to_frame(packet))) is FLOW
    registry.remove(FLOW)
    assert registry.identify(marks(to_frame(packet))) is None


def test_ends_that_two_flows_share_tell_neither() -> None:
    registry = Registry()
    for number in (1, 2):
        registry.add(Flow(number), [to_frame(IPv6(fl=number) / UDP(sport=5, dport=6))])
    assert registry.identify(marks(to_frame(IPv6(fl=3) / UDP(sport=5, dport=6)))) is None


def test_what_neighbours_say_is_nobodys() -> None:
    for frame in (
        Ether() / ARP(),
        Ether() / IPv6(fl=77) / ICMPv6ND_NS(),
        Ether() / IPv6(fl=77) / IPv6ExtHdrHopByHop(nh=58) / bytes([143, 0, 0, 0]),
    ):
        assert not marks(bytes(frame)).routed


def test_frames_that_are_cut_anywhere() -> None:
    """No frame makes a reader stop."""
    error = IPv6() / ICMPv6DestUnreach() / IPerror6(bytes(V6 / UDP() / FLOW.payload()))
    for packet in (OUTER / error, Ether() / MPLS(s=0) / MPLS(s=1) / error):
        whole = to_frame(packet)
        for length in range(len(whole)):
            marks(whole[:length])
            for at in range(0, length, 7):
                marks(whole[:at] + b"\xff" + whole[at + 1 : length])


def test_capture_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "one.pcapng"
    frames = [Frame(2_000_000_007, "server", "in", b"b" * 61), Frame(1_000_000_000, "nfv eth0", "out", b"a" * 60, "forwarded")]
    pcapng.write(path, frames)
    assert [bytes(packet) for packet in rdpcap(str(path))] == [b"a" * 60, b"b" * 61]
    times = [metadata.tshigh << 32 | metadata.tslow for _, metadata in RawPcapNgReader(str(path))]
    assert times == [1_000_000_000, 2_000_000_007]
    assert struct.unpack_from("<I", path.read_bytes())[0] == 0x0A0D0D0A
    for text in (b"nfv eth0", b"server", b"forwarded"):
        assert text in path.read_bytes()


def test_counters_since() -> None:
    before = Counters({("a", "drop_x"): 1, ("a", "forwarded"): 5}, {"s": 1})
    moved = Counters({("a", "drop_x"): 3, ("b", "drop_x"): 1, ("a", "forwarded"): 5}, {"s": 4}, {"s": 2}).since(before)
    assert moved.drops == {"drop_x": 3}
    assert (moved.outcome("drop_x"), moved.outcome("drop_x", "b"), moved.outcome("forwarded")) == (3, 1, 0)
    assert (moved.sids, moved.returned, moved.policies) == ({"s": 3}, {"s": 2}, {})


YAML = """
name: branch
hosts:
  client: {interface: lo, addresses: [10.0.1.2, "2001:db8:1::2"], gateway: "02:5E:00:00:00:01"}
labels: {nfv: "fc00:5ea:2::1", chain.web: ["fc00:5e9:2:100::", "fc00:5e9:3:46::"]}
services: {filter: {node: nfv, ports: [filter-w, filter-e]}}
agents: {nfv: /run/nfv.sock}
"""
INI = """
[network]
name = branch
[host client]
interface = lo
addresses = 10.0.1.2, 2001:db8:1::2
gateway = 02:5E:00:00:00:01
[labels]
nfv = fc00:5ea:2::1
chain.web = fc00:5e9:2:100::, fc00:5e9:3:46::
[service filter]
node = nfv
ports = filter-w, filter-e
[agents]
nfv = /run/nfv.sock
"""


@pytest.mark.parametrize(("name", "text"), [("a.yaml", YAML), ("a.ini", INI)])
def test_remote_file(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = remote.load(path)
    assert (found.name, found.agents) == ("branch", {"nfv": "/run/nfv.sock"})
    assert [(one.host, one.interface, one.gateway, one.namespace) for one in found.attachments] == [
        ("client", "lo", "02:5e:00:00:00:01", None)
    ]
    assert found.labels.address("$client", 4) == "10.0.1.2"
    assert found.labels.segments("$chain.web") == ["fc00:5e9:2:100::", "fc00:5e9:3:46::"]
    assert [(str(one), one.ports) for one in found.services] == [("service filter on nfv", {"filter-w", "filter-e"})]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", "hosts: {}", "no host: the tester has to be connected somewhere"),
        ("a.yaml", "hosts: {client: {interface: lo}}", "host client: `addresses` is missing"),
        ("a.yaml", "host: {}", "the file: unknown key host; known are agents, hosts"),
        ("a.yaml", "hosts: {client: {interfaces: lo}}", "host client: unknown key interfaces"),
        ("a.yaml", "hosts: [client]", "hosts: names with values are expected, not \\['client'\\]"),
        ("a.yaml", "hosts: {a: {", "while parsing a flow"),
        ("a.yaml", YAML.replace("fc00:5ea:2::1", "fc00:5ea:2::/64"), "label \\$nfv: 'fc00:5ea:2::/64'"),
        ("a.yaml", YAML.replace("02:5E:00:00:00:01", "the router"), "gateway the router is neither"),
        ("a.ini", "[hosts client]\ninterface = lo", "section \\[hosts client\\]: sections are"),
        ("a.ini", "interface = lo", "no section headers"),
    ],
)
def test_remote_file_that_is_wrong(tmp_path: Path, name: str, text: str, says: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(NetworkError, match=says):
        remote.load(path)
    with pytest.raises(NetworkError, match="nowhere"):
        remote.load(tmp_path / "nowhere.yaml")


def test_segue_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGUE", "/nowhere/segue")
    with pytest.raises(NetworkError, match="no program /nowhere/segue: put segue into PATH, or give its path with --srft-segue"):
        program()


def test_package_needs_nothing_but_scapy_and_yaml() -> None:
    """Importing it does not need pytest, so that unittest alone will do."""
    script = "import sys; sys.modules['pytest'] = None; import srft; print(srft.TestCase.__name__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "TestCase\n"), done.stderr
