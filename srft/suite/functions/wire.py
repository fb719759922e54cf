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

from faults import Side

TUNSETIFF = 0x400454CA  # linux/if_tun.h
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000
IPV4, IPV6 = b"\x08\x00", b"\x86\xdd"


def mac(name: str) -> bytes:
    """A link-layer address in the environment."""
    return bytes.fromhex(os.environ[name].replace(":", ""))


def tap(name: str) -> int:
    """Opens a TAP device."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", os.environ[name].encode(), IFF_TAP | IFF_NO_PI))
    return device


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
