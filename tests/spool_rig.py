"""Frames of every class and kind, spools on a file system that fails when told to, and a model of what they owe."""

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from log_faults import FaultyDisk
from secondsight.agent.counts import Counts
from secondsight.agent.spool.bounds import SpoolBounds
from secondsight.agent.spool.classes import Spools
from secondsight.agent.spool.tally import head_of
from secondsight.clock import ManualClock
from secondsight.log.disk import Disk
from secondsight.model import EntityKind, Priority
from secondsight.wire.content import Column, Content, Entity, EntityTable, Group, ScalarBlock
from secondsight.wire.frame import Stamp, encode
from secondsight.wire.schema import make_schema

BOUNDS = SpoolBounds(max_bytes=256 << 10)
KINDS = (EntityKind.GPU, EntityKind.NODE)
SCHEMAS = {
    EntityKind.GPU: make_schema(EntityKind.GPU, [Column("gpu_power_watts", "W", "u32", 0.001)]),
    EntityKind.NODE: make_schema(EntityKind.NODE, [Column("node_load1", "1", "u32", 0.01)]),
}


def frame(number: int, rows: int = 1, kind: EntityKind = EntityKind.NODE, collector: str = "host-1") -> bytes:
    """A frame of one tick at second `number` after the epoch of the manual clock, with so many rows of one value."""
    none = np.zeros(0, np.uint32)
    values = np.random.default_rng(number).integers(0, 1 << 32, (1, rows)).astype(np.uint32)
    block = ScalarBlock(
        np.arange(rows, dtype=np.uint32),
        np.zeros(rows, np.uint16),
        np.zeros(rows, np.int32),
        (Group(0, values, None),),
        none,
        none.astype(np.uint16),
        none.astype(np.uint8),
    )
    table = EntityTable(kind, "host-1", "", tuple(Entity(f"e{row}") for row in range(rows)))
    tick = np.array([1_700_000_000_000 + 1000 * number], np.int64)
    return encode(Stamp(collector, "host-1", "host", 0, 0, 0, tick, 1000), Content(SCHEMAS[kind], table, block))


class Rig:
    """Spools that can be opened again and again."""

    def __init__(self, folder: Path, bounds: SpoolBounds = BOUNDS, disk: Disk | None = None) -> None:
        self.folder = folder
        self.bounds = bounds
        self.clock = ManualClock()
        self.disk = disk or FaultyDisk()
        self.counts = Counts()
        self.spools = self.open()

    def open(self) -> Spools:
        return Spools(self.folder, self.bounds, self.clock, self.counts, collector_id="host-1", disk=self.disk)

    def reopen(self) -> None:
        self.spools.close()
        self.spools = self.open()

    def member(self, priority: Priority = Priority.P0):
        return next(one for one in self.spools.members if one.priority == priority and not one.is_earlier)

    def folder_of(self, priority: Priority = Priority.P0) -> Path:
        return self.folder / f"p{priority.value}"

    def append(self, *frames: bytes, priority: Priority = Priority.P0) -> None:
        self.spools.append({priority: frames})

    def owed(self, priority: Priority = Priority.P0) -> list[bytes]:
        return [record.payload for record in self.spools.read(self.member(priority), 10_000, 1 << 24)]

    def settle(self, through: int, priority: Priority = Priority.P0) -> None:
        self.spools.settle(self.member(priority), 0, through + 1)

    def losses(self) -> list:
        return list(self.spools.losses)

    def take_losses(self) -> list:
        """Return what is declared and forget it, as after a report."""
        found = []
        while entries := self.spools.to_report()[1]:
            found += [entry.loss for entry in entries]
            self.spools.reported([entry.number for entry in entries])
        return found


def totals(tallies) -> dict:
    """Return {(class, kind): (records, rows, values)} of tallies by class."""
    return {
        (priority, kind.value): (count.records, count.rows, count.values)
        for priority, tally in tallies.items()
        for kind, count in tally.items()
        if count.records
    }


def lost(losses) -> dict:
    """Return {(class, kind): (records, rows, values)} of losses."""
    found: defaultdict = defaultdict(Counter)
    for loss in losses:
        found[loss.priority, loss.kind].update(records=loss.records, rows=loss.rows, values=loss.values)
    return {key: (count["records"], count["rows"], count["values"]) for key, count in found.items()}


def counted(frames, priority: Priority) -> dict:
    """Return {(class, kind): (records, rows, values)} of frames."""
    found: defaultdict = defaultdict(Counter)
    for one in frames:
        head = head_of(one)
        found[priority, head.kind.value].update(records=1, rows=head.rows, values=head.values)
    return {key: (count["records"], count["rows"], count["values"]) for key, count in found.items()}


def added(*parts) -> dict:
    """Return the sum of such figures, without zeros."""
    keys = {key for part in parts for key in part}
    sums = {key: tuple(map(sum, zip(*(part.get(key, (0, 0, 0)) for part in parts), strict=True))) for key in keys}
    return {key: figures for key, figures in sums.items() if any(figures)}
