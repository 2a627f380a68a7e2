"""The handed case of streams that end in a table: two writers, a conflict, a lost answer; each commit is there once."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from requests.exceptions import ReadTimeout

from lake_rig import HOUR_MS, START_MS, Rig, hour_of, opened
from secondsight.lake.summary import TOKEN

CASE = Path(__file__).parent / "cases" / "lake" / "123-concurrent-appends-conflict.jsonl"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with opened(tmp_path) as made:
        yield made


def test_123_each_commit_is_there_once_after_a_conflict_and_a_lost_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [line["r"] for line in map(json.loads, CASE.read_text().splitlines())]
    assert answers == ["ok", "conflict", "unknown", "found"]
    plain, given = SqlCatalog.commit_table, []

    def answering(self: Any, *arguments: Any) -> Any:
        answer = answers[len(given)] if len(given) < len(answers) else "ok"
        given.append(answer)
        if answer == "conflict":
            raise CommitFailedException("branch main has changed")
        landed = plain(self, *arguments)
        if answer == "unknown":
            raise ReadTimeout("the answer was lost")
        return landed

    rig.insert(hour_of(4, START_MS, gpu_power_watts=lambda second: second))
    monkeypatch.setattr(SqlCatalog, "commit_table", answering)
    rig.copy()
    rig.insert(hour_of(4, START_MS + HOUR_MS, gpu_power_watts=lambda second: second))
    while rig.copy():
        pass
    assert given[:3] == ["ok", "conflict", "unknown"]
    tokens = [one.summary[TOKEN] for one in rig.lake.table("gpu_1s").snapshots()]
    assert len(tokens) == len(set(tokens)) == 2
    assert rig.in_lake() == rig.in_store()
    assert len(rig.in_lake()) == 2 * 4 * 3
