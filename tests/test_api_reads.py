import io
import json
from base64 import b64decode
from pathlib import Path
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api_client import Client, serving
from query_fixture import T0, Row, insert_entity, insert_progress, insert_rollups, insert_rows
from secondsight.access.identity import Role
from secondsight.access.metadata import open_metadata
from secondsight.access.scope import Grant
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.api.app import make_app, make_routes
from secondsight.api.config import ApiConfig
from secondsight.api.models import QueryAnswer, TopAnswer
from secondsight.api.reference import collector_answer
from secondsight.api.series import ARROW, CSV, JSON
from secondsight.api.services import make_services
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.errors import Permanent, Retryable
from secondsight.query.times import format_time, parse_time
from secondsight.store.chdb import ChdbStore
from secondsight.store.failures import QueryLimited
from secondsight.store.migrate import migrate

CATALOG = load_catalog()
NOW = T0 + 605_000
RANGE = {"from": str(T0), "to": str(T0 + 600_000)}
GAUGE = "gpu_utilization_ratio"


def rows(age_seconds=None):
    made = []
    for tenant, cluster, host, entity, base in (
        ("t1", "c1", "h1", "GPU-a", 1000),
        ("t1", "c1", "h1", "GPU-b", 2000),
        ("t1", "c2", "h2", "GPU-c", 3000),
        ("t2", "secret-cluster", "secret-host", "GPU-secret", 9000),
    ):
        for second in range(500 if entity == "GPU-c" else 603):
            values = {
                GAUGE: base + second,
                "gpu_power_watts": base * 100,
                "gpu_temperature_celsius": base // 100,
                "gpu_energy_joules_total": 500_000 * second + 1,
                "gpu_performance_state": second // 100,
            }
            at = T0 + second * 1000
            made.append(Row(at, entity, values, tenant=tenant, cluster=cluster, host=host, collector=f"agent-{host}"))
    return made


class Api:
    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(NOW)
        self.store = ChdbStore(folder / "hot", readers=4)
        migrate(self.store, CATALOG)
        insert_rows(self.store, rows())
        insert_rollups(self.store, rows(), T0 + 300_000)
        for row in {row.series: row for row in rows()}.values():
            insert_entity(self.store, row, T0)
        bare = Row(T0, "login-1", {}, tenant="t1", cluster="c1", host="login-1", collector="agent-login-1")
        insert_entity(self.store, bare, T0, kind="node")
        for row in {(row.tenant, row.host): row for row in rows()}.values():
            insert_progress(self.store, row, T0 + 602_000, T0 + 300_000, idle=row.host == "h2")
        self.metadata = open_metadata(f"sqlite:///{folder / 'metadata.sqlite'}")
        static = folder / "static"
        (static / "assets").mkdir(parents=True)
        (static / "index.html").write_text("<!doctype html><title>Secondsight</title>")
        (static / "assets" / "app-1.js").write_text("export {};")
        (folder / "metadata.toml").write_text("not for you")
        self.config = ApiConfig(data=folder, static=static)
        self.services = make_services(self.config, self.store, self.metadata, CATALOG, self.clock)
        self.tokens = {
            name: create_token(self.metadata, spec, NOW).secret
            for name, spec in {
                "admin": TokenSpec(Role.ADMIN, "t1", "admin"),
                "other": TokenSpec(Role.VIEWER, "t2", "other", grants=(Grant("t2"),)),
                "narrow": TokenSpec(
                    Role.VIEWER,
                    "t1",
                    "narrow",
                    grants=(Grant("t1", frozenset({"c2"}), denied_metrics=frozenset({"gpu_power_watts"})),),
                ),
                "collector": TokenSpec(Role.COLLECTOR, "t1", "c", cluster_id="c1", collector_pattern="*"),
                "nothing": TokenSpec(Role.VIEWER, "t1", "nothing"),
            }.items()
        }

    def get(self, path, token="admin", headers=None, **params):
        bearer = {"authorization": f"Bearer {self.tokens[token]}"} if token else {}
        return self.client.get(path, params, bearer | (headers or {}))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory):
    made = Api(tmp_path_factory.mktemp("api"))
    with serving(make_app(made.services), made.config) as made.client:
        yield made


def test_a_series_has_the_shape_that_was_promised(api):
    answer = api.get("/v1/metrics/query", metric="gpu_util", gpu="GPU-a", **RANGE)
    assert answer.status_code == 200
    body = answer.json()
    QueryAnswer.model_validate(body)
    assert body["metric"] == GAUGE
    assert body["effectiveResolution"] == "1s"
    assert body["tier"] == "hot"
    assert body["completeThrough"] == "2023-11-14T22:29:52.000Z"
    assert body["dataFreshnessMs"] == 3000
    assert body["coverage"] == {"expectedSamples": 595, "storedSamples": 595, "ratio": 1.0, "gaps": 0, "shed": 0}
    (series,) = body["series"]
    assert series["gpuId"] == "GPU-a"
    assert series["points"][0] == {"ts": "2023-11-14T22:20:00.000Z", "value": 0.1}
    assert api.get(series["links"]["raw"]).status_code == 200
    assert api.get(series["links"]["host"]).status_code == 200


def test_columns_csv_and_arrow_agree_with_rows(api):
    asked = {"metrics": f"{GAUGE},power", "cluster": "c1", "resolution": "30s", **RANGE}
    points = [
        (point["ts"], series["metric"], series["gpuId"], point["value"])
        for series in api.get("/v1/metrics/query", **asked).json()["series"]
        for point in series["points"]
    ]
    assert len(points) == 80
    columns = api.get("/v1/metrics/query", format="columns", **asked).json()
    QueryAnswer.model_validate(columns)
    assert [value for series in columns["series"] for value in series["values"]] == [point[3] for point in points]
    lines = api.get("/v1/metrics/query", headers={"accept": "text/csv"}, **asked).text.splitlines()
    assert [tuple(line.split(",")[:2]) for line in lines[1:]] == [point[:2] for point in points]
    arrow = api.get("/v1/metrics/query", headers={"accept": "application/vnd.apache.arrow.stream"}, **asked)
    table = pa.ipc.open_stream(io.BytesIO(arrow.content)).read_all()
    assert table["value"].to_pylist() == [point[3] for point in points]
    parquet = pq.read_table(io.BytesIO(api.get("/v1/metrics/query", format="parquet", **asked).content))
    assert parquet["value"].to_pylist() == [point[3] for point in points]
    assert parquet["ts"].to_pylist() == table["ts"].to_pylist()


@pytest.mark.parametrize(
    ("accept", "form", "written"),
    [
        ("", "", JSON),
        ("*/*", "", JSON),
        ("text/csv;q=0", "", JSON),
        ("text/csv; q=0.000, application/json", "", JSON),
        ("text/csv;q=often", "", JSON),
        ("text/csvish", "", JSON),
        ("Text/CSV; header=present", "", CSV),
        ("application/json;q=0.5, text/csv;q=0.9", "", CSV),
        ("text/csv;q=0.5, application/json", "", JSON),
        (f"text/csv;q=0, {ARROW}", "", ARROW),
        ("text/csv", "columns", CSV),
        ("", "csv", CSV),
        ("application/json", "arrow", ARROW),
    ],
)
def test_an_answer_has_the_type_that_was_asked_for(api, accept, form, written):
    asked = {"metrics": "power", "resolution": "30s", **RANGE, **({"format": form} if form else {})}
    for path in ("/v1/metrics/query", "/v1/gpus/GPU-a/telemetry"):
        answer = api.get(path, headers={"accept": accept} if accept else {}, **asked)
        assert answer.status_code == 200
        assert answer.headers["content-type"].partition(";")[0] == written


def test_telemetry_gives_every_metric_of_one_gpu(api):
    names = "gpu_utilization_ratio,gpu_power_watts,gpu_energy_joules_total,gpu_performance_state"
    body = api.get("/v1/gpus/GPU-a/telemetry", metrics=names, resolution="1s", format="columns", **RANGE).json()
    QueryAnswer.model_validate(body)
    assert [(series["metric"], series["aggregate"]) for series in body["series"]] == [
        ("gpu_utilization_ratio", "avg"),
        ("gpu_power_watts", "avg"),
        ("gpu_energy_joules_total", "rate"),
        ("gpu_performance_state", "last"),
    ]
    assert len(body["ts"]) == 600
    assert body["series"][2]["values"][:2] == [None, 500.0]


def test_the_ladder_goes_down_from_the_fleet_to_a_gpu(api):
    fleet = api.get("/v1/fleet").json()
    assert fleet["gpus"] == {"total": 3, "reporting": 2, "silent": 1, "lost": 0, "unknown": 0}
    assert (fleet["hosts"], fleet["clusters"], fleet["powerWatts"]) == (2, 2, 300.0)
    assert fleet["utilizationRatio"] == pytest.approx((0.1602 + 0.2602) / 2)
    assert fleet["hottest"] == {"gpuId": "GPU-b", "hostId": "h1", "index": 0, "temperatureCelsius": 20.0}
    clusters = api.get(fleet["links"]["clusters"]).json()
    assert [cluster["clusterId"] for cluster in clusters["clusters"]] == ["c1", "c2"]
    cluster = api.get(clusters["clusters"][0]["links"]["cluster"]).json()
    assert [host["hostId"] for host in cluster["hosts"]] == ["h1"]
    gpus = api.get(cluster["hosts"][0]["links"]["gpus"]).json()
    assert [gpu["gpuId"] for gpu in gpus["gpus"]] == ["GPU-a", "GPU-b"]
    gpu = api.get(gpus["gpus"][1]["links"]["gpu"]).json()
    assert gpu["values"]["gpu_utilization_ratio"] == 0.2602
    assert gpu["status"] == "reporting"
    assert api.get("/v1/gpus/GPU-c").json()["status"] == "silent"
    assert [gpu["gpuId"] for gpu in api.get("/v1/gpus", status="silent").json()["gpus"]] == ["GPU-c"]


@pytest.mark.parametrize("who", ["admin", "narrow"])
def test_gpus_in_columns_are_those_of_the_list(api, who):
    told, rows = api.get("/v1/fleet/gpus", who).json(), api.get("/v1/gpus", who).json()["gpus"]
    names = {key: [row[key] for row in rows] for key in told["names"]}
    assert told["names"] == names
    assert told["values"] == {metric: [row["values"][metric] for row in rows] for metric in told["values"]}
    noted = {one["at"]: one for one in told["notable"]}
    well = {"status": "reporting", "health": {"verdict": "healthy", "evidence": []}}
    for at, row in enumerate(rows):
        standing = noted.get(at, well)
        assert (standing["status"], standing["health"]) == (row["status"], row["health"])
        behind = told["behindMs"][at]
        seen = None if behind is None else parse_time(told["newest"], NOW) - behind
        assert seen == (None if row["lastSeen"] is None else parse_time(row["lastSeen"], NOW))
    again = api.get("/v1/fleet/gpus", who, layout=told["layout"]).json()
    assert (again["names"], again["values"]) == (None, told["values"])
    cluster = rows[0]["clusterId"]
    part = api.get("/v1/fleet/gpus", who, cluster=cluster, layout=told["layout"]).json()
    assert part["total"] == sum(row["clusterId"] == cluster for row in rows)


def test_a_host_without_gpus_has_none(api):
    assert api.get("/v1/nodes/login-1/gpus").json()["gpus"] == []
    assert api.get("/v1/nodes/login-1/gpus", "narrow").status_code == 404
    assert api.get("/v1/nodes/login-2/gpus").status_code == 404


def test_lists_are_paged(api):
    first = api.get("/v1/gpus", limit=2).json()
    assert (len(first["gpus"]), first["total"], first["nextCursor"]) == (2, 3, "2")
    second = api.get("/v1/gpus", limit=2, cursor=first["nextCursor"]).json()
    assert ([gpu["gpuId"] for gpu in second["gpus"]], second["nextCursor"]) == (["GPU-c"], None)


def test_a_part_is_asked_for_by_its_whole_name(api):
    def parts(*asked):
        query = urlencode([("metric", GAUGE), *RANGE.items(), *(("part", part) for part in asked)])
        return [series["part"] for series in api.get(f"/v1/metrics/query?{query}").json()["series"]]

    insert_rows(
        api.store,
        [
            Row(T0, "GPU-parts", {GAUGE: 1}, cluster="c1", host="h1", collector="agent-h1", part=part)
            for part in ("mig=1", "mig=1,slice=a", "slice=a")
        ],
    )
    assert parts("mig=1,slice=a") == ["mig=1,slice=a"]
    assert parts("mig=1,slice=a", "mig=1") == ["mig=1", "mig=1,slice=a"]
    assert parts(",,") == []


def test_a_ranking(api):
    body = api.get("/v1/top", metric=GAUGE, window="5m", n=2).json()
    TopAnswer.model_validate(body)
    assert [(row["rank"], row["gpuId"]) for row in body["rows"]] == [(1, "GPU-c"), (2, "GPU-b")]
    lowest = api.get("/v1/top", metric=GAUGE, n=1, order="lowest").json()
    assert [row["gpuId"] for row in lowest["rows"]] == ["GPU-a"]


def test_catalogue_and_collectors(api):
    metrics = {metric["name"]: metric for metric in api.get("/v1/catalog").json()["metrics"]}
    assert metrics[GAUGE]["aggregates"][0] == "avg"
    assert metrics["gpu_energy_joules_total"]["aggregates"] == ["rate", "increase", "resets", "last"]
    assert "gpu_power_watts" not in {m["name"] for m in api.get("/v1/catalog", "narrow").json()["metrics"]}
    collectors = api.get("/v1/collectors").json()["collectors"]
    assert [(one["collectorId"], one["idle"]) for one in collectors] == [("agent-h1", False), ("agent-h2", True)]


def test_a_collector_that_has_sent_no_sample_has_no_times_and_no_lag():
    names = ("watermark", "newest_event_time", "last_ingest_time", "rollup_through")
    told = dict.fromkeys(("tenant_id", "cluster_id", "host_id", "collector_id"), "x")
    row = {**told, **dict.fromkeys((f"{name}_ms" for name in names), 0), "idle": 0, "backlog": 0}
    shown = collector_answer(row, NOW)
    assert [getattr(shown, name) for name in (*names, "lag_ms")] == [None] * 5
    assert collector_answer(row | {"newest_event_time_ms": NOW - 5}, NOW).lag_ms == 5


REFUSALS = json.loads((Path(__file__).parent / "cases" / "query" / "refusals.json").read_text())


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case["name"])
def test_refusals_say_what_to_do(api, case):
    answer = api.get(case["path"], case.get("token", "admin"), **case.get("params", {}))
    assert (answer.status_code, answer.json()["error"]["code"]) == (case["status"], case["code"])
    assert case.get("hint", "") in answer.json()["error"]["hint"]
    assert set(answer.json()["error"]) == {"code", "message", "hint"}


FOREIGN = [
    ("/v1/gpus/{}", "GPU-secret"),
    ("/v1/gpus/{}/telemetry?metrics=power", "GPU-secret"),
    ("/v1/clusters/{}", "secret-cluster"),
    ("/v1/nodes/{}/gpus", "secret-host"),
    ("/v1/metrics/query?metric=power&cluster={}", "secret-cluster"),
    ("/v1/metrics/query?metric=power&gpu={}", "GPU-secret"),
    ("/v1/top?metric=power&host={}", "secret-host"),
    ("/v1/gpus?cluster={}", "secret-cluster"),
]


@pytest.mark.parametrize(("path", "name"), FOREIGN)
def test_what_is_forbidden_looks_like_what_is_not_there(api, path, name):
    nowhere = name.replace("secret", "sqcrqt")
    forbidden, absent = (api.get(path.format(one)) for one in (name, nowhere))
    assert forbidden.status_code == absent.status_code
    assert forbidden.text.replace(name, nowhere) == absent.text
    assert api.get(path.format(name), "other").text != forbidden.text


PATHS = [
    "/v1/fleet",
    "/v1/gpus",
    "/v1/clusters",
    "/v1/collectors",
    "/v1/metrics/query?metric=gpu_util",
    "/v1/metrics/query?metric=gpu_util&groupBy=cluster&resolution=30s",
    "/v1/top?metric=gpu_util",
]


@pytest.mark.parametrize("path", PATHS)
def test_no_answer_names_another_tenant(api, path):
    assert "secret" in api.get(path, "other").text
    assert "secret" not in api.get(path).text
    assert "GPU-a" not in api.get(path, "narrow").text


@pytest.mark.parametrize("path", [*PATHS, "/v1/catalog", "/v1/session"])
def test_nothing_is_read_without_a_token(api, path):
    assert api.get(path, None).status_code == 401
    assert api.get(path, None, headers={"authorization": "Bearer wrong"}).status_code == 401
    if path != "/v1/session":
        assert api.get(path, "collector").status_code == 403
        assert api.get(path, "nothing").status_code == 403


def test_signing_in_and_out(api):
    client = Client(api.client.port)
    assert client.get("/v1/fleet").status_code == 401
    assert client.post("/v1/session", {"token": "wrong"}).json()["error"]["code"] == "token_invalid"
    assert client.post("/v1/session", {"token": api.tokens["collector"]}).status_code == 403
    answer = client.post("/v1/session", {"token": api.tokens["narrow"] + "\n"})
    assert answer.json() == {"tenantId": "t1", "name": "narrow", "role": "viewer"}
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/v1/session").json()["name"] == "narrow"
    assert client.get("/v1/fleet").json()["clusters"] == 1
    assert client.request("DELETE", "/v1/session").status_code == 204
    assert client.get("/v1/fleet").status_code == 401
    client.close()


def test_pages_and_their_headers(api):
    for path in ("/", "/fleet", "/gpus/GPU-a"):
        page = api.get(path, None)
        assert page.status_code == 200
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert page.headers["x-content-type-options"] == "nosniff"
    assert "immutable" in api.get("/assets/app-1.js", None).headers["cache-control"]
    assert api.get("/assets/nothing.js", None).status_code == 404
    assert api.get("/v1/nothing").json()["error"]["code"] == "not_found"
    for path in ("/../metadata.toml", "/%2e%2e/metadata.toml", "/assets/%2e%2e/%2e%2e/metadata.toml"):
        assert "not for you" not in api.get(path, None).text
    assert api.get("/v1/fleet").headers["cache-control"] == "no-store"


def test_unbuilt_pages_say_so(api, tmp_path):
    config = ApiConfig(tmp_path, static=tmp_path)
    services = make_services(config, FailingStore(ValueError()), api.metadata, CATALOG, api.clock)
    with serving(make_app(services), config) as client:
        page = client.get("/")
    assert page.status_code == 503
    assert "make web" in page.text


def test_big_answers_are_compressed(api):
    answer = api.get("/v1/metrics/query", metric="power", headers={"accept-encoding": "gzip"}, **RANGE)
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) < len(answer.content) / 3
    plain = api.get("/v1/metrics/query", metric="power", **RANGE)
    assert plain.json()["series"] == answer.json()["series"]


class FailingStore:
    """A store that fails as told."""

    def __init__(self, error):
        self.error = error

    def query(self, *_, **__):
        raise self.error

    insert = query

    def close(self):
        pass


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Retryable("chdb: SELECT secret", retry_after_seconds=3), 503, "unavailable"),
        (QueryLimited(241), 422, "query_too_expensive"),
        (Permanent("Code: 60. Table secret does not exist: SELECT secret FROM t"), 500, "internal"),
        (ValueError("SELECT secret"), 500, "internal"),
    ],
)
def test_failures_of_the_store_say_nothing_of_it(api, error, status, code):
    services = make_services(api.config, FailingStore(error), api.metadata, CATALOG, api.clock)
    bearer = {"authorization": f"Bearer {api.tokens['admin']}"}
    with serving(make_app(services), api.config) as client:
        for path in ("/v1/metrics/query?metric=power", "/v1/fleet", "/v1/collectors"):
            answer = client.get(path, headers=bearer)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
            assert "secret" not in answer.text
            assert ("retry-after" in answer.headers) == (status == 503)
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == status


OF_ANOTHER_TYPE = {"/metrics", "/v1/live", "/v1/session/login", "/v1/session/callback"}
"""Text, events, pages and redirections; what Prometheus' clients ask has the shapes of Prometheus."""


def test_the_description_names_every_route_and_type(api):
    described = make_routes(api.services).openapi()
    paths = set(described["paths"])
    assert {"/v1/metrics/query", "/v1/gpus/{gpu_id}/telemetry", "/v1/fleet", "/v1/top", "/v1/session"} <= paths
    for path, methods in described["paths"].items():
        if path in OF_ANOTHER_TYPE or path.startswith("/api/v1/"):
            continue
        for method, operation in methods.items():
            answer = operation["responses"].get("200") or operation["responses"].get("201", {})
            content = answer.get("content", {})
            assert method == "delete" or "$ref" in content["application/json"]["schema"], path
    assert "clusterId" in described["components"]["schemas"]["GpuAnswer"]["properties"]


def test_own_metrics_are_exposed(api):
    api.get("/healthz", None)
    told = api.get("/metrics", None).text
    assert 'api_requests_total{method="GET",route="/v1/fleet",status="200"}' in told
    assert 'api_request_duration_seconds_bucket{route="/v1/fleet",le="+Inf"}' in told


def test_every_rung_has_figures(api):
    for path, name, value in (
        ("/v1/clusters/c1/metrics", "clusterId", "c1"),
        ("/v1/nodes/h1/metrics", "hostId", "h1"),
        ("/v1/gpus/GPU-a/metrics", "gpuId", "GPU-a"),
    ):
        body = api.get(path, resolution="30s", **RANGE).json()
        QueryAnswer.model_validate(body)
        assert {series["metric"] for series in body["series"]} == {
            GAUGE,
            "gpu_power_watts",
            "gpu_temperature_celsius",
        }
        assert {series[name] for series in body["series"]} == {value}
    whole = api.get("/v1/clusters/c1/metrics", metric="power", aggregate="sum", resolution="range", **RANGE).json()
    assert [point["value"] for point in whole["series"][0]["points"]] == [300.0]
    for path in ("/v1/clusters/none/metrics", "/v1/jobs/none/metrics", "/v1/clusters/secret-cluster/metrics"):
        assert api.get(path, **RANGE).json()["error"]["code"] == "not_found", path


def cells_of(host):
    """Return the GPUs of a host as they are named one by one."""
    place = {name: host[name] for name in ("tenantId", "clusterId", "rack", "hostId")}
    return [place | {"gpuId": gpu, "index": index} for gpu, index in zip(host["gpuIds"], host["indexes"], strict=True)]


def test_a_frame_of_the_map_is_one_byte_a_gpu(api):
    at = T0 + 499_500
    body = api.get("/v1/fleet/map", at=str(at)).json()
    assert [cell["gpuId"] for cell in body["cells"]] == ["GPU-a", "GPU-b", "GPU-c"]
    frame = b64decode(body["frame"])
    assert len(frame) == body["count"] == 3
    step = (body["high"] - body["low"]) / 254
    values = [body["low"] + (byte - 1) * step for byte in frame]
    assert values == pytest.approx([0.1499, 0.2499, 0.3499], abs=step)
    again = api.get("/v1/fleet/map", at=str(at), layout=body["layout"]).json()
    assert again["cells"] is None
    assert again["frame"] == body["frame"]
    assert again["hosts"] is None
    by_host = api.get("/v1/fleet/map", at=str(at), naming="hosts").json()
    assert by_host["cells"] is None
    assert [cell for host in by_host["hosts"] for cell in cells_of(host)] == body["cells"]
    raw = api.get("/v1/fleet/map", at=str(at), headers={"accept": "application/octet-stream"})
    assert raw.content == frame
    assert raw.headers["x-secondsight-layout"] == body["layout"]
    later = b64decode(api.get("/v1/fleet/map", at=str(T0 + 510_000)).json()["frame"])
    assert later[2] == 0
    assert 0 not in later[:2]
    assert body["behindMs"] == api.clock.now_ms() - at
    newest = api.get("/v1/fleet/map").json()
    assert newest["at"] == format_time(api.clock.now_ms() - newest["behindMs"])
    assert b64decode(newest["frame"]) != bytes(3)
    narrow = api.get("/v1/fleet/map", "narrow", at=str(at)).json()
    assert [cell["gpuId"] for cell in narrow["cells"]] == ["GPU-c"]
    assert api.get("/v1/fleet/map", "narrow", metric="power").json()["error"]["code"] == "forbidden_metric"
    assert api.get("/v1/fleet/map", metric="node_cpu_utilization_ratio").json()["error"]["code"] == "not_a_map"
    assert api.get("/v1/fleet/map", metric="gpu_temperature_celsius").status_code == 200


def test_the_search_finds_what_is_in_scope(api):
    def found(text, token="admin"):
        matches = api.get("/v1/search", token, q=text).json()["matches"]
        return [(match["kind"], match["name"]) for match in matches]

    assert found("h1") == [("host", "h1")]
    assert found("gpu-") == [("gpu", "GPU-a"), ("gpu", "GPU-b"), ("gpu", "GPU-c")]
    assert found("gpu-", "narrow") == [("gpu", "GPU-c")]
    assert found("secret") == []
    page = api.get("/v1/search", q="gpu-", limit=2).json()
    assert (len(page["matches"]), page["total"], page["nextCursor"]) == (2, 3, "2")
    for match in page["matches"]:
        assert api.get(match["links"]["self"]).status_code == 200
    assert api.get("/v1/search", q=" ").json()["error"]["code"] == "bad_search"


def test_health_comes_with_evidence(api):
    fleet = api.get("/v1/fleet").json()["health"]
    assert (fleet["worst"], fleet["healthy"], fleet["unavailable"]) == ("unavailable", 2, 1)
    assert fleet["reasons"] == {"no_telemetry": 1}
    (silent,) = api.get("/v1/gpus", health="unavailable").json()["gpus"]
    assert silent["gpuId"] == "GPU-c"
    assert silent["health"]["evidence"][0]["rule"] == "no_telemetry"
    assert api.get("/v1/gpus/GPU-a").json()["health"] == {"verdict": "healthy", "evidence": []}
    assert api.get("/v1/gpus", health="fine").json()["error"]["code"] == "bad_health"
