"""Turn plans of several gauges and aggregates over one range into one statement without window functions.

The figures are those of `compile.py` as long as no two samples of a series are nearer than their interval, so that the
next sample cuts no cover short. The statement says of each entity whether that holds (`is_steady`); where it does not,
the answer is void and `compile.py` is to be asked.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from secondsight.access.scope import Scope
from secondsight.query.aggregates import QUANTILES, Aggregate
from secondsight.query.compile import bucket, label_columns
from secondsight.query.coverage import GAP_MS, GAP_SLOTS
from secondsight.query.members import covered_expression, exact_cast, sum_expression, value_of_last, weight_cast
from secondsight.query.plan import RAW_MS, Leg, SeriesPlan
from secondsight.query.request import Group
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement, select
from secondsight.query.windows import (
    FAR_MS,
    IDENTITY,
    LATE_MS,
    filter_predicates,
    keys,
    raw_bounds,
    rollup_bounds,
    slots_expression,
)
from secondsight.store.coarse import FINEST
from secondsight.store.spec import quoted

_QUALITY = ("slots", "first_ms", "last_ms", "gaps", "late", "rows")
_AGGREGATES = frozenset({Aggregate.AVG, Aggregate.MIN, Aggregate.MAX, Aggregate.COUNT, Aggregate.LAST, *QUANTILES})
_NEEDED: dict[Aggregate, tuple[str, ...]] = {
    Aggregate.AVG: ("weighted", "covered"),
    Aggregate.MIN: ("lowest",),
    Aggregate.MAX: ("highest",),
    Aggregate.LAST: ("latest",),
    Aggregate.COUNT: ("covered",),
    **{aggregate: ("covered", aggregate.value) for aggregate in QUANTILES},
}
_COMPUTE: Any = pc


def joined(plans: Sequence[SeriesPlan]) -> list[list[int]]:
    """Return positions of plans that one statement each can answer."""
    alike: dict[Any, list[int]] = defaultdict(list)
    for position, plan in enumerate(plans):
        alike[replace(plan, selected=plans[0].selected)].append(position)
    return [positions for positions in alike.values() if suits_joint(plans[positions[0]], plans, positions)]


def suits_joint(shape: SeriesPlan, plans: Sequence[SeriesPlan], positions: Sequence[int]) -> bool:
    """Tell whether plans of one shape are gauges of one source, in windows that hold several samples."""
    asked = [plans[position].selected.aggregate for position in positions]
    gauges = all(aggregate in _AGGREGATES and not (shape.legs and aggregate in QUANTILES) for aggregate in asked)
    gauges = gauges and not shape.is_pooled and not shape.is_part
    return gauges and not shape.several_sources and shape.base_ms > RAW_MS and Group.GPU_MODEL not in shape.groups


def compile_joint(plans: Sequence[SeriesPlan], scope: Scope) -> Statement:
    """Return the statement for some plans that differ in metric and aggregate alone; `figures_of` reads its rows.

    Raises:
        TypeError: There is no scope.
        Rejected(forbidden_metric): The scope denies one of the metrics.
    """
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    columns = _columns(plans)
    for plan in columns:
        tables.check_metric(plan.selected.metric.name)
    shape = plans[0]
    legs = []
    legs += [_rollup_leg(plans, leg, tables, parameters) for leg in shape.legs]
    if shape.raw is not None or shape.head is not None:
        legs.append(_raw_leg(plans, tables, parameters))
    source = legs[0] if len(legs) == 1 else f"({' UNION ALL '.join(legs)})"
    labels = label_columns(shape.groups)
    sets = f"GROUP BY GROUPING SETS (({', '.join(['bucket_ms', *labels])}), ({', '.join(IDENTITY)}))"
    figures = [f"toFloat64({_figure(plan, columns.index(_bare(plan)))}) AS figure_{k}" for k, plan in enumerate(plans)]
    quality = [text for m in range(len(columns)) for text in _merged_quality(m, shape)]
    steady = f"toUInt8({_steady(len(columns), parameters.bind(shape.base_ms, 'Int64'))}) AS is_steady"
    names = [*dict.fromkeys([*IDENTITY, *labels]), "window_ms AS bucket_ms"]
    answer = [*names, *figures, *quality, "grouping(bucket_ms) AS is_entity", steady]
    return Statement(select(answer, source, tail=[sets])[1:-1], parameters.values())


def is_steady(rows: Any) -> bool:
    """Tell whether the rows of `compile_joint` hold for every entity."""
    entities = rows.filter(_COMPUTE.equal(rows["is_entity"], 1))
    return bool(_COMPUTE.all(_COMPUTE.equal(entities["is_steady"], 1), min_count=0).as_py())


def figures_of(rows: Any, plans: Sequence[SeriesPlan]) -> list[Any]:
    """Return, for each plan, the rows that `compile.compile_series` would give."""
    columns = _columns(plans)
    labels = list(dict.fromkeys([*IDENTITY, *label_columns(plans[0].groups)]))
    found = []
    for position, plan in enumerate(plans):
        m = columns.index(_bare(plan))
        there = rows.filter(_COMPUTE.is_valid(rows[f"all_first_ms_{m}"]))
        named = {name: there[name] for name in (*labels, "bucket_ms")} | {"figure": there[f"figure_{position}"]}
        named |= {name: there[f"all_{name}_{m}"] for name in _QUALITY} | {"is_entity": there["is_entity"]}
        found.append(pa.table(named))
    return found


def _bare(plan: SeriesPlan) -> SeriesPlan:
    return replace(plan, selected=replace(plan.selected, aggregate=Aggregate.LAST))


def _columns(plans: Sequence[SeriesPlan]) -> list[SeriesPlan]:
    """Return one plan per distinct metric; its position is the number of the metric's columns."""
    return list(dict.fromkeys(_bare(plan) for plan in plans))


def _needed(plans: Sequence[SeriesPlan], column: SeriesPlan) -> list[str]:
    """Return the figures that the aggregates of one metric are made of."""
    metric = column.selected.metric
    asked = [plan.selected.aggregate for plan in plans if plan.selected.metric is metric]
    return list(dict.fromkeys(name for aggregate in asked for name in _NEEDED[aggregate]))


def _counts_gaps(shape: SeriesPlan) -> bool:
    """Tell whether gaps are counted: 30 s rows hide them."""
    return shape.rollup is None


def _raw_leg(plans: Sequence[SeriesPlan], tables: ScopedTables, parameters: Parameters) -> str:
    shape, columns = plans[0], _columns(plans)
    spans = [span for span in (shape.head, shape.raw) if span is not None]
    ranges = " OR ".join(f"({' AND '.join(raw_bounds(span, parameters))})" for span in spans)
    base = parameters.bind(shape.base_ms, "Int64")
    values = [f"{quoted(column.selected.metric.name)} AS v_{m}" for m, column in enumerate(columns)]
    some = " OR ".join(f"isNotNull({quoted(column.selected.metric.name)})" for column in columns)
    times = [
        "toUnixTimestamp64Milli(event_time) AS t",
        "toInt64(greatest(interval_ms, 1)) AS cadence_ms",
        f"least(cadence_ms, intDiv(t, {base}) * {base} + {base} - t) AS cover_ms",
        f"toUnixTimestamp64Milli(ingest_time) - t > {LATE_MS} AS is_late",
        f"{bucket('t', shape, parameters)} AS output_ms",
        f"t < {parameters.bind(shape.head.to_ms if shape.head else 0, 'Int64')} AS is_head",
    ]
    where = [f"({ranges})", f"({some})", *filter_predicates(shape.filters, tables, parameters)]
    numbers = [f"sipHash64({name}) AS number_{name}" for name in keys(shape)]
    rows = tables.table(shape.raw_table, [*keys(shape), *numbers, *times, *values], where, final=shape.final_raw)
    due = parameters.bind(shape.due_ms, "Int64")
    members = [text for m, column in enumerate(columns) for text in _sampled(m, column, _needed(plans, column))]
    quality = [text for m in range(len(columns)) for text in _sampled_quality(m, shape, due)]
    cadence = ["min(cadence_ms) AS least_ms", "max(cadence_ms) AS most_ms"]
    group = f"GROUP BY {', '.join([*(f'number_{name}' for name in keys(shape)), 'output_ms', 'is_head'])}"
    names = [f"any({name}) AS {name}" for name in keys(shape)]
    return select([*names, "output_ms AS window_ms", *cadence, *members, *quality], rows, tail=[group])


def _sampled(m: int, column: SeriesPlan, needed: Sequence[str]) -> list[str]:
    """Return the figures of one metric over the samples of a window."""
    metric, there = column.selected.metric, f"isNotNull(v_{m})"
    wide = "toFloat64" if exact_cast(metric) == "toFloat64" else "toInt128"
    weight = weight_cast(metric, column.resolution_ms)
    made = {
        "weighted": f"{wide}(sum({weight}(v_{m}) * cover_ms))",
        "covered": f"toInt64(sumIf(cover_ms, {there}))",
        "lowest": f"toFloat64(min(v_{m}))",
        "highest": f"toFloat64(max(v_{m}))",
        "latest": f"toFloat64(argMax(v_{m}, t))",
    }
    for quantile, share in QUANTILES.items():
        figure = f"quantileExactWeightedStateIf({share})(assumeNotNull(v_{m}), toUInt64(cover_ms), {there})"
        made[quantile.value] = figure
    return [f"{made[name]} AS {name}_{m}" for name in needed]


def _sampled_quality(m: int, shape: SeriesPlan, due: str) -> list[str]:
    there = f"isNotNull(v_{m})"
    steps = f"arrayPopFront(arrayDifference(arraySort(groupArrayIf(t, {there})))) AS steps_{m}"
    gaps = f"toInt64(arrayCount(step -> step > most_ms + {_long('most_ms')}, steps_{m}))"
    return [
        f"toInt64(countIf({there} AND t < {due})) AS slots_{m}",
        f"minOrNullIf(t, {there}) AS first_ms_{m}",
        f"maxOrNullIf(t, {there}) AS last_ms_{m}",
        f"toInt64(if(empty({steps}), {FAR_MS}, arrayMin(steps_{m}))) AS nearest_{m}",
        f"{gaps if _counts_gaps(shape) else 'toInt64(0)'} AS gaps_{m}",
        f"toInt64(countIf(is_late AND {there})) AS late_{m}",
        f"toInt64(countIf({there})) AS rows_{m}",
    ]


def _rollup_leg(plans: Sequence[SeriesPlan], leg: Leg, tables: ScopedTables, parameters: Parameters) -> str:
    shape, columns = plans[0], _columns(plans)
    some = " OR ".join(f"isNotNull({value_of_last(column.selected.metric)})" for column in columns)
    start = "toInt64(toUnixTimestamp(window_start)) * 1000"
    times = [f"toInt64({FAR_MS}) AS least_ms", "toInt64(0) AS most_ms"]
    members = [
        text
        for m, column in enumerate(columns)
        for text in _rolled(m, column, _needed(plans, column), parameters, is_finest=leg.resolution == FINEST)
    ]
    quality = [text for m, column in enumerate(columns) for text in _rolled_quality(m, column, leg, parameters)]
    where = [*rollup_bounds(leg.span, parameters, leg.resolution), "samples > 0", f"({some})"]
    where += filter_predicates(shape.filters, tables, parameters)
    group = [f"GROUP BY {', '.join([*keys(shape), 'window_ms'])}"]
    names = [*keys(shape), f"{bucket(start, shape, parameters)} AS window_ms"]
    final = shape.reads_final(leg)
    return tables.table(shape.rollup_table(leg), [*names, *times, *members, *quality], where, final=final, tail=group)


def _rolled(m: int, column: SeriesPlan, needed: Sequence[str], parameters: Parameters, *, is_finest: bool) -> list[str]:
    """Return the figures of one metric over the 30 s rows of a window, under the names of samples."""
    metric = column.selected.metric
    wide = "toFloat64" if exact_cast(metric) == "toFloat64" else "toInt128"
    low, high, last = (quoted(f"{metric.name}_{suffix}") for suffix in ("min", "max", "last"))
    key = parameters.bind(metric.name, "String")
    covered, total = covered_expression(key), sum_expression(metric, key, is_finest=is_finest)
    made = {
        "weighted": f"{wide}(sum({total}))",
        "covered": f"toInt64(sumIf({covered}, isNotNull({last})))",
        "lowest": f"toFloat64(min({low}))",
        "highest": f"toFloat64(max({high}))",
        "latest": f"toFloat64(argMax({last}, last_event_time))",
    }
    return [f"{made[name]} AS {name}_{m}" for name in needed]


def _rolled_quality(m: int, column: SeriesPlan, leg: Leg, parameters: Parameters) -> list[str]:
    key = parameters.bind(column.selected.metric.name, "String")
    there = f"isNotNull({value_of_last(column.selected.metric)})"
    return [
        f"toInt64(sumIf({slots_expression(leg, key)}, {there})) AS slots_{m}",
        f"minOrNullIf(toUnixTimestamp64Milli(first_event_time), {there}) AS first_ms_{m}",
        f"maxOrNullIf(toUnixTimestamp64Milli(last_event_time), {there}) AS last_ms_{m}",
        f"toInt64({FAR_MS}) AS nearest_{m}",
        *(f"toInt64(0) AS {name}_{m}" for name in ("gaps", "late", "rows")),
    ]


def _figure(plan: SeriesPlan, m: int) -> str:
    aggregate = plan.selected.aggregate
    known = f"sum(covered_{m}) > 0"
    if aggregate in QUANTILES:
        merged = f"quantileExactWeightedMerge({QUANTILES[aggregate]})({aggregate.value}_{m})"
        return f"if({known}, toFloat64({merged}), NULL)"
    merges = {
        Aggregate.AVG: f"if({known}, toFloat64(sum(weighted_{m})) / sum(covered_{m}), NULL)",
        Aggregate.MIN: f"min(lowest_{m})",
        Aggregate.MAX: f"max(highest_{m})",
        Aggregate.LAST: f"argMax(latest_{m}, last_ms_{m})",
        Aggregate.COUNT: f"sum(covered_{m}) / 1000",
    }
    return merges[aggregate]


def _merged_quality(m: int, shape: SeriesPlan) -> list[str]:
    gaps = f"sum(gaps_{m})"
    if _counts_gaps(shape) and not shape.whole:
        edges = f"arrayPopFront(arraySort(groupArray(first_ms_{m}))), arrayPopBack(arraySort(groupArray(last_ms_{m})))"
        far = f"later - earlier > max(most_ms) + {_long('max(most_ms)')}"
        gaps = f"{gaps} + arrayCount((later, earlier) -> {far}, {edges})"
    return [
        f"sum(slots_{m}) AS all_slots_{m}",
        f"min(first_ms_{m}) AS all_first_ms_{m}",
        f"max(last_ms_{m}) AS all_last_ms_{m}",
        f"{gaps} AS all_gaps_{m}",
        f"sum(late_{m}) AS all_late_{m}",
        f"sum(rows_{m}) AS all_rows_{m}",
    ]


def _steady(count: int, base: str) -> str:
    """Return the condition that no two samples of an entity in one window were nearer than its one interval.

    Samples of two windows cut nothing short, as cover ends with the window; that they are two slots is sure where a
    window is whole intervals.
    """
    nearest = " AND ".join(f"min(nearest_{m}) >= max(most_ms)" for m in range(count))
    return f"{nearest} AND max(most_ms) <= min(least_ms) AND {base} % greatest(max(most_ms), 1) = 0"


def _long(interval: str) -> str:
    return f"greatest({GAP_SLOTS} * {interval}, {GAP_MS})"
