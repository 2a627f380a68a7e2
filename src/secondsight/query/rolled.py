"""Turn rows of 30 s in memory into windows: what `windowed.py` makes of rows of seconds."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from secondsight.live.block import LiveBlock
from secondsight.query.members import members_of
from secondsight.query.plan import SeriesPlan, Span
from secondsight.query.windowed import I64, Admit, Bools, Column, Frame, Owner, Rows, Windows, picked, whole

_COMPUTE: Any = pc


def rollup_windows(plan: SeriesPlan, frame: Frame, span: Span, admit: Admit, owner: Owner) -> list[Windows]:
    """Return the windows of a range that 30 s rows give."""
    return [found for block in frame.blocks if (found := _rolled(plan, block, span, admit, owner)) is not None]


def _rolled(plan: SeriesPlan, block: LiveBlock, span: Span, admit: Admit, owner: Owner) -> Windows | None:
    """Return the windows of the 30 s rows of one block."""
    metric = plan.selected.metric
    found = picked(block, block.column(f"{metric.name}_last"), span, admit)
    if found is None:
        return None
    row: Rows = found[0]
    samples = whole(block, "samples", row).astype(np.int64)
    if not samples.all():
        row, samples = np.arange(block.size)[row][samples > 0], samples[samples > 0]
    interval = np.maximum(whole(block, "interval_ms", row).astype(np.int64), 1)
    covered = whole(block, "covered_ms", row).astype(np.int64)
    other = _counts(block, "covered_other", metric.name, row)
    slots = samples
    if other is not None:
        there, covered_other = other
        slots = np.where(there, np.rint(covered_other / interval).astype(np.int64), samples)
    nothing = np.zeros(samples.size, np.int64)
    return Windows(
        series=block.series[row],
        window_ms=block.t[row],
        owner=owner(block, row),
        rank=whole(block, "source_rank", row).astype(np.int64),
        members=_stored(plan, block, row, covered),
        slots=slots,
        first_ms=whole(block, "first_event_time", row),
        last_ms=whole(block, "last_event_time", row),
        gaps=nothing,
        late=nothing,
        rows=nothing,
    )


def _stored(plan: SeriesPlan, block: LiveBlock, row: Rows, covered: I64) -> dict[str, Column]:
    """Return the members of windows as their rows have them, as the right half of `members.py` says."""
    name = plan.selected.metric.name
    nothing = np.zeros(covered.size, np.int64)

    def of(suffix: str) -> Column:
        return _at(block, f"{name}_{suffix}", row)

    def other(kind: str, otherwise: I64) -> I64:
        found = _counts(block, kind, name, row)
        return otherwise if found is None else np.where(*found, otherwise)

    def floats(suffix: str) -> Column:
        found = of(suffix)
        return Column(found.values.astype(np.float64), found.present)

    def paired() -> Column:
        increase, span = of("increase"), other("increase_other", covered)
        return Column(span if increase.present is None else np.where(increase.present, span, 0))

    made: dict[str, Callable[[], Column]] = {
        "weighted": lambda: of("sum"),
        "covered": lambda: Column(other("covered_other", covered)),
        "lowest": lambda: floats("min"),
        "highest": lambda: floats("max"),
        "latest": lambda: floats("last"),
        "latest_at": lambda: Column(whole(block, "last_event_time", row)),
        "gained": lambda: of("increase"),
        "paired": paired,
        "resets": lambda: Column(other("resets", nothing)),
        "changes": lambda: Column(other("changes", nothing)),
    }
    return {member.name: made[member.name]() for member in members_of(plan.selected.aggregate)}


def _at(block: LiveBlock, name: str, row: Rows) -> Column:
    """Return a column at some rows."""
    column = block.column(name)
    if column.rows is None:
        return Column(column.values[row])
    values, present = np.zeros(block.size, column.values.dtype), np.zeros(block.size, np.bool_)
    values[column.rows], present[column.rows] = column.values, True
    return Column(values[row], present[row])


def _counts(block: LiveBlock, name: str, metric: str, row: Rows) -> tuple[Bools, I64] | None:
    """Return which of some rows have a metric in a map, and what; None where none of the block has it."""
    column = block.column(name)
    if not len(column.values):
        return None
    maps = column.values
    keys, offsets = maps.keys, maps.offsets.to_numpy()
    keys = keys.cast(pa.string()) if pa.types.is_dictionary(keys.type) else keys
    entries = np.flatnonzero(_COMPUTE.equal(keys, metric).to_numpy(zero_copy_only=False))
    entries = entries[(entries >= offsets[0]) & (entries < offsets[-1])]
    if not entries.size:
        return None
    place = np.searchsorted(offsets, entries, side="right") - 1
    where = place if column.rows is None else column.rows[place]
    values, present = np.zeros(block.size, np.int64), np.zeros(block.size, np.bool_)
    values[where], present[where] = maps.items.to_numpy()[entries], True
    return present[row], values[row]
