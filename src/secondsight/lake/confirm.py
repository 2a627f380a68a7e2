"""Say whether the lake has everything that the hot store has of a range, before the hot store lets go of it."""

from dataclasses import dataclass

from pyiceberg.table import Table

from secondsight.contracts import Store
from secondsight.lake.hot import slice_marks, slice_windows
from secondsight.lake.layout import LakeTable, Slice
from secondsight.lake.lesser import window_columns
from secondsight.lake.rows import Mark
from secondsight.lake.stored import overlapping_files
from secondsight.lake.summary import copied_of
from secondsight.lake.tables import Lake
from secondsight.lake.watch import slices_within


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Whether the lake has all of a range.

    Attributes:
        lacking: Slices that it lacks, or has differently; the range may be dropped when there are none.
        rows: Rows of the range in the hot store.
    """

    lacking: tuple[Slice, ...]
    rows: int

    @property
    def is_whole(self) -> bool:
        """Tell whether the hot store may drop the range."""
        return not self.lacking


def confirmed(store: Store, lake: Lake, table: LakeTable, start_ms: int, end_ms: int) -> bool:
    """Tell whether the lake has all rows of a table in [start_ms, end_ms), as the hot store has them now.

    Raises:
        Retryable: The hot store or the lake is away.
    """
    return confirmation(store, lake, table, start_ms, end_ms).is_whole


def confirmation(store: Store, lake: Lake, table: LakeTable, start_ms: int, end_ms: int) -> Confirmation:
    """Compare a range of a table in the hot store with the lake.

    Counts and versions of each slice's rows must be those that were copied, and the live files must hold as many rows,
    or one of each window where these are rollups: of windows that the lake knew more of it did not take all.

    Raises:
        Retryable: The hot store or the lake is away.
    """
    slices = slices_within(store, table, start_ms, end_ms)
    now: dict[Slice, Mark] = {}
    for each in slices:
        now |= slice_marks(store, table, [each])
    rows = sum(mark.rows for mark in now.values())
    if not now:
        return Confirmation((), 0)
    found = lake.table(table.name)
    if found is None:
        return Confirmation(tuple(now), rows)
    marks = copied_of(found, table).marks
    lacking = [each for each, mark in now.items() if marks.get(each) != mark]
    lacking += [
        each for each, mark in now.items() if each not in lacking and not _is_held(store, found, table, each, mark)
    ]
    return Confirmation(tuple(sorted(lacking)), rows)


def _is_held(store: Store, found: Table, table: LakeTable, wanted: Slice, mark: Mark) -> bool:
    """Tell whether the live files that may have rows of a slice hold enough for all of these."""
    held = sum(file.record_count for file in overlapping_files(found, table, wanted))
    columns = window_columns(table)
    return held >= mark.rows or bool(columns and held >= slice_windows(store, table, wanted, columns))
