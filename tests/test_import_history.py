"""History of other systems goes in by the gateway's own path, whatever file it comes in, once."""

import json
from pathlib import Path

import cramjam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foreign_rig import CASE_MS, foreign
from secondsight.administer import history_send
from secondsight.administer.history_read import Form, form_of, read_history
from secondsight.administer.history_send import Journal, RemoteWriter, bodies_of, encoded, send_history
from secondsight.agent.client.connection import Connection
from secondsight.catalog.load import load_catalog
from secondsight.cli import main
from secondsight.clock import ManualClock, SystemClock
from secondsight.errors import Rejected, Retryable
from secondsight.gateway.foreign.messages import remote_write

CATALOG = load_catalog()
GPU = "GPU-00000000-0000-0000-0000-000000000001"
T0 = CASE_MS - 2 * 86_400_000
TIMES = [T0 + 1000 * second for second in range(0, 200, 10)] + [T0 + 86_400_000 + 1000 * second for second in range(3)]
POWER = {time_ms: 300.0 + (time_ms // 1000) % 50 for time_ms in TIMES}


def prometheus(path: Path) -> Path:
    lines = ["# HELP DCGM_FI_DEV_POWER_USAGE W", "# TYPE DCGM_FI_DEV_POWER_USAGE gauge"]
    lines += [
        f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="{GPU}",Hostname="node-a"}} {watts} {time_ms}'
        for time_ms, watts in POWER.items()
    ]
    return write(path / "dump.prom", "\n".join(lines) + "\n")


def dump(path: Path) -> Path:
    lines = [
        f'{{__name__="DCGM_FI_DEV_POWER_USAGE", gpu="0", UUID="{GPU}", Hostname="node-a"}} {watts} {time_ms}'
        for time_ms, watts in POWER.items()
    ]
    return write(path / "tsdb.txt", "\n".join(lines) + "\n")


def api_result(path: Path) -> Path:
    labels = {"__name__": "DCGM_FI_DEV_POWER_USAGE", "gpu": "0", "UUID": GPU, "Hostname": "node-a"}
    values = [[time_ms / 1000, str(watts)] for time_ms, watts in POWER.items()]
    body = {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": labels, "values": values}]}}
    return write(path / "range.json", json.dumps(body))


def long_csv(path: Path) -> Path:
    lines = ["ts,metric,unit,aggregate,tenantId,clusterId,hostId,gpuId,value"]
    lines += [f"{stamp(time_ms)},gpu_power_watts,W,avg,t,c,node-a,{GPU},{watts}" for time_ms, watts in POWER.items()]
    return write(path / "answer.csv", "\n".join(lines) + "\n")


def wide_csv(path: Path) -> Path:
    lines = ["timestamp,host,gpu_uuid,gpu_power_watts,gpu_temperature_celsius"]
    lines += [f"{time_ms / 1000},node-a,{GPU},{watts},{61 if watts > 310 else ''}" for time_ms, watts in POWER.items()]
    return write(path / "wide.csv", "\n".join(lines) + "\n")


def parquet(path: Path) -> Path:
    table = pa.table(
        {
            "time": pa.array(list(POWER), pa.timestamp("ms", "UTC")),
            "host_id": ["node-a"] * len(POWER),
            "gpu_id": [GPU] * len(POWER),
            "gpu_power_watts": list(POWER.values()),
        }
    )
    pq.write_table(table, path / "old.parquet")
    return path / "old.parquet"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def stamp(time_ms: int) -> str:
    from secondsight.query.times import format_time

    return format_time(time_ms)


SERIES = ("DCGM_FI_DEV_POWER_USAGE", (("Hostname", "node-a"), ("UUID", GPU), ("gpu", "0")))


def body(path: Path) -> Path:
    """Write what Prometheus posts by remote write 1.0, as it is on the wire."""
    (path / "body.rw").write_bytes(encoded({SERIES: list(POWER.items())}))
    return path / "body.rw"


def later_body(path: Path) -> Path:
    """Write what Prometheus posts by remote write 2.0: texts are symbols."""
    name, labels = SERIES
    symbols = ["", *(text for pair in (("__name__", name), *labels) for text in pair)]
    series = remote_write("Series")(labels_refs=list(range(1, len(symbols))))
    for time_ms, watts in POWER.items():
        series.samples.add(value=watts, timestamp=time_ms)
    request = remote_write("Request")(symbols=[symbol.encode() for symbol in symbols])
    request.timeseries.append(series.SerializeToString())
    (path / "later.snappy").write_bytes(bytes(cramjam.snappy.compress_raw(request.SerializeToString())))
    return path / "later.snappy"


FILES = (prometheus, dump, api_result, body, later_body, long_csv, wide_csv, parquet)


@pytest.mark.parametrize("make", FILES)
def test_every_form_holds_the_same_samples(make, tmp_path):
    path = make(tmp_path)
    history = read_history(path, form_of(path), CATALOG)
    found = {}
    for series in history.days.values():
        for (name, labels), samples in series.items():
            if "power" in name.lower():
                assert {("UUID", GPU), ("Hostname", "node-a")} <= set(labels)
                found |= dict(samples)
    assert found == POWER
    assert len(history.days) == 2


@pytest.mark.parametrize("make", FILES)
def test_what_is_imported_is_in_the_log_as_it_was_measured(make, tmp_path, capsys):
    with foreign(tmp_path / "data") as rig:
        token = write(tmp_path / "token", rig.token)
        path = make(tmp_path)
        command = ["import", "history", str(path), "--to", f"http://127.0.0.1:{rig.run.port}"]
        command += ["--token-file", str(token), "--state", str(tmp_path)]
        assert main(command) == 0
        cells = {name: value for name, value in rig.cells().items() if name.startswith("gpu_power_watts ")}
        assert {int(name.rpartition("@")[2]): value for name, value in cells.items()} == pytest.approx(POWER)
        assert all(GPU in name for name in cells)
        before = rig.cells()
        assert main(command) == 0
        assert rig.cells() == before
    assert "sent" in capsys.readouterr().out


def test_an_import_that_was_cut_off_goes_on_where_it_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(history_send, "BODY_SAMPLES", 4)
    history = read_history(prometheus(tmp_path), Form.PROMETHEUS, CATALOG)
    bodies = [body for _, _, body in bodies_of(history)]
    assert len(bodies) == 6
    taken: list[bytes] = []

    class Broken:
        def __init__(self, most: int) -> None:
            self.most = most

        def post(self, body: bytes) -> str:
            if len(taken) == self.most:
                raise Retryable("the gateway is away")
            taken.append(body)
            return ""

    path = tmp_path / "state"
    with pytest.raises(Retryable):
        send_history(history, Broken(3), Journal(path, "a"), lambda *_: None)
    told = []
    sent = send_history(history, Broken(99), Journal(path, "a"), lambda *said: told.append(said))
    assert taken == bodies
    assert sent.skipped + sent.samples == history.samples
    assert told[-1][:2] == (history.samples, history.samples)
    assert not path.exists()
    path.write_text("{ this was cut off")
    assert Journal(path, "a").done == 0
    Journal(path, "a").note(5)
    assert Journal(path, "b").done == 0


def test_what_a_gateway_refuses_is_told_and_the_rest_goes_on(tmp_path):
    with foreign(tmp_path / "data") as rig:
        writer = RemoteWriter(
            Connection(f"http://127.0.0.1:{rig.run.port}", SystemClock()), lambda: rig.token, ManualClock(0)
        )
        assert "400" in writer.post(b"no snappy at all")
        assert writer.post(next(bodies_of(read_history(prometheus(tmp_path), Form.PROMETHEUS, CATALOG)))[2]) == ""
        writer.close()


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("a.csv", "value,metric\n1,gpu_power_watts\n", "bad_history_file"),
        ("a.csv", "time,colour\n1,red\n", "bad_history_file"),
        ("a.json", '{"status":"error"}', "bad_history_file"),
        ("a.json", "{", "bad_history_file"),
        ("a.parquet", "no parquet", "bad_history_file"),
        ("a.rw", "no snappy", "bad_history_file"),
        ("a.sz", "", "bad_history_file"),
        ("a.xyz", "", "unknown_form"),
    ],
)
def test_a_file_that_is_something_else_is_refused_whole(name, text, code, tmp_path):
    path = write(tmp_path / name, text)
    with pytest.raises(Rejected) as refused:
        read_history(path, form_of(path), CATALOG)
    assert refused.value.code == code


def test_cells_that_are_no_numbers_are_counted_and_never_zero(tmp_path):
    text = "time,gpu_id,gpu_power_watts\n2024-05-30T00:00:00Z,G,\n2024-05-30T00:00:01Z,G,[N/A]\n,G,5\nnan,G,NaN\n"
    history = read_history(write(tmp_path / "a.csv", text), Form.CSV, CATALOG)
    assert history.samples == 0
    assert history.refused["no value"] + history.refused["no time"] >= 3
