"""What operators want becomes what agents are told: rules, stages, sessions and their budget, on a real SQLite file."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine

from gateway_fixture import NOW_MS, Running, frame, serving
from secondsight.access.debug import (
    MINUTE_MS,
    Budget,
    DebugSession,
    OverBudget,
    budget_of,
    sessions_since,
    set_budget,
    start_session,
    stop_session,
)
from secondsight.access.metadata import open_metadata
from secondsight.access.sampling import (
    MetricStage,
    Rule,
    Stage,
    add_rule,
    live_rules,
    metric_stages,
    remove_rule,
    set_stage,
)
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.errors import Rejected
from secondsight.gateway.policy import Tables, told_to
from secondsight.model import EntityKind
from secondsight.query.inventory import collecting
from test_gateway import plans_of

CASES = json.loads((Path(__file__).parent / "cases" / "sampling" / "told.json").read_text())
NAMES = {kind: tuple(metric.name for metric in load_catalog().of_kind(kind)) for kind in EntityKind}
HOME = ("t1", "c1", "h1")


@pytest.fixture
def metadata(tmp_path: Path) -> Iterator[Engine]:
    engine = open_metadata(str(tmp_path / "metadata.sqlite"))
    yield engine
    engine.dispose()


def session(**changes: Any) -> DebugSession:
    made = DebugSession("t1", "c1", "host", "h1", {"h1": None}, NOW_MS, NOW_MS + 15 * MINUTE_MS, values_per_second=100)
    return replace(made, **changes)


def tables_of(case: dict[str, Any]) -> Tables:
    rules = [Rule(**{"tenant_id": "t1"} | rule, rule_id=number) for number, rule in enumerate(case["rules"])]
    rules = [replace(rule, kind=EntityKind(rule.kind) if rule.kind else None) for rule in rules]
    stages = [MetricStage(**{"tenant_id": "t1"} | each | {"stage": Stage(each["stage"])}) for each in case["stages"]]
    return Tables(tuple(rules), tuple(stages), tuple(session(**each) for each in case["sessions"]))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_what_a_host_is_told(case: dict[str, Any]):
    told = told_to(tables_of(case), HOME, NAMES, NOW_MS + 1000)
    for kind in (EntityKind.GPU, EntityKind.NODE):
        wanted, found = case[kind.value], told.kinds[kind]
        without = wanted.get("without") or sorted(set(NAMES[kind]) - set(wanted.get("lacks_all_but", NAMES[kind])))
        assert (found.interval_ms, list(found.without)) == (wanted["interval_ms"], without)
        assert found.only == (tuple(sorted(set(NAMES[kind]) - set(without))) if without else None)
    assert [{name: item[name] for name in ("kinds", "entities")} for item in told.sessions] == case["sessions_told"]
    assert list(told.jobs) == case["jobs"]


@given(st.integers(0, 1_000_000), st.integers(0, 1_000_000))
def test_a_greater_share_of_canaries_has_those_of_a_smaller_one(first: int, second: int):
    small, great = (MetricStage("t", "m", Stage.CANARY, share) for share in sorted((first, second)))
    hosts = [f"host-{number}" for number in range(200)]
    chosen = {host for host in hosts if small.allows(host)}
    assert chosen <= {host for host in hosts if great.allows(host)}


def test_canaries_are_about_as_many_as_asked_for_and_others_for_each_metric():
    hosts = [f"host-{number}" for number in range(4000)]
    chosen = [{h for h in hosts if MetricStage("t", name, Stage.CANARY, 50_000).allows(h)} for name in ("a", "b")]
    assert all(130 <= len(each) <= 270 for each in chosen)
    assert len(chosen[0] & chosen[1]) < 40


def test_rules_replace_their_like_and_can_be_removed(metadata: Engine):
    first = add_rule(metadata, Rule("t1", 30_000, "c1"), NOW_MS)
    second = add_rule(metadata, Rule("t1", 1000, "c1"), NOW_MS)
    add_rule(metadata, Rule("t1", 1000, "c1", kind=EntityKind.NODE, metrics=("node_load1",)), NOW_MS)
    assert [(rule.rule_id, rule.interval_ms) for rule in live_rules(metadata)] == [(second, 1000), (second + 1, 1000)]
    assert live_rules(metadata)[1].metrics == ("node_load1",)
    assert not remove_rule(metadata, "t1", first, NOW_MS)
    assert not remove_rule(metadata, "t2", second, NOW_MS)
    assert remove_rule(metadata, "t1", second, NOW_MS)
    assert len(live_rules(metadata)) == 1


@pytest.mark.parametrize(
    "rule",
    [
        Rule("t1", 5000),
        Rule("", 1000),
        Rule("t1", 30_000, gpu_id="GPU-a"),
        Rule("t1", 1000, gpu_id="GPU-a", job_id="j"),
        Rule("t1", 1000, job_id="j", metrics=("gpu_power_watts",)),
    ],
)
def test_rules_that_cannot_be_followed_are_refused(metadata: Engine, rule: Rule):
    with pytest.raises(Rejected) as refused:
        add_rule(metadata, rule, NOW_MS)
    assert refused.value.code == "bad_rule"


def test_a_metric_that_is_on_has_no_stage(metadata: Engine):
    set_stage(metadata, MetricStage("t1", "gpu_power_watts", Stage.CANARY, 50_000, ("h2", "h1")), NOW_MS)
    assert metric_stages(metadata) == (MetricStage("t1", "gpu_power_watts", Stage.CANARY, 50_000, ("h1", "h2")),)
    set_stage(metadata, MetricStage("t1", "gpu_power_watts", Stage.ON), NOW_MS)
    assert metric_stages(metadata) == ()


def test_sessions_stay_within_the_budget_and_a_refusal_says_what_fits(metadata: Engine):
    budget = Budget(250, per_host=100, per_gpu=12)
    first = start_session(metadata, session(until_ms=NOW_MS + 5 * MINUTE_MS), budget)
    start_session(metadata, session(until_ms=NOW_MS + 9 * MINUTE_MS), budget)
    with pytest.raises(OverBudget) as refused:
        start_session(metadata, session(), budget)
    assert refused.value.code == "debug_budget"
    assert "50 of 250 are free" in refused.value.message
    assert "0 hosts or 4 GPUs" in refused.value.hint
    assert refused.value.retry_after_seconds == 300
    assert len(sessions_since(metadata, NOW_MS)) == 2
    stop_session(metadata, ("t1",), first.session_id, NOW_MS)
    started = start_session(metadata, session(), budget)
    assert [one.is_active(NOW_MS) for one in sessions_since(metadata, NOW_MS)].count(True) == 2
    assert not started.is_active(started.until_ms)
    with pytest.raises(OverBudget) as never:
        start_session(metadata, session(values_per_second=251), budget)
    assert never.value.retry_after_seconds is None
    start_session(metadata, session(tenant_id="t2"), budget)


def test_a_session_ends_by_its_time_and_gives_its_budget_back(metadata: Engine):
    start_session(metadata, session(until_ms=NOW_MS + MINUTE_MS), Budget(100))
    with pytest.raises(OverBudget):
        start_session(metadata, session(), Budget(100))
    later = NOW_MS + MINUTE_MS
    start_session(metadata, session(start_ms=later, until_ms=later + MINUTE_MS), Budget(100))


@pytest.mark.parametrize(
    "changes", [{"until_ms": NOW_MS}, {"until_ms": NOW_MS + 9 * 60 * MINUTE_MS}, {"back_ms": 3 * 60 * MINUTE_MS}]
)
def test_a_session_is_bounded(metadata: Engine, changes: dict[str, Any]):
    with pytest.raises(Rejected) as refused:
        start_session(metadata, session(**changes), Budget(1000))
    assert refused.value.code == "debug_too_long"


def test_a_session_of_another_tenant_cannot_be_stopped(metadata: Engine):
    started = start_session(metadata, session(), Budget(1000))
    for tenants, session_id in ((("t2",), started.session_id), (("t1",), "other")):
        with pytest.raises(Rejected) as refused:
            stop_session(metadata, tenants, session_id, NOW_MS)
        assert refused.value.code == "not_found"


def test_a_tenant_may_have_a_budget_of_its_own(metadata: Engine):
    assert budget_of(metadata, "t1", 20) == 20
    set_budget(metadata, "t1", 5)
    assert (budget_of(metadata, "t1", 20), budget_of(metadata, "t2", 20)) == (5, 20)
    set_budget(metadata, "t1", None)
    assert budget_of(metadata, "t1", 20) == 20


def test_a_metric_is_not_expected_where_it_was_off():
    without = ["", "gpu_power_watts", "gpu_power_watts_x,gpu_sm_active_ratio", "a,gpu_power_watts,b"]
    expected = pa.table({"without": pa.array(without).dictionary_encode(), "host_id": list("abcd")})
    assert collecting(expected, "gpu_power_watts")["host_id"].to_pylist() == ["a", "c"]
    assert collecting(expected.slice(0, 1), "gpu_power_watts").num_rows == 1
    assert collecting(expected.slice(0, 0), "gpu_power_watts").num_rows == 0


def plan_of(run: Running, token: str, query: str = "") -> Any:
    return run.call("GET", f"/v1/agents/h1/plan{query}", headers={"Authorization": f"Bearer {token}"})


def test_plans_of_the_gateway_follow_the_tables(tmp_path: Path):
    """Rules, stages and sessions show in the plan and its tag, each interval is on record from where it is followed."""
    clock = ManualClock(NOW_MS)
    with serving(tmp_path, clock) as run:
        token, metadata = run.token("h1"), run.stores.metadata
        usual = plan_of(run, token, "?interval=2000").json
        assert usual == {"collectorId": "h1", "kinds": usual["kinds"], "untilMs": None}
        assert usual["kinds"]["gpu"] == {"intervalMs": 2000, "metrics": "all"}
        first_tag = run.post(frame("h1", 1), token).headers["x-secondsight-plan"]
        add_rule(metadata, Rule("t1", 30_000, "c1"), NOW_MS)
        clock.move(10)
        started = start_session(
            metadata, session(start_ms=NOW_MS + 10_000, until_ms=NOW_MS + 70_000, back_ms=60_000), Budget(1000)
        )
        during = plan_of(run, token, "?interval=2000")
        assert during.json["kinds"]["node"] == {"intervalMs": 1000, "metrics": "all"}
        assert during.json["after"]["node"] == {"intervalMs": 30_000, "metrics": "all"}
        assert during.json["untilMs"] == NOW_MS + 70_000
        assert during.json["sessions"][0] == {
            "id": started.session_id,
            "kinds": "all",
            "entities": "all",
            "intervalMs": 1000,
            "fromMs": NOW_MS - 50_000,
            "untilMs": NOW_MS + 70_000,
        }
        assert run.post(frame("h1", 2), token).headers["x-secondsight-plan"] == during.headers["etag"] != first_tag
        clock.move(100)
        after = plan_of(run, token, "?interval=2000")
        assert after.headers["etag"] not in (first_tag, during.headers["etag"])
        assert (after.json["kinds"]["node"]["intervalMs"], after.json["untilMs"]) == (30_000, None)
        set_stage(metadata, MetricStage("t1", "node_load1", Stage.OFF), NOW_MS)
        clock.move(10)
        without = plan_of(run, token, "?interval=2000").json["kinds"]
        assert "node_load1" not in without["node"]["metrics"]
        assert without["gpu"]["metrics"] == "all"
        found = [plan for plan in plans_of(run.records()) if plan["kind"] == "node" and plan["to_ms"] is None]
    starts = [(plan["interval_ms"], plan["from_ms"] - NOW_MS, plan.get("without", "")) for plan in found]
    window_ms = NOW_MS % 30_000
    ended_ms = -(-(NOW_MS + 70_000) // 30_000) * 30_000 - NOW_MS
    assert starts[:3] == [(2000, 0, ""), (1000, 10_000, ""), (30_000, ended_ms, "")]
    assert starts[3][0::2] == (30_000, "node_load1")
    assert (starts[3][1] + window_ms) % 30_000 == 0


def test_a_change_reaches_agents_that_only_post(tmp_path: Path):
    """Frames alone make the gateway read the tables again, after a few seconds, and the answer after that tells."""
    clock = ManualClock(NOW_MS)
    with serving(tmp_path, clock) as run:
        token = run.token("h1")
        first = run.post(frame("h1", 1), token).headers["x-secondsight-plan"]
        add_rule(run.stores.metadata, Rule("t1", 30_000), NOW_MS)
        clock.move(3)
        tags = [run.post(frame("h1", number), token).headers["x-secondsight-plan"] for number in range(2, 12)]
        assert tags[-1] != first
