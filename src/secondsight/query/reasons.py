"""Say why there is a gap, by what else is known of its time: the first reason that fits.

Pure functions: `Evidence` has been read before. Reasons that somebody decided on, `EXPECTED`, are no findings.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from secondsight.query.gaps import Gap

SLACK_MS = 120_000
"""How far what was announced and what is seen may lie apart."""
BOOT_SLACK_MS = 5_000
LATE_MS = 60_000
"""What comes so much later waited for a way out."""
TOGETHER_HOSTS = 3
Place = tuple[str, str, str]
"""Tenant, cluster, host; host "" stands for all of a cluster."""
Range = tuple[int, int]
"""Half open, epoch ms."""


class Reason(StrEnum):
    """Why slots are missing."""

    MAINTENANCE = "maintenance"
    HOST_TERMINATED = "host_terminated"
    DRAINED = "drained"
    HOST_RESTART = "host_restart"
    SHED = "shed"
    CLOCK = "clock"
    QUOTA = "quota"
    OVERLOAD = "overload"
    COLLECTOR_DOWN = "collector_down"
    NETWORK = "network"
    SOURCE = "source"
    UNKNOWN = "unknown"


EXPECTED = frozenset({Reason.MAINTENANCE, Reason.HOST_TERMINATED, Reason.DRAINED, Reason.HOST_RESTART})
"""Reasons that are no findings."""
NOT_DUE = frozenset({Reason.MAINTENANCE, Reason.HOST_TERMINATED, Reason.DRAINED})
"""Reasons for which the slots were not expected in the first place."""


@dataclass(frozen=True, slots=True)
class Shed:
    """What an agent declared that it will not send."""

    kind: str
    range: Range


@dataclass(frozen=True, slots=True)
class Beat:
    """Heartbeats of an agent without a gap, within one window: the first and last of them, and the latest's delay."""

    first_ms: int
    last_ms: int
    late_ms: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of hosts with gaps.

    Attributes:
        maintenance: Announced, by host or cluster.
        terminated: Times in which an instance did not run, as its cloud announced.
        drained: Times at which a scheduler said that a host is drained.
        boots: Times of boots.
        boot_ids: Boot ids before and after a gap, by its entity and start; "" where unknown.
        shed: Declarations.
        quarantined: When rows were refused for their time.
        beyond_quota: When rows were refused as their tenant has too many series.
        over_quota, overloaded: When an agent was told to wait: by its tenant's quota, or as the gateway had no room.
        beats: Heartbeats, by agent.
        others: When a host was seen by others than an agent: (agent, first, last).
    """

    maintenance: Mapping[Place, Sequence[Range]] = field(default_factory=dict)
    terminated: Mapping[Place, Sequence[Range]] = field(default_factory=dict)
    drained: Mapping[Place, Sequence[Range]] = field(default_factory=dict)
    boots: Mapping[Place, Sequence[int]] = field(default_factory=dict)
    boot_ids: Mapping[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    shed: Mapping[Place, Sequence[Shed]] = field(default_factory=dict)
    quarantined: Mapping[Place, Sequence[int]] = field(default_factory=dict)
    beyond_quota: Mapping[Place, Sequence[int]] = field(default_factory=dict)
    over_quota: Mapping[Place, Sequence[Range]] = field(default_factory=dict)
    overloaded: Mapping[Place, Sequence[Range]] = field(default_factory=dict)
    beats: Mapping[Place, Sequence[Beat]] = field(default_factory=dict)
    others: Mapping[Place, Sequence[tuple[str, int, int]]] = field(default_factory=dict)


def reason_of(gap: Gap, evidence: Evidence, kind: str, *, is_together: bool) -> Reason:
    """Return why there is a gap.

    Args:
        gap: The gap.
        evidence: Of its host.
        kind: Kind of its entity.
        is_together: Much of its rack or cluster fell silent with it.
    """
    place, span = gap.place, (gap.start_ms, gap.end_ms)
    tests = (
        (Reason.MAINTENANCE, _covered(span, _of_place(evidence.maintenance, place))),
        (Reason.HOST_TERMINATED, _covered(span, evidence.terminated.get(place, ()))),
        (Reason.DRAINED, _covered(span, evidence.drained.get(place, ()))),
        (Reason.HOST_RESTART, _restarted(gap, evidence)),
        (Reason.SHED, _is_shed(gap, evidence.shed.get(place, ()), kind)),
        (Reason.CLOCK, _refused(gap, evidence.quarantined.get(place, ()))),
        (Reason.QUOTA, _refused(gap, evidence.beyond_quota.get(place, ()))),
        (Reason.QUOTA, _covered(span, evidence.over_quota.get(place, ()))),
        (Reason.OVERLOAD, _covered(span, evidence.overloaded.get(place, ()))),
    )
    for reason, holds in tests:
        if holds:
            return reason
    return _by_heartbeats(gap, evidence, is_together=is_together)


def together(gaps: Sequence[Gap], hosts: Mapping[tuple[str, str, str], Iterable[str]], span_ms: Range) -> set[int]:
    """Return the positions of gaps that began with those of more than half of their rack's or cluster's hosts.

    Args:
        gaps: All gaps.
        hosts: Tenant, cluster, rack ("" for the whole cluster) -> hosts that were to report.
        span_ms: Range that was asked for; what began before it has no start to compare.
    """
    found: set[int] = set()
    begun: defaultdict[tuple[str, str, str], list[tuple[int, str, int]]] = defaultdict(list)
    for number, gap in enumerate(gaps):
        tenant, cluster, host = gap.place
        if gap.start_ms > span_ms[0]:
            for rack in {gap.rack, ""}:
                begun[tenant, cluster, rack].append((gap.start_ms, host, number))
    for group, starts in begun.items():
        all_hosts = set(hosts.get(group, ()))
        if len(all_hosts) >= TOGETHER_HOSTS:
            found |= _crowds(sorted(starts), len(all_hosts))
    return found


def _crowds(starts: Sequence[tuple[int, str, int]], hosts: int) -> set[int]:
    """Return what is in a minute in which more than half of the hosts fell silent."""
    found: set[int] = set()
    counts: defaultdict[str, int] = defaultdict(int)
    first = taken = 0
    for last, (time_ms, host, _) in enumerate(starts):
        counts[host] += 1
        while time_ms - starts[first][0] > LATE_MS:
            gone = starts[first][1]
            counts[gone] -= 1
            if not counts[gone]:
                del counts[gone]
            first += 1
        if 2 * len(counts) > hosts:
            found.update(number for _, _, number in starts[max(first, taken) : last + 1])
            taken = last + 1
    return found


def _of_place(found: Mapping[Place, Sequence[Range]], place: Place) -> Sequence[Range]:
    return (*found.get(place, ()), *found.get((*place[:2], ""), ()))


def _covered(span: Range, ranges: Iterable[Range]) -> bool:
    """Tell whether a gap begins inside one of some ranges, or lies in them for the most part."""
    inside = 0
    for start, end in ranges:
        if start - SLACK_MS <= span[0] < end:
            return True
        inside += max(0, min(end, span[1]) - max(start, span[0]))
    return 2 * inside > span[1] - span[0]


def _restarted(gap: Gap, evidence: Evidence) -> bool:
    boots = evidence.boots.get(gap.place, ())
    if any(gap.start_ms - gap.interval_ms - BOOT_SLACK_MS <= time < gap.end_ms for time in boots):
        return True
    before, after = evidence.boot_ids.get((gap.key, gap.start_ms), ("", ""))
    return bool(before and after and before != after)


def _is_shed(gap: Gap, declared: Iterable[Shed], kind: str) -> bool:
    mine = [one.range for one in declared if one.kind in ("", kind)]
    inside = sum(max(0, min(end, gap.end_ms) - max(start, gap.start_ms)) for start, end in _merged(mine))
    return 2 * inside > gap.end_ms - gap.start_ms


def _refused(gap: Gap, times_ms: Iterable[int]) -> bool:
    """Tell whether something was refused during a gap, or soon after it."""
    return any(gap.start_ms <= time_ms < gap.end_ms + SLACK_MS for time_ms in times_ms)


def _merged(ranges: Iterable[Range]) -> list[Range]:
    found: list[Range] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _by_heartbeats(gap: Gap, evidence: Evidence, *, is_together: bool) -> Reason:
    """Return the reason that the silence or the words of the agent mean."""
    edge_ms = min((gap.end_ms - gap.start_ms) // 4, SLACK_MS)
    start_ms, end_ms = gap.start_ms + edge_ms, gap.end_ms - edge_ms
    inside = [beat for beat in evidence.beats.get(gap.place, ()) if beat.last_ms >= start_ms and beat.first_ms < end_ms]
    if not inside:
        agent = agent_of(gap.agent)
        others = evidence.others.get(gap.place, ())
        seen = any(other != agent and last >= start_ms and first < end_ms for other, first, last in others)
        before, after = evidence.boot_ids.get((gap.key, gap.start_ms), ("", ""))
        if seen or (before and before == after and not is_together):
            return Reason.COLLECTOR_DOWN
        return Reason.NETWORK if is_together else Reason.UNKNOWN
    if is_together or any(beat.late_ms > LATE_MS for beat in inside):
        return Reason.NETWORK
    return Reason.SOURCE


def agent_of(collector_id: str) -> str:
    """Return the agent that a collector belongs to."""
    return collector_id.partition("/")[0]
