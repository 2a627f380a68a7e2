"""A shipper on real spools and a gateway in memory, on a clock that is moved by hand."""

from pathlib import Path

from agent_fixture import FakeGateway, content_of, frame_of
from log_faults import UnsyncedDisk
from secondsight.agent.client.offset import ClockOffset
from secondsight.agent.counts import Counts
from secondsight.agent.ship.aside import Aside
from secondsight.agent.ship.shipper import ShipConfig, ShipParts, Shipper
from secondsight.agent.spool.bounds import SpoolBounds
from secondsight.agent.spool.classes import Spools
from secondsight.agent.write.definitions import KeptDefinitions
from secondsight.clock import ManualClock
from secondsight.model import Priority

START_MS = 1_700_000_000_000


class Rig:
    """A shipper on a real spool and a gateway in memory, on a clock that is moved by hand."""

    def __init__(self, folder: Path, gateway: FakeGateway, clock: ManualClock | None = None, **config: float) -> None:
        self.clock = clock or ManualClock(START_MS)
        self.gateway = gateway
        self.folder = folder
        self.counts = Counts()
        self.offset = ClockOffset()
        self.spools = Spools(
            folder, SpoolBounds(32 << 20), self.clock, self.counts, collector_id="host-1", disk=UnsyncedDisk()
        )
        self.definitions = KeptDefinitions(folder / "definitions", self.clock)
        self.config = ShipConfig(**({"batch_seconds": 0.0} | config))  # type: ignore[arg-type] # counts and seconds
        self.shipper = self.new_shipper()
        self.expected: list[tuple[str, int]] = []

    def new_shipper(self) -> Shipper:
        parts = ShipParts(
            self.spools,
            self.gateway,
            self.definitions.known,
            Aside(self.folder / "refused", 1 << 20, self.clock),
            self.offset,
            self.counts,
            lambda: 0.5,
            "host-1",
            "host-1",
        )
        return Shipper(parts, self.clock, self.config)

    def spool_ticks(self, count: int, collector: str = "host-1", host: str = "host-1", value: int = 100) -> None:
        self.definitions.keep(content_of(host=host))
        for number in range(count):
            tick_ms = START_MS + len(self.expected) * 1000
            self.append(frame_of(tick_ms, value + number, collector, host))
            self.expected.append((collector, tick_ms))

    def append(self, frame: bytes, priority: Priority = Priority.P0) -> None:
        self.spools.append({priority: [frame]})

    def spool_id(self, priority: Priority = Priority.P0) -> int:
        return next(one.spool.spool_id for one in self.spools.members if one.priority == priority)

    def produce(self, seconds: int) -> None:
        """Let time pass, one tick of each class a second."""
        for _ in range(seconds):
            self.clock.move(1)
            now_ms = self.clock.now_ms()
            self.spools.append({priority: [frame_of(now_ms, 1 + priority)] for priority in Priority})
            self.expected.append(("host-1", now_ms))

    def ship_until_empty(self, steps: int = 50) -> None:
        for _ in range(steps):
            wait_seconds = self.shipper.step(flush=True)
            if not self.spools.records:
                return
            self.clock.move(wait_seconds)
        raise AssertionError("the spool does not empty")
