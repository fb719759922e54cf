"""A function in user space on two TAP devices: what comes in by one leaves by the other, but for telnet.

The node's proxy has taken the steering header off, so this is about plain IPv4 and IPv6. `segue lab up` tells the names of
the devices and the link-layer addresses in the environment; with SIGTERM the program ends and says what it counted.
"""

import fcntl
import os
import select
import signal
import struct
import sys

TUNSETIFF = 0x400454CA  # linux/if_tun.h
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000
IPV4, IPV6, TCP, TELNET = b"\x08\x00", b"\x86\xdd", 6, 23


def mac(name):
    return bytes.fromhex(os.environ[name].replace(":", ""))


def tap(name):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", os.environ[name].encode(), IFF_TAP | IFF_NO_PI))
    return device


def is_telnet(frame):
    if frame[12:14] == IPV4:
        protocol, ports = frame[23], 14 + (frame[14] & 15) * 4
    else:
        protocol, ports = frame[20], 54
    later = frame[12:14] == IPV4 and int.from_bytes(frame[20:22], "big") & 0x1FFF
    return protocol == TCP and not later and TELNET in struct.unpack_from("!HH", frame.ljust(ports + 4, b"\0"), ports)


def main():
    sides = ["WEST", "EAST"]
    devices = [tap(f"SEGUE_TAP_{side}") for side in sides]
    own = [mac(f"SEGUE_MAC_{side}") for side in sides]
    node = [mac(f"SEGUE_NODE_MAC_{side}") for side in sides]
    counts = {"west to east": 0, "east to west": 0, "telnet": 0}

    def end(*_):
        print(*(f"{name}: {count}" for name, count in counts.items()), sep="\n", flush=True)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        for ready in select.select(devices, [], [])[0]:
            side = devices.index(ready)
            frame = os.read(ready, 65536)
            # Neighbour discovery and other groups are between the node and this program.
            if frame[:6] != own[side] or frame[12:14] not in (IPV4, IPV6):
                continue
            if is_telnet(frame):
                counts["telnet"] += 1
                continue
            try:
                os.write(devices[1 - side], node[1 - side] + own[1 - side] + frame[12:])
            except BlockingIOError:
                continue  # the node has no room for it, as any link may have none
            counts["west to east" if side == 0 else "east to west"] += 1


main()
