"""Say which metric a name of an expression means, in whose unit, and under which labels its series go.

A name of the catalogue gives values in the catalogue's unit. A name that an exporter prints gives them in that
exporter's unit, so that dashboards made for it keep their arithmetic.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from secondsight.catalog.index import Catalog
from secondsight.catalog.metric import Metric, MetricType, Source
from secondsight.errors import Rejected
from secondsight.query.aggregates import legal_aggregates

DCGM = "dcgm"
_KINDS = {MetricType.GAUGE: "gauge", MetricType.COUNTER: "counter", MetricType.STATE: "gauge"}


@dataclass(frozen=True, slots=True)
class Reading:
    """What a name stands for.

    Attributes:
        name: As it was written.
        factor: Value in the catalogue's unit x factor = value under this name.
        is_dcgm: The labels are those of dcgm-exporter.
        part_names: Label of a part -> its name under this name.
    """

    name: str
    metric: Metric
    factor: float = 1.0
    is_dcgm: bool = False
    part_names: dict[str, str] = field(default_factory=dict, compare=False, hash=False)


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
        return Reading(name, _scalar(catalog.resolve(name)))
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
    return sorted(found)


def kind_of(metric: Metric) -> str:
    """Return the type by the word that Prometheus has for it."""
    return _KINDS.get(metric.type, "unknown")


def _scalar(metric: Metric) -> Metric:
    if not legal_aggregates(metric):
        raise Rejected(
            "not_a_series", f"{metric.name} is of type {metric.type.value} and has no points", "see /v1/events"
        )
    return metric


def _part_names(source: Source) -> dict[str, str]:
    return {ours: theirs for theirs, ours in source.rename}
