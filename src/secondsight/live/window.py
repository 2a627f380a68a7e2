"""Follow a store's inserts, and hold its newest minutes in memory for as long as they are all there.

What is held is what was stored, row by row: the store's owner tells every insert after it was done, and the window
keeps of each key the newest version, as the store does. Where it cannot be sure of that it answers nothing, and begins
again: after the owner's restart, after it was cut off, and when rows were changed by something else.
"""

import logging
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from secondsight.catalog.index import Catalog
from secondsight.catalog.metric import Metric
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.errors import Retryable, SecondsightError
from secondsight.live.backfill import COUNTED_MS, counted_rows, present_columns, stored_rows
from secondsight.live.budget import Budget, trim
from secondsight.live.config import LiveConfig
from secondsight.live.shape import raw_shape, rollup_shape
from secondsight.live.table import NEVER_MS, LiveTable
from secondsight.model import EntityKind, Priority
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.schema import member_columns
from secondsight.store.tail import ALIVE, BEGIN, LOST, ROWS, Told

SETTLE_SECONDS = 1.0
TIDY_SECONDS = 1.0
TRIM_SECONDS, TRIM_BYTES = 5.0, 64 << 20
"""How often memory is given back that rows had on their way, where so much is held."""
AGAIN_SECONDS, AGAIN_MAXIMUM_SECONDS = 1.0, 30.0
TEXTS_MAXIMUM = 2_000_000
"""Names of series and owners beyond which the window begins again, without those that are gone."""
KEY_BYTES, VALUE_BYTES = 80, 5
"""About what a row takes, and a value of it."""
NOWHERE = ("", 0)
"""Position in no life of a store."""
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
        self._at = self._shown = NOWHERE
        self._budget = Budget(config.mib)
        self._is_narrowed = False
        self._tidied_seconds = self._trimmed_seconds = 0.0

    def table(self, name: str) -> LiveTable | None:
        """Return a table, or None while it may lack rows that the store has shown."""
        return self._tables.get(name) if self._is_settled() else None

    def holds(self, name: str, from_ms: int) -> bool:
        """Tell whether all rows of a table are there from some time on."""
        table = self.table(name)
        return table is not None and from_ms >= table.complete_from_ms

    def count(self, *, held: bool) -> None:
        """Count a question that it could answer, or could not."""
        self._metrics.count("live_reads_total", source="memory" if held else "store")

    def settle(self) -> None:
        """Wait a moment until all is held that the store has; call it after reading how far the store is.

        Where that takes too long nothing is answered from the window until it is so.
        """
        try:
            shown = self._store.position()
        except SecondsightError:
            shown = NOWHERE
        with self._moved:
            self._shown = max(shown, self._shown) if shown[0] == self._shown[0] else shown
            if self._at[0] == shown[0]:
                self._moved.wait_for(self._is_settled, SETTLE_SECONDS)

    def _is_settled(self) -> bool:
        """Tell whether all is held that the store has shown anybody here."""
        shown, at = self._shown, self._at
        return shown != NOWHERE and at[0] == shown[0] and at[1] >= shown[1]

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
        for told in self._messages():
            self.take(told)
            if stop.is_set():
                return

    def _messages(self) -> Iterator[Told]:
        """Yield what the store tells; once fewer columns are kept, from a stream of these alone."""
        stream = self._stream()
        while True:
            for told in stream:
                yield told
                if self._is_narrowed:
                    break
            else:
                return
            stream = yield from self._narrower(stream)

    def _narrower(self, stream: Iterator[Told]) -> Generator[Told, None, Iterator[Told]]:
        """Return a stream of what is kept now, having yielded of the one before it what came until the new one began.

        Raises:
            Stale: The one before it ended too early.
        """
        self._is_narrowed = False
        following = self._stream()
        begun = next(following)
        while begun.store != self._at[0] or self._at[1] < begun.number:
            told = next(stream, None)
            if told is None or begun.store != self._at[0]:
                raise Stale("the store began another life")
            yield told
        return following

    def _stream(self) -> Iterator[Told]:
        kept = self._kept()
        return self._store.follow({name: self._tables[name].shape.wanted(columns) for name, columns in kept.items()})

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
        if now_seconds - self._trimmed_seconds >= TRIM_SECONDS:
            self._trimmed_seconds = now_seconds
            if sum(table.bytes for table in self._tables.values()) >= TRIM_BYTES:
                trim()

    def tidy(self) -> None:
        """Keep to the budget and to the range, and put what hardly changes in order.

        Raises:
            Stale: There is room for more, or too many names were seen.
        """
        now_ms = self._clock.now_ms()
        for table in self._tables.values():
            table.drop_before(now_ms - round(60_000 * self._config.minutes))
            table.seal_quiet()
        evicted = self._evict()
        self._show(now_ms)
        if sum(table.series.texts + table.owners.texts for table in self._tables.values()) > TEXTS_MAXIMUM:
            raise Stale("it knows too many names")
        newest_ms = self._newest_ms(now_ms)
        reason = self._budget.judge(self._tables, newest_ms - self.held_from_ms, newest_ms, evicted=evicted)
        if reason and not self._budget.is_narrow:
            raise Stale(reason)
        if reason:
            _log.info("the live window becomes narrower: %s", reason)
            self._narrow()

    def _narrow(self) -> None:
        """Keep only what is chosen now of all that is held; it is not read again, nor are the rows on their way."""
        for name, table in self._tables.items():
            chosen = self._chosen(table.shape.kind)
            others = [each for each in self._catalog.scalars(table.shape.kind) if each not in chosen]
            table.narrow([metric.name for metric in chosen], self._columns(name, others))
        self._is_narrowed = True

    @property
    def held_from_ms(self) -> int:
        """Return from when on all rows of seconds are held."""
        return max(table.complete_from_ms for table in self._tables.values() if not table.shape.is_owned)

    def _newest_ms(self, now_ms: int) -> int:
        """Return the event time of the newest rows of seconds, those of clocks that run ahead left out."""
        raw = [table for table in self._tables.values() if not table.shape.is_owned]
        starts = [start + table.shape.block_ms for table in raw for start in table.starts_ms if start <= now_ms]
        return min(max(starts, default=now_ms), now_ms)

    def _begin(self) -> None:
        """Begin every table with what is stored already, as far back as a third of the budget holds.

        Seconds have a third, and windows another one.
        """
        now_ms = self._clock.now_ms()
        present = present_columns(self._store, list(self._tables))
        kept = {name: columns for name, columns in self._kept().items() if name in present}
        earliest_ms = now_ms - round(60_000 * self._config.minutes)
        counts = {name: counted_rows(self._store, self._tables[name].shape, earliest_ms) for name in kept}
        sizes = self._sizes(counts)
        newest_ms = max((start for start in sizes if start <= now_ms), default=now_ms)
        reason = self._budget.foresee(sizes, {name: self._row_bytes(name) for name in kept}, newest_ms)
        if reason:
            raise Stale(reason)
        for name, columns in kept.items():
            table = self._tables[name]
            alike = {each: counts[each] for each in kept if self._tables[each].shape.is_owned is table.shape.is_owned}
            from_ms = self._reach_ms(alike, earliest_ms, now_ms)
            table.begin(from_ms, [metric.name for metric in self._chosen(table.shape.kind)])
            stored = [column for column in columns if column in present[name]]
            for rows in stored_rows(self._store, table.shape, stored, from_ms, counts[name]):
                table.add(rows)
        for name in kept:
            self._tables[name].trust()

    def _reach_ms(self, counts: Mapping[str, Mapping[int, int]], earliest_ms: int, now_ms: int) -> int:
        """Return from when on stored rows fit into a third of the budget: by their own times, as the store may lag.

        Where those of the newest half minute do not, it is the end of that.
        """
        sizes = self._sizes(counts)
        left = self._budget.bytes // 3
        for start in sorted(sizes, reverse=True):
            left -= sizes[start]
            if left < 0 and start <= now_ms:
                return max(start + COUNTED_MS, earliest_ms)
        return earliest_ms

    def _sizes(self, counts: Mapping[str, Mapping[int, int]]) -> Counter[int]:
        """Return start of a range -> about how much memory its rows take."""
        sizes: Counter[int] = Counter()
        for name, rows in counts.items():
            sizes.update({start: count * self._row_bytes(name) for start, count in rows.items()})
        return sizes

    def _row_bytes(self, name: str) -> int:
        return KEY_BYTES + VALUE_BYTES * len(self._chosen(self._tables[name].shape.kind))

    def _chosen(self, kind: EntityKind) -> list[Metric]:
        """Return the metrics that are kept of a kind."""
        return [
            each for each in self._catalog.scalars(kind) if not self._budget.is_narrow or each.priority is Priority.P0
        ]

    def _kept(self) -> dict[str, list[str]]:
        """Return the columns of metrics that are kept, by table."""
        kept: dict[str, list[str]] = {}
        for name, table in self._tables.items():
            columns = self._columns(name, self._chosen(table.shape.kind))
            kept[name] = [*_MAPS, *columns] if table.shape.is_owned else columns
        return kept

    def _columns(self, name: str, metrics: Iterable[Metric]) -> list[str]:
        """Return the columns that a table has of some metrics."""
        if not self._tables[name].shape.is_owned:
            return [metric.name for metric in metrics]
        return [column.name for metric in metrics for column in member_columns(metric)]

    def _evict(self) -> bool:
        """Let the oldest blocks go while there are too many; tell whether any went.

        Of rows of seconds and windows those go that take more: a window takes little of the time that it is of.
        """
        held = {name: table.bytes for name, table in self._tables.items()}
        evicted = False
        while sum(held.values()) > self._budget.bytes:
            windows = sum(size for name, size in held.items() if self._tables[name].shape.is_owned)
            is_owned = 2 * windows > sum(held.values())
            alike = {name: table for name, table in self._tables.items() if table.shape.is_owned is is_owned}
            starts = {name: min(starts) for name, table in alike.items() if (starts := table.starts_ms)}
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
        self._metrics.gauge("live_narrow", int(self._budget.is_narrow))

    def _forget(self) -> None:
        with self._moved:
            self._at = NOWHERE
            self._moved.notify_all()
        for table in self._tables.values():
            table.begin(NEVER_MS, ())
        self._show(self._clock.now_ms())
