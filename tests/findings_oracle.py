"""Findings worked out slowly from stored raw rows, one sample at a time: what the processor's must be."""

from dataclasses import dataclass

import process_oracle

WINDOW_MS = 30_000
RELATED_MS = 3_600_000


@dataclass
class Found:
    begin: int
    end: int | None
    count: int


def expected(rules, rows):
    """Return {(event, code, host, entity, part, collector, begin, end, count, severity)} for rows with times in ms."""
    chains = process_oracle.chains_of(rows)
    answer = set()
    for rule in rules:
        for series, chain in chains.items():
            for found in _found(rule, chain):
                code = rule.code
                if rule.restarts and _all_restart(rule, found.begin // WINDOW_MS, series, chains):
                    code = rule.code_of_all
                answer.add((rule.event, code, *series, found.begin, found.end, found.count, rule.severity(found.count)))
    return answer


def _found(rule, chain):
    if rule.lasts:
        return _lasting(rule, [row for row in chain if row[rule.metrics[0].name] is not None])
    counted = [_counted(rule, metric, chain) for metric in rule.metrics]
    merged = {}
    for each in counted:
        for window, found in each.items():
            known = merged.setdefault(window, found)
            known.begin, known.end = min(known.begin, found.begin), max(known.end, found.end)
            known.count = max(known.count, found.count)
    return [found for found in merged.values() if rule.restarts or found.count >= rule.levels[0][0]]


def _holds(rule, value):
    if rule.values:
        return value in rule.values
    if rule.bits:
        return bool(value & rule.bits) and not value & rule.unless
    return value >= rule.least if rule.least is not None else value <= rule.most


def _tells(rule, value):
    if rule.until is None or _holds(rule, value):
        return True
    return value <= rule.until if rule.least is not None else value >= rule.until


def _lasting(rule, own):
    own = [row for row in own if _tells(rule, row[rule.metrics[0].name])]
    made, lasting, before = [], None, None
    for row in own:
        time, held = row["event_time"], _holds(rule, row[rule.metrics[0].name])
        is_blind = rule.change and (before is None or time - before[0] > RELATED_MS)
        if held and not is_blind and not (before and before[1]):
            if made and made[-1].begin // WINDOW_MS == time // WINDOW_MS:
                made[-1].count, made[-1].end = made[-1].count + 1, None
            else:
                made.append(Found(time, None, 1))
            lasting = made[-1]
        elif not held and lasting is not None:
            lasting.end, lasting = time, None
        before = (time, held)
    return made


def _counted(rule, metric, chain):
    own = [row for row in chain if row[metric.name] is not None]
    windows = {}
    for row in own:
        before = process_oracle.before(own, row)
        if before is None:
            continue
        gain, reset = process_oracle.gain(metric, before, row)
        amount = reset if rule.restarts else gain or 0
        gap = row["event_time"] - before["event_time"]
        if not amount or not (rule.restarts or process_oracle.is_legal(metric, row[metric.name], gain, gap)):
            continue
        time = row["event_time"]
        found = windows.setdefault(time // WINDOW_MS, Found(time, time, 0))
        found.end, found.count = time, found.count + amount
    return windows


def _all_restart(rule, window, series, chains):
    """Tell whether every entity that a collector has in a window on a host restarts in it."""
    peers = [
        (other, chain)
        for other, chain in chains.items()
        if (other[0], other[3], "") == (series[0], series[3], other[2])
        and any(row["event_time"] // WINDOW_MS == window for row in chain)
    ]
    restarted = [any(window in _counted(rule, metric, chain) for metric in rule.metrics) for _, chain in peers]
    return len(peers) > 1 and all(restarted)
