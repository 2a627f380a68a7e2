"""Turn what was expected and what the tables hold into coverage and gaps.

Pure functions over Arrow tables: `expected` as of `inventory.compile_expected`, `stored` as the rows for coverage of
`compile.compile_series`. Both are by (tenant, cluster, host, entity, part).
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from secondsight.catalog.metric import Metric
from secondsight.query.plan import Span
from secondsight.query.windows import IDENTITY

GAP_SLOTS = 3
GAP_MS = 3_000

I64 = NDArray[np.int64]
Key = str
_COMPUTE: Any = pc


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of what was expected is stored, in slots, over all entities in scope.

    Attributes:
        gaps: Runs of missing slots longer than max(3 slots, 3 s); None where too many rows would have to be looked at.
        shed: Missing slots whose rows agents declared lost.
    """

    expected: int = 0
    stored: int = 0
    gaps: int | None = 0
    shed: int = 0

    @property
    def ratio(self) -> float:
        """Return stored / expected; 1 where nothing was expected."""
        return self.stored / self.expected if self.expected else 1.0

    def plus(self, other: "Coverage") -> "Coverage":
        """Return the coverage of both together."""
        gaps = None if self.gaps is None or other.gaps is None else self.gaps + other.gaps
        return Coverage(self.expected + other.expected, self.stored + other.stored, gaps, self.shed + other.shed)


@dataclass(frozen=True, slots=True)
class Lack:
    """What the gaps of one entity come to.

    Attributes:
        gaps: How many.
        shed: Slots whose rows an agent declared lost.
        not_due: Slots that were not expected after all: planned work, a drained host, an instance that did not run.
    """

    gaps: int = 0
    shed: int = 0
    not_due: int = 0


@dataclass(slots=True)
class Stretch:
    """What one entity or part was to deliver inside a range."""

    slots: int
    interval_ms: int
    from_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True)
class Held:
    """What the tables hold of one entity or part.

    Attributes:
        first_ms, last_ms: Times of its first and last sample.
        inner_gaps: Gaps between them.
        reach_ms: Longest time before the first one that is no gap; 0 where it was not asked.
    """

    slots: int
    first_ms: int
    last_ms: int
    inner_gaps: int
    reach_ms: int = 0

    def before(self, later: "Held", *, counts_gaps: bool) -> "Held":
        """Return what is held over this range and a later one; with `counts_gaps`, one between both counts."""
        is_apart = counts_gaps and later.first_ms - self.last_ms > later.reach_ms
        gaps = self.inner_gaps + later.inner_gaps + int(is_apart)
        return Held(self.slots + later.slots, self.first_ms, later.last_ms, gaps, self.reach_ms)


_NO_LACK = Lack()


def slots_between(from_ms: I64, to_ms: I64, interval_ms: I64) -> I64:
    """Return how many multiples of the interval lie in [from, to)."""
    slots: I64 = np.maximum(-(-to_ms // interval_ms) + (from_ms // -interval_ms), 0)
    return slots


def stretches_of(expected: Any, span: Span, due_ms: int, keys: Sequence[Key] | None = None) -> dict[Key, Stretch]:
    """Return what each entity and part was to deliver in a range, up to what is due.

    Of several collectors of one entity the one that was to deliver most counts. `keys` are those of the rows, where
    they are known already.
    """
    from_ms = np.maximum(_integers(expected, "start_ms"), span.from_ms)
    to_ms = np.minimum(_integers(expected, "end_ms"), min(span.to_ms, due_ms))
    interval_ms = _integers(expected, "cadence_ms")
    slots = slots_between(from_ms, to_ms, interval_ms)
    collectors = expected["collector_id"].to_pylist()
    found: dict[Key, dict[str, Stretch]] = defaultdict(dict)
    rows = zip(
        keys or keys_of(expected),
        collectors,
        slots.tolist(),
        interval_ms.tolist(),
        from_ms.tolist(),
        to_ms.tolist(),
        strict=True,
    )
    for key, collector, count, cadence, start, end in rows:
        if count:
            _extend(found[key], collector, Stretch(count, cadence, start, end))
    return {key: max(by_collector.values(), key=lambda one: one.slots) for key, by_collector in found.items()}


def held_of(stored: Any) -> dict[Key, Held]:
    """Return what the tables hold, by entity and part."""
    columns = [_integers(stored, name).tolist() for name in ("slots", "first_ms", "last_ms", "gaps")]
    if "head" in stored.column_names:
        columns.append([reach_ms for _, reach_ms in stored["head"].to_pylist()])
    return {key: Held(*row) for key, row in zip(keys_of(stored), zip(*columns, strict=True), strict=True)}


def unlisted(stretches: dict[Key, Stretch], held: dict[Key, Held]) -> dict[Key, Stretch]:
    """Return what no list expects and the tables hold all the same, such as an entity first seen a moment ago.

    Each counts as expected for just the slots it has, so that a coverage speaks of every point in the answer.
    """
    return {
        key: Stretch(one.slots, GAP_MS // GAP_SLOTS, one.first_ms, one.last_ms + 1)
        for key, one in held.items()
        if key not in stretches and one.slots and not is_pooled(key)
    }


def carriers(metric: Metric, stretches: dict[Key, Stretch], held: dict[Key, Held]) -> dict[Key, Stretch]:
    """Return the entities and parts that were to deliver this metric.

    A metric without labels is delivered by the entity itself, and by those parts that have delivered it. One with
    labels is delivered by those parts that have delivered it, or, where none has, by the parts its labels name, or else
    by the entity itself.
    """
    if not metric.labels:
        return {key: one for key, one in stretches.items() if key in held or not _part(key)}
    by_entity: dict[str, list[Key]] = defaultdict(list)
    for key in stretches:
        if set(_label_names(key)) <= set(metric.labels):
            by_entity[key.rpartition("\0")[0]].append(key)
    chosen = [key for keys in by_entity.values() for key in _carrying(keys, held)]
    return {key: stretches[key] for key in chosen}


def coverage_of(
    stretches: dict[Key, Stretch],
    held: dict[Key, Held],
    *,
    counts_gaps: bool,
    silent: Collection[Key] = (),
    lacks: Mapping[str, Lack] | None = None,
) -> Coverage:
    """Sum up coverage and gaps; `silent` entities never had the metric, so nothing was expected of them.

    Args:
        stretches: What was to be delivered.
        held: What the tables hold.
        counts_gaps: The gaps in `held` are counted; else they are those of the entities, where these are known.
        silent: Entities and parts without the metric.
        lacks: Entity -> its gaps; None where they were not looked for.
    """
    expected = stored = gaps = shed = 0
    known = lacks or {}
    for key, stretch in stretches.items():
        one = held.get(key)
        if one is None and key in silent:
            continue
        due, there = _due_slots(stretch, one), one.slots if one else 0
        lack = known.get(entity_of(key), _NO_LACK)
        due -= min(lack.not_due, max(due - there, 0))
        expected += due
        stored += min(there, due)
        shed += min(lack.shed, max(due - there, 0))
        gaps += _gaps(stretch, one) if counts_gaps else lack.gaps
    return Coverage(expected, stored, gaps if counts_gaps or lacks is not None else None, shed)


def pooled_coverage(
    metric: Metric,
    stretches: dict[Key, Stretch],
    held: dict[Key, Held],
    *,
    silent: Collection[Key] = (),
    lacks: Mapping[str, Lack] | None = None,
) -> Coverage:
    """Sum up coverage where rows of whole clusters were read, which tell parts of a cluster apart and no entities.

    Args:
        metric: What was to be delivered.
        stretches: When, by entity and part.
        held: What the tables hold, by part of a cluster, or by entity and part.
        silent: Entities and parts without the metric.
        lacks: Entity -> its gaps; None where they were not looked for.
    """
    there: dict[Key, int] = defaultdict(int)
    for key, one in held.items():
        there[_place(key)] += one.slots
    due: dict[Key, int] = defaultdict(int)
    known = lacks or {}
    shed = gaps = 0
    for key, stretch in _carrying_parts(metric, stretches, held).items():
        if key not in silent:
            lack = known.get(entity_of(key), _NO_LACK)
            due[_place(key)] += max(stretch.slots - lack.not_due, 0)
            shed, gaps = shed + lack.shed, gaps + lack.gaps
    stored = sum(min(there[place], slots) for place, slots in due.items())
    expected = sum(due.values())
    return Coverage(expected, stored, gaps if known else None, min(shed, expected - stored))


def is_pooled(key: Key) -> bool:
    """Tell whether a key names a part of a cluster and no entity."""
    return key.split("\0")[2:4] == ["", ""]


def entity_of(key: Key) -> str:
    """Return what names the entity that a part is of."""
    return key.rpartition("\0")[0]


def keys_of(rows: Any) -> list[Key]:
    """Return one text per row that names entity and part; the part stands behind the last zero byte."""
    columns = [rows[name].cast(pa.string()) for name in IDENTITY]
    joined: list[Key] = _COMPUTE.binary_join_element_wise(*columns, "\0").to_pylist()
    return joined


def _extend(by_collector: dict[str, Stretch], collector: str, stretch: Stretch) -> None:
    known = by_collector.get(collector)
    if known is None:
        by_collector[collector] = stretch
        return
    known.slots += stretch.slots
    known.interval_ms = max(known.interval_ms, stretch.interval_ms)
    known.from_ms = min(known.from_ms, stretch.from_ms)
    known.to_ms = max(known.to_ms, stretch.to_ms)


def _due_slots(stretch: Stretch, held: Held | None) -> int:
    """Return how many ticks fall into a stretch, by the phase of those that did, where one cadence held throughout.

    Hosts tick at a phase of their own inside the second: whether an edge of the range cuts off a tick depends on it.
    """
    start, end, step = stretch.from_ms, stretch.to_ms, stretch.interval_ms
    if held is None or not held.slots or stretch.slots != _multiples(start, end, step):
        return stretch.slots
    phase = held.first_ms % step
    return _multiples(start - phase, end - phase, step)


def _multiples(from_ms: int, to_ms: int, step_ms: int) -> int:
    return max(0, -(-to_ms // step_ms) + from_ms // -step_ms)


def _gaps(stretch: Stretch, held: Held | None) -> int:
    long_ms = max(GAP_SLOTS * stretch.interval_ms, GAP_MS)
    if held is None:
        return int(stretch.to_ms - stretch.from_ms > long_ms)
    head_ms = held.first_ms - stretch.from_ms
    tail_ms = stretch.to_ms - held.last_ms - stretch.interval_ms
    return held.inner_gaps + int(head_ms > long_ms) + int(tail_ms > long_ms)


def _carrying(keys: list[Key], held: dict[Key, Held]) -> list[Key]:
    delivered = [key for key in keys if key in held]
    return delivered or [key for key in keys if _part(key)] or keys


def _carrying_parts(metric: Metric, stretches: dict[Key, Stretch], held: dict[Key, Held]) -> dict[Key, Stretch]:
    """Return what was to deliver a metric, as `carriers` does, by the parts of clusters that delivered it."""
    parts = {(_place(key), _part(key)) for key in held}
    if not metric.labels:
        return {key: one for key, one in stretches.items() if not _part(key) or (_place(key), _part(key)) in parts}
    fitting = {key: one for key, one in stretches.items() if set(_label_names(key)) <= set(metric.labels)}
    found = {key: one for key, one in fitting.items() if (_place(key), _part(key)) in parts}
    return found or {key: one for key, one in fitting.items() if _part(key)} or fitting


def _place(key: Key) -> Key:
    """Return what names the tenant and cluster of an entity."""
    return "\0".join(key.split("\0", 2)[:2])


def _part(key: Key) -> str:
    return key.rpartition("\0")[2]


def _label_names(key: Key) -> list[str]:
    return [pair.partition("=")[0] for pair in _part(key).split(",") if pair]


def _integers(rows: Any, name: str) -> I64:
    values: I64 = rows[name].to_numpy().astype(np.int64)
    return values
