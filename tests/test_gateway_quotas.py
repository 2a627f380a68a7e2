"""A tenant is held to what an operator said that it may send: nothing is lost for a rate, nothing is charged twice."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foreign_index import first_request, series_message
from foreign_rig import Foreign, foreign
from gateway_fixture import GPU_METRICS, NOW_MS, FlakyLog, Reply, Running, column, content, frame, serving, stamp
from secondsight.access.quotas import Quota, set_quota
from secondsight.catalog.load import load_catalog
from secondsight.cli import main
from secondsight.clock import ManualClock
from secondsight.errors import Rejected
from secondsight.gateway.actives import ACTIVE, NEW, START_SECONDS, Actives, OwnSeries
from secondsight.gateway.app import Stores
from secondsight.gateway.buckets import Bucket
from secondsight.model import EntityKind, Priority
from secondsight.query.gaps import Gap
from secondsight.query.reasons import Evidence, Reason, reason_of
from secondsight.wire.envelope import RecordType
from secondsight.wire.frame import encode

VALUES = 6
"""Of one frame of `gateway_fixture.frame`: two GPUs with three metrics."""

NODE_LOAD = "node_load1"


def limit(run: Running, **quota: int) -> None:
    """Set a quota and have the gateway read it."""
    set_quota(run.stores.metadata, "t1", dict(quota), NOW_MS)
    moved(run).move(2.0)
    token, target = run.token(), "/v1/agents/host-1/plan"
    assert run.call("GET", target, headers={"Authorization": f"Bearer {token}"}).status == 200


def moved(run: Running) -> ManualClock:
    assert isinstance(run.clock, ManualClock)
    return run.clock


def shown(run: Running) -> dict[str, float]:
    """What `/metrics` has, by name and labels."""
    lines = run.call("GET", "/metrics").body.decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def stored(run: Running, kind: RecordType = RecordType.FRAME) -> int:
    return sum(one.type is kind for one in run.records())


def frame_of(priority: Priority, sequence: int, host_id: str = "host-1") -> bytes:
    """A frame of one metric of two GPUs, of a class."""
    metric = next(one for one in load_catalog().scalars(EntityKind.GPU) if one.priority is priority)
    return encode(stamp(host_id, sequence), content(host_id, [column(metric.name)]), inline=True)


def refused(reply: Reply) -> tuple[int, str, str]:
    return reply.status, reply.code, reply.json["error"]["reason"]


def test_a_rate_makes_senders_wait_and_loses_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as run:
        token = run.token()
        limit(run, values_per_second=10, burst_seconds=1)
        assert [run.post(frame("host-1", number), token).status for number in (1, 2)] == [200, 200]
        reply = run.post(frame("host-1", 3), token)
        assert refused(reply) == (429, "over_quota", "values_quota")
        assert "t1" in reply.json["error"]["message"]
        assert int(reply.headers["retry-after"]) >= 1
        assert stored(run) == 2
        moved(run).move(1.0)
        assert run.post(frame("host-1", 3), token).status == 200
        told = shown(run)
        assert told['gateway_tenant_values_total{tenant="t1"}'] == 3 * VALUES
        assert told['gateway_tenant_waits_total{reason="values_quota",tenant="t1"}'] == 1
        assert told['gateway_tenant_quota{quota="values_per_second",tenant="t1"}'] == 10


def test_bytes_are_limited_as_values_are(tmp_path: Path) -> None:
    with serving(tmp_path) as run:
        token, size = run.token(), len(frame("host-1", 1))
        limit(run, bytes_per_second=size, burst_seconds=1)
        assert run.post(frame("host-1", 1), token).status == 200
        assert refused(run.post(frame("host-1", 2), token)) == (429, "over_quota", "bytes_quota")


def test_another_tenant_has_a_quota_of_its_own(tmp_path: Path) -> None:
    with serving(tmp_path) as run:
        limit(run, values_per_second=1, burst_seconds=1)
        one, other = run.token(), run.token(tenant_id="t2")
        assert run.post(frame("host-1", 1), one).status == 200
        assert run.post(frame("host-1", 2), one).status == 429
        assert [run.post(frame("host-2", number), other).status for number in range(5)] == [200] * 5


def test_repeats_and_what_could_not_be_stored_are_not_charged(tmp_path: Path) -> None:
    flaky: list[FlakyLog] = []

    def away(stores: Stores) -> Stores:
        flaky.append(FlakyLog(stores.ingest))
        return replace(stores, ingest=flaky[0])

    with serving(tmp_path, change=away) as run:
        token = run.token()
        flaky[0].away = True
        assert run.post(frame(), token).status == 503
        flaky[0].away = False
        for body in (frame(), frame(), frame() + frame(), frame() + frame("host-1", 2, inline=False)):
            assert run.post(body, token).status == 200
        assert shown(run)['gateway_tenant_values_total{tenant="t1"}'] == 2 * VALUES


def test_a_frame_that_is_sent_again_with_its_definitions_is_charged_once(tmp_path: Path) -> None:
    with serving(tmp_path) as run:
        token = run.token()
        assert run.post(frame(inline=False), token).status == 424
        assert run.post(frame(), token).status == 200
        assert shown(run)['gateway_tenant_values_total{tenant="t1"}'] == VALUES


def test_class_p0_may_overdraw_a_quota_by_as_much_again_as_may_come_at_once(tmp_path: Path) -> None:
    with serving(tmp_path) as run:
        token = run.token()
        limit(run, values_per_second=VALUES, burst_seconds=1)
        assert run.post(frame("host-1", 1), token).status == 200
        assert run.post(frame("host-1", 2), token).status == 429
        urgent = {"X_Secondsight_Priority": "0"}
        statuses = [run.post(frame_of(Priority.P0, number), token, **urgent).status for number in range(10, 15)]
        assert statuses == [200, 200, 200, 429, 429]  # two values each


def test_an_operator_sets_a_quota_and_a_running_gateway_follows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path) as run:
        token = run.token()
        named = ("--data", str(tmp_path), "--tenant", "t1")
        assert run.post(frame("host-1", 1), token).status == 200
        assert main(["tenants", "quota", *named, "--values-per-second", "5", "--burst-seconds", "1"]) == 0
        assert "values_per_second" in capsys.readouterr().out.lower()
        number = 2
        while run.post(frame("host-1", number), token).status == 200:
            number += 1
            moved(run).move(1.0)
        assert main(["tenants", "quota", *named, "--values-per-second", "none"]) == 0
        while run.post(frame("host-1", number), token).status != 200:
            moved(run).move(1.0)
        assert main(["tenants", "quota", *named, "--values-per-second", "5x"]) == 2
        assert main(["tenants", "quota", *named, "--weight", "0"]) == 2
        assert main(["tenants", "list", *named]) == 0
        assert "t1" in capsys.readouterr().out


def test_parts_of_a_quota_are_set_one_by_one_and_go_back_to_their_default(tmp_path: Path) -> None:
    with serving(tmp_path) as run:
        store = run.stores.metadata
        assert set_quota(store, "t1", {"weight": 3}, NOW_MS) == Quota(weight=3)
        assert set_quota(store, "t1", {"active_series": 7}, NOW_MS) == Quota(weight=3, active_series=7)
        assert set_quota(store, "t1", {"weight": None, "active_series": None}, NOW_MS) == Quota()
        with pytest.raises(Rejected) as caught:
            set_quota(store, "t1", {"burst_seconds": 0}, NOW_MS)
        assert caught.value.code == "bad_quota"


def test_active_series_are_bounded_and_those_that_are_there_go_on(tmp_path: Path) -> None:
    with serving(tmp_path) as run:
        token = run.token()
        limit(run, active_series=VALUES)
        assert run.post(frame("host-1", 1), token).json["accepted"] == 1
        answer = run.post(frame("host-2", 1) + frame("host-1", 2, inline=False), token).json
        assert (answer["accepted"], [one["code"] for one in answer["rejected"]]) == (1, [ACTIVE])
        told = shown(run)
        assert told['gateway_tenant_active_series{tenant="t1"}'] == VALUES
        assert told['gateway_tenant_refused_total{code="series_quota",tenant="t1"}'] == 1
        assert (stored(run), stored(run, RecordType.REFUSED)) == (2, 1)


def test_new_series_are_bounded_and_taken_a_minute_later(tmp_path: Path) -> None:
    with serving(tmp_path) as run:
        token = run.token()
        moved(run).move(START_SECONDS)
        limit(run, new_series_per_minute=VALUES)
        assert run.post(frame("host-1", 1), token).json["accepted"] == 1
        answer = run.post(frame("host-2", 1) + frame("host-1", 2, inline=False), token).json
        assert (answer["accepted"], [one["code"] for one in answer["rejected"]]) == (1, [NEW])
        moved(run).move(60.0)
        assert run.post(frame("host-2", 2, newest_ms=NOW_MS), token).json["accepted"] == 1


def remote_write(gateway: Foreign, gpus: range, time_ms: int) -> Reply:
    """Send a temperature of each of some GPUs."""
    named = [("__name__", "DCGM_FI_DEV_GPU_TEMP"), ("Hostname", "host-1")]
    series = (series_message(sorted([*named, ("UUID", f"GPU-{gpu}")]), [(40.0, time_ms)]) for gpu in gpus)
    return gateway.write(first_request(*series))


@pytest.mark.parametrize(("name", "code"), [("active_series", ACTIVE), ("new_series_per_minute", NEW)])
def test_series_of_foreign_senders_are_bounded_one_by_one(tmp_path: Path, name: str, code: str) -> None:
    with foreign(tmp_path, NOW_MS) as gateway:
        run = gateway.run
        moved(run).move(START_SECONDS)
        limit(run, **{name: 4})
        now_ms = run.clock.now_ms()
        first = remote_write(gateway, range(4), now_ms)
        both = remote_write(gateway, range(6), now_ms + 1000)
        assert (first.status, both.status) == (204, 204)
        assert both.headers["x-prometheus-remote-write-samples-written"] == "4"
        assert [(one["code"], one["values"]) for one in gateway.refused()] == [(code, 2)]
        assert shown(run)[f'gateway_tenant_refused_total{{code="{code}",tenant="t1"}}'] == 2
        moved(run).move(60.0)
        limit(run, **{name: 100})
        assert (
            remote_write(gateway, range(6), now_ms + 2000).headers["x-prometheus-remote-write-samples-written"] == "6"
        )


def test_foreign_values_are_charged_once_as_native_ones_are(tmp_path: Path) -> None:
    with foreign(tmp_path, NOW_MS) as gateway:
        run = gateway.run
        for _ in range(3):
            assert remote_write(gateway, range(4), NOW_MS).status == 204
        charged = shown(run)['gateway_tenant_values_total{tenant="t1"}']
        limit(run, values_per_second=1, burst_seconds=1)
        assert remote_write(gateway, range(4), NOW_MS + 1000).status == 204
        reply = remote_write(gateway, range(4), NOW_MS + 2000)
        assert refused(reply) == (429, "over_quota", "values_quota")
        assert charged == 4


def test_a_bucket_takes_any_size_and_keeps_its_rate() -> None:
    bucket = Bucket(10.0, 20.0, now=0.0)
    taken = 0.0
    for tenth in range(10_000):
        if not bucket.wait_seconds(tenth / 10):
            bucket.take(55.0)
            taken += 55.0
    assert 10.0 * 1000 <= taken <= 10.0 * 1000 + 20.0 + 55.0


def test_entities_that_come_and_go_are_new_only_when_they_are() -> None:
    actives = Actives(Quota(active_series=1000, new_series_per_minute=10), -START_SECONDS, 0.0)
    key = ("c1", "host-1", b"schema")
    first, grown = np.array([1, 2], np.uint64), np.array([1, 2, 3], np.uint64)
    assert actives.admit(key, b"a", first, 5, 0.0) == ""
    assert actives.admit(key, b"b", grown, 5, 0.0) == NEW  # ten were new, and the minute's ten are used
    assert actives.admit(key, b"a", first, 5, 0.0) == ""
    assert actives.admit(key, b"b", grown, 5, 31.0) == ""
    assert actives.series == 15


def test_series_that_nobody_writes_are_forgotten() -> None:
    actives = Actives(Quota(), 0.0, 0.0)
    for number in range(3):
        assert actives.admit(("c1", f"host-{number}", b"s"), b"t", np.arange(2, dtype=np.uint64), 5, 0.0) == ""
    keep = ("c1", "host-0", b"s")
    for minute in range(0, 120, 10):
        if not actives.knows(keep, b"t", minute * 60.0):
            actives.admit(keep, b"t", np.arange(2, dtype=np.uint64), 5, minute * 60.0)
    assert actives.series == 10


@pytest.mark.parametrize("make", [lambda: Quota(weight=0), lambda: Quota(values_per_second=-1)])
def test_quotas_that_cannot_be_kept_are_refused(make: Callable[[], Quota]) -> None:
    with pytest.raises(Rejected):
        make()


assert len(GPU_METRICS) * 2 == VALUES


def test_rows_that_were_refused_for_a_quota_of_series_say_so_of_the_gap_that_they_leave() -> None:
    gap = Gap("t1\0c1\0h1\0GPU-1\0", 1000, 60_000, 1000, 59, is_open=False, agent="h1", rack="")
    place = ("t1", "c1", "h1")
    assert reason_of(gap, Evidence(beyond_quota={place: [30_000]}), "gpu", is_together=False) is Reason.QUOTA
    assert reason_of(gap, Evidence(beyond_quota={place: [900_000]}), "gpu", is_together=False) is Reason.UNKNOWN


def test_collectors_that_are_made_up_without_end_take_no_memory_without_end() -> None:
    actives = Actives(Quota(), 0.0, 0.0, keys_maximum=100)
    one = np.arange(1, dtype=np.uint64)
    codes = Counter(actives.admit(("c1", f"made-up-{at}", b"s"), b"t", one, 1, 0.0) for at in range(300))
    assert codes == {"": 100, ACTIVE: 200}
    assert actives.admit(("c1", "made-up-7", b"s"), b"u", one, 1, 0.0) == ""


def test_a_foreign_sender_that_is_forgotten_gives_its_series_back() -> None:
    actives = Actives(Quota(active_series=3), 0.0, 0.0)
    own = OwnSeries(actives, "t1", ManualClock())
    assert [own.refuse()[0] for _ in range(4)] == ["", "", "", ACTIVE]
    own.forget(are_back_soon=True)
    assert [own.refuse()[0] for _ in range(2)] == ["", ""]
    own.close()
    own.refuse()
    assert actives.series == 0


def test_of_several_gateways_each_gives_its_part(tmp_path: Path) -> None:
    with serving(tmp_path, quota_share=0.5) as run:
        token = run.token()
        limit(run, values_per_second=2 * VALUES, burst_seconds=1)
        assert [run.post(frame("host-1", number), token).status for number in (1, 2)] == [200, 429]
