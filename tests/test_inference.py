"""Engines of every make in, rows of engines out; every name that a source is known by is in the catalogue."""

import json
import re
from pathlib import Path

import pytest

from secondsight.agent.scrape.exposition import parse, syntax_of
from secondsight.agent.scrape.mapping import Mapper
from secondsight.catalog.load import load_catalog
from secondsight.mapping.identity import Origin
from secondsight.model import EntityKind
from test_agent_mapping import frames_of, said, scrapes_of

CASES = Path(__file__).parent / "cases" / "inference"
SCRAPES = sorted(path for path in CASES.iterdir() if path.suffix in (".prom", ".scrapes"))
NAMES = (CASES / "source_names.txt").read_text().split()


@pytest.mark.parametrize("path", SCRAPES, ids=lambda path: path.stem)
def test_case(path: Path, request: pytest.FixtureRequest) -> None:
    mapper = Mapper(load_catalog(), Origin("node-a", "engine", 8000))
    found = []
    for tick_ms, text in scrapes_of(path):
        mapped = mapper.map(parse(text, syntax_of("", text)), tick_ms)
        frames_of(mapped)
        found.append(said(mapped))
    expected = path.with_name(path.name + ".expected.json")
    if request.config.getoption("--rewrite"):
        expected.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert found == json.loads(expected.read_text())


@pytest.mark.parametrize("name", NAMES)
def test_every_source_name_is_in_the_catalogue(name: str) -> None:
    """A name is a source, or a line says in words what becomes of it."""
    metrics = load_catalog().of_kind(EntityKind.INFERENCE)
    words = {word for metric in metrics for word in re.findall(r"[\w:]+", f"{metric.derived} {metric.note}")}
    assert load_catalog().exposition(name) or name in words


def test_engines_behind_one_port_are_apart() -> None:
    labels = [
        'model_name="m"',
        'model_name="m",engine="0"',
        'model_name="m",engine="1"',
        'model_name="m",dp_rank="2"',
        'model_name="m",ReplicaId="app#LLMServer#ab12cd34"',
        'model_name="m",engine="1",ReplicaId="ab12cd34"',
        f'model_name="m",WorkerId="{"0" * 50}00c0ffee"',
        'model="m",version="1"',
        'model="m",version="2"',
        'model_name="m",Version="2.46.0"',
    ]
    entities = []
    for each in labels:
        text = f"vllm:num_requests_running{{{each}}} 1\n"
        mapped = Mapper(load_catalog(), Origin("n", "t", 80)).map(parse(text, syntax_of("", text)), 0)
        entities.append(mapped.of("n").cells[0].entity.removeprefix("n:80/m"))
    assert entities == ["", "", "#1", "#2", "#ab12cd34", "#1-ab12cd34", "#000000c0ffee", "", "#v2", ""]
