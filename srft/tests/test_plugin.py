# SPDX-License-Identifier: Apache-2.0
"""The plug-in and the unittest style: tests of tests, on a network without a kernel."""

import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

#: Every topology is the network without a kernel of fake.py; port 23 is lost.
CONFTEST = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from fake import FakeNetwork, straight
from scapy.layers.inet import UDP
from srft import Tester, session

def open_fake(self, key, testers):
    if self.options.remote is None and key is None:
        return original(self, key, testers)
    lossy = lambda packet, at, number: [] if packet[UDP].dport == 23 else straight(packet, at, number)
    return Tester(FakeNetwork(lossy), captures=self.options.captures)

original = session.Session._open
session.Session._open = open_fake
"""

TEST = """
import pytest
from scapy.layers.inet import UDP
from srft import expect, send

pytestmark = pytest.mark.topology("any.yaml")

def crossing(port):
    def craft(flow):
        packet = flow.ip("$client", "$server") / UDP(dport=port) / flow.payload()
        return [send(packet, "client"), expect(packet, "server")]
    return craft

def test_web(tester):
    tester.check(crossing(80))

def test_telnet(tester):
    tester.check(crossing(23), patience=0.1)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    # A process of its own: the session is one for each process, and this one has its own.
    monkeypatch.setenv("PYTHONPATH", ":".join(path for path in sys.path if path))
    monkeypatch.delenv("SRFT_REMOTE", raising=False)
    pytester.makeconftest(CONFTEST)
    return pytester


def test_one_passes_and_one_fails(project: pytest.Pytester) -> None:
    project.makepyfile(TEST)
    done = project.runpytest_subprocess("-p", "srft.plugin", f"--srft-captures={project.path / 'kept'}")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            "srft: local mode, labs",
            "E*srft.report.Failure: test_telnet: flow 0x*",
            "E*at server: lost 1 of 1 packet",
            "E*packets: */kept/test_telnet.pcapng",
        ]
    )
    assert (project.path / "kept" / "test_telnet.pcapng").stat().st_size > 100


def test_remote_mode_is_said(project: pytest.Pytester) -> None:
    project.makepyfile(TEST)
    done = project.runpytest_subprocess("-p", "srft.plugin", "--srft-remote=there.yaml", "-k", "web")
    done.assert_outcomes(passed=1, deselected=1)
    done.stdout.fnmatch_lines(["srft: remote mode, there.yaml"])


def test_a_test_without_a_topology(project: pytest.Pytester) -> None:
    project.makepyfile("def test_it(tester): pass")
    done = project.runpytest_subprocess("-p", "srft.plugin")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["no topology: mark the test with @pytest.mark.topology('FILE'), or give --srft-remote"])


UNITTEST = """
from scapy.layers.inet import UDP
import srft
import conftest

class Crossing(srft.TestCase):
    topology = "any.yaml"

    def perform(self, port):
        def craft(flow):
            packet = flow.ip("$client", "$server") / UDP(dport=port) / flow.payload()
            return [srft.send(packet, "client"), srft.expect(packet, "server")]
        self.tester.perform(srft.Test(srft.Crafter(craft), patience=0.1))

    def test_web(self):
        self.perform(80)

    def test_telnet(self):
        self.perform(23)
"""


@pytest.mark.parametrize("by_pytest", [True, False])
def test_unittest_style(project: pytest.Pytester, by_pytest: bool) -> None:
    project.makepyfile(test_it=UNITTEST)
    if by_pytest:
        done = project.runpytest_subprocess("-p", "srft.plugin")
        done.assert_outcomes(passed=1, failed=1)
        shown = done.stdout.str()
    else:
        shown = project.run(sys.executable, "-m", "unittest").stderr.str()
        assert "FAILED (failures=1)" in shown
        assert "Ran 2 tests" in shown
    assert "Failure: test_telnet: flow 0x" in shown
    assert "at server: lost 1 of 1 packet" in shown


def test_silence() -> None:
    from srft.silence import silence

    assert 'iifname { "eth1", "eth2" } drop' in silence(["eth1", "eth2"])
    assert "iifname" not in silence()
