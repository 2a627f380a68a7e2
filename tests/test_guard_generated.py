"""Statements without end: whatever passes the guard gives what the caller's rows alone give."""

import itertools
import json
import re

import pytest

from guard_fixture import CASES, LIMITS, NOW_MS, registry, scope
from guard_grammar import Made, statements
from guard_oracle import SECRETS, Oracle, Ran
from secondsight.guard.check import guard
from secondsight.guard.plan import Guarded
from secondsight.guard.refusal import MESSAGES, Refused

SEEDS = [
    json.loads(line)["sql"]
    for name in ("cases.jsonl", "allowed.jsonl", "refused.jsonl")
    for line in (CASES / name).read_text().splitlines()
]
VIEWS, SCOPE = registry(), scope()
BATCH = 64
LIMIT_REACHED = re.compile(r"TIMEOUT_EXCEEDED|MEMORY_LIMIT|TOO_MANY_ROWS")


def passed(made: Made) -> Guarded | None:
    """Return what the guard makes of a statement, or None where it refuses, which it does in fixed words alone."""
    try:
        return guard(made.sql, SCOPE, VIEWS, NOW_MS, LIMITS)
    except Refused as refusal:
        require_fixed(refusal)
        return None


def require_fixed(refusal: Refused) -> None:
    assert refusal.message == MESSAGES[refusal.code][0]


def judge(made: Made, mine: Ran, all_rows: Ran) -> str:
    """Return what is wrong with an answer, or an empty text."""
    if any(secret in all_rows.text and secret not in made.sql for secret in SECRETS):
        return "rows of others"
    if mine.error:
        return ""
    if all_rows.error:
        return "" if LIMIT_REACHED.search(all_rows.error) else "fails when guarded"
    return "" if made.loose or mine.same(all_rows) else "another result"


def run(seed: int, count: int, oracle: Oracle) -> tuple[int, list[str]]:
    """Return how many of so many statements passed, and what was wrong with which."""
    wrong: list[str] = []
    compared = 0
    batch: list[tuple[Made, Guarded]] = []

    def settle() -> None:
        answers = oracle.receive(len(batch))
        for (made, guarded), (mine, all_rows) in zip(batch, answers, strict=True):
            fault = judge(made, mine, all_rows)
            if fault:
                wrong.append(f"{fault}: {made.sql}\n-> {guarded.sql}\n{mine.error or all_rows.error}")
        batch.clear()

    for made in itertools.islice(statements(seed, SEEDS), count):
        guarded = passed(made)
        if guarded is not None:
            if len(batch) == BATCH:
                settle()
            oracle.send(made.sql.rstrip().rstrip(";"), guarded.sql)
            batch.append((made, guarded))
            compared += 1
    settle()
    return compared, wrong


def test_two_thousand_statements_leak_nothing() -> None:
    with Oracle(thinned=20) as oracle:
        compared, wrong = run(20261120, 2_000, oracle)
    assert not wrong, "\n\n".join(wrong[:5])
    assert compared > 600


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_fifty_thousand_statements_leak_nothing(seed: int) -> None:
    with Oracle(thinned=10) as oracle:
        compared, wrong = run(seed, 5_000, oracle)
    assert not wrong, "\n\n".join(wrong[:5])
    assert compared > 1_500
