"""Have every reader read at its ticks.

One thread looks at the clock, workers read. One reader that hangs delays neither the schedule nor, for longer than the
workers' patience, the others.
"""

import threading
from collections.abc import Sequence

from secondsight.agent.counts import Counts
from secondsight.agent.threads import name_thread
from secondsight.agent.tick.lane import Hooks, Lane, ReaderState
from secondsight.agent.tick.schedule import Schedule, phase_ms
from secondsight.agent.tick.workers import Workers
from secondsight.clock import Clock
from secondsight.contracts import Reader

LOOK_SECONDS = 1.0
"""Longest between two looks at what is due and what hangs."""


class Sampler:
    """Runs readers until stopped. `start` once, `stop` once; `stop` may be called again.

    Counts `ticks_missed`, `clock_stepped`, `read_failed:NAME` and `read_timed_out:NAME`.
    """

    def __init__(self, readers: Sequence[Reader], hooks: Hooks, clock: Clock, counts: Counts, *, host_id: str) -> None:
        self._hooks = hooks
        self._stopping = threading.Event()
        self._lanes = [Lane(reader, hooks, clock, counts) for reader in readers]
        self._schedules = [Schedule(r.interval_ms, phase_ms(host_id, r.interval_ms)) for r in readers]
        self._workers = Workers("read")
        self._clock = clock
        self._counts = counts
        self._looked: float | None = None
        self._thread = threading.Thread(target=self._run, name="sample", daemon=True)

    @property
    def looked(self) -> float | None:
        """Return when it last looked for what is due, monotonic seconds; None before the first look."""
        return self._looked

    @property
    def states(self) -> list[ReaderState]:
        """Return what every reader is at."""
        return [lane.state() for lane in self._lanes]

    def start(self) -> None:
        """Start to look."""
        self._thread.start()

    def stop(self) -> list[str]:
        """Stop calling readers, wait for those that are at it, close them; return the names of those still hanging."""
        self._stopping.set()
        self._thread.join()
        return self.end()

    def end(self) -> list[str]:
        """Wait for readers that are at it, close them, and return the names of those still hanging."""
        hanging = [lane.name for lane in self._lanes if not lane.end()]
        self._workers.end()
        return hanging

    def _run(self) -> None:
        name_thread()
        while not self._stopping.is_set():
            wait_seconds = self.look()
            self._stopping.wait(wait_seconds)

    def look(self) -> float:
        """Have every reader take the tick that is due, and return for how many seconds nothing more is."""
        waits = [LOOK_SECONDS]
        now_ms, now = self._clock.now_ms(), self._clock.monotonic_seconds()
        self._looked = now
        dues = [schedule.look(now_ms, now) for schedule in self._schedules]
        if any(due.stepped for due in dues):
            self._counts.add("clock_stepped")
            self._hooks.stepped()
        takes = []
        for lane, due in zip(self._lanes, dues, strict=True):
            lane.check_deadline(now)
            if due.skipped:
                self._counts.add("ticks_missed", due.skipped)
            if due.tick_ms is not None and lane.offer(due.tick_ms, now):
                takes.append(lane.take)
            elif due.tick_ms is not None:
                self._counts.add("ticks_missed")
            waits.append(due.wait_seconds)
        self._workers.run(takes)
        return max(min(waits) - (self._clock.monotonic_seconds() - now), 0.0)
