"""Put stage, ring and follower together for one agent."""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from secondsight.agent.client.offset import ClockOffset
from secondsight.agent.client.transport import Observed, Transport
from secondsight.agent.counts import Counts
from secondsight.agent.plan.fetch import Asking, Follower, FollowParts, plan_path
from secondsight.agent.plan.ring import MIB, Ring
from secondsight.agent.plan.settings import SamplingSettings
from secondsight.agent.plan.stage import Gated, Stage, StageParts, Write
from secondsight.agent.write.writer import Sender
from secondsight.catalog.load import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Reader
from secondsight.wire.content import clock_correction_ms

JOIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Means:
    """What sampling works with; `folder` is the agent's own."""

    settings: SamplingSettings
    catalog: Catalog
    clock: Clock
    offset: ClockOffset
    counts: Counts
    folder: Path
    interval_ms: int


class Sampling:
    """The stage of one agent with what keeps it on the plan. `start` and `end` once each."""

    def __init__(self, sender: Sender, write: Write, means: Means, asking: Asking | None) -> None:
        """Put it together; `asking` is None where no plan is followed."""
        settings = means.settings
        self._ring = Ring(means.folder / "ring", settings.ring_mib * MIB, settings.ring_free_mib * MIB, means.counts)
        correction = _correction(means.offset, means.clock)
        parts = StageParts(write, self._ring, means.catalog, correction)
        self.stage = Stage(parts, (sender.collector_id, sender.host_id, sender.boot_id))
        self._gates = not settings.poll_exporters
        self._follower: Follower | None = None
        if asking is not None and settings.follow_plan:
            path = plan_path(sender.collector_id, sender.host_id, means.interval_ms)
            follow = FollowParts(
                asking,
                path,
                means.folder / "plan",
                self.stage,
                self._ring,
                write,
                means.counts,
                random.SystemRandom().random,
                correction,
            )
            self._follower = Follower(follow, means.clock)
        self._thread = threading.Thread(target=self._run, name="plan", daemon=True)

    def gated(self, readers: Sequence[Reader]) -> list[Reader]:
        """Return readers, those that cost behind a gate."""
        return [Gated(each, self.stage.wants) if self._gates and _is_costly(each) else each for each in readers]

    def told(self, transport: Transport) -> Transport:
        """Return a transport whose answers tell of new plans."""
        return transport if self._follower is None else Observed(transport, self._follower.observe)

    def start(self) -> None:
        """Start to follow."""
        self._thread.start()

    def end(self) -> None:
        """Stop following, and write what is left of open windows."""
        if self._follower is not None:
            self._follower.end()
        self._thread.join(JOIN_SECONDS)
        self.stage.close()
        self._ring.close()

    def _run(self) -> None:
        if self._follower is not None:
            self._follower.run()


def _is_costly(reader: Reader) -> bool:
    """Tell whether reading is worth leaving out: readers say so by an attribute `costly`."""
    return bool(getattr(reader, "costly", False))


def _correction(offset: ClockOffset, clock: Clock) -> Callable[[], int]:
    def correction_ms() -> int:
        return clock_correction_ms(*offset.now(clock.monotonic_seconds()))

    return correction_ms
