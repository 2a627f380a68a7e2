"""Rollups of any width worked out slowly from stored raw rows, one sample at a time."""

import bisect
from collections import defaultdict

from process_oracle import ATTRIBUTION, LOOKBACK_MS, _gain, _is_legal
from secondsight.catalog.metric import RollupSet

BASE_MS = 30_000
"""What a sample covers ends with the window of 30 s that it lies in, at every resolution."""


def roll_up(metrics, rows, width_ms):
    """Return {(host, entity, part, collector, window start, attribution): row} for raw rows as dicts, times in ms."""
    chains = defaultdict(list)
    for row in rows:
        chains[row["host_id"], row["entity"], row["part"], row["collector_id"]].append(row)
    answer = {}
    for series, chain in chains.items():
        chain.sort(key=lambda row: row["event_time"])
        groups = defaultdict(list)
        for row in chain:
            start = row["event_time"] // width_ms * width_ms
            groups[start, tuple(row[name] for name in ATTRIBUTION)].append(row)
        own = {metric.name: [row for row in chain if row[metric.name] is not None] for metric in metrics}
        for (start, attribution), members in groups.items():
            answer[(*series, start, attribution)] = _row(metrics, own, chain, members)
    return answer


def _covered(times, row):
    at = row["event_time"]
    end = (at // BASE_MS + 1) * BASE_MS
    following = bisect.bisect_right(times, at)
    limits = [at + max(row["interval_ms"], 1), end, *times[following : following + 1]]
    return min(limits) - at


def _row(metrics, own, chain, members):
    times = [row["event_time"] for row in chain]
    made = {
        "samples": len(members),
        "covered_ms": sum(_covered(times, row) for row in members),
        "first_event_time": members[0]["event_time"],
        "last_event_time": members[-1]["event_time"],
        "interval_ms": max(row["interval_ms"] for row in members),
        **{name: {} for name in ("covered_other", "increase_other", "resets", "changes", "state_ms")},
    }
    ids = {id(row) for row in members}
    sketches = {}
    for metric in metrics:
        inside = [row for row in own[metric.name] if id(row) in ids]
        if inside:
            _metric(made, sketches, metric, own[metric.name], inside)
    return made | {"sketches": sketches}


def _metric(made, sketches, metric, own, inside):
    name = metric.name
    times = [row["event_time"] for row in own]
    weights = [_covered(times, row) for row in inside]
    values = [row[name] for row in inside]
    made[f"{name}_last"] = values[-1]
    if sum(weights) != made["covered_ms"]:
        made["covered_other"][name] = sum(weights)
    if metric.rollup in (RollupSet.LEVEL, RollupSet.DISTRIBUTION):
        made[f"{name}_sum"] = sum(value * weight for value, weight in zip(values, weights, strict=True))
        made[f"{name}_min"], made[f"{name}_max"] = min(values), max(values)
    if metric.rollup is RollupSet.DISTRIBUTION:
        sketches[name] = list(zip(values, weights, strict=True))
    if metric.rollup is RollupSet.INCREASE:
        made[f"{name}_first"] = values[0]
    pairs = [(own[place - 1], row) for row in inside if (place := bisect.bisect_left(times, row["event_time"]))]
    pairs = [(before, row) for before, row in pairs if row["event_time"] - before["event_time"] <= LOOKBACK_MS]
    if metric.rollup is RollupSet.INCREASE:
        _increase(made, metric, pairs)
    if metric.rollup is RollupSet.STATE:
        _state(made, metric, pairs, zip(values, weights, strict=True))


def _increase(made, metric, pairs):
    name, total, spanned, counted = metric.name, 0, 0, False
    for before, row in pairs:
        gain, reset = _gain(metric, before, row)
        if reset:
            made["resets"][name] = made["resets"].get(name, 0) + 1
        gap = row["event_time"] - before["event_time"]
        if _is_legal(metric, row[name], gain, gap):
            total, spanned, counted = total + gain, spanned + gap, True
    if counted:
        made[f"{name}_increase"] = total
        if spanned != made["covered_ms"]:
            made["increase_other"][name] = spanned


def _state(made, metric, pairs, weighted):
    name = metric.name
    changes = sum(before[name] != row[name] for before, row in pairs)
    if changes:
        made["changes"][name] = changes
    for value, weight in weighted:
        if metric.bitmask:
            keys = [f"{name}&{1 << bit}" for bit in range(value.bit_length()) if value >> bit & 1]
        else:
            keys = [f"{name}={value}"]
        for key in keys:
            made["state_ms"][key] = made["state_ms"].get(key, 0) + weight


def nearest_rank(weighted, percent):
    """Return the least value whose share of the weight reaches a percentage."""
    total, reached = sum(weight for _, weight in weighted), 0
    for value, weight in sorted(weighted):
        reached += weight
        if reached * 100 >= total * percent:
            return value
    raise AssertionError("no weight")
