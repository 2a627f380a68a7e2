"""Remember which GPUs this host has, also those that the driver no longer lists, and say which rows they have."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from secondsight.agent.known_gpus import pci_address
from secondsight.agent.nvml.absent import is_drivers
from secondsight.agent.nvml.devices import Present
from secondsight.agent.nvml.rows import WHOLE_GPU, Place
from secondsight.mapping.cells import Attributes, Key, part_text, plain_text
from secondsight.mapping.identity import ATTRIBUTE_CHARACTERS
from secondsight.model import EntityKind
from secondsight.wire.content import Entity, EntityTable

REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        place: Where the child has it, None for a GPU that the driver does not list.
    """

    key: Key
    place: Place | None
    attributes: Attributes


class Roster:
    """The GPUs of one host, by UUID."""

    def __init__(self, host_id: str, rack: str, root: Path) -> None:
        self._host_id = host_id
        self._rack = rack
        self._devices = root / "sys/bus/pci/devices"
        self._last: dict[str, Present] = {}
        self._listed: dict[str, Present] = {}
        self.rows: tuple[Row, ...] = ()
        self.entities = EntityTable(EntityKind.GPU, host_id, rack, ())

    @property
    def by_number(self) -> dict[int, Present]:
        """Return the listed GPUs by the child's number."""
        return {gpu.number: gpu for gpu in self._listed.values()}

    @property
    def gpus(self) -> dict[str, Present]:
        """Return every GPU that is remembered, by UUID."""
        return dict(self._last)

    @property
    def missing(self) -> list[str]:
        """Return the UUIDs of GPUs that are not listed and were not taken out."""
        return [uuid for uuid in self._last if uuid not in self._listed]

    def list_now(self, gpus: Iterable[Present]) -> None:
        """Take the driver's list."""
        self._listed = {gpu.uuid: gpu for gpu in gpus}
        self._last |= self._listed
        for uuid in self.missing[: max(len(self._last) - REMEMBERED, 0)]:
            del self._last[uuid]
        self._arrange()

    def remember(self, gpus: Iterable[Present]) -> None:
        """Take that there are GPUs which the driver does not list."""
        self._last = {gpu.uuid: gpu for gpu in gpus} | self._last
        self._arrange()

    def unlist(self) -> None:
        """Take that the driver lists nothing, as it is being started anew."""
        self._listed = {}
        self._arrange()

    def drop_taken_out(self) -> bool:
        """Forget missing GPUs whose PCI device is gone too, or another driver's, and return whether there were any."""
        gone = [uuid for uuid in self.missing if not self._is_plugged(self._last[uuid])]
        for uuid in gone:
            del self._last[uuid]
        if gone:
            self._arrange()
        return bool(gone)

    def _is_plugged(self, gpu: Present) -> bool:
        """Tell whether the GPU's PCI device is there, which counts as true where the kernel lists no devices."""
        address = pci_address(gpu.pci_bus_id)
        if not address or not self._devices.is_dir():
            return True
        return (self._devices / address).exists() and is_drivers(self._devices / address)

    def _arrange(self) -> None:
        rows = [row for gpu in self._last.values() for row in self._rows_of(gpu)]
        self.rows = tuple(sorted(rows, key=lambda row: row.key))
        entities = tuple(Entity(*row.key, row.attributes) for row in self.rows)
        if entities != self.entities.entities:
            self.entities = EntityTable(EntityKind.GPU, self._host_id, self._rack, entities)

    def _rows_of(self, gpu: Present) -> Sequence[Row]:
        is_listed = gpu.uuid in self._listed
        place = (gpu.number, WHOLE_GPU) if is_listed else None
        named = (
            ("gpu_model", gpu.facts.get("name", "")),
            ("index", str(gpu.index) if gpu.index >= 0 else ""),
            ("pci_bus_id", gpu.pci_bus_id),
        )
        whole = Row((gpu.uuid, ""), place, _attributes(*named))
        slices = [
            Row(
                (gpu.uuid, part_text([("gi", str(one.gi))])),
                (gpu.number, one.gi),
                _attributes(("mig_profile", one.profile)),
            )
            for one in gpu.instances
            if is_listed
        ]
        return [whole, *slices]


def _attributes(*pairs: tuple[str, str]) -> Attributes:
    return tuple((name, plain_text(value, ATTRIBUTE_CHARACTERS)) for name, value in pairs if value)
