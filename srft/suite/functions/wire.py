# SPDX-License-Identifier: Apache-2.0
"""A function on two TAP devices: what comes in by one leaves by the other; broken on purpose, if it is told how.

`wire.py [eats | corrupts | duplicates | reorders | leaks | delays]`. The lab says in the environment which devices to open
(docs/using/lab.md). Each direction counts for itself.
"""

import fcntl
import heapq
import os
import select
import signal
import struct
import sys
import time

TUNSETIFF = 0x400454CA  # linux/if_tun.h
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000
IPV4, IPV6 = b"\x08\x00", b"\x86\xdd"
UDP, TCP, ROUTING = 17, 6, 43
CHECKSUM = {UDP: 6, TCP: 16}
DELAY = 0.4
#: Of so many packets one is treated badly.
EVERY = 10


def mac(name: str) -> bytes:
    """A link-layer address in the environment."""
    return bytes.fromhex(os.environ[name].replace(":", ""))


def tap(name: str) -> int:
    """Opens a TAP device."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", os.environ[name].encode(), IFF_TAP | IFF_NO_PI))
    return device


def corrupt(packet: bytes) -> bytes:
    """The packet with another checksum of its transport header."""
    protocol, start = (packet[6], 40) if packet[0] >> 4 == 6 else (packet[9], (packet[0] & 15) * 4)
    place = start + CHECKSUM[protocol]
    return packet[:place] + bytes([packet[place] ^ 0x55]) + packet[place + 1 :]


def leak(packet: bytes) -> bytes:
    """The packet with an SRH that is of no use to anybody any more: Segments Left 0."""
    if packet[0] >> 4 != 6:
        return packet
    srh = bytes([packet[6], 2, 4, 0, 0, 0, 0, 0]) + packet[24:40]
    length = int.from_bytes(packet[4:6], "big") + len(srh)
    return packet[:4] + length.to_bytes(2, "big") + bytes([ROUTING]) + packet[7:40] + srh + packet[40:]


class Side:
    """One direction."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.count = 0
        self.held: bytes | None = None

    def handle(self, packet: bytes) -> list[tuple[float, bytes]]:
        """What leaves because a packet has come, and in how many seconds."""
        self.count += 1
        bad = self.count % EVERY == 0
        if self.fault == "eats" and bad:
            return []
        if self.fault == "corrupts" and bad:
            return [(0, corrupt(packet))]
        if self.fault == "leaks" and bad:
            return [(0, leak(packet))]
        if self.fault == "duplicates" and bad:
            return [(0, packet), (0, packet)]
        if self.fault == "delays":
            return [(DELAY, packet)]
        if self.fault == "reorders":
            if self.held is not None:
                held, self.held = self.held, None
                return [(0, packet), (0, held)]
            if self.count % EVERY == EVERY - 2:
                self.held = packet
                return []
        return [(0, packet)]


def main() -> None:
    """Runs until SIGTERM."""
    fault = sys.argv[1] if len(sys.argv) > 1 else ""
    sides = ["WEST", "EAST"]
    devices = [tap(f"SEGUE_TAP_{side}") for side in sides]
    own = [mac(f"SEGUE_MAC_{side}") for side in sides]
    node = [mac(f"SEGUE_NODE_MAC_{side}") for side in sides]
    directions = [Side(fault), Side(fault)]
    due: list[tuple[float, int, int, bytes]] = []
    number = 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        patience = max(due[0][0] - time.monotonic(), 0) if due else None
        for ready in select.select(devices, [], [], patience)[0]:
            side = devices.index(ready)
            frame = os.read(ready, 65536)
            # Neighbour discovery and other groups are between the node and this program.
            if frame[:6] != own[side] or frame[12:14] not in (IPV4, IPV6):
                continue
            for delay, packet in directions[side].handle(frame[14:]):
                number += 1
                out = node[1 - side] + own[1 - side] + frame[12:14] + packet
                heapq.heappush(due, (time.monotonic() + delay, number, 1 - side, out))
        while due and due[0][0] <= time.monotonic():
            _, _, side, out = heapq.heappop(due)
            try:
                os.write(devices[side], out)
            except BlockingIOError:
                continue  # the node has no room for it, as any link may have none


main()
