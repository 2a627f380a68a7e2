"""Read what happened: events, and facts that hold from a time on, newest first.

Of an interval readers get the newest version, and nothing of what was retracted; `history` asks for every version that
was ever told.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from secondsight.access.scope import Scope
from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Span
from secondsight.query.progress import Progress, progress_of
from secondsight.query.request import RANGE_MAXIMUM_MS, Filters
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement, select
from secondsight.query.windows import time_bounds

_COMPUTE: Any = pc
EVENTS, INFOS, HISTORY = "events", "infos", "event_history"
_SHARED = (
    "tenant_id",
    "region",
    "cluster_id",
    "host_id",
    "kind",
    "entity",
    "part",
    "metric",
    "event_version",
    "collector_id",
    "source",
    "job_id",
    "workload_id",
    "owner_team",
    "model_id",
)
_TIMES = (
    "toUnixTimestamp64Milli(event_time) AS time_ms",
    "toUnixTimestamp64Milli(ingest_time) AS taken_ms",
)
_OF_EVENTS = (
    "code",
    "severity",
    "if(isNull(end_time), NULL, toUnixTimestamp64Milli(assumeNotNull(end_time))) AS end_ms",
)
_ORDER = "ORDER BY time_ms DESC, tenant_id, cluster_id, host_id, metric, entity, part, event_version"


@dataclass(frozen=True, slots=True)
class Asked:
    """Which ones; empty filters admit all. `limit` and `offset` say which page.

    Attributes:
        table: `EVENTS`, `INFOS`, or `HISTORY` for every version of events that was ever told.
        entities: Names of what they are about, of any kind.
    """

    span: Span
    filters: Filters = field(default_factory=Filters)
    table: str = EVENTS
    metrics: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    severities: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    limit: int = 100
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """Rows in order of time, newest first, as the statement gives them; `total` counts all that were asked for."""

    rows: Sequence[dict[str, Any]]
    total: int
    progress: Progress


class EventReader:
    """Reads events of a scope. Safe from several threads."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def read(self, asked: Asked, scope: Scope, now_ms: int) -> Page:
        """Return a page, and how far the collectors of the places asked for have come.

        Raises:
            Rejected(range_too_wide, forbidden_metric): Over a year is asked for, or a metric that the grant denies.
            Retryable: The store is away or busy.
        """
        if asked.span.to_ms - asked.span.from_ms > RANGE_MAXIMUM_MS:
            raise Rejected("range_too_wide", "events are read for a year at most", "ask for a shorter range")
        rows = self._inventory.read(compile_page(asked, scope)).to_pylist()
        total = int(rows[0]["total"]) if rows else 0
        return Page(rows, total, self._progress(asked.filters, scope, now_ms))

    def _progress(self, filters: Filters, scope: Scope, now_ms: int) -> Progress:
        rows = self._inventory.progress(scope)
        rows = rows.filter(_COMPUTE.greater(rows["watermark_ms"], 0))
        for column, values in (("cluster_id", filters.cluster), ("host_id", filters.host)):
            if values:
                rows = rows.filter(_COMPUTE.is_in(rows[column], value_set=pa.array(values, pa.string())))
        return progress_of(rows, rows.slice(0, 0), now_ms)


def compile_page(asked: Asked, scope: Scope) -> Statement:
    """Return the statement for one page."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    for metric in asked.metrics:
        scope.showing(metric)
    columns = [*_SHARED, *_TIMES, *(() if asked.table == INFOS else _OF_EVENTS), "attributes"]
    found = tables.table(asked.table, columns, _where(asked, parameters), final=True)
    limit, offset = (parameters.bind(number, "UInt32") for number in (asked.limit, asked.offset))
    sql = select(["*", "count() OVER () AS total"], found, tail=[_ORDER, f"LIMIT {limit} OFFSET {offset}"])
    return Statement(sql[1:-1], parameters.values())


def _where(asked: Asked, parameters: Parameters) -> list[str]:
    filters = asked.filters
    named = (
        ("cluster_id", filters.cluster),
        ("host_id", filters.host),
        ("part", filters.part),
        ("owner_team", filters.team),
        ("model_id", filters.model),
        ("metric", asked.metrics),
        ("kind", asked.kinds),
        ("entity", asked.entities or filters.gpu),
        ("severity", asked.severities),
    )
    where = [*time_bounds("event_time", asked.span, parameters), *parameters.among(named)]
    if asked.entities and filters.gpu:
        where.append(f"entity IN {parameters.bind_texts(filters.gpu)}")
    if filters.job:
        jobs = parameters.bind_texts(filters.job)
        where.append(f"(job_id IN {jobs} OR kind = '{EntityKind.PROCESS_JOB.value}' AND entity IN {jobs})")
    if asked.codes:
        where.append(f"toString(code) IN {parameters.bind_texts(map(str, asked.codes))}")
    if asked.table == EVENTS:
        where.append("NOT mapContains(attributes, 'retracted')")
    return where
