"""Narrow rows of the live window to what one scope and some filters admit.

The same boxes as `query/scoped.py` writes into SQL: a row is inside a box when it is inside every field of it, and is
seen when it is inside one of them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondsight.access.scope import Scope
from secondsight.live.block import LiveBlock
from secondsight.live.names import Directory

I32 = NDArray[np.int32]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Visible:
    """What is admitted, by number of the series and of the owner.

    Attributes:
        series: Which series may have rows that are admitted; shape (series,).
        few: Their numbers.
        boxes: Series and owners whose rows are admitted; None for the owners where all are.
        owner_count: How many owners were known.
    """

    series: Bools
    few: I32
    boxes: tuple[tuple[Bools, Bools | None], ...]
    owner_count: int

    @property
    def is_by_owner(self) -> bool:
        """Tell whether of a series that may have rows here some rows are not admitted."""
        return any(of_owner is not None for _, of_owner in self.boxes)

    def admits(self, series: I32, owner: I32) -> Bools:
        """Tell of each pair of a series and an owner whether its rows are admitted."""
        found = np.zeros(series.size, np.bool_)
        for of_series, of_owner in self.boxes:
            inside = of_series[series]
            found |= inside if of_owner is None else inside & of_owner[owner]
        return found


@dataclass(frozen=True, slots=True)
class LiveReading:
    """The rows of a range that a reader may see; nothing else of the blocks may leave.

    Attributes:
        series, owners: Directories of the numbers that blocks hold.
        blocks: Those that reach into [from_ms, to_ms), in order of time; rows outside the range are among theirs.
        visible: Which of their rows are admitted.
    """

    series: Directory
    owners: Directory
    blocks: tuple[LiveBlock, ...]
    visible: Visible
    from_ms: int
    to_ms: int

    def rows(self, block: LiveBlock) -> Bools | None:
        """Tell of each row of a block whether it is admitted and of the range; None where all are."""
        inside = self.admits(block.series, block.owner)
        if block.start_ms < self.from_ms or block.end_ms > self.to_ms:
            timely = (block.t >= self.from_ms) & (block.t < self.to_ms)
            inside = timely if inside is None else inside & timely
        return None if inside is None or inside.all() else inside

    def admits(self, series: I32, owner: I32) -> Bools | None:
        """Tell of pairs of series and owner whether rows of theirs are admitted; None where all are."""
        visible = self.visible
        whole = not visible.is_by_owner and visible.few.size == visible.series.size
        return None if whole else visible.admits(series, owner)


def visible(series: Directory, owners: Directory, scope: Scope, where: Mapping[str, Collection[str]]) -> Visible:
    """Return what a scope and filters admit of the series and owners that are known."""
    owner_count = owners.size
    places = _within(series, where, series.size)
    owned = [name for name in where if name in owners.columns and where[name]]
    asked = _within(owners, where, owner_count) if owned else None
    boxes = tuple((_place(series, box, places), _owner(owners, box, asked)) for box in scope.boxes)
    if all(of_owner is None for _, of_owner in boxes):
        boxes = ((np.logical_or.reduce([of_series for of_series, _ in boxes]), None),)
    seen: Bools = np.logical_or.reduce([of_series for of_series, _ in boxes])
    return Visible(seen, np.flatnonzero(seen).astype(np.int32), boxes, owner_count)


def _place(series: Directory, box: Scope, places: Bools) -> Bools:
    fields: dict[str, Collection[str] | None] = {"tenant_id": box.tenant_ids, "cluster_id": box.clusters}
    return places & _inside(series, fields, places.size)


def _owner(owners: Directory, box: Scope, asked: Bools | None) -> Bools | None:
    """Return the owners that a box admits: an unallocated second is inside none that names some."""
    sets = {"owner_team": box.teams, "job_id": box.jobs, "model_id": box.model_ids}
    fields = {name: None if values is None else values - {""} for name, values in sets.items()}
    if all(values is None for values in fields.values()):
        return asked
    inside = _inside(owners, fields, owners.size if asked is None else asked.size)
    return inside if asked is None else inside & asked


def _within(directory: Directory, where: Mapping[str, Collection[str]], size: int) -> Bools:
    """Return what filters admit; those without any value, and those of other columns, admit all."""
    return _inside(directory, {name: where.get(name) or None for name in directory.columns}, size)


def _inside(directory: Directory, fields: Mapping[str, Collection[str] | None], size: int) -> Bools:
    """Return which combinations hold one of some texts in each column; None admits all, nothing admits none."""
    found = np.ones(size, np.bool_)
    for column, values in fields.items():
        if values is not None:
            wanted: Sequence[int] = directory.names[column].known(tuple(values))
            found &= np.isin(directory.codes(column)[:size], np.array(wanted, np.int32))
    return found
