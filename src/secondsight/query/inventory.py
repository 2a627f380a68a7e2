"""Turn the small tables about the fleet into what a question needs to know before it is planned.

What was expected (entities, plans, allocations), how far the stream has come (progress), and where duplicates may be
unmerged (rewrites). All of it is read under a scope, and kept per scope for a moment.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from threading import Event, Lock
from typing import Any
from weakref import ref

import pyarrow as pa
import pyarrow.compute as pc

from secondsight.access.scope import Scope
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.model import EntityKind
from secondsight.query.made import coarse_through_of, compile_coarse_through
from secondsight.query.plan import Rewrite, Span
from secondsight.query.progress import PLAN_KEY, compile_progress
from secondsight.query.request import Filters
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement, select
from secondsight.query.windows import owner_predicates
from secondsight.store.schema import raw_table, rollup_table

PROGRESS_SECONDS = 1.0
EXPECTED_SECONDS = 5.0
KEPT_ENTRIES = 128
DERIVED_ENTRIES = 1_024
OPEN_END_MS = 9_000_000_000_000
REWRITES_BUCKET_MS = 600_000
REWRITES_BUCKETS = 1_000

_COMPUTE: Any = pc


@dataclass(slots=True, eq=False)
class _Making:
    """What one thread makes for all who ask for it.

    Attributes:
        since: When it began, monotonic seconds.
    """

    since: float
    ended: Event = field(default_factory=Event)
    is_made: bool = False
    value: Any = None


class Inventory:
    """Reads the small tables and remembers them per scope; safe from several threads.

    Args:
        settle: Called whenever it was read how far the collectors have come, before anybody is told.
        manners: Returns settings by which a statement leaves others their share now; its own settings go before them.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settle: Callable[[], None] = lambda: None,
        manners: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settle = settle
        self._manners = manners
        self._lock = Lock()
        self._kept: dict[Hashable, tuple[float, Any]] = {}
        self._making: dict[Hashable, _Making] = {}
        self._derived: dict[Hashable, tuple[tuple[Any, ...], Any]] = {}

    def expected(self, kind: EntityKind, filters: Filters, scope: Scope) -> Any:
        """Return what was to report: see `compile_expected`; rows that the filters exclude are left out."""
        owners = replace(Filters(), job=filters.job, team=filters.team, model=filters.model)
        key = ("expected", kind, owners, scope)
        rows = self.remember(key, EXPECTED_SECONDS, lambda: self._expected(kind, owners, scope))
        return (
            self.derive((rows,), ("expected", filters), lambda: _filtered(rows, filters)) if filters != owners else rows
        )

    def placed(self, kind: EntityKind, filters: Filters, scope: Scope) -> Filters:
        """Return filters that name the hosts on which the GPUs asked for were ever seen.

        The order key of the tables begins with places. A GPU that no list knows yet is looked for everywhere.
        """
        if not filters.gpu or filters.host:
            return filters
        rows = self.remember(("places", kind, scope), EXPECTED_SECONDS, lambda: self.read(compile_places(kind, scope)))
        hosts: tuple[str, ...] = self.derive((rows,), ("hosts", filters.gpu), lambda: _hosts_of(rows, filters.gpu))
        return replace(filters, host=hosts)

    def places(self, scope: Scope) -> tuple[tuple[str, str, str, str], ...]:
        """Return (tenant, cluster, host, GPU) of all that is known now, GPUs and hosts; "" where a host has none."""

        def make() -> tuple[tuple[str, str, str, str], ...]:
            found: set[tuple[str, str, str, str]] = set()
            for kind in (EntityKind.GPU, EntityKind.NODE):
                rows = self.expected(kind, Filters(), scope)
                names = [rows[name].cast(pa.string()).to_pylist() for name in ("tenant_id", "cluster_id", "host_id")]
                entities = rows["entity"].cast(pa.string()).to_pylist()
                gpus = entities if kind is EntityKind.GPU else [""] * len(entities)
                found |= set(zip(*names, gpus, strict=True))
            return tuple(sorted(found))

        places: tuple[tuple[str, str, str, str], ...] = self.remember(("all places", scope), EXPECTED_SECONDS, make)
        return places

    def progress(self, scope: Scope) -> Any:
        """Return one row per collector: see `compile_progress`."""

        def make() -> Any:
            rows = self.read(compile_progress(scope))
            self._settle()
            return rows

        return self.remember(("progress", scope), PROGRESS_SECONDS, make)

    def rewrites(self, kind: EntityKind, span: Span, scope: Scope) -> tuple[Rewrite, ...]:
        """Return ranges of a kind's tables to be read with FINAL, all those that reach into a span."""
        start, end = span.from_ms // REWRITES_BUCKET_MS, -(-span.to_ms // REWRITES_BUCKET_MS)
        wide = Span(start * REWRITES_BUCKET_MS, end * REWRITES_BUCKET_MS)
        key = ("rewrites", kind, wide, scope)
        found: tuple[Rewrite, ...] = self.remember(key, PROGRESS_SECONDS, lambda: self._rewrites(kind, wide, scope))
        return found

    def coarse_through(self, kind: EntityKind, expected: Any, scope: Scope) -> tuple[tuple[str, int], ...]:
        """Return (resolution, up to when its rollups are made for all clusters expected), from fine to coarse.

        Rollups of whole clusters are resolutions of their own.
        """
        key = ("coarse", kind, scope)
        rows = self.remember(key, EXPECTED_SECONDS, lambda: self.read(compile_coarse_through(kind, scope)))
        found: tuple[tuple[str, int], ...] = self.derive(
            (rows, expected), ("coarse", kind), lambda: coarse_through_of(rows, kind, expected)
        )
        return found

    def remembered(self, key: Hashable, seconds: float) -> Any:
        """Return what was made for a key less than `seconds` ago, else None; never blocks."""
        with self._lock:
            found = self._kept.get(key)
        return found[1] if found is not None and self._clock.monotonic_seconds() - found[0] < seconds else None

    def remember(self, key: Hashable, seconds: float, make: Callable[[], Any]) -> Any:
        """Return what was begun to be made for a key less than `seconds` ago, or make it now.

        Of those who ask while it is made one makes it, and the others wait; where it fails, each makes its own.
        """
        now = self._clock.monotonic_seconds()
        with self._lock:
            found, running = self._kept.get(key), self._making.get(key)
            mine = _Making(now)
            if found is not None and now - found[0] < seconds:
                return found[1]
            if running is None or now - running.since >= seconds:
                self._making[key], running = mine, None
        if running is not None:
            running.ended.wait()
            return running.value if running.is_made else make()
        try:
            mine.value = make()
            mine.is_made = True
        finally:
            with self._lock:
                if self._making.get(key) is mine:
                    del self._making[key]
                    self._keep(key, mine)
            mine.ended.set()
        return mine.value

    def _keep(self, key: Hashable, made: "_Making") -> None:
        if made.is_made:
            self._kept.pop(key, None)
            self._kept[key] = (made.since, made.value)
            while len(self._kept) > KEPT_ENTRIES:
                self._kept.pop(next(iter(self._kept)))

    def derive(self, sources: tuple[Any, ...], key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what was made of the very same tables, or make it now.

        The tables are not kept for it, so it must be none of them, and goes when they have gone.
        """
        place = (key, *map(id, sources))
        with self._lock:
            refs, value = self._derived.get(place, ((), None))
        if refs and all(ref() is source for ref, source in zip(refs, sources, strict=True)):
            return value
        value = make()
        with self._lock:
            self._derived = {
                key: kept for key, kept in self._derived.items() if all(one() is not None for one in kept[0])
            }
            self._derived[place] = (tuple(map(ref, sources)), value)
            while len(self._derived) > DERIVED_ENTRIES:
                self._derived.pop(next(iter(self._derived)))
        return value

    def forget(self, key: Hashable) -> None:
        """Make anew what was made for a key, when it is next asked for."""
        with self._lock:
            self._kept.pop(key, None)
            self._making.pop(key, None)

    def forget_kind(self, kind: str) -> None:
        """Make anew all that was made for keys whose first part is `kind`."""
        with self._lock:
            for known in (self._kept, self._making):
                for key in [each for each in known if isinstance(each, tuple) and each[0] == kind]:
                    del known[key]

    def read(self, statement: Statement) -> Any:
        """Run a statement of this package.

        Raises:
            Retryable, Permanent: As the store says.
        """
        return self._store.query(statement.sql, statement.params, {**self._manners(), **statement.settings})

    def _expected(self, kind: EntityKind, owners: Filters, scope: Scope) -> Any:
        whole, owned = scope.whole, scope.owned
        if whole is None or owned is None:
            return self.read(compile_expected(kind, owners, scope))
        rows = self.read(compile_expected(kind, owners, owned))
        beyond = [not whole.admits_cluster(row["tenant_id"], row["cluster_id"]) for row in rows.to_pylist()]
        rows = rows.filter(pa.array(beyond, pa.bool_()))
        return pa.concat_tables([self.read(compile_expected(kind, owners, whole)), rows])

    def _rewrites(self, kind: EntityKind, span: Span, scope: Scope) -> tuple[Rewrite, ...]:
        rows = self.read(compile_rewrites(kind, span, scope)).to_pylist()
        return tuple(Rewrite(row["table_name"], Span(row["from_ms"], row["to_ms"])) for row in rows)


def compile_expected(kind: EntityKind, owners: Filters, scope: Scope) -> Statement:
    """Return the statement for stretches in which an entity was to report at one cadence.

    Columns: tenant_id, region, cluster_id, rack, host_id, entity, part, gpu_model, gpu_index, collector_id, cadence_ms,
    start_ms, end_ms (`OPEN_END_MS` while open), last_seen_ms, without (metrics that were not to be collected, by
    commas). With owners, or a scope that has some, only allocated time counts. What a collector delivered before its
    first plan, such as a history, was due as by that plan.
    """
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    of_kind = f"kind = {parameters.bind(kind.value, 'String')}"
    names = ["tenant_id", "region", "cluster_id", "rack", "host_id", "entity", "part", "gpu_model", "collector_id"]
    last_seen = "toUnixTimestamp64Milli(last_seen) AS last_seen_ms"
    entities = tables.table(
        "entities",
        [*names, "attributes['index'] AS gpu_index", "interval_ms", last_seen, *_stretch("from_time", "to_time")],
        [of_kind],
        final=True,
    )
    first = f"min(plan_from_ms) OVER (PARTITION BY {', '.join(PLAN_KEY)}) AS plan_first_ms"
    columns = ["interval_ms AS plan_ms", "without", *_stretch("from_time", "to_time", "plan_"), first]
    plans = tables.table("plans", [*PLAN_KEY, *columns], [of_kind], final=True)
    source = f"{entities} AS known LEFT JOIN {plans} AS plans USING ({', '.join(PLAN_KEY)})"
    planned = "if(plan_from_ms = plan_first_ms, 0, plan_from_ms)"
    starts, ends = ["from_ms", planned], ["to_ms", "if(plan_to_ms = 0, to_ms, plan_to_ms)"]
    if scope.is_attributed or owners.is_attributed:
        columns = [
            "tenant_id",
            "cluster_id",
            "entity",
            "part AS owned_part",
            *_stretch("start_time", "end_time", "owned_"),
        ]
        owned = tables.table("allocations", columns, owner_predicates(owners, parameters), final=True)
        source = f"{select(['*'], source)} AS planned INNER JOIN {owned} AS owned USING (tenant_id, cluster_id, entity)"
        starts, ends = [*starts, "owned_from_ms"], [*ends, "owned_to_ms"]
    answer = [
        *names,
        "gpu_index",
        "toInt64(greatest(if(plan_ms > 0, plan_ms, interval_ms), 1)) AS cadence_ms",
        f"greatest({', '.join(starts)}) AS start_ms",
        f"least({', '.join(ends)}) AS end_ms",
        "last_seen_ms",
        "without",
    ]
    where = ["owned_part IN ('', part)"] if len(starts) > 2 else []
    return Statement(select(answer, source, where=[*where, "start_ms < end_ms"])[1:-1], parameters.values())


def compile_places(kind: EntityKind, scope: Scope) -> Statement:
    """Return the statement for every host on which each entity of a kind was ever seen."""
    parameters = Parameters()
    of_kind = f"kind = {parameters.bind(kind.value, 'String')}"
    rows = ScopedTables(scope, parameters).table("entities", ["DISTINCT entity", "host_id"], [of_kind])
    return Statement(rows[1:-1], parameters.values())


def compile_rewrites(kind: EntityKind, span: Span, scope: Scope) -> Statement:
    """Return the statement for ranges of a kind's tables where duplicates may be unmerged, near ones taken together.

    No range that reaches into the span is left out: there are `REWRITES_BUCKETS` rows per table at most, however many
    ranges were noted.
    """
    parameters = Parameters()
    names = parameters.bind_texts((raw_table(kind), rollup_table(kind)))
    first, last = parameters.bind(span.from_ms, "Int64"), parameters.bind(span.to_ms, "Int64")
    width = parameters.bind(max(REWRITES_BUCKET_MS, -((span.from_ms - span.to_ms) // REWRITES_BUCKETS)), "Int64")
    starts, ends = "toUnixTimestamp64Milli(from_time)", "toUnixTimestamp64Milli(to_time)"
    columns = ["table_name", f"min({starts}) AS from_ms", f"max({ends}) AS to_ms"]
    where = [f"table_name IN {names}", f"{starts} < {last}", f"{ends} > {first}"]
    tail = [f"GROUP BY table_name, intDiv(greatest({starts}, {first}) - {first}, {width})"]
    rows = ScopedTables(scope, parameters).table("rewrites", columns, where, tail=tail)
    return Statement(rows[1:-1], parameters.values())


def left_out(expected: Any) -> frozenset[str]:
    """Return the metrics that somebody was not to collect at some time."""
    told = _COMPUTE.unique(expected["without"].cast(pa.string())).to_pylist()
    return frozenset(name for names in told if names for name in names.split(","))


def collecting(expected: Any, metric: str) -> Any:
    """Return the stretches in which a metric was to be collected."""
    without = expected["without"].cast(pa.string())
    told = _COMPUTE.binary_join_element_wise("", without, "", ",")
    return expected.filter(_COMPUTE.invert(_COMPUTE.match_substring(told, f",{metric},")))


def _hosts_of(rows: Any, gpus: tuple[str, ...]) -> tuple[str, ...]:
    """Return the hosts on which GPUs were seen; none where one of them is not known."""
    mine = rows.filter(_COMPUTE.is_in(rows["entity"], value_set=pa.array(gpus, pa.string())))
    if len(set(mine["entity"].to_pylist())) < len(gpus):
        return ()
    return tuple(sorted(set(mine["host_id"].to_pylist())))


def _filtered(rows: Any, filters: Filters) -> Any:
    columns = (
        ("cluster_id", filters.cluster),
        ("host_id", filters.host),
        ("entity", filters.gpu),
        ("part", filters.part),
        ("gpu_model", filters.gpu_model),
    )
    for column, values in columns:
        if values:
            rows = rows.filter(_COMPUTE.is_in(rows[column], value_set=pa.array(values, pa.string())))
    return rows


def _stretch(start: str, end: str, prefix: str = "") -> list[str]:
    return [
        f"toUnixTimestamp64Milli({start}) AS {prefix}from_ms",
        f"ifNull(toUnixTimestamp64Milli({end}), {OPEN_END_MS}) AS {prefix}to_ms",
    ]
