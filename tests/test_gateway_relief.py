"""Real agents at a real gateway that has no room: class P0 flows, nothing is lost, and nobody is run over later."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gateway_fixture import NOW_MS, FlakyLog, Running, column, content, serving, stamp
from secondsight.agent.client.connection import Answer
from secondsight.agent.client.transport import GatewayTransport
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock, SystemClock
from secondsight.gateway.app import Stores
from secondsight.model import EntityKind, Priority
from secondsight.wire.content import Content
from secondsight.wire.envelope import RecordType
from secondsight.wire.frame import encode, split
from ship_rig import Rig

AGENTS, SECONDS, LATER_SECONDS = 8, 12, 45
BACKLOG_BYTES = 1 << 20


def contents(host: str) -> dict[Priority, Content]:
    """What a host collects, by class."""
    scalars = load_catalog().scalars(EntityKind.NODE)
    names = {priority: next(one.name for one in scalars if one.priority is priority) for priority in Priority}
    return {priority: content(host, [column(name)], EntityKind.NODE, entities=1) for priority, name in names.items()}


class Counted(GatewayTransport):
    """A transport that notes when which class was asked for."""

    clock: ManualClock
    asked: list[tuple[float, bool]]

    def post(self, body: bytes, *, urgent: bool = False) -> Answer:
        self.asked.append((self.clock.monotonic_seconds(), urgent))
        return super().post(body, urgent=urgent)


class Agent:
    """A shipper with real spools that waits for as long as it says that it does."""

    def __init__(self, folder: Path, number: int, run: Running, clock: ManualClock) -> None:
        token = folder / "token"
        folder.mkdir()
        self.host = f"host-{number}"
        token.write_text(run.token(self.host))
        self.transport = Counted(f"http://127.0.0.1:{run.port}", token, SystemClock())
        self.transport.clock, self.transport.asked = clock, []
        self.rig = Rig(folder / "spool", self.transport, clock)  # type: ignore[arg-type]  # a real one
        self.contents = contents(self.host)
        for one in self.contents.values():
            self.rig.definitions.keep(one)
        self._due = 0.0

    def second(self) -> None:
        """Collect a tick of each class, and ship what is due."""
        now_ms = self.rig.clock.now_ms()
        for priority, one in self.contents.items():
            self.rig.append(encode(stamp(self.host, 1, now_ms), one, inline=False), priority)
        for _ in range(10):
            if self.rig.clock.monotonic_seconds() < self._due:
                return
            self._due = self.rig.clock.monotonic_seconds() + self.rig.shipper.step()

    def classes(self, run: Running) -> Counter[Priority]:
        """Ticks of this agent in the log, each once."""
        spools = {self.rig.spool_id(priority): priority for priority in Priority}
        found: set[tuple[Priority, int]] = set()
        for record in run.records():
            if record.type is RecordType.FRAME:
                for head in split(record.body):
                    if head.spool_id in spools:
                        sequences = range(head.first_sequence, head.last_sequence + 1)
                        found |= {(spools[head.spool_id], sequence) for sequence in sequences}
        return Counter(priority for priority, _ in found)


class Site:
    """Agents at a gateway whose log, backlog and disk are as they are told to be."""

    def __init__(self, run: Running, clock: ManualClock, agents: list[Agent]) -> None:
        self.run, self.clock, self.agents = run, clock, agents
        self.backlog = [0]
        self.disk = [(1 << 40, 1 << 41)]
        self.log: FlakyLog | None = None

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.move(1)
            for agent in self.agents:
                agent.second()

    def in_log(self) -> list[Counter[Priority]]:
        return [agent.classes(self.run) for agent in self.agents]


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    clock = ManualClock(NOW_MS)
    made = Site.__new__(Site)

    def told(stores: Stores) -> Stores:
        log = FlakyLog(stores.ingest)
        Site.__init__(made, None, clock, [])  # type: ignore[arg-type]  # it is not running yet
        made.log = log
        gauges = {"backlog_bytes": lambda: made.backlog[0], "disk_bytes": lambda: made.disk[0]}
        return replace(stores, ingest=log, **gauges)

    with serving(folder / "gateway", clock, told, backlog_bytes=BACKLOG_BYTES) as run, ExitStack() as opened:
        made.run = run
        for number in range(AGENTS):
            agent = Agent(folder / f"agent-{number}", number, run, clock)
            opened.callback(agent.rig.spools.close)
            opened.callback(agent.transport.close)
            made.agents.append(agent)
        yield made


@pytest.mark.parametrize("trouble", ["processor slow or store down", "disk of the log nearly full"])
def test_p0_flows_while_the_rest_waits_and_all_of_it_comes_afterwards(tmp_path: Path, trouble: str) -> None:
    with site(tmp_path) as here:
        here.pass_time(5)
        before = here.in_log()
        if trouble.startswith("disk"):
            here.disk[0] = (1000, 1 << 41)
        else:
            here.backlog[0] = 2 * BACKLOG_BYTES
        here.pass_time(SECONDS)
        for found, earlier in zip(here.in_log(), before, strict=True):
            assert found[Priority.P0] >= 5 + SECONDS - 1
            assert (found[Priority.P1], found[Priority.P2]) == (earlier[Priority.P1], earlier[Priority.P2])
        here.backlog[0], here.disk[0] = 0, (1 << 40, 1 << 41)
        relieved = here.clock.monotonic_seconds()
        here.pass_time(LATER_SECONDS)
        assert all(found == dict.fromkeys(Priority, 5 + SECONDS + LATER_SECONDS) for found in here.in_log())
        back = Counter(
            int(next(at for at, urgent in agent.transport.asked if at > relieved and not urgent))
            for agent in here.agents
        )
        assert max(back.values()) <= AGENTS // 2
        assert not any(agent.rig.shipper.delivery.held_by for agent in here.agents)


def test_a_log_that_cannot_be_written_stops_everything_and_loses_nothing(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        here.pass_time(5)
        before = here.in_log()
        assert here.log is not None
        here.log.away = True
        here.pass_time(SECONDS)
        assert here.in_log() == before
        here.log.away = False
        here.pass_time(LATER_SECONDS)
        assert all(found == dict.fromkeys(Priority, 5 + SECONDS + LATER_SECONDS) for found in here.in_log())
