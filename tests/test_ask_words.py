"""Words of time as data, and what must be true of every text that anybody may send."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ask_rig import KNOWN, plan, planner
from guard_fixture import LIMITS, NOW_MS, registry, scope
from secondsight.ask.analyses import compile_question
from secondsight.ask.calendar import Calendar, zone_of
from secondsight.ask.compile import Column, measure_column
from secondsight.ask.diagnose import diagnosis_sentences, with_evidence
from secondsight.ask.ground import is_grounded
from secondsight.ask.plan import Planner
from secondsight.ask.question import DERIVED, TOGETHER, Treatment
from secondsight.ask.reading import read
from secondsight.ask.tables import Table
from secondsight.ask.tell import sentences_of
from secondsight.ask.timewords import TimeReader
from secondsight.ask.tokens import tokenise
from secondsight.ask.views import views_of
from secondsight.ask.vocabulary import load_vocabulary
from secondsight.catalog.load import load_catalog
from secondsight.errors import Rejected
from secondsight.guard.check import guard
from secondsight.guard.views import registry_of

TIMES = json.loads((Path(__file__).parent / "cases" / "ask" / "times.json").read_text())
WORDS = sorted(planner().vocabulary.words | {name for names in KNOWN.names.values() for name in names})


@pytest.mark.parametrize("case", TIMES, ids=lambda case: f"{case['words']} {case['zone']}")
def test_words_of_time_mean_a_range_of_the_asker_s_zone(case: dict[str, object]) -> None:
    calendar = Calendar(zone_of(str(case["zone"])), NOW_MS)
    found = TimeReader(tokenise(str(case["words"])), calendar).read()
    assert [[_text(one.stretch.from_ms), _text(one.stretch.to_ms)] for one in found] == case["ranges"]


def _text(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%MZ}"


def test_a_day_has_as_many_hours_as_the_clocks_give_it() -> None:
    hours = {
        (zone, day): (one.to_ms - one.from_ms) / 3_600_000
        for zone, day in (("Europe/Berlin", "25 October"), ("Europe/Berlin", "29 March"), ("UTC", "25 October"))
        for one in [TimeReader(tokenise(day), Calendar(zone_of(zone), NOW_MS)).read()[0].stretch]
    }
    assert list(hours.values()) == [25, 23, 24]


def test_every_metric_of_the_words_is_one_of_the_catalogue() -> None:
    terms = {term for found in load_vocabulary(load_catalog()).phrases.values() for term in found}
    named = {term.value for term in terms if term.table == "metric"}
    assert not [name for name in named if name not in load_catalog() and name not in DERIVED | TOGETHER.keys()]
    assert all(name in load_catalog() for names in TOGETHER.values() for name in names)


@pytest.mark.parametrize(("words", "reasons"), [("throttled", 4), ("throttled thermally", 2), ("were power capped", 1)])
def test_every_reason_to_throttle_is_asked_and_told_by_itself(words: str, reasons: int) -> None:
    catalog = load_catalog()
    every = Planner(views_of(registry_of(catalog)), load_vocabulary(catalog))
    question = every.plan(read(f"Which GPUs {words} today?", KNOWN, every.vocabulary, "UTC", NOW_MS), NOW_MS)
    columns = tuple(measure_column(measure, every.views) for measure in question.measures)
    assert len(columns) == reasons
    (statement,) = compile_question(question, every.views, NOW_MS)
    assert " DESC, " in statement.sql
    keys = (Column("host_id"), Column("gpu_id"))
    rows = (("h1", "GPU-a", *[0.0] * (reasons - 1), 90.0), ("h1", "GPU-b", *[None] * reasons))
    (told,) = sentences_of(question, (Table("figures", (*keys, *columns), rows, ("host_id", "gpu_id")),))
    assert "GPU-a: 90 s" in told
    assert "GPU-b" not in told
    quiet = (("h1", "GPU-a", *[0.0] * reasons),)
    (told,) = sentences_of(question, (Table("figures", (*keys, *columns), quiet, ("host_id", "gpu_id")),))
    assert told.startswith("None: ")


@pytest.mark.parametrize("text", ["how many xid 99.9 events today", "count Xid 1.5 and 79 errors by host today"])
def test_what_is_no_code_is_asked_about(text: str) -> None:
    assert plan(text).treatment is Treatment.CLARIFY


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join))
def test_whatever_words_come_the_sql_passes_the_guard(text: str) -> None:
    question = plan(text)
    if question.treatment is not Treatment.ANSWER:
        assert question.message
        return
    try:
        statements = compile_question(question, planner().views, NOW_MS)
    except Rejected as error:
        if error.code != "not_measured":  # the views have no column that the question needs
            raise
        return
    for one in statements:
        guard(one.sql, scope(), registry(), NOW_MS, LIMITS)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80))
def test_no_text_breaks_the_planner(text: str) -> None:
    assert plan(text).treatment in Treatment


@given(st.floats(0.01, 1e6), st.floats(1.2, 50.0))
def test_a_number_is_grounded_only_where_a_cell_rounds_to_it(value: float, factor: float) -> None:
    table = Table("t", (Column("power", "W"),), ((value,),))
    assert is_grounded(f"It was {value:.2f} W.", [table])
    if abs(value * factor - value) > 0.02:
        assert not is_grounded(f"It was {value * factor:.2f} W.", [table])


def test_a_diagnosis_tells_of_clocks_that_heat_slows_by_software_and_where_to_look() -> None:
    names = ("host_id", "gpu_id", "utilisation", "software_thermal_throttle_seconds", "covered_seconds", "step_at")
    row = ("h1", "GPU-a", 0.7, 60.0, 180.0, "2026-11-19 22:03:00")
    gpus = Table("gpus", tuple(Column(name) for name in names), (row,), ("host_id", "gpu_id"), frozenset())
    kinds = ("gpu_id", "kind", "count_of_error_events")
    errors = Table("errors", tuple(Column(name) for name in kinds), (("GPU-a", "counter_reset", 2),), ("gpu_id",))
    question = plan("Why was job-1 slow yesterday?")
    tables = with_evidence((gpus, errors), question)
    told = {row[0]: row[4] for row in tables[0].rows}
    assert set(told) == {"median utilisation", "software thermal throttle seconds"}
    assert "from=2026-11-19T22:02:30.000Z&to=2026-11-19T22:03:30.000Z" in told["software thermal throttle seconds"]
    assert "slowed down by temperature" in diagnosis_sentences(question, tables)[0]
