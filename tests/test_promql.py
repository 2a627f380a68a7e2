"""PromQL over the store: the same expressions to a real Prometheus that holds the same samples, and what is refused."""

import json
import math
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_client import Answer, Client, serving
from prometheus_server import prometheus_of
from query_fixture import T0, Row, insert_allocation, insert_entity, insert_progress, insert_rollups, insert_rows
from secondsight.access.identity import Role
from secondsight.access.metadata import open_metadata
from secondsight.access.scope import Grant
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.api.app import make_app
from secondsight.api.config import ApiConfig
from secondsight.api.services import make_services
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.promql.names import reading_of
from secondsight.promql.samples import OF_STEPS, quantile
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate

CATALOG = load_catalog()
CASES = Path(__file__).parent / "cases" / "promql"
EXPRESSIONS = json.loads((CASES / "expressions.json").read_text())
REFUSED = json.loads((CASES / "refused.json").read_text())
SECONDS = 900
NOW = T0 + SECONDS * 1000 + 4_000
AT = T0 + 600_000
GPUS = (("c1", "h1", "GPU-a", "0"), ("c1", "h1", "GPU-b", "1"), ("c2", "h2", "GPU-c", "0"))
NAMES = {
    "DCGM_FI_DEV_GPU_TEMP": "gpu_temperature_celsius",
    "DCGM_FI_DEV_GPU_UTIL": "gpu_utilization_ratio",
    "DCGM_FI_DEV_POWER_USAGE": "gpu_power_watts",
    "DCGM_FI_DEV_SM_CLOCK": "gpu_sm_clock_hertz",
    "DCGM_FI_DEV_FB_USED": "gpu_memory_used_bytes",
    "DCGM_FI_DEV_FB_FREE": "gpu_memory_free_bytes",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "gpu_energy_joules_total",
    "DCGM_FI_DEV_PSTATE": "gpu_performance_state",
}
OWNER = {"job": "j1", "team": "ml"}
BY_SECOND = ("quantile_over_time", "irate", "delta", "deriv", "stdvar_o", "stddev_o", "predict_", ":")
STEPPED = [case for case in EXPRESSIONS if not any(word in case["query"] for word in ("@", "time()", *BY_SECOND))]
"""What is of its own time is another one a step later; functions of single seconds see the step's own second, and
subqueries have steps of their own, each of which sees the windows that have ended, as `peer` says."""
SECONDLY = [case for case in EXPRESSIONS if any(word in case["query"] for word in BY_SECOND)]


def stored(number: int, second: int) -> dict[str, float]:
    """Return what one GPU stores of one second; one of them is silent for a while, and one counter begins anew."""
    used = (second * 7 + number * 31) % 80_000
    return {
        "gpu_temperature_celsius": 40 + (second * 3 + number * 7) % 41,
        "gpu_utilization_ratio": ((second * 11 + number * 37) % 101) * 100,
        "gpu_power_watts": 100_000 * (number + 1) + (second * 17) % 997 * 10,
        "gpu_sm_clock_hertz": 1200 + (second * 13 + number) % 700,
        "gpu_memory_used_bytes": used * 2**20,
        "gpu_memory_free_bytes": (81_920 - used) * 2**20,
        "gpu_energy_joules_total": (second if number < 2 or second < 450 else second - 450) * 250_000 + 1000,
        "gpu_performance_state": second // 40 % 3,
    }


def rows() -> list[Row]:
    return [
        Row(
            T0 + second * 1000,
            entity,
            stored(number, second),
            cluster=cluster,
            host=host,
            collector=f"agent-{host}",
            **(OWNER if entity == "GPU-c" else {}),
        )
        for number, (cluster, host, entity, _) in enumerate(GPUS)
        for second in range(SECONDS)
        if not (entity == "GPU-b" and 400 <= second < 430)
    ]


def exposition(made: list[Row]) -> str:
    """Return the same samples as dcgm-exporter's names, labels and units have them."""
    lines = []
    for name, own in NAMES.items():
        reading = reading_of(name, CATALOG)
        lines.append(f"# TYPE {name} gauge")
        for row in made:
            index = next(gpu[3] for gpu in GPUS if gpu[2] == row.entity)
            labels = {"UUID": row.entity, "gpu": index, "device": f"nvidia{index}", "modelName": "H100"}
            labels |= {"Hostname": row.host, "instance": row.host, "cluster": row.cluster, "tenant": row.tenant}
            value = row.values[own] * CATALOG.get(own).resolution * reading.factor
            written = ",".join(f'{key}="{text}"' for key, text in labels.items())
            lines.append(f"{name}{{{written}}} {value!r} {row.t / 1000}")
    return "\n".join([*lines, "# EOF", ""])


class Site:
    """An api over a store with the rows, and tokens that see all, one cluster, or a stranger's tenant."""

    def __init__(self, folder: Path) -> None:
        self.store = store = ChdbStore(folder / "hot")
        migrate(store, CATALOG)
        made = rows()
        insert_rows(store, [*made, Row(AT, "GPU-secret", {"gpu_power_watts": 1}, tenant="t2", host="secret-host")])
        insert_rollups(store, made)
        for row in {row.series: row for row in made}.values():
            index = next(gpu[3] for gpu in GPUS if gpu[2] == row.entity)
            insert_entity(store, row, T0, index=index)
        insert_entity(store, Row(AT, "GPU-secret", {}, tenant="t2", host="secret-host"), T0)
        for row in {row.host: row for row in made}.values():
            insert_progress(store, row, T0 + SECONDS * 1000, T0 + SECONDS * 1000)
            insert_allocation(
                store, Row(T0, row.entity, {}, cluster=row.cluster, host=row.host, job="j1", team="ml"), T0
            )
        metadata = open_metadata(f"sqlite:///{folder / 'metadata.sqlite'}")
        (folder / "static").mkdir()
        (folder / "static" / "index.html").write_text("<!doctype html><title>Secondsight</title>")
        self.config = ApiConfig(data=folder, static=folder / "static")
        self.services = make_services(self.config, store, metadata, CATALOG, ManualClock(NOW))
        grants = {
            "all": (Grant("t1"),),
            "narrow": (Grant("t1", frozenset({"c2"}), denied_metrics=frozenset({"gpu_power_watts"})),),
            "other": (Grant("t2"),),
        }
        specs = {name: TokenSpec(Role.VIEWER, held[0].tenant_id, name, grants=held) for name, held in grants.items()}
        self.tokens = {name: create_token(metadata, spec, NOW).secret for name, spec in specs.items()}
        self.client: Client

    def get(self, path: str, token: str = "all", **params: Any) -> Answer:
        headers = {"authorization": f"Bearer {self.tokens[token]}"}
        return self.client.request(
            "GET", f"/api/v1/{path}?{urllib.parse.urlencode(params, doseq=True)}", headers=headers
        )

    def data(self, path: str, token: str = "all", **params: Any) -> Any:
        answer = self.get(path, token, **params)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert body["status"] == "success"
        return body["data"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("promql"))
    with serving(make_app(made.services), made.config) as made.client:
        yield made


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with prometheus_of(tmp_path_factory.mktemp("prometheus"), exposition(rows())) as port:
        yield port


def asked(port: int, path: str, **params: Any) -> Any:
    """Ask a Prometheus, whose ranges hold their start in its second version and do not in its third, as here."""
    params["query"] = re.sub(r"\[(\d+)([sm])(:\w*)?\]", _without_start, params["query"])
    address = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(params)}"
    with urllib.request.urlopen(address, timeout=30) as answer:
        return json.loads(answer.read())["data"]


def _without_start(found: re.Match[str]) -> str:
    return f"[{int(found[1]) * (60_000 if found[2] == 'm' else 1_000) - 1}ms{found[3] or ''}]"


def peers_own(case: dict[str, Any]) -> dict[str, str]:
    return {"query": case.get("peer", case["query"])}


def series_of(data: Any) -> dict[tuple[tuple[str, str], ...], dict[float, float]]:
    if data["resultType"] == "scalar":
        return {(): {data["result"][0]: float(data["result"][1])}}
    return {
        tuple(sorted(one["metric"].items())): {at: float(v) for at, v in one.get("values") or [one["value"]]}
        for one in data["result"]
    }


def compare(got: Any, wanted: Any, within: float, shift: float = 0, by: float = 1e-9) -> None:
    mine, theirs = series_of(got), series_of(wanted)
    assert mine.keys() == theirs.keys()
    for labels, points in theirs.items():
        assert mine[labels].keys() == {at + shift for at in points}, labels
        for at, value in points.items():
            found = mine[labels][at + shift]
            assert math.isclose(found, value, rel_tol=within, abs_tol=by) or (
                math.isnan(found) and math.isnan(value)
            ), (
                labels,
                at,
                found,
                value,
            )


@pytest.mark.parametrize("case", EXPRESSIONS, ids=lambda case: case["query"])
class TestBesideAPrometheus:
    def test_at_one_instant(self, site: Site, peer: int, case: dict[str, Any]) -> None:
        params = {"query": case["query"], "time": AT / 1000}
        compare(
            site.data("query", **params),
            asked(peer, "query", **params | peers_own(case)),
            case.get("within", 1e-9),
            by=case.get("by", 1e-9),
        )

    def test_at_every_second(self, site: Site, peer: int, case: dict[str, Any]) -> None:
        start = AT // 1000 - (0 if "within" in case else 190)  # a rate beside a gap is another one there
        params = {"query": case["query"], "start": start, "end": start + 60, "step": "1"}
        got, wanted = site.data("query_range", **params), asked(peer, "query_range", **params | peers_own(case))
        compare(got, wanted, case.get("within", 1e-9), by=case.get("by", 1e-9))


@pytest.mark.parametrize("case", STEPPED, ids=lambda case: case["query"])
def test_at_steps_it_sees_the_windows_that_have_ended(site: Site, peer: int, case: dict[str, Any]) -> None:
    start, end = AT // 1000, AT // 1000 + 240
    got = site.data("query_range", query=case["query"], start=start, end=end, step="30s")
    wanted = asked(peer, "query_range", query=case["query"], start=start - 1, end=end - 1, step="30s")
    compare(got, wanted, case.get("within", 1e-9), shift=1, by=case.get("by", 1e-9))


@pytest.mark.parametrize("case", SECONDLY, ids=lambda case: case["query"])
def test_at_steps_it_sees_every_second(site: Site, peer: int, case: dict[str, Any]) -> None:
    params = {"query": case["query"], "start": AT // 1000 - 190, "end": AT // 1000 + 200, "step": "30s"}
    got, wanted = site.data("query_range", **params), asked(peer, "query_range", **params | peers_own(case))
    compare(got, wanted, case.get("within", 1e-9), by=case.get("by", 1e-9))


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["query"])
def test_what_is_not_offered_is_refused_by_its_name(site: Site, case: dict[str, Any]) -> None:
    answer = site.get("query", query=case["query"], time=AT / 1000)
    body = answer.json()
    assert answer.status_code in (400, 422), body
    assert (body["status"], body["errorType"]) == ("error", "bad_data")
    assert body["error"].startswith(f"{case['code']}: ")
    assert case["says"] in body["error"]


def test_names_of_the_catalogue_are_in_its_units_and_labels(site: Site) -> None:
    (one,) = site.data("query", query='gpu_utilization_ratio{gpu="GPU-c"}', time=AT / 1000)["result"]
    assert one["metric"] == {
        "__name__": "gpu_utilization_ratio",
        "tenant": "t1",
        "region": "r1",
        "cluster": "c2",
        "host": "h2",
        "gpu": "GPU-c",
        "gpu_index": "0",
        "gpu_model": "H100",
    }
    assert float(one["value"][1]) == stored(2, 600)["gpu_utilization_ratio"] / 10_000
    assert site.data("query", query="gpu_util", time=AT / 1000)["result"][0]["metric"]["__name__"] == "gpu_util"


def test_owners_are_labels_where_they_are_named(site: Site) -> None:
    data = site.data("query", query="sum by (team, job_id) (gpu_power_watts)", time=AT / 1000)
    found = {one["metric"].get("team", ""): float(one["value"][1]) for one in data["result"]}
    power = [stored(number, 600)["gpu_power_watts"] / 1000 for number in range(3)]
    assert found == {"": pytest.approx(power[0] + power[1]), "ml": pytest.approx(power[2])}
    (owned,) = [one["metric"] for one in data["result"] if one["metric"]]
    assert owned == {"team": "ml", "job_id": "j1"}


@pytest.mark.parametrize("when", ["@ -1e9", "@ 1e12", "@ 1e18", "offset 60y", "offset -60y", "offset 300y"])
@pytest.mark.parametrize("what", ["gpu_power_watts%s", "delta(gpu_power_watts[5m]%s)", "deriv(gpu_power_watts[5m:]%s)"])
def test_times_far_from_all_data_hold_nothing(site: Site, what: str, when: str) -> None:
    text = what.replace("%s", f" {when}")
    assert site.data("query", query=text, time=AT / 1000)["result"] == []
    assert site.data("query_range", query=text, start=AT / 1000, end=AT / 1000 + 60, step="7")["result"] == []


@pytest.mark.parametrize("which", ["start()", "end()"])
def test_start_and_end_are_those_of_the_whole_within_subqueries(site: Site, which: str) -> None:
    steps = {"start": AT / 1000 + 1, "end": AT / 1000 + 60, "step": "7"}
    selector = f'gpu_power_watts{{gpu="GPU-a"}} @ {which}'
    (plain,) = site.data("query_range", query=selector, **steps)["result"]
    (within,) = site.data("query_range", query=f"max_over_time(({selector})[2m:30s] offset 5m)", **steps)["result"]
    assert within["values"] == plain["values"]


@pytest.mark.parametrize("name", ["changes", "deriv", "idelta", "last_over_time", "max_over_time", "stddev_over_time"])
def test_steps_between_those_of_a_subquery_may_see_none_of_them(site: Site, name: str) -> None:
    steps = {"start": AT / 1000, "end": AT / 1000 + 120, "step": "10"}
    for text, least in ((f"{name}(gpu_power_watts[20s:1m])", 0), (f"{name}(gpu_power_watts[2m:20s])", 13)):
        found = site.data("query_range", query=text, **steps)["result"]
        assert all(least <= len(one["values"]) <= 13 for one in found)


@pytest.mark.parametrize("samples", [1, 2, 5, 30])
def test_figures_of_all_series_at_once_are_those_of_each(samples: int) -> None:
    random = np.random.default_rng(samples)
    values = random.integers(0, 4, (200, samples)).astype(np.float64)
    values[random.random(values.shape) < 0.4] = np.nan
    values = values[~np.isnan(values).all(axis=1)]
    each, seconds = [row[~np.isnan(row)] for row in values], np.arange(samples) - float(samples)
    assert OF_STEPS["changes"](seconds, values).tolist() == [np.count_nonzero(np.diff(row)) for row in each]
    for share in (0, 0.1, 0.5, 0.9, 1):
        assert quantile(share)(seconds, values) == pytest.approx([np.quantile(row, share) for row in each])


def test_lists_of_series_labels_and_values(site: Site) -> None:
    window = {"start": T0 / 1000, "end": NOW / 1000}
    match = {"match[]": 'DCGM_FI_DEV_GPU_TEMP{cluster="c1"}'}
    assert [one["UUID"] for one in site.data("series", **match, **window)] == ["GPU-a", "GPU-b"]
    assert site.data("label/instance/values", **match, **window) == ["h1"]
    assert site.data("label/gpu/values", **{"match[]": "DCGM_FI_DEV_GPU_TEMP"}, **window) == ["0", "1"]
    assert "instance" in site.data("labels", **match, **window)
    assert {"host", "instance", "gpu"} <= set(site.data("labels", **window))
    names = site.data("label/__name__/values")
    assert {"gpu_power_watts", "DCGM_FI_DEV_POWER_USAGE"} <= set(names)
    assert names == sorted(names)
    assert site.data("metadata", metric="gpu_power_watts")["gpu_power_watts"][0]["type"] == "gauge"
    assert site.data("series", **{"match[]": "DCGM_FI_DEV_GPU_TEMP"}, start=1, end=2) == []
    assert site.data("status/buildinfo")["application"] == "secondsight"


def test_a_form_is_read_as_an_address_is(site: Site) -> None:
    headers = {"authorization": f"Bearer {site.tokens['all']}", "content-type": "application/x-www-form-urlencoded"}
    form = urllib.parse.urlencode({"query": "sum(gpu_power_watts)", "time": AT / 1000})
    answer = site.client.request("POST", "/api/v1/query", form, headers)
    assert answer.json()["data"] == site.data("query", query="sum(gpu_power_watts)", time=AT / 1000)
    assert site.client.request("POST", "/api/v1/query", "x" * 70_000, headers).status_code == 400


def test_nothing_leaves_a_scope(site: Site) -> None:
    window = {"start": T0 / 1000, "end": NOW / 1000}
    match = {"match[]": ["gpu_power_watts", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP"]}
    for path in ("series", "labels", "label/host/values", "label/Hostname/values", "label/__name__/values", "metadata"):
        for token in ("narrow", "all"):
            text = site.get(path, token, **match, **window).text
            assert "secret" not in text
        narrow = site.get(path, "narrow", **match, **window).text
        assert "h1" not in narrow
        assert '"DCGM_FI_DEV_POWER_USAGE"' not in narrow
        assert '"gpu_power_watts"' not in narrow
    refused = site.get("query", "narrow", query="DCGM_FI_DEV_POWER_USAGE", time=AT / 1000)
    assert (refused.status_code, refused.json()["error"].split(":")[0]) == (403, "forbidden_metric")
    (one,) = site.data("query", "narrow", query="DCGM_FI_DEV_GPU_TEMP", time=AT / 1000)["result"]
    assert one["metric"]["UUID"] == "GPU-c"
    (one,) = site.data("query", "other", query="DCGM_FI_DEV_POWER_USAGE", time=AT / 1000)["result"]
    assert (one["metric"]["UUID"], one["metric"]["tenant"]) == ("GPU-secret", "t2")
    assert site.client.get("/api/v1/query", {"query": "up"}).json()["status"] == "error"


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"query": "1"}, 400),
        ({"query": "1", "start": "x", "end": "2", "step": "1"}, 400),
        ({"query": "1", "start": "5", "end": "2", "step": "1"}, 400),
        ({"query": "1", "start": "1", "end": "2", "step": "0"}, 400),
        ({"query": "1", "start": "1", "end": "1e9", "step": "1"}, 422),
        ({"query": "-" * 4_000 + "gpu_power_watts", "start": "1", "end": "2", "step": "1"}, 400),
        ({"query": "(" * 100 + "1" + ")" * 100, "start": "1", "end": "2", "step": "1"}, 400),
        ({"query": "1 + " * 2_000 + "1", "start": "1", "end": "2", "step": "1"}, 400),
    ],
)
def test_bad_ranges_are_told(site: Site, params: dict[str, str], status: int) -> None:
    answer = site.get("query_range", **params)
    assert (answer.status_code, answer.json()["status"]) == (status, "error")


def test_a_gap_inflates_no_rate(site: Site) -> None:
    """The pair across the gap belongs to the second that ends it, and its seconds count with it."""
    times = {"start": T0 / 1000 + 425, "end": T0 / 1000 + 500, "step": "1"}
    data = site.data("query_range", query='rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="1"}[30s])', **times)
    ((_, points),) = series_of(data).items()
    assert set(points.values()) == {250_000.0}


VARIABLES = {"$cluster": ".*", "$host": "h1", "$__rate_interval": "1m"}
BOARDS = sorted((Path(__file__).parent.parent / "deploy" / "grafana").glob("*.json"))


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_panel_of_the_dashboards_is_answered(site: Site, path: Path) -> None:
    board = json.loads(path.read_text())
    queries = [one["query"]["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    matches = [query.removeprefix("label_values(").rsplit(",", 1)[0] for query in queries]
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(expressions) >= 8
    for text in [*matches, *expressions]:
        for name, value in VARIABLES.items():
            text = text.replace(name, value)
        start = AT // 1000
        site.data("query_range", query=text, start=start, end=start + 60, step="15")
