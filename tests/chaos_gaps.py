"""Which gaps of GPUs there must be, and why, by what was and what was not sent."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

from chaos_frames import rack_of
from chaos_rows import Row, RowKey
from secondsight.model import EntityKind
from secondsight.wire.content import Event

GapKey = tuple[str, str, int, int]
"""Host, GPU, first missing slot, next present one."""


def gaps_of(raw: Mapping[EntityKind, Mapping[RowKey, Row]], shed: list[Event]) -> dict[GapKey, str]:
    """Return the reasons of gaps between samples of GPUs; `shed` was declared."""
    times: defaultdict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for key, row in raw[EntityKind.GPU].items():
        if not key.part:
            times[key.host_id, key.entity].setdefault(key.event_time, row.origin[4])
    beats: defaultdict[str, list[int]] = defaultdict(list)
    for key, row in raw[EntityKind.PLATFORM].items():
        if row.value("agent_up") is not None:
            beats[key.host_id].append(key.event_time)
    found: dict[GapKey, tuple[str, str]] = {}
    for (host, gpu), seen in times.items():
        ordered = sorted(seen)
        for before, after in pairwise(ordered):
            if after - before > 4000:
                found[host, gpu, before + 1000, after] = (seen[before], seen[after])
    crowded = _crowded(found, {host for host, _ in times})
    return {gap: _reason(gap, boots, beats[gap[0]], shed, gap in crowded) for gap, boots in found.items()}


def _crowded(gaps: Iterable[GapKey], hosts: set[str]) -> set[GapKey]:
    """Return gaps that began in a minute in which those of more than half of a rack or of all hosts began."""
    crowded: set[GapKey] = set()
    all_gaps = list(gaps)
    for members in (hosts, *({h for h in hosts if rack_of(h) == rack} for rack in {rack_of(h) for h in hosts})):
        mine = [gap for gap in all_gaps if gap[0] in members]
        for _, _, start, _ in mine:
            minute = [gap for gap in mine if start <= gap[2] <= start + 60_000]
            if len(members) >= 3 and 2 * len({gap[0] for gap in minute}) > len(members):
                crowded.update(minute)
    return crowded


def _reason(gap: GapKey, boots: tuple[str, str], beats: list[int], shed: list[Event], is_crowded: bool) -> str:
    host, _, start_ms, end_ms = gap
    if boots[0] != boots[1]:
        return "host_restart"
    mine = [event for event in shed if event.entity == host]
    if 2 * sum(max(0, min(one.end_ms or 0, end_ms) - max(one.time_ms, start_ms)) for one in mine) > end_ms - start_ms:
        return "shed"
    edge_ms = min((end_ms - start_ms) // 4, 120_000)
    ordered = sorted(beats)
    inside = bisect_left(ordered, start_ms + edge_ms) < bisect_left(ordered, end_ms - edge_ms)
    if inside or is_crowded:
        return "network"
    return "collector_down"
