"""Imports through the command line, and what reaches a gateway."""

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from agent_fixture import FakeGateway, answer_over_http, error_answer, http_server
from secondsight.agent.client.connection import Answer
from secondsight.agent.smi.importing import ImportedFile, ImportOptions, import_texts
from secondsight.agent.smi.instants import zone_of
from secondsight.agent.smi.sending import send
from secondsight.catalog.load import load_catalog
from secondsight.cli import main
from secondsight.clock import ManualClock
from secondsight.errors import Permanent

CASES = Path(__file__).parent / "cases" / "smi"
CATALOG = load_catalog()
TWO_TICKS = CASES / "spreadsheet-semicolons-commas-bom-crlf.csv"
FIRST_MS = 1_784_012_427_792


class Keeping(FakeGateway):
    """A gateway that keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytes] = []

    def post(self, body: bytes, *, urgent: bool = False) -> Answer:
        self.bodies.append(body)
        return super().post(body, urgent=urgent)


def files() -> list[ImportedFile]:
    return import_texts([("a.csv", TWO_TICKS.read_text())], ImportOptions("h", zone_of("Europe/Berlin")), CATALOG)


def test_ticks_go_out_with_their_own_times_and_move_no_watermark() -> None:
    gateway = FakeGateway()
    sent = send(files(), "h", "h/import", gateway, ManualClock())
    assert (sent.ticks, sent.frames, sent.refused) == (2, 1, {})
    assert gateway.ticks == [("h/import", FIRST_MS), ("h/import", FIRST_MS + 1000)]
    assert {frame.header.live for frame in gateway.frames} == {True}
    assert {frame.header.interval_ms for frame in gateway.frames} == {1000}
    infos = [info for frame in gateway.frames for info in frame.content.infos]
    assert [(info.metric, info.time_ms) for info in infos] == [("gpu_info", FIRST_MS)]


def test_the_same_import_twice_is_the_same_bytes() -> None:
    gateways = [Keeping(), Keeping()]
    for gateway in gateways:
        send(files(), "h", "h/import", gateway, ManualClock())
    assert gateways[0].bodies == gateways[1].bodies
    assert gateways[0].bodies


def test_a_busy_gateway_is_asked_again_and_a_refusing_one_is_told() -> None:
    clock = ManualClock()
    gateway = FakeGateway(script=[503, 429])
    assert send(files(), "h", "h/import", gateway, clock).ticks == 2
    assert clock.monotonic_seconds() == 3
    with pytest.raises(Permanent, match="401"):
        send(files(), "h", "h/import", FakeGateway(script=[error_answer(401, "token")]), clock)


def test_frames_that_are_refused_are_counted_by_code() -> None:
    gateway = FakeGateway(refuse=lambda _frame: None)
    told = {"accepted": 0, "duplicate": 0, "rejected": [{"index": 0, "code": "too_old", "message": "old"}]}
    gateway.script = [error_answer(200, "")]
    object.__setattr__(gateway.script[0], "body", json.dumps(told).encode())
    assert send(files(), "h", "h/import", gateway, ManualClock()).refused == {"too_old": 1}


def test_the_command_line_shows_and_sends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gateway = FakeGateway()
    (tmp_path / "token").write_text("secret")
    tokens: list[str] = []

    def respond(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        tokens.append(handler.headers["authorization"])
        answer_over_http(handler, gateway.post(body))

    with http_server(respond) as url:
        to = ["--to", url, "--token-file", str(tmp_path / "token"), "--host", "node-7", "--collector", "c"]
        assert main(["import", "smi", str(TWO_TICKS), "--timezone", "Europe/Berlin", *to]) == 0
    shown = capsys.readouterr()
    assert "gpu_power_watts" in shown.out
    assert "sent 2 ticks in 1 frames" in shown.err
    assert tokens == ["Bearer secret"]
    assert {frame.header.host_id for frame in gateway.frames} == {"node-7"}
    assert gateway.ticks == [("c/import", FIRST_MS), ("c/import", FIRST_MS + 1000)]


def test_json_for_programs_and_times_that_nobody_can_tell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "smi", str(TWO_TICKS), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["code"] for one in told["files"][0]["refused"]] == ["no_zone", "no_zone"]
    assert {one["time"] for one in told["readings"]} == {None}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--to", "http://127.0.0.1:1"],
        ["--timezone", "Europe/Nowhere"],
        ["--start", "yesterday"],
        ["--gpu", "GPU-a"],
    ],
)
def test_wrong_use_is_said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "smi", str(TWO_TICKS), *arguments]) == 2
    assert "secondsight:" in capsys.readouterr().err


def test_files_without_anything_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    assert main(["import", "smi", str(empty)]) == 1
    assert main(["import", "smi", str(tmp_path / "none.csv")]) == 1
    assert "none.csv" in capsys.readouterr().err
