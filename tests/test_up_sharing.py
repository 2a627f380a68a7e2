"""Processors in several processes share Kafka's partitions and a ClickHouse server: killing or adding one under load
loses and doubles nothing, and the tables are those that one processor alone makes of the same log."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import kafka_broker
from clickhouse_server import Server
from kafka_broker import Broker
from process_rig import CATALOG, allocation, frame_bytes
from secondsight.clock import SystemClock
from secondsight.contracts import Polled
from secondsight.log.kafka.config import KafkaConfig
from secondsight.log.kafka.reader import KafkaReader
from secondsight.log.topics import definitions_topic, ingest_topic
from secondsight.process.run import Processor
from secondsight.store.clickhouse.config import ClickHouseConfig
from secondsight.store.clickhouse.store import ClickHouseStore
from secondsight.store.migrate import migrate
from sharing_rig import PARTITIONS, SESSION_SECONDS, Stages
from up_rig import wait_until

pytestmark = pytest.mark.skipif(bool(kafka_broker.why_not()), reason=kafka_broker.why_not() or "-")

HOSTS, TICKS, STEP = 8, 60, 5
SETTLED_SECONDS = 60
"""End of the traffic, of which windows may be open."""
FACT_TICKS = 8
VOLATILE = {"version", "landed_at", "ingest_time"}
POWER, ENERGY, REASONS = "gpu_power_watts", "gpu_energy_joules_total", "gpu_clock_event_reasons"


class Traffic:
    """Ticks of some minutes ago, sent faster than they were; definitions come once, and some frames late and twice."""

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.sent: dict[tuple[str, int], int] = {}

    def bodies(self) -> Iterator[bytes]:
        late: list[tuple[int, bytes]] = []
        for tick in range(TICKS):
            frames = []
            for host in range(HOSTS):
                frame = self._frame(host, tick)
                if tick and (tick * 7 + host) % 31 == 5:
                    late.append((tick + 9 + host, frame))
                else:
                    frames.append(frame)
                if (tick + host) % 17 == 3:
                    frames.append(frame)
            frames += [frame for due, frame in late if due == tick]
            late = [item for item in late if item[0] > tick]
            frames += self._facts(tick)
            yield b"".join(frames)
        yield b"".join(frame for _, frame in late)

    def _frame(self, host: int, tick: int) -> bytes:
        time_ms, gpu = self.start_ms + 1000 * STEP * tick, f"GPU-{host}"
        power = (tick * 7919 + host * 31) % 700_000
        self.sent[gpu, time_ms] = power
        cells = {POWER: power, ENERGY: tick * 1000, REASONS: tick % 3}
        told = {"sequence": tick + 1, "collector": f"h{host}", "host": f"h{host}", "inline": tick == 0}
        return frame_bytes({(gpu, "", 0): cells}, [time_ms], interval_ms=1000 * STEP, **told)

    def _facts(self, tick: int) -> list[bytes]:
        """Return an allocation now and then, told by another host than the GPU's own."""
        if tick % FACT_TICKS != 5:
            return []
        gpu, teller = f"GPU-{tick // FACT_TICKS}", f"h{(tick // FACT_TICKS + 5) % HOSTS}"
        start_ms = self.start_ms + 1000 * STEP * (tick - 8)
        fact = allocation(gpu, start_ms, start_ms + 60_000, job=f"j{tick}")
        return [
            frame_bytes(
                {}, [start_ms], events=[fact], sequence=10_000 + tick, collector=teller, host=teller, names=[POWER]
            )
        ]


class WholeLog:
    """The whole topic, for one processor that keeps no offsets."""

    def __init__(self, config: KafkaConfig) -> None:
        self._reader = KafkaReader(config, ingest_topic(PARTITIONS))

    def poll(self, max_bytes: int, wait_seconds: float) -> Polled:
        return self._reader.poll(max_bytes, wait_seconds)

    def commit(self, offsets: Mapping[int, int]) -> None:
        pass

    def close(self) -> None:
        self._reader.close()


@pytest.mark.crash
@pytest.mark.timeout(900)
def test_killing_and_adding_processors_loses_nothing_and_doubles_nothing(
    tmp_path: Path, kafka: Broker, clickhouse: Server
) -> None:
    stages = Stages(tmp_path / "data", kafka, clickhouse, "sharing")
    config = KafkaConfig(kafka.address, prefix="sharing.", replication=1)
    traffic = Traffic((time.time_ns() // 10**9 - 2 * TICKS * STEP) // 30 * 30_000)
    try:
        for part in ("one", "two", "gateway"):
            stages.start(part)
        wait_until(lambda: stages.held() == {"one": 3, "two": 3}, 240)
        _disturb(stages, traffic)
        store = ClickHouseStore(ClickHouseConfig(clickhouse.url, database="sharing"))
        expected = ClickHouseStore(ClickHouseConfig(clickhouse.url, database="alone"))
        _process_alone(config, expected)
        until_ms = traffic.start_ms + 1000 * (TICKS * STEP - SETTLED_SECONDS)
        wait_until(lambda: _newest(store) >= max(at for _, at in traffic.sent), 240)
        wait_until(lambda: _same(store, expected, until_ms), 180)
    except AssertionError:
        print(stages.words())
        raise
    finally:
        stages.end()
    rows = store.query(
        "SELECT entity, toUnixTimestamp64Milli(event_time) AS at, gpu_power_watts AS p FROM gpu_1s FINAL"
    )
    assert {(row["entity"], row["at"]): row["p"] for row in rows.to_pylist()} == traffic.sent
    assert rows.num_rows == len(traffic.sent)
    for found, wanted in zip(_tables(store, until_ms), _tables(expected, until_ms), strict=True):
        assert found == wanted
    assert len({row["job_id"] for row in _tables(store, until_ms)[1]}) > 3
    outcomes = {row["outcome"] for row in _tables(store, until_ms)[3]}
    assert outcomes == {"received", "stored"}
    store.close()
    expected.close()


def _disturb(stages: Stages, traffic: Traffic) -> None:
    """Send all, while processors come and go."""
    for number, body in enumerate(traffic.bodies()):
        stages.post(body)
        time.sleep(0.05)
        match number:
            case 8:
                stages.kill("one")
            case 25:
                wait_until(lambda: stages.held() == {"two": PARTITIONS}, 120)
                stages.start("three")
            case 35:
                stages.server.kill()
                stages.server.start()
            case 45:
                wait_until(lambda: stages.held() == {"two": 3, "three": 3}, 120)
                stages.pause("two")
                time.sleep(SESSION_SECONDS + 2)
                stages.go_on("two")
            case 55:
                assert stages.stop("three") == 0
    wait_until(lambda: stages.held() == {"two": PARTITIONS}, 120)


def _process_alone(config: KafkaConfig, store: ClickHouseStore) -> None:
    """Have one processor make the tables of the whole log."""
    migrate(store, CATALOG, "alone", store.deployment)
    definitions = definitions_topic()
    processor = Processor(WholeLog(config), lambda: KafkaReader(config, definitions), store, CATALOG, SystemClock())
    for _ in range(3):
        processor.drain()
    processor.close()


def _newest(store: ClickHouseStore) -> int:
    rows = store.query("SELECT toUnixTimestamp64Milli(max(event_time)) AS at FROM gpu_1s")
    return int(rows.to_pylist()[0]["at"])


def _same(store: ClickHouseStore, expected: ClickHouseStore, until_ms: int) -> bool:
    return _tables(store, until_ms) == _tables(expected, until_ms)


def _tables(store: ClickHouseStore, until_ms: int) -> list[list[dict[str, Any]]]:
    """Return raw rows, rollups, facts and the ledger, of windows that ended by an instant."""
    raw = f"SELECT * FROM gpu_1s FINAL WHERE event_time < fromUnixTimestamp64Milli({until_ms}) ORDER BY ALL"
    ends = f"samples > 0 AND window_start < toDateTime({until_ms // 1000})"
    statements = (
        raw,
        f"SELECT * FROM gpu_30s FINAL WHERE {ends} ORDER BY ALL",
        "SELECT * FROM allocations FINAL ORDER BY ALL",
        f"SELECT * FROM ledger FINAL WHERE window_start < toDateTime({until_ms // 1000}) ORDER BY ALL",
    )
    found = [store.query(sql).to_pylist() for sql in statements]
    return [[{name: value for name, value in row.items() if name not in VOLATILE} for row in rows] for rows in found]
