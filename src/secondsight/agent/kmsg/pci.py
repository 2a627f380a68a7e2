"""Read and write PCI addresses: every spelling of one function becomes one value, compared by numbers."""

import re
from typing import NamedTuple

PATTERN = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
"""An address as the kernel, the driver or NVML spell it: domain of 4 to 8 digits or none, function or none."""

_PARTS = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?").fullmatch


class Address(NamedTuple):
    """One PCI function; a GPU and an NVSwitch are function 0 of their device."""

    domain: int
    bus: int
    device: int
    function: int = 0

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function}"


def parse_address(text: str) -> Address | None:
    """Return the address that a text spells, or None; a missing domain or function is 0."""
    found = _PARTS(text.strip())
    if found is None:
        return None
    domain, bus, device, function = found.groups(default="0")
    return Address(int(domain, 16), int(bus, 16), int(device, 16), int(function))
