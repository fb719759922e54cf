# SPDX-License-Identifier: Apache-2.0
"""Which function is at fault: one that gave back something else than it got, where that is what went wrong."""

from collections.abc import Sequence

from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
from scapy.packet import Packet

from srft.agent import AgentError
from srft.diff import behind_labels, network_layer
from srft.flow import Flow
from srft.match import SECOND, Fault, Finding, Got, Matcher, Wanted
from srft.network import Network, Service
from srft.peek import Marks, marks
from srft.sniff import Seen

#: A function that holds packets longer than this is named where packets come too late.
_HOLDS = 0.02


def culprits(network: Network, matcher: Matcher, inside: Sequence[Seen], kinds: set[Fault]) -> list[str]:
    """Functions that gave back something else than they got, where that is what went wrong; with what it was."""
    lines = []
    for service in network.services:
        into, back = _sides(service, inside)
        # One of another chain; or nobody knows what it got, as on a second visit of the same node.
        if not into:
            continue
        for finding in _inspect(matcher, into, back, kinds):
            lines.append(f"{service}: {finding}")
            lines += [f"  {line}" for line in finding.details[:3]]
    return lines


def _sides(service: Service, inside: Sequence[Seen]) -> tuple[list[Seen], list[Seen]]:
    """What a function got, and what came back from it."""
    here = {f"{service.node} {port}" for port in service.ports}
    into = [seen for seen in inside if seen.frame.where in here and seen.frame.direction == "out"]
    back = [seen for seen in inside if seen.frame.where in here and seen.frame.direction == "in"]
    if into:
        return into, back
    # It has no port, or packets get to it without leaving by one (the exact proxy): what came to its node for one of its SIDs.
    at_node = f"{service.node} "
    arrived = (seen for seen in inside if seen.frame.where.startswith(at_node) and seen.frame.direction == "in")
    into = [seen for seen in arrived if _to(service, seen)]
    return into, back if service.ports else _next(service, inside, into)


def _next(service: Service, inside: Sequence[Seen], into: Sequence[Seen]) -> list[Seen]:
    """Packets where they are seen next: at the place whose first one came after the first of `into`, and before all others."""
    places: dict[tuple[str, str], list[Seen]] = {}
    for seen in inside:
        if not _to(service, seen):
            places.setdefault((seen.frame.where, seen.frame.direction), []).append(seen)
    later = (found for found in places.values() if into and found[0].frame.time >= into[0].frame.time)
    return next(later, [])


def _to(service: Service, seen: Seen) -> bool:
    packet = network_layer(seen.packet)
    return isinstance(packet, IPv6) and packet.dst in service.sids


def _inspect(matcher: Matcher, into: Sequence[Seen], back: Sequence[Seen], kinds: set[Fault]) -> list[Finding]:
    """What a function did to packets, as far as it explains faults of these kinds at the end."""
    # The test's own idea of equality is about the ends of the way.
    plain = Matcher(ignore=matcher.ignore, ordered=matcher.ordered)
    # With and without a steering header: what it must not change is behind it.
    wanted = [Wanted(_behind(seen.packet)) for seen in into]
    found = plain.compare(wanted, [Got(_behind(seen.packet)) for seen in back])
    # A packet that came back changed may be lost later, since nobody knows it any more, or what it has is forbidden.
    related = kinds | ({Fault.CHANGED, Fault.CORRUPTED, Fault.LEAKED} if Fault.LOST in kinds else set())
    found = [finding for finding in found if finding.fault in related]
    if Fault.DELAYED in kinds and len(into) == len(back):
        held = [(after.frame.time - before.frame.time) / SECOND for before, after in zip(into, back, strict=True)]
        slow = [took for took in held if took > _HOLDS]
        if slow:
            line = f"it held them for {min(slow) * 1000:.0f} to {max(slow) * 1000:.0f} ms"
            found.append(Finding(Fault.DELAYED, len(slow), len(held), [line]))
    return found


def _behind(packet: Packet) -> Packet:
    """What is behind the steering header; all of a packet that has none."""
    packet = behind_labels(network_layer(packet))
    if not isinstance(packet, IPv6):
        return packet
    inner = packet.payload.payload if isinstance(packet.payload, IPv6ExtHdrSegmentRouting) else packet.payload
    # One that was inserted into the packet's own header stays.
    return inner if isinstance(inner, (IP, IPv6)) else packet


def refusals(network: Network, flow: Flow) -> list[str]:
    """Drops whose last packet is of this flow: where it ended, and why."""
    lines = []
    for node, agent in network.agents.items():
        try:
            drops = agent.drops()
        except AgentError as error:
            lines.append(str(error))
            continue
        for drop in drops:
            last = drop.get("last")
            if not last or not last.get("bytes"):
                continue
            data = bytes.fromhex(last["bytes"])
            if _is_of(flow, marks(data)):
                why = f"{drop['reason']}, {drop['text']}"
                lines.append(f"node {node} dropped packets of it that came in by {drop['port']}: {why}")
    return lines


def _is_of(flow: Flow, found: Marks) -> bool:
    return flow.label in found.tokens or flow.label in found.labels or flow.ident in found.idents
