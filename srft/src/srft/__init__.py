# SPDX-License-Identifier: Apache-2.0
"""SRFT: functional tests of service chains. docs/using/srft.md has a tutorial."""

from srft.case import TestCase
from srft.craft import Crafter, Expect, Send, expect, send
from srft.diff import Difference, differences
from srft.flow import Flow
from srft.labels import LabelError, Labels
from srft.match import Fault, Matcher
from srft.network import Network, NetworkError
from srft.report import Failure
from srft.sniff import Sniffer
from srft.tester import Test, Tester

__all__ = [
    "Crafter",
    "Difference",
    "Expect",
    "Failure",
    "Fault",
    "Flow",
    "LabelError",
    "Labels",
    "Matcher",
    "Network",
    "NetworkError",
    "Send",
    "Sniffer",
    "Test",
    "TestCase",
    "Tester",
    "differences",
    "expect",
    "send",
]
