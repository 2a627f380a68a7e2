"""Find the gaps of entities: maximal runs of missing slots longer than max(3 slots, 3 s).

Nothing is kept beside the tables, so gaps never disagree with them. A first statement counts rows per entity, mostly of
30 s; only of entities that lack some, their windows are looked at, and only of windows that lack some, the rows. Rows
of every collector of an entity count: what one had missed another may have.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.access.scope import Scope
from secondsight.model import EntityKind
from secondsight.process.cells import WINDOW_MS
from secondsight.query.coverage import GAP_MS, GAP_SLOTS, Key
from secondsight.query.plan import Span
from secondsight.query.request import Filters
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement, select
from secondsight.query.windows import IDENTITY, filter_predicates, raw_bounds, rollup_bounds
from secondsight.store.schema import raw_table, rollup_table

I64 = NDArray[np.int64]
_KEY = ("tenant_id", "cluster_id", "host_id", "collector_id")
BACKLOG_MS = 60_000
"""Rows that came so much later than their time filled a gap."""
FIRST = "toUnixTimestamp64Milli(first_event_time)"
LAST = "toUnixTimestamp64Milli(last_event_time)"


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one entity was to report inside a range, at one cadence.

    Attributes:
        agent: Collector that was to.
        rack: Of its host.
    """

    key: Key
    from_ms: int
    to_ms: int
    interval_ms: int
    agent: str
    rack: str


@dataclass(frozen=True, slots=True)
class Gap:
    """One gap of one entity.

    Attributes:
        start_ms: First missing slot; where the range or its plan begins if nothing is known before.
        end_ms: Next present slot, or where the plan or the range ends.
        expected: Missing slots inside the range.
        is_open: Nothing came since.
    """

    key: Key
    start_ms: int
    end_ms: int
    interval_ms: int
    expected: int
    is_open: bool
    agent: str
    rack: str

    @property
    def place(self) -> tuple[str, str, str]:
        """Return tenant, cluster, host."""
        tenant, cluster, host, _, _ = self.key.split("\0")
        return tenant, cluster, host


@dataclass(frozen=True, slots=True)
class Filled:
    """A gap that was open until a backlog closed it: its slots came, the last of them at `filled_ms`."""

    key: Key
    start_ms: int
    end_ms: int
    slots: int
    filled_ms: int
    agent: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A run of slots that are there, without a gap: first and last sample."""

    first_ms: int
    last_ms: int


def longest_whole_ms(interval_ms: int) -> int:
    """Return the longest time between two samples with no gap between them."""
    return interval_ms + max(GAP_SLOTS * interval_ms, GAP_MS)


def stretches(expected: Any, span: Span, due_ms: int) -> dict[Key, list[Stretch]]:
    """Return what each entity was to report, in order of time; parts of entities report with them."""
    columns = (
        *(expected[name].to_pylist() for name in (*IDENTITY, "collector_id", "rack")),
        np.maximum(expected["start_ms"].to_numpy(), span.from_ms).tolist(),
        np.minimum(expected["end_ms"].to_numpy(), min(span.to_ms, due_ms)).tolist(),
        expected["cadence_ms"].to_numpy().tolist(),
    )
    found: defaultdict[Key, list[Stretch]] = defaultdict(list)
    for tenant, cluster, host, entity, part, agent, rack, from_ms, to_ms, cadence_ms in zip(*columns, strict=True):
        if not part and from_ms < to_ms:
            key = "\0".join((tenant, cluster, host, entity, part))
            found[key].append(Stretch(key, from_ms, to_ms, cadence_ms, agent, rack))
    return {key: _finest(sorted(some, key=lambda one: one.from_ms)) for key, some in found.items()}


def _finest(some: Sequence[Stretch]) -> list[Stretch]:
    """Return stretches of the collectors of one entity that do not overlap: while one reports, another adds nothing."""
    kept: list[Stretch] = []
    for one in some:
        before = kept[-1] if kept else None
        if before is not None and one.from_ms < before.to_ms:
            if one.to_ms <= before.to_ms:
                continue
            one = Stretch(one.key, before.to_ms, one.to_ms, one.interval_ms, one.agent, one.rack)
        kept.append(one)
    return kept


def compile_window_counts(kind: EntityKind, filters: Filters, span: Span, scope: Scope, *, final: bool) -> Statement:
    """Return the statement for slots per host and collector, by 30 s rows.

    With `final`, rows are merged first; that is needed where some may be there twice.
    """
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    times = [f"min({FIRST}) AS first_ms", f"max({LAST}) AS last_ms"]
    where = [*rollup_bounds(span, parameters), "part = ''", "samples > 0"]
    where += filter_predicates(filters, tables, parameters)
    columns = [*_KEY, *times, "toInt64(sum(samples)) AS slots"]
    tail = [f"GROUP BY {', '.join(_KEY)}"]
    rows = tables.table(rollup_table(kind), columns, where, tail=tail, final=final)
    return Statement(rows[1:-1], parameters.values())


def compile_row_counts(kind: EntityKind, filters: Filters, span: Span, scope: Scope, *, final: bool) -> Statement:
    """Return the statement for slots per host and collector, by 1 s rows; `final` as of windows."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    time = "toUnixTimestamp64Milli(event_time)"
    where = [*raw_bounds(span, parameters), "part = ''", *filter_predicates(filters, tables, parameters)]
    columns = [*_KEY, f"min({time}) AS first_ms", f"max({time}) AS last_ms", "toInt64(count()) AS slots"]
    tail = [f"GROUP BY {', '.join(_KEY)}"]
    rows = tables.table(raw_table(kind), columns, where, tail=tail, final=final)
    return Statement(rows[1:-1], parameters.values())


def compile_windows(kind: EntityKind, places: "Places", span: Span, scope: Scope) -> Statement:
    """Return the statement for the 30 s rows of some entities; an older version of one does no harm."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    columns = [
        *IDENTITY,
        "toInt64(toUnixTimestamp(window_start)) * 1000 AS window_ms",
        f"{FIRST} AS first_ms",
        f"{LAST} AS last_ms",
        "toInt64(samples) AS slots",
        "toInt64(greatest(interval_ms, 1)) AS cadence_ms",
    ]
    where = [*rollup_bounds(span, parameters), "part = ''", "samples > 0", *places.predicates(parameters)]
    return Statement(tables.table(rollup_table(kind), columns, where)[1:-1], parameters.values())


def compile_rows(
    kind: EntityKind, places: "Places", span: Span, scope: Scope, windows_ms: Collection[int] = ()
) -> Statement:
    """Return the statement for what is there of some entities per window, by their rows.

    Columns: the identity, first_ms, last_ms, and `holes`, pairs of the samples around each gap inside the window.
    """
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    window = f"intDiv(t, {WINDOW_MS}) * {WINDOW_MS}"
    where = [*raw_bounds(span, parameters), "part = ''", *places.predicates(parameters)]
    if windows_ms:
        listed = ", ".join(parameters.bind(window_ms, "Int64") for window_ms in sorted(windows_ms))
        where.append(f"intDiv(toUnixTimestamp64Milli(event_time), {WINDOW_MS}) * {WINDOW_MS} IN ({listed})")
    columns = [*IDENTITY, "toUnixTimestamp64Milli(event_time) AS t", "toInt64(greatest(interval_ms, 1)) AS cadence_ms"]
    rows = tables.table(raw_table(kind), columns, where)
    partition = f"PARTITION BY {', '.join(IDENTITY)}, {window} ORDER BY t"
    before = f"lagInFrame(t, 1, 0) OVER ({partition} ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before_ms"
    is_hole = f"before_ms > 0 AND t - before_ms > cadence_ms + greatest({GAP_SLOTS} * cadence_ms, {GAP_MS})"
    figures = [
        *IDENTITY,
        f"{window} AS window_ms",
        "min(t) AS first_ms",
        "max(t) AS last_ms",
        f"arraySort(groupArrayIf((before_ms, t), {is_hole})) AS holes",
    ]
    sql = select(figures, select(["*", before], rows), tail=[f"GROUP BY {', '.join(IDENTITY)}, window_ms"])
    return Statement(sql[1:-1], parameters.values())


def compile_last_before(kind: EntityKind, places: "Places", span: Span, scope: Scope) -> Statement:
    """Return the statement for the last sample of some entities in a range, by their 30 s rows."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    where = [*rollup_bounds(span, parameters), "part = ''", "samples > 0", *places.predicates(parameters)]
    columns = [*IDENTITY, f"max({LAST}) AS last_ms"]
    rows = tables.table(rollup_table(kind), columns, where, tail=[f"GROUP BY {', '.join(IDENTITY)}"])
    return Statement(rows[1:-1], parameters.values())


def compile_filled(kind: EntityKind, filters: Filters, span: Span, scope: Scope) -> Statement:
    """Return the statement for rows that came late, by entity and window."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    late = "toUnixTimestamp64Milli(ingest_time) - toUnixTimestamp64Milli(event_time)"
    where = [
        *raw_bounds(span, parameters),
        "part = ''",
        f"{late} > {parameters.bind(BACKLOG_MS, 'Int64')}",
        *filter_predicates(filters, tables, parameters),
    ]
    columns = [
        *IDENTITY,
        f"intDiv(toUnixTimestamp64Milli(event_time), {WINDOW_MS}) AS number",
        "toUnixTimestamp64Milli(min(event_time)) AS first_ms",
        "toUnixTimestamp64Milli(max(event_time)) AS last_ms",
        "toUnixTimestamp64Milli(max(ingest_time)) AS filled_ms",
        "toInt64(uniqExact(event_time)) AS slots",
        "toInt64(greatest(max(interval_ms), 1)) AS cadence_ms",
        "any(collector_id) AS collector",
    ]
    group = [f"GROUP BY {', '.join(IDENTITY)}, number"]
    return Statement(tables.table(raw_table(kind), columns, where, tail=group)[1:-1], parameters.values())


def filled_of(rows: Sequence[dict[str, Any]]) -> list[Filled]:
    """Return the gaps that a backlog closed, by the rows of `compile_filled`."""
    found: list[Filled] = []
    for row in sorted(rows, key=lambda row: (key_of(row), row["first_ms"])):
        before = found[-1] if found else None
        end_ms = row["last_ms"] + row["cadence_ms"]
        if before is not None and before.key == key_of(row) and row["first_ms"] - before.end_ms <= GAP_MS:
            filled_ms = max(before.filled_ms, row["filled_ms"])
            found[-1] = Filled(
                before.key, before.start_ms, end_ms, before.slots + row["slots"], filled_ms, before.agent
            )
        else:
            found.append(Filled(key_of(row), row["first_ms"], end_ms, row["slots"], row["filled_ms"], row["collector"]))
    return [one for one in found if one.slots > GAP_SLOTS and one.end_ms - one.start_ms > GAP_MS]


@dataclass(frozen=True, slots=True)
class Places:
    """Some entities, as what narrows a statement to about them; the order key begins with places."""

    clusters: tuple[str, ...]
    hosts: tuple[str, ...]
    entities: tuple[str, ...]

    def predicates(self, parameters: Parameters) -> list[str]:
        """Return the predicates."""
        named = (("cluster_id", self.clusters), ("host_id", self.hosts), ("entity", self.entities))
        return [f"{column} IN {parameters.bind_texts(values)}" for column, values in named]


def places_of(keys: Iterable[Key]) -> Places:
    """Return the places of some entities."""
    parts = [key.split("\0") for key in keys]
    clusters, hosts, entities = (tuple(sorted({part[number] for part in parts})) for number in (1, 2, 3))
    return Places(clusters, hosts, entities)


def suspects(expected: Any, planned: dict[Key, list[Stretch]], counts: Sequence[dict[str, Any]]) -> set[Key]:
    """Return the entities that may have a gap.

    A collector that has no more than a few slots too few, of all entities of its host together, has missed none for
    long. The others' entities are looked at one by one, unless another collector of theirs has them all.
    """
    entities: defaultdict[tuple[str, ...], set[Key]] = defaultdict(set)
    columns = (expected[name].to_pylist() for name in (*IDENTITY, "collector_id"))
    for tenant, cluster, host, entity, part, collector in zip(*columns, strict=True):
        key = "\0".join((tenant, cluster, host, entity, part))
        if key in planned:
            entities[tenant, cluster, host, collector].add(key)
    figures: dict[tuple[str, ...], tuple[int, int, int]] = {}
    for row in counts:
        name = tuple(row[column] for column in _KEY)
        first_ms, last_ms, slots = figures.get(name, (row["first_ms"], row["last_ms"], 0))
        figures[name] = (min(first_ms, row["first_ms"]), max(last_ms, row["last_ms"]), slots + row["slots"])
    whole: set[Key] = set()
    for name, keys in entities.items():
        if name in figures and _are_whole([one for key in keys for one in planned[key]], len(keys), figures[name]):
            whole |= keys
    return planned.keys() - whole


def _are_whole(some: Sequence[Stretch], entities: int, figures: tuple[int, int, int]) -> bool:
    first_ms, last_ms, slots = figures
    finest_ms = min(one.interval_ms for one in some)
    if finest_ms != max(one.interval_ms for one in some):
        return False
    longest_ms = longest_whole_ms(finest_ms)
    if first_ms - min(one.from_ms for one in some) > longest_ms - finest_ms:
        return False
    if max(one.to_ms for one in some) - last_ms > longest_ms:
        return False
    missing = entities * ((last_ms - first_ms) // finest_ms + 1) - slots
    return 0 <= missing <= max(GAP_SLOTS, GAP_MS // finest_ms)


def seen_of_windows(rows: Sequence[dict[str, Any]]) -> tuple[dict[Key, list[Seen]], dict[int, set[Key]]]:
    """Return what is there by 30 s rows, and by window the entities whose rows have to be looked at."""
    seen: defaultdict[Key, list[Seen]] = defaultdict(list)
    doubtful: defaultdict[int, set[Key]] = defaultdict(set)
    for row in rows:
        cadence_ms = row["cadence_ms"]
        missing = (row["last_ms"] - row["first_ms"]) // cadence_ms + 1 - row["slots"]
        if missing > max(GAP_SLOTS, GAP_MS // cadence_ms):
            doubtful[row["window_ms"]].add(key_of(row))
        else:
            seen[key_of(row)].append(Seen(row["first_ms"], row["last_ms"]))
    return seen, doubtful


def seen_of_rows(rows: Sequence[dict[str, Any]]) -> dict[Key, list[Seen]]:
    """Return what is there by the rows of `compile_rows`."""
    seen: defaultdict[Key, list[Seen]] = defaultdict(list)
    for row in rows:
        first_ms = row["first_ms"]
        for hole in row["holes"]:
            before_ms, after_ms = pair_of(hole)
            seen[key_of(row)].append(Seen(first_ms, before_ms))
            first_ms = after_ms
        seen[key_of(row)].append(Seen(first_ms, row["last_ms"]))
    return seen


def gaps_of(some: Sequence[Stretch], seen: Iterable[Seen], due_ms: int) -> list[Gap]:
    """Return the gaps of one entity, in order of time.

    Args:
        some: What it was to report.
        seen: What is there, in any order, overlapping or not.
        due_ms: Slots from here on may still be on their way.
    """
    runs = sorted(seen, key=lambda run: run.first_ms)
    found = []
    for stretch in some:
        step_ms = stretch.interval_ms
        at_ms = stretch.from_ms
        """First slot that is not accounted for."""
        for run in runs:
            if run.last_ms < at_ms:
                continue
            if run.first_ms >= stretch.to_ms:
                break
            found += _gap(stretch, at_ms, run.first_ms, due_ms)
            at_ms = max(at_ms, run.last_ms + step_ms)
        found += _gap(stretch, at_ms, stretch.to_ms, due_ms)
    return _joined(found)


def _gap(stretch: Stretch, start_ms: int, end_ms: int, due_ms: int) -> list[Gap]:
    step_ms = stretch.interval_ms
    if end_ms - start_ms <= max(GAP_SLOTS * step_ms, GAP_MS):
        return []
    missing = -(-(end_ms - start_ms) // step_ms)
    return [Gap(stretch.key, start_ms, end_ms, step_ms, missing, end_ms >= due_ms, stretch.agent, stretch.rack)]


def _joined(found: Sequence[Gap]) -> list[Gap]:
    """Join gaps that only a change of plan divides."""
    kept: list[Gap] = []
    for gap in found:
        before = kept[-1] if kept else None
        if before is not None and before.end_ms >= gap.start_ms:
            expected = before.expected + gap.expected
            kept[-1] = Gap(
                gap.key, before.start_ms, gap.end_ms, gap.interval_ms, expected, gap.is_open, gap.agent, gap.rack
            )
        else:
            kept.append(gap)
    return kept


def key_of(row: dict[str, Any]) -> Key:
    """Return what names an entity and part."""
    return "\0".join(str(row[name]) for name in IDENTITY)


def pair_of(hole: Any) -> tuple[int, int]:
    """Return the samples on both sides of a hole, as a store gives them."""
    values = list(hole.values()) if isinstance(hole, dict) else list(hole)
    return int(values[0]), int(values[1])
