"""Read dead letters: what was refused, why and where, and whether it was sent again.

Letters and the marks of those that were sent again are rows of one table; a mark has its letter's id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secondsight.access.scope import Scope
from secondsight.errors import Rejected
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Span
from secondsight.query.request import RANGE_MAXIMUM_MS
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement, select
from secondsight.query.windows import time_bounds
from secondsight.wire.letters import REPLAYED

TABLE = "dead_letters"
_COLUMNS = (
    "id",
    "tenant_id",
    "cluster_id",
    "stage",
    "code",
    "message",
    "host_id",
    "collector_id",
    "kind",
    "metric",
    "rows",
    "`values`",
    "log_partition",
    "log_offset",
    "toUnixTimestamp64Milli(first_time) AS first_ms",
    "toUnixTimestamp64Milli(last_time) AS last_ms",
    "toUnixTimestamp64Milli(ingest_time) AS taken_ms",
    "length(payload) AS payload_characters",
)
_KEY = "tenant_id, cluster_id, id"


@dataclass(frozen=True, slots=True)
class Asked:
    """Which letters, by when they were taken in; empty filters admit all. `limit` and `offset` say which page.

    Attributes:
        replayed: Only those that were sent again, or, False, only those that were not; None for both.
        payload: With the bytes.
    """

    span: Span
    clusters: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    collectors: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    replayed: bool | None = None
    payload: bool = False
    limit: int = 100
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """Letters, newest first, as the statement gives them; `total` counts all that were asked for."""

    rows: Sequence[Mapping[str, Any]]
    total: int


class DeadLetterReader:
    """Reads the dead letters of a scope. Safe from several threads."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def read(self, asked: Asked, scope: Scope) -> Page:
        """Return a page of letters.

        Raises:
            Rejected(range_too_wide, no_dead_letters): Over a year, or the scope sees only what is owned.
            Retryable: The store is away or busy.
        """
        _check(asked, scope)
        rows = self._inventory.read(compile_page(asked, scope)).to_pylist()
        return Page(rows, int(rows[0]["total"]) if rows else 0)

    def count(self, asked: Asked, scope: Scope) -> Sequence[Mapping[str, Any]]:
        """Return how many letters there are of each stage and code, most first.

        Raises:
            Rejected, Retryable: As `read`.
        """
        _check(asked, scope)
        found: list[dict[str, Any]] = self._inventory.read(compile_counts(asked, scope)).to_pylist()
        return found


def compile_page(asked: Asked, scope: Scope) -> Statement:
    """Return the statement for one page."""
    parameters = Parameters()
    letters = _letters(asked, scope, parameters)
    page = [
        "ORDER BY taken_ms DESC, tenant_id, cluster_id, id",
        f"LIMIT {parameters.bind(asked.limit, 'UInt32')} OFFSET {parameters.bind(asked.offset, 'UInt32')}",
    ]
    sql = select(["*", "count() OVER () AS total"], letters, tail=page)
    return Statement(sql[1:-1], parameters.values())


def compile_counts(asked: Asked, scope: Scope) -> Statement:
    """Return the statement for the number of letters by stage and code."""
    parameters = Parameters()
    figures = [
        "stage",
        "code",
        "count() AS letters",
        "toUInt64(sum(rows)) AS all_rows",
        "toUInt64(sum(`values`)) AS all_values",
        "countIf(replayed_ms > 0) AS replayed",
        "min(taken_ms) AS oldest_ms",
        "max(taken_ms) AS newest_ms",
    ]
    tail = ["GROUP BY stage, code ORDER BY letters DESC, stage, code"]
    return Statement(select(figures, _letters(asked, scope, parameters), tail=tail)[1:-1], parameters.values())


def _letters(asked: Asked, scope: Scope, parameters: Parameters) -> str:
    """Return the subquery of letters with when each was last sent again, 0 for never."""
    tables = ScopedTables(scope, parameters)
    columns = [*_COLUMNS, *(["payload"] if asked.payload else [])]
    letters = tables.table(TABLE, columns, [f"stage != '{REPLAYED}'", *_where(asked, parameters)], final=True)
    since = f"ingest_time >= fromUnixTimestamp64Milli({parameters.bind(asked.span.from_ms, 'Int64')}, 'UTC')"
    marked = ["tenant_id", "cluster_id", "id", "max(toUnixTimestamp64Milli(ingest_time)) AS marked_ms"]
    marks = tables.table(TABLE, marked, [f"stage = '{REPLAYED}'", since], tail=[f"GROUP BY {_KEY}"])
    joined = f"{letters} AS letters LEFT JOIN {marks} AS marks USING ({_KEY})"
    where = {True: ["replayed_ms > 0"], False: ["replayed_ms = 0"], None: []}[asked.replayed]
    inner = select(["*", "toInt64(marked_ms) AS replayed_ms"], joined)
    return select(["* EXCEPT marked_ms"], inner, where=where)


def _where(asked: Asked, parameters: Parameters) -> list[str]:
    named = (
        ("cluster_id", asked.clusters),
        ("host_id", asked.hosts),
        ("collector_id", asked.collectors),
        ("stage", asked.stages),
        ("code", asked.codes),
        ("metric", asked.metrics),
        ("toString(id)", tuple(map(str, asked.ids))),
    )
    return [*time_bounds("ingest_time", asked.span, parameters), *parameters.among(named)]


def _check(asked: Asked, scope: Scope) -> None:
    if asked.span.to_ms - asked.span.from_ms > RANGE_MAXIMUM_MS:
        raise Rejected("range_too_wide", "dead letters are read for a year at most", "ask for a shorter range")
    if scope.whole is None:
        message = "dead letters are kept by collector, and your grant shows only what is allocated to someone"
        raise Rejected("no_dead_letters", message, "ask an administrator for a grant of whole clusters")
