"""Turn a plan and a scope into one SQL statement.

The only compiler: without a scope there is no statement. Values are bound parameters; identifiers come from the
catalogue and from this package.
"""

from collections.abc import Sequence

from secondsight.access.scope import Scope
from secondsight.query.aggregates import QUANTILES, Aggregate
from secondsight.query.members import AVERAGE, MERGED
from secondsight.query.plan import SeriesPlan
from secondsight.query.request import Group
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement, select
from secondsight.query.windows import IDENTITY, OWNERS, keys, quality_columns, samples, sketches, windows
from secondsight.rollup.sketch import bin_figure

COLUMNS: dict[Group, tuple[str, ...]] = {
    **{group: (column,) for group, column in OWNERS.items()},
    Group.CLUSTER: ("cluster_id",),
    Group.HOST: ("cluster_id", "host_id"),
    Group.GPU: ("cluster_id", "host_id", "entity"),
    Group.PART: ("part",),
    Group.GPU_MODEL: ("gpu_model",),
    Group.TOTAL: (),
}
"""Dimension -> columns of its label; the tenant is always one of them."""

_MERGED_QUALITY = (
    "sum(slots) AS slots",
    "min(first_ms) AS first_ms",
    "max(last_ms) AS last_ms",
    "sum(gaps) AS gaps",
    "sum(late) AS late",
    "sum(rows) AS rows",
)


def compile_series(plan: SeriesPlan, scope: Scope) -> Statement:
    """Return the statement whose rows are the points of a plan, and one row per entity for coverage.

    Columns: `bucket_ms`; those of `label_columns`; `figure` (Float64, in stored units); `slots` (distinct stored ones);
    `first_ms` and `last_ms` (event times); `gaps` (inside the range), `late`, `rows` (all three of 1 s rows alone);
    `is_entity`, which is 1 in the rows for coverage: these are labelled by `IDENTITY`.

    Raises:
        TypeError: There is no scope.
        Rejected(forbidden_metric): The scope denies the metric.
    """
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    tables.check_metric(plan.selected.metric.name)
    if plan.selected.aggregate in QUANTILES and plan.legs:
        return Statement(_percentiles(plan, tables, parameters)[1:-1], parameters.values())
    return Statement(_figures(plan, tables, parameters)[1:-1], parameters.values())


def label_columns(groups: Sequence[Group]) -> list[str]:
    """Return the columns that tell the series of a grouping apart, in ladder order."""
    return list(dict.fromkeys(["tenant_id", *(column for group in groups for column in COLUMNS[group])]))


def _figures(plan: SeriesPlan, tables: ScopedTables, parameters: Parameters) -> str:
    labels = label_columns(plan.groups)
    columns = [
        *dict.fromkeys([*IDENTITY, *labels]),
        f"{bucket('window_ms', plan, parameters)} AS bucket_ms",
        f"{_merged(plan.selected.aggregate)} AS figure",
        *_quality(plan, parameters),
        "grouping(bucket_ms) AS is_entity",
    ]
    sets = f"GROUP BY GROUPING SETS (({', '.join(['bucket_ms', *labels])}), ({', '.join(IDENTITY)}))"
    source = _with_models(plan, _source(plan, tables, parameters), tables)
    return select(columns, source, tail=[sets])


def _percentiles(plan: SeriesPlan, tables: ScopedTables, parameters: Parameters) -> str:
    """Return the points that sketches give and those of 1 s rows behind them; entities that have both are one row."""
    labels = label_columns(plan.groups)
    names = list(dict.fromkeys([*IDENTITY, *labels]))
    share = QUANTILES[plan.selected.aggregate]
    merged = f"quantileExactWeightedArray({share})(bins, weights)"
    figure = f"least(greatest({bin_figure(merged)}, min(lowest)), max(highest))"
    columns = [
        *names,
        f"{bucket('window_ms', plan, parameters)} AS bucket_ms",
        f"toFloat64(if(sum(length(bins)) = 0, NULL, {figure})) AS figure",
        "sum(slots) AS slots",
        "min(first_ms) AS first_ms",
        "max(last_ms) AS last_ms",
        *(f"toInt64(0) AS {name}" for name in ("gaps", "late", "rows")),
        "grouping(bucket_ms) AS is_entity",
    ]
    sets = f"GROUP BY GROUPING SETS (({', '.join(['bucket_ms', *labels])}), ({', '.join(IDENTITY)}))"
    sketched = select(columns, _with_models(plan, sketches(plan, tables, parameters), tables), tail=[sets])
    if plan.raw is None:
        return sketched
    exact = _figures(plan, tables, parameters)
    columns = [*names, "bucket_ms", "max(figure) AS figure", *_MERGED_QUALITY, "is_entity"]
    group = f"GROUP BY {', '.join([*names, 'bucket_ms', 'is_entity'])}"
    return select(columns, f"({sketched} UNION ALL {exact})", tail=[group])


def bucket(time: str, plan: SeriesPlan, parameters: Parameters) -> str:
    """Return the start of the output window that a time in epoch ms lies in."""
    if plan.whole:
        start = parameters.bind(plan.span.from_ms, "Int64")
        return f"{time} * 0 + {start}"
    width = parameters.bind(plan.resolution_ms, "Int64")
    return f"intDiv({time}, {width}) * {width}"


def _source(plan: SeriesPlan, tables: ScopedTables, parameters: Parameters) -> str:
    if plan.selected.aggregate in QUANTILES:
        return samples(plan, plan.raw or plan.span, tables, parameters)
    source = windows(plan, tables, parameters)
    return _entity_averages(plan, source, parameters) if plan.selected.aggregate is Aggregate.SUM else source


def _entity_averages(plan: SeriesPlan, source: str, parameters: Parameters) -> str:
    """Return one row per entity, part and output window, with the average that is to be added up."""
    columns = [
        *keys(plan),
        f"{bucket('window_ms', plan, parameters)} AS output_ms",
        f"{AVERAGE} AS average",
        *_MERGED_QUALITY,
    ]
    averages = select(columns, source, tail=[f"GROUP BY {', '.join([*keys(plan), 'output_ms'])}"])
    return select(["*", "output_ms AS window_ms"], averages)


def _merged(aggregate: Aggregate) -> str:
    if aggregate in QUANTILES:
        return f"toFloat64(quantileExactWeighted({QUANTILES[aggregate]})(v, toUInt64(cover_ms)))"
    return f"toFloat64({MERGED[aggregate]})"


def _quality(plan: SeriesPlan, parameters: Parameters) -> Sequence[str]:
    return quality_columns(plan, parameters) if plan.selected.aggregate in QUANTILES else _MERGED_QUALITY


def _with_models(plan: SeriesPlan, source: str, tables: ScopedTables) -> str:
    """Return the source with the product of each GPU beside it, where series are told apart by it."""
    if Group.GPU_MODEL not in plan.groups:
        return source
    columns = ["tenant_id", "entity", "any(gpu_model) AS gpu_model"]
    models = tables.table("entities", columns, tail=["GROUP BY tenant_id, entity"])
    return f"{source} AS figures ANY LEFT JOIN {models} AS products USING (tenant_id, entity)"
