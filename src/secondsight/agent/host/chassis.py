"""Turn what is slow to ask about a host into node rows: chassis power, inlet temperature, fabric manager.

Such sensors may take their time, as they ask a management controller, so they have a reader and a thread of their own.
Nothing is started and nothing written. A sensor that is not there gives nothing.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from secondsight.agent.counts import Counts
from secondsight.agent.host.place import Place
from secondsight.agent.host.proc import Reading
from secondsight.catalog.load import Catalog
from secondsight.catalog.metric import Source
from secondsight.catalog.scale import conversion
from secondsight.clock import Clock
from secondsight.contracts import Tick
from secondsight.mapping.cells import Cell, ContentBuilder, Gathered, count_discarded, part_text, plain_text
from secondsight.mapping.identity import PART_VALUE_CHARACTERS

INTERVAL_MS = 10_000
SENSORS_MAXIMUM = 16
MANAGER_COMM = "nv-fabricmanage"
"""Name of the fabric manager's process, which the kernel cuts to 15 characters."""

_SCALES = {"node_power_watts": 1e-6, "node_inlet_temperature_celsius": 1e-3}
_INLET = re.compile(r"inlet|ambient", re.IGNORECASE).search
_NVSWITCH_CLASS = "0x0680"
_NVIDIA = "0x10de"


class ChassisReader:
    """Reads the slow sensors of one host; see `contracts.Reader`."""

    def __init__(self, place: Place, catalog: Catalog, clock: Clock, counts: Counts) -> None:
        self.name = "chassis"
        self.interval_ms = INTERVAL_MS
        self._place = place
        self._catalog = catalog
        self._clock = clock
        self._counts = counts
        self._builder = ContentBuilder(place.host_id, place.rack)
        self._has_switches: bool | None = None
        self._manager: Path | None = None

    def read(self, tick_ms: int) -> Tick:
        """Take one tick."""
        gathered = Gathered(cells=[self._cell(reading) for reading in self._readings()])
        count_discarded(gathered)
        self._counts.add_discarded(gathered.discarded)
        contents = self._builder.build(gathered, self._clock.now_ms() - tick_ms)
        return Tick(contents, collector=self.name, source="host")

    def close(self) -> None:
        """Nothing is held."""

    def _cell(self, reading: Reading) -> Cell:
        metric = self._catalog.get(reading.metric)
        convert = conversion(metric, Source("host", metric.name, _SCALES.get(metric.name, 1.0)))
        value, quality = convert.one(reading.value)
        return Cell(metric, self._place.host_id, part_text(reading.part), value, quality)

    def _readings(self) -> Iterator[Reading]:
        yield from _sensors(self._place.root / "sys/class/hwmon")
        if self._has_switches is None:
            self._has_switches = has_nvswitches(self._place.root)
        if self._has_switches:
            yield Reading("node_fabric_manager_up", (), int(self._manager_runs()))

    def _manager_runs(self) -> bool:
        """Tell whether the fabric manager runs; its process is looked for when the one that was known is gone."""
        if self._manager is None or _text(self._manager) != MANAGER_COMM:
            folders = (self._place.root / "proc" / name for name in _names(self._place.root / "proc") if name.isdigit())
            self._manager = next(
                (folder / "comm" for folder in folders if _text(folder / "comm") == MANAGER_COMM), None
            )
        return self._manager is not None


def has_nvswitches(root: Path) -> bool:
    """Tell whether the PCI bus lists NVSwitches, which need a fabric manager."""
    folder = root / "sys/bus/pci/devices"
    return any(
        _text(folder / name / "vendor") == _NVIDIA and _text(folder / name / "class")[:6] == _NVSWITCH_CLASS
        for name in _names(folder)
    )


def _sensors(folder: Path) -> Iterator[Reading]:
    """Give chassis power in microwatts and inlet temperatures in thousandths of a degree, as hwmon has them."""
    inlets = 0
    for name in _names(folder):
        if _text(folder / name / "name") == "power_meter":
            power = _text(folder / name / "power1_average")
            if power.isascii() and power.isdigit():
                yield Reading("node_power_watts", (), int(power))
        for file in _names(folder / name):
            label = _text(folder / name / file) if re.fullmatch(r"temp\d+_label", file) else ""
            value = _text(folder / name / file.replace("_label", "_input")) if _INLET(label) else ""
            if re.fullmatch(r"-?\d{1,9}", value) and inlets < SENSORS_MAXIMUM:
                inlets += 1
                sensor = plain_text(label, PART_VALUE_CHARACTERS)
                yield Reading("node_inlet_temperature_celsius", (("sensor", sensor),), int(value))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 # names alone are wanted
    except OSError:
        return []
