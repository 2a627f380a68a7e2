"""Turn allocation facts into timelines of what they name: a job, or a model on one host."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from secondsight.process.enrich import FOREVER_MS, NOBODY, Attribution, Fact, Span, Subject, difference

GroupKey = tuple[str, str, str, str]
"""Tenant, cluster, then a job and "", or a host and a model."""
Change = tuple[int, int]
FactKey = tuple[Subject, int, str]

_VERSIONS = 0xFFFF_FFFF


@dataclass(slots=True)
class Group:
    """Facts that name one thing.

    Attributes:
        owners: How many of the facts name each owner.
        versions: Sum of the versions of all facts, old ones included.
        first_ms: Start of the first fact, unless `is_stale`.
        spans: The whole of time; None until it is asked for.
    """

    facts: dict[FactKey, Fact] = field(default_factory=dict)
    owners: Counter[Attribution] = field(default_factory=Counter)
    versions: int = 0
    first_ms: int = FOREVER_MS
    is_stale: bool = False
    spans: list[Span] | None = None

    def add(self, fact: Fact) -> None:
        """Add a fact that the group does not have."""
        self.facts[_key(fact)] = fact
        self.owners[fact.attribution] += 1
        self.versions += fact.version
        self.spans = None
        if fact.start_ms <= self.first_ms:
            self.first_ms, self.is_stale = fact.start_ms, False

    def drop(self, fact: Fact) -> None:
        """Forget a fact that the group has."""
        del self.facts[_key(fact)]
        self.owners -= Counter([fact.attribution])
        self.versions -= fact.version
        self.spans = None
        self.is_stale = self.is_stale or fact.start_ms == self.first_ms

    def start_ms(self) -> int:
        """Return the start of the first fact; the end of time where there is none."""
        if self.is_stale:
            self.first_ms = min((fact.start_ms for fact in self.facts.values()), default=FOREVER_MS)
            self.is_stale = False
        return self.first_ms


class Groups:
    """Groups by key. One thread uses it.

    Args:
        key_of: Group of a fact; None where it names nothing.
        spans_of: Timeline of a group.
    """

    def __init__(self, key_of: Callable[[Fact], GroupKey | None], spans_of: Callable[[Group], list[Span]]) -> None:
        self._key_of = key_of
        self._spans_of = spans_of
        self._groups: dict[GroupKey, Group] = {}

    def replace(self, old: Fact | None, new: Fact) -> dict[GroupKey, Change]:
        """Take in a fact and forget the one that it replaces; return what that changes."""
        changes: dict[GroupKey, Change] = {}
        keys = {self._key_of(old) if old is not None else None, self._key_of(new)} - {None}
        for key in sorted(key for key in keys if key is not None):
            group = self._groups.setdefault(key, Group())
            before = self._spans(group)
            if old is not None and self._key_of(old) == key:
                group.drop(old)
            if self._key_of(new) == key:
                group.add(new)
            change = difference(before, self._spans(group))
            if change is not None:
                changes[key] = change
        return changes

    def find(self, key: GroupKey) -> tuple[list[Span], int]:
        """Return the timeline of a group, empty where nothing is known, and its versions."""
        group = self._groups.get(key)
        if group is None:
            return [], 0
        return (self._spans(group) if group.facts else []), group.versions & _VERSIONS

    def count_old(self, key: GroupKey, versions: int) -> None:
        """Take note of the sum of versions of facts that are too old to be kept one by one."""
        self._groups.setdefault(key, Group()).versions += versions

    def start_over(self, before_ms: int) -> None:
        """Forget facts that ended before an instant and all sums of versions, for both are read anew."""
        for key, group in list(self._groups.items()):
            for fact in [fact for fact in group.facts.values() if fact.stop_ms < before_ms]:
                group.drop(fact)
            group.versions = sum(fact.version for fact in group.facts.values())
            if not group.facts:
                del self._groups[key]

    def _spans(self, group: Group) -> list[Span]:
        if group.spans is None:
            group.spans = self._spans_of(group)
        return group.spans


def agreed(owners: Counter[Attribution]) -> Attribution:
    """Return what all owners have in common, field by field; "" where they differ, or where there are none."""
    fields = [set(values) for values in zip(*owners, strict=True)] or [set()] * 4
    job, workload, team, model = (values.pop() if len(values) == 1 else "" for values in fields)
    return job, workload, team, model


def lifelong(group: Group, lead_ms: int) -> list[Span]:
    """Return one owner from `lead_ms` before the first fact on: what all facts of a job have in common."""
    if not group.facts:
        return [Span(-FOREVER_MS, FOREVER_MS, NOBODY, 0)]
    first_ms, owner = group.start_ms() - lead_ms, agreed(group.owners)
    before = Span(-FOREVER_MS, first_ms, (owner[0], "", "", ""), 0)
    return [before, Span(first_ms, FOREVER_MS, owner, 0)]


def momentary(group: Group) -> list[Span]:
    """Return, for every stretch of time, what the owners of its facts have in common."""
    steps = sorted(
        step
        for fact in group.facts.values()
        if fact.start_ms < fact.stop_ms
        for step in ((fact.start_ms, 1, fact.attribution), (fact.stop_ms, -1, fact.attribution))
    )
    spans = [Span(-FOREVER_MS, FOREVER_MS, NOBODY, 0)]
    holders: Counter[Attribution] = Counter()
    for at_ms, step, owner in steps:
        holders[owner] += step
        last = spans[-1]
        if last.start_ms < at_ms:
            spans[-1] = Span(last.start_ms, at_ms, last.attribution, 0)
            spans.append(Span(at_ms, FOREVER_MS, last.attribution, 0))
        spans[-1] = Span(spans[-1].start_ms, FOREVER_MS, agreed(+holders), 0)
    return [span for span in spans if span.start_ms < span.end_ms]


def _key(fact: Fact) -> FactKey:
    return fact.subject, fact.start_ms, fact.attribution[0]
