"""Rollups of any width worked out slowly from stored raw rows, one sample at a time: what the tables must equal."""

import bisect
from collections import defaultdict

from secondsight.catalog.metric import RollupSet
from secondsight.process.counters import starts_at_zero

BASE_MS = 30_000
"""What a sample covers ends with the window of 30 s that it lies in, at every resolution."""
LOOKBACK_MS = 3_600_000
ATTRIBUTION = ("job_id", "workload_id", "owner_team", "model_id")


def roll_up(metrics, rows, width_ms=BASE_MS):
    """Return {(host, entity, part, collector, window start, attribution): row} for raw rows as dicts, times in ms.

    The `sketches` of a row are {metric: [(value, weight)]} of all whose percentiles are kept.
    """
    answer = {}
    for series, chain in chains_of(rows).items():
        groups = defaultdict(list)
        for row in chain:
            start = row["event_time"] // width_ms * width_ms
            groups[start, tuple(row[name] for name in ATTRIBUTION)].append(row)
        own = {metric.name: [row for row in chain if row[metric.name] is not None] for metric in metrics}
        for (start, attribution), members in groups.items():
            answer[(*series, start, attribution)] = _row(metrics, own, chain, members)
    return answer


def roll_up_settled(metrics, rows, width_ms):
    """Return {(host, entity, part, first collector, window start, attribution): row} of windows above the finest.

    Of several collectors that tell a metric of an entity and part, each window of 30 s has the first by rank and name.
    """
    chains, groups = chains_of(rows), defaultdict(list)
    own = {
        (*series, metric.name): [row for row in chain if row[metric.name] is not None]
        for series, chain in chains.items()
        for metric in metrics
    }
    for row in sorted(rows, key=lambda row: row["event_time"]):
        attribution = tuple(row[name] for name in ATTRIBUTION)
        groups[place_of(row), row["event_time"] // width_ms * width_ms, attribution].append(row)
    sources, fine = defaultdict(set), defaultdict(list)
    for row in rows:
        fine[place_of(row), row["event_time"] // BASE_MS].append(row)
        sources[place_of(row), row["event_time"] // width_ms * width_ms].add((row["source_rank"], row["collector_id"]))
    answer = {}
    for (place, start, attribution), members in groups.items():
        rank, collector = min(sources[place, start])
        made = _settled_row(metrics, chains, own, members, fine)
        answer[(*place, collector, start, attribution)] = made | {"source_rank": rank}
    return answer


def place_of(row):
    return (row["host_id"], row["entity"], row["part"])


def series_of(row):
    return (*place_of(row), row["collector_id"])


def times_of(rows):
    return [row["event_time"] for row in rows]


def _counts(row, fine, told):
    """Tell whether a row is of the first collector in its window of 30 s that tells something of its entity, part."""
    near = fine[place_of(row), row["event_time"] // BASE_MS]
    ranks = defaultdict(list)
    for other in near:
        ranks[other["collector_id"]].append(other["source_rank"])
    tellers = {other["collector_id"] for other in near if told(other)}
    return row["collector_id"] == min(tellers, key=lambda collector: (min(ranks[collector]), collector))


def _settled_row(metrics, chains, own, members, fine):
    def is_mine(other):
        return all(other[name] == members[0][name] for name in ATTRIBUTION)

    counted = [row for row in members if _counts(row, fine, is_mine)]
    made = _plain(members) | {
        "samples": len(counted),
        "source_samples": len(members),
        "covered_ms": sum(_covered(times_of(chains[series_of(row)]), row) for row in counted),
    }
    for metric in metrics:
        told = [row for row in members if row[metric.name] is not None]
        inside = [row for row in told if _counts(row, fine, lambda other, n=metric.name: other[n] is not None)]
        if inside:
            _metric(made, metric, [own[(*series_of(row), metric.name)] for row in inside], inside)
    return made


def chains_of(rows):
    """Return {(host, entity, part, collector): rows in order of time}."""
    chains = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["event_time"]):
        chains[row["host_id"], row["entity"], row["part"], row["collector_id"]].append(row)
    return chains


def before(own, row):
    """Return the row before one in its chain, or None where that is too long ago."""
    place = bisect.bisect_left(own, row["event_time"], key=lambda other: other["event_time"])
    if not place or row["event_time"] - own[place - 1]["event_time"] > LOOKBACK_MS:
        return None
    return own[place - 1]


def gain(metric, before, row):
    """Return (what a pair adds or None, whether it is a reset)."""
    v1, v2 = before[metric.name], row[metric.name]
    boots = (before["boot_id"], row["boot_id"])
    if boots[0] != boots[1] and all(boots):
        return (v2 if starts_at_zero(metric) else None), 0
    if v2 >= v1:
        return v2 - v1, 0
    return (0, 0) if v1 - v2 <= v1 >> 30 else (v2, 1)


def is_legal(metric, value, gain, gap):
    """Tell whether a gain within so many milliseconds counts."""
    if gain is None or (metric.cap is not None and value >= metric.cap / metric.resolution):
        return False
    limit = metric.step_maximum
    return limit is None or gain <= limit / metric.resolution * (gap / 1000 + 1)


def nearest_rank(weighted, percent):
    """Return the least value whose share of the weight reaches a percentage."""
    total, reached = sum(weight for _, weight in weighted), 0
    for value, weight in sorted(weighted):
        reached += weight
        if reached * 100 >= total * percent:
            return value
    raise AssertionError("no weight")


def _covered(times, row):
    at = row["event_time"]
    end = (at // BASE_MS + 1) * BASE_MS
    following = bisect.bisect_right(times, at)
    limits = [at + max(row["interval_ms"], 1), end, *times[following : following + 1]]
    return min(limits) - at


def _row(metrics, own, chain, members):
    times = [row["event_time"] for row in chain]
    made = _plain(members) | {
        "samples": len(members),
        "covered_ms": sum(_covered(times, row) for row in members),
        "source_rank": min(row["source_rank"] for row in members),
    }
    ids = {id(row) for row in members}
    for metric in metrics:
        inside = [row for row in own[metric.name] if id(row) in ids]
        if inside:
            _metric(made, metric, [own[metric.name]] * len(inside), inside)
    return made


def _plain(members):
    return {
        "first_event_time": members[0]["event_time"],
        "last_event_time": members[-1]["event_time"],
        "interval_ms": max(row["interval_ms"] for row in members),
        **{name: {} for name in ("covered_other", "increase_other", "resets", "changes", "state_ms", "sketches")},
    }


def _metric(made, metric, owns, inside):
    """Add what rows give of a metric; each comes with the rows of its chain that have it."""
    name = metric.name
    times = {id(own): times_of(own) for own in owns}
    weights = [_covered(times[id(own)], row) for own, row in zip(owns, inside, strict=True)]
    values = [row[name] for row in inside]
    weighted = list(zip(values, weights, strict=True))
    made[f"{name}_last"] = values[-1]
    if sum(weights) != made["covered_ms"]:
        made["covered_other"][name] = sum(weights)
    if metric.rollup in (RollupSet.LEVEL, RollupSet.DISTRIBUTION):
        made[f"{name}_sum"] = sum(value * weight for value, weight in weighted)
        made[f"{name}_min"], made[f"{name}_max"] = min(values), max(values)
    if metric.rollup is RollupSet.DISTRIBUTION:
        made["sketches"][name] = weighted
    near = ((before(own, row), row) for own, row in zip(owns, inside, strict=True))
    pairs = [(earlier, row) for earlier, row in near if earlier is not None]
    if metric.rollup is RollupSet.INCREASE:
        made[f"{name}_first"] = values[0]
        _increase(made, metric, pairs)
    if metric.rollup is RollupSet.STATE:
        _state(made, metric, pairs, weighted)


def _increase(made, metric, pairs):
    name, total, spanned, counted = metric.name, 0, 0, False
    for earlier, row in pairs:
        gained, reset = gain(metric, earlier, row)
        if reset:
            made["resets"][name] = made["resets"].get(name, 0) + 1
        gap = row["event_time"] - earlier["event_time"]
        if is_legal(metric, row[name], gained, gap):
            total, spanned, counted = total + gained, spanned + gap, True
    if counted:
        made[f"{name}_increase"] = total
        if spanned != made["covered_ms"]:
            made["increase_other"][name] = spanned


def _state(made, metric, pairs, weighted):
    name = metric.name
    changes = sum(earlier[name] != row[name] for earlier, row in pairs)
    if changes:
        made["changes"][name] = changes
    for value, weight in weighted:
        if metric.bitmask:
            keys = [f"{name}&{1 << bit}" for bit in range(value.bit_length()) if value >> bit & 1]
        else:
            keys = [f"{name}={value}"]
        for key in keys:
            made["state_ms"][key] = made["state_ms"].get(key, 0) + weight
