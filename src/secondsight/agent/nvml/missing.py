"""Say which GPUs are missing: those that were known by their UUID, and for others the place on the PCI bus.

What was known in this boot outlives the agent.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from secondsight.agent.bootfile import BootFile
from secondsight.agent.known_gpus import pci_address
from secondsight.agent.nvml.devices import Present
from secondsight.wire.content import Event

METRIC = "node_gpu_missing"


class MissingGpus:
    """Keeps what is known of missing GPUs. One thread uses it.

    Args:
        uuid_of: UUID of the GPU that was seen at a PCI address, "" if none was.
        file: Where it outlives the agent; None to forget it.
    """

    def __init__(self, host_id: str, uuid_of: Callable[[str], str], file: BootFile | None) -> None:
        self._host_id = host_id
        self._uuid_of = uuid_of
        self._file = file
        self._since_ms: dict[str, int] = {}
        self._kept: Any = None

    def restored(self) -> list[Present]:
        """Return the GPUs that an earlier run knew; what cannot be read is nothing."""
        said: Any = self._file.load() if self._file is not None else None
        try:
            gpus = [unlisted(str(uuid), str(pci), int(index), str(name)) for uuid, pci, index, name in said["gpus"]]
            self._since_ms = {str(address): int(since_ms) for address, since_ms in said["missing"].items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            return []
        self._kept = said
        return gpus

    def keep(self, gpus: Iterable[Present]) -> None:
        """Have GPUs outlive the agent."""
        known = [[gpu.uuid, gpu.pci_bus_id, gpu.index, gpu.facts.get("name", "")] for gpu in gpus]
        kept = {"gpus": sorted(known), "missing": self._since_ms}
        if self._file is not None and kept != self._kept:
            self._file.save(kept)
            self._kept = {**kept, "missing": dict(self._since_ms)}

    def take(
        self, absent: Mapping[str, bool], gpus: Mapping[str, Present], now_ms: int
    ) -> tuple[list[Present], list[Event]]:
        """Return GPUs that are missing and were not known to be, and events about places whose GPU nobody knows.

        Args:
            absent: Address of each GPU that is absent -> whether it is for long enough to be missing.
            gpus: Every GPU that is known, by UUID.
            now_ms: Epoch ms.
        """
        places = {pci_address(gpu.pci_bus_id) for gpu in gpus.values()}
        named = {address: self._uuid_of(address) for address in absent if address not in places}
        found = [unlisted(uuid, at) for at, uuid in named.items() if absent[at] and uuid and uuid not in gpus]
        begun = [at for at, uuid in named.items() if absent[at] and not uuid and at not in self._since_ms]
        ended = [at for at in self._since_ms if named.get(at) != ""]
        events = [self._event(at, self._since_ms.pop(at), now_ms) for at in ended]
        events += [self._event(at, now_ms, None) for at in begun]
        self._since_ms |= dict.fromkeys(begun, now_ms)
        return found, events

    def _event(self, address: str, since_ms: int, end_ms: int | None) -> Event:
        version = 1 if end_ms is None else 2
        attributes = {"pci_bus_id": address, "id": address}
        return Event(METRIC, self._host_id, "", since_ms, 1, end_ms, version, attributes)


def unlisted(uuid: str, pci_bus_id: str, index: int = -1, name: str = "") -> Present:
    """Return a GPU that the driver does not list."""
    return Present(-1, uuid, index, None, pci_bus_id, {"name": name} if name else {})
