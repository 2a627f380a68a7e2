"""Price the way from a tick to a posted body: undivided, P0 apart from the rest, and one spool a class; then a backlog.

    python bench/spool.py          about a quarter of a minute

Three readers of 8 GPUs x 60 metrics tick at 1 Hz on a clock moved by hand; values are uniform noise. CPU is that of
this process in writing, spooling, building bodies and settling, without readers and network; syncs go to the temporary
folder's disk. The backlog is an hour of one such reader, drained flat out.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from secondsight.agent.client.connection import Answer
from secondsight.agent.client.offset import ClockOffset
from secondsight.agent.counts import Counts
from secondsight.agent.ship.aside import Aside
from secondsight.agent.ship.shipper import ShipConfig, ShipParts, Shipper
from secondsight.agent.spool.bounds import SpoolBounds
from secondsight.agent.spool.classes import Spools
from secondsight.agent.write.definitions import KeptDefinitions
from secondsight.agent.write.hold import HeldTicks
from secondsight.agent.write.journal import Journal
from secondsight.agent.write.split import Splitter
from secondsight.agent.write.writer import Keeping, Sender, TickWriter
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.contracts import Tick
from secondsight.model import EntityKind, Priority
from secondsight.wire.content import Column, Content, Entity, EntityTable, Group, ScalarBlock, Schema
from secondsight.wire.schema import NUMPY_TYPES, make_schema

GPUS, METRICS, READERS, SECONDS, BATCH_SECONDS, SEED = 8, 60, 3, 600, 5.0, 1
CATALOG = load_catalog()


class Whole(Splitter):
    """Everything is of the first class."""

    def _priority(self, _metric: str) -> Priority:
        return Priority.P0


class FirstApart(Splitter):
    """The first class, and the rest as one."""

    def _priority(self, metric: str) -> Priority:
        return min(super()._priority(metric), Priority.P1)


@dataclass
class Reader:
    """A source by name."""

    name: str
    interval_ms: int = 1000

    def read(self, _tick_ms: int) -> Tick:
        return Tick(())

    def close(self) -> None:
        pass


class Sink:
    """A gateway that takes everything at once."""

    def __init__(self) -> None:
        self.size_bytes = self.posts = 0

    def post(self, body: bytes) -> Answer:
        self.size_bytes += len(body)
        self.posts += 1
        return Answer(200, {}, b'{"accepted": 1}')

    def close(self) -> None:
        pass


class Way:
    """From readers to a body, on a folder of its own."""

    def __init__(self, splitter: Splitter, hold_seconds: float) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bench-spool-"))
        self.clock, self.counts, self.sink = ManualClock(), Counts(), Sink()
        self.spools = Spools(self.folder, SpoolBounds(1 << 30), self.clock, self.counts)
        definitions = KeptDefinitions(self.folder / "definitions", self.clock)
        writer = TickWriter(
            Sender("bench", "bench", "11111111-2222-3333-4444-555555555555"),
            Keeping(self.spools, definitions, splitter),
            ClockOffset(),
            self.clock,
            self.counts,
        )
        self.held = HeldTicks(writer, Journal(self.folder, self.counts), self.clock, hold_seconds)
        aside = Aside(self.folder / "refused", 1 << 20, self.clock)
        due = self.held.write_due if hold_seconds else None
        parts = (self.spools, self.sink, definitions.known, aside, ClockOffset(), self.counts, lambda: 0.5)
        self.shipper = Shipper(
            ShipParts(*parts, "bench", "bench", due), self.clock, ShipConfig(batch_seconds=BATCH_SECONDS)
        )

    def end(self) -> None:
        self.held.close()
        self.spools.close()
        shutil.rmtree(self.folder)


def contents() -> list[Content]:
    """Return ticks of one host, different and of one shape."""
    rng = np.random.default_rng(SEED)
    metrics = CATALOG.scalars(EntityKind.GPU)[:METRICS]
    schema = make_schema(EntityKind.GPU, [Column(m.name, m.unit, m.dtype, m.resolution) for m in metrics])
    table = EntityTable(EntityKind.GPU, "bench", "", tuple(Entity(f"GPU-{number:032x}") for number in range(GPUS)))
    return [_content(schema, table, rng) for _ in range(50)]


def _content(schema: Schema, table: EntityTable, rng: np.random.Generator) -> Content:
    groups, first = [], 0
    for dtype, columns in groupby(schema.columns, key=lambda column: column.dtype):
        size = len(list(columns))
        most = min(int(np.iinfo(NUMPY_TYPES[dtype]).max), 100_000)
        groups.append(Group(first, rng.integers(0, most, (size, GPUS)).astype(NUMPY_TYPES[dtype]), None))
        first += size
    none = np.zeros(0, np.uint32)
    zeros = np.zeros(GPUS, np.uint16)
    rows = np.arange(GPUS, dtype=np.uint32)
    delta = np.zeros(GPUS, np.int32)
    return Content(
        schema,
        table,
        ScalarBlock(rows, zeros, delta, tuple(groups), none, none.astype(np.uint16), none.astype(np.uint8)),
    )


def steady(splitter: Splitter, ticks: list[Content]) -> dict[str, float]:
    """Return CPU and bytes for each second of three readers."""
    way, readers = Way(splitter, BATCH_SECONDS), [Reader(f"reader-{number}") for number in range(READERS)]
    seconds = _cpu_seconds(lambda: _tick(way, readers, ticks, SECONDS))
    figures = {"cpu_ms_per_second": 1000 * seconds / SECONDS, "wire_bytes_per_second": way.sink.size_bytes / SECONDS}
    way.end()
    return figures


def _tick(way: Way, readers: list[Reader], ticks: list[Content], seconds: int) -> None:
    for second in range(seconds):
        way.clock.move(1.0)
        for number, reader in enumerate(readers):
            content = replace(ticks[(second + number) % len(ticks)], schema=ticks[0].schema)
            way.held.write(reader, way.clock.now_ms(), Tick((content,), collector=reader.name))
        if second % BATCH_SECONDS == BATCH_SECONDS - 1:
            while way.shipper.step() < 1.0:
                pass


def backlog(ticks: list[Content]) -> dict[str, float]:
    """Return how an hour of one reader drains."""
    way = Way(Splitter(CATALOG), BATCH_SECONDS)
    for second in range(3600):
        way.clock.move(1.0)
        way.held.write(Reader("reader"), way.clock.now_ms(), Tick((ticks[second % len(ticks)],)))
    way.held.flush()
    records, held_bytes = way.spools.records, way.spools.size_bytes
    seconds = _cpu_seconds(lambda: way.shipper.drain(1e9))
    figures = {
        "backlog_records": records,
        "backlog_mib": held_bytes / (1 << 20),
        "backlog_cpu_seconds": seconds,
        "backlog_posts": way.sink.posts,
        "backlog_times_real_time_at_a_tenth_of_a_core": 3600 / (10 * seconds),
    }
    way.end()
    return figures


def _cpu_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    """Print one JSON line."""
    ticks = contents()
    figures: dict[str, float] = {}
    for name, splitter in (("whole", Whole), ("first_apart", FirstApart), ("by_class", Splitter)):
        for key, value in steady(splitter(CATALOG), ticks).items():
            figures[f"{name}_{key}"] = round(value, 3)
    figures |= {key: round(value, 3) for key, value in backlog(ticks).items()}
    print(json.dumps({"name": "spool", "figures": figures}))


if __name__ == "__main__":
    main()
