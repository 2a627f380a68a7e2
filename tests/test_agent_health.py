"""What an agent says of itself: its status file, its rows, what it costs, and what is made of it."""

import copy
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import nvml_rig
from agent_fixture import FakeGateway, answer_over_http, error_answer, http_server
from secondsight import cli
from secondsight.agent.config import AgentConfig
from secondsight.agent.health.cost import ProcessCosts
from secondsight.agent.health.gather import without_user
from secondsight.agent.health.judge import Instant, judge
from secondsight.agent.health.process import start_ticks
from secondsight.agent.health.show import lines_of
from secondsight.agent.health.statefile import FILE, SLOT_BYTES, StateFile, read_state
from secondsight.agent.health.vitals import Vitals
from secondsight.agent.health.words import size, width
from secondsight.agent.kmsg.config import KernelLogConfig
from secondsight.agent.nvml.settings import NvmlSettings
from secondsight.agent.run import run_agent
from secondsight.agent.scrape.target import Target
from secondsight.clock import ManualClock, SystemClock
from secondsight.errors import Rejected
from secondsight.model import EntityKind
from tick_cells import cells_of

CASES = Path(__file__).parent / "cases" / "health"
STATE = json.loads((CASES / "state.json").read_text())
VERDICTS = json.loads((CASES / "verdicts.json").read_text())
PATIENCE_SECONDS = 30.0


def changed(state: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a state with some of its values replaced; a name with dots leads to one inside it."""
    made = copy.deepcopy(state)
    for name, value in changes.items():
        *way, last = name.split(".")
        place: Any = made
        for step in way:
            place = place[int(step) if step.isdigit() else step]
        place[last] = value
    return made


@pytest.mark.parametrize("case", VERDICTS, ids=lambda case: case["name"])
def test_what_is_made_of_a_state(case: dict[str, Any]) -> None:
    state = None if case.get("state", STATE) is None else changed(STATE, case.get("change", {}))
    seconds = case.get("seconds", 1)
    now_ms = STATE["writtenMs"] + round(1000 * (seconds + case.get("wall_seconds", 0)))
    running = case.get("running", True)
    instant = Instant(now_ms, STATE["monotonicSeconds"] + seconds, case.get("boot", "boot-a"), lambda _state: running)
    verdict = judge(state, "/var/lib/secondsight/spool", instant)
    assert (verdict.is_alive, verdict.line) == (case["alive"], case["line"])
    wanted = case.get("attention", [])
    assert len(verdict.attention) == len(wanted)
    for text, part in zip(verdict.attention, wanted, strict=True):
        assert part in text
        assert text.isprintable()


def test_a_state_is_shown_as_it_always_was(request: pytest.FixtureRequest) -> None:
    state = changed(
        STATE, {"readers.2.error": "driver \x1b[31mbusy", "readers.2.errorAgeSeconds": 3601.0, "readers.2.failed": 3}
    )
    instant = Instant(state["writtenMs"] + 2000, state["monotonicSeconds"] + 2, "boot-a", lambda _state: True)
    shown = "\n".join(lines_of(state, judge(state, "", instant))) + "\n"
    golden = CASES / "shown.txt"
    if request.config.getoption("--rewrite"):
        golden.write_text(shown)
    assert shown == golden.read_text()


def test_the_status_file_gives_the_newest_whole_state(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    file = StateFile(tmp_path)
    for number in range(5):
        file.write({"number": number})
        assert read_state(tmp_path) == {"number": number}
    path = tmp_path / FILE
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.stat().st_size == 2 * SLOT_BYTES
    raw = bytearray(path.read_bytes())
    newest = raw.index(b'{"number":4}')
    raw[newest + 3] ^= 1
    path.write_bytes(raw)
    assert read_state(tmp_path) == {"number": 3}
    raw[raw.index(b'{"number":3}') + 3] ^= 1
    path.write_bytes(raw)
    with pytest.raises(Rejected) as caught:
        read_state(tmp_path)
    assert caught.value.code == "bad_state"
    file.write({"number": 5})
    assert read_state(tmp_path) == {"number": 5}
    file.close()
    file.close()


def test_a_status_file_goes_on_after_a_restart_and_after_being_deleted(tmp_path: Path) -> None:
    first = StateFile(tmp_path)
    for number in range(3):
        first.write({"of": "first", "number": number})
    second = StateFile(tmp_path)
    second.write({"of": "second"})
    assert read_state(tmp_path) == {"of": "second"}
    (tmp_path / FILE).unlink()
    second.write({"of": "deleted"})
    assert read_state(tmp_path) == {"of": "deleted"}
    with pytest.raises(OSError, match="too large"):
        second.write({"text": "x" * SLOT_BYTES})
    assert read_state(tmp_path) == {"of": "deleted"}
    first.close()
    second.close()


def test_a_state_of_another_version_is_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = StateFile(tmp_path)
    file.write({"format": 2, "version": "9.1"})
    file.close()
    assert status(tmp_path) == 1
    assert "is of version 9.1 and cannot be read by this program" in capsys.readouterr().err


def test_addresses_are_shown_without_users() -> None:
    assert without_user("https://who:secret@gateway:1/x") == "https://gateway:1/x"
    assert without_user("http://gateway:1") == "http://gateway:1"


class Proc:
    """A made-up /proc of this process and its children."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pss(os.getpid(), 1000)
        self.children()

    def children(self, *pids: int) -> None:
        (self.folder / "self/task/1").mkdir(parents=True, exist_ok=True)
        (self.folder / "self/task/1/children").write_text(" ".join(map(str, pids)))

    def process(self, pid: int, ticks: int, command: str) -> None:
        (self.folder / str(pid)).mkdir(exist_ok=True)
        fields = " ".join(["S", *(["0"] * 10), str(ticks), "0", "0 0 0 0 0 0 99"])
        (self.folder / str(pid) / "stat").write_text(f"{pid} (odd ) name) {fields}")
        (self.folder / str(pid) / "cmdline").write_text(command.replace(" ", "\0"))

    def pss(self, pid: int, kib: int) -> None:
        (self.folder / str(pid)).mkdir(parents=True, exist_ok=True)
        (self.folder / str(pid) / "smaps_rollup").write_text(f"Rss: {2 * kib} kB\nPss: {kib} kB\nPss_Anon: 1 kB\n")


def test_costs_are_those_of_all_processes_and_memory_is_asked_for_rarely(tmp_path: Path) -> None:
    clock, proc = ManualClock(), Proc(tmp_path)
    costs = ProcessCosts(clock, tmp_path)
    assert [one.name for one in costs.now().used] == ["agent"]
    assert costs.now().pss_bytes == 1000 * 1024
    hertz = os.sysconf("SC_CLK_TCK")
    proc.process(71, 3 * hertz, "python -m secondsight.agent.nvml.child")
    proc.process(72, 2 * hertz, "python -m secondsight.agent.nvml.child")
    proc.process(80, hertz, "sh -c sleep")
    proc.pss(71, 10), proc.pss(72, 20)
    proc.children(71, 72, 80, 99)
    clock.move(1.5)
    found = {one.name: one for one in costs.now().used}
    assert (found["nvml"].cpu_seconds, found["nvml"].pss_bytes, found["nvml"].pid) == (5.0, 30 * 1024, 72)
    assert (found["other"].cpu_seconds, found["other"].pss_bytes) == (1.0, None)
    assert costs.now().pss_bytes is None
    proc.pss(71, 500), proc.pss(80, 1)
    clock.move(30)
    assert {one.name: one.pss_bytes for one in costs.now().used}["nvml"] == 30 * 1024
    clock.move(31)
    assert {one.name: one.pss_bytes for one in costs.now().used} == {
        "agent": 1000 * 1024,
        "nvml": 520 * 1024,
        "other": 1024,
    }
    assert start_ticks(71, tmp_path) == 99
    assert start_ticks(99, tmp_path) is None


def test_a_part_that_cannot_say_how_it_is_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    vitals = Vitals()
    vitals.register("odd", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    vitals.register("good", lambda: {"restarts": 1})
    assert vitals.all() == {"good": {"restarts": 1}}
    assert "odd cannot say how it is" in caplog.text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (9.99, "10.0 s"), (59.6, "60 s"), (60, "1 min"), (3725, "1 h 2 min"), (90_000, "1 d 1 h")],
)
def test_widths_are_short(seconds: float, text: str) -> None:
    assert width(seconds) == text


@pytest.mark.parametrize(
    ("bytes_", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB"), (5 << 50, "5120.0 TiB")]
)
def test_sizes_are_short(bytes_: int, text: str) -> None:
    assert size(bytes_) == text


class Site:
    """A gateway, and an exporter that refuses."""

    def __init__(self) -> None:
        self.gateway = FakeGateway(now_ms=SystemClock().now_ms)
        self.changed = threading.Condition()

    def respond(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.command == "POST":
            with self.changed:
                answer = self.gateway.post(body)
                self.changed.notify_all()
            answer_over_http(handler, answer)
        else:
            answer_over_http(handler, error_answer(500, "broken"))

    def health(self) -> dict[str, Any]:
        """Return the cells of the first health row, and the facts that came with it."""

        def found() -> list[Any]:
            return [one for one in self.gateway.frames if one.header.collector_id == "host-1/health"]

        with self.changed:
            assert self.changed.wait_for(found, PATIENCE_SECONDS)
        cells: dict[str, Any] = {}
        for frame in found():
            assert (frame.header.kind, frame.header.interval_ms) == (EntityKind.PLATFORM, 30_000)
            cells |= cells_of(frame.content)
            cells |= {info.metric: dict(info.attributes) for info in frame.content.infos}
        return cells


def config_of(folder: Path, url: str) -> AgentConfig:
    (folder / "token").write_text("very-secret\n")
    return AgentConfig(
        gateway=url,
        token_file=folder / "token",
        spool_dir=folder / "spool",
        host_id="host-1",
        kernel_log=KernelLogConfig(enabled=False),
        nvml=NvmlSettings(enabled="off"),
        batch_seconds=0.1,
        scrape=(Target("broken", url + "/metrics"),),
        stop_seconds=3.0,
    )


@contextmanager
def running(config: AgentConfig) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=run_agent, args=(config, SystemClock(), stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def status(folder: Path, *words: str) -> int:
    return cli.main(["agent", "status", "--spool-dir", str(folder), *words])


def test_a_whole_agent_tells_how_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = Site()
    with http_server(site.respond) as url:
        config = config_of(tmp_path, url)
        assert status(config.spool_dir) == 1
        assert "never ran" in capsys.readouterr().out
        with running(config):
            cells = site.health()
            assert status(config.spool_dir, "--quiet") == 0
            assert capsys.readouterr().out == ""
            assert status(config.spool_dir) == 0
            shown = capsys.readouterr().out
            assert status(config.spool_dir, "--json") == 0
            told = json.loads(capsys.readouterr().out)
        assert status(config.spool_dir) == 1
        assert "it was told to stop" in capsys.readouterr().out
    assert "agent     host-1, version " in shown
    assert "very-secret" not in shown + json.dumps(told)
    assert told["alive"] is True
    assert told["state"]["readers"][0]["name"] == "self"
    assert told["state"]["pid"] == os.getpid()
    assert cells["agent_info"]["readers"].split(",")[-1] == "health"
    assert cells["agent_sampling_mode"] == 0
    assert cells["agent_debug_sessions"] == 0
    assert cells["agent_process_cpu_seconds_total process=agent"] > 0
    assert cells["agent_spool_waiting_records class=P0"] >= 0
    assert cells["agent_ship_failures_total"] == 0


@nvml_rig.needs_compiler
def test_the_driver_is_told_of_with_the_gpu_that_it_does_not_answer_for(tmp_path: Path) -> None:
    with nvml_rig.running(tmp_path, "host h100 2") as rig:
        rig.settled(2)
        facts = rig.reader.vitals()
        assert (facts["isThere"], facts["gpus"], facts["listed"], facts["code"]) == (True, 2, 2, 0)
        assert (facts["restarts"], facts["trouble"], facts["silent"], facts["failing"]) == (0, "", [], {})
        assert 0 < facts["latencySeconds"] < nvml_rig.SECONDS_MAXIMUM
        known = {f"{gpu.uuid} (index {gpu.index}, {gpu.pci_bus_id})" for gpu in rig.source.by_number.values()}
        with rig.machine.while_stated("gpu 1 call * delay 60000"):
            rig.until(lambda gpus: any(cells.get("gpu_driver_unresponsive") == 1 for cells in gpus.values()))
            facts = rig.reader.vitals()
        assert len(facts["silent"]) == 1
        assert set(facts["silent"]) < known
        assert facts["latencySeconds"] > 0
        json.dumps(facts)


CONFIG = """
[agent]
gateway = "{url}"
token_file = "{folder}/token"
spool_dir = "{folder}/spool"
host_id = "host-1"
kernel_log = {{enabled = false}}
nvml = {{enabled = "off"}}
"""


def test_a_killed_agent_is_known_to_be_dead_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("secret\n")
    file = tmp_path / "agent.toml"
    file.write_text(CONFIG.format(url="http://127.0.0.1:9", folder=tmp_path))
    command = [sys.executable, "-m", "secondsight", "agent", "--config", str(file)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None and read_state(tmp_path / "spool") is None:
            SystemClock().sleep(0.05)
        assert cli.main(["agent", "status", "--config", str(file)]) == 0
        assert "nothing delivered yet" in capsys.readouterr().out
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert cli.main(["agent", "status", "--config", str(file)]) == 1
        assert "it was killed or crashed" in capsys.readouterr().out
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("words", [["--nonsense"], ["--config", "/nowhere.toml"], []])
def test_wrong_use_is_2(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secondsight.agent.health.command.USUAL_CONFIG", Path("/nowhere/agent.toml"))
    monkeypatch.delenv("SECONDSIGHT_AGENT_SPOOL_DIR", raising=False)
    try:
        code: int | str | None = cli.main(["agent", "status", *words])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
