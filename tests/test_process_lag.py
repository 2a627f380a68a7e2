"""What a processor shows of itself on /metrics, and what doctor makes of it."""

import urllib.error
import urllib.request

import pytest

from agent_fixture import answer_over_http, http_server
from process_rig import T0, Rig
from secondsight.agent.client.connection import Answer
from secondsight.clock import SystemClock
from secondsight.doctor.processor import processors
from secondsight.errors import Rejected
from secondsight.exposition import MetricsServer
from secondsight.log.embedded import EmbeddedConsumer, EmbeddedLogWriter
from secondsight.log.retention import backlog
from secondsight.process.lag import Waiting, shown
from test_process_flow import POWER, steady


def get(address):
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read().decode()


def test_a_processor_shows_how_far_it_is(store):
    rig = Rig(store)
    steady("lag", rig, T0, 40, values=lambda _: {POWER: 1})
    steady("lag", rig, T0 + 40_000, 1, values=lambda _: {POWER: 1}, collector="c2", host="h2")
    world = rig.processor.world
    found = shown(world, {0: Waiting(7, 900), 3: Waiting(2)}, rig.clock.now_ms() + 4000)
    assert found.value("processor_lag_records", partition="0") == 7
    assert found.value("processor_lag_bytes", partition="0") == 900
    assert found.value("processor_lag_records", partition="3") == 2
    assert 'processor_lag_bytes{partition="3"}' not in found.render()
    assert found.value("processor_lag_seconds", partition="0") == 4
    assert found.value("processor_collectors", state="live") == 2
    assert found.value("processor_watermark_delay_seconds", quantile="1") == 10.3
    assert found.value("processor_open_spans") > 0
    assert found.value("processor_series", kind="gpu") == 2
    rig.clock.move(60)
    rig.processor.step()
    found = shown(world, {}, rig.clock.now_ms())
    assert found.value("processor_collectors", state="idle") == 2
    assert "processor_watermark_delay" not in found.render()


def test_what_a_group_has_not_committed_is_counted_by_partition(tmp_path):
    clock = SystemClock()
    with_two = EmbeddedLogWriter(tmp_path, "ingest", 1, clock)
    with_two.append([(b"k", b"x" * 100) for _ in range(5)])
    assert {number: records for number, (records, _) in backlog(tmp_path, "ingest", "g").items()} == {0: 5}
    consumer = EmbeddedConsumer(tmp_path, "ingest", "g", clock)
    consumer.poll(1 << 20, 0.0)
    consumer.commit({0: 4})
    (found,) = backlog(tmp_path, "ingest", "g").values()
    assert found[0] == 1
    assert 100 < found[1] < 300
    consumer.close()
    with_two.close()


def test_metrics_are_answered_while_the_processor_runs(tmp_path):
    path = tmp_path / "run" / "processor.metrics"
    server = MetricsServer("127.0.0.1:0", path, lambda: "a 1\n")
    address = path.read_text()
    assert get(f"{address}/metrics") == "a 1\n"
    assert get(f"{address}/healthz") == "ok\n"
    with pytest.raises(urllib.error.HTTPError, match="404") as error:
        get(f"{address}/else")
    error.value.close()
    server.close()
    assert not path.exists()


def test_metrics_that_cannot_be_worked_out_are_no_answer(tmp_path):
    def render():
        raise OSError("no disk")

    server = MetricsServer("127.0.0.1:0", tmp_path / "a.metrics", render)
    with pytest.raises(urllib.error.HTTPError, match="503") as error:
        get(f"{server.address}/metrics")
    error.value.close()
    server.close()
    with pytest.raises(Rejected, match="cannot be served"):
        MetricsServer("127.0.0.1:none", tmp_path / "a.metrics", render)


SHOWN = """processor_lag_seconds{partition="0"} 3.5
processor_lag_seconds{partition="1"} %s
processor_lag_records{partition="0"} 1200
processor_lag_bytes{partition="0"} 5242880
processor_waits %s
processor_collectors{state="live"} 3
processor_collectors{state="idle"} 1
processor_watermark_delay_seconds{quantile="0.5"} 10.5
processor_watermark_delay_seconds{quantile="1"} %s
processor_late_rows_waiting 12
processor_rows_written_total{table="gpu_1s"} 5000
processor_findings_open 2
"""


@pytest.mark.parametrize(
    ("figures", "wanted"),
    [
        (("0", "0", "11"), ["ok", "ok", "ok", "ok"]),
        (("90", "0", "11"), ["warning", "ok", "ok", "ok"]),
        (("0", "1", "400"), ["fault", "ok", "warning", "ok", "ok"]),
    ],
)
def test_doctor_says_it_in_words(tmp_path, figures, wanted):
    (tmp_path / "run").mkdir()
    body = (SHOWN % figures).encode()
    with http_server(lambda handler, _: answer_over_http(handler, Answer(200, {}, body))) as url:
        (tmp_path / "run" / "processor.metrics").write_text(url)
        found = list(processors(tmp_path, SystemClock()))
    assert [one.level.value for one in found] == wanted
    words = " / ".join(one.what for one in found)
    assert "in 2 partitions; 1 200 records (5.0 MiB) are not finished" in words
    assert "knows 4 collectors: 3 live, 0 with a backlog, 1 idle; watermarks are 10 s behind" in words
    assert "12 late rows wait" in words
    assert "5 000 rows since its start, 0 dead letters; 2 findings last" in words


def test_doctor_says_which_processor_does_not_answer(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "processor-2.metrics").write_text("http://127.0.0.1:9")
    (found,) = processors(tmp_path, SystemClock())
    assert found.level.value == "warning"
    assert "the processor-2 at http://127.0.0.1:9 does not answer" in found.what
    assert "processor-2.log" in found.remedy


def test_doctor_says_little_of_a_part_that_reads_no_log(tmp_path):
    (tmp_path / "run").mkdir()
    with http_server(lambda handler, _: answer_over_http(handler, Answer(200, {}, b"lake_files 3\n"))) as url:
        (tmp_path / "run" / "lake.metrics").write_text(url)
        (found,) = processors(tmp_path, SystemClock())
    assert (found.level.value, found.what) == ("ok", "the lake answers, and reads no log")
