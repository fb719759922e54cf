# SPDX-License-Identifier: Apache-2.0
"""Tests in the style of unittest: `python3 -m unittest`, or pytest."""

import inspect
import unittest
from pathlib import Path
from typing import ClassVar

from srft import session
from srft.flow import Flow
from srft.network import Network
from srft.tester import Tester


class TestCase(unittest.TestCase):
    """A case on one network. Options come from the environment (`SRFT_REMOTE`, `SEGUE`), or from pytest."""

    __test__ = False

    #: Topology file, beside the file of the test.
    topology: ClassVar[str | None] = None
    #: Plain nodes of it that packets are sent from.
    testers: ClassVar[list[str]] = []
    tester: ClassVar[Tester]
    network: ClassVar[Network]

    def __init_subclass__(cls) -> None:
        """For pytest: this class has no tests, those made of it have."""
        cls.__test__ = True

    @classmethod
    def setUpClass(cls) -> None:
        """Brings the network up, if no test has before."""
        super().setUpClass()
        file = Path(inspect.getfile(cls)).parent / cls.topology if cls.topology else None
        cls.tester = session.current().tester(file, cls.testers)
        cls.network = cls.tester.network

    def setUp(self) -> None:
        """Messages name the test."""
        super().setUp()
        self.tester.name = self.id().rpartition(".")[2]

    def flow(self) -> Flow:
        """A flow with a label that nobody else has."""
        return self.tester.flow()
