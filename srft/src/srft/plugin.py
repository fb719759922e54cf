# SPDX-License-Identifier: Apache-2.0
"""The plug-in of pytest: options, the mark `topology`, and the fixtures `tester`, `network`, `lab`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from srft import session as sessions
from srft.agent import AgentError
from srft.lab import Lab
from srft.network import Network, NetworkError
from srft.session import Options, Session
from srft.tester import Tester


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the command line."""
    group = parser.getgroup("srft", "functional tests of service chains")
    group.addoption("--srft-remote", metavar="FILE", help="test the network that this file describes, not a lab")
    group.addoption("--srft-segue", metavar="PROGRAM", help="the segue program (default: $SEGUE, or that in PATH)")
    group.addoption("--srft-captures", metavar="DIR", help="keep packets of failed tests there (default: a new directory)")
    group.addoption("--srft-flow-labels", metavar="FIRST", help="use flow labels from here on (default: a range of this process)")


def pytest_configure(config: pytest.Config) -> None:
    """Marks, and the session."""
    config.addinivalue_line(
        "markers", "topology(file, testers=[]): the network of a test; testers are plain nodes that packets are sent from"
    )
    given = Options.from_environment()
    option = config.getoption
    if option("srft_remote"):
        given.remote = Path(option("srft_remote"))
    if option("srft_captures"):
        given.captures = Path(option("srft_captures"))
    if option("srft_flow_labels"):
        given.flow_labels = int(option("srft_flow_labels"), 0)
    given.segue = option("srft_segue")
    sessions.use(Session(given))


def pytest_unconfigure() -> None:
    """Takes down what is up, also when the run was interrupted."""
    sessions.current().close()
    sessions.use(None)


def pytest_report_header() -> str:
    """What is tested."""
    remote = sessions.current().options.remote
    return f"srft: remote mode, {remote}" if remote else "srft: local mode, labs"


def _topology(request: pytest.FixtureRequest) -> tuple[Path | None, list[str]]:
    mark = request.node.get_closest_marker("topology")
    if mark is None:
        return None, []
    return request.path.parent / mark.args[0], list(mark.kwargs.get("testers", ()))


@pytest.fixture
def tester(request: pytest.FixtureRequest) -> Iterator[Tester]:
    """The tester on the network that the test's mark names."""
    try:
        found = sessions.current().tester(*_topology(request))
    except (NetworkError, AgentError, OSError) as error:
        message = str(error)
    else:
        message = ""
    if message:
        pytest.fail(message, pytrace=False)
    found.name = request.node.name
    yield found
    found.name = "test"


@pytest.fixture
def network(tester: Tester) -> Network:
    """The network that the test's mark names."""
    return tester.network


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Lab:
    """The lab itself, in local mode."""
    request.getfixturevalue("tester")  # which brings it up
    topology, _ = _topology(request)
    try:
        if topology is None:
            raise NetworkError("no topology: mark the test with @pytest.mark.topology('FILE')")
        return sessions.current().lab(topology)
    except NetworkError as error:
        pytest.fail(str(error), pytrace=False)
