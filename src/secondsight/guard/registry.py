"""Describe the curated views to the guard: their columns, what each column means, and which figures of it are legal.

A registry is data. It says nothing of where rows lie: the guard knows views, never the tables below them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Role(StrEnum):
    """What a column is for."""

    SCOPE = "scope"
    """Says whose row it is (tenant, cluster); no alias may take its name."""
    TIME = "time"
    """The one time of the row; no alias may take its name."""
    DIMENSION = "dimension"
    """A name or word to filter, group and count by."""
    CODE = "code"
    """A number that stands for a word; counted and compared, never added up."""
    MEASURE = "measure"
    """A figure of a metric: `metric` names it, `suffix` the member of a rollup."""
    NUMBER = "number"
    """How many entities the row speaks of; a weight that may be added up."""
    SHARE = "share"
    """A ratio of the whole row; its mean needs the row's number as weight."""


class MetricKind(StrEnum):
    """What may be computed of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    STATE = "state"
    BITMASK = "bitmask"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as the guard sees it.

    Attributes:
        unit: UCUM-like unit of the catalogue, such as `1`, `By` or `W`; figures of two units are never added up.
    """

    name: str
    kind: MetricKind
    unit: str


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a view.

    Attributes:
        type: ClickHouse type.
        metric: Name of the metric of a MEASURE, else "".
        suffix: Member of a rollup (`avg`, `min`, `max`, `p95`, `last`, `count`, `increase`, `seconds`, `changes`),
            "" for a value as it was sampled.
        few: True where it takes few values: equality on it does not make a join small.
    """

    name: str
    type: str
    role: Role
    metric: str = ""
    suffix: str = ""
    few: bool = False


@dataclass(frozen=True, slots=True)
class Bucket:
    """A column that no author sees: the row's time cut down to a multiple of `seconds`, which prunes better."""

    column: str
    seconds: int


@dataclass(frozen=True, slots=True)
class View:
    """One curated view.

    Attributes:
        time_column: `event_time` or `window_start`.
        grain_seconds: Width of a row's window; 0 for events.
        raw: True where a reference needs an interval of its own of at most `Limits.raw_days`.
        key: Columns that with the time make a row unique, such as host and GPU; the last alone tells the entity.
        bucket: Bounded by the guard beside the time, where the view has one.
        rows_per_day: Expected rows of one tenant and day, or 0 where nobody knows.
    """

    name: str
    time_column: str
    grain_seconds: int
    columns: tuple[Column, ...]
    raw: bool = False
    key: tuple[str, ...] = ()
    bucket: Bucket | None = None
    rows_per_day: int = 0
    _by_name: Mapping[str, Column] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Index the columns by name."""
        object.__setattr__(self, "_by_name", {column.name: column for column in self.columns})

    def get(self, name: str) -> Column | None:
        """Return the column of exactly this name, or None."""
        return self._by_name.get(name)


@dataclass(frozen=True, slots=True)
class Registry:
    """All views and metrics that an author may name.

    Attributes:
        version: Changes whenever views or metrics change; plans are kept under it.
        mandatory: Columns that say whose row it is and of when, of all views; no alias takes their names.
    """

    views: tuple[View, ...]
    metrics: tuple[Metric, ...]
    version: str = ""
    _views: Mapping[str, View] = field(init=False, repr=False, compare=False, default_factory=dict)
    _metrics: Mapping[str, Metric] = field(init=False, repr=False, compare=False, default_factory=dict)
    mandatory: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())

    def __post_init__(self) -> None:
        """Index views and metrics by name."""
        object.__setattr__(self, "_views", {view.name: view for view in self.views})
        object.__setattr__(self, "_metrics", {metric.name: metric for metric in self.metrics})
        reserved = {Role.SCOPE, Role.TIME}
        names = {column.name for view in self.views for column in view.columns if column.role in reserved}
        object.__setattr__(self, "mandatory", frozenset(names))

    def view(self, name: str) -> View | None:
        """Return the view of exactly this name, or None."""
        return self._views.get(name)

    def metric(self, name: str) -> Metric | None:
        """Return the metric of exactly this name, or None."""
        return self._metrics.get(name)

    def coarser(self, view: View) -> Sequence[View]:
        """Return the views of wider windows than those of this one, finest first."""
        wider = [other for other in self.views if other.grain_seconds > view.grain_seconds]
        return sorted(wider, key=lambda other: other.grain_seconds) if view.grain_seconds else []
