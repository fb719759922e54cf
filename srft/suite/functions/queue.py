# SPDX-License-Identifier: Apache-2.0
"""A program behind netfilter's NFQUEUE: packets that the kernel forwards wait for its word; broken on purpose (faults.py).

`queue.py NUMBER FAULT`; it says "ready" once it listens. It cannot make two packets of one. Each direction counts for itself.
"""

import heapq
import select
import signal
import socket
import struct
import sys
import time

from faults import Side

NETLINK_NETFILTER = 12
QUEUE = 3  # NFNL_SUBSYS_QUEUE, linux/netfilter/nfnetlink.h
PACKET, VERDICT, CONFIG = 0, 1, 2  # linux/netfilter/nfnetlink_queue.h
PACKET_HEADER, VERDICT_HEADER, PAYLOAD = 1, 2, 10
COMMAND, PARAMETERS = 1, 2
BIND, COPY_PACKET = 1, 2
DROP, ACCEPT = 0, 1
REQUEST = 1
HEADERS = 20


def attribute(kind: int, value: bytes) -> bytes:
    """An attribute, padded."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def message(kind: int, queue: int, body: bytes) -> bytes:
    """A message about a queue."""
    head = struct.pack("=IHHII", HEADERS + len(body), QUEUE << 8 | kind, REQUEST, 0, 0)
    return head + struct.pack("=BB", 0, 0) + struct.pack("!H", queue) + body


def waiting(data: bytes) -> list[tuple[int, bytes]]:
    """Packets that wait: their numbers, and their octets from the network layer on."""
    found = []
    while len(data) >= HEADERS:
        length, kind = struct.unpack("=IH", data[:6])
        if kind == QUEUE << 8 | PACKET:
            attributes = {}
            rest = data[HEADERS:length]
            while len(rest) >= 4:
                size, which = struct.unpack("=HH", rest[:4])
                attributes[which & 0x3FFF] = rest[4:size]
                rest = rest[size + -size % 4 :]
            found.append((int.from_bytes(attributes[PACKET_HEADER][:4], "big"), attributes[PAYLOAD]))
        data = data[max(length, HEADERS) + -length % 4 :]
    return found


def main() -> None:
    """Runs until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    queue, fault = int(sys.argv[1]), sys.argv[2]
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    link.bind((0, 0))
    link.send(message(CONFIG, queue, attribute(COMMAND, struct.pack("!BBH", BIND, 0, 0))))
    link.send(message(CONFIG, queue, attribute(PARAMETERS, struct.pack("!IB", 0xFFFF, COPY_PACKET))))
    sides: dict[bytes, Side] = {}
    due: list[tuple[float, int, int, bytes]] = []
    order = 0
    # The number of a packet that waits for the next one: its octets tell which it is.
    numbers: dict[bytes, int] = {}
    print("ready", flush=True)
    while True:
        patience = max(due[0][0] - time.monotonic(), 0) if due else None
        if select.select([link], [], [], patience)[0]:
            for number, packet in waiting(link.recv(1 << 17)):
                source = packet[8:24] if packet[0] >> 4 == 6 else packet[12:16]
                side = sides.setdefault(source, Side(fault))
                numbers[packet] = number
                found = side.handle(packet)
                if not found and side.held is None:
                    link.send(verdict(queue, numbers.pop(packet), DROP))
                for delay, back in found:
                    order += 1
                    # What is held comes as it was; what is changed is of the packet that has just come.
                    of = numbers.pop(back, number)
                    heapq.heappush(due, (time.monotonic() + delay, order, of, back))
        while due and due[0][0] <= time.monotonic():
            _, _, number, packet = heapq.heappop(due)
            link.send(verdict(queue, number, ACCEPT, packet))


def verdict(queue: int, number: int, word: int, packet: bytes = b"") -> bytes:
    """What becomes of a packet, and its octets."""
    body = attribute(VERDICT_HEADER, struct.pack("!II", word, number))
    return message(VERDICT, queue, body + (attribute(PAYLOAD, packet) if packet else b""))


main()
