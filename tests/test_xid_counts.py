"""Each Xid of a GPU counts once, whoever told it, over restarts of the agent and from 0 in each boot."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_log_site import Site
from secondsight.agent.bootfile import BootFile
from secondsight.agent.counts import Counts
from secondsight.agent.kmsg.echo import WithoutEchoes
from secondsight.agent.kmsg.untold import COUNTED_MAXIMUM, UntoldXids
from secondsight.agent.kmsg.xidcount import XidCells, XidCountReader
from secondsight.catalog.load import load_catalog
from secondsight.contracts import Tick
from secondsight.mapping.cells import ContentBuilder
from secondsight.model import EntityKind
from secondsight.wire.content import Content, EntityTable, Event
from secondsight.wire.schema import make_schema
from tick_cells import cells_of

GPU = "GPU-aaaaaaaa-1111-2222-3333-444444444444"
PREFIX = f"{GPU} gpu_xid_errors_total xid="
CASES = json.loads((Path(__file__).parent / "cases/xid-counts/cases.json").read_text())


class Teller:
    """A reader that gives the events that it is given."""

    interval_ms = 1000

    def __init__(self, name: str) -> None:
        self.name = name
        self.events: list[Event] = []

    def read(self, tick_ms: int) -> Tick:  # noqa: ARG002 # events have their own times
        events, self.events = self.events, []
        table = EntityTable(EntityKind.GPU, "host-1", "", ())
        return Tick((Content(make_schema(EntityKind.GPU, []), table, None, events=tuple(events)),))

    def close(self) -> None:
        self.events = []


class Host:
    """A kernel log, the driver's library and a gauge, looked at each second."""

    def __init__(self, root: Path) -> None:
        self.site = Site(root)
        self.site.gpu("0000:3b:00.0", GPU)
        self.site.restart()
        self.tellers = {"nvml": Teller("nvml"), "gauge": Teller("dcgm")}
        self.filters: list[WithoutEchoes] = []
        self.passed: list[Event] = []
        self.first: dict[int, int] = {}
        self.gauge_is_new = True
        self.records = 0
        self._filter()

    def _filter(self) -> None:
        site = self.site
        self.filters = [WithoutEchoes(one, site.heard, site.untold, site.counts) for one in self.tellers.values()]

    def do(self, action: str, *facts: int) -> None:
        site = self.site
        match action:
            case "log":
                self.records += 1
                at_us = round(site.clock.monotonic_seconds() * 1_000_000)
                site.write(f"4,{self.records},{at_us},-;NVRM: Xid (PCI:0000:3b:00): {facts[0]}, pid={self.records}")
            case "nvml" | "gauge":
                self._tell(action, *facts)
            case "restart" | "kill":
                site.restart(clean=action == "restart")
                self._filter()
            case "reboot":
                site.reboot()
                self._filter()
            case "damage":
                (site.root / "spool/kernel-log/untold-xids.json").write_text("[{")
        for _ in range(facts[0] if action == "wait" and facts[0] < 60 else 1):
            self.look()
        if action == "wait" and facts[0] >= 60:
            site.clock.move(facts[0])

    def _tell(self, teller: str, code: int, count: int = 1) -> None:
        now_ms = self.site.clock.now_ms()
        if teller == "nvml":
            at_ms = self.first.setdefault(code, now_ms) if count > 1 else now_ms
            self.first[code] = at_ms
            texts = {"via": "nvml"} | ({"count": str(count)} if count > 1 else {})
        else:
            at_ms, texts = now_ms, {"via": "last_value"} | ({"before_start": "true"} if self.gauge_is_new else {})
            self.gauge_is_new = False
        if code:
            self.tellers[teller].events.append(Event("gpu_xid", GPU, "", at_ms, code, version=count, attributes=texts))

    def look(self) -> None:
        for one in self.filters:
            tick = one.read(self.site.clock.now_ms())
            self.passed += [event for content in tick.contents for event in content.events]
        self.site.look()

    @property
    def counts(self) -> dict[str, int]:
        cells = self.site.cells.items()
        return {name.removeprefix(PREFIX): value for name, value in cells if name.startswith(PREFIX)}


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_each_xid_counts_once(tmp_path: Path, case: dict[str, Any]) -> None:
    host = Host(tmp_path)
    for step in case["steps"]:
        host.do(*step)
    host.look()
    host.site.reader.close()
    assert host.counts == case["counts"]
    if "events" in case:
        assert len(host.passed) == case["events"]


def untold(path: Path, boot_id: str = "boot-1") -> UntoldXids:
    return UntoldXids(BootFile(path / "kept/untold.json", boot_id, Counts()))


def xid(code: int, second: int = 0) -> Event:
    return Event("gpu_xid", GPU, "", 1_700_000_000_000 + 1000 * second, code, attributes={"via": "nvml"})


def test_where_the_log_is_not_read_a_reader_tells_the_counts_from_zero_on(tmp_path: Path) -> None:
    site = Site(tmp_path)
    known = untold(tmp_path)

    def looks() -> Iterator[dict[str, Any]]:
        cells = XidCells(load_catalog(), known)
        reader = XidCountReader(cells, ContentBuilder("host-1", ""), site.clock, 1000)
        while True:
            tick = reader.read(site.clock.now_ms())
            yield {name: value for content in tick.contents for name, value in cells_of(content).items()}

    look = looks()
    assert next(look) == {}
    known.take(xid(31), "nvml")
    assert next(look) == {"gpu_xid_errors_total xid=31": 0}
    assert next(look) == {"gpu_xid_errors_total xid=31": 1}
    known = untold(tmp_path)
    assert next(looks()) == {"gpu_xid_errors_total xid=31": 1}


def test_counts_are_bounded_and_a_disk_that_refuses_costs_only_their_life(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file where the folder should be")
    counts = Counts()
    known = UntoldXids(BootFile(tmp_path / "kept/untold.json", "boot-1", counts))
    for number in range(COUNTED_MAXIMUM + 5):
        known.take(Event("gpu_xid", f"GPU-{number}", "", 1_700_000_000_000, 31, attributes={"via": "nvml"}), "nvml")
    assert len(known.counts()) == COUNTED_MAXIMUM
    assert counts.get("boot_file_unsaved") == COUNTED_MAXIMUM


@pytest.mark.parametrize(
    "said", ["", "7", "[]", '{"boot_id": "boot-1", "value": [["g"]]}', '{"value": []}', "[" * 9999]
)
def test_a_file_that_is_of_no_use_is_none(tmp_path: Path, said: str) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/untold.json").write_text(said)
    assert untold(tmp_path).counts() == {}


def test_without_a_boot_id_nothing_outlives_the_agent(tmp_path: Path) -> None:
    untold(tmp_path, "").take(xid(31), "nvml")
    assert untold(tmp_path, "").counts() == {}
