# SPDX-License-Identifier: Apache-2.0
"""A program on a TUN device: what comes out of it goes back into it, as it is. `tun.py DEVICE`; "ready" once it listens."""

import signal
import socket
import sys

ETH_P_ALL = 0x0003  # linux/if_ether.h
OUTGOING = 4  # PACKET_OUTGOING, linux/if_packet.h


def main() -> None:
    """Runs until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    device = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
    device.bind((sys.argv[1], ETH_P_ALL))
    print("ready", flush=True)
    while True:
        packet, (name, protocol, kind, *_) = device.recvfrom(1 << 16)
        # What it sends itself comes by, too.
        if kind != OUTGOING:
            device.sendto(packet, (name, protocol))


main()
