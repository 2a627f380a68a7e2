"""Turn this machine's /proc and /sys into node rows: CPU, memory, pressure, disks, network, mounts, boot, facts.

Every file may be missing or odd; it then gives nothing, never 0. Network file systems are not asked for free space, as
a hung server would hang the reader.
"""

import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from secondsight.agent.counts import Counts
from secondsight.agent.host import proc
from secondsight.agent.host.adjtimex import kernel_clock_offset_seconds
from secondsight.agent.host.place import Place
from secondsight.agent.host.proc import Reading
from secondsight.agent.host.textfile import read_text
from secondsight.catalog.load import Catalog
from secondsight.catalog.metric import Metric, Source
from secondsight.catalog.scale import Conversion, conversion
from secondsight.clock import Clock
from secondsight.contracts import Tick
from secondsight.mapping.cells import Cell, ContentBuilder, Gathered, count_discarded, part_text, plain_text
from secondsight.mapping.identity import ATTRIBUTE_CHARACTERS, PART_VALUE_CHARACTERS
from secondsight.model import EntityKind
from secondsight.wire.content import Event, Info

SLOW_FACTS_TICKS = 60
"""Facts that hardly change (PCI functions, mounts, node info) are looked up once in so many ticks."""

_UNNAMED = ("", "none", "not specified", "default string", "to be filled by o.e.m.", "system product name", "0")


COLUMNS_MAXIMUM = 4096
"""Metrics and parts of which is remembered how they are converted."""


@dataclass(frozen=True, slots=True)
class _Column:
    """Where readings of one metric and part go."""

    metric: Metric
    part: str
    conversion: Conversion


class HostReader:
    """Reads the host that it runs on, or a recorded tree; see `contracts.Reader`."""

    def __init__(self, place: Place, catalog: Catalog, clock: Clock, counts: Counts) -> None:
        self.name = "host"
        self.interval_ms = place.interval_ms
        self._host_id = place.host_id
        self._root = place.root
        self._folder = str(place.root).rstrip("/")
        self._builder = ContentBuilder(place.host_id, place.rack)
        self._catalog = catalog
        self._clock = clock
        self._counts = counts
        self._column = lru_cache(maxsize=COLUMNS_MAXIMUM)(self._new_column)
        self._cpu: tuple[int, int] | None = None
        self._ticks = 0
        self._mounts: list[proc.Mount] = []
        self._disks: frozenset[str] | None = None
        self._gpu_functions: int | None = None
        self._info: dict[str, str] = {}
        self._boot_id = ""

    def read(self, tick_ms: int) -> Tick:
        """Take one tick of node rows; the first one has no CPU utilisation, which needs two."""
        gathered = Gathered()
        for reading in self._readings():
            column = self._column(reading.metric, reading.part)
            if column is None:
                gathered.discarded["label_too_long"] += 1
            else:
                value, quality = column.conversion.one(reading.value)
                gathered.cells.append(Cell(column.metric, self._host_id, column.part, value, quality))
        if self._ticks % SLOW_FACTS_TICKS == 0:
            self._read_info(gathered, tick_ms)
        self._ticks += 1
        count_discarded(gathered)
        self._counts.add_discarded(gathered.discarded)
        return Tick(self._builder.build(gathered, self._clock.now_ms() - tick_ms))

    def close(self) -> None:
        """Nothing is held."""

    def _new_column(self, name: str, part: tuple[tuple[str, str], ...]) -> "_Column | None":
        """Return where readings of a metric and part go, None where a value of the part is too long."""
        if any(len(value) > PART_VALUE_CHARACTERS for _, value in part):
            return None
        metric = self._catalog.get(name)
        source = Source("host", name, proc.SCALES.get(name, 1.0))
        return _Column(metric, part_text(part), conversion(metric, source))

    def _text(self, path: str) -> str | None:
        return read_text(f"{self._folder}/{path}")

    def _readings(self) -> Iterator[Reading]:
        if self._ticks % SLOW_FACTS_TICKS == 0:
            self._look_up_facts()
        yield from self._processor_readings()
        yield from proc.load(self._text("proc/loadavg") or "")
        yield from proc.memory(self._text("proc/meminfo") or "")
        for name in ("memory", "io", "cpu"):
            yield from proc.pressure(name, self._text(f"proc/pressure/{name}") or "")
        yield from proc.oom_kills(self._text("proc/vmstat") or "")
        yield from proc.disks(self._text("proc/diskstats") or "", self._disks)
        yield from self._network_readings()
        yield from self._mount_readings()
        if self._gpu_functions is not None:
            yield Reading("node_gpu_pci_count", (), self._gpu_functions)

    def _processor_readings(self) -> Iterator[Reading]:
        text = self._text("proc/stat") or ""
        before, self._cpu = self._cpu, proc.cpu_times(text)
        yield from proc.cpu_utilization(before, self._cpu)
        boot_time = proc.boot_time_seconds(text)
        if boot_time is not None:
            yield Reading("node_boot_time_seconds", (), boot_time)
        offset = kernel_clock_offset_seconds() if self._root == Path("/") else None
        if offset is not None:
            yield Reading("node_clock_offset_seconds", (), offset)

    def _network_readings(self) -> Iterator[Reading]:
        text = self._text("proc/net/dev") or ""
        yield from proc.interfaces(text)
        for name in proc.interface_names(text):
            folder = f"sys/class/net/{name}"
            yield from proc.link(name, self._text(f"{folder}/carrier"), self._text(f"{folder}/speed"))
        yield from proc.retransmits(self._text("proc/net/snmp") or "")

    def _mount_readings(self) -> Iterator[Reading]:
        for mount in self._mounts:
            available = _available_bytes(self._root / mount.path.lstrip("/"))
            if available is not None:
                yield Reading("node_filesystem_available_bytes", (("mount", mount.path),), available)

    def _look_up_facts(self) -> None:
        self._mounts = [
            mount
            for mount in proc.mounts(self._text("proc/mounts") or "")
            if (self._root / mount.path.lstrip("/")).is_dir()
        ]
        disks = _names(self._root / "sys/block")
        self._disks = None if disks is None else frozenset(disks)
        functions = _names(self._root / "sys/bus/pci/devices")
        if functions is not None:
            texts = [(self._pci(name, "vendor"), self._pci(name, "class")) for name in functions]
            self._gpu_functions = proc.gpu_functions(texts)

    def _pci(self, function: str, file: str) -> str:
        return self._text(f"sys/bus/pci/devices/{function}/{file}") or ""

    def _read_info(self, gathered: Gathered, tick_ms: int) -> None:
        """Add what changed since the last look: facts of the node, and a boot."""
        info = {name: value for name, value in self._facts() if value}
        if info and info != self._info:
            gathered.infos.append((EntityKind.NODE, Info("node_info", self._host_id, "", tick_ms, info)))
            self._info = info
        boot_id = info.get("boot_id", "")
        if boot_id and boot_id != self._boot_id:
            self._boot_id = boot_id
            seconds = proc.boot_time_seconds(self._text("proc/stat") or "")
            time_ms = tick_ms if seconds is None else seconds * 1000
            boot = Event("node_boot", self._host_id, "", time_ms, 0, attributes={"boot_id": boot_id})
            gathered.events.append((EntityKind.NODE, boot))

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "boot_id", boot_id(self._root)
        yield "hostname", (self._text("proc/sys/kernel/hostname") or "").strip()
        yield "kernel", (self._text("proc/sys/kernel/osrelease") or "").strip()
        found = re.search(r'^PRETTY_NAME="?([^"\n]*)', self._text("etc/os-release") or "", re.MULTILINE)
        yield "os", found[1] if found else ""
        found = re.search(r"^NVRM version: .*?\s(\d+\.\d+(?:\.\d+)?)\s", self._text("proc/driver/nvidia/version") or "")
        yield "driver", found[1] if found else ""
        yield "product", self._board("product_name")
        yield "chassis_serial", self._board("chassis_serial")
        processors = self._text("proc/cpuinfo") or ""
        found = re.search(r"^model name\s*: (.*)$", processors, re.MULTILINE)
        yield "cpu", found[1].strip() if found else ""
        yield "cpus", str(len(re.findall(r"^processor\s*:", processors, re.MULTILINE)) or "")
        yield "architecture", platform.machine() if self._root == Path("/") else ""

    def _board(self, name: str) -> str:
        """Return what the firmware calls the board; the words of boards that nobody named are left out."""
        text = (self._text(f"sys/class/dmi/id/{name}") or "").strip()
        return plain_text(text, ATTRIBUTE_CHARACTERS) if text.lower() not in _UNNAMED else ""


def boot_id(root: Path = Path("/")) -> str:
    """Return the kernel's id of this boot, or "" where there is none."""
    try:
        text = (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return text if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text) else ""


def _names(folder: Path) -> list[str] | None:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 # a path object for each of hundreds of devices is not needed
    except OSError:
        return None


def _available_bytes(path: Path) -> int | None:
    try:
        state = os.statvfs(path)
    except OSError:
        return None
    return state.f_bavail * state.f_frsize if state.f_blocks else None
