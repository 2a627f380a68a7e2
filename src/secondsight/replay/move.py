"""Copy a running store into another one, table by table, while rows still come.

A first pass copies everything, further ones what was inserted since, until a pass finds little. Rows keep their keys
and versions, so copying them again changes nothing, and a newer version wins wherever it comes first.
"""

from collections.abc import Callable, Mapping, Sequence

from secondsight.contracts import Store
from secondsight.lake.hot import groups_of, portion_rows, portions
from secondsight.lake.layout import LakeTable, Slice, lake_table
from secondsight.lake.watch import changed_slices
from secondsight.replay.journal import Journal
from secondsight.replay.rows import from_store
from secondsight.store.spec import TableSpec, quoted

PORTION_ROWS = 100_000
PASSES = 20
FEW_SLICES = 50
NOT_MOVED = frozenset({"schema_version"})
"""Tables that a store makes for itself."""

Progress = Callable[[str, int, int], None]
"""Is told: the table, pieces of it that are written, pieces in all."""


class Mover:
    """Copies tables. For one thread."""

    def __init__(self, source: Store, target: Store, journal: Journal, progress: Progress) -> None:
        self._source = source
        self._target = target
        self._journal = journal
        self._progress = progress
        self.rows = 0

    def run(self, specs: Mapping[str, TableSpec]) -> int:
        """Copy all tables; return how many passes that took.

        Raises:
            Retryable: A store is away; what was copied is remembered.
        """
        shapes = {name: lake_table(spec) for name, spec in specs.items() if name not in NOT_MOVED}
        passes, copied = 0, FEW_SLICES + 1
        while copied > FEW_SLICES and passes < PASSES:
            copied = sum(self._table(name, specs[name], shape) for name, shape in shapes.items())
            passes += 1
        return passes

    def _table(self, name: str, spec: TableSpec, shape: LakeTable | None) -> int:
        """Copy what a table has that was not copied; return how many slices had changed."""
        if shape is None or not spec.partition:
            self._whole(name)
            return 0
        slices, block = changed_slices(self._source, shape, self._journal.seen(name))
        for place, each in enumerate(sorted(slices), start=1):
            piece = f"{name} {each.start_ms} {each.tenant} {each.cluster} {block}"
            if not self._journal.is_done(piece):
                self._slice(shape, each)
                self._journal.done(piece)
            self._progress(name, place, len(slices))
        if slices:
            self._journal.saw(name, block)
        return len(slices)

    def _slice(self, shape: LakeTable, wanted: Slice) -> None:
        for bounds in portions(groups_of(self._source, shape, wanted), PORTION_ROWS):
            self._put(shape.name, portion_rows(self._source, shape, wanted, bounds))

    def _whole(self, name: str) -> None:
        self._put(name, self._source.query(f"SELECT * FROM {quoted(name)}"))  # noqa: S608 - a name of the code
        self._progress(name, 1, 1)

    def _put(self, name: str, rows: object) -> None:
        made = from_store(rows)
        if made.num_rows:
            self._target.insert(name, made)
            self.rows += made.num_rows


def wanted_specs(specs: Sequence[TableSpec], names: Sequence[str]) -> dict[str, TableSpec]:
    """Return tables by name; all of them where none is named."""
    return {spec.name: spec for spec in specs if not names or spec.name in names}
