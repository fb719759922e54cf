# SPDX-License-Identifier: Apache-2.0
"""What packet services have packed, taken apart: so that a flow is known where nobody can read it, and packets can be compared.

Aggregates (AGGFRAG, RFC 9347, whole blocks) and compressed packets (IPComp, RFC 3173) with DEFLATE and LZ4. What cannot be taken
apart stays as it is.
"""

import struct
import zlib

_IPV6 = b"\x86\xdd"
_LINK, _HEADER = 14, 40
_ROUTING = 43
_IPCOMP, _AGGFRAG = 108, 144
_DEFLATE, _LZ4 = 2, 61440
_LARGEST = 1 << 16
#: Something packed in something packed, so often at most.
_DEPTH = 4


def frames(data: bytes, depth: int = _DEPTH) -> list[bytes]:
    """A frame as those that it would be if nothing behind its steering header were packed: as a rule itself."""
    if len(data) < _LINK + _HEADER + 8 or data[12:14] != _IPV6 or data[_LINK + 6] != _ROUTING:
        return [data]
    at = _LINK + _HEADER
    end = at + 8 + data[at + 1] * 8
    kind, body = data[at], data[end : _LINK + _HEADER + int.from_bytes(data[18:20], "big")]
    if kind not in (_IPCOMP, _AGGFRAG) or not depth:
        return [data]
    try:
        inner = [_whole(body)] if kind == _IPCOMP else [(4 if one[0] >> 4 == 4 else 41, one) for one in blocks(body)]
    except (ValueError, IndexError, zlib.error):
        return [data]
    # An aggregate of nothing but padding has no packet.
    found = [] if inner else [data]
    for number, packet in inner:
        payload = data[at:end] + packet
        front = data[:18] + struct.pack("!H", len(payload) & 0xFFFF) + data[20:at]
        found += frames(front + bytes([number]) + payload[1:], depth - 1)
    return found


def blocks(body: bytes) -> list[bytes]:
    """The packets in an AGGFRAG payload. Raises ValueError if it has anything but whole packets and padding."""
    if body[:4] != bytes(4):
        raise ValueError("not of sub-type 0 with whole blocks")
    rest, found = body[4:], []
    while rest and rest[0] >> 4:
        version = rest[0] >> 4
        if version not in (4, 6):
            raise ValueError(f"a block of version {version}")
        length = int.from_bytes(rest[2:4], "big") if version == 4 else _HEADER + int.from_bytes(rest[4:6], "big")
        if not 0 < length <= len(rest):
            raise ValueError("a block that is cut")
        found.append(rest[:length])
        rest = rest[length:]
    return found


def _whole(body: bytes) -> tuple[int, bytes]:
    """What was compressed, and what it is. Raises ValueError or zlib.error."""
    cpi = int.from_bytes(body[2:4], "big")
    if cpi == _DEFLATE:
        return body[0], zlib.decompressobj(-15).decompress(body[4:], _LARGEST)
    if cpi == _LZ4:
        return body[0], lz4(body[4:])
    raise ValueError(f"compression parameter index {cpi}")


def lz4(block: bytes) -> bytes:
    """An LZ4 block decompressed. Raises ValueError or IndexError if it is none."""
    out = bytearray()
    at = 0
    while at < len(block):
        token = block[at]
        count, at = _length(block, at + 1, token >> 4)
        out += block[at : at + count]
        at += count
        if at >= len(block):
            break
        offset = block[at] | block[at + 1] << 8
        count, at = _length(block, at + 2, token & 15)
        if not 0 < offset <= len(out) or len(out) > _LARGEST:
            raise ValueError("an offset that leads nowhere")
        for _ in range(count + 4):
            out.append(out[-offset])
    return bytes(out)


def _length(block: bytes, at: int, count: int) -> tuple[int, int]:
    if count == 15:
        while True:
            count += block[at]
            at += 1
            if block[at - 1] != 255:
                break
    return count, at
