"""The reader of InfiniBand and RoCE ports on trees of files, look by look."""

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondsight.agent.counts import Counts
from secondsight.agent.fabric.config import FabricConfig
from secondsight.agent.fabric.files import REST_SECONDS, Rest
from secondsight.agent.fabric.layout import file_names, rate_of, state_number
from secondsight.agent.fabric.links import Link, LinkWatch
from secondsight.agent.fabric.reader import FabricPlace, FabricReader
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.contracts import Tick
from secondsight.errors import Rejected
from tick_cells import cells_of

CASES = sorted((Path(__file__).parent / "cases" / "fabric").glob("*.json"))
CASES = [path for path in CASES if not path.name.endswith(".expected.json")]


class Site:
    """A tree of ports and its reader."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder / "sys/class/infiniband"
        self.folder.mkdir(parents=True)
        self.clock, self.counts = ManualClock(), Counts()
        place = FabricPlace("host-1", "r1", folder)
        self.reader = FabricReader(FabricConfig(**settings), place, load_catalog(), self.clock, self.counts)

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def look(self) -> Tick:
        self.clock.move(1)
        return self.reader.read(self.clock.now_ms())


def said(tick: Tick) -> dict[str, Any]:
    """Return rows by port, facts of ports, and events."""
    rows: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    events = []
    for content in tick.contents:
        for name, value in cells_of(content, with_entity=True).items():
            entity, _, rest = name.partition(" ")
            rows.setdefault(entity, {})[rest] = value
        facts |= {item.entity: dict(item.attributes) for item in content.entities.entities if item.attributes}
        events += [[event.entity, event.code, dict(event.attributes)] for event in content.events]
    return {"rows": {entity: dict(sorted(row.items())) for entity, row in sorted(rows.items())}} | {
        name: value for name, value in (("facts", facts), ("events", events)) if value
    }


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_ports(case: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    site, found = Site(tmp_path), []
    for look in json.loads(case.read_text())["looks"]:
        site.write(look.get("files", {}))
        for name in look.get("broken", []):
            (site.folder / name).unlink(missing_ok=True)
            (site.folder / name).mkdir(parents=True)  # reading a folder fails, whoever reads it
        for name in look.get("remove", []):
            shutil.rmtree(site.folder / name)
        site.clock.move(look.get("move_seconds", 0))
        events = []
        for _ in range(look.get("looks", 1)):
            last = said(site.look())
            events += last.get("events", [])
        found.append(last | ({"events": events} if events else {}))
    site.reader.close()
    site.reader.close()
    expected = case.with_suffix(".expected.json")
    if request.config.getoption("--rewrite"):
        expected.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(expected.read_text())


def test_no_ports_cost_nothing_and_give_nothing(tmp_path: Path) -> None:
    reader = FabricReader(FabricConfig(), FabricPlace("h", root=tmp_path), load_catalog(), ManualClock(), Counts())
    assert reader.read(1_700_000_000_000).contents == ()


def test_ports_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    site = Site(tmp_path, ports_maximum=2)
    site.write({f"mlx5_{number}/ports/1/state": "4: ACTIVE\n" for number in range(5)})
    assert len(said(site.look())["rows"]) == 2
    assert site.counts.get("discarded:entities_limit") == 3
    site.reader.close()


def test_a_rest_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = Site(tmp_path)
    site.write({"mlx5_0/ports/1/state": "4: ACTIVE\n"})
    for name in ("port_rcv_data", "port_xmit_data", "port_rcv_packets", "link_downed"):
        (site.folder / "mlx5_0/ports/1/counters" / name).mkdir(parents=True)
    for _ in range(10):
        site.look()
    assert site.counts.get("fabric_rest") == 1
    assert len([record for record in caplog.records if "mlx5_0" in record.getMessage()]) == 1
    site.reader.close()


def test_settings_that_cannot_work() -> None:
    with pytest.raises(Rejected, match="ports_maximum"):
        FabricConfig(ports_maximum=0)


@given(st.lists(st.booleans(), max_size=30))
def test_a_rest_lasts_ten_minutes_after_three_failures_in_a_row(outcomes: list[bool]) -> None:
    rest, row, now = Rest(), 0, 0.0
    for worked in outcomes:
        now += 1
        if worked:
            rest.succeeded()
            row = 0
        else:
            row += 1
            assert rest.failed(now) == (row >= 3)
            assert rest.is_on(now + REST_SECONDS - 1) == (row >= 3)
        assert not rest.is_on(now + REST_SECONDS)


@pytest.mark.parametrize("parse", [state_number, rate_of])
@given(text=st.text(max_size=80))
def test_no_text_breaks_a_parser(parse: Callable[[str], object], text: str) -> None:
    parse(text)
    file_names([text])


LINKS = st.builds(
    Link, st.none() | st.integers(0, 6), st.none() | st.sampled_from([rate_of("1 Gb/sec"), rate_of("2 Gb/sec")])
)


@given(st.lists(LINKS, max_size=40))
def test_downs_and_ups_take_turns(links: list[Link]) -> None:
    """However looks fail in between: each down is followed by an up, and the other way round."""
    watch, codes = LinkWatch(), []
    for at, link in enumerate(links):
        codes += [event.code for event in watch.see(link, "h/d/1", at) if event.code in (1, 2)]
    assert all(before != after for before, after in pairwise(codes))
