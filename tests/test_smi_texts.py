"""Texts of nvidia-smi and rocm-smi in, readings out: cases of our own, and the public captures where they are at hand.

Expected files hold what `import smi --json` says. Captures are named one by one, with what their notes state.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondsight.agent.smi.forms import read_any
from secondsight.agent.smi.importing import ImportedFile, ImportOptions, decode, import_texts
from secondsight.agent.smi.instants import LocalTimes, rfc3339_us, zone_of
from secondsight.agent.smi.report import as_json, as_text
from secondsight.agent.smi.rows import Document, Subject
from secondsight.agent.smi.texts import Text, is_blank, read_text
from secondsight.catalog.load import load_catalog
from secondsight.errors import Rejected

CATALOG = load_catalog()
CASES = Path(__file__).parent / "cases" / "smi"
CORPUS = Path(__file__).parents[1].parent / "shared" / "corpus"
CAPTURES = CORPUS / "captures" / "smi"
HELD = "gpu=GPU-00000000-0000-0000-0000-000000000001"
OPTIONS = ImportOptions("host-1", zone_of("Europe/Berlin"))
INPUTS = sorted(path for path in CASES.iterdir() if not path.name.endswith(".expected.json"))

needs_captures = pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"the public captures are not at {CAPTURES}")


def imported(path: Path, options: ImportOptions = OPTIONS) -> ImportedFile:
    return import_texts([(path.name, decode(path.read_bytes()))], options, CATALOG)[0]


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.name)
def test_case(path: Path, request: pytest.FixtureRequest) -> None:
    file = imported(path)
    found = json.loads(as_json([file]))
    assert as_text([file]).startswith(path.name)
    expected = path.with_name(path.name + ".expected.json")
    if request.config.getoption("--rewrite"):
        expected.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert found == json.loads(expected.read_text())


def test_expected_files_are_all_used() -> None:
    for path in CASES.glob("*.expected.json"):
        assert path.with_name(path.name.removesuffix(".expected.json")).exists()


def capture(name: str) -> tuple[Document, dict[str, Any]]:
    """Return what a capture holds, and metric -> value or quality of its last readings by `entity part metric`."""
    file = imported(CAPTURES / name)
    found = json.loads(as_json([file]))["readings"]
    return file.document, {
        f"{one['entity'][-1]} {one['part']} {one['metric']}": one["quality"] if one["value"] is None else one["value"]
        for one in found
    }


def note(name: str) -> str:
    return (CAPTURES / f"{name}.expect.md").read_text()


@needs_captures
@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("compute_apps_h100_mig_load.csv", Subject.PROCESS),
        ("dmon_h200_load.txt", Subject.GPU),
        ("dmon_win2080s_load.txt", Subject.GPU),
        ("pmon_h100_mig_load.txt", Subject.PROCESS),
    ],
)
def test_rows_of_captures(name: str, subject: Subject) -> None:
    rows = int(re.findall(r"data rows: (\d+)", note(name))[0]) - ("first is the header" in note(name))
    document = capture(name)[0]
    assert [row.subject for row in document.rows] == [subject] * rows
    assert document.refusals == document.faults == []


@needs_captures
@pytest.mark.parametrize("name", ["all_error_tokens", "h100_mig_load", "l40s_load", "win2080s_load"])
def test_query_captures_have_the_cells_of_their_notes(name: str) -> None:
    text = note(f"query_gpu_{name}.csv")
    document = capture(f"query_gpu_{name}.csv")[0]
    columns, rows = re.findall(r"columns: (\d+); data rows: (\d+)", text)[0]
    assert len(document.rows) == int(rows)
    tokens: Counter[str] = Counter()
    for row in document.rows:
        texts = [cell.text for cell in row.cells.values()]
        assert len(texts) + bool(row.local_time) == int(columns)
        tokens.update(one for one in texts if is_blank(one))
    assert tokens == json.loads(re.findall(r"how often: (\{.*\})", text)[0].replace("'", '"'))


@needs_captures
def test_error_tokens_are_events_of_gpus_and_never_readings() -> None:
    document, found = capture("query_gpu_all_error_tokens.csv")
    assert len(document.rows) == 8
    assert found["3  gpu_recovery_action"] == 1
    assert found["3  gpu_memory_used_bytes"] == "absent_source_blank"
    assert found["3  gpu_memory_total_bytes"] == 81559 * 2**20
    assert found["5  gpu_driver_unresponsive"] == 1
    assert found["4  gpu_fan_speed_ratio"] == "absent_source_blank"
    assert found["4  gpu_power_watts"] == 99.13
    assert found["2  gpu_utilization_ratio"] == "absent_not_supported"
    entities = {
        row["entity"]
        for row in json.loads(as_json([imported(CAPTURES / "query_gpu_all_error_tokens.csv")]))["readings"]
    }
    assert entities == {"host-1/gpu7", *(f"GPU-00000000-0000-0000-0000-00000000000{n}" for n in range(1, 8))}


@needs_captures
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (
            "query_gpu_h100_mig_load.csv",
            {
                "1  gpu_utilization_ratio": "absent_not_supported",
                "1  gpu_memory_used_bytes": 11125 * 2**20,
                "1  gpu_power_watts": 433.78,
                "1  gpu_power_instant_watts": 447.35,
                "1  gpu_temperature_margin_celsius": 24,
                "1  gpu_fabric_state": 3,
                "1  gpu_recovery_action": 0,
                "1  gpu_application_clock_hertz": "absent_not_supported",
                "1 availability=max gpu_row_remap_banks": 2560,
            },
        ),
        (
            "query_gpu_l40s_load.csv",
            {
                "1  gpu_throttle_sw_power_cap_seconds_total": 204.642816,
                "1  gpu_encoder_utilization_ratio": 0.6,
                "1  gpu_memory_temperature_celsius": "absent_not_supported",
                "1  gpu_row_remap_failed": 0,
                "1  gpu_mig_mode": "absent_not_supported",
            },
        ),
        (
            "query_gpu_win2080s_load.csv",
            {
                "1  gpu_throttle_sw_power_cap_seconds_total": 5459.682741,
                "1  gpu_power_watts": 97.43,
                "1  gpu_fan_speed_ratio": 0.38,
                "1  gpu_performance_state": 2,
                "1  gpu_clock_event_reasons": 1,
                "1  gpu_ecc_mode": "absent_not_supported",
            },
        ),
        (
            "compute_apps_h100_mig_load.csv",
            {f"0 {HELD} process_gpu_memory_bytes": 2296 * 2**20, f"8 {HELD} process_gpu_memory_bytes": 7484 * 2**20},
        ),
        ("pmon_h100_mig_load.txt", {"8 gpu=host-1/gpu0 process_gpu_sm_utilization_ratio": "absent_not_supported"}),
        ("dmon_h200_load.txt", {"0  gpu_power_watts": 630, "0  gpu_memory_temperature_celsius": 42}),
        ("dmon_win2080s_load.txt", {"0  gpu_memory_temperature_celsius": "absent_not_supported"}),
        (
            "q_text_h100_mig.txt",
            {
                "1  gpu_memory_used_bytes": 11125 * 2**20,
                "1  gpu_bar1_used_bytes": 81081 * 2**20,
                "1 gi=2 gpu_memory_used_bytes": 11091 * 2**20,
                "1 gi=10 gpu_memory_free_bytes": 9976 * 2**20,
                "1  gpu_utilization_ratio": "absent_not_supported",
                "1  gpu_pcie_link_width": 16,
                "1  gpu_pcie_replay_total": 9,
            },
        ),
        (
            "q_text_h200.txt",
            {
                "1  gpu_power_watts": 627.32,
                "1  gpu_power_instant_watts": 625.24,
                "1  gpu_memory_used_bytes": 32362 * 2**20,
                "1  gpu_utilization_ratio": 1,
                "1  gpu_temperature_celsius": 52,
                "1  gpu_ecc_uncorrected_aggregate_total": 0,
                "1 availability=max gpu_row_remap_banks": 3072,
                "1  gpu_base_clock_hertz": "absent_not_supported",
            },
        ),
        (
            "xml_a100_mig.xml",
            {
                "1  gpu_power_watts": 66.92,
                "1  gpu_power_limit_watts": 400,
                "1  gpu_clock_event_reasons": 0,
                "1 gi=1 gpu_memory_used_bytes": 19 * 2**20,
                "1 gi=2 gpu_memory_total_bytes": 19968 * 2**20,
                "1  gpu_ecc_corrected_volatile_total": "absent_not_supported",
                "1  gpu_ecc_corrected_aggregate_total": 0,
            },
        ),
        (
            "xml_rtx_pro_6000_580.xml",
            {
                "1  gpu_power_watts": "absent_not_supported",
                "1  gpu_power_instant_watts": 66.84,
                "1  gpu_fan_speed_ratio": 0.4,
            },
        ),
        (
            "xml_telegraf_rtx_3080_v13.xml",
            {
                "1  gpu_power_watts": 139.62,
                "1  gpu_power_limit_watts": 320,
                "1  gpu_clock_event_reasons": 0,
                "1  gpu_throttle_hw_thermal_seconds_total": 0,
                "1  gpu_slowdown_temperature_celsius": 95,
                "1  gpu_boost_clock_hertz": 2_100_000_000,
            },
        ),
        (
            "rocm_smi_vega_20_WKS_GL_XE.json",
            {
                "1 sensor=edge gpu_temperature_celsius": 36,
                "1 sensor=junction gpu_temperature_celsius": 38,
                "1  gpu_memory_temperature_celsius": 35,
                "1  gpu_power_watts": 26,
                "1  gpu_sm_clock_hertz": 1_725_000_000,
                "1  gpu_memory_total_bytes": 34_342_961_152,
                "1  gpu_utilization_ratio": 0,
            },
        ),
    ],
)
def test_values_of_captures(name: str, wanted: dict[str, Any]) -> None:
    found = capture(name)[1]
    assert {key: found[key] for key in wanted} == pytest.approx(wanted)


@needs_captures
def test_structures_of_captures() -> None:
    listed = capture("list_L_h100_mig.txt")[0].rows
    assert [row.text("mig.profile") for row in listed if row.subject is Subject.LISTED] == [
        "3g.40gb",
        "2g.20gb",
        "1g.10gb",
        "1g.10gb",
    ]
    assert {row.text("uuid") for row in listed} == {"GPU-00000000-0000-0000-0000-000000000001"}
    assert sum(row.subject is Subject.SLICE for row in capture("xml_a100_mig.xml")[0].rows) == 2
    assert sum(row.subject is Subject.SLICE for row in capture("q_text_h100_mig.txt")[0].rows) == 4
    assert [row.text("index") for row in capture("rocm_smi_vega_20_WKS_GL_XE.json")[0].rows] == ["0"]
    assert max(row.round for row in capture("pmon_h100_mig_load.txt")[0].rows) == 4


@needs_captures
def test_every_capture_has_a_test() -> None:
    named = set(re.findall(r'"([a-z_0-9A-Z]+\.(?:csv|txt|xml|json))"', Path(__file__).read_text()))
    captures = {path.name for path in CAPTURES.iterdir() if not path.name.endswith(".expect.md")}
    assert captures <= named


def test_045_instants_are_cut_never_rounded_up() -> None:
    assert rfc3339_us("2025-08-04T12:00:00.999999999Z") == 1_754_308_800_999_999
    assert rfc3339_us("2025-08-04T08:00:00.123456-04:00") == 1_754_308_800_123_456
    assert rfc3339_us("2025-08-04T12:00:00.9Z") == 1_754_308_800_900_000
    assert rfc3339_us("1969-12-31T23:59:59.9999999+00:00") == -1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("2025-08-04T12:00:00", "no_zone"),
        ("yesterday", "bad_time"),
        ("2025-02-30T12:00:00Z", "bad_time"),
        ("", "bad_time"),
    ],
)
def test_times_that_are_none(text: str, code: str) -> None:
    with pytest.raises(Rejected) as refused:
        rfc3339_us(text)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("zone", "text", "us"),
    [
        ("Europe/Berlin", "2026/07/14 09:00:27.792", 1_784_012_427_792_000),
        ("+02:00", "Tue Jul 14 09:00:27 2026", 1_784_012_427_000_000),
        ("UTC", "20260714 07:00:27", 1_784_012_427_000_000),
        ("-0330", "2026-07-14 03:30:27,5", 1_784_012_427_500_000),
        ("America/New_York", "2026-07-14T07:00:27.792Z", 1_784_012_427_792_000),
    ],
)
def test_local_times_of_a_zone(zone: str, text: str, us: int) -> None:
    assert LocalTimes(zone_of(zone)).resolve(text) == us


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "", "+25:00", "../etc/passwd"])
def test_zones_that_are_none(zone: str) -> None:
    with pytest.raises(Rejected) as refused:
        zone_of(zone)
    assert refused.value.code == "bad_zone"


def test_files_help_each_other_to_name_gpus() -> None:
    texts = [(name, (CASES / name).read_text()) for name in ("dmon.txt", "list.txt")]
    files = import_texts(texts, ImportOptions("h", start_ms=1000, interval_ms=500), CATALOG)
    assert {cell.entity for _, mapped in files[0].ticks for cell in mapped.gathered.cells} == {
        "GPU-00000000-0000-0000-0000-000000000001",
        "GPU-00000000-0000-0000-0000-000000000002",
    }
    assert [ms for ms, _ in files[0].ticks] == [1000, 1500]
    named = ImportOptions("h", gpus={"0": "GPU-x", "1": "GPU-y"})
    file = import_texts(texts[:1], named, CATALOG)[0]
    assert {cell.entity for _, mapped in file.ticks for cell in mapped.gathered.cells} == {"GPU-x", "GPU-y"}


MARKS = ["[N/A]", ",", "\n", "\r\n", "#", "<", ">", "{", "}", ":", ";", "\t", "\ufeff", "<gpu>", "0x"]
WORDS = ["index", "uuid", "power.draw", "0", "GPU-a", "W", "gpu", "P0", "nvidia_smi_log", *MARKS]
LINES = ["GPU 0: x (UUID: GPU-a)", "=====NVSMI LOG=====", "    A : B", "index, uuid, power.draw [W]", " ", '"']
PIECES = st.sampled_from([*WORDS, *LINES])


@given(st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=200))
def test_no_text_breaks_a_reader(text: str) -> None:
    file = import_texts([("x", text)], OPTIONS, CATALOG)[0]
    as_text([file])
    json.loads(as_json([file]))


def test_a_number_of_any_length_is_read() -> None:
    assert read_text(Text("9" * 5000 + " MiB")).number == float("inf")
    assert read_text(Text("18446744073709551615")).number == 2**64 - 1


@given(st.text(max_size=40), st.text(max_size=8))
def test_no_cell_breaks_a_reader_and_absent_is_no_number(text: str, unit: str) -> None:
    reading = read_text(Text(text, unit))
    assert (reading.number is None) == (reading.quality.name != "OK")


def test_a_form_is_told_by_its_beginning() -> None:
    forms = {path.name: read_any(decode(path.read_bytes())).form for path in INPUTS}
    assert {name: form for name, form in forms.items() if form != "csv"} == {
        "dmon.txt": "dmon",
        "dmon-with-times.txt": "dmon",
        "pmon.txt": "pmon",
        "list.txt": "list",
        "q.txt": "q",
        "two-logs.xml": "xml",
        "entities.xml": "xml",
        "cut.xml": "xml",
        "older-boards-and-raw-names.xml": "xml",
        "rocm.json": "rocm",
        "rocm-after-a-warning.json": "rocm",
    }
