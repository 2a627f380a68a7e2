"""Scrapes in, cells out: every case is a file of expositions and a file of what must come of it."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from secondsight.agent.exposition import parse, syntax_of
from secondsight.agent.identity import Origin
from secondsight.agent.mapping import Mapped, Mapper
from secondsight.catalog.load import load_catalog
from secondsight.catalog.scale import to_physical

CASES = Path(__file__).parent / "cases" / "scrape"
SCRAPES = sorted(path for path in CASES.iterdir() if path.suffix in (".prom", ".scrapes", ".openmetrics"))
INTERVAL_MS = 1000


def scrapes_of(path: Path) -> list[tuple[int, str]]:
    text = path.read_text()
    if path.suffix != ".scrapes":
        return [(1_717_236_000_000, text)]
    blocks = re.split(r"^### (\d+)\n", text, flags=re.MULTILINE)[1:]
    return [(int(time), block) for time, block in zip(blocks[::2], blocks[1::2], strict=True)]


def said(mapped: Mapped) -> dict[str, Any]:
    """Return what a scrape came to, in physical units, as JSON."""
    out: dict[str, Any] = {}
    for host, gathered in sorted(mapped.hosts.items()):
        cells = {
            f"{c.metric.name} {c.entity} {c.part}".strip(): c.quality.name.lower()
            if c.value is None
            else to_physical(c.metric, c.value)
            for c in gathered.cells
        }
        histograms = {
            f"{p.metric.name} {p.entity} {p.part}".strip(): [p.bounds, p.buckets, p.sum, p.start_ms]
            for p in gathered.histograms
        }
        events = [
            [e.metric, e.entity, e.part, e.time_ms, e.end_ms, e.code, dict(e.attributes)] for _, e in gathered.events
        ]
        infos = {f"{i.metric} {i.entity}": dict(i.attributes) for _, i in gathered.infos}
        discarded = dict(sorted(gathered.discarded.items()))
        parts = {f"{e} {p}": dict(a) for (e, p), a in sorted(gathered.attributes.items()) if p and a}
        found = {
            "cells": cells,
            "histograms": histograms,
            "events": events,
            "infos": infos,
            "discarded": discarded,
            "part_attributes": parts,
        }
        out[host] = {name: value for name, value in found.items() if value}
    if mapped.unknown:
        out["unknown"] = dict(sorted(mapped.unknown.items()))
    if mapped.workloads:
        out["workloads"] = {f"{e} {p}".strip(): sorted(map(list, w)) for (e, p), w in sorted(mapped.workloads.items())}
    return json.loads(json.dumps(out))


def origin_of(path: Path) -> Origin:
    options = path.with_name(path.name + ".options.json")
    given = json.loads(options.read_text()) if options.exists() else {}
    return Origin(**({"host_id": "node-a", "target": "exporter", "port": 8000} | given))


@pytest.mark.parametrize("path", SCRAPES, ids=lambda path: path.name)
def test_case(path: Path, request: pytest.FixtureRequest) -> None:
    mapper = Mapper(load_catalog(), origin_of(path))
    found = []
    for tick_ms, text in scrapes_of(path):
        exposition = parse(text, syntax_of("", text))
        found.append(said(mapper.map(exposition, tick_ms, tick_ms - 3 * INTERVAL_MS)))
    expected = path.with_name(path.name + ".expected.json")
    if request.config.getoption("--rewrite"):
        expected.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert found == json.loads(expected.read_text())


def test_a_part_limit_keeps_the_first_parts() -> None:
    lines = "".join(f'node_disk_io_now{{device="sd{number}"}} 1\n' for number in range(500))
    mapped = Mapper(load_catalog(), Origin("node-a")).map(parse(lines, syntax_of("", lines)), 0)
    gathered = mapped.of("node-a")
    limit = load_catalog().get("node_disk_queue_depth").parts_maximum
    assert len(gathered.cells) <= limit + 1
    assert gathered.discarded["parts_limit"] == 500 - len(gathered.cells)
    assert gathered.cells[0].part == "device=sd0"


def test_remote_targets_take_the_host_from_labels_and_others_do_not() -> None:
    text = 'node_load1{instance="node-b:9100"} 1\nnode_load1{hostname="node-c"} 2\nnode_load1 3\n'
    exposition = parse(text, syntax_of("", text))
    remote = Mapper(load_catalog(), Origin("gate", remote=True)).map(exposition, 0)
    assert {host: g.cells[0].entity for host, g in remote.hosts.items() if g.cells} == {
        "node-b": "node-b",
        "node-c": "node-c",
        "gate": "gate",
    }
    local = Mapper(load_catalog(), Origin("gate")).map(exposition, 0)
    assert set(local.hosts) == {"gate"}
    assert local.of("gate").discarded == Counter(conflict=2)


def test_the_series_cache_does_not_change_the_answer() -> None:
    text = (CASES / "idn-6-one-card-two-pods.prom").read_text()
    exposition = parse(text, syntax_of("", text))
    mapper = Mapper(load_catalog(), Origin("node-a"))
    first, second = mapper.map(exposition, 0), mapper.map(exposition, 1000)
    assert first.of("node-a").cells == second.of("node-a").cells
    assert second.of("node-a").infos == []
