"""A writer that is killed at any moment has kept every record that it acknowledged, in order, once."""

import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from secondsight.clock import SystemClock
from secondsight.log.embedded import EmbeddedConsumer

KILLS = 10


@pytest.mark.crash
def test_every_acknowledged_record_survives_kill_9(tmp_path):
    choose = random.Random(7)
    acknowledged: dict[str, int] = {}
    first = 0
    for _ in range(KILLS):
        acknowledged = run_and_kill(tmp_path, first, choose.randint(5, 120), acknowledged)
        first = max(acknowledged.values()) + 10
    seen = read_everything(tmp_path)
    for thread, last in acknowledged.items():
        for numbers in (seen["own", thread], seen["other", thread]):
            assert numbers == sorted(set(numbers))
            assert last in numbers
    assert missing(tmp_path, seen) == []


def run_and_kill(root: Path, first: int, lines: int, acknowledged: dict[str, int]) -> dict[str, int]:
    """Let a writer acknowledge about `lines` appends, kill it, and return the last number per thread."""
    command = [sys.executable, str(Path(__file__).with_name("log_crash_writer.py")), str(root), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        taken = [line for _, line in zip(range(lines), process.stdout, strict=False)]
        process.kill()
        taken += [line for line in process.stdout if line.endswith("\n")]
    with (root / "acknowledged").open("a") as file:
        file.writelines(taken)
    return acknowledged | dict(parse(line) for line in taken)


def parse(line: str) -> tuple[str, int]:
    thread, number = line.split()
    return thread, int(number)


def read_everything(root: Path) -> dict[tuple[str, str], list[int]]:
    """Return the numbers found, in order, by key and thread."""
    consumer = EmbeddedConsumer(root, "t", "g", SystemClock())
    seen: dict[tuple[str, str], list[int]] = defaultdict(list)
    while (polled := consumer.poll(1 << 20, 0)).records:
        assert polled.damaged == 0
        for record in polled.records:
            key, thread, number, _ = record.value.decode().split(":")
            seen[key, thread].append(int(number))
    consumer.close()
    return seen


def missing(root: Path, seen: dict[tuple[str, str], list[int]]) -> list[tuple[str, int]]:
    """Return what was acknowledged and is not there."""
    wanted = [parse(line) for line in (root / "acknowledged").read_text().splitlines()]
    found = {key: set(numbers) for key, numbers in seen.items()}
    return [
        (thread, number) for thread, number in wanted if not all(number in found[k, thread] for k in ("own", "other"))
    ]
