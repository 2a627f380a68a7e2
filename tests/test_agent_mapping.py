"""Scrapes in, cells out: every case is a file of expositions and a file of what must come of it."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.agent.scrape.exposition import parse, syntax_of
from secondsight.agent.scrape.mapping import Mapped, Mapper
from secondsight.catalog.load import load_catalog
from secondsight.catalog.scale import to_physical
from secondsight.mapping.cells import ContentBuilder
from secondsight.mapping.identity import Origin
from secondsight.wire.frame import Stamp, decode, encode
from secondsight.wire.schema import Definitions

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
    if mapped.earlier:
        out["earlier"] = {
            time_ms: {f"{c.metric.name} {c.entity} {c.part}".strip(): to_physical(c.metric, c.value) for c in g.cells}
            for time_ms, hosts in sorted(mapped.earlier.items())
            for g in hosts.values()
        }
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


CAPTURES = Path(__file__).parents[1].parent / "shared" / "corpus" / "captures" / "prom"


def frames_of(mapped: Mapped) -> int:
    """Return how many frames a scrape makes, each decoded to be sure of it."""
    frames = 0
    for host, gathered in mapped.hosts.items():
        for content in ContentBuilder(host, "").build(gathered, 0):
            stamp = Stamp("c", "node-a", "scrape", 1, 0, 0, np.array([1_700_000_000_000], np.int64), 1000)
            decode(encode(stamp, content, inline=True), Definitions())
            frames += 1
    return frames


@pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"the public captures are not at {CAPTURES}")
@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*.[po][rp]*[ms]")), ids=lambda path: path.name)
def test_every_capture_makes_frames_or_is_counted(path: Path) -> None:
    text = path.read_text()
    exposition = parse(text, syntax_of("", text))
    mapped = Mapper(load_catalog(), Origin("node-a", "t", 8000, remote=True)).map(exposition, 1_700_000_000_000)
    discarded = sum(gathered.discarded.total() for gathered in mapped.hosts.values())
    assert frames_of(mapped) > 0 or discarded + len(exposition.rejections) > 0
    told = [sample for sample in exposition.samples if not sample.name.endswith("_created")]
    assert mapped.samples + discarded >= len(told)


NAMES = sorted(
    {source.name for metric in load_catalog().metrics for source in metric.sources if source.system != "nvml"}
    | {name + suffix for name in ("vllm:time_to_first_token_seconds",) for suffix in ("_bucket", "_sum", "_count")}
)
LABEL_NAMES = ["UUID", "uuid", "gpu", "GPU_I_ID", "device", "le", "quantile", "model_name", "pod", "instance", "engine"]
LABEL_VALUES = ["", "0", "GPU-a", "MIG-b", "+Inf", "0.5", "node-b:9100", "x" * 600, "a,b=c", "\x00", "é"]
ANY_VALUES = [
    "0",
    "1",
    "NaN",
    "+Inf",
    "-1",
    "9.223372036854776e+18",
    "18446744073709551615",
    "N/A",
    "",
    "1 1717236000000",
]


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.dictionaries(st.sampled_from(LABEL_NAMES), st.sampled_from(LABEL_VALUES), max_size=4),
            st.sampled_from(ANY_VALUES),
        ),
        max_size=12,
    )
)
def test_no_sample_breaks_a_scrape(rows: list[tuple[str, dict[str, str], str]]) -> None:
    bodies = [",".join(f'{label}="{value}"' for label, value in labels.items()) for _, labels, _ in rows]
    text = "".join(f"{name}{{{body}}} {value}\n" for (name, _, value), body in zip(rows, bodies, strict=True))
    mapper = Mapper(load_catalog(), Origin("node-a", "t", 8000, remote=True))
    for tick_ms in (1_717_236_000_000, 1_717_236_001_000):
        frames_of(mapper.map(parse(text, syntax_of("", text)), tick_ms))
