# SPDX-License-Identifier: Apache-2.0
"""What the suite asserts of a chain, whatever the functions in it. The mutation tests show that each of these can fail."""

from scapy.layers.inet import UDP

from srft import Crafter, Flow, Matcher, Test, Tester, expect, send
from srft.craft import Step
from srft.tester import PATIENCE

#: A packet through a chain takes well under a millisecond; a machine with more to do than processors takes its time.
SOON = (0.0, 0.25)
COUNT = 20


def there(port: int, family: int, count: int = COUNT, within: tuple[float, float] | None = None, **fields: int) -> Crafter:
    """`count` datagrams from client to server, which must arrive as they are."""

    def craft(flow: Flow) -> list[Step]:
        packets = [
            flow.ip("$client", "$server", family, **fields) / UDP(dport=port) / flow.payload(number) for number in range(count)
        ]
        return [send(packet, "client") for packet in packets] + [expect(packet, "server", within) for packet in packets]

    return Crafter(craft)


def back(port: int, family: int, count: int = COUNT) -> Crafter:
    """A datagram from client to server, and `count` answers, which must arrive as they are."""

    def craft(flow: Flow) -> list[Step]:
        question = flow.ip("$client", "$server", family) / UDP(sport=flow.port, dport=port) / flow.payload(1000)
        answers = [
            flow.ip("$server", "$client", family) / UDP(sport=port, dport=flow.port) / flow.payload(number)
            for number in range(count)
        ]
        return [
            send(question, "client"),
            expect(question, "server"),
            *(send(answer, "server") for answer in answers),
            *(expect(answer, "client") for answer in answers),
        ]

    return Crafter(craft)


def transparent(tester: Tester, chain: str, port: int, patience: float = PATIENCE) -> None:
    """A chain changes nothing: all packets arrive, once, in order, unchanged, soon; of several flows at once, both ways."""
    tests = [Test(there(port, family, within=SOON), Matcher(), chain=chain, flows=3, patience=patience) for family in (4, 6)]
    tests += [Test(back(port, family), Matcher(), chain=chain, patience=patience) for family in (4, 6)]
    tester.perform(*tests)


def nothing(port: int, family: int, count: int = 3, **fields: int) -> Crafter:
    """Datagrams from client to server of which nothing may arrive, at no host."""

    def craft(flow: Flow) -> list[Step]:
        header = flow.ip("$client", "$server", family)
        return [send(header / UDP(dport=port, **fields) / flow.payload(number), "client") for number in range(count)]

    return Crafter(craft)
