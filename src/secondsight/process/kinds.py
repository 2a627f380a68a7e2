"""Keep what the processor knows of one entity kind: layout, series, open windows, last samples."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.metric import Metric
from secondsight.model import EntityKind
from secondsight.process.carry import Carry, is_followed
from secondsight.process.cells import Window
from secondsight.process.columns import Layout, SchemaPlan, layout_of, plan_schema
from secondsight.process.decode import Subjects
from secondsight.process.owners import root_of
from secondsight.process.secondary import SecondaryBook
from secondsight.process.series import CLUSTER, ENTITY, HOST, PART, TENANT, Interner, Names, SeriesTable
from secondsight.wire.content import EntityTable, Schema

MAX_CACHED = 1 << 16
MIN_ROWS = 256
MAX_LOADED_ROWS = 1 << 15
FEWEST_SPANS, MOST_SPANS = 16, 512

CollectorKey = tuple[str, str, str, str]
"""Tenant, region, cluster, collector id."""


class KindState:
    """State of one entity kind.

    Attributes:
        windows: Start -> window.
        secondary: Which series say what many samples of another were together.
        followed: Counters and states, whose rollups need the sample before the window.
        epochs: Boot ids; code 0 is the unknown boot.
    """

    def __init__(self, kind: EntityKind, metrics: Iterable[Metric], collectors: Interner[CollectorKey]) -> None:
        self.kind = kind
        self.layout: Layout = layout_of(kind, metrics)
        self.series = SeriesTable(self._root_of)
        self.secondary = SecondaryBook(self.series)
        self.windows: dict[int, Window] = {}
        self.followed = [metric.name for group in self.layout.groups for metric in group.metrics if is_followed(metric)]
        self.epochs: Interner[str] = Interner("")
        self.carry = Carry(self.layout)
        self.collectors = collectors
        self._expected_rows = MIN_ROWS
        self._span_rows = 240.0
        self._plans: dict[bytes, SchemaPlan] = {}
        self._subjects: dict[tuple[int, bytes], Subjects] = {}

    def plan(self, schema_hash: bytes, schema: Schema) -> SchemaPlan:
        """Return how frames of a schema are read."""
        known = self._plans.get(schema_hash)
        if known is None:
            known = self._plans[schema_hash] = plan_schema(schema, self.layout)
        return known

    def subjects(self, collector: int, entities_hash: bytes, table: EntityTable) -> Subjects:
        """Return the series of an entity table as seen by a collector."""
        known = self._subjects.get((collector, entities_hash))
        if known is None:
            if len(self._subjects) > MAX_CACHED:
                self._subjects.clear()
            known = self._subjects[collector, entities_hash] = self._register(collector, table)
        return known

    def window(self, start_ms: int) -> Window:
        """Return the open window of a start, new or known."""
        known = self.windows.get(start_ms)
        if known is None:
            self._expect(*(window.size for window in self.windows.values()))
            capacity = self._expected_rows + self._expected_rows // 4  # memory that no row touches costs nothing
            known = self.windows[start_ms] = Window(self.layout, start_ms, capacity)
        return known

    def followed_in(self, starts_ms: Iterable[int]) -> list[str]:
        """Return the counters and states of which some open windows have values."""
        used = {
            group.metrics[column].name
            for window in (self.windows[start_ms] for start_ms in starts_ms if start_ms in self.windows)
            for group, columns in zip(self.layout.groups, window.used, strict=True)
            for column in np.flatnonzero(columns).tolist()
        }
        return [name for name in self.followed if name in used]

    @property
    def most_spans(self) -> int:
        """Return how many spans are loaded from the store at once, by the rows that they had lately."""
        return int(min(max(MAX_LOADED_ROWS / self._span_rows, FEWEST_SPANS), MOST_SPANS))

    def note_loaded(self, spans: int, rows: int) -> None:
        """Take note of how many rows some spans had in the store."""
        self._span_rows = max((self._span_rows + rows / spans) / 2, 1.0)

    def leave(self, window: Window) -> None:
        """Let a window go."""
        self._expect(window.size)
        self.windows.pop(window.start_ms, None)

    def compact(self, kept: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Forget the series that are not kept, of which no lane of a window has rows; return old -> new number."""
        members = np.flatnonzero(kept)
        renumbered = np.full(kept.size, -1, np.int32)
        renumbered[members] = np.arange(members.size, dtype=np.int32)
        names = [self.series.names_of(number) for number in members.tolist()]
        self.series = SeriesTable(self._root_of)
        for each in names:
            self.series.id_of(each)
        self.secondary = SecondaryBook(self.series)
        self.carry.compact(members)
        self._subjects.clear()
        for window in self.windows.values():
            window.series[: window.size] = renumbered[window.series[: window.size]]
            for lane in window.lanes.values():
                lane.index = None
        return renumbered

    def _expect(self, *sizes: int) -> None:
        self._expected_rows = max(MIN_ROWS, self._expected_rows * 7 // 8, *sizes)

    def _root_of(self, names: Names) -> str:
        subject = (names[TENANT], names[CLUSTER], names[ENTITY], names[PART])
        return root_of(self.kind, names[HOST], subject)

    def _register(self, collector: int, table: EntityTable) -> Subjects:
        tenant, region, cluster, name = self.collectors.items[collector]
        ids = [
            self.series.id_of((tenant, region, cluster, table.host_id, item.entity, item.part, name))
            for item in table.entities
        ]
        return Subjects(np.array(ids, np.int32), collector)
