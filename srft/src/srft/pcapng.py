# SPDX-License-Identifier: Apache-2.0
"""Captures as pcapng files, with the place of each packet as its interface (draft-ietf-opsawg-pcapng)."""

import struct
from collections.abc import Iterable
from pathlib import Path

from srft.wire import Frame

_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_ETHERNET = 1
_COMMENT, _NAME, _RESOLUTION, _FLAGS = 1, 2, 9, 2
_NANOSECONDS = b"\x09"
_DIRECTIONS = {"in": 1, "out": 2}


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def _block(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    length = len(body) + 12
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def write(path: Path, frames: Iterable[Frame]) -> None:
    """Writes frames in the order of their times. Raises OSError."""
    places: dict[str, int] = {}
    blocks = [_block(_SECTION, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))]
    for frame in sorted(frames, key=lambda frame: frame.time):
        if frame.where not in places:
            places[frame.where] = len(places)
            options = _option(_NAME, frame.where.encode()) + _option(_RESOLUTION, _NANOSECONDS) + _option(0, b"")
            blocks.append(_block(_INTERFACE, struct.pack("<HHI", _ETHERNET, 0, 0) + options))
        head = struct.pack(
            "<IIIII", places[frame.where], frame.time >> 32, frame.time & 0xFFFFFFFF, len(frame.data), len(frame.data)
        )
        options = _option(_FLAGS, struct.pack("<I", _DIRECTIONS.get(frame.direction, 0)))
        if frame.outcome:
            options += _option(_COMMENT, frame.outcome.encode())
        data = frame.data + bytes(-len(frame.data) % 4)
        blocks.append(_block(_PACKET, head + data + options + _option(0, b"")))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(blocks))
