"""Every handed case of parsing, sentinels, units, counters, time, gaps and attribution, by its file, as its note says.

The files stand in tests/cases. Beside each case stand variants of the same fault.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from process_rig import CATALOG, Rig, frame_bytes
from secondsight.agent.scrape.exposition import Exposition, Syntax, parse, syntax_of, type_of
from secondsight.agent.scrape.mapping import Mapped, Mapper
from secondsight.agent.scrape.openmetrics import parse_strict
from secondsight.agent.smi.importing import ImportOptions, import_texts
from secondsight.agent.smi.instants import rfc3339_us
from secondsight.catalog.scale import to_physical
from secondsight.errors import Rejected
from secondsight.mapping.identity import Origin
from secondsight.model import Quality
from secondsight.store.chdb import ChdbStore

CASES = Path(__file__).parent / "cases"
GPU = "GPU-00000000-0000-0000-0000-00000000000"


def text_of(name: str) -> str:
    (path,) = CASES.glob(f"*/{name}")
    return path.read_bytes().decode()


def read(text: str, content_type: str = "") -> Exposition:
    return parse(text, syntax_of(content_type, text))


def scrapes(text: str) -> list[tuple[int, str]]:
    blocks = re.split(r"^### (\d+)\n", text, flags=re.MULTILINE)[1:]
    return [(int(time), block) for time, block in zip(blocks[::2], blocks[1::2], strict=True)]


def mapper(**origin: Any) -> Mapper:
    return Mapper(CATALOG, Origin(**({"host_id": "node-a", "target": "t", "port": 8000} | origin)))


def cells(mapped: Mapped, host: str = "node-a") -> dict[str, float | str]:
    """Return `entity part metric` -> physical value or the quality of what has none."""
    return {
        " ".join(filter(None, (c.entity, c.part, c.metric.name))): c.quality.name
        if c.value is None
        else to_physical(c.metric, c.value)
        for c in mapped.of(host).cells
    }


def one(text: str, **origin: Any) -> dict[str, float | str]:
    return cells(mapper(**origin).map(read(text), 1_717_236_000_000))


# parsing


def test_001_words_for_infinity() -> None:
    values = [sample.value for sample in read(text_of("001-neg-infinity-word.prom")).samples]
    assert math.isnan(values[0])
    assert values[1:] == [-math.inf, math.inf, 12]


@pytest.mark.parametrize("word", ["Inf", "+inf", "INFINITY", "+Infinity", "inF"])
def test_001_any_spelling(word: str) -> None:
    exposition = read(f"a 1\nb {word}\nc -{word.lstrip('+')}\nd 2\n")
    assert [sample.value for sample in exposition.samples] == [1, math.inf, -math.inf, 2]


def test_003_scientific_notation() -> None:
    values = {sample.name: sample.value for sample in read(text_of("003-scientific-notation.prom")).samples}
    assert values == {
        "a": 16094310400,
        "b": 11781057536,
        "c": 5.882698982295764e-05,
        "d": 3.545990503,
        "e": 1000,
        "f": 0.5,
        "g": 5,
    }


@pytest.mark.parametrize(
    ("text", "value"), [("1.5E-010", 1.5e-10), ("+2e+0003", 2000), ("-.25e1", -2.5), ("7.e2", 700)]
)
def test_003_any_exponent(text: str, value: float) -> None:
    assert read(f"a {text}\n").samples[0].value == value


def test_005_a_word_is_no_reading() -> None:
    exposition = read(text_of("005-na-as-value.prom"))
    assert [(sample.value, dict(sample.labels)) for sample in exposition.samples] == [(37, {"minor_number": "1"})]
    assert [(blank.line, dict(blank.labels)) for blank in exposition.blanks] == [(2, {"minor_number": "0"})]
    assert exposition.rejections == []


@pytest.mark.parametrize(
    "word", ["n/a", "[N/A]", '"N/A"', "NA", "[Not Supported]", "null", "<nil>", "-", "Unknown", "N/A 1717236000000"]
)
def test_005_any_word(word: str) -> None:
    exposition = read(f'DCGM_FI_DEV_GPU_UTIL{{UUID="GPU-a"}} {word}\nDCGM_FI_DEV_GPU_UTIL{{UUID="GPU-b"}} 37\r\n')
    assert [sample.value for sample in exposition.samples] == [37]
    assert len(exposition.blanks) == 1
    assert exposition.rejections == []
    found = cells(mapper().map(exposition, 0))
    assert found["GPU-b gpu_utilization_ratio"] == 0.37
    assert str(found["GPU-a gpu_utilization_ratio"]).startswith("ABSENT")


def test_007_exemplars_in_the_text_format() -> None:
    as_text = parse(text_of("007-exemplar-in-text-format.prom"), Syntax.TEXT)
    assert [(item.line, item.code) for item in as_text.tolerated] == [(5, "exemplar")]
    assert [sample.value for sample in as_text.samples if sample.line == 5] == [1]
    with pytest.raises(Rejected, match="# EOF"):
        parse_strict(text_of("007-exemplar-in-text-format.prom"))
    with pytest.raises(Rejected, match="line 3"):
        parse_strict(text_of("007-exemplar-in-text-format.prom") + "# EOF\n")


def test_009_openmetrics_are_read_as_such() -> None:
    text = text_of("009-openmetrics-read-as-classic.openmetrics")
    for content_type in ("application/openmetrics-text; version=1.0.0", ""):
        exposition = read(text, content_type)
        assert exposition.syntax is Syntax.OPENMETRICS
        assert [type_of(exposition, sample.name) for sample in exposition.samples] == ["counter", "counter"]
    found = cells(mapper().map(read(text), 0))
    assert found["node-a:8000/m inference_prompt_tokens_total"] == 5
    assert found["node-a:8000/m inference_generation_tokens_total"] == 7


def test_011_nan_with_a_timestamp() -> None:
    samples = read(text_of("011-lowercase-nan-with-timestamp.prom")).samples
    assert math.isnan(samples[0].value)
    assert (samples[1].value, samples[1].time_ms) == (0.12, 1_546_875_564_231)


@pytest.mark.parametrize("word", ["nan", "NaN", "NAN", "-nan"])
def test_011_any_nan_is_absent_and_the_batch_lives(word: str) -> None:
    found = one(f'DCGM_FI_DEV_POWER_USAGE{{UUID="GPU-a"}} {word}\nDCGM_FI_DEV_POWER_USAGE{{UUID="GPU-b"}} 71.15\n')
    assert found == {"GPU-a gpu_power_watts": "ABSENT_SOURCE_BLANK", "GPU-b gpu_power_watts": 71.15}


def imported(text: str) -> dict[str, float | str]:
    file = import_texts([("x", text)], ImportOptions("h"), CATALOG)[0]
    found = [c for _, mapped in file.ticks for c in mapped.gathered.cells]
    return {
        f"{c.entity} {c.metric.name}": c.quality.name if c.value is None else to_physical(c.metric, c.value)
        for c in found
    }


def test_013_cells_without_a_reading() -> None:
    found = imported(text_of("013-smi-bracket-na-lowercase.csv"))
    assert (found["h/gpu0 gpu_fan_speed_ratio"], found["h/gpu0 gpu_temperature_celsius"]) == (0.38, 54)
    assert found["h/gpu1 gpu_temperature_celsius"] == 49
    assert sum(value == "ABSENT_NOT_SUPPORTED" for value in found.values()) == 3


@pytest.mark.parametrize("word", ["[N/A]", "[n/a]", "N/A", "n/a", "[Not Supported]", "[NOT SUPPORTED]", "", " [N/A] "])
def test_013_any_spelling_and_line_end(word: str) -> None:
    found = imported(f"index, uuid, power.draw [W], temperature.gpu\r\n0, GPU-a, {word}, 54\r\n")
    assert found["GPU-a gpu_temperature_celsius"] == 54
    assert str(found["GPU-a gpu_power_watts"]).startswith("ABSENT")


def test_015_braces_and_quotes_in_labels() -> None:
    samples = read(text_of("015-braces-and-quotes-in-label-value.prom")).samples
    assert [sample.value for sample in samples] == [112, 215, 1]
    assert dict(samples[0].labels)["method"] == "{'method': 'prefill'}"
    assert dict(samples[2].labels) == {"path": r"C:\Windows\System32\dwm.exe", "q": 'a"b}{c'}


@pytest.mark.parametrize("body", ['x="a,b=c"', 'x="}"', 'x="{",y="# not a comment"', 'x="a\\nb",y="\\\\"', 'x="=",'])
def test_015_any_mark_inside_quotes(body: str) -> None:
    exposition = read(f"a{{{body}}} 1\nb 2\n")
    assert [sample.value for sample in exposition.samples] == [1, 2]


@pytest.mark.parametrize("body", ['x="a"quoted"b"', 'x="a', 'x="a\\"', "x='a'", 'x="1",x="2"'])
def test_015_a_label_that_breaks_its_line_costs_that_line_alone(body: str) -> None:
    exposition = read(f"a{{{body}}} 1\nb 2\n")
    assert [sample.name for sample in exposition.samples] == ["b"]
    assert [item.line for item in exposition.rejections] == [1]


def test_a_byte_order_mark_and_foreign_line_ends_are_passed_over() -> None:
    exposition = read("\ufeff# TYPE a gauge\r\na 1\r\nb 2 1717236000000\r\n")
    assert exposition.types == {"a": "gauge"}
    assert [(sample.name, sample.value) for sample in exposition.samples] == [("a", 1), ("b", 2)]
    assert exposition.rejections == []


# sentinels


def test_017_blanks_of_64_bits() -> None:
    found = one(text_of("017-int64-blank-memory-temp.prom"))
    assert [value for value in found.values() if isinstance(value, float | int)] == [48]
    assert sorted(map(str, found.values())) == [
        "48",
        "ABSENT_NOT_SUPPORTED",
        "ABSENT_SOURCE_BLANK",
        "ABSENT_SOURCE_BLANK",
    ]


@pytest.mark.parametrize(
    ("metric", "value", "quality"),
    [
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "9223372036854775792", "ABSENT_SOURCE_BLANK"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "9223372036854775795", "ABSENT_NO_PERMISSION"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "9.223372036854776e+18", "ABSENT_SOURCE_BLANK"),
        ("DCGM_FI_PROF_SM_ACTIVE", "140737488355328.000000", "ABSENT_SOURCE_BLANK"),
        ("DCGM_FI_PROF_SM_ACTIVE", "140737488355330", "ABSENT_NOT_SUPPORTED"),
        ("DCGM_FI_PROF_SM_ACTIVE", "1.40737488355328e+16", "ABSENT_SOURCE_BLANK"),
        ("DCGM_FI_DEV_POWER_USAGE", "140737488355331.0", "ABSENT_NO_PERMISSION"),
        ("DCGM_FI_DEV_GPU_TEMP", "2147483632", "BAD_RANGE"),
        ("DCGM_FI_DEV_GPU_TEMP", "9223372036854775794", "ABSENT_NOT_SUPPORTED"),
        ("DCGM_FI_PROF_PCIE_TX_BYTES", "9223372036854775792", "ABSENT_SOURCE_BLANK"),
        ("gpu_energy_consumed", "18446744073709551615", "ABSENT_SOURCE_BLANK"),
    ],
)
def test_017_blanks_of_any_width(metric: str, value: str, quality: str) -> None:
    assert list(one(f'{metric}{{UUID="GPU-a"}} {value}\n').values()) == [quality]


def test_017_a_counter_may_pass_the_blank_of_32_bits() -> None:
    text = 'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{UUID="GPU-a"} 2147483632\n'
    assert one(text) == {"GPU-a gpu_energy_joules_total": 2147483.632}


def test_019_percentages_out_of_range() -> None:
    reader = mapper()
    found = [
        cells(reader.map(read(text), at))[f"{GPU}1 gpu_utilization_ratio"]
        for at, text in scrapes(text_of("019-util-out-of-range.scrapes"))
    ]
    accepted = [value for value in found if not isinstance(value, str)]
    assert accepted == [0, 0, 0.97, 0.98]
    assert sum(accepted) / 4 == pytest.approx(0.4875)
    assert found.count("BAD_RANGE") == 2


@pytest.mark.parametrize("value", ["101", "-1", "808334905", "2619", "100.5", "99999"])
def test_019_nothing_is_clamped(value: str) -> None:
    for name in ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO", "dcgm_mem_copy_utilization"):
        assert list(one(f'{name}{{uuid="GPU-a"}} {value}\n').values()) == ["BAD_RANGE"]


def test_021_a_negative_share() -> None:
    found = one(text_of("021-negative-kv-usage.prom"))
    assert found == {
        "node-a:8000/m#3 inference_kv_cache_usage_ratio": "BAD_RANGE",
        "node-a:8000/m#4 inference_kv_cache_usage_ratio": 0.41,
    }


# units


def test_023_a_rate_that_is_called_a_counter(store: ChdbStore) -> None:
    reader, values, stored = mapper(), [], []
    for at, text in scrapes(text_of("023-nvlink-bandwidth-is-a-rate.scrapes")):
        mapped = reader.map(read(text), at)
        assert {cell.quality for cell in mapped.of("node-a").cells} == {Quality.ESTIMATE}
        values.append(float(cells(mapped)[f"{GPU}1 {NVLINK}"]) / 1_024_000)
        stored += [(at, int(cell.value or 0)) for cell in mapped.of("node-a").cells]
    assert CATALOG.get(NVLINK).type == "gauge"
    assert (sum(values) / 4, min(values), max(values)) == (19468.5, 12129, 24531)
    rows = rollups(store, "023", stored, NVLINK)
    carried = to_physical(CATALOG.get(NVLINK), sum(row[f"{NVLINK}_sum"] for row in rows)) / 1000
    assert (carried / 1_024_000, [dict(row["resets"]) for row in rows]) == (19468.5 * 60, [{}, {}])


@pytest.mark.parametrize("name", ["DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_NVLINK_RX_BYTES", "DCGM_FI_DEV_COUNT"])
def test_023_the_catalogue_outranks_the_type_line(name: str) -> None:
    found = [one(f'# TYPE {name} counter\n{name}{{UUID="GPU-a"}} {value}\n') for value in (8, 7)]
    assert [next(iter(each.values())) for each in found] == [8, 7]


def test_025_throttle_times_by_their_help() -> None:
    reader = mapper(gpus={"0": "GPU-a"})
    found = [cells(reader.map(read(text), at)) for at, text in scrapes(text_of("025-violation-us-or-ns.scrapes"))]
    assert [each["GPU-a gpu_throttle_sw_power_cap_seconds_total"] for each in found] == [0.002, 0.005]


@pytest.mark.parametrize(
    "name", ["DCGM_FI_DEV_THERMAL_VIOLATION", "dcgm_sync_boost_violation", "dcgm_fi_dev_low_util_violation"]
)
def test_025_any_violation_in_any_spelling(name: str) -> None:
    texts = [
        f'{help_text}{name}{{uuid="GPU-a"}} {value}\n'
        for help_text, value in (("", 5_000_000), (f"# HELP {name} x (in us).\n", 5000))
    ]
    assert [list(one(text).values()) for text in texts] == [[0.005], [0.005]]


# counters


REPLAYS = "gpu_pcie_correctable_errors_total"
POWER = "gpu_power_watts"
NVLINK = "gpu_nvlink_combined_bytes_per_second"


def rollups(
    store: ChdbStore, tenant: str, points: list[tuple[int, int]], metric: str = REPLAYS, early: int = 0
) -> list[dict[str, Any]]:
    """Return the 30 s rollups that a processor makes of points of one metric; the last `early` ones come late."""
    rig = Rig(store, now_ms=points[0][0])
    for sequence, (at, value) in enumerate(points, 1):
        is_late = sequence > len(points) - early
        rig.clock.step_wall((max(at, rig.clock.now_ms()) - rig.clock.now_ms()) / 1000)
        cells = {("GPU-a", "", 0): {metric: value}}
        rig.send(frame_bytes(cells, [at], sequence=sequence, interval_ms=30_000, live=is_late), tenant=tenant)
        rig.processor.step()
    rig.settle()
    sql = "SELECT * FROM gpu_30s FINAL WHERE tenant_id = {t:String} AND samples > 0 ORDER BY window_start"
    rows: list[dict[str, Any]] = store.query(sql, {"t": tenant}).to_pylist()
    return rows


def increase(rows: list[dict[str, Any]]) -> tuple[int, int]:
    resets = sum(dict(row["resets"]).get(REPLAYS, 0) for row in rows)
    return sum(row[f"{REPLAYS}_increase"] or 0 for row in rows), resets


def test_027_the_first_value_of_a_new_series(store: ChdbStore) -> None:
    reader = mapper()
    points: dict[str, list[tuple[int, int]]] = {}
    for at, text in scrapes(text_of("027-first-increase-of-new-series.scrapes")):
        as_ours = text.replace("webRequests", "vllm:generation_tokens").replace("pod=", "model_name=")
        mapped = reader.map(read(as_ours), at)
        for early, hosts in mapped.earlier.items():
            for cell in hosts["node-a"].cells:
                points.setdefault(cell.entity, []).append((early, int(cell.value or 0)))
        for cell in mapped.of("node-a").cells:
            points.setdefault(cell.entity, []).append((at, int(cell.value or 0)))
    first, second = points["node-a:8000/web-a"], points["node-a:8000/web-b"]
    assert second[0] == (1_717_236_070_000, 0)
    assert increase(rollups(store, "027-a", first)) == (18, 0)
    assert increase(rollups(store, "027-b", second)) == (19, 0)
    assert increase(rollups(store, "027-c", [*second[1:], second[0]], early=1)) == (19, 0)


@pytest.mark.parametrize(("age_ms", "counts"), [(1_000, True), (3 * 86_400_000, False), (-5_000, False), (0, False)])
def test_027_only_a_start_within_reach_counts(age_ms: int, counts: bool) -> None:
    at = 1_717_236_000_000
    text = f"vllm:prompt_tokens_total 15\nvllm:prompt_tokens_created {(at - age_ms) / 1000}\n"
    reader = mapper(model="m")
    assert bool(reader.map(read(text), at).earlier) is counts
    assert not reader.map(read(text), at + 1000).earlier
    again = text.replace(str((at - age_ms) / 1000), str((at + 500) / 1000))
    assert reader.map(read(again), at + 1000).earlier.keys() == {at + 500}


def jsonl(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text_of(name).splitlines()]


def test_029_a_reset_at_the_edge_of_a_window(store: ChdbStore) -> None:
    rows = rollups(store, "029", [(point["t"], point["v"]) for point in jsonl("029-reset-at-rollup-boundary.jsonl")])
    assert increase(rows) == (220, 1)
    edge = 1_717_236_300
    early = [row for row in rows if int(row["window_start"]) < edge]
    late = [row for row in rows if int(row["window_start"]) >= edge]
    assert (increase(early)[0], increase(late)) == (50, (170, 1))
    assert (early[0][f"{REPLAYS}_first"], late[0][f"{REPLAYS}_first"]) == (100, 5)


def test_031_sums_do_not_grow_with_the_window(store: ChdbStore) -> None:
    points = jsonl("031-auto-downsample-inflates-sum.jsonl")
    for name in "abc":
        mine = [(point["t"], point["bytes_per_s"] * 1000) for point in points if point["lb"] == name]
        for row in rollups(store, f"031-{name}", mine, POWER):
            assert row[f"{POWER}_sum"] / row["covered_ms"] == mine[0][1]
    assert sum({point["lb"]: point["bytes_per_s"] for point in points}.values()) == 600


def test_033_a_start_that_moves_while_the_value_grows(store: ChdbStore) -> None:
    points = json.loads(text_of("033-start-time-moves-while-value-grows.otlp.json"))
    told = [(int(point["timeUnixNano"]) // 1_000_000, int(point["asInt"])) for point in points]
    assert increase(rollups(store, "033", told)) == (30, 0)
    starts = [int(point["startTimeUnixNano"]) // 1_000_000 for point in points]
    assert starts[1:] == [at for at, _ in told[:-1]]


def test_035_a_reset_with_one_start_for_ever(store: ChdbStore) -> None:
    told = [
        (at, int(read(text).samples[0].value))
        for at, text in scrapes(text_of("035-reset-with-constant-start-time.scrapes"))
    ]
    rows = rollups(store, "035", told)
    assert increase(rows) == (10, 1)
    reset = next(row for row in rows if dict(row["resets"]).get(REPLAYS))
    assert told[1][0] < int(reset["window_start"]) * 1000 + 30_000
    assert int(reset["window_start"]) * 1000 <= told[2][0]


# time


def test_037_several_instants_of_one_series() -> None:
    exposition = read(text_of("037-many-timestamps-one-scrape.prom"))
    assert [sample.time_ms for sample in exposition.samples] == [
        1719898389938,
        1719898393939,
        1719898397940,
        1719898397940,
    ]
    text = (
        text_of("037-many-timestamps-one-scrape.prom")
        .replace("my_metric_1", 'DCGM_FI_DEV_POWER_USAGE{UUID="GPU-a"}')
        .replace('# TYPE DCGM_FI_DEV_POWER_USAGE{UUID="GPU-a"} gauge\n', "")
    )
    mapped = mapper().map(read(text), 1_719_898_398_000, 1_719_898_395_000)
    early = {at: [c.value for c in hosts["node-a"].cells] for at, hosts in mapped.earlier.items()}
    assert early == {1719898389938: [800_100], 1719898393939: [600_100]}
    assert cells(mapped) == {"GPU-a gpu_power_watts": 900.1}
    assert mapped.of("node-a").discarded == {"conflict": 1}


def test_037_points_that_were_served_before_are_not_served_again() -> None:
    line = 'DCGM_FI_DEV_POWER_USAGE{{UUID="GPU-a"}} {} {}\n'
    reader, at = mapper(), 1_719_898_390_000
    first = reader.map(read(line.format(1, at) + line.format(2, at + 1000)), at + 1000)
    second = reader.map(
        read(line.format(2, at + 1000) + line.format(3, at + 2000) + line.format(4, at + 3000)), at + 3000
    )
    assert [sorted(mapped.earlier) for mapped in (first, second)] == [[at], [at + 2000]]
    third = reader.map(read(line.format(3, at + 2000) + line.format(4, at + 3000)), at + 4000)
    assert third.earlier == {}
    assert cells(third) == {}


def test_045_times_of_nanoseconds_and_zones() -> None:
    found = [rfc3339_us(point["t"]) for point in jsonl("045-nanosecond-and-zone-columns.jsonl")]
    assert found == [1_754_308_800_999_999, 1_754_308_800_123_456]


@pytest.mark.parametrize(
    ("seconds", "ms"),
    [("1717236000.9999", 1717236000999), ("1.7172360009999e9", 1717236000999), ("1717236000.123", 1717236000123)],
)
def test_045_times_of_expositions_are_cut_too(seconds: str, ms: int) -> None:
    text = f"# TYPE a gauge\na 1 {seconds}\n# EOF\n"
    assert [sample.time_ms for sample in read(text).samples] == [ms]
    assert [sample.time_ms for sample in parse_strict(text)] == [ms]


# attribution


def workloads(text: str) -> dict[str, list[tuple[str, ...]]]:
    mapped = mapper().map(read(text), 0)
    return {" ".join(filter(None, key)): sorted(map(tuple, found)) for key, found in mapped.workloads.items()}


def test_047_labels_in_lower_case_and_the_exporter_s_own_pod() -> None:
    found = one(text_of("047-mig-labels-lost-exporter-pod-shown.prom"))
    assert found == {
        f"{GPU}1 gi=12 gpu_graphics_engine_active_ratio": 0.5,
        f"{GPU}2 gpu_graphics_engine_active_ratio": 0.9,
    }
    assert workloads(text_of("047-mig-labels-lost-exporter-pod-shown.prom")) == {
        f"{GPU}2": [("default", "test-7b946ccdf5-q8spz", "test", "")]
    }


def test_049_exported_labels_name_the_workload() -> None:
    assert workloads(text_of("049-exported-pod-honor-labels.prom")) == {f"{GPU}1": [("team-a", "train-0", "main", "")]}


@pytest.mark.parametrize(
    ("labels", "workload"),
    [
        ('pod="dcgm-exporter-4flp2",namespace="gpu-operator"', None),
        ('pod="nvidia-dcgm-exporter-x",exported_pod="",exported_namespace="",exported_container=""', None),
        ('pod="x",exported_namespace="a",exported_pod="p"', ("a", "p", "", "")),
        ('POD="p",Namespace="n",CONTAINER="c"', ("n", "p", "c", "")),
        ('pod_name="p",pod_namespace="n",container_name="c"', ("n", "p", "c", "")),
        ('pod="",namespace="",container=""', None),
        ('hpc_job="4711"', ("", "", "", "4711")),
        ('exported_job="dcgm",job="scrape",pod="p",namespace="n"', ("n", "p", "", "")),
        ('podname="exporter-x",node="n"', None),
        ('dra_claim_name="c",dra_claim_namespace="n",pod="p",namespace="n",container="k"', ("n", "p", "k", "")),
    ],
)
def test_049_who_a_sample_is_of(labels: str, workload: tuple[str, ...] | None) -> None:
    found = workloads(f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-a",{labels}}} 88\n')
    assert found == ({} if workload is None else {"GPU-a": [workload]})


def test_057_utilisation_under_mig() -> None:
    found = imported(text_of("057-mig-util-not-zero.csv"))
    assert found["h/gpu0 gpu_memory_used_bytes"] == 36537 * 2**20
    assert found["h/gpu0 gpu_utilization_ratio"] == "ABSENT_NOT_SUPPORTED"


def test_057_a_0_under_mig_is_none_either() -> None:
    found = imported(
        "index, uuid, mig.mode.current, utilization.gpu [%]\n0, GPU-a, Enabled, 0 %\n1, GPU-b, Disabled, 0 %\n"
    )
    assert found["GPU-a gpu_utilization_ratio"] == "ABSENT_NOT_SUPPORTED"
    assert found["GPU-b gpu_utilization_ratio"] == 0
    text = 'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-a",GPU_I_ID="3",GPU_I_PROFILE="1g.10gb"} 0\n'
    assert list(one(text).values()) == ["ABSENT_NOT_SUPPORTED"]


# gaps


def test_067_idle_profiling_of_a_busy_gpu() -> None:
    reader = mapper(gpus={"0": "GPU-a"})
    alerts, idle = 0, 0
    for at, text in scrapes(text_of("067-util-zero-while-busy.scrapes")):
        found = cells(reader.map(read(text), at))
        alerts += found.get("GPU-a subsystem=PROFILING gpu_health") == 1 and alerts == 0
        idle += found["GPU-a gpu_graphics_engine_active_ratio"] == 0 and at > 1_717_236_000_000
    assert (alerts, idle) == (1, 0)


def profile(reader: Mapper, at: int, busy: float, engine: float) -> dict[str, float | str]:
    names = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE")
    text = f'DCGM_FI_DEV_GPU_UTIL{{UUID="GPU-a"}} {busy}\n' + "".join(f'{n}{{UUID="GPU-a"}} {engine}\n' for n in names)
    return cells(reader.map(read(text), at))


def test_067_half_busy_takes_longer_and_a_single_reading_ends_it() -> None:
    reader, health = mapper(), "GPU-a subsystem=PROFILING gpu_health"
    found = [profile(reader, at * 1000, 60, 0.0) for at in range(0, 301, 10)]
    assert [health in each for each in found] == [False] * 30 + [True]
    assert found[-1]["GPU-a gpu_sm_active_ratio"] == "ABSENT_SOURCE_BLANK"
    after = profile(reader, 310_000, 60, 0.2)
    assert (after[health], after["GPU-a gpu_sm_active_ratio"]) == (0, 0.2)
    assert health not in profile(reader, 320_000, 60, 0.2)


def test_067_an_idle_gpu_and_a_pause_are_no_contradiction() -> None:
    reader, health = mapper(), "GPU-a subsystem=PROFILING gpu_health"
    assert not any(health in profile(reader, at * 1000, 0, 0.0) for at in range(0, 900, 30))
    assert health not in profile(reader, 1_000_000, 99, 0.0)
    assert health not in profile(reader, 2_000_000, 99, 0.0)


def energy(reader: Mapper, at: int, watts: float, microjoules: int) -> dict[str, float | str]:
    text = f'gpu_package_power{{gpu_uuid="g"}} {watts}\ngpu_energy_consumed{{gpu_uuid="g"}} {microjoules}\n'
    return cells(reader.map(read(text), at))


def test_an_energy_counter_that_stands_still_under_load_is_withdrawn() -> None:
    reader, name = mapper(), "g gpu_energy_joules_total"
    found = [energy(reader, at * 1000, 90, 1_004_000) for at in range(0, 700, 10)]
    assert found[59][name] == 1.004
    assert found[-1][name] == "ABSENT_SOURCE_BLANK"
    assert found[-1]["g subsystem=POWER gpu_health"] == 1
    honest = mapper()
    again = [energy(honest, at * 1000, 90, 90_000_000 * at) for at in range(0, 700, 10)]
    assert again[-1][name] == 90 * 690


def test_069_answers_without_data() -> None:
    reader = mapper()
    found = [reader.map(read(text), at) for at, text in scrapes(text_of("069-empty-scrape-at-startup.scrapes"))]
    assert [bool(mapped.samples or mapped.unnamed) for mapped in found] == [False, False, True]


# other exporters


def amd(labels: str, value: float, name: str = "gpu_package_power") -> float | str:
    return next(iter(one(f'{name}{{gpu_uuid="u",{labels}}} {value}\n').values()))


def test_partitions_of_amd_have_their_memory_and_nothing_of_the_board() -> None:
    first, second = (f'gpu_partition_id="{n}",gpu_compute_partition_type="cpx"' for n in (0, 1))
    assert amd(first, 412) == 412
    assert amd(second, 0) == "ABSENT_NOT_SUPPORTED"
    assert amd(second, 7, "gpu_gfx_activity") == "ABSENT_NOT_SUPPORTED"
    assert one(f'gpu_used_vram{{gpu_uuid="u",{second}}} 9\n') == {"u gi=1 gpu_memory_used_bytes": 9 * 2**20}
    whole = 'gpu_partition_id="0",gpu_compute_partition_type="spx"'
    assert one(f'gpu_used_vram{{gpu_uuid="u",{whole}}} 9\n') == {"u gpu_memory_used_bytes": 9 * 2**20}


def test_radeon_boards_have_no_sm_activity() -> None:
    assert amd('card_model="AMD Radeon PRO W7900"', 0, "gpu_prof_sm_active") == "ABSENT_NOT_SUPPORTED"
    assert amd('card_model="AMD Instinct MI300X"', 12, "gpu_prof_sm_active") == 0.12


def test_exporters_that_name_gpus_by_index_need_their_uuids() -> None:
    ray, all_smi = 'ray_node_gpus_utilization{GpuIndex="1"} 75.5', 'all_smi_gpu_utilization{gpu="H100",index="0"} 3'
    text = f"{ray}\n{all_smi}\n"
    assert one(text) == {}
    assert one(text, gpus={"0": "GPU-a", "1": "GPU-b"}) == {
        "GPU-a gpu_utilization_ratio": 0.03,
        "GPU-b gpu_utilization_ratio": 0.755,
    }


NAMES = [
    row.split("\t")
    for row in (CASES / "catalog" / "dcgm_names.tsv").read_text().splitlines()
    if not row.startswith("#")
]


@pytest.mark.parametrize(("field", "metric", "names"), NAMES, ids=[row[0] + " " + row[1] for row in NAMES])
def test_every_name_of_every_dcgm_field_feeds_its_metric(field: str, metric: str, names: str) -> None:
    for name in names.split():
        bound = CATALOG.exposition(name)
        assert metric in [each.name for each, _ in bound]
        assert {source.field_id or 0 for _, source in bound} == {int(field)}
