"""Turn the catalogue into what the driver child is asked for, and say which answer feeds which column.

Every metric that names a source of NVML is in here by that alone. What costs the driver time and hardly changes is
asked for rarely and repeated in between; what is of a part (a link, a fan, a bank) goes to rows of its own.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from secondsight.agent.nvml.fields import LINK_TOTALS
from secondsight.agent.nvml.settings import NvmlSettings, library_file
from secondsight.catalog.load import Binding, Catalog
from secondsight.catalog.metric import Metric, MetricType, Source
from secondsight.model import EntityKind

PER_LINK = ("nvmlDeviceGetNvLinkState",)
PER_FAN = ("nvmlDeviceGetFanSpeed_v2",)
PER_SECOND = " per second"
"""What follows the name of a growing field whose increase per second is the source value."""

RARELY = frozenset(
    {
        "nvmlDeviceGetClock",
        "nvmlDeviceGetDefaultApplicationsClock",
        "nvmlDeviceGetEccMode",
        "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetMaxCustomerBoostClock",
        "nvmlDeviceGetMaxPcieLinkGeneration",
        "nvmlDeviceGetMaxPcieLinkWidth",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetRowRemapperHistogram",
        "nvmlDeviceGetSramEccErrorStatus",
        "nvmlDeviceGetTemperatureThreshold",
        "FI 5",
        "FI 6",
        "FI 52",
        "FI 59",
        "FI 142",
        "FI 143",
        *LINK_TOTALS,
    }
)
"""Constants, modes, counts kept in the InfoROM, totals of errors over links: functions, and fields by their names."""

SAMPLE_AGE_SECONDS, SAMPLE_AGE_TICKS = 5.0, 3
"""How long a sample of GPM is good to be averaged from; the greater counts."""

GPU_INSTANCE = "gi"
DRIVER_LIST = "proc/driver/nvidia/gpus"


@dataclass(frozen=True, slots=True)
class Slot:
    """One source of one metric.

    Attributes:
        asked: Position among the names that are asked.
        is_real: The answer is floating point (GPM).
        per_second: The answer grows; its increase per second is the source value.
    """

    metric: Metric
    source: Source
    asked: int
    is_real: bool = False
    per_second: bool = False


@dataclass(frozen=True, slots=True)
class PartSlot:
    """A source of a metric that has rows for parts of a GPU.

    Attributes:
        label: Label that the number of the part becomes (`link`, `fan`), "" where the source names its part itself.
    """

    metric: Metric
    source: Source
    label: str


class Start(NamedTuple):
    """How the driver is started.

    Attributes:
        delay_seconds: Wait before the first time.
        turn_files: Where processes take turns, see `agent.turn`.
    """

    delay_seconds: float = 0.0
    turn_files: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked, and where it goes.

    Attributes:
        names: What is asked of each GPU every tick, then what is asked rarely; the rows' columns.
        main_count: How many of them are asked every tick.
        slots: Sources of the columns, sorted by metric, best first.
        metrics: Columns, in the order of the catalogue.
        parts: By name: what is asked of parts, rarely.
        links, fans: Names that are asked of each link and each fan.
        instance: Names that are asked of each GPU instance.
        processes: Sources of process rows, by name.
    """

    names: tuple[str, ...]
    main_count: int
    slots: tuple[Slot, ...]
    metrics: tuple[Metric, ...]
    parts: dict[str, tuple[PartSlot, ...]]
    links: tuple[str, ...]
    fans: tuple[str, ...]
    instance: tuple[str, ...]
    processes: dict[str, tuple[Binding, ...]]

    @property
    def rare_parts(self) -> tuple[str, ...]:
        """Return what is asked once of each GPU for rows of its parts."""
        return tuple(name for name in self.parts if name not in self.links and name not in self.fans)

    def message(self, settings: NvmlSettings, root: Path, interval_ms: int, start: Start) -> bytes:
        """Return the plan as the child takes it.

        Args:
            settings: Of the reader.
            root: Folder that holds proc.
            interval_ms: Cadence of the ticks.
            start: How the driver is started.
        """
        main, rare = self.names[: self.main_count], self.names[self.main_count :]
        return json.dumps(
            {
                "main": {"names": main, "choices": self._choices(0, self.main_count)},
                "slow": {
                    "names": [*rare, *self.rare_parts],
                    "choices": self._choices(self.main_count, len(self.names)),
                },
                "links": self.links,
                "fans": self.fans,
                "instance": self.instance,
                "processes": settings.processes,
                "events": settings.events,
                "library": library_file(settings),
                "age_seconds": max(SAMPLE_AGE_SECONDS, SAMPLE_AGE_TICKS * interval_ms / 1000),
                "driver_list": str(root / DRIVER_LIST),
                "start_delay_seconds": start.delay_seconds,
                "turn_files": [str(file) for file in start.turn_files],
            }
        ).encode()

    def _choices(self, begin: int, end: int) -> list[list[int]]:
        """Return the positions that give one metric, best first, where all of them lie within a group."""
        by_metric: dict[str, list[int]] = defaultdict(list)
        for slot in self.slots:
            by_metric[slot.metric.name].append(slot.asked)
        inside = [asked for asked in by_metric.values() if len(asked) > 1 and all(begin <= one < end for one in asked)]
        return [[one - begin for one in asked] for asked in inside]


DERIVED = (
    "gpu_lost",
    "gpu_driver_unresponsive",
    "gpu_nvlink_links_active",
    "gpu_memory_used_ratio",
)
"""Columns that the reader makes itself."""


def plan_of(catalog: Catalog) -> Plan:
    """Return the plan of a catalogue."""
    bindings = [binding for binding in catalog.nvml() if binding[0].is_scalar]
    of_gpu = [binding for binding in bindings if binding[0].kind is EntityKind.GPU]
    rows = [(metric, source) for metric, source in of_gpu if not _label_of(metric, source)]
    main = _asked(source for _, source in rows if not _is_rare(source))
    rare = [name for name in _asked(source for _, source in rows if _is_rare(source)) if name not in main]
    names = (*main, *rare)
    parts = _parts(of_gpu, bindings)
    instance = _asked(source for metric, source in rows if GPU_INSTANCE in metric.labels and not _grows(source))
    return Plan(
        names=names,
        main_count=len(main),
        slots=_slots(rows, names),
        metrics=_columns(catalog, rows),
        parts=parts,
        links=tuple(name for name, slots in parts.items() if slots[0].label == "link"),
        fans=tuple(name for name, slots in parts.items() if slots[0].label == "fan"),
        instance=instance,
        processes=_by_name(binding for binding in bindings if binding[0].kind is EntityKind.PROCESS_JOB),
    )


def asked_name(source: Source) -> str:
    """Return the name by which the child is asked for a source."""
    return source.name.removesuffix(PER_SECOND)


def _grows(source: Source) -> bool:
    return source.name.endswith(PER_SECOND)


def _asked(sources: Iterable[Source]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(asked_name(source) for source in sources))


def _is_rare(source: Source) -> bool:
    function = source.name.partition(".")[0].partition("(")[0]
    return function in RARELY and not _grows(source)


def _label_of(metric: Metric, source: Source) -> str:
    """Return the label that makes rows of parts of a source, `part` where the source names its part, else ""."""
    if metric.kind is EntityKind.FABRIC_PORT or source.name in PER_LINK:
        return "link"
    if source.name in PER_FAN:
        return "fan"
    return "part" if source.part else ""


def _parts(of_gpu: Sequence[Binding], bindings: Sequence[Binding]) -> dict[str, tuple[PartSlot, ...]]:
    found: dict[str, list[PartSlot]] = defaultdict(list)
    of_ports = [binding for binding in bindings if binding[0].kind is EntityKind.FABRIC_PORT]
    for metric, source in [*of_gpu, *of_ports]:
        label = _label_of(metric, source)
        if label:
            found[source.name].append(PartSlot(metric, source, "" if label == "part" else label))
    return {name: tuple(slots) for name, slots in found.items()}


def _slots(rows: Sequence[Binding], names: Sequence[str]) -> tuple[Slot, ...]:
    position = {name: place for place, name in enumerate(names)}
    slots = [
        Slot(metric, source, position[asked_name(source)], source.name.startswith("GPM "), _grows(source))
        for metric, source in rows
    ]
    order = {metric.name: place for place, (metric, _) in enumerate(rows)}
    return tuple(sorted(slots, key=lambda slot: (order[slot.metric.name], slot.source.rank)))


def _columns(catalog: Catalog, rows: Sequence[Binding]) -> tuple[Metric, ...]:
    wanted = {metric.name for metric, _ in rows} | set(DERIVED)
    return tuple(metric for metric in catalog.scalars(EntityKind.GPU) if metric.name in wanted)


def _by_name(bindings: Iterable[Binding]) -> dict[str, tuple[Binding, ...]]:
    found: dict[str, list[Binding]] = defaultdict(list)
    for metric, source in bindings:
        if metric.type is not MetricType.EVENT:
            found[source.name].append((metric, source))
    return {name: tuple(members) for name, members in found.items()}
