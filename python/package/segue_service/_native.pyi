"""What of this package is in Rust; `segue_service` has all of it that is for services."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Any, final

from segue_service import Service

SID: str
NEXT: str

_Octets = bytes | bytearray | memoryview

@final
class Verdict:
    """What becomes of a packet."""

    ONWARD: Verdict
    """It goes on in its chain, as it is now: the engine advances its steering header."""
    BACK: Verdict
    """It leaves by the interface that it came in by, and is not advanced: an answer, whose addresses the service has set."""
    KERNEL: Verdict
    """The kernel of the service's namespace gets it, as it is now (`Service.uses_kernel()`)."""
    TAKEN: Verdict
    """The service has what it needs of it; it owes an account (`Context.account_sent()`, `Context.account_dropped()`)."""
    @staticmethod
    def drop(reason: Reason) -> Verdict:
        """It is dropped."""

@final
class Reason:
    """Why a packet is dropped: one of the closed list."""

    NOT_STEERED: Reason
    MALFORMED: Reason
    OUTER_FRAGMENT: Reason
    NO_SEGMENT_LEFT: Reason
    HOP_LIMIT: Reason
    REFUSED: Reason
    UNSUPPORTED_PROTOCOL: Reason
    TOO_BIG: Reason
    OUTPUT_FULL: Reason
    NOT_DELIVERED: Reason
    CUT_SHORT: Reason
    UNKNOWN_COMPRESSION: Reason
    UNKNOWN_DICTIONARY: Reason
    CORRUPT_COMPRESSION: Reason
    DECOMPRESSION_LIMIT: Reason
    CORRUPT_AGGREGATE: Reason
    MEMORY_LIMIT: Reason
    SOURCE_LIMIT: Reason
    HELD_TOO_LONG: Reason
    FRAGMENT_OVERLAP: Reason
    FRAGMENT_INVALID: Reason
    DUPLICATE: Reason
    PROGRAM_GONE: Reason
    UNKNOWN_RETURN: Reason
    SERVICE_FAILED: Reason
    @staticmethod
    def all() -> list[Reason]:
        """All of the list."""
    @property
    def name(self) -> str:
        """As counters and metrics call it."""
    @property
    def about(self) -> str:
        """What it means."""
    def __hash__(self) -> int: ...

@final
class Way:
    """Where a packet of a service's own goes."""

    ONWARD: Way
    """On in the chain: it has a steering header, which the engine advances."""
    BACK: Way
    """Out by the service's interface as it is."""
    KERNEL: Way
    """To the kernel of the service's namespace (`Service.uses_kernel()`)."""
    def __hash__(self) -> int: ...

@final
class Mode:
    """Whether packets wait for the service."""

    SYNCHRONOUS: Mode
    """They wait for its verdict."""
    ASYNCHRONOUS: Mode
    """They go on, and the service gets copies."""
    def __hash__(self) -> int: ...

@final
class Spread:
    """What packets have in common that must go to one worker."""

    FLOW: Spread
    """Addresses, protocol and ports of the inner packet."""
    WAY: Spread
    """Source and flow label of the outer header."""
    def __hash__(self) -> int: ...

@final
class Sampling:
    """Which copies an asynchronous service gets."""

    def __new__(cls, snap_length: int | None = None, one_in: int = 1) -> Sampling:
        """Octets of each packet that are copied at most (None: all); one packet in so many is copied."""
    @property
    def snap_length(self) -> int | None:
        """Octets of each packet that are copied at most, from the outer IP header on. None: all."""
    @property
    def one_in(self) -> int:
        """One packet in so many is copied."""

@final
class Metric:
    """A metric of a service."""

    @staticmethod
    def counter(name: str, about: str) -> Metric:
        """One that only grows. `name`: small letters, digits and underscores, with the unit at its end."""
    @staticmethod
    def gauge(name: str, about: str) -> Metric:
        """A state."""
    @property
    def name(self) -> str:
        """Its name."""
    @property
    def about(self) -> str:
        """What it says."""

@final
class Report:
    """What is wrong with a configuration."""

    def __new__(cls) -> Report: ...
    def error(self, key: str, message: str, remedy: str) -> None:
        """One thing that is wrong: the value at `key` ("a.b" inside "a"; "": all of it), what is wrong, and what to do."""

@final
class Worker:
    """Which worker of how many."""

    @property
    def index(self) -> int:
        """From 0."""
    @property
    def count(self) -> int:
        """How many there are."""

@final
class FiveTuple:
    """Addresses, protocol and ports of an IP packet; it can be a key of a dictionary."""

    @property
    def source(self) -> IPv4Address | IPv6Address:
        """Source address."""
    @property
    def destination(self) -> IPv4Address | IPv6Address:
        """Destination address; with an SRH that has segments left, its last segment."""
    @property
    def protocol(self) -> int:
        """Protocol number of the upper layer."""
    @property
    def ports(self) -> tuple[int, int] | None:
        """Source and destination port; None: a protocol without ports, a fragment, or they were cut off."""
    def __hash__(self) -> int: ...

@final
class Srh:
    """A segment routing header (RFC 8754)."""

    @property
    def segments_left(self) -> int:
        """Segments Left."""
    @property
    def last_entry(self) -> int:
        """Last Entry."""
    @property
    def flags(self) -> int:
        """Flags."""
    @property
    def tag(self) -> int:
        """Tag."""
    @property
    def segment_list(self) -> list[IPv6Address]:
        """As it is written, so that the last segment is first: `segment_list[segments_left]` is the active one."""
    @property
    def tlvs(self) -> bytes:
        """The octets of all TLVs."""

@final
class Steering:
    """The steering header of a packet, as it was when it was asked for."""

    @property
    def octets(self) -> bytes:
        """All its octets."""
    @property
    def remaining(self) -> bytes:
        """What leads packets the same way: equal for two exactly if the rest of their segment lists is. Only to compare."""
    @property
    def active(self) -> IPv6Address:
        """The segment at which the packet is: for a service, its own SID with the argument."""
    @property
    def source(self) -> IPv6Address:
        """Source address."""
    @property
    def hop_limit(self) -> int:
        """Hop limit as it arrived."""
    @property
    def srh(self) -> Srh | None:
        """The SRH; None if the destination address is the only segment."""

@final
class Packet:
    """A packet from its outer IP header on: the service's own copy, which it may keep."""

    @staticmethod
    def from_octets(octets: _Octets) -> Packet:
        """A packet from octets that begin with the outer IP header; ValueError if they are no steered packet."""
    @property
    def octets(self) -> bytes:
        """From the outer IP header on. What is set has the same length; lengths and kinds of headers stay as they are."""
    @octets.setter
    def octets(self, octets: _Octets) -> None: ...
    def __len__(self) -> int: ...
    @property
    def wire_length(self) -> int:
        """Octets that the packet had on the wire: more than there are if the copy was cut."""
    @property
    def is_cut(self) -> bool:
        """Whether octets are missing at its end."""
    @property
    def segment_size(self) -> int | None:
        """Octets of payload in each segment, if this is several segments merged into one packet. None: it is one packet."""
    @segment_size.setter
    def segment_size(self, octets: int | None) -> None: ...
    @property
    def arrived(self) -> int:
        """When the batch came that it was in, nanoseconds."""
    @property
    def steering(self) -> Steering:
        """The steering header."""
    @property
    def inner(self) -> bytes:
        """What is behind the steering header. What is set may have another length, and is of the same protocol."""
    @inner.setter
    def inner(self, octets: _Octets) -> None: ...
    @property
    def inner_protocol(self) -> int:
        """The protocol number of `inner`."""
    @property
    def flow(self) -> int:
        """A number for its flow: of the innermost addresses, protocol and ports."""
    @property
    def five_tuple(self) -> FiveTuple | None:
        """The innermost addresses, protocol and ports; None: there is no IP packet."""
    def replace_inner(self, protocol: int, *parts: _Octets) -> None:
        """Puts something else behind the steering header; lengths and the protocol are written."""
    def behind_the_same(self, protocol: int, *parts: _Octets) -> Packet:
        """A packet of the service's own behind the same steering header."""
    def to_owned(self) -> Packet:
        """A copy."""

@final
class Context:
    """Time, counters, and the ways out. One for each worker."""

    @property
    def now(self) -> int:
        """The time at which the batch was received, or at which the timer runs: nanoseconds. It never goes back."""
    @property
    def worker(self) -> Worker:
        """Which worker this is."""
    @property
    def mtu(self) -> int:
        """Octets of the largest packet, outer header included, that leaves."""
    def send(self, packet: Packet) -> None:
        """Sends a packet of the service's own on in the chain: in front of the packet that is looked at, as it is now."""
    def send_by(self, way: Way, packet: Packet) -> None:
        """Sends a packet of the service's own."""
    def account_sent(self, packets: int) -> None:
        """Says that so many packets that were taken have left, in whatever packets."""
    def account_dropped(self, reason: Reason, packets: int) -> None:
        """Says that so many packets that were taken are dropped."""
    def wake_at(self, time: int) -> None:
        """Calls the timer at this time, or earlier if that was asked for."""
    def count(self, metric: str, amount: int = 1) -> None:
        """Adds to a counter of `METRICS`."""
    def set(self, metric: str, value: int) -> None:
        """Sets a gauge of `METRICS`."""

@final
class Sent:
    """A packet that has left."""

    @property
    def octets(self) -> bytes:
        """From the outer IP header on."""
    @property
    def way(self) -> Way:
        """Which way."""
    @property
    def worker(self) -> int:
        """The worker that sent it."""
    @property
    def at(self) -> int:
        """When, nanoseconds."""
    @property
    def segment_size(self) -> int | None:
        """Segment size, if it is several segments merged."""

@final
class Snapshot:
    """Counters of all workers together: packets, or octets where the name says so (docs/using/services.md)."""

    @property
    def received(self) -> int:
        """Came in."""
    @property
    def received_octets(self) -> int:
        """Their octets on the wire."""
    @property
    def onward(self) -> int:
        """Went on in their chain."""
    @property
    def back(self) -> int:
        """Went back where they came from."""
    @property
    def kernel(self) -> int:
        """Went to the kernel."""
    @property
    def taken(self) -> int:
        """Were taken by the service."""
    @property
    def taken_sent(self) -> int:
        """Of these, have left since."""
    @property
    def own(self) -> int:
        """The service has made."""
    @property
    def own_out(self) -> int:
        """Of these, have left."""
    @property
    def out_octets(self) -> int:
        """Octets of all packets that left."""
    @property
    def dropped_received(self) -> dict[str, int]:
        """Dropped when they came in, by reason."""
    @property
    def dropped_taken(self) -> dict[str, int]:
        """Dropped after they had been taken."""
    @property
    def dropped_own(self) -> dict[str, int]:
        """Dropped of the service's own."""
    @property
    def metrics(self) -> dict[str, int]:
        """The service's own metrics."""
    @property
    def held(self) -> int:
        """Taken, and neither sent nor dropped."""
    def dropped(self, reason: Reason) -> int:
        """Dropped for this reason, wherever they came from."""

@final
class Driver:
    """Runs a service in a test: no root, no device, a virtual clock. After every step each packet is accounted for."""

    def __new__(
        cls,
        service: type[Service] | str,
        configuration: dict[str, Any] | None = None,
        *,
        workers: int = 1,
        mtu: int = 9000,
    ) -> Driver:
        """A class, or the name of one of Segue's own services; ValueError says what is wrong with a configuration."""
    @property
    def now(self) -> int:
        """The time, nanoseconds."""
    @property
    def mode(self) -> Mode:
        """Whether packets wait for the service."""
    def receive(self, packets: Sequence[_Octets]) -> None:
        """Receives packets as one batch, each by the worker of its flow."""
    def receive_cut(self, packets: Sequence[_Octets], snap_length: int) -> None:
        """The same, with copies cut to so many octets."""
    def set_frame_length(self, octets: int) -> None:
        """Octets of the frames that packets come in; 4096 at first."""
    def advance(self, nanoseconds: int) -> None:
        """Lets time pass. Timers run when they are due, in order, each at its time."""
    def sent(self) -> list[Sent]:
        """Packets that have left since the last call, in order."""
    def counters(self) -> Snapshot:
        """Counters of all workers together."""
    def report(self, worker: int = 0) -> Any:
        """What a worker's service says of itself."""
    def stop(self) -> None:
        """Stops the service; AssertionError if it holds packets still."""

def srv6(inner: _Octets) -> bytes:
    """A steering header with the segment list <SID, NEXT> in front of an inner IPv4 or IPv6 packet (else: Ethernet)."""

def srv6_around(protocol: int, inner: _Octets) -> bytes:
    """The same with a protocol number."""

def five_tuple(octets: _Octets) -> FiveTuple | None:
    """Addresses, protocol and ports of the innermost IP packet of octets that begin with an IP header."""

def program(services: list[type[Service]], arguments: list[str], words: list[str]) -> int:
    """What `segue_service.run()` calls: the exit status."""

def seconds(service: type[Service] | str, packet: _Octets, packets: int, configuration: dict[str, Any] | None = None) -> float:
    """Seconds that the engine takes for so many packets like `packet`, in batches of 64 in a thread of its own."""
