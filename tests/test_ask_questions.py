"""Questions in words on a small fleet: each is treated as expected, its figures are those of its reading."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ask_eval import Case, Verdict, judge, load, totals
from ask_rig import Store

HANDED = Path(__file__).parents[2] / "shared" / "sql" / "nl_questions.jsonl"
FOREIGN = ("tenant_b", "xh0", "xh1", "xh2", "xh3", "foreign", "c3", "L40S", "H200")
KEPT = {case["id"]: case for case in load()}


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store() as opened:
        yield opened


@pytest.mark.parametrize("name", sorted(KEPT))
def test_a_question_is_treated_as_expected_and_its_figures_are_right(name: str, store: Store) -> None:
    verdict = judge(KEPT[name], store)
    assert verdict.treated, verdict.answer
    assert verdict.figures is not False, (verdict.note, verdict.answer.tables)
    assert not verdict.answer.dropped
    assert verdict.answer.text


@pytest.mark.parametrize("name", sorted(KEPT))
def test_nothing_of_others_is_in_an_answer(name: str, store: Store) -> None:
    found = judge(KEPT[name], store).answer
    said = " ".join([found.text, *found.caveats, *found.options, repr([table.rows for table in found.tables])])
    assert not [word for word in FOREIGN if word in said]


def test_every_answer_names_range_zone_view_and_reading(store: Store) -> None:
    for case in KEPT.values():
        found = judge(case, store).answer
        if found.statements:
            first = found.caveats[0]
            assert first.startswith("Read as: ")
            assert found.question.view in first
            assert found.question.zone in first


def test_handed_questions_are_all_kept() -> None:
    if not HANDED.exists():
        pytest.skip("the handed questions are not here")
    handed = {line["id"] for line in map(json.loads, HANDED.read_text().splitlines())}
    assert handed <= set(KEPT)


def test_a_wrong_figure_and_a_wrong_treatment_are_seen(store: Store) -> None:
    case: Case = {**KEPT["q069"], "oracle": "SELECT 0.123456"}
    wrong = [judge(case, store), judge({**KEPT["q071"], "expect": "answer"}, store)]
    assert [verdict.figures for verdict in wrong] == [False, None]
    assert _totals(wrong) == (0, 1)


def _totals(verdicts: list[Verdict]) -> tuple[int, int]:
    figures = totals(verdicts)
    return figures["as_expected"], figures["wrong_with_confidence"]
