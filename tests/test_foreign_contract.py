"""What an answer to a foreign sender promises: stored is durable, our faults ask to come back, repeats are free."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from foreign_index import SecondRequest, first_request, series_message
from foreign_rig import CASE_MS, CATALOGUE, FIRST, JSON, SECOND, Foreign, foreign
from gateway_fixture import serving
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.contracts import LogWriter
from secondsight.errors import Retryable
from secondsight.gateway.app import Stores
from secondsight.gateway.foreign.layout import Layout, Place
from secondsight.gateway.foreign.points import Series
from secondsight.gateway.foreign.series import SeriesIndex
from secondsight.mapping.identity import Origin
from secondsight.mapping.resolve import Resolver
from secondsight.model import EntityKind

GPU = [("UUID", "GPU-00000000-0000-0000-0000-000000000001"), ("Hostname", "node-a"), ("job", "dcgm")]
TEMPERATURE = series_message([("__name__", "DCGM_FI_DEV_GPU_TEMP"), *GPU], [(40.0, CASE_MS)])
POINT = {"timeUnixNano": f"{CASE_MS}000000", "asDouble": 1.0}
EXPORT = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "a", "gauge": {"dataPoints": [POINT]}}]}]}]}


@dataclass
class Failing:
    """A log that cannot be written until told otherwise."""

    inner: LogWriter
    fails: bool = True

    def append(self, items: Sequence[tuple[bytes, bytes]]) -> None:
        if self.fails:
            raise Retryable("the disk is full")
        self.inner.append(items)

    def close(self) -> None:
        self.inner.close()


def test_a_log_that_cannot_be_written_is_answered_503_and_nothing_is_lost(tmp_path: Path) -> None:
    logs: list[Failing] = []

    def change(stores: Stores) -> Stores:
        logs.append(Failing(stores.ingest))
        return replace(stores, ingest=logs[0])

    with serving(tmp_path, ManualClock(CASE_MS), change, catalogue=(CATALOGUE,)) as run:
        gateway = Foreign(run, run.token(name="prom"))
        replies = [gateway.write(first_request(TEMPERATURE)), gateway.metrics(EXPORT)]
        unknown = gateway.write(first_request(series_message([("__name__", "nothing_we_know")], [(1.0, CASE_MS)])))
        for reply in (*replies, unknown):
            assert reply.status == 503
            assert int(reply.headers["retry-after"]) >= 1
        logs[0].fails = False
        assert gateway.write(first_request(TEMPERATURE)).status == 204
        assert gateway.metrics(EXPORT).status == 200
        temperature = f"gpu_temperature_celsius {GPU[0][1]} @{CASE_MS}"
        assert gateway.cells() == {temperature: 40.0, f"a prom @{CASE_MS}": 1.0}


def test_what_is_told_once_is_told_though_the_log_was_away(tmp_path: Path) -> None:
    logs: list[Failing] = []

    def change(stores: Stores) -> Stores:
        logs.append(Failing(stores.ingest))
        return replace(stores, ingest=logs[0])

    request = SecondRequest()
    began = CASE_MS - 60_000
    body = request.bytes(
        request.series([("__name__", "gpu_pcie_replay_total"), *GPU], [(5.0, CASE_MS, began)]),
        request.series([("__name__", "DCGM_FI_DEV_XID_ERRORS"), *GPU], [(31.0, CASE_MS)]),
    )
    with serving(tmp_path, ManualClock(CASE_MS), change, catalogue=(CATALOGUE,)) as run:
        gateway = Foreign(run, run.token(name="prom"))
        assert [gateway.write(body, SECOND).status for _ in range(2)] == [503, 503]
        logs[0].fails = False
        assert gateway.write(body, SECOND).status == 204
        assert gateway.cells() == {
            f"gpu_pcie_replay_total {GPU[0][1]} @{CASE_MS}": 5.0,
            f"gpu_pcie_replay_total {GPU[0][1]} @{began}": 0.0,
        }
        events = [(event.metric, event.code) for one in gateway.frames() for event in one.content.events]
        assert events == [("gpu_xid", 31)]
        assert any(one.content.infos for one in gateway.frames())


def test_too_much_that_waits_is_answered_429(tmp_path: Path) -> None:
    def change(stores: Stores) -> Stores:
        return replace(stores, backlog_bytes=lambda: 1 << 40)

    with serving(tmp_path, ManualClock(CASE_MS), change, catalogue=(CATALOGUE,)) as run:
        gateway = Foreign(run, run.token(name="prom"))
        for reply in (gateway.write(first_request(TEMPERATURE)), gateway.metrics(EXPORT)):
            assert (reply.status, "retry-after" in reply.headers) == (429, True)
        assert run.records() == []


def test_a_request_that_comes_again_is_appended_once(tmp_path: Path) -> None:
    with foreign(tmp_path) as gateway:
        for _ in range(3):
            assert gateway.write(first_request(TEMPERATURE)).status == 204
            assert gateway.metrics(EXPORT).status == 200
        assert sum(frame.header.rows for frame in gateway.frames()) == 2
        assert gateway.run.gateway.selfmetrics.value("gateway_frames_total", outcome="duplicate") == 4


def test_cells_do_not_depend_on_what_a_gateway_has_seen(tmp_path: Path) -> None:
    names = [
        f"DCGM_FI_DEV_{name}" for name in ("GPU_TEMP", "POWER_USAGE", "SM_CLOCK", "FB_USED", "PCIE_REPLAY_COUNTER")
    ]
    pieces = [
        first_request(series_message([("__name__", name), *GPU], [(20.0 + step, CASE_MS + 1000 * step)]))
        for step in range(3)
        for name in names
    ]
    found = []
    for number, order in enumerate((pieces, pieces[::-1], [*pieces, *pieces[3:7]])):
        with foreign(tmp_path / str(number), CASE_MS + 4000) as gateway:
            for piece in order:
                assert gateway.write(piece).status == 204
            found.append(gateway.cells())
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 15


@pytest.mark.parametrize("describe", ["before", "with", "never"])
def test_the_unit_that_a_description_names_is_heeded(tmp_path: Path, describe: str) -> None:
    """Of dcgm-exporter's violation times; in 1.0 a description comes apart from the samples."""
    name = "DCGM_FI_DEV_POWER_VIOLATION"
    labels = [("__name__", name), *GPU]
    wanted = 2000 * (1e-9 if describe == "never" else 1e-6)
    with foreign(tmp_path) as gateway:
        if describe == "with":
            request = SecondRequest()
            series = request.series(labels, [(2000.0, CASE_MS)], help="Throttling duration (in us).")
            assert gateway.write(request.bytes(series), SECOND).status == 204
        else:
            if describe == "before":
                assert gateway.write(described(name, "Throttling duration (in us).")).status == 204
            assert gateway.write(first_request(series_message(labels, [(2000.0, CASE_MS)]))).status == 204
        (value,) = gateway.cells().values()
        assert value == pytest.approx(wanted)


def test_a_description_that_comes_later_counts_from_then_on(tmp_path: Path) -> None:
    name = "DCGM_FI_DEV_POWER_VIOLATION"
    with foreign(tmp_path) as gateway:
        for step in range(3):
            labels = [("__name__", name), *GPU]
            gateway.write(first_request(series_message(labels, [(2000.0, CASE_MS + step)])))
            if step == 0:
                gateway.write(described(name, "Throttling duration (in us)."))
        found = gateway.cells()
    assert [found[key] for key in sorted(found)] == [pytest.approx(2e-6), pytest.approx(2e-3), pytest.approx(2e-3)]


def described(name: str, text: str) -> bytes:
    from secondsight.gateway.foreign.messages import remote_write

    message: Any = remote_write("WriteRequest")()
    message.metadata.add(name=name.encode(), help=text.encode())
    return bytes(message.SerializeToString())


@pytest.mark.parametrize(
    ("labels", "host"),
    [
        ([("Hostname", "node-a"), ("instance", "10.0.0.1:9400")], "node-a"),
        ([("hostname", "node-a")], "node-a"),
        ([("instance", "node-a:9400")], "node-a"),
        ([("Hostname", "localhost"), ("instance", "node-a:9400")], "node-a"),
        ([("host.name", "node-a"), ("instance", "x:1")], "node-a"),
        ([("rack_host", "node-a"), ("Hostname", "other")], "node-a"),
        ([("instance", "localhost:9400")], ""),
        ([], ""),
    ],
)
def test_the_host_of_a_series(tmp_path: Path, labels: list[tuple[str, str]], host: str) -> None:
    series = series_message([("__name__", "DCGM_FI_DEV_GPU_TEMP"), GPU[0], *labels], [(40.0, CASE_MS)])
    with foreign(tmp_path, foreign_host_labels=("rack_host",)) as gateway:
        assert gateway.write(first_request(series)).status == 204
        assert {one.content.entities.host_id for one in gateway.frames()} == ({host} if host else set())
        assert [one["code"] for one in gateway.refused()] == ([] if host else ["no_identity"])


def test_each_source_of_a_sender_is_a_collector_with_a_cadence_of_its_own(tmp_path: Path) -> None:
    with foreign(tmp_path, CASE_MS + 100_000) as gateway:
        for job, step_ms in (("fast", 1000), ("slow", 30_000)):
            for step in range(4):
                labels = [("__name__", "DCGM_FI_DEV_GPU_TEMP"), *GPU[:2], ("job", job)]
                jitter_ms = (0, 7, 3, 9)[step]
                sample = (40.0, CASE_MS + step * step_ms + jitter_ms)
                assert gateway.write(first_request(series_message(labels, [sample]))).status == 204
        told: dict[str, list[int]] = {}
        for frame in gateway.frames():
            if frame.header.rows:
                told.setdefault(frame.header.collector_id, []).append(frame.header.interval_ms)
    assert told == {
        "prom/remote-write/node-a/fast": [15_000, 1000, 1000, 1000],
        "prom/remote-write/node-a/slow": [15_000, 30_000, 30_000, 30_000],
    }


def test_a_token_without_the_role_writes_nothing(tmp_path: Path) -> None:
    from secondsight.access.identity import Role
    from secondsight.access.scope import Grant

    with foreign(tmp_path) as gateway:
        token = gateway.run.token(role=Role.VIEWER, grants=(Grant("t1"),))
        for path, headers in (("/api/v1/write", FIRST), ("/v1/metrics", JSON)):
            reply = gateway.post(path, b"{}", headers | {"Authorization": f"Bearer {token}"})
            assert reply.status == 403


def layout_of(host: str, kind: EntityKind, job: str) -> Layout:
    return Layout(Place(job, host, kind))


def test_series_are_found_in_any_order() -> None:
    index = SeriesIndex(Resolver(load_catalog(), Origin("", "prom", remote=True)), layout_of, 10_000)
    keys = [f"key-{number}".encode() for number in range(1000)]
    numbers = {key: index.put(key, Series(f"unknown_{place}", ())) for place, key in enumerate(keys)}
    strange = [f"strange-{number}".encode() for number in range(50)]
    chance = random.Random(7)
    for _ in range(50):
        start = chance.randrange(900)
        sent = keys[start : start + chance.randrange(1, 500)]
        for _ in range(chance.choice((0, 0, 1, 20))):
            place = chance.randrange(len(sent) + 1)
            sent[place:place] = chance.choice((strange[:1], keys[5:9], sent[::-1][:200], strange))
        assert index.many(sent).tolist() == [numbers.get(key, -1) for key in sent]
    assert index.many([]).size == 0
