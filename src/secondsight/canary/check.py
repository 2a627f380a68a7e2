"""Compare what the tiers say of the canary with what was sent, and tell what differs.

A window is looked at once its tier may be expected to have it, and again at random later: what was right may be altered
afterwards. A window that is not right yet is waited for; it is told when the tier's patience is over.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from secondsight.canary.kept import Kept
from secondsight.canary.tiers import DAY_S, Readers, Tier
from secondsight.canary.waves import F64, LATEST_S, STEP_S, WAVES, Windows, expected
from secondsight.clock import Clock
from secondsight.errors import SecondsightError
from secondsight.query.times import format_time
from secondsight.selfmetrics import SelfMetrics

logger = logging.getLogger(__name__)

TOLERANCE = 1e-6
ABSENT = "nothing"
DIFFERS, UNREADABLE = 1, 2
"""Codes of `canary_mismatch`."""
FAILURES_TOLD = 3

Raise = Callable[[Mapping[str, Any]], None]
"""Takes one event as `POST /v1/events` does; raises Retryable where it did not arrive."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The first window of a wave that is not as it was sent.

    Attributes:
        start_s: Its start.
        windows: How many of the range differ.
    """

    wave: str
    start_s: int
    figure: str
    wanted: str
    found: str
    windows: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of whole windows inside one run."""

    from_s: int
    to_s: int


class Checker:
    """Checks all tiers. For one thread.

    Args:
        readers: Reads them.
        kept: What was sent, and how far each tier was checked.
        say: Raises events.
        random: Chooses what is looked at again.
    """

    def __init__(
        self, readers: Readers, kept: Kept, say: Raise, clock: Clock, metrics: SelfMetrics, random: Random
    ) -> None:
        self._readers = readers
        self._kept = kept
        self._say = say
        self._clock = clock
        self._metrics = metrics
        self._random = random
        self._failures: Counter[str] = Counter()

    def step(self, tiers: Sequence[Tier]) -> None:
        """Look at what became due in some tiers, and at some of what was looked at before.

        Raises:
            Retryable: What was checked cannot be kept.
        """
        for tier in tiers:
            try:
                self._go_on(tier)
                self._again(tier)
                self._failures[tier.name] = 0
            except SecondsightError as error:
                self._note_failure(tier, error)
            self._show(tier)
        self._kept.save()

    def look(self, tier: Tier, stretch: Stretch) -> list[Fault]:
        """Return what differs in a range.

        Raises:
            Retryable, Rejected: It cannot be read.
        """
        found = self._readers.read(tier, stretch.from_s, stretch.to_s)
        nothing = Windows(np.zeros(0, np.int64), {})
        faults = []
        for wave in WAVES:
            wanted = expected(wave, stretch.from_s, stretch.to_s, tier.width_s)
            fault = _fault(wave.name, wanted, found.get(wave.name, nothing))
            faults += [] if fault is None else [fault]
        return faults

    def _note_failure(self, tier: Tier, error: SecondsightError) -> None:
        """Count a read that failed; several of a tier in a row are told, once a day."""
        self._metrics.count("canary_reads_failed_total", tier=tier.name)
        self._failures[tier.name] += 1
        logger.warning("the canary of %s is read again: %s", tier.name, error)
        day_s = self._clock.now_ms() // 1000 // DAY_S * DAY_S
        if self._failures[tier.name] >= FAILURES_TOLD and f"{tier.name} read {day_s}" not in self._kept.told:
            text = f"{_place(tier)} cannot be read: {self._failures[tier.name]} reads of canary series failed in a row"
            self._raise(tier, f"{tier.name} read {day_s}", unreadable_of(tier, day_s, f"{text}; {tier.hint}"))

    def _raise(self, tier: Tier, key: str, event: Mapping[str, Any]) -> None:
        """Have an event stored, and note it; one that does not arrive is raised when it is found again."""
        logger.error("%s", event["message"])
        try:
            self._say(event)
        except SecondsightError as error:
            self._metrics.count("canary_events_failed_total")
            logger.warning("the event is raised again later: %s", error)
            return
        self._kept.tell(key)
        self._metrics.count("canary_mismatch_total", tier=tier.name)

    def _go_on(self, tier: Tier) -> None:
        """Look at the next range that is due; go beyond what is right or was told."""
        stretch = self._next(tier)
        if stretch is None:
            return
        faults = self.look(tier, stretch)
        now_s = self._clock.now_ms() // 1000
        first_s = min((fault.start_s for fault in faults), default=stretch.to_s)
        if faults and now_s - (first_s + tier.width_s) < tier.patience_s:
            self._kept.checked[tier.name] = max(first_s, stretch.from_s)
            return
        self._tell(tier, faults)
        self._kept.checked[tier.name] = stretch.to_s

    def _again(self, tier: Tier) -> None:
        """Look again at a range that was looked at before, chosen at random."""
        now_s = self._clock.now_ms() // 1000
        least_s = max(now_s - tier.reach_s, self._floor_s(tier))
        known_s = self._kept.checked.get(tier.name, 0)
        ranges = [(max(run[0] + STEP_S, least_s), min(run[1] - LATEST_S, known_s)) for run in self._kept.runs]
        whole = [each for first, end in ranges if (each := _aligned(first, end, tier.width_s)) is not None]
        if not whole:
            return
        run = self._random.choice(whole)
        latest_s = max(run.to_s - tier.chunk_s, run.from_s)
        from_s = self._random.randrange(run.from_s, latest_s + 1, tier.width_s)
        self._tell(tier, self.look(tier, Stretch(from_s, min(from_s + tier.chunk_s, run.to_s))))

    def _next(self, tier: Tier) -> Stretch | None:
        """Return the next range of whole windows that is due, None where none is."""
        done_s = max(self._kept.checked.get(tier.name, 0), self._floor_s(tier))
        now_s = self._clock.now_ms() // 1000
        edge_s = now_s - tier.wait_s
        for first_s, end_s in self._kept.runs:
            from_s = max(first_s + STEP_S, done_s)
            to_s = min(end_s - LATEST_S, edge_s, from_s // tier.width_s * tier.width_s + tier.chunk_s)
            stretch = _aligned(from_s, to_s, tier.width_s)
            if stretch is not None:
                return self._through(tier, stretch)
        return None

    def _through(self, tier: Tier, stretch: Stretch) -> Stretch | None:
        """Return the part of a range that the tier says to have, or that its patience is over for."""
        through_s = max(self._readers.through_s(tier), self._clock.now_ms() // 1000 - tier.patience_s)
        return _aligned(stretch.from_s, min(stretch.to_s, through_s), tier.width_s)

    def _floor_s(self, tier: Tier) -> int:
        """Return from when on the hot store has everything, which lets go of old rows."""
        return 0 if tier.is_cold else -(-self._readers.floors().get(tier.table, 0) // 1000)

    def _show(self, tier: Tier) -> None:
        """Show how old the newest window is that was found to be right, or told."""
        runs = self._kept.runs
        if runs:
            now_s, from_s = self._clock.now_ms() / 1000, runs[0][0]
            lag_s = now_s - max(self._kept.checked.get(tier.name, 0), from_s)
            self._metrics.gauge("canary_lag_seconds", lag_s, tier=tier.name)

    def _tell(self, tier: Tier, faults: list[Fault]) -> None:
        """Raise an event for each wave that differs, once for each window."""
        for fault in faults:
            key = f"{tier.name} {fault.wave} {fault.start_s}"
            if key not in self._kept.told:
                self._raise(tier, key, event_of(tier, fault))


def text_of(tier: Tier, fault: Fault) -> str:
    """Return what an operator is told."""
    start, end = (format_time(at_s * 1000) for at_s in (fault.start_s, fault.start_s + tier.width_s))
    more = f", as do {fault.windows - 1} more windows" if fault.windows > 1 else ""
    return (
        f"{_place(tier)} gives back other figures than were stored: canary series {fault.wave}, {start} to {end}: "
        f"{fault.figure} is to be {fault.wanted}, found {fault.found}{more}; {tier.hint}"
    )


def event_of(tier: Tier, fault: Fault) -> dict[str, Any]:
    """Return the event of a window that differs; the same one however often it is raised."""
    facts = {
        "series": fault.wave,
        "from": format_time(fault.start_s * 1000),
        "to": format_time((fault.start_s + tier.width_s) * 1000),
        "figure": fault.figure,
        "expected": fault.wanted,
        "found": fault.found,
    }
    name = f"canary-{tier.name}-{fault.wave}-{fault.start_s}"
    return _event(tier, name, fault.start_s, DIFFERS, text_of(tier, fault), facts)


def unreadable_of(tier: Tier, day_s: int, message: str) -> dict[str, Any]:
    """Return the event of a tier that cannot be read, once a day."""
    return _event(tier, f"canary-{tier.name}-read-{day_s}", day_s, UNREADABLE, message, {})


def _event(tier: Tier, name: str, at_s: int, code: int, message: str, facts: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": name,
        "metric": "canary_mismatch",
        "entity": "canary",
        "part": tier.name,
        "time": at_s * 1000,
        "code": code,
        "severity": "critical",
        "message": message,
        "attributes": {"tier": tier.name, "table": tier.table, **facts},
    }


def _place(tier: Tier) -> str:
    return f"the lake's table {tier.table}" if tier.is_cold else f"table {tier.table}"


def _aligned(from_s: int, to_s: int, width_s: int) -> Stretch | None:
    """Return the whole windows in a range, None where there is none."""
    first_s, end_s = -(-from_s // width_s) * width_s, to_s // width_s * width_s
    return Stretch(first_s, end_s) if first_s < end_s else None


def _fault(wave: str, wanted: Windows, found: Windows) -> Fault | None:
    """Return the first difference between what a wave is to be and what was read, None where there is none."""
    starts = np.union1d(wanted.starts_s, found.starts_s)
    first: tuple[int, str] | None = None
    wrong = np.zeros(starts.size, np.bool_)
    for name in wanted.figures:
        left, right = _spread(wanted, name, starts), _spread(found, name, starts)
        alike = (np.isnan(left) & np.isnan(right)) | (np.abs(left - right) <= TOLERANCE)
        wrong |= ~alike
        at = int(np.argmax(~alike)) if not alike.all() else starts.size
        if at < starts.size and (first is None or at < first[0]):
            first = at, name
    if first is None:
        return None
    at, name = first
    due, there = (_shown(_spread(each, name, starts)[at]) for each in (wanted, found))
    return Fault(wave, int(starts[at]), name, due, there, int(wrong.sum()))


def _spread(windows: Windows, name: str, starts: "np.typing.NDArray[np.int64]") -> F64:
    """Return the figures at some starts, NaN where there is none."""
    figures = np.full(starts.size, np.nan)
    if name in windows.figures:
        figures[np.searchsorted(starts, windows.starts_s)] = windows.figures[name]
    return figures


def _shown(figure: float) -> str:
    return ABSENT if np.isnan(figure) else f"{figure:.10g}"
