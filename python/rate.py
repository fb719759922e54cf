"""How many packets a second a service in Python takes, beside one in Rust: `./x python-rate`.

The services' engine with nothing around it: no device, and no node. Each round measures all lanes in turn; rates are medians of
all rounds, with the smallest and the largest. They are of processor time: what other programs take from the processor does not
count, what they take from its caches does.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

from segue_service import srv6
from segue_service._native import seconds

sys.path.insert(0, str(Path(__file__).parent / "examples"))

from flows import Flows
from gentle import Gentle
from noop import Noop

LANES = {
    "forward, in Rust": ("forward", None),
    "counter, in Rust, on copies": ("counter", {"snap_length": 65_575}),
    "noop.py": (Noop, None),
    "gentle.py": (Gentle, None),
    "flows.py": (Flows, None),
    "flows.py, on copies": (Flows, {"copies": True}),
}


def udp(octets: int) -> bytes:
    """An inner IPv6 packet with UDP of so many octets in all."""
    length = octets - 40
    addresses = bytes.fromhex("20010db8" + "00" * 11 + "01" + "20010db8" + "00" * 11 + "02")
    head = bytes([0x60, 0, 0, 0]) + length.to_bytes(2, "big") + bytes([17, 64]) + addresses
    return head + (1000).to_bytes(2, "big") + (2000).to_bytes(2, "big") + length.to_bytes(2, "big") + bytes(length - 6)


def main() -> None:
    """Measures, and prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--packets", type=int, default=400_000, help="packets of each lane in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--octets", type=int, default=112, help="octets of the inner packet, at least 48")
    options = parser.parse_args()
    packet = srv6(udp(max(48, options.octets)))
    rates: dict[str, list[float]] = {name: [] for name in LANES}
    for _ in range(options.rounds):
        for name, (service, configuration) in LANES.items():
            begun = time.process_time()
            seconds(service, packet, options.packets, configuration)
            rates[name].append(options.packets / (time.process_time() - begun) / 1e6)
    base = statistics.median(rates["forward, in Rust"])
    print(f"{len(packet)} octets a packet, {options.packets} packets a lane, {options.rounds} rounds\n")
    print("| service | Mpps (min to max) | ns a packet | of `forward` |\n|---|---|---|---|")
    for name, all_of in rates.items():
        median = statistics.median(all_of)
        print(f"| {name} | {median:.3f} ({min(all_of):.3f} to {max(all_of):.3f}) | {1000 / median:.0f} | {median / base:.3f} |")


if __name__ == "__main__":
    main()
