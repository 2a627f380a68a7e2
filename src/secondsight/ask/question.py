"""Describe a question as data: what is asked for, of what, when, and how it is cut.

A planner or a model fills this form, `compile` turns it into SQL. Nothing here is text of an author except the words
that are shown again, so the form cannot say more than the views hold.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Treatment(StrEnum):
    """What is done with a question."""

    ANSWER = "answer"
    CLARIFY = "clarify"
    REFUSE = "refuse"
    UNANSWERABLE = "unanswerable"


class Kind(StrEnum):
    """Which template answers a question."""

    FIGURES = "figures"
    """Measures by dimensions, in buckets of time or not."""
    EXTREME = "extreme"
    """The highest or lowest value with its time and place."""
    CHANGE = "change"
    """The largest rise or fall from one window to the next."""
    PERIODS = "periods"
    """The same figures in two or more ranges of time."""
    FORECAST = "forecast"
    CORRELATION = "correlation"
    STRAGGLERS = "stragglers"
    REPLACEMENT = "replacement"
    QUIET = "quiet"
    """GPUs whose memory errors reach a rule for replacement."""
    IDLE = "idle"
    """GPUs that someone holds and nobody uses."""
    SUMMARY = "summary"
    SLOW_JOB = "slow_job"
    EVENTS = "events"
    """Single events, newest first."""
    LIFETIME = "lifetime"
    """First and last row of an entity."""
    CATALOGUE = "catalogue"


class Stat(StrEnum):
    """How the rows of a group make one figure."""

    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    LAST = "last"
    QUANTILE = "quantile"
    """Of window means (or of seconds, on raw rows)."""
    HIGHEST_P95 = "highest_p95"
    """The highest 95th percentile of any window."""
    TOTAL = "total"
    """Increase of a counter."""
    RATE = "rate"
    """Increase of a counter per second."""
    SUM = "sum"
    """Sum over GPUs at a time, then the mean over time."""
    PEAK_SUM = "peak_sum"
    """Sum over GPUs at a time, then the highest."""
    PER_GPU = "per_gpu"
    """Increase of a counter over the number of GPUs."""
    COUNT = "count"
    """Number of events, or of things."""
    PER_GPU_DAY = "per_gpu_day"
    """Events over the days that GPUs were covered."""
    CHANGES = "changes"
    SHARE_ABOVE = "share_above"
    """Share of covered time whose window mean lies above the threshold."""
    SHARE_BELOW = "share_below"
    SHARE_SET = "share_set"
    """Share of windows in which any (or one) bit of a mask is set."""


class Bucket(StrEnum):
    """A piece of time in the asker's zone."""

    SECOND = "1s"
    FIVE_MINUTES = "5m"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    HOUR_OF_DAY = "hour_of_day"
    WEEKDAY = "weekday"


class Chart(StrEnum):
    """A form that fits a result."""

    LINE = "line"
    BAR = "bar"
    GROUPED_BAR = "grouped bar"
    TABLE = "table"
    VALUE = "single value"
    SCATTER = "scatter"
    BAND = "line+band"


ERROR_EVENTS = "error_events"
GPUS = "gpus"
GPU_HOURS = "gpu_hours"
IDLE_GPU_HOURS = "idle_gpu_hours"
BUSY_GPU_HOURS = "busy_gpu_hours"
COVERAGE = "coverage_ratio"
MISSING = "missing_seconds"
JOBS = "jobs"
HOSTS = "hosts"
MEMORY_SHARE = "memory_share"
DERIVED = frozenset(
    {ERROR_EVENTS, GPUS, GPU_HOURS, IDLE_GPU_HOURS, BUSY_GPU_HOURS, COVERAGE, MISSING, JOBS, HOSTS, MEMORY_SHARE}
)
"""Measures that are no metric of the catalogue: they come from columns that every view has."""

ECC, THROTTLE, THERMAL_THROTTLE = "ecc", "throttle", "thermal_throttle"
_THERMAL = ("gpu_throttle_hw_thermal_seconds_total", "gpu_throttle_sw_thermal_seconds_total")
_POWER = ("gpu_throttle_sw_power_cap_seconds_total", "gpu_throttle_hw_power_brake_seconds_total")
TOGETHER: Mapping[str, tuple[str, ...]] = {
    ECC: ("gpu_ecc_uncorrected_volatile_total", "gpu_ecc_corrected_volatile_total"),
    THERMAL_THROTTLE: _THERMAL,
    THROTTLE: (*_THERMAL, *_POWER),
}
"""Words that stand for several metrics, each of which is told by itself: reasons to throttle may hold at once."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure that is asked for.

    Attributes:
        metric: A metric of the catalogue, or one of `DERIVED`.
        quantile: In (0, 1), for QUANTILE.
        threshold: In the metric's unit, for the SHARE statistics; a bit for SHARE_SET, or None for any bit.
        unit: What it is shown in; "" means the metric's usual unit.
    """

    metric: str
    stat: Stat
    quantile: float = 0.0
    threshold: float | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows whose `column` is (or, with `negated`, is not) one of `values`; `""` among them means none.

    Values come from the list of known entities or from closed lists, never from the text of a question as it stands.
    """

    column: str
    values: tuple[str, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """Groups whose figure of measure number `measure` lies above (or below) `value`, in the unit shown."""

    measure: int
    above: bool
    value: float


@dataclass(frozen=True, slots=True)
class Range:
    """A half-open stretch of time in epoch ms, with the words that meant it and the zone they were read in.

    Attributes:
        assumed: True where the question named none and a usual one was taken.
        open_ended: True where it ends now, so that its last piece is partial.
        hours: Local hours [from, to) of each day that count, or None for all; may wrap past midnight.
        weekdays: ISO weekdays that count, or None for all.
    """

    from_ms: int
    to_ms: int
    words: str
    zone: str = "UTC"
    assumed: bool = False
    open_ended: bool = False
    hours: tuple[int, int] | None = None
    weekdays: frozenset[int] | None = None

    @property
    def seconds(self) -> float:
        """Return how long it is."""
        return (self.to_ms - self.from_ms) / 1000


@dataclass(frozen=True, slots=True)
class Ranking:
    """The first `count` groups by the first measure."""

    count: int
    descending: bool = True


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for. `view` and what follows is filled by `choose`, the rest by whoever reads the question.

    Attributes:
        dimensions: Columns by which rows are grouped.
        ranges: One range; several for PERIODS.
        rising: For CHANGE rises rather than drops; for EVENTS and LIFETIME the oldest first.
        counted: True where the number of groups is asked for.
        message: For all but ANSWER: what is asked back, refused or not measured.
        options: What may be asked instead, each a whole question or a word.
        rule: Name of the rule that decided, for audit and tests.
        caveats: Sentences that every answer has to carry.
        alternatives: Readings that are right too.
        context_used: True where a turn before filled something in.
    """

    treatment: Treatment
    kind: Kind = Kind.FIGURES
    measures: tuple[Measure, ...] = ()
    dimensions: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()
    conditions: tuple[Condition, ...] = ()
    ranges: tuple[Range, ...] = ()
    bucket: Bucket | None = None
    ranking: Ranking | None = None
    rising: bool | None = None
    counted: bool = False
    view: str = ""
    chart: Chart = Chart.TABLE
    message: str = ""
    options: tuple[str, ...] = ()
    rule: str = ""
    caveats: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    context_used: bool = field(default=False, compare=False)

    @property
    def range(self) -> Range:
        """Return the whole stretch of time that is read."""
        if len(self.ranges) == 1:
            return self.ranges[0]
        first = min(self.ranges, key=lambda one: one.from_ms)
        last = max(self.ranges, key=lambda one: one.to_ms)
        words = " and ".join(one.words for one in self.ranges)
        return Range(first.from_ms, last.to_ms, words, first.zone, first.assumed, last.open_ended)

    @property
    def zone(self) -> str:
        """Return the zone in which time is cut and shown."""
        return self.ranges[0].zone if self.ranges else "UTC"

    def filtered(self, column: str) -> tuple[str, ...]:
        """Return the values that a column is held to, or none."""
        return next((one.values for one in self.filters if one.column == column and not one.negated), ())
