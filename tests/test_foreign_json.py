"""Spellings that senders of OTLP's JSON use besides the one of its specification."""

import json
from typing import Any

import pytest

from foreign_index import PlainIndex
from secondsight.gateway.foreign import otlp

T0_NS = "1764470000000000000"


def told(temporality: Any) -> otlp.Points:
    point = {"timeUnixNano": T0_NS, "startTimeUnixNano": T0_NS, "asInt": "5"}
    total = {"aggregationTemporality": temporality, "isMonotonic": True, "dataPoints": [point]}
    request = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "tokens", "sum": total}]}]}]}
    return otlp.decode(otlp.read_json(json.dumps(request).encode()), PlainIndex())


@pytest.mark.parametrize("name", ["AGGREGATION_TEMPORALITY_CUMULATIVE", "AGGREGATION_TEMPORALITY_DELTA"])
def test_a_temporality_may_stand_by_its_name(name: str) -> None:
    by_name, by_number = told(name), told(2 if name.endswith("CUMULATIVE") else 1)
    assert by_name.values.tolist() == by_number.values.tolist() == [5.0]
    assert (by_name.deltas is None) == (by_number.deltas is None) == name.endswith("CUMULATIVE")


@pytest.mark.parametrize("temporality", [0, 7, "AGGREGATION_TEMPORALITY_SIDEWAYS"])
def test_one_that_nobody_knows_costs_its_points(temporality: Any) -> None:
    assert [refused.code for refused in told(temporality).refused] == ["temporality"]
