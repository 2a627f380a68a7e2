"""Rollups worked out slowly from stored raw rows, one sample at a time: what the processor's must equal."""

from collections import defaultdict
from fractions import Fraction

from secondsight.catalog.metric import RollupSet
from secondsight.process.counters import starts_at_zero

LOOKBACK_MS = 3_600_000
ATTRIBUTION = ("job_id", "workload_id", "owner_team", "model_id")


def roll_up(metrics, rows):
    """Return {(series, window start, attribution): row} for raw rows given as dicts with times in ms."""
    chains = defaultdict(list)
    for row in rows:
        chains[row["host_id"], row["entity"], row["part"], row["collector_id"]].append(row)
    answer = {}
    for series, chain in chains.items():
        chain.sort(key=lambda row: row["event_time"])
        groups = defaultdict(list)
        for row in chain:
            start = row["event_time"] // 30_000 * 30_000
            groups[start, tuple(row[name] for name in ATTRIBUTION)].append(row)
        for (start, attribution), members in groups.items():
            answer[(*series, start, attribution)] = _row(metrics, chain, members, start + 30_000)
    return answer


def _covered(chain, row, end):
    following = [other["event_time"] for other in chain if other["event_time"] > row["event_time"]]
    return min([row["event_time"] + max(row["interval_ms"], 1), end, *following[:1]]) - row["event_time"]


def _row(metrics, chain, members, end):
    made = {
        "samples": len(members),
        "covered_ms": sum(_covered(chain, row, end) for row in members),
        "first_event_time": members[0]["event_time"],
        "last_event_time": members[-1]["event_time"],
        "interval_ms": max(row["interval_ms"] for row in members),
        "covered_other": {},
        "increase_other": {},
        "resets": {},
        "changes": {},
        "state_ms": {},
    }
    for metric in metrics:
        own = [row for row in chain if row[metric.name] is not None]
        inside = [row for row in own if row in members]
        if inside:
            _metric(made, metric, own, inside, end)
    return made


def _metric(made, metric, own, inside, end):
    name = metric.name
    weights = [_covered(own, row, end) for row in inside]
    values = [row[name] for row in inside]
    made[f"{name}_last"] = values[-1]
    if sum(weights) != made["covered_ms"]:
        made["covered_other"][name] = sum(weights)
    if metric.rollup in (RollupSet.LEVEL, RollupSet.DISTRIBUTION):
        made[f"{name}_sum"] = sum(value * weight for value, weight in zip(values, weights, strict=True))
        made[f"{name}_min"], made[f"{name}_max"] = min(values), max(values)
    if metric.rollup is RollupSet.DISTRIBUTION:
        made[f"{name}_p95"] = _p95(values, weights)
    if metric.rollup is RollupSet.INCREASE:
        made[f"{name}_first"] = values[0]
        _increase(made, metric, own, inside)
    if metric.rollup is RollupSet.STATE:
        _state(made, metric, own, inside, weights)


def _p95(values, weights):
    reached = 0
    for value, weight in sorted(zip(values, weights, strict=True)):
        reached += weight
        if Fraction(reached, sum(weights)) >= Fraction(95, 100):
            return value
    raise AssertionError("no weight")


def _before(own, row):
    earlier = [other for other in own if other["event_time"] < row["event_time"]]
    if not earlier or row["event_time"] - earlier[-1]["event_time"] > LOOKBACK_MS:
        return None
    return earlier[-1]


def _gain(metric, before, row):
    """Return (what a pair adds or None, whether it is a reset)."""
    v1, v2 = before[metric.name], row[metric.name]
    boots = (before["boot_id"], row["boot_id"])
    if boots[0] != boots[1] and all(boots):
        return (v2 if starts_at_zero(metric) else None), 0
    if v2 >= v1:
        return v2 - v1, 0
    return (0, 0) if v1 - v2 <= v1 >> 30 else (v2, 1)


def _is_legal(metric, value, gain, gap):
    if gain is None or (metric.cap is not None and value >= metric.cap / metric.resolution):
        return False
    limit = metric.step_maximum
    return limit is None or gain <= limit / metric.resolution * (gap / 1000 + 1)


def _increase(made, metric, own, inside):
    name, total, spanned, resets, counted = metric.name, 0, 0, 0, False
    for row in inside:
        before = _before(own, row)
        if before is None:
            continue
        gain, reset = _gain(metric, before, row)
        resets += reset
        gap = row["event_time"] - before["event_time"]
        if _is_legal(metric, row[name], gain, gap):
            total, spanned, counted = total + gain, spanned + gap, True
    if counted:
        made[f"{name}_increase"] = total
        if spanned != made["covered_ms"]:
            made["increase_other"][name] = spanned
    if resets:
        made["resets"][name] = resets


def _state(made, metric, own, inside, weights):
    name = metric.name
    changes = sum(1 for row in inside if (before := _before(own, row)) is not None and before[name] != row[name])
    if changes:
        made["changes"][name] = changes
    for row, weight in zip(inside, weights, strict=True):
        value = row[name]
        if metric.bitmask:
            keys = [f"{name}&{1 << bit}" for bit in range(value.bit_length()) if value >> bit & 1]
        else:
            keys = [f"{name}={value}"]
        for key in keys:
            made["state_ms"][key] = made["state_ms"].get(key, 0) + weight
