"""Remember which GPU of this host has which index and PCI address, for sources that print no UUID.

Whatever names both teaches, whatever names one asks. An index may move to another GPU when one drops out: the newest
lesson counts. Safe to use from threads.
"""

import re
import threading

from secondsight.agent.jobs.devices import Gpu
from secondsight.mapping.identity import gpu_id, is_usable

ENTITIES_MAXIMUM = 1024

_ADDRESS = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-9a-f])", re.IGNORECASE).fullmatch


def pci_address(text: str) -> str:
    """Return a PCI address in one spelling (`0000:3b:00.0`), or "" if the text is none."""
    found = _ADDRESS(text.strip())
    if found is None:
        return ""
    domain, bus, device, function = (int(part or "0", 16) for part in found.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"


class KnownGpus:
    """The GPUs of one host."""

    def __init__(self, host_id: str = "") -> None:
        self._host_id = host_id
        self._by_index: dict[str, str] = {}
        self._by_address: dict[str, str] = {}
        self._lock = threading.Lock()

    def learn(self, uuid: str, index: str = "", address: str = "") -> None:
        """Take that a GPU has this index and PCI address, as far as they are named."""
        with self._lock:
            if len(self._by_index) > ENTITIES_MAXIMUM or len(self._by_address) > ENTITIES_MAXIMUM:
                self._by_index.clear()
                self._by_address.clear()
            if index.isdigit():
                self._by_index[index] = uuid
            if pci_address(address):
                self._by_address[pci_address(address)] = uuid

    def uuid_of(self, *, index: str = "", address: str = "") -> str:
        """Return the UUID of the GPU at an address or, failing that, at an index; "" if nobody has said."""
        with self._lock:
            return self._by_address.get(pci_address(address), "") or self._by_index.get(index, "")

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs as allocators look them up: by index and PCI address, no minors and no slices."""
        with self._lock:
            addresses = {uuid: address for address, uuid in self._by_address.items()}
            indexes = {uuid: int(index) for index, uuid in self._by_index.items()}
        return tuple(
            Gpu(uuid, indexes.get(uuid), None, addresses.get(uuid, "")) for uuid in sorted({*addresses, *indexes})
        )

    def identify(self, uuid: str, index: str = "", address: str = "") -> str:
        """Return the entity of a GPU and learn from it where it is named whole.

        A GPU whose UUID nobody can read is named by host and PCI address, or by host and index: a name of its own that
        is never mistaken for another GPU's. "" if nothing is said of it at all.
        """
        named = gpu_id(uuid) if uuid else ""
        if named and is_usable(named):
            self.learn(named, index, address)
            return named
        known = self.uuid_of(index=index, address=address)
        if known:
            return known
        place = pci_address(address) or (f"gpu{index}" if index.isdigit() else "")
        return f"{self._host_id}/{place}" if place else ""
