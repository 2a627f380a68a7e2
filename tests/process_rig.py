"""A log that behaves, frames made by hand, and a processor over a real store, for tests of the processor."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.contracts import LogRecord, Polled
from secondsight.model import EntityKind, Quality
from secondsight.process.run import Processor, ProcessorConfig
from secondsight.wire.content import Column, Content, Entity, EntityTable, Event, Group, ScalarBlock
from secondsight.wire.envelope import Envelope, RecordType, encode_envelope
from secondsight.wire.frame import Stamp, encode
from secondsight.wire.schema import NUMPY_TYPES, make_schema

T0 = 1_700_000_010_000
"""Start of a window."""
CATALOG = load_catalog()
BOOT = "11111111-2222-3333-4444-555555555555"
OTHER_BOOT = "99999999-2222-3333-4444-555555555555"
_tenants = itertools.count()


class MemoryLog:
    """Topics in memory; commits outlive consumers, as on disk."""

    def __init__(self, clock, partitions=1):
        self.clock = clock
        self.partitions = [[] for _ in range(partitions)]
        self.committed = {}
        self.definitions = []

    def append(self, value, partition=0):
        records = self.partitions[partition]
        records.append(LogRecord(partition, len(records), self.clock.now_ms(), value))

    def consumer(self):
        return MemoryConsumer(self.partitions, self.committed)

    def definition_consumer(self):
        return MemoryConsumer([self.definitions], {})


class MemoryConsumer:
    def __init__(self, partitions: list[list[LogRecord]], committed: dict[int, int]):
        self._partitions = partitions
        self._committed = committed
        self._next = [committed.get(number, 0) for number in range(len(partitions))]

    def poll(self, max_bytes: int, wait_seconds: float) -> Polled:  # noqa: ARG002 - nobody waits in a test
        taken: list[LogRecord] = []
        size = 0
        for number, records in enumerate(self._partitions):
            while self._next[number] < len(records) and (not taken or size < max_bytes):
                record = records[self._next[number]]
                taken.append(record)
                size += len(record.value)
                self._next[number] += 1
        return Polled(tuple(taken), tuple(range(len(self._partitions))))

    def commit(self, offsets: Mapping[int, int]) -> None:
        for partition, offset in offsets.items():
            self._committed[partition] = max(offset, self._committed.get(partition, 0))

    def close(self) -> None:
        pass


def columns_of(names: Sequence[str]) -> list[Column]:
    metrics = [CATALOG.get(name) for name in names]
    return [Column(metric.name, metric.unit, metric.dtype, metric.resolution) for metric in metrics]


def content_of(rows, *, kind=EntityKind.GPU, host="h1", ticks, qualities=None, events=(), names=None):
    """Make content of rows {(entity, part, tick index): {metric: stored value or Quality}}."""
    names = names or sorted({name for cells in rows.values() for name in cells})
    schema = make_schema(kind, columns_of(names))
    subjects = sorted({(entity, part) for entity, part, _ in rows}) or [("none", "")]
    table = EntityTable(kind, host, "r1", tuple(Entity(*subject) for subject in subjects))
    if not rows:
        return Content(schema, table, None, (), tuple(events))
    keys = list(rows)
    groups, listed = [], []
    for dtype, members in itertools.groupby(enumerate(schema.columns), key=lambda item: item[1].dtype):
        members = list(members)
        values = np.zeros((len(members), len(keys)), NUMPY_TYPES[dtype])
        present = np.zeros(values.shape, np.bool_)
        for place, (number, column) in enumerate(members):
            for row, key in enumerate(keys):
                cell = rows[key].get(column.metric)
                if isinstance(cell, Quality):
                    listed.append((row, number, cell))
                elif isinstance(cell, tuple):
                    values[place, row], present[place, row] = cell[0], True
                    listed.append((row, number, cell[1]))
                elif cell is not None:
                    values[place, row], present[place, row] = cell, True
        groups.append(Group(members[0][0], values, None if present.all() else present))
    listed.sort(key=lambda item: (item[1], item[0]))
    block = ScalarBlock(
        np.array([subjects.index(key[:2]) for key in keys], np.uint32),
        np.array([key[2] for key in keys], np.uint16),
        np.zeros(len(keys), np.int32),
        tuple(groups),
        np.array([item[0] for item in listed], np.uint32),
        np.array([item[1] for item in listed], np.uint16),
        np.array([item[2] for item in listed], np.uint8),
    )
    return Content(schema, table, block, (), tuple(events))


def frame_bytes(
    rows,
    times,
    *,
    sequence=1,
    collector="c1",
    host="h1",
    kind=EntityKind.GPU,
    interval_ms=1000,
    live=False,
    boot=BOOT,
    spool_id=7,
    source="nvml",
    events=(),
    offset_ms=None,
    uncertainty_ms=0,
    inline=True,
    names=None,
):
    stamp = Stamp(
        collector,
        host,
        source,
        spool_id,
        sequence,
        sequence,
        np.array(times, np.int64),
        interval_ms,
        boot,
        offset_ms,
        uncertainty_ms,
        live,
    )
    content = content_of(rows, kind=kind, host=host, ticks=times, events=events, names=names)
    return encode(stamp, content, inline=inline)


def envelope_bytes(body, ingest_ms, *, tenant="t1", cluster="k1", kind=RecordType.FRAME):
    return encode_envelope(Envelope(kind, tenant, "eu", cluster, ingest_ms, body))


def new_tenant():
    """Return a tenant that no other test has."""
    return f"tenant-{next(_tenants)}"


def allocation(entity, start, end=None, version=1, job="j1", team="team-a"):
    texts = {"job_id": job, "workload_id": f"w-{job}", "owner_team": team, "model_id": "m1"}
    return Event("job_gpu_allocation", entity, "", start, 0, end, version, texts)


class Counting:
    """A store that counts statements."""

    def __init__(self, store):
        self._store = store
        self.calls = 0

    def insert(self, table, data):
        self.calls += 1
        self._store.insert(table, data)

    def query(self, sql, params=None, settings=None):
        self.calls += 1
        return self._store.query(sql, params, settings)


class Rig:
    """A processor over a store and a log that outlive it."""

    def __init__(self, store, now_ms=T0, config=None, partitions=1):
        self.store = store
        self.clock = ManualClock(now_ms)
        self.log = MemoryLog(self.clock, partitions)
        self.config = config or ProcessorConfig()
        self.processor = self.make()

    def make(self):
        return Processor(
            self.log.consumer(), self.log.definition_consumer, self.store, CATALOG, self.clock, self.config
        )

    def restart(self):
        self.processor = self.make()

    def send(self, body, ingest_ms=None, partition=0, **envelope):
        now_ms = self.clock.now_ms() if ingest_ms is None else ingest_ms
        self.log.append(envelope_bytes(body, now_ms, **envelope), partition)

    def settle(self):
        """Let everything become due and be written."""
        for _ in range(5):
            self.processor.drain()
            self.clock.move(31)
        self.processor.drain()

    def table(self, name, order="ALL"):
        return self.store.query(f"SELECT * FROM {name} FINAL ORDER BY {order}").to_pylist()
