"""Say from when on a view has every row: what is older was let go of, and a statement cannot see it."""

from collections.abc import Callable, Mapping, Sequence

from secondsight.guard.intervals import Span
from secondsight.query.times import format_time
from secondsight.store.views import Metrics, curated_views


class Floors:
    """What the hot store let go of, by view. Safe to call from several threads.

    Attributes:
        read: Gives table -> epoch ms from which on it has every row; tables that have all are left out.
    """

    def __init__(self, catalog: Metrics, database: str, read: Callable[[], Mapping[str, int]]) -> None:
        self._tables = {view.name: view.table for view in curated_views(catalog, database)}
        self._read = read

    def caveats(self, reads: Sequence[Span]) -> tuple[str, ...]:
        """Return what a reader has to know of ranges that begin before the first row that is left.

        Raises:
            Retryable: The metadata store is away.
        """
        floors = self._read()
        short = {
            read.view: floors[table]
            for read in reads
            if (table := self._tables.get(read.view, "")) in floors and read.from_ms < floors[table]
        }
        return tuple(
            f"{view} has rows from {format_time(floor_ms)} on; older ones are in the lake alone, which the API reads"
            for view, floor_ms in short.items()
        )
