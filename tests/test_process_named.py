"""Rows of runs, jobs, processes and engines get their job, and its team where that is known, whatever is told late."""

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from process_rig import CATALOG, T0, Rig, allocation, frame_bytes, new_tenant
from query_fixture import scope_of
from secondsight.clock import ManualClock
from secondsight.model import EntityKind
from secondsight.process.enrich import NOBODY, Fact
from secondsight.process.groups import agreed
from secondsight.process.owners import JOB_LEAD_MS, Owners, root_column, root_of, roots_of
from secondsight.query.request import QueryText, parse_query
from secondsight.query.run import QueryRunner
from secondsight.wire.content import Event

TRAINING, PROCESS, ENGINE = EntityKind.TRAINING, EntityKind.PROCESS_JOB, EntityKind.INFERENCE
METRICS = {TRAINING: "training_step", PROCESS: "process_gpu_memory_bytes", ENGINE: "inference_requests_running"}


class Site:
    """A processor, rows of any kind each second, and allocations of GPUs."""

    def __init__(self, store: Any) -> None:
        self.tenant = new_tenant()
        self.store = store
        self.rig = Rig(store)
        self.sequence = itertools.count(1)

    def rows(self, kind: EntityKind, subject: tuple[str, str], first: int, seconds: int, host: str = "h1") -> None:
        for second in range(first, first + seconds):
            tick = T0 + 1000 * second
            self.rig.clock.step_wall((tick + 300 - self.rig.clock.now_ms()) / 1000)
            cells = {(*subject, 0): {METRICS[kind]: 1 + second}}
            body = frame_bytes(cells, [tick], sequence=next(self.sequence), kind=kind, host=host, collector=host)
            self.rig.send(body, tenant=self.tenant)
            self.rig.processor.step()

    def send(self, *events: Event, kind: EntityKind = PROCESS, host: str = "h1") -> None:
        sequence = next(self.sequence)
        body = frame_bytes({}, [T0], events=events, names=[], sequence=sequence, spool_id=9, kind=kind, host=host)
        self.rig.send(body, tenant=self.tenant)
        self.rig.processor.step()

    def owners(self, kind: EntityKind, entity: str) -> list[str]:
        """Return the owners of the stored seconds in order, with how many each has."""
        self.rig.settle()
        rows = self.store.query(
            f"SELECT concat(job_id, '|', owner_team, '|', model_id) AS owner FROM {kind.value}_1s FINAL "
            "WHERE tenant_id = {t:String} AND entity = {e:String} ORDER BY event_time",
            {"t": self.tenant, "e": entity},
        ).to_pylist()
        return [f"{len(list(run))} {owner}" for owner, run in itertools.groupby(row["owner"] for row in rows)]

    def owners_of_windows(self, kind: EntityKind, entity: str) -> list[tuple[str, int]]:
        self.rig.settle()
        rows = self.store.query(
            f"SELECT concat(job_id, '|', owner_team) AS owner, samples FROM {kind.value}_30s FINAL "
            "WHERE tenant_id = {t:String} AND entity = {e:String} AND samples > 0 ORDER BY window_start, owner",
            {"t": self.tenant, "e": entity},
        ).to_pylist()
        return [(row["owner"], row["samples"]) for row in rows]

    def events(self, metric: str) -> list[str]:
        self.rig.settle()
        rows = self.store.query(
            "SELECT concat(entity, ' ', job_id, '|', owner_team) AS owner FROM events FINAL "
            "WHERE tenant_id = {t:String} AND metric = {m:String} ORDER BY event_time, owner",
            {"t": self.tenant, "m": metric},
        ).to_pylist()
        return [row["owner"] for row in rows]

    def ask(self, metric: str, seconds: int, scope: Any = None, **filters: str) -> dict[str, int]:
        self.rig.settle()
        now_ms = T0 + 1000 * seconds
        text = QueryText(metric, filters, from_=str(T0), to=str(now_ms))
        asked = parse_query(text, CATALOG, now_ms)
        answer = QueryRunner(self.store, ManualClock(now_ms)).run(asked, scope or scope_of(self.tenant))
        return {series.labels["entityId"]: len(series.times_ms) for series in answer.series}


@pytest.fixture
def site(store):
    return Site(store)


def test_a_run_is_its_job_s_and_has_its_team_once_that_is_known(site: Site) -> None:
    site.rows(TRAINING, ("4711/a", ""), 0, 40)
    assert site.owners(TRAINING, "4711/a") == ["40 4711||"]
    site.send(allocation("GPU-a", T0 + 5000, job="4711"))
    site.rows(TRAINING, ("4711/a", ""), 40, 5)
    assert site.owners(TRAINING, "4711/a") == ["45 4711|team-a|m1"]
    assert site.owners_of_windows(TRAINING, "4711/a") == [("4711|team-a", 30), ("4711|team-a", 15)]
    site.send(allocation("GPU-a", T0 + 5000, T0 + 45_000, version=2, job="4711"))
    site.rows(TRAINING, ("4711/a", ""), 45, 5)
    assert site.owners(TRAINING, "4711/a") == ["50 4711|team-a|m1"]


def test_a_pod_s_job_is_known_by_its_allocation_not_by_its_first_word(site: Site) -> None:
    site.send(allocation("GPU-a", T0, job="red/pod-1"), allocation("GPU-b", T0, job="red", team="other"))
    site.rows(TRAINING, ("red/pod-1/run", ""), 0, 3)
    site.rows(TRAINING, ("red/pod-12", ""), 3, 3)
    assert site.owners(TRAINING, "red/pod-1/run") == ["3 red/pod-1|team-a|m1"]
    assert site.owners(TRAINING, "red/pod-12") == ["3 red|other|m1"]


def test_a_process_is_the_holder_s_of_its_gpu_or_slice(site: Site) -> None:
    on_slice = ("h1/9/77", "gi=1,gpu=GPU-a")
    site.rows(PROCESS, ("h1/8/70", "gpu=GPU-a"), 0, 20)
    site.rows(PROCESS, on_slice, 20, 4)
    slice_ = Event("job_gpu_allocation", "GPU-a", "gi=1", T0 + 22_000, 0, None, 1, {"job_id": "s", "owner_team": "x"})
    site.send(allocation("GPU-a", T0 + 10_000, job="w"), slice_)
    assert site.owners(PROCESS, "h1/8/70") == ["10 ||", "10 w|team-a|m1"]
    assert site.owners(PROCESS, "h1/9/77") == ["2 w|team-a|m1", "2 s|x|"]


def test_rows_of_a_job_and_of_no_job(site: Site) -> None:
    site.send(allocation("GPU-a", T0, job="4711"))
    site.rows(PROCESS, ("4711", ""), 0, 2)
    site.rows(PROCESS, ("4712", ""), 2, 2)
    site.rows(PROCESS, ("h1/88", ""), 4, 2)
    assert site.owners(PROCESS, "4711") == ["2 4711|team-a|m1"]
    assert site.owners(PROCESS, "4712") == ["2 4712||"]
    assert site.owners(PROCESS, "h1/88") == ["2 ||"]


def test_an_engine_has_its_model_and_the_job_that_has_its_model_on_gpus_of_its_host(site: Site) -> None:
    site.rows(ENGINE, ("h1:8000/m1#2", ""), 0, 10)
    site.send(allocation("GPU-a", T0 + 5000, job="a"), allocation("GPU-b", T0 + 8000, job="b"))
    site.rows(ENGINE, ("h2:8000/m1", ""), 10, 2, host="h2")
    site.rows(ENGINE, ("h1:8001/org/m2", ""), 12, 2)
    assert site.owners(ENGINE, "h1:8000/m1#2") == ["5 ||m1", "3 a|team-a|m1", "2 |team-a|m1"]
    assert site.owners(ENGINE, "h2:8000/m1") == ["2 ||m1"]
    assert site.owners(ENGINE, "h1:8001/org/m2") == ["2 ||org/m2"]


def test_events_of_a_run_follow_what_is_learnt_of_its_job(site: Site) -> None:
    site.send(Event("training_restart", "4711/a", "", T0 + 1000, 1), kind=TRAINING)
    site.send(Event("training_restart", "4712", "", T0 + 2000, 1), kind=TRAINING)
    assert site.events("training_restart") == ["4711/a 4711|", "4712 4712|"]
    site.send(allocation("GPU-a", T0 + 3000, job="4711"))
    assert site.events("training_restart") == ["4711/a 4711|team-a", "4712 4712|"]


def test_a_processor_that_restarts_knows_jobs_from_the_store(site: Site) -> None:
    site.send(allocation("GPU-a", T0, job="4711"))
    site.rows(TRAINING, ("4711/a", ""), 0, 35)
    site.rig.settle()
    site.rig.restart()
    site.rows(TRAINING, ("4711/a", ""), 35, 5)
    assert site.owners(TRAINING, "4711/a") == ["40 4711|team-a|m1"]


def test_a_job_s_filter_and_grant_give_its_runs_and_processes_and_no_others(site: Site) -> None:
    site.send(allocation("GPU-a", T0, job="4711"))
    for entity in ("4711/a", "4711/b", "4712/a"):
        site.rows(TRAINING, (entity, ""), 0, 10)
    site.rows(PROCESS, ("h1/8/70", "gpu=GPU-a"), 10, 5)
    assert site.ask("training_step", 10, job="4711") == {"4711/a": 10, "4711/b": 10}
    assert site.ask("training_step", 10, team="team-a") == {"4711/a": 10, "4711/b": 10}
    granted = scope_of(site.tenant, jobs=frozenset({"4712"}))
    assert site.ask("training_step", 10, granted) == {"4712/a": 10}
    assert site.ask("process_gpu_memory_bytes", 15, job="4711") == {"h1/8/70": 5}
    assert site.ask("process_gpu_memory_bytes", 15, granted) == {}


SUBJECTS = [
    (EntityKind.GPU, "h", "GPU-a", "gi=1"),
    (TRAINING, "h", "j", ""),
    (TRAINING, "h", "j/run", ""),
    (TRAINING, "h", "j/p/run", ""),
    (PROCESS, "h", "j", ""),
    (PROCESS, "h", "h/8/70", "gi=1,gpu=GPU-a"),
    (ENGINE, "h", "h:80/m", ""),
]
FACT = st.builds(
    lambda gpu, host, job, team, model, start, length, version: Fact(
        ("t", "k", gpu, ""), host, (job, "", team, model), start, start + length, version
    ),
    st.sampled_from(["GPU-a", "GPU-b"]),
    st.just("h"),
    st.sampled_from(["j", "j/p", ""]),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["m", ""]),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(1, 3),
)


def looked_up(known: Owners) -> dict[Any, Any]:
    instants = [-JOB_LEAD_MS - 1, *range(-JOB_LEAD_MS, -JOB_LEAD_MS + 10), *range(-1, 20)]
    return {
        (subject, instant): known.at(subject[0], subject[1], ("t", "k", *subject[2:]), instant)
        for subject in SUBJECTS
        for instant in instants
    }


@given(st.lists(FACT, max_size=6), st.randoms())
def test_the_order_of_facts_changes_no_owner(facts: list[Fact], chance: Any) -> None:
    one, other = Owners(), Owners()
    for each in facts:
        one.add(each)
    chance.shuffle(facts)
    for each in facts:
        other.add(each)
    found, again = looked_up(one), looked_up(other)
    assert {key: span.attribution for key, span in found.items()} == {key: s.attribution for key, s in again.items()}
    assert {key: span.version for key, span in found.items()} == {key: s.version for key, s in again.items()}


def fact(model: str, version: int) -> Fact:
    return Fact(("t", "k", "GPU-a", ""), "h", ("j", "", "x", model), 0, 9, version)


@given(st.lists(FACT, min_size=1, max_size=6))
@example([fact("m", 1), fact("", 2)])
def test_what_a_fact_changes_is_told_with_its_root(facts: list[Fact]) -> None:
    known = Owners()
    for fact in facts:
        before = looked_up(known)
        changes = known.add(fact)
        for ((kind, host, entity, part), instant), span in looked_up(known).items():
            if span.attribution != before[(kind, host, entity, part), instant].attribution:
                root = root_of(kind, host, ("t", "k", entity, part))
                assert changes[root][0] <= instant < changes[root][1]
                assert root in roots_of(fact)


def test_a_root_is_the_same_in_sql(store) -> None:
    for kind, host, entity, part in [*SUBJECTS, (PROCESS, "h", "h/8", "gpu=GPU-b"), (ENGINE, "h", "h:80/org/m#v2", "")]:
        (row,) = store.query(
            f"SELECT {root_column(kind)} AS root FROM (SELECT {{h:String}} AS host_id, {{e:String}} AS entity, "
            "{p:String} AS part)",
            {"h": host, "e": entity, "p": part},
        ).to_pylist()
        assert row["root"] == root_of(kind, host, ("t", "k", entity, part))


@pytest.mark.parametrize(
    ("owners", "common"),
    [
        ([], NOBODY),
        ([("a", "w", "t", "m")], ("a", "w", "t", "m")),
        ([("a", "w", "t", "m"), ("a", "v", "t", "")], ("a", "", "t", "")),
    ],
)
def test_what_owners_have_in_common(owners: list[Any], common: Any) -> None:
    assert agreed(Counter(owners)) == common
