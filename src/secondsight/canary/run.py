"""Send the canary and check it in one loop, which catches up after a pause: a restart leaves no gap in the series."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

from secondsight.canary.check import Checker
from secondsight.canary.frames import Framer
from secondsight.canary.kept import Kept
from secondsight.canary.tiers import COLD, HOT
from secondsight.canary.waves import STEP_S
from secondsight.clock import Clock
from secondsight.errors import Permanent, Retryable
from secondsight.selfmetrics import SelfMetrics

logger = logging.getLogger(__name__)

CATCH_UP_S = 3_600
"""What was missed for longer is left out; a new run begins."""
STEP_SECONDS = 1.0
BODY_S = 300
"""Most of time that one body holds while it catches up."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often what is done, in seconds; `lake_seconds` 0 for never."""

    send_seconds: int = 10
    check_seconds: float = 60.0
    lake_seconds: float = 900.0


@dataclass(frozen=True, slots=True)
class Outlet:
    """What becomes of a stretch of the series.

    Attributes:
        deliver: Has frames stored; raises Retryable, or Permanent where they are refused.
        pause_lake: Called when the lake was read: its processes may end until it is read again.
    """

    framer: Framer
    deliver: Callable[[bytes], None]
    pause_lake: Callable[[], None] = lambda: None


class Canary:
    """The stage. For one thread."""

    def __init__(
        self, outlet: Outlet, kept: Kept, checker: Checker, clock: Clock, metrics: SelfMetrics, pace: Pace
    ) -> None:
        self._outlet = outlet
        self._kept = kept
        self._checker = checker
        self._clock = clock
        self._metrics = metrics
        self._pace = pace
        self._checked_at = self._lake_at = clock.monotonic_seconds()
        self._next_s = kept.runs[-1][1] if kept.runs else clock.now_ms() // 1000 // STEP_S * STEP_S

    def run(self, stop: Event) -> None:
        """Send and check until told to stop."""
        while not stop.wait(STEP_SECONDS):
            self.step()

    def step(self) -> None:
        """Do what is due; what fails is tried again."""
        try:
            self.send()
            self._check()
        except Retryable as error:
            self._metrics.count("canary_waits_total")
            logger.warning("the canary waits: %s", error)

    def send(self) -> None:
        """Send what is due since the last time.

        Raises:
            Retryable: The gateway is away or busy; it is sent later.
        """
        now_s = self._clock.now_ms() // 1000 // STEP_S * STEP_S
        if now_s - self._next_s > CATCH_UP_S:
            self._next_s = now_s - STEP_S
        while now_s - self._next_s >= self._pace.send_seconds:
            from_s, to_s = self._next_s, min(self._next_s + max(BODY_S, self._pace.send_seconds), now_s)
            try:
                self._outlet.deliver(self._outlet.framer.body(from_s, to_s))
            except Permanent as error:
                self._metrics.count("canary_refused_total")
                logger.warning(
                    "the canary is not stored from %d to %d s, and begins anew after it: %s", from_s, to_s, error
                )
            else:
                self._kept.sent(from_s, to_s)
                self._metrics.count("canary_seconds_sent_total", to_s - from_s)
            self._next_s = to_s

    def _check(self) -> None:
        now = self._clock.monotonic_seconds()
        if now - self._checked_at >= self._pace.check_seconds:
            self._checked_at = now
            self._checker.step(HOT)
        if self._pace.lake_seconds and now - self._lake_at >= self._pace.lake_seconds:
            self._lake_at = now
            try:
                self._checker.step(COLD)
            finally:
                self._outlet.pause_lake()
