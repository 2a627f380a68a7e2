"""How a GPU is: each line of the catalogue, by the event that it is about, while it lasts and after."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from secondsight.access.maintenance import MaintenanceWindow
from secondsight.catalog.health import Health, Lasts, health_rules
from secondsight.catalog.load import load_catalog
from secondsight.query.figures import signs_of
from secondsight.query.fleet import GpuNow, Status
from secondsight.query.health import LATELY_MS, NEVER, PLANNED, SILENT, verdicts_of

NOW = 1_700_000_000_000
KEY = ("t1", "c1", "h1", "GPU-a")
CATALOG = load_catalog()


def gpu(status=Status.REPORTING):
    names = ("tenant_id", "cluster_id", "host_id", "gpu_id")
    rest = dict.fromkeys(("rack", "gpu_model", "job_id", "workload_id", "owner_team", "model_id"), "")
    return GpuNow(**dict(zip(names, KEY, strict=True)), **rest, index=0, status=status, last_seen_ms=NOW, values={})


def event(metric, code=1, severity="error", age_ms=60_000, end_ms=None, host_only=False):
    place = dict(zip(("tenant_id", "cluster_id", "host_id", "entity"), KEY, strict=True))
    place |= {"entity": "h1"} if host_only else {}
    times = {"time_ms": NOW - age_ms, "end_ms": end_ms, "message": ""}
    return place | {"metric": metric, "code": code, "severity": severity} | times


def of_rule(rule, **more):
    code = rule.codes[0] if rule.codes else 2
    return event(rule.event, code, rule.severities[0] if rule.severities else "error", **more)


def verdict(*rows, status=Status.REPORTING, planned=()):
    return verdicts_of([gpu(status)], rows, planned, NOW)[KEY]


@pytest.mark.parametrize("rule", health_rules(), ids=lambda rule: rule.name)
def test_each_line_gives_its_verdict_with_evidence(rule):
    found = verdict(of_rule(rule))
    assert found.health is rule.verdict
    assert [one.rule for one in found.evidence] == [rule.name]
    assert CATALOG.get(rule.event).type.value == "event"
    assert set(rule.codes) <= {code for code, _ in CATALOG.get(rule.event).values}


@pytest.mark.parametrize("rule", health_rules(), ids=lambda rule: rule.name)
def test_each_line_is_over_some_time(rule):
    over = {
        Lasts.OPEN: [of_rule(rule, end_ms=NOW - 1000)],
        Lasts.RESET: [of_rule(rule), event("gpu_counter_reset", age_ms=1000)],
        Lasts.RECENT: [of_rule(rule, age_ms=LATELY_MS + 60_000, end_ms=NOW - LATELY_MS - 1)],
        Lasts.SHARE: [of_rule(rule, age_ms=40_000, end_ms=NOW - 39_000)],
    }
    assert verdict(*over[rule.lasts]).health is Health.HEALTHY


def test_a_boot_of_the_host_is_a_reset_of_its_cards():
    assert verdict(event("gpu_xid", 79, "fatal")).health is Health.UNAVAILABLE
    assert verdict(event("gpu_xid", 79, "fatal"), event("node_boot", host_only=True, age_ms=0)).health is Health.HEALTHY
    assert verdict(event("gpu_xid", 31, "error")).health is Health.HEALTHY


def test_the_worst_verdict_counts():
    found = verdict(event("gpu_memory_finding", 3), event("gpu_xid", 79, "fatal"))
    assert (found.health, [one.rule for one in found.evidence]) == (Health.UNAVAILABLE, ["fatal_xid"])


@pytest.mark.parametrize(
    ("status", "health", "rule"),
    [
        (Status.SILENT, Health.UNAVAILABLE, SILENT),
        (Status.LOST, Health.UNAVAILABLE, SILENT),
        (Status.UNKNOWN, Health.UNKNOWN, NEVER),
    ],
)
def test_a_card_that_says_nothing_is_not_healthy(status, health, rule):
    found = verdict(status=status)
    assert (found.health, found.evidence[0].rule) == (health, rule)
    window = MaintenanceWindow("t1", "c1", "", NOW - 1, NOW + 1, "", "", NOW)
    assert verdict(status=Status.LOST, planned=[window]).evidence[0].rule == PLANNED


# -- figures ---------------------------------------------------------------------------------------------------------

FIGURE_CASES = json.loads((Path(__file__).parent / "cases/health/figures.json").read_text(encoding="utf-8"))


def cards_of(case):
    """Return the GPUs of a case and their figures."""
    told = case.get("job", case.get("free"))
    number = max(len(values) for values in told.values())
    products = case.get("products", ["A"] * number)
    gpus = [
        replace(gpu(), gpu_id=f"GPU-{place}", job_id="j1" if "job" in case else "", gpu_model=products[place])
        for place in range(number)
    ]
    figures = {
        (*KEY[:3], each.gpu_id): {name: values[place] for name, values in told.items() if values[place] is not None}
        for place, each in enumerate(gpus)
    }
    return gpus, figures


@pytest.mark.parametrize("case", FIGURE_CASES, ids=lambda case: case["name"])
def test_figures_say_who_is_near_a_limit_or_below_its_peers(case):
    gpus, figures = cards_of(case)
    found = signs_of(gpus, figures, NOW)
    told = {key[3].removeprefix("GPU-"): sorted(sign.rule for sign in signs) for key, signs in found.items()}
    assert told == case["signs"]
    verdicts = verdicts_of(gpus, [], [], NOW, found)
    assert {key[3] for key, one in verdicts.items() if one.health is Health.DEGRADED} == {f"GPU-{n}" for n in told}


def test_figures_of_a_silent_card_say_nothing():
    gpus, figures = cards_of(next(case for case in FIGURE_CASES if case["name"].startswith("one card works less")))
    silent = [replace(one, status=Status.SILENT) for one in gpus]
    assert signs_of(silent, figures, NOW) == {}
