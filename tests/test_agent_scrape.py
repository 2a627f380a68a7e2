"""The scrape reader against real HTTP servers that behave, fail, stall, and serve too much."""

import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from agent_fixture import answer_over_http, http_server
from secondsight.agent.client.connection import Answer, Connection
from secondsight.agent.counts import Counts
from secondsight.agent.known_gpus import KnownGpus
from secondsight.agent.scrape.reader import ScrapePlace, ScrapeReader, Target
from secondsight.catalog.load import load_catalog
from secondsight.clock import SystemClock
from secondsight.contracts import Tick
from secondsight.errors import Rejected, Retryable
from secondsight.model import EntityKind

CASES = Path(__file__).parent / "cases" / "scrape"
GOOD = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",modelName="NVIDIA H200"} 41\n'
ENGINE = b'vllm:num_requests_running{model_name="m"} 3\n'
TICK_MS = 1_717_236_000_000


class Exporter:
    """Serves what it is told; keeps what was asked and over how many connections."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, str]] = []
        self.connections: set[tuple[str, int]] = set()

    def respond(self, handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        self.asked.append({name.lower(): value for name, value in handler.headers.items()} | {"path": handler.path})
        self.connections.add(handler.client_address)
        answer_over_http(handler, self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])


ReaderOf = Callable[..., ScrapeReader]


@pytest.fixture
def reader_of() -> Iterator[ReaderOf]:
    made: list[ScrapeReader] = []
    known = KnownGpus("host-1")

    def make(url: str, **options: object) -> ScrapeReader:
        given: dict[str, object] = {"name": "dcgm", "url": url + "/metrics?x=1", "timeout_seconds": 10.0}
        target = Target(**(given | options))  # type: ignore[arg-type] # of many types
        made.append(ScrapeReader(target, load_catalog(), SystemClock(), Counts(), ScrapePlace("host-1", "r1", known)))
        return made[-1]

    yield make
    for reader in made:
        reader.close()


def text(body: bytes, content_type: str = "text/plain; version=0.0.4", **headers: str) -> Answer:
    return Answer(200, {"content-type": content_type} | headers, body)


def values_of(tick: Tick, metric: str) -> dict[str, int]:
    found = {}
    for content in tick.contents:
        if content.scalars is None:
            continue
        for group in content.scalars.groups:
            for offset, row in enumerate(group.values):
                if content.schema.columns[group.first_column + offset].metric == metric:
                    for index, value in zip(content.scalars.entity_index, row, strict=True):
                        found[content.entities.entities[index].entity] = int(value)
    return found


def test_a_scrape_is_a_tick_of_its_own_collector_over_one_connection(reader_of: ReaderOf) -> None:
    exporter = Exporter(text(GOOD))
    with http_server(exporter.respond) as url:
        reader = reader_of(url)
        ticks = [reader.read(TICK_MS + second * 1000) for second in range(3)]
        reader.close()
        reader.close()
    assert [tick.collector for tick in ticks] == ["dcgm"] * 3
    assert values_of(ticks[2], "gpu_temperature_celsius") == {"GPU-a": 41}
    entity = ticks[2].contents[0].entities.entities[0]
    assert dict(entity.attributes) == {"gpu_model": "NVIDIA H200", "index": "0"}
    assert ticks[1].contents[0].entities is ticks[2].contents[0].entities
    assert len(exporter.connections) == 1
    assert exporter.asked[0]["path"] == "/metrics?x=1"
    assert "openmetrics" in exporter.asked[0]["accept"]


@pytest.mark.parametrize("split", [False, True], ids=["one member", "two members"])
def test_gzip_of_any_number_of_members(split: bool, reader_of: ReaderOf) -> None:
    body = gzip.compress(GOOD[:20]) + gzip.compress(GOOD[20:]) if split else gzip.compress(GOOD)
    with http_server(Exporter(text(body, **{"content-encoding": "gzip"})).respond) as url:
        assert values_of(reader_of(url).read(TICK_MS), "gpu_temperature_celsius") == {"GPU-a": 41}


def test_the_content_type_chooses_the_format(reader_of: ReaderOf) -> None:
    openmetrics = b"# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total 5 1717235999.9\n# EOF\n"
    with http_server(Exporter(text(openmetrics, "application/openmetrics-text; version=1.0.0")).respond) as url:
        tick = reader_of(url).read(TICK_MS)
    assert list(values_of(tick, "inference_prompt_tokens_total").values()) == [5]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (text(b"x" * 5000), "body_too_large"),
        (text(gzip.compress(b"x" * 100_000), **{"content-encoding": "gzip"}), "body_too_large"),
        (text(b"a 1\n" * 200), "too_many_samples"),
        (text(gzip.compress(GOOD)[:-9], **{"content-encoding": "gzip"}), "bad_encoding"),
        (text(b"no gzip", **{"content-encoding": "gzip"}), "bad_encoding"),
        (text(GOOD, **{"content-encoding": "br"}), "bad_encoding"),
    ],
)
def test_too_much_or_garbled_fails_the_scrape_as_a_whole(answer: Answer, code: str, reader_of: ReaderOf) -> None:
    exporter = Exporter(answer, text(GOOD))
    with http_server(exporter.respond) as url:
        reader = reader_of(url, body_limit_bytes=4096, sample_limit=100)
        with pytest.raises(Rejected) as refused:
            reader.read(TICK_MS)
        assert refused.value.code == code
        assert values_of(reader.read(TICK_MS), "gpu_temperature_celsius") == {"GPU-a": 41}


@pytest.mark.parametrize("answer", [Answer(503, {}, b""), Answer(302, {"location": "/"}, b""), text(b"")])
def test_an_answer_without_data_is_a_failed_scrape(answer: Answer, reader_of: ReaderOf) -> None:
    with http_server(Exporter(answer).respond) as url, pytest.raises(Retryable):
        reader_of(url).read(TICK_MS)


def test_a_scrape_without_a_known_sample_has_failed_although_the_target_answers(reader_of: ReaderOf) -> None:
    blocks = (CASES / "069-empty-scrape-at-startup.scrapes").read_text().split("###")[1:]
    exporter = Exporter(*(text(block.partition("\n")[2].encode()) for block in blocks[:2]), text(GOOD))
    with http_server(exporter.respond) as url:
        reader = reader_of(url)
        for _ in range(2):
            with pytest.raises(Retryable):
                reader.read(TICK_MS)
        assert values_of(reader.read(TICK_MS), "gpu_temperature_celsius") == {"GPU-a": 41}


def test_a_target_that_is_down_or_breaks_off_fails_and_comes_back(reader_of: ReaderOf) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        reader = reader_of(f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(Retryable):
            reader.read(TICK_MS)
    cut = Exporter(text(GOOD))

    def respond(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if cut.asked:
            cut.respond(handler, body)
            return
        cut.asked.append({})
        handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nDCGM_FI_DEV_GPU_TEMP")
        handler.close_connection = True

    with http_server(respond) as url:
        reader = reader_of(url)
        with pytest.raises(Retryable):
            reader.read(TICK_MS)
        assert values_of(reader.read(TICK_MS), "gpu_temperature_celsius") == {"GPU-a": 41}


def test_a_server_that_dribbles_is_cut_off_at_the_deadline(reader_of: ReaderOf) -> None:
    released = threading.Event()

    def respond(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while not released.wait(0.02):
            handler.wfile.write(b"#")

    def dribble(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        try:
            respond(handler, body)
        except OSError:
            released.set()

    with http_server(dribble) as url:
        with pytest.raises(Retryable):
            reader_of(url, timeout_seconds=0.3).read(TICK_MS)
        assert released.wait(20)


def test_a_kept_connection_that_the_server_closed_is_opened_again(reader_of: ReaderOf) -> None:
    exporter = Exporter(text(GOOD))

    def respond(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        exporter.respond(handler, body)
        handler.close_connection = True

    with http_server(respond) as url:
        reader = reader_of(url)
        for _ in range(3):
            assert values_of(reader.read(TICK_MS), "gpu_temperature_celsius") == {"GPU-a": 41}
    assert len(exporter.connections) == 3


def test_an_engine_that_is_down_is_said_to_be_down(reader_of: ReaderOf) -> None:
    exporter = Exporter(text(ENGINE), Answer(500, {}, b""), text(b""), text(ENGINE))
    with http_server(exporter.respond) as url:
        port = int(url.rsplit(":", 1)[1])
        reader = reader_of(url, name="vllm", inference=True)
        ups = [values_of(reader.read(TICK_MS), "inference_engine_up") for _ in range(4)]
    assert ups == [{f"host-1:{port}/m": up} for up in (1, 0, 0, 1)]
    never = reader_of("http://127.0.0.1:9", name="vllm", inference=True, model="big")
    assert values_of(never.read(TICK_MS), "inference_engine_up") == {"host-1:9/big": 0}


def test_a_token_is_sent_from_its_file(tmp_path: Path, reader_of: ReaderOf) -> None:
    (tmp_path / "token").write_text("secret\n")
    exporter = Exporter(text(GOOD))
    with http_server(exporter.respond) as url:
        reader_of(url, token_file=tmp_path / "token").read(TICK_MS)
    assert exporter.asked[0]["authorization"] == "Bearer secret"


def test_remote_targets_make_contents_of_several_hosts(reader_of: ReaderOf) -> None:
    body = b'node_load1{instance="node-b:9100"} 1\nnode_load1{instance="node-c:9100"} 2\n'
    with http_server(Exporter(text(body)).respond) as url:
        tick = reader_of(url, remote=True).read(TICK_MS)
    assert [(content.entities.host_id, content.schema.kind) for content in tick.contents] == [
        ("node-b", EntityKind.NODE),
        ("node-c", EntityKind.NODE),
    ]


@pytest.mark.parametrize("url", ["ftp://host/", "host:9400/metrics", "http:///metrics", "file:///etc/passwd"])
def test_addresses_that_are_no_http(url: str) -> None:
    with pytest.raises(Rejected) as refused:
        Connection(url, SystemClock())
    assert refused.value.code == "bad_url"


def test_expected_files_are_all_used() -> None:
    for path in CASES.glob("*.expected.json"):
        assert path.with_name(path.name.removesuffix(".expected.json")).exists()
        assert json.loads(path.read_text())
