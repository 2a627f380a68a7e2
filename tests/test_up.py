"""What `up` decides before it starts anything."""

import os
import stat
import threading
from pathlib import Path

import pytest

from secondsight.access.metadata import open_metadata
from secondsight.access.tokens import Authenticator
from secondsight.administer.up import INCIDENT_NAMES
from secondsight.agent.simulate.incidents import INCIDENTS
from secondsight.cli import main
from secondsight.clock import ManualClock, SystemClock
from secondsight.config import build
from secondsight.errors import Rejected, Retryable
from secondsight.gateway.config import GatewayConfig
from secondsight.supervise import Part, Supervisor, listening_socket, lock_data
from secondsight.up import make_tokens, parse_fleet, simulated_clusters


@pytest.mark.parametrize(
    ("fleet", "clusters"),
    [
        (None, []),
        ((3, 8), [("cedar", 3)]),
        ((12, 8), [("cedar", 6), ("iris", 4), ("lotus", 2)]),
        ((200, 8), [("cedar", 100), ("iris", 60), ("lotus", 40)]),
    ],
)
def test_a_fleet_is_spread_over_clusters(fleet, clusters) -> None:
    assert [(name, hosts) for name, _, hosts in simulated_clusters(fleet)] == clusters


@pytest.mark.parametrize("text", ["", "8", "0x8", "8x0", "x8", "-1x8", "8x8x8", "1e3x8"])
def test_a_fleet_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Rejected) as caught:
        parse_fleet(text)
    assert caught.value.code == "bad_fleet"


def test_tokens_are_private_and_survive_a_restart_but_not_a_lost_metadata_store(tmp_path: Path) -> None:
    clock = ManualClock()
    make_tokens(tmp_path, ["cedar"], clock)
    first = {path.name: path.read_text() for path in (tmp_path / "tokens").iterdir()}
    assert set(first) == {"admin", "collector", "canary", "simulate-cedar"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tokens").iterdir()} == {0o600}
    make_tokens(tmp_path, ["cedar"], clock)
    assert {path.name: path.read_text() for path in (tmp_path / "tokens").iterdir()} == first
    for path in tmp_path.glob("metadata.sqlite*"):
        path.unlink()
    make_tokens(tmp_path, ["cedar"], clock)
    metadata = open_metadata(str(tmp_path / "metadata.sqlite"))
    for path in (tmp_path / "tokens").iterdir():
        assert path.read_text() != first[path.name]
        Authenticator(metadata, clock).authenticate(path.read_text().strip())
    metadata.dispose()


def test_a_folder_serves_one_platform(tmp_path: Path) -> None:
    held = lock_data(tmp_path / "data")
    with pytest.raises(Retryable, match=str(os.getpid())):
        lock_data(tmp_path / "data")
    os.close(held)
    os.close(lock_data(tmp_path / "data"))


def test_a_taken_address_is_said() -> None:
    taken = listening_socket("127.0.0.1", 0)
    with pytest.raises(Retryable, match="--listen"):
        listening_socket("127.0.0.1", taken.getsockname()[1])
    taken.close()


def test_a_part_that_never_comes_up_is_said_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secondsight.supervise.READY_TIMEOUT_SECONDS", 2.0)
    said: list[str] = []
    supervisor = Supervisor(tmp_path, SystemClock(), said.append, dict(os.environ))
    with pytest.raises(Retryable, match=r"broken\.log"):
        supervisor.start(Part("broken", ("no-such-command",), lambda: False))
    assert any("exit code 2" in line for line in said)
    supervisor.stop()
    assert "invalid choice" in (tmp_path / "logs" / "broken.log").read_text()


def test_a_part_that_dies_is_started_again(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, SystemClock(), lambda _: None, dict(os.environ))
    lives = tmp_path / "logs" / "short.log"
    supervisor.start(Part("short", ("metrics", "list", "--kind", "node"), lives.exists))
    watching = threading.Thread(target=supervisor.watch)
    watching.start()
    lines = 0
    while lives.read_text().count("node_load1") < 2 and lines < 600:
        lines += 1
        supervisor.clock.sleep(0.1)
    supervisor.request_stop()
    watching.join()
    supervisor.stop()
    assert lives.read_text().count("node_load1") >= 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["up", "--simulate", "many"], 2, "HOSTSxGPUS"),
        (["up", "--listen", "here"], 2, "HOST:PORT"),
        (["up", "--listen", "127.0.0.1:99999"], 2, "HOST:PORT"),
        (["up", "--history", "soon"], 2, "15m"),
        (["up", "--incident", "meteor"], 2, "thermal_runaway"),
        (["up", "--data", "what?"], 2, "holds '?'"),
        (["up", "--data", "/proc/nowhere"], 1, "/proc/nowhere"),
        (["up", "--data", __file__], 1, "test_up.py"),
        (["gateway", "--config", "/nowhere.toml"], 2, "cannot read"),
        (["query", "power", "--token-file", "/nowhere"], 1, "token"),
    ],
)
def test_wrong_words_are_told_in_one_line(arguments, code, words, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == code
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["query"], ["up", "--nothing"], ["metrics"]])
def test_wrong_use_exits_with_2(arguments) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"data": "d", "listne": "x"}, "listne"),
        ({}, "'data' is missing"),
        ({"data": "d", "partitions": "four"}, "partitions"),
        ({"data": "d", "partitions": True}, "partitions"),
    ],
)
def test_settings_that_are_wrong_are_named(settings, words) -> None:
    with pytest.raises(Rejected, match=words):
        build(GatewayConfig, settings, "gateway")


def test_the_help_names_every_incident() -> None:
    assert all(name in INCIDENT_NAMES for name in INCIDENTS)
