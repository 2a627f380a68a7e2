"""Turn allocation facts into the attribution of rows at their instant.

A fact says who had an entity from one instant to another. Of several in force, the one that started last counts. What
a row gets is a pure function of the known facts, so a fact that comes late stamps the same rows again. Facts of a whole
GPU hold for its parts, and facts of a MIG slice for what it is cut into, while nobody has the part itself.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from secondsight.process.series import Interner

FOREVER_MS = 1 << 62
Attribution = tuple[str, str, str, str]
NOBODY: Attribution = ("", "", "", "")
FIELDS = ("job_id", "workload_id", "owner_team", "model_id")
Subject = tuple[str, str, str, str]
"""Tenant, cluster, entity, part."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One allocation of an entity; the greater version of one (subject, start, job) replaces the smaller."""

    subject: Subject
    host_id: str
    attribution: Attribution
    start_ms: int
    end_ms: int | None
    version: int

    @property
    def stop_ms(self) -> int:
        """Return the end, or the end of time."""
        return FOREVER_MS if self.end_ms is None else max(self.end_ms, self.start_ms)


@dataclass(frozen=True, slots=True)
class Span:
    """Who has an entity from `start_ms` to `end_ms`, and the sum of versions of the facts started by then."""

    start_ms: int
    end_ms: int
    attribution: Attribution
    version: int


class Allocations:
    """All known facts. One thread uses it."""

    def __init__(self) -> None:
        self._facts: dict[Subject, dict[tuple[int, str], Fact]] = {}
        self._old_versions: dict[Subject, int] = {}
        self._spans: dict[Subject, list[Span]] = {}
        self.attributions: Interner[Attribution] = Interner(NOBODY)

    def add(self, fact: Fact) -> tuple[int, int] | None:
        """Take in a fact; return the range of time whose attribution it changes, or None.

        Facts of equal version that differ are settled by their content, whatever came first.
        """
        if not self.is_news(fact):
            return None
        before = self.spans(fact.subject)
        self._facts.setdefault(fact.subject, {})[fact.start_ms, fact.attribution[0]] = fact
        self._spans.pop(fact.subject, None)
        return difference(before, self.spans(fact.subject))

    def known(self, fact: Fact) -> Fact | None:
        """Return what is known of the same allocation."""
        return self._facts.get(fact.subject, {}).get((fact.start_ms, fact.attribution[0]))

    def is_news(self, fact: Fact) -> bool:
        """Tell whether a fact says more than what is known of the same allocation."""
        known = self.known(fact)
        return known is None or _order(fact) > _order(known)

    def spans(self, subject: Subject) -> list[Span]:
        """Return the whole of time in spans of one attribution each, in order."""
        known = self._spans.get(subject)
        if known is None:
            facts = list(self._facts.get(subject, {}).values())
            known = self._spans[subject] = _spans(facts, self._old_versions.get(subject, 0))
        return known

    def at(self, subject: Subject, time_ms: int) -> Span:
        """Return the span of an instant; where nobody has a part, what holds for the thing that it is a part of."""
        found = self._own(subject, time_ms)
        for part in _wider(subject[3]):
            wider = self._own((*subject[:3], part), time_ms)
            found = Span(
                max(found.start_ms, wider.start_ms),
                min(found.end_ms, wider.end_ms),
                found.attribution if found.attribution != NOBODY else wider.attribution,
                (found.version + wider.version) & 0xFFFF_FFFF,
            )
        return found

    def count_old(self, subject: Subject, versions: int) -> None:
        """Take note of the sum of versions of facts that ended too long ago to be kept one by one."""
        self._old_versions[subject] = self._old_versions.get(subject, 0) + versions
        self._spans.pop(subject, None)

    def start_over(self, before_ms: int) -> None:
        """Forget facts that ended before an instant and all sums of versions, for both are read anew."""
        for subject, facts in list(self._facts.items()):
            for key in [key for key, fact in facts.items() if fact.stop_ms < before_ms]:
                del facts[key]
            if not facts:
                del self._facts[subject]
        self._old_versions.clear()
        self._spans.clear()

    def _own(self, subject: Subject, time_ms: int) -> Span:
        spans = self.spans(subject)
        return spans[bisect_right(spans, time_ms, key=lambda span: span.start_ms) - 1]


def _order(fact: Fact) -> tuple[int, int, Attribution]:
    return fact.version, fact.stop_ms, fact.attribution


def _wider(part: str) -> list[str]:
    """Return what a part is a part of, nearest first: the compute instance, the MIG slice, the whole."""
    pairs = part.split(",")
    compute = ",".join(pair for pair in pairs if pair.startswith(("ci=", "gi=")))
    graphics = ",".join(pair for pair in pairs if pair.startswith("gi="))
    return [each for each in dict.fromkeys((compute, graphics, "")) if each != part]


def _spans(facts: list[Fact], old_versions: int) -> list[Span]:
    bounds = sorted({-FOREVER_MS, *(fact.start_ms for fact in facts), *(fact.stop_ms for fact in facts)} - {FOREVER_MS})
    pairs = zip(bounds, [*bounds[1:], FOREVER_MS], strict=True)
    return [_span(facts, start, end, old_versions) for start, end in pairs]


def _span(facts: list[Fact], start_ms: int, end_ms: int, old_versions: int) -> Span:
    started = [fact for fact in facts if fact.start_ms <= start_ms]
    in_force = [fact for fact in started if start_ms < fact.stop_ms]
    chosen = max(in_force, key=lambda fact: (fact.start_ms, *_order(fact)), default=None)
    attribution = chosen.attribution if chosen else NOBODY
    versions = old_versions + sum(fact.version for fact in started)
    return Span(start_ms, end_ms, attribution, versions & 0xFFFF_FFFF)


def difference(before: list[Span], after: list[Span]) -> tuple[int, int] | None:
    """Return the least range outside of which two timelines attribute alike."""
    bounds = [*sorted({span.start_ms for span in (*before, *after)}), FOREVER_MS]
    changed = [
        (start, end)
        for start, end in pairwise(bounds)
        if _attribution_at(before, start) != _attribution_at(after, start)
    ]
    return (changed[0][0], changed[-1][1]) if changed else None


def _attribution_at(spans: list[Span], time_ms: int) -> Attribution:
    return spans[bisect_right(spans, time_ms, key=lambda span: span.start_ms) - 1].attribution
