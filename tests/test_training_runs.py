"""Reports of processes in, rows of runs out: by cases, and adding up whatever is lost or starts again."""

import contextlib
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.agent.training.datagram import Report, parse
from secondsight.agent.training.runs import Runs
from secondsight.catalog.load import load_catalog
from secondsight.contracts import Tick
from secondsight.errors import Rejected
from secondsight.mapping.cells import ContentBuilder, Gathered
from training_fixture import told

CASES = sorted((Path(__file__).parent / "cases" / "training" / "runs").glob("*.json"))
START_MS = 1_777_888_800_000


def runs_of(alive: set[int] | None = None, known_since_ms: int = START_MS) -> Runs:
    return Runs(
        load_catalog(),
        lambda pid: alive is None or pid in alive,
        node="node-a",
        runs_maximum=4,
        known_since_ms=known_since_ms,
    )


def report_of(said: dict[str, Any]) -> Report:
    given = {"v": 1, "job": "j", "start": (START_MS + 1) * 1_000_000, "rank": 0, "c": {}, "g": {}}
    return parse(json.dumps(given | said).encode())


def tick_of(runs: Runs, seconds: float) -> Tick:
    gathered = Gathered(discarded=Counter())
    runs.gather(seconds, START_MS + int(seconds * 1000), gathered)
    return Tick(ContentBuilder("node-a", "").build(gathered, 0))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    """Each step is at a second: reports that came, pids that are gone, and what must, or must not, be told."""
    case = json.loads(path.read_text())
    alive = set(range(1, 100))
    runs = runs_of(alive)
    for step in case["steps"]:
        alive -= set(step.get("gone", []))
        for said in step.get("reports", []):
            pid = said.pop("from", 0)
            runs.take(report_of(said), step["at"], START_MS + step["at"] * 1000, pid, 1000)
        found = told(tick_of(runs, step["at"]))
        values = found.get("values", {})
        assert {name: values.get(name) for name in step.get("values", {})} == step.get("values", {}), step["at"]
        assert not set(step.get("absent", [])) & set(values), step["at"]
        durations = {name: found.get("durations", {}).get(name) for name in step.get("durations", {})}
        assert durations == step.get("durations", {}), step["at"]
        events = [[event[0], event[2], event[5].get("rank", "")] for event in found.get("events", [])]
        assert events == step.get("events", []), step["at"]
        if "facts" in step:
            assert found.get("facts", {}) == step["facts"]


def test_a_process_that_counted_before_anybody_looked_is_no_increase() -> None:
    runs = runs_of(known_since_ms=START_MS + 10_000)
    runs.take(report_of({"c": {"steps": 500, "tokens": 9000}}), 0, START_MS)
    assert told(tick_of(runs, 0))["values"]["training_steps_total j"] == 0
    runs.take(report_of({"c": {"steps": 502, "tokens": 9036}}), 1, START_MS)
    values = told(tick_of(runs, 1))["values"]
    assert (values["training_steps_total j"], values["training_tokens_total j"]) == (2, 36)


def test_runs_and_processes_are_bounded() -> None:
    runs = runs_of()
    for number in range(9):
        runs.take(report_of({"job": f"j{number}"}), 0, START_MS)
    assert runs.discarded["entities_limit"] == 5
    for rank in range(400):
        runs.take(report_of({"job": "j0", "rank": rank, "world_size": 400}), 0, START_MS)
    assert runs.discarded["parts_limit"] == 400 - (256 - 3)


def test_another_user_tells_nothing_of_a_run_that_has_processes() -> None:
    runs = runs_of({1, 2})
    for second, (uid, steps) in enumerate([(1000, 5), (6666, 999), (1000, 7)]):
        start = (START_MS + (1 if uid == 1000 else 2)) * 1_000_000
        runs.take(report_of({"start": start, "c": {"steps": steps}}), float(second), START_MS, uid % 1000 or 1, uid)
    assert runs.discarded == {"foreign_user": 1}
    assert told(tick_of(runs, 3.0))["values"]["training_steps_total j"] == 7


@pytest.mark.parametrize("count", [2.0**63, 2.0**64, 1e300])
def test_a_count_beyond_all_counts_costs_no_tick(count: float) -> None:
    runs = runs_of()
    for number in range(1, 4):
        runs.take(report_of({"c": {"step_seconds||3": count * number, "steps": 5}}), float(number), START_MS)
        assert told(tick_of(runs, float(number)))["values"]["training_steps_total j"] == 5


def test_an_ended_run_makes_room() -> None:
    runs = runs_of()
    for number in range(4):
        runs.take(report_of({"job": f"j{number}"}), number, START_MS)
    runs.take(report_of({"job": "j1", "e": [{"kind": "end", "ms": START_MS, "outcome": "ok"}]}), 5, START_MS)
    tick_of(runs, 5)
    runs.take(report_of({"job": "new"}), 6, START_MS)
    assert not runs.discarded["entities_limit"]


def test_a_spike_is_told_once_and_noise_is_not() -> None:
    runs, codes = runs_of(), []
    losses = [2.0 + 0.02 * math.sin(step) for step in range(40)] + [2.06, 5.0, 5.1, 2.0]
    for step, loss in enumerate(losses):
        runs.take(report_of({"g": {"step": step, "loss": loss}}), step, START_MS)
        codes += [event[2] for event in told(tick_of(runs, step)).get("events", [])]
    assert codes == [3]


BAD = [
    b"",
    b"\xff",
    b"{",
    b"[]",
    b"null",
    b'{"v":2,"job":"j"}',
    b'{"v":1}',
    b'{"v":1,"job":5}',
    b'{"v":1,"job":"j","rank":-1}',
    b'{"v":1,"job":"j","rank":1.5}',
    b'{"v":1,"job":"j","rank":true}',
    b'{"v":1,"job":"j","c":[]}',
    b'{"v":1,"job":"j","c":{"steps":"1"}}',
    b'{"v":1,"job":"j","g":{"loss":null}}',
    b'{"v":1,"job":"j","e":{}}',
    b'{"v":1,"job":"j","e":[1]}',
    b'{"v":1,"job":"j","e":[{"kind":"end"}]}',
    b"[" * 100_000,
    json.dumps({"v": 1, "job": "j", "c": dict.fromkeys(map(str, range(600)), 1)}).encode(),
]


@pytest.mark.parametrize("data", BAD, ids=lambda data: data[:30].decode("latin-1"))
def test_what_is_no_report_is_refused(data: bytes) -> None:
    with pytest.raises(Rejected) as refused:
        parse(data)
    assert refused.value.code == "bad_datagram"


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(lambda x: json.dumps(x).encode())
)
def test_no_datagram_breaks_the_parser(data: bytes) -> None:
    with contextlib.suppress(Rejected):
        parse(data)


KEYS = [
    "steps",
    "tokens",
    "step_seconds||3",
    "step_seconds||s",
    "step_seconds||999",
    "phase_seconds|a|x",
    "a|b|c|d",
    "|||",
]
NUMBERS = st.floats() | st.integers(-(2**70), 2**70)


@settings(max_examples=150)
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "rank": st.integers(0, 3),
                "world_size": st.integers(0, 4),
                "start": st.integers(0, 2**62),
                "steps_planned": st.integers(0, 5),
                "c": st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), NUMBERS, max_size=5),
                "g": st.dictionaries(st.sampled_from(["step", "loss", "score|a", "mfu", "x"]), NUMBERS, max_size=4),
                "lost": st.integers(0, 9),
                "e": st.lists(
                    st.fixed_dictionaries({"kind": st.sampled_from(["end", "loss_nan", "x"]), "ms": st.integers()}),
                    max_size=2,
                ),
            },
        ),
        max_size=6,
    )
)
def test_no_report_breaks_a_run(reports: list[dict[str, Any]]) -> None:
    runs = runs_of()
    for second, said in enumerate(reports):
        runs.take(report_of(said), second, START_MS)
        told(tick_of(runs, second))
    json.dumps(runs.kept())


class Sender:
    """A process that counts, as the helper does."""

    def __init__(self, rank: int, start: int) -> None:
        self.rank, self.start = rank, (START_MS + start) * 1_000_000
        self.counts: dict[str, float] = {"steps": 0, "tokens": 0}

    def step(self, tokens: int, bucket: int) -> None:
        key = f"step_seconds||{bucket}"
        for name, by in (("steps", 1), ("tokens", tokens), (key, 1), ("step_seconds||s", 0.5)):
            self.counts[name] = self.counts.get(name, 0) + by

    def report(self) -> Report:
        said = {"rank": self.rank, "world_size": 2, "start": self.start, "c": self.counts}
        return report_of(said)


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["step", "step", "step", "process", "agent", "save"]), st.integers(0, 1), st.booleans()),
    max_size=60,
)


class Site:
    """Two processes and an agent that keeps its state as the reader does."""

    def __init__(self) -> None:
        self.senders = [Sender(rank, 1) for rank in range(2)]
        self.runs = runs_of()
        self.steps = [0, 0]
        self.hear_all(0)
        self.save(0)

    def hear_all(self, second: int) -> None:
        for each in self.senders:
            self.runs.take(each.report(), second, START_MS)

    def save(self, second: int) -> None:
        self.kept, self.since_ms = json.loads(json.dumps(self.runs.kept())), START_MS + second * 1000
        self.runs.changed = False

    def act(self, action: str, rank: int, arrives: bool, second: int) -> None:
        if action == "step":
            self.senders[rank].step(10, second % 43)
            self.steps[rank] += 1
        elif action == "process":
            self.hear_all(second)
            self.senders[rank] = Sender(rank, second * 1000)
        elif action == "agent":
            self.runs = runs_of(known_since_ms=self.since_ms)
            self.runs.restore(self.kept, second)
        if arrives or action != "step":
            self.hear_all(second)
        if self.runs.changed or action == "save":
            self.save(second)


@settings(max_examples=200)
@given(ACTIONS)
def test_counts_add_up_whatever_is_dropped_and_starts_again(actions: list[tuple[str, int, bool]]) -> None:
    """A report may be dropped, a process may start again, the agent may start again from what it last kept."""
    site, last = Site(), 0.0
    for second, (action, rank, arrives) in enumerate(actions, 1):
        site.act(action, rank, arrives, second)
        tokens = told(tick_of(site.runs, second))["values"]["training_tokens_total j"]
        assert tokens >= last
        last = tokens
    site.hear_all(1000)
    found = told(tick_of(site.runs, 1000))
    assert found["values"]["training_tokens_total j"] == 10 * sum(site.steps)
    assert found["values"]["training_steps_total j"] == site.steps[0]
    timed = found.get("durations", {})
    assert sum(count for name, (count, _) in timed.items() if "step_duration" in name) == sum(site.steps)


def test_counts_begin_at_zero_an_instant_before_they_are_first_told() -> None:
    runs = runs_of()
    runs.take(report_of({"c": {"steps": 2}}), 1.0, START_MS)
    assert told(tick_of(runs, 1.0))["values"]["training_steps_total j"] == 2
    begun = {(cell.metric.name, cell.entity): cell.value for cell in runs.begun.cells}
    assert begun["training_steps_total", "j"] == 0
    assert not any(begun.values())
    runs.take(report_of({"c": {"steps": 5}}), 2.0, START_MS)
    tick_of(runs, 2.0)
    assert not runs.begun.cells
    again = runs_of()
    again.restore(runs.kept(), 3.0)
    tick_of(again, 3.0)
    assert not again.begun.cells
