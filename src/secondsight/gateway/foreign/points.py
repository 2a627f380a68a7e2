"""Say what a foreign request holds once it is decoded: points of series, in columns.

A series is known by its number in the index of its sender; what it means was looked up when it was first seen.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from secondsight.errors import Rejected

Labels = tuple[tuple[str, str], ...]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

STALE_BITS = 0x7FF0000000000002
"""The not-a-number by which Prometheus says that a series has ended."""
STALE = float(np.uint64(STALE_BITS).view(np.float64))

REMOTE_WRITE, OTLP = "remote-write", "otlp"
"""Protocols: the second part of the ids of collectors, and the source of their frames."""

POINTS_MAXIMUM = 500_000
"""Of one request."""

TIME_MS_MINIMUM, TIME_MS_MAXIMUM = 100_000_000_000, 100_000_000_000_000
"""Between them lie epoch milliseconds of any sane clock, and no seconds, microseconds or nanoseconds."""

HISTOGRAM_SCOPE = "histogram"
"""Scope of series whose points are whole histograms."""

INVALID = frozenset(
    {
        "bad_histogram",
        "bad_series",
        "conflict",
        "label_name_empty",
        "label_twice",
        "labels_limit",
        "name_missing",
        "not_utf8",
        "symbol_missing",
        "time_unit",
    }
)
"""Faults of what was sent, whatever the catalogue holds: a sender of remote write is told so with 400."""


class Series(NamedTuple):
    """What one series is called.

    Attributes:
        name: Name of its metric, "" where that is missing or unreadable.
        labels: Sorted by name, none empty, without the metric's name.
        fault: Code of what is wrong with it, "" if nothing.
        detail: What exactly, for a person.
        help: What its sender says that it measures.
        unit: Unit that its sender names, in UCUM, "" where it says none.
        scope: What tells series of one name and labels apart: form of an OTLP metric.
    """

    name: str
    labels: Labels
    fault: str = ""
    detail: str = ""
    help: str = ""
    unit: str = ""
    scope: str = ""


class Index(Protocol):
    """Numbers the series of one sender."""

    def get(self, key: object) -> int:
        """Return the number that a key stands for, -1 if it is not known."""
        ...

    def many(self, keys: list[bytes]) -> I32:
        """Return the number of each key, -1 for those that are not known."""
        ...

    def table(self, name: bytes) -> dict[bytes, int]:
        """Return the numbers of keys that mean something beside the symbols of this name; the caller adds to it."""
        ...

    def put(self, key: object, series: Series) -> int:
        """Return the number of a series, and let a key stand for it from now on, unless there are too many."""
        ...


class HistogramSample(NamedTuple):
    """One reading of a whole histogram; no buckets where it says that the series has ended.

    Attributes:
        buckets: Not cumulative, one more than `bounds`.
        fault: Code of why it cannot be taken, "" if it can.
    """

    series: int
    bounds: tuple[float, ...]
    buckets: tuple[int, ...]
    sum: float
    time_ms: int
    start_ms: int = 0
    fault: str = ""
    is_delta: bool = False


class Refused(NamedTuple):
    """Why points were not taken, and of which metric."""

    code: str
    metric: str


@dataclass(slots=True)
class Points:
    """What one request holds.

    Attributes:
        series, values, times_ms: One per point.
        starts_ms: When each point's counter began, 0 where nobody says; None where nobody does at all.
        exact: Point -> its value, for integers that no 64-bit float holds.
        deltas: Which points count from their start on and not from the beginning of the series; None for none.
        refused: Points that were refused while decoding.
        details: Code -> what a person should read, the first of each.
        exemplars: How many there were; they are counted and not kept.
    """

    series: I32
    values: F64
    times_ms: I64
    starts_ms: I64 | None = None
    exact: dict[int, int] = field(default_factory=dict)
    deltas: NDArray[np.bool_] | None = None
    histograms: list[HistogramSample] = field(default_factory=list)
    refused: Counter[Refused] = field(default_factory=Counter)
    details: dict[str, str] = field(default_factory=dict)
    exemplars: int = 0

    def refuse(self, code: str, metric: str, detail: str = "", count: int = 1) -> None:
        """Count points that are not taken."""
        self.refused[Refused(code, metric)] += count
        if detail:
            self.details.setdefault(code, detail)


@dataclass(slots=True)
class Gathering:
    """Points as they are read one by one."""

    series: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)
    starts_ms: list[int] = field(default_factory=list)

    def add(self, series: int, value: float, time_ms: int, start_ms: int = 0) -> None:
        """Take one more point."""
        self.series.append(series)
        self.values.append(value)
        self.times_ms.append(min(max(time_ms, -(2**62)), 2**62))
        self.starts_ms.append(start_ms)

    def points(self) -> Points:
        """Return them in columns."""
        starts = np.array(self.starts_ms, np.int64) if any(self.starts_ms) else None
        columns = np.array(self.series, np.int32), np.array(self.values, np.float64), np.array(self.times_ms, np.int64)
        return Points(*columns, starts)


def joined(first: Points, second: Points) -> Points:
    """Return the points of both; `exact` and `deltas` must be those of neither."""
    starts = None
    if first.starts_ms is not None or second.starts_ms is not None:
        starts = np.concatenate([_starts(first), _starts(second)])
    return Points(
        np.concatenate([first.series, second.series]),
        np.concatenate([first.values, second.values]),
        np.concatenate([first.times_ms, second.times_ms]),
        starts,
        histograms=first.histograms + second.histograms,
        refused=first.refused + second.refused,
        details=second.details | first.details,
        exemplars=first.exemplars + second.exemplars,
    )


def _starts(points: Points) -> I64:
    return np.zeros(points.series.size, np.int64) if points.starts_ms is None else points.starts_ms


def require_few(points: int) -> None:
    """Check how many points a request has.

    Raises:
        Rejected(too_many_samples)
    """
    if points > POINTS_MAXIMUM:
        message = f"the request has {points} points or more, and the limit is {POINTS_MAXIMUM}"
        raise Rejected("too_many_samples", message, "send fewer samples at once")
