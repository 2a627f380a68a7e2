"""Read the GPUs of this machine for some seconds as the agent does, and say what each of them gives: `make gpu-check`.

Prints a line for each metric with the quality of each GPU's value, and what a tick costs. With `--out` it writes a
folder with the report and a case that the tests can replay. On a machine without a driver it says that it did not run.
"""

import argparse
import json
import os
import random
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from secondsight.agent.counts import Counts
from secondsight.agent.known_gpus import KnownGpus
from secondsight.agent.nvml.devices import Present, PresentGpus
from secondsight.agent.nvml.driver import Driver, Record, Values
from secondsight.agent.nvml.plan import PER_SECOND, Plan, plan_of
from secondsight.agent.nvml.reader import NvmlReader
from secondsight.agent.nvml.record import anonymous, case_of, is_of_gpus
from secondsight.agent.nvml.settings import NvmlSettings
from secondsight.agent.nvml.source import GpuSource, Host, gpu_source
from secondsight.catalog.load import Catalog, load_catalog
from secondsight.catalog.scale import to_physical
from secondsight.clock import Clock, SystemClock
from secondsight.contracts import Tick
from secondsight.model import EntityKind, Quality

HOST = "this-host"
SETTLE_TICKS = 3
MARKS = {
    Quality.OK: "ok",
    Quality.ESTIMATE: "est",
    Quality.NONE: ".",
    Quality.ABSENT_NOT_SUPPORTED: "n/s",
    Quality.ABSENT_NO_PERMISSION: "n/p",
    Quality.ABSENT_SOURCE_BLANK: "blank",
    Quality.BAD_RANGE: "range",
    Quality.BAD_PARSE: "parse",
    Quality.STALE: "stale",
    Quality.SATURATED: "full",
}

Rows = dict[str, dict[str, Any]]


class Witness:
    """A driver that remembers what the child said last; stands in for `Driver`."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.records: dict[tuple[int, int, int], Record] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def tick(self, wait_seconds: float, deadline_seconds: float) -> Values | None:
        """Pass a tick on, and keep its records."""
        values = self._driver.tick(wait_seconds, deadline_seconds)
        for record in values.records if values is not None else ():
            if is_of_gpus(record):
                self.records[record.number, record.what, record.instance] = record
        return values

    def take_rare(self) -> list[Record]:
        """Pass on what was read rarely, and keep it."""
        rare = self._driver.take_rare()
        self.records |= {(record.number, record.what, record.instance): record for record in rare}
        return rare


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check, and return the exit code."""
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__)
    parser.add_argument("--seconds", type=int, default=10, help="how long to read, once a second (default 10)")
    parser.add_argument("--out", type=Path, help="folder for the report and the case")
    parser.add_argument("--library", type=Path, help="library of the driver, or its folder")
    chosen = parser.parse_args(arguments)
    clock = SystemClock()
    catalog = load_catalog()
    plan = plan_of(catalog)
    tables = (PresentGpus(), KnownGpus(HOST))
    settings = NvmlSettings(library=chosen.library, processes=False)
    source = gpu_source(settings, plan, Host(HOST), clock, random.SystemRandom().random, tables)
    if not source.is_usable():
        _say("gpu-check: NOT RUN, this machine has no NVIDIA driver library")
        return 0
    witness = Witness(source.driver)
    source.driver = witness  # type: ignore[assignment] # it is one in all that readers ask
    reader = NvmlReader(source, catalog, Counts())
    try:
        rows, report = _observed(reader, source, catalog, clock, chosen.seconds)
    finally:
        reader.close()
    if not rows:
        _say("gpu-check: NOT RUN, the driver gave no GPU; its words are above")
        return 0
    _say(report)
    if chosen.out is not None:
        gpus = _gpus(source)
        case = case_of(gpus, witness.records.values(), _steady(rows, plan), _note(source))
        _write(chosen.out, report, gpus, case)
    return 0


def _observed(reader: NvmlReader, source: GpuSource, catalog: Catalog, clock: Clock, seconds: int) -> tuple[Rows, str]:
    """Return the rows of the last tick and a report of all."""
    rows: Rows = {}
    wall_ms: list[float] = []
    child_seconds = 0.0
    used = resource.getrusage(resource.RUSAGE_SELF)
    for tick in range(seconds + SETTLE_TICKS):
        if tick == SETTLE_TICKS:
            used, child_seconds = resource.getrusage(resource.RUSAGE_SELF), _cpu_seconds(source.driver.pid)
            wall_ms = []
        started = clock.monotonic_seconds()
        taken = reader.read(clock.now_ms())
        wall_ms.append(1000 * (clock.monotonic_seconds() - started))
        rows = _rows(taken, catalog) or rows
        clock.sleep(1.0 - (clock.monotonic_seconds() - started))
    now = resource.getrusage(resource.RUSAGE_SELF)
    own = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    child = _cpu_seconds(source.driver.pid) - child_seconds
    cost = (
        f"cost of a tick: {1000 * own / seconds:.2f} ms of a core in the agent, "
        f"{1000 * child / seconds:.2f} ms in the driver child; "
        f"{sorted(wall_ms)[len(wall_ms) // 2]:.1f} ms of waiting (median), {max(wall_ms):.1f} ms at most"
    )
    return rows, "\n".join([*_table(rows), cost, *_of_gpus(source)])


def _rows(tick: Tick, catalog: Catalog) -> Rows:
    """Return "ENTITY PART" -> metric -> physical value or quality, of the GPU rows of a tick."""
    rows: Rows = {}
    for content in tick.contents:
        scalars = content.scalars
        if scalars is None or content.schema.kind is not EntityKind.GPU:
            continue
        entities = [content.entities.entities[index] for index in scalars.entity_index.tolist()]
        keys = [f"{one.entity} {one.part}".strip() for one in entities]
        rows |= {key: {} for key in keys}
        for group in scalars.groups:
            for place in range(group.values.shape[0]):
                metric = catalog.get(content.schema.columns[group.first_column + place].metric)
                for row, key in enumerate(keys):
                    if group.present is None or group.present[place, row]:
                        rows[key][metric.name] = to_physical(metric, group.values[place, row].item())
        listed = (scalars.quality_row, scalars.quality_column, scalars.quality)
        for row, column, quality in zip(*(array.tolist() for array in listed), strict=True):
            rows[keys[row]].setdefault(content.schema.columns[column].metric, Quality(quality).name)
    return rows


def _table(rows: Rows) -> list[str]:
    metrics = sorted({name for cells in rows.values() for name in cells})
    width = max((len(name) for name in metrics), default=0)
    lines = [f"{'':{width}}  {place}: {row}" for place, row in enumerate(rows)]
    for name in metrics:
        marks = [_mark(cells.get(name)) for cells in rows.values()]
        lines.append(f"{name:{width}}  " + " ".join(f"{mark:>14}" for mark in marks))
    return lines


def _mark(value: object) -> str:
    if value is None:
        return MARKS[Quality.NONE]
    return MARKS[Quality[value]] if isinstance(value, str) else f"{value:.10g}"


def _of_gpus(source: GpuSource) -> list[str]:
    return [
        f"{gpu.uuid}: " + ", ".join(f"{name} {value}" for name, value in sorted(gpu.facts.items()) if name != "uuid")
        for gpu in _gpus(source)
    ]


def _gpus(source: GpuSource) -> list[Present]:
    return sorted(source.by_number.values(), key=lambda gpu: gpu.index)


def _steady(rows: Rows, plan: Plan) -> Rows:
    """Return the rows without what a replay cannot give again: rates that come of growing counters."""
    grown = {slot.metric.name for slot in plan.slots if slot.source.name.endswith(PER_SECOND)}
    return {row: {name: value for name, value in cells.items() if name not in grown} for row, cells in rows.items()}


def _note(source: GpuSource) -> str:
    kinds = sorted({gpu.facts.get("name", "?") for gpu in _gpus(source)})
    drivers = sorted({gpu.facts.get("driver", "?") for gpu in _gpus(source)})
    return f"Recorded by gpu-check from {', '.join(kinds)} with driver {', '.join(drivers)}."


def _write(folder: Path, report: str, gpus: Sequence[Present], case: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")
    for slot, gpu in enumerate(gpus):
        report = report.replace(gpu.uuid, anonymous(slot)).replace(gpu.facts.get("serial") or gpu.uuid, "-")
    (folder / "report.txt").write_text(report + "\n")
    _say(f"gpu-check: the case is in {folder}; copy case.json into tests/cases/nvml to have it replayed")


def _cpu_seconds(pid: int | None) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
