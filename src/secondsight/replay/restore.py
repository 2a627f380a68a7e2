"""Write rows of the lake back into a store, an hour or a day at a time, while live rows come.

Rows keep their keys. What the store has of a key already and is as new stays, so nothing is doubled or set back, and a
range may be written again at any time. Rollups are written as the lake has them; coarser ones follow by themselves
from what is new in finer ones.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pyiceberg import expressions as untyped_expressions

from secondsight.contracts import Store
from secondsight.lake.layout import LakeTable
from secondsight.lake.tables import AWAY, Lake, away
from secondsight.replay.journal import Journal
from secondsight.replay.rows import from_lake

Progress = Callable[[str, int, int], None]
"""Is told: the table, pieces of it that are written, pieces in all."""
_expressions: Any = untyped_expressions  # their constructors take more than their types say


class Restorer:
    """Writes rows back. For one thread."""

    def __init__(self, lake: Lake, target: Store, journal: Journal, progress: Progress) -> None:
        self._lake = lake
        self._target = target
        self._journal = journal
        self._progress = progress
        self.rows = 0

    def run(self, shape: LakeTable, from_ms: int, to_ms: int) -> None:
        """Write the rows of a table in [from, to), widened to whole slices.

        Raises:
            Retryable: The lake or the store is away; what was written is remembered.
        """
        table = self._lake.table(shape.name)
        width_ms = shape.slice_ms
        starts = range(from_ms // width_ms * width_ms, to_ms, width_ms)
        for place, start_ms in enumerate(starts, start=1):
            piece = f"{shape.name} {start_ms}"
            if table is not None and not self._journal.is_done(piece):
                self._piece(table, shape, start_ms, start_ms + width_ms)
                self._journal.done(piece)
            self._progress(shape.name, place, len(starts))

    def _piece(self, table: Any, shape: LakeTable, start_ms: int, end_ms: int) -> None:
        within = _expressions.And(
            _expressions.GreaterThanOrEqual(shape.time_column, _stamp(start_ms)),
            _expressions.LessThan(shape.time_column, _stamp(end_ms)),
        )
        try:
            for batch in _batches(table.scan(row_filter=within)):
                self._target.insert(shape.name, from_lake(batch, shape.spec))
                self.rows += batch.num_rows
        except AWAY as error:
            raise away(error) from error


def _batches(scan: Any) -> Any:
    import pyarrow as pa

    for batch in scan.to_arrow_batch_reader():
        if batch.num_rows:
            yield pa.Table.from_batches([batch])


def _stamp(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()
