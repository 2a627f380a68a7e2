"""Compare the ledger with what the tables hold, and say where they differ.

One statement per entity kind does the comparing; what it finds is looked at again a minute later, for rows of windows
that were just opened again are on their way. What differs twice in the same way is an incident: an event, a counter and
a line in the log.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.errors import SecondsightError
from secondsight.model import EntityKind
from secondsight.process.cells import WINDOW_MS
from secondsight.process.deadletter import drop_letters
from secondsight.process.decode import FUTURE_MS
from secondsight.process.land import Row, hash64, row_table
from secondsight.process.ledger import BEGUN, STORED, UNEXPLAINED, LedgerRow
from secondsight.process.ledgerrows import ledger_table
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.schema import raw_table
from secondsight.store.spec import TableSpec

logger = logging.getLogger(__name__)

METRIC = "ledger_difference"
CHECK_SECONDS = 60.0
EXPIRE_SECONDS = 3600.0
MS_PER_DAY = 86_400_000
SETTLED_MS = 120_000
"""How long after its end a window is compared first."""
REACH_MS = 600_000
"""How far back a look reaches; where that took long, the next one goes on where the last one ended."""
LONG_SECONDS = 0.3
AGAIN_MAXIMUM = 60
"""Windows that are looked at beside the newest ones: in which something differed, or that late rows changed."""
LIMITS = {"max_threads": 1, "do_not_merge_across_partitions_select_final": 1, "max_execution_time": 120}
BUCKET_MS = 600_000


class Place(NamedTuple):
    """Whose window it is."""

    tenant_id: str
    cluster_id: str
    host_id: str
    collector_id: str
    kind: str
    window_ms: int


@dataclass(frozen=True, slots=True)
class Watched:
    """What a processor can say of windows.

    Attributes:
        collectors: Those it reads: tenant, cluster, id.
        moving: Windows that are not written off, or are late: tenant, cluster, collector, kind, start.
        changed_ms: Windows that were written late or again, since this was asked for before.
    """

    collectors: frozenset[tuple[str, str, str]]
    moving: frozenset[tuple[str, str, str, str, int]]
    changed_ms: frozenset[int] = frozenset()

    def settles(self, place: Place) -> bool:
        """Tell whether a window is written off here."""
        collector = (place.tenant_id, place.cluster_id, place.collector_id)
        return collector in self.collectors and (*collector, place.kind, place.window_ms) not in self.moving


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows and values that the ledger has (or could not explain), and those that the tables hold."""

    place: Place
    ledger: tuple[int, int]
    tables: tuple[int, int]
    reason: str = "tables"


class Checker:
    """Looks once a minute, in a thread of its own. `check` may be called by tests instead.

    Args:
        watched: Gives which windows are settled; None while the processor catches up.
        letter_days: Age beyond which dead letters are deleted, whole months at a time.
    """

    def __init__(
        self,
        store: Store,
        specs: Mapping[str, TableSpec],
        clock: Clock,
        metrics: SelfMetrics,
        watched: Callable[[], Watched | None],
        letter_days: float = 90.0,
    ) -> None:
        self._store = store
        self._spec, self._ledger_spec = specs["events"], specs["ledger"]
        self._clock = clock
        self._metrics = metrics
        self._watched = watched
        self._letter_days = letter_days
        self._expired_at: float | None = None
        self._suspects: set[Difference] = set()
        self._reported: set[Difference] = set()
        self._changed_ms: set[int] = set()
        self._upto_ms: int | None = None
        self._begun_ms: int | None = None

    def run(self, stop: threading.Event) -> None:
        """Check until `stop` is set; a store that is away is waited out."""
        while not stop.wait(CHECK_SECONDS):
            try:
                self.check(stop)
                self._expire()
            except SecondsightError as error:
                logger.warning("the ledger was not compared with the tables, it is tried again: %s", error)

    def check(self, stop: threading.Event | None = None) -> list[Difference]:
        """Compare the newest settled windows, and report what differs for the second time; return what was reported.

        Nothing is reported once `stop` is set: a processor that ends does not wait for all windows.

        Raises:
            SecondsightError: The store is busy or away.
        """
        if self._begun_ms is None:
            self._begun_ms = self._beginning()
        watched = self._watched()
        if watched is None:
            return []
        self._changed_ms |= watched.changed_ms
        to_ms = (self._clock.now_ms() - SETTLED_MS) // WINDOW_MS * WINDOW_MS
        from_ms = max(self._upto_ms or to_ms - REACH_MS, self._begun_ms)
        began_seconds = self._clock.monotonic_seconds()
        beside = sorted({one.place.window_ms for one in self._suspects} | self._changed_ms)[:AGAIN_MAXIMUM]
        spans = [(start, start + WINDOW_MS) for start in beside if self._begun_ms <= start < from_ms]
        spans += [(from_ms, to_ms)] if from_ms < to_ms else []
        found: set[Difference] = set()
        for span in spans:
            if stop is not None and stop.is_set():
                return []
            found |= {one for one in differences(self._store, *span) if watched.settles(one.place)}
        self._changed_ms -= set(beside)
        is_long = self._clock.monotonic_seconds() - began_seconds > LONG_SECONDS
        self._upto_ms = max(to_ms, self._upto_ms or 0) if is_long else None
        again = sorted((found & self._suspects) - self._reported, key=lambda one: one.place)
        self._suspects = found
        if again:
            self._report(again)
            self._reported |= set(again)
        self._metrics.count("processor_ledger_checks_total")
        self._metrics.gauge("processor_ledger_differences", len(found & self._reported))
        return again

    def _expire(self) -> None:
        now = self._clock.monotonic_seconds()
        if self._expired_at is None or now - self._expired_at >= EXPIRE_SECONDS:
            self._expired_at = now
            months = drop_letters(self._store, self._clock.now_ms() - round(self._letter_days * MS_PER_DAY))
            if months:
                logger.info("dead letters of %s are deleted, as they are over %g days old", months, self._letter_days)

    def _beginning(self) -> int:
        """Return the first window that no processor without a ledger can have written to; note it where none was."""
        asked = "SELECT min(toInt64(toUnixTimestamp(window_start)) * 1000) AS begun, count() AS notes FROM ledger"
        (row,) = self._store.query(f"{asked} WHERE outcome = {{begun:String}}", {"begun": BEGUN}).to_pylist()
        if row["notes"]:
            return int(row["begun"])
        begun_ms = (self._clock.now_ms() + FUTURE_MS) // WINDOW_MS * WINDOW_MS + WINDOW_MS
        note = LedgerRow(("", "", "", ""), 0, "", begun_ms, BEGUN, "", "", 0, 0, 0, "", 0)
        self._store.insert("ledger", ledger_table(self._ledger_spec, [note]))
        return begun_ms

    def _report(self, found: list[Difference]) -> None:
        now_ms = self._clock.now_ms()
        self._store.insert("events", row_table(self._spec, [event_of(one, now_ms) for one in found]))
        for one in found:
            self._metrics.count("processor_ledger_incidents_total", kind=one.place.kind, reason=one.reason)
            logger.error("%s", words_of(one))


def differences(store: Store, from_ms: int, to_ms: int) -> list[Difference]:
    """Return where ledger and tables differ in windows that start in a range.

    Raises:
        SecondsightError: The store is busy or away.
    """
    found = [one for kind in EntityKind for one in _of_tables(store, kind, from_ms, to_ms)]
    return [*found, *_unexplained(store, from_ms, to_ms)]


def words_of(one: Difference) -> str:
    """Return what an operator is told about a difference."""
    place = one.place
    if one.reason != "tables":
        return (
            f"ledger: {one.ledger[1]} values of collector {place.collector_id} on host {place.host_id}, kind "
            f"{place.kind}, window {place.window_ms}, are {'not ' if one.reason == 'less' else ''}stored and nothing "
            "says why; `secondsight ledger --unbalanced` shows it"
        )
    return (
        f"ledger: collector {place.collector_id} on host {place.host_id}, kind {place.kind}, window {place.window_ms}: "
        f"the ledger has {one.ledger[0]} rows of {one.ledger[1]} values, the table {one.tables[0]} of {one.tables[1]}; "
        "`secondsight ledger --unbalanced` shows it"
    )


def event_of(one: Difference, now_ms: int) -> Row:
    """Return the row of `events` that puts a difference on record; told again it is the same row."""
    place = one.place
    attributes = {
        "collector": place.collector_id,
        "kind": place.kind,
        "reason": one.reason,
        "ledger_rows": str(one.ledger[0]),
        "ledger_values": str(one.ledger[1]),
        "table_rows": str(one.tables[0]),
        "table_values": str(one.tables[1]),
        "message": words_of(one),
    }
    return {
        "tenant_id": place.tenant_id,
        "region": "",
        "cluster_id": place.cluster_id,
        "host_id": place.host_id,
        "entity": place.collector_id,
        "part": "",
        "kind": EntityKind.PLATFORM.value,
        "metric": METRIC,
        "event_time": place.window_ms,
        "end_time": place.window_ms + WINDOW_MS,
        "code": 1 if one.reason == "tables" else 2,
        "severity": "error",
        "text_hash": hash64(place.kind, one.ledger, one.tables, one.reason),
        "event_version": 1,
        "attributes": attributes,
        "ingest_time": now_ms,
        "collector_id": "processor",
        "source": "processor",
    }


def _of_tables(store: Store, kind: EntityKind, from_ms: int, to_ms: int) -> Iterable[Difference]:
    window = f"intDiv(toUnixTimestamp64Milli(event_time), {WINDOW_MS}) * {WINDOW_MS}"
    key = "tenant_id, cluster_id, collector_id, start"
    stored = (
        f"SELECT tenant_id, cluster_id, collector_id, {window} AS start, any(host_id) AS stored_host, "  # noqa: S608 - names of the code
        f"count() AS stored_rows, sum(toUInt64(bitShiftRight(version, 112))) AS stored_values "
        f"FROM {raw_table(kind)} FINAL WHERE event_time >= fromUnixTimestamp64Milli({{from:Int64}}, 'UTC') "
        "AND event_time < fromUnixTimestamp64Milli({to:Int64}, 'UTC') "
        "AND toStartOfTenMinutes(event_time) >= fromUnixTimestamp64Milli({bucket:Int64}, 'UTC') GROUP BY ALL"
    )
    told = (
        "SELECT tenant_id, cluster_id, collector_id, toInt64(toUnixTimestamp(window_start)) * 1000 AS start, "
        "any(host_id) AS told_host, sum(rows) AS told_rows, sum(`values`) AS told_values FROM ledger FINAL "
        "WHERE outcome = {stored:String} AND kind = {kind:String} "
        "AND window_start >= toDateTime({first:UInt32}, 'UTC') AND window_start < toDateTime({last:UInt32}, 'UTC') "
        "GROUP BY ALL"
    )
    joined = (
        f"SELECT *, if(stored_host = '', told_host, stored_host) AS host FROM ({told}) AS told "  # noqa: S608 - likewise
        f"FULL JOIN ({stored}) AS held USING ({key}) WHERE told_rows != stored_rows OR told_values != stored_values"
    )
    params = {"kind": kind.value, "stored": STORED, "bucket": from_ms - from_ms % BUCKET_MS}
    rows = _rows(store, joined, from_ms, to_ms, params)
    for row in rows:
        place = Place(row["tenant_id"], row["cluster_id"], row["host"], row["collector_id"], kind.value, row["start"])
        told_counts, held = (row["told_rows"], row["told_values"]), (row["stored_rows"], row["stored_values"])
        yield Difference(place, told_counts, held)


def _unexplained(store: Store, from_ms: int, to_ms: int) -> Iterable[Difference]:
    rows = _rows(
        store,
        "SELECT tenant_id, cluster_id, collector_id, host_id, kind, reason, rows, `values`, "
        "toInt64(toUnixTimestamp(window_start)) * 1000 AS start FROM ledger FINAL WHERE outcome = {outcome:String} "
        "AND window_start >= toDateTime({first:UInt32}, 'UTC') AND window_start < toDateTime({last:UInt32}, 'UTC')",
        from_ms,
        to_ms,
        {"outcome": UNEXPLAINED},
    )
    for row in rows:
        place = Place(*(row[name] for name in ("tenant_id", "cluster_id", "host_id", "collector_id", "kind", "start")))
        yield Difference(place, (row["rows"], row["values"]), (0, 0), row["reason"])


def _rows(store: Store, sql: str, from_ms: int, to_ms: int, params: dict[str, Any]) -> list[dict[str, Any]]:
    bounds = {"from": from_ms, "to": to_ms, "first": max(from_ms, 0) // 1000, "last": max(to_ms, 0) // 1000}
    found: list[dict[str, Any]] = store.query(sql, bounds | params, LIMITS).to_pylist()
    return found
