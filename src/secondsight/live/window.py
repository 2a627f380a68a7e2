"""Follow a store's inserts, and hold its newest minutes in memory for as long as they are all there.

What is held is what was stored, row by row: the store's owner tells every insert after it was done, and the window
keeps of each key the newest version, as the store does. Where it cannot be sure of that it answers nothing, and begins
again: after the owner's restart, after it was cut off, and when rows were changed by something else.
"""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from secondsight.catalog.index import Catalog
from secondsight.catalog.metric import Metric
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.errors import Retryable, SecondsightError
from secondsight.live.backfill import count_rows, present_columns, stored_rows
from secondsight.live.config import LiveConfig
from secondsight.live.shape import raw_shape, rollup_shape
from secondsight.live.table import NEVER_MS, LiveTable
from secondsight.model import EntityKind, Priority
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.schema import member_columns
from secondsight.store.tail import ALIVE, BEGIN, LOST, ROWS, Told

MIB = 1 << 20
MINUTES_LEAST = 5
"""Where the budget holds less than so many minutes of everything, only metrics of class P0 are kept."""
SETTLE_SECONDS = 0.25
SEAL_MS = 15_000
"""Blocks that ended so long ago hardly change, and are put in order for good."""
TIDY_SECONDS = 1.0
AGAIN_SECONDS, AGAIN_MAXIMUM_SECONDS = 1.0, 30.0
TEXTS_MAXIMUM = 2_000_000
"""Names of series and owners beyond which the window begins again, without those that are gone."""
FEW_MS = 60_000
"""So far back it begins where all of it may be too much for the budget."""
KEY_BYTES, VALUE_BYTES = 80, 5
"""About what a row takes, and a value of it."""
_MAPS = ("covered_other", "increase_other", "resets", "changes", "state_ms")

_log = logging.getLogger(__name__)


class Followed(Store, Protocol):
    """A store whose owner tells what is inserted."""

    def follow(self, wanted: Mapping[str, Sequence[str]]) -> Iterator[Told]:
        """Yield what is inserted from now on; see `store/tail.py`."""
        ...

    def position(self) -> tuple[str, int]:
        """Return the life of the owner's tail and how many messages it has published."""
        ...


class Stale(Retryable):
    """What is held does not hold any more, and has to be begun again."""


class LiveWindow:
    """The newest rows of every table of samples. One thread runs it; any number of threads read its tables.

    Args:
        store: Whose inserts are followed.
        catalog: Whose metrics are kept.
    """

    def __init__(
        self, store: Followed, catalog: Catalog, clock: Clock, config: LiveConfig, metrics: SelfMetrics
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._config = config
        self._metrics = metrics
        shapes = [made(kind) for kind in EntityKind for made in (raw_shape, rollup_shape)]
        self._tables = {shape.table: LiveTable(shape) for shape in shapes}
        self._moved = threading.Condition()
        self._at: tuple[str, int] = ("", 0)
        self._is_settled = False
        self._is_narrow = False
        self._tidied_seconds = 0.0

    def table(self, name: str) -> LiveTable | None:
        """Return a table, or None while it may lack rows that the store has shown."""
        return self._tables.get(name) if self._is_settled else None

    def holds(self, name: str, from_ms: int) -> bool:
        """Tell whether all rows of a table are there from some time on."""
        table = self.table(name)
        return table is not None and from_ms >= table.complete_from_ms

    def count(self, *, held: bool) -> None:
        """Count a question that it could answer, or could not."""
        self._metrics.count("live_reads_total", source="memory" if held else "store")

    def settle(self) -> None:
        """Wait a moment until all is held that the store has; call it after reading how far the store is.

        Where that takes too long nothing is answered from the window until the next call.
        """
        try:
            life, number = self._store.position()
        except SecondsightError:
            self._is_settled = False
            return
        with self._moved:
            self._is_settled = self._moved.wait_for(
                lambda: self._at[0] == life and self._at[1] >= number, SETTLE_SECONDS
            )

    def run(self, stop: threading.Event) -> None:
        """Follow the store until `stop` is set; begin again whenever that ends."""
        wait_seconds = AGAIN_SECONDS
        while not stop.is_set():
            began_seconds = self._clock.monotonic_seconds()
            try:
                self.follow(stop)
            except Stale as error:
                _log.info("the live window begins again: %s", error)
                self._metrics.count("live_restarts_total", reason="stale")
            except SecondsightError as error:
                _log.warning("the live window is empty until the store can be followed again: %s", error)
                self._metrics.count("live_restarts_total", reason="cut off" if "cut off" in str(error) else "away")
            except Exception:  # noqa: BLE001 - the boundary of the window: a fault in it must not end the api
                _log.exception("the live window failed and begins again; answers come from the store")
                self._metrics.count("live_restarts_total", reason="fault")
            self._forget()
            lasted = self._clock.monotonic_seconds() - began_seconds > AGAIN_MAXIMUM_SECONDS
            wait_seconds = AGAIN_SECONDS if lasted else min(2 * wait_seconds, AGAIN_MAXIMUM_SECONDS)
            stop.wait(wait_seconds)

    def follow(self, stop: threading.Event) -> None:
        """Follow the store until `stop` is set or following ends.

        Raises:
            Retryable: The store is away, or cut this reader off.
            Stale: Begin again.
        """
        kept = self._kept()
        wanted = {table: self._tables[table].shape.wanted(columns) for table, columns in kept.items()}
        for told in self._store.follow(wanted):
            self.take(told)
            if stop.is_set():
                return

    def take(self, told: Told) -> None:
        """Take in one message.

        Raises:
            Retryable: The store is away.
            Stale: Begin again.
        """
        if told.kind == BEGIN:
            self._begin()
        elif told.kind == ROWS:
            rows = pa.ipc.open_stream(told.body).read_all()
            self._metrics.count("live_rows_total", self._tables[told.table].add(rows))
        elif told.kind == LOST and told.until_ms > self._tables[told.table].kept_from_ms:
            raise Stale(f"rows of {told.table} were changed otherwise")
        if told.kind != ALIVE:
            with self._moved:
                self._at = told.store, told.number
                self._moved.notify_all()
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds - self._tidied_seconds >= TIDY_SECONDS:
            self._tidied_seconds = now_seconds
            self.tidy()

    def tidy(self) -> None:
        """Keep to the budget and to the range, and put what hardly changes in order.

        Raises:
            Stale: The budget is too small for everything, or too many names were seen.
        """
        now_ms = self._clock.now_ms()
        for table in self._tables.values():
            table.drop_before(now_ms - round(60_000 * self._config.minutes))
            table.seal_before(now_ms - SEAL_MS)
        evicted = self._evict()
        self._show(now_ms)
        if sum(table.series.texts + table.owners.texts for table in self._tables.values()) > TEXTS_MAXIMUM:
            raise Stale("it knows too many names")
        if evicted and not self._is_narrow and now_ms - self.held_from_ms < 60_000 * MINUTES_LEAST:
            self._is_narrow = True
            raise Stale(
                f"{self._config.mib} MiB hold less than {MINUTES_LEAST} minutes of all metrics, P0 alone is kept"
            )

    @property
    def held_from_ms(self) -> int:
        """Return from when on all rows of seconds are held."""
        return max(table.complete_from_ms for table in self._tables.values() if not table.shape.is_owned)

    def _begin(self) -> None:
        """Begin every table with what is stored already, as far back as the budget lets expect."""
        now_ms = self._clock.now_ms()
        present = present_columns(self._store, list(self._tables))
        kept = {name: columns for name, columns in self._kept().items() if name in present}
        from_ms = now_ms - round(60_000 * self._config.minutes)
        if sum(self._expected_bytes(name, from_ms) for name in kept) > self._config.mib * MIB // 2:
            from_ms = now_ms - FEW_MS
        for name, columns in kept.items():
            table = self._tables[name]
            table.begin(from_ms, [metric.name for metric in self._chosen(table.shape.kind)])
            stored = [column for column in columns if column in present[name]]
            for rows in stored_rows(self._store, table.shape, stored, from_ms, now_ms):
                table.add(rows)
        for name in kept:
            self._tables[name].trust()

    def _expected_bytes(self, name: str, from_ms: int) -> int:
        """Return about what the rows of a table take that are stored since a time."""
        shape = self._tables[name].shape
        width = KEY_BYTES + sum(VALUE_BYTES for _ in self._chosen(shape.kind))
        return count_rows(self._store, shape, from_ms) * width

    def _chosen(self, kind: EntityKind) -> list[Metric]:
        """Return the metrics that are kept of a kind."""
        return [each for each in self._catalog.scalars(kind) if not self._is_narrow or each.priority is Priority.P0]

    def _kept(self) -> dict[str, list[str]]:
        """Return the columns of metrics that are kept, by table."""
        kept: dict[str, list[str]] = {}
        for name, table in self._tables.items():
            metrics = self._chosen(table.shape.kind)
            members = [column.name for metric in metrics for column in member_columns(metric)]
            kept[name] = [*_MAPS, *members] if table.shape.is_owned else [metric.name for metric in metrics]
        return kept

    def _evict(self) -> bool:
        """Let the oldest blocks go while there are too many; tell whether any went."""
        held = {name: table.bytes for name, table in self._tables.items()}
        evicted = False
        while sum(held.values()) > self._config.mib * MIB:
            starts = {name: min(starts) for name, table in self._tables.items() if (starts := table.starts_ms)}
            oldest = min(starts, key=lambda name: starts[name])
            table = self._tables[oldest]
            table.drop_before(starts[oldest] + table.shape.block_ms)
            held[oldest] = table.bytes
            evicted = True
        return evicted

    def _show(self, now_ms: int) -> None:
        tables = self._tables.values()
        self._metrics.gauge("live_bytes", sum(table.bytes for table in tables))
        self._metrics.gauge("live_rows", sum(table.rows for table in tables))
        self._metrics.gauge("live_seconds", max(now_ms - self.held_from_ms, 0) / 1000)
        self._metrics.gauge("live_narrow", int(self._is_narrow))

    def _forget(self) -> None:
        self._is_settled = False
        with self._moved:
            self._at = ("", 0)
        for table in self._tables.values():
            table.begin(NEVER_MS, ())
        self._show(self._clock.now_ms())
