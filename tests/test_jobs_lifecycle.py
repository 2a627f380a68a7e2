"""State changes of instances: twice, late and out of order, and each counts once."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from jobs_fixture import T0, events_of, means_of, station_of
from secondsight.agent.jobs.lifecycle import LifecycleReader, changes_of, stays_of
from secondsight.agent.jobs.settings import LifecycleConfig
from secondsight.errors import Retryable

CAPTURE = Path(__file__).parents[2] / "shared/corpus/captures/sched/aws_state_changes_dup_and_disorder.jsonl"


def running_seconds(lines: list[str]) -> list[tuple[str, float]]:
    changes, _ = changes_of(lines)
    return [
        (stay.instance, (stay.end_ms - stay.start_ms) / 1000)
        for stay in stays_of(changes)
        if stay.state == "running" and stay.end_ms is not None
    ]


@pytest.mark.skipif(not CAPTURE.is_file(), reason="no captures here")
def test_captured_changes() -> None:
    lines = CAPTURE.read_text().splitlines()
    assert running_seconds(lines) == [("i-00000000000000001", 16_049)]
    changes, refused = changes_of(lines)
    assert (len(changes), refused) == (5, {"other": 1})


def line(identifier: str, state: str, time: str, instance: str = "i-1", **more: Any) -> str:
    return json.dumps({"id": identifier, "time": time, "detail": {"instance-id": instance, "state": state}} | more)


LINES = [
    line("1", "pending", "2024-06-01T08:00:00Z"),
    line("2", "running", "2024-06-01T10:01:00+02:00"),
    line("2", "running", "2024-06-01T08:01:00Z"),
    line("3", "running", "2024-06-01T08:05:00Z"),
    line("4", "stopping", "2024-06-01T09:01:00Z"),
    line("5", "running", "2024-06-01T10:00:00Z", "i-2"),
    line("6", "running", "2024-06-01T11:00:00Z"),
    line("7", "terminated", "2024-06-01T11:00:30Z"),
]
RAN = [("i-1", 3600), ("i-1", 30)]


def test_the_order_of_announcements_changes_nothing() -> None:
    chance = random.Random(7)
    for _ in range(20):
        lines = [*LINES, *chance.choices(LINES, k=3)]
        chance.shuffle(lines)
        assert sorted(running_seconds(lines), reverse=True) == RAN


def test_lines_that_are_none_cost_themselves() -> None:
    bad = ["{", "7", "[]", "{}", line("8", "x", "yesterday"), line("9", "x", "2024-06-01T08:00:00"), ""]
    others = [json.dumps({"id": "e", "time": "2024-06-01T08:00:00Z", "detail": {"instance-action": "terminate"}})]
    changes, refused = changes_of([*bad, *others, LINES[0]])
    assert (len(changes), refused) == (1, {"line": 6, "other": 1})


def test_a_file_that_grows_out_of_order(tmp_path: Path) -> None:
    path = tmp_path / "changes"
    means = means_of()
    config = LifecycleConfig(path, hosts={"i-1": "node-a"})
    reader = LifecycleReader(config, station_of(tmp_path), means)
    with pytest.raises(Retryable, match="cannot be read"):
        reader.read(T0)
    path.write_text("\n".join([LINES[1], LINES[7], ""]))
    first = events_of(reader.read(T0))
    assert [(e.entity, e.attributes["state"], e.end_ms is None, e.code) for e in first] == [
        ("node-a", "running", False, 1),
        ("node-a", "terminated", True, 0),
    ]
    assert events_of(reader.read(T0 + 1000)) == []
    path.write_text("\n".join([LINES[1], LINES[7], LINES[4], ""]))
    second = {e.attributes["state"]: e for e in events_of(reader.read(T0 + 2000))}
    assert second["running"].end_ms == second["stopping"].time_ms
    assert second["running"].version > first[0].version
    assert second["running"].time_ms == first[0].time_ms
    path.write_text("\n".join([*LINES[3:5], LINES[7], ""]))
    reader.read(T0 + 3000)
    path.write_text("\n".join([LINES[1], *LINES[3:5], LINES[7], ""]))
    third = [(e.attributes["state"], e.end_ms == e.time_ms) for e in events_of(reader.read(T0 + 4000))]
    assert ("running", True) in third
    assert ("running", False) in third
    reader.close()
