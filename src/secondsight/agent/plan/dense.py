"""Line up the polls of one stream: one matrix per stored type, by poll, column and row.

Columns and rows of a reader may grow from poll to poll; the matrices have the columns of the newest poll and the rows
that any poll had. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.mapping.cells import Attributes, Key
from secondsight.wire.content import Bools, Content, Entity, ScalarBlock, Schema
from secondsight.wire.schema import group_layouts

Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Poll:
    """What one stream read at one tick, readings alone."""

    tick_ms: int
    content: Content


@dataclass(frozen=True, slots=True)
class Cube:
    """Cells of the columns of one stored type; shapes (polls, columns, rows)."""

    first_column: int
    values: Values
    present: Bools


@dataclass(frozen=True, slots=True)
class Dense:
    """Polls lined up; `keys[r]` is whom row r is about."""

    schema: Schema
    keys: tuple[Key, ...]
    attributes: dict[Key, Attributes]
    ticks_ms: tuple[int, ...]
    cubes: tuple[Cube, ...]


def line_up(polls: Sequence[Poll]) -> Dense | None:
    """Return polls lined up; None where none has scalar rows."""
    told = [poll for poll in polls if poll.content.scalars is not None]
    if not told:
        return None
    schema = told[-1].content.schema
    entities: dict[Key, Entity] = {}
    for poll in told:
        entities |= _subjects(poll.content)
    keys = tuple(sorted(entities))
    place = {key: row for row, key in enumerate(keys)}
    cubes = []
    for layout in group_layouts(schema):
        shape = (len(polls), layout.columns, len(keys))
        cubes.append(Cube(layout.first_column, np.zeros(shape, layout.dtype), np.zeros(shape, np.bool_)))
    for number, poll in enumerate(polls):
        if poll.content.scalars is not None:
            _fill(cubes, number, poll.content, schema, place)
    attributes = {key: item.attributes for key, item in entities.items()}
    return Dense(schema, keys, attributes, tuple(poll.tick_ms for poll in polls), tuple(cubes))


def _subjects(content: Content) -> dict[Key, Entity]:
    block = content.scalars
    positions = () if block is None else block.entity_index.tolist()
    items = [content.entities.entities[position] for position in positions]
    return {(item.entity, item.part): item for item in items}


def _fill(cubes: Sequence[Cube], number: int, content: Content, schema: Schema, place: dict[Key, int]) -> None:
    block: ScalarBlock | None = content.scalars
    if block is None:
        return
    items = content.entities.entities
    rows = np.array([place[items[at].entity, items[at].part] for at in block.entity_index.tolist()], np.intp)
    targets = _places(content.schema, schema)
    for group in block.groups:
        for local in range(group.values.shape[0]):
            target = targets[group.first_column + local]
            if target is None:
                continue
            cube = next(each for each in cubes if each.first_column <= target < each.first_column + _width(each))
            column = target - cube.first_column
            cube.values[number, column, rows] = group.values[local]
            cube.present[number, column, rows] = True if group.present is None else group.present[local]


def _width(cube: Cube) -> int:
    return int(cube.values.shape[1])


def _places(schema: Schema, wanted: Schema) -> Sequence[int | None]:
    """Return, per column of a schema, its column in the wanted one."""
    if schema is wanted:
        return range(len(schema.columns))
    places = {(column.metric, column.dtype): position for position, column in enumerate(wanted.columns)}
    return [places.get((column.metric, column.dtype)) for column in schema.columns]
