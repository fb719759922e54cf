# SPDX-License-Identifier: Apache-2.0
"""Labels: `$client`, `$nfv1`, `$nfv1.firewall`, `$chain.web` in place of addresses, SIDs and segment lists.

Those of SR-MPLS labels and stacks stand for numbers.

A test that says labels holds wherever the functions are: in the lab they come from the planner, elsewhere from a file.
"""

import difflib
import ipaddress
from collections.abc import Iterable, Iterator, Mapping

MARK = "$"
#: An error names so many labels that may be meant.
_NEAR = 8


class LabelError(LookupError):
    """A label that is not known, or stands for something else than what is asked for."""

    def __str__(self) -> str:
        # KeyError and its kind show the message quoted.
        return str(self.args[0])


#: Numbers that labels of SR-MPLS have (RFC 3032 section 2.1: those below are reserved).
_STACKED = range(16, 1 << 20)


def _version(value: str) -> int:
    """4 or 6 of an address, 0 of a label of SR-MPLS. Raises ValueError for anything else."""
    if value.isdecimal() and int(value) in _STACKED:
        return 0
    return ipaddress.ip_address(value).version


class Labels:
    """Values by label, without the `$`. A host has several addresses, a chain several segments or labels, all else one."""

    def __init__(self, values: Mapping[str, str | Iterable[str]] | None = None) -> None:
        """Copies the values. Raises ValueError if one is neither an IP address nor a label's number."""
        self._values: dict[str, list[str]] = {}
        for label, value in (values or {}).items():
            self.add(label, [value] if isinstance(value, str) else list(value))

    def add(self, label: str, values: list[str]) -> None:
        """Adds or replaces a label. Raises ValueError if a value is neither an IP address nor a label's number."""
        for value in values:
            try:
                _version(value)
            except ValueError as error:
                raise ValueError(f"label {MARK}{label}: {error}") from error
        self._values[label.removeprefix(MARK)] = values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def values(self, text: str) -> list[str]:
        """All that a label stands for; what is no label stands for itself. Raises LabelError."""
        if not text.startswith(MARK):
            return [text]
        name = text.removeprefix(MARK)
        if name not in self._values:
            exact = [label for label in self._values if label.startswith(f"{name}.")]
            near = exact or difflib.get_close_matches(name, self._values) or sorted(self._values)
            known = ", ".join(MARK + label for label in near[:_NEAR]) or "none: the network has no labels"
            raise LabelError(f"label {text} is not known{', or stands for several' if exact else ''}; there are {known}")
        return self._values[name]

    def address(self, text: str, family: int = 6) -> str:
        """The one address of a label in a family, 4 or 6. Raises LabelError if there is none or several."""
        if not text.startswith(MARK):
            return text
        found = [value for value in self.values(text) if _version(value) == family]
        if len(found) != 1:
            has = ", ".join(self.values(text)) or "nothing"
            raise LabelError(f"label {text} stands for {has}: not for one IPv{family} address")
        return found[0]

    def segments(self, *texts: str) -> list[str]:
        """Segments in the order of visiting, of labels and addresses: a chain gives all of its own."""
        return [value for text in texts for value in self._of_six(text)]

    def _of_six(self, text: str) -> list[str]:
        found = [value for value in self.values(text) if _version(value) == 6]
        if not found:
            raise LabelError(f"label {text} has no IPv6 address, which a segment is")
        return found

    def stack(self, *texts: str) -> list[int]:
        """Labels of SR-MPLS, the first one first: a chain gives its whole stack. Raises LabelError if one is something else."""
        found = [value for text in texts for value in self.values(text)]
        for value in found:
            if not value.isdecimal():
                raise LabelError(f"{value} is no label of SR-MPLS")
        return [int(value) for value in found]
