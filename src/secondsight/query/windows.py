"""Turn a plan into a subquery of windows: one row per series and base window, whatever table it is read from.

Both legs give the same columns with the same meaning. A sample covers its interval, cut at the next sample of its
series and at the end of its base window. An increase belongs to the window of the later sample of a pair.
"""

from collections.abc import Sequence

from secondsight.catalog.metric import Metric
from secondsight.process.cells import WINDOW_MS
from secondsight.process.counters import JITTER_SHIFT, STEP_SLACK_SECONDS, starts_at_zero
from secondsight.process.patterns import LOOKBACK_MS as PAIR_MAXIMUM_MS
from secondsight.query.aggregates import PAIRED, QUANTILES
from secondsight.query.members import (
    exact_cast,
    members_of,
    rollup_expression,
    row_expression,
    sample_expression,
    value_of_last,
    value_of_pool,
)
from secondsight.query.plan import Leg, SeriesPlan, Span
from secondsight.query.request import Filters, Group
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, select
from secondsight.store.coarse import FINEST, window_bounds
from secondsight.store.spec import quoted

IDENTITY = ("tenant_id", "cluster_id", "host_id", "entity", "part")
LATE_MS = 10_000
FAR_MS = 9_000_000_000_000

OWNERS: dict[Group, str] = {
    Group.REGION: "region",
    Group.JOB: "job_id",
    Group.WORKLOAD: "workload_id",
    Group.TEAM: "owner_team",
    Group.MODEL: "model_id",
}
"""Dimensions that are columns of a row but no part of a series' identity."""

_QUALITY_COLUMNS = ("slots", "first_ms", "last_ms", "gaps", "late", "rows")
_LONGEST_MS = "interval_ms + greatest(3 * interval_ms, 3000)"
"""Time between a sample and the one before it that is no gap."""
_NO_HEAD = "[toInt64(0), toInt64(0)] AS head"


def windows(plan: SeriesPlan, tables: ScopedTables, parameters: Parameters) -> str:
    """Return the subquery of windows of a plan, one source per entity and window; of clusters one row per owner."""
    spans = [span for span in (plan.head, plan.raw) if span is not None]
    fine = [_raw_leg(plan, span, tables, parameters) for span in spans]
    fine += [_rollup_leg(plan, leg, tables, parameters) for leg in plan.legs if not leg.is_pooled]
    pooled = [_pooled_leg(plan, leg, tables, parameters) for leg in plan.legs if leg.is_pooled]
    members = [member.name for member in members_of(plan.selected.aggregate)]
    legs = alike(plan, fine, pooled, [*members, *quality_names(plan)], tables) if pooled else fine
    union = legs[0] if len(legs) == 1 else f"({' UNION ALL '.join(legs)})"
    if not plan.several_sources:
        return union
    columns = [*union_keys(plan), "window_ms", *members, *quality_names(plan)]
    return select(columns, union, tail=[best_source("window_ms")])


def samples(plan: SeriesPlan, span: Span, tables: ScopedTables, parameters: Parameters) -> str:
    """Return the subquery of samples of a plan with what they cover, read from 1 s rows."""
    neighbours = _with_neighbours(plan, span, tables, parameters)
    base = parameters.bind(plan.base_ms, "Int64")
    start = parameters.bind(span.from_ms, "Int64")
    columns = [
        *keys(plan),
        "collector_id",
        "source_rank",
        "t",
        "v",
        "is_late",
        f"intDiv(t, {base}) * {base} AS window_ms",
        f"least(interval_ms, next_t - t, window_ms + {base} - t) AS cover_ms",
        "intDiv(t, interval_ms) != intDiv(prev_t, interval_ms) AS is_slot",
        f"prev_t >= {start} AND t - prev_t > {_LONGEST_MS} AS is_gap",
        *([f"[t, {_LONGEST_MS}] AS head"] if plan.is_part else ()),
        *(_pairs(plan) if plan.selected.aggregate in PAIRED else ()),
    ]
    tail = [best_source("window_ms")] if plan.several_sources and plan.selected.aggregate in QUANTILES else []
    return select(columns, neighbours, where=[f"t >= {start}"], tail=tail)


def quality_names(plan: SeriesPlan) -> tuple[str, ...]:
    """Return the names of `quality_columns`."""
    return (*_QUALITY_COLUMNS, "head") if plan.is_part else _QUALITY_COLUMNS


def quality_columns(plan: SeriesPlan, parameters: Parameters) -> list[str]:
    """Return the columns over samples that coverage is counted from.

    `head` is the time of the first one and the longest time before it that is no gap, where a plan is a part.
    """
    return [
        f"toInt64(countIf(is_slot AND t < {parameters.bind(plan.due_ms, 'Int64')})) AS slots",
        "min(t) AS first_ms",
        "max(t) AS last_ms",
        "toInt64(countIf(is_gap)) AS gaps",
        "toInt64(countIf(is_late)) AS late",
        "toInt64(count()) AS rows",
        *(["min(head) AS head"] if plan.is_part else ()),
    ]


def keys(plan: SeriesPlan) -> list[str]:
    """Return the columns that tell series apart, and the owners that are grouped by."""
    return [*IDENTITY, *(OWNERS[group] for group in plan.groups if group in OWNERS)]


def _raw_leg(plan: SeriesPlan, span: Span, tables: ScopedTables, parameters: Parameters) -> str:
    metric = plan.selected.metric
    members = [
        f"{sample_expression(member, metric, plan.base_ms)} AS {member.name}"
        for member in members_of(plan.selected.aggregate)
    ]
    columns = [
        *keys(plan),
        "collector_id",
        "any(source_rank) AS source_rank",
        "window_ms",
        *members,
        *quality_columns(plan, parameters),
    ]
    group = f"GROUP BY {', '.join([*keys(plan), 'collector_id', 'window_ms'])}"
    return select(columns, samples(plan, span, tables, parameters), tail=[group])


def _with_neighbours(plan: SeriesPlan, span: Span, tables: ScopedTables, parameters: Parameters) -> str:
    paired = plan.selected.aggregate in PAIRED
    rows = tables.table(
        plan.raw_table,
        [
            *keys(plan),
            "collector_id",
            "source_rank",
            "boot_id",
            "toUnixTimestamp64Milli(event_time) AS t",
            "toInt64(greatest(interval_ms, 1)) AS interval_ms",
            f"toUnixTimestamp64Milli(ingest_time) - t > {LATE_MS} AS is_late",
            f"assumeNotNull({quoted(plan.selected.metric.name)}) AS v",
        ],
        [
            *raw_bounds(Span(span.from_ms - plan.lookback_ms, span.to_ms), parameters),
            f"isNotNull({quoted(plan.selected.metric.name)})",
            *filter_predicates(plan.filters, tables, parameters),
        ],
        final=plan.final_raw,
    )
    neighbours = ["lagInFrame(t, 1, 0) OVER series AS prev_t", f"leadInFrame(t, 1, {FAR_MS}) OVER series AS next_t"]
    if paired:
        neighbours += ["lagInFrame(v) OVER series AS prev_v", "lagInFrame(boot_id) OVER series AS prev_boot"]
    columns = [*keys(plan), "collector_id", "source_rank", "boot_id", "t", "interval_ms", "is_late", "v", *neighbours]
    partition = ", ".join([*IDENTITY, "collector_id"])
    frame = "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING"
    return select(columns, rows, tail=[f"WINDOW series AS (PARTITION BY {partition} ORDER BY t {frame})"])


def _pairs(plan: SeriesPlan) -> list[str]:
    """Return what a sample and the one before it say together: increase, time between, reset, change."""
    metric, exact = plan.selected.metric, exact_cast(plan.selected.metric)
    fall = (
        "toUInt64(prev_v - v) <= bitShiftRight(prev_v, {0})"
        if metric.dtype.startswith("u")
        else "prev_v - v <= abs(prev_v) / exp2({0})"
    )
    return [
        f"prev_t > 0 AND t - prev_t <= {PAIR_MAXIMUM_MS} AS is_near",
        "boot_id != prev_boot AND boot_id != '' AND prev_boot != '' AS is_new_epoch",
        f"v < prev_v AND ({fall.format(JITTER_SHIFT)}) AS is_jitter",
        "is_near AND NOT is_new_epoch AND v < prev_v AND NOT is_jitter AS is_reset",
        f"multiIf(is_reset OR is_new_epoch, {exact}(v), is_jitter, {exact}(0), {exact}(v) - {exact}(prev_v)) AS step",
        f"is_near AND {' AND '.join(_countable(metric))} AS is_pair",
        "if(is_pair, step, NULL) AS increase",
        "if(is_pair, t - prev_t, 0) AS pair_ms",
        "is_near AND v != prev_v AS is_change",
    ]


def _countable(metric: Metric) -> list[str]:
    """Return what a pair must fulfil for its increase to be known: no unknown epoch, no cap, no impossible step."""
    resolution = metric.resolution or 1.0
    conditions = ["step >= 0" if starts_at_zero(metric) else "step >= 0 AND NOT is_new_epoch"]
    if metric.cap is not None:
        conditions.append(f"v < {metric.cap / resolution!r}")
    if metric.step_maximum is not None:
        step = metric.step_maximum / resolution
        conditions.append(f"step <= {step!r} * ((t - prev_t) / 1000 + {STEP_SLACK_SECONDS!r})")
    return conditions


def slots_expression(leg: Leg, key: str) -> str:
    """Return the samples of one metric in a rollup row; `key` is the bound name of the metric."""
    if leg.resolution == FINEST:
        return f"if(mapContains(covered_other, {key}), round(covered_other[{key}] / greatest(interval_ms, 1)), samples)"
    return f"if(mapContains(samples_other, {key}), samples_other[{key}], samples)"


def _rollup_leg(plan: SeriesPlan, leg: Leg, tables: ScopedTables, parameters: Parameters) -> str:
    metric = plan.selected.metric
    key = parameters.bind(metric.name, "String")
    members = members_of(plan.selected.aggregate)
    is_finest = leg.resolution == FINEST
    expressions = [
        f"{rollup_expression(member, metric, key, is_finest=is_finest)} AS {member.name}" for member in members
    ]
    group = f"GROUP BY {', '.join([*keys(plan), 'collector_id', 'window_start'])}"
    columns = [
        *keys(plan),
        "collector_id",
        "any(source_rank) AS source_rank",
        "toInt64(toUnixTimestamp(window_start)) * 1000 AS window_ms",
        *expressions,
        f"toInt64(sum({slots_expression(leg, key)})) AS slots",
        "min(toUnixTimestamp64Milli(first_event_time)) AS first_ms",
        "max(toUnixTimestamp64Milli(last_event_time)) AS last_ms",
        "toInt64(0) AS gaps",
        "toInt64(0) AS late",
        "toInt64(0) AS rows",
        *([_NO_HEAD] if plan.is_part else ()),
    ]
    return tables.table(
        plan.rollup_table(leg),
        columns,
        [
            *rollup_bounds(leg.span, parameters, leg.resolution),
            "samples > 0",
            f"isNotNull({value_of_last(metric)})",
            *filter_predicates(plan.filters, tables, parameters),
        ],
        final=plan.reads_final(leg),
        tail=[group],
    )


def _pooled_leg(plan: SeriesPlan, leg: Leg, tables: ScopedTables, parameters: Parameters) -> str:
    """Return the rows of whole clusters: of no host and no entity, told by no collector, one for each owner."""
    metric = plan.selected.metric
    key = parameters.bind(metric.name, "String")
    columns = [
        *pooled_keys(plan),
        "toInt64(toUnixTimestamp(window_start)) * 1000 AS window_ms",
        *(f"{row_expression(member, metric, key)} AS {member.name}" for member in members_of(plan.selected.aggregate)),
        f"toInt64({slots_expression(leg, key)}) AS slots",
        "toUnixTimestamp64Milli(first_event_time) AS first_ms",
        "toUnixTimestamp64Milli(last_event_time) AS last_ms",
        *(f"toInt64(0) AS {name}" for name in ("gaps", "late", "rows")),
        *([_NO_HEAD] if plan.is_part else ()),
    ]
    where = pooled_predicates(plan, leg, parameters)
    return tables.table(plan.rollup_table(leg), columns, where, final=True)


def pooled_keys(plan: SeriesPlan) -> list[str]:
    """Return the columns that tell rows of clusters apart as a plan asks."""
    return ["tenant_id", "cluster_id", "part", *(name for name in union_keys(plan) if name not in IDENTITY)]


def pooled_predicates(plan: SeriesPlan, leg: Leg, parameters: Parameters) -> list[str]:
    """Return the predicates over rows of clusters that a plan asks for; those of its scope are not among them."""
    filters = plan.filters
    places = (("cluster_id", filters.cluster), ("part", filters.part), ("gpu_model", filters.gpu_model))
    return [
        *rollup_bounds(leg.span, parameters, leg.resolution),
        "samples > 0",
        f"isNotNull({value_of_pool(plan.selected.metric)})",
        *parameters.among(places),
        *owner_predicates(filters, parameters),
    ]


def union_keys(plan: SeriesPlan) -> list[str]:
    """Return `keys`, and the product where rows of clusters, which have it, are told apart by it."""
    return [*keys(plan), *(["gpu_model"] if plan.is_pooled and Group.GPU_MODEL in plan.groups else [])]


def alike(
    plan: SeriesPlan, fine: Sequence[str], pooled: Sequence[str], columns: Sequence[str], tables: ScopedTables
) -> list[str]:
    """Return legs of entities and of clusters with the same columns; clusters have no host, entity and collector."""
    names = [*union_keys(plan), "collector_id", "source_rank", "window_ms", *columns]
    given = {"host_id": "''", "entity": "''", "collector_id": "''", "source_rank": "toUInt8(0)"}
    bare = [f"{given[name]} AS {name}" if name in given else name for name in names]
    of_entities = [select(names, with_products(leg, tables) if "gpu_model" in names else leg) for leg in fine]
    return [*of_entities, *(select(bare, leg) for leg in pooled)]


def with_products(source: str, tables: ScopedTables) -> str:
    """Return a source with the product of each entity beside it."""
    columns = ["tenant_id", "entity", "max(gpu_model) AS gpu_model"]
    models = tables.table("entities", columns, tail=["GROUP BY tenant_id, entity"])
    return f"{source} AS figures ANY LEFT JOIN {models} AS products USING (tenant_id, entity)"


def time_bounds(column: str, span: Span, parameters: Parameters) -> list[str]:
    """Return predicates for [from, to) of a time in milliseconds."""
    start, end = (parameters.bind(time_ms, "Int64") for time_ms in (span.from_ms, span.to_ms))
    return [
        f"{column} >= fromUnixTimestamp64Milli({start}, 'UTC')",
        f"{column} < fromUnixTimestamp64Milli({end}, 'UTC')",
    ]


def raw_bounds(span: Span, parameters: Parameters) -> list[str]:
    """Return predicates for [from, to) of 1 s rows; the second pair is what the order key is cut by."""
    start = f"fromUnixTimestamp64Milli({parameters.bind(span.from_ms, 'Int64')}, 'UTC')"
    end = f"fromUnixTimestamp64Milli({parameters.bind(span.to_ms, 'Int64')}, 'UTC')"
    return [
        f"event_time >= {start}",
        f"event_time < {end}",
        f"toStartOfTenMinutes(event_time) >= toStartOfTenMinutes({start})",
        f"toStartOfTenMinutes(event_time) <= toStartOfTenMinutes({end})",
    ]


def rollup_bounds(span: Span, parameters: Parameters, resolution: str = FINEST) -> list[str]:
    """Return predicates for [from, to) of rollups."""
    start = f"toDateTime({parameters.bind(span.from_ms // WINDOW_MS * WINDOW_MS // 1000, 'Int64')}, 'UTC')"
    end = f"toDateTime({parameters.bind(-(-span.to_ms // 1000), 'Int64')}, 'UTC')"
    return window_bounds(resolution, start, end)


def filter_predicates(filters: Filters, tables: ScopedTables, parameters: Parameters) -> list[str]:
    """Return the filters of a request as predicates over rows."""
    columns = (
        ("cluster_id", filters.cluster),
        ("host_id", filters.host),
        ("entity", filters.gpu),
        ("part", filters.part),
    )
    predicates = parameters.among(columns) + owner_predicates(filters, parameters)
    if filters.gpu_model:
        models = f"gpu_model IN {parameters.bind_texts(filters.gpu_model)}"
        entities = tables.table("entities", ["tenant_id", "entity"], [models])
        predicates.append(f"(tenant_id, entity) IN {entities}")
    return predicates


def owner_predicates(filters: Filters, parameters: Parameters) -> list[str]:
    """Return the filters of a request on whom a second is allocated to."""
    columns = (("job_id", filters.job), ("owner_team", filters.team), ("model_id", filters.model))
    return parameters.among(columns)


def best_source(window: str) -> str:
    """Return the clause that keeps, per entity and window, the collector of the least rank, then name."""
    partition = ", ".join([*IDENTITY, window])
    source = "(source_rank, toString(collector_id))"
    return f"QUALIFY {source} = min({source}) OVER (PARTITION BY {partition})"
