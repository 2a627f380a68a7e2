"""Histograms by bucket in PromQL, beside a real Prometheus that holds the same samples."""

import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from api_client import serving
from prometheus_server import prometheus_of
from query_fixture import T0, Row, insert_entity, insert_histograms
from secondsight.api.app import make_app
from secondsight.mapping.grid import GRID_BOUNDS
from test_promql import AT, SECONDS, Site, asked, compare

TTFT = "inference_time_to_first_token_seconds"
ITL = "inference_inter_token_latency_seconds"
QUEUE = "inference_queue_duration_seconds"
NAME = "vllm:time_to_first_token_seconds"
BOUNDS = (0.05, 0.1, 0.5, 1.0, 5.0)
ENGINES = (("c1", "h1", "h1:8000/llama"), ("c2", "h2", "h2:8000/llama"), ("c2", "h2", "h2:8001/qwen#1"))
BEGAN_ANEW = 450
RATES = f"rate({NAME}_bucket[60s])"
EXPRESSIONS = (
    f"{NAME}_bucket",
    f"{NAME}_count",
    f"{NAME}_sum",
    f'{NAME}_bucket{{le="0.5", model_name="llama"}}',
    f'{NAME}_bucket{{le=~"0.*|.Inf", host!="h1"}}',
    f'sum by (le) ({NAME}_bucket{{cluster="c2"}} offset 1m)',
    RATES,
    f"rate({NAME}_count[60s])",
    f"rate({NAME}_sum[60s]) / rate({NAME}_count[60s])",
    f"sum by (le, model_name) ({RATES})",
    f"irate({NAME}_bucket[2s])",
    f"last_over_time({NAME}_count[60s])",
    f"histogram_quantile(0.95, sum by (le, model_name) ({RATES}))",
    f"histogram_quantile(0.5, sum by (le) ({RATES}))",
    f"histogram_quantile(0, sum by (le) ({RATES}))",
    f"histogram_quantile(1, sum by (le) ({RATES}))",
    f"histogram_quantile(0.99, {RATES})",
    f"histogram_quantile(-0.1, {RATES})",
    f"histogram_quantile(1.1, {RATES})",
    f"histogram_quantile(0.9, {NAME}_bucket)",
    f'histogram_quantile(0.9, sum by (le) (rate({NAME}_bucket{{le!="+Inf"}}[60s])))',
    f'histogram_quantile(0.9, sum by (le) (rate({NAME}_bucket{{le=~"0.1|0.5|.Inf"}}[60s])))',
    f"histogram_quantile(0.9, sum by (host) ({RATES}))",
    f"histogram_quantile(0.9, sum by (le) ({RATES})) > 0.1",
    f'sum({NAME}_bucket{{le="0.5"}}) / sum({NAME}_count)',
)


def counted(engine: int) -> np.ndarray:
    """Return what each bucket of an engine holds at each second; one engine begins anew."""
    seconds, buckets = np.arange(SECONDS)[:, np.newaxis], np.arange(len(BOUNDS) + 1)
    gained = (seconds * (7 + engine) + buckets * 3 + engine * 5) % (5 + buckets)
    held = 100_000 * (engine + 1) + np.cumsum(gained, axis=0)
    if engine == len(ENGINES) - 1:
        held[BEGAN_ANEW:] -= held[BEGAN_ANEW - 1] - 1_000
    return held


def engine(number: int, **more: Any) -> Row:
    cluster, host, entity = ENGINES[number]
    return Row(T0 + SECONDS * 1000, entity, {}, cluster=cluster, host=host, collector=f"agent-{host}", **more)


def exposition() -> str:
    """Return the same samples as a vLLM writes them, with the labels that they have here."""
    lines = []
    bounds = ["0.05", "0.1", "0.5", "1", "5", "+Inf"]
    for name in ("_bucket", "_count", "_sum"):
        lines.append(f"# TYPE {NAME}{name} gauge")
        for number, (cluster, host, entity) in enumerate(ENGINES):
            model = entity.partition("/")[2].removesuffix("#1")
            place = f'tenant="t1",region="r1",cluster="{cluster}",host="{host}",entity="{entity}",model_name="{model}"'
            for second, held in enumerate(counted(number).tolist()):
                at = T0 // 1000 + second
                if name == "_bucket":
                    below = np.cumsum(held).tolist()
                    lines += [
                        f'{NAME}_bucket{{{place},le="{bound}"}} {count} {at}'
                        for bound, count in zip(bounds, below, strict=True)
                    ]
                else:
                    lines.append(f"{NAME}{name}{{{place}}} {sum(held) * (0.25 if name == '_sum' else 1)} {at}")
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("promql"))
    for number in range(len(ENGINES)):
        held = [(second, counts, sum(counts) * 0.25) for second, counts in enumerate(counted(number).tolist())]
        insert_histograms(made.store, engine(number), TTFT, held, BOUNDS)
        insert_entity(made.store, engine(number), T0, kind="inference", gpu_model="", index="")
    flat = [(second, [4, 4, 0, 0, 0, 0 if second < 300 else 30], 1.0) for second in range(0, SECONDS, 15)]
    insert_histograms(made.store, engine(0, interval=15_000), QUEUE, flat, BOUNDS)
    powers = [GRID_BOUNDS.index(2.0**power) for power in (-1, 0, 1)]
    for second in (500, 510, 520):
        counts = [second * (place in powers) for place in range(len(GRID_BOUNDS) + 1)]
        insert_histograms(made.store, engine(1), QUEUE, [(second, counts, 1.0)], GRID_BOUNDS)
    for part, scale in (("", 1), ("basis=request", 10)):
        grown = [(second, [second * scale, 0, 0, 0, 0, 0], 1.0) for second in range(SECONDS)]
        insert_histograms(made.store, engine(0, part=part), ITL, grown, BOUNDS)
        insert_entity(made.store, engine(0, part=part), T0, kind="inference", gpu_model="", index="")
    with serving(make_app(made.services), made.config) as made.client:
        yield made


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with prometheus_of(tmp_path_factory.mktemp("prometheus"), exposition()) as port:
        yield port


def peers(text: str) -> str:
    """Return an expression with the sample before each range, of which Prometheus needs both ends of a pair."""
    return re.sub(r"(rate\([^\[]*)\[60s\]", r"\1[61s]", text)


def only(site: Site, text: str, at_ms: int = AT) -> float:
    (one,) = site.data("query", query=text, time=at_ms / 1000)["result"]
    return float(one["value"][1])


@pytest.mark.parametrize("text", EXPRESSIONS)
class TestBesideAPrometheus:
    def test_at_one_instant(self, site: Site, peer: int, text: str) -> None:
        got, wanted = (
            site.data("query", query=text, time=AT / 1000),
            asked(peer, "query", query=peers(text), time=AT / 1000),
        )
        compare(got, wanted, 1e-9)

    def test_at_every_second(self, site: Site, peer: int, text: str) -> None:
        start = T0 // 1000 + BEGAN_ANEW - 20
        times = {"start": start, "end": start + 100, "step": "1"}
        compare(
            site.data("query_range", query=text, **times), asked(peer, "query_range", query=peers(text), **times), 1e-9
        )

    def test_at_steps_it_sees_the_windows_that_have_ended(self, site: Site, peer: int, text: str) -> None:
        if "irate" in text:
            pytest.skip("it looks at single seconds")
        start, end = AT // 1000, AT // 1000 + 240
        got = site.data("query_range", query=text, start=start, end=end, step="30s")
        wanted = asked(peer, "query_range", query=peers(text), start=start - 1, end=end - 1, step="30s")
        compare(got, wanted, 1e-9, shift=1)


def test_buckets_of_any_shape_have_the_quantile_that_prometheus_gives(site: Site, peer: int) -> None:
    """Bounds below zero, twice, alone, without +Inf; counts that fall, are zero, or there now and then; any share."""
    chance = random.Random(6)
    for _ in range(150):
        bounds = chance.sample(["-2", "-0.5", "0", "0.1", "1", "1.0", "1e1", "2.5", "+Inf", "x"], chance.randint(1, 6))
        if chance.random() < 0.8:
            bounds = sorted({*bounds, "+Inf"})
        counts = [f"vector({chance.choice([0, 0, 1, 3, 7.5, 20])})" for _ in bounds]
        counts = [f"{count} {chance.choice(['+ 0', '+ 0', '!= time() % 4'])}" for count in counts]
        parts = [
            f'label_replace({count}, "le", "{bound}", "", "")' for count, bound in zip(counts, bounds, strict=True)
        ]
        share = chance.choice(["0", "0.1", "0.5", "0.95", "1", "-1", "2", "NaN"])
        text = f"histogram_quantile({share}, {' or '.join(parts)})"
        times = {"start": AT // 1000, "end": AT // 1000 + 4, "step": "1"}
        compare(site.data("query_range", query=text, **times), asked(peer, "query_range", query=text, **times), 1e-12)


def test_names_of_the_catalogue_mean_the_same_and_bounds_are_read_as_numbers(site: Site) -> None:
    quantile = "histogram_quantile(0.9, sum by (le) (rate(%s_bucket[1m])))"
    assert only(site, quantile % TTFT) == only(site, quantile % NAME)
    assert only(site, f'sum({NAME}_bucket{{le="1.0"}})') == only(site, f'sum({NAME}_bucket{{le="1"}})')


def test_seconds_without_a_gain_count_for_a_rate(site: Site) -> None:
    """A sample each 15 s, of which one gained: 30 in the last bucket of 38, over five minutes."""
    assert only(site, f'rate({QUEUE}_count{{host="h1"}}[5m])', T0 + 450_000) == pytest.approx(30 / 300)
    steps = {"start": T0 / 1000 + 450, "end": T0 / 1000 + 452, "step": "1"}
    (one,) = site.data("query_range", query=f'rate({QUEUE}_count{{host="h1"}}[5m])', **steps)["result"]
    assert {float(value) for _, value in one["values"]} == {30 / 300}
    assert only(site, f'histogram_quantile(0.9, rate({QUEUE}_bucket{{host="h1"}}[5m]))', T0 + 450_000) == 5


def test_buckets_of_exponential_histograms_are_those_of_their_grid(site: Site) -> None:
    assert only(site, f'rate({QUEUE}_count{{host="h2"}}[1m])', T0 + 525_000) == pytest.approx(3)
    assert only(site, f'histogram_quantile(0.5, rate({QUEUE}_bucket{{host="h2"}}[1m]))', T0 + 525_000) == pytest.approx(
        2**-0.25 + (1 - 2**-0.25) / 2
    )


def test_a_name_of_an_engine_means_the_series_that_it_feeds(site: Site) -> None:
    assert only(site, "rate(vllm:inter_token_latency_seconds_count[1m])") == pytest.approx(1)
    assert only(site, "rate(vllm:request_time_per_output_token_seconds_count[1m])") == pytest.approx(10)
    assert len(site.data("query", query=f"{ITL}_count", time=AT / 1000)["result"]) == 2


@pytest.mark.parametrize("function", ["resets", "deriv", "max_over_time", "avg_over_time"])
def test_what_has_no_meaning_is_refused(site: Site, function: str) -> None:
    answer = site.get("query", query=f"{function}({NAME}_bucket[1m])", time=AT / 1000)
    assert answer.status_code == 400
    assert "has no meaning" in answer.json()["error"]
    assert f"{TTFT}_bucket" in site.get("query", query=TTFT, time=AT / 1000).json()["error"]


def test_nothing_of_a_histogram_leaves_a_scope(site: Site) -> None:
    assert site.data("query", "other", query=f"{NAME}_bucket", time=AT / 1000)["result"] == []
    found = site.data("query", "narrow", query=f"sum by (cluster) ({NAME}_count)", time=AT / 1000)["result"]
    assert [one["metric"]["cluster"] for one in found] == ["c2"]


def test_lists_have_them(site: Site) -> None:
    assert {f"{TTFT}_bucket", f"{TTFT}_count", f"{TTFT}_sum"} <= set(site.data("label/__name__/values"))
    window = {"start": T0 / 1000, "end": T0 / 1000 + SECONDS}
    match = {"match[]": f'{NAME}_bucket{{le="0.5"}}'}
    assert site.data("label/model_name/values", **match, **window) == ["llama", "qwen"]
    assert site.data("metadata", metric=f"{TTFT}_bucket")[f"{TTFT}_bucket"][0]["type"] == "histogram"
