"""Turn a schema, and a frame's header, into what must be refused of them.

Pure: a schema's answer depends on the catalogue alone and is kept by whoever asks; a header's depends on the time.
Refused columns do not refuse their frame: the rest is stored, and the processor dead-letters the columns.
"""

from dataclasses import dataclass

from secondsight.catalog.index import Catalog
from secondsight.catalog.metric import Metric, MetricType
from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.wire.content import Column, HistogramColumn, Schema
from secondsight.wire.header import HeadView

MS_PER_SECOND = 1000
MS_PER_DAY = 86_400_000
_UNIT_HINT = "times are epoch milliseconds; check the sender's clock and unit"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that was not accepted.

    Attributes:
        metric: The column it is about, or "" for the whole frame.
    """

    code: str
    message: str
    metric: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far from the gateway's clock a tick may be."""

    future_ms: int
    past_ms: int


def refused_columns(schema: Schema, catalog: Catalog) -> tuple[Refusal, ...]:
    """Return the columns of a schema that the catalogue does not have, or has otherwise."""
    scalars = [_refused_scalar(column, schema.kind, catalog) for column in schema.columns]
    histograms = [_refused_histogram(column, schema.kind, catalog) for column in schema.histograms]
    return tuple(refusal for refusal in scalars + histograms if refusal is not None)


def refused_time(head: HeadView, now_ms: int, bounds: Bounds) -> Refusal | None:
    """Return why a frame's ticks cannot be stored, or None; a frame without ticks has no time to check."""
    newest_ms = head.newest_ms
    if not head.ticks or now_ms - bounds.past_ms <= newest_ms <= now_ms + bounds.future_ms:
        return None
    who = f"collector {head.collector_id} on host {head.host_id}"
    if newest_ms > now_ms + bounds.future_ms:
        ahead = (newest_ms - now_ms) / MS_PER_SECOND
        return Refusal("future_time", f"{who} is {ahead:.0f} s ahead of the gateway; {_UNIT_HINT}")
    days = (now_ms - newest_ms) / MS_PER_DAY
    return Refusal("too_old", f"{who} sent ticks that are {days:.0f} days old; {_UNIT_HINT}")


def _refused_scalar(column: Column, kind: EntityKind, catalog: Catalog) -> Refusal | None:
    metric = _metric(column.metric, kind, catalog)
    if isinstance(metric, Refusal):
        return metric
    if not metric.is_scalar:
        return _mismatch(column.metric, f"is a {metric.type} and has no column of numbers")
    sent, wanted = (
        (column.unit, column.dtype, column.resolution),
        (metric.unit, metric.dtype, metric.resolution),
    )
    return None if sent == wanted else _mismatch(column.metric, f"was sent as {_shape(*sent)}, not {_shape(*wanted)}")


def _refused_histogram(column: HistogramColumn, kind: EntityKind, catalog: Catalog) -> Refusal | None:
    metric = _metric(column.metric, kind, catalog)
    if isinstance(metric, Refusal):
        return metric
    if metric.type is not MetricType.HISTOGRAM:
        return _mismatch(column.metric, f"is a {metric.type}, not a histogram")
    if column.unit != metric.unit:
        return _mismatch(column.metric, f"was sent in {column.unit!r}, not {metric.unit!r}")
    return None


def _metric(name: str, kind: EntityKind, catalog: Catalog) -> Metric | Refusal:
    try:
        metric = catalog.get(name)
    except Rejected as error:
        return Refusal("unknown_metric", f"{error.message}; {error.hint}" if error.hint else error.message, name)
    if metric.kind is not kind:
        return Refusal("unknown_metric", f"{name} is a metric of kind {metric.kind}, not {kind}", name)
    return metric


def _mismatch(name: str, what: str) -> Refusal:
    return Refusal("unit_mismatch", f"{name} {what}", name)


def _shape(unit: str, dtype: str, resolution: float) -> str:
    return f"{dtype} in steps of {resolution:g} {unit!r}"
