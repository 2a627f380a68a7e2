"""Turn the driver's lists of processes into rows: what each holds of which GPU, and how much of it it used.

A process is host, pid and start time; its rows are one for each GPU or GPU instance. Command lines are not read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from secondsight.agent.counts import Counts
from secondsight.agent.nvml.devices import Present
from secondsight.agent.nvml.driver import ProcessLists
from secondsight.agent.nvml.source import GpuSource
from secondsight.catalog.load import Binding
from secondsight.catalog.scale import conversion
from secondsight.contracts import Tick
from secondsight.mapping.cells import Cell, ContentBuilder, Gathered, count_discarded, part_text

COLLECTOR = "nvml-processes"
ROWS_MAXIMUM = 1024
ANY_INSTANCE = 0xFFFFFFFF
KINDS = ("Compute", "Graphics", "MPSCompute")
UTILIZATION = "nvmlDeviceGetProcessUtilization.smUtil"
START_FIELD = 19
"""Place of the start time among the fields of /proc/PID/stat that follow the name in brackets."""

_PROCESS = np.dtype(
    [("pid", "<u4"), ("pad", "<u4"), ("memory", "<u8"), ("gi", "<u4"), ("ci", "<u4")],
)
_SAMPLE = np.dtype(
    [
        ("pid", "<u4"),
        ("pad", "<u4"),
        ("stamp_us", "<u8"),
        ("sm", "<u4"),
        ("memory", "<u4"),
        ("encoder", "<u4"),
        ("decoder", "<u4"),
    ]
)


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds of a GPU or of a GPU instance; `memory` as the driver gave it."""

    pid: int
    instance: int | None
    memory: int
    kind: str


class ProcessReader:
    """Reads processes through the driver child; see `contracts.Reader`."""

    def __init__(self, source: GpuSource, counts: Counts) -> None:
        self.name = COLLECTOR
        self.interval_ms = source.settings.process_interval_ms
        self._source = source
        self._counts = counts
        self._builder = ContentBuilder(source.host.host_id, source.host.rack)

    def read(self, tick_ms: int) -> Tick:
        """Take one tick of process rows."""
        if not self._source.by_number:
            return Tick(())
        gathered = Gathered()
        for lists in self._source.driver.processes(*self._source.waits_seconds):
            gpu = self._source.by_number.get(lists.number)
            if gpu is not None:
                self._take(gpu, lists, gathered)
        count_discarded(gathered)
        self._counts.add_discarded(gathered.discarded)
        contents = self._builder.build(gathered, self._source.clock.now_ms() - tick_ms)
        return Tick(contents, collector=COLLECTOR, source="nvml")

    def close(self) -> None:
        """Nothing is held."""

    def _take(self, gpu: Present, lists: ProcessLists, gathered: Gathered) -> None:
        held = list(held_of(lists.lists))
        places: dict[int, list[tuple[str, str]]] = {}
        for one in held:
            if len(gathered.attributes) >= ROWS_MAXIMUM:
                gathered.discarded["parts_limit"] += 1
                continue
            key = (self._entity(one.pid), _part(gpu.uuid, one.instance))
            places.setdefault(one.pid, []).append(key)
            name = f"nvmlDeviceGet{one.kind}RunningProcesses_v3.usedGpuMemory"
            gathered.cells += [_cell(binding, key, one.memory) for binding in self._source.plan.processes.get(name, ())]
            gathered.attributes[key] = (("pid", str(one.pid)), ("type", one.kind.lower()))
        for pid, used in newest(lists.utilization):
            for key in places.get(pid, ())[:1]:
                bindings = self._source.plan.processes.get(UTILIZATION, ())
                gathered.cells += [_cell(binding, key, used) for binding in bindings]

    def _entity(self, pid: int) -> str:
        """Return the id of a process; without a start time where the process cannot be seen from here."""
        host = self._source.host
        try:
            text = (host.root / "proc" / str(pid) / "stat").read_text(errors="replace")
            started = text.rpartition(")")[2].split()[START_FIELD]
        except (OSError, IndexError):
            return f"{host.host_id}/{pid}"
        return f"{host.host_id}/{pid}/{started}"


def held_of(lists: Sequence[bytes]) -> Iterator[Held]:
    """Give what each process holds; one that is in several lists of a GPU counts once."""
    seen: set[tuple[int, int]] = set()
    for kind, raw in zip(KINDS, lists, strict=True):
        for pid, _, memory, gi, _ in np.frombuffer(raw, _PROCESS).tolist():
            if (pid, gi) not in seen:
                seen.add((pid, gi))
                yield Held(pid, None if gi == ANY_INSTANCE else gi, memory, kind)


def newest(raw: bytes) -> list[tuple[int, int]]:
    """Return (pid, percent of the SMs) of the newest sample of each process."""
    samples = sorted((stamp, pid, used) for pid, _, stamp, used, *_ in np.frombuffer(raw, _SAMPLE).tolist())
    return list({pid: used for _, pid, used in samples}.items())


def _part(uuid: str, instance: int | None) -> str:
    return part_text([("gpu", uuid), *([] if instance is None else [("gi", str(instance))])])


def _cell(binding: Binding, key: tuple[str, str], value: int) -> Cell:
    metric, source = binding
    stored, quality = conversion(metric, source).one(value)
    return Cell(metric, *key, stored, quality)
