"""Choose the figures of a question: which statistic of which metric is meant, and whether it is legal."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from secondsight.ask.question import (
    BUSY_GPU_HOURS,
    COVERAGE,
    DERIVED,
    ERROR_EVENTS,
    GPU_HOURS,
    IDLE_GPU_HOURS,
    MEMORY_SHARE,
    MISSING,
    TOGETHER,
    Measure,
    Question,
    Stat,
)
from secondsight.ask.reading import Reading
from secondsight.ask.rules import clarify
from secondsight.ask.units import shown_in
from secondsight.ask.views import Views
from secondsight.ask.vocabulary import Vocabulary
from secondsight.guard.registry import MetricKind

UTILISATION = "gpu_utilization_ratio"
ENERGY = "gpu_energy_joules_total"
TEMPERATURE = "gpu_temperature_celsius"
CLOCK = "gpu_sm_clock_hertz"
MEMORY = "gpu_memory_used_bytes"
POWER = "gpu_power_watts"

QUANTILES: Mapping[str, float] = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
_PLAIN: Mapping[str, Stat] = {"mean": Stat.MEAN, "min": Stat.MIN, "max": Stat.MAX, "last": Stat.LAST}
_DERIVED_UNITS: Mapping[str, str] = {
    GPU_HOURS: "h", IDLE_GPU_HOURS: "h", BUSY_GPU_HOURS: "h", MISSING: "s", COVERAGE: "1", MEMORY_SHARE: "1",
}  # fmt: skip
_UNIT_METRICS: Mapping[str, str] = {"J": ENERGY, "W": POWER, "Cel": TEMPERATURE, "Hz": CLOCK}
"""What a unit alone stands for: `in GPU-hours and kWh`."""
_RATIO_STATS = frozenset({Stat.SHARE_ABOVE, Stat.SHARE_BELOW, Stat.SHARE_SET})


def measures_of(reading: Reading, views: Views, vocabulary: Vocabulary) -> tuple[Measure, ...] | Question:
    """Return the figures that a question is about, or what has to be asked first."""
    found: list[Measure] = []
    for metric in metrics_of(reading, views):
        chosen = _of_metric(metric, reading, views, vocabulary)
        if isinstance(chosen, Question):
            return chosen
        found += chosen
    if reading.events or ERROR_EVENTS in reading.metrics:
        found.append(Measure(ERROR_EVENTS, Stat.COUNT))
    return with_units(tuple(dict.fromkeys(found)), reading, views, vocabulary)


def metrics_of(reading: Reading, views: Views) -> tuple[str, ...]:
    """Return the metrics that a question names, and those that its units stand for beside others."""
    found: dict[str, None] = {}
    for name in reading.metrics:
        if name in TOGETHER:
            found |= dict.fromkeys(metric for metric in TOGETHER[name] if views.measures(metric))
        elif name == MEMORY and "%" in reading.units:
            found[MEMORY_SHARE] = None
        elif name != ERROR_EVENTS and views.measures(name):
            found[name] = None
    for unit in _units(reading, found):
        fits = any(shown_in(base_unit(name, views), unit) for name in found)
        base = next((base for base in _UNIT_METRICS if shown_in(base, unit)), "")
        joins = not found or POWER in found or any(name in DERIVED for name in found)
        if not fits and base and joins and views.measures(_UNIT_METRICS[base]):
            if base == "J":
                found.pop(POWER, None)
            found[_UNIT_METRICS[base]] = None
    return tuple(found)


def _units(reading: Reading, found: Mapping[str, None]) -> tuple[str, ...]:
    """Return units that stand alone, and where no metric was named those of limits: `GPUs above 80 °C`."""
    limits = [limit.unit for limit in reading.limits if limit.unit and not found]
    return (*reading.units, *(unit for unit in limits if unit not in ("%", "s", "min", "h")))


def base_unit(metric: str, views: Views) -> str:
    """Return the unit of a metric or of a figure that comes from columns of every view."""
    if metric in DERIVED:
        return _DERIVED_UNITS.get(metric, "count")
    return views.unit(metric) if views.kind(metric) is not MetricKind.COUNTER else _counted(views.unit(metric))


def _counted(unit: str) -> str:
    return "count" if unit == "1" else unit


def unit_of(measure: Measure, views: Views) -> str:
    """Return the unit in which a figure leaves the views, before it is shown."""
    if measure.stat in _RATIO_STATS:
        return "1"
    if measure.stat in (Stat.COUNT, Stat.CHANGES, Stat.PER_GPU_DAY):
        return "count"
    return base_unit(measure.metric, views)


def with_units(
    measures: Sequence[Measure], reading: Reading, views: Views, vocabulary: Vocabulary
) -> tuple[Measure, ...] | Question:
    """Return figures with the unit that each is shown in: one that was named and fits, else the usual one."""
    left = list(reading.units)
    done: list[Measure] = []
    for measure in measures:
        base = unit_of(measure, views)
        named = next((unit for unit in reading.units if shown_in(base, unit)), "")
        if named in left:
            left.remove(named)
        shown = shown_in(base, named or vocabulary.usual_units.get(base, ""))
        done.append(replace(measure, unit=shown.unit if shown else ""))
    strange = [unit for unit in left if unit not in ("s", "min", "h", "%")]
    if strange and done:
        return clarify(
            "unit", "That unit does not fit the metric. Which figure do you mean?", ("energy in kWh", "power in kW")
        )
    return tuple(done)


def _of_metric(metric: str, reading: Reading, views: Views, vocabulary: Vocabulary) -> list[Measure] | Question:
    kind = views.kind(metric)
    if metric in DERIVED:
        return _of_derived(metric, reading)
    match kind:
        case MetricKind.COUNTER:
            return _of_counter(metric, reading)
        case MetricKind.BITMASK:
            return [Measure(metric, Stat.SHARE_SET)]
        case MetricKind.STATE | MetricKind.CODE:
            return [Measure(metric, Stat.CHANGES)]
        case _:
            return _of_gauge(metric, reading, vocabulary)


def _of_derived(metric: str, reading: Reading) -> list[Measure]:
    if metric == MEMORY_SHARE:
        stats = [_PLAIN[word] for word in reading.aggregates if word in ("mean", "max")]
        return [Measure(metric, stat) for stat in stats or [Stat.MEAN, Stat.MAX]]
    return [Measure(metric, Stat.TOTAL if metric != COVERAGE else Stat.MEAN)]


def _of_counter(metric: str, reading: Reading) -> list[Measure]:
    """A counter has increases alone: what is called its average is an increase per GPU, its share a part of time."""
    if metric.endswith("_seconds_total") and (reading.has("aggregate", "share") or "%" in reading.units):
        return [Measure(metric, Stat.SHARE_ABOVE)]
    if "mean" in reading.aggregates and not _groups(reading) - {"gpu_id"}:
        return [Measure(metric, Stat.PER_GPU)]
    return [Measure(metric, Stat.TOTAL)]


def _groups(reading: Reading) -> set[str]:
    return {*reading.dimensions, *reading.asked, *([reading.bucket.value] if reading.bucket else [])}


def _of_gauge(metric: str, reading: Reading, vocabulary: Vocabulary) -> list[Measure] | Question:
    limit = next(iter(reading.limits), None)
    if limit is not None and reading.has("aggregate", "share"):
        stat = Stat.SHARE_ABOVE if limit.above else Stat.SHARE_BELOW
        return [Measure(metric, stat, threshold=limit.value, unit=limit.unit)]
    words = _statistics(reading) or _superlative(reading)
    if words == ["last"]:
        return _now(metric, reading, vocabulary)
    if not words:
        return _usual(metric, reading, vocabulary)
    summed = _summed(metric, reading, vocabulary) if "total" in words else None
    if isinstance(summed, Question):
        return summed
    return [*([summed] if summed else []), *_of_words(metric, words, reading, vocabulary)]


def _of_words(metric: str, words: Sequence[str], reading: Reading, vocabulary: Vocabulary) -> list[Measure]:
    """Return the statistics that words name; beside a sum, `max` and `mean` say of what the sum is."""
    found: list[Measure] = []
    for word in words:
        if word in QUANTILES:
            found.append(Measure(metric, Stat.QUANTILE, quantile=QUANTILES[word]))
        elif word in _PLAIN and not ("total" in words and word in ("max", "mean")):
            found += _plain(metric, word, reading, vocabulary)
    return found


def _plain(metric: str, word: str, reading: Reading, vocabulary: Vocabulary) -> list[Measure]:
    """Return a plain statistic; a mean of things that hold several GPUs may mean the mean of their sum as well."""
    summed = word == "mean" and metric in vocabulary.additive and _is_of_several(reading)
    return [*([Measure(metric, Stat.SUM)] if summed else []), Measure(metric, _PLAIN[word])]


def _statistics(reading: Reading) -> list[str]:
    if "distribution" in reading.aggregates:
        return ["min", "p50", "mean", "p95", "max"]
    return [word for word in reading.aggregates if word in _PLAIN or word in QUANTILES or word == "total"]


def _superlative(reading: Reading) -> list[str]:
    """Return the statistic that `highest` or `lowest` means where no thing is looked for by it."""
    ranking = reading.ranking
    if ranking is None or ranking.count or reading.asked or not {"highest", "lowest"} & set(reading.words):
        return []
    return ["max" if ranking.descending else "min"]


def _is_of_several(reading: Reading) -> bool:
    """Tell whether a mean is of things that hold several GPUs: then the sum over them may be meant as well."""
    placed = {*reading.dimensions, *reading.asked, *reading.names}
    return bool(placed) and "gpu_id" not in placed and not reading.bucket and not reading.limits


def _summed(metric: str, reading: Reading, vocabulary: Vocabulary) -> Measure | Question:
    if metric in vocabulary.additive:
        return Measure(metric, Stat.PEAK_SUM if "max" in reading.aggregates else Stat.SUM)
    options = ("the mean over the GPUs", "the highest value")
    if metric == UTILISATION:
        options = ("mean utilisation", "busy GPU-hours")
        return clarify(
            "sum_of_ratio", "A sum of percentages means nothing: mean utilisation or busy GPU-hours?", options
        )
    return clarify("sum_of_gauge", "A sum over time means nothing here: the mean or the highest value?", options)


def _now(metric: str, reading: Reading, vocabulary: Vocabulary) -> list[Measure]:
    """Return the newest value of a GPU; of things that hold several, means and sums of the last minutes."""
    places = {*reading.dimensions, *reading.asked}
    single = "gpu_id" in places or reading.names.get("gpu_id") or (reading.names.get("host_id") and not places)
    if single:
        return [Measure(metric, Stat.LAST)]
    summed = [Measure(metric, Stat.SUM)] if metric in vocabulary.additive else []
    return [*summed, Measure(metric, Stat.MEAN), Measure(metric, Stat.MAX)]


def _ranked_by(rank: str, reading: Reading) -> Stat:
    """Return what a ranking goes by; the lowest of a highest value means nothing."""
    lowest = reading.ranking is not None and not reading.ranking.descending
    return Stat.MEAN if lowest else Stat(rank)


_NOW = frozenset({"now", "right now", "at the moment", "currently", "current"})


def is_now(reading: Reading) -> bool:
    """Tell whether the state now is asked for, rather than figures of a range."""
    return bool(reading.times) and all(one.words.lower() in _NOW for one in reading.times)


def _usual(metric: str, reading: Reading, vocabulary: Vocabulary) -> list[Measure]:
    words = vocabulary.usual.get(metric, ("mean",))
    rank = next((word.removeprefix("rank=") for word in words if word.startswith("rank=")), "mean")
    stats = [Stat(word) for word in words if not word.startswith("rank=")]
    if is_now(reading):
        return _now(metric, reading, vocabulary)
    if reading.has("compare", "compare") and reading.limits == () and len(reading.times) < 2:
        middle = [Measure(metric, Stat.QUANTILE, quantile=QUANTILES[word]) for word in ("p50", "p95")]
        return [Measure(metric, Stat.MEAN), *middle]
    if reading.has("rank"):
        first = _ranked_by(rank, reading)
        stats = [first, *(stat for stat in stats if stat in (Stat.MEAN, Stat.MAX) and stat is not first)]
    several = _is_of_several(reading) and not reading.names.get("host_id")
    summed = several and metric in vocabulary.additive and not reading.has("rank")
    return [*([Measure(metric, Stat.SUM)] if summed else []), *(Measure(metric, stat) for stat in stats)]
