"""Turn the polls of a window into what is shipped of it: the last poll, and secondary rows of its gauges.

The rows together give the rollup that every poll would have given: see `catalog.secondary`. Kept besides are the polls
at which a state changed, a counter fell, or a metric was there for the last time. Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.agent.plan.dense import Cube, Dense, Poll, line_up
from secondsight.agent.plan.model import FULL_MS
from secondsight.catalog.metric import RollupSet
from secondsight.catalog.secondary import WINDOW_SECONDS, Statistic, secondary_part, split_part
from secondsight.mapping.cells import Key
from secondsight.wire.content import Bools, Content, Entity, EntityTable, Group, ScalarBlock, Schema

Values = NDArray[Any]
RollupOf = Callable[[str], RollupSet]

GAUGES = (RollupSet.LEVEL, RollupSet.DISTRIBUTION)
PERCENT = 95
TABLES_CACHED = 16
USUAL = tuple(statistic for statistic in Statistic if statistic is not Statistic.COUNT)


@dataclass(frozen=True, slots=True)
class Row:
    """Cells to be shipped of one subject; per cube values and presence, shape (columns,) each."""

    key: Key
    cells: tuple[tuple[Values, Bools], ...]


class Tables:
    """Entity tables by what they list, so that frames of one window and the next can be merged."""

    def __init__(self) -> None:
        self._known: dict[tuple[EntityTable, tuple[Key, ...], tuple[Key, ...]], EntityTable] = {}

    def table(self, like: EntityTable, keys: tuple[Key, ...], further: tuple[Key, ...]) -> EntityTable:
        """Return a table with the entities of another, those of `keys` that it lacks, and further ones."""
        listed = {(item.entity, item.part) for item in like.entities}
        lacking = tuple(key for key in keys if key not in listed)
        if not (lacking or further):
            return like
        found = self._known.get((like, lacking, further))
        if found is None:
            if len(self._known) >= TABLES_CACHED:
                self._known.clear()
            more = tuple(Entity(*key) for key in (*lacking, *further))
            found = self._known[like, lacking, further] = replace(like, entities=like.entities + more)
        return found


def summarise(polls: Sequence[Poll], end_ms: int, rollup_of: RollupOf, tables: Tables) -> list[Poll]:
    """Return what is shipped of the polls of a window beside its first one, in the order of time.

    Args:
        polls: Readings of one stream, a second apart; at least one.
        end_ms: End of the window, by the clock of the ticks.
        rollup_of: Rollup set of a metric.
        tables: Remembers entity tables.
    """
    dense = line_up(polls)
    last = polls[-1].content
    counted = [replace(last, scalars=None)] if last.histograms else []
    if dense is not None:
        rows = [*_last_rows(dense), *_secondary_rows(dense, end_ms, rollup_of)]
        counted.insert(0, _with_quality(_content(last, dense, rows, tables), last))
    seen = [] if dense is None else _last_seen(dense, last, tables)
    return [*seen, *(Poll(polls[-1].tick_ms, content) for content in counted)]


def changes(before: Poll, now: Poll, rollup_of: RollupOf, tables: Tables) -> list[Poll]:
    """Return the states and counters that must be shipped of a poll, and of the one before it, as they moved."""
    dense = line_up((before, now))
    if dense is None:
        return []
    at_now: list[Row] = []
    at_before: list[Row] = []
    flags = [_moved(cube, dense.schema, rollup_of) for cube in dense.cubes]
    for row, key in enumerate(dense.keys):
        state, fell = (np.any([each[kind][:, row].any() for each in flags]) for kind in (0, 1))
        if not (state or fell):
            continue
        chosen = [(each[2] & bool(state)) | each[1][:, row] for each in flags]
        at_now.append(_row(dense, key, row, 1, chosen))
        if fell:
            at_before.append(_row(dense, key, row, 0, [each[1][:, row] for each in flags]))
    pairs = ((before, at_before), (now, at_now))
    return [Poll(poll.tick_ms, _content(now.content, dense, rows, tables)) for poll, rows in pairs if rows]


def _moved(cube: Cube, schema: Schema, rollup_of: RollupOf) -> tuple[Bools, Bools, Bools]:
    """Return where a state changed and where a counter fell, shapes (columns, rows), and which columns are states."""
    sets = [rollup_of(column.metric) for column in _columns(cube, schema)]
    states = np.array([each is RollupSet.STATE for each in sets], np.bool_)
    counters = np.array([each is RollupSet.INCREASE for each in sets], np.bool_)
    both = cube.present[0] & cube.present[1]
    appeared = cube.present[0] != cube.present[1]
    differs = (both & (cube.values[0] != cube.values[1])) | appeared
    fell = both & (cube.values[1] < cube.values[0])
    return differs & states[:, None], fell & counters[:, None], states


def _row(dense: Dense, key: Key, row: int, poll: int, chosen: Sequence[Bools]) -> Row:
    cells = [
        (cube.values[poll, :, row], cube.present[poll, :, row] & wanted)
        for cube, wanted in zip(dense.cubes, chosen, strict=True)
    ]
    return Row(key, tuple(cells))


def _last_rows(dense: Dense) -> Iterator[Row]:
    whole = [np.ones(cube.values.shape[1], np.bool_) for cube in dense.cubes]
    for row, key in enumerate(dense.keys):
        yield _row(dense, key, row, -1, whole)


def _last_seen(dense: Dense, like: Content, tables: Tables) -> list[Poll]:
    """Return, at their ticks, the cells that were there in a window and no longer in its last poll."""
    found: dict[int, list[Row]] = {}
    newest = [_newest(cube.present) for cube in dense.cubes]
    polls = len(dense.ticks_ms)
    for row, key in enumerate(dense.keys):
        at = {poll for each in newest for poll in each[:, row].tolist() if 0 < poll < polls - 1}
        for poll in at:
            found.setdefault(poll, []).append(_row(dense, key, row, poll, [each[:, row] == poll for each in newest]))
    return [Poll(dense.ticks_ms[poll], _content(like, dense, rows, tables)) for poll, rows in sorted(found.items())]


def _newest(present: Bools) -> NDArray[np.intp]:
    """Return the last poll in which each cell is present, -1 for never; shape (columns, rows)."""
    polls = present.shape[0]
    back = np.argmax(present[::-1], axis=0)
    return np.where(present.any(axis=0), polls - 1 - back, -1)


def _secondary_rows(dense: Dense, end_ms: int, rollup_of: RollupOf) -> Iterator[Row]:
    weights = _weights(dense, end_ms)
    found = [_statistics(cube, dense.schema, rollup_of, weights) for cube in dense.cubes]
    for statistic in Statistic:
        for row, (entity, part) in enumerate(dense.keys):
            cells = tuple((values[:, row], present[:, row]) for values, present in (each[statistic] for each in found))
            if any(present.any() for _, present in cells):
                yield Row((entity, secondary_part(part, statistic)), cells)


def _weights(dense: Dense, end_ms: int) -> NDArray[np.int64]:
    """Return the milliseconds that each poll covers inside the window."""
    ticks = np.array(dense.ticks_ms, np.int64)
    return np.minimum(FULL_MS, end_ms - ticks)


def _statistics(
    cube: Cube, schema: Schema, rollup_of: RollupOf, weights: NDArray[np.int64]
) -> dict[Statistic, tuple[Values, Bools]]:
    """Return (values, presence) of every statistic, shapes (columns, rows)."""
    sets = [rollup_of(column.metric) for column in _columns(cube, schema)]
    gauges = np.array([each in GAUGES for each in sets], np.bool_)[:, None]
    spread = np.array([each is RollupSet.DISTRIBUTION for each in sets], np.bool_)[:, None]
    values, present = cube.values, cube.present
    count = present.sum(axis=0)
    there = gauges & (count > 0)
    low, high = _ends(values.dtype)
    avg, rest = _mean(values, present, np.maximum(count, 1))
    return {
        Statistic.MIN: (np.where(present, values, high).min(axis=0), there),
        Statistic.MAX: (np.where(present, values, low).max(axis=0), there),
        Statistic.AVG: (avg, there),
        Statistic.REST: (rest, there & (rest != 0)),
        Statistic.P95: (_p95(values, present, weights), there & spread),
        Statistic.COUNT: (count.astype(values.dtype), there & (count != WINDOW_SECONDS)),
    }


def _ends(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return dtype.type(-np.inf), dtype.type(np.inf)
    return dtype.type(np.iinfo(dtype).min), dtype.type(np.iinfo(dtype).max)


def _mean(values: Values, present: Bools, count: NDArray[np.int64]) -> tuple[Values, Values]:
    """Return quotient and rest of the sum by the count; sums never leave the type, however large the values."""
    if values.dtype.kind == "f":
        mean = np.where(present, values, 0).sum(axis=0) / count
        return mean, np.zeros_like(mean)
    divisor = count.astype(values.dtype)
    quotients, rests = np.divmod(np.where(present, values, values.dtype.type(0)), divisor)
    wide = np.uint64 if values.dtype.kind == "u" else np.int64
    rest = rests.sum(axis=0, dtype=wide)
    divided = count.astype(wide)
    avg = quotients.sum(axis=0, dtype=wide) + rest // divided
    return avg.astype(values.dtype), (rest % divided).astype(values.dtype)


def _p95(values: Values, present: Bools, weights: NDArray[np.int64]) -> Values:
    """Return the least value whose share of the weight reaches 95 %."""
    _, high = _ends(values.dtype)
    order = np.argsort(np.where(present, values, high), axis=0, kind="stable")
    weighed = np.where(present, weights[:, None, None], 0)
    reached = np.cumsum(np.take_along_axis(weighed, order, axis=0), axis=0)
    rank = np.argmax(reached * 100 >= PERCENT * reached[-1], axis=0)
    picked: Values = np.take_along_axis(np.take_along_axis(values, order, axis=0), rank[None], axis=0)[0]
    return picked


def _columns(cube: Cube, schema: Schema) -> Sequence[Any]:
    return schema.columns[cube.first_column : cube.first_column + cube.values.shape[1]]


def _content(like: Content, dense: Dense, rows: Iterable[Row], tables: Tables) -> Content:
    """Return a content of some rows, of one tick."""
    chosen = sorted((row for row in rows if any(present.any() for _, present in row.cells)), key=lambda row: row.key)
    table = tables.table(like.entities, dense.keys, _further(row.key for row in chosen))
    place = {(item.entity, item.part): at for at, item in enumerate(table.entities)}
    block = ScalarBlock(
        entity_index=np.array([place[row.key] for row in chosen], np.uint32),
        tick_index=np.zeros(len(chosen), np.uint16),
        observed_delta_ms=np.zeros(len(chosen), np.int32),
        groups=tuple(_group(cube, at, chosen) for at, cube in enumerate(dense.cubes)),
        quality_row=np.zeros(0, np.uint32),
        quality_column=np.zeros(0, np.uint16),
        quality=np.zeros(0, np.uint8),
    )
    return Content(dense.schema, table, block if chosen else None)


def _further(keys: Iterable[Key]) -> tuple[Key, ...]:
    """Return the secondary subjects to be listed: the usual statistics of each that has a mean, and what else is there.

    A list that followed the rows would change from window to window, as a rest of 0 has no row.
    """
    listed: dict[Key, None] = {}
    for entity, part in keys:
        plain, statistic = split_part(part)
        if statistic is Statistic.AVG:
            listed |= dict.fromkeys((entity, secondary_part(plain, each)) for each in USUAL)
        elif statistic is Statistic.COUNT:
            listed[entity, part] = None
    return tuple(listed)


def _group(cube: Cube, place: int, rows: Sequence[Row]) -> Group:
    columns = cube.values.shape[1]
    values = np.zeros((columns, len(rows)), cube.values.dtype)
    present = np.zeros(values.shape, np.bool_)
    for number, row in enumerate(rows):
        values[:, number], present[:, number] = row.cells[place]
    return Group(cube.first_column, values, None if present.all() else present)


def _with_quality(shipped: Content, last: Content) -> Content:
    """Add why cells of the last poll have no value, or only an estimate."""
    block, told = shipped.scalars, last.scalars
    if block is None or told is None or not told.quality.size:
        return shipped
    items, known = last.entities.entities, shipped.entities.entities
    place = {(known[at].entity, known[at].part): row for row, at in enumerate(block.entity_index.tolist())}
    told_of = [items[told.entity_index[row]] for row in told.quality_row.tolist()]
    rows = np.array([place.get((item.entity, item.part), -1) for item in told_of], np.int64)
    listed = rows >= 0
    scalars = replace(
        block,
        quality_row=rows[listed].astype(np.uint32),
        quality_column=told.quality_column[listed],
        quality=told.quality[listed],
    )
    return replace(shipped, scalars=scalars)
