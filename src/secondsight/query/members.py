"""Say which figures of a window each aggregate needs, and how they merge over windows and entities.

A member has one expression per source: over samples (1 s rows prepared by `windows.py`), over stored 30 s rows, and one
that merges it. All figures are in stored integers; sums are exact, so that no order of merging shows.
"""

from dataclasses import dataclass

from secondsight.catalog.members import may_wrap
from secondsight.catalog.metric import Metric, RollupSet
from secondsight.process.cells import WINDOW_MS
from secondsight.query.aggregates import QUANTILES, Aggregate
from secondsight.store.spec import quoted

FLOAT = "f64"


@dataclass(frozen=True, slots=True)
class Member:
    """One figure of a window.

    Attributes:
        from_samples: Aggregate over columns v, t, cover_ms, increase, pair_ms, is_reset, is_change.
        of_row: What one row of rollups says of it; `{name}` and `{key}` are the metric as column prefix and as map key.
        fold: Aggregate that makes the figure of several rows.
        cast: Function that gives the figure its type.
    """

    name: str
    from_samples: str
    of_row: str
    fold: str = "sum"
    cast: str = "toInt64"


_COVERED = "if(mapContains(covered_other, {key}), covered_other[{key}], covered_ms)"
_PAIRED = "if(isNull({name_increase}), 0, if(mapContains(increase_other, {key}), increase_other[{key}], covered_ms))"
_TOLD = "toUnixTimestamp64Milli(last_event_time)"

WEIGHTED = Member("weighted", "{wide}(sum({exact}(v) * cover_ms))", "{name_sum}", cast="{wide}")
COVERED = Member("covered", "toInt64(sum(cover_ms))", _COVERED)
LOWEST = Member("lowest", "toFloat64(min(v))", "{name_min}", "min", "toFloat64")
HIGHEST = Member("highest", "toFloat64(max(v))", "{name_max}", "max", "toFloat64")
LATEST = Member("latest", "toFloat64(argMax(v, t))", "{name_last}, last_event_time", "argMax", "toFloat64")
LATEST_AT = Member("latest_at", "max(t)", _TOLD, "max")
INCREASE = Member("gained", "{wide}(sum(increase))", "{name_increase}", cast="{wide}")
PAIRED = Member("paired", "toInt64(sum(pair_ms))", _PAIRED)
RESETS = Member("resets", "toInt64(sum(is_reset))", "resets[{key}]")
CHANGES = Member("changes", "toInt64(sum(is_change))", "changes[{key}]")

_SUFFIXES = ("sum", "min", "max", "last", "increase")

NEEDED: dict[Aggregate, tuple[Member, ...]] = {
    Aggregate.AVG: (WEIGHTED, COVERED),
    Aggregate.SUM: (WEIGHTED, COVERED),
    Aggregate.MIN: (LOWEST,),
    Aggregate.MAX: (HIGHEST,),
    Aggregate.LAST: (LATEST, LATEST_AT),
    Aggregate.COUNT: (COVERED,),
    Aggregate.RATE: (INCREASE, PAIRED),
    Aggregate.INCREASE: (INCREASE,),
    Aggregate.RESETS: (RESETS,),
    Aggregate.CHANGES: (CHANGES,),
}

AVERAGE = "if(sum(covered) > 0, toFloat64(sum(weighted)) / sum(covered), NULL)"
"""One entity's own average in an output window, before entities are added up."""

MERGED: dict[Aggregate, str] = {
    Aggregate.AVG: AVERAGE,
    Aggregate.SUM: "sum(average)",
    Aggregate.MIN: "min(lowest)",
    Aggregate.MAX: "max(highest)",
    Aggregate.LAST: "argMax(latest, latest_at)",
    Aggregate.COUNT: "sum(covered) / 1000",
    Aggregate.RATE: "if(sum(paired) > 0, toFloat64(sum(gained)) * 1000 / sum(paired), NULL)",
    Aggregate.INCREASE: "toFloat64(sum(gained))",
    Aggregate.RESETS: "sum(resets)",
    Aggregate.CHANGES: "sum(changes)",
}


def members_of(aggregate: Aggregate) -> tuple[Member, ...]:
    """Return what an aggregate needs; percentiles need samples themselves, so nothing."""
    return () if aggregate in QUANTILES else NEEDED[aggregate]


def sample_expression(member: Member, metric: Metric, width_ms: int) -> str:
    """Return the member of a window of some width over its samples."""
    return member.from_samples.format(**(_casts(metric) | {"exact": weight_cast(metric, width_ms)}))


def rollup_expression(member: Member, metric: Metric, key: str, *, is_finest: bool) -> str:
    """Return the member of a window over its rollup rows; `key` is the bound name of the metric."""
    return _of_rows(f"{member.cast}({member.fold}({member.of_row}))", metric, key, is_finest=is_finest)


def row_expression(member: Member, metric: Metric, key: str) -> str:
    """Return what one row of whole clusters says of a member; `key` is the bound name of the metric."""
    return _of_rows(f"{member.cast}({member.of_row})", metric, key, is_finest=False)


def _of_rows(text: str, metric: Metric, key: str, *, is_finest: bool) -> str:
    columns = {f"name_{suffix}": quoted(f"{metric.name}_{suffix}") for suffix in _SUFFIXES}
    columns["name_sum"] = sum_expression(metric, key, is_finest=is_finest)
    return text.format(key=key, **columns, **_casts(metric))


def sum_expression(metric: Metric, key: str, *, is_finest: bool) -> str:
    """Return the sum of a gauge in a rollup row; those of 30 s that may have left 64 bits are brought back.

    What is stored of them is right but for a multiple of 2^64, and at least the least value for all that it covers.
    """
    total = quoted(f"{metric.name}_sum")
    if not (is_finest and may_wrap(metric, WINDOW_MS)):
        return total
    least = f"toInt128({quoted(f'{metric.name}_min')}) * {covered_expression(key)}"
    return f"({least} + bitAnd(toInt128({total}) - {least}, toInt128('{2**64 - 1}')))"


def covered_expression(key: str) -> str:
    """Return the covered ms of one metric in a 30 s row; `key` is the bound name of the metric."""
    return _COVERED.format(key=key)


def value_of_last(metric: Metric) -> str:
    """Return the column of the last value, which every rollup set of a scalar has."""
    return quoted(f"{metric.name}_last")


def value_of_pool(metric: Metric) -> str:
    """Return a column that rows of clusters have wherever they have a gauge or a counter."""
    return quoted(f"{metric.name}_{'increase' if metric.rollup is RollupSet.INCREASE else 'min'}")


def exact_cast(metric: Metric) -> str:
    """Return the function that gives a value the type in which one window's sums are exact, as stored rollups are."""
    return "toFloat64" if metric.dtype == FLOAT else "toInt64"


def weight_cast(metric: Metric, width_ms: int) -> str:
    """Return the function that gives a value the type in which it may be weighed over so long."""
    return "toInt128" if may_wrap(metric, width_ms) else exact_cast(metric)


def _casts(metric: Metric) -> dict[str, str]:
    """Return the functions for sums over one window, which fit into 64 bits, and over many, which need 128."""
    return {"exact": exact_cast(metric), "wide": "toFloat64" if metric.dtype == FLOAT else "toInt128"}
