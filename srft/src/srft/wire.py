# SPDX-License-Identifier: Apache-2.0
"""Frames in and out of an interface, with the kernel's time of arrival."""

import select
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass

from srft.netns import inside

ETH_P_ALL = 3
SO_TIMESTAMPNS = 35  # asm-generic/socket.h
_TIMESPEC = struct.Struct("qq")
# More than any frame: interfaces with offloads may hand up 64 KiB and their headers.
_FRAME = 1 << 17
_BUFFER = 8 << 20


@dataclass(frozen=True)
class Frame:
    """A frame that was seen.

    `time` is in nanoseconds since 1970. `where` names the place: a host, or `node port` for what a node saw. `direction` is `in`
    or `out`, seen from there. `outcome` is what became of it, where a node says so.
    """

    time: int
    where: str
    direction: str
    data: bytes
    outcome: str = ""


class Wire:
    """A packet socket on one interface."""

    def __init__(self, place: str, interface: str, namespace: str | None = None) -> None:
        """Opens it. Raises OSError if there is no such interface, or without CAP_NET_RAW."""
        self.place = place
        self.interface = interface
        with inside(namespace):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            self.socket.setblocking(False)
            # Bound last: from here on frames come.
            self.socket.bind((interface, ETH_P_ALL))
        except OSError as error:
            self.socket.close()
            where = f"interface {interface} of {place}"
            raise OSError(error.errno, f"{where}: {error.strerror}; is it there, and up?") from error

    @property
    def mac(self) -> str:
        """Link-layer address of the interface."""
        return self.socket.getsockname()[4].hex(":")

    def send(self, frame: bytes) -> None:
        """Sends a frame, Ethernet header and all. Raises OSError if the interface refuses it, such as for its length."""
        # Never in blocking mode: the reading thread has the same socket.
        while True:
            try:
                self.socket.send(frame)
                return
            except BlockingIOError:
                select.select([], [self.socket], [])
            except OSError as error:
                what = f"{self.place} cannot send a frame of {len(frame)} octets by {self.interface}"
                raise OSError(error.errno, f"{what}: {error.strerror}") from error

    def receive(self) -> Frame | None:
        """The next frame that came in, if there is one. What this host sends itself is left out."""
        while True:
            try:
                data, ancillary, _, address = self.socket.recvmsg(_FRAME, 128)
            except (BlockingIOError, InterruptedError):
                return None
            if address[2] == socket.PACKET_OUTGOING:
                continue
            time = 0
            for level, kind, value in ancillary:
                if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                    seconds, nanoseconds = _TIMESPEC.unpack(value[: _TIMESPEC.size])
                    time = seconds * 1_000_000_000 + nanoseconds
            return Frame(time, self.place, "in", data)

    def close(self) -> None:
        """Closes the socket."""
        self.socket.close()


class Reader:
    """Reads all wires in a thread of its own, so that no frame waits for a test."""

    def __init__(self, wires: list[Wire], deliver: Callable[[Frame], None]) -> None:
        """Begins to read; `deliver` is called in the thread."""
        self._wires = wires
        self._deliver = deliver
        self._selector = selectors.DefaultSelector()
        for wire in wires:
            self._selector.register(wire.socket, selectors.EVENT_READ, wire)
        self._wake, self._end = socket.socketpair()
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="srft reader", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                while frame := key.data.receive():
                    self._deliver(frame)

    def close(self) -> None:
        """Ends the thread and closes the wires."""
        self._end.send(b"x")
        self._thread.join()
        self._selector.close()
        self._wake.close()
        self._end.close()
        for wire in self._wires:
            wire.close()
