"""A total over NVLinks is of all of them: as the driver adds up, or link by link; never that of one link."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvml_rig import needs_compiler, running
from secondsight.agent.nvml.child.totals import NOT_THERE, sum_of
from secondsight.agent.nvml.plan import plan_of
from secondsight.catalog.load import load_catalog

CASES = json.loads((Path(__file__).parent / "cases/nvml-links.json").read_text())


@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_totals(tmp_path: Path, case: dict[str, Any]) -> None:
    lines = ["host bare 1", f"gpu 0 field 91 = {case['links']}", "gpu 0 field 91 type ui"]
    with running(tmp_path, *lines, *(f"gpu 0 {line}" for line in case["lines"])) as rig:
        (cells,) = rig.settled(1).values()
        found = {name: cells[f"gpu_nvlink_{name}_errors_total"] for name in ("symbol", "replay")}
        assert found == {name: case[name] for name in ("symbol", "replay")}


def test_no_total_is_asked_each_tick() -> None:
    plan = plan_of(load_catalog())
    assert not {"FI 161", "FI 162", "FI 163", "FI 221"} & set(plan.names[: plan.main_count])
    assert {"FI 161", "FI 162", "FI 163", "FI 221"} <= set(plan.names)
    assert "FI 202" in plan.names[: plan.main_count]


@given(st.lists(st.tuples(st.sampled_from([0, 0, *sorted(NOT_THERE), 999, 15]), st.integers(0, 2**64 - 1))))
def test_a_sum_is_of_what_answered_or_has_the_code_of_what_failed(answers: list[tuple[int, int]]) -> None:
    code, total = sum_of(answers)
    good = [value for code, value in answers if code == 0]
    bad = [code for code, _ in answers if code and code not in NOT_THERE]
    if bad:
        assert (code, total) == (bad[0], 0)
    elif good:
        assert (code, total) == (0, sum(good))
    else:
        assert code in NOT_THERE
        assert total == 0
