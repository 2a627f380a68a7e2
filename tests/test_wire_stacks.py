"""Reading the scalar blocks of many frames at once gives what reading each gives, and refuses what that refuses."""

import random
from collections import defaultdict

import numpy as np
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.errors import Rejected
from secondsight.model import EntityKind, Quality
from secondsight.wire import blocks
from secondsight.wire.content import Content, Entity, EntityTable
from secondsight.wire.frame import encode, open_frame, read_frame, read_header
from secondsight.wire.schema import Definitions
from secondsight.wire.stacks import read_stack, sound, stack_shape, tick_times
from test_wire_fuzz import mutate_block, with_body
from wire_strategies import scalar_blocks, schemas, stamps

TABLE = EntityTable(EntityKind.GPU, "host-1", "", tuple(Entity(f"GPU-{number}") for number in range(3)))


@st.composite
def frame_lists(draw):
    """Frames of one schema, of which some are alike."""
    schema, version = draw(schemas(EntityKind.GPU)), draw(st.sampled_from([1, 2]))
    stamp = draw(stamps(max_ticks=3))
    drawn = [draw(scalar_blocks(schema, len(stamp.tick_times_ms), 3)) for _ in range(draw(st.integers(1, 3)))]
    contents = [Content(schema, TABLE, block) for block in drawn for _ in range(2)]
    return [encode(stamp, content, inline=True, version=version) for content in contents]


def alone(frame):
    """Return the scalars of a frame, or None where it is refused."""
    try:
        return read_frame(frame, open_frame(frame, Definitions())).content.scalars
    except Rejected:
        return None


def opened(frame):
    try:
        return open_frame(frame, Definitions())
    except Rejected:
        return None


def stacked(frames):
    """Give (frames, views, data, known, shape) of those that are alike and can be read together."""
    groups = defaultdict(list)
    for frame in frames:
        item = opened(frame)
        if item is not None and len(item.blocks) == 1 and item.blocks[0].kind == blocks.SCALARS:
            data = item.blocks[0].data
            shape = stack_shape(data, item.view, item.known, len(item.entities.entities))
            if shape is not None:
                groups[shape].append((frame, item.view, data, item.known))
    for shape, items in groups.items():
        frames, views, data, known = zip(*items, strict=True)
        yield frames, views, data, known[0], shape


def codes_of(block, columns):
    codes = np.zeros((columns, len(block.entity_index)), np.uint8)
    for group in block.groups:
        present = np.ones(group.values.shape, np.bool_) if group.present is None else group.present
        codes[group.first_column :][: len(present)] = np.where(present, Quality.OK, Quality.NONE)
    codes[block.quality_column, block.quality_row] = block.quality
    return codes


def require_equal(stack, number, block, columns):
    assert stack.delta_ms[number].tolist() == block.observed_delta_ms.tolist()
    codes = np.ones((columns, len(block.entity_index)), np.uint8) if stack.codes is None else stack.codes[:, number]
    assert codes.tolist() == codes_of(block, columns).tolist()
    for values, group in zip(stack.groups, block.groups, strict=True):
        assert values.dtype == group.values.dtype
        assert values[:, number].tobytes() == group.values.tobytes()


def _mutated(frame, choose):
    head = read_header(frame)
    return with_body(head, mutate_block(choose, zstandard.decompress(frame[head.body_start :])))


@settings(max_examples=150, deadline=None)
@given(frame_lists())
def test_a_stack_holds_the_same_cells(frames):
    for members, views, data, known, shape in stacked(frames):
        assert sound(data, views, shape).all()
        stack = read_stack(data, views, known, shape)
        times = tick_times(members, views)
        for number, frame in enumerate(members):
            require_equal(stack, number, alone(frame), len(known.schema.columns))
            header = read_frame(frame, open_frame(frame, Definitions())).header
            assert times[number].tolist() == header.tick_times_ms.tolist()


@settings(max_examples=150, deadline=None)
@given(frame_lists(), st.integers(0, 2**32))
def test_a_stack_is_sound_just_where_each_frame_is_accepted(frames, seed):
    choose = random.Random(seed)
    mutated = [_mutated(frame, choose) for frame in frames for _ in range(5)]
    for members, views, data, known, shape in stacked([*frames, *mutated]):
        good = sound(data, views, shape)
        assert good.tolist() == [alone(frame) is not None for frame in members]
        if good.all():
            stack = read_stack(data, views, known, shape)
            for number, frame in enumerate(members):
                require_equal(stack, number, alone(frame), len(known.schema.columns))
