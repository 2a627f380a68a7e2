"""Answer which gaps there are, and why: see `gaps.py` for what a gap is and `reasons.py` for the reasons."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from secondsight.access.maintenance import MaintenanceWindow
from secondsight.access.scope import Scope
from secondsight.clock import Clock
from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.query.coverage import Key, Lack, entity_of
from secondsight.query.evidence import EvidenceReader
from secondsight.query.gaps import (
    Filled,
    Gap,
    Seen,
    Stretch,
    compile_filled,
    compile_last_before,
    compile_row_counts,
    compile_rows,
    compile_window_counts,
    compile_windows,
    filled_of,
    gaps_of,
    key_of,
    places_of,
    seen_of_rows,
    seen_of_windows,
    stretches,
    suspects,
)
from secondsight.query.inventory import Inventory
from secondsight.query.plan import GRACE_MS, Span
from secondsight.query.progress import progress_of
from secondsight.query.reasons import NOT_DUE, Evidence, Reason, reason_of, together
from secondsight.query.request import Filters
from secondsight.query.samples import HotSamples, Samples

KEPT_SECONDS = 5.0
WINDOW_MS = 30_000
TAIL_MAXIMUM_MS = 900_000
BACK_MS = 86_400_000
"""How far before a range the beginning of a gap is looked for."""
RANGE_MAXIMUM_MS = 31 * 86_400_000
COUNTED_MAXIMUM = 60_000_000
"""Rows of 30 s that may be counted."""
LOOKED_AT_MAXIMUM = 3_000_000
"""Rows of 30 s of entities with gaps that may be looked at one by one."""
ROWS_MAXIMUM = 50_000_000
"""Rows of 1 s that may be looked at for what came late."""
BESIDE_MAXIMUM = 1_000_000
"""Rows of 30 s that may be counted beside an answer, to say what its gaps are."""
BESIDE_LACKING = 5_000
"""Entities and parts whose gaps are looked for beside an answer; more lack rows where the platform itself is behind."""
EXPLAINED_MAXIMUM = 20_000
"""Gaps whose reasons are worked out."""

Planned = Callable[[Scope, Span], Sequence[MaintenanceWindow]]


@dataclass(frozen=True, slots=True)
class Explained:
    """A gap with its reason."""

    gap: Gap
    reason: Reason


@dataclass(frozen=True, slots=True)
class Found:
    """The gaps of a range, longest standing first.

    Attributes:
        planned: What each entity that was looked at was to report.
        tier: Where rows were read: `hot`, `cold` or `hot+cold`.
        missing: Why a part of the range was not looked at; "" where all of it was.
    """

    gaps: tuple[Explained, ...]
    span: Span
    planned: dict[Key, list[Stretch]]
    tier: str = "hot"
    missing: str = ""


class GapReader:
    """Finds and explains gaps. Safe from several threads.

    Args:
        planned: Returns the planned work of a scope in a range.
        samples: Reads seconds and windows; from the hot store where nothing is given.
    """

    def __init__(self, inventory: Inventory, clock: Clock, planned: Planned, samples: Samples | None = None) -> None:
        self._inventory = inventory
        self._clock = clock
        self._planned = planned
        self._samples = samples or HotSamples(inventory)
        self._evidence = EvidenceReader(inventory, self._samples)

    def over(self, samples: Samples) -> "GapReader":
        """Return one that reads seconds and windows elsewhere."""
        return GapReader(self._inventory, self._clock, self._planned, samples)

    def read(
        self, kind: EntityKind, filters: Filters, span: Span, scope: Scope, lacking_maximum: int | None = None
    ) -> Found:
        """Return the gaps of the entities that filters admit, in a range; kept for a few seconds.

        Raises:
            Rejected(range_too_wide): It would cost more than one question may, or more entities lack rows than may.
            Retryable: The store is away or busy.
        """
        key = ("gaps", kind, filters, span, scope, lacking_maximum)
        found: Found = self._inventory.remember(
            key, KEPT_SECONDS, lambda: self._read(kind, filters, span, scope, lacking_maximum)
        )
        return found

    def filled(self, kind: EntityKind, filters: Filters, span: Span, scope: Scope) -> list[Filled]:
        """Return the gaps of a range that a backlog closed, in order of time; each row is looked at.

        Raises:
            Rejected(range_too_wide): There would be too many.
            Retryable: The store is away or busy.
        """
        planned = stretches(self._inventory.expected(kind, filters, scope), span, span.to_ms)
        step_ms = min((one.interval_ms for some in planned.values() for one in some), default=1000)
        if len(planned) * (span.to_ms - span.from_ms) // step_ms > ROWS_MAXIMUM:
            raise _too_wide(f"every row of {len(planned):,} entities")
        placed = self._inventory.placed(kind, filters, scope)
        rows = self._samples.rows(kind, span, lambda part: compile_filled(kind, placed, part, scope))
        found = filled_of(rows)
        return sorted(found, key=lambda one: (one.start_ms, one.key))

    def lacks(self, kind: EntityKind, filters: Filters, span: Span, scope: Scope) -> dict[str, Lack] | None:
        """Return entity -> what its gaps come to, or None where finding out would cost more than an answer may.

        Raises:
            Retryable: The store is away or busy.
        """
        entities = _count_planned(self._inventory.expected(kind, filters, scope), span)
        if entities * (span.to_ms - span.from_ms) // WINDOW_MS > BESIDE_MAXIMUM:
            return None
        try:
            return lacks_of(self.read(kind, filters, span, scope, BESIDE_LACKING))
        except Rejected:
            return None

    def _read(self, kind: EntityKind, filters: Filters, span: Span, scope: Scope, lacking_maximum: int | None) -> Found:
        now_ms = self._clock.now_ms()
        due_ms = now_ms - GRACE_MS
        expected = self._inventory.expected(kind, filters, scope)
        planned = stretches(expected, span, due_ms)
        if not planned:
            return Found((), span, {})
        self._check_cost(planned, span)
        filters = self._inventory.placed(kind, filters, scope)
        progress = progress_of(self._inventory.progress(scope), expected, now_ms)
        to_ms = min(span.to_ms, now_ms)
        parts = _parts(Span(span.from_ms, to_ms), progress.rollup_through_ms)
        final = bool(self._inventory.rewrites(kind, Span(span.from_ms, to_ms), scope))
        counts = self._counts(kind, filters, parts, scope, final=final)
        doubtful = suspects(expected, planned, counts)
        if lacking_maximum is not None and len(doubtful) > lacking_maximum:
            raise _too_wide(f"{len(doubtful):,} entities lack rows")
        gaps = self._gaps(kind, {key: planned[key] for key in doubtful}, parts, due_ms, scope)
        gaps = self._begun(kind, gaps, span, scope)
        gaps.sort(key=lambda gap: (gap.start_ms, gap.key))
        return Found(tuple(self._explained(kind, gaps, expected, span, scope)), span, planned)

    def _counts(
        self,
        kind: EntityKind,
        filters: Filters,
        parts: tuple[Span | None, Span | None],
        scope: Scope,
        *,
        final: bool,
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for span, compile_each in zip(parts, (compile_window_counts, compile_row_counts), strict=True):
            if span is not None:
                make = partial(compile_each, kind, filters, scope=scope, final=final)
                found += self._samples.rows(kind, span, make)
        return found

    def _gaps(
        self,
        kind: EntityKind,
        planned: dict[Key, list[Stretch]],
        parts: tuple[Span | None, Span | None],
        due_ms: int,
        scope: Scope,
    ) -> list[Gap]:
        if not planned:
            return []
        rollup, raw = parts
        places = places_of(planned)
        seen: defaultdict[Key, list[Seen]] = defaultdict(list)
        if rollup is not None:
            windows = -(-(rollup.to_ms - rollup.from_ms) // WINDOW_MS)
            if len(planned) * windows > LOOKED_AT_MAXIMUM:
                raise _too_wide(f"{len(planned):,} entities lack rows")
            rows = self._samples.rows(kind, rollup, lambda part: compile_windows(kind, places, part, scope))
            whole, doubtful = seen_of_windows([row for row in rows if key_of(row) in planned])
            _add(seen, whole)
            if doubtful:
                some = places_of({key for keys in doubtful.values() for key in keys})
                found = self._samples.rows(kind, rollup, lambda part: compile_rows(kind, some, part, scope, doubtful))
                _add(seen, seen_of_rows([row for row in found if key_of(row) in doubtful.get(row["window_ms"], ())]))
        if raw is not None:
            rows = self._samples.rows(kind, raw, lambda part: compile_rows(kind, places, part, scope))
            _add(seen, seen_of_rows(rows))
        return [gap for key, some in planned.items() for gap in gaps_of(some, seen[key], due_ms)]

    def _begun(self, kind: EntityKind, gaps: list[Gap], span: Span, scope: Scope) -> list[Gap]:
        """Return the gaps, those that reach over the beginning of the range with the time at which they began."""
        heads = {gap.key for gap in gaps if gap.start_ms == span.from_ms}
        if not heads:
            return gaps
        before = Span(span.from_ms - BACK_MS, span.from_ms)
        places = places_of(heads)
        rows = self._samples.rows(kind, before, lambda part: compile_last_before(kind, places, part, scope))
        last: dict[Key, int] = {}
        for row in rows:
            if row["last_ms"] < span.from_ms:
                last[key_of(row)] = max(row["last_ms"], last.get(key_of(row), 0))
        return [
            replace(gap, start_ms=last[gap.key] + gap.interval_ms)
            if gap.start_ms == span.from_ms and gap.key in last
            else gap
            for gap in gaps
        ]

    def _explained(
        self, kind: EntityKind, gaps: Sequence[Gap], expected: Any, span: Span, scope: Scope
    ) -> list[Explained]:
        if not gaps:
            return []
        some = gaps[:EXPLAINED_MAXIMUM]
        reach = Span(min(gap.start_ms for gap in some), max(gap.end_ms for gap in some) + 1)
        evidence: Evidence = self._evidence.read(some, kind, self._planned(scope, reach), scope)
        crowds = together(some, _hosts(expected), (span.from_ms - BACK_MS, span.to_ms))
        return [
            Explained(gap, reason_of(gap, evidence, kind.value, is_together=number in crowds))
            for number, gap in enumerate(some)
        ] + [Explained(gap, Reason.UNKNOWN) for gap in gaps[EXPLAINED_MAXIMUM:]]

    def _check_cost(self, planned: dict[Key, list[Stretch]], span: Span) -> None:
        range_ms = span.to_ms - span.from_ms
        if range_ms > RANGE_MAXIMUM_MS or len(planned) * range_ms // WINDOW_MS > COUNTED_MAXIMUM:
            raise _too_wide(f"{len(planned):,} entities over {range_ms // 3_600_000} h")


def lacks_of(found: Found) -> dict[str, Lack]:
    """Return entity -> what its gaps come to."""
    sums: defaultdict[str, Lack] = defaultdict(Lack)
    for one in found.gaps:
        name, slots = entity_of(one.gap.key), one.gap.expected
        known = sums[name]
        shed = known.shed + (slots if one.reason is Reason.SHED else 0)
        not_due = known.not_due + (slots if one.reason in NOT_DUE else 0)
        sums[name] = Lack(known.gaps + 1, shed, not_due)
    return dict(sums)


def _too_wide(what: str) -> Rejected:
    message = f"gaps of so much would be looked for in too many rows: {what}"
    return Rejected("range_too_wide", message, "ask for a shorter range, or name a cluster or host")


def _parts(span: Span, through_ms: int | None) -> tuple[Span | None, Span | None]:
    """Return the range that is read from 30 s rows and the one from 1 s rows."""
    cut_ms = max(through_ms or 0, span.to_ms - TAIL_MAXIMUM_MS) // WINDOW_MS * WINDOW_MS
    first_ms = -(-span.from_ms // WINDOW_MS) * WINDOW_MS
    if min(cut_ms, span.to_ms) <= first_ms:
        return None, span
    cut_ms = min(cut_ms, span.to_ms // WINDOW_MS * WINDOW_MS)
    return Span(span.from_ms, cut_ms), Span(cut_ms, span.to_ms) if cut_ms < span.to_ms else None


def _hosts(expected: Any) -> dict[tuple[str, str, str], set[str]]:
    """Return the hosts of each rack, and of each cluster under rack ""."""
    found: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    columns = (expected[name].to_pylist() for name in ("tenant_id", "cluster_id", "rack", "host_id"))
    for tenant, cluster, rack, host in set(zip(*columns, strict=True)):
        found[tenant, cluster, rack].add(host)
        found[tenant, cluster, ""].add(host)
    return found


def _add(seen: defaultdict[Key, list[Seen]], more: dict[Key, list[Seen]]) -> None:
    for key, runs in more.items():
        seen[key] += runs


def _count_planned(expected: Any, span: Span) -> int:
    """Return about how many entities were to report in a range, those of one name counted once."""
    there = (expected["start_ms"].to_numpy() < span.to_ms) & (expected["end_ms"].to_numpy() > span.from_ms)
    return len(expected["entity"].filter(pa.array(there)).unique())
