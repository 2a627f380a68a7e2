"""Turn allocation facts into the attribution of rows at their instant.

A fact says who had an entity from one instant to another. Of several in force, the one that started last counts. What
a row gets is a pure function of the known facts, so a fact that comes late stamps the same rows again. Facts of a whole
GPU hold for its parts, and facts of a MIG slice for what it is cut into, while nobody has the part itself.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from secondsight.process.series import CLUSTER, ENTITY, I32, PART, TENANT, Interner, SeriesTable

I64 = NDArray[np.int64]
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
        facts = self._facts.setdefault(fact.subject, {})
        key = (fact.start_ms, fact.attribution[0])
        old = facts.get(key)
        if old is not None and _order(fact) <= _order(old):
            return None
        before = self.spans(fact.subject)
        facts[key] = fact
        self._spans.pop(fact.subject, None)
        return _difference(before, self.spans(fact.subject))

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

    def forget(self, before_ms: int) -> None:
        """Keep no more than the versions of facts that ended before an instant."""
        for subject, facts in list(self._facts.items()):
            old = [key for key, fact in facts.items() if fact.stop_ms < before_ms]
            for key in old:
                self.count_old(subject, facts.pop(key).version)
            if not facts:
                del self._facts[subject]

    def _own(self, subject: Subject, time_ms: int) -> Span:
        spans = self.spans(subject)
        return spans[bisect_right(spans, time_ms, key=lambda span: span.start_ms) - 1]


class Stamps:
    """Attribution of the rows of one kind: remembers the span that each series was last found in."""

    def __init__(self, allocations: Allocations, table: SeriesTable) -> None:
        self._allocations = allocations
        self._table = table
        self._start_ms = np.zeros(0, np.int64)
        self._end_ms = np.zeros(0, np.int64)
        self._code = np.zeros(0, np.int32)
        self._version = np.zeros(0, np.int64)

    def of(self, series: I32, time_ms: I64) -> tuple[I32, I64]:
        """Return (attribution code, allocation version) of rows."""
        self._reserve(len(self._table))
        unknown = (time_ms < self._start_ms[series]) | (time_ms >= self._end_ms[series])
        code, version = self._code[series], self._version[series]
        for row in np.flatnonzero(unknown).tolist():
            number, instant = int(series[row]), int(time_ms[row])
            if not self._start_ms[number] <= instant < self._end_ms[number]:
                self._find(number, instant)
            code[row], version[row] = self._code[number], self._version[number]
        return code, version

    def forget(self, series: Sequence[int]) -> None:
        """Look up these series again when they are next asked for."""
        self._reserve(len(self._table))
        self._end_ms[list(series)] = 0

    def _find(self, series: int, time_ms: int) -> None:
        names = self._table.names_of(series)
        span = self._allocations.at((names[TENANT], names[CLUSTER], names[ENTITY], names[PART]), time_ms)
        self._start_ms[series], self._end_ms[series] = span.start_ms, span.end_ms
        self._code[series] = self._allocations.attributions.code(span.attribution)
        self._version[series] = span.version

    def _reserve(self, size: int) -> None:
        if size > self._end_ms.size:
            more = max(size, 2 * self._end_ms.size) - self._end_ms.size
            for name in ("_start_ms", "_end_ms", "_code", "_version"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros(more, old.dtype)]))


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


def _difference(before: list[Span], after: list[Span]) -> tuple[int, int] | None:
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
