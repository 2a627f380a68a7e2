"""Say which metric a name of an expression means, in whose unit, and under which labels its series go.

A name of the catalogue gives values in the catalogue's unit. A name that an exporter prints gives them in that
exporter's unit, so that dashboards made for it keep their arithmetic.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from secondsight.catalog.index import HISTOGRAM_SUFFIXES, Catalog
from secondsight.catalog.metric import Metric, MetricType, Source
from secondsight.errors import Rejected
from secondsight.query.aggregates import Aggregate, is_histogram, legal_aggregates

DCGM = "dcgm"
_OF_BUCKETS = (Aggregate.RATE, Aggregate.INCREASE, Aggregate.LAST)
_KINDS = {MetricType.GAUGE: "gauge", MetricType.COUNTER: "counter", MetricType.STATE: "gauge"}


@dataclass(frozen=True, slots=True)
class Reading:
    """What a name stands for.

    Attributes:
        name: As it was written.
        factor: Value in the catalogue's unit x factor = value under this name.
        is_dcgm: The labels are those of dcgm-exporter.
        part_names: Label of a part -> its name under this name.
        suffix: Which series of a histogram are meant: `_bucket`, `_sum`, `_count`; else "".
        fixed: Label of a part -> the value that all series of this name have.
    """

    name: str
    metric: Metric
    factor: float = 1.0
    is_dcgm: bool = False
    part_names: dict[str, str] = field(default_factory=dict, compare=False, hash=False)
    suffix: str = ""
    fixed: dict[str, str] = field(default_factory=dict, compare=False, hash=False)

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """Return what has a meaning for the series of this name; those of a histogram only grow."""
        return _OF_BUCKETS if self.suffix else legal_aggregates(self.metric)

    @property
    def type(self) -> str:
        """Return the type by the word that Prometheus has for it."""
        return "histogram" if self.suffix else _KINDS.get(self.metric.type, "unknown")


def reading_of(name: str, catalog: Catalog) -> Reading:
    """Return what a name stands for.

    Raises:
        Rejected(unknown_metric, ambiguous_metric): It stands for nothing, or for several metrics.
        Rejected(not_a_series): It is an event, an info or a histogram.
    """
    if name in catalog:
        return Reading(name, _scalar(catalog.get(name)))
    named = [
        (metric, source) for metric, source in catalog.exposition(name) if metric.is_scalar and source.name == name
    ]
    plain = [one for one in named if not one[1].match] or named
    if not plain:
        return _of_histogram(name, catalog) or Reading(name, _scalar(catalog.resolve(name)))
    metric, source = plain[0]
    if source.translate:
        hint = f"ask for {metric.name}"
        raise Rejected("promql_unsupported", f"the values of {name} are codes that no factor relates to ours", hint)
    is_dcgm = source.system == DCGM
    return Reading(name, metric, 1.0 / source.scale, is_dcgm, _part_names(source))


def names_of(catalog: Catalog, shows: Callable[[str], bool]) -> list[str]:
    """Return every name that has series, of metrics that may be shown, sorted."""
    found = set()
    for metric in catalog.metrics:
        if legal_aggregates(metric) and shows(metric.name):
            found.add(metric.name)
            found |= {s.name for s in metric.sources if s.system == DCGM and not s.translate and not s.match}
        if is_histogram(metric) and shows(metric.name):
            found |= {metric.name + suffix for suffix in HISTOGRAM_SUFFIXES}
    return sorted(found)


def _of_histogram(name: str, catalog: Catalog) -> Reading | None:
    """Return what a name means that is one of a histogram with an exposition's suffix."""
    for suffix in HISTOGRAM_SUFFIXES:
        base = name.removesuffix(suffix)
        for metric, source in catalog.exposition(base) if base != name else ():
            if is_histogram(metric) and source.name == base:
                fixed = {label: "" for one in metric.sources for label, _ in one.part} | dict(source.part)
                fixed = {} if base in catalog else fixed
                return Reading(name, metric, 1.0 / source.scale, False, _part_names(source), suffix, fixed)
    return None


def _scalar(metric: Metric) -> Metric:
    if not legal_aggregates(metric):
        raise Rejected("not_a_series", f"{metric.name} is of type {metric.type.value} and has no points", _hint(metric))
    return metric


def _hint(metric: Metric) -> str:
    if is_histogram(metric):
        return f"ask for {', '.join(metric.name + suffix for suffix in HISTOGRAM_SUFFIXES)}"
    return "see /v1/events"


def _part_names(source: Source) -> dict[str, str]:
    return {ours: theirs for theirs, ours in source.rename}
