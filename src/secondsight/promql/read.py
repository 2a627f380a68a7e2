"""Read what a selector names, as windows on a grid, through the same runner as every other question.

A step sees the windows that have ended by then; one of a second counts as ended when it begins, since a sample is of
its very instant. A single step reads the range behind it as one window.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import compress
from typing import Protocol

import numpy as np

from secondsight.access.scope import Scope
from secondsight.catalog.index import Catalog
from secondsight.errors import Rejected
from secondsight.promql.buckets import LE, gains, levels, with_plain_bounds
from secondsight.promql.labels import OWNERS, Matcher, Places, admitted, key_of, owner_labels
from secondsight.promql.matrix import F64, I64, NAME, Labels
from secondsight.promql.names import Reading, names_of, reading_of
from secondsight.query.aggregates import Aggregate, is_scaled
from secondsight.query.answer import Answer
from secondsight.query.inventory import EXPECTED_SECONDS, Inventory
from secondsight.query.plan import CELLS_MAXIMUM
from secondsight.query.request import FILTER_VALUES_MAXIMUM, Filters, Group, MetricQuery, Selected

SECOND_MS = 1_000
WIDTHS_MS = tuple(
    SECOND_MS * seconds
    for seconds in (86_400, 21_600, 7_200, 3_600, 1_800, 1_200, 900, 600, 300, 120, 60, 30, 15, 10, 5, 2, 1)
)
COARSE = ((40 * 86_400_000, 3_600_000), (2 * 86_400_000, 300_000), (2 * 3_600_000, 30_000), (0, SECOND_MS))
"""Over so long a range, windows are at least so wide."""
NAMES_MAXIMUM = 20


@dataclass(frozen=True, slots=True)
class Steps:
    """When an expression is evaluated: epoch ms, ascending; `width_ms` apart, 0 where there is one."""

    times_ms: I64
    width_ms: int

    @property
    def is_single(self) -> bool:
        """Tell whether there is one instant only."""
        return self.times_ms.size == 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one selector asks for.

    Attributes:
        times_ms: The instants, one per step, after offset and `@`.
        range_ms: How far back from each instant.
        by_second: Every second of the range is wanted by itself.
    """

    name: str
    matchers: tuple[Matcher, ...]
    times_ms: I64
    range_ms: int
    by_second: bool = False


@dataclass(frozen=True, slots=True)
class Windows:
    """Figures of series on a grid of windows.

    Attributes:
        labels: Of each series.
        figures: Aggregate -> shape (series, windows); NaN where there is none.
        ends_ms: When each window counts as ended.
        width_ms: Of a window.
        range_ms: How far back an instant sees; wider than asked for where windows are.
        spans_ms: What time increases took, of the shape of a figure; None where rates tell it.
    """

    reading: Reading
    labels: list[Labels]
    figures: dict[Aggregate, F64]
    ends_ms: I64
    width_ms: int
    range_ms: int
    spans_ms: F64 | None = None


class Runner(Protocol):
    """Answers questions."""

    def run(self, query: MetricQuery, scope: Scope) -> Answer:
        """Return the answer to a question, within a scope."""
        ...


@dataclass(frozen=True, slots=True)
class Sources:
    """What expressions are read from."""

    runner: Runner
    inventory: Inventory
    catalog: Catalog


class Reader:
    """Reads for one expression; what was said about the data's worth gathers in `warnings`.

    Args:
        named: Labels that the expression names anywhere.
    """

    def __init__(self, sources: Sources, scope: Scope, steps: Steps, named: frozenset[str]) -> None:
        self.steps = steps
        self.warnings: dict[str, None] = {}
        self._sources = sources
        self._scope = scope
        self._steps_of_subqueries = [0]
        self._owners = tuple(group for name, group in OWNERS.items() if name in named)

    def at(self, steps: Steps) -> "Reader":
        """Return a reader for other steps; what is said of the data's worth gathers in the same place."""
        other = copy(self)
        other.steps = steps
        return other

    def spend(self, steps: int, maximum: int) -> None:
        """Count the steps of a subquery; those of all subqueries of an expression stand under one bound.

        Raises:
            Rejected(promql_unsupported): There are too many.
        """
        self._steps_of_subqueries[0] += max(steps, 0)
        if self._steps_of_subqueries[0] > maximum:
            message = f"the subqueries of the expression have over {maximum} steps"
            raise Rejected("promql_unsupported", message, "name wider steps behind the colon, or shorter ranges")

    def readings(self, name: str, matchers: Sequence[Matcher]) -> list[Reading]:
        """Return what a selector's name, or its condition on `__name__`, stands for.

        Raises:
            Rejected(unknown_metric, ambiguous_metric, not_a_series, promql_unsupported, forbidden_metric).
        """
        of_name = [one for one in matchers if one.name == NAME]
        exact = name or next((one.value for one in of_name if one.operator == "=" and one.value), "")
        known = [exact] if exact else list(names_of(self._sources.catalog, self._scope.shows))
        names = list(compress(known, admitted(of_name, [{NAME: each} for each in known])))
        if len(names) > NAMES_MAXIMUM:
            message = f"the selector means {len(names)} metrics"
            raise Rejected("promql_unsupported", message, f"name one, or {NAMES_MAXIMUM} at most by a pattern")
        return [reading_of(each, self._sources.catalog) for each in names]

    def windows(self, wanted: Wanted, reading: Reading, aggregates: Sequence[Aggregate]) -> Windows:
        """Return the windows that the instants see.

        Raises:
            Rejected, Retryable: As the runner.
        """
        wanted = replace(wanted, matchers=(*with_plain_bounds(wanted.matchers), *_fixed(reading)))
        found = self._filters(wanted, reading)
        width_ms = _width(wanted, self.steps)
        range_ms = max(wanted.range_ms, width_ms)
        if found is None:
            figures = {each: np.zeros((0, 0)) for each in aggregates}
            return Windows(reading, [], figures, np.zeros(0, np.int64), width_ms, range_ms)
        filters, places = found
        asked = _asked(reading, aggregates)
        query = MetricQuery(
            selected=tuple(Selected(reading.metric, each) for each in asked),
            filters=filters,
            from_ms=max(_second(wanted.times_ms[0]) - range_ms + SECOND_MS, 0),
            to_ms=_second(wanted.times_ms[-1]) + SECOND_MS,
            group_by=(Group.GPU, Group.PART, *self._owners),
            limit=CELLS_MAXIMUM,
        )
        is_whole = self.steps.is_single and not wanted.by_second
        if is_whole:
            answer = self._run(replace(query, whole=True))
            ends = wanted.times_ms
        else:
            first, last = query.from_ms // width_ms * width_ms, -(-query.to_ms // width_ms) * width_ms
            answer = self._run(replace(query, from_ms=first, to_ms=last, resolution_ms=width_ms))
            ends = np.arange(first, last, width_ms, dtype=np.int64) + width_ms - SECOND_MS
        grid = _on_grid(answer, asked, (int(ends[0]), width_ms, ends.size), is_whole)
        labels, figures, spans = _of_buckets(*grid, reading) if reading.suffix else (*grid, None)
        made = [_labels(places, one, reading) for one in labels]
        kept = list(compress(range(len(made)), admitted(wanted.matchers, made)))
        scaled = {each: figures[each][kept] * _factor(reading, each) for each in aggregates}
        if width_ms > max(wanted.range_ms, SECOND_MS):
            self.warnings[f"{reading.name} is read in windows of {width_ms // SECOND_MS} s over so long a range"] = None
        width_ms = range_ms if is_whole else width_ms
        spans_ms = None if spans is None else spans[kept]
        return Windows(reading, [made[place] for place in kept], scaled, ends, width_ms, range_ms, spans_ms)

    def series(self, reading: Reading, matchers: Sequence[Matcher], from_ms: int, to_ms: int) -> list[Labels]:
        """Return the labels of the series that were to report in a range, without reading any: so without `le`."""
        matchers = [one for one in (*matchers, *_fixed(reading)) if one.name != LE or not reading.suffix]
        places = self._places(reading)
        made = [places.labels(key, part, reading) for key, part in places.live(from_ms, to_ms)]
        return list(compress(made, admitted(matchers, made)))

    def _places(self, reading: Reading) -> Places:
        """Return what is known of the entities of a kind; kept for as long as the inventory's own rows."""
        inventory, kind = self._sources.inventory, reading.metric.kind

        def made() -> Places:
            return Places(inventory.expected(kind, Filters(), self._scope), kind)

        places: Places = inventory.remember(("label places", kind, self._scope), EXPECTED_SECONDS, made)
        return places

    def _run(self, query: MetricQuery) -> Answer:
        answer = self._sources.runner.run(query, self._scope)
        for text in answer.warnings:
            self.warnings[text] = None
        if answer.coverage.expected and answer.coverage.ratio < 1:
            self.warnings[f"coverage of {answer.metric} is {answer.coverage.ratio:.2%}"] = None
        return answer

    def _filters(self, wanted: Wanted, reading: Reading) -> tuple[Filters, Places] | None:
        """Return filters that leave out hosts without any matching series; None where there is no match at all."""
        places = self._places(reading)
        bound = (LE,) if reading.suffix else ()
        of_place = [one for one in wanted.matchers if one.name not in (*OWNERS, NAME, *bound)]
        if not places.parts or not of_place:
            return Filters(), places
        listed = {key for key, _ in places.parts}
        labels = [places.labels(key, part, reading) for key, part in places.parts]
        whole, placed = admitted(of_place, labels), admitted(_placed(of_place, reading), labels)
        fitting = {
            key
            for (key, part), of_part, of_entity in zip(places.parts, whole, placed, strict=True)
            if (of_part if part else of_entity)
        }
        if not fitting:
            return None
        if fitting == listed:
            return Filters(), places
        _, clusters, hosts, entities = map(_few, zip(*fitting, strict=True))
        return Filters(cluster=clusters, host=hosts, gpu=entities), places


def _asked(reading: Reading, aggregates: Sequence[Aggregate]) -> Sequence[Aggregate]:
    """Return what is to be read so that aggregates can be told."""
    if not reading.suffix:
        return aggregates
    return [Aggregate.BUCKET_LEVELS if Aggregate.LAST in aggregates else Aggregate.BUCKET_GAINS]


def _of_buckets(
    told: Sequence[Labels], figures: Mapping[Aggregate, F64], reading: Reading
) -> tuple[list[Labels], dict[Aggregate, F64], F64 | None]:
    """Return the series of a histogram that a name means, their figures, and what time gains took."""
    ((asked, read),) = figures.items()
    if asked is Aggregate.BUCKET_LEVELS:
        labels, values = levels(told, read, reading)
        return labels, {Aggregate.LAST: values}, None
    labels, values, spans = gains(told, read, reading)
    with np.errstate(all="ignore"):
        return labels, {Aggregate.INCREASE: values, Aggregate.RATE: values * 1000 / spans}, spans


def _labels(places: Places, told: Labels, reading: Reading) -> Labels:
    """Return the labels of a series, from those of an answer."""
    bound = {LE: told[LE]} if LE in told else {}
    return places.labels(key_of(told), told.get("part", ""), reading) | owner_labels(told) | bound


def _factor(reading: Reading, aggregate: Aggregate) -> float:
    """Return what a figure is multiplied by; counts of buckets have no unit."""
    is_count = reading.suffix in ("_bucket", "_count")
    return reading.factor if is_scaled(aggregate) and not is_count else 1.0


def _fixed(reading: Reading) -> list[Matcher]:
    """Return the conditions that the name itself sets."""
    return [Matcher(reading.part_names.get(name, name), "=", value) for name, value in reading.fixed.items()]


def _few(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that a filter takes: none of too many, as what is read is matched once more."""
    distinct = sorted(set(names))
    return tuple(distinct) if len(distinct) <= FILTER_VALUES_MAXIMUM else ()


def _placed(matchers: Sequence[Matcher], reading: Reading) -> list[Matcher]:
    """Return the conditions that can be told of an entity, of which the inventory lists not every part."""
    of_parts = {reading.part_names.get(name, name) for name in reading.metric.labels}
    return [one for one in matchers if one.name not in of_parts]


def _second(time_ms: np.int64) -> int:
    """Return the start of the second that an instant lies in."""
    return int(time_ms) // SECOND_MS * SECOND_MS


def _width(wanted: Wanted, steps: Steps) -> int:
    """Return the widest windows that divide steps and range evenly, no finer than so long a range allows.

    Raises:
        Rejected(promql_unsupported): Every second is wanted of a range of which they are not read.
    """
    span_ms = int(wanted.times_ms[-1] - wanted.times_ms[0]) + wanted.range_ms
    least = next(width for over, width in COARSE if span_ms > over)
    if wanted.by_second and least > SECOND_MS:
        message = "the function is of single seconds, and over so long a range they are not read"
        raise Rejected("promql_unsupported", message, "ask for two hours at most")
    if wanted.by_second or steps.is_single:
        return SECOND_MS
    for width in WIDTHS_MS:
        if width >= least and all(
            each % width == 0 for each in (steps.width_ms, wanted.range_ms, int(wanted.times_ms[0]))
        ):
            return width
    return least


def _on_grid(
    answer: Answer, aggregates: Sequence[Aggregate], grid: tuple[int, int, int], is_whole: bool
) -> tuple[list[Labels], dict[Aggregate, F64]]:
    """Return the labels of series, and their figures by aggregate in rows of the grid (first end, width, windows)."""
    first_end, width_ms, windows = grid
    rows: dict[tuple[tuple[str, str], ...], int] = {}
    for one in answer.series:
        rows.setdefault(tuple(one.labels.items()), len(rows))
    figures = {each: np.full((len(rows), windows), np.nan) for each in aggregates}
    for one in answer.series:
        row = rows[tuple(one.labels.items())]
        if is_whole:
            figures[Aggregate(one.aggregate)][row, 0] = one.values[-1]
        else:
            places = (one.times_ms + width_ms - SECOND_MS - first_end) // width_ms
            figures[Aggregate(one.aggregate)][row, places] = one.values
    return [dict(labels) for labels in rows], figures
