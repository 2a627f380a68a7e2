"""Merging frames of one collector is putting their rows together."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.model import EntityKind
from secondsight.wire.content import Content, Entity, EntityTable
from secondsight.wire.frame import decode, encode, stamp_of
from secondsight.wire.merge import merge, merge_key
from secondsight.wire.schema import Definitions
from wire_strategies import histogram_rows, same, scalar_blocks, schemas, stamps

TABLE = EntityTable(EntityKind.GPU, "host-1", "", tuple(Entity(f"GPU-{number}") for number in range(3)))


@st.composite
def frame_runs(draw):
    """Frames of one collector, schema and entity table, their ticks one after the other."""
    schema = draw(schemas(EntityKind.GPU))
    first = replace(draw(stamps(max_ticks=2)), clock_offset_ms=None)
    frames = []
    for number in range(draw(st.integers(1, 4))):
        stamp = replace(
            first,
            tick_times_ms=first.tick_times_ms + 1_000_000 * number,
            first_sequence=first.first_sequence + 10 * number,
            last_sequence=first.first_sequence + 10 * number + 3,
        )
        ticks = len(stamp.tick_times_ms)
        histograms = [draw(histogram_rows(schema, column, ticks, 3)) for column in range(len(schema.histograms))]
        content = Content(schema, TABLE, draw(st.none() | scalar_blocks(schema, ticks, 3)), tuple(histograms))
        frames.append(decode(encode(stamp, content, inline=True), Definitions()))
    return frames


def cells(frames):
    """Every scalar cell of some frames: (tick, entity, column) -> (value or None, quality, delta)."""
    found = {}
    for frame in frames:
        block = frame.content.scalars
        if block is None:
            continue
        quality = {
            (int(row), int(column)): int(code)
            for row, column, code in zip(block.quality_row, block.quality_column, block.quality, strict=True)
        }
        for group in block.groups:
            for column, row in np.ndindex(group.values.shape):
                there = group.present is None or group.present[column, row]
                key = (int(frame.header.tick_times_ms[block.tick_index[row]]), int(block.entity_index[row]))
                where = (row, group.first_column + column)
                value = group.values[column, row].tobytes() if there else None
                assert (*key, where[1]) not in found
                found[*key, where[1]] = (value, quality.get(where), int(block.observed_delta_ms[row]))
    return found


@settings(max_examples=150, deadline=None)
@given(frame_runs())
def test_a_merged_frame_holds_the_same_cells(frames):
    stamp, content = merge(frames)
    merged = decode(encode(stamp, content, inline=True), Definitions())
    assert cells([merged]) == cells(frames)
    assert (merged.header.first_sequence, merged.header.last_sequence) == (
        frames[0].header.first_sequence,
        frames[-1].header.last_sequence,
    )
    assert merged.header.values == sum(frame.header.values for frame in frames)
    assert merged.header.quality_cells == sum(frame.header.quality_cells for frame in frames)
    assert sum(len(rows.sums) for rows in merged.content.histograms) == sum(
        len(rows.sums) for frame in frames for rows in frame.content.histograms
    )


@settings(max_examples=50, deadline=None)
@given(frame_runs())
def test_merging_one_frame_changes_nothing(frames):
    stamp, content = merge(frames[:1])
    assert same(stamp, stamp_of(frames[0].header))
    assert same(content, frames[0].content)


@settings(max_examples=10, deadline=None)
@given(frame_runs())
def test_frames_of_two_collectors_are_not_merged(frames):
    other = replace(frames[0], header=replace(frames[0].header, collector_id="another collector"))
    assert merge_key(other.header) != merge_key(frames[0].header)
    with pytest.raises(ValueError, match="one collector"):
        merge([frames[0], other])
