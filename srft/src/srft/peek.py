# SPDX-License-Identifier: Apache-2.0
"""What tells a frame's flow, read from its octets: many frames are looked at, and few of them are anybody's."""

import re
from dataclasses import dataclass, field

from srft.wire import Frame

#: What the payload of a flow begins with; four octets with its number follow.
TOKEN = b"SRFT"
_TOKEN = re.compile(TOKEN + b"(.{4})", re.DOTALL)

_IPV4, _IPV6, _MPLS = 0x0800, 0x86DD, 0x8847
_BOTTOM = 0x100
_IN_IPV4, _IN_IPV6 = 4, 41
_TCP, _UDP, _ICMP, _ICMPV6 = 6, 17, 1, 58
_FRAGMENT = 44
_EXTENSIONS = {0, 43, 60}
_ETHERNET_IN_IPV6 = 143
# ICMP messages that quote a packet, and those that have an identifier.
_ERRORS, _ERRORS6 = {3, 4, 5, 11, 12}, {1, 2, 3, 4}
_ECHOES, _ECHOES6 = {0, 8}, {128, 129}
# Neighbour discovery and multicast listener reports: between a host and its node.
_LINK6 = {*range(130, 138), 143}

#: Protocol, and both ends with their ports, in no order: a flow and its answers.
Ends = tuple[int, frozenset[tuple[bytes, int]]]


@dataclass
class Marks:
    """Everything in a frame that may tell a flow, each kind from the outside in."""

    tokens: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    idents: list[int] = field(default_factory=list)
    ends: Ends | None = None
    #: Whether this goes through the network: no ARP, no neighbour discovery.
    routed: bool = False


def marks(data: bytes) -> Marks:
    """Looks through a frame, into steering headers and into packets that ICMP errors quote; cut ones as far as they go."""
    found = Marks()
    _ethernet(data, 0, found)
    if found.routed:
        found.tokens = [int.from_bytes(token.group(1), "big") for token in _TOKEN.finditer(data)]
    return found


def of_frame(frame: Frame) -> Marks:
    """Marks of a frame."""
    return marks(frame.data)


def _number(data: bytes, at: int, size: int = 2) -> int:
    return int.from_bytes(data[at : at + size], "big")


def _ethernet(data: bytes, at: int, found: Marks) -> None:
    kind, at = _number(data, at + 12), at + 14
    if kind == _MPLS:
        at = _behind_labels(data, at)
        kind = {4: _IPV4, 6: _IPV6}.get(data[at] >> 4 if at < len(data) else 0, 0)
    if kind == _IPV6:
        _ipv6(data, at, found)
    elif kind == _IPV4:
        _ipv4(data, at, found)


def _behind_labels(data: bytes, at: int) -> int:
    """Where the packet begins that is behind a stack of labels at `at`; the end of a frame that is cut before."""
    while at + 4 <= len(data):
        at += 4
        if _number(data, at - 4, 4) & _BOTTOM:
            return at
    return len(data)


def _ipv4(data: bytes, at: int, found: Marks) -> None:
    if len(data) < at + 20:
        return
    found.routed = True
    found.idents.append(_number(data, at + 4))
    ends = (data[at + 12 : at + 16], data[at + 16 : at + 20])
    later = _number(data, at + 6) & 0x1FFF
    if not later:
        _upper(data, at + (data[at] & 15) * 4, data[at + 9], ends, found)


def _ipv6(data: bytes, at: int, found: Marks) -> None:
    if len(data) < at + 40:
        return
    label = _number(data, at, 4) & 0xFFFFF
    ends = (data[at + 8 : at + 24], data[at + 24 : at + 40])
    kind, at = data[at + 6], at + 40
    while len(data) >= at + 8 and (kind in _EXTENSIONS or kind == _FRAGMENT):
        if kind == _FRAGMENT:
            if _number(data, at + 2) & 0xFFF8:
                kind = 59
                break
            kind, at = data[at], at + 8
        else:
            kind, at = data[at], at + 8 + data[at + 1] * 8
    if kind == _ICMPV6 and len(data) > at and data[at] in _LINK6:
        return
    found.routed = True
    found.labels.append(label)
    _upper(data, at, kind, ends, found)


def _upper(data: bytes, at: int, kind: int, ends: tuple[bytes, bytes], found: Marks) -> None:
    if kind == _IN_IPV6:
        _ipv6(data, at, found)
    elif kind == _IN_IPV4:
        _ipv4(data, at, found)
    elif kind == _ETHERNET_IN_IPV6:
        _ethernet(data, at, found)
    elif kind in (_TCP, _UDP) and len(data) >= at + 4:
        found.ends = (kind, frozenset({(ends[0], _number(data, at)), (ends[1], _number(data, at + 2))}))
    elif kind in (_ICMP, _ICMPV6) and len(data) >= at + 8:
        number = data[at]
        if number in (_ERRORS if kind == _ICMP else _ERRORS6):
            quoted = data[at + 8] >> 4 if len(data) > at + 8 else 0
            if quoted == 6:
                _ipv6(data, at + 8, found)
            elif quoted == 4:
                _ipv4(data, at + 8, found)
        elif number in (_ECHOES if kind == _ICMP else _ECHOES6):
            found.idents.append(_number(data, at + 4))
