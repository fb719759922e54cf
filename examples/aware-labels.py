"""A function that sees the label stack, on two TAP devices: what comes in by one leaves by the other with its stack, but for telnet.

Its own label is off: the first one of what it gets is the next on the packet's way. `segue lab up` tells the names of the devices and the
link-layer addresses in the environment; with SIGTERM the program ends and says how many packets it saw of each stack.
"""

import collections
import fcntl
import os
import select
import signal
import struct
import sys

TUNSETIFF = 0x400454CA  # linux/if_tun.h
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000
MPLS, TCP, TELNET = b"\x88\x47", 6, 23
BOTTOM = 0x100


def mac(name):
    return bytes.fromhex(os.environ[name].replace(":", ""))


def tap(name):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", os.environ[name].encode(), IFF_TAP | IFF_NO_PI))
    return device


def stack(frame):
    """The entries of the label stack (RFC 3032), first to last; none if it has no bottom."""
    entries = []
    for at in range(14, len(frame) - 3, 4):
        entries.append(int.from_bytes(frame[at : at + 4], "big"))
        if entries[-1] & BOTTOM:
            return entries
    return []


def is_telnet(packet):
    if len(packet) < 40:
        return False
    if packet[0] >> 4 == 4:
        protocol, ports = packet[9], (packet[0] & 15) * 4
        if int.from_bytes(packet[6:8], "big") & 0x1FFF:
            return False
    else:
        protocol, ports = packet[6], 40
    return protocol == TCP and TELNET in struct.unpack_from("!HH", packet.ljust(ports + 4, b"\0"), ports)


def main():
    sides = ["WEST", "EAST"]
    devices = [tap(f"SEGUE_TAP_{side}") for side in sides]
    own = [mac(f"SEGUE_MAC_{side}") for side in sides]
    node = [mac(f"SEGUE_NODE_MAC_{side}") for side in sides]
    seen = collections.Counter()

    def end(*_):
        for (side, labels), count in sorted(seen.items()):
            print(f"{side.lower()} <{', '.join(map(str, labels))}>: {count}")
        print("end", flush=True)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        for ready in select.select(devices, [], [])[0]:
            side = devices.index(ready)
            frame = os.read(ready, 65536)
            # Neighbour discovery and other groups are between the node and this program.
            if frame[:6] != own[side] or frame[12:14] != MPLS:
                continue
            entries = stack(frame)
            if not entries or entries[0] & 0xFF < 2:
                continue
            seen[sides[side], tuple(entry >> 12 for entry in entries)] += 1
            if is_telnet(frame[14 + 4 * len(entries) :]):
                continue
            # One hop: the first label's TTL. Nothing else of the stack may change.
            first = (entries[0] - 1).to_bytes(4, "big")
            try:
                os.write(devices[1 - side], node[1 - side] + own[1 - side] + MPLS + first + frame[18:])
            except BlockingIOError:
                continue  # the node has no room for it, as any link may have none


main()
