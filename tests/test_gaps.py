"""Gaps and their reasons, from what a real processor stored of scripted hosts."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from process_rig import T0, Rig, frame_bytes, new_tenant
from query_fixture import scope_of
from secondsight.access.maintenance import MaintenanceWindow
from secondsight.clock import ManualClock
from secondsight.model import EntityKind
from secondsight.query.gapreader import GapReader
from secondsight.query.gaps import Seen, Stretch, gaps_of
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Span
from secondsight.query.request import Filters
from secondsight.wire.content import Event

CASES = Path(__file__).parent / "cases" / "gaps"
POWER = "gpu_power_watts"
CHUNK = 60


@pytest.fixture(scope="module")
def scenes(store):
    """Let one processor take in what the hosts of all cases send, in order of time."""
    made = {name: Scene(json.loads((CASES / f"{name}.json").read_text())) for name in case_names()}
    rig = Rig(store, T0)
    sends = [(ingest_ms, body, scene.tenant) for scene in made.values() for ingest_ms, body in scene.sends]
    for number, (ingest_ms, body, tenant) in enumerate(sorted(sends, key=lambda item: item[0])):
        rig.clock.step_wall((ingest_ms - rig.clock.now_ms()) / 1000)
        rig.clock.move(0)
        rig.send(body, ingest_ms, tenant=tenant)
        if number % 20 == 0:
            rig.processor.step()
    rig.settle()
    return made


class Scene:
    """Hosts that report as a case says, second by second."""

    def __init__(self, case):
        self.tenant = new_tenant()
        self.case = case
        self.end_ms = T0 + 1000 * case.get("seconds", 300)
        self.sends = []
        self._sequence = itertools.count(1)
        for name, host in case["hosts"].items():
            self._host(name.partition("#")[0], host)
        for metric, host, at, end, code, attributes, *by in case.get("events", ()):
            self._event(metric, host, (at, end), code, attributes, by[0] if by else host)
        for host, at in case.get("quarantined", ()):
            time_ms = T0 + 1000 * at
            self._rows(host, host, {("GPU-1", ""): {POWER: 1}}, [time_ms + 900_000], time_ms)
        for host, start, stop, state in case.get("states", ()):
            cells = {(host, ""): {"node_schedulable": state}}
            self._run("slurm", host, cells, (start, stop), 1, kind=EntityKind.NODE)
        for host, start, stop, state in case.get("held", ()):
            cells = {(host, ""): {"agent_delivery_state": state}}
            self._run(f"{host}/health", host, cells, (start, stop), 30, kind=EntityKind.PLATFORM)
        for host, start, stop in case.get("others", ()):
            self._run("bmc", host, {(host, ""): {"node_load1": 1}}, (start, stop), 1, kind=EntityKind.NODE)

    def _host(self, name, host):
        agent, step = host.get("agent", name), host.get("interval", 1)
        boots = host.get("boots", [["1", 0, 10**6]])
        cells = {(gpu, ""): {POWER: 300_000} for gpu in host["gpus"]}
        for reported in host["reports"]:
            self._run(agent, name, cells, reported, step, boots=boots)
        beat = {(agent, ""): {"agent_up": 1}}
        for reported in host.get("beats", host["reports"]):
            self._run(agent, name, beat, reported, 1, boots=boots, kind=EntityKind.PLATFORM)
        for start, stop, told in host.get("late", ()):
            self._run(agent, name, beat, (start, stop), 1, boots=boots, kind=EntityKind.PLATFORM, told=told)

    def _run(self, agent, host, cells, reported, step, *, boots=(("1", 0, 10**6),), told=None, **frame):
        seconds = range(reported[0], reported[1], step)
        for boot, start, stop in boots:
            mine = [T0 + 1000 * second for second in seconds if start <= second < stop]
            for first in range(0, len(mine), max(CHUNK // step, 1)):
                ticks = mine[first : first + max(CHUNK // step, 1)]
                ingest_ms = ticks[-1] + 300 if told is None else T0 + 1000 * told
                boot_id = f"{int(boot):032x}"
                self._rows(agent, host, cells, ticks, ingest_ms, boot=boot_id, interval_ms=1000 * step, **frame)

    def _rows(self, agent, host, cells, ticks, ingest_ms, **frame):
        rows = {(*subject, place): each for subject, each in cells.items() for place in range(len(ticks))}
        body = frame_bytes(rows, ticks, sequence=next(self._sequence), collector=agent, host=host, **frame)
        self.sends.append((ingest_ms, body))

    def _event(self, metric, host, times, code, attributes, by):
        at, end = times
        entity, kind = (by, EntityKind.PLATFORM) if metric == "agent_shed" else (host, EntityKind.NODE)
        event = Event(
            metric,
            entity,
            "",
            T0 + 1000 * at,
            code,
            None if end is None else T0 + 1000 * end,
            1,
            attributes | ({"host": host} if metric == "agent_shed" else {}),
        )
        body = frame_bytes(
            {}, [], kind=kind, events=[event], names=[], collector=by, host=by, sequence=next(self._sequence)
        )
        self.sends.append((self.end_ms - 1000, body))

    def reader(self, store, now_ms):
        clock = ManualClock(now_ms)
        planned = [
            MaintenanceWindow(self.tenant, "k1", host, T0 + 1000 * start, T0 + 1000 * stop, "x", "me", T0)
            for host, start, stop in self.case.get("planned", ())
        ]
        return GapReader(Inventory(store, clock), clock, lambda _scope, _span: planned)


def case_names():
    return sorted(path.stem for path in CASES.glob("*.json"))


@pytest.mark.parametrize("name", case_names())
def test_gaps_are_as_the_case_says(store, scenes, name):
    scene = scenes[name]
    case = scene.case
    span = Span(T0 + 1000 * case.get("from", 0), scene.end_ms)
    found = scene.reader(store, scene.end_ms).read(EntityKind.GPU, Filters(), span, scope_of(scene.tenant))
    shown = [
        [
            one.gap.key.split("\0")[3],
            (one.gap.start_ms - T0) // 1000,
            None if one.gap.is_open else (one.gap.end_ms - T0) // 1000,
            one.gap.expected,
            str(one.reason),
        ]
        for one in found.gaps
    ]
    assert sorted(shown) == sorted(case["expected"])


def test_gaps_of_very_many_entities_are_not_looked_for_beside_an_answer(store, scenes, monkeypatch):
    scene = scenes["collector-down"]
    asked = EntityKind.GPU, Filters(), Span(T0, scene.end_ms), scope_of(scene.tenant)
    assert scene.reader(store, scene.end_ms).lacks(*asked)
    monkeypatch.setattr("secondsight.query.gapreader.BESIDE_LACKING", 0)
    assert scene.reader(store, scene.end_ms).lacks(*asked) is None


def runs_of(present):
    """Return maximal runs of a set of slots as what is seen of them."""
    runs = []
    for slot in sorted(present):
        if runs and slot == runs[-1][1] + 1:
            runs[-1][1] = slot
        else:
            runs.append([slot, slot])
    return [Seen(T0 + 1000 * first, T0 + 1000 * last) for first, last in runs]


@given(st.sets(st.integers(0, 59)), st.randoms())
def test_gaps_are_the_maximal_runs_of_missing_slots(present, chance):
    stretch = Stretch("k", T0, T0 + 60_000, 1000, "a", "r")
    seen = runs_of(present)
    chance.shuffle(seen)
    missing, found = [], set()
    for slot in range(61):
        if slot < 60 and slot not in present:
            missing.append(slot)
        elif missing:
            if len(missing) > 3:
                found.add((missing[0], slot))
            missing = []
    gaps = gaps_of([stretch], seen, T0 + 10**9)
    assert {((gap.start_ms - T0) // 1000, (gap.end_ms - T0) // 1000) for gap in gaps} == found
    assert all(gap.expected * 1000 == gap.end_ms - gap.start_ms and not gap.is_open for gap in gaps)


def test_a_gap_that_a_backlog_closed_is_known_by_when_its_rows_came(store):
    scene = Scene({"seconds": 300, "hosts": {"h1": {"gpus": ["GPU-1"], "reports": [[0, 100], [150, 300]]}}})
    cells = {("GPU-1", ""): {POWER: 1}}
    scene._run("h1", "h1", cells, (100, 150), 1, told=280)
    rig = Rig(store, T0)
    for ingest_ms, body in sorted(scene.sends, key=lambda item: item[0]):
        rig.clock.step_wall((ingest_ms - rig.clock.now_ms()) / 1000)
        rig.send(body, ingest_ms, tenant=scene.tenant)
        rig.processor.step()
    rig.settle()
    reader, scope = scene.reader(store, scene.end_ms), scope_of(scene.tenant)
    span = Span(T0, scene.end_ms)
    assert reader.read(EntityKind.GPU, Filters(), span, scope).gaps == ()
    (one,) = reader.filled(EntityKind.GPU, Filters(), span, scope)
    assert (one.start_ms, one.end_ms, one.slots, one.filled_ms) == (T0 + 100_000, T0 + 150_000, 50, T0 + 280_000)
