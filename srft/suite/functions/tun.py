# SPDX-License-Identifier: Apache-2.0
"""A program on a TUN device: what comes out of it goes back into it; broken on purpose, if it is told how (faults.py).

`tun.py DEVICE [FAULT]`; it says "ready" once it listens. Each direction counts for itself.
"""

import heapq
import select
import signal
import socket
import sys
import time

from faults import Side

ETH_P_ALL = 0x0003  # linux/if_ether.h
OUTGOING = 4  # PACKET_OUTGOING, linux/if_packet.h


def main() -> None:
    """Runs until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    fault = sys.argv[2] if len(sys.argv) > 2 else ""
    device = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
    device.bind((sys.argv[1], ETH_P_ALL))
    sides: dict[bytes, Side] = {}
    due: list[tuple[float, int, bytes, int]] = []
    number = 0
    print("ready", flush=True)
    while True:
        patience = max(due[0][0] - time.monotonic(), 0) if due else None
        if select.select([device], [], [], patience)[0]:
            packet, (_, protocol, kind, *_) = device.recvfrom(1 << 16)
            # What it sends itself comes by, too.
            if kind != OUTGOING:
                source = packet[8:24] if packet[0] >> 4 == 6 else packet[12:16]
                for delay, back in sides.setdefault(source, Side(fault)).handle(packet):
                    number += 1
                    heapq.heappush(due, (time.monotonic() + delay, number, back, protocol))
        while due and due[0][0] <= time.monotonic():
            _, _, packet, protocol = heapq.heappop(due)
            device.sendto(packet, (sys.argv[1], protocol))


main()
