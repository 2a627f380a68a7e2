"""Turn the processes of a host into node rows by name: CPU, memory and count of the greatest few, the rest as one.

Off by default. Names are the kernel's short ones, never command lines, and numbers in them are cut, so that a program
that numbers its workers is one name.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from secondsight.agent.counts import Counts
from secondsight.agent.host.place import Place
from secondsight.catalog.load import Catalog
from secondsight.catalog.metric import Source
from secondsight.catalog.scale import conversion
from secondsight.clock import Clock
from secondsight.contracts import Tick
from secondsight.errors import Rejected
from secondsight.mapping.cells import Cell, ContentBuilder, Gathered, part_text, plain_text
from secondsight.mapping.identity import PART_VALUE_CHARACTERS

OTHER = "other"
KERNEL = "kernel threads"
TOP_MAXIMUM = 16
PROCESSES_MAXIMUM = 100_000

_STAT = re.compile(rb"(\d+) \((.*)\) [A-Za-z] (.*)", re.DOTALL).match
_NUMBERS = re.compile(r"\d{2,}|(?<=[:/_.-])\d+")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KERNEL_THREAD_FLAG = 0x0020_0000


@dataclass(frozen=True, slots=True)
class ProcessesConfig:
    """Settings of the reader of host processes.

    Attributes:
        top: How many names to tell by CPU, and how many by memory; the rest is told together.
        interval_ms: How often to look.
    """

    top: int = 10
    interval_ms: int = 10_000

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if not 1 <= self.top <= TOP_MAXIMUM or self.interval_ms < 1000:
            raise Rejected("bad_config", f"agent.processes: top is 1 to {TOP_MAXIMUM}, interval_ms at least 1000")


class Process(NamedTuple):
    """One process at one look.

    Attributes:
        started: Ticks after boot; with the pid it names the process.
        cpu_ticks: CPU time so far.
    """

    pid: int
    name: str
    started: int
    cpu_ticks: int
    resident_bytes: int


class ByName(NamedTuple):
    """What the processes of one name come to."""

    cpu_ticks: int
    resident_bytes: int
    processes: int


class ProcessesReader:
    """Reads the processes of one host; see `contracts.Reader`."""

    def __init__(self, config: ProcessesConfig, place: Place, catalog: Catalog, clock: Clock, counts: Counts) -> None:
        self.name = "processes"
        self.interval_ms = config.interval_ms
        self._top = config.top
        self._host_id = place.host_id
        self._folder = str(place.root / "proc")
        self._catalog = catalog
        self._clock = clock
        self._counts = counts
        self._builder = ContentBuilder(place.host_id, place.rack)
        self._before: dict[tuple[int, int], int] = {}
        self._before_at: float | None = None

    def read(self, tick_ms: int) -> Tick:
        """Take one tick; CPU needs two looks."""
        now = self._clock.monotonic_seconds()
        found = list(processes(self._folder))
        seconds = None if self._before_at is None else now - self._before_at
        told = greatest(by_name(found, self._before), self._top)
        self._before = {(one.pid, one.started): one.cpu_ticks for one in found}
        self._before_at = now
        cells = [cell for name, sums in told.items() for cell in self._cells(name, sums, seconds)]
        contents = self._builder.build(Gathered(cells=cells), self._clock.now_ms() - tick_ms)
        return Tick(contents, collector=self.name, source="host")

    def close(self) -> None:
        """Nothing is held."""

    def _cells(self, name: str, sums: ByName, seconds: float | None) -> Iterator[Cell]:
        values: dict[str, float] = {
            "node_process_resident_bytes": sums.resident_bytes,
            "node_processes": sums.processes,
        }
        if seconds:
            values["node_process_cpu_cores"] = sums.cpu_ticks / _TICKS_PER_SECOND / seconds
        for metric_name, number in values.items():
            metric = self._catalog.get(metric_name)
            value, quality = conversion(metric, Source("host", metric_name)).one(number)
            yield Cell(metric, self._host_id, part_text([("process", name)]), value, quality)


def processes(folder: str) -> Iterator[Process]:
    """Give every process of a /proc folder; one that ends meanwhile is left out."""
    for name in os.listdir(folder)[:PROCESSES_MAXIMUM]:  # noqa: PTH208 # thousands of names
        if name.isdigit():
            try:
                with open(f"{folder}/{name}/stat", "rb") as file:  # noqa: PTH123 # thousands of files
                    process = parse_stat(file.read(1024))
            except OSError:
                continue
            if process is not None:
                yield process


def parse_stat(data: bytes) -> Process | None:
    """Return the process of a /proc/<pid>/stat text, or None; its name may hold anything, also brackets."""
    found = _STAT(data)
    fields = found[3].split() if found else []
    if found is None or len(fields) < 21 or not all(fields[at].isdigit() for at in (5, 10, 11, 18, 20)):
        return None
    is_kernel = int(fields[5]) & _KERNEL_THREAD_FLAG
    name = KERNEL if is_kernel else short_name(found[2].decode(errors="replace"))
    cpu_ticks = int(fields[10]) + int(fields[11])
    return Process(int(found[1]), name, int(fields[18]), cpu_ticks, int(fields[20]) * _PAGE_BYTES)


def short_name(name: str) -> str:
    """Return a name without the numbers that tell workers apart; a single digit behind a letter stays (python3)."""
    return plain_text(_NUMBERS.sub("#", name), PART_VALUE_CHARACTERS) or OTHER


def by_name(found: list[Process], before: dict[tuple[int, int], int]) -> dict[str, ByName]:
    """Return sums by name; CPU is what was used since the look before, by processes that were there or began since."""
    ticks: Counter[str] = Counter()
    resident: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for one in found:
        ticks[one.name] += max(one.cpu_ticks - before.get((one.pid, one.started), 0), 0) if before else 0
        resident[one.name] += one.resident_bytes
        count[one.name] += 1
    return {name: ByName(ticks[name], resident[name], count[name]) for name in count}


def greatest(sums: dict[str, ByName], top: int) -> dict[str, ByName]:
    """Return the names that use most CPU or most memory, and the rest together as `other`."""
    chosen = set(sorted(sums, key=lambda name: (-sums[name].cpu_ticks, name))[:top])
    chosen |= set(sorted(sums, key=lambda name: (-sums[name].resident_bytes, name))[:top])
    told: defaultdict[str, ByName] = defaultdict(lambda: ByName(0, 0, 0))
    for name, one in sums.items():
        key = name if name in chosen else OTHER
        told[key] = ByName(*(a + b for a, b in zip(told[key], one, strict=True)))
    return dict(sorted(told.items()))
