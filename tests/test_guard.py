"""Every case of the guard: what is refused says a fixed word, what is let through gives what the caller's rows give."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guard_fixture import CASES, LIMITS, NOW_MS, registry, scope
from guard_oracle import SECRETS, Oracle
from secondsight.guard.check import guard
from secondsight.guard.refusal import MESSAGES, Refused
from secondsight.guard.verify import check_engine

HANDED = Path(__file__).parents[2] / "shared" / "sql" / "guard_cases.jsonl"
NOW = {"now()": "toDateTime('2026-11-20 12:00:00', 'UTC')", "today()": "toDate('2026-11-20')"}


def cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CASES / name).read_text().splitlines()]


ALL = [*cases("cases.jsonl"), *cases("allowed.jsonl"), *cases("refused.jsonl")]
ALLOWED = [case for case in ALL if case["expect"] == "allow"]
REFUSED = [case for case in ALL if case["expect"] == "reject" and case.get("policy") != "choice"]
EITHER = [case for case in ALL if case["expect"] == "reject" and case.get("policy") == "choice"]


def name_of(case: dict[str, Any]) -> str:
    return f"{case['id']}-{case['kind']}"


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle() as oracle:
        yield oracle


def original(sql: str) -> str:
    """Return a statement as the engine may read it at the time of the cases."""
    for call, value in NOW.items():
        sql = sql.replace(call, value)
    return sql.rstrip().rstrip(";")


def require_fixed(refusal: Refused) -> None:
    assert refusal.message == MESSAGES[refusal.code][0]
    assert refusal.hint


@pytest.mark.skipif(not HANDED.exists(), reason=f"the cases are not at {HANDED}")
def test_the_handed_cases_are_here_as_they_were_handed() -> None:
    assert (CASES / "cases.jsonl").read_bytes() == HANDED.read_bytes()


@pytest.mark.parametrize("case", REFUSED, ids=name_of)
def test_a_hostile_statement_is_refused_in_fixed_words(case: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        guard(case["sql"], scope(), registry(), NOW_MS, LIMITS)
    refusal = refused.value
    assert refusal.code == case.get("code", refusal.code)
    require_fixed(refusal)
    said = f"{refusal.message} {refusal.hint} {refusal}".replace(repr(refusal.name), "")
    for word in re.findall(r"'([^']{4,})'|\b(raw_\w+|tenant_\w+|xh\d)\b", case["sql"]):
        assert not any(part and part in said for part in word)


@pytest.mark.parametrize("case", ALLOWED, ids=name_of)
def test_an_honest_statement_gives_what_the_rows_of_its_caller_give(case: dict[str, Any], oracle: Oracle) -> None:
    guarded = guard(case["sql"], scope(), registry(), NOW_MS, LIMITS)
    ((mine, all_rows),) = oracle.compare([(original(case["sql"]), guarded.sql)])
    assert not mine.error
    assert not all_rows.error
    assert mine.same(all_rows)
    assert len(all_rows.rows) <= guarded.row_cap
    tree = oracle.full.rows(f"EXPLAIN QUERY TREE run_passes = 0 {guarded.sql}")
    check_engine([line for (line,) in tree], guarded.views)


@pytest.mark.parametrize("case", EITHER, ids=name_of)
def test_a_statement_that_may_pass_reads_nothing_of_others(case: dict[str, Any], oracle: Oracle) -> None:
    try:
        guarded = guard(case["sql"], scope(), registry(), NOW_MS, LIMITS)
    except Refused as refusal:
        require_fixed(refusal)
        return
    ((mine, all_rows),) = oracle.compare([(original(case["sql"]), guarded.sql)])
    assert mine.same(all_rows)
    assert not any(secret in all_rows.text for secret in SECRETS)


def test_most_honest_statements_pass() -> None:
    kinds = {case["kind"] for case in ALLOWED}
    assert len(kinds) > 30
