"""Hypothesis strategies for whatever a frame can carry, and an exact comparison of frames."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from secondsight.model import EntityKind, Quality
from secondsight.wire.content import (
    Column,
    Content,
    Entity,
    EntityTable,
    Event,
    Group,
    HistogramColumn,
    HistogramRows,
    Info,
    ScalarBlock,
    Schema,
)
from secondsight.wire.frame import Stamp
from secondsight.wire.schema import NUMPY_TYPES, group_layouts, make_schema

NOW_MS = 1_700_000_000_000

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
names = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=12)
kinds = st.sampled_from(list(EntityKind))
attributes = st.dictionaries(names, texts, max_size=3)
u64 = st.integers(0, 2**64 - 1)
ABSENT_QUALITIES = [quality for quality in Quality if quality > Quality.ESTIMATE]


@st.composite
def schemas(draw: st.DrawFn, kind: EntityKind) -> Schema:
    metrics = draw(st.lists(names, unique=True, max_size=8))
    histogram_metrics = draw(st.lists(names.map(lambda name: name + "_histogram"), unique=True, max_size=2))
    dtypes = draw(st.lists(st.sampled_from(list(NUMPY_TYPES)), min_size=len(metrics), max_size=len(metrics)))
    columns = [
        Column(metric, draw(texts), dtype, 0.0 if dtype == "f64" else draw(st.sampled_from([1.0, 0.001, 1e-9])))
        for metric, dtype in zip(metrics, dtypes, strict=True)
    ]
    bounds = st.lists(st.floats(-1e9, 1e9), unique=True, max_size=5).map(lambda items: tuple(sorted(items)))
    return make_schema(kind, columns, [HistogramColumn(metric, "s", draw(bounds)) for metric in histogram_metrics])


@st.composite
def entity_tables(draw: st.DrawFn, kind: EntityKind) -> EntityTable:
    keys = draw(st.lists(st.tuples(texts, texts), unique=True, max_size=5))
    entities = [Entity(entity, part, tuple(sorted(draw(attributes).items()))) for entity, part in keys]
    return EntityTable(kind, draw(texts), draw(texts), tuple(entities))


@st.composite
def stamps(draw: st.DrawFn, max_ticks: int = 5) -> Stamp:
    steps = draw(st.lists(st.integers(1, 60_000), max_size=max_ticks))
    first = draw(st.integers(0, 2**63))
    return Stamp(
        collector_id=draw(texts),
        host_id=draw(texts),
        source=draw(st.sampled_from(["host", "nvml", "scrape", "simulate"])),
        spool_id=draw(u64),
        first_sequence=first,
        last_sequence=first + draw(st.integers(0, 1000)),
        tick_times_ms=NOW_MS + np.cumsum(np.array(steps, np.int64)),
        interval_ms=draw(st.sampled_from([1000, 5000, 60000])),
        boot_id=draw(st.one_of(st.just(""), st.uuids(version=4).map(str))),
        clock_offset_ms=draw(st.none() | st.integers(-(2**42), 2**42)),
        clock_uncertainty_ms=draw(st.integers(0, 2**32 - 1)),
        live=draw(st.booleans()),
    )


@st.composite
def row_keys(draw: st.DrawFn, ticks: int, entities: int) -> tuple[Any, Any]:
    """Either the whole grid in tick-major order, or some cells of it in any order."""
    grid = [(entity, tick) for tick in range(ticks) for entity in range(entities)]
    keys = grid if draw(st.booleans()) or not grid else draw(st.lists(st.sampled_from(grid), unique=True))
    return np.array([key[0] for key in keys], np.uint32), np.array([key[1] for key in keys], np.uint16)


@st.composite
def scalar_blocks(draw: st.DrawFn, schema: Schema, ticks: int, entities: int) -> ScalarBlock:
    entity_index, tick_index = draw(row_keys(ticks, entities))
    rows, columns = len(entity_index), len(schema.columns)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    delta = np.full(rows, draw(st.integers(-5, 5)), np.int32)
    if draw(st.booleans()):
        delta = random.integers(-(2**31), 2**31, rows).astype(np.int32)
    quality = _qualities(draw, random, columns, rows)
    present = (quality == Quality.OK) | (quality == Quality.ESTIMATE)
    listed = (quality != Quality.OK) & (quality != Quality.NONE)
    quality_column, quality_row = (index.ravel() for index in np.nonzero(listed))
    return ScalarBlock(
        entity_index,
        tick_index,
        delta,
        _groups(random, schema, present),
        quality_row.astype(np.uint32),
        quality_column.astype(np.uint16),
        quality[listed].astype(np.uint8),
    )


def _qualities(draw: st.DrawFn, random: Any, columns: int, rows: int) -> Any:
    quality = np.full((columns, rows), int(Quality.OK), np.uint8)
    for column in range(columns):
        match draw(st.sampled_from(["ok", "whole", "none", "mixed"])):
            case "whole":
                quality[column] = draw(st.sampled_from(ABSENT_QUALITIES))
            case "none":
                quality[column] = Quality.NONE
            case "mixed":
                quality[column] = random.integers(0, len(Quality), rows)
    return quality


def _groups(random: Any, schema: Schema, present: Any) -> tuple[Group, ...]:
    groups = []
    for layout in group_layouts(schema):
        shape = (layout.columns, present.shape[1])
        if layout.dtype.kind == "f":
            values = random.normal(size=shape) * 10.0 ** random.integers(-300, 300, shape)
        else:
            info = np.iinfo(layout.dtype)
            values = random.integers(info.min, info.max, shape, dtype=layout.dtype, endpoint=True)
        some = present[layout.first_column : layout.first_column + layout.columns]
        values[~some] = 0
        groups.append(Group(layout.first_column, values, None if some.all() else some))
    return tuple(groups)


@st.composite
def histogram_rows(draw: st.DrawFn, schema: Schema, column: int, ticks: int, entities: int) -> HistogramRows:
    entity_index, tick_index = draw(row_keys(ticks, entities))
    rows = len(entity_index)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    width = len(schema.histograms[column].bounds) + 1
    return HistogramRows(
        column,
        entity_index,
        tick_index,
        random.integers(0, 2**64, (rows, width), dtype=np.uint64),
        random.normal(size=rows),
        random.integers(0, NOW_MS, rows),
    )


events = st.builds(
    Event,
    metric=names,
    entity=texts,
    part=texts,
    time_ms=st.integers(0, NOW_MS),
    code=st.integers(-(2**63) + 1, 2**63 - 1),
    end_ms=st.none() | st.integers(0, NOW_MS),
    version=st.integers(0, 2**32 - 1),
    attributes=attributes,
)
infos = st.builds(Info, metric=names, entity=texts, part=texts, time_ms=st.integers(0, NOW_MS), attributes=attributes)


@st.composite
def contents(draw: st.DrawFn, ticks: int) -> Content:
    kind = draw(kinds)
    schema, table = draw(schemas(kind)), draw(entity_tables(kind))
    size = (ticks, len(table.entities))
    columns = draw(st.lists(st.sampled_from(range(len(schema.histograms))), unique=True)) if schema.histograms else []
    return Content(
        schema=schema,
        entities=table,
        scalars=draw(st.none() | scalar_blocks(schema, *size)),
        histograms=tuple(draw(histogram_rows(schema, column, *size)) for column in columns),
        events=tuple(draw(st.lists(events, max_size=3))),
        infos=tuple(draw(st.lists(infos, max_size=3))),
    )


@st.composite
def stamped_contents(draw: st.DrawFn) -> tuple[Stamp, Content]:
    """What a sender can put in one frame."""
    stamp = draw(stamps())
    return stamp, draw(contents(len(stamp.tick_times_ms)))


def same(left: Any, right: Any) -> bool:
    """Tell whether two contents, headers, stamps or parts of them are equal, arrays bit by bit with their types."""
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if is_dataclass(left):
        names_ = [item.name for item in fields(left)]
        return type(left) is type(right) and all(same(getattr(left, name), getattr(right, name)) for name in names_)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right)
