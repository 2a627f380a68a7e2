"""Read the ledger: per collector and minute what was told, what became of it, and whether that adds up.

A span that has no row of what is stored is still open: what was received of it is in flight.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from secondsight.access.scope import Scope
from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.process.balance import METRIC as INCIDENT
from secondsight.process.deadletter import DEAD_LETTER, QUARANTINE
from secondsight.process.ledger import RECEIVED, SHED, STORED, UNEXPLAINED
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Span
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement, select
from secondsight.query.windows import raw_bounds, time_bounds
from secondsight.store.coarse import FINEST, window_bounds
from secondsight.store.schema import raw_table

MINUTE_MS = 60_000
WAITING_MS = 120_000
AGE_STEP_SECONDS = 0.001
"""Resolution of `agent_spool_waiting_age_seconds`."""
SPAN_MAXIMUM_MS = 31 * 86_400_000
_KEY = ("tenant_id", "cluster_id", "host_id", "collector_id")
Key = tuple[str, str, str, str, int]
"""Tenant, cluster, host, collector, minute."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Which entries; empty filters admit all. `limit` and `offset` say which page."""

    span: Span
    clusters: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    collectors: tuple[str, ...] = ()
    limit: int = 100
    offset: int = 0
    unbalanced: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """Rows and values."""

    rows: int = 0
    values: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.rows + other.rows, self.values + other.values)

    def __sub__(self, other: "Count") -> "Count":
        return Count(self.rows - other.rows, self.values - other.values)


@dataclass(slots=True)
class SpoolCounts:
    """What one spool told in a minute: all of it, and by (outcome, reason) what was not stored."""

    produced: Count = Count()
    reasons: dict[tuple[str, str], Count] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """One minute of a collector.

    Attributes:
        produced: As frame headers count them, each record once.
        stored: Of windows that are written.
        merged: Told by more than one record, such as a row by each of the classes that have a cell of it.
        in_flight: Received, of windows that are still open.
        unexplained: Neither stored nor refused, or, negative, stored and never told; there is none in a sound store.
        incidents: How many differences between ledger and tables were reported of it.
        spools: Spool id -> what it told.
    """

    key: Key
    produced: Count
    stored: Count
    merged: Count
    in_flight: Count
    unexplained: Count
    incidents: int
    spools: dict[int, SpoolCounts]

    @property
    def is_balanced(self) -> bool:
        """Tell whether everything that was told is accounted for."""
        return self.unexplained == Count() and not self.incidents and self.merged.values >= 0 and self.merged.rows >= 0

    def of_reason(self, outcome: str) -> dict[str, Count]:
        """Return reason -> what was not stored for it, over all spools."""
        found: dict[str, Count] = {}
        for spool in self.spools.values():
            for (each, reason), count in spool.reasons.items():
                if each == outcome:
                    found[reason] = found.get(reason, Count()) + count
        return found


@dataclass(frozen=True, slots=True)
class Waiting:
    """What an agent says that its spools hold: in flight as well, of minutes that are not known yet.

    Attributes:
        told_ms: When it said so.
    """

    key: tuple[str, str, str, str]
    told_ms: int
    records: int
    bytes: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class Page:
    """Entries in order of time, newest first; `total` counts all that were asked for."""

    entries: tuple[Entry, ...]
    total: int
    waiting: tuple[Waiting, ...] = ()


class LedgerReader:
    """Reads the ledger of a scope. Safe from several threads."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def read(self, asked: Asked, scope: Scope, now_ms: int) -> Page:
        """Return a page of entries, and what waits in spools now of the hosts on it.

        Raises:
            Rejected(range_too_wide, no_ledger): More than a month is asked for, or the scope sees only what is owned.
            Retryable: The store is away or busy.
        """
        if asked.span.to_ms - asked.span.from_ms > SPAN_MAXIMUM_MS:
            raise Rejected("range_too_wide", "the ledger is read for a month at most", "ask for a shorter range")
        if scope.whole is None:
            message = "custody is kept by collector, and your grant shows only what is allocated to someone"
            raise Rejected("no_ledger", message, "ask an administrator for a grant of whole clusters")
        rows = self._inventory.read(compile_minutes(asked, scope)).to_pylist()
        total = int(rows[0]["total"]) if rows else 0
        if not rows:
            return Page((), 0)
        details = self._inventory.read(compile_reasons(asked, scope, rows)).to_pylist()
        spools = _spools(details)
        told = self._inventory.read(compile_waiting(rows, scope, now_ms)).to_pylist()
        return Page(tuple(_entry(row, spools[_key(row)]) for row in rows), total, tuple(map(_waiting, told)))


def compile_minutes(asked: Asked, scope: Scope) -> Statement:
    """Return the statement for one row per collector and minute, newest first."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    sums = [
        f"sumIf(if(reason = 'more', -1, 1) * toInt64({what}), {condition}) AS {name}_{what.strip('`')}"
        for name, condition in _WINDOW_SUMS.items()
        for what in ("rows", "`values`")
    ]
    start = "toInt64(toUnixTimestamp(window_start)) * 1000 AS start_ms"
    columns = [*_KEY, "kind", start, *sums, f"countIf(outcome = '{STORED}') AS closed"]
    tail = ["GROUP BY", f"{', '.join(_KEY)}, kind, window_start"]
    windows = tables.table("ledger", columns, _where(asked, parameters), final=True, tail=[" ".join(tail)])
    minute = f"intDiv(start_ms, {MINUTE_MS}) * {MINUTE_MS} AS minute_ms"
    figures = [
        f"toInt64({expression.format(what)}) AS {name}_{what}"
        for name, expression in _MINUTE_SUMS.items()
        for what in ("rows", "values")
    ]
    minutes = select([*_KEY, minute, *figures], windows, tail=[f"GROUP BY {', '.join(_KEY)}, minute_ms"])
    near = Span(asked.span.from_ms - MINUTE_MS, asked.span.to_ms + MINUTE_MS)
    incidents = tables.table(
        "events",
        [
            "tenant_id",
            "cluster_id",
            "entity",
            f"intDiv(toUnixTimestamp64Milli(event_time), {MINUTE_MS}) * {MINUTE_MS} AS minute_ms",
            "toInt64(count()) AS incidents",
        ],
        [
            f"metric = '{INCIDENT}'",
            f"kind = '{EntityKind.PLATFORM.value}'",
            *time_bounds("event_time", near, parameters),
        ],
        final=True,
        tail=["GROUP BY tenant_id, cluster_id, entity, minute_ms"],
    )
    joined = (
        f"{minutes} AS minutes LEFT JOIN {incidents} AS told ON minutes.tenant_id = told.tenant_id "
        "AND minutes.cluster_id = told.cluster_id AND minutes.collector_id = told.entity "
        "AND minutes.minute_ms = told.minute_ms"
    )
    wrong = "unexplained_values != 0 OR unexplained_rows != 0 OR incidents != 0 OR merged_values < 0 OR merged_rows < 0"
    page = [
        "ORDER BY minute_ms DESC, tenant_id, cluster_id, host_id, collector_id",
        f"LIMIT {parameters.bind(asked.limit, 'UInt32')} OFFSET {parameters.bind(asked.offset, 'UInt32')}",
    ]
    names = [f"{name}_{what}" for name in _MINUTE_SUMS for what in ("rows", "values")]
    shown = [*(f"minutes.{name} AS {name}" for name in (*_KEY, "minute_ms", *names)), "incidents"]
    everything = select(shown, joined)
    sql = select(["*", "count() OVER () AS total"], everything, where=[wrong] if asked.unbalanced else [], tail=page)
    return Statement(sql[1:-1], parameters.values())


def compile_reasons(asked: Asked, scope: Scope, rows: Sequence[dict[str, Any]]) -> Statement:
    """Return the statement for what each spool told, by outcome and reason, of the collectors and minutes of a page."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    minutes = [row["minute_ms"] for row in rows]
    first, last = min(minutes), max(minutes) + MINUTE_MS
    narrow = Asked(Span(max(first, asked.span.from_ms), min(last, asked.span.to_ms)), asked.clusters, asked.hosts)
    collectors = parameters.bind_texts({row["collector_id"] for row in rows})
    columns = [
        *_KEY,
        f"intDiv(toInt64(toUnixTimestamp(window_start)) * 1000, {MINUTE_MS}) * {MINUTE_MS} AS minute_ms",
        "spool_id",
        "outcome",
        "reason",
        "item != '' AS is_item",
        "toInt64(sum(rows)) AS counted_rows",
        "toInt64(sum(`values`)) AS counted_values",
    ]
    where = [
        *_where(narrow, parameters),
        f"collector_id IN {collectors}",
        f"outcome IN ('{RECEIVED}', '{SHED}', '{QUARANTINE}', '{DEAD_LETTER}')",
    ]
    group = f"GROUP BY {', '.join(_KEY)}, minute_ms, spool_id, outcome, reason, is_item"
    return Statement(tables.table("ledger", columns, where, final=True, tail=[group])[1:-1], parameters.values())


def compile_waiting(rows: Sequence[dict[str, Any]], scope: Scope, now_ms: int) -> Statement:
    """Return the statement for what the agents of the hosts of a page last said of their spools."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    newest = [
        f"toFloat64(argMax({name}, event_time)) AS {short}"
        for name, short in (
            ("agent_spool_waiting_records", "records"),
            ("agent_spool_waiting_bytes", "bytes"),
            ("agent_spool_waiting_age_seconds", "oldest"),
        )
    ]
    place = ["tenant_id", "cluster_id", "host_id", "entity"]
    where = [
        *raw_bounds(Span(now_ms - WAITING_MS, now_ms + MINUTE_MS), parameters),
        f"cluster_id IN {parameters.bind_texts({row['cluster_id'] for row in rows})}",
        f"host_id IN {parameters.bind_texts({row['host_id'] for row in rows})}",
        "isNotNull(agent_spool_waiting_records)",
    ]
    columns = [*place, "part", "toUnixTimestamp64Milli(max(event_time)) AS told_ms", *newest]
    group = [f"GROUP BY {', '.join(place)}, part"]
    parts = tables.table(raw_table(EntityKind.PLATFORM), columns, where, tail=group)
    figures = [
        "max(told_ms) AS newest_ms",
        "sum(records) AS waiting_records",
        "sum(bytes) AS waiting_bytes",
        "max(oldest) AS oldest_steps",
    ]
    tail = [f"GROUP BY {', '.join(place)} ORDER BY waiting_records DESC, {', '.join(place)}"]
    return Statement(select([*place, *figures], parts, tail=tail)[1:-1], parameters.values())


_REFUSED = f"outcome IN ('{QUARANTINE}', '{DEAD_LETTER}')"
_WINDOW_SUMS = {
    "told": f"outcome = '{RECEIVED}'",
    "refused": f"{_REFUSED} AND item = ''",
    "items": f"(outcome = '{SHED}' OR {_REFUSED}) AND item != ''",
    "kept": f"outcome = '{STORED}'",
    "odd": f"outcome = '{UNEXPLAINED}'",
}
_MINUTE_SUMS = {
    "produced": "sum(toInt64(told_{0}) + toInt64(items_{0}))",
    "stored": "sum(kept_{0})",
    "merged": "sum(if(closed > 0, toInt64(told_{0}) - toInt64(refused_{0}) - toInt64(kept_{0}), 0))",
    "in_flight": "sum(if(closed > 0, 0, toInt64(told_{0}) - toInt64(refused_{0})))",
    "unexplained": "sum(odd_{0})",
}


def _where(asked: Asked, parameters: Parameters) -> list[str]:
    start = f"toDateTime({parameters.bind(max(asked.span.from_ms, 0) // 1000, 'UInt32')}, 'UTC')"
    end = f"toDateTime({parameters.bind(-(-max(asked.span.to_ms, 0) // 1000), 'UInt32')}, 'UTC')"
    named = (("cluster_id", asked.clusters), ("host_id", asked.hosts), ("collector_id", asked.collectors))
    return [*window_bounds(FINEST, start, end), *parameters.among(named)]


def _spools(details: Sequence[dict[str, Any]]) -> dict[Key, dict[int, SpoolCounts]]:
    found: defaultdict[Key, dict[int, SpoolCounts]] = defaultdict(dict)
    for row in details:
        spool = found[_key(row)].setdefault(int(row["spool_id"]), SpoolCounts())
        count = Count(row["counted_rows"], row["counted_values"])
        if row["outcome"] == RECEIVED or row["is_item"]:
            spool.produced += count
        if row["outcome"] != RECEIVED:
            reason = (row["outcome"], row["reason"])
            spool.reasons[reason] = spool.reasons.get(reason, Count()) + count
    return found


def _key(row: dict[str, Any]) -> Key:
    return (row["tenant_id"], row["cluster_id"], row["host_id"], row["collector_id"], int(row["minute_ms"]))


def _waiting(row: dict[str, Any]) -> Waiting:
    place = (row["tenant_id"], row["cluster_id"], row["host_id"], row["entity"])
    oldest_seconds = row["oldest_steps"] * AGE_STEP_SECONDS
    return Waiting(place, row["newest_ms"], int(row["waiting_records"]), int(row["waiting_bytes"]), oldest_seconds)


def _entry(row: dict[str, Any], spools: dict[int, SpoolCounts]) -> Entry:
    def counted(name: str) -> Count:
        return Count(row[f"{name}_rows"], row[f"{name}_values"])

    counts = {name: counted(name) for name in _MINUTE_SUMS}
    return Entry(_key(row), **counts, incidents=row["incidents"], spools=dict(sorted(spools.items())))
