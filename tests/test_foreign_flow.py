"""From foreign requests to tables: the processor makes of them what it makes of an agent's frames."""

import random
from pathlib import Path
from typing import Any

import pytest

from foreign_index import STALE_NAN, SecondRequest, first_request, series_message
from process_rig import CATALOG, T0, Rig
from secondsight.contracts import LogRecord
from secondsight.gateway.foreign import otlp
from secondsight.gateway.foreign.remote_write import decode_first, decode_second
from secondsight.gateway.foreign.sender import Sender, Settings, Who
from secondsight.gateway.foreign.taken import Taken
from secondsight.store.chdb import ChdbStore

GPU = "GPU-00000000-0000-0000-0000-000000000001"
PLACE = [("UUID", GPU), ("Hostname", "node-a"), ("job", "dcgm")]
CORPUS = Path(__file__).parents[1].parent / "shared" / "corpus"


def sender(name: str = "prom", protocol: str = "remote-write") -> Sender:
    return Sender(Who(name, protocol, 7, lambda _: True), CATALOG, Settings(300_000, 10**12, 100_000))


class Flow:
    """A gateway's sender before a processor."""

    def __init__(self, store: ChdbStore, name: str) -> None:
        self.rig = Rig(store)
        self.name = name
        self._known: set[bytes] = set()

    def put(self, taken: Taken) -> Taken:
        for made in taken.frames:
            for one in (made.schema, made.entities):
                if one.hash not in self._known:
                    self._known.add(one.hash)
                    topic = self.rig.log.definitions
                    topic.append(LogRecord(0, len(topic), 0, one.blob))
            self.rig.send(made.frame, tenant=self.name)
        return taken

    def rows(self, table: str, columns: str, order: str = "event_time") -> list[tuple[Any, ...]]:
        where = f"WHERE tenant_id = '{self.name}'"
        found = self.rig.store.query(f"SELECT {columns} FROM {table} FINAL {where} ORDER BY {order}")
        return [tuple(row.values()) for row in found.to_pylist()]


def write(one: Sender, request: bytes, now_ms: int, number: int = 1) -> Taken:
    one.prepare(now_ms)
    return one.take(decode_first(request, one.index, one.learn_help), number, now_ms)


def export(one: Sender, metrics: list[dict[str, Any]], now_ms: int, number: int = 1) -> Taken:
    one.prepare(now_ms)
    attributes = [{"key": name, "value": {"stringValue": value}} for name, value in PLACE]
    body = {"resourceMetrics": [{"resource": {"attributes": attributes}, "scopeMetrics": [{"metrics": metrics}]}]}
    import orjson

    return one.take(otlp.decode(otlp.read_json(orjson.dumps(body)), one.index), number, now_ms)


def sum_of(name: str, points: list[tuple[int, int, int]], temporality: int) -> dict[str, Any]:
    """A sum of (value, start, time)."""
    told = [
        {"asInt": str(value), "startTimeUnixNano": f"{start}000000", "timeUnixNano": f"{time}000000"}
        for value, start, time in points
    ]
    return {"name": name, "sum": {"aggregationTemporality": temporality, "isMonotonic": True, "dataPoints": told}}


def test_one_scrape_in_seven_pieces_shuffled_and_repeated_is_one_row(store: ChdbStore) -> None:
    flow, one = Flow(store, "pieces"), sender()
    names = [metric.name for metric in CATALOG.scalars("gpu") if metric.dtype == "u64" and not metric.labels][:20]
    series = [series_message([("__name__", name), *PLACE], [(n + 1.0, T0)]) for n, name in enumerate(names)]
    pieces = [series[n::7] for n in range(7)]
    requests = [*pieces, *pieces, series]
    random.Random(3).shuffle(requests)
    for number, piece in enumerate(requests):
        flow.put(write(one, first_request(*piece), T0 + 900, number))
    flow.rig.settle()
    (row,) = flow.rows("gpu_1s", ", ".join(names))
    wanted = [float(n + 1) for n in range(len(names))]
    scales = [CATALOG.get(name).resolution for name in names]
    assert [None if value is None else value * scale for value, scale in zip(row, scales, strict=True)] == [
        pytest.approx(value) for value in wanted
    ]


def test_deltas_add_up_in_any_order_and_however_often_they_come(store: ChdbStore) -> None:
    flow = Flow(store, "deltas")
    name = "gpu_pcie_replay_total"
    points = [(512, T0, T0 + 5000), (480, T0 + 5000, T0 + 10_000), (480, T0 + 5000, T0 + 10_000)]
    points += [(7, T0 + 10_000, T0 + 15_000), (1000, T0 + 15_000, T0 + 20_000)]
    order = points * 2
    random.Random(5).shuffle(order)
    one = sender(protocol="otlp")
    for number, point in enumerate(order):
        flow.put(export(one, [sum_of(name, [point], 1)], T0 + 21_000, number))
    flow.rig.settle()
    assert flow.rows("gpu_30s", f"{name}_increase", "window_start") == [(512 + 480 + 7 + 1000,)]


def test_a_counter_that_says_when_it_began_counts_from_its_first_value(store: ChdbStore) -> None:
    name = "gpu_pcie_replay_total"
    for place, (started_ms, wanted) in enumerate(((T0 + 500, 15 + 3), (T0 - 4 * 86_400_000, 3))):
        flow, one, request = Flow(store, f"began{place}"), sender(), SecondRequest()
        labels = [("__name__", name), *PLACE]
        series = [
            request.series(labels, [(15.0, T0 + 1000, started_ms)]),
            request.series(labels, [(18.0, T0 + 2000, started_ms)]),
        ]
        one.prepare(T0)
        flow.put(one.take(decode_second(request.bytes(*series), one.index), 1, T0 + 2500))
        flow.rig.settle()
        assert flow.rows("gpu_30s", f"{name}_increase", "window_start") == [(wanted,)]


def test_033_a_start_that_moves_while_the_value_grows_is_no_reset(store: ChdbStore) -> None:
    flow, one = Flow(store, "moves"), sender(protocol="otlp")
    points = [(10, T0, T0 + 6000), (25, T0 + 6000, T0 + 12_000), (40, T0 + 12_000, T0 + 18_000)]
    for number, point in enumerate(points):
        flow.put(export(one, [sum_of("gpu_pcie_replay_total", [point], 2)], T0 + 19_000, number))
    flow.rig.settle()
    assert flow.rows("gpu_30s", "gpu_pcie_replay_total_increase", "window_start") == [(40,)]
    values = [value for (value,) in flow.rows("gpu_1s", "gpu_pcie_replay_total")]
    assert values == [0, 10, 25, 40]


def test_the_end_of_a_series_is_no_value(store: ChdbStore) -> None:
    flow, one = Flow(store, "stale"), sender()
    labels = [("__name__", "DCGM_FI_DEV_GPU_TEMP"), *PLACE]
    for number, (value, time_ms) in enumerate(((40.0, T0), (STALE_NAN, T0 + 1000), (0.0, T0 + 2000))):
        taken = flow.put(write(one, first_request(series_message(labels, [(value, time_ms)])), T0 + 2500, number))
        assert (taken.samples, dict(taken.refused)) == (1, {})
    flow.rig.settle()
    assert flow.rows("gpu_1s", "gpu_temperature_celsius") == [(40,), (None,), (0,)]
    assert flow.rows("gpu_30s", "gpu_temperature_celsius_max", "window_start") == [(40,)]


def test_a_pod_owns_the_gpu_that_its_labels_name(store: ChdbStore) -> None:
    flow, one = Flow(store, "owned"), sender()
    for step, pod in enumerate(("train-0", "train-0", "train-0", "train-1", "train-1")):
        labels = [("__name__", "DCGM_FI_DEV_GPU_TEMP"), *PLACE, ("pod", pod), ("namespace", "team-a")]
        sample = [(40.0, T0 + 1000 * step)]
        flow.put(write(one, first_request(series_message(labels, sample)), T0 + 1000 * step + 100, step))
    flow.rig.settle()
    found = flow.rows("allocations", "entity, job_id, owner_team, start_time, end_time", "start_time")
    first, second = ((row[:3], *(_ms(time) for time in row[3:])) for row in found)
    assert first == ((GPU, "team-a/train-0", "team-a"), T0, T0 + 3000)
    assert second == ((GPU, "team-a/train-1", "team-a"), T0 + 3000, None)
    assert flow.rows("gpu_1s", "job_id")[0] == ("team-a/train-0",)


def _ms(time: Any) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the corpus is not at {CORPUS}")
def test_the_captured_export_gives_what_its_note_says(store: ChdbStore) -> None:
    flow, one = Flow(store, "capture"), sender(protocol="otlp")
    body = (CORPUS / "captures" / "otlp" / "otlp_gpu_gauge_and_sums.json").read_bytes()
    at_ms = 1_717_236_030_500
    one.prepare(at_ms)
    taken = one.take(otlp.decode(otlp.read_json(body), one.index), 1, at_ms)
    assert {(refused.code, refused.metric): count for refused, count in taken.refused.items()} == {
        ("unknown_metric", "tokens"): 3,
        ("unknown_metric", "queue.depth"): 1,
    }
    flow.rig.clock.step_wall((at_ms - flow.rig.clock.now_ms()) / 1000)
    flow.put(taken)
    flow.rig.settle()
    columns = "entity, gpu_utilization_ratio, gpu_energy_joules_total"
    found = {row[0][-1]: row[1:] for row in flow.rows("gpu_1s", columns)}
    assert found["1"] == (9700, 251_885_217_371)
    assert found["2"] == (0, 0)
    assert found["3"][0] is None
    increases = dict(flow.rows("gpu_30s", "entity, gpu_energy_joules_total_increase", "entity"))
    assert increases[GPU[:-1] + "2"] == 0
