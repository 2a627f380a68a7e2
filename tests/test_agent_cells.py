"""Cells go into contents and come out of frames as they were, tick after tick under the same definitions."""

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from log_faults import FaultyDisk
from secondsight.agent.client.offset import ClockOffset
from secondsight.agent.counts import Counts
from secondsight.agent.host.place import Place
from secondsight.agent.host.reader import HostReader
from secondsight.agent.spool.bounds import SpoolBounds
from secondsight.agent.spool.classes import Spools
from secondsight.agent.write.definitions import KeptDefinitions
from secondsight.agent.write.split import Splitter
from secondsight.agent.write.writer import Keeping, Sender, TickWriter
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.contracts import Tick
from secondsight.mapping.cells import FORGET_TICKS, Cell, ContentBuilder, Gathered, HistogramPoint, part_text
from secondsight.model import EntityKind, Quality
from secondsight.wire.content import Content
from secondsight.wire.frame import Stamp, decode, encode
from secondsight.wire.schema import Definitions

CATALOG = load_catalog()
SCALARS = [
    metric for metric in (*CATALOG.scalars(EntityKind.GPU)[:20], *CATALOG.scalars(EntityKind.NODE)[:12]) if metric.dtype
]
HISTOGRAM = CATALOG.get("inference_time_to_first_token_seconds")
ENTITIES = st.sampled_from(["GPU-a", "GPU-b", "host-1"])
PARTS = st.sampled_from(["", "gi=1", "device=eth0,direction=receive"])
REFUSALS = [quality for quality in Quality if not quality.has_value and quality is not Quality.NONE]


@st.composite
def cells(draw: st.DrawFn) -> Cell:
    metric = draw(st.sampled_from(SCALARS))
    quality = draw(st.sampled_from([Quality.OK, Quality.OK, Quality.ESTIMATE, *REFUSALS]))
    value = draw(st.integers(0, 100)) if quality.has_value else None
    return Cell(metric, draw(ENTITIES), draw(PARTS), value, quality)


def unique(found: list[Cell]) -> list[Cell]:
    return list({(cell.metric.name, cell.entity, cell.part): cell for cell in found}.values())


def sent(content: Content) -> Content:
    stamp = Stamp("c", "host-1", "host", 1, 0, 0, np.array([1_700_000_000_000], np.int64), 1000)
    return decode(encode(stamp, content, inline=True), Definitions()).content


def read_back(contents: tuple[Content, ...]) -> list[tuple[str, str, str, float | None, Quality]]:
    out = []
    for content in map(sent, contents):
        block = content.scalars
        if block is None:
            continue
        keys = [content.entities.entities[index] for index in block.entity_index]
        listed = zip(block.quality_row, block.quality_column, block.quality, strict=True)
        quality = {(int(row), int(column)): Quality(code) for row, column, code in listed}
        for group in block.groups:
            for offset, values in enumerate(group.values):
                column = group.first_column + offset
                for row, value in enumerate(values):
                    present = group.present is None or bool(group.present[offset, row])
                    found = quality.get((row, column), Quality.OK if present else Quality.NONE)
                    if found is not Quality.NONE:
                        name = content.schema.columns[column].metric
                        out.append((name, keys[row].entity, keys[row].part, value.item() if present else None, found))
    return sorted(out, key=lambda item: item[:3])


@given(st.lists(st.lists(cells(), max_size=12), min_size=1, max_size=4))
def test_what_is_gathered_is_what_is_read(ticks: list[list[Cell]]) -> None:
    builder = ContentBuilder("host-1", "rack-1")
    for gathered in map(unique, ticks):
        expected = sorted((c.metric.name, c.entity, c.part, c.value, c.quality) for c in gathered)
        assert read_back(builder.build(Gathered(cells=gathered), 3)) == expected


def test_definitions_grow_and_then_stay() -> None:
    builder = ContentBuilder("host-1", "")
    one, two = (Cell(SCALARS[index], f"GPU-{index}", "", 1, Quality.OK) for index in range(2))
    (first,) = builder.build(Gathered(cells=[one]), 0)
    (both,) = builder.build(Gathered(cells=[one, two]), 0)
    (again,) = builder.build(Gathered(cells=[two]), 0)
    assert first.schema is not both.schema
    assert (again.schema, again.entities) == (both.schema, both.entities)
    assert again.schema is both.schema
    assert len(again.scalars.entity_index) == 1


def test_an_entity_long_gone_leaves_the_table() -> None:
    builder = ContentBuilder("host-1", "")
    one, two = (Cell(SCALARS[0], f"GPU-{index}", "", 1, Quality.OK) for index in range(2))
    builder.build(Gathered(cells=[one, two]), 0)
    for _ in range(2 * FORGET_TICKS):
        (content,) = builder.build(Gathered(cells=[one]), 0)
    assert [entity.entity for entity in content.entities.entities] == ["GPU-0"]


def point(entity: str, *bounds: float) -> HistogramPoint:
    return HistogramPoint(HISTOGRAM, entity, "", bounds, tuple(range(len(bounds) + 1)), 2.5, 7)


def test_histograms_of_other_bounds_go_in_a_content_of_their_own() -> None:
    builder = ContentBuilder("host-1", "")
    points = [point("a", 0.1, 0.5), point("b", 0.1, 0.5), point("c", 0.2)]
    contents = [sent(content) for content in builder.build(Gathered(histograms=points), 0)]
    assert [content.schema.histograms[0].bounds for content in contents] == [(0.1, 0.5), (0.2,)]
    assert contents[0].histograms[0].buckets.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert contents[1].entities.entities[0].entity == "c"


def test_part_texts_are_sorted_escaped_and_without_empty_values() -> None:
    assert part_text([("mount", "/a,b=c%"), ("device", "x"), ("empty", "")]) == "device=x,mount=/a%2Cb%3Dc%25"
    assert part_text([("name", "a\nb")]) == "name=a_b"


def keeping(folder: Path, clock: ManualClock, counts: Counts, disk: FaultyDisk | None = None) -> Keeping:
    spools = Spools(folder, SpoolBounds(1 << 20), clock, counts, disk=disk)
    return Keeping(spools, KeptDefinitions(folder / "definitions", clock), Splitter(CATALOG))


def test_a_full_disk_costs_ticks_that_are_counted_and_ends_with_the_fullness(tmp_path: Path) -> None:
    clock, counts, disk = ManualClock(), Counts(), FaultyDisk()
    kept = keeping(tmp_path, clock, counts, disk)
    disk.free_bytes = 0
    writer = TickWriter(Sender("host-1", "host-1", ""), kept, ClockOffset(), clock, counts)
    reader = HostReader(Place("host-1"), CATALOG, clock, counts)
    (content,) = ContentBuilder("host-1", "").build(Gathered(cells=[Cell(SCALARS[0], "a", "", 1, Quality.OK)]), 0)
    writer.write(reader, clock.now_ms(), Tick((content,)))
    assert counts.labelled("spool_write_failed") == {"ENOSPC": 1}
    assert counts.labelled("dropped") == {"disk_full": 1}
    assert counts.get("ticks_missed") == 1
    disk.free_bytes = None
    writer.write(reader, clock.now_ms(), Tick((content,)))
    assert kept.spools.records == 1
    kept.spools.close()


def test_a_tick_without_contents_is_no_record(tmp_path: Path) -> None:
    clock, counts = ManualClock(), Counts()
    kept = keeping(tmp_path, clock, counts)
    writer = TickWriter(Sender("host-1", "host-1", ""), kept, ClockOffset(), clock, counts)
    writer.write(HostReader(Place("host-1"), CATALOG, clock, counts), clock.now_ms(), Tick(()))
    assert kept.spools.records == 0
    kept.spools.close()
