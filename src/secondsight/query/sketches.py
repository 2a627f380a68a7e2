"""Turn a plan for percentiles into a subquery of sketches: one row per series and stored window, or per sample.

Rows of rollups have a sketch each. Samples of which no sketch is made yet are put into the same bins, so that all of it
adds up.
"""

from secondsight.query.members import value_of_last
from secondsight.query.plan import Leg, SeriesPlan, Span
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, select
from secondsight.query.windows import (
    alike,
    best_source,
    filter_predicates,
    keys,
    pooled_keys,
    pooled_predicates,
    rollup_bounds,
    samples,
    slots_expression,
)
from secondsight.store.bins import bin_expression
from secondsight.store.coarse import sketch_columns
from secondsight.store.spec import quoted

_COLUMNS = ("bins", "weights", "lowest", "highest", "slots", "first_ms", "last_ms")


def sketches(plan: SeriesPlan, tables: ScopedTables, parameters: Parameters) -> str:
    """Return the subquery of sketches of a plan."""
    fine, pooled = (
        [_leg(plan, leg, tables, parameters) for leg in plan.legs if leg.is_pooled is kind] for kind in (False, True)
    )
    ends = [span for span in (plan.head, plan.raw) if span is not None]
    fine += [_binned(plan, span, tables, parameters) for span in ends]
    legs = alike(plan, fine, pooled, _COLUMNS, tables) if pooled else fine
    union = legs[0] if len(legs) == 1 else f"({' UNION ALL '.join(legs)})"
    return select(["*"], union, tail=[best_source("window_ms")]) if plan.several_sources else union


def _leg(plan: SeriesPlan, leg: Leg, tables: ScopedTables, parameters: Parameters) -> str:
    metric = plan.selected.metric
    key = parameters.bind(metric.name, "String")
    bins, weights = map(quoted, sketch_columns(metric))
    columns = [
        *(pooled_keys(plan) if leg.is_pooled else [*keys(plan), "collector_id", "source_rank"]),
        "toInt64(toUnixTimestamp(window_start)) * 1000 AS window_ms",
        f"{bins} AS bins",
        f"{weights} AS weights" if leg.is_pooled else f"CAST({weights}, 'Array(UInt64)') AS weights",
        f"toFloat64({quoted(metric.name + '_min')}) AS lowest",
        f"toFloat64({quoted(metric.name + '_max')}) AS highest",
        f"toInt64({slots_expression(leg, key)}) AS slots",
        "toUnixTimestamp64Milli(first_event_time) AS first_ms",
        "toUnixTimestamp64Milli(last_event_time) AS last_ms",
    ]
    if leg.is_pooled:
        where = pooled_predicates(plan, leg, parameters)
    else:
        where = [*rollup_bounds(leg.span, parameters, leg.resolution), "samples > 0"]
        where += [f"isNotNull({value_of_last(metric)})", *filter_predicates(plan.filters, tables, parameters)]
    return tables.table(plan.rollup_table(leg), columns, where, final=True)


def _binned(plan: SeriesPlan, span: Span, tables: ScopedTables, parameters: Parameters) -> str:
    """Return samples as sketches of one value each."""
    due = parameters.bind(plan.due_ms, "Int64")
    columns = [
        *keys(plan),
        "collector_id",
        "source_rank",
        "window_ms",
        f"[{bin_expression('v')}] AS bins",
        "[toUInt64(cover_ms)] AS weights",
        "toFloat64(v) AS lowest",
        "toFloat64(v) AS highest",
        f"toInt64(is_slot AND t < {due}) AS slots",
        "t AS first_ms",
        "t AS last_ms",
    ]
    return select(columns, samples(plan, span, tables, parameters), where=["cover_ms > 0"])
