"""Read the dashboards that go with the product: metrics that exist, panels that do not overlap, units that are said."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from secondsight.catalog.load import load_catalog

BOARDS = sorted((Path(__file__).parent.parent / "deploy" / "grafana").glob("*.json"))
KNOWN = {metric.name for metric in load_catalog().metrics}
NAME = re.compile(r"(?<![\w$\"])[a-z]+_[a-z0-9_]+(?=\s*(?:[\[{,)]|$))")


def board_of(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_dashboards_name_metrics_of_the_catalogue(path: Path) -> None:
    board = board_of(path)
    texts = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    texts += [one["query"]["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    named = {name for text in texts for name in NAME.findall(text)}
    assert named
    assert named <= KNOWN


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_panels_have_a_title_and_a_place_of_their_own(path: Path) -> None:
    panels = board_of(path)["panels"]
    assert all(panel["title"] for panel in panels)
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in itertools.combinations([panel["gridPos"] for panel in panels], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
