"""Say which rule of the catalogue a metric breaks, if any.

Each rule is a function from a metric to None or (what is wrong, what to write instead).
"""

import re
from collections.abc import Callable, Iterator

from secondsight.catalog.dtype import dtype_limits
from secondsight.catalog.metric import DTYPES, Metric, MetricType, PartsAdd, RollupSet, Source

Wrong = tuple[str, str]

NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
LABEL = re.compile(r"[a-z][a-z0-9_]*")

UNIT_SUFFIXES = {
    "s": "_seconds",
    "By": "_bytes",
    "By/s": "_bytes_per_second",
    "bit/s": "_bits_per_second",
    "Cel": "_celsius",
    "W": "_watts",
    "Hz": "_hertz",
    "J": "_joules",
}
"""Units that a name must end with, `_total` of counters left out."""

RATIO_SUFFIX = "_ratio"

ROLLUPS = {
    MetricType.GAUGE: (RollupSet.DISTRIBUTION, RollupSet.LEVEL, RollupSet.CONSTANT),
    MetricType.COUNTER: (RollupSet.INCREASE,),
    MetricType.STATE: (RollupSet.STATE,),
    MetricType.INFO: (RollupSet.STATE,),
    MetricType.EVENT: (RollupSet.EVENT,),
    MetricType.HISTOGRAM: (RollupSet.HISTOGRAM,),
}
"""Rollup sets that each type may have."""

INFO_LABEL = "attribute"
"""Part label by which a source of an info says which attribute it gives."""


def broken_rule(metric: Metric) -> Wrong | None:
    """Return the first rule that a metric breaks, as (what is wrong, what to write), or None."""
    return next((wrong for rule in RULES if (wrong := rule(metric)) is not None), None)


def _name(metric: Metric) -> Wrong | None:
    if not NAME.fullmatch(metric.name):
        return "the name is not lower_case_words", "letters a-z, digits and single underscores, a letter first"
    if not metric.description:
        return "description is missing", "one sentence that says what the value means"
    return None


def _counter_suffix(metric: Metric) -> Wrong | None:
    if (metric.type is MetricType.COUNTER) == metric.name.endswith("_total"):
        return None
    return "the suffix _total and the type disagree", "counters end in _total, nothing else does"


def _unit_suffix(metric: Metric) -> Wrong | None:
    base = metric.name.removesuffix("_total")
    wanted = UNIT_SUFFIXES.get(metric.unit)
    if wanted is not None and not base.endswith(wanted):
        return f"unit {metric.unit!r} and the name disagree", f"a name in {metric.unit} ends in {wanted}"
    worn = next((suffix for suffix in (*UNIT_SUFFIXES.values(), RATIO_SUFFIX) if base.endswith(suffix)), None)
    if worn not in (None, wanted) and (worn != RATIO_SUFFIX or metric.unit != "1"):
        return f"the suffix {worn} and unit {metric.unit!r} disagree", "state the unit that the suffix names"
    return None


def _rollup(metric: Metric) -> Wrong | None:
    legal = ROLLUPS[metric.type]
    if metric.rollup in legal:
        return None
    return f"a {metric.type} has no rollup {metric.rollup}", f"one of {', '.join(legal)}"


def _storage(metric: Metric) -> Wrong | None:
    if not metric.is_scalar:
        stored = metric.dtype or metric.resolution
        return (f"a {metric.type} has no column", "leave out dtype and resolution") if stored else None
    if metric.dtype not in DTYPES:
        return f"dtype {metric.dtype!r} is unknown", f"one of {', '.join(DTYPES)}"
    if metric.resolution < 0 or (metric.dtype == "f64") != (metric.resolution == 0):
        return "dtype and resolution disagree", "resolution > 0 and an integer dtype, or resolution=0 and f64"
    if metric.type is not MetricType.GAUGE and metric.dtype not in ("u8", "u16", "u32", "u64"):
        return f"a {metric.type} is stored unsigned", "one of u8, u16, u32, u64"
    return None


def _range(metric: Metric) -> Wrong | None:
    least, greatest = metric.minimum, metric.maximum
    if least is not None and greatest is not None and least > greatest:
        return "min is above max", "min <= max"
    if metric.clamp_maximum is not None and (greatest is None or metric.clamp_maximum > greatest):
        return "clamp is above max", "values in (clamp, max] become clamp: give a max above it"
    if metric.type is not MetricType.COUNTER and (metric.step_maximum is not None or metric.cap is not None):
        return f"a {metric.type} has no step and no cap", "only counters have them"
    return None


def _fits(metric: Metric) -> Wrong | None:
    if not metric.is_scalar or metric.dtype == "f64":
        return None
    lowest, highest = dtype_limits(metric.dtype)
    bounds = [bound / metric.resolution for bound in (metric.minimum, metric.maximum, metric.cap) if bound is not None]
    bounds += [value for value, _ in metric.values]
    if all(lowest <= round(bound) <= highest for bound in bounds):
        return None
    return f"the range does not fit into {metric.dtype} at resolution {metric.resolution:g}", "a wider dtype"


def _states(metric: Metric) -> Wrong | None:
    if metric.type is MetricType.STATE and not metric.values and not metric.bitmask:
        return "a state needs its values", 'write values={0="off", 1="on"}, or bitmask=true'
    if metric.type not in (MetricType.STATE, MetricType.EVENT) and (metric.values or metric.bitmask):
        return f"a {metric.type} has no values", "only states and events have them"
    return None


def _labels(metric: Metric) -> Wrong | None:
    if list(metric.labels) != sorted(set(metric.labels)):
        return "labels are not sorted or repeat", f"labels={sorted(set(metric.labels))}"
    if not all(LABEL.fullmatch(label) for label in metric.labels):
        return "a label is not lower_case_words", "letters a-z, digits and underscores"
    if bool(metric.labels) != (metric.parts_maximum > 1):
        return "labels and parts_maximum disagree", "parts_maximum > 1 with labels, none without"
    if metric.parts_add is not PartsAdd.NONE and not metric.labels:
        return "parts_add without labels", "name the labels that make the parts"
    return None


def _sources(metric: Metric) -> Wrong | None:
    seen: set[tuple[object, ...]] = set()
    for source in metric.sources:
        wrong = next(_source_faults(metric, source), None)
        if wrong is not None:
            return wrong
        key = (source.system, source.name, source.match)
        if key in seen:
            return f"source {source.name!r} is named twice", "one entry for each name and match"
        seen.add(key)
    return None


def _source_faults(metric: Metric, source: Source) -> Iterator[Wrong]:
    labels = metric.labels if metric.type is not MetricType.INFO else (INFO_LABEL,)
    named = [label for label, _ in source.part] + [label for _, label in source.rename]
    if not source.name:
        yield "a source has no name", 'write name="..."'
    if source.system == "dcgm" and not source.name.startswith(("DCGM_", "dcgm_")):
        yield f"{source.name!r} is no DCGM name", "the full name, as an exporter prints it"
    if not source.scale > 0:
        yield f"scale of {source.name!r} is not above 0", "source value x scale = value in the metric's unit"
    if metric.values and not {target for _, target in source.translate} <= {value for value, _ in metric.values}:
        yield f"translate of {source.name!r} leads to no legal value", "translate into the keys of values"
    if sorted(named) != sorted(set(named)) or not set(named) <= set(labels):
        yield f"part or rename of {source.name!r} names a label twice, or one that the metric lacks", f"of {labels}"


RULES: tuple[Callable[[Metric], Wrong | None], ...] = (
    _name,
    _counter_suffix,
    _unit_suffix,
    _rollup,
    _storage,
    _range,
    _fits,
    _states,
    _labels,
    _sources,
)
