"""Logs of trainers in, rows out: every case is a log and a file of what must come of it."""

import json
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.agent.counts import Counts
from secondsight.agent.training.config import LogFiles, LogsConfig
from secondsight.agent.training.extract import Said, extract
from secondsight.agent.training.lines import cleaned
from secondsight.agent.training.logs import LogReader
from secondsight.agent.training.patterns import load_patterns
from secondsight.agent.training.read import Place
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.errors import Rejected
from training_fixture import told

CASES = Path(__file__).parent / "cases" / "training" / "logs"
LOGS = sorted(CASES.glob("*.log"))
CAPTURES = Path(__file__).parents[2] / "shared" / "corpus" / "captures" / "train"
NOW_MS = 1_777_888_860_000
"""2026-05-04T10:01:00Z, when the cases' lines were just written."""

needs_captures = pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"the public captures are not at {CAPTURES}")


def reader_of(folder: Path, clock: ManualClock, **files: Any) -> LogReader:
    logs = LogFiles(**({"glob": f"{folder}/*.log", "job": "run-7", "from_start": True} | files))
    place = Place("node-a", "", 1000, folder / "kept" / "logs.json")
    made.append(LogReader(LogsConfig((logs,)), place, load_catalog(), clock, Counts()))
    return made[-1]


made: list[LogReader] = []


@pytest.fixture(autouse=True)
def _closed_with_the_test() -> Iterator[None]:
    yield
    while made:
        made.pop().close()


def said_by(text: str) -> list[Said]:
    patterns, memory = load_patterns(load_catalog()), dict[str, str]()
    lines = [line for raw in text.splitlines() for line in cleaned(raw, UTC, NOW_MS)]
    return [said for line in lines if (said := extract(patterns, line, memory)) is not None]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_case(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tmp_path / "a.log").write_bytes(path.read_bytes())
    reader = reader_of(tmp_path, ManualClock(NOW_MS))
    found = told(reader.read(NOW_MS))
    reader.close()
    expected = path.with_suffix(".expected.json")
    if request.config.getoption("--rewrite"):
        expected.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert found == json.loads(expected.read_text())


@needs_captures
def test_megatron_capture_has_the_values_of_its_note() -> None:
    note = (CAPTURES / "megatron_s_tflops.log.expect.md").read_text().split("```")[1]
    wanted = [line.split("\t") for line in note.strip().splitlines()]
    lines = said_by((CAPTURES / "megatron_s_tflops.log").read_text())
    assert len(lines) == len(wanted)
    for said, (_, iteration, seconds, tokens, loss, norm) in zip(lines, wanted, strict=True):
        assert said.gauges["step", ""] == int(iteration)
        assert said.durations == [(("step_seconds", ""), float(seconds))]
        assert round(said.gauges["tokens_per_second", ""]) == int(tokens.rstrip("*"))
        assert said.gauges["loss", ""] == float(loss)
        assert said.gauges["grad_norm", ""] == float(norm)


@needs_captures
def test_a_capture_that_goes_back_is_restarts_with_lost_steps(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes((CAPTURES / "megatron_s_tflops.log").read_bytes())
    events = told(reader_of(tmp_path, ManualClock(NOW_MS)).read(NOW_MS))["events"]
    restarts = [event[5] for event in events if event[0] == "training_restart"]
    assert [(facts["from_step"], facts["lost_steps"]) for facts in restarts] == [("3707", "3705")]


@needs_captures
def test_deepspeed_capture_has_the_values_of_its_note() -> None:
    lines = said_by((CAPTURES / "deepspeed_mixed.log").read_text())
    first = lines[0].gauges
    assert (first["step", ""], first["samples_per_second", "mean"]) == (34, 7.864669709950182)
    assert first["samples_per_second", "current"] == 8.00912418308922
    phases = {key[1]: seconds for key, seconds in lines[1].durations if key[0] == "phase_seconds"}
    assert phases["forward_microstep"] == pytest.approx(0.65242)
    assert phases["backward_allreduce_microstep"] == pytest.approx(0.1626)
    assert lines[2].durations == [(("step_seconds", ""), pytest.approx(4.1031))]
    assert lines[2].gauges["gpu_flops_per_second", ""] == pytest.approx(112.9e12)
    assert lines[4].gauges["step", ""] == 40
    skips = [said.added for said in lines[5:]]
    assert skips == [[(("anomalies", "overflow_skip"), 1.0)]] * 3
    assert [said.gauges["loss_scale", ""] for said in lines[5:]] == [65536, 32768, 2147483648]
    assert all(said.event is None for said in lines)


@needs_captures
def test_nanogpt_capture_has_the_values_of_its_note() -> None:
    lines = said_by((CAPTURES / "nanogpt.log").read_text())
    assert [said.gauges.get(("mfu", "")) for said in lines[1:4]] == [None, 0.3753, 0.3753]
    assert [len(said.durations) for said in lines[1:4]] == [0, 1, 1]
    assert lines[4].gauges["tokens_per_second", ""] == 1550412.33


@needs_captures
def test_nccl_capture_has_the_values_of_its_note() -> None:
    lines = said_by((CAPTURES / "nccl_warn_ib.log").read_text())
    events = [said.event[1] for said in lines if said.event is not None]
    assert [event.get("status_name") for event in events if "status" in event] == [
        "retry exceeded",
        "work request flushed",
        "local protection error",
    ]
    assert [event["local_gpu"] for event in events] == ["4", "4", "4", "1", "7"]
    assert events[2]["consequence"] == "true"
    assert not any("opcode" in event or "len" in event for event in events)


ZONES = [
    ("[2026-05-04 10:00:00,250] [INFO] x", "UTC", 1_777_888_800_250),
    ("[2026-05-04 10:00:00,250] [INFO] x", "Europe/Berlin", 1_777_881_600_250),
    ("2026-05-04T10:00:00.5Z x", "Europe/Berlin", 1_777_888_800_500),
    ("2026-05-04 10:00:00+02:00 x", "UTC", 1_777_881_600_000),
    ("2026-05-04T10:00:00-0330 x", "UTC", 1_777_901_400_000),
    (" 2026-05-04 10:00 node-a:1:2 [7] x", "UTC", 1_777_888_800_000),
    ("[May 04 2026 10:00:00] x", "UTC", 1_777_888_800_000),
    ("E0504 10:00:00.125000 140 torch/x.py:1] x", "UTC", 1_777_888_800_125),
    ("[E504 10:00:00.125999999 x.cpp:1] x", "UTC", 1_777_888_800_125),
    ("I1231 23:59:59.000000 1 x", "UTC", 1_767_225_599_000),
    ("[2026-13-45 99:00:00] x", "UTC", None),
    ("iteration 10/ 100 | no time", "UTC", None),
]


@pytest.mark.parametrize(("text", "zone", "time_ms"), ZONES)
def test_times_of_lines(text: str, zone: str, time_ms: int | None) -> None:
    (line,) = cleaned(text, ZoneInfo(zone), NOW_MS)
    assert line.time_ms == time_ms


def test_logs_are_named_by_slurm_or_by_their_file(tmp_path: Path) -> None:
    for name in ("slurm-4711.log", "mine.log"):
        (tmp_path / name).write_text("iter 1: loss 2.5, time 100ms\n")
    values = told(reader_of(tmp_path, ManualClock(NOW_MS), job="").read(NOW_MS))["values"]
    assert values["training_loss 4711"] == values["training_loss mine"] == 2.5


def test_last_values_are_held_until_steps_stop(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    (tmp_path / "a.log").write_text("iter 1: loss 2.5, time 100ms\n")
    reader = reader_of(tmp_path, clock)
    assert told(reader.read(NOW_MS))["values"]["training_loss run-7"] == 2.5
    clock.move(50)
    assert told(reader.read(NOW_MS + 50_000))["values"]["training_loss run-7"] == 2.5
    clock.move(50)
    values = told(reader.read(NOW_MS + 100_000))["values"]
    assert "training_loss run-7" not in values
    assert values["training_step_age_seconds run-7"] == 100
    assert values["training_steps_total run-7"] == 1


def test_counts_go_on_after_a_restart_of_the_agent(tmp_path: Path) -> None:
    clock, log = ManualClock(NOW_MS), tmp_path / "a.log"
    log.write_text("step=10, skipped=1, lr=[1e-4]\n")
    first = reader_of(tmp_path, clock)
    first.read(NOW_MS)
    first.close()
    with log.open("a") as out:
        out.write("step=14, skipped=1, lr=[1e-4]\n")
    values = told(reader_of(tmp_path, clock).read(NOW_MS))["values"]
    assert values["training_steps_total run-7"] == 14
    assert values["training_gradient_anomalies_total run-7 kind=overflow_skip"] == 1


def test_logs_of_engines_are_rows_of_engines(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(
        "INFO 05-04 10:00:00 [x.py:1] Model loading took 14.99 GiB memory and 3.25 seconds\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB\n"
        "iter 1: loss 2.5, time 100ms\n"
    )
    values = told(reader_of(tmp_path, ManualClock(NOW_MS), engine="8000/m").read(NOW_MS))["values"]
    assert values == {
        "inference_model_load_seconds node-a:8000/m phase=load": 3.25,
        "inference_oom_total node-a:8000/m scope=gpu": 1,
    }


def test_operators_add_rules_that_come_first(tmp_path: Path) -> None:
    rules = tmp_path / "own.toml"
    rules.write_text(
        '[[rules]]\nname="own"\ncontains=["LOSS"]\nregex="LOSS=(?P<loss>\\\\S+)"\n[rules.keys]\nloss="loss"\n'
    )
    patterns = load_patterns(load_catalog(), [rules])
    (line,) = cleaned("iter 1: loss 9, time 1ms LOSS=1.5", UTC, NOW_MS)
    said = extract(patterns, line, {})
    assert said is not None
    assert said.gauges == {("loss", ""): 1.5}


def test_the_guide_s_rule_works(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[1] / "docs" / "guides" / "training.md").read_text()
    rules = tmp_path / "own.toml"
    rules.write_text(next(block for block in guide.split("```toml\n") if block.startswith("[[rules]]")).split("```")[0])
    (line,) = cleaned("STEP 3 LOSS 2.5 TOOK 120ms", UTC, NOW_MS)
    said = extract(load_patterns(load_catalog(), [rules]), line, {})
    assert said is not None
    assert said.gauges == {("step", ""): 3, ("loss", ""): 2.5}
    assert said.durations == [(("step_seconds", ""), 0.12)]


WRONG = {
    "no TOML": "[[rules",
    "no regex": '[[rules]]\nname="a"\ncontains=["x"]\n',
    "unknown key": '[[rules]]\nname="a"\ncontains=["x"]\nregex="x"\ncolour=1\n',
    "unknown value": '[[rules]]\nname="a"\ncontains=["x"]\nregex="(?P<v>x)"\n[rules.keys]\nv="colour"\n',
    "bad regex": '[[rules]]\nname="a"\ncontains=["x"]\nregex="("\n',
    "count without mode": '[[rules]]\nname="a"\ncontains=["x"]\nregex="(?P<v>x)"\n[rules.keys]\nv="tokens"\n',
    "part without label": '[[rules]]\nname="a"\ncontains=["x"]\nregex="(?P<v>x)"\n[rules.keys]\nv="score"\n',
    "no event": '[[rules]]\nname="a"\ncontains=["x"]\nregex="x"\n[rules.event]\nmetric="training_loss"\ncode=1\n',
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_rules_that_are_wrong_are_refused(text: str, tmp_path: Path) -> None:
    rules = tmp_path / "own.toml"
    rules.write_text(text)
    with pytest.raises(Rejected) as refused:
        load_patterns(load_catalog(), [rules])
    assert refused.value.code == "bad_patterns"
    assert "own.toml" in refused.value.message


LINES = [line for path in LOGS for line in path.read_text(errors="replace").splitlines()]


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(LINES), st.integers(0, 400), st.text(max_size=5)), max_size=8))
def test_no_line_breaks_a_reader(pieces: list[tuple[str, int, str]]) -> None:
    said_by("\n".join(line[:cut] + noise + line[cut:] for line, cut, noise in pieces))
