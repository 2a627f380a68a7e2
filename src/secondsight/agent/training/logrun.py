"""Turn what the lines of one log say into the rows of a run, or of an inference engine.

Counts go on where a log goes back: an iteration below the last one is a restart from a checkpoint, told as an event
with the steps that are done again, and no progress backwards.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from secondsight.agent.training.extract import Said
from secondsight.agent.training.kept import kept, restored
from secondsight.agent.training.losses import LossWatch
from secondsight.agent.training.measures import METRICS, Key, Measured, gather, known_key
from secondsight.agent.training.pace import Pace
from secondsight.catalog.load import Catalog
from secondsight.mapping.cells import Gathered
from secondsight.model import EntityKind
from secondsight.wire.content import Event

RESTART_CHECKPOINT = 3
ONCE_SECONDS = 60.0
"""Equal events that follow sooner are one."""
EVENTS_MAXIMUM = 64
"""Events of one log that are told in a tick; further ones are counted as discarded."""
REMEMBERED = 256
TIME_PAST_MS, TIME_AHEAD_MS = 86_400_000, 5_000
FORGET_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a log is about."""

    kind: EntityKind
    entity: str
    node: str


class LogRun:
    """What is known of one run by its log. Not thread-safe."""

    def __init__(self, subject: Subject, catalog: Catalog, now: float, said: Mapping[str, Any] | None = None) -> None:
        self.subject = subject
        self.discarded: Counter[str] = Counter()
        self._catalog = catalog
        self._measured = restored(said["measured"]) if said else Measured()
        self._totals: dict[Key, float] = {(name, label): value for name, label, value in said["totals"]} if said else {}
        self._step: int | None = said["step"] if said else None
        self._pace = Pace()
        self._watch = LossWatch()
        self._events: list[Event] = []
        self._once: dict[tuple[object, ...], float] = {}
        self._heard = now
        self._has_told = False

    def take(self, said: Said, time_ms: int | None, now: float, tick_ms: int) -> None:
        """Take in what a line says.

        Args:
            said: What it says.
            time_ms: The line's own time, if it has one.
            now: Monotonic seconds.
            tick_ms: Time of what has none of its own.
        """
        self._heard, self._has_told = now, True
        at_ms = time_ms if time_ms is not None and -TIME_PAST_MS < time_ms - tick_ms < TIME_AHEAD_MS else tick_ms
        if self.subject.kind is EntityKind.TRAINING:
            self._take_step(said, now, at_ms)
            self._take_loss(said, at_ms)
        for key, value in said.gauges.items():
            self._gauge(key, value)
        for (name, label), seconds in said.durations:
            timed = self._key(name, "first" if name == "step_seconds" else label, self._measured.durations)
            if timed is not None:
                self._measured.observe(timed, seconds)
        for key, value in said.added:
            self._count(key, value)
        for key, value in said.totals:
            self._total(key, value)
        self._take_event(said, now, at_ms)

    def gather(self, now: float, into: Gathered) -> None:
        """Add the rows of the run: counts for ever, last values while steps are done, and what happened."""
        if not self._has_told:
            return
        told = Measured(self._measured.counts, self._measured.durations, {})
        if not self._pace.is_still(now):
            told.gauges |= self._measured.gauges
        planned = self._measured.gauges.get(("steps_planned", ""))
        told.gauges |= self._pace.gauges(now, int(planned) if planned else None, self._mean_step_seconds())
        gather(told, self.subject.entity, self._catalog, into)
        into.events += [(self.subject.kind, event) for event in self._events]
        self._events = []

    def is_silent(self, now: float) -> bool:
        """Tell whether no line said anything for an hour."""
        return now - self._heard > FORGET_SECONDS

    def kept(self) -> dict[str, Any]:
        """Return what must outlive the agent, as JSON."""
        totals = [[*key, value] for key, value in self._totals.items()]
        return {"measured": kept(self._measured), "totals": totals, "step": self._step}

    def _key(self, name: str, label: str, known: Collection[Key]) -> Key | None:
        key = known_key(self._catalog, name, label, known)
        return key if key is not None and self._catalog.get(METRICS[name]).kind is self.subject.kind else None

    def _gauge(self, key: Key, value: float) -> None:
        known = self._key(*key, self._measured.gauges)
        if known is not None:
            self._measured.gauges[known] = value

    def _count(self, key: Key, value: float) -> None:
        known = self._key(*key, self._measured.counts)
        if known is not None:
            self._measured.count(known, value)

    def _total(self, key: Key, value: float) -> None:
        """Count what a total grew by; the first one is where counting begins, a lower one where it goes on from."""
        known = self._key(*key, self._measured.counts)
        if known is None:
            return
        before = self._totals.get(known)
        self._totals[known] = value
        self._measured.count(known, value if before is None else max(value - before, 0))

    def _take_step(self, said: Said, now: float, at_ms: int) -> None:
        step = said.gauges.get(("step", ""))
        if step is None or not 0 <= step < 2**53:
            return
        before, self._step = self._step, int(step)
        if before is not None and self._step < before:
            facts = {"reason": "checkpoint", "from_step": str(before), "to_step": str(self._step)}
            facts |= {"lost_steps": str(before - self._step), "node": self.subject.node}
            self._tell("training_restart", at_ms, RESTART_CHECKPOINT, facts)
        self._pace.see(now, self._step)

    def _take_loss(self, said: Said, at_ms: int) -> None:
        loss = said.gauges.get(("loss", ""))
        code = None if loss is None else self._watch.see(loss)
        if code is not None:
            facts = {"loss": f"{loss:.6g}", "step": str(self._step or ""), "node": self.subject.node}
            self._tell("training_anomaly", at_ms, code, facts)

    def _take_event(self, said: Said, now: float, at_ms: int) -> None:
        if said.event is None:
            return
        happening, attributes, once = said.event
        if happening.kind:
            self._count(("nccl_errors", happening.kind), 1)
        key = (happening.metric, happening.code, *once)
        before = self._once.get(key)
        if before is not None and now - before < ONCE_SECONDS:
            return
        if len(self._once) >= REMEMBERED:
            self._once.clear()
        self._once[key] = now
        facts = {"kind": happening.kind or said.rule, **attributes}
        facts.setdefault("node", self.subject.node)
        self._tell(happening.metric, at_ms, happening.code, facts)

    def _tell(self, metric: str, at_ms: int, code: int, facts: dict[str, str]) -> None:
        if self._catalog.get(metric).kind is not self.subject.kind:
            return
        if len(self._events) >= EVENTS_MAXIMUM:
            self.discarded["events_limit"] += 1
            return
        self._events.append(Event(metric, self.subject.entity, "", at_ms, code, attributes=facts))

    def _mean_step_seconds(self) -> float | None:
        spread = self._measured.durations.get(("step_seconds", "first"))
        steps = 0 if spread is None else sum(spread.buckets)
        return spread.sum / steps if spread is not None and steps and math.isfinite(spread.sum) else None
