"""Every value of the driver arrives with its unit, and every way of having none with its kind."""

import json
from pathlib import Path
from typing import Any

import pytest

from nvml_rig import Rig, needs_compiler, running
from nvml_stub import build

pytestmark = needs_compiler
CASES = sorted((Path(__file__).parent / "cases/nvml").glob("*.json"))
GPU = "GPU-11111111-2222-3333-4444-555555555555"


def rows_of(rig: Rig, count: int) -> dict[str, dict[str, Any]]:
    rig.settled(count)
    rows = {f"{entity} {part}".strip(): cells for (entity, part), cells in rig.tick().items()}
    rows |= {f"{entity} {part}": cells for (entity, part), cells in rig.part_rows().items()}
    return rows | {f"{entity} {part}": cells for (entity, part), cells in rig.process_rows().items()}


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_case(path: Path, tmp_path: Path) -> None:
    case = json.loads(path.read_text())
    library = build.library(without=tuple(case.get("without", ())))
    with running(tmp_path, *case["scenario"], library=library) as rig:
        rows = rows_of(rig, case.get("gpus", 1))
        for row, expected in case["rows"].items():
            shown = {name: rows.get(row, {}).get(name) for name in expected}
            assert shown == expected, row
        for row, absent in case.get("no_claim", {}).items():
            assert [name for name in absent if name in rows[row]] == [], row
        for row in case.get("no_rows", ()):
            assert row not in rows
        for uuid, expected in case.get("facts", {}).items():
            assert {name: rig.facts[uuid].get(name) for name in expected} == expected
        codes = rig.counts.labelled("nvml_code")
        assert sorted(codes) == case.get("codes", sorted(codes))


def test_every_scalar_of_the_catalogue_that_names_nvml_has_a_case() -> None:
    from secondsight.agent.nvml.plan import plan_of
    from secondsight.catalog.load import load_catalog

    named = {metric.name for metric, _ in load_catalog().nvml() if metric.is_scalar}
    seen: set[str] = set()
    for path in CASES:
        case = json.loads(path.read_text())
        seen |= {name for cells in case["rows"].values() for name in cells}
    assert named - seen == set()
    assert {metric.name for metric in plan_of(load_catalog()).metrics} - seen == set()
