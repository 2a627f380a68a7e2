"""Turn a plan and a scope into one SQL statement.

The only compiler: without a scope there is no statement. Values are bound parameters; identifiers come from the
catalogue and from this package.
"""

from collections.abc import Sequence

from secondsight.access.scope import Scope
from secondsight.query.aggregates import QUANTILES, Aggregate
from secondsight.query.members import AVERAGE, MERGED, exact_cast, members_of
from secondsight.query.plan import SeriesPlan
from secondsight.query.request import Group
from secondsight.query.scoped import ScopedTables
from secondsight.query.sketches import sketches
from secondsight.query.statement import LIMITS, ONE_THREAD, Parameters, Statement, select
from secondsight.query.windows import (
    IDENTITY,
    OWNERS,
    keys,
    quality_columns,
    quality_names,
    samples,
    windows,
    with_products,
)
from secondsight.store.bins import bin_figure
from secondsight.store.spec import quoted

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
_JOINED = {
    "weighted": "sum(weighted)",
    "covered": "sum(covered)",
    "lowest": "min(lowest)",
    "highest": "max(highest)",
    "latest": "argMax(latest, latest_at)",
    "latest_at": "max(latest_at)",
    "gained": "sum(gained)",
    "paired": "sum(paired)",
    "resets": "sum(resets)",
    "changes": "sum(changes)",
}
"""Member -> what it is over several windows of one entity."""
_WIDE = frozenset({"weighted", "gained"})
"""Members that may have 128 bits; they travel as text."""
_SAMPLE_COLUMNS = ("collector_id", "source_rank", "t", "v", "window_ms", "cover_ms")
_SAMPLE_FLAGS = ("is_late", "is_slot", "is_gap")


def compile_series(plan: SeriesPlan, scope: Scope, beside: str = "") -> Statement:
    """Return the statement whose rows are the points of a plan, and one row per entity for coverage.

    Columns: `bucket_ms`; those of `label_columns`; `figure` (Float64, in stored units); `slots` (distinct stored ones);
    `first_ms` and `last_ms` (event times); `gaps` (inside the range), `late`, `rows` (all three of 1 s rows alone);
    `is_entity`, which is 1 in the rows for coverage: these are labelled by `IDENTITY`.

    Args:
        plan: What is read.
        scope: What may be read.
        beside: Table of rows of `compile_beside` that are taken together with those of the plan; "" for none.

    Raises:
        TypeError: There is no scope.
        Rejected(forbidden_metric): The scope denies the metric.
    """
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    tables.check_metric(plan.selected.metric.name)
    is_sketched = plan.selected.aggregate in QUANTILES and plan.legs
    sql = _percentiles(plan, tables, parameters) if is_sketched else _figures(plan, tables, parameters, beside)
    return Statement(sql[1:-1], parameters.values(), LIMITS | ONE_THREAD if _is_little(plan) else LIMITS)


def compile_beside(plan: SeriesPlan, scope: Scope) -> Statement:
    """Return the statement for what a plan's rows give to output windows, before entities are taken together.

    Raises:
        TypeError: There is no scope.
        Rejected(forbidden_metric): The scope denies the metric.
    """
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    tables.check_metric(plan.selected.metric.name)
    if plan.selected.aggregate in QUANTILES:
        source = samples(plan, plan.raw or plan.span, tables, parameters)
        columns = [*keys(plan), *_SAMPLE_COLUMNS, "head", *_SAMPLE_FLAGS]
        return Statement(select(columns, source)[1:-1], parameters.values())
    names = [member.name for member in members_of(plan.selected.aggregate)]
    members = [f"{_travelling(name, plan)} AS all_{name}" for name in names]
    quality = [f"{text.replace(' AS ', ' AS all_')}" for text in _merged_quality(plan)]
    columns = [*keys(plan), f"{bucket('window_ms', plan, parameters)} AS all_window_ms", *members, *quality]
    group = f"GROUP BY {', '.join([*keys(plan), 'all_window_ms'])}"
    return Statement(select(columns, windows(plan, tables, parameters), tail=[group])[1:-1], parameters.values())


def label_columns(groups: Sequence[Group]) -> list[str]:
    """Return the columns that tell the series of a grouping apart, in ladder order."""
    return list(dict.fromkeys(["tenant_id", *(column for group in groups for column in COLUMNS[group])]))


def _is_little(plan: SeriesPlan) -> bool:
    """Tell whether nothing but rows of whole clusters is read, which are few: threads would wait for each other."""
    is_pooled = bool(plan.legs) and all(leg.is_pooled for leg in plan.legs)
    return is_pooled and plan.head is None and plan.raw is None


def _figures(plan: SeriesPlan, tables: ScopedTables, parameters: Parameters, beside: str = "") -> str:
    labels = label_columns(plan.groups)
    columns = [
        *dict.fromkeys([*IDENTITY, *labels]),
        f"{bucket('window_ms', plan, parameters)} AS bucket_ms",
        f"{_merged(plan.selected.aggregate)} AS figure",
        *_quality(plan, parameters, beside),
        "grouping(bucket_ms) AS is_entity",
    ]
    sets = f"GROUP BY GROUPING SETS (({', '.join(['bucket_ms', *labels])}), ({', '.join(IDENTITY)}))"
    source = _with_models(plan, _source(plan, tables, parameters, beside), tables)
    return select(columns, source, tail=[sets])


def _percentiles(plan: SeriesPlan, tables: ScopedTables, parameters: Parameters) -> str:
    """Return the points that sketches give, and 1 s rows that are put into the same bins."""
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
    source = sketches(plan, tables, parameters)
    return select(columns, source if plan.is_pooled else _with_models(plan, source, tables), tail=[sets])


def bucket(time: str, plan: SeriesPlan, parameters: Parameters) -> str:
    """Return the start of the output window that a time in epoch ms lies in."""
    if plan.whole:
        start = parameters.bind(plan.span.from_ms, "Int64")
        return f"{time} * 0 + {start}"
    if plan.edges:
        return f"toInt64(roundDown({time}, {parameters.bind_integers(plan.edges)}))"
    width = parameters.bind(plan.resolution_ms, "Int64")
    return f"intDiv({time}, {width}) * {width}"


def _source(plan: SeriesPlan, tables: ScopedTables, parameters: Parameters, beside: str) -> str:
    if plan.selected.aggregate in QUANTILES:
        source = samples(plan, plan.raw or plan.span, tables, parameters)
        return _with_samples(plan, source, beside) if beside else source
    source = windows(plan, tables, parameters)
    source = _with_windows(plan, source, beside) if beside else source
    return _entity_averages(plan, source, parameters) if plan.selected.aggregate is Aggregate.SUM else source


def _with_windows(plan: SeriesPlan, source: str, beside: str) -> str:
    """Return the windows of a plan and those that another store gave, as `compile_beside` names them."""
    names = [*keys(plan), "window_ms", *(member.name for member in members_of(plan.selected.aggregate))]
    there = [f"all_{name} AS {name}" for name in ("window_ms", *quality_names(plan))]
    members = [f"{_arrived(member.name, plan)} AS {member.name}" for member in members_of(plan.selected.aggregate)]
    mine = select([*names, *quality_names(plan)], source)
    theirs = select([*keys(plan), there[0], *members, *there[1:]], quoted(beside))
    return f"({mine} UNION ALL {theirs})"


def _with_samples(plan: SeriesPlan, source: str, beside: str) -> str:
    names = [*keys(plan), *_SAMPLE_COLUMNS, "head"]
    mine = select([*names, *_SAMPLE_FLAGS], source)
    theirs = select([*names, *(f"{name} = 1 AS {name}" for name in _SAMPLE_FLAGS)], quoted(beside))
    return f"({mine} UNION ALL {theirs})"


def _travelling(name: str, plan: SeriesPlan) -> str:
    is_text = name in _WIDE and exact_cast(plan.selected.metric) != "toFloat64"
    return f"toString({_JOINED[name]})" if is_text else _JOINED[name]


def _arrived(name: str, plan: SeriesPlan) -> str:
    is_text = name in _WIDE and exact_cast(plan.selected.metric) != "toFloat64"
    return f"toInt128(all_{name})" if is_text else f"all_{name}"


def _entity_averages(plan: SeriesPlan, source: str, parameters: Parameters) -> str:
    """Return one row per entity, part and output window, with the average that is to be added up."""
    columns = [
        *keys(plan),
        f"{bucket('window_ms', plan, parameters)} AS output_ms",
        f"{AVERAGE} AS average",
        *_merged_quality(plan),
    ]
    averages = select(columns, source, tail=[f"GROUP BY {', '.join([*keys(plan), 'output_ms'])}"])
    return select(["*", "output_ms AS window_ms"], averages)


def _merged(aggregate: Aggregate) -> str:
    if aggregate in QUANTILES:
        return f"toFloat64(quantileExactWeighted({QUANTILES[aggregate]})(v, toUInt64(cover_ms)))"
    return f"toFloat64({MERGED[aggregate]})"


def _quality(plan: SeriesPlan, parameters: Parameters, beside: str) -> Sequence[str]:
    of_samples = plan.selected.aggregate in QUANTILES
    found = quality_columns(plan, parameters) if of_samples else _merged_quality(plan)
    if not beside or plan.raw is None:
        return found
    last, cut = "t" if of_samples else "last_ms", parameters.bind(plan.raw.to_ms, "Int64")
    seam = f"toInt64({_is_apart(last, cut)})"
    return [
        f"{text.removesuffix(' AS gaps')} + {seam} AS gaps" if text.endswith(" AS gaps") else text for text in found
    ]


def _is_apart(last: str, cut: str) -> str:
    """Return whether a gap lies over the instant at which two stores' rows meet, which neither of them knows of."""
    behind = f"{last} >= {cut}"
    first = f"minIf(head, {behind})"
    return f"ifNull({first}[1] - maxIf({last}, NOT ({behind})) > {first}[2], false) AND countIf(NOT ({behind})) > 0"


def _merged_quality(plan: SeriesPlan) -> Sequence[str]:
    return (*_MERGED_QUALITY, "min(head) AS head") if plan.is_part else _MERGED_QUALITY


def _with_models(plan: SeriesPlan, source: str, tables: ScopedTables) -> str:
    """Return the source with the product of each GPU beside it, where series are told apart by it."""
    has_product = plan.is_pooled and plan.selected.aggregate not in QUANTILES
    return source if Group.GPU_MODEL not in plan.groups or has_product else with_products(source, tables)
