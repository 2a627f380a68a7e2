"""A large simulated fleet through the whole platform: every second of it comes back as the simulator made it.

The simulator gives the same samples for the same seed and start, so it is run again here and compared.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from flow_fleet import Gpu, clusters_of, replay
from flow_tables import Tables
from secondsight.agent.simulate.cluster import ClusterSpec
from up_rig import Platform, platform, wait_until

HOSTS, GPUS = 200, 8
SECONDS = 25
STOP_SECONDS = 60
DUE_SECONDS = 60
WINDOW_MS = 30_000
PLACES = ((0, 0), (17, 5), (-1, 7))
"""(host, GPU) of each cluster that are compared."""

pytestmark = pytest.mark.timeout(400)


@dataclass
class Fleet:
    """A platform with its fleet, and the first second that the fleet reported."""

    platform: Platform
    tables: Tables
    clusters: list[ClusterSpec]
    start: int

    @property
    def start_ms(self) -> int:
        """Return the first second as epoch milliseconds."""
        return self.start * 1000

    @property
    def sampled(self) -> list[Gpu]:
        """Return the GPUs that are compared."""
        return [Gpu(spec, host % spec.hosts, index) for spec in self.clusters for host, index in PLACES]

    def telemetry(self, gpu: Gpu, metric: str, **parameters: object) -> dict[int, float]:
        """Return second -> value of one GPU and metric, as the read API gives them."""
        path = f"/v1/gpus/{gpu.name}/telemetry"
        answer = self.platform.get(path, metric=metric, format="columns", **parameters)
        values = answer["series"][0]["values"] if answer["series"] else []
        pairs = zip(answer["ts"], values, strict=True)
        return {ts // 1000: value for ts, value in pairs if value is not None}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    data = tmp_path_factory.mktemp("fleet") / "data"
    arguments = (
        "--listen",
        "127.0.0.1:0",
        "--simulate",
        f"{HOSTS}x{GPUS}",
        "--seed",
        "5",
        "--no-local-agent",
        "--history",
        "0",
    )
    with platform(data, *arguments) as running:
        tables = Tables(running)
        yield Fleet(running, tables, clusters_of(data), _first_second(tables))
        tables.close()


def _first_second(tables: Tables) -> int:
    sql = "SELECT toUnixTimestamp(min(event_time)) AS first, count() AS rows FROM gpu_1s"
    [row] = tables.wait(sql, lambda rows: rows[0]["rows"] > 0)
    assert row["rows"] > 0
    sql = "SELECT uniqExact(entity) AS gpus FROM gpu_1s WHERE event_time = toDateTime64({at:Int64}, 3, 'UTC')"
    [row_of_last] = tables.wait(sql, lambda rows: rows[0]["gpus"] == HOSTS * GPUS, at=row["first"] + SECONDS - 1)
    assert row_of_last["gpus"] == HOSTS * GPUS
    return int(row["first"])


def test_every_host_and_gpu_is_in_the_fleet(fleet: Fleet) -> None:
    now = fleet.platform.get("/v1/fleet")
    assert (now["hosts"], now["clusters"]) == (HOSTS, 3)
    assert now["gpus"]["total"] == HOSTS * GPUS
    assert now["collectors"] == HOSTS

    def all_report() -> bool:
        now = fleet.platform.get("/v1/fleet")
        return (now["gpus"]["reporting"], now["idleCollectors"]) == (HOSTS * GPUS, 0)

    wait_until(all_report, DUE_SECONDS)


def test_every_second_is_what_the_simulator_made(fleet: Fleet) -> None:
    span = {"from": fleet.start_ms, "to": fleet.start_ms + SECONDS * 1000, "resolution": "1s"}
    for spec in fleet.clusters:
        seconds = list(replay(spec, fleet.start, SECONDS))
        for gpu in [one for one in fleet.sampled if one.spec == spec]:
            for metric in ("gpu_power_watts", "gpu_temperature_celsius", "gpu_utilization_ratio"):
                wanted = {second.second: gpu.value(second, metric) for second in seconds}
                assert fleet.telemetry(gpu, metric, **span) == pytest.approx(wanted, abs=1e-9), (gpu.name, metric)
            energy = [gpu.value(second, "gpu_energy_joules_total") for second in seconds]
            grown = {fleet.start + n: energy[n] - energy[n - 1] for n in range(1, SECONDS)}
            found = fleet.telemetry(gpu, "gpu_energy_joules_total", aggregate="increase", **span)
            assert found == pytest.approx(grown, abs=2e-3), gpu.name


def test_coverage_is_stored_slots_over_expected(fleet: Fleet) -> None:
    span = {"from": fleet.start_ms, "to": fleet.start_ms + SECONDS * 1000}
    ask = {"metric": "gpu_power_watts", "resolution": "1s", **span}

    def expected(gpu: Gpu) -> int:
        return int(fleet.platform.get("/v1/metrics/query", host=gpu.host_name, **ask)["coverage"]["expectedSamples"])

    for gpu in fleet.sampled[::2]:
        wait_until(lambda gpu=gpu: expected(gpu) == GPUS * SECONDS, DUE_SECONDS)
        answer = fleet.platform.get("/v1/metrics/query", host=gpu.host_name, **ask)
        sql = (
            "SELECT uniqExact(entity, event_time) AS slots FROM gpu_1s WHERE host_id = {host:String}"
            " AND toUnixTimestamp64Milli(event_time) >= {from:Int64}"
            " AND toUnixTimestamp64Milli(event_time) < {to:Int64}"
        )
        [stored] = fleet.tables.rows(sql, host=gpu.host_name, **span)
        coverage = answer["coverage"]
        assert coverage["storedSamples"] == stored["slots"] == GPUS * SECONDS
        assert (coverage["ratio"], coverage["gaps"]) == (1.0, 0)
        assert answer["partial"] is False


def test_windows_and_seconds_agree(fleet: Fleet) -> None:
    """The first whole window, read from its row, has the mean and the increase of its seconds."""
    start_ms = -(-fleet.start_ms // WINDOW_MS) * WINDOW_MS
    sql = (
        "SELECT uniqExact(entity) AS gpus FROM gpu_30s FINAL WHERE samples > 0"
        " AND window_start = toDateTime({start:Int64}, 'UTC')"
    )
    rows = fleet.tables.wait(sql, lambda rows: rows[0]["gpus"] == HOSTS * GPUS, start=start_ms // 1000)
    assert rows == [{"gpus": HOSTS * GPUS}]
    span = {"from": start_ms, "to": start_ms + WINDOW_MS}
    for gpu in fleet.sampled:
        for metric in ("gpu_power_watts", "gpu_utilization_ratio"):
            seconds = fleet.telemetry(gpu, metric, resolution="1s", **span)
            window = fleet.telemetry(gpu, metric, resolution="30s", aggregate="avg", **span)
            mean = sum(seconds.values()) / len(seconds)
            assert window == {start_ms // 1000: pytest.approx(mean, rel=1e-9)}, (gpu.name, metric)
        seconds = fleet.telemetry(gpu, "gpu_energy_joules_total", resolution="1s", aggregate="increase", **span)
        window = fleet.telemetry(gpu, "gpu_energy_joules_total", resolution="30s", aggregate="increase", **span)
        assert window == {start_ms // 1000: pytest.approx(sum(seconds.values()), rel=1e-9)}, gpu.name


def test_a_stop_loses_nothing(fleet: Fleet) -> None:
    """SIGTERM ends everything cleanly; what was stored by then is there after a start, second by second."""
    [newest] = fleet.tables.rows(
        "SELECT toUnixTimestamp(min(last)) AS at FROM (SELECT max(event_time) AS last FROM gpu_1s GROUP BY entity)"
    )
    stored_to = newest["at"]
    began = time.monotonic()
    assert fleet.platform.stop() == 0, fleet.platform.words()
    assert time.monotonic() - began < STOP_SECONDS
    again = Platform(fleet.platform.data, "--listen", "127.0.0.1:0", "--simulate", "0", "--no-local-agent")
    try:
        again.start()
        _check_all_seconds(fleet, stored_to)
        gpu = fleet.sampled[0]
        span = {"from": fleet.start_ms, "to": stored_to * 1000, "resolution": "1s"}
        answer = again.get(f"/v1/gpus/{gpu.name}/telemetry", metric="gpu_power_watts", format="columns", **span)
        assert len(answer["ts"]) == stored_to - fleet.start
        assert again.get("/v1/fleet")["gpus"]["total"] == HOSTS * GPUS
        assert again.stop() == 0
    finally:
        again.end()


def _check_all_seconds(fleet: Fleet, stored_to: int) -> None:
    """Every GPU has every second from the first to the last of its cluster, once, and none of those stored before."""
    sql = (
        "SELECT cluster_id, entity, toUnixTimestamp(min(event_time)) AS first,"
        " toUnixTimestamp(max(event_time)) AS last, uniqExact(event_time) AS seconds, count() AS rows"
        " FROM gpu_1s FINAL GROUP BY cluster_id, entity"
    )
    rows = fleet.tables.rows(sql)
    assert len(rows) == HOSTS * GPUS
    assert {row["first"] for row in rows} == {fleet.start}
    assert {row["last"] - row["first"] + 1 - row["seconds"] for row in rows} == {0}
    assert {row["rows"] - row["seconds"] for row in rows} == {0}
    for cluster in {row["cluster_id"] for row in rows}:
        lasts = {row["last"] for row in rows if row["cluster_id"] == cluster}
        assert len(lasts) == 1
        assert lasts.pop() >= stored_to
