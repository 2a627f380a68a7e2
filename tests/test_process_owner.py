"""Every row gets the owner of its instant, whatever of it is told late, corrected, or told of a slice alone."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from process_rig import T0, Rig, frame_bytes, new_tenant
from secondsight.mapping.allocation import Holding, Owner, Share
from secondsight.mapping.intervals import Intervals, Listing
from secondsight.model import EntityKind
from secondsight.process.enrich import NOBODY, Allocations, Fact
from secondsight.wire.content import Event

POWER, ACTIVE = "gpu_power_watts", "gpu_sm_active_ratio"
HOUR_MS = 3_600_000
SILENCE_MS = 300_000


class Site:
    """A processor, rows of a GPU with a slice each second, and an agent's intervals."""

    def __init__(self, store: Any) -> None:
        self.tenant = new_tenant()
        self.store = store
        self.rig = Rig(store)
        self.intervals = Intervals("test", SILENCE_MS)
        self.sequence = itertools.count(1)

    def rows(self, first: int, seconds: int) -> None:
        for number in range(first, first + seconds):
            tick = T0 + 1000 * number
            self.rig.clock.step_wall((tick + 300 - self.rig.clock.now_ms()) / 1000)
            cells = {
                ("GPU-a", "", 0): {POWER: 300_000},
                ("GPU-a", "gi=1", 0): {ACTIVE: 5},
                ("GPU-b", "", 0): {POWER: 1},
            }
            body = frame_bytes(cells, [tick], sequence=next(self.sequence), names=[POWER, ACTIVE])
            self.rig.send(body, tenant=self.tenant)
            self.rig.processor.step()

    def tell(self, second: float, *holdings: Holding, correction_ms: int = 0, **frame: Any) -> list[Event]:
        events = self.intervals.see(Listing(holdings), T0 + round(1000 * second), correction_ms)
        self.send(events, **frame)
        return events

    def send(self, events: list[Event], **frame: Any) -> None:
        names = [] if "kind" in frame else [POWER]
        body = frame_bytes({}, [T0], events=events, names=names, sequence=next(self.sequence), spool_id=9, **frame)
        self.rig.send(body, tenant=self.tenant)
        self.rig.processor.step()

    def owners(self, entity: str = "GPU-a", part: str = "") -> str:
        """Return the jobs of the stored seconds in order, a letter each, `.` for nobody."""
        self.rig.settle()
        rows = self.store.query(
            "SELECT job_id, owner_team, event_time FROM gpu_1s FINAL WHERE tenant_id = {t:String} "
            "AND entity = {e:String} AND part = {p:String} ORDER BY event_time",
            {"t": self.tenant, "e": entity, "p": part},
        ).to_pylist()
        assert all((row["job_id"] == "") == (row["owner_team"] == "") for row in rows)
        return "".join(row["job_id"] or "." for row in rows)

    def windows(self, entity: str = "GPU-a") -> list[tuple[int, str, int]]:
        self.rig.settle()
        rows = self.store.query(
            "SELECT toUnixTimestamp(window_start) AS at, job_id, samples FROM gpu_30s FINAL WHERE samples > 0 AND "
            "tenant_id = {t:String} AND entity = {e:String} AND part = '' ORDER BY at, first_event_time",
            {"t": self.tenant, "e": entity},
        ).to_pylist()
        return [(int(row["at"]) - T0 // 1000, row["job_id"], row["samples"]) for row in rows]

    def jobs_of_events(self, metric: str) -> list[tuple[str, int, str]]:
        self.rig.settle()
        rows = self.store.query(
            "SELECT entity, toUnixTimestamp64Milli(event_time) AS at, job_id, owner_team FROM events FINAL "
            "WHERE tenant_id = {t:String} AND metric = {m:String} ORDER BY at, entity, job_id",
            {"t": self.tenant, "m": metric},
        ).to_pylist()
        assert all((row["job_id"] == "") == (row["owner_team"] == "") for row in rows)
        return [(row["entity"], (row["at"] - T0) // 1000, row["job_id"]) for row in rows]

    def facts(self) -> list[tuple[str, int]]:
        rows = self.store.query(
            "SELECT job_id, version FROM allocations FINAL WHERE tenant_id = {t:String} ORDER BY ALL",
            {"t": self.tenant},
        ).to_pylist()
        return [(row["job_id"], row["version"]) for row in rows]


@pytest.fixture
def site(store):
    return Site(store)


def holds(job: str, entity: str = "GPU-a", part: str = "", start: float | None = None, **more: Any) -> Holding:
    owner = Owner(job, f"w-{job}", f"team-{job}", "m", "1001")
    start_ms = None if start is None else T0 + round(1000 * start)
    return Holding(entity, part, owner, start_ms=start_ms, exact=start is not None, **more)


def test_two_jobs_back_to_back_in_one_window(site: Site) -> None:
    site.tell(0, holds("a"))
    site.rows(0, 12)
    site.tell(12, holds("b"))
    site.rows(12, 33)
    assert site.owners() == "a" * 12 + "b" * 33
    assert site.windows() == [(0, "a", 12), (0, "b", 18), (30, "b", 15)]
    assert site.owners("GPU-b") == "." * 45


def test_a_job_that_starts_and_ends_between_two_looks(site: Site) -> None:
    site.rows(0, 20)
    short = Holding("GPU-a", "", Owner("s", "", "t"), start_ms=T0 + 5000, exact=True)
    site.send(site.intervals.see(Listing((short,), ends={"s": T0 + 9000}), T0 + 20_000))
    assert site.owners() == "....." + "ssss" + "." * 11


def test_an_allocation_that_comes_late_stamps_what_was_written(site: Site) -> None:
    site.rows(0, 70)
    site.rig.settle()
    site.tell(70, holds("a", start=10))
    site.rows(70, 10)
    site.tell(80)
    site.rows(80, 10)
    assert site.owners() == "." * 10 + "a" * 70 + "." * 10
    assert site.windows() == [(0, "", 10), (0, "a", 20), (30, "a", 30), (60, "a", 20), (60, "", 10)]


def test_a_start_that_is_corrected_takes_the_guess_back(site: Site) -> None:
    site.tell(5, holds("a"))
    site.rows(0, 40)
    site.tell(40, holds("a", start=2))
    site.rows(40, 5)
    assert site.owners() == ".." + "a" * 43
    assert site.facts() == [("a", 1), ("a", 2)]


def test_an_owner_that_is_corrected_replaces_the_first(site: Site) -> None:
    site.tell(0, holds("a"))
    site.rows(0, 35)
    other = Holding("GPU-a", "", Owner("a", "w", "elsewhere"))
    events = site.tell(35, other)
    assert [event.version for event in events] == [2]
    site.rows(35, 5)
    site.rig.settle()
    rows = site.store.query(
        "SELECT DISTINCT owner_team FROM gpu_1s FINAL WHERE tenant_id = {t:String} AND entity = 'GPU-a'",
        {"t": site.tenant},
    ).to_pylist()
    assert rows == [{"owner_team": "elsewhere"}]


def test_a_slice_has_its_own_owner_and_the_whole_none(site: Site) -> None:
    site.tell(0, holds("a", part="gi=1"), holds("z", part="gi=2"))
    site.rows(0, 10)
    site.tell(10)
    site.rows(10, 5)
    assert site.owners(part="gi=1") == "a" * 10 + "." * 5
    assert site.owners() == "." * 15


def test_the_whole_gpu_s_owner_has_its_slices_before_and_after_one_has_its_own(site: Site) -> None:
    site.tell(0, holds("w"))
    site.rows(0, 10)
    site.tell(10, holds("p", part="gi=1"))
    site.rows(10, 10)
    site.tell(20, holds("v"))
    site.rows(20, 10)
    assert site.owners(part="gi=1") == "w" * 10 + "p" * 10 + "v" * 10
    assert site.owners() == "w" * 10 + "." * 10 + "v" * 10


def test_a_shared_gpu_has_no_owner(site: Site) -> None:
    site.tell(0, holds("a"))
    site.rows(0, 10)
    site.tell(10, holds("a", share=Share.SHARED), holds("b", share=Share.SHARED))
    site.rows(10, 10)
    site.tell(20, holds("b"))
    site.rows(20, 10)
    assert site.owners() == "a" * 10 + "." * 10 + "b" * 10
    assert site.facts() == [("a", 2), ("b", 1)]
    told = site.store.query(
        "SELECT count() AS n FROM events FINAL WHERE tenant_id = {t:String} AND attributes['share'] = 'shared'",
        {"t": site.tenant},
    ).to_pylist()
    assert told == [{"n": 2}]


def test_two_claims_of_one_gpu_are_nobody_s_until_one_is_gone(site: Site) -> None:
    site.tell(0, holds("a"), holds("b"))
    site.rows(0, 10)
    site.tell(10, holds("b"))
    site.rows(10, 5)
    assert site.owners() == "b" * 15


@pytest.mark.parametrize("offsets", [(5000, 5003), (None, 5000), (5000, None), (-70_000, -69_000)])
def test_a_clock_that_is_measured_anew_leaves_no_interval_open(site: Site, offsets: tuple[Any, Any]) -> None:
    opened, closed = offsets
    correction_ms = -(opened or 0)
    site.tell(0, holds("a"), correction_ms=correction_ms, offset_ms=opened, uncertainty_ms=9)
    site.tell(10, correction_ms=-(closed or 0), offset_ms=closed, uncertainty_ms=9)
    site.rows(0, 20)
    site.rig.settle()
    assert site.facts() == [("a", 2)]
    rows = site.store.query(
        "SELECT toUnixTimestamp64Milli(start_time) AS s, toUnixTimestamp64Milli(assumeNotNull(end_time)) AS e "
        "FROM allocations FINAL WHERE tenant_id = {t:String}",
        {"t": site.tenant},
    ).to_pylist()
    assert rows == [{"s": T0 + correction_ms, "e": max(T0 + 10_000 - (closed or 0), 0)}]


def test_an_agent_that_was_down_reports_again_without_a_second_interval(site: Site) -> None:
    site.tell(0, holds("a"))
    site.rows(0, 10)
    site.intervals = Intervals("test", SILENCE_MS, site.intervals.kept())
    site.tell(20, holds("a"))
    site.rows(10, 20)
    assert site.owners() == "a" * 30
    assert site.facts() == [("a", 1)]


def test_a_processor_that_restarts_stamps_late_facts_over_old_ones(site: Site) -> None:
    old_ms = T0 - 60 * HOUR_MS
    many = [old_allocation("x", old_ms + 1000 * n, old_ms + 1000 * n + 500) for n in range(5)]
    site.send(many)
    site.rows(0, 40)
    site.rig.settle()
    site.rig.restart()
    site.tell(40, holds("a", start=3))
    site.rows(40, 5)
    assert site.owners() == "..." + "a" * 42


def old_allocation(job: str, start_ms: int, end_ms: int) -> Event:
    texts = {"job_id": job, "workload_id": "", "owner_team": "t", "model_id": ""}
    return Event("job_gpu_allocation", "GPU-a", "", start_ms, 0, end_ms, 3, texts)


def test_events_of_a_gpu_follow_an_owner_that_is_told_later(site: Site) -> None:
    xids = [
        Event("gpu_xid", "GPU-a", "", T0 + 1000 * second, 79, attributes={"text": str(second)}) for second in (1, 5)
    ]
    site.send([*xids, Event("gpu_xid", "GPU-b", "", T0 + 5000, 31)])
    site.rows(0, 10)
    site.rig.settle()
    late = Event("gpu_xid", "GPU-a", "", T0 + 6000, 79, attributes={"text": "6"})
    site.send([late, *site.intervals.see(Listing((holds("a", start=3),)), T0 + 10_000)])
    assert site.jobs_of_events("gpu_xid") == [("GPU-a", 1, ""), ("GPU-a", 5, "a"), ("GPU-b", 5, ""), ("GPU-a", 6, "a")]
    site.rows(10, 5)
    site.tell(15, holds("b", start=4))
    assert site.jobs_of_events("gpu_xid") == [("GPU-a", 1, ""), ("GPU-a", 5, "b"), ("GPU-b", 5, ""), ("GPU-a", 6, "b")]


def test_an_allocation_is_its_own_job_s_event_and_a_conflict_nobody_s(site: Site) -> None:
    site.tell(0, holds("a"), kind=EntityKind.PROCESS_JOB)
    site.tell(9, holds("b"), kind=EntityKind.PROCESS_JOB)
    site.tell(12, holds("b"), holds("c"), kind=EntityKind.PROCESS_JOB)
    assert site.jobs_of_events("job_gpu_allocation") == [
        ("GPU-a", 0, "a"),
        ("GPU-a", 9, "b"),
        ("GPU-a", 12, "b"),
        ("GPU-a", 12, "c"),
    ]
    assert site.jobs_of_events("job_gpu_conflict") == [("GPU-a", 12, "")]


SUBJECT = ("t", "k", "GPU-a", "")


def fact(job: str, start: int, end: int | None, version: int = 1, part: str = "") -> Fact:
    return Fact((*SUBJECT[:3], part), "h", (job, "", "team", ""), start, end, version)


@pytest.mark.parametrize(
    ("part", "chain"),
    [
        ("", [""]),
        ("gi=1", ["gi=1", ""]),
        ("ci=0,gi=1", ["ci=0,gi=1", "gi=1", ""]),
        ("link=3", ["link=3", ""]),
        ("gi=1,link=3", ["gi=1,link=3", "gi=1", ""]),
    ],
)
def test_who_has_what_a_part_is_of_has_the_part(part: str, chain: list[str]) -> None:
    known = Allocations()
    for rank, each in reversed(list(enumerate(chain))):
        known.add(fact(f"job{rank}", 10, 20, part=each))
        assert known.at((*SUBJECT[:3], part), 15).attribution[0] == f"job{rank}"
        assert known.at((*SUBJECT[:3], part), 25).attribution == NOBODY


def test_forgetting_old_facts_keeps_what_rows_get_now() -> None:
    known = Allocations()
    known.add(fact("a", 0, 10, 2))
    known.add(fact("b", 10, None))
    before = known.at(SUBJECT, 15)
    known.start_over(12)
    known.count_old(SUBJECT, 2)
    after = known.at(SUBJECT, 15)
    assert (after.attribution, after.version) == (before.attribution, before.version)
    assert known.at(SUBJECT, 5).attribution == NOBODY


FACT = st.tuples(
    st.sampled_from("ab"),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(1, 3),
    st.sampled_from(PARTS := ["", "gi=1"]),
)


@given(st.lists(FACT, max_size=8), st.randoms())
def test_the_order_of_facts_changes_nothing(listed: list[tuple[str, int, int, int, str]], chance: Any) -> None:
    facts = [fact(job, start, start + length, version, part) for job, start, length, version, part in listed]
    one, other = Allocations(), Allocations()
    for each in facts:
        one.add(each)
    chance.shuffle(facts)
    for each in facts:
        other.add(each)
    for instant, part in itertools.product(range(-1, 45), PARTS):
        subject = (*SUBJECT[:3], part)
        assert one.at(subject, instant).attribution == other.at(subject, instant).attribution
        assert one.at(subject, instant).version == other.at(subject, instant).version
