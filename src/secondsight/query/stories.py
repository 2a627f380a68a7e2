"""Tell gaps of one reason that overlap as one story, at the level of which they befell more than half.

A host of which most entities lack rows at a time is one story; so is a rack of which most hosts do, and a cluster.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from secondsight.query.coverage import Key
from secondsight.query.gapreader import Explained
from secondsight.query.gaps import Stretch
from secondsight.query.reasons import Reason

Place = tuple[str, ...]
"""Tenant, cluster, then rack and host where it is one."""


@dataclass(frozen=True, slots=True)
class Story:
    """Gaps of one reason at one time, of one place.

    Attributes:
        level: Of the place: entity, host, rack or cluster.
        entities, hosts: How many have such a gap.
        missing: Slots, of all of them.
    """

    level: str
    tenant_id: str
    cluster_id: str
    rack: str
    host_id: str
    entity: str
    start_ms: int
    end_ms: int
    is_open: bool
    reason: Reason
    entities: int
    hosts: int
    missing: int


def stories_of(gaps: Sequence[Explained], planned: Mapping[Key, Sequence[Stretch]]) -> list[Story]:
    """Return the stories of some gaps, in order of time.

    Args:
        gaps: The gaps, with their reasons.
        planned: What was to report, by entity.
    """
    entities, hosts, racks = Counter[Place](), defaultdict[Place, set[str]](set), defaultdict[Place, set[str]](set)
    for key, some in planned.items():
        tenant, cluster, host, _, _ = key.split("\0")
        rack = some[0].rack
        entities[tenant, cluster, rack, host] += 1
        hosts[tenant, cluster, rack].add(host)
        hosts[tenant, cluster].add(host)
        racks[tenant, cluster].add(rack)
    many = {place: len(names) for place, names in hosts.items() if len(names) > 1}
    clusters = {place: count for place, count in many.items() if len(racks.get(place, ())) > 1}
    told = [_story(one) for one in gaps]
    told = _lifted(told, "host", lambda story: (*_cluster(story), story.rack, story.host_id), entities)
    told = _lifted(told, "rack", lambda story: (*_cluster(story), story.rack), many)
    told = _lifted(told, "cluster", _cluster, clusters)
    return sorted(
        told, key=lambda story: (story.start_ms, story.tenant_id, story.cluster_id, story.host_id, story.entity)
    )


def _cluster(story: Story) -> Place:
    return story.tenant_id, story.cluster_id


def _story(one: Explained) -> Story:
    gap = one.gap
    tenant, cluster, host, entity, _ = gap.key.split("\0")
    times = (gap.start_ms, gap.end_ms, gap.is_open)
    return Story("entity", tenant, cluster, gap.rack, host, entity, *times, one.reason, 1, 1, gap.expected)


def _lifted(
    told: Sequence[Story], level: str, place_of: Callable[[Story], Place], members: Mapping[Place, int]
) -> list[Story]:
    """Return the stories with those joined that befell more than half of a place: of its entities, or of its hosts."""
    groups: defaultdict[tuple[Place, Reason], list[Story]] = defaultdict(list)
    kept = []
    for story in told:
        if (level == "host") == (story.level == "entity") and place_of(story) in members:
            groups[place_of(story), story.reason].append(story)
        else:
            kept.append(story)
    for (place, _), some in groups.items():
        for crowd in _overlapping(some):
            befallen = {(story.host_id, story.entity, story.rack): story for story in crowd}
            count = len(befallen) if level == "host" else sum(story.hosts for story in befallen.values())
            kept += [_joined(crowd, level, count)] if 2 * count > members[place] else crowd
    return kept


def _overlapping(some: Iterable[Story]) -> list[list[Story]]:
    """Return groups of stories each of which overlaps one before it."""
    crowds: list[list[Story]] = []
    end_ms = -1
    for story in sorted(some, key=lambda one: one.start_ms):
        if story.start_ms < end_ms:
            crowds[-1].append(story)
        else:
            crowds.append([story])
        end_ms = max(end_ms, story.end_ms)
    return crowds


def _joined(crowd: Sequence[Story], level: str, count: int) -> Story:
    return replace(
        crowd[0],
        level=level,
        rack="" if level == "cluster" else crowd[0].rack,
        host_id=crowd[0].host_id if level == "host" else "",
        entity="",
        start_ms=min(story.start_ms for story in crowd),
        end_ms=max(story.end_ms for story in crowd),
        is_open=any(story.is_open for story in crowd),
        entities=sum(story.entities for story in crowd),
        hosts=1 if level == "host" else count,
        missing=sum(story.missing for story in crowd),
    )
