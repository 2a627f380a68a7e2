"""What the 30 s rows of some raw rows must be, one sample after the other."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from chaos_fleet import CATALOG
from chaos_rows import SOURCE_RANKS, WINDOW_MS, Owner, Row, RowKey, WindowKey
from secondsight.catalog.metric import Metric, RollupSet
from secondsight.model import EntityKind

LOOKBACK_MS = 3_600_000
KEPT_ACROSS_BOOTS = ("aggregate", "remapped", "retired", "lifetime")
BEGIN_AT_ZERO = (EntityKind.GPU, EntityKind.NODE, EntityKind.FABRIC_PORT, EntityKind.PROCESS_JOB)


def roll_up(
    kind: EntityKind, rows: Mapping[RowKey, Row], owners: Mapping[RowKey, Owner]
) -> dict[WindowKey, dict[str, Any]]:
    """Return the 30 s rows of a kind: a sample counts until the next one, its interval's end or its window's end."""
    series: defaultdict[tuple[str, str, str, str], list[RowKey]] = defaultdict(list)
    for key in rows:
        series[key.host_id, key.entity, key.part, key.collector_id].append(key)
    made: dict[WindowKey, dict[str, Any]] = {}
    for chain in series.values():
        chain.sort(key=lambda key: key.event_time)
        samples = [_Sample(key, rows[key], owners[key]) for key in chain]
        ranks: defaultdict[int, set[int]] = defaultdict(set)
        for sample in samples:
            ranks[sample.window_ms].add(SOURCE_RANKS[sample.row.origin[5]])
        for sample, weight in _weighed(samples):
            _count_row(made, sample, weight, min(ranks[sample.window_ms]))
        names = {name for sample in samples for name in sample.row.cells}
        for name in names:
            own = [sample for sample in samples if sample.row.value(name) is not None]
            _count_metric(made, CATALOG.get(name), own)
    for row in made.values():
        row["covered_other"] = {name: ms for name, ms in row["covered_other"].items() if ms != row["covered_ms"]}
        row["increase_other"] = {name: ms for name, ms in row["increase_other"].items() if ms != row["covered_ms"]}
        for name, pairs in row.pop("pairs").items():
            row[f"{name}_p95"] = _p95(pairs)
    return made


class _Sample(NamedTuple):
    key: RowKey
    row: Row
    owner: Owner

    @property
    def time_ms(self) -> int:
        return self.key.event_time

    @property
    def window_ms(self) -> int:
        return self.key.event_time // WINDOW_MS * WINDOW_MS

    @property
    def boot(self) -> str:
        return self.row.origin[4]

    @property
    def window(self) -> WindowKey:
        key = self.key
        return WindowKey(key.host_id, key.entity, key.part, key.collector_id, self.window_ms, self.owner)


def _weighed(samples: list[_Sample]) -> Iterable[tuple[_Sample, int]]:
    for number, sample in enumerate(samples):
        ends = [sample.time_ms + max(sample.row.interval_ms, 1), sample.window_ms + WINDOW_MS]
        ends += [other.time_ms for other in samples[number + 1 : number + 2]]
        yield sample, min(ends) - sample.time_ms


def _count_row(made: dict[WindowKey, dict[str, Any]], sample: _Sample, weight: int, rank: int) -> None:
    new: dict[str, Any] = {"samples": 0, "covered_ms": 0, "interval_ms": 0, "first_event_time": sample.time_ms}
    new |= {name: {} for name in ("covered_other", "increase_other", "resets", "changes", "state_ms", "pairs")}
    row = made.setdefault(sample.window, new | {"source_rank": rank})
    row["samples"] += 1
    row["covered_ms"] += weight
    row["last_event_time"] = sample.time_ms
    row["interval_ms"] = max(row["interval_ms"], sample.row.interval_ms)


def _count_metric(made: dict[WindowKey, dict[str, Any]], metric: Metric, own: list[_Sample]) -> None:
    before: _Sample | None = None
    for sample, weight in _weighed(own):
        row, value = made[sample.window], sample.row.value(metric.name)
        row[f"{metric.name}_last"] = value
        _add(row["covered_other"], metric.name, weight)
        if before is not None and sample.time_ms - before.time_ms > LOOKBACK_MS:
            before = None
        match metric.rollup:
            case RollupSet.LEVEL | RollupSet.DISTRIBUTION:
                _count_gauge(row, metric, value, weight)
            case RollupSet.INCREASE:
                _count_increase(row, metric, before, sample)
            case RollupSet.STATE:
                changes = before is not None and before.row.value(metric.name) != value
                _count_state(row, metric, value, weight, changes=changes)
            case _:
                pass
        before = sample


def _count_gauge(row: dict[str, Any], metric: Metric, value: Any, weight: int) -> None:
    name = metric.name
    row[f"{name}_sum"] = row.get(f"{name}_sum", 0) + value * weight
    row[f"{name}_min"] = min(row.get(f"{name}_min", value), value)
    row[f"{name}_max"] = max(row.get(f"{name}_max", value), value)
    if metric.rollup is RollupSet.DISTRIBUTION:
        row["pairs"].setdefault(name, []).append((value, weight))


def _count_state(row: dict[str, Any], metric: Metric, value: int, weight: int, *, changes: bool) -> None:
    if changes:
        _add(row["changes"], metric.name, 1)
    for state in _states(metric, value):
        _add(row["state_ms"], state, weight)


def _count_increase(row: dict[str, Any], metric: Metric, before: _Sample | None, sample: _Sample) -> None:
    row.setdefault(f"{metric.name}_first", sample.row.value(metric.name))
    if before is None:
        return
    v1, v2 = before.row.value(metric.name), sample.row.value(metric.name)
    gap_ms = sample.time_ms - before.time_ms
    gain = _gain(metric, v1, v2, is_new_boot=before.boot != sample.boot)
    if before.boot == sample.boot and v1 - v2 > v1 >> 30:
        _add(row["resets"], metric.name, 1)
    if gain is None or (metric.cap is not None and v2 >= metric.cap / metric.resolution):
        return
    if metric.step_maximum is not None and gain > metric.step_maximum / metric.resolution * (gap_ms / 1000 + 1):
        return
    row[f"{metric.name}_increase"] = row.get(f"{metric.name}_increase", 0) + gain
    _add(row["increase_other"], metric.name, gap_ms)


def _gain(metric: Metric, v1: int, v2: int, *, is_new_boot: bool) -> int | None:
    """Return what a counter gained between two samples, None where nobody can tell."""
    if is_new_boot:
        begins_at_zero = metric.kind in BEGIN_AT_ZERO and not any(word in metric.name for word in KEPT_ACROSS_BOOTS)
        return v2 if begins_at_zero else None
    if v2 >= v1:
        return v2 - v1
    return 0 if v1 - v2 <= v1 >> 30 else v2


def _states(metric: Metric, value: int) -> list[str]:
    if not metric.bitmask:
        return [f"{metric.name}={value}"]
    return [f"{metric.name}&{1 << bit}" for bit in range(value.bit_length()) if value >> bit & 1]


def _p95(pairs: list[tuple[Any, int]]) -> Any:
    total, reached = sum(weight for _, weight in pairs), 0
    for value, weight in sorted(pairs):
        reached += weight
        if 100 * reached >= 95 * total:
            return value
    raise AssertionError("no weight")


def _add(counts: dict[str, int], name: str, number: int) -> None:
    counts[name] = counts.get(name, 0) + number
