"""The real platform: silence, a cut, killed processes and a declared loss, as gaps and in the ledger."""

import os
import signal
import time
from pathlib import Path

import pytest

from secondsight.agent.ship.declare import declaration
from secondsight.agent.spool.losses import Declared, Loss, LossReason
from secondsight.model import Priority
from up_custody import compare_with_ledger, let_pass
from up_rig import Sender, platform, request, wait_until

HEADERS = {"Content-Type": "application/x-secondsight-frame"}
SILENT_SECONDS = 7


def now_ms():
    return time.time_ns() // 1_000_000


def paused(sender, running):
    """Let a sender be silent for a while, long enough for a gap; return the times around it."""
    sender.stop()
    before = max(tick for _, tick in sender.acknowledged)
    time.sleep(SILENT_SECONDS)
    again = Sender(running, hosts=sender.hosts, acknowledged=sender.acknowledged)
    again.start()
    let_pass(again, 2)
    after = min(tick for _, tick in again.acknowledged if tick > before)
    return again, before, after


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_what_is_missing_is_told_and_what_is_not_is_there(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with platform(data, "--listen", "127.0.0.1:0", "--simulate", "2x2", "--history", "0") as running:
        sender = Sender(running, hosts=2)
        sender.start()
        let_pass(sender, 8)
        sender, before, after = paused(sender, running)
        loss = Loss(
            LossReason.SPOOL_FULL,
            Priority.P1,
            "gpu",
            "crash-1",
            6,
            12,
            48,
            before + 1000,
            after,
            spool_id=77,
            first_sequence=0,
        )
        body = declaration("crash-1", "crash-1", 5, [Declared(1, loss)], now_ms())
        for _ in range(2):
            assert request(running.address, "POST", "/v1/frames", running.token("collector"), body, **HEADERS)[0] == 200
        os.kill(running.parts()["gateway"], signal.SIGSTOP)
        time.sleep(SILENT_SECONDS)
        os.kill(running.parts()["gateway"], signal.SIGCONT)
        let_pass(sender, 3)
        running.kill("processor")
        let_pass(sender, 3)
        running.kill("gateway", "processor", "api")
        let_pass(sender, 12)
        killed = max(tick for _, tick in sender.acknowledged)
        running.kill("simulate")
        let_pass(sender, 12)
        sender.stop()
        _gaps(running, before, after)
        _no_gaps(running, after, killed - 2_000)
        later = running.get("/v1/telemetry/gaps", cluster="cedar", **{"from": after, "to": "now"})
        assert {gap["reason"] for gap in later["gaps"]} <= {"collector_down"}, later
        _ledger(running, before)
        assert running.stop() == 0, running.words()
    compare_with_ledger(data, sender)


def _gaps(running, before, after):
    """The silence is a gap of every GPU of the sender, by its reason."""
    asked = {"from": before - 5_000, "to": after + 1_000, "host": "crash-0,crash-1"}
    wait_until(lambda: _answered(running, "/v1/telemetry/gaps", **asked).get("total") == 4, 60)
    page = running.get("/v1/telemetry/gaps", **asked)
    told = {(gap["hostId"], gap["startTime"], gap["endTime"], gap["reason"]) for gap in page["gaps"]}
    assert {start for _, start, _, _ in told} == {_text(before + 1000)}, page
    assert {end for _, _, end, _ in told} == {_text(after)}, page
    assert {host: reason for host, _, _, reason in told} == {"crash-0": "unknown", "crash-1": "shed"}
    missing = (after - before) // 1000 - 1
    assert (page["total"], page["missing"], page["shed"]) == (4, 4 * missing, 2 * missing)
    answer = running.get("/v1/metrics/query", metric="power", groupBy="gpu", resolution="1s", **asked)
    assert (answer["coverage"]["gaps"], answer["coverage"]["shed"]) == (4, 2 * missing)
    stories = running.get("/v1/telemetry/gaps", stories="true", reason="shed", **asked)["stories"]
    assert [(one["level"], one["hostId"], one["entities"]) for one in stories] == [("host", "crash-1", 2)]


def _no_gaps(running, after, newest):
    """What only came late, from hosts with a spool, is no gap once it has come."""
    hosts = {row["hostId"] for row in running.get("/v1/gpus", limit=100)["gpus"]} - {"crash-0", "crash-1"}
    assert len(hosts) >= 2
    asked = {"from": after, "to": newest, "host": ",".join(sorted(hosts))}
    wait_until(lambda: _answered(running, "/v1/telemetry/gaps", **asked).get("total") == 0, 60)
    coverage = running.get("/v1/metrics/query", metric="power", groupBy="gpu", resolution="1s", **asked)["coverage"]
    assert (coverage["ratio"], coverage["gaps"], coverage["shed"]) == (1.0, 0, 0)


def _answered(running, path, **asked):
    """Return an answer, or nothing while a part is being started again."""
    try:
        return running.get(path, **asked)
    except (AssertionError, OSError):
        return {}


def _ledger(running, before):
    def shed():
        page = running.get("/v1/ledger", collector="crash-1", **{"from": before - 60_000, "to": "now"})
        return [each for entry in page["entries"] for each in entry["shed"]]

    wait_until(shed, 60)
    assert shed() == [{"reason": "spool_full", "rows": 12, "values": 48}]
    page = running.get("/v1/ledger", limit=5000, **{"from": before - 60_000, "to": "now"})
    assert all(entry["balanced"] for entry in page["entries"]), page
    assert len({entry["hostId"] for entry in page["entries"]}) >= 4


def _text(time_ms):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time_ms / 1000)) + f".{time_ms % 1000:03d}Z"
