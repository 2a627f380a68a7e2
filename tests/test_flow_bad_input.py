"""Bad input through the public address of a real platform: what is good of it is stored, the rest is kept and counted.

Each case has a host of its own, so that every table can be asked for all that became of it.
"""

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flow_exporter import TEXT, agent, agent_toml, serving
from flow_frames import FRAMES, Tick
from flow_http import send
from flow_tables import Row, Tables
from secondsight.access.identity import Role
from secondsight.access.metadata import open_metadata
from secondsight.access.scope import Grant
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.clock import SystemClock
from secondsight.model import EntityKind, Quality
from secondsight.wire.content import Event, HistogramColumn, Info
from up_rig import Platform, platform

CASES: dict[str, Any] = json.loads((Path(__file__).parent / "cases" / "flow" / "bad_input.json").read_text())
PLAIN = CASES["frames"]["plain"]["values"]
MIB = 1 << 20
SENTINEL_HOST = "sentinels"
SENTINEL_CLOCK_HERTZ = 1_000_000_000
PIECES = 7

pytestmark = pytest.mark.timeout(300)


@dataclass
class Site:
    """A platform with tokens of every role, and the moment that its frames speak of."""

    platform: Platform
    tables: Tables
    tokens: dict[str, str]
    now_ms: int

    def post(self, body: bytes, token: str | None = None, kind: str = FRAMES) -> tuple[int, Any]:
        """Post frames to the public address; return status and answer."""
        secret = self.tokens["collector"] if token is None else token
        return send(self.platform.address, "POST", "/v1/frames", secret, body, kind)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = tmp_path_factory.mktemp("bad") / "data"
    with platform(data, "--listen", "127.0.0.1:0", "--simulate", "0", "--no-local-agent") as running:
        tables = Tables(running)
        now_ms = time.time_ns() // 1_000_000_000 * 1000
        yield Site(running, tables, _tokens(running), now_ms)
        tables.close()


def _tokens(running: Platform) -> dict[str, str]:
    metadata = open_metadata(str(running.data / "metadata.sqlite"))
    specs = {
        "viewer": TokenSpec(Role.VIEWER, "default", "viewer", grants=(Grant("default"),)),
        "narrow": TokenSpec(
            Role.COLLECTOR, "default", "narrow", cluster_id="local", region="local", collector_pattern="own-*"
        ),
    }
    try:
        made = {name: create_token(metadata, spec, SystemClock().now_ms()).secret for name, spec in specs.items()}
    finally:
        metadata.dispose()
    return made | {name: running.token(name) for name in ("admin", "collector")}


def _time_ms(site: Site, case: dict[str, Any]) -> int:
    return case.get("at_epoch_ms", site.now_ms + 1000 * case.get("at_seconds", 0))


@pytest.mark.parametrize("name", CASES["frames"])
def test_frames(site: Site, name: str) -> None:
    case, host = CASES["frames"][name], f"bad-{name}"
    tick = Tick(
        host,
        _time_ms(site, case),
        {metric: [value] for metric, value in case["values"].items()},
        odd=case.get("odd", ()),
        offset_ms=case.get("offset_ms"),
        uncertainty_ms=case.get("uncertainty_ms", 0),
    )
    status, told = site.post(tick.encode())
    assert status == 200
    assert told["accepted"] == case["answer"]["accepted"]
    assert [one["code"] for one in told["rejected"]] == case["answer"]["rejected"]
    _check_raw(site, case, host)
    _check_dead_letters(site, case, host)


def test_histograms_events_and_infos_without_a_place_are_dead_letters(site: Site) -> None:
    """What a frame carries beside its scalars is judged as its columns are."""
    host, time_ms = "bad-extras", site.now_ms
    body = Tick(host, time_ms, {"gpu_power_watts": [312.5]}).encode_with(
        [
            HistogramColumn("gpu_moods", "s", (1.0, 2.0)),
            HistogramColumn("inference_queue_duration_seconds", "s", (1.0, 2.0)),
            HistogramColumn("gpu_temperature_celsius", "Cel", (1.0, 2.0)),
        ],
        [Event(metric, f"GPU-{host}-0", "", time_ms, 7) for metric in ("gpu_tantrum", "gpu_tantrum", "gpu_xid")],
        [Info(metric, f"GPU-{host}-0", "", time_ms, {"name": "H200"}) for metric in ("gpu_gossip", "gpu_info")],
    )
    assert site.post(body)[0] == 200
    lost = ("gpu_gossip", "gpu_moods", "gpu_tantrum", "gpu_temperature_celsius", "inference_queue_duration_seconds")
    dead = [{"stage": "dead_letter", "code": "unknown_metric", "metric": m, "rows": 1, "values": 1} for m in lost]
    dead[lost.index("gpu_tantrum")] |= {"rows": 2, "values": 2}
    _check_raw(site, {"stored": {"gpu_power_watts": 312.5}}, host)
    _check_dead_letters(site, {"dead": dead}, host)
    for table, wanted in (("histograms_1s", []), ("events", ["gpu_xid"]), ("infos", ["gpu_info"])):
        rows = site.tables.wait(
            f"SELECT metric FROM {table} FINAL WHERE host_id = {{host:String}}",
            lambda rows, wanted=wanted: len(rows) >= len(wanted),
            host=host,
        )
        assert [row["metric"] for row in rows] == wanted, table


def _check_raw(site: Site, case: dict[str, Any], host: str) -> None:
    stored = case.get("stored", {})
    if stored:
        site.tables.wait("SELECT 1 FROM gpu_1s WHERE host_id = {host:String}", bool, host=host)
    rows = site.tables.raw(EntityKind.GPU, "host_id = {host:String}", host=host)
    with_values = [row for row in rows if row["values"]]
    assert [row["values"] for row in with_values] == ([pytest.approx(stored)] if stored else [])
    for row in with_values:
        at_ms = site.now_ms + 1000 * case["event_seconds"] if "event_seconds" in case else _time_ms(site, case)
        assert (row["at"], row["correction_ms"]) == (at_ms, case.get("correction_ms", 0))
        assert (row["skew"], row["quality"]) == (case.get("skew", 0), {})


def _check_dead_letters(site: Site, case: dict[str, Any], host: str) -> None:
    wanted = case.get("dead", [])
    sql = "SELECT 1 FROM dead_letters WHERE host_id = {host:String}"
    site.tables.wait(sql, lambda rows: len(rows) >= len(wanted), host=host)
    found = site.tables.dead_letters(host)
    assert [{name: row[name] for name in ("stage", "code", "metric", "rows", "values")} for row in found] == wanted
    assert {row["first_ms"] for row in found} <= {_time_ms(site, case)}


@pytest.mark.parametrize("name", CASES["bodies"])
def test_bodies_that_are_refused_leave_nothing(site: Site, name: str) -> None:
    case, host = CASES["bodies"][name], f"body-{name}"
    tick = Tick(
        host, site.now_ms, {metric: [value] for metric, value in PLAIN.items()}, inline=case.get("inline", True)
    )
    body = _damaged(tick.encode(), case)
    token = site.tokens[case["token_of"]] if "token_of" in case else case.get("token")
    status, told = site.post(body, token, case.get("type", FRAMES))
    assert (status, told["error"]["code"]) == (case["status"], case["code"])
    assert told["error"]["message"]
    _pass_a_good_frame(site, f"after-{name}")
    for table in ("gpu_1s", "dead_letters", "entities"):
        assert site.tables.rows(f"SELECT 1 FROM {table} WHERE host_id = {{host:String}}", host=host) == [], table


def _damaged(frame: bytes, case: dict[str, Any]) -> bytes:
    middle = len(frame) // 2
    match case.get("damage"):
        case "truncated":
            return frame[:-1]
        case "second_truncated":
            return frame + frame[:-1]
        case "flipped":
            return frame[:-3] + bytes([frame[-3] ^ 0x10]) + frame[-2:]
        case "text":
            return b"power=312.5 " * middle
        case "padded":
            return frame * (case["body_mib"] * MIB // len(frame) + 1)
        case _:
            return frame


def _pass_a_good_frame(site: Site, host: str) -> None:
    """Send a frame that is stored: what was sent before it would be there by then, were it stored at all."""
    status, _ = site.post(Tick(host, site.now_ms, {metric: [value] for metric, value in PLAIN.items()}).encode())
    assert status == 200
    assert site.tables.wait("SELECT 1 FROM gpu_1s WHERE host_id = {host:String}", bool, host=host)


@pytest.mark.parametrize("name", CASES["reads"])
def test_reads(site: Site, name: str) -> None:
    case = CASES["reads"][name]
    token = site.tokens[case["token_of"]] if "token_of" in case else case["token"]
    status, told = send(site.platform.address, "GET", "/v1/fleet", token)
    assert status == case["status"]
    assert told.get("error", {}).get("code") == case.get("code")


@pytest.fixture(scope="module")
def sentinel_rows(site: Site, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """Return entity -> row of one scrape in which every GPU has one odd figure and one good one."""
    folder = tmp_path_factory.mktemp("sentinels")
    lines = []
    for name, case in CASES["sentinels"].items():
        lines.append(f'{case["name"]}{{gpu="0",UUID="{_sentinel_gpu(name)}"}} {case["text"]}')
        lines.append(f'DCGM_FI_DEV_SM_CLOCK{{gpu="0",UUID="{_sentinel_gpu(name)}"}} 1000')
    with serving({"/metrics": (TEXT, ["\n".join([*lines, ""]).encode()])}) as exporter:
        settings = {
            "gateway": site.platform.address,
            "token_file": site.platform.data / "tokens" / "collector",
            "spool_dir": folder / "spool",
            "host_id": SENTINEL_HOST,
            "host_metrics": False,
            "batch_seconds": 0.2,
        }
        target = {"name": "dcgm", "url": f"http://127.0.0.1:{exporter.port}/metrics", "timeout_seconds": 10}
        config = folder / "agent.toml"
        config.write_text(agent_toml(settings, [target | {"interval_ms": 2000}]))
        with agent(config):
            sql = "SELECT count() AS rows FROM gpu_1s WHERE host_id = {host:String}"
            enough = len(CASES["sentinels"])
            site.tables.wait(sql, lambda rows: rows[0]["rows"] >= enough, host=SENTINEL_HOST)
    rows = site.tables.raw(EntityKind.GPU, "host_id = {host:String}", host=SENTINEL_HOST)
    assert len(rows) == enough
    return {row["entity"]: row for row in rows}


def _sentinel_gpu(name: str) -> str:
    return f"GPU-{name}"


@pytest.mark.parametrize("name", CASES["sentinels"])
def test_sentinels_are_absent_with_their_reason(sentinel_rows: dict[str, Row], name: str) -> None:
    case, row = CASES["sentinels"][name], sentinel_rows[_sentinel_gpu(name)]
    assert row["values"] == pytest.approx(case.get("stored", {}) | {"gpu_sm_clock_hertz": SENTINEL_CLOCK_HERTZ})
    assert row["quality"] == {metric: Quality[word] for metric, word in case.get("quality", {}).items()}


def test_a_scrape_in_seven_shuffled_and_repeated_requests_is_one_full_row(site: Site) -> None:
    """Pieces of a row make what the same row sent whole makes, raw and in the window."""
    values, at_ms = CASES["scrape_in_pieces"], site.now_ms - 120_000
    names = list(values)
    pieces = [
        Tick("pieces", at_ms, {name: values[name] for name in names[number::PIECES]}, sequence=number)
        for number in range(PIECES)
    ]
    requests = [piece.encode() for piece in pieces for _ in range(2)]
    random.Random(7).shuffle(requests)
    closing = {metric: [value, value] for metric, value in PLAIN.items()}
    bodies = [*requests, Tick("whole", at_ms, values).encode()]
    bodies += [Tick(host, at_ms + 60_000, closing, sequence=PIECES).encode() for host in ("pieces", "whole")]
    for body in bodies:
        assert site.post(body)[0] == 200
    split, whole = (_raw_at(site, host, at_ms) for host in ("pieces", "whole"))
    assert [row["values"] for row in split] == [
        pytest.approx({name: two[gpu] for name, two in values.items()}) for gpu in (0, 1)
    ]
    assert [row["values"] for row in whole] == [row["values"] for row in split]
    assert _windows(site, "pieces", at_ms) == _windows(site, "whole", at_ms) != []


def _raw_at(site: Site, host: str, at_ms: int) -> list[Row]:
    """Return the rows of an instant once they are full."""
    columns = " AND ".join(f"isNotNull({name})" for name in CASES["scrape_in_pieces"])
    sql = f"SELECT 1 FROM gpu_1s FINAL WHERE host_id = {{host:String}} AND {columns}"
    site.tables.wait(sql, lambda rows: len(rows) >= 2, host=host)
    rows = site.tables.raw(EntityKind.GPU, "host_id = {host:String}", host=host)
    return [row for row in rows if row["at"] == at_ms]


def _windows(site: Site, host: str, at_ms: int) -> list[Row]:
    """Return the 30 s rows of the window around an instant without what names host and version."""
    sql = (
        "SELECT * EXCEPT (host_id, entity, collector_id, version) FROM gpu_30s FINAL WHERE host_id = {host:String}"
        " AND samples > 0 AND window_start = toDateTime({start:Int64}, 'UTC') ORDER BY entity"
    )
    rows = site.tables.wait(sql, lambda rows: len(rows) == 2, host=host, start=at_ms // 30_000 * 30)
    for row, power in zip(rows, CASES["scrape_in_pieces"]["gpu_power_watts"], strict=True):
        assert (row["samples"], row["covered_ms"]) == (1, 1000)
        assert row["gpu_power_watts_sum"] == round(power * 1000) * 1000
        assert row["gpu_power_watts_last"] == round(power * 1000)
    return rows
