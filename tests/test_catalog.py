from collections import Counter
from pathlib import Path

import pytest

from secondsight.catalog.load import load_catalog, parse
from secondsight.catalog.metric import MetricType, Width
from secondsight.catalog.reference import metric_rows, render_list, render_reference
from secondsight.errors import Rejected
from secondsight.model import EntityKind, Priority

CASES = Path(__file__).parent / "cases" / "catalog"
ROOT = Path(__file__).parent.parent
CATALOG = load_catalog()
GOOD = 'unit="W", type="gauge", rollup="level", priority=1, dtype="u32", resolution=0.001, description="x"'


def rows(name):
    lines = (CASES / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


FOUNDING = {
    "gpu": 92,
    "node": 34,
    "fabric_port": 18,
    "process_job": 11,
    "training": 29,
    "inference": 25,
    "platform": 44,
}
"""Metrics of each kind that the first tables had; later ones stand behind them."""


def founding_metrics():
    return [metric for kind, count in FOUNDING.items() for metric in CATALOG.of_kind(EntityKind(kind))[:count]]


def test_every_founding_metric_is_there():
    assert len(founding_metrics()) == sum(FOUNDING.values()) == 253


def test_counts_by_type_priority_and_rollup():
    metrics = founding_metrics()
    by_type = Counter(m.type.value for m in metrics)
    assert by_type == {"gauge": 100, "counter": 91, "state": 28, "histogram": 19, "event": 11, "info": 4}
    assert Counter(m.priority for m in metrics) == {Priority.P0: 89, Priority.P1: 118, Priority.P2: 46}
    gauges = Counter(m.rollup.value for m in metrics if m.type is MetricType.GAUGE)
    assert gauges == {"level": 58, "distribution": 31, "constant": 11}


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("gpu_util", "gpu_utilization_ratio"),
        ("gpu_utilization", "gpu_utilization_ratio"),
        ("temp", "gpu_temperature_celsius"),
        ("temperature", "gpu_temperature_celsius"),
        ("gpu_temp", "gpu_temperature_celsius"),
        ("power", "gpu_power_watts"),
        ("mem", "gpu_memory_used_bytes"),
        ("memory_used", "gpu_memory_used_bytes"),
        ("fb_used", "gpu_memory_used_bytes"),
        ("sm_clock", "gpu_sm_clock_hertz"),
        ("energy", "gpu_energy_joules_total"),
        ("gpu_power_watts", "gpu_power_watts"),
        ("DCGM_FI_DEV_GPU_UTIL", "gpu_utilization_ratio"),
        ("dcgm_gpu_utilization", "gpu_utilization_ratio"),
    ],
)
def test_words_people_use(word, name):
    assert CATALOG.resolve(word).name == name


def test_an_unknown_word_is_refused_with_close_names():
    with pytest.raises(Rejected) as refused:
        CATALOG.resolve("gpu_utilisation")
    assert refused.value.code == "unknown_metric"
    assert "gpu_utilization_ratio" in refused.value.hint
    with pytest.raises(Rejected) as refused:
        CATALOG.get("gpu_util")
    assert refused.value.code == "unknown_metric"


def test_a_dcgm_name_of_several_metrics_is_ambiguous():
    with pytest.raises(Rejected) as refused:
        CATALOG.resolve("DCGM_FI_DRIVER_VERSION")
    assert refused.value.code == "ambiguous_metric"
    assert "gpu_info, node_info" in refused.value.hint


@pytest.mark.parametrize("row", rows("dcgm_fields.tsv"))
def test_dcgm_fields_under_every_spelling(row):
    field_id, scale, name, spellings = row.split("\t")
    for spelling in spellings.split():
        assert CATALOG.resolve(spelling).name == name
        ((metric, source),) = CATALOG.exposition(spelling)
        assert (metric.name, source.field_id, source.scale) == (name, int(field_id), float(scale))
        assert source.system == "dcgm"


def test_widths_of_dcgm_fields():
    widths = {s.field_id: s.width for m in CATALOG.metrics for s in m.sources if s.system == "dcgm" and s.field_id}
    doubles = {number for number, width in widths.items() if width is Width.FP64}
    assert doubles == {155, 157, 164, 254, 1100, *range(1001, 1009)}
    assert widths[156] is widths[1009] is widths[203] is Width.INT64
    assert widths[1] is Width.NONE


def bindings(name):
    return [(metric.name, source) for metric, source in CATALOG.exposition(name)]


def test_samples_of_other_exporters():
    assert [name for name, _ in bindings("vllm:num_requests_running")] == [
        "inference_requests_running",
        "inference_batch_size",
    ]
    ((name, source),) = bindings("node_network_receive_bytes_total")
    assert (name, source.part, source.rename) == (
        "node_network_io_bytes_total",
        (("direction", "receive"),),
        (("device", "device"),),
    )
    ((name, source),) = bindings("node_filesystem_avail_bytes")
    assert (name, source.rename) == ("node_filesystem_available_bytes", (("mountpoint", "mount"),))
    assert bindings("vllm:kv_cache_usage_perc")[0][1].rank < bindings("vllm:gpu_cache_usage_perc")[0][1].rank
    active = [s.match for _, s in bindings("nv_trt_llm_request_metrics")]
    assert active == [(("request_type", "active"),), (("request_type", "waiting"),)]
    assert bindings("DCGM_EXP_XID_ERRORS_COUNT") == []


def test_a_histogram_is_found_under_its_three_suffixes():
    base = bindings("vllm:time_to_first_token_seconds")
    assert base[0][0] == "inference_time_to_first_token_seconds"
    for suffix in ("_bucket", "_sum", "_count"):
        assert bindings("vllm:time_to_first_token_seconds" + suffix) == base
    assert [name for name, _ in bindings("tgi_request_input_length_sum")] == ["inference_prompt_tokens_total"]


def test_our_own_names_are_understood():
    ((name, source),) = bindings("training_loss")
    assert (name, source.scale) == ("training_loss", 1.0)
    ((_, source),) = bindings("agent_values_discarded_total")
    assert source.rename == (("reason", "reason"),)
    ((_, source),) = bindings("gpu_health")
    assert source.translate == ((1.0, 0), (0.0, 2))


def test_old_and_new_crc_counters_never_both():
    ranks = {s.field_id: s.rank for s in CATALOG.get("gpu_nvlink_crc_errors_total").sources if s.system == "dcgm"}
    assert ranks[497] < ranks[409] == ranks[419]


def test_mig_parts():
    for number in (*range(1001, 1013), *range(250, 254)):
        pairs = [(m, s) for m in CATALOG.metrics for s in m.sources if s.system == "dcgm" and s.field_id == number]
        for metric, source in pairs:
            assert metric.labels == ("ci", "gi")
            assert ("GPU_I_ID", "gi") in source.rename
    assert CATALOG.get("gpu_power_watts").labels == ()


def test_nvml_bindings():
    found = {source.name: (metric.name, source.scale) for metric, source in CATALOG.nvml()}
    assert found["FI 185"] == ("gpu_power_watts", 0.001)
    assert found["GPM 2"] == ("gpu_sm_active_ratio", 0.01)
    assert found["nvmlDeviceGetClockInfo(SM)"] == ("gpu_sm_clock_hertz", 1e6)
    assert {source.field_id for _, source in CATALOG.nvml() if source.name == "FI 83"} == {83}


def test_columns_are_the_scalars_in_file_order():
    for kind in EntityKind:
        scalars = CATALOG.scalars(kind)
        assert list(scalars) == [m for m in CATALOG.of_kind(kind) if m.dtype]
    assert CATALOG.scalars(EntityKind.GPU)[0].name == "gpu_utilization_ratio"


@pytest.mark.parametrize("row", rows("refused_lines.txt"))
def test_refused_lines(row, tmp_path):
    words, line = row.split(" ## ")
    path = tmp_path / "gpu.toml"
    path.write_text("# operator\n" + line.replace("GOOD", GOOD) + "\n")
    with pytest.raises(Rejected) as refused:
        load_catalog([path])
    assert refused.value.code == "bad_catalog"
    assert words in refused.value.message
    assert refused.value.hint


def test_a_refusal_names_file_line_and_metric():
    with pytest.raises(Rejected) as refused:
        parse(f"# first\n\nmy_power_watts={{{GOOD}}}\nmy_power={{{GOOD}}}\n", "gpu.toml")
    assert refused.value.message.startswith("gpu.toml:4: my_power: ")


def test_operators_add_metrics(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(f'my_power_watts={{kind="node", {GOOD}, prometheus=[{{name="my_meter", scale=2}}]}}\n')
    catalog = load_catalog([path])
    assert catalog.metrics[:-1] == CATALOG.metrics
    assert catalog.scalars(EntityKind.NODE)[-1].name == "my_power_watts"
    assert [m.name for m, _ in catalog.exposition("my_meter")] == ["my_power_watts"]
    assert "my_power_watts" in catalog
    assert "my_power_watts" not in CATALOG


def test_a_file_without_a_kind_is_refused(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(f"my_power_watts={{{GOOD}}}\n")
    with pytest.raises(Rejected, match="kind 'site' is unknown"):
        load_catalog([path])


def test_the_reference_page_is_fresh():
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert page == render_reference(CATALOG), "python -m secondsight.catalog.reference > docs/reference/metrics.md"


def test_lists_for_people_and_programs():
    table = render_list(CATALOG, EntityKind.NODE).splitlines()
    assert len(table) == 1 + len(CATALOG.of_kind(EntityKind.NODE))
    assert table[0].split() == ["name", "kind", "unit", "type", "priority", "aggregates"]
    narrow = render_list(CATALOG, columns=80).splitlines()
    assert narrow[0].split() == ["name", "unit", "type", "priority"]
    assert max(map(len, narrow)) <= 80
    assert '"name": "node_load1"' in render_list(CATALOG, as_json=True)
    assert metric_rows(CATALOG)[0]["aggregates"] == ["avg", "min", "max", "last", "p50", "p95", "p99"]


def test_every_key_is_explained_in_the_guide():
    guide = (ROOT / "docs" / "guides" / "adding-a-metric.md").read_text()
    keys = "kind unit type rollup priority dtype resolution min max clamp step cap values bitmask labels parts_maximum"
    keys += " parts_add aliases nvml dcgm prometheus derived description note"
    keys += " id name names scale width match part rename rank absent translate estimate shared help"
    assert [key for key in keys.split() if f"`{key}`" not in guide] == []
