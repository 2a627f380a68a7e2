"""Captured expositions through a real agent and a real platform: every value as its note says, and no other.

A case lists everything that a capture gives, so a value that was made up (a 0 where there was none) fails as well as
one that was lost.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flow_exporter import OPENMETRICS, TEXT, Exporter, agent, agent_toml, serving
from flow_tables import Row, Tables
from secondsight.agent.scrape.exposition import parse, syntax_of
from secondsight.agent.scrape.mapping import Mapper
from secondsight.catalog.load import load_catalog
from secondsight.mapping.identity import Origin
from secondsight.model import EntityKind, Quality
from up_rig import Platform, platform, wait_until

CORPUS = Path(__file__).parents[2] / "shared" / "corpus" / "captures" / "prom"
CASES: dict[str, Any] = json.loads((Path(__file__).parent / "cases" / "flow" / "captures.json").read_text())
CAPTURES: dict[str, dict[str, Any]] = CASES["captures"]
CONFORMANCE = "openmetrics_conformance.jsonl"
HOST = "flow-host"
SCRAPES = 3
INTERVAL_MS = 2000

pytestmark = [
    pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no captures to read: {CORPUS} is not there"),
    pytest.mark.timeout(300),
]


@dataclass
class Site:
    """A platform, an exporter for every capture, and the agent that scraped them."""

    platform: Platform
    tables: Tables
    exporter: Exporter
    agent: "subprocess.Popen[bytes]"
    log: Path

    def named(self, text: str) -> str:
        """Return an entity's name with this run's host and port."""
        return text.replace("{host}", HOST).replace("{port}", str(self.exporter.port))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("captures")
    with (
        platform(folder / "data", "--listen", "127.0.0.1:0", "--simulate", "0", "--no-local-agent") as running,
        serving(_bodies()) as exporter,
    ):
        config = folder / "agent.toml"
        config.write_text(_agent_toml(running, exporter, folder))
        tables = Tables(running)
        with agent(config) as process:
            wait_until(lambda: exporter.is_done or process.poll() is not None, 120)
            yield Site(running, tables, exporter, process, config.with_suffix(".log"))
        tables.close()


def _bodies() -> dict[str, tuple[str, list[bytes]]]:
    bodies = {f"/{name}": (_content_type(name), [(CORPUS / name).read_bytes()] * SCRAPES) for name in CAPTURES}
    return bodies | {f"/{CONFORMANCE}": (OPENMETRICS, [text.encode() for text in _conformance_texts()])}


def _content_type(name: str) -> str:
    return OPENMETRICS if name.endswith(".openmetrics") else TEXT


def _conformance_texts() -> list[str]:
    return [json.loads(line)["text"] for line in (CORPUS / CONFORMANCE).read_text().splitlines()]


def _agent_toml(running: Platform, exporter: Exporter, folder: Path) -> str:
    settings = {
        "gateway": running.address,
        "token_file": running.data / "tokens" / "collector",
        "spool_dir": folder / "spool",
        "host_id": HOST,
        "host_metrics": False,
        "batch_seconds": 0.5,
    }
    targets = [_target(name, exporter, INTERVAL_MS) | case.get("settings", {}) for name, case in CAPTURES.items()]
    return agent_toml(settings, [*targets, _target(CONFORMANCE, exporter, 100)])


def _target(name: str, exporter: Exporter, interval_ms: int) -> dict[str, object]:
    url = f"http://127.0.0.1:{exporter.port}/{name}"
    return {"name": _target_name(name), "url": url, "interval_ms": interval_ms, "timeout_seconds": 10}


def _target_name(capture: str) -> str:
    return capture.partition(".")[0]


def _collector(capture: str) -> str:
    return f"{HOST}/{_target_name(capture)}"


def test_every_capture_has_a_case() -> None:
    captures = {path.name for path in CORPUS.iterdir() if not path.name.endswith(".expect.md")}
    assert captures == {*CAPTURES, CONFORMANCE}


def test_units_are_the_catalogue_s() -> None:
    catalog = load_catalog()
    assert {name: catalog.get(name).unit for name in CASES["units"]} == CASES["units"]


@pytest.mark.parametrize("capture", CAPTURES)
def test_the_tables_hold_what_the_capture_says_and_nothing_else(site: Site, capture: str) -> None:
    case = CAPTURES[capture]
    wanted = {kind: _named_rows(site, rows) for kind, rows in case.get("rows", {}).items()}
    sql = " UNION ALL ".join(
        f"SELECT '{kind}' AS kind, count() AS rows FROM {kind}_1s WHERE collector_id = {{collector:String}}"
        for kind in EntityKind
    )
    found = site.tables.wait(
        sql, lambda rows: {row["kind"] for row in rows if row["rows"]} >= set(wanted), collector=_collector(capture)
    )
    assert {row["kind"] for row in found if row["rows"]} == set(wanted)
    for kind, rows in wanted.items():
        for row in site.tables.raw(EntityKind(kind), "collector_id = {c:String}", c=_collector(capture)):
            _check_row(row, _rows_while_up(row, rows))
        assert rows.keys() == _entities_with_values(site, kind, capture)


def _named_rows(site: Site, rows: dict[str, dict[str, float]]) -> dict[tuple[str, str], dict[str, float]]:
    return {_key(site, text): values for text, values in rows.items()}


def _key(site: Site, text: str) -> tuple[str, str]:
    entity, _, part = text.partition("|")
    return site.named(entity), part


def _rows_while_up(row: Row, rows: dict[tuple[str, str], dict[str, float]]) -> dict[str, float]:
    """Return what a row must hold: of an engine that no longer answers, that alone."""
    if row["values"].get("inference_engine_up") == 0:
        return {"inference_engine_up": 0}
    return rows.get((row["entity"], row["part"]), {})


def _check_row(row: Row, wanted: dict[str, float | str]) -> None:
    values = {name: value for name, value in wanted.items() if not isinstance(value, str)}
    assert row["values"] == pytest.approx(values, rel=1e-12), (row["entity"], row["part"])
    qualities = {name: Quality.ESTIMATE for name in CASES["estimates"] if name in wanted}
    qualities |= {name: Quality[value.upper()] for name, value in wanted.items() if isinstance(value, str)}
    assert row["quality"] == qualities
    assert row["skew"] == 0


def _entities_with_values(site: Site, kind: str, capture: str) -> set[tuple[str, str]]:
    rows = site.tables.raw(EntityKind(kind), "collector_id = {c:String}", c=_collector(capture))
    return {(row["entity"], row["part"]) for row in rows if row["values"] not in ({}, {"inference_engine_up": 0})}


@pytest.mark.parametrize("capture", [name for name, case in CAPTURES.items() if "histograms" in case])
def test_histograms_land_raw(site: Site, capture: str) -> None:
    wanted = {
        (metric, site.named(one["entity"]), one["part"], tuple(one["bounds"]), tuple(one["buckets"]), one["sum"])
        for metric, one in CAPTURES[capture]["histograms"].items()
    }
    sql = (
        "SELECT metric, entity, part, bounds, buckets, sum FROM histograms_1s FINAL"
        " WHERE collector_id = {collector:String}"
    )
    rows = site.tables.wait(sql, lambda rows: len(rows) >= len(wanted), collector=_collector(capture))
    found = {
        (row["metric"], row["entity"], row["part"], tuple(row["bounds"]), tuple(row["buckets"]), row["sum"])
        for row in rows
    }
    assert found == wanted


def test_first_tokens_of_the_notes(site: Site) -> None:
    """The notes beside the captures: one observation from 0.25 to 0.5 s; 77.17 % above 30 s, mean 213.65 s."""
    sql = (
        "SELECT any(bounds) AS bounds, any(buckets) AS buckets, any(sum) AS sum FROM histograms_1s"
        " WHERE metric = 'inference_time_to_first_token_seconds' AND collector_id = {collector:String}"
    )
    [vllm] = site.tables.rows(sql, collector=_collector("vllm_v0_opt125m.prom"))
    [sglang] = site.tables.rows(sql, collector=_collector("sglang_overloaded.prom"))
    place = vllm["buckets"].index(1)
    assert (vllm["bounds"][place - 1], vllm["bounds"][place], sum(vllm["buckets"])) == (0.25, 0.5, 1)
    assert vllm["sum"] == pytest.approx(0.31327, abs=1e-5)
    assert sglang["buckets"][-1] / sum(sglang["buckets"]) == pytest.approx(0.7717, abs=1e-4)
    assert sglang["sum"] / sum(sglang["buckets"]) == pytest.approx(213.65, abs=0.01)
    assert sglang["bounds"][-1] == 30


def test_last_value_gauges_are_events(site: Site) -> None:
    wanted = {(_collector(name), *event) for name, case in CAPTURES.items() for event in case.get("events", ())}
    rows = site.tables.rows(
        "SELECT collector_id, metric, entity, code FROM events FINAL"
        " WHERE metric NOT IN ('job_gpu_allocation', 'agent_lifecycle')"
        " AND startsWith(collector_id, {host:String}) AND collector_id != {kernel:String}",
        host=f"{HOST}/",
        kernel=f"{HOST}/kernel",
    )
    assert Counter((r["collector_id"], r["metric"], r["entity"], r["code"]) for r in rows) == Counter(wanted)


def test_what_was_not_stored_is_counted_by_reason(site: Site) -> None:
    """The agent's own rows add up to the lines of all captures that gave no value, for every time they were served."""
    wanted = _conformance_discards()
    for case in CAPTURES.values():
        wanted.update({reason: SCRAPES * count for reason, count in case["discarded"].items()})
    sql = (
        "SELECT part, max(agent_values_discarded_total) AS count FROM platform_1s WHERE collector_id = {host:String}"
        " AND isNotNull(agent_values_discarded_total) GROUP BY part"
    )
    rows = site.tables.wait(sql, lambda rows: _by_reason(rows) == wanted, host=HOST)
    assert _by_reason(rows) == wanted


def _by_reason(rows: list[Row]) -> Counter[str]:
    return Counter({row["part"].removeprefix("reason="): row["count"] for row in rows})


def _conformance_discards() -> Counter[str]:
    """Return what the agent's own reader refuses of the conformance texts, read in their order."""
    mapper, discarded = Mapper(load_catalog(), Origin(HOST, _target_name(CONFORMANCE))), Counter[str]()
    for text in _conformance_texts():
        mapped = mapper.map(parse(text, syntax_of(OPENMETRICS, text)), 1_700_000_000_000)
        discarded.update(mapped.of(HOST).discarded)
    return discarded


def test_refused_texts_leave_no_row(site: Site) -> None:
    refused = [_collector(name) for name, case in CAPTURES.items() if case.get("refused")] + [_collector(CONFORMANCE)]
    tables = [*(f"{kind}_1s" for kind in EntityKind), "histograms_1s", "events", "infos", "dead_letters"]
    for table in tables:
        rows = site.tables.rows(
            f"SELECT DISTINCT collector_id FROM {table} WHERE collector_id IN {{names:Array(String)}}", names=refused
        )
        assert rows == [], table


def test_the_read_api_gives_the_same_values(site: Site) -> None:
    """The fourth GPU stands in one capture alone; an engine's figures come by its own name."""
    now = site.platform.get("/v1/gpus/GPU-00000000-0000-0000-0000-000000000004")
    wanted = CAPTURES["dcgm_4x_h100_pods_xid_codes.prom"]["rows"]["gpu"][now["gpuId"]]
    shown = {name: value for name, value in now["values"].items() if value is not None}
    assert shown == pytest.approx({name: wanted[name] for name in shown})
    assert shown.keys() >= {"gpu_power_watts", "gpu_temperature_celsius", "gpu_memory_used_bytes"}
    answer = site.platform.get("/v1/metrics/query", metric="inference_requests_waiting", resolution="1s")
    ends = {one["entityId"]: {point["value"] for point in one["points"]} for one in answer["series"]}
    assert ends[site.named("{host}:{port}/meta-llama/Llama-3.1-8B-Instruct")] == {2826}
    assert answer["unit"] == "1"


def test_the_agent_lives_and_has_said_what_it_does_not_know(site: Site) -> None:
    assert site.agent.poll() is None
    words = site.log.read_text()
    assert "Traceback" not in words
    assert "nv_trt_llm_general_metrics, which the catalogue does not have" in words
