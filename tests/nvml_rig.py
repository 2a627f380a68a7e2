"""The readers of NVML with their real child, over the scripted library; what they take is shown as plain values."""

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nvml_stub import build
from nvml_stub.scenario import VARIABLE, Machine
from secondsight.agent.bootfile import BootFile
from secondsight.agent.counts import Counts
from secondsight.agent.known_gpus import KnownGpus
from secondsight.agent.nvml.devices import PresentGpus
from secondsight.agent.nvml.parts import PartsReader
from secondsight.agent.nvml.plan import plan_of
from secondsight.agent.nvml.processes import ProcessReader
from secondsight.agent.nvml.reader import NvmlReader
from secondsight.agent.nvml.settings import NvmlSettings
from secondsight.agent.nvml.source import GpuSource, Host, gpu_source
from secondsight.catalog.load import load_catalog
from secondsight.catalog.scale import to_physical
from secondsight.clock import SystemClock
from secondsight.contracts import Tick
from secondsight.model import Quality
from secondsight.wire.content import Content, Event

HOST = "host-a"
SECONDS_MAXIMUM = 30.0
needs_compiler = pytest.mark.skipif(build.compiler() is None, reason="no C compiler")

Cells = dict[str, Any]
"""Metric -> physical value, or the name of the quality where there is none."""


@dataclass
class Rig:
    """One host.

    Attributes:
        events: All that came so far.
        facts: UUID -> the newest facts.
    """

    machine: Machine
    source: GpuSource
    counts: Counts
    reader: NvmlReader
    parts: PartsReader
    processes: ProcessReader
    events: list[Event] = field(default_factory=list)
    facts: dict[str, dict[str, str]] = field(default_factory=dict)

    def tick(self) -> dict[tuple[str, str], Cells]:
        """Take one tick, and return the cells of each row."""
        return self._shown(self.reader.read(time.time_ns() // 1_000_000))

    def gpus(self) -> dict[str, Cells]:
        """Take one tick, and return the cells of each whole GPU by UUID."""
        return {entity: cells for (entity, part), cells in self.tick().items() if not part and entity != HOST}

    def until(self, is_so: Callable[[dict[str, Cells]], object], pause_seconds: float = 0.02) -> dict[str, Cells]:
        """Take ticks until the GPUs are so."""
        end = time.monotonic() + SECONDS_MAXIMUM
        while True:
            gpus = self.gpus()
            if is_so(gpus):
                return gpus
            assert time.monotonic() < end, f"never so: {gpus}"
            time.sleep(pause_seconds)

    def settled(self, count: int) -> dict[str, Cells]:
        """Take ticks until so many GPUs answer with their GPM averages, which take two samples."""
        self.until(lambda gpus: sum(cells.get("gpu_lost") == 0 for cells in gpus.values()) == count)
        time.sleep(0.11)
        self.gpus()
        return self.gpus()

    def part_rows(self) -> dict[tuple[str, str], Cells]:
        """Return the rows of parts."""
        return self._shown(self.parts.read(time.time_ns() // 1_000_000))

    def process_rows(self) -> dict[tuple[str, str], Cells]:
        """Return the rows of processes."""
        return self._shown(self.processes.read(time.time_ns() // 1_000_000))

    def event(self, is_it: Callable[[Event], bool]) -> Event:
        """Take ticks until an event is there."""
        end = time.monotonic() + SECONDS_MAXIMUM
        while not (found := [event for event in self.events if is_it(event)]):
            self.tick()
            assert time.monotonic() < end, self.events
            time.sleep(0.05)
        return found[-1]

    def _shown(self, tick: Tick) -> dict[tuple[str, str], Cells]:
        rows: dict[tuple[str, str], Cells] = {}
        for content in tick.contents:
            self.events += content.events
            self.facts |= {info.entity: dict(info.attributes) for info in content.infos}
            rows |= shown(content)
        return rows


def shown(content: Content) -> dict[tuple[str, str], Cells]:
    """Return the cells of each row of a content."""
    scalars = content.scalars
    if scalars is None:
        return {}
    catalog = load_catalog()
    keys = [(one.entity, one.part) for one in content.entities.entities]
    rows: dict[tuple[str, str], Cells] = {keys[index]: {} for index in scalars.entity_index.tolist()}
    for row, index in enumerate(scalars.entity_index.tolist()):
        for group in scalars.groups:
            for place in range(group.values.shape[0]):
                if group.present is None or group.present[place, row]:
                    metric = catalog.get(content.schema.columns[group.first_column + place].metric)
                    rows[keys[index]][metric.name] = to_physical(metric, group.values[place, row].item())
    for row, column, quality in zip(
        scalars.quality_row.tolist(), scalars.quality_column.tolist(), scalars.quality.tolist(), strict=True
    ):
        name = content.schema.columns[column].metric
        rows[keys[int(scalars.entity_index[row])]].setdefault(name, Quality(quality).name)
    return rows


@contextmanager
def running(
    folder: Path, *lines: str, library: Path | None = None, boot_id: str = "boot-1", **settings: Any
) -> Iterator[Rig]:
    """Run the readers over a scenario in this folder."""
    machine = Machine(folder / "machine", *lines)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(machine.path)
    chosen = NvmlSettings(library=library or build.library(), **({"start_spread_seconds": 0} | settings))
    catalog, counts, clock = load_catalog(), Counts(), SystemClock()
    kept = BootFile(folder / "spool/gpus.json", boot_id, counts)
    turn_files = (folder / "run/driver.lock",)
    host = Host(HOST, "rack-1", folder / "root", kept=kept, dev=folder / "dev", turn_files=turn_files)
    tables = (PresentGpus(), KnownGpus(HOST))
    source = gpu_source(chosen, plan_of(catalog), host, clock, random.Random(1).random, tables)
    rig = Rig(
        machine, source, counts, NvmlReader(source, catalog, counts), PartsReader(source), ProcessReader(source, counts)
    )
    try:
        yield rig
    finally:
        machine.replace("host bare 0")
        rig.reader.close()
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def plug(folder: Path, *addresses: str, driver: str = "nvidia", **files: str) -> None:
    """Make the PCI devices of the host, and no others; each with its driver ("" for none) and these files of it."""
    devices = folder / "root/sys/bus/pci/devices"
    shutil.rmtree(devices, ignore_errors=True)
    devices.mkdir(parents=True)
    add_functions(devices, *addresses, driver=driver, **files)


def add_functions(devices: Path, *addresses: str, driver: str = "nvidia", **files: str) -> None:
    """Add NVIDIA's 3D controllers to the PCI devices of the host."""
    for address in addresses:
        (devices / address).mkdir(parents=True)
        for name, text in ({"vendor": "0x10de", "class": "0x030200"} | files).items():
            (devices / address / name).write_text(text + "\n")
        if driver:
            (devices / address / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
